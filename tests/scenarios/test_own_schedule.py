"""The example of a schedule of one's own: proof, time and distance from the bound."""

import pytest

from netsim.schedule.catalogue import build_schedule
from netsim.schedule.proof import prove
from scenarios.machine import Machine
from scenarios.run import Spec, run_spec


@pytest.fixture
def example(repository, monkeypatch):
    monkeypatch.chdir(repository)
    return "scenarios/own_schedule.py"


def test_it_is_short_and_proved_for_any_number_of_ranks_and_bytes(repository, example):
    code = (repository / example).read_text().partition("from netsim")[2]
    assert len(code.splitlines()) <= 21
    for ranks in range(1, 18):
        for size in (0, 1, 1009):
            prove(build_schedule("all_reduce", example, ranks, size))


def test_it_takes_two_latencies_and_seven_and_a_half_times_the_data(example):
    row = run_spec(Spec(Machine("ideal-switch:8@450GB/s,1us"), "all_reduce", 4_500_000, example))
    # Half an N/B until the second relay hears something, 7 halves in, 7 halves out: 2 us + 7.5 x 10 us.
    assert row.time_us == pytest.approx(77)
    assert row.algorithm == "own_schedule.py"
    assert row.closed_form_us is None
    # Where only ranks add, 1.75 N/B is the least: 17.5 us.
    assert row.collective_bound_us == pytest.approx(17.5)
    assert row.lower_bound_us < row.time_us


def test_it_is_faster_than_the_ring_below_940_kB(example):
    machine = Machine("ideal-switch:8@450GB/s,1us")
    for size, faster in ((930_000, True), (950_000, False)):
        own, ring = (run_spec(Spec(machine, "all_reduce", size, name)).time_us for name in (example, "ring"))
        assert (own < ring) is faster
