"""Grouped sends and receives: proved, replayed, the right bytes on every link, and the time of halves and batches."""

import numpy as np
import pytest

import topologies
from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import COMPUTE
from netsim.schedule.nccl.costs import Costs, Rates
from netsim.schedule.nccl.peers import COLLECTIVES, PeerPlan, plan_of
from netsim.schedule.nccl.sendrecv import build
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star

KIB, MIB = 1024, 1024**2


def layouts(ranks):
    """One node, two unequal ones, and a node a rank."""
    half = ranks // 2
    kinds = [[range(ranks)], [range(half), range(half, ranks)], [[rank] for rank in range(ranks)]]
    return kinds if ranks > 1 else kinds[:1]


@pytest.mark.parametrize("protocol", ["ll", "simple"])
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", range(1, 18))
def test_everything_is_proved_on_one_node_and_on_several(ranks, collective, protocol):
    root = ranks // 2 if collective in ("gather", "scatter") else 0
    small = {"channels": 4, "per_peer": 2, "chunk_bytes": 4096, "least_part_bytes": 4096, "protocol": protocol, "root": root}
    for nodes in layouts(ranks):
        for size in {0, ranks - 1, 1009, 9000 * ranks if ranks < 9 else 0}:
            schedule = build(plan_of(collective, nodes, size, **small))
            prove(schedule)
            assert ranks > 1 or not len(schedule)


@pytest.mark.parametrize("pxn", [True, False])
def test_data_goes_through_it(pxn):
    ranks, size = 6, 6 * 5000
    plan = plan_of("alltoall", [range(3), range(3, 6)], size, channels=4, per_peer=4, chunk_bytes=2048, pxn=pxn)
    sent = [np.arange(size) + size * rank for rank in range(ranks)]
    bounds = block_bounds(size, ranks)
    for rank, got in enumerate(replay(build(plan), sent)):
        assert np.array_equal(got, np.concatenate([one[bounds[rank] : bounds[rank + 1]] for one in sent]))


def test_within_a_node_every_block_goes_once():
    schedule = build(plan_of("alltoall", [range(8)], 8 * 100_000))
    assert schedule.bytes_sent().tolist() == schedule.bytes_received().tolist() == [7 * 100_000] * 8


def test_ll_puts_twice_the_bytes_on_the_wire():
    schedule = build(plan_of("alltoall", [range(4)], 4 * 8000))
    assert schedule.protocol == "ll"
    assert schedule.wire.sum() == 2 * schedule.size.sum() == 2 * 12 * 8000


def test_parts_go_on_channels_of_their_own():
    schedule = build(plan_of("alltoall", [range(8)], 8 * MIB, in_place=True))
    moves = schedule.src >= 0
    # 1 MiB in four parts of 256 KiB; round r from its base on: 16 to 19 for round 1, 8 to 11 for round 2.
    lanes = {schedule.lane_names[lane] for lane in schedule.lane[moves & (schedule.src == 0) & (schedule.dst == 1)].tolist()}
    assert lanes == {(0, f"channel {channel} send 0") for channel in (16, 17, 18, 19)}
    assert set(schedule.size[moves].tolist()) == {256 * KIB}


def test_rings_of_send_and_receive_use_the_round_of_each_end():
    # Over groups of two ranks, rank 1 sends to 2 in another round than it receives from 0.
    schedule = build(plan_of("sendrecv", [range(2), range(2, 4)], 1000))
    steps = {(int(a), int(b)): int(step) for a, b, step in zip(schedule.src, schedule.dst, schedule.step, strict=True)}
    assert steps[0, 1] == 1  # distance 0, then one on
    assert steps[2, 3] == 1


def test_gather_is_the_roots_receives_alone():
    schedule = build(plan_of("gather", [range(5)], 5 * 1000, root=3))
    assert schedule.bytes_received().tolist() == [0, 0, 0, 4000, 0]
    assert schedule.bytes_sent().tolist() == [1000, 1000, 1000, 0, 1000]


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_by_pxn_all_to_all_stays_on_its_rails(nodes):
    block, ranks = 30_000, 8 * nodes
    graph = topologies.build("hgx-h100", nodes=nodes, nic="ndr400", fabric="rails")
    servers = [range(8 * node, 8 * node + 8) for node in range(nodes)]
    schedule = build(plan_of("alltoall", servers, ranks * block, channels=16, per_peer=2, protocol="simple"))
    record = simulate(graph, schedule)
    router = Router(graph)
    carried = dict(zip(router.edges, record.link_bytes.tolist(), strict=True))
    for (source, target), count in carried.items():
        if "spine" in source or "spine" in target:
            assert count == 0
        elif source.startswith("rail") or target.startswith("rail"):
            # A NIC carries what eight GPUs have for one GPU of each other node, and a GPU gets as much.
            assert count == (nodes - 1) * 8 * block
        elif "nvswitch" in source or "nvswitch" in target:
            # Seven blocks for the own node, and seven for the rails of the others in each other node.
            assert count == 7 * block * nodes
    network = [
        op for op in range(len(schedule)) if schedule.kind[op] != COMPUTE and schedule.src[op] // 8 != schedule.dst[op] // 8
    ]
    assert all(schedule.src[op] % 8 == schedule.dst[op] % 8 for op in network)


def test_without_pxn_the_sender_uses_its_own_nic():
    schedule = build(plan_of("alltoall", [range(4), range(4, 8)], 8 * 1000, pxn=False, protocol="simple"))
    moves = schedule.kind != COMPUTE
    pairs = set(zip(schedule.src[moves].tolist(), schedule.dst[moves].tolist(), strict=True))
    assert pairs == {(a, b) for a in range(8) for b in range(8) if a != b}
    assert schedule.bytes_sent().tolist() == [7000] * 8


def test_gpus_that_share_a_rail_do_not_relay_for_each_other():
    # Four GPUs and two NICs a node: 0 and 1 on rail 0, 2 and 3 on rail 1.
    plan = plan_of("alltoall", [range(4), range(4, 8)], 8000, rails=(0, 0, 1, 1) * 2, protocol="simple")
    schedule = build(plan)
    moves = schedule.kind != COMPUTE
    pairs = set(zip(schedule.src[moves].tolist(), schedule.dst[moves].tolist(), strict=True))
    network = {(a, b) for a, b in pairs if a // 4 != b // 4}
    assert network == {(a, b) for a in range(8) for b in range(8) if a // 4 != b // 4 and a % 4 // 2 == b % 4 // 2}


def test_over_the_network_messages_go_by_simple_even_where_the_node_uses_ll():
    schedule = build(plan_of("alltoall", [range(2), range(2, 4)], 4 * 1000))
    network = (schedule.kind != COMPUTE) & (schedule.src // 2 != schedule.dst // 2)
    assert (schedule.wire[network] == schedule.size[network]).all()
    inside = (schedule.kind != COMPUTE) & ~network & (schedule.chunk // 2 == schedule.src // 2)
    assert (schedule.wire[inside] == 2 * schedule.size[inside]).all()
    assert schedule.protocol == "simple"


def simple(**more):
    return Costs(feed_bytes=0, rates=Rates(send=40e9, recv=50e9), **more)


def time_us(schedule, ranks=2):
    return float(simulate(star(ranks, latency_s=0.0, bandwidth_bytes_per_s=1e15), schedule).end_s.max()) * 1e6


def test_a_part_of_one_chunk_is_sent_and_then_received_and_later_ones_overlap():
    def run(chunks, **more):
        size = chunks * 512 * KIB
        plan = plan_of("sendrecv", [range(2)], size, channels=1, per_peer=1, protocol="simple", costs=simple(**more))
        return time_us(build(plan))

    send, receive = 512 * KIB / 20e3, 512 * KIB / 25e3  # us at half the rates: 26.2 and 21.0
    assert run(1) == pytest.approx(send + receive, rel=1e-6)
    assert run(4) == pytest.approx(4 * send + receive, rel=1e-6)
    assert run(4, start_s=9e-6, halves=1.25) == pytest.approx(9 + (4 * send + receive) / 1.25, rel=1e-6)


def test_what_a_rank_copies_for_itself_does_not_make_it_start_as_simple():
    plan = plan_of("alltoall", [range(2)], 64, costs=simple(start_s=9e-6), ll_costs=simple(start_s=6e-6), protocol="auto")
    assert time_us(build(plan)) == pytest.approx(6, rel=1e-2)


def test_a_copy_for_oneself_costs_its_bytes_and_no_slices():
    # 32 KiB at the 50 GB/s of a whole block; the peer's 32 KiB come by LL, which costs nothing here.
    costs = simple(slice_s=5e-6, threads_s=4e-6)
    plan = plan_of("alltoall", [range(2)], 64 * KIB, channels=2, per_peer=1, costs=costs, protocol="ll")
    assert time_us(build(plan)) == pytest.approx(32 * KIB / 50e3, rel=1e-3)


def test_registered_receives_copy_nothing():
    plan = plan_of(
        "sendrecv", [range(2)], 512 * KIB, channels=1, per_peer=1, protocol="simple", costs=simple(), registered=True
    )
    assert time_us(build(plan)) == pytest.approx(512 * KIB / 20e3, rel=1e-6)


def test_rounds_of_a_block_share_a_channel_and_the_next_block_comes_after():
    # Ten ranks on one channel: nine messages of rank 0 in rounds 1 to 9 beside the copy of round 0. Eight rounds at a
    # time, an eighth of the threads for each; then rounds 8 and 9 with half of them each.
    size = 100 * KIB
    plan = plan_of("alltoall", [range(10)], 10 * size, channels=1, per_peer=1, protocol="simple", costs=simple())
    part_us = size / 40e3  # with all threads
    copies_us = size / 50e3
    # The first eight: a sixteenth of the threads sends, another receives what came; then a quarter each.
    assert time_us(build(plan), 10) == pytest.approx(16 * (part_us + copies_us) + 4 * (part_us + copies_us), rel=1e-6)


def test_the_own_block_is_copied_by_the_lane_unless_it_is_in_place():
    given = {"channels": 2, "per_peer": 1, "protocol": "simple", "costs": simple()}
    away, own = (build(plan_of("alltoall", [range(2)], 2 * MIB, in_place=place, **given)) for place in (True, False))
    # In place each rank has a send and a receive for two chunks; else one piece of lane work more.
    assert len(own) == len(away) + 2
    assert own.bytes_sent().tolist() == away.bytes_sent().tolist() == [MIB, MIB]


def test_a_relay_holds_the_sender_up_by_its_slots():
    # 256 KiB from rank 0 to rank 3 by rank 1 in four chunks of 64 KiB with two slots on either message's way.
    plan = plan_of("alltoall", [range(2), range(2, 4)], MIB, channels=1, per_peer=1, slots=2, protocol="simple")
    schedule = build(plan)

    # Rank 1 has 256 KiB of its own for rank 3, too; what is rank 0's lies in the first MiB.
    moves = list(zip(schedule.src, schedule.dst, schedule.chunk, schedule.offset < MIB, strict=True))
    relayed, sent_on = ([op for op, move in enumerate(moves) if move == (*pair, 3, True)] for pair in ((0, 1), (1, 3)))
    assert len(relayed) == len(sent_on) == 4
    assert [need for need, _, _ in schedule.requirements(relayed[2]) if need in sent_on] == [sent_on[0]]
    assert [need for need, _, _ in schedule.requirements(sent_on[2]) if need in relayed] == [relayed[2]]
    # The third chunk goes on only when the receiver has taken the first one out of its buffer.
    assert any(schedule.lane_names[schedule.lane[need]][0] == 3 for need, _, _ in schedule.requirements(sent_on[2]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"collective": "all_reduce"}, "send/recv has no all_reduce; accepted are alltoall, sendrecv, gather, scatter"),
        ({"protocol": "ll128"}, "within a node by protocol 'll128'; accepted are ll, simple, auto"),
        ({"rounds": ((0, 1), (0, 1))}, "must bring every rank to each rank exactly once"),
        ({"bases": (0,)}, "2 rounds but 1 base channels"),
        ({"rails": (0,)}, "1 rails for 2 ranks"),
        ({"chunk_bytes": 0}, "are each 1 or more"),
    ],
)
def test_plans_that_make_no_sense_are_refused(change, words):
    values = {
        "collective": "alltoall",
        "ranks": 2,
        "size_bytes": 8,
        "rounds": ((0, 1), (1, 0)),
        "channels": 1,
        "bases": (0, 0),
    }
    with pytest.raises(ScheduleError, match=words):
        PeerPlan(**(values | change))


def test_too_many_messages_are_refused():
    with pytest.raises(TooManyMessagesError, match="alltoall by p2p over 8 ranks needs more than the limit of 10 messages"):
        build(plan_of("alltoall", [range(8)], 8 * MIB), limit=10)
