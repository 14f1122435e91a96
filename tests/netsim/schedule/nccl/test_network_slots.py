"""Slots and announcements between nodes by tree, PAT, sends and relays; `test_proxies` has the ring."""

from dataclasses import replace

import pytest

from netsim.schedule.dag import COMPUTE, TRANSFER
from netsim.schedule.nccl import pat, sendrecv, tree
from netsim.schedule.nccl.costs import Costs, Network
from netsim.schedule.nccl.peers import plan_of as peer_plan
from netsim.schedule.nccl.plan import Channel, Plan
from tests.netsim.schedule.nccl.over_nodes import chained_tree, plan_of
from tests.netsim.schedule.nccl.test_proxies import NODES, times

FAR = Costs(feed_bytes=0, network=Network(credit_s=20e-6))
"""A node hears 20 us late that a slot at another is free."""


def pair_of(algorithm, chunks, slots, costs):
    """Build something between two nodes of a GPU in chunks of 1000 bytes on one channel."""
    size = chunks * 1000
    if algorithm == "sendrecv":
        return sendrecv.build(
            peer_plan("sendrecv", NODES, size, channels=1, per_peer=1, chunk_bytes=1000, slots=slots, costs=costs)
        )
    if algorithm == "tree":
        trees = [chained_tree(2, 1, 0)]
        return tree.build(plan_of("tree", 2, 1, size, trees, chunk=1000, slots=slots, costs=costs))
    shares = ((0, size),)
    plan = Plan(algorithm, "pat", "simple", 2, 2 * size, (Channel(0),), shares, 1000, slots=slots, nodes=NODES, costs=costs)
    return pat.build(plan)


def test_a_tree_waits_for_slots_over_there_both_upwards_and_downwards():
    # Rank 1 is below rank 0. Up: over there after 3 and 4 us; the third goes when the root has used the first and this is
    # known, at 23. Down: what came at 3, 4 and 26 is over after 6, 7 and 29, the last being known to have a slot since 26.
    schedule = pair_of("tree", 3, 2, FAR)
    assert times(schedule, TRANSFER, 1, latency_s=2e-6) == [3, 4, 26]
    assert times(schedule, TRANSFER, 0, latency_s=2e-6) == [6, 7, 29]
    # The word of the third has no way to go: 3 us and 3 us more.
    near = pair_of("tree", 3, 2, Costs(feed_bytes=0))
    assert times(near, TRANSFER, 1, latency_s=2e-6) == [3, 4, 6]


def test_the_leaf_of_a_tree_writes_into_slots_at_home_and_waits_for_those():
    # The third slice is written when the first is over there, and the fourth when the second is; what comes down arrives
    # after 6, 7, 9 and 10 us.
    schedule = pair_of("tree", 4, 2, Costs(feed_bytes=0))
    assert sorted(times(schedule, COMPUTE, 1, latency_s=2e-6)) == [0, 0, 3, 4, 6, 7, 9, 10]


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_pat_waits_for_its_eight_slots_and_for_the_word_of_them(collective):
    # One group of threads sends a block and takes the other rank's, 3 us a turn. The ninth and tenth turn need the slots of
    # the first two, free after 3 and 6 us, which is known 40 us later.
    late = Costs(feed_bytes=0, network=Network(credit_s=40e-6))
    turns = [3, 6, 9, 12, 15, 18, 21, 24]
    assert times(pair_of(collective, 10, 8, late), TRANSFER, 0, latency_s=2e-6) == [*turns, 46, 49]
    assert times(pair_of(collective, 10, 8, Costs(feed_bytes=0)), TRANSFER, 0, latency_s=2e-6) == [*turns, 27, 30]


def test_sends_wait_for_slots_over_there_and_for_the_word_of_them():
    # Eight chunks, two slots: pairs of messages a turn of 23 us, the last bytes a microsecond after one another.
    schedule = pair_of("sendrecv", 8, 2, FAR)
    assert times(schedule, TRANSFER, 0, latency_s=2e-6) == [3, 4, 26, 27, 49, 50, 72, 73]
    near = pair_of("sendrecv", 8, 2, Costs(feed_bytes=0))
    assert times(near, TRANSFER, 0, latency_s=2e-6) == [3, 4, 6, 7, 9, 10, 12, 13]


@pytest.mark.parametrize(
    ("algorithm", "rank", "apart"), [("tree", 1, 1), ("sendrecv", 0, 1), ("all_gather", 0, 3), ("reduce_scatter", 0, 3)]
)
@pytest.mark.parametrize(("eager", "late"), [(0, 0), (1000, 0), (999, 7)])
def test_whatever_sends_announces_what_is_above_the_eager_limit(algorithm, rank, apart, eager, late):
    # The second message follows the first, or, by PAT, the receive after it, so that it is late twice.
    costs = Costs(feed_bytes=0, network=Network(eager_bytes=eager, rendezvous_s=7e-6))
    first, second = times(pair_of(algorithm, 8, 8, costs), TRANSFER, rank, latency_s=2e-6)[:2]
    assert first == 3 + late
    assert second - first == apart + (late if apart == 3 else 0)


def test_by_a_relay_only_the_way_through_the_network_has_the_networks_credit():
    # Rank 0 to rank 3 by rank 1: two slots on either way; a slot of the relay is free when its message is over there.
    plan = peer_plan("alltoall", [range(2), range(2, 4)], 8 * 4000, channels=1, per_peer=1, chunk_bytes=1000, slots=2)
    schedule = sendrecv.build(replace(plan, protocol="simple", costs=FAR))
    across = (schedule.kind == TRANSFER) & (schedule.src // 2 != schedule.dst // 2)
    for op in range(len(schedule)):
        lags = {lag for _, _, lag in schedule.requirements(op)}
        assert lags <= ({0.0, 20e-6} if across[op] else {0.0})
    # Eight messages of a pair in eight chunks: six of them wait.
    waiting = sum(any(lag for _, _, lag in schedule.requirements(op)) for op in across.nonzero()[0])
    assert waiting == 8 * 6
