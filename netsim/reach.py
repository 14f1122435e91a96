"""How far apart two ends of a route are, in NCCL's path types, and what may reach how far without host memory.

NCCL sorts paths by the worst thing on them (NVLink, PCIe switches, a host bridge, two sockets) and lets GPUs read each
other's memory, or a NIC a GPU's, only up to a level (NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL, both PXB by default; over a
chip-to-chip link to the CPU a NIC is reached since 2.27). Restated here from node kinds alone; the order is that of
NCCL 2.30. Deliberately left out: the exceptions for AMD hosts with two GPUs, and reads that old GPUs do not make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netsim.errors import FabricError
from netsim.fabric import GPU, NETWORK_SWITCH, PCIE_SWITCH, ROOT_COMPLEX

LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""Path types from the nearest to the farthest; beyond them is only the network."""

DEFAULT_LEVEL = "PXB"
"""NCCL's default for peer-to-peer and for GPUDirect: several PCIe switches, no host bridge."""

_ORDER = {name: position for position, name in enumerate((*LEVELS, "NET"))}


@dataclass(frozen=True)
class Rules:
    """What a topology's graph attributes say about staging and relays."""

    gpudirect: bool = True
    """False: everything between a GPU and another host is staged in host memory."""
    gdr_level: str | None = None
    """Farthest path type at which a NIC reaches a GPU's memory; None for any."""
    p2p: str | None = None
    """Farthest path type at which GPUs of one host reach each other's memory; None for any."""
    pxn: bool = False
    """Whether a GPU may send through another one of its host, over NVLink, that sits on the right rail."""
    nvb: bool = False
    """Whether two GPUs without an NVLink may use a third one that has one to each (one hop, as NCCL does)."""

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> "Rules":
        """Read and check the rules of a graph.

        Raises
        ------
        FabricError
            For a level that NCCL does not know.
        """
        return cls(
            gpudirect=bool(attributes.get("gpudirect", True)),
            gdr_level=_level(attributes.get("gdr_level"), "gdr_level"),
            p2p=_level(attributes.get("p2p"), "p2p"),
            pxn=bool(attributes.get("pxn", False)),
            nvb=bool(attributes.get("nvb", False)),
        )

    def peers_reach(self, path_type: str) -> bool:
        """Say whether two GPUs of a host that are so far apart copy directly."""
        return self.p2p is None or _ORDER[path_type] <= _ORDER[self.p2p]

    def nic_reaches(self, path_type: str) -> bool:
        """Say whether a NIC and a GPU that are so far apart use GPUDirect."""
        if not self.gpudirect:
            return False
        if self.gdr_level is None:
            return True
        # NCCL_NET_GDR_C2C is on by default: what PXB allows is allowed over the chip-to-chip link as well.
        level = "P2C" if self.gdr_level == "PXB" else self.gdr_level
        return _ORDER[path_type] <= _ORDER[level]


def path_type(kinds: Sequence[object], chip_link: bool = False) -> str:
    """Return NCCL's type of a route by the kinds of the nodes between its ends.

    Parameters
    ----------
    kinds : sequence of str
        Kinds of the nodes passed on the way.
    chip_link : bool
        Whether the GPU's own link is a chip-to-chip link to its CPU.

    Examples
    --------
    >>> path_type(["nvswitch"]), path_type(["pcie_switch", "root_complex", "pcie_switch"]), path_type(["gpu"])
    ('NVL', 'PHB', 'NVB')
    """
    if NETWORK_SWITCH in kinds:
        return "NET"
    roots = sum(kind == ROOT_COMPLEX for kind in kinds)
    if roots:
        return "SYS" if roots > 1 else "P2C" if chip_link else "PHB"
    switches = sum(kind == PCIE_SWITCH for kind in kinds)
    if switches:
        return "PXB" if switches > 1 else "PIX"
    return "NVB" if GPU in kinds else "NVL"


def check_level(level: str, where: str) -> str:
    """Return a level as NCCL writes it, or say what is accepted."""
    if level not in LEVELS:
        raise FabricError(f"{where}: unknown level {level!r}; accepted are {', '.join(LEVELS)}")
    return level


def _level(value: object, name: str) -> str | None:
    return None if value is None else check_level(str(value), f"the topology's {name}")
