"""All-to-all and send/recv (textbook): what moves between pairs, not sums.

Direct all-to-all posts everything at once in rotated order; pairwise starts a round when the rank's own receive of the
round before is in. Over servers of one size both turn servers outside and ranks within inside, so that at any time the
ranks of a server send to different ranks of another (as NCCL's rounds do, nccl.md 2.9); by plain rotation all of them
would reach the other server's first rank together. A rank's block for itself is not sent.
"""

import numpy as np
import numpy.typing as npt

from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule, ScheduleBuilder
from netsim.schedule.pieces import Groups, checked_groups

Table = npt.NDArray[np.int64]


def pairwise(
    ranks: int, size_bytes: int, *, groups: Groups | None = None, align_bytes: int = 1, limit: int | None = None
) -> Schedule:
    """Build an all-to-all in p - 1 rounds: in round s rank r sends to r + s and receives from r - s.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes that each holds for all of them together.
    groups : sequence of sequence of int
        The ranks of each server: rounds visit server after server.
    align_bytes : int
        Block boundaries are multiples of this.
    limit : int or None
        The most operations accepted.
    """
    return _rounds("pairwise", ranks, size_bytes, groups, align_bytes, limit)


def direct(
    ranks: int, size_bytes: int, *, groups: Groups | None = None, align_bytes: int = 1, limit: int | None = None
) -> Schedule:
    """Build an all-to-all that waits for nothing: rank r sends to r + 1, r + 2, ...; parameters as in `pairwise`."""
    return _rounds("direct", ranks, size_bytes, groups, align_bytes, limit)


def sendrecv(ranks: int, size_bytes: int, *, align_bytes: int = 1, limit: int | None = None) -> Schedule:
    """Build the exchange in which every rank sends its message to the next one; parameters as in `pairwise`."""
    count = ranks if ranks > 1 else 0
    builder = ScheduleBuilder("sendrecv", "direct", ranks, size_bytes, expected=count, limit=limit, align_bytes=align_bytes)
    src = np.arange(count)
    lane = builder.lanes(range(count))
    dst = (src + 1) % ranks
    builder.add(count, src=src, dst=dst, lane=lane, offset=src * size_bytes, size=size_bytes, chunk=src, from_input=True)
    return builder.build()


def _rounds(
    algorithm: str, ranks: int, size_bytes: int, groups: Groups | None, align_bytes: int, limit: int | None
) -> Schedule:
    count = ranks * (ranks - 1)
    builder = ScheduleBuilder("alltoall", algorithm, ranks, size_bytes, expected=count, limit=limit, align_bytes=align_bytes)
    bounds = np.array(block_bounds(size_bytes, ranks, align_bytes), np.int64)
    to, back = _peers(ranks, groups)
    step, src = (grid.ravel() for grid in np.indices((ranks - 1, ranks)))
    dst = to.ravel()
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
        # Operation s * ranks + r is what rank r sends in round s, from 0; `back` says from whom a rank receives.
        builder.require(later, (step[later] - 1) * ranks + back.ravel()[later - ranks])
    return builder.build()


def _peers(ranks: int, groups: Groups | None) -> tuple[Table, Table]:
    """Return to whom each rank sends and from whom it receives, by round: rotations of servers, then of their ranks."""
    servers = checked_groups(ranks, groups)
    if len({len(server) for server in servers}) > 1:
        servers = [list(range(ranks))]
    members = np.array(servers, np.int64).reshape(len(servers), -1)
    nodes, local = members.shape
    turn = np.arange(1, ranks)[:, None, None]
    node, place = np.indices((nodes, local))
    to, back = np.empty((2, ranks - 1, ranks), np.int64)
    to[:, members] = members[(node + turn // local) % nodes, (place + turn % local) % local]
    back[:, members] = members[(node - turn // local) % nodes, (place - turn % local) % local]
    return to, back
