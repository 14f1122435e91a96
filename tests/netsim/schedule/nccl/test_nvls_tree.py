"""NVLSTree: proved and replayed, bytes inside and between nodes, whole pieces in its fill, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

import topologies
from netsim.errors import ScheduleError
from netsim.runs import simulate
from netsim.schedule.dag import TRANSFER
from netsim.schedule.nccl import nvls_tree
from netsim.schedule.nccl.costs import FREE, Costs
from netsim.schedule.nccl.plan import Channel
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star
from tests.netsim.schedule.nccl.over_nodes import NODE_TREES, further_s, head_trees, plan_of, servers

KIB = 1024


def over(nodes, gpus, size, *, channels=2, heads=None, **more):
    """Even channels by the first tree, odd ones by the second."""
    trees = [head_trees(nodes, gpus, number % 2, heads) for number in range(channels)]
    if heads:
        more["heads"] = tuple(tuple(range(node * gpus, node * gpus + heads)) for node in range(nodes))
    return plan_of("nvls_tree", nodes, gpus, size, trees, **more)


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("nodes", [2, 3, 4, 7])
def test_nodes_and_gpus_of_any_number_are_proved(nodes, gpus):
    prove(nvls_tree.build(over(nodes, gpus, 1009 * gpus, chunk=128, slots=2)))


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 4096, 20_011])
def test_odd_sizes_and_those_below_the_ranks_are_proved(size, registered):
    for nodes in (2, 3, 4):
        prove(nvls_tree.build(over(nodes, 3, size, registered=registered)))


def test_data_goes_through_it():
    rng = np.random.default_rng(1)
    inputs = [rng.integers(0, 1000, 7000) for _ in range(12)]
    for output in replay(nvls_tree.build(over(4, 3, 7000 * 8, align_bytes=8)), inputs):
        assert np.array_equal(output, sum(inputs))


@pytest.mark.parametrize("gpus", range(1, 9))
@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_bytes_of_every_gpu_by_direction(nodes, gpus):
    # Inside a node S + S/H each way; between nodes S/(2 H) each way for every link of a head in either tree.
    size = gpus * 2 * 16 * KIB
    schedule = nvls_tree.build(over(nodes, gpus, size, chunk=16 * KIB))
    across = schedule.kind == TRANSFER
    for end, total in ((schedule.src, schedule.bytes_sent()), (schedule.dst, schedule.bytes_received())):
        network = np.bincount(end[across], schedule.size[across], nodes * gpus).astype(int)
        links = [
            sum((own[node] >= 0) + own.count(node) for own in NODE_TREES[nodes])
            for node in range(nodes)
            for _ in range(gpus)
        ]
        assert network.tolist() == [size // (2 * gpus) * count for count in links]
        assert (total - network).tolist() == [size + size // gpus] * (nodes * gpus)
    assert (schedule.src[across] % gpus == schedule.dst[across] % gpus).all()  # rails: the same head


def test_heads_may_be_some_ranks_only():
    schedule = nvls_tree.build(over(3, 4, 6000, heads=2, chunk=500))
    prove(schedule)
    assert set((schedule.src[schedule.kind == TRANSFER] % 4).tolist()) == {0, 1}


def test_one_piece_takes_its_stages_one_after_the_other():
    # Two nodes, one piece, stages of 10 us: copy in, reduce and send up; at the root reduce and multicast; at the leaf
    # multicast; copy out. Links cost nothing.
    fast = star(4, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    plan = over(2, 2, 64 * KIB, channels=1, chunk=32 * KIB, costs=Costs(nvls_loop_s=10e-6))
    assert simulate(fast, nvls_tree.build(plan)).time_s == pytest.approx(50e-6, rel=1e-6)
    # Eight pieces: seven more of 10 us.
    longer = over(2, 2, 8 * 64 * KIB, channels=1, chunk=32 * KIB, costs=Costs(nvls_loop_s=10e-6))
    assert simulate(fast, nvls_tree.build(longer)).time_s == pytest.approx(120e-6, rel=1e-6)


def test_it_fills_with_whole_pieces():
    # Five stages of a piece over 20 GB/s each, a head's of its half over 10: S and four pieces more, so that twice the chunk
    # costs four pieces more.
    fast = star(4, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    for chunk in (16 * KIB, 32 * KIB):
        plan = over(2, 2, 512 * KIB, channels=1, chunk=chunk, costs=Costs(nvls_rate=20e9, nvls_reduce_rate=10e9))
        expected_s = (512 * KIB + 4 * 2 * chunk) / 20e9
        assert simulate(fast, nvls_tree.build(plan)).time_s == pytest.approx(expected_s, rel=1e-6)


@pytest.mark.parametrize(("nodes", "out"), [(2, 1), (4, 2)])
def test_on_two_nodes_it_beats_the_rate_of_the_network_and_on_four_not(nodes, out):
    # Eight NICs of 48 GB/s. Two nodes: each sends S, so that further 8 MiB take 8 MiB / 384 GB/s, busbw 720. Four: those
    # inside both trees have four links of S/2: twice as long, busbw 372.
    schedules = (nvls_tree.build(over(nodes, 8, mib << 20, chunk=128 * KIB, costs=FREE)) for mib in (8, 16))
    seconds = further_s(servers(nodes, cable=48e9), schedules)
    assert seconds == pytest.approx(out * (8 << 20) / 384e9, rel=1e-4)


def test_on_two_nodes_it_is_between_the_rate_of_the_network_and_that_of_nvlink():
    # NVLink carries S (1 + 1/8): 370.8 x 8/9 = 329.6, busbw 618, with as fast NICs as above; a ring has 384.
    schedule = nvls_tree.build(over(2, 8, 64 << 20, chunk=128 * KIB, costs=FREE))
    record = simulate(topologies.build("hgx-h100", nodes=2, nic="ndr400"), schedule, record="summary")
    assert 384e9 < 15 / 8 * (64 << 20) / record.time_s < 618e9


def test_what_it_cannot_do_is_refused():
    plan = over(2, 2, 1000)
    with pytest.raises(ScheduleError, match="nvls_tree has no all_gather; accepted is all_reduce"):
        nvls_tree.build(replace(plan, collective="all_gather"))
    with pytest.raises(ScheduleError, match="nvls_tree has no protocol ll128; accepted is simple"):
        nvls_tree.build(replace(plan, protocol="ll128"))
    with pytest.raises(ScheduleError, match="tree of channel 0 is missing"):
        nvls_tree.build(replace(plan, channels=(Channel(0), Channel(1))))
    crossed = tuple(Channel(number, tree=head_trees(1, 4, 0)) for number in range(2))
    with pytest.raises(ScheduleError, match="has 4 ranks without a parent; it must have 2"):
        nvls_tree.build(replace(plan, channels=crossed))
    swapped = replace(plan, heads=((0, 1), (3, 2)))
    with pytest.raises(ScheduleError, match="joins ranks 0 and 2; nvls_tree joins the same head of two nodes"):
        nvls_tree.build(swapped)
    with pytest.raises(ScheduleError, match="as many as on the first node"):
        nvls_tree.build(replace(plan, heads=((0, 1), (2,))))
