"""What a switch delivers into a buffer of its own disturbs neither slots nor readers, where messages land in slots."""

import pytest

from netsim.errors import ProofError
from netsim.schedule.dag import BRANCH, HEAD, LEG, OUTPUT, TRUNK, ScheduleBuilder
from netsim.schedule.proof import prove


def sum_with_a_slot(*, buffered, wait=True, end=True):
    """Ranks 0 and 1 at a switch, rank 2 apart: its input lies in a slot of rank 0 while the switch's sum arrives."""
    plan = ScheduleBuilder("reduce", "by hand", 4, 8, root=3, buffered=buffered)
    group = plan.group((0, 1))
    slot = plan.send(2, 0, size=8, reduce=True)
    after = [slot] if wait else []
    legs = [plan.send(rank, -1, size=8, kind=LEG, group=group, from_input=True, after=after) for rank in (0, 1)]
    sum_at_0 = plan.send(-1, 0, size=8, kind=OUTPUT, group=group, after=[(leg, HEAD) for leg in legs])
    plan.send(0, 3, size=8, reduce=True, after=[sum_at_0, *([slot] if end else [])])
    return plan.build()


@pytest.mark.parametrize("wait", [True, False])
def test_a_sum_of_the_switch_leaves_what_lies_in_a_slot(wait):
    prove(sum_with_a_slot(buffered=True, wait=wait))


def test_elsewhere_it_replaces_what_was_added_before_or_races_with_it():
    with pytest.raises(ProofError, match="the input of rank 2 is missing"):
        prove(sum_with_a_slot(buffered=False))
    with pytest.raises(ProofError, match="race for the same data"):
        prove(sum_with_a_slot(buffered=False, wait=False))


def test_a_slot_that_is_not_waited_for_is_missing():
    with pytest.raises(ProofError, match="the input of rank 2 is missing"):
        prove(sum_with_a_slot(buffered=True, wait=False, end=False))


def copies(*, buffered):
    """Rank 0 gives its data to the switch, which copies it to both, and to rank 2 from the same memory."""
    plan = ScheduleBuilder("broadcast", "by hand", 3, 8, buffered=buffered)
    group = plan.group((0, 1))
    plan.send(0, 2, size=8)
    trunk = plan.send(0, -1, size=8, kind=TRUNK, group=group, lane=plan.lane(0, "trunk"))
    for rank in (0, 1):
        columns = {"lane": plan.lane(rank, "branch"), "after": [(trunk, HEAD)]}
        plan.send(-1, rank, size=8, kind=BRANCH, group=group, **columns)
    return plan.build()


def test_a_copy_of_the_switch_does_not_disturb_who_still_reads():
    prove(copies(buffered=True))
    with pytest.raises(ProofError, match="race for the same data"):
        prove(copies(buffered=False))


def multicast_of_a_sum(*, buffered, milestone):
    """All-reduce of two ranks: the trunk follows the sum as it comes."""
    plan = ScheduleBuilder("all_reduce", "by hand", 2, 8, buffered=buffered)
    group = plan.group((0, 1))
    columns = {"size": 8, "group": group}
    legs = [plan.send(rank, -1, kind=LEG, from_input=True, **columns) for rank in (0, 1)]
    total = plan.send(-1, 0, kind=OUTPUT, after=[(leg, HEAD) for leg in legs], lane=plan.lane(0, "sum"), **columns)
    trunk = plan.send(0, -1, kind=TRUNK, after=[(total, milestone)], lane=plan.lane(0, "trunk"), **columns)
    for rank in (0, 1):
        plan.send(-1, rank, kind=BRANCH, after=[(trunk, HEAD)], lane=plan.lane(rank, "branch"), **columns)
    return plan.build()


def test_a_head_may_hand_on_a_sum_as_it_comes():
    prove(multicast_of_a_sum(buffered=True, milestone=HEAD))
    with pytest.raises(ProofError, match="race for the same data"):  # in place the copy would overwrite what still comes
        prove(multicast_of_a_sum(buffered=False, milestone=HEAD))
