"""A plan of grouped sends and receives: what NCCL decides before an all-to-all, a gather, a scatter or a send/recv runs.

`netsim.nccl` makes them from the numbers of `netsim.schedule.nccl.rounds`; `plan_of` makes one from numbers alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from netsim.errors import ScheduleError
from netsim.schedule.collective import check_collective
from netsim.schedule.nccl import rounds as rules
from netsim.schedule.nccl.costs import FREE, Costs
from netsim.schedule.nccl.protocols import PROTOCOLS, SLOTS
from netsim.schedule.pieces import checked_groups

COLLECTIVES = ("alltoall", "sendrecv", "gather", "scatter")
"""What NCCL does by sends and receives."""
_PROTOCOLS = ("ll", "simple", "auto")

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class PeerPlan:
    """One collective of grouped sends and receives as NCCL would run it."""

    collective: str
    """One of `COLLECTIVES`."""
    ranks: int
    size_bytes: int
    """As nccl-tests counts it."""
    rounds: tuple[Ranks, ...]
    """To whom each rank sends in each round (`rounds.round_order`)."""
    channels: int
    """Channels for send/recv."""
    bases: Ranks
    """Channel of the first part of each round's messages (`rounds.base_channel`)."""
    version: rules.Version = (2, 28)
    """NCCL's, by which the parts of a message have their channels (`rounds.part_channel`)."""
    least_channels: int = 1
    per_peer: int = 1
    """Parts of a message at first, and at most twice half of it (`rounds.least_channels`, `rounds.channels_per_peer`)."""
    least_part_bytes: int = 65_536
    most_part_bytes: int = 1 << 24
    """Limits of a part (`rounds.part_limits`)."""
    chunk_bytes: int = 524_288
    """Payload of a chunk of Simple (`rounds.chunk_bytes`); shorter over the network (`rounds.network_chunk_bytes`)."""
    ll_chunk_bytes: int = PROTOCOLS["ll"].step_bytes
    """Payload of a chunk of LL."""
    ll_part_bytes: int = rules.LL_BYTES
    """The most bytes of a part that goes by LL."""
    protocol: str = "auto"
    """Within a node: ll, simple, or by size (`rounds.fits_ll`)."""
    network_protocol: str = "simple"
    """Between nodes: as `protocol`; LL needs buffers that NCCL does not allocate unless told to."""
    nodes: tuple[Ranks, ...] = ()
    """Ranks of each node; all on one node where empty."""
    pxn: bool = True
    """Whether what goes to another node may go over NVLink first, to the GPU on the receiver's rail."""
    pxn_always: bool = True
    """Whether it does so always (PXN level 2), or only where routes find that it has to (level 1)."""
    rails: Ranks = ()
    """Rail of each rank; its place in its node where empty."""
    queue_pairs: int = 1
    """Queue pairs of a connection between nodes, which its messages use in turn."""
    batch: int = rules.BATCH
    """Rounds of a block that a channel works on at once."""
    threads: int = 512
    """Threads of a channel; a message has a half of its part of them at either end."""
    slots: int = SLOTS
    root: int = 0
    align_bytes: int = 1
    registered: bool = False
    """Whether buffers are registered, so that receives by Simple within a node copy nothing."""
    in_place: bool = False
    """Whether the block for oneself is where it belongs."""
    algorithm: str = "p2p"
    """Its name in records."""
    costs: Costs = field(default=FREE)
    """By Simple."""
    ll_costs: Costs = field(default=FREE)
    """By LL."""

    def __post_init__(self) -> None:
        check_collective(self.collective, self.ranks, self.size_bytes, self.root)
        if self.collective not in COLLECTIVES:
            raise ScheduleError(f"send/recv has no {self.collective}; accepted are {', '.join(COLLECTIVES)}")
        for where, protocol in (("within a node", self.protocol), ("between nodes", self.network_protocol)):
            if protocol not in _PROTOCOLS:
                raise ScheduleError(f"send/recv {where} by protocol {protocol!r}; accepted are {', '.join(_PROTOCOLS)}")
        everyone = list(range(self.ranks))
        if any(sorted(peers) != everyone for peers in self.rounds) or any(
            sorted(peers) != everyone for peers in zip(*self.rounds, strict=True)
        ):
            raise ScheduleError(f"the rounds of {self.ranks} ranks must bring every rank to each rank exactly once")
        if len(self.bases) != len(self.rounds):
            raise ScheduleError(f"{len(self.rounds)} rounds but {len(self.bases)} base channels; give one to each")
        numbers = (self.channels, self.least_channels, self.per_peer, self.chunk_bytes, self.batch, self.slots)
        if min(*numbers, self.least_part_bytes, self.most_part_bytes) < 1:
            raise ScheduleError("channels, parts, chunks, batches and slots of a send/recv plan are each 1 or more")
        if self.rails and len(self.rails) != self.ranks:
            raise ScheduleError(f"{len(self.rails)} rails for {self.ranks} ranks; give one to each")
        checked_groups(self.ranks, self.nodes or None)

    def parts(self, size_bytes: int) -> int:
        """Return into how many parts, each on a channel of its own, a message is cut."""
        return rules.parts(size_bytes, self.least_channels, self.per_peer, self.least_part_bytes, self.most_part_bytes)

    def protocol_of(self, size_bytes: int, *, network: bool) -> str:
        """Return the protocol of a message."""
        protocol = self.network_protocol if network else self.protocol
        if protocol == "auto":
            return "ll" if rules.fits_ll(size_bytes, self.parts(size_bytes), self.ll_part_bytes) else "simple"
        return protocol

    def chunk_of(self, size_bytes: int, protocol: str, *, network: bool) -> int:
        """Return the payload of a chunk of a message."""
        if protocol == "ll":
            return self.ll_chunk_bytes
        return rules.network_chunk_bytes(size_bytes, self.chunk_bytes) if network else self.chunk_bytes


def plan_of(
    collective: str,
    nodes: Sequence[Sequence[int]],
    size_bytes: int,
    *,
    channels: int = 32,
    per_peer: int = 32,
    version: rules.Version = (2, 28),
    all_nvlink: bool = True,
    chunk_bytes: int | None = None,
    group: int = rules.BATCH,
    **more: object,
) -> PeerPlan:
    """Return the plan of a collective from few numbers.

    Parameters
    ----------
    collective : str
        One of `COLLECTIVES`.
    nodes : sequence of sequence of int
        Ranks of each node.
    size_bytes : int
        As nccl-tests counts it.
    channels, per_peer : int
        Channels for send/recv, and for each peer (`rounds.channels_per_peer`).
    version : (int, int)
        NCCL's.
    all_nvlink : bool
        Whether all GPUs of a node reach each other over NVLink.
    chunk_bytes : int, optional
        In place of what `rounds.chunk_bytes` says.
    group : int
        Ranks of a group in the order of rounds over several nodes.
    **more
        Other fields of `PeerPlan`.

    Examples
    --------
    >>> plan = plan_of("alltoall", [range(8)], 1 << 20)
    >>> plan.least_channels, plan.bases, plan.parts(1 << 17)
    (4, (0, 16, 8, 24, 4, 20, 12, 28), 4)
    """
    ranks, count = sum(map(len, nodes)), len(nodes)
    chunk = chunk_bytes or rules.chunk_bytes(count, all_nvlink=all_nvlink)
    least, most = rules.part_limits(chunk, count, version)
    size = rules.group_size(nodes, group) if version >= (2, 28) else max(map(len, nodes))
    values = {
        "rounds": rules.round_order(nodes, version, group=group),
        "channels": channels,
        "bases": tuple(rules.base_channel(number, channels, count, size, version) for number in range(ranks)),
        "version": version,
        "least_channels": rules.least_channels(per_peer, ranks, channels),
        "per_peer": per_peer,
        "least_part_bytes": least,
        "most_part_bytes": most,
        "chunk_bytes": chunk,
        "nodes": tuple(map(tuple, nodes)),
    }
    return PeerPlan(collective, ranks, size_bytes, **(values | more))  # type: ignore[arg-type]
