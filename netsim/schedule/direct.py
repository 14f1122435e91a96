"""Direct algorithms (textbook): every rank talks to every other, or to one root, without relays.

Ranks send to r + 1, r + 2, ... in turn, one lane a rank, so that at any time everybody sends to somebody else. The flat
algorithms load the root with (p - 1) N each way and are what the others are measured against. Nobody waits for a permit:
what arrives together queues at the receiver's link.
"""

from typing import Unpack

import numpy as np
import numpy.typing as npt

from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import COMPUTE, Ids, Schedule, ScheduleBuilder
from netsim.schedule.options import Common
from netsim.schedule.pieces import Given

Numbers = npt.NDArray[np.int64]


def one_shot_all_reduce(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build an all-reduce in which every rank sends its whole input to every other, and each adds for itself.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    **options
        See `netsim.schedule.options.Common`.
    """
    builder = Given(**options).builder("all_reduce", "one_shot", ranks, size_bytes, expected=ranks * (ranks - 1))
    src, dst, step = _rotated(ranks)
    _send(builder, src, dst, step=step, reduce=True, from_input=True)
    return builder.build()


def two_shot_all_reduce(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build an all-reduce as a direct reduce-scatter and a direct all-gather; parameters as in `one_shot_all_reduce`."""
    expected = 2 * ranks * (ranks - 1) + ranks if ranks > 1 else 0
    phases = ((0, "reduce-scatter"), (ranks - 1, "all-gather"))
    builder = Given(**options).builder("all_reduce", "two_shot", ranks, size_bytes, expected=expected, phases=phases)
    src, dst, step = _rotated(ranks)
    first = _send(builder, src, dst, dst, step=step, reduce=True, from_input=True)
    if ranks > 1:
        # A rank sends its finished block when all contributions are in. An empty operation gathers them, which keeps the
        # number of requirements linear in the operations.
        by_step = first.reshape(ranks - 1, ranks)
        hop = np.arange(1, ranks)[:, None]
        joined = _join(builder, np.arange(ranks), ranks - 2)
        builder.require(joined, by_step[hop - 1, (np.arange(ranks) - hop) % ranks])
        second = _send(builder, src, dst, src, step=step + ranks - 1)
        builder.require(second, joined[src])
    return builder.build()


def flat_all_reduce(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[Common]) -> Schedule:
    """Build an all-reduce in which one root adds all inputs and sends the sum back; parameters as in `flat_reduce`."""
    expected = 2 * ranks - 1 if ranks > 1 else 0
    phases = ((0, "reduce"), (1, "broadcast"))
    builder = Given(**options).builder("all_reduce", "flat", ranks, size_bytes, root, expected=expected, phases=phases)
    others = _others(ranks, root)
    into = _send(builder, others, root, reduce=True, from_input=True)
    if ranks > 1:
        joined = _join(builder, np.array([root]), 0)
        builder.require(joined[0], into)
        builder.require(_send(builder, root, others, step=1), joined[0])
    return builder.build()


def flat_reduce(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[Common]) -> Schedule:
    """Build a reduce in which every rank sends its input straight to the root.

    Parameters
    ----------
    ranks, size_bytes, root : int
        How many ranks, bytes, and which rank is the root.
    **options
        See `netsim.schedule.options.Common`.
    """
    builder = Given(**options).builder("reduce", "flat", ranks, size_bytes, root, expected=ranks - 1)
    _send(builder, _others(ranks, root), root, reduce=True, from_input=True)
    return builder.build()


def flat_broadcast(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[Common]) -> Schedule:
    """Build a broadcast in which the root sends to everybody in turn; parameters as in `flat_reduce`."""
    builder = Given(**options).builder("broadcast", "flat", ranks, size_bytes, root, expected=ranks - 1)
    _send(builder, root, _others(ranks, root), from_input=True)
    return builder.build()


def gather(ranks: int, size_bytes: int, *, root: int = 0, algorithm: str = "flat", **options: Unpack[Common]) -> Schedule:
    """Build a gather: every rank sends its block straight to the root; parameters as in `flat_reduce`."""
    builder = Given(**options).builder("gather", algorithm, ranks, size_bytes, root, expected=ranks - 1)
    others = _others(ranks, root)
    _send(builder, others, root, others, from_input=True)
    return builder.build()


def scatter(ranks: int, size_bytes: int, *, root: int = 0, algorithm: str = "flat", **options: Unpack[Common]) -> Schedule:
    """Build a scatter: the root sends every rank its block, in turn; parameters as in `flat_reduce`."""
    builder = Given(**options).builder("scatter", algorithm, ranks, size_bytes, root, expected=ranks - 1)
    others = _others(ranks, root)
    _send(builder, root, others, others, from_input=True)
    return builder.build()


def all_gather(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build an all-gather in which every rank sends its block to every other; parameters as in `one_shot_all_reduce`."""
    builder = Given(**options).builder("all_gather", "direct", ranks, size_bytes, expected=ranks * (ranks - 1))
    src, dst, step = _rotated(ranks)
    _send(builder, src, dst, src, step=step, from_input=True)
    return builder.build()


def reduce_scatter(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build a reduce-scatter in which every rank sends each block to its owner; parameters as in `one_shot_all_reduce`."""
    builder = Given(**options).builder("reduce_scatter", "direct", ranks, size_bytes, expected=ranks * (ranks - 1))
    src, dst, step = _rotated(ranks)
    _send(builder, src, dst, dst, step=step, reduce=True, from_input=True)
    return builder.build()


def _rotated(ranks: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return source, destination and step of p - 1 rounds: in round s (from 0) rank r sends to r + s + 1."""
    step, src = (grid.ravel() for grid in np.indices((ranks - 1, ranks)))
    return src, (src + step + 1) % ranks, step


def _join(builder: ScheduleBuilder, at: Numbers, step: int) -> Ids:
    """Add an operation on each of some ranks that takes no time and moves nothing, to be required in place of many."""
    return builder.add(len(at), kind=COMPUTE, size=0, lane=builder.lanes(at.tolist(), "join"), step=step)


def _others(ranks: int, root: int) -> Numbers:
    """Return all ranks but the root, starting after it."""
    return (root + 1 + np.arange(ranks - 1)) % ranks


def _send(
    builder: ScheduleBuilder,
    src: Numbers | int,
    dst: Numbers | int,
    block: Numbers | None = None,
    *,
    step: Numbers | int = 0,
    reduce: bool = False,
    from_input: bool = False,
) -> Ids:
    """Add transfers of some ranks' blocks, or of the whole data.

    Each is posted on its source's lane: they wait for the links, not for each other.
    """
    count, number = (1, 0) if block is None else (builder.ranks, block)
    bounds = np.array(block_bounds(builder.size_bytes, count, builder.align_bytes), np.int64)
    src, dst = np.broadcast_arrays(src, dst)
    return builder.add(
        len(src),
        src=src,
        dst=dst,
        offset=bounds[number],
        size=np.diff(bounds)[number],
        chunk=number,
        step=step,
        lane=builder.lanes(range(builder.ranks))[src],
        reduce=reduce,
        from_input=from_input,
        posted=True,
    )
