"""How NCCL cuts one operation over channels: in cells (2.22 on), in equal pieces (2.20, 2.21), or dealt in turns (before).

All sizes are of what a channel's share is a part of: the whole data, or every rank's block for all-gather and
reduce-scatter. Operations that share a launch with others are no part of it.
"""

from netsim.nccl.tuner_constants import LL, LL128, SIMPLE
from netsim.nccl.tuner_costs import ALL_REDUCE, GATHERS
from netsim.nccl.version import Version

Share = tuple[int, int]
"""First byte and bytes."""

_ALIGN_BYTES = 16
# Bytes that a thread moves at once (NCCL 2.19, device/primitives.h): a word, with LL128 its part of the lines of a warp.
_THREAD_BYTES = {SIMPLE: 8, LL: 8, LL128: 60}


def cells(
    version: Version, collective: str, protocol: str, ranks: int, part_bytes: int, channels: int, most: int
) -> tuple[Share, ...]:
    """Cut an operation into contiguous shares of whole cells, from channel 0 on, none with too little traffic.

    Parameters
    ----------
    part_bytes : int, bytes
        The data, or one rank's block; at least one byte.
    channels : int
        Channels that the operation may have by its size.
    most : int
        Channels of the communicator; rounding can need one more than `channels`.

    Returns
    -------
    tuple of (int, int)
        (first byte, bytes) of each channel in use.

    Notes
    -----
    A cell carries the least traffic that is worth a channel; traffic counts a byte twice for all-reduce, n times for
    all-gather and reduce-scatter, and four times that with LL (NCCL 2.30, enqueue.cc).

    Examples
    --------
    >>> cells(Version(2, 28, 9), "all_reduce", "simple", 2, 2**20, 24, 24)[:2]  # 22 channels of six cells of 8 KiB
    ((0, 49152), (49152, 49152))
    """
    least = least_traffic(version)
    per_byte = (2 if collective == ALL_REDUCE else ranks if collective in GATHERS else 1) * (4 if protocol == LL else 1)
    cell = _up(-(-least // per_byte), _ALIGN_BYTES)
    count = -(-part_bytes // cell)
    wanted = max(least, max(least, part_bytes * per_byte) // min(channels, most))
    each = min(count, -(-wanted // (cell * per_byte)))
    pieces = [each] * (count // each) + [count % each] * (count % each > 0)
    if len(pieces) > most:
        pieces = _squeezed(count, each, most)
    return _contiguous([piece * cell for piece in pieces], part_bytes)


def _squeezed(count: int, first: int, most: int) -> list[int]:
    """Fit cells into as many channels as there are: the first as planned, the last takes what does not divide."""
    if most == 1:
        return [count]
    each, rest = divmod(count - first, most - 1)
    return [first, *[each] * (most - 2), each + rest]


def least_traffic(version: Version) -> int:
    """Return the least traffic of a channel, in bytes."""
    return 32_768 if version >= Version(2, 29) else 16_384 if version >= Version(2, 23) else 512


def equal(part_bytes: int, channels: int) -> tuple[Share, ...]:
    """Cut into equal contiguous pieces of whole 16 bytes, as 2.20 and 2.21 do.

    Examples
    --------
    >>> equal(100, 3)
    ((0, 48), (48, 48), (96, 4))
    """
    each = _up(-(-part_bytes // channels), _ALIGN_BYTES)
    return _contiguous([each] * -(-part_bytes // each), part_bytes)


def dealt(part_bytes: int, channels: int, portion: int, last_grain: int = 0) -> tuple[Share, ...]:
    """Deal portions to channels in turns and return what each gets, laid one after another.

    Sizes are exact; where the bytes lie is not, since a channel's portions really lie apart, which costs no time.

    Parameters
    ----------
    portion : int, bytes
        What a channel takes in one turn.
    last_grain : int, bytes
        The last turn is shared out evenly in multiples of that; 0 keeps whole portions.
    """
    rounds, rest = divmod(part_bytes, channels * portion)
    last = min(portion, _up(-(-rest // channels), last_grain)) if last_grain else portion
    sizes = [rounds * portion + min(last, max(0, rest - number * last)) for number in range(channels)]
    return _contiguous([size for size in sizes if size], part_bytes)


def last_turn_grain(collective: str, protocol: str, threads: int, blocks: int) -> int:
    """Return what a channel's part of the last turn is a multiple of before 2.20, in bytes.

    Parameters
    ----------
    threads : int
        Threads of a channel that move data.
    blocks : int
        Chunks that a portion consists of: the ranks for a ring's all-reduce, else 1.
    """
    half = 2 if protocol == LL128 and collective in (ALL_REDUCE, *GATHERS) else 1
    return blocks * (threads * _THREAD_BYTES[protocol] // half)


def _up(value: int, grain: int) -> int:
    return -(-value // grain) * grain


def _contiguous(sizes: list[int], total: int) -> tuple[Share, ...]:
    """Lay sizes one after another, the last one cut to fit."""
    shares, start = [], 0
    for size in sizes:
        shares.append((start, min(size, total - start)))
        start += size
    return tuple(shares)
