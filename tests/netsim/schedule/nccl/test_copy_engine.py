"""Copy-engine collectives: proved, in NCCL's order, one copy after the other has been delivered, in rounds when large."""

import numpy as np
import pytest

from netsim.errors import ScheduleError
from netsim.runs import simulate
from netsim.schedule.dag import TRANSFER
from netsim.schedule.nccl.copy_engine import COLLECTIVES, CopyPlan, build
from netsim.schedule.nccl.costs import Costs, Rates
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star

MIB = 1024**2


def targets(schedule, rank):
    moves = (schedule.kind == TRANSFER) & (schedule.src == rank)
    return schedule.dst[moves].tolist()


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", range(1, 18))
def test_everything_is_proved(ranks, collective):
    root = ranks - 1 if collective in ("gather", "scatter") else 0
    for size in (0, ranks - 1, 1009):
        for engines in (1, 3):
            schedule = build(CopyPlan(collective, ranks, size, engines=engines, root=root))
            prove(schedule)
            assert ranks > 1 or not len(schedule)


def test_data_goes_through_it():
    given = [np.arange(10) + 100 * rank for rank in range(4)]
    for got in replay(build(CopyPlan("all_gather", 4, 40, engines=2)), given):
        assert np.array_equal(got, np.concatenate(given))


def test_peers_come_in_turn_from_the_next_rank_on():
    schedule = build(CopyPlan("alltoall", 5, 500))
    assert targets(schedule, 3) == [4, 0, 1, 2]
    assert schedule.bytes_sent().tolist() == schedule.bytes_received().tolist() == [400] * 5


def test_a_copy_begins_when_the_one_before_has_been_delivered():
    # Flags 0.5 us, own block 1000 B at 2 GB/s, three copies of 1000 B at 1 GB/s with 2 us to start and 1 us on the way
    # each, flags again.
    costs = Costs(start_s=3e-6, slice_s=2e-6, flag_s=0.5e-6, feed_bytes=0, rates=Rates(recv=2e9))
    record = simulate(star(4), build(CopyPlan("all_gather", 4, 4000, costs=costs)))
    assert record.end_s.max() == pytest.approx((3 + 0.5 + 2.5 + 3 * (2 + 1 + 1) + 0.5) * 1e-6, rel=1e-9)
    record = simulate(star(4), build(CopyPlan("all_gather", 4, 4000, costs=costs, in_place=True)))
    assert record.end_s.max() == pytest.approx((3 + 0.5 + 3 * (2 + 1 + 1) + 0.5) * 1e-6, rel=1e-9)


def test_two_engines_work_at_the_same_time():
    # Four copies in place: two each, of 0 bytes on the wire to speak of.
    costs = Costs(slice_s=2e-6, feed_bytes=0)
    record = simulate(star(5), build(CopyPlan("all_gather", 5, 5, engines=2, in_place=True, costs=costs)))
    assert record.end_s.max() == pytest.approx(2 * (2e-6 + 1e-6), rel=1e-2)


def test_many_large_copies_go_in_rounds_that_rotate():
    # Nine copies of 100 MiB: rounds of 512/9 = 56.9 MiB; the second round begins with the second peer.
    schedule = build(CopyPlan("all_gather", 10, 10 * 100 * MIB, in_place=True))
    assert targets(schedule, 0) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9, 1]
    sizes = schedule.size[(schedule.kind == TRANSFER) & (schedule.src == 0)].tolist()
    chunk = 512 * MIB // 9
    assert sizes == [chunk] * 9 + [100 * MIB - chunk] * 9
    prove(schedule)


@pytest.mark.parametrize(
    ("ranks", "block", "copies"),
    [(9, 100 * MIB, 8), (10, 56 * MIB, 9)],  # eight copies; nine, but 504 MiB in all
)
def test_few_or_small_copies_go_whole(ranks, block, copies):
    assert len(targets(build(CopyPlan("all_gather", ranks, ranks * block, in_place=True)), 0)) == copies


def test_only_the_root_takes_part_in_a_scatter():
    schedule = build(CopyPlan("scatter", 4, 400, root=2))
    assert schedule.bytes_sent().tolist() == [0, 0, 300, 0]
    assert targets(schedule, 2) == [3, 0, 1]
    assert build(CopyPlan("gather", 4, 400, root=2)).bytes_received().tolist() == [0, 0, 300, 0]


def test_what_copy_engines_cannot_do_is_refused():
    with pytest.raises(
        ScheduleError, match="copy engines do no all_reduce; accepted are all_gather, alltoall, gather, scatter"
    ):
        CopyPlan("all_reduce", 4, 400)
    with pytest.raises(ScheduleError, match="0 copy engines; a rank has 1 or more"):
        CopyPlan("alltoall", 4, 400, engines=0)
