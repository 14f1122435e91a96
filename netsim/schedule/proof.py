"""Proves that a schedule keeps its collective's promise, on symbolic data.

Each rank's copy of each atom of the logical space holds the set of ranks whose input is summed there, one bit a rank.
What must come out is `netsim.schedule.collective.promise`. Says nothing about time or about lanes: a proved schedule can
still be stuck if its lanes start operations in an order that its requirements do not allow.
"""

from collections.abc import Callable

import numpy as np

from netsim.errors import ProofError
from netsim.schedule.checks import check_schedule
from netsim.schedule.dag import Schedule, check_is_schedule
from netsim.schedule.walk import Walker


def prove(schedule: Schedule) -> None:
    """Show that every rank ends with exactly what the collective promises, each input counted once.

    Parameters
    ----------
    schedule : Schedule
        Built or written by hand.

    Raises
    ------
    ProofError
        If a rank ends with too little, a contribution counts twice, an operation sends what is not there,
        two operations race for the same data, or a collective over one rank has operations.
    StuckError
        If requirements form a cycle.
    ScheduleError
        If the schedule is too large to follow, or no engine could run it (its columns may have been replaced since it
        was built).

    Notes
    -----
    Takes some ten microseconds for each (operation, atom) that is read and written: 0.1 s for a ring of 64 ranks, 6 s for
    one of 512. More than `netsim.schedule.walk.MAX_VISITS` are refused.

    Examples
    --------
    >>> from netsim.schedule.dag import ScheduleBuilder
    >>> plan = ScheduleBuilder("broadcast", "by hand", ranks=3, size_bytes=100)
    >>> first = plan.send(0, 1, size=100)
    >>> second = plan.send(1, 2, size=100, after=[first])
    >>> prove(plan.build())
    """
    check_is_schedule(schedule)
    check_schedule(schedule, np.repeat(np.arange(len(schedule)), np.diff(schedule.requires_start)))
    if schedule.ranks == 1 and len(schedule):
        raise ProofError(f"{schedule.collective} over one rank moves nothing, but the schedule has {schedule.describe(0)}")
    walker = Walker(schedule, lambda rank, atom: 1 << rank, _disjoint)
    walker.run()
    for region in walker.regions:
        promised = sum(1 << rank for rank in region.owners)
        for rank in region.receivers:
            for atom in walker.atoms(region):
                # Only owners have anything to contribute and nothing counts twice, so there can only be too little.
                missing = promised & ~(walker.held(rank, atom) or 0)
                if missing:
                    raise ProofError(
                        f"{schedule.collective} by {schedule.algorithm} breaks its promise at {walker.words(rank, atom)}: "
                        f"the input of {_rank_words(missing)} is missing"
                    )


def _disjoint(one: int, other: int, where: Callable[[], str]) -> int:
    twice = one & other
    if twice:
        raise ProofError(f"{where()} counts the input of {_rank_words(twice)} twice")
    return one | other


def _rank_words(ranks: int) -> str:
    """Name the ranks of a bit set, the first few of many."""
    members = [rank for rank in range(ranks.bit_length()) if ranks >> rank & 1]
    more = f" and {len(members) - 6} more" if len(members) > 6 else ""
    return ("rank " if len(members) == 1 else "ranks ") + ", ".join(map(str, members[:6])) + more
