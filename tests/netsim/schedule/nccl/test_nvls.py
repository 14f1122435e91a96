"""NVLS on one node: proved and replayed, bytes by direction, rates with and without costs, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

import topologies
from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.runs import simulate
from netsim.schedule.dag import COMPUTE, TRUNK
from netsim.schedule.nccl import nvls
from netsim.schedule.nccl.costs import FREE, Costs
from netsim.schedule.nccl.plan import Channel
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star
from tests.netsim.schedule.nccl.over_nodes import further_s, plan_of, servers

KIB = 1024
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
HOPPER = Costs(nvls_loop_s=5.1e-6, nvls_rate=18.8e9, nvls_reduce_rate=4.7e9)
"""What fits eight H100s (microseconds a loop and stage, and bytes over a rate)."""


def on_one(ranks, size, *, channels=2, **more):
    return plan_of("nvls", 1, ranks, size, [None] * channels, **more)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", range(1, 18))
def test_every_number_of_ranks_is_proved(collective, ranks):
    prove(nvls.build(on_one(ranks, ranks * 1009, collective=collective, chunk=128, slots=2)))


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 4096, 100_003])
def test_odd_sizes_and_those_below_the_ranks_are_proved(size, registered):
    for ranks in (2, 3, 8):
        prove(nvls.build(on_one(ranks, size, registered=registered)))
        prove(nvls.build(on_one(ranks, size * ranks, collective="all_gather", registered=registered)))
        prove(nvls.build(on_one(ranks, size * ranks, collective="reduce_scatter", registered=registered)))


def test_data_goes_through_it():
    rng = np.random.default_rng(1)
    inputs = [rng.integers(0, 1000, 7000) for _ in range(5)]
    for output in replay(nvls.build(on_one(5, 7000 * 8, align_bytes=8)), inputs):
        assert np.array_equal(output, sum(inputs))
    scattered = replay(nvls.build(on_one(5, 7000 * 8, align_bytes=8, collective="reduce_scatter")), inputs)
    assert np.array_equal(np.concatenate(scattered), sum(inputs))
    gathered = replay(nvls.build(on_one(5, 5 * 7000 * 8, align_bytes=8, collective="all_gather")), inputs)
    assert all(np.array_equal(output, np.concatenate(inputs)) for output in gathered)


@pytest.mark.parametrize("ranks", range(2, 9))
def test_bytes_of_every_gpu_by_direction(ranks):
    # All-reduce S + S/n each way; reduce-scatter S out and S/n in; all-gather S/n out and S in.
    size = ranks * 32 * KIB
    both, block = [size + size // ranks] * ranks, [size // ranks] * ranks
    expected = {"all_reduce": (both, both), "reduce_scatter": ([size] * ranks, block), "all_gather": (block, [size] * ranks)}
    for collective, (out, into) in expected.items():
        schedule = nvls.build(on_one(ranks, size, collective=collective, chunk=16 * KIB))
        assert schedule.bytes_sent().tolist() == out
        assert schedule.bytes_received().tolist() == into


def test_links_carry_those_bytes():
    record = simulate(star(4), nvls.build(on_one(4, 256 * KIB, chunk=16 * KIB)))
    assert record.link_bytes.tolist() == [320 * KIB] * 8  # S (1 + 1/4), each way


def test_of_more_than_32_ranks_32_are_heads_and_all_are_read_and_written():
    size = 64 * KIB * 32
    schedule = nvls.build(on_one(36, size, channels=1, chunk=64 * KIB))
    prove(schedule)
    # Heads have S + S/32, the rest S each way.
    assert schedule.bytes_sent().tolist() == [size + 64 * KIB] * 32 + [size] * 4
    assert schedule.bytes_received().tolist() == [size + 64 * KIB] * 32 + [size] * 4
    assert int((schedule.kind == TRUNK).sum()) == 32


@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_over_nodes_heads_give_the_network_their_part_and_get_it_back(nodes, gpus):
    # S + S/H inside each node as ever, and S/H to and from the network.
    size = gpus * 3 * 16 * KIB
    schedule = nvls.build(plan_of("nvls", nodes, gpus, size, [None], chunk=16 * KIB, slots=2))
    prove(schedule)
    assert schedule.bytes_sent().tolist() == [size + 2 * size // gpus] * (nodes * gpus)
    assert schedule.bytes_received().tolist() == [size + 2 * size // gpus] * (nodes * gpus)
    prove(nvls.build(plan_of("nvls", nodes, gpus, 1009, [None, None], chunk=64, slots=2)))


def test_over_nodes_a_network_that_adds_makes_their_number_immaterial():
    # NVLink carries S (1 + 1/8) each way, a NIC S/8: further 8 MiB take 25.5 us at 370.8 GB/s, over two nodes and over four.
    for nodes in (2, 4):
        plans = [plan_of("nvls", nodes, 8, mib << 20, [None] * 2, chunk=64 * KIB, costs=FREE) for mib in (8, 16)]
        seconds = further_s(servers(nodes, nvlink=370.8e9, cable=50e9), map(nvls.build, plans))
        assert seconds == pytest.approx(9 / 8 * (8 << 20) / 370.8e9, rel=1e-6)


def test_over_nodes_slow_nics_bind_nvls_by_an_eighth_of_the_size():
    # At 10 GB/s a NIC takes 105 us for an eighth of 8 MiB.
    plans = [plan_of("nvls", 2, 8, mib << 20, [None] * 2, chunk=64 * KIB, costs=FREE) for mib in (8, 16)]
    seconds = further_s(servers(2, nvlink=370.8e9, cable=10e9), map(nvls.build, plans))
    assert seconds == pytest.approx((8 << 20) / 8 / 10e9, rel=1e-6)


def test_heads_may_be_some_ranks_only():
    schedule = nvls.build(on_one(6, 1009 * 6, heads=((1, 4),), chunk=100))
    prove(schedule)
    assert sorted(set(schedule.src[schedule.kind == TRUNK].tolist())) == [1, 4]


def test_the_last_loop_has_chunks_of_whole_16_kib():
    # 8 heads x 64 KiB is a loop; 112 KiB are left: ceil(112/8) = 14 KiB a head, rounded up to 16, so seven heads have one.
    schedule = nvls.build(on_one(8, 624 * KIB, channels=1, chunk=64 * KIB))
    trunks = schedule.size[schedule.kind == TRUNK].tolist()
    assert trunks == [64 * KIB] * 8 + [16 * KIB] * 7


def test_without_costs_the_bus_bandwidth_is_above_the_links():
    # Case 13: 2(p - 1)/p / (1 + 1/p) = 1.5556 of the wire's rate: 481 from 309.4 at p = 8. As they fill and empty, 256 MiB
    # are within 8 % of it, and what is between stays: twice the size takes twice the wire's time more.
    graph = topologies.build("hgx-h100")
    for *_, edge in graph.edges(data=True):
        edge["link"] = replace(edge["link"], bandwidth_bytes_per_s=309.4e9)
    times = []
    for size in (128 << 20, 256 << 20):
        record = simulate(graph, nvls.build(on_one(8, size, channels=16, chunk=128 * KIB, costs=FREE)))
        times.append(record.time_s)
    assert 0.92 * 481.3 < 1.75 * (256 << 20) / times[1] / 1e9 < 481.3
    assert 1.75 * (128 << 20) / (times[1] - times[0]) / 1e9 == pytest.approx(481.3, rel=0.005)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_gather_and_scatter_are_bound_by_their_larger_direction(collective):
    # S over the link one way: 268.4 MB over 370.8 GB/s is 723.9 us; a ring would take 7/8 of it (case 14).
    graph = topologies.build("hgx-h100")
    plan = on_one(8, 256 << 20, collective=collective, channels=16, chunk=128 * KIB, costs=FREE)
    assert simulate(graph, nvls.build(plan)).time_s == pytest.approx(723.9e-6, rel=0.005)


def test_loops_are_a_pipeline_of_three_stages():
    # A loop costs each stage 5 us and 8 x 16 KiB over 20 GB/s (copies), or 16 KiB over 2.5 (heads): 11.5536 us. Ten loops:
    # (10 + 2) loops, and where links cost next to nothing nothing else.
    costs = Costs(nvls_loop_s=5e-6, nvls_rate=20e9, nvls_reduce_rate=2.5e9)
    fast = star(8, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    plan = on_one(8, 10 * 128 * KIB, channels=1, chunk=16 * KIB, costs=costs)
    assert simulate(fast, nvls.build(plan)).time_s == pytest.approx(12 * 11.5536e-6, rel=1e-6)
    # Registered memory needs no copies: ten loops of one stage.
    registered = replace(plan, registered=True)
    assert simulate(fast, nvls.build(registered)).time_s == pytest.approx(10 * 11.5536e-6, rel=1e-6)
    # All-gather and reduce-scatter have two stages.
    for collective in ("all_gather", "reduce_scatter"):
        blocks = on_one(8, 10 * 128 * KIB, channels=1, chunk=16 * KIB, costs=costs, collective=collective)
        assert simulate(fast, nvls.build(blocks)).time_s == pytest.approx(11 * 11.5536e-6, rel=1e-6)


def test_heads_that_are_quicker_than_copies_shorten_the_fill_alone():
    # Copies of 11.5536 us, heads of 5 us and 16 KiB over 5 GB/s, 8.2768 us: ten loops of copies, one more, and one of heads.
    costs = Costs(nvls_loop_s=5e-6, nvls_rate=20e9, nvls_reduce_rate=5e9)
    fast = star(8, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    plan = on_one(8, 10 * 128 * KIB, channels=1, chunk=16 * KIB, costs=costs)
    assert simulate(fast, nvls.build(plan)).time_s == pytest.approx(11 * 11.5536e-6 + 8.2768e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("size", "chunk", "loops"),
    # 16 channels: 2 MiB are one loop of 16 KiB, 16 MiB four of 32 KiB, 64 MiB eight of 64 KiB.
    [(2 << 20, 16 * KIB, 1), (16 << 20, 32 * KIB, 4), (64 << 20, 64 * KIB, 8)],
)
def test_with_the_costs_of_hopper_lanes_and_not_links_set_the_pace(size, chunk, loops):
    loop_s, heads_s = 5.1e-6 + 8 * chunk / 18.8e9, 5.1e-6 + chunk / 4.7e9
    graph = topologies.build("hgx-h100")
    record = simulate(graph, nvls.build(on_one(8, size, channels=16, chunk=chunk, costs=HOPPER)))
    # Three stages, and what the switch still delivers after the last loop: latencies, and a loop of all channels at most.
    still_s = 2e-6 + size / loops / 370.8e9
    assert (loops + 1) * loop_s + heads_s < record.time_s < (loops + 2) * loop_s + still_s


def test_slots_bound_how_far_stages_run_ahead():
    # With one slot a copy in waits for the reduction before it, and the reduction for the copy out: of 10 us each, the
    # stages of copying in and reducing take turns, and so do reducing and copying out.
    costs = Costs(nvls_loop_s=10e-6)
    fast = star(2, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    plan = on_one(2, 6 * 2 * 16 * KIB, channels=1, chunk=16 * KIB, costs=costs)
    # Six loops: in at 0, 20, 40, ... because the slot is free every 20 us; the last is out 30 us after 100 us.
    assert simulate(fast, nvls.build(replace(plan, slots=1))).time_s == pytest.approx(130e-6, rel=1e-6)
    assert simulate(fast, nvls.build(plan)).time_s == pytest.approx(80e-6, rel=1e-6)


def test_a_start_and_a_credit_are_paid():
    fast = star(2, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    plan = on_one(2, 2 * 2 * 16 * KIB, channels=1, chunk=16 * KIB, slots=1)
    assert simulate(fast, nvls.build(replace(plan, costs=Costs(start_s=4e-6)))).time_s == pytest.approx(4e-6, rel=1e-6)
    # The second loop's copy in sees the free slot 3 us late, and the multicast the copy out's, at the same time.
    assert simulate(fast, nvls.build(replace(plan, costs=Costs(credit_s=3e-6)))).time_s == pytest.approx(3e-6, rel=1e-6)


def test_copies_occupy_lanes_only_where_memory_is_not_registered():
    copies = nvls.build(on_one(4, 64 * KIB, channels=1, chunk=16 * KIB))
    direct = nvls.build(on_one(4, 64 * KIB, channels=1, chunk=16 * KIB, registered=True))
    # One loop: four copies in and four out, and the four turns of the heads.
    assert [int((schedule.kind == COMPUTE).sum()) for schedule in (copies, direct)] == [12, 4]


def test_what_nvls_cannot_do_is_refused():
    with pytest.raises(ScheduleError, match="nvls has no broadcast; accepted are all_reduce, all_gather, reduce_scatter"):
        nvls.build(replace(on_one(4, 1000), collective="broadcast"))
    with pytest.raises(ScheduleError, match="nvls has no protocol ll; accepted is simple"):
        nvls.build(replace(on_one(4, 1000), protocol="ll"))
    with pytest.raises(ScheduleError, match="nvls has all_gather inside one node only, but the plan has 2 nodes"):
        nvls.build(replace(on_one(4, 1000, collective="all_gather"), nodes=((0, 1), (2, 3))))
    with pytest.raises(ScheduleError, match="needs every rank to be a head, but 32 of 36 are; at most 32 can be"):
        nvls.build(on_one(36, 36, collective="all_gather"))
    with pytest.raises(ScheduleError, match=r"has the heads \(1, 7\); accepted are 1 to 32 different ones of its ranks"):
        nvls.build(on_one(4, 1000, heads=((1, 7),)))
    with pytest.raises(ScheduleError, match="has heads for 2 nodes, but the plan has 1"):
        nvls.build(on_one(4, 1000, heads=((0,), (1,))))
    with pytest.raises(ScheduleError, match="do not hold each of 4 ranks once"):
        nvls.build(replace(on_one(4, 1000), nodes=((0, 1, 2),)))
    with pytest.raises(TooManyMessagesError, match="limit of 10 messages"):
        nvls.build(on_one(4, 1000), limit=10)


def test_channels_may_have_chunks_of_their_own():
    plan = on_one(2, 128 * KIB, channels=2, chunk=16 * KIB)
    own = replace(plan, channels=(Channel(0, chunk_bytes=32 * KIB), Channel(1)))
    schedule = nvls.build(own)
    assert schedule.size[schedule.kind == TRUNK].tolist() == [32 * KIB] * 2 + [16 * KIB] * 4
    prove(schedule)
