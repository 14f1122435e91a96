"""Bruck's algorithms (textbook): ceil(log2 p) steps for any number of ranks, paid for with larger messages.

In step k everybody talks to the rank 2^k away. The all-gather sends what it has so far (bandwidth-optimal); the
all-to-all passes each block on once for every set bit of its distance, about log2(p)/2 N in all. Blocks are named by
their owner and receiver, so the rotations in memory before and after, local copies, take no time here.
"""

from typing import Unpack

import numpy as np
import numpy.typing as npt

from netsim.schedule.dag import Ids, Schedule
from netsim.schedule.options import Common
from netsim.schedule.pieces import Given, check_ranges

Numbers = npt.NDArray[np.int64]


def all_gather(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build a Bruck all-gather: in step k rank r sends its first 2^k blocks (r, r + 1, ...) to r - 2^k.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes of the whole result.
    **options
        See `netsim.schedule.options.Common`.

    Examples
    --------
    >>> all_gather(6, 600).size[::6].tolist()
    [100, 200, 200]
    """
    given = Given(**options)
    plan = _Steps("all_gather", ranks, size_bytes, given)
    bounds = given.blocks(size_bytes, ranks)
    rank = np.arange(ranks)
    for hop in plan.hops:
        after = rank + min(hop, ranks - hop)
        # The blocks follow each other, from the last on to the first: at most two ranges.
        offsets = np.stack([bounds[rank], np.zeros(ranks, np.int64)], 1)
        ends = np.stack([bounds[np.minimum(after, ranks)], bounds[np.maximum(after - ranks, 0)]], 1)
        counts = np.where(after > ranks, 2, 1)
        kept = np.stack([counts > 0, counts > 1], 1)
        plan.send((rank - hop) % ranks, (rank + hop) % ranks, (counts, offsets[kept], (ends - offsets)[kept]), rank)
    return plan.builder.build()


def all_to_all(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build a Bruck all-to-all: in step k rank r sends on to r + 2^k all blocks whose distance to go has bit k set.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes that each holds for all of them together.
    **options
        See `netsim.schedule.options.Common`.

    Examples
    --------
    >>> all_to_all(8, 800).bytes_sent().tolist()[:2]
    [1200, 1200]
    """
    given = Given(**options)
    plan = _Steps("alltoall", ranks, size_bytes, given)
    check_ranges("alltoall", "bruck", ranks, ranks * blocks_sent_on(ranks))
    bounds = given.blocks(size_bytes, ranks)
    rank = np.arange(ranks)[:, None]
    for hop in plan.hops:
        distance = np.flatnonzero(np.arange(ranks) & hop)
        sender = (rank - distance % hop) % ranks
        receiver = (sender + distance) % ranks
        offsets = sender * size_bytes + bounds[receiver]
        counts = np.full(ranks, len(distance))
        ranges = counts, offsets.ravel(), np.diff(bounds)[receiver].ravel()
        plan.send((rank[:, 0] + hop) % ranks, (rank[:, 0] - hop) % ranks, ranges, receiver[:, 0])
    return plan.builder.build()


def blocks_sent_on(ranks: int) -> int:
    """Return how many blocks each rank sends in an all-to-all: one for every set bit of every distance.

    Examples
    --------
    >>> blocks_sent_on(8)
    12
    """
    return sum(distance.bit_count() for distance in range(ranks))


class _Steps:
    """Steps in which each rank sends one message, when all that it will receive before is in."""

    def __init__(self, collective: str, ranks: int, size_bytes: int, given: Given) -> None:
        self.hops = [1 << bit for bit in range((ranks - 1).bit_length())]
        self.builder = given.builder(collective, "bruck", ranks, size_bytes, expected=len(self.hops) * ranks)
        self._lanes = self.builder.lanes(range(ranks))
        self._received: list[Ids] = []

    def send(self, target: Numbers, source: Numbers, ranges: tuple[Numbers, Numbers, Numbers], chunk: Numbers) -> None:
        """Add a step: rank r sends to ``target[r]`` and receives from ``source[r]``."""
        ids = self.builder.add(
            len(target),
            after=self._received,
            src=np.arange(len(target)),
            dst=target,
            ranges=ranges,
            chunk=chunk,
            step=len(self._received),
            lane=self._lanes,
        )
        self._received.append(ids[source])
