"""Schedules told step by step."""

from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import ScheduleBuilder
from netsim.schedule.words import steps_in_words


def chunks_by_step(lines):
    return [[int(move.rsplit(" ", 1)[1]) for move in line.split(": ")[1].split(", ")] for line in lines]


def test_the_ring_of_four_prints_as_worked_out_by_hand():
    lines = list(steps_in_words(build_schedule("all_reduce", "ring", 4, 4_000_000)))
    assert lines[0] == "reduce-scatter step 1: r0->r1 chunk 0, r1->r2 chunk 1, r2->r3 chunk 2, r3->r0 chunk 3"
    assert [line.split(":")[0] for line in lines] == [
        f"{phase} step {step}" for phase in ("reduce-scatter", "all-gather") for step in (1, 2, 3)
    ]
    assert chunks_by_step(lines) == [[0, 1, 2, 3], [3, 0, 1, 2], [2, 3, 0, 1], [1, 2, 3, 0], [0, 1, 2, 3], [3, 0, 1, 2]]


def test_the_switch_is_named_where_it_takes_part():
    lines = list(steps_in_words(build_schedule("all_gather", "nvls", 2, 2)))
    assert lines == [
        "step 1: r0->switch chunk 0, switch->r0 chunk 0, switch->r1 chunk 0, "
        "r1->switch chunk 1, switch->r0 chunk 1, switch->r1 chunk 1"
    ]


def test_long_steps_can_be_cut_short():
    lines = list(steps_in_words(build_schedule("alltoall", "direct", 5, 100), most=2))
    assert lines[0] == "step 1: r0->r1 chunk 1, r1->r2 chunk 2 and 3 more"


def test_a_pipeline_is_told_by_when_its_chunks_move():
    lines = list(steps_in_words(build_schedule("broadcast", "chain", 3, 8, chunks=2)))
    assert lines == ["step 1: r0->r1 chunk 0", "step 2: r0->r1 chunk 1, r1->r2 chunk 0", "step 3: r1->r2 chunk 1"]


def test_compute_and_nothing_have_words_too():
    builder = ScheduleBuilder("all_reduce", "by hand", 2, 0)
    builder.compute(1, 1e-6)
    assert list(steps_in_words(builder.build())) == ["step 1: r1 computes"]
    assert list(steps_in_words(build_schedule("all_reduce", "ring", 1, 8))) == ["nothing moves"]
