"""Several schedules at once on one machine: groups of ranks that do not wait for each other and meet only on links.

For what a tensor-parallel group costs while its neighbour talks, or a data-parallel ring beside an all-to-all. Each part
keeps its own requirements and lanes; ids are dealt out in turn, so that no part wins all ties. The whole is for engines
and metrics: prove the parts before they are joined, their promises are about their own ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError
from netsim.schedule.dag import COLUMNS, Schedule, ScheduleBuilder


@dataclass(frozen=True, eq=False)
class Together:
    """Schedules that start at the same moment."""

    schedule: Schedule
    """All operations, over the ranks of the machine."""
    part: npt.NDArray[np.int64]
    """For each operation, which of the joined schedules it belongs to."""

    def finish_s(self, end_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return when each part was done, in seconds, from the `end_s` of a record of `schedule`."""
        finish = np.zeros(int(self.part.max(initial=-1)) + 1)
        np.maximum.at(finish, self.part, end_s)
        return finish


def together(parts: Sequence[tuple[Schedule, Sequence[int]]], ranks: int) -> Together:
    """Join schedules that run at once on groups of ranks.

    Parameters
    ----------
    parts : sequence of (Schedule, sequence of int)
        Each schedule with the machine's ranks that play its ranks 0, 1, ...; groups may share ranks.
    ranks : int
        Ranks of the machine.

    Returns
    -------
    Together
        Its schedule goes by the protocol of the parts; where they differ its name joins theirs (``ll+simple``), and links
        serve all messages with their own latency and rate.

    Raises
    ------
    ScheduleError
        If a group does not name one rank of the machine for each rank of its schedule.

    Examples
    --------
    >>> from netsim.schedule.ring import all_reduce
    >>> both = together([(all_reduce(2, 100), (0, 1)), (all_reduce(2, 100), (3, 2))], ranks=4)
    >>> both.schedule
    <Schedule all_reduce together: 4 ranks, 100 bytes, 8 operations, 4 requirements, 4 lanes>
    """
    if not parts:
        raise ScheduleError("nothing to run together; give one schedule and its ranks, or more")
    for schedule, members in parts:
        _check_members(schedule, members, ranks)
    counts = np.array([len(schedule) for schedule, _ in parts])
    base = np.cumsum(counts) - counts
    part = np.repeat(np.arange(len(parts)), counts)
    turn = np.arange(len(part)) - np.repeat(base, counts)
    order = np.lexsort((part, turn))
    new_id = np.empty(len(part), np.int64)
    new_id[order] = np.arange(len(part))
    first = parts[0][0]
    largest = max(schedule.space_bytes for schedule, _ in parts)
    schedules = [schedule for schedule, _ in parts]
    builder = ScheduleBuilder(
        first.collective,
        "together",
        ranks,
        largest,
        # Links have figures of their own for each protocol; a name that is none of them leaves them the link's own.
        protocol="+".join(dict.fromkeys(schedule.protocol for schedule in schedules)),
        buffered=any(schedule.buffered for schedule in schedules),
        pieces=max(schedule.pieces for schedule in schedules),
        align_bytes=min(schedule.align_bytes for schedule in schedules),
        phases=first.phases if all(schedule.phases == first.phases for schedule in schedules) else (),
    )
    columns = [_moved(builder, number, schedule, members) for number, (schedule, members) in enumerate(parts)]
    joined: dict[str, Any] = {name: np.concatenate([one[name] for one in columns])[order] for name, _, _ in COLUMNS}
    builder.add(len(part), **joined)
    for start, (schedule, _) in zip(base.tolist(), parts, strict=True):
        _require(builder, schedule, new_id[start : start + len(schedule)])
    return Together(builder.build(), part[order])


def _check_members(schedule: Schedule, members: Sequence[int], ranks: int) -> None:
    if len(members) != schedule.ranks or len(set(members)) != len(members):
        raise ScheduleError(f"{schedule!r} needs {schedule.ranks} different ranks, but its group is {tuple(members)}")
    outside = [member for member in members if not 0 <= member < ranks]
    if outside:
        raise ScheduleError(f"rank {outside[0]} of the group {tuple(members)} is not one of 0 to {ranks - 1}")


def _moved(
    builder: ScheduleBuilder, number: int, schedule: Schedule, members: Sequence[int]
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the columns of a part with the machine's ranks, lanes and groups in place of its own."""
    rank = np.array([*members, -1])  # the last one stands for -1, a switch
    lane = np.array([builder.lane(members[own], f"{number}: {role}") for own, role in schedule.lane_names] or [0])
    group = np.array([*(builder.group([members[own] for own in ranks]) for ranks in schedule.groups), -1])
    columns = {name: getattr(schedule, name) for name, _, _ in COLUMNS}
    # Addresses belong to the part's own promise; here only the numbers of bytes count.
    columns |= {"src": rank[schedule.src], "dst": rank[schedule.dst], "via": rank[schedule.via], "lane": lane[schedule.lane]}
    return columns | {"group": group[schedule.group], "offset": np.zeros_like(schedule.offset)}


def _require(builder: ScheduleBuilder, schedule: Schedule, new_id: npt.NDArray[np.int64]) -> None:
    consumers = np.repeat(np.arange(len(schedule)), np.diff(schedule.requires_start))
    kinds = np.stack([schedule.requires_milestone.astype(np.float64), schedule.requires_lag])
    for milestone, lag in np.unique(kinds, axis=1).T.tolist():
        same = (schedule.requires_milestone == milestone) & (schedule.requires_lag == lag)
        builder.require(new_id[consumers[same]], new_id[schedule.requires_op[same]], int(milestone), lag)
