"""PAT as NCCL runs it: proved and replayed, in the worked orders of nccl.md 2.8, with groups of threads and slots."""

import numpy as np
import pytest

from netsim.errors import ScheduleError
from netsim.runs import simulate
from netsim.schedule.dag import COMPUTE, TRANSFER
from netsim.schedule.nccl import pat
from netsim.schedule.nccl.costs import Costs, Rates
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.schedule.pat import message_offsets
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star

KIB = 1024
BOTH = ("all_gather", "reduce_scatter")


def plan_of(collective, ranks, block, *, chunk=512 * KIB, channels=1, protocol="simple", **more):
    each = -(-block // channels)
    shares = tuple((min(c * each, block), min(each, block - min(c * each, block))) for c in range(channels))
    numbered = tuple(Channel(number) for number in range(channels))
    return Plan(collective, "pat", protocol, ranks, ranks * block, numbered, shares, chunk, **more)


def messages(schedule, rank):
    return [op for op in range(len(schedule)) if schedule.kind[op] == TRANSFER and schedule.src[op] == rank]


@pytest.mark.parametrize("collective", BOTH)
@pytest.mark.parametrize("ranks", range(1, 18))
def test_everything_is_proved_and_sends_p_minus_1_blocks(ranks, collective):
    for block in (0, 1, 7, 1000):
        schedule = pat.build(plan_of(collective, ranks, block, chunk=200, channels=2))
        prove(schedule)
        assert schedule.bytes_sent().tolist() == schedule.bytes_received().tolist() == [(ranks - 1) * block] * ranks
        assert ranks > 1 or not len(schedule)


def test_a_large_one_is_proved():
    for collective in BOTH:
        prove(pat.build(plan_of(collective, 33, 600 * KIB)))


def test_data_goes_through_it():
    ranks, rng = 11, np.random.default_rng(3)
    whole = [rng.integers(0, 1000, ranks * 50) for _ in range(ranks)]
    scattered = replay(pat.build(plan_of("reduce_scatter", ranks, 50 * 8, chunk=160, align_bytes=8)), whole)
    for rank, got in enumerate(scattered):
        assert np.array_equal(got, sum(whole)[50 * rank : 50 * rank + 50])
    gathered = replay(pat.build(plan_of("all_gather", ranks, 50 * 8, chunk=160, align_bytes=8)), scattered)
    assert all(np.array_equal(got, sum(whole)) for got in gathered)


def test_eight_ranks_send_one_two_and_four_blocks():
    schedule = pat.build(plan_of("all_gather", 8, 1000))
    sent = messages(schedule, 5)
    assert schedule.dst[sent].tolist() == [1, 3, 4]
    assert [[offset // 1000 for offset, _ in schedule.ranges(op)] for op in sent] == [[5], [5, 1], [5, 7, 1, 3]]
    # Backwards: four sums to the next rank, two to the one after it, one to the fourth.
    schedule = pat.build(plan_of("reduce_scatter", 8, 1000))
    sent = messages(schedule, 1)
    assert schedule.dst[sent].tolist() == [2, 3, 5]
    assert [[offset // 1000 for offset, _ in schedule.ranges(op)] for op in sent] == [[2, 4, 6, 0], [3, 7], [5]]


@pytest.mark.parametrize(
    ("block", "sizes"),
    [
        (512, [1, 2, 4, 8, 16, 32, 64]),  # A = m = 64: one message a dimension
        (64 * KIB, [1, 2, 4] + [8] * 15),  # A = 64, m = 8
    ],
)
def test_messages_of_128_ranks(block, sizes):
    schedule = pat.build(plan_of("all_gather", 128, block))
    assert [len(schedule.ranges(op)) for op in messages(schedule, 77)] == sizes


def preorder(node):
    children = [node + (1 << bit) for bit in reversed(range((node & -node).bit_length() - 1))]
    return [node] + [below for child in children for below in preorder(child)]


@pytest.mark.parametrize("spread", [2, 4, 8, 16, 32, 64, 128])
def test_large_blocks_go_far_first_and_then_depth_first_down_eight_trees(spread):
    ranks = 8 * spread
    order = [offset for message in message_offsets(ranks, 512 * KIB) for offset in message]
    # A = 8 trees of D = `spread` each.
    far = [(2 * a + 1) * scale * spread for scale in (4, 2, 1) for a in range(4 // scale)]
    assert order[:7] == far
    top = [1 << bit for bit in reversed(range((spread - 1).bit_length()))]
    near = [q for node in top for q in preorder(node)]
    assert order[7:] == [a * spread + q for q in near for a in range(8)]


def test_the_order_of_one_tree_of_eight():
    assert [q for node in (4, 2, 1) for q in preorder(node)] == [4, 6, 7, 5, 2, 3, 1]


def test_a_message_waits_for_the_slot_of_the_eighth_before_it():
    schedule = pat.build(plan_of("all_gather", 64, 512 * KIB, slots=8))
    lanes = {}
    for op in messages(schedule, 9):
        lanes.setdefault(int(schedule.dst[op]), []).append(op)
    near = lanes[8]  # at distance 1 there are 32 messages of a block each
    assert len(near) == 32
    uses = {need for need, _, _ in schedule.requirements(near[8])}
    work = next(iter(uses))
    # What is written for the ninth message waits for rank 8's last use of the first.
    free = {schedule.lane_names[schedule.lane[need]][0] for need, _, _ in schedule.requirements(work)}
    assert 8 in free


RATES = Rates(*[10e9] * 7)


@pytest.mark.parametrize("collective", BOTH)
def test_four_groups_of_threads_take_four_blocks_at_once(collective):
    # One block takes a group u = 1000 B / (10 GB/s / 4) = 0.4 us. All-gather: offsets 4 and 2 and 1 at once; 6 and 5 when 4
    # has come; 3 and 7 when 2 and 6 have; then four blocks are taken out of the buffer: 4 u. Backwards it is the same.
    schedule = pat.build(plan_of(collective, 8, 1000, costs=Costs(feed_bytes=0, rates=RATES)))
    record = simulate(star(8, latency_s=0.0, bandwidth_bytes_per_s=1e15), schedule)
    assert record.end_s.max() == pytest.approx(4 * 0.4e-6, rel=1e-5)


def test_small_blocks_cost_one_latency_a_dimension():
    schedule = pat.build(plan_of("all_gather", 16, 8))
    record = simulate(star(16, latency_s=5e-6, bandwidth_bytes_per_s=1e15), schedule)
    assert record.end_s.max() == pytest.approx(4 * 5e-6, rel=1e-6)


def test_there_are_sixteen_groups_at_most_and_one_for_large_blocks():
    def groups(block):
        names = pat.build(plan_of("all_gather", 64, block)).lane_names
        return sum(rank == 0 and "worker" in role for rank, role in names)

    assert [groups(block) for block in (512, 64 * KIB, 512 * KIB)] == [16, 8, 1]


def test_the_own_block_is_copied_once_unless_it_is_in_place():
    # Only copies cost anything: each of 8 ranks sends its own block three times, the first time by a copying send.
    costs = Costs(feed_bytes=0, rates=Rates(copy_send=1e9))
    work = [pat.build(plan_of("all_gather", 8, 1000, costs=costs, in_place=place)).duration.sum() for place in (False, True)]
    assert work[0] == pytest.approx(8 * 4 * 1000 / 1e9)  # with a quarter of the threads
    assert work[1] == 0


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of("all_gather", 4, 100, protocol="ll"), "pat by protocol ll; accepted is simple"),
        (plan_of("all_gather", 4, 100, slots=4), "pat with 4 slots; its order needs 8 or more"),
        (Plan("all_reduce", "pat", "simple", 4, 100, (Channel(0),), ((0, 100),), 64), "pat has no all_reduce"),
    ],
)
def test_what_nccl_has_not_is_refused(plan, words):
    with pytest.raises(ScheduleError, match=words):
        pat.build(plan)


def test_only_messages_use_links():
    schedule = pat.build(plan_of("reduce_scatter", 6, 1000))
    assert set(schedule.kind.tolist()) == {TRANSFER, COMPUTE}
    assert (schedule.work == 0).all()
