"""Replays on data: layouts, elements of several bytes, and what does not fit."""

import numpy as np
import pytest

from netsim.errors import ProofError, ScheduleError
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import ScheduleBuilder
from netsim.schedule.replay import replay


def test_four_ranks_give_the_textbook_results():
    x = [np.array([10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3]) for r in range(4)]
    assert [list(y) for y in replay(build_schedule("all_reduce", "ring", 4, 4), x)] == [[60, 64, 68, 72]] * 4
    assert [list(y) for y in replay(build_schedule("reduce_scatter", "ring", 4, 4), x)] == [[60], [64], [68], [72]]
    assert list(replay(build_schedule("alltoall", "pairwise", 4, 4), x)[1]) == [1, 11, 21, 31]
    assert list(replay(build_schedule("all_gather", "ring", 4, 4), [[7], [8], [9], [10]])[2]) == [7, 8, 9, 10]


def test_elements_may_stand_for_several_bytes():
    x = [np.arange(10, dtype=np.float32) * rank for rank in range(3)]
    for result in replay(build_schedule("all_reduce", "ring", 3, 40, align_bytes=4), x):
        assert result.dtype == np.float32
        assert result.tolist() == [3.0 * value for value in range(10)]


def test_a_cut_inside_an_element_is_refused_with_the_remedy():
    x = [np.arange(10)] * 3
    with pytest.raises(ScheduleError, match="at byte 14, inside an element of 4 bytes; build it with align_bytes=4"):
        replay(build_schedule("all_reduce", "ring", 3, 40), x)


def test_inputs_are_left_alone():
    x = [np.ones(8, int), np.ones(8, int)]
    replay(build_schedule("all_reduce", "ring", 2, 8), x)
    assert all((one == 1).all() for one in x)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([[1, 2, 3]], "1 inputs for 2 ranks"),
        ([[1, 2, 3], [1, 2]], "input of rank 1 has 2 elements for 6 bytes"),
        ([[1, 2, 3, 4], [1, 2, 3, 4]], "input of rank 0 has 4 elements for 6 bytes"),
        ([[1] * 7, [1] * 7], "input of rank 0 has 7 elements for 6 bytes"),
        ([None, [1, 2, 3]], "input of rank 0 has 0 elements"),
        ([[[1, 2, 3]], [[1, 2, 3]]], "must be a flat array"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, words):
    with pytest.raises(ScheduleError, match=words):
        replay(build_schedule("all_reduce", "ring", 2, 6, align_bytes=2), inputs)


def test_a_size_of_zero_takes_empty_arrays_only():
    assert [len(y) for y in replay(build_schedule("all_reduce", "ring", 2, 0), [[], []])] == [0, 0]
    with pytest.raises(ScheduleError, match="has 1 elements for 0 bytes"):
        replay(build_schedule("all_reduce", "ring", 2, 0), [[1], [1]])


def test_only_the_root_needs_data_to_broadcast_and_only_the_root_gets_a_reduction():
    received = replay(build_schedule("broadcast", "flat", 3, 2, root=1), [None, [5, 6], None])
    assert [list(y) for y in received] == [[5, 6]] * 3
    reduced = replay(build_schedule("reduce", "tree", 3, 2, root=2), [[1, 2]] * 3)
    assert reduced[:2] == [None, None]
    assert list(reduced[2]) == [3, 6]


def test_a_result_that_never_arrives_is_an_error():
    builder = ScheduleBuilder("broadcast", "by hand", 2, 4)
    with pytest.raises(ProofError, match="leaves nothing at rank 1, bytes 0 to 4"):
        replay(builder.build(), [[1, 2, 3, 4], None])


def test_a_wrong_schedule_gives_a_wrong_sum_that_numpy_can_see():
    # Rank 0's input reaches rank 1 twice: the proof refuses it, the replay shows it.
    builder = ScheduleBuilder("reduce", "by hand", 2, 4, root=1)
    builder.send(0, 1, size=4, reduce=True)
    builder.send(0, 1, size=4, reduce=True)
    assert list(replay(builder.build(), [[1] * 4, [10] * 4])[1]) == [12] * 4
