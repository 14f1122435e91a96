"""What a slice costs its lane: rounds of LL, work beside waiting, turns on a shared link, and the rates of primitives."""

from dataclasses import replace

import pytest

from netsim.runs import simulate
from netsim.schedule.dag import TRANSFER
from netsim.schedule.nccl import ring, sendrecv
from netsim.schedule.nccl.costs import Costs, Rates
from netsim.schedule.nccl.peers import plan_of as peer_plan
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.testing import star

KIB = 1024
WIDE = {"latency_s": 0.0, "bandwidth_bytes_per_s": 1e18}
"""Links that cost nothing."""


def plan_of(collective, ranks, sizes, protocol="simple", *, rates=None, **more):
    """Plan a ring with a channel for each of `sizes`, which it has in one chunk of one slice."""
    costs = Costs(rates=rates or Rates())
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    channels = tuple(Channel(number, ring=tuple(range(ranks))) for number in range(len(sizes)))
    total = sum(sizes) * (ranks if collective == "all_gather" else 1)
    shares = tuple(zip(starts, sizes, strict=True))
    return Plan(collective, "ring", protocol, ranks, total, channels, shares, max(sizes), costs=costs, **more)


def time_us(schedule, **links):
    return simulate(star(schedule.ranks, **links), schedule).time_s * 1e6


@pytest.mark.parametrize(
    ("threads", "size", "worked"),
    # 512 threads do 4 KiB a round at 1 byte a nanosecond, 256 threads 2 KiB in as long; a part of a round counts whole,
    # but for the only one.
    [
        (512, 100, 0.1),
        (512, 4096, 4.096),
        (512, 4097, 8.192),
        (512, 5632, 8.192),
        (512, 8193, 12.288),
        (256, 2048, 4.096),
        (256, 2049, 8.192),
        (256, 5632, 12.288),
    ],
)
def test_lanes_of_a_ring_do_ll_in_rounds_of_4_kib(threads, size, worked):
    plan = plan_of("broadcast", 2, [size], "ll", rates=Rates(copy_send=1e9), threads=threads)
    assert time_us(ring.build(plan), **WIDE) == pytest.approx(worked, rel=1e-6)


@pytest.mark.parametrize(("protocol", "worked"), [("simple", 5.632), ("ll128", 5.632 * 640 / 512)])
def test_other_protocols_have_no_rounds(protocol, worked):
    plan = plan_of("broadcast", 2, [5632], protocol, rates=Rates(copy_send=1e9))
    assert time_us(ring.build(plan), **WIDE) == pytest.approx(worked, rel=1e-6)


@pytest.mark.parametrize(
    ("protocol", "size", "worked"),
    # The half of 512 threads that sends does 2 KiB a round, at half of 1 byte a nanosecond.
    [("ll", 2048, 4.096), ("ll", 2049, 8.192), ("ll", 5632, 12.288), ("simple", 5632, 11.264)],
)
def test_sends_by_ll_have_rounds_of_their_threads(protocol, size, worked):
    costs = Costs(rates=Rates(send=1e9))
    plan = peer_plan("sendrecv", [range(2)], size, channels=1, per_peer=1, protocol=protocol, costs=costs, ll_costs=costs)
    assert time_us(sendrecv.build(plan), **WIDE) == pytest.approx(worked, rel=1e-6)


SLOW_LINK = {"latency_s": 3e-6, "bandwidth_bytes_per_s": 2e9}
"""8 KiB on the wire, 4 KiB of LL, arrive 3 + 4.096 us after they are sent."""


@pytest.mark.parametrize(("rate", "ends"), [(1e9, 7.096), (0.5e9, 8.192)])
def test_by_ll_a_receiver_works_while_it_waits(rate, ends):
    # 4 KiB take the receiver 4.096 us, and it ends with the last byte; at half the rate 8.192 us, and it ends with that.
    plan = plan_of("broadcast", 2, [4096], "ll", rates=Rates(recv=rate))
    assert time_us(ring.build(plan), **SLOW_LINK) == pytest.approx(ends, rel=1e-6)


@pytest.mark.parametrize(("rate", "ends"), [(1e9, 10.096), (0.5e9, 11.192), (0.25e9, 19.384)])
def test_by_ll_a_rank_on_the_way_works_while_it_waits(rate, ends):
    # Two hops of 3 us and the bytes once, 4.096 us, where 4.096 us of work are over before; with 8.192 us and 16.384 us of
    # work the last byte leaves then, 3 us before the end.
    plan = plan_of("broadcast", 3, [4096], "ll", rates=Rates(recv_copy_send=rate))
    assert time_us(ring.build(plan), **SLOW_LINK) == pytest.approx(ends, rel=1e-6)


def test_by_ll128_the_fixed_cost_runs_while_a_rank_waits_too():
    # 3840 bytes are 32 lines, 4096 bytes on the wire: 2.048 us. All three ranks pay 5 us at once; the first sends from then
    # on, so that data meets the second one ready, and the last one, after two hops of 3 us.
    plan = replace(plan_of("broadcast", 3, [3840], "ll128"), costs=Costs(slice_s=5e-6))
    assert time_us(ring.build(plan), **SLOW_LINK) == pytest.approx(5 + 3 + 3 + 2.048, rel=1e-6)


def test_by_simple_a_receiver_works_when_it_has_the_slice():
    # 4 KiB are there after 3 + 2.048 us; then 4.096 us of work.
    plan = plan_of("broadcast", 2, [4096], rates=Rates(recv=1e9))
    assert time_us(ring.build(plan), **SLOW_LINK) == pytest.approx(9.144, rel=1e-6)


def test_two_lanes_take_turns_on_their_gpus_link_in_pieces_of_64_kib():
    # 64 KiB take 65.536 us. Slices of 16 and 2 pieces in turns: the short one is over after 4 pieces, the long one after 18;
    # whole slices would be over after 16 and 18.
    schedule = ring.build(plan_of("broadcast", 2, [16 * 64 * KIB, 2 * 64 * KIB]))
    record = simulate(star(2, latency_s=0.0), schedule)
    ends = record.end_s[schedule.kind == TRANSFER] * 1e6
    assert ends == pytest.approx([18 * 65.536, 4 * 65.536], rel=1e-6)


def test_two_sends_of_a_rank_take_turns_on_its_link_in_pieces_of_64_kib_too():
    # Three ranks have 256 KiB for each other. Two pieces of a lane may wait, so that of eight pieces of 65.536 us the first
    # message's are the first, second, fifth and sixth.
    plan = peer_plan("alltoall", [range(3)], 3 * 256 * KIB, channels=1, per_peer=1, protocol="simple", in_place=True)
    schedule = sendrecv.build(replace(plan, costs=Costs()))
    record = simulate(star(3, latency_s=0.0), schedule)
    for rank in range(3):
        ends = record.end_s[(schedule.kind == TRANSFER) & (schedule.src == rank)] * 1e6
        assert ends == pytest.approx([6 * 65.536, 8 * 65.536], rel=1e-6)


def test_lines_of_ll_are_not_fed_in_pieces():
    # Twice the bytes on the wire: 128 and 256 KiB of the lanes that ask first and second, one after the other.
    schedule = ring.build(plan_of("broadcast", 2, [64 * KIB, 128 * KIB], "ll"))
    assert not schedule.feed.any()
    record = simulate(star(2, latency_s=0.0), schedule)
    ends = record.end_s[schedule.kind == TRANSFER] * 1e6
    assert ends == pytest.approx([2 * 65.536, 6 * 65.536], rel=1e-6)


@pytest.mark.parametrize(("in_place", "worked"), [(False, 8.0), (True, 4.0)])
@pytest.mark.parametrize("collective", ["all_gather", "broadcast"])
def test_out_of_place_a_ring_begins_with_a_copying_send(collective, in_place, worked):
    # 4000 bytes at 0.5 and at 1 GB/s; nothing else costs anything.
    plan = plan_of(collective, 2, [4000], rates=Rates(copy_send=0.5e9, send=1e9), in_place=in_place)
    assert time_us(ring.build(plan), **WIDE) == pytest.approx(worked, rel=1e-6)


@pytest.mark.parametrize("primitive", ["send", "recv_reduce_send", "recv_reduce_copy_send", "recv_copy_send", "recv"])
def test_each_primitive_of_an_all_reduce_has_its_own_rate(primitive):
    # Three ranks have each primitive once, on a third of 6000 bytes: 2 us at 1 GB/s where the others cost nothing, and in
    # place or not it begins with a send.
    plan = Plan(
        *("all_reduce", "ring", "simple", 3, 6000, (Channel(0, ring=(0, 1, 2)),), ((0, 6000),), 2000),
        costs=Costs(rates=Rates(**{primitive: 1e9})),
    )
    assert time_us(ring.build(plan), **WIDE) == pytest.approx(2.0, rel=1e-6)
