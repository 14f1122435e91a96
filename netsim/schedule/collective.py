"""What each collective promises: its address space, who owns which input, and what every rank must hold at the end.

All data of a collective lives in one *logical* space of bytes; every rank has a copy of that space, and an operation
moves the same addresses from one rank's copy to another's. That makes a promise checkable: for each address, which
ranks contribute and which ranks must end with the sum of all contributions. `size_bytes` means what nccl-tests' size
column means (nccl.md 1.1), the same number for all ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral

from netsim.errors import ScheduleError
from netsim.units import parse_bytes

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
    "gather",
    "scatter",
)
"""Names as the command line spells them."""

ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""The collectives for which the root matters."""

_PER_RANK_SPACES = ("alltoall", "sendrecv")


@dataclass(frozen=True)
class Region:
    """A range of the logical space, who contributes to it, and who must end with the sum of the contributions."""

    offset: int
    """First byte."""
    size: int
    """Bytes."""
    owners: tuple[int, ...]
    """Ranks that hold an input here."""
    receivers: tuple[int, ...]
    """Ranks that must hold the sum of all owners' inputs at the end."""


def is_whole(value: object, least: int) -> bool:
    """Say whether a value is a whole number, `least` or more; True and 2.0 are none.

    Examples
    --------
    >>> is_whole(2, 1), is_whole(0, 1), is_whole(2.0, 1), is_whole(True, 1), is_whole("2", 1)
    (True, False, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def read_size(size: int | str, where: str = "size_bytes") -> int:
    """Return a size in bytes that a call gives as a whole number, or as text with a unit.

    Raises
    ------
    ScheduleError
        If it is a number, but not a whole one of zero or more.
    UnitError
        If it is text that cannot be read.

    Examples
    --------
    >>> read_size(1000), read_size("256 MiB")
    (1000, 268435456)
    """
    if isinstance(size, str):
        return parse_bytes(size, where=where)
    if not is_whole(size, 0):
        raise ScheduleError(f"{where} is {size!r}; give a whole number of bytes, zero or more, or text such as '64 MiB'")
    return int(size)


def check_collective(collective: str, ranks: int, size_bytes: int, root: int = 0) -> None:
    """Raise `ScheduleError` unless the collective exists and the numbers make sense for it."""
    if collective not in COLLECTIVES:
        raise ScheduleError(f"unknown collective {collective!r}; accepted are {', '.join(COLLECTIVES)}")
    if not is_whole(ranks, 1):
        raise ScheduleError(f"{collective} over {ranks!r} ranks: the number of ranks must be a whole number, 1 or more")
    if not is_whole(size_bytes, 0):
        raise ScheduleError(f"{collective} of {size_bytes!r} bytes: the size must be a whole number, zero or more")
    if not is_whole(root, 0) or root >= ranks:
        raise ScheduleError(f"{collective} with root {root!r}: the root must be a rank from 0 to {ranks - 1}")


def block_bounds(size_bytes: int, blocks: int, align_bytes: int = 1) -> list[int]:
    """Cut a size into blocks of ``ceil(size / blocks)`` bytes, the last ones shorter or empty.

    Returns
    -------
    list of int
        ``blocks + 1`` offsets; block `i` is from offset `i` to offset `i + 1`.

    Examples
    --------
    >>> block_bounds(10, 4), block_bounds(3, 4)
    ([0, 3, 6, 9, 10], [0, 1, 2, 3, 3])
    """
    step = -(-size_bytes // blocks)
    step = -(-step // align_bytes) * align_bytes
    return [min(index * step, size_bytes) for index in range(blocks + 1)]


def space_bytes(collective: str, ranks: int, size_bytes: int) -> int:
    """Return the length of the logical space: the size itself, or one size a rank for all-to-all and send/recv."""
    return size_bytes * ranks if collective in _PER_RANK_SPACES else size_bytes


def promise(collective: str, ranks: int, size_bytes: int, root: int = 0, align_bytes: int = 1) -> Iterator[Region]:
    """Yield the regions that together cover the logical space of a collective.

    The layouts: all_reduce, broadcast and reduce have one region of `size_bytes`; all_gather, reduce_scatter, gather
    and scatter one block of `block_bounds` a rank; alltoall has the block for receiver j of sender i at
    ``i * size_bytes + bounds[j]``; sendrecv has rank i's message at ``i * size_bytes``, for rank i + 1.
    """
    everyone = tuple(range(ranks))
    bounds = block_bounds(size_bytes, ranks, align_bytes)
    if collective in ("all_reduce", "broadcast", "reduce"):
        owners = (root,) if collective == "broadcast" else everyone
        receivers = (root,) if collective == "reduce" else everyone
        yield Region(0, size_bytes, owners, receivers)
    elif collective == "sendrecv":
        for rank in everyone:
            yield Region(rank * size_bytes, size_bytes, (rank,), ((rank + 1) % ranks,))
    elif collective == "alltoall":
        for sender in everyone:
            for receiver in everyone:
                offset = sender * size_bytes + bounds[receiver]
                yield Region(offset, bounds[receiver + 1] - bounds[receiver], (sender,), (receiver,))
    else:
        for rank in everyone:
            owners = {"all_gather": (rank,), "gather": (rank,), "scatter": (root,)}.get(collective, everyone)
            receivers = {"all_gather": everyone, "gather": (root,)}.get(collective, (rank,))
            yield Region(bounds[rank], bounds[rank + 1] - bounds[rank], owners, receivers)
