"""The catalogue finds builders by name, and refuses what makes no sense in one clear sentence."""

import numpy as np
import pytest

from netsim.errors import ScheduleError, TooManyMessagesError, UnitError
from netsim.schedule.catalogue import ALGORITHMS, NCCL_ONLY, algorithms_for, build_schedule, options_for
from netsim.schedule.collective import COLLECTIVES


def test_every_collective_has_an_algorithm_and_every_algorithm_a_text():
    used = {name for collective in COLLECTIVES for name in algorithms_for(collective)}
    assert all(algorithms_for(collective) for collective in COLLECTIVES)
    assert used == set(ALGORITHMS)


def test_schedules_carry_the_names_they_were_asked_by():
    for collective in COLLECTIVES:
        for algorithm in algorithms_for(collective):
            schedule = build_schedule(collective, algorithm, 4, 64)
            assert (schedule.collective, schedule.algorithm) == (collective, algorithm)


def test_an_algorithm_that_does_not_serve_is_refused_with_the_list_that_does():
    with pytest.raises(
        ScheduleError, match="'tree' does not serve alltoall; accepted for alltoall are pairwise, direct, bruck"
    ):
        build_schedule("alltoall", "tree", 4, 64)


@pytest.mark.parametrize("name", NCCL_ONLY)
def test_what_is_nccls_alone_is_refused_with_the_protocol_that_has_it(name):
    words = f"'{name}' is NCCL's alone, .* ask for it with protocol auto or simple; accepted for all_reduce are ring, tree"
    with pytest.raises(ScheduleError, match=words):
        build_schedule("all_reduce", name, 4, 64)


def test_unknown_names_are_refused():
    with pytest.raises(ScheduleError, match="unknown algorithm 'rign'; accepted for all_gather are ring"):
        build_schedule("all_gather", "rign", 4, 64)
    with pytest.raises(ScheduleError, match="unknown collective 'allreduce'; accepted are all_reduce"):
        algorithms_for("allreduce")


def test_dimensions_stand_behind_the_name_or_in_an_option():
    by_name = build_schedule("all_reduce", "hierarchical:2x4", 8, 64)
    by_option = build_schedule("all_reduce", "hierarchical", 8, 64, dims=(2, 4))
    assert by_name.algorithm == by_option.algorithm == "hierarchical:2x4"
    assert by_name.dst.tolist() == by_option.dst.tolist()


@pytest.mark.parametrize(
    ("algorithm", "option", "words"),
    [
        ("hierarchical:2x4", {"dims": (2, 4)}, "give dimensions once"),
        ("hierarchical:2x3", {}, "the dimensions 2x3 must be 1 or more each and multiply to 8"),
        ("hierarchical", {"dims": (0, 8)}, "the dimensions 0x8 must be 1 or more"),
        ("hierarchical", {"dims": ()}, "the dimensions none must"),
        ("hierarchical:", {}, "dimensions '' of hierarchical cannot be read; write for example hierarchical:2x8"),
        ("hierarchical:2x-4", {}, "cannot be read"),
        ("ring:2x4", {}, "unknown algorithm 'ring:2x4'"),
        ("ring", {"dims": (2, 4)}, "ring all_reduce has no dimensions; only hierarchical does"),
    ],
)
def test_dimensions_that_make_no_sense_are_refused(algorithm, option, words):
    with pytest.raises(ScheduleError, match=words):
        build_schedule("all_reduce", algorithm, 8, 64, **option)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"root": 4}, "root must be a rank from 0 to 3"),
        ({"chunks": 0}, "number of chunks is 0; it must be a whole number, 1 or more"),
        ({"chunk_bytes": -1}, "chunk size in bytes is -1"),
        ({"chunk_bytes": 4, "chunks": 4}, "not both"),
        ({"channels": 0}, "0 channels"),
        ({"align_bytes": 0}, "alignment of 0 bytes"),
        ({"groups": ((0, 1), (1, 2, 3))}, "must hold each of the ranks 0 to 3 exactly once"),
    ],
)
def test_values_that_make_no_sense_are_refused(option, words):
    with pytest.raises(ScheduleError, match=words):
        build_schedule("all_reduce", "ring", 4, 64, **option)


def test_sizes_may_be_text():
    by_text = build_schedule("all_reduce", "tree", 4, "4 MiB", chunk_bytes="64 KiB")
    by_number = build_schedule("all_reduce", "tree", 4, 4 * 2**20, chunk_bytes=2**16)
    assert by_text.size_bytes == 4 * 2**20
    assert by_text.size.tolist() == by_number.size.tolist()
    with pytest.raises(UnitError, match="size_bytes: '4 Mib' is in bits"):
        build_schedule("all_reduce", "ring", 4, "4 Mib")


def test_numbers_of_numpy_are_plain_numbers_afterwards():
    schedule = build_schedule("broadcast", "ring", np.int64(4), np.int64(64), root=np.int64(1))
    assert [type(value) for value in (schedule.ranks, schedule.size_bytes, schedule.root)] == [int, int, int]


@pytest.mark.parametrize("size", [-1, 1e6, float("nan"), True, None, [4]])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ScheduleError, match="size_bytes is .*; give a whole number of bytes, zero or more, or text"):
        build_schedule("all_reduce", "ring", 4, size)


@pytest.mark.parametrize("ranks", [0, -2, 4.0, float("nan"), True, None, "4"])
def test_a_number_of_ranks_that_is_none_is_refused(ranks):
    with pytest.raises(ScheduleError, match="the number of ranks must be a whole number, 1 or more"):
        build_schedule("all_reduce", "ring", ranks, 64)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"root": 1.0}, "root 1.0"),
        ({"root": None}, "root None"),
        ({"chunks": 2.0}, "number of chunks is 2.0; it must be a whole number"),
        ({"chunk_bytes": float("nan")}, "chunk size in bytes is nan"),
        ({"channels": True}, "True channels"),
        ({"align_bytes": 1.5}, "an alignment of 1.5 bytes"),
        ({"limit": 1.5}, "a limit of 1.5 operations"),
        ({"groups": 4}, "groups is 4; give a sequence of ranks for each server"),
        ({"groups": ("ab", "cd")}, "must hold each of the ranks 0 to 3 exactly once"),
        ({"groups": ((0, 1.0), (2, 3))}, "must hold each of the ranks 0 to 3 exactly once"),
        ({"dims": "2x4"}, "dims is '2x4'; give whole numbers"),
        ({"dims": (2.0, 4)}, "dims is"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(option, words):
    with pytest.raises(ScheduleError, match=words):
        build_schedule("all_reduce", "hierarchical" if "dims" in option else "ring", 4, 64, **option)


@pytest.mark.parametrize(
    ("collective", "algorithm"), [(None, "ring"), ([], "ring"), ("all_reduce", None), ("all_reduce", 3)]
)
def test_names_that_are_no_text_are_refused(collective, algorithm):
    with pytest.raises(ScheduleError, match="accepted"):
        build_schedule(collective, algorithm, 4, 64)


def test_options_without_effect_are_refused():
    with pytest.raises(ScheduleError, match="one_shot all_reduce sends its blocks whole"):
        build_schedule("all_reduce", "one_shot", 4, 64, chunks=2)
    with pytest.raises(ScheduleError, match="tree all_reduce has no channels; only ring does"):
        build_schedule("all_reduce", "tree", 4, 64, channels=2)
    assert options_for("all_reduce", "one_shot") == frozenset()
    assert options_for("broadcast", "ring") == {"root", "chunks", "groups", "channels"}


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_expected_number_of_operations_is_the_number_built(collective):
    for algorithm in algorithms_for(collective):
        for ranks in (1, 2, 4, 8):
            count = len(build_schedule(collective, algorithm, ranks, 1000))
            assert len(build_schedule(collective, algorithm, ranks, 1000, limit=count)) == count
            if count:
                with pytest.raises(TooManyMessagesError, match=f"needs {count} messages, more than the limit"):
                    build_schedule(collective, algorithm, ranks, 1000, limit=count - 1)


def test_a_schedule_over_the_limit_is_refused_before_it_is_built():
    with pytest.raises(TooManyMessagesError, match="--max-messages"):
        build_schedule("all_reduce", "ring", 24_576, 2**30, limit=50_000_000)
    with pytest.raises(TooManyMessagesError, match="--max-messages"):
        build_schedule("broadcast", "chain", 2, 2**50, chunk_bytes=1, limit=1000)


def test_more_bytes_than_numbers_reach_are_refused():
    with pytest.raises(ScheduleError, match="more than 2\\^63 bytes"):
        build_schedule("alltoall", "direct", 8, 2**62)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_aligned_schedules_cut_between_elements_only(collective):
    for algorithm in algorithms_for(collective):
        schedule = build_schedule(collective, algorithm, 5, 1000, align_bytes=8)
        assert not np.any(schedule.offset % 8)
        assert not np.any(schedule.size % 8)
        assert not np.any(schedule.all_ranges()[1] % 8)


def test_ids_of_a_ring_follow_step_piece_and_rank():
    schedule = build_schedule("all_reduce", "ring", 3, 90, chunks=2)
    assert schedule.step.tolist() == sorted(schedule.step.tolist())
    assert schedule.src.tolist() == [0, 1, 2] * 8
    assert schedule.offset[:6].tolist() == [0, 30, 60, 15, 45, 75]


def test_a_block_that_cannot_fill_its_pieces_sends_empty_ones():
    schedule = build_schedule("all_gather", "ring", 3, 7, chunk_bytes=2)
    # Blocks of 3, 3, 1 bytes in pieces of 2: 2 + 1, 2 + 1, 1 + 0.
    assert schedule.size[:6].tolist() == [2, 2, 1, 1, 1, 0]
