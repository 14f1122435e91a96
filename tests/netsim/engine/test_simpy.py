"""The SimPy engine against times worked out by hand, an independent engine, and laws that must hold."""

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.engine.links import array_on_grid, on_grid
from netsim.engine.run import simulate
from netsim.errors import FabricError, NetsimError, ScheduleError, StuckError, TooManyMessagesError
from netsim.fabric import HOST_MEMORY, Link
from netsim.metrics.bounds import check_run
from netsim.schedule.dag import BRANCH, END, HEAD, LEFT, LEG, OUTPUT, TRUNK, ScheduleBuilder
from netsim.testing import line, runs, star
from tests.netsim.engine import oracle

US = 1e-6


def plan(ranks=4, size=1_000_000):
    return ScheduleBuilder("broadcast", "by hand", ranks, size)


def close(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=1e-16)


def test_an_idle_path_costs_its_latencies_and_one_serialisation():
    schedule = plan(2)
    schedule.send(0, 1, size=10_000)
    # Cut-through over 1 GB/s then 2 GB/s: 10 us on the slow link, 1 us + 3 us of latency, nothing for the fast one.
    record = simulate(line(Link(1 * US, 1e9), Link(3 * US, 2e9)), schedule.build())
    assert record.time_s == close(14 * US)


def test_a_slow_second_link_sets_the_time():
    schedule = plan(2)
    schedule.send(0, 1, size=10_000)
    # The head asks the slow link at 1 us; 20 us there; 3 us more.
    record = simulate(line(Link(1 * US, 1e9), Link(3 * US, 5e8)), schedule.build())
    assert record.time_s == close(24 * US)


def test_a_gap_is_paid_once_a_message_and_occupies_the_link():
    schedule = plan(2)
    schedule.send(0, 1, size=1000)
    schedule.send(0, 1, size=1000)
    # Each message: 2 us gap + 1 us of bytes; latency 5 us only once.
    record = simulate(line(Link(5 * US, 1e9, gap_s=2 * US)), schedule.build())
    assert record.end_s == close(np.array([8, 11]) * US)


def test_a_floor_holds_the_link_for_small_messages_only():
    schedule = plan(2)
    schedule.send(0, 1, size=1000)
    schedule.send(0, 1, size=10_000)
    # 1 us of bytes but 4 us of floor; then 10 us of bytes.
    record = simulate(line(Link(0.0, 1e9, floor_s=4 * US)), schedule.build())
    assert record.end_s == close(np.array([4, 14]) * US)


def test_two_senders_share_a_receivers_link_in_order_of_arrival():
    schedule = plan()
    schedule.send(0, 2, size=10_000)
    schedule.send(1, 2, size=10_000)
    # Both heads are at the switch at 1 us; the lower id goes first: 11 and 21 us.
    record = simulate(star(4), schedule.build())
    assert record.end_s == close(np.array([11, 21]) * US)


def test_a_lane_starts_its_operations_in_order_and_a_blocked_one_blocks_those_behind():
    schedule = plan()
    first = schedule.send(0, 1, size=10_000)
    schedule.send(2, 3, size=1000, after=[first])
    schedule.send(2, 3, size=1000)
    # Rank 2 waits until 11 us although its second message needs nothing.
    record = simulate(star(4), schedule.build())
    assert record.start_s == close(np.array([0, 11, 12]) * US)


def test_posted_operations_leave_side_by_side_over_links_of_their_own():
    graph = nx.DiGraph()
    graph.add_nodes_from(("a", "b", "c"), kind="gpu")
    graph.add_edges_from((u, v, {"link": Link(US, 1e9)}) for u in "abc" for v in "abc" if u != v)
    times = {}
    for posted in (False, True):
        schedule = plan(3)
        schedule.send(0, 1, size=10_000, posted=posted)
        schedule.send(0, 2, size=10_000, posted=posted)
        times[posted] = simulate(graph, schedule.build()).time_s
    # In order: 10 us, then 10 us more; posted: both at once.
    assert times == {False: close(21 * US), True: close(11 * US)}


def test_left_frees_the_buffer_before_delivery_and_a_lag_delays_the_dependent():
    schedule = plan()
    first = schedule.send(0, 1, size=10_000)
    schedule.send(2, 3, size=1000, after=[(first, LEFT, 3 * US)])
    # The last byte leaves at 10 us, the lag ends at 13, the second message takes 1 + 1.
    record = simulate(star(4), schedule.build())
    assert record.end_s == close(np.array([11, 15]) * US)


def test_a_compute_operation_holds_its_lane_and_uses_no_link():
    schedule = plan()
    work = schedule.compute(0, 7 * US, lane=schedule.lane(0))
    schedule.send(0, 1, size=1000)
    schedule.send(1, 2, size=1000, after=[work])
    # Lane of rank 0 is busy until 7 us; rank 1 hears of it at 7 us, too.
    record = simulate(star(4), schedule.build())
    assert record.end_s == close(np.array([7, 9, 9]) * US)
    assert record.messages == 2


def test_multicast_pays_the_trunk_once_and_every_branch_at_its_own_port():
    schedule = plan()
    group = schedule.group(range(4))
    trunk = schedule.send(0, -1, size=10_000, kind=TRUNK, group=group)
    for rank in range(1, 4):
        schedule.send(-1, rank, size=10_000, kind=BRANCH, group=group, after=[(trunk, HEAD)], lane=schedule.lane(rank, "in"))
    # 10 us up, 1 us of latency; the branches run while the trunk still arrives.
    record = simulate(star(4), schedule.build())
    assert record.time_s == close(11 * US)
    assert record.link_bytes.sum() == 40_000


def test_a_branch_never_ends_before_its_trunk():
    graph = star(2)
    graph.edges["switch", "gpu1"]["link"] = Link(0.0, 1e12)
    schedule = plan(2)
    group = schedule.group(range(2))
    trunk = schedule.send(0, -1, size=10_000, kind=TRUNK, group=group)
    schedule.send(-1, 1, size=10_000, kind=BRANCH, group=group, after=[(trunk, HEAD)], lane=schedule.lane(1, "in"))
    record = simulate(graph, schedule.build())
    assert record.end_s == close(np.array([11, 11]) * US)


def test_in_network_reduction_starts_with_the_last_head_and_ends_after_every_leg():
    schedule = plan()
    group = schedule.group(range(4))
    late = schedule.compute(3, 5 * US)
    legs = [
        schedule.send(rank, -1, size=10_000, kind=LEG, group=group, after=[late] if rank == 3 else []) for rank in range(4)
    ]
    schedule.send(
        -1, 0, size=10_000, kind=OUTPUT, group=group, after=[(leg, HEAD) for leg in legs], lane=schedule.lane(0, "in")
    )
    # The late leg starts at 5 us, its head is at the switch at 6 us: 10 us of bytes down.
    record = simulate(star(4), schedule.build())
    assert record.time_s == close(16 * US)


def test_in_network_operations_need_a_switch_that_can():
    graph = star(4)
    graph.nodes["switch"]["multicast"] = False
    schedule = plan()
    schedule.send(0, -1, size=1, kind=TRUNK, group=schedule.group(range(4)))
    with pytest.raises(FabricError, match="multicast=True"):
        simulate(graph, schedule.build())


def test_store_and_forward_pays_twice_and_pieces_hide_it():
    times = {}
    for piece in (100_000, 10_000):
        memory = {"kind": HOST_MEMORY, "transit": True, "store_and_forward": True, "piece_bytes": piece}
        schedule = plan(2)
        schedule.send(0, 1, size=100_000)
        times[piece] = simulate(line(Link(0.0, 1e9), Link(0.0, 1e9), kinds=[memory]), schedule.build()).time_s
    # 100 us in, then 100 us out; in ten pieces only the first one is waited for.
    assert times == {100_000: close(200 * US), 10_000: close(110 * US)}


def test_a_small_message_behind_a_large_one_waits_whole_or_a_quantum():
    times = {}
    for quantum in (0, 4096):
        schedule = plan(4, 10**9)
        schedule.send(0, 2, size=10**9)
        schedule.send(1, 2, size=1000, duration=100 * US)
        graph = star(4, latency_s=0.0, bandwidth_bytes_per_s=450e9)
        times[quantum] = simulate(graph, schedule.build(), quantum_bytes=quantum).end_s[1] - 100 * US
    # 1e9 / 450e9 = 2.222 ms, less the 0.1 ms that it came later; with pieces at most one of 4 KiB (9 ns) is ahead.
    assert times[0] == pytest.approx(2.122e-3, rel=1e-3)
    assert times[4096] < 0.05 * US


def test_a_quantum_changes_no_uncontended_time():
    for quantum in (1, 7, 1000, 4096, 10**9):
        schedule = plan(2, 10**6)
        schedule.send(0, 1, size=10_007)
        graph = line(Link(1.1 * US, 1.3e9, gap_s=0.7 * US), Link(0.3 * US, 0.9e9, floor_s=20 * US), Link(0.2 * US, 3e9))
        whole = simulate(graph, schedule.build())
        pieces = simulate(graph, schedule.build(), quantum_bytes=quantum)
        assert pieces.time_s == pytest.approx(whole.time_s, rel=1e-12)


def test_no_operations_take_no_time():
    record = simulate(star(1), ScheduleBuilder("all_reduce", "ring", 1, 100).build())
    assert (record.time_s, record.messages) == (0.0, 0)


def test_a_cycle_is_an_error_that_names_the_stuck_operations():
    schedule = plan()
    schedule.send(0, 1, size=1, after=[1])
    schedule.send(1, 2, size=1, after=[0])
    with pytest.raises(StuckError, match=r"2 operations never ran; operation 0 .* waits for the end of operation 1"):
        simulate(star(4), schedule.build())


def test_lanes_that_wait_for_each_other_are_stuck_too():
    schedule = plan()
    schedule.send(0, 1, size=1, after=[3])
    schedule.send(0, 1, size=1)
    schedule.send(1, 0, size=1, after=[1])
    schedule.send(1, 0, size=1)
    with pytest.raises(StuckError, match="operation 0 .* waits for the end of operation 3"):
        simulate(star(4), schedule.build())


def test_too_many_messages_are_refused_by_name_and_number():
    schedule = plan()
    schedule.send(0, 1, size=4096)
    with pytest.raises(TooManyMessagesError, match=r"4096 messages.*limit of 1000.*--max-messages"):
        simulate(star(4), schedule.build(), quantum_bytes=1, max_messages=1000)


@pytest.mark.parametrize("option", [{"engine": "magic"}, {"record": "half"}, {"quantum_bytes": -1}])
def test_unknown_options_are_refused(option):
    with pytest.raises(NetsimError):
        simulate(star(2), plan(2).build(), **option)


def test_more_ranks_than_gpus_are_refused():
    with pytest.raises(FabricError, match=r"4 ranks .* 2 GPUs"):
        simulate(star(2), plan(4).build())


def test_resources_are_refused_until_they_are_modelled():
    schedule = plan()
    schedule.compute(0, US, resource=0, units=1)
    with pytest.raises(ScheduleError, match="resource 0"):
        simulate(star(4), schedule.build())


def test_a_summary_keeps_counters_only():
    schedule = plan()
    schedule.send(0, 1, size=1000)
    record = simulate(star(4), schedule.build(), record="summary")
    assert (len(record.start_s), len(record.end_s), record.link_bytes.sum()) == (0, 0, 2000)


@given(runs())
@settings(max_examples=150, deadline=None)
def test_every_time_equals_the_independent_engine(run):
    graph, schedule = run
    record = simulate(graph, schedule)
    start, end = oracle.run(graph, schedule)
    assert record.start_s.tolist() == start
    assert record.end_s.tolist() == end


@given(runs())
@settings(max_examples=60, deadline=None)
def test_pieces_of_at_least_the_message_change_nothing(run):
    graph, schedule = run
    whole, pieces = simulate(graph, schedule), simulate(graph, schedule, quantum_bytes=1 << 20)
    assert whole.start_s.tolist() == pieces.start_s.tolist()
    assert whole.end_s.tolist() == pieces.end_s.tolist()


@given(runs(heads=False), st.sampled_from([300, 1000]))
@settings(max_examples=150, deadline=None)
def test_every_time_of_pieces_equals_the_independent_engine(run, quantum):
    graph, schedule = run
    record = simulate(graph, schedule, quantum_bytes=quantum)
    start, end = oracle.run(graph, schedule, quantum)
    assert record.start_s.tolist() == start
    assert record.end_s.tolist() == end


@given(runs(), st.sampled_from([300, 1000]))
@settings(max_examples=60, deadline=None)
def test_pieces_respect_requirements_and_the_lower_bound(run, quantum):
    graph, schedule = run
    record = simulate(graph, schedule, quantum_bytes=quantum)
    check_run(schedule, record)
    for op in range(len(schedule)):
        for need, milestone, lag in schedule.requirements(op):
            since = record.end_s[need] if milestone == END else record.start_s[need]
            # What begins early does so before the requirement is met, but does not end before.
            mine = record.end_s[op] if schedule.early[op] else record.start_s[op]
            assert mine >= since + lag * (1 - 1e-9)


@given(runs())
@settings(max_examples=60, deadline=None)
def test_no_run_is_below_its_lower_bound(run):
    graph, schedule = run
    check_run(schedule, simulate(graph, schedule))


@given(runs())
@settings(max_examples=40, deadline=None)
def test_the_same_input_gives_the_same_bytes_and_names_change_nothing(run):
    graph, schedule = run
    first = simulate(graph, schedule)
    names = {node: f"{index * 7 % 11}-{node}" for index, node in enumerate(graph)}
    renamed = nx.relabel_nodes(graph, names)
    assert simulate(graph, schedule).end_s.tobytes() == first.end_s.tobytes()
    assert simulate(renamed, schedule).end_s.tobytes() == first.end_s.tobytes()


@given(runs())
@settings(max_examples=40, deadline=None)
def test_twice_all_times_at_half_the_bandwidth_is_twice_every_time(run):
    graph, schedule = run
    times = {}
    for factor in (1, 2):
        scaled = graph.copy()
        for edge in scaled.edges:
            link = graph.edges[edge]["link"]
            # On the grid of time, with powers of two for bandwidths, doubling is exact: not a bit may differ.
            latency, gap, floor = (factor * on_grid(value) for value in (link.latency_s, link.gap_s, link.floor_s))
            rate = 2.0 ** round(math.log2(link.bandwidth_bytes_per_s)) / factor
            scaled.edges[edge]["link"] = Link(latency, rate, gap_s=gap, floor_s=floor)
        columns = ("duration", "work", "requires_lag")
        longer = {name: factor * array_on_grid(getattr(schedule, name)) for name in columns}
        # Pieces are rounded on the grid one by one, so that twice a part is not the part of twice the whole.
        longer["feed"] = np.zeros_like(schedule.feed)
        times[factor] = simulate(scaled, replace(schedule, **longer)).end_s
    assert times[2].tolist() == (2 * times[1]).tolist()


def test_a_follower_has_not_left_before_what_it_follows_has_come():
    graph = star(3, latency_s=0.0)
    graph.edges["gpu0", "switch"]["link"] = Link(0.0, 1e8)
    schedule = plan(3)
    slow = schedule.send(0, 1, size=1000)
    quick = schedule.send(1, 2, size=1000, after=[(slow, HEAD)])
    schedule.send(2, 0, size=1000, after=[(quick, LEFT)])
    # 1000 bytes at 0.1 GB/s come until 10 us; only then can the follower's last byte leave; 1 us back.
    for quantum in (0, 10_000):
        record = simulate(graph, schedule.build(), quantum_bytes=quantum)
        assert record.end_s == close(np.array([10, 10, 11]) * US)


def test_a_floor_of_interleaved_pieces_raises_no_false_alarm():
    schedule = plan()
    for rank in range(3):
        schedule.send(rank, 3, size=3000)
    record = simulate(star(4, floor_s=40 * US), schedule.build(), quantum_bytes=1000)
    check_run(schedule.build(), record)


def test_unrelated_links_change_nothing():
    schedule = plan()
    schedule.send(0, 1, size=10_000)
    graph = star(4)
    before = simulate(graph, schedule.build()).time_s
    graph.add_node("elsewhere", kind="nic")
    graph.add_edge("gpu3", "elsewhere", link=Link(0.0, 1.0))
    graph.add_edge("elsewhere", "gpu3", link=Link(0.0, 1.0))
    assert simulate(graph, schedule.build()).time_s == before


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_kernel_that_follows_pieces_waits_for_the_last_and_is_followed_when_it_is_over(engine):
    if engine == "compiled":
        pytest.importorskip("numba", reason="the compiled engine needs numba")
    schedule = plan(3)
    first = schedule.send(0, 1, size=10_000)
    kernel = schedule.compute(1, 2 * US, after=[(first, HEAD)], wire=10_000)
    schedule.send(1, 2, size=10_000, after=[(kernel, HEAD)])
    record = simulate(star(3), schedule.build(), quantum_bytes=1000, engine=engine)
    # Ten pieces of 1 us each are there at 11 us, the kernel is over at 13, ten more pieces are there at 24.
    assert record.end_s == close(np.array([11, 13, 24]) * US)


@pytest.mark.parametrize("quantum", [0, 1 << 20])
def test_a_kernel_that_follows_a_message_is_not_over_before_its_last_byte_came(quantum):
    schedule = plan(3)
    first = schedule.send(0, 1, size=10_000)
    kernel = schedule.compute(1, 2 * US, after=[(first, HEAD)], wire=10_000)
    schedule.send(1, 2, size=1000, after=[kernel])
    record = simulate(star(3), schedule.build(), quantum_bytes=quantum)
    # The head is there at 1 us, the last byte at 11 us; then 1 us of bytes and 1 us of latency.
    assert record.start_s == close(np.array([0, 1, 11]) * US)
    assert record.end_s == close(np.array([11, 11, 13]) * US)
    check_run(schedule.build(), record)
