"""How many channels NCCL gives a communicator and one operation on it, and what each of them carries.

Takes a `Communicator` and a pair that `netsim.nccl.tuner` chose, and answers with what a plan
(`netsim.schedule.nccl.plan.Plan`) needs beside rings and trees, which `netsim.nccl.connect` lays. Rules of NCCL 2.17 to
2.30 (graph/connect.cc, enqueue.cc). Leaves out operations grouped in one launch, send and receive, and the fewer channels
of NVLS with registered buffers.
"""

from dataclasses import dataclass

from netsim.errors import NetsimError
from netsim.nccl.availability import serves
from netsim.nccl.chunks import Chunking, blackwell_nodes, least_slice_bytes, steps_of
from netsim.nccl.communicator import Communicator
from netsim.nccl.graphs import COLLNET_CHAIN, COLLNET_DIRECT
from netsim.nccl.partition import Share, cells, dealt, equal, last_turn_grain
from netsim.nccl.settings import DEFAULT_SETTINGS, Settings
from netsim.nccl.tuner_constants import ALGORITHMS, LL, LL128, NVLS, PAT, PROTOCOLS, RING, SIMPLE, TREE
from netsim.nccl.tuner_costs import ALL_REDUCE, COLLNETS, GATHERS, NVLS_KINDS, TUNED, graph_of
from netsim.nccl.version import Version

_MOST_THREADS = 640
_WARP = 32
_LEAST_THREADS = 3 * _WARP
# Bytes of the operation that a thread must have to be worth it (NCCL 2.30, include/comm.h).
_THREAD_BYTES = {SIMPLE: 64, LL: 8, LL128: 8}
_COLLNET_THREAD_BYTES = 512
# Rings that reach no more than a PCIe Gen3 slot, in GB/s, have half the threads.
_SLOW_RINGS_GBPS = 12


@dataclass(frozen=True)
class Source:
    """What a channel is a copy of."""

    order: int
    """Channel of the searched graphs."""
    second_tree: bool
    """Whether it carries the second of the two trees over nodes."""


def sources(communicator: Communicator, settings: Settings = DEFAULT_SETTINGS) -> tuple[Source, ...]:
    """Return every channel of a communicator: the searched ones, the same with the second tree, and copies of those.

    With CollNet half as many again if its chains are faster inside nodes than between them, and twice as many where
    there are few over fast links and a network. What the environment limits or asks for comes last.
    """
    ring, tree = graph_of(communicator, RING), graph_of(communicator, TREE)
    if ring is None:
        return (Source(0, False),)
    most = 64 if communicator.version >= Version(2, 25) else 32
    searched = min(ring.channels, tree.channels) if tree else ring.channels
    channels = [Source(order, second) for second in (False, True) for order in range(searched)][:most]
    chain = graph_of(communicator, COLLNET_CHAIN)
    nodes = len(communicator.nodes)
    if communicator.collnet and chain and chain.intra_GBps > chain.inter_GBps and communicator.ranks > nodes:
        channels = _repeated(channels, min(most, len(channels) * 3 // 2))
    fast = nodes > 1 and communicator.compute_capability >= 90 and ring.intra_GBps > 45
    if fast and len(channels) < 16:
        channels = _repeated(channels, 2 * len(channels))
    channels = channels[: min(settings.max_channels or most, settings.max_ctas or most, most)]
    asked = max(min(settings.min_channels or 0, most), min(settings.min_ctas or 0, most))
    return tuple(_repeated(channels, max(asked, len(channels))))


def _repeated(channels: list[Source], count: int) -> list[Source]:
    return [channels[number % len(channels)] for number in range(count)]


def total_channels(communicator: Communicator, settings: Settings = DEFAULT_SETTINGS) -> int:
    """Return how many channels a communicator has for rings, trees and CollNet."""
    return len(sources(communicator, settings))


def nvls_channels(communicator: Communicator, settings: Settings = DEFAULT_SETTINGS) -> int:
    """Return how many channels NVLS and NVLSTree have, whatever their graph."""
    version, nodes = communicator.version, len(communicator.nodes)
    channels = 16
    if communicator.compute_capability_max >= 100 and version >= Version(2, 25):
        channels = 24 if nodes == 1 and version >= Version(2, 27) else 32
    if blackwell_nodes(communicator) and communicator.net_GBps >= 48:
        fewer = nodes > 2 and (communicator.net_GBps < 96 or min(map(len, communicator.nodes)) <= 8)
        channels = 24 if fewer else 32
    channels = settings.nvls_channels or channels
    most = 64 if version >= Version(2, 25) else 32
    return max(min(settings.min_ctas or 1, most), min(settings.max_ctas or most, channels))


def head_gpus(communicator: Communicator, algorithm: str) -> tuple[int, ...]:
    """Return the GPUs of a node that reduce and multicast (NVLS) or talk to the network (CollNet), numbered within it."""
    if communicator.version < Version(2, 18) and algorithm == NVLS:
        return tuple(range(communicator.ranks_per_node))  # it searches no graph for NVLS; all are heads
    graph = graph_of(communicator, algorithm if algorithm in COLLNETS else NVLS)
    return tuple(dict.fromkeys(order.gpus[0] for order in graph.orders)) if graph else ()


@dataclass(frozen=True)
class Operation:
    """What the channels of one operation carry, and how."""

    shares: tuple[Share, ...]
    """(first byte, bytes) of channel 0, 1, ...; of every rank's block for all-gather and reduce-scatter."""
    chunk_bytes: tuple[int, ...]
    """Payload of a chunk, for each channel: the last one can have a shorter one than the others."""
    slices: int
    """Slices of a chunk."""
    slots: int
    """Slices of a connection that may be under way or unread."""
    least_slice_bytes: int
    threads: int
    """Threads of a channel that move data."""
    block_threads: int
    """Threads of a channel as launched, with the warp that only synchronises."""
    interleaved: bool = False
    """Whether channels really take turns: sizes of shares are exact, their places are not."""

    @property
    def channels(self) -> int:
        """How many channels are in use."""
        return len(self.shares)


def operation(
    communicator: Communicator,
    collective: str,
    algorithm: str,
    protocol: str,
    size_bytes: int,
    *,
    channels: int | None = None,
    registered: bool = False,
    settings: Settings = DEFAULT_SETTINGS,
) -> Operation:
    """Return channels, shares, chunks and threads of one operation.

    Parameters
    ----------
    communicator : Communicator
        Its release decides which rules hold.
    collective, algorithm, protocol : str
        Something that NCCL has, see `netsim.nccl.availability.serves`.
    size_bytes : int, bytes
        As nccl-tests counts it: a multiple of the ranks for all-gather and reduce-scatter.
    channels : int, optional
        What a tuner plugin asks for in place of NCCL's rule by size.
    registered : bool
        Whether user buffers are registered.
    settings : Settings, optional

    Raises
    ------
    NetsimError
        If there is no such operation, or a number makes no sense.

    Examples
    --------
    >>> from netsim.nccl.graphs import ChannelGraph, ChannelOrder
    >>> ring = ChannelGraph("ring", 4, (ChannelOrder((0, 1)),) * 12, 30.0, 30.0, "NVL")
    >>> found = operation(Communicator(((0, 1),), {"ring": ring}), "all_reduce", "ring", "simple", 65536)
    >>> found.shares, found.chunk_bytes, found.slices, found.slots, found.least_slice_bytes, found.threads
    (((0, 32768), (32768, 32768)), (2097152, 2097152), 2, 4, 32768, 512)
    """
    _check(communicator, collective, algorithm, protocol, size_bytes, channels)
    ranks = communicator.ranks
    heads = len(head_gpus(communicator, algorithm)) if algorithm in (*NVLS_KINDS, COLLNET_DIRECT) else 1
    most = nvls_channels(communicator, settings) if algorithm in NVLS_KINDS else total_channels(communicator, settings)
    allowed, threads = _by_size(communicator, algorithm, protocol, size_bytes, most, heads, settings)
    allowed = min(channels or allowed, most)
    block_threads = _launched(algorithm, protocol, threads)
    threads = block_threads - _WARP if algorithm == RING and protocol == SIMPLE else block_threads

    chunking = Chunking(communicator, collective, algorithm, protocol, max(heads, 1), registered, settings)
    blocks = ranks if collective in GATHERS else 1
    part = size_bytes // blocks
    networked = algorithm in COLLNETS or (algorithm == NVLS and len(communicator.nodes) > 1)
    interleaved = networked or communicator.version < Version(2, 20)
    shares: tuple[Share, ...] = ((0, 0),)
    together = chunking.bytes(size_bytes, allowed)
    if part and interleaved:
        turn = (ranks if algorithm == RING else heads) if collective == ALL_REDUCE else 1
        grain = 0 if networked else last_turn_grain(collective, protocol, threads, turn)
        shares = dealt(part, allowed, turn * together, grain)
    elif part and communicator.version < Version(2, 22):
        shares = equal(part, allowed)
    elif part:
        shares = cells(communicator.version, collective, protocol, ranks, part, allowed, most)
    per_channel = not interleaved and communicator.version >= Version(2, 22)
    chunks = tuple(chunking.bytes(blocks * size) if per_channel else together for _, size in shares)
    steps = steps_of(collective, algorithm, protocol)
    least = least_slice_bytes(collective, algorithm, protocol, settings)
    return Operation(shares, chunks, steps.slices, steps.slots, least, threads, block_threads, interleaved)


def _check(
    communicator: Communicator, collective: str, algorithm: str, protocol: str, size_bytes: int, channels: int | None
) -> None:
    if collective not in TUNED:
        raise NetsimError(f"{collective}: NCCL sends it message by message; accepted here are {', '.join(TUNED)}")
    for what, value, accepted in (("algorithm", algorithm, ALGORITHMS), ("protocol", protocol, PROTOCOLS)):
        if value not in accepted:
            raise NetsimError(f"{value!r} is no {what} of NCCL; accepted are {', '.join(accepted)}")
    if not serves(communicator.version, collective, algorithm, protocol):
        fit = [f"{a} {p}" for a in ALGORITHMS for p in PROTOCOLS if serves(communicator.version, collective, a, p)]
        raise NetsimError(
            f"NCCL {communicator.version} has no {collective} by {algorithm} {protocol}; accepted are {', '.join(fit)}"
        )
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 0:
        raise NetsimError(f"{collective} of {size_bytes!r} bytes: the size must be a whole number, zero or more")
    if collective in GATHERS and size_bytes % communicator.ranks:
        raise NetsimError(
            f"{collective} of {size_bytes} bytes over {communicator.ranks} ranks: each has the same block, so accepted are "
            f"multiples of {communicator.ranks} bytes"
        )
    if channels is not None and channels < 1:
        raise NetsimError(f"{collective} on {channels} channels; accepted are 1 or more")
    if algorithm in (*NVLS_KINDS, *COLLNETS) and not head_gpus(communicator, algorithm):
        raise NetsimError(f"{algorithm}: no graph for it was found on this machine, so it cannot run; accepted is ring")


def _by_size(
    communicator: Communicator,
    algorithm: str,
    protocol: str,
    size_bytes: int,
    most: int,
    heads: int,
    settings: Settings,
) -> tuple[int, int]:
    """Return channels and threads that a size is worth, without synchronising warps."""
    threads = _most_threads(communicator, algorithm, protocol, settings)
    if algorithm in NVLS_KINDS:
        # Over a network NVLS runs on channels that rings have too.
        limited = algorithm == NVLS and len(communicator.nodes) > 1
        return min(most, total_channels(communicator, settings)) if limited else most, threads
    worth = _COLLNET_THREAD_BYTES if algorithm in COLLNETS else _THREAD_BYTES[protocol]
    if algorithm == RING and protocol == LL:
        worth *= communicator.ranks
    if algorithm == COLLNET_DIRECT:
        return _collnet_direct_channels(size_bytes, most, threads * heads, worth), threads
    channels = max(1, min(most, size_bytes // (threads * worth)))
    while size_bytes < channels * threads * worth and threads % 128 == 0:
        threads //= 2
    return channels, threads


def _collnet_direct_channels(size_bytes: int, channels: int, threads: int, worth: int) -> int:
    """Drop channels of CollnetDirect: to 16, 8, 4, 2, 1, needing half as much from 24, 12, 6 and 3 on."""
    goal = 16
    while goal:
        while channels > goal and size_bytes < channels * threads * worth:
            if channels == goal + goal // 2:
                worth //= 2
            channels -= 1
        if size_bytes >= channels * threads * worth:
            break
        goal //= 2
    return channels


def _most_threads(communicator: Communicator, algorithm: str, protocol: str, settings: Settings) -> int:
    if algorithm not in (RING, TREE):
        return _MOST_THREADS
    asked, least, most = settings.threads, 2 * _WARP, 512
    default = most
    if protocol == LL128:
        asked, least, most, default = settings.ll128_threads, _MOST_THREADS // 4, _MOST_THREADS, _MOST_THREADS
    elif protocol == SIMPLE and algorithm == RING:
        graph = graph_of(communicator, RING)
        slow = graph is not None and graph.intra_GBps * graph.channels <= _SLOW_RINGS_GBPS
        default = 256 if slow else most
    if asked is None:
        return default
    return most if asked % _WARP else max(least, min(most, asked))


def _launched(algorithm: str, protocol: str, threads: int) -> int:
    if algorithm in (TREE, PAT):
        return _MOST_THREADS
    return max(_LEAST_THREADS, threads + (_WARP if algorithm == RING and protocol == SIMPLE else 0))
