"""Replays a schedule on real numbers: NumPy arrays in, the collective's result out.

The array elements stand for the bytes of the schedule in equal shares, so an array of 1,000 float32 can replay a
schedule of 4,000 bytes, or of 1,000. Follows the same walker as the proof. No time passes here.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.errors import ProofError, ScheduleError
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule, check_is_schedule
from netsim.schedule.walk import Walker

Array = npt.NDArray[Any]


def replay(schedule: Schedule, inputs: Sequence[npt.ArrayLike | None]) -> list[Array | None]:
    """Carry out a schedule on data.

    Parameters
    ----------
    schedule : Schedule
        What to carry out.
    inputs : sequence of array_like
        One flat array a rank. all_reduce, reduce, reduce_scatter, alltoall and sendrecv: the whole size (alltoall: the
        blocks for receivers 0, 1, ... one after the other); all_gather and gather: the rank's own block; broadcast and
        scatter: the root's array is the whole size, the others are ignored and may be None.

    Returns
    -------
    list of array or None
        One result a rank. all_reduce, broadcast and all_gather: the whole size; reduce and gather: the whole size at the
        root, None elsewhere; reduce_scatter and scatter: the rank's block; alltoall: the blocks from senders 0, 1, ...;
        sendrecv: the message of the rank before. Blocks are those of `netsim.schedule.collective.block_bounds`.

    Raises
    ------
    ScheduleError
        If the arrays do not fit the schedule, or it cuts the data inside an element.
    ProofError
        If an operation sends what is not there, operations race, or a result is missing.

    Examples
    --------
    >>> from netsim.schedule.ring import all_reduce
    >>> replay(all_reduce(2, 3), [[1, 2, 3], [10, 20, 30]])
    [array([11, 22, 33]), array([11, 22, 33])]
    """
    check_is_schedule(schedule)
    ranks = schedule.ranks
    if len(inputs) != ranks:
        raise ScheduleError(f"replay of {schedule.collective}: {len(inputs)} inputs for {ranks} ranks; give one a rank")
    spans = _input_spans(schedule)
    arrays: list[Array | None] = [None] * ranks
    for rank, (start, stop) in enumerate(spans):
        if stop >= start:
            given = inputs[rank]
            arrays[rank] = np.asarray([] if given is None else given)
            if arrays[rank].ndim != 1:  # type: ignore[union-attr]
                raise ScheduleError(f"replay of {schedule.collective}: the input of rank {rank} must be a flat array")
    unit = _bytes_per_element(schedule, arrays, spans)

    def initial(rank: int, atom: int) -> Array:
        array = arrays[rank]
        assert array is not None
        first = spans[rank][0]
        return array[(walker.bounds[atom] - first) // unit : (walker.bounds[atom + 1] - first) // unit]

    walker = Walker(schedule, initial, _sum)
    for bound in walker.bounds:
        if bound % unit:
            raise ScheduleError(
                f"{schedule.collective} by {schedule.algorithm} cuts its data at byte {bound}, inside an element of "
                f"{unit} bytes; build it with align_bytes={unit} and a size that is a multiple"
            )
    walker.run()
    kind = next(array.dtype for array in arrays if array is not None)
    pieces: list[list[Array]] = [[] for _ in range(ranks)]
    receives = [schedule.collective not in ("reduce", "gather") or rank == schedule.root for rank in range(ranks)]
    for region in walker.regions:
        for rank in region.receivers:
            for atom in walker.atoms(region):
                value = walker.held(rank, atom)
                if value is None:
                    name = f"{schedule.collective} by {schedule.algorithm}"
                    raise ProofError(f"{name} leaves nothing at {walker.words(rank, atom)}")
                pieces[rank].append(value)
    empty = np.empty(0, kind)
    return [np.concatenate([empty, *mine]) if wanted else None for mine, wanted in zip(pieces, receives, strict=True)]


def _input_spans(schedule: Schedule) -> list[tuple[int, int]]:
    """Return the bytes of the logical space that each rank's input covers; (0, -1) for a rank that has none."""
    ranks, size, collective = schedule.ranks, schedule.size_bytes, schedule.collective
    if collective in ("alltoall", "sendrecv"):
        return [(rank * size, (rank + 1) * size) for rank in range(ranks)]
    if collective in ("all_gather", "gather"):
        bounds = block_bounds(size, ranks, schedule.align_bytes)
        return list(pairwise(bounds))
    if collective in ("broadcast", "scatter"):
        return [(0, size) if rank == schedule.root else (0, -1) for rank in range(ranks)]
    return [(0, size)] * ranks


def _bytes_per_element(schedule: Schedule, arrays: list[Array | None], spans: list[tuple[int, int]]) -> int:
    """Infer the bytes that one element stands for, the same at all ranks."""
    given = sum(stop - start for start, stop in spans if stop >= start)
    found = sum(len(array) for array in arrays if array is not None)
    unit = given // found if found else 1
    for rank, array in enumerate(arrays):
        if array is not None and (len(array) * unit != spans[rank][1] - spans[rank][0] or (len(array) and not unit)):
            raise ScheduleError(
                f"replay of {schedule.collective}: the input of rank {rank} has {len(array)} elements for "
                f"{spans[rank][1] - spans[rank][0]} bytes; every element must stand for the same whole number of bytes"
            )
    return max(unit, 1)


def _sum(one: Array, other: Array, where: Callable[[], str]) -> Array:
    return one + other
