"""Messages that carry several ranges of the logical space."""

import numpy as np
import pytest

from netsim.engine.run import schedule_digest, simulate
from netsim.errors import ProofError, ScheduleError
from netsim.schedule.dag import BRANCH, HEAD, LEG, OUTPUT, TRUNK, ScheduleBuilder
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.schedule.words import steps_in_words
from netsim.testing import star


def broadcast(*ranges, size=10, ranks=2):
    plan = ScheduleBuilder("broadcast", "by hand", ranks, size)
    for parts in ranges:
        plan.send(0, 1, ranges=parts)
    return plan.build()


def test_a_message_counts_the_bytes_of_all_its_ranges():
    schedule = broadcast([(0, 3), (5, 5)], [(3, 2)])
    assert schedule.size.tolist() == schedule.wire.tolist() == [8, 2]
    assert schedule.bytes_sent().tolist() == [10, 0]
    assert schedule.ranges(0) == [(0, 3), (5, 5)]
    assert schedule.ranges(1) == [(3, 2)]


def test_the_table_is_absent_where_every_message_has_one_range():
    schedule = broadcast([(0, 10)])
    assert schedule.ranges_start is None
    assert schedule.ranges(0) == [(0, 10)]


def test_proof_and_replay_follow_every_range():
    schedule = broadcast([(0, 3), (5, 5)], [(3, 2)])
    prove(schedule)
    assert replay(schedule, [np.arange(10), None])[1].tolist() == list(range(10))


def test_a_range_that_is_missing_is_named():
    with pytest.raises(ProofError, match="rank 1, bytes 3 to 5: the input of rank 0 is missing"):
        prove(broadcast([(0, 3), (5, 5)]))


def test_two_messages_may_not_race_for_one_of_their_ranges():
    with pytest.raises(ProofError, match="in 2 ranges.* race for the same data \\(rank 1, bytes 5 to 10\\)"):
        prove(broadcast([(0, 3), (5, 5)], [(3, 7)]))


def test_arrays_of_messages_give_the_same_schedule_as_one_by_one():
    plan = ScheduleBuilder("broadcast", "by hand", 2, 10)
    ranges = ([2, 1], [0, 5, 3], [3, 5, 2])
    plan.add(2, src=0, dst=1, lane=plan.lane(0), ranges=ranges)
    assert schedule_digest(plan.build()) == schedule_digest(broadcast([(0, 3), (5, 5)], [(3, 2)]))


def test_digests_tell_ranges_apart():
    one, other = broadcast([(0, 3), (5, 5)]), broadcast([(0, 3), (4, 5)])
    assert one.size.tolist() == other.size.tolist()
    assert schedule_digest(one) != schedule_digest(other)


def test_engines_see_one_message_with_the_summed_bytes():
    record = simulate(star(2, latency_s=1e-6, bandwidth_bytes_per_s=1e6), broadcast([(0, 3), (5, 5)], [(3, 2)]))
    assert record.messages == 2
    assert record.time_s == pytest.approx(1e-6 + 10e-6)


def test_words_count_the_ranges():
    assert list(steps_in_words(broadcast([(0, 3), (5, 5)]))) == ["step 1: r0->r1 chunk 0 (2 ranges)"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"ranges": [(0, 3), (8, 3)]}, "reaches outside the data"),
        ({"ranges": [(0, 3), (-1, 1)]}, "reaches outside the data"),
        ({"ranges": [(0, 3), (2, 3)]}, "carries the same bytes in two ranges"),
        ({"ranges": [(0, 3), (0, 3)]}, "carries the same bytes in two ranges"),
        ({"ranges": [(0, 5), (7, -1)]}, "a range of negative size"),
        ({"ranges": []}, "either a size and an offset, or one or more ranges"),
        ({"ranges": [(0, 3)], "size": 3}, "either a size and an offset"),
        ({}, "from rank 0 to rank 1 needs a size in bytes, or ranges"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(columns, words):
    def build():
        plan = ScheduleBuilder("broadcast", "by hand", 2, 10)
        plan.send(0, 1, **columns)
        plan.build()

    with pytest.raises(ScheduleError, match=words):
        build()


@pytest.mark.parametrize("counts", [[1, 1], [3, 0], [1], [1, 1, 1]])
def test_counts_that_do_not_fit_the_ranges_are_refused(counts):
    plan = ScheduleBuilder("broadcast", "by hand", 2, 10)
    with pytest.raises(ScheduleError, match="3 ranges do not give each of 2 operations as many as counted"):
        plan.add(2, src=0, dst=1, lane=plan.lane(0), ranges=(counts, [0, 5, 3], [3, 5, 2]))


def test_empty_ranges_overlap_nothing():
    prove(broadcast([(0, 4), (2, 0), (4, 6)]))


def test_a_follower_must_carry_the_same_ranges():
    for parts, accepted in (([(0, 3), (5, 5)], True), ([(5, 5), (0, 3)], False)):
        plan = ScheduleBuilder("broadcast", "by hand", 3, 10)
        first = plan.send(0, 1, ranges=[(0, 3), (5, 5)])
        plan.send(1, 2, ranges=parts, after=[(first, HEAD)])
        plan.send(0, 1, offset=3, size=2)
        plan.send(0, 2, offset=3, size=2)
        if accepted:
            prove(plan.build())
        else:
            with pytest.raises(ProofError, match="race"):
                prove(plan.build())


def test_switches_copy_and_add_all_ranges():
    plan = ScheduleBuilder("all_reduce", "by hand", 2, 10)
    group = plan.group((0, 1))
    for parts in ([(0, 3), (5, 5)], [(3, 2)]):
        legs = [plan.send(rank, -1, ranges=parts, kind=LEG, group=group, from_input=True) for rank in (0, 1)]
        total = plan.send(-1, 0, ranges=parts, kind=OUTPUT, group=group, after=[(leg, HEAD) for leg in legs])
        trunk = plan.send(0, -1, ranges=parts, kind=TRUNK, group=group, after=[total])
        plan.send(-1, 1, ranges=parts, kind=BRANCH, group=group, after=[(trunk, HEAD)])
    schedule = plan.build()
    prove(schedule)
    assert [part.tolist() for part in replay(schedule, [np.arange(10), np.ones(10, int)])] == [list(range(1, 11))] * 2
