"""NCCL's trees: proved and replayed, the bytes of every rank, two groups of threads at work at once, and who is refused."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.errors import ScheduleError
from netsim.runs import simulate
from netsim.schedule.nccl import ring, tree
from netsim.schedule.nccl.costs import FREE, Costs, Rates
from netsim.schedule.nccl.plan import Channel, Tree
from netsim.schedule.nccl.protocols import PROTOCOLS
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star
from tests.netsim.schedule.nccl.over_nodes import chained_tree, further_s, plan_of, servers, tree_of


def double(nodes, gpus, size, **more):
    return plan_of("tree", nodes, gpus, size, [chained_tree(nodes, gpus, which) for which in (0, 1)], **more)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("ranks", range(1, 18))
def test_chains_of_any_length_are_proved(ranks, protocol):
    prove(tree.build(double(1, ranks, 50_003, protocol=protocol)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("nodes", "gpus"), [(2, 1), (2, 8), (3, 2), (4, 1), (4, 3), (7, 2), (8, 2)])
def test_trees_over_nodes_are_proved(nodes, gpus, protocol):
    prove(tree.build(double(nodes, gpus, 50_003, protocol=protocol)))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 4096, 8193])
def test_odd_sizes_and_those_below_the_ranks_are_proved(size):
    for protocol in PROTOCOLS:
        prove(tree.build(double(4, 2, size, protocol=protocol)))


def test_data_goes_through_it():
    rng = np.random.default_rng(1)
    inputs = [rng.integers(0, 1000, 7001) for _ in range(6)]
    for output in replay(tree.build(double(3, 2, 7001 * 8, align_bytes=8)), inputs):
        assert np.array_equal(output, sum(inputs))


@pytest.mark.parametrize("gpus", range(1, 9))
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_every_link_of_a_tree_carries_its_share_once_each_way(nodes, gpus):
    # A rank sends its channel's share to its parent and to each child, and receives as much.
    plan = double(nodes, gpus, 64_000)
    schedule = tree.build(plan)
    trees = [channel.tree for channel in plan.channels]
    joined = [sum((own.parent[rank] >= 0) + len(own.children[rank]) for own in trees) for rank in range(plan.ranks)]
    assert schedule.bytes_sent().tolist() == [32_000 * links for links in joined]
    assert schedule.bytes_received().tolist() == schedule.bytes_sent().tolist()


def test_a_node_sends_no_more_than_twice_the_size_and_on_two_nodes_once():
    def leaves(nodes, gpus):
        schedule = tree.build(double(nodes, gpus, 64_000))
        across = schedule.src // gpus != schedule.dst // gpus
        moved = across & (schedule.src >= 0)
        return np.bincount(schedule.src[moved] // gpus, schedule.size[moved], nodes).astype(int).tolist()

    assert leaves(2, 8) == [64_000, 64_000]
    # Four nodes: 0 is the root of the first tree with one child and a leaf of the second; 1 and 2 have three links in one
    # tree and one in the other.
    assert leaves(4, 2) == [64_000, 128_000, 128_000, 64_000]


def test_one_lane_at_the_root_and_two_elsewhere():
    schedule = tree.build(plan_of("tree", 1, 3, 1000, [chained_tree(1, 3, 0)]))
    roles = [(rank, role) for rank, role in schedule.lane_names]
    assert roles == [
        (2, "channel 0 up"),
        (1, "channel 0 up"),
        (0, "channel 0 root"),
        (1, "channel 0 down"),
        (2, "channel 0 down"),
    ]


def test_a_small_message_takes_a_latency_a_hop_up_and_down():
    # Rank 2 is below 0, and 1 and 3 below 2: two hops of 1 us each way, with 8 ns a message, where rank 2 receives from
    # two and sends to two over one link: 16 + 8 + 8 + 16 ns.
    plan = plan_of("tree", 4, 1, 8, [chained_tree(4, 1, 0)])
    record = simulate(star(4), tree.build(plan))
    assert record.time_s == pytest.approx(4e-6 + 48e-9, rel=1e-9)


def test_up_and_down_run_at_the_same_time():
    # Two ranks, 100 chunks of 10 us each way: pipelined 101 chunks and two latencies, not 200 chunks.
    plan = plan_of("tree", 2, 1, 1_000_000, [chained_tree(2, 1, 0)], chunk=10_000)
    record = simulate(star(2), tree.build(plan))
    assert record.time_s == pytest.approx(101 * 10e-6 + 2e-6, rel=1e-6)


def test_groups_of_threads_have_rates_of_their_share():
    # The leaf sends with 384 of 640 threads, of which 512 would have the full rate: 768 bytes at 1 GB/s x 3/4, then
    # 1 GB/s in the root's full lane; the leaf stores with 256 threads at half the rate. Links cost nothing.
    costs = Costs(feed_bytes=0, rates=Rates(send=1e9, recv_reduce_copy_send=1e9, recv=1e9))
    plan = plan_of("tree", 2, 1, 768, [chained_tree(2, 1, 0)], costs=costs)
    fast = star(2, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    assert simulate(fast, tree.build(plan)).time_s == pytest.approx(1024e-9 + 768e-9 + 1536e-9, rel=1e-6)
    # 70 % and 30 % by LL and LL128.
    assert tree.split_threads(replace(plan, protocol="ll")) == (448, 192)
    assert tree.split_threads(replace(plan, threads=256)) == (128, 128)


def channels_on(nodes):
    """Sixteen channels whose chains begin at the GPUs in turn: the first half by the first tree, the rest by the second."""
    return [chained_tree(nodes, 8, number // 8, first=number % 8) for number in range(16)]


@pytest.mark.parametrize(
    ("nodes", "nvlink", "out_GBps"),
    # Eight NICs of 48 GB/s: a ring's busbw is 384 at most. On two nodes a NIC carries S/8 each way: algbw 384, busbw 720,
    # if NVLink keeps up; at 370.8 GB/s a GPU's NVLink carries 2 S x 7/8: algbw 211.9, busbw 397.3. On four nodes two of them
    # send 2 S: algbw 192, busbw 372.
    [(2, 370.8e9, 370.8 / 1.75), (2, 1e15, 384.0), (4, 1e15, 192.0)],
)
def test_on_two_nodes_a_tree_beats_the_rate_of_the_network_and_on_four_not(nodes, nvlink, out_GBps):  # noqa: N803
    plans = (plan_of("tree", nodes, 8, mib << 20, channels_on(nodes), chunk=131_072, costs=FREE) for mib in (32, 64))
    seconds = further_s(servers(nodes, nvlink=nvlink, cable=48e9), map(tree.build, plans))
    assert seconds == pytest.approx((32 << 20) / (out_GBps * 1e9), rel=1e-3)


def test_what_is_no_tree_is_refused():
    plan = plan_of("tree", 1, 4, 1000, [chained_tree(1, 4, 0)])

    def with_tree(own):
        return replace(plan, channels=(Channel(0, tree=own),))

    with pytest.raises(ScheduleError, match="tree has no broadcast; accepted is all_reduce"):
        tree.build(replace(plan, collective="broadcast"))
    with pytest.raises(ScheduleError, match="tree of channel 0 is missing; give the channel one over ranks 0 to 3"):
        tree.build(with_tree(None))
    with pytest.raises(ScheduleError, match="has 2 parents and 2 lists of children; it must have 4 of each"):
        tree.build(with_tree(tree_of([-1, 0])))
    with pytest.raises(ScheduleError, match="has 2 ranks without a parent; it must have 1"):
        tree.build(with_tree(tree_of([-1, 0, -1, 2])))
    with pytest.raises(ScheduleError, match="has 3 as a child of rank 0, which is not its only parent"):
        tree.build(with_tree(Tree((-1, 0, 1, 2), ((1, 3), (2,), (3,), ()))))
    with pytest.raises(ScheduleError, match="does not reach rank 1 from a root"):
        tree.build(with_tree(Tree((-1, 2, 1, 0), ((3,), (2,), (1,), ()))))
    with pytest.raises(ScheduleError, match="gives rank 0 4 children; at most 3 are served"):
        tree.build(plan_of("tree", 1, 5, 1000, [tree_of([-1, 0, 0, 0, 0])]))


def test_a_ring_of_the_same_size_costs_more_hops():
    # Eight GPUs of one chain: 14 hops as a tree, 14 as a ring; over eight nodes 2 x 3 hops against 14.
    size, graph = 8, star(8)
    chain = tree.build(plan_of("tree", 8, 1, size, [chained_tree(8, 1, 0)], protocol="ll"))
    plan = plan_of("ring", 8, 1, size, [None], protocol="ll")
    round_about = ring.build(replace(plan, channels=(Channel(0, ring=tuple(range(8))),)))
    assert simulate(graph, chain).time_s * 2 < simulate(graph, round_about).time_s
