"""Bandwidths as nccl-tests defines them, and link loads."""

import pytest

from netsim.engine.run import simulate
from netsim.errors import ScheduleError
from netsim.metrics.links import bottleneck, link_loads
from netsim.metrics.timing import algorithm_bandwidth, bus_bandwidth, bus_bandwidth_note, bus_factor
from netsim.schedule.catalogue import build_schedule
from netsim.testing import star

SHARES = dict.fromkeys(("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"), 0.875)
WHOLES = dict.fromkeys(("broadcast", "reduce", "sendrecv"), 1.0)


@pytest.mark.parametrize(("collective", "factor"), ({"all_reduce": 1.75} | SHARES | WHOLES).items())
def test_factors_for_eight_ranks_are_those_of_nccl_tests(collective, factor):
    assert bus_factor(collective, 8) == factor


def test_an_unknown_collective_is_refused():
    with pytest.raises(ScheduleError, match="all_reduce"):
        bus_factor("allreduce", 8)


@pytest.mark.parametrize("ranks", [0, -1, 2.0, float("nan"), True, None, "8"])
def test_a_number_of_ranks_that_is_none_is_refused(ranks):
    with pytest.raises(ScheduleError, match="the number of ranks must be a whole number, 1 or more"):
        bus_bandwidth("all_reduce", ranks, 1000, 1e-6)


@pytest.mark.parametrize("size", [-1, 1.5, float("nan"), True, None])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ScheduleError, match="give a whole number of bytes"):
        algorithm_bandwidth(size, 1e-6)


@pytest.mark.parametrize("time_s", [-1e-6, float("nan"), float("inf"), None, "1 us", True])
def test_a_time_that_is_none_is_refused(time_s):
    with pytest.raises(ScheduleError, match="it must be zero or more seconds"):
        algorithm_bandwidth(1000, time_s)


def test_the_size_may_be_text():
    assert bus_bandwidth("all_gather", 8, "1 kB", 1e-6) == 0.875e9


def test_the_ideal_ring_has_257_of_algorithm_and_450_of_bus_bandwidth():
    # 2 x 7/8 N / B without latency: algbw = 450 / 1.75.
    time_s = 1.75 * 1e9 / 450e9
    assert algorithm_bandwidth(10**9, time_s) == pytest.approx(257.142857e9)
    assert bus_bandwidth("all_reduce", 8, 10**9, time_s) == pytest.approx(450e9)


def test_one_rank_has_no_bandwidth_and_no_division_error():
    assert bus_bandwidth("all_reduce", 1, 1000, 0.0) == 0.0
    assert "one rank" in bus_bandwidth_note("ring", 1)


def test_size_zero_has_no_bandwidth():
    assert algorithm_bandwidth(0, 1e-6) == 0.0


@pytest.mark.parametrize("algorithm", ["nvls", "tree", "double_binary_tree"])
def test_busbw_is_noted_where_it_is_no_wire_rate(algorithm):
    assert "no wire rate" in bus_bandwidth_note(algorithm, 8)
    assert bus_bandwidth_note("ring", 8) == ""


def test_a_slow_link_is_the_bottleneck_and_fully_used():
    from netsim.fabric import Link

    graph = star(16, latency_s=0.0, bandwidth_bytes_per_s=50e9)
    graph.edges["gpu5", "switch"]["link"] = Link(0.0, 12.5e9)
    record = simulate(graph, build_schedule("all_reduce", "ring", 16, 1 << 30))
    worst = bottleneck(record)
    assert worst.name == "gpu5->switch"
    assert worst.utilisation == pytest.approx(1.0, abs=1e-3)
    others = [load.utilisation for load in link_loads(record)[1:]]
    assert others == [pytest.approx(0.25, abs=1e-3)] * 31


def test_bytes_are_conserved_on_every_link():
    record = simulate(star(4), build_schedule("alltoall", "pairwise", 4, 4000))
    assert [load.bytes for load in link_loads(record)] == [3000] * 8
    assert bottleneck(record).messages == 3


def test_nothing_sent_has_no_bottleneck():
    record = simulate(star(1), build_schedule("all_reduce", "ring", 1, 4000))
    assert bottleneck(record) is None
    assert link_loads(record) == []
    assert len(link_loads(record, idle=True)) == 2
