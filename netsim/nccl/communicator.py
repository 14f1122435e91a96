"""What NCCL knows of a group of ranks when it decides: nodes, hardware, and the graphs found on them.

The seam between looking at a topology (`netsim.nccl.system`, `netsim.nccl.search`) and deciding what to run on it
(`netsim.nccl.tuner`, `netsim.nccl.channels`, `netsim.nccl.connect`). Plain data; can be written by hand for a machine of
which only a graph dump is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netsim.nccl.graphs import ChannelGraph
from netsim.nccl.version import DEFAULT, Version

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Communicator:
    """A group of ranks as NCCL sees it, after all nodes have agreed on the least that any of them found."""

    nodes: tuple[Ranks, ...]
    """Ranks of each node, a node being one NVLink domain or one host; nodes in order of their first rank."""
    graphs: Mapping[str, ChannelGraph]
    """By name (`netsim.nccl.graphs.GRAPH_IDS`); every node has the same."""
    compute_capability: int = 90
    """Least compute capability times ten: 70 V100, 80 A100, 90 H100, 100 B200."""
    compute_capability_max: int = 90
    cpu_arch: str = "x86_64"
    """x86_64, arm64 or ppc64."""
    cpu_vendor: str = "GenuineIntel"
    """GenuineIntel, AuthenticAMD, mixed, or as in NCCL's topology files."""
    nvswitch: bool = True
    """Whether all GPUs of a node are joined by NVSwitches."""
    multicast: bool = False
    """Whether they multicast and reduce and the driver offers it, so that NVLS exists."""
    collnet: bool = False
    """Whether the network reduces (SHARP) and NCCL was told to use it."""
    nics_per_node: int = 0
    net_GBps: float = 0.0  # noqa: N815 - NCCL's unit
    """Speed of one NIC, GB/s."""
    gdr: bool = True
    """Whether NICs reach GPU memory directly."""
    p2p: bool = True
    """Whether GPUs of a node reach each other's memory; else they share host memory."""
    peer_links: int = 0
    """NVLinks' worth of bandwidth between any two GPUs of a node, the least of all pairs; 0 where one pair has none."""
    pxn: bool = False
    """Whether a GPU may send through a peer of its node that sits at another NIC."""
    rails: tuple[int, ...] = ()
    """NIC of each rank, numbered within its node; empty where there is none."""
    cards: tuple[tuple[int, ...], ...] = ()
    """All NICs that are nearest to each rank, numbered likewise; empty where there is none."""
    relays: tuple[tuple[int, ...], ...] = ()
    """For each rank and each NIC of its node, the rank that it sends there through (PXN), -1 where it goes by itself."""
    version: Version = DEFAULT
    environment: Mapping[str, str] = field(default_factory=dict)
    """NCCL's environment variables as the user gave them, by name."""

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return sum(len(node) for node in self.nodes)

    @property
    def ranks_per_node(self) -> int:
        """Ranks of the largest node."""
        return max(len(node) for node in self.nodes)
