"""The graphs that NCCL searches for on one node: orders of GPUs and NICs for each channel, with the speed they reach.

What `netsim.nccl.search` finds and what an NCCL_GRAPH_DUMP_FILE holds. Speeds are NCCL's own, in GB/s of 1e9 bytes a
channel, because its rules compare them with tables in that unit.
"""

from dataclasses import dataclass

RING = "ring"
TREE = "tree"
COLLNET_CHAIN = "collnet_chain"
COLLNET_DIRECT = "collnet_direct"
NVLS = "nvls"
GRAPH_IDS = {RING: 0, TREE: 1, COLLNET_CHAIN: 2, NVLS: 3, COLLNET_DIRECT: 4}
"""Name -> ``id`` in a dump."""

LAST_RESORT_GBPS = 0.1
"""Speed that NCCL notes where none of its own is reached: one channel in order of ranks, whatever it carries."""

BALANCED_TREE = 1
SPLIT_TREE = 2
PLAIN_TREE = 3
RING_PATTERN = 4
NVLS_PATTERN = 5
COLLNET_DIRECT_PATTERN = 6


@dataclass(frozen=True)
class ChannelOrder:
    """One channel on one node."""

    gpus: tuple[int, ...]
    """GPUs in order, numbered within the node in rank order; for NVLS the head alone."""
    nic_in: int | None = None
    """NIC by which data comes in from other nodes, numbered within the node; None on a single node."""
    nic_out: int | None = None
    """NIC by which it leaves."""


@dataclass(frozen=True)
class ChannelGraph:
    """What the search found for one algorithm on one node."""

    name: str
    """One of `GRAPH_IDS`."""
    pattern: int
    """Tree pattern 1 to 3, 4 ring, 5 NVLS, 6 CollnetDirect."""
    orders: tuple[ChannelOrder, ...]
    """The channels as searched, those that the search itself duplicates included; empty where nothing was found."""
    intra_GBps: float  # noqa: N815 - NCCL's unit
    """Speed of a channel inside the node."""
    inter_GBps: float  # noqa: N815
    """Speed of a channel between nodes."""
    type_intra: str = "LOC"
    """Worst path type between GPUs."""
    type_inter: str = "LOC"
    """Worst path type between a GPU and a NIC."""
    latency_inter_us: float = 0.0
    cross_nic: int = 0
    """Whether channels may enter and leave by different NICs: 0 no, 1 yes, 2 in turns."""
    same_channels: bool = True
    """Whether all channels have the same order."""

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.orders)
