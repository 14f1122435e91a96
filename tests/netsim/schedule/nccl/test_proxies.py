"""What lies between nodes: lanes write into a buffer at home, proxies send, slots at home and over there, announcements."""

from dataclasses import replace

import pytest

from netsim.runs import simulate
from netsim.schedule.dag import COMPUTE, TRANSFER
from netsim.schedule.nccl import nvls_tree, ring, tree
from netsim.schedule.nccl.costs import Costs, Network, Rates
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.schedule.proof import prove
from netsim.testing import star
from tests.netsim.schedule.nccl.over_nodes import chained_tree, head_trees, nodes_of, shares_of

NODES = ((0,), (1,))


def broadcast(chunks, protocol="simple", *, slots=2, costs=None, flows=()):
    """Plan a broadcast from rank 0 on one node to rank 1 on another, in chunks of 1000 bytes on one channel."""
    channel = Channel(0, ring=(0, 1), flows=flows)
    plan = Plan("broadcast", "ring", protocol, 2, chunks * 1000, (channel,), ((0, chunks * 1000),), 1000, slots=slots)
    return replace(plan, nodes=NODES, costs=costs or Costs(feed_bytes=0))


def times(schedule, kind, rank, **links):
    """Return when the operations of a kind on the lanes of a rank end, in microseconds."""
    record = simulate(star(schedule.ranks, **links), schedule)
    chosen = [
        op for op in range(len(schedule)) if schedule.kind[op] == kind and schedule.lane_names[schedule.lane[op]][0] == rank
    ]
    return [round(record.end_s[op] * 1e6, 6) for op in chosen]


def test_a_lane_is_free_when_the_slice_is_in_its_buffer_and_the_proxy_sends_it_whole():
    # 1000 bytes cost the lane 0.1 us, the link 1 us and 2 us of latency: the first is over there after 0.1 + 1 + 2.
    costs = Costs(feed_bytes=0, rates=Rates(copy_send=10e9))
    schedule = ring.build(broadcast(2, slots=8, costs=costs))
    prove(schedule)
    assert times(schedule, COMPUTE, 0, latency_s=2e-6) == [0.1, 0.2]
    assert times(schedule, TRANSFER, 0, latency_s=2e-6) == [3.1, 4.1]


def test_a_slot_at_home_is_free_when_its_message_is_over_there():
    # Messages end after 3 and 4 us; the lane then writes its third and fourth slice into the two slots.
    schedule = ring.build(broadcast(4, slots=2))
    assert times(schedule, COMPUTE, 0, latency_s=2e-6) == [0, 0, 3, 4]


def test_a_message_waits_for_a_slot_over_there_and_for_the_word_of_it():
    # The receiver empties its slots when messages are there (3 and 4 us); the proxy sees so 5 us later and sends again.
    schedule = ring.build(broadcast(3, slots=2, costs=Costs(feed_bytes=0, network=Network(credit_s=5e-6))))
    assert times(schedule, TRANSFER, 0, latency_s=2e-6) == [3, 4, 8 + 3]


@pytest.mark.parametrize(("eager", "expected"), [(0, [3, 4]), (1000, [3, 4]), (999, [10, 11])])
def test_messages_above_the_eager_limit_are_announced_while_others_are_on_their_way(eager, expected):
    network = Network(eager_bytes=eager, rendezvous_s=7e-6)
    schedule = ring.build(broadcast(2, slots=8, costs=Costs(feed_bytes=0, network=network)))
    assert times(schedule, TRANSFER, 0, latency_s=2e-6) == expected


def test_what_ll_adds_counts_for_the_eager_limit():
    network = Network(eager_bytes=1999, rendezvous_s=7e-6)
    schedule = ring.build(broadcast(1, "ll", costs=Costs(feed_bytes=0, network=network)))
    assert times(schedule, TRANSFER, 0, latency_s=2e-6) == [7 + 2 + 2]  # 2000 bytes on the wire


@pytest.mark.parametrize(("channels", "late"), [(1, 0), (2, 3), (4, 6), (8, 9)])
def test_of_several_channels_the_slowest_message_counts(channels, late):
    # Every channel sends 1000 bytes; a hop is 3 us longer with each doubling of the channels.
    network = Network(spread_s=3e-6)
    size = channels * 1000
    parts = tuple((number * 1000, 1000) for number in range(channels))
    lanes = tuple(Channel(number, ring=(0, 1)) for number in range(channels))
    plan = Plan("broadcast", "ring", "simple", 2, size, lanes, parts, 1000, nodes=NODES)
    schedule = ring.build(replace(plan, costs=Costs(feed_bytes=0, network=network)))
    assert min(times(schedule, TRANSFER, 0, latency_s=2e-6)) == late + 1 + 2


def test_a_proxy_looks_at_one_message_after_the_other_before_it_is_posted():
    # LL: 2000 bytes on the wire, 4 us of the proxy and 2 us of the link, after which it looks at the next; 2 us of latency.
    network = Network(proxy_rate=0.5e9)
    schedule = ring.build(broadcast(2, "ll", slots=8, costs=Costs(feed_bytes=0, network=network)))
    assert times(schedule, TRANSFER, 0, latency_s=2e-6) == [4 + 2 + 2, 2 * (4 + 2) + 2]


def test_inside_a_node_lanes_send_themselves():
    schedule = ring.build(replace(broadcast(2), nodes=((0, 1),)))
    assert {schedule.lane_names[lane][1] for lane in schedule.lane[schedule.kind == TRANSFER]} == {"channel 0"}


def test_messages_say_which_network_card_they_use():
    schedule = ring.build(broadcast(2, flows=(3, 1)))
    assert schedule.flow[schedule.kind == TRANSFER].tolist() == [3, 3]


@pytest.mark.parametrize("build", [tree.build, nvls_tree.build])
def test_every_message_between_nodes_is_a_proxys(build):
    nodes, gpus, size = 3, 2, 100_000
    make, name = (chained_tree, "tree") if build is tree.build else (head_trees, "nvls_tree")
    channels = tuple(Channel(which, tree=make(nodes, gpus, which)) for which in range(2))
    plan = Plan("all_reduce", name, "simple", nodes * gpus, size, channels, shares_of(size, 2), 16384)
    schedule = build(replace(plan, nodes=nodes_of(nodes, gpus)))
    prove(schedule)
    moves = schedule.kind == TRANSFER
    between = schedule.src[moves] // gpus != schedule.dst[moves] // gpus
    proxies = ["proxy" in schedule.lane_names[lane][1] for lane in schedule.lane[moves]]
    assert between.any()
    assert between.tolist() == proxies


def test_messages_of_a_connection_use_its_queue_pairs_in_turn():
    schedule = ring.build(replace(broadcast(5, slots=8, flows=(1, 0)), queue_pairs=2))
    moves = schedule.flow[schedule.kind == TRANSFER]
    assert (moves % 7).tolist() == [1] * 5  # whatever the number of cards, it is the same card
    assert len(set(moves.tolist())) == 2
    assert moves.tolist()[::2] == [moves[0]] * 3
