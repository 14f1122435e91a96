"""CollNet: proved and replayed, bytes inside nodes and through the network's reducer, on graphs whose network adds."""

from dataclasses import replace

import numpy as np
import pytest

import topologies
from netsim.errors import FabricError, ScheduleError
from netsim.runs import simulate
from netsim.schedule.dag import LEG, OUTPUT, TRANSFER
from netsim.schedule.nccl import collnet
from netsim.schedule.nccl.costs import FREE, Costs, Rates
from netsim.schedule.nccl.plan import Channel
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star
from tests.netsim.schedule.nccl.over_nodes import chained_tree, further_s, node_chains, nodes_of, plan_of, servers

KIB = 1024
PLACES = [(nodes, gpus) for nodes in (1, 2, 3, 4) for gpus in range(1, 9) if nodes * gpus > 1]


def direct(nodes, gpus, size, *, heads=None, channels=2, **more):
    if heads:
        more["heads"] = tuple(node[:heads] for node in nodes_of(nodes, gpus))
    return plan_of("collnet_direct", nodes, gpus, size, [None] * channels, **more)


def chain(nodes, gpus, size, *, channels=2, **more):
    trees = [node_chains(nodes, gpus, number % gpus) for number in range(channels)]
    return plan_of("collnet_chain", nodes, gpus, size, trees, **more)


@pytest.mark.parametrize("gpus", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_nodes_and_gpus_of_any_number_are_proved(nodes, gpus):
    for heads in {1, gpus}:
        prove(collnet.build_direct(direct(nodes, gpus, 1009 * gpus, heads=heads, chunk=128, slots=2)))
    prove(collnet.build_chain(chain(nodes, gpus, 1009 * gpus, chunk=128, slots=2)))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 4096, 20_011])
def test_odd_sizes_and_those_below_the_ranks_are_proved(size):
    prove(collnet.build_direct(direct(3, 4, size)))
    prove(collnet.build_chain(chain(3, 4, size)))


def test_data_goes_through_them():
    rng = np.random.default_rng(1)
    inputs = [rng.integers(0, 1000, 7000) for _ in range(6)]
    for build, plan in (
        (collnet.build_direct, direct(2, 3, 7000 * 8, align_bytes=8)),
        (collnet.build_chain, chain(2, 3, 7000 * 8, align_bytes=8)),
    ):
        for output in replay(build(plan), inputs):
            assert np.array_equal(output, sum(inputs))


def by_end(end, schedule, *kinds):
    chosen = np.isin(schedule.kind, kinds)
    return np.bincount(end[chosen], schedule.size[chosen], schedule.ranks).astype(int).tolist()


@pytest.mark.parametrize(("nodes", "gpus"), PLACES)
def test_direct_sends_a_part_to_every_head_and_a_part_to_the_network(nodes, gpus):
    # A head gives the network S/H and gets S/H; inside the node 2 S (H - 1)/H each way where all are heads.
    size = gpus * 6000
    schedule = collnet.build_direct(direct(nodes, gpus, size, channels=1, chunk=2000))
    part = [6000] * (nodes * gpus)
    inside = [2 * 6000 * (gpus - 1)] * (nodes * gpus)
    assert by_end(schedule.src, schedule, LEG) == by_end(schedule.dst, schedule, OUTPUT) == part
    assert by_end(schedule.src, schedule, TRANSFER) == by_end(schedule.dst, schedule, TRANSFER) == inside


def test_direct_with_fewer_heads_than_gpus():
    # Of four GPUs two are heads: they get S/2 from the three others and give it back to them, and send and get S/2 of
    # the other head's part; the others send S and get S.
    schedule = collnet.build_direct(direct(2, 4, 8000, heads=2, channels=1, chunk=1000))
    assert by_end(schedule.src, schedule, LEG) == [4000, 4000, 0, 0] * 2
    assert by_end(schedule.src, schedule, TRANSFER) == [16_000, 16_000, 8000, 8000] * 2
    assert by_end(schedule.dst, schedule, TRANSFER) == [16_000, 16_000, 8000, 8000] * 2


@pytest.mark.parametrize(("nodes", "gpus"), PLACES)
def test_a_chain_carries_everything_once_each_way(nodes, gpus):
    schedule = collnet.build_chain(chain(nodes, gpus, 6000, channels=1, chunk=2000))
    links = [(gpu > 0) + (gpu < gpus - 1) for _ in range(nodes) for gpu in range(gpus)]
    assert by_end(schedule.src, schedule, TRANSFER) == by_end(schedule.dst, schedule, TRANSFER) == [6000 * n for n in links]
    heads = [6000 * (gpu == 0) for _ in range(nodes) for gpu in range(gpus)]
    assert by_end(schedule.src, schedule, LEG) == by_end(schedule.dst, schedule, OUTPUT) == heads


def test_small_messages_cost_the_hops_inside_and_one_way_through_the_network():
    # One byte of 1 ns: to the head and to the switch (1 us each), and to the other from the head (1 us). The output, as
    # all that comes from the star's switch, has no latency more.
    plan = direct(2, 2, 1, channels=1)
    assert simulate(star(4), collnet.build_direct(plan)).time_s == pytest.approx(3e-6 + 3e-9, rel=1e-3)
    # A chain of three: two hops up, the network, two hops down.
    plan = chain(2, 3, 1, channels=1)
    assert simulate(star(6), collnet.build_chain(plan)).time_s == pytest.approx(5e-6 + 5e-9, rel=1e-3)


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize(("build", "plan", "channels"), [(collnet.build_direct, direct, 4), (collnet.build_chain, chain, 8)])
def test_the_number_of_nodes_does_not_matter(nodes, build, plan, channels):
    # Inside a node GPUs send 2 S x 7/8 over 370.8 GB/s, both ways of building it: further 16 MiB take 79.2 us; the network
    # has S/8 a NIC.
    plans = [plan(nodes, 8, mib << 20, channels=channels, chunk=128 * KIB, costs=FREE) for mib in (16, 32)]
    seconds = further_s(servers(nodes, nvlink=370.8e9, cable=50e9), map(build, plans))
    assert seconds == pytest.approx(1.75 * (16 << 20) / 370.8e9, rel=1e-6)


@pytest.mark.parametrize(("build", "plan", "channels"), [(collnet.build_direct, direct, 4), (collnet.build_chain, chain, 8)])
def test_slow_nics_bind_by_an_eighth_of_the_size(build, plan, channels):
    # 16 MiB / 8 at 10 GB/s: 210 us.
    plans = [plan(2, 8, mib << 20, channels=channels, chunk=128 * KIB, costs=FREE) for mib in (16, 32)]
    seconds = further_s(servers(2, nvlink=370.8e9, cable=10e9), map(build, plans))
    assert seconds == pytest.approx((16 << 20) / 8 / 10e9, rel=1e-6)


def test_the_network_must_be_able_to_add():
    graph = topologies.build("hgx-h100", nodes=2, nic="ndr400")
    with pytest.raises(FabricError, match="no switch with reduce=True is linked to all of the 2 GPUs"):
        simulate(graph, collnet.build_direct(direct(2, 8, 1 << 20)))


def test_a_quarter_of_the_threads_works_for_each_group_of_direct_and_half_in_a_chain():
    # 512 bytes at 1 GB/s for 512 threads; 640 threads: groups of 160 or 320. Two nodes of one GPU: send to the network,
    # store what comes.
    costs = Costs(feed_bytes=0, rates=Rates(send=1e9, recv=1e9))
    fast = star(2, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    times = [
        simulate(fast, build(plan(2, 1, 512, channels=1, costs=costs))).time_s
        for build, plan in ((collnet.build_direct, direct), (collnet.build_chain, chain))
    ]
    assert times == pytest.approx([2 * 512 * 512 / 160 * 1e-9, 2 * 512 * 512 / 320 * 1e-9], rel=1e-6)


def test_slots_bound_what_is_on_its_way_through_the_network():
    # One GPU a node, the store of a chunk takes 10 us, nothing else anything. With one slot a chunk goes to the network
    # when the one before is stored and this is known: 5 us later.
    costs = Costs(feed_bytes=0, rates=Rates(recv=100 / 10e-6 * 2), credit_s=5e-6)
    fast = star(2, latency_s=0.0, bandwidth_bytes_per_s=1e18)
    plan = chain(2, 1, 400, channels=1, chunk=100, costs=costs, threads=512)
    # Half of 512 threads: 10 us a store. Four stores, and three credits between them.
    assert simulate(fast, collnet.build_chain(plan)).time_s == pytest.approx(40e-6, rel=1e-6)
    assert simulate(fast, collnet.build_chain(replace(plan, slots=1))).time_s == pytest.approx(55e-6, rel=1e-6)


def test_what_they_cannot_do_is_refused():
    with pytest.raises(ScheduleError, match="collnet_direct has no reduce; accepted is all_reduce"):
        collnet.build_direct(replace(direct(2, 2, 1000), collective="reduce"))
    with pytest.raises(ScheduleError, match="collnet_chain has no protocol ll; accepted is simple"):
        collnet.build_chain(replace(chain(2, 2, 1000), protocol="ll"))
    with pytest.raises(ScheduleError, match="collnet_direct takes at most 8 ranks a node, but one has 9"):
        collnet.build_direct(direct(2, 9, 1000))
    with pytest.raises(ScheduleError, match="tree of channel 0 is missing"):
        collnet.build_chain(replace(chain(2, 2, 1000), channels=(Channel(0), Channel(1))))
    with pytest.raises(ScheduleError, match="has 1 ranks without a parent; it must have 2"):
        collnet.build_chain(replace(chain(2, 2, 1000, channels=1), channels=(Channel(0, tree=chained_tree(2, 2, 0)),)))
    across = replace(chain(2, 2, 1000), nodes=((0, 2), (1, 3)))
    with pytest.raises(ScheduleError, match=r"has the chains \[\[0, 1\], \[2, 3\]\] for the nodes \(\(0, 2\), \(1, 3\)\)"):
        collnet.build_chain(across)
