"""Which processor a link between sockets stands for: what root complexes of known machines state of themselves.

The attributes ``cpu_arch``, ``cpu_vendor`` and ``cpu_model`` (as NCCL's topology files write them) decide what
`netsim.nccl` takes a machine for; nothing else reads them.
"""

Cpu = tuple[str, str, int]
"""Architecture, vendor and model."""

_INTEL, _AMD = ("x86_64", "GenuineIntel"), ("x86_64", "AuthenticAMD")
GRACE: Cpu = ("arm64", "", 0)
GRANITE_RAPIDS: Cpu = (*_INTEL, 0xAD)
_OF_SOCKET_LINK: dict[str | None, Cpu] = {
    "socket_amd": (*_AMD, 0x31),  # Rome
    "socket_amd_gen5": (*_AMD, 0x11),  # Genoa
    "socket_arm": GRACE,
    "socket_intel_broadwell": (*_INTEL, 0x4F),
    "socket_intel_skylake": (*_INTEL, 0x55),
    "socket_intel_sapphire_rapids": (*_INTEL, 0x8F),
    "socket_intel_emerald_rapids": (*_INTEL, 0xCF),
}


def processor_attributes(cpu: Cpu | None, socket_link: str | None) -> dict[str, str | int]:
    """Return the attributes of a root complex: of a stated processor, or of the one that a link between sockets tells."""
    known = cpu or _OF_SOCKET_LINK.get(socket_link)
    return {} if known is None else dict(zip(("cpu_arch", "cpu_vendor", "cpu_model"), known, strict=True))
