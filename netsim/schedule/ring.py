"""Ring algorithms (textbook): every rank talks to the next one only.

All-reduce is a reduce-scatter followed by an all-gather of p - 1 steps each; broadcast and reduce are a pipeline from or
to the root. With channels the data is split into that many independent rings. Assumes nothing about links; a ring over
several servers crosses each server's boundary once a channel.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Unpack

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError
from netsim.schedule import pipeline
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule
from netsim.schedule.options import RingPieces
from netsim.schedule.pieces import GivenPieces, Groups, cut, server_order

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Rings(GivenPieces):
    """The values of `netsim.schedule.options.RingPieces`, with their defaults."""

    groups: Groups | None = None
    channels: int = 1

    def shares(self, size_bytes: int) -> list[tuple[int, int]]:
        """Return from where to where each channel's share of the data goes."""
        if self.channels < 1:
            raise ScheduleError(f"{self.channels} channels: the number of channels must be 1 or more")
        return list(pairwise(block_bounds(size_bytes, self.channels, self.align_bytes)))

    def orders(self, ranks: int) -> Table:
        """Return the ranks in the order of each channel's ring, shape (channels, ranks)."""
        return np.array([server_order(ranks, self.groups, channel) for channel in range(self.channels)], np.int64)


def all_reduce(ranks: int, size_bytes: int, **options: Unpack[RingPieces]) -> Schedule:
    """Build a ring all-reduce.

    At step s, from 0 through both phases, the rank at position q sends chunk (q - s) mod p to position q + 1.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    **options
        See `netsim.schedule.options.RingPieces`: each step's block of ceil(N / p) bytes is cut, its pieces follow each
        other round the ring; by default blocks are sent whole. A ring visits server after server.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> all_reduce(4, 4_000_000).bytes_sent().tolist()
    [6000000, 6000000, 6000000, 6000000]
    """
    rings = _Rings(**options)
    bounds = np.array([start + rings.blocks(stop - start, ranks) for start, stop in rings.shares(size_bytes)])
    return _round_the_ring("all_reduce", ranks, size_bytes, rings, bounds[:, :-1], bounds[:, 1:])


def reduce_scatter(ranks: int, size_bytes: int, **options: Unpack[RingPieces]) -> Schedule:
    """Build a ring reduce-scatter that leaves block r on rank r; parameters as in `all_reduce`."""
    return _block_rings("reduce_scatter", ranks, size_bytes, _Rings(**options))


def all_gather(ranks: int, size_bytes: int, **options: Unpack[RingPieces]) -> Schedule:
    """Build a ring all-gather; parameters as in `all_reduce`."""
    return _block_rings("all_gather", ranks, size_bytes, _Rings(**options))


def broadcast(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[RingPieces]) -> Schedule:
    """Build a broadcast that runs from the root round the ring, one piece behind the other.

    By default each channel's share is cut into at most 64 pieces, none below 4 KiB; parameters as in `all_reduce`.
    """
    return _pipeline("broadcast", ranks, size_bytes, root, _Rings(**options))


def reduce(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[RingPieces]) -> Schedule:
    """Build a reduce that starts at the rank after the root and ends there; pieces as in `broadcast`."""
    return _pipeline("reduce", ranks, size_bytes, root, _Rings(**options))


def _block_rings(collective: str, ranks: int, size_bytes: int, rings: _Rings) -> Schedule:
    """Share every rank's block out to the channels."""
    rings.shares(size_bytes)
    bounds = rings.blocks(size_bytes, ranks)
    shares = cut(bounds[:-1], bounds[1:], rings.channels, None, rings.align_bytes).T
    return _round_the_ring(collective, ranks, size_bytes, rings, shares[:-1], shares[1:])


def _round_the_ring(collective: str, ranks: int, size_bytes: int, rings: _Rings, start: Table, stop: Table) -> Schedule:
    """Add all operations in the order step, piece, channel, position; each needs what came in the step before.

    Blocks are from `start` to `stop`, shape (channels, blocks).
    """
    channels, half = rings.channels, ranks - 1
    steps = 2 * half if collective == "all_reduce" else half
    adding = 0 if collective == "all_gather" else half
    count = rings.count(int((stop - start).max()), default=1)
    orders = rings.orders(ranks)
    shape = (steps, count, channels, ranks)
    total = prod(shape)
    phases = ((0, "reduce-scatter"), (half, "all-gather")) if steps > half else ((0, collective.replace("_", "-")),)
    builder = rings.builder(collective, "ring", ranks, size_bytes, expected=total, pieces=count * channels, phases=phases)
    if total == 0:
        return builder.build()
    if channels == 1:
        lanes = builder.lanes(range(ranks))[None]
    else:
        lanes = np.array([builder.lanes(range(ranks), f"channel {channel}") for channel in range(channels)])

    def spread(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.broadcast_to(values, shape).reshape(total)

    channel = np.arange(channels)[:, None]
    piece = np.arange(count)[:, None, None]
    step = np.arange(steps)[:, None, None, None]
    # Begun with its own block, a reduce-scatter would leave the next rank's on each rank: it begins with the one before.
    place = (np.arange(ranks) - step - (collective == "reduce_scatter")) % ranks
    # The blocks of an all-reduce are numbered by place in the ring, others by the rank that they belong to.
    block = place if collective == "all_reduce" else orders[channel, place]
    bounds = rings.cut(start, stop, count)
    offset = bounds[channel, block, piece]
    earlier = np.arange(total).reshape(shape) - count * channels * ranks
    # What position q sends at a step came from position q - 1 in the step before.
    needed = np.roll(earlier, 1, axis=3)
    needed[0] = -1
    builder.add(
        total,
        after=[needed.reshape(total)],
        src=spread(orders),
        dst=spread(np.roll(orders, -1, axis=1)),
        offset=offset.reshape(total),
        size=(bounds[channel, block, piece + 1] - offset).reshape(total),
        chunk=spread((channel * ranks + block) * count + piece),
        step=spread(step),
        lane=spread(np.take_along_axis(lanes, orders, axis=1)),
        reduce=spread(step < adding),
        from_input=spread(step == 0),
    )
    return builder.build()


def _pipeline(collective: str, ranks: int, size_bytes: int, root: int, rings: _Rings) -> Schedule:
    """Open each channel's ring before the root, for a reduce behind it, and let its share run along."""
    flows = []
    for channel, (start, stop) in enumerate(rings.shares(size_bytes)):
        order = server_order(ranks, rings.groups, channel)
        at = order.index(root) if root in order else 0
        order = order[at:] + order[:at]
        if collective == "reduce":
            order = order[:1] + order[:0:-1]
        name = f"channel {channel}" if rings.channels > 1 else ""
        flows.append(pipeline.Flow(pipeline.chain_parents(order), start, stop, name))
    return pipeline.build(collective, "ring", ranks, size_bytes, root, flows, rings)
