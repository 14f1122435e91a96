"""The proof against an event-graph criterion of races on small random schedules, and what heads do and do not grant."""

import itertools
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.errors import ProofError, ScheduleError
from netsim.schedule.dag import BRANCH, END, HEAD, LEFT, TRUNK, ScheduleBuilder
from netsim.schedule.proof import prove

START, HEAD_AT, LEFT_AT, END_AT = range(4)
AT = {END: END_AT, LEFT: LEFT_AT, HEAD: HEAD_AT}


def races(schedule):
    """Say whether two accesses to a byte of a rank overlap in some timing that keeps the requirements."""
    count = len(schedule)
    after = {(op, at): set() for op in range(count) for at in range(4)}
    for op in range(count):
        after[op, START] |= {(op, HEAD_AT), (op, LEFT_AT)}
        after[op, HEAD_AT].add((op, END_AT))
        after[op, LEFT_AT].add((op, END_AT))
        for need, milestone, _ in schedule.requirements(op):
            after[need, AT[milestone]].add((op, START))
            if milestone == HEAD:
                # The follower's last byte cannot leave before it has come.
                after[need, END_AT].add((op, LEFT_AT))

    @cache
    def reach(moment):
        return {moment} | {later for following in after[moment] for later in reach(following)}

    accesses = []
    for op in range(count):
        for byte in range(int(schedule.offset[op]), int(schedule.offset[op] + schedule.size[op])):
            if not schedule.from_input[op]:
                accesses.append((op, (int(schedule.src[op]), byte), False, (op, START), (op, LEFT_AT)))
            accesses.append((op, (int(schedule.dst[op]), byte), True, (op, START), (op, END_AT)))
    for one, other in itertools.combinations(accesses, 2):
        if one[0] == other[0] or one[1] != other[1] or not (one[2] or other[2]):
            continue
        if other[3] in reach(one[4]) or one[3] in reach(other[4]):
            continue
        if not (hands_on(schedule, one, other) or hands_on(schedule, other, one)):
            return True
    return False


def hands_on(schedule, write, read):
    """Say whether a read takes the bytes of a write as they come: it follows that head with the same bytes."""
    if not write[2] or read[2]:
        return False
    same = schedule.offset[write[0]] == schedule.offset[read[0]] and schedule.size[write[0]] == schedule.size[read[0]]
    follows = any(need == write[0] and milestone == HEAD for need, milestone, _ in schedule.requirements(read[0]))
    return bool(same) and follows


def complete(schedule):
    """Say whether following the ids brings the root's bytes to every rank, each sent only from where it is."""
    held = {(0, byte) for byte in range(schedule.size_bytes)}
    for op in range(len(schedule)):
        for byte in range(int(schedule.offset[op]), int(schedule.offset[op] + schedule.size[op])):
            source = (int(schedule.src[op]), byte)
            if source not in held or (schedule.from_input[op] and source[0] != 0):
                return False
            held.add((int(schedule.dst[op]), byte))
    return len(held) == schedule.ranks * schedule.size_bytes


@st.composite
def broadcasts(draw):
    """Draw a small broadcast of two bytes; most ranks get the data, some requirements are missing or too weak."""
    ranks = draw(st.integers(2, 4))
    plan = ScheduleBuilder("broadcast", "random", ranks, 2)
    reached, made = [0], []
    for _ in range(draw(st.integers(ranks - 1, 5))):
        src = draw(st.sampled_from(reached))
        dst = draw(st.sampled_from([rank for rank in range(ranks) if rank != src]))
        offset, size = draw(st.sampled_from([(0, 2), (0, 2), (0, 2), (0, 1), (1, 1)]))
        after = []
        for need, (to, other_size) in enumerate(made):
            if draw(st.integers(0, 9)) < (9 if to == src else 4):
                heads = [HEAD] if other_size == size else []
                after.append((need, draw(st.sampled_from([END, END, LEFT, *heads]))))
        plan.send(src, dst, size=size, offset=offset, after=after, from_input=draw(st.integers(0, 9)) == 0)
        made.append((dst, size))
        reached.append(dst)
    return plan.build()


@given(broadcasts())
@settings(max_examples=400)
def test_a_broadcast_is_proved_if_and_only_if_it_is_complete_and_nothing_races(schedule):
    good = complete(schedule) and not races(schedule)
    if good:
        prove(schedule)
    else:
        with pytest.raises(ProofError):
            prove(schedule)


def test_a_followed_operation_is_not_delivered_for_those_behind_the_follower():
    plan = ScheduleBuilder("broadcast", "by hand", 4, 10)
    first = plan.send(0, 1, size=10)
    second = plan.send(1, 2, size=10, after=[(first, HEAD)])
    plan.send(1, 3, size=10, after=[(second, HEAD)])
    with pytest.raises(ProofError, match="race"):
        prove(plan.build())


def test_what_a_follower_has_passed_on_has_come():
    plan = ScheduleBuilder("broadcast", "by hand", 4, 10)
    first = plan.send(0, 1, size=10)
    second = plan.send(1, 2, size=10, after=[(first, HEAD)])
    plan.send(1, 3, size=10, after=[(second, LEFT)])
    prove(plan.build())


def test_a_follower_of_other_bytes_sees_nothing():
    plan = ScheduleBuilder("broadcast", "by hand", 3, 10)
    halves = [plan.send(0, 1, size=5, offset=offset) for offset in (0, 5)]
    plan.send(1, 2, size=5, offset=5, after=[(halves[0], HEAD)])
    plan.send(1, 2, size=5, offset=0, after=[(halves[1], HEAD)], lane=plan.lane(1, "other"))
    with pytest.raises(ProofError, match="race"):
        prove(plan.build())


def test_a_trunk_is_still_read_when_a_branch_has_begun():
    plan = ScheduleBuilder("broadcast", "by hand", 3, 10)
    group = plan.group(range(3))
    trunk = plan.send(0, -1, size=10, kind=TRUNK, group=group)
    branches = [
        plan.send(-1, rank, size=10, kind=BRANCH, group=group, after=[(trunk, HEAD)], lane=plan.lane(rank))
        for rank in (1, 2)
    ]
    plan.send(1, 0, size=10, after=[(branches[0], HEAD)], lane=plan.lane(1, "back"))
    with pytest.raises(ProofError, match="race"):
        prove(plan.build())


def test_the_verdict_does_not_hang_on_the_order_of_ids():
    for sees_first in (True, False):
        plan = ScheduleBuilder("reduce", "by hand", 3, 10, root=0)
        add = plan.send(1, 0, size=10, reduce=True)
        orders = [END, LEFT] if sees_first else [LEFT, END]
        for place, milestone in enumerate(orders):
            plan.send(0, 2, size=10, after=[(add, milestone)], reduce=True, lane=plan.lane(0, f"lane {place}"))
        with pytest.raises(ProofError):
            prove(plan.build())


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"kind": 9}, "kind 9"),
        ({"wire": 3}, "fewer bytes on the wire"),
        ({"after": [(0, 7)]}, "milestone"),
        ({"src": 2, "lane": 0}, "lane of rank 0"),
        ({"src": -1, "dst": 2, "kind": BRANCH, "group": 0, "lane": 1}, "outside its group"),
        ({"src": -1, "dst": 1, "kind": BRANCH, "group": 5, "lane": 1}, "names no group"),
        ({"size": -1, "wire": -1}, "negative size"),
        ({"duration": float("nan")}, "duration"),
    ],
)
def test_an_operation_that_no_engine_could_run_is_refused(columns, words):
    plan = ScheduleBuilder("broadcast", "by hand", 3, 10)
    plan.send(0, 1, size=10)
    plan.group((0, 1))
    plan.lane(2, "send")
    given_columns = {"src": 0, "dst": 1, "size": 10} | columns
    plan.send(given_columns.pop("src"), given_columns.pop("dst"), **given_columns)
    with pytest.raises(ScheduleError, match=words):
        plan.build()


def test_digests_follow_groups_and_lanes():
    from netsim.engine.run import schedule_digest

    digests = set()
    for members in ((0, 1), (0, 1, 2)):
        plan = ScheduleBuilder("broadcast", "by hand", 3, 10)
        plan.send(0, -1, size=10, kind=TRUNK, group=plan.group(members))
        digests.add(schedule_digest(plan.build()))
    assert len(digests) == 2


def test_a_range_of_no_bytes_makes_no_other_bytes():
    plan = ScheduleBuilder("broadcast", "by hand", 3, 8)
    first = plan.send(0, 1, ranges=[(0, 8), (8, 0)])
    plan.send(1, 2, size=8, after=[(first, HEAD)])
    prove(plan.build())
