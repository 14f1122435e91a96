"""How builders cut data: blocks into pieces for pipelining, and ranks into the order that a ring or chain visits them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.schedule.collective import block_bounds, is_whole
from netsim.schedule.dag import ScheduleBuilder
from netsim.units import MAX_BYTES

Bytes = npt.NDArray[np.int64]
Groups = Sequence[Sequence[int]]

MOST_PIECES = 64
"""Default pieces of a pipeline: a double binary tree over eight ranks is then within 2 % of its limit."""
LEAST_PIECE_BYTES = 4096
"""No default piece is smaller: at 450 GB/s it lasts 9 ns, so more pieces would buy nothing against a latency of 1 us."""
MOST_RANGES = 2**25
"""Most ranges in the messages of a schedule; building one takes some 100 bytes for each."""


@dataclass(frozen=True)
class Given:
    """The values of `netsim.schedule.options.Common`, with their defaults."""

    align_bytes: int = 1
    limit: int | None = None

    def blocks(self, size_bytes: int, count: int) -> Bytes:
        """Return the boundaries of `block_bounds` as an array."""
        return np.array(block_bounds(size_bytes, count, self.align_bytes), np.int64)

    def builder(
        self,
        collective: str,
        algorithm: str,
        ranks: int,
        size_bytes: int,
        root: int = 0,
        *,
        expected: int,
        pieces: int = 1,
        phases: tuple[tuple[int, str], ...] = (),
    ) -> ScheduleBuilder:
        """Return a builder that keeps to the limit and knows the alignment; parameters as in `ScheduleBuilder`."""
        return ScheduleBuilder(
            collective, algorithm, ranks, size_bytes, root, expected, self.limit, self.align_bytes, phases, pieces
        )


@dataclass(frozen=True)
class GivenPieces(Given):
    """The values of `netsim.schedule.options.Pieces`, with their defaults."""

    chunk_bytes: int | None = None
    chunks: int | None = None

    def count(self, largest: int, default: int | None = None) -> int:
        """Return into how many pieces the largest block is cut.

        Parameters
        ----------
        largest : int, bytes
            The largest block.
        default : int or None
            Number of pieces if none is asked for; None is at most `MOST_PIECES`, none below `LEAST_PIECE_BYTES`.
        """
        check_pieces(self.chunk_bytes, self.chunks)
        if self.chunks is not None:
            return self.chunks
        if self.chunk_bytes is not None:
            return max(1, -(-largest // self.chunk_bytes))
        if default is not None:
            return default
        return max(1, min(MOST_PIECES, largest // LEAST_PIECE_BYTES))

    def cut(self, start: npt.ArrayLike, stop: npt.ArrayLike, count: int) -> Bytes:
        """Cut blocks into that many pieces each, as `cut` does."""
        return cut(start, stop, count, self.chunk_bytes, self.align_bytes)


def check_pieces(chunk_bytes: int | None, chunks: int | None) -> None:
    """Raise `ScheduleError` unless at most one of the two is given, and that is 1 or more."""
    if chunk_bytes is not None and chunks is not None:
        raise ScheduleError(f"give a chunk size or a number of chunks, not both ({chunk_bytes} bytes and {chunks} chunks)")
    for name, value in (("chunk size in bytes", chunk_bytes), ("number of chunks", chunks)):
        if value is not None and not is_whole(value, 1):
            raise ScheduleError(f"the {name} is {value!r}; it must be a whole number, 1 or more")


def cut(start: npt.ArrayLike, stop: npt.ArrayLike, pieces: int, chunk_bytes: int | None, align_bytes: int) -> Bytes:
    """Cut blocks into equally many pieces; shorter blocks end in shorter or empty ones.

    Parameters
    ----------
    start, stop : array_like of int, bytes
        The blocks, any common shape.
    pieces : int
        Pieces a block.
    chunk_bytes : int or None
        Size of a piece, rounded up to the alignment; None divides the largest block evenly.
    align_bytes : int
        Boundaries inside a block are multiples of this from the block's start.

    Returns
    -------
    ndarray of int, bytes, shape (..., pieces + 1)
        Boundaries of each block's pieces.

    Examples
    --------
    >>> cut([0, 10], [10, 15], 3, None, 1).tolist()
    [[0, 4, 8, 10], [10, 14, 15, 15]]
    """
    start, stop = np.asarray(start, np.int64), np.asarray(stop, np.int64)
    size = -(-int((stop - start).max()) // pieces) if chunk_bytes is None else chunk_bytes
    size = -(-size // align_bytes) * align_bytes
    # A piece never reaches past its block, so the offset inside it is capped first: no overflow for huge pieces.
    inside = np.array([min(piece * size, MAX_BYTES) for piece in range(pieces + 1)], np.int64)
    bounds: Bytes = start[..., None] + np.minimum(inside, (stop - start)[..., None])
    return bounds


def server_order(ranks: int, groups: Groups | None, turn: int = 0) -> list[int]:
    """Return the ranks in the order a ring or chain visits them: server by server.

    With more than one server the order inside each is rotated by `turn`, so that rings with different turns enter and
    leave a server at different GPUs. Without groups, or with one, it is the order of the ranks.
    """
    servers = checked_groups(ranks, groups)
    if len(servers) == 1:
        return sorted(servers[0])
    return [server[(place + turn) % len(server)] for server in servers for place in range(len(server))]


def checked_groups(ranks: int, groups: Groups | None) -> list[list[int]]:
    """Return the servers as lists of ranks, one list of all ranks if there are none.

    Raises
    ------
    ScheduleError
        If the groups are not a partition of the ranks.
    """
    if groups is None:
        return [list(range(ranks))]
    try:
        servers = [list(server) for server in groups if len(server)]
    except TypeError:
        raise ScheduleError(f"groups is {groups!r}; give a sequence of ranks for each server") from None
    members = [rank for server in servers for rank in server]
    if not all(is_whole(rank, 0) for rank in members) or sorted(members) != list(range(ranks)):
        raise ScheduleError(f"groups {tuple(map(tuple, servers))} must hold each of the ranks 0 to {ranks - 1} exactly once")
    return servers


def check_ranges(collective: str, algorithm: str, ranks: int, ranges: int) -> None:
    """Raise `TooManyMessagesError` for more ranges in all messages than memory should hold."""
    if ranges > MOST_RANGES:
        raise TooManyMessagesError(
            f"{collective} by {algorithm} over {ranks} ranks has {ranges} ranges of bytes in its messages, more than "
            f"{MOST_RANGES}; use fewer ranks or larger chunks"
        )
