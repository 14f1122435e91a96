"""The builder takes whole numbers where it wants them, and refuses what it would have to cut."""

import numpy as np
import pytest

import netsim
from netsim.errors import ScheduleError
from netsim.schedule.dag import COLUMNS, ScheduleBuilder


def plan(**options):
    return ScheduleBuilder("broadcast", "mine", **{"ranks": 2, "size_bytes": 1000, **options})


@pytest.mark.parametrize(
    "column", [{"size": 1.5}, {"size": float("nan")}, {"size": "1 kB"}, {"size": 2**70}, {"offset": 0.5}, {"chunk": 2**40}]
)
def test_an_operation_is_never_cut_to_fit(column):
    mine = plan()
    mine.send(0, 1, **{"size": 10, **column})
    with pytest.raises(ScheduleError, match=f"the column '{next(iter(column))}' takes whole numbers that fit"):
        mine.build()


def test_many_operations_are_never_cut_to_fit():
    mine = plan()
    lane = mine.lane(0)
    with pytest.raises(ScheduleError, match="the column 'size' takes whole numbers that fit int64"):
        mine.add(2, src=0, dst=1, size=np.array([1.5, 2.5]), lane=lane)
    with pytest.raises(ScheduleError, match="the column 'duration' takes numbers"):
        mine.add(2, src=0, dst=1, size=1, lane=lane, duration="1 us")
    assert len(mine.add(2, src=0, dst=1, size=np.array([1, 2], np.int32), lane=lane, duration=1)) == 2


@pytest.mark.parametrize("need", [0.5, None, "0", (0.5, 0)])
def test_a_requirement_is_the_number_of_an_operation(need):
    mine = plan()
    mine.send(0, 1, size=10)
    with pytest.raises(ScheduleError, match="operation 1 requires .*; give numbers of operations, as send returns them"):
        mine.send(0, 1, size=10, after=[need])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"ranks": 0}, "broadcast over 0 ranks"),
        ({"ranks": 2.0}, "broadcast over 2.0 ranks"),
        ({"size_bytes": "1 kB"}, "broadcast of '1 kB' bytes: the size must be a whole number, zero or more"),
        ({"root": None}, "broadcast with root None"),
    ],
)
def test_a_collective_of_numbers_that_are_none_is_refused(option, words):
    with pytest.raises(ScheduleError, match=words):
        plan(**option)


@pytest.mark.parametrize("ask", [netsim.prove, lambda schedule: netsim.replay(schedule, [])])
def test_what_is_no_schedule_is_refused(ask):
    with pytest.raises(ScheduleError, match="schedule is None; pass a Schedule"):
        ask(None)
    with pytest.raises(ScheduleError, match="schedule is a ScheduleBuilder; pass what its build"):
        ask(plan())


def test_what_is_built_cannot_be_written():
    plan = ScheduleBuilder("broadcast", "by hand", ranks=2, size_bytes=100)
    plan.send(0, 1, size=100)
    schedule = plan.build()
    for name, _, _ in COLUMNS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(schedule, name)[:] = 0
