"""PAT, parallel aggregated trees (NCCL 2.23 and later; nccl.md 2.8, after Jeaugey, arXiv 2506.20252): far messages first.

Each block spreads along a binomial tree: the rank at offset s from the owner (owner minus rank, modulo p) gets it from
offset s with its lowest set bit cleared. The far exchanges, which carry the least, come first; how many blocks share a
message follows from a buffer. Reduce-scatter is the same backwards in time and direction. One lane a rank runs the steps
in order; NCCL's worker groups, slots and network proxies are left out here.
"""

from collections.abc import Iterator
from typing import Unpack

import numpy as np
import numpy.typing as npt

from netsim.schedule.dag import Schedule
from netsim.schedule.options import Pieces
from netsim.schedule.pieces import GivenPieces, check_ranges

STEP_BYTES = 512 * 1024
"""One step of NCCL's buffer (4 MiB in 8 steps): two or more aggregated messages must fit in it."""
_MORE_DOUBLINGS = 3
"""The tree is widened by this many doublings beyond the blocks of a message: 8 steps of the buffer are in flight."""

Numbers = npt.NDArray[np.int64]


def all_gather(ranks: int, size_bytes: int, **options: Unpack[Pieces]) -> Schedule:
    """Build a PAT all-gather.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes of the whole result.
    **options
        See `netsim.schedule.options.Pieces`: each block is cut, and one piece of all blocks gathered after the other; by
        default blocks are sent whole. Smaller pieces are aggregated more.

    Examples
    --------
    >>> from netsim.schedule.words import steps_in_words
    >>> for line in steps_in_words(all_gather(8, 8000), most=1):
    ...     print(line)
    step 1: r0->r4 chunk 0 and 7 more
    step 2: r0->r6 chunk 0 (2 ranges) and 7 more
    step 3: r0->r7 chunk 0 (4 ranges) and 7 more
    """
    return _build("all_gather", ranks, size_bytes, GivenPieces(**options))


def reduce_scatter(ranks: int, size_bytes: int, **options: Unpack[Pieces]) -> Schedule:
    """Build a PAT reduce-scatter, the time reversal of the all-gather: near first, far last; parameters as there."""
    return _build("reduce_scatter", ranks, size_bytes, GivenPieces(**options))


def aggregation(ranks: int, block_bytes: int) -> tuple[int, int]:
    """Return the aggregation factor A of PAT and the most blocks of a message.

    Parameters
    ----------
    ranks : int
        p.
    block_bytes : int
        Bytes of the block (of its piece, where it is cut) that each rank contributes.

    Examples
    --------
    >>> aggregation(8, 1000), aggregation(128, 512), aggregation(128, 512 * 1024)
    ((4, 4), (64, 64), (8, 1))
    """
    factor = 1
    while factor < ranks // 2 and 2 * block_bytes * factor <= STEP_BYTES:
        factor *= 2
    blocks = factor
    for _ in range(_MORE_DOUBLINGS):
        if factor < ranks // 2:
            factor *= 2
    return factor, blocks


def message_offsets(ranks: int, block_bytes: int) -> list[list[int]]:
    """Return the messages that every rank sends in an all-gather, in order: the offsets s that each serves.

    Examples
    --------
    >>> message_offsets(8, 1000)
    [[4], [2, 6], [1, 3, 5, 7]]
    """
    if ranks == 1:
        return []
    factor, most = aggregation(ranks, block_bytes)
    spread = (1 << (ranks - 1).bit_length()) // factor
    rounds = []
    scale = factor // 2
    while scale:
        rounds.append([(2 * a + 1) * scale * spread for a in range(factor // (2 * scale))])
        scale //= 2
    rounds += [[a * spread + q for a in range(factor)] for q in _preorder(spread)]
    messages = [full[at : at + most] for full in rounds for at in range(0, len(full), most)]
    kept = [[offset for offset in message if offset < ranks] for message in messages]
    return [message for message in kept if message]


def _preorder(count: int) -> Iterator[int]:
    """Yield 1 .. count - 1 in the depth-first order of the binomial tree, larger children first."""
    stack = [1 << bit for bit in range(count.bit_length() - 1)]
    while stack:
        node = stack.pop()
        yield node
        low = node & -node
        stack.extend(node + (1 << bit) for bit in range(low.bit_length() - 1))


def _build(collective: str, ranks: int, size_bytes: int, given: GivenPieces) -> Schedule:
    """Add message after message, each for all ranks at once; a message waits for those that brought or raised its blocks."""
    gathers = collective == "all_gather"
    blocks = given.blocks(size_bytes, ranks)
    block = int(blocks[1])
    pieces = given.count(block, default=1)
    largest = -(-block // pieces) if given.chunk_bytes is None else min(given.chunk_bytes, block)
    messages = message_offsets(ranks, largest)
    if not gathers:
        messages.reverse()
    expected = pieces * len(messages) * ranks
    builder = given.builder(collective, "pat", ranks, size_bytes, expected=expected, pieces=pieces)
    if not messages:
        return builder.build()
    check_ranges(collective, "pat", ranks, pieces * ranks * (ranks - 1))
    bounds = given.cut(blocks[:-1], blocks[1:], pieces)
    lanes = builder.lanes(range(ranks))
    rank = np.arange(ranks)
    for piece in range(pieces):
        first_of: dict[int, int] = {}
        for step, message in enumerate(messages):
            offset = np.array(message, np.int64)
            hop = message[0] & -message[0]
            if gathers:
                # From offset s - hop to offset s: the sender is `hop` ranks above the receiver.
                target = (rank - hop) % ranks
                owner = (rank[:, None] + offset - hop) % ranks
            else:
                target = (rank + hop) % ranks
                owner = (rank[:, None] + offset) % ranks
            ids = builder.add(
                ranks,
                src=rank,
                dst=target,
                ranges=_ranges(bounds, owner, piece),
                chunk=owner[:, 0] * pieces + piece,
                step=piece * len(messages) + step,
                lane=lanes,
                reduce=not gathers,
            )
            # Several offsets may have come in one message, which is one requirement.
            needs = dict.fromkeys((first_of[other], away) for other, away in _needs(message, hop, ranks, gathers))
            for first, away in needs:
                builder.require(ids, first + (rank + away if gathers else rank - away) % ranks)
            first_of |= dict.fromkeys(message, int(ids[0]))
    return builder.build()


def _ranges(bounds: Numbers, owner: Numbers, piece: int) -> tuple[Numbers, Numbers, Numbers]:
    start = bounds[owner, piece]
    counts = np.full(len(owner), owner.shape[1])
    return counts, start.ravel(), (bounds[owner, piece + 1] - start).ravel()


def _needs(message: list[int], hop: int, ranks: int, gathers: bool) -> Iterator[tuple[int, int]]:
    """Yield (offset, distance of its sender) of what must have reached a rank before it sends a message.

    A gathering rank needs the parents of the offsets that it serves, a reducing one their children.
    """
    for offset in message:
        if gathers:
            parent = offset - hop
            if parent:
                yield parent, parent & -parent
        else:
            child = 1
            while child < hop:
                if offset + child < ranks:
                    yield offset + child, child
                child *= 2
