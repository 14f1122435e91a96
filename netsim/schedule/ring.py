"""Ring algorithms (textbook): every rank talks to the next one only.

All-reduce is a reduce-scatter followed by an all-gather of p - 1 steps each; broadcast and reduce are a pipeline from or
to the root. With channels the data is split into that many independent rings. Assumes nothing about links; a ring over
several servers crosses each server's boundary once a channel.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError
from netsim.schedule import pipeline
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule, ScheduleBuilder
from netsim.schedule.pieces import Bytes, Groups, cut, piece_count, server_order

Table = npt.NDArray[np.int64]


def all_reduce(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    channels: int = 1,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a ring all-reduce.

    At step s (from 0) the rank at position q sends chunk (q - s) mod p in the reduce-scatter, then chunk
    (q + 1 - s) mod p in the all-gather, to position q + 1.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    chunk_bytes, chunks : int or None
        Cut each step's block of ceil(N / p) bytes into pieces of this size, or into this many, which follow each other
        round the ring; by default blocks are sent whole.
    groups : sequence of sequence of int
        The ranks of each server: the ring visits server after server.
    channels : int
        That many rings share the data; with several servers each enters them at another GPU.
    align_bytes : int
        Boundaries are multiples of this.
    limit : int or None
        The most operations accepted.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> all_reduce(4, 4_000_000).bytes_sent().tolist()
    [6000000, 6000000, 6000000, 6000000]
    """
    shares = _shares(size_bytes, channels, align_bytes)
    blocks = np.array([block_bounds(stop - start, ranks, align_bytes) for start, stop in shares], np.int64)
    blocks += np.array([start for start, _ in shares], np.int64)[:, None]
    pieces = _Pieces(blocks[:, :-1], blocks[:, 1:], chunk_bytes, chunks, align_bytes)
    orders = _orders(ranks, groups, channels)
    steps, half = 2 * (ranks - 1), ranks - 1
    builder = _builder("all_reduce", ranks, size_bytes, steps * pieces.count * channels * ranks, align_bytes, limit, half)
    step, position = np.arange(steps)[:, None], np.arange(ranks)
    block = np.where(step < half, position - step, position + 1 - (step - half)) % ranks
    return _round_the_ring(builder, orders, pieces, np.broadcast_to(block, (channels, steps, ranks)), half)


def reduce_scatter(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    channels: int = 1,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a ring reduce-scatter that leaves block r on rank r; parameters as in `all_reduce`."""
    pieces, orders = _block_rings(ranks, size_bytes, chunk_bytes, chunks, groups, channels, align_bytes)
    steps = ranks - 1
    expected = steps * pieces.count * channels * ranks
    builder = _builder("reduce_scatter", ranks, size_bytes, expected, align_bytes, limit)
    step, position = np.arange(steps)[:, None], np.arange(ranks)
    block = orders[:, (position - step - 1) % ranks] if ranks > 1 else np.zeros((channels, 0, 1), np.int64)
    return _round_the_ring(builder, orders, pieces, block, steps)


def all_gather(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    channels: int = 1,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a ring all-gather; parameters as in `all_reduce`."""
    pieces, orders = _block_rings(ranks, size_bytes, chunk_bytes, chunks, groups, channels, align_bytes)
    steps = ranks - 1
    expected = steps * pieces.count * channels * ranks
    builder = _builder("all_gather", ranks, size_bytes, expected, align_bytes, limit)
    step, position = np.arange(steps)[:, None], np.arange(ranks)
    block = orders[:, (position - step) % ranks] if ranks > 1 else np.zeros((channels, 0, 1), np.int64)
    return _round_the_ring(builder, orders, pieces, block, 0)


def broadcast(
    ranks: int,
    size_bytes: int,
    *,
    root: int = 0,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    channels: int = 1,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a broadcast that runs from the root round the ring, one piece behind the other.

    By default each channel's share is cut into at most 64 pieces, none below 4 KiB; parameters as in `all_reduce`.
    """
    flows = _flows(ranks, size_bytes, root, groups, channels, align_bytes)
    return pipeline.build("broadcast", "ring", ranks, size_bytes, flows, root, chunk_bytes, chunks, align_bytes, limit)


def reduce(
    ranks: int,
    size_bytes: int,
    *,
    root: int = 0,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    channels: int = 1,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a reduce that starts at the rank after the root and ends there; pieces as in `broadcast`."""
    flows = _flows(ranks, size_bytes, root, groups, channels, align_bytes, backwards=True)
    return pipeline.build("reduce", "ring", ranks, size_bytes, flows, root, chunk_bytes, chunks, align_bytes, limit)


class _Pieces:
    """How blocks, shape (channels, blocks), are cut into equally many pieces."""

    def __init__(self, start: Bytes, stop: Bytes, chunk_bytes: int | None, chunks: int | None, align_bytes: int) -> None:
        self.count = piece_count(int((stop - start).max()), chunk_bytes, chunks, default=1)
        self._start, self._stop, self._chunk_bytes, self._align_bytes = start, stop, chunk_bytes, align_bytes

    def bounds(self) -> Bytes:
        """Return the boundaries of all pieces, shape (channels, blocks, pieces + 1); as long as the schedule may be."""
        return cut(self._start, self._stop, self.count, self._chunk_bytes, self._align_bytes)


def _shares(size_bytes: int, channels: int, align_bytes: int) -> list[tuple[int, int]]:
    if channels < 1:
        raise ScheduleError(f"{channels} channels: the number of channels must be 1 or more")
    bounds = block_bounds(size_bytes, channels, align_bytes)
    return list(pairwise(bounds))


def _orders(ranks: int, groups: Groups | None, channels: int) -> Table:
    return np.array([server_order(ranks, groups, channel) for channel in range(channels)], np.int64)


def _block_rings(
    ranks: int,
    size_bytes: int,
    chunk_bytes: int | None,
    chunks: int | None,
    groups: Groups | None,
    channels: int,
    align_bytes: int,
) -> tuple[_Pieces, Table]:
    """Share every rank's block out to the channels and cut the shares into pieces."""
    _shares(size_bytes, channels, align_bytes)
    bounds = np.array(block_bounds(size_bytes, ranks, align_bytes), np.int64)
    shares = cut(bounds[:-1], bounds[1:], channels, None, align_bytes).T
    return _Pieces(shares[:-1], shares[1:], chunk_bytes, chunks, align_bytes), _orders(ranks, groups, channels)


def _builder(
    collective: str, ranks: int, size_bytes: int, expected: int, align_bytes: int, limit: int | None, half: int = 0
) -> ScheduleBuilder:
    phases = ((0, "reduce-scatter"), (half, "all-gather")) if half else ((0, collective.replace("_", "-")),)
    return ScheduleBuilder(
        collective, "ring", ranks, size_bytes, expected=expected, limit=limit, align_bytes=align_bytes, phases=phases
    )


def _round_the_ring(builder: ScheduleBuilder, orders: Table, pieces: _Pieces, block: Table, adding: int) -> Schedule:
    """Add all operations in the order step, piece, channel, position; each needs what came in the step before.

    `block[channel, step, position]` is the block that is sent; the first `adding` steps add at the destination.
    """
    builder.pieces = pieces.count * len(orders)
    channels, steps, ranks = block.shape
    count = pieces.count
    shape = (steps, count, channels, ranks)
    total = steps * count * channels * ranks
    if total == 0:
        return builder.build()
    if channels == 1:
        lanes = builder.lanes(range(ranks))[None]
    else:
        lanes = np.array([builder.lanes(range(ranks), f"channel {channel}") for channel in range(channels)])

    def spread(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.broadcast_to(values, shape).reshape(total)

    sent = block.transpose(1, 0, 2)[:, None]
    channel = np.arange(channels)[:, None]
    piece = np.arange(count)[:, None, None]
    bounds = pieces.bounds()
    start = bounds[channel, sent, piece]
    step = np.arange(steps)[:, None, None, None]
    earlier = np.arange(total).reshape(shape) - count * channels * ranks
    # What position q sends at a step came from position q - 1 in the step before.
    needed = np.roll(earlier, 1, axis=3)
    needed[0] = -1
    builder.add(
        total,
        after=[needed.reshape(total)],
        src=spread(orders),
        dst=spread(np.roll(orders, -1, axis=1)),
        offset=start.reshape(total),
        size=(bounds[channel, sent, piece + 1] - start).reshape(total),
        chunk=spread((channel * ranks + sent) * count + piece),
        step=spread(step),
        lane=spread(np.take_along_axis(lanes, orders, axis=1)),
        reduce=spread(step < adding),
        from_input=spread(step == 0),
    )
    return builder.build()


def _flows(
    ranks: int,
    size_bytes: int,
    root: int,
    groups: Groups | None,
    channels: int,
    align_bytes: int,
    *,
    backwards: bool = False,
) -> list[pipeline.Flow]:
    flows = []
    for channel, (start, stop) in enumerate(_shares(size_bytes, channels, align_bytes)):
        order = server_order(ranks, groups, channel)
        at = order.index(root) if root in order else 0
        order = order[at:] + order[:at]
        if backwards:
            order = order[:1] + order[:0:-1]
        flows.append(pipeline.Flow(pipeline.chain_parents(order), start, stop, f"channel {channel}" if channels > 1 else ""))
    return flows
