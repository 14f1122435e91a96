"""The longest chain with idle links: by levels, as after a run by SimPy, and in one pass, as after a compiled run."""

import pytest
from hypothesis import given

from netsim.engine.run import simulate
from netsim.fabric import Link
from netsim.metrics.critical_path import critical_path_s
from netsim.schedule.dag import ScheduleBuilder
from netsim.testing import line, runs, star

pytest.importorskip("numba", reason="the compiled engine needs numba, the extra 'fast'")

LINK = Link(1e-6, 1e9)
STAR = star(3)


def lengths(topology, schedule):
    """Return the length as found after a run by each engine."""
    return [critical_path_s(schedule, simulate(topology, schedule, engine=engine)) for engine in ("simpy", "compiled")]


@given(run=runs())
def test_both_ways_find_the_same_length(run):
    by_levels, in_one_pass = lengths(*run)
    assert by_levels == in_one_pass


def test_operations_may_require_later_ones():
    plan = ScheduleBuilder("broadcast", "by hand", 3, 1000)
    plan.send(1, 2, size=1000)
    plan.send(0, 1, size=1000)
    plan.require(0, 1)
    # two messages, each 1 us of latency and 1 us of bytes
    assert lengths(STAR, plan.build()) == [pytest.approx(4e-6)] * 2


def test_nothing_takes_no_time():
    assert lengths(line(LINK), ScheduleBuilder("broadcast", "by hand", 2, 0).build()) == [0.0, 0.0]
