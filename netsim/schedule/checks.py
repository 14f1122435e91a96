"""What no engine could run: structural faults of a schedule, each refused in one sentence.

Looks at columns alone; whether the operations do what the collective promises is `netsim.schedule.proof`'s.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError
from netsim.schedule.columns import (
    BRANCH,
    COMPUTE,
    HEAD,
    KIND_NAMES,
    LEG,
    MILESTONE_NAMES,
    OUTPUT,
    TRANSFER,
    TRUNK,
    Ids,
    Schedule,
)


def check_schedule(schedule: Schedule, ops: Ids) -> None:
    """Raise `ScheduleError` for the first thing in a schedule that no engine could run."""
    count = len(schedule)
    kind = schedule.kind
    in_switch = np.isin(kind, (TRUNK, BRANCH, LEG, OUTPUT))
    end = np.where(schedule.src >= 0, schedule.src, schedule.dst)
    ranks = f"0 to {schedule.ranks - 1}"
    faults: list[tuple[npt.NDArray[np.bool_], str]] = [
        (
            kind >= len(KIND_NAMES),
            f"is of kind {int(kind.max(initial=0))}, but kinds are 0 ({KIND_NAMES[0]}) to {len(KIND_NAMES) - 1}",
        ),
        (schedule.size < 0, "has a negative size"),
        (schedule.wire < schedule.size, "has fewer bytes on the wire than it carries"),
        (~(schedule.duration >= 0) | np.isinf(schedule.duration), "has a duration that is not zero or more seconds"),
        (~(schedule.work >= 0) | np.isinf(schedule.work), "has a work that is not zero or more seconds"),
        (schedule.feed < 0, "has pieces of a negative size"),
        ((schedule.work > 0) & (kind == COMPUTE), "has work beside its duration, but computes"),
        (schedule.posted & (kind == COMPUTE), "is posted, but computes: its lane cannot go on before"),
        (
            schedule.posted & ((schedule.work > 0) | (schedule.feed > 0) | schedule.early),
            "is posted, so its lane cannot work on it, feed it in pieces or begin early",
        ),
        ((schedule.src < -1) | (schedule.src >= schedule.ranks), f"has a source outside {ranks}"),
        ((schedule.dst < -1) | (schedule.dst >= schedule.ranks), f"has a destination outside {ranks}"),
        (np.isin(kind, (TRANSFER, TRUNK, LEG)) & (schedule.src < 0), "has no source rank"),
        (np.isin(kind, (TRANSFER, BRANCH, OUTPUT)) & (schedule.dst < 0), "has no destination rank"),
        (np.isin(kind, (BRANCH, OUTPUT, COMPUTE)) & (schedule.src >= 0), "has a source rank although it has none to send"),
        (np.isin(kind, (TRUNK, LEG, COMPUTE)) & (schedule.dst >= 0), "has a destination rank although it ends elsewhere"),
        ((kind == TRANSFER) & (schedule.src == schedule.dst), "sends to its own rank"),
        (schedule.flow < 0, "has a negative flow"),
        ((schedule.via < -1) | (schedule.via >= schedule.ranks), f"goes via a rank outside {ranks}"),
        (
            (schedule.via >= 0) & ((kind != TRANSFER) | (schedule.via == schedule.src) | (schedule.via == schedule.dst)),
            "goes via a rank, which only a transfer does, and not via its own ends",
        ),
        (
            in_switch & ((schedule.group < 0) | (schedule.group >= len(schedule.groups))),
            "works in a switch but names no group",
        ),
        ((schedule.lane < 0) | (schedule.lane >= len(schedule.lane_names)), "has no lane"),
        *_range_faults(schedule),
    ]
    for wrong, words in faults:
        if wrong.any():
            raise ScheduleError(f"{schedule.describe(int(np.argmax(wrong)))} {words}")
    for place, members in (("group", schedule.groups), ("lane", tuple((rank,) for rank, _ in schedule.lane_names))):
        outside = [rank for group in members for rank in group if not 0 <= rank < schedule.ranks]
        if outside:
            raise ScheduleError(f"a {place} names rank {outside[0]}, but ranks are {ranks}")
    lane_rank = np.array([rank for rank, _ in schedule.lane_names] or [-1])[schedule.lane]
    # A transfer may be the receiver's: it reads from the source's memory.
    elsewhere = (kind != COMPUTE) & (lane_rank != schedule.src) & (lane_rank != schedule.dst)
    if elsewhere.any():
        op = int(np.argmax(elsewhere))
        raise ScheduleError(f"{schedule.describe(op)} is in a lane of rank {lane_rank[op]}; its own ranks are accepted")
    _check_groups(schedule, end, in_switch)
    needed = schedule.requires_op
    dangling = (needed < 0) | (needed >= count)
    if dangling.any():
        at = int(np.argmax(dangling))
        raise ScheduleError(f"{schedule.describe(int(ops[at]))} requires operation {needed[at]}, which does not exist")
    if (needed == ops).any():
        raise ScheduleError(f"{schedule.describe(int(ops[np.argmax(needed == ops)]))} requires itself")
    if len(ops) and not ((ops >= 0) & (ops < count)).all():
        raise ScheduleError("a requirement was added for an operation that does not exist")
    if (schedule.requires_milestone >= len(MILESTONE_NAMES)).any():
        raise ScheduleError(f"a requirement waits for a milestone that is none of {', '.join(MILESTONE_NAMES)}")
    if not ((schedule.requires_lag >= 0) & np.isfinite(schedule.requires_lag)).all():
        raise ScheduleError("a requirement has a lag that is not zero or more seconds")
    heads = schedule.requires_milestone == HEAD
    fed = heads & (schedule.feed[needed] > 0) & (schedule.wire[needed] > schedule.feed[needed])
    if fed.any():
        at = int(np.argmax(fed))
        raise ScheduleError(
            f"{schedule.describe(int(ops[at]))} follows the head of {schedule.describe(int(needed[at]))}, "
            "which its lane feeds in pieces; only a whole message can be followed"
        )
    follows = heads & (schedule.feed[ops] > 0) & (schedule.wire[ops] > schedule.feed[ops])
    if follows.any():
        at = int(np.argmax(follows))
        raise ScheduleError(
            f"{schedule.describe(int(ops[at]))} is fed in pieces by its lane, but follows the head of "
            f"{schedule.describe(int(needed[at]))}; only a whole message can follow"
        )
    unequal = heads & (schedule.wire[needed] != schedule.wire[ops])
    if unequal.any():
        at = int(np.argmax(unequal))
        raise ScheduleError(
            f"{schedule.describe(int(ops[at]))} follows the head of {schedule.describe(int(needed[at]))} "
            "but does not carry as many bytes"
        )


def _range_faults(schedule: Schedule) -> Iterator[tuple[npt.NDArray[np.bool_], str]]:
    """Yield for each thing that can be wrong with ranges which operations have it."""
    ops, offset, size = schedule.all_ranges()

    def among(wrong: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        marked = np.zeros(len(schedule), np.bool_)
        marked[ops[wrong]] = True
        return marked

    yield among((offset < 0) | (offset + size > schedule.space_bytes)), "reaches outside the data"
    if schedule.ranges_start is not None:
        yield among(size < 0), "has a range of negative size"
        order = np.lexsort((offset, ops))
        order = order[size[order] > 0]
        same = ops[order[1:]] == ops[order[:-1]]
        overlap = np.zeros(len(ops), np.bool_)
        overlap[order[1:]] = same & (offset[order[1:]] < offset[order[:-1]] + size[order[:-1]])
        yield among(overlap), "carries the same bytes in two ranges"


def _check_groups(schedule: Schedule, end: npt.NDArray[np.int32], in_switch: npt.NDArray[np.bool_]) -> None:
    """Raise `ScheduleError` for an operation in a switch whose rank is not a member of its group."""
    for number, group in enumerate(schedule.groups):
        outside = in_switch & (schedule.group == number) & ~np.isin(end, group)
        if outside.any():
            op = int(np.argmax(outside))
            raise ScheduleError(f"{schedule.describe(op)} is for a rank outside its group {group}")
