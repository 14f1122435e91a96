"""NCCL's own figures: what it takes a link to carry, in GB/s, and the speeds that its graph search tries.

Facts of NCCL 2.17 to 2.30 (graph/topo.h, graph/topo.cc, graph/search.cc), restated; used by `netsim.nccl.system` and
`netsim.nccl.search` only. They are what NCCL decides by, not what a link really carries: that stands in link profiles.
"""

import re

from netsim.fabric import Link
from netsim.nccl.version import Version

LOCAL_GBPS = 5000.0
"""What NCCL gives to links that never limit."""
INTEL, AMD, ZHAOXIN = "GenuineIntel", "AuthenticAMD", ("CentaurHauls", "  Shanghai  ")

_PCIE = re.compile(r"(?:.*_)?pcie([1-6])(?:_x(\d+))?(?:_.*)?")
_NVLINK_SM = {"nvlink1": 60, "nvlink2": 70, "nvlink3_ga102": 86, "nvlink3": 80, "nvlink4": 90, "nvlink5": 100}
# 100 Mb/s a lane, after line overhead; a link is width x rate / 80 GB/s.
_PCIE_RATES = {1: 15, 2: 30, 3: 60, 4: 120, 5: 240, 6: 480}
_PCIE_LINE_SHARE = 16 / 21  # of the line rate: 12 of 15.75, 24 of 31.5, 48 of 63 GB/s
_SNAP = 0.06  # a stated line rate within 6 % of a standard link is that link
_KINDS_OF_SOCKETS = {
    "socket_intel_broadwell": ("x86_64", INTEL, 0x4F),
    "socket_intel_skylake": ("x86_64", INTEL, 0x55),
    "socket_intel_sapphire_rapids": ("x86_64", INTEL, 0x8F),
    "socket_intel_emerald_rapids": ("x86_64", INTEL, 0xCF),
    "socket_amd": ("x86_64", AMD, 1),
    "socket_amd_gen5": ("x86_64", AMD, 1),
    "socket_arm": ("arm64", "", 0),
    "socket_power": ("ppc64", "", 0),
    "socket_zhaoxin": ("x86_64", ZHAOXIN[0], 0),
    "socket_yongfeng": ("x86_64", ZHAOXIN[0], 0x5B),
}

_BEFORE_SM90_ONE = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
_BEFORE_SM90_SEVERAL = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_SM90_ONE = (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)
_SM90_SEVERAL = (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_SM100_ONE = (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)
_SM100_SEVERAL = (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
# Entries that came later, by array: release from which on they are tried.
_SINCE: dict[tuple[float, ...], dict[float, Version]] = {
    _SM90_ONE: {50: Version(2, 19), 11: Version(2, 21)},
    _SM90_SEVERAL: {22: Version(2, 19)},
    _SM100_ONE: {45: Version(2, 29)},
    _SM100_SEVERAL: {86: Version(2, 30), 80: Version(2, 29)},
}


def search_speeds(compute_capability: int, several_nodes: bool, version: Version) -> tuple[float, ...]:
    """Return the speeds of a channel that the search tries, GB/s, fastest first.

    Examples
    --------
    >>> search_speeds(90, False, Version(2, 18))[:3]
    (60, 40, 30)
    """
    if compute_capability >= 100 and version >= Version(2, 25):
        speeds: tuple[float, ...] = _SM100_SEVERAL if several_nodes else _SM100_ONE
    elif compute_capability >= 90:
        speeds = _SM90_SEVERAL if several_nodes else _SM90_ONE
    else:
        speeds = _BEFORE_SM90_SEVERAL if several_nodes else _BEFORE_SM90_ONE
    since = _SINCE.get(speeds, {})
    return tuple(speed for speed in speeds if speed not in since or version >= since[speed])


def capability_of_nvlink(kind: str) -> int | None:
    """Return the compute capability times ten that a kind of NVLink belongs to, None for another kind of link."""
    return _NVLINK_SM.get(kind)


def nvlink_GBps(link: Link, compute_capability: int, version: Version) -> float:  # noqa: N802 - NCCL's unit
    """Return what all NVLinks of an edge carry: by the generation of the GPU, or as stated for links of another make."""
    if not link.kind.startswith("nvlink"):
        return link.bandwidth_bytes_per_s / 1e9
    if compute_capability >= 100:
        each = 40.1 if version > Version(2, 27, 3) else 40.0
    elif compute_capability >= 90:
        each = 20.6 if version >= Version(2, 20) else 20.0
    elif compute_capability == 86:
        each = 12.0
    elif compute_capability >= 70:
        each = 20.0
    else:
        each = 18.0
    return each * link.count


def pcie_GBps(link: Link) -> float:  # noqa: N802
    """Return what a PCI Express link carries, by its generation and width where its kind or its line rate tells them.

    Examples
    --------
    >>> pcie_GBps(Link(0.0, 1e9, kind="pcie5")), pcie_GBps(Link(0.0, 1e9, kind="pcie4_x8"))
    (48.0, 12.0)
    >>> pcie_GBps(Link(0.0, 13.45e9, kind="custom", line_rate_bytes_per_s=15.754e9))
    12.0
    """
    known = _PCIE.fullmatch(link.kind)
    if known:
        return int(known[2] or 16) * _PCIE_RATES[int(known[1])] / 80
    if link.kind == "local":
        return LOCAL_GBPS
    if link.line_rate_bytes_per_s is None:
        return link.bandwidth_bytes_per_s / 1e9
    scaled = link.line_rate_bytes_per_s / 1e9 * _PCIE_LINE_SHARE
    standard = (lanes * rate / 80 for rate in _PCIE_RATES.values() for lanes in (1, 2, 4, 8, 16, 32))
    near = min(standard, key=lambda value: abs(value - scaled))
    return near if abs(near - scaled) <= _SNAP * near else scaled


def cpu_of_socket_link(kind: str) -> tuple[str, str, int] | None:
    """Return architecture, vendor and model that a kind of link between sockets stands for."""
    return _KINDS_OF_SOCKETS.get(kind)


def socket_GBps(arch: str, vendor: str, model: int, version: Version) -> float:  # noqa: N802
    """Return what two sockets of a machine exchange, by the kind of CPU."""
    if arch == "ppc64":
        return 32.0
    if arch == "arm64":
        return 6.0
    if vendor == AMD:
        return 16.0
    if vendor in ZHAOXIN:
        return 9.0 if model == 0x5B else 6.0
    if version >= Version(2, 26) and model >= 0x8F:
        return 40.0 if model >= 0xCF else 22.0
    if model >= 0x55:
        return 10.0 if version >= Version(2, 18) else 9.0
    return 6.0
