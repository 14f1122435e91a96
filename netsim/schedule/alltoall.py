"""All-to-all and send/recv (textbook): what moves between pairs, not sums.

Direct all-to-all posts everything at once in rotated order; pairwise starts a round when the rank's own receive of the
round before is in. A rank's block for itself is not sent.
"""

import numpy as np

from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule, ScheduleBuilder


def pairwise(ranks: int, size_bytes: int, *, align_bytes: int = 1, limit: int | None = None) -> Schedule:
    """Build an all-to-all in p - 1 rounds: in round s rank r sends to r + s and receives from r - s.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes that each holds for all of them together.
    align_bytes : int
        Block boundaries are multiples of this.
    limit : int or None
        The most operations accepted.
    """
    return _rounds("pairwise", ranks, size_bytes, align_bytes, limit)


def direct(ranks: int, size_bytes: int, *, align_bytes: int = 1, limit: int | None = None) -> Schedule:
    """Build an all-to-all that waits for nothing: rank r sends to r + 1, r + 2, ...; parameters as in `pairwise`."""
    return _rounds("direct", ranks, size_bytes, align_bytes, limit)


def sendrecv(ranks: int, size_bytes: int, *, align_bytes: int = 1, limit: int | None = None) -> Schedule:
    """Build the exchange in which every rank sends its message to the next one; parameters as in `pairwise`."""
    count = ranks if ranks > 1 else 0
    builder = ScheduleBuilder("sendrecv", "direct", ranks, size_bytes, expected=count, limit=limit, align_bytes=align_bytes)
    src = np.arange(count)
    lane = builder.lanes(range(count))
    dst = (src + 1) % ranks
    builder.add(count, src=src, dst=dst, lane=lane, offset=src * size_bytes, size=size_bytes, chunk=src, from_input=True)
    return builder.build()


def _rounds(algorithm: str, ranks: int, size_bytes: int, align_bytes: int, limit: int | None) -> Schedule:
    count = ranks * (ranks - 1)
    builder = ScheduleBuilder("alltoall", algorithm, ranks, size_bytes, expected=count, limit=limit, align_bytes=align_bytes)
    bounds = np.array(block_bounds(size_bytes, ranks, align_bytes), np.int64)
    step, src = (grid.ravel() for grid in np.indices((ranks - 1, ranks)))
    dst = (src + step + 1) % ranks
    lanes = builder.lanes(range(ranks))
    ids = builder.add(
        count,
        src=src,
        dst=dst,
        offset=src * size_bytes + bounds[dst],
        size=np.diff(bounds)[dst],
        chunk=dst,
        step=step,
        lane=lanes[src],
        from_input=True,
        posted=algorithm == "direct",
    )
    if algorithm == "pairwise" and ranks > 2:
        later = ids[ranks:]
        # In the round before, numbered step - 1 from 0, rank r received from r - step.
        builder.require(later, (step[later] - 1) * ranks + (src[later] - step[later]) % ranks)
    return builder.build()
