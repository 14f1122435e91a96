"""All-to-all and send/recv (textbook): what moves between pairs, not sums.

Direct all-to-all posts everything at once in rotated order; pairwise starts a round when the rank's own receive of the
round before is in. Over servers of one size both turn servers outside and ranks within inside, so that at any time the
ranks of a server send to different ranks of another (as NCCL's rounds do, nccl.md 2.9); by plain rotation all of them
would reach the other server's first rank together. A rank's block for itself is not sent.
"""

from typing import Unpack

import numpy as np
import numpy.typing as npt

from netsim.schedule.dag import Schedule
from netsim.schedule.options import Common, Servers
from netsim.schedule.pieces import Given, Groups, checked_groups

Table = npt.NDArray[np.int64]


def pairwise(ranks: int, size_bytes: int, **options: Unpack[Servers]) -> Schedule:
    """Build an all-to-all in p - 1 rounds: in round s rank r sends to r + s and receives from r - s.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes that each holds for all of them together.
    **options
        See `netsim.schedule.options.Servers`: rounds visit server after server.
    """
    return _rounds("pairwise", ranks, size_bytes, **options)


def direct(ranks: int, size_bytes: int, **options: Unpack[Servers]) -> Schedule:
    """Build an all-to-all that waits for nothing: rank r sends to r + 1, r + 2, ...; parameters as in `pairwise`."""
    return _rounds("direct", ranks, size_bytes, **options)


def sendrecv(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build the exchange in which every rank sends its message to the next one.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes of each message.
    **options
        See `netsim.schedule.options.Common`.
    """
    count = ranks if ranks > 1 else 0
    builder = Given(**options).builder("sendrecv", "direct", ranks, size_bytes, expected=count)
    src = np.arange(count)
    lane = builder.lanes(range(count))
    dst = (src + 1) % ranks
    builder.add(count, src=src, dst=dst, lane=lane, offset=src * size_bytes, size=size_bytes, chunk=src, from_input=True)
    return builder.build()


def _rounds(
    algorithm: str, ranks: int, size_bytes: int, groups: Groups | None = None, **options: Unpack[Common]
) -> Schedule:
    given = Given(**options)
    count = ranks * (ranks - 1)
    builder = given.builder("alltoall", algorithm, ranks, size_bytes, expected=count)
    bounds = given.blocks(size_bytes, ranks)
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
