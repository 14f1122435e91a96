"""Closed forms against the engine, bounds under every run, and a bound that catches a wrong engine."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import topologies
from netsim.engine.run import simulate
from netsim.errors import InternalError, ScheduleError
from netsim.fabric import Link
from netsim.metrics.bounds import check_run, collective_bound, run_lower_bound
from netsim.metrics.closed_forms import closed_form, uniform_network, unpipelined_tree
from netsim.routing import Router
from netsim.schedule.catalogue import algorithms_for, build_schedule
from netsim.schedule.collective import COLLECTIVES
from netsim.schedule.dag import COLUMNS, END, HEAD, LEFT, Schedule, ScheduleBuilder
from netsim.schedule.proof import prove
from netsim.testing import line, star

ALPHA, RATE = 1e-6, 450e9
MIB64 = 1 << 26
EXACT = [
    (collective, algorithm)
    for collective in COLLECTIVES
    for algorithm in algorithms_for(collective)
    if closed_form(collective, algorithm, 8, MIB64, ALPHA, RATE) is not None
]


def network(ranks):
    return Router(star(ranks, latency_s=ALPHA, bandwidth_bytes_per_s=RATE))


def unchunked(collective, algorithm, ranks, size):
    """NVLS all-reduce cuts its blocks by default; its closed form is for whole ones."""
    return build_schedule(collective, algorithm, ranks, size, chunks=1 if algorithm == "nvls" else None)


def agrees(time_s, form_s):
    return abs(time_s - form_s) <= max(1e-15, 1e-9 * form_s)


def test_every_algorithm_of_the_design_with_an_exact_form_is_checked():
    names = {algorithm for _, algorithm in EXACT}
    assert names == {
        *("ring", "one_shot", "two_shot", "flat", "pairwise", "direct", "halving_doubling", "recursive_doubling", "nvls"),
        *("pat", "bruck"),
    }


@pytest.mark.parametrize(("collective", "algorithm"), EXACT)
@pytest.mark.parametrize("size", [0, 1, 1009, MIB64])
def test_simulated_time_is_the_closed_form_on_an_ideal_switch(collective, algorithm, size):
    checked = 0
    for ranks in (1, 2, 3, 4, 5, 7, 8, 11, 16):
        form = closed_form(collective, algorithm, ranks, size, ALPHA, RATE)
        if form is None:
            continue
        record = simulate(network(ranks), unchunked(collective, algorithm, ranks, size))
        assert agrees(record.time_s, form), (ranks, record.time_s, form)
        checked += 1
    assert checked >= (3 if size != 1 else 1)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("block", [1000, 128 * 1024])
def test_pat_with_a_message_a_dimension_takes_three_rounds_over_eight_ranks(collective, block):
    # log2(8) alpha + 7 blocks; 128 KiB is the largest block of which four share a message.
    form = closed_form(collective, "pat", 8, 8 * block, ALPHA, RATE)
    assert form == pytest.approx(3 * ALPHA + 7 * block / RATE)
    assert agrees(simulate(network(8), build_schedule(collective, "pat", 8, 8 * block)).time_s, form)


def test_pat_between_its_two_exact_cases_has_no_closed_form():
    assert closed_form("all_gather", "pat", 8, 8 * 128 * 1024 + 8, ALPHA, RATE) is None
    assert closed_form("all_gather", "pat", 8, MIB64, 100 * ALPHA, RATE) is None  # 8 MiB last less than 100 us
    assert closed_form("all_gather", "pat", 6, 600, ALPHA, RATE) is None


@pytest.mark.parametrize("dims", [(8,), (2, 4), (4, 2), (2, 2, 2)])
def test_a_hierarchical_all_reduce_in_one_chunk_moves_as_many_bytes_as_the_ring(dims):
    name = "hierarchical:" + "x".join(map(str, dims))
    form = closed_form("all_reduce", name, 8, MIB64, ALPHA, RATE)
    assert form == pytest.approx(2 * sum(length - 1 for length in dims) * ALPHA + 1.75 * MIB64 / RATE)
    assert agrees(simulate(network(8), build_schedule("all_reduce", name, 8, MIB64, chunks=1)).time_s, form)


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "algorithm"), EXACT)
def test_simulated_time_is_the_closed_form_for_every_number_of_ranks_to_64(collective, algorithm):
    for ranks in range(2, 65):
        form = closed_form(collective, algorithm, ranks, MIB64, ALPHA, RATE)
        if form is not None:
            record = simulate(network(ranks), unchunked(collective, algorithm, ranks, MIB64))
            assert agrees(record.time_s, form), (ranks, record.time_s, form)


def test_the_ring_of_the_worked_numbers():
    # 14 us + 1.75 x 64 MiB / 450 GB/s
    assert closed_form("all_reduce", "ring", 8, MIB64, ALPHA, RATE) == pytest.approx(274.979e-6, rel=1e-6)
    # A 900 MB tensor takes 3.5 ms at best: 1.75 x 0.9 / 450 s, and 14 us.
    assert closed_form("all_reduce", "ring", 8, 900_000_000, ALPHA, RATE) == pytest.approx(3.514e-3, rel=1e-9)


@pytest.mark.parametrize(("ranks", "microseconds"), [(8, 274.979), (64, 419.601), (256, 807.097)])
def test_published_ring_times_at_450_gigabytes_a_second(ranks, microseconds):
    # Computed by an independent simulator (SimGrid S4U, CM02) for 64 MiB and 1 us a link; printed to a nanosecond.
    record = simulate(network(ranks), build_schedule("all_reduce", "ring", ranks, MIB64))
    assert record.time_s * 1e6 == pytest.approx(microseconds, abs=6e-4)


@pytest.mark.parametrize("preset", ["hgx-a100", "hgx-h100", "hgx-h200", "hgx-b200"])
def test_presets_with_one_switch_follow_the_closed_forms(preset):
    router = Router(topologies.build(preset))
    uniform = uniform_network(router)
    assert uniform is not None
    for collective, algorithm in EXACT:
        if algorithm == "nvls" and preset == "hgx-a100":
            continue
        form = closed_form(collective, algorithm, 8, MIB64, uniform.latency_s, uniform.bandwidth_bytes_per_s)
        record = simulate(router, unchunked(collective, algorithm, 8, MIB64))
        assert agrees(record.time_s, form), (collective, algorithm)


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "recursive_doubling"])
def test_algorithms_of_one_peer_a_step_follow_the_closed_form_on_a_mesh(algorithm):
    router = Router(topologies.build("ideal-mesh:8@450GB/s,1us"))
    assert uniform_network(router).shape == "mesh"
    record = simulate(router, build_schedule("all_reduce", algorithm, 8, MIB64))
    assert agrees(record.time_s, closed_form("all_reduce", algorithm, 8, MIB64, ALPHA, RATE))


def test_on_a_mesh_direct_algorithms_use_all_links_at_once():
    router = Router(topologies.build("ideal-mesh:8@450GB/s,1us"))
    record = simulate(router, build_schedule("all_reduce", "two_shot", 8, MIB64))
    # Two steps, each one block of N / 8 on every link: 2 us + N / 4 B.
    assert record.time_s == pytest.approx(2e-6 + MIB64 / 4 / RATE, rel=1e-9)


def test_a_ring_of_links_follows_the_ring_form_only():
    uniform = uniform_network(Router(topologies.build("ideal-ring:8@450GB/s,1us")))
    assert (uniform.shape, uniform.serves("ring"), uniform.serves("direct")) == ("ring", True, False)


def test_machines_with_unequal_paths_have_no_closed_form():
    assert uniform_network(Router(topologies.build("pcie-gen4-8"))) is None
    graph = star(4)
    graph.edges["gpu2", "switch"]["link"] = Link(1e-6, 2e9)
    assert uniform_network(Router(graph)) is None


def test_the_unpipelined_tree_formula_crosses_the_ring_at_32_alpha_b():
    size = round(32 * ALPHA * RATE)
    ring = closed_form("all_reduce", "ring", 8, size, ALPHA, RATE)
    assert unpipelined_tree(8, size, ALPHA, RATE) == pytest.approx(ring, rel=1e-9)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 8, 13])
def test_no_run_is_below_its_bounds(collective, ranks):
    router = network(ranks)
    for algorithm in algorithms_for(collective):
        for size in (0, 1, ranks - 1, 1009, 1 << 20):
            schedule = build_schedule(collective, algorithm, ranks, size)
            record = simulate(router, schedule)
            assert check_run(schedule, record) <= record.time_s * (1 + 1e-12)
            least = collective_bound(collective, size, router, in_network=algorithm == "nvls")
            assert least <= record.time_s * (1 + 1e-12) + 1e-15, (algorithm, size)


@pytest.mark.parametrize(("nodes", "preset"), [(4, "hgx-h100"), (3, "hgx-a100"), (1, "pcie-gen5-8"), (1, "dgx-1v")])
def test_no_run_is_below_its_bounds_on_composed_machines(nodes, preset):
    router = Router(topologies.build(preset, nodes=nodes, nic="ndr400" if nodes > 1 else None))
    ranks = len(router.ranks)
    for collective in ("all_reduce", "alltoall", "all_gather", "broadcast"):
        for algorithm in [name for name in algorithms_for(collective) if name != "nvls"]:
            schedule = build_schedule(collective, algorithm, ranks, 1 << 22)
            record = simulate(router, schedule)
            check_run(schedule, record)
            assert collective_bound(collective, 1 << 22, router) <= record.time_s * (1 + 1e-12), (collective, algorithm)


def test_volume_binds_where_only_ranks_add_and_half_of_it_where_the_switch_does():
    router = network(8)
    assert collective_bound("all_reduce", MIB64, router) == pytest.approx(1.75 * MIB64 / RATE)
    assert collective_bound("all_reduce", MIB64, router, in_network=True) == pytest.approx(MIB64 / RATE)


def test_between_servers_the_network_cut_binds():
    router = Router(topologies.build("hgx-h100", nodes=4, nic="ndr400", gpus_per_node=8))
    rate = (
        sum(
            router.graph.edges[edge]["link"].bandwidth_bytes_per_s
            for edge in router.graph.out_edges()
            if "nic" in edge[0] and edge[1] == "network"
        )
        / 4
    )
    # Three quarters of each rank's data go to other servers: 8 ranks x 3/4 N through one server's NICs.
    assert collective_bound("alltoall", 1 << 30, router) == pytest.approx(8 * 0.75 * (1 << 30) / rate)


def test_a_bound_of_latency_binds_for_small_sizes():
    assert collective_bound("broadcast", 1, network(4)) == pytest.approx(ALPHA, rel=1e-4)


def test_the_critical_path_follows_lags_and_left():
    plan = ScheduleBuilder("broadcast", "by hand", 2, 100_000)
    first = plan.send(0, 1, size=10_000)
    plan.send(1, 0, size=1000, after=[(first, LEFT, 5e-6)])
    schedule = plan.build()
    record = simulate(line(Link(1e-6, 1e9)), schedule)
    # left at 10 us + 5 us + 1 us of bytes + 1 us of latency
    assert run_lower_bound(schedule, record) == pytest.approx(17e-6)


def test_the_critical_path_follows_heads():
    plan = ScheduleBuilder("broadcast", "by hand", 2, 100_000)
    first = plan.send(0, 1, size=10_000)
    second = plan.send(1, 0, size=10_000, after=[(first, HEAD, 7e-6)])
    plan.send(0, 1, size=0, after=[second])
    schedule = plan.build()
    record = simulate(line(Link(1e-6, 1e9)), schedule)
    # head at 1 us + 7 us + 10 us of bytes + 1 us, then 1 us back
    assert run_lower_bound(schedule, record) == pytest.approx(20e-6)
    assert record.time_s == pytest.approx(20e-6)


def test_rounding_in_a_long_run_is_no_false_alarm():
    # 131,072 equal messages in 0.8 s, no latency: every sum is rounded, always the same way.
    schedule = build_schedule("broadcast", "chain", 2, 1 << 30, chunk_bytes=8192)
    record = simulate(star(2, latency_s=0.0, bandwidth_bytes_per_s=1.3e9), schedule)
    assert check_run(schedule, record) == pytest.approx(record.time_s, rel=1e-9)


def uneven_mesh(ranks=4):
    graph = nx.DiGraph()
    for rank in range(ranks):
        graph.add_node(f"gpu{rank}", kind="gpu")
    for a in range(ranks):
        for b in range(ranks):
            if a != b:
                side = (a - b) % ranks in (1, ranks - 1)
                graph.add_edge(f"gpu{a}", f"gpu{b}", link=Link(1e-6 if side else 50e-6, 1e9))
    return Router(graph)


def test_a_relay_may_be_quicker_than_the_direct_link_and_the_bound_knows():
    router = uneven_mesh()
    record = simulate(router, build_schedule("broadcast", "chain", 4, 8))
    assert record.time_s == pytest.approx(3e-6, rel=0.02)
    assert collective_bound("broadcast", 8, router) <= record.time_s


def test_the_links_to_a_switch_that_copies_count_beside_direct_ones():
    graph = star(3, latency_s=0.0, bandwidth_bytes_per_s=1e9)
    graph.add_edge("gpu0", "gpu1", link=Link(0.0, 1e7))
    graph.add_edge("gpu0", "gpu2", link=Link(0.0, 1e7))
    router = Router(graph)
    record = simulate(router, build_schedule("broadcast", "nvls", 3, 10_000))
    assert collective_bound("broadcast", 10_000, router, in_network=True) <= record.time_s


def stored_star():
    graph = star(4)
    graph.nodes["switch"].update(store_and_forward=True, piece_bytes=1000)
    return graph


def star_with_a_shortcut():
    graph = star(4)
    graph.add_edge("gpu0", "gpu2", link=Link(1e-6, 1e8))
    return graph


def two_equal_switches():
    graph = star(4)
    graph.add_node("twin", kind="nvswitch")
    for rank in range(4):
        graph.add_edge(f"gpu{rank}", "twin", link=Link(1e-6, 1e9))
        graph.add_edge("twin", f"gpu{rank}", link=Link(0.0, 1e9))
    return graph


@pytest.mark.parametrize("graph", [uneven_mesh().graph, stored_star(), star_with_a_shortcut(), two_equal_switches()])
def test_graphs_on_which_closed_forms_fail_are_not_uniform(graph):
    assert uniform_network(Router(graph)) is None


def test_nvl72_is_uniform_without_looking_at_every_pair():
    uniform = uniform_network(Router(topologies.build("gb200-nvl72")))
    assert (uniform.shape, uniform.latency_s) == ("switch", pytest.approx(1e-6))


def test_a_run_below_its_bound_is_an_internal_error():
    schedule = build_schedule("all_reduce", "ring", 4, 1000)
    record = simulate(network(4), schedule)
    with pytest.raises(InternalError, match="below its own lower bound"):
        check_run(schedule, replace(record, time_s=record.time_s / 2))


def test_busbw_never_exceeds_the_link_without_in_network_reduction():
    for ranks in (2, 3, 8):
        for algorithm in [name for name in algorithms_for("all_reduce") if name != "nvls"]:
            time_s = simulate(network(ranks), build_schedule("all_reduce", algorithm, ranks, 1 << 30)).time_s
            assert 2 * (ranks - 1) / ranks * (1 << 30) / time_s <= RATE * (1 + 1e-9)


def reordered(schedule: Schedule, order) -> Schedule:
    """Give the operations of a schedule other ids."""
    place = np.empty(len(schedule), int)
    place[order] = np.arange(len(schedule))
    spans = [np.arange(schedule.requires_start[op], schedule.requires_start[op + 1]) for op in order]
    kept = np.concatenate(spans) if spans else np.empty(0, int)
    return replace(
        schedule,
        requires_start=np.concatenate([[0], np.cumsum([len(span) for span in spans])]),
        requires_op=place[schedule.requires_op[kept]],
        requires_milestone=schedule.requires_milestone[kept],
        requires_lag=schedule.requires_lag[kept],
        **{name: getattr(schedule, name)[order] for name, _, _ in COLUMNS},
    )


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "recursive_doubling", "flat"])
def test_other_ids_of_the_operations_change_no_time_where_lanes_keep_their_order(algorithm):
    schedule = build_schedule("all_reduce", algorithm, 8, 1 << 20)
    # Sort by lane: the order within each lane stays, the order between lanes does not.
    order = np.lexsort((np.arange(len(schedule)), -schedule.lane))
    times = [simulate(network(8), one).time_s for one in (schedule, reordered(schedule, order))]
    assert times[0] == times[1]


def test_time_scales_with_latency_and_size():
    schedules = [build_schedule("all_reduce", "double_binary_tree", 8, size, chunks=8) for size in (1 << 20, 1 << 21)]
    slow = star(8, latency_s=2 * ALPHA, bandwidth_bytes_per_s=RATE)
    assert simulate(slow, schedules[1]).time_s == pytest.approx(2 * simulate(network(8), schedules[0]).time_s, rel=1e-12)


def test_a_lag_that_is_no_multiple_of_the_grid_lifts_no_bound_above_the_run():
    plan = ScheduleBuilder("broadcast", "by hand", 2, 100_000)
    last = plan.send(0, 1, size=0)
    for _ in range(3):
        last = plan.send(0, 1, size=0, after=[(last, END, 5e-7)])
    schedule = plan.build()
    record = simulate(line(Link(0.0, 1e9)), schedule)
    # Three lags of 0.5 us, each rounded to 2^-55 s as engines do, and nothing else: the bound is the time itself.
    assert record.time_s == 3 * round(5e-7 * 2**55) / 2**55
    assert check_run(schedule, record) == record.time_s


def test_no_bytes_need_no_time_whatever_an_algorithm_sends():
    for collective in COLLECTIVES:
        assert collective_bound(collective, 0, network(4)) == 0.0


def far_rank(*, to_s, back_s):
    """Return four ranks on a switch, the last of them far away."""
    graph = star(4)
    graph.edges["switch", "gpu3"]["link"] = Link(to_s, 1e9)
    graph.edges["gpu3", "switch"]["link"] = Link(back_s, 1e9)
    return Router(graph)


@pytest.mark.parametrize("collective", ["reduce_scatter", "alltoall", "scatter"])
def test_who_has_an_empty_block_need_not_hear_anybody(collective):
    # Three bytes over four ranks: the last block is empty, and only the way to rank 3 is long.
    router = far_rank(to_s=100e-6, back_s=1e-6)
    plan = ScheduleBuilder(collective, "by hand", 4, 3)
    for target in range(3):
        for source in range(4) if collective != "scatter" else (0,):
            if source != target:
                offset = 3 * source + target if collective == "alltoall" else target
                plan.send(source, target, offset=offset, size=1, reduce=collective == "reduce_scatter")
    schedule = plan.build()
    prove(schedule)
    time_s = simulate(router, schedule).time_s
    assert time_s < 2e-6
    assert collective_bound(collective, 3, router) == pytest.approx(1e-6)
    # Of four bytes the last block is one: rank 3 must hear rank 0, over 1 us + 100 us.
    assert collective_bound(collective, 4, router) == pytest.approx(101e-6)


def test_who_has_an_empty_block_need_not_speak_in_a_gather():
    router = far_rank(to_s=0.0, back_s=100e-6)
    assert collective_bound("gather", 3, router) == pytest.approx(1e-6)
    assert collective_bound("gather", 4, router) == pytest.approx(100e-6)


def test_the_root_of_a_collective_without_one_changes_no_bound():
    router = far_rank(to_s=0.0, back_s=100e-6)
    # Block 3 of three bytes is empty, so rank 3 has nothing to say in an all-gather.
    assert collective_bound("all_gather", 3, router, root=3) == pytest.approx(1e-6)


def test_every_route_of_a_pair_counts_for_the_bound():
    graph = nx.DiGraph()
    for rank in range(2):
        graph.add_node(f"gpu{rank}", kind="gpu")
    for plane in ("a", "b"):
        graph.add_node(plane, kind="network_switch")
        for rank in range(2):
            graph.add_edge(f"gpu{rank}", plane, link=Link(1e-6, 1e9))
            graph.add_edge(plane, f"gpu{rank}", link=Link(0.0, 1e9))
    router = Router(graph, "ecmp:0,flows=2")
    assert router.path(0, 1, 0) != router.path(0, 1, 1)
    assert router.path(1, 0, 0) != router.path(1, 0, 1)
    # Two messages of 2 MB a rank leave side by side over two links of 1 GB/s.
    assert collective_bound("sendrecv", 4_000_000, router) == pytest.approx(2e-3)


def test_a_hold_that_begins_early_runs_beside_what_is_waited_for():
    plan = ScheduleBuilder("broadcast", "by hand", 3, 10_000)
    first = plan.send(0, 1, size=10_000)
    plan.send(1, 2, size=10_000, after=[first], duration=5e-6, early=True)
    schedule = plan.build()
    record = simulate(star(3), schedule)
    # The first message is there at 11 us, when the second one's 5 us are long over; it takes 11 us more.
    assert check_run(schedule, record) == pytest.approx(22e-6)
    assert record.time_s == pytest.approx(22e-6)


def test_what_does_not_depend_on_the_size_is_computed_once_and_from_what_the_router_holds():
    graph = star(4)
    router = Router(graph)
    # 1.5 x 4 MB leave every rank at 1 GB/s.
    assert collective_bound("all_reduce", 4_000_000, router) == pytest.approx(6e-3)
    for edge in graph.edges:
        graph.edges[edge]["link"] = Link(0.0, 1.0)
    assert collective_bound("all_reduce", 8_000_000, router) == pytest.approx(12e-3)
    assert collective_bound("all_reduce", 8, Router(graph)) == pytest.approx(12.0)  # 12 bytes at a byte a second


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("all_reduce", "ring", 0, 100, 1e-6, 1e9), "over 0 ranks"),
        (("all_reduce", "ring", 4, -1, 1e-6, 1e9), "size_bytes is -1"),
        (("all_reduce", "ring", 4, 100, float("nan"), 1e9), "alpha is nan s"),
        (("all_reduce", "ring", 4, 100, 1e-6, 0.0), "B 0.0 B/s"),
        (("allreduce", "ring", 4, 100, 1e-6, 1e9), "unknown collective 'allreduce'"),
    ],
)
def test_a_closed_form_of_numbers_that_are_none_is_refused(given, words):
    with pytest.raises(ScheduleError, match=words):
        closed_form(*given)
