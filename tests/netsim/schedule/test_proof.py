"""The proof refuses schedules that are wrong, and says what is wrong with them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.errors import ProofError, ScheduleError, StuckError
from netsim.schedule import order, walk
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import BRANCH, HEAD, LEFT, LEG, OUTPUT, TRUNK, ScheduleBuilder
from netsim.schedule.proof import prove


def plan(collective="all_reduce", ranks=2, size=8, **more):
    return ScheduleBuilder(collective, "by hand", ranks, size, **more)


def drop_requirement(schedule, place):
    keep = np.arange(len(schedule.requires_op)) != place
    op = int(np.searchsorted(schedule.requires_start, place, side="right")) - 1
    start = schedule.requires_start - (np.arange(len(schedule) + 1) > op)
    columns = {name: getattr(schedule, name)[keep] for name in ("requires_op", "requires_milestone", "requires_lag")}
    return dataclasses.replace(schedule, requires_start=start, **columns)


def test_two_ranks_that_swap_their_inputs_and_add_have_all_reduced():
    builder = plan()
    builder.send(0, 1, size=8, reduce=True)
    builder.send(1, 0, size=8, reduce=True)
    prove(builder.build())


def test_a_sum_may_not_be_used_while_the_own_copy_is_still_being_sent():
    builder = plan(ranks=3)
    first = builder.send(0, 1, size=8, reduce=True)
    second = builder.send(1, 0, size=8, reduce=True)
    builder.send(0, 2, size=8, reduce=True, after=[second])
    with pytest.raises(ProofError, match=f"operation 2 .* and operation {first} .* race"):
        prove(builder.build())


def test_waiting_until_the_own_copy_has_left_makes_the_sum_usable():
    builder = plan("reduce", ranks=3, root=2)
    first = builder.send(0, 1, size=8, reduce=True)
    second = builder.send(1, 0, size=8, reduce=True)
    builder.send(0, 2, size=8, reduce=True, after=[second, (first, LEFT)])
    prove(builder.build())


def test_a_missing_contribution_is_named_with_its_rank_and_bytes():
    builder = plan(ranks=3)
    first = builder.send(0, 1, size=8, reduce=True)
    back = builder.send(1, 0, size=8, after=[first])
    builder.send(1, 2, size=8, after=[back])
    with pytest.raises(ProofError, match="rank 0, bytes 0 to 8: the input of rank 2 is missing"):
        prove(builder.build())


def test_a_missing_receiver_is_named():
    builder = plan("broadcast", ranks=3)
    builder.send(0, 1, size=8)
    with pytest.raises(ProofError, match="rank 2, bytes 0 to 8: the input of rank 0 is missing"):
        prove(builder.build())


def test_half_the_bytes_are_not_enough():
    builder = plan("broadcast")
    builder.send(0, 1, size=4)
    with pytest.raises(ProofError, match="rank 1, bytes 4 to 8: the input of rank 0 is missing"):
        prove(builder.build())


def test_counting_an_input_twice_is_refused():
    builder = plan()
    first = builder.send(0, 1, size=8, reduce=True)
    second = builder.send(1, 0, size=8, reduce=True, after=[first])
    assert second == 1
    with pytest.raises(ProofError, match=r"operation 1 .* at rank 0, bytes 0 to 8 counts the input of rank 0 twice"):
        prove(builder.build())


def test_sending_what_is_not_there_is_refused():
    builder = plan("broadcast", ranks=3)
    builder.send(1, 2, size=8)
    with pytest.raises(ProofError, match=r"operation 0 .* sends data that is not there \(rank 1, bytes 0 to 8\)"):
        prove(builder.build())


def test_sending_an_input_that_a_rank_does_not_own_is_refused():
    builder = plan("broadcast", ranks=3)
    first = builder.send(0, 1, size=8)
    builder.send(1, 2, size=8, from_input=True, after=[first])
    with pytest.raises(ProofError, match="operation 1 .* sends an input that is not there"):
        prove(builder.build())


def test_forwarding_without_waiting_is_a_race():
    builder = plan("broadcast", ranks=3)
    builder.send(0, 1, size=8)
    builder.send(1, 2, size=8)
    with pytest.raises(ProofError, match="operation 1 .* and operation 0 .* race for the same data .*rank 1, bytes 0 to 8"):
        prove(builder.build())


def test_two_unordered_replacing_writes_race():
    builder = plan("broadcast", ranks=3)
    first = builder.send(0, 1, size=8)
    builder.send(0, 2, size=8)
    builder.send(1, 2, size=8, after=[first])
    with pytest.raises(ProofError, match="race"):
        prove(builder.build())


def test_overwriting_a_buffer_that_is_still_being_sent_is_a_race_and_waiting_for_left_mends_it():
    for after, fine in (([0], False), ([0, (1, LEFT)], True)):
        builder = plan("broadcast", ranks=3)
        builder.send(0, 1, size=8)
        builder.send(1, 2, size=8, after=[0])
        builder.send(0, 1, size=8, after=after)
        if fine:
            prove(builder.build())
        else:
            with pytest.raises(ProofError, match="race"):
                prove(builder.build())


def test_the_order_of_ids_does_not_matter():
    builder = plan("broadcast", ranks=3)
    builder.send(1, 2, size=8, after=[1])
    builder.send(0, 1, size=8)
    prove(builder.build())


def test_a_cycle_is_stuck_and_names_its_operations():
    builder = plan("broadcast", ranks=3)
    builder.send(0, 1, size=8)
    builder.send(1, 2, size=8, after=[0, 2])
    builder.send(2, 1, size=8, after=[1])
    with pytest.raises(StuckError, match="these 2 operations .* operation 1 .* operation 2 "):
        prove(builder.build())


def test_one_rank_must_not_have_operations():
    builder = plan(ranks=1)
    builder.compute(0, 1e-6)
    with pytest.raises(ProofError, match="over one rank moves nothing"):
        prove(builder.build())


def switch_broadcast(**branch):
    builder = plan("broadcast", ranks=3)
    group = builder.group(range(3))
    trunk = builder.send(0, -1, size=8, kind=TRUNK, group=group)
    for rank in (1, 2):
        columns = {"size": 8, "kind": BRANCH, "group": group, "after": [(trunk, HEAD)]} | branch
        builder.send(-1, rank, lane=builder.lane(rank, "branch"), **columns)
    return builder.build()


def test_a_branch_hands_on_its_trunk():
    prove(switch_broadcast())


@pytest.mark.parametrize("branch", [{"after": []}, {"after": [(0, LEFT)]}])
def test_a_branch_without_the_head_of_a_trunk_is_refused(branch):
    with pytest.raises(ProofError, match="requires 0 trunk operations"):
        prove(switch_broadcast(**branch))


def test_a_branch_of_another_group_or_range_is_refused():
    with pytest.raises(ProofError, match="differ in group or byte range"):
        prove(switch_broadcast(size=4, wire=8))


def test_an_output_that_adds_a_leg_twice_is_refused():
    builder = plan("reduce", ranks=2)
    columns = {"size": 8, "group": builder.group(range(2))}
    legs = [builder.send(1, -1, kind=LEG, **columns) for _ in range(2)]
    builder.send(-1, 0, kind=OUTPUT, reduce=True, after=[(leg, HEAD) for leg in legs], **columns)
    with pytest.raises(ProofError, match="counts the input of rank 1 twice"):
        prove(builder.build())


def test_a_switch_may_copy_back_to_where_the_bytes_came_from():
    schedule = build_schedule("all_reduce", "nvls", 3, 9)
    assert (schedule.dst[schedule.kind == BRANCH] == 0).any()
    prove(schedule)


WAITING = [
    *(("all_reduce", name) for name in ("ring", "tree", "double_binary_tree", "nvls", "chain", "flat", "two_shot")),
    ("all_reduce", "recursive_doubling"),
    ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
    ("broadcast", "tree"),
    ("reduce", "tree"),
    ("all_gather", "nvls"),
    ("reduce_scatter", "nvls"),
]


@pytest.mark.parametrize(("collective", "algorithm"), WAITING)
def test_no_requirement_of_these_builders_can_be_dropped(collective, algorithm):
    schedule = build_schedule(collective, algorithm, 8, 64)
    assert len(schedule.requires_op)
    for place in range(len(schedule.requires_op)):
        with pytest.raises(ProofError):
            prove(drop_requirement(schedule, place))


def test_halving_could_only_do_without_what_its_lanes_say_anyway():
    schedule = build_schedule("all_reduce", "halving_doubling", 8, 64)
    consumers = np.repeat(np.arange(len(schedule)), np.diff(schedule.requires_start))
    for place, (op, need) in enumerate(zip(consumers, schedule.requires_op, strict=True)):
        try:
            prove(drop_requirement(schedule, place))
        except ProofError:
            continue
        # The first halving step: the own send before it carried other bytes, and left the same lane.
        assert schedule.requires_milestone[place] == LEFT
        assert (schedule.lane[op], schedule.step[op]) == (schedule.lane[need], 1)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(("ring", "tree", "nvls", "double_binary_tree")), st.integers(2, 9), st.integers(1, 4), st.data())
def test_a_dropped_requirement_is_found_in_pipelines_too(algorithm, ranks, chunks, data):
    schedule = build_schedule("all_reduce", algorithm, ranks, 16 * ranks * chunks, chunks=chunks)
    place = data.draw(st.integers(0, len(schedule.requires_op) - 1))
    with pytest.raises(ProofError):
        prove(drop_requirement(schedule, place))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(("ring", "tree", "one_shot", "halving_doubling", "nvls")), st.integers(2, 9), st.data())
def test_a_transfer_that_moves_too_little_is_found(algorithm, ranks, data):
    schedule = build_schedule("all_reduce", algorithm, ranks, 8 * ranks)
    op = data.draw(st.integers(0, len(schedule) - 1))
    size = schedule.size.copy()
    size[op] -= 1
    with pytest.raises(ProofError):
        prove(dataclasses.replace(schedule, size=size))


def test_a_schedule_too_large_to_follow_is_refused_in_words(monkeypatch):
    schedule = build_schedule("all_reduce", "ring", 4, 16)
    monkeypatch.setattr(walk, "MAX_VISITS", 10)
    with pytest.raises(ScheduleError, match="24 steps to follow, more than 10; prove the same algorithm with fewer"):
        prove(schedule)
    monkeypatch.undo()
    monkeypatch.setattr(order, "MAX_COMPONENT", 5)
    with pytest.raises(ScheduleError, match="6 operations hang together"):
        prove(schedule)


def test_columns_that_no_engine_could_run_are_refused_even_if_replaced_after_building():
    schedule = build_schedule("all_reduce", "ring", 4, 400)
    with pytest.raises(ScheduleError, match="operation 0 .* has fewer bytes on the wire than it carries"):
        prove(dataclasses.replace(schedule, wire=schedule.wire // 2))
