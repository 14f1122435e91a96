"""A plan: everything that NCCL decides before a collective runs, as plain data that the builders here turn into operations.

Which channels there are and how rings and trees run through the ranks, which part of the data each channel has, by which
protocol, in which chunks and slices, with how many slots, and what it costs. `netsim.nccl` makes plans; one can be
written by hand.
"""

from dataclasses import dataclass, field

from netsim.errors import ScheduleError
from netsim.schedule.collective import check_collective
from netsim.schedule.nccl.costs import FREE, Costs
from netsim.schedule.nccl.protocols import PROTOCOLS, SLOTS, Protocol

Ranks = tuple[int, ...]

CARDS = 2520
"""Flows are numbered card first, in steps that all numbers of cards up to ten divide: the rest leaves the card alone."""


def flow_of(card: int, channel: int, pair: int = 0, pairs: int = 1) -> int:
    """Return the flow of messages that a channel sends by a card and by one of so many queue pairs.

    Examples
    --------
    >>> flow_of(3, 0), flow_of(3, 5, pair=1, pairs=2) % 4
    (3, 3)
    """
    return card + CARDS * (channel * pairs + pair)


@dataclass(frozen=True)
class Tree:
    """One tree over all ranks; for NVLSTree a forest with a tree a head, for CollnetChain one with a chain a node."""

    parent: Ranks
    """Parent of each rank, -1 at a root, and in a forest for a rank that takes no part."""
    children: tuple[Ranks, ...]
    """Children of each rank, in the order in which they are served."""

    @property
    def root(self) -> int:
        """The rank without a parent."""
        return self.parent.index(-1)


@dataclass(frozen=True)
class Channel:
    """What one channel connects."""

    number: int
    """Its number among all channels of the communicator."""
    ring: Ranks = ()
    """Ranks in ring order; position p of NCCL is ``ring[p]``, rank 0 first."""
    tree: Tree | None = None
    """Its tree, for algorithms that have one; a forest for NVLSTree (a tree a head) and CollnetChain (a chain a node)."""
    chunk_bytes: int = 0
    """Payload of its chunks where they differ from the plan's; 0 where they do not."""
    flows: Ranks = ()
    """For each node, which of the network cards of the GPU that sends there it leaves by, where GPUs have several."""
    relays: Ranks = ()
    """For each node, the rank whose network card it leaves by, where that is another's than the sender's; else -1."""


@dataclass(frozen=True)
class Plan:
    """One collective as NCCL would run it."""

    collective: str
    algorithm: str
    protocol: str
    """One of `netsim.schedule.nccl.protocols.PROTOCOLS`."""
    ranks: int
    size_bytes: int
    """As nccl-tests counts it; a multiple of the ranks where each has a block."""
    channels: tuple[Channel, ...]
    """The channels in use."""
    shares: tuple[tuple[int, int], ...]
    """(first byte, bytes) of each channel; for all-gather and reduce-scatter within every rank's block."""
    chunk_bytes: int
    """Payload of a chunk."""
    slices: int = 1
    """Slices of a chunk."""
    slots: int = SLOTS
    """Slices of a connection that may be on their way or unread."""
    least_slice_bytes: int = 0
    """A slice is not made shorter than this, so that a short chunk has one full slice and empty ones."""
    threads: int = 512
    """Threads of a channel."""
    nodes: tuple[Ranks, ...] = ()
    """Ranks of each node; all on one node where empty."""
    root: int = 0
    align_bytes: int = 1
    """Bytes of an element: data is cut between elements."""
    registered: bool = False
    """Whether user buffers are registered, so that the last receive copies nothing."""
    in_place: bool = False
    queue_pairs: int = 1
    """Queue pairs of a connection between nodes, which its messages use in turn."""
    heads: tuple[Ranks, ...] = ()
    """NVLS: heads of each node, the ranks that reduce and multicast; CollNet: those with a way to the network."""
    costs: Costs = field(default=FREE)

    def __post_init__(self) -> None:
        check_collective(self.collective, self.ranks, self.size_bytes, self.root)
        if self.protocol not in PROTOCOLS:
            raise ScheduleError(f"unknown protocol {self.protocol!r}; accepted are {', '.join(PROTOCOLS)}")
        if len(self.channels) != len(self.shares):
            raise ScheduleError(f"{len(self.channels)} channels but {len(self.shares)} shares of the data; give one to each")
        if self.chunk_bytes < 1 or self.slices < 1 or self.slots < 1:
            raise ScheduleError(
                f"a plan with chunks of {self.chunk_bytes} bytes, {self.slices} slices and {self.slots} slots; "
                "each is 1 or more"
            )

    @property
    def kind(self) -> Protocol:
        """The facts of its protocol."""
        return PROTOCOLS[self.protocol]

    def chunk_of(self, channel: Channel) -> int:
        """Return the payload of a channel's chunks."""
        return channel.chunk_bytes or self.chunk_bytes
