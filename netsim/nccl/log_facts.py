"""What a log of NCCL says, as plain data: between `netsim.nccl.log`, which reads it, and `netsim.nccl.log_comparison`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netsim.nccl.communicator import Ranks
from netsim.nccl.tuner_costs import GATHERS
from netsim.nccl.version import Version


@dataclass(frozen=True)
class Searched:
    """Head of a graph that the search found."""

    pattern: int
    cross_nic: int
    channels: int
    intra_GBps: float  # noqa: N815 - NCCL's unit
    inter_GBps: float  # noqa: N815
    type_intra: str
    type_inter: str
    same_channels: bool


@dataclass(frozen=True)
class Connection:
    """How two ranks are connected in a channel."""

    channel: int
    source: int
    target: int
    way: str
    """p2p, shm, net, or another first word of NCCL's in lower case."""
    direction: str = ""
    """Whose end is meant over the network: send or receive."""
    network: str = ""
    nic: int | None = None
    gdr: bool = False
    through: int | None = None
    """Rank whose NIC it is, with PXN."""


@dataclass(frozen=True)
class Operation:
    """What ran."""

    collective: str | None
    """None where neither the line nor nccl-tests says it."""
    printed_bytes: int
    algorithm: str
    protocol: str
    channels: int | None = None
    predicted_us: float | None = None

    def size_bytes(self, ranks: int) -> int:
        """Return nccl-tests' size: lines with channels print the block of one rank, those with a time the whole."""
        blocks = ranks if self.collective in GATHERS and self.predicted_us is None else 1
        return blocks * self.printed_bytes


@dataclass
class Log:
    """What a log says; whatever it does not say is None or empty."""

    maker: str = "NCCL"
    """NCCL, or RCCL, whose rules differ."""
    release: str | None = None
    """As it is printed."""
    version: Version | None = None
    """The same, if it is one that is covered."""
    communicators: int = 0
    """How many were begun; all below but operations and environment is of the largest one."""
    ranks: int | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    channels: int | None = None
    channel_counts: Mapping[str, int] = field(default_factory=dict)
    """By kind: coll, collnet, nvls, p2p, p2p per peer."""
    graphs: Mapping[str, Searched] = field(default_factory=dict)
    rings: Mapping[int, Ranks] = field(default_factory=dict)
    """By channel, from rank 0 on; cut where NCCL cut the line of many ranks."""
    trees: Mapping[int, Mapping[int, tuple[int, frozenset[int]]]] = field(default_factory=dict)
    """By channel and rank: the rank above, -1 for none, and those below."""
    connections: tuple[Connection, ...] = ()
    pxn: bool | None = None
    gdr: bool | None = None
    """What NCCL says of rings over the network as a whole."""
    table: Mapping[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    """(collective, algorithm, protocol) -> latency in us and bandwidth in GB/s, 0 where it cannot run."""
    operations: Mapping[Operation, int] = field(default_factory=dict)
    """What ran, in the order of its first line, and how often."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Lines of symmetric kernels and copy engines, counted by NCCL's name for them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    unread: int = 0
    """Lines begun as one of those above that are torn or hold impossible values."""
