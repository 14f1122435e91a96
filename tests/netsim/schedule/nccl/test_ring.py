"""NCCL's rings: proved and replayed, with the bytes, the orders and the latencies that the sources state."""

from itertools import product

import numpy as np
import pytest

from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.runs import simulate
from netsim.schedule.dag import COMPUTE
from netsim.schedule.nccl import ring
from netsim.schedule.nccl.costs import FREE, Costs, Rates
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.schedule.nccl.protocols import PROTOCOLS
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
BLOCKS = ("all_gather", "reduce_scatter")


def plan_of(collective, ranks, size, protocol="simple", *, channels=2, chunk=4096, orders=None, **more):
    total = size // ranks if collective in BLOCKS else size
    each = -(-total // channels)
    each += -each % 16
    shares = tuple((min(c * each, total), min(each, total - min(c * each, total))) for c in range(channels))
    rings = orders or [tuple(range(ranks))] * channels
    numbered = tuple(Channel(number, ring=order) for number, order in enumerate(rings))
    more = {"slices": 2, "slots": 4, "least_slice_bytes": 512} | more if protocol == "simple" else more
    return Plan(collective, "ring", protocol, ranks, size, numbered, shares, chunk, **more)


@pytest.mark.parametrize(("collective", "protocol"), list(product(COLLECTIVES, PROTOCOLS)))
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 12, 17])
def test_every_ring_is_proved(collective, protocol, ranks):
    root = ranks - 1 if collective in ("broadcast", "reduce") else 0
    prove(ring.build(plan_of(collective, ranks, ranks * 3000, protocol, root=root)))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 100, 4096, 100_003])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_odd_sizes_and_those_below_the_ranks_are_proved(size, protocol):
    for ranks in (2, 3, 8):
        prove(ring.build(plan_of("all_reduce", ranks, size, protocol)))
        prove(ring.build(plan_of("broadcast", ranks, size, protocol, root=1)))
        prove(ring.build(plan_of("all_gather", ranks, size * ranks, protocol)))


def test_data_goes_through_it():
    ranks, rng = 5, np.random.default_rng(1)
    inputs = [rng.integers(0, 1000, 7001).astype(np.int64) for _ in range(ranks)]
    schedule = ring.build(plan_of("all_reduce", ranks, 7001 * 8, align_bytes=8))
    for output in replay(schedule, inputs):
        assert np.array_equal(output, sum(inputs))


@pytest.mark.parametrize(
    ("collective", "sent"),
    # Wire bytes of a rank and direction: 2 S (n - 1)/n for all-reduce, S (n - 1)/n with blocks; S a hop in pipelines.
    [
        ("all_reduce", [84_000] * 8),
        ("all_gather", [42_000] * 8),
        ("reduce_scatter", [42_000] * 8),
        ("broadcast", [*[48_000] * 7, 0]),
        ("reduce", [0, *[48_000] * 7]),
    ],
)
def test_bytes_that_leave_each_rank(collective, sent):
    schedule = ring.build(plan_of(collective, 8, 48_000, channels=3))
    assert schedule.bytes_sent().tolist() == sent


def test_the_worked_order_of_four_positions():
    # t0 S 3,0,1,2; t1 RRS 2,3,0,1; t2 RRS 1,2,3,0; t3 RRCS 0,1,2,3; t4 RCS 3,0,1,2; t5 RCS 2,3,0,1; t6 R 1,2,3,0
    schedule = ring.build(plan_of("all_reduce", 4, 4096 * 4, "ll", channels=1))
    table = [[], [], [], [], [], [], []]
    for op in range(len(schedule)):
        table[schedule.step[op]].append(int(schedule.chunk[op]))
    assert table == [[3, 0, 1, 2], [2, 3, 0, 1], [1, 2, 3, 0], [0, 1, 2, 3], [3, 0, 1, 2], [2, 3, 0, 1], [1, 2, 3, 0]]
    last = schedule.step == 6
    assert (schedule.kind[last] == COMPUTE).all()


def test_protocols_put_more_on_the_wire():
    wires = [
        int(ring.build(plan_of("broadcast", 2, 120_000, name, channels=1, chunk=120_000)).wire.sum()) for name in PROTOCOLS
    ]
    assert wires == [240_000, 128_000, 120_000]  # twice; 16/15; as it is


def test_a_ring_needs_the_latency_of_its_hops():
    graph = star(8, latency_s=1e-6)
    record = simulate(graph, ring.build(plan_of("all_reduce", 8, 8 * 16, "ll", channels=1)))
    # 14 hops of 1 us; 16 bytes are 32 on the wire, 0.032 us at 1 GB/s, once at each end of the way through each hop.
    assert record.time_s == pytest.approx(14e-6 + 0.032e-6, rel=1e-2)


def test_lines_are_passed_on_as_they_come_and_slices_when_they_are_there():
    graph = star(4, latency_s=0.0)
    size = 4 * 4096
    followed = simulate(graph, ring.build(plan_of("broadcast", 4, size, "ll", channels=1, chunk=size)))
    sliced = simulate(graph, ring.build(plan_of("broadcast", 4, size, "simple", channels=1, chunk=size, slices=1)))
    # LL: the wire carries 2 N once, whatever the number of hops; Simple: N a hop, three hops.
    assert followed.time_s == pytest.approx(2 * size / 1e9, rel=1e-9)
    assert sliced.time_s == pytest.approx(3 * size / 1e9, rel=1e-9)


def test_an_empty_slice_costs_its_lane():
    costs = Costs(slice_s=1e-6, feed_bytes=0)
    one, two = (
        simulate(star(2), ring.build(plan_of("broadcast", 2, 512, channels=1, slices=count, costs=costs))).time_s
        for count in (1, 2)
    )
    # 512 bytes fill the one slice that may not be shorter; the second is empty on both lanes, the receiver's is last.
    assert two == pytest.approx(one + 1e-6, rel=1e-9)


def test_a_window_of_slots_limits_what_is_on_its_way():
    # Case 20: two slots of 1,000 bytes on a way of 10 us there and 10 us back for the credit: 2,000 bytes each 21 us or so.
    graph = star(2, latency_s=10e-6, bandwidth_bytes_per_s=1e9)
    costs = Costs(credit_s=10e-6, feed_bytes=0)
    plan = plan_of("broadcast", 2, 100_000, channels=1, chunk=1000, slices=1, slots=2, costs=costs)
    record = simulate(graph, ring.build(plan))
    # A slot's turn: 1 us of bytes, 10 us there, 10 us back. 50 turns of two slots, the last without its credit.
    assert record.time_s == pytest.approx(50 * 21e-6 - 10e-6 + 1e-6, rel=1e-2)
    free = simulate(graph, ring.build(plan_of("broadcast", 2, 100_000, channels=1, chunk=1000, slices=1, slots=64)))
    assert free.time_s == pytest.approx(110e-6, rel=1e-9)


def test_lanes_set_the_time_where_they_are_slower_than_the_link():
    rates = Rates(**dict.fromkeys(("send", "copy_send", "recv_copy_send", "recv"), 100000000.0))
    costs = Costs(rates=rates, feed_bytes=1000)
    plan = plan_of("broadcast", 2, 100_000, channels=1, chunk=100_000, slices=1, slots=8, in_place=True, costs=costs)
    # 100 kB at 0.1 GB/s: 1 ms to send, then 1 ms to receive; the link would take 0.1 ms.
    assert simulate(star(2), ring.build(plan)).time_s == pytest.approx(2e-3 + 1e-6, rel=1e-3)
    registered = plan_of(
        "broadcast", 2, 100_000, channels=1, chunk=100_000, slices=1, in_place=True, costs=costs, registered=True
    )
    assert simulate(star(2), ring.build(registered)).time_s == pytest.approx(1e-3 + 1e-6, rel=1e-3)


def test_lanes_share_the_link_of_their_gpu():
    costs = Costs(rates=Rates(send=0.6e9, copy_send=0.6e9), feed_bytes=4096)
    times = []
    for channels in (1, 2, 4):
        plan = plan_of("broadcast", 2, 1_600_000, channels=channels, chunk=400_000, slices=1, costs=costs)
        times.append(simulate(star(2, latency_s=0.0), ring.build(plan)).time_s)
    # One lane of 0.6 GB/s; two of them would do 1.2, but the link has 1.
    assert times[0] == pytest.approx(1.6e6 / 0.6e9, rel=1e-3)
    assert times[1] == pytest.approx(1.6e6 / 1e9, rel=1e-2)
    assert times[2] == pytest.approx(1.6e6 / 1e9, rel=1e-2)


def test_the_start_of_the_kernel_is_paid_once_on_every_lane():
    plan = plan_of("all_reduce", 4, 4096, "ll", costs=Costs(start_s=5e-6, feed_bytes=0))
    free = plan_of("all_reduce", 4, 4096, "ll", costs=FREE)
    started, direct = (simulate(star(4), ring.build(one)).time_s for one in (plan, free))
    assert started == pytest.approx(direct + 5e-6, rel=1e-9)


def test_other_orders_of_ranks_are_rings_too():
    orders = [(0, 2, 4, 1, 3), (0, 3, 1, 4, 2)]
    for collective in COLLECTIVES:
        prove(ring.build(plan_of(collective, 5, 5000, orders=orders)))


def test_what_rings_do_not_serve_is_refused():
    with pytest.raises(ScheduleError, match="ring has no alltoall"):
        ring.build(plan_of("alltoall", 4, 4096))
    with pytest.raises(TooManyMessagesError, match="more than the limit of 10"):
        ring.build(plan_of("all_reduce", 4, 4096), limit=10)
