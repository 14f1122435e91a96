"""What a lane costs: work beside the link, pieces that lanes feed, and what begins early. Times by hand, links of 1 GB/s."""

import numpy as np
import pytest

from netsim.engine.run import simulate
from netsim.errors import ScheduleError
from netsim.fabric import Link
from netsim.metrics.bounds import check_run
from netsim.schedule.dag import END, HEAD, LEFT, ScheduleBuilder
from netsim.testing import line, star

US = 1e-6


def plan(ranks=2):
    return ScheduleBuilder("broadcast", "by hand", ranks, 1_000_000)


def times(schedule, graph=None, **options):
    built = schedule.build()
    record = simulate(graph or star(built.ranks), built, **options)
    check_run(built, record)
    return record.start_s / US, record.end_s / US


def close(values):
    return pytest.approx(np.array(values, float), rel=1e-9, abs=1e-9)


def test_a_message_has_not_left_before_its_lane_has_made_it():
    slow, quick = plan(), plan()
    slow.send(0, 1, size=1000, work=5 * US)
    quick.send(0, 1, size=9000, work=5 * US)
    # 1 us of bytes against 5 us of work, and 9 against 5; then 1 us of latency.
    assert times(slow)[1] == close([6])
    assert times(quick)[1] == close([10])


def test_the_link_is_free_while_the_lane_still_works():
    both = plan()
    both.send(0, 1, size=1000, work=5 * US, lane=both.lane(0, "a"))
    both.send(0, 1, size=1000, lane=both.lane(0, "b"))
    # The second lane's bytes follow the first's at 1 us, though the first lane is at work until 5 us.
    assert times(both) == (close([0, 1]), close([6, 3]))


def test_a_lane_goes_on_when_its_work_is_done():
    one = plan()
    one.send(0, 1, size=1000, work=5 * US, duration=1 * US)
    one.send(0, 1, size=1000)
    # 1 us before it asks, then 5 us of work: free at 6 us.
    assert times(one) == (close([1, 6]), close([7, 8]))


def test_pieces_of_several_lanes_take_turns():
    fed = plan()
    for name in "ab":
        fed.send(0, 1, size=4000, work=4 * US, feed=1000, lane=fed.lane(0, name))
    # Each lane makes a piece of 1 us every 1 us and both ask together: the link serves a, b, a, b... A lane begins a
    # piece when the last but one has left, so both end within a piece of each other, at 7 and 8 us, and 1 us of latency.
    assert times(fed)[1] == close([8, 9])


def test_a_slow_lane_feeds_its_link_bit_by_bit():
    fed = plan()
    fed.send(0, 1, size=4000, work=8 * US, feed=1000)
    fed.send(0, 1, size=4000, lane=fed.lane(0, "other"))
    # Pieces ask at 0, 2, 4 and 6 us; the other lane's 4 us go in at 1 us and are through at 5, so the second piece waits
    # from 2 to 5 us. The fourth cannot be begun before the second has left, at 6 us, and is made by 8.
    start, end = times(fed)
    assert start == close([0, 1])
    assert end == close([9, 6])


def test_a_fed_message_is_at_its_end_when_its_last_piece_is():
    fed = plan()
    fed.send(0, 1, size=10_000, feed=1000)
    # Cut-through over 1 GB/s and 2 GB/s: 10 us and 1 us + 3 us of latency, in pieces or whole.
    assert times(fed, line(Link(1 * US, 1e9), Link(3 * US, 2e9)))[1] == close([14])


@pytest.mark.parametrize(("early", "finish"), [(False, 2 + 3 + 1), (True, 3 + 1)])
def test_what_begins_early_works_while_it_waits(early, finish):
    two = plan(3)
    first = two.send(0, 1, size=1000)
    # The first is there at 2 us. Then 3 us of work, or the rest of it if it began at once, and 1 us to the end.
    two.send(1, 2, size=1, work=3 * US, after=[first], early=early)
    assert times(two)[1] == close([2, finish])


def test_an_early_kernel_ends_with_what_it_waits_for_or_with_its_own_work():
    waiting, working = plan(), plan()
    for schedule, seconds in ((waiting, 1 * US), (working, 7 * US)):
        first = schedule.send(0, 1, size=1000)
        schedule.compute(1, seconds, after=[(first, END)], early=True)
    assert times(waiting) == (close([0, 0]), close([2, 2]))
    assert times(working) == (close([0, 0]), close([2, 7]))


def test_lines_that_are_passed_on_end_with_the_slower_of_work_and_arrival():
    for work, finish in ((2 * US, 12), (30 * US, 31)):
        two = plan(3)
        first = two.send(0, 1, size=10_000)
        two.send(1, 2, size=10_000, work=work, after=[(first, HEAD)], early=True)
        # The first arrives from 1 to 11 us; the second has left by then, or when its lane is done, and takes 1 us more.
        assert times(two)[1] == close([11, finish])


def test_a_slot_is_free_when_its_lane_has_used_it():
    one = plan(2)
    first = one.send(0, 1, size=1000)
    used = one.compute(1, 4 * US, after=[first])
    one.send(0, 1, size=1000, after=[(used, LEFT, 2 * US)])
    # There at 2 us, used by 6 us, known to the sender at 8 us; 2 us to the end.
    assert times(one)[1] == close([2, 6, 10])


@pytest.mark.parametrize("quantum", [0, 700, 5000])
def test_a_quantum_changes_nothing_on_an_idle_path(quantum):
    for feed in (0, 1000, 3000):
        one = plan()
        one.send(0, 1, size=10_000, work=15 * US, feed=feed)
        assert times(one, quantum_bytes=quantum)[1] == close([16])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"work": -1.0}, "a work that is not zero or more seconds"),
        ({"work": float("nan")}, "a work that is not zero or more seconds"),
        ({"feed": -1}, "pieces of a negative size"),
        ({"posted": True, "work": 1.0}, "is posted"),
        ({"posted": True, "early": True}, "is posted"),
    ],
)
def test_costs_that_make_no_sense_are_refused(columns, words):
    wrong = plan()
    wrong.send(0, 1, size=1000, **columns)
    with pytest.raises(ScheduleError, match=words):
        wrong.build()


def test_only_a_whole_message_can_be_followed():
    wrong = plan(3)
    first = wrong.send(0, 1, size=1000, feed=100)
    wrong.send(1, 2, size=1000, after=[(first, HEAD)])
    with pytest.raises(ScheduleError, match="feeds in pieces"):
        wrong.build()
    follower = plan(3)
    whole = follower.send(0, 1, size=1000)
    follower.send(1, 2, size=1000, feed=100, after=[(whole, HEAD)])
    with pytest.raises(ScheduleError, match="is fed in pieces by its lane, but follows the head"):
        follower.build()


def test_what_computes_keeps_its_lane():
    wrong = plan()
    wrong.compute(0, 1e-6, posted=True)
    with pytest.raises(ScheduleError, match=r"is posted, but computes"):
        wrong.build()


@pytest.mark.parametrize("quantum", [0, 1000])
def test_what_travels_in_other_pieces_is_followed_when_all_of_it_is_there(quantum):
    host = {"kind": "host_memory", "store_and_forward": True, "piece_bytes": 2000, "transit": True}
    graph = line(Link(0.0, 1e9), Link(0.0, 1e9), kinds=[host])
    graph.add_node("gpu2", kind="gpu")
    graph.graph["ranks"] = ("gpu0", "gpu1", "gpu2")
    graph.add_edge("gpu1", "gpu2", link=Link(0.0, 1e9))
    graph.add_edge("gpu2", "gpu1", link=Link(0.0, 1e9))
    two = plan(3)
    first = two.send(0, 1, size=10_000)
    two.send(1, 2, size=10_000, after=[(first, HEAD)])
    # Stored in pieces of 2,000 bytes the first is there at 12 us, in pieces of 1,000 at 11 us; a quantum cuts both alike,
    # and then the follower passes each piece on as it comes.
    assert times(two, graph, quantum_bytes=quantum)[1] == close([11, 11] if quantum else [12, 22])
