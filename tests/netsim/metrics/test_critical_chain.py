"""The chain that set a run's time: exact splits on cases that can be done by hand, and its laws on random runs."""

from itertools import pairwise

import pytest
from hypothesis import given

from netsim.errors import NetsimError
from netsim.fabric import Link
from netsim.metrics.critical_chain import critical_chain
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import HEAD, LEFT, ScheduleBuilder
from netsim.testing import line, runs, star


def chain_of(graph, schedule, **options):
    record = simulate(graph, schedule, record="links", **options)
    return critical_chain(schedule, record, lambda edge: graph.edges[edge]["link"]), record


def split_us(chain):
    return {part: round(seconds * 1e6, 6) for part, seconds in chain.split_s().items() if seconds}


def test_a_ring_is_steps_of_latency_and_serialisation():
    graph = star(4)
    chain, _ = chain_of(graph, build_schedule("all_reduce", "ring", 4, 4000))
    # 6 steps of 1 us and of 1,000 bytes at 1 GB/s
    assert split_us(chain) == {"latency": 6.0, "serialisation": 6.0}
    assert len(chain.operations) == 6


def test_an_incast_is_waiting_at_the_port_of_the_root():
    graph = star(4)
    chain, record = chain_of(graph, build_schedule("gather", "flat", 4, 4000))
    # Three messages of 1 us each are at the switch together; the last is served third.
    assert split_us(chain) == {"latency": 1.0, "serialisation": 1.0, "waiting": 2.0}
    (link,) = chain.by_link_s("waiting")
    assert record.edges[link] == ("switch", "gpu0")


def test_a_lane_behind_itself_is_serialisation_and_no_waiting():
    graph = star(4)
    posted, _ = chain_of(graph, build_schedule("alltoall", "direct", 4, 4000))
    # Three blocks of 1,000 bytes leave one after the other, the last takes 1 us to arrive.
    assert split_us(posted) == {"latency": 1.0, "serialisation": 3.0}


def test_another_lane_of_the_same_rank_is_a_queue():
    graph = star(2)
    plan = ScheduleBuilder("broadcast", "by hand", 2, 2000)
    plan.send(0, 1, size=2000, lane=plan.lane(0, "a"))
    plan.send(0, 1, size=1000, lane=plan.lane(0, "b"))
    chain, _ = chain_of(graph, plan.build())
    assert split_us(chain) == {"latency": 1.0, "serialisation": 1.0, "waiting": 2.0}


def test_a_slow_link_in_the_middle_gets_the_serialisation():
    graph = line(Link(1e-6, 4e9), Link(2e-6, 1e9), Link(3e-6, 4e9))
    plan = ScheduleBuilder("broadcast", "by hand", 2, 4000)
    plan.send(0, 1, size=4000)
    chain, record = chain_of(graph, plan.build())
    assert split_us(chain) == {"latency": 6.0, "serialisation": 4.0}
    assert [record.edges[link] for link in chain.by_link_s("serialisation")] == [("switch0", "switch1")]


def test_what_an_operation_costs_its_lane_is_compute():
    graph = star(2)
    plan = ScheduleBuilder("broadcast", "by hand", 2, 1000)
    work = plan.compute(0, 5e-6)
    plan.send(0, 1, size=1000, duration=2e-6, after=[work])
    chain, _ = chain_of(graph, plan.build())
    assert split_us(chain) == {"latency": 1.0, "serialisation": 1.0, "compute": 7.0}


def test_a_lag_is_latency():
    graph = star(2)
    plan = ScheduleBuilder("broadcast", "by hand", 2, 1000)
    first = plan.send(0, 1, size=1000)
    plan.send(0, 1, size=1000, after=[(first, LEFT, 3e-6)])
    chain, _ = chain_of(graph, plan.build())
    # 1 us out, 3 us for the credit to come back, 1 us out again and 1 us on its way
    assert split_us(chain) == {"latency": 4.0, "serialisation": 2.0}


def test_the_chain_through_the_switch_follows_heads():
    graph = star(4)
    chain, record = chain_of(graph, build_schedule("reduce", "nvls", 4, 4000))
    # A leg's head takes 1 us to the switch; the sum streams down behind it: 4 us once.
    assert record.time_s == pytest.approx(5e-6)
    assert split_us(chain) == {"latency": 1.0, "serialisation": 4.0}


def test_heads_may_be_followed_a_thousand_deep():
    plan = ScheduleBuilder("broadcast", "by hand", 2, 1000)
    before = plan.send(0, 1, size=1000)
    for place in range(1500):
        before = plan.send(0, 1, size=1000, after=[(before, HEAD)], lane=plan.lane(0, f"lane {place}"))
    chain, record = chain_of(star(2), plan.build())
    # Each asks the link 1 us after the one before it began, just as the link is free; the last begins at 1,500 us.
    assert record.time_s == pytest.approx(1502e-6)
    assert chain.time_s == record.time_s


def test_a_quantum_changes_no_split_of_an_uncontended_run():
    graph = star(4)
    schedule = build_schedule("all_reduce", "two_shot", 4, 40_000)
    whole, _ = chain_of(graph, schedule)
    pieces, _ = chain_of(graph, schedule, quantum_bytes=1000)
    assert split_us(pieces) == split_us(whole)


def test_a_run_of_no_time_has_no_chain():
    graph = star(1)
    chain, _ = chain_of(graph, build_schedule("all_reduce", "ring", 1, 1000))
    assert chain.segments == ()
    assert chain.time_s == 0.0


def test_a_record_without_services_is_refused():
    graph = star(2)
    schedule = build_schedule("all_reduce", "ring", 2, 1000)
    with pytest.raises(NetsimError, match="record='links'"):
        critical_chain(schedule, simulate(graph, schedule), lambda edge: graph.edges[edge]["link"])


@given(run=runs())
def test_segments_lie_end_to_end_from_zero_to_the_finish(run):
    graph, schedule = run
    for quantum in (0, 1000):
        chain, record = chain_of(Router(graph).graph, schedule, quantum_bytes=quantum)
        if not record.time_s:
            continue
        assert chain.segments[0].begin_s == 0.0
        assert chain.time_s == record.time_s
        assert all(one.end_s == other.begin_s for one, other in pairwise(chain.segments))
        assert sum(chain.split_s().values()) == pytest.approx(record.time_s, rel=1e-12)
        assert chain.split_s()["launch"] == pytest.approx(0.0, abs=1e-15)


def test_a_kernel_that_follows_a_message_leads_on_to_its_last_byte():
    plan = ScheduleBuilder("broadcast", "by hand", 2, 100_000)
    first = plan.send(0, 1, size=10_000)
    plan.compute(1, 2e-6, after=[(first, HEAD)], wire=10_000)
    chain, _ = chain_of(star(2), plan.build())
    # The kernel would be over at 3 us; the last byte comes at 11 us, 1 us of it on the way.
    assert split_us(chain) == {"latency": 1.0, "serialisation": 10.0}
    assert chain.operations == (0,)
