"""Send/recv as NCCL plans it: in which rounds ranks meet, on how many channels, in which parts, and from which channel on.

Pure functions on numbers; versions are (major, minor). Facts of NCCL's init.cc, graph/paths.cc, enqueue.cc and
include/channel.h, 2.18 to 2.30. A channel takes up to `BATCH` rounds at once.
"""

from collections.abc import Iterator, Sequence
from math import gcd

from netsim.errors import ScheduleError
from netsim.schedule.pieces import checked_groups

BATCH = 8
"""Rounds of one block of eight that a channel works on at the same time; also the ranks of a group."""
LL_BYTES = 16_384
"""A part of at most this many bytes goes by LL where both ends have buffers for it."""
MOST_CHANNELS = 64
_PART_GRAIN = 4096
_OLD_LEAST_PART = 16_384
_NIC_CHANNEL_GBPS = 14.0

Version = tuple[int, int]
Nodes = Sequence[Sequence[int]]


def round_order(nodes: Nodes, version: Version = (2, 28), *, group: int = BATCH) -> tuple[tuple[int, ...], ...]:
    """Return to whom each rank sends in each round; it receives from the rank that sends to it in the same round.

    Parameters
    ----------
    nodes : sequence of sequence of int
        Ranks of each node, in the order of its GPUs.
    version : (int, int)
        From 2.28 on groups of ranks are visited in triangular order, in 2.22 to 2.27 nodes and their ranks; before, nodes
        and ranks at distances 0, +1, -1, +2, ....
    group : int
        NCCL_P2P_SCHEDULE_GROUP_SIZE, for several nodes.

    Examples
    --------
    >>> [peers[0] for peers in round_order([[rank] for rank in range(8)])]
    [0, 1, 3, 6, 2, 7, 5, 4]
    >>> [peers[0] for peers in round_order([range(8)])], [peers[0] for peers in round_order([range(5)], (2, 20))]
    ([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 4, 2, 3])
    """
    ranks = sum(map(len, nodes))
    servers = checked_groups(ranks, nodes)
    if version >= (2, 28):
        size = group_size(nodes, group)
        rows = [server[at : at + size] for server in servers for at in range(0, len(server), size)]
        outer, inner = _triangular(len(rows)), list(range(size))
    else:
        # Nodes of unequal sizes count as one.
        rows = servers if len({len(server) for server in servers}) == 1 else [list(range(ranks))]
        order = _triangular if version >= (2, 22) else _both_ways
        outer, inner = order(len(rows)), order(len(rows[0]))
    places = {rank: (row, place) for row, members in enumerate(rows) for place, rank in enumerate(members)}
    wide = len(rows[0])

    def peer(rank: int, far: int, near: int) -> int:
        row, place = places[rank]
        return rows[(row + far) % len(rows)][(place + near) % wide]

    return tuple(tuple(peer(rank, far, near) for rank in range(ranks)) for far in outer for near in inner)


def group_size(nodes: Nodes, group: int = BATCH) -> int:
    """Return the ranks of a group: all of a single node, else `group` or what divides it and every node.

    Examples
    --------
    >>> group_size([range(6)]), group_size([range(8), range(8, 16)]), group_size([range(6), range(6, 12)])
    (6, 8, 2)
    """
    sizes = [len(node) for node in nodes]
    size = group if len(sizes) > 1 else max(sizes)
    if size < 1:
        raise ScheduleError(f"groups of {size} ranks for send/recv rounds; a group has 1 or more")
    for count in sizes:
        if count % size:
            size = gcd(size, count)
    return size


def p2p_channels(channels: int, *, least: int | None = None, most: int | None = None) -> int:
    """Return the channels for send/recv of a communicator with so many channels for collectives.

    `least` and `most` are NCCL_MIN_P2P_NCHANNELS and NCCL_MAX_P2P_NCHANNELS; a power of two is made of the result.

    Examples
    --------
    >>> p2p_channels(24), p2p_channels(16), p2p_channels(100)
    (32, 16, 64)
    """
    return min(MOST_CHANNELS, _power_above(max(min(channels, most or MOST_CHANNELS), least or 1)))


def nvlink_channels(path_GBps: float, link_GBps: float) -> int:  # noqa: N803
    """Return on how many channels a GPU talks to a peer over NVLink: two a link; over PCIe it is always two.

    Examples
    --------
    >>> nvlink_channels(370.8, 20.6), nvlink_channels(10.0, 20.6)
    (36, 2)
    """
    # The quotient of NCCL's own figures is whole; 370.8/20.6 must not end below 18.
    return 2 * max(1, int(path_GBps / link_GBps + 1e-6))


def network_channels(
    ranks: int,
    channels: int,
    version: Version = (2, 28),
    *,
    nics: int = 1,
    nic_GBps: float = 0.0,  # noqa: N803
) -> int:
    """Return on how many channels a GPU talks to a peer on another node.

    Parameters
    ----------
    ranks, channels : int
        Of the communicator; channels for send/recv.
    version : (int, int)
        NCCL's.
    nics : int
        NICs next to the GPU; before 2.29 as many of them as it takes to keep up with the GPU.
    nic_GBps : float, GB/s
        What they do together, for 2.29 and later: a channel does 14 GB/s.

    Examples
    --------
    >>> network_channels(16, 32), network_channels(128, 32), network_channels(16, 32, (2, 29), nic_GBps=48.0)
    (2, 1, 4)
    """
    if version >= (2, 29):
        return max(nics, -int(-nic_GBps // _NIC_CHANNEL_GBPS), 1)
    count = 2
    if version >= (2, 20):
        while count * ranks > 4 * channels and count > 1:
            count //= 2
        count = max(nics, count)
    return count


def channels_per_peer(counts: Sequence[int], channels: int, ranks: int, nodes: int = 1) -> int:
    """Return the channels for every peer of a communicator: the least of its pairs, as a power of two.

    Parameters
    ----------
    counts : sequence of int
        What `nvlink_channels`, 2 for PCIe, and `network_channels` say of its pairs.
    channels, ranks, nodes : int
        Channels for send/recv, and sizes of the communicator: over several nodes all peers must fit, eight a channel.

    Examples
    --------
    >>> channels_per_peer([36], 32, 8), channels_per_peer([36, 2], 16, 16, 2), channels_per_peer([36, 4], 16, 64, 8)
    (32, 2, 2)
    """
    count = min(_power_above(min(counts, default=channels)), channels)
    while nodes > 1 and count > 1 and count * -(-ranks // BATCH) > channels:
        count //= 2
    return count


def least_channels(per_peer: int, ranks: int, channels: int) -> int:
    """Return on how many channels a message goes at first: so few that all ranks' messages fit side by side.

    Examples
    --------
    >>> least_channels(32, 8, 32), least_channels(32, 2, 32), least_channels(2, 64, 32)
    (4, 16, 1)
    """
    while per_peer > 1 and per_peer * ranks > channels:
        per_peer //= 2
    return per_peer


def chunk_bytes(nodes: int, *, all_nvlink: bool = True, wide_network: bool = False) -> int:
    """Return the payload of a chunk of a send: 512 KiB within a node over NVLink, else 128 KiB.

    `wide_network` says that the hosts are ARM with Blackwell GPUs: 256 KiB over the network.
    """
    if nodes > 1:
        return 262_144 if wide_network else 131_072
    return 524_288 if all_nvlink else 131_072


def network_chunk_bytes(size_bytes: int, chunk: int) -> int:
    """Return the chunk of a message over the network: a fourth of the others' if it is short, half if not long.

    Examples
    --------
    >>> [network_chunk_bytes(size, 131072) for size in (1000, 131072, 1 << 20)]
    [32768, 65536, 131072]
    """
    return chunk // 4 if size_bytes < chunk else chunk // 2 if size_bytes < 8 * chunk else chunk


def part_limits(chunk: int, nodes: int, version: Version = (2, 28)) -> tuple[int, int]:
    """Return the least and the most bytes of a part of a message.

    Before 2.29 timings on one node show 16 KiB as the least (fidelity study, section 2).

    Examples
    --------
    >>> part_limits(524288, 1, (2, 29)), part_limits(524288, 1, (2, 28)), part_limits(131072, 2)
    ((65536, 16777216), (16384, 16777216), (65536, 131072))
    """
    if nodes > 1:
        return chunk // 2, chunk
    least = chunk // 8
    return (least if version >= (2, 29) else min(least, _OLD_LEAST_PART)), 32 * chunk


def parts(size_bytes: int, least: int, per_peer: int, least_bytes: int, most_bytes: int) -> int:
    """Return into how many parts a message is cut.

    Parameters
    ----------
    size_bytes : int
        The message.
    least, per_peer : int
        `least_channels` and `channels_per_peer`.
    least_bytes, most_bytes : int
        `part_limits`.

    Examples
    --------
    >>> [parts(size, 16, 32, 16384, 1 << 24) for size in (0, 1000, 65536, 1 << 20, 1 << 28, 1 << 29)]
    [1, 1, 4, 16, 16, 32]
    """
    if not size_bytes:
        return 1
    count = min(least, -(-size_bytes // least_bytes))
    part = max(least_bytes, -(-size_bytes // count))
    while part > most_bytes and count <= per_peer // 2:
        count *= 2
        part = -(-size_bytes // count)
    return count


def part_bounds(size_bytes: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, bytes) of the parts of a message, in multiples of 4 KiB; late ones may be shorter or empty.

    Examples
    --------
    >>> list(part_bounds(10000, 2)), list(part_bounds(100, 2))
    ([(0, 8192), (8192, 1808)], [(0, 100), (100, 0)])
    """
    each = _PART_GRAIN * -(-size_bytes // (count * _PART_GRAIN))
    for number in range(count):
        first = min(number * each, size_bytes)
        yield first, min(each, size_bytes - first)


def fits_ll(size_bytes: int, count: int, part_bytes: int = LL_BYTES) -> bool:
    """Say whether a message in so many parts is short enough for LL, given the most bytes of a part."""
    return size_bytes <= count * part_bytes


def base_channel(number: int, channels: int, nodes: int = 1, group: int = BATCH, version: Version = (2, 28)) -> int:
    """Return the channel of the first part of a round's messages; `part_channel` has that of the others.

    Parameters
    ----------
    number : int
        The round.
    channels : int
        Channels for send/recv.
    nodes, group : int
        How many nodes; ranks of a group (`group_size`), before 2.28 of the largest node. Over several nodes eight rounds of
        one distance share a base.
    version : (int, int)
        Bases are spread by reversing their bits since 2.28.

    Examples
    --------
    >>> [base_channel(number, 32) for number in range(8)]
    [0, 16, 8, 24, 4, 20, 12, 28]
    >>> [base_channel(number, 16, nodes=2, group=8) for number in (0, 7, 8, 15)]
    [0, 0, 8, 8]
    """
    base = number
    if nodes > 1:
        base = number // group * -(-group // BATCH) + number % group // BATCH
    if version < (2, 28):
        return base % channels
    return _reversed(base, channels)


def part_channel(base: int, part: int, channels: int, version: Version = (2, 28)) -> int:
    """Return the channel of a part of a message whose first part has channel `base`.

    Parts have neighbouring channels since 2.28, when bases were spread; before, parts were spread by reversing their bits.

    Examples
    --------
    >>> [part_channel(16, part, 32) for part in range(4)]
    [16, 17, 18, 19]
    >>> [part_channel(1, part, 32, (2, 27)) for part in range(4)]
    [1, 17, 9, 25]
    """
    return (base + (part if version >= (2, 28) else _reversed(part, channels))) % channels


def _reversed(number: int, channels: int) -> int:
    """Return a number with its bits in the opposite order, as many as the channels have."""
    bits = (channels - 1).bit_length()
    return int(f"{number % (1 << bits):0{bits}b}"[::-1], 2) if bits else 0


def _triangular(count: int) -> list[int]:
    """Return the distances 0, 1, 3, 6, ... modulo the next power of two, without those that do not exist."""
    whole = _power_above(count)
    return [delta for delta in (number * (number + 1) // 2 % whole for number in range(whole)) if delta < count]


def _both_ways(count: int) -> list[int]:
    """Return the distances 0, +1, -1, +2, -2, ... modulo the count."""
    steps = [0, *(sign * far % count for far in range(1, count // 2 + 1) for sign in (1, -1))]
    return list(dict.fromkeys(steps))


def _power_above(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
