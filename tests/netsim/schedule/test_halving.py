"""Halving and doubling with ranks beyond a power of two."""

import pytest

from netsim.schedule.catalogue import build_schedule


def test_an_extra_rank_gives_its_block_and_gets_all_others():
    schedule = build_schedule("all_gather", "recursive_doubling", 6, 600)
    # Ranks 4 and 5 send theirs to 0 and 1, which pass on two blocks, then four, and return five.
    assert schedule.bytes_sent().tolist() == [1100, 1100, 300, 300, 100, 100]
    assert schedule.bytes_received().tolist() == [500] * 6


def test_a_scattered_block_comes_back_without_the_part_that_stayed():
    schedule = build_schedule("reduce_scatter", "halving_doubling", 6, 600)
    # Ranks 4 and 5 keep their own part of their own block; 0 and 1 send a half, a quarter and the extra's block.
    assert schedule.bytes_sent()[4:].tolist() == [500, 500]
    assert schedule.bytes_received()[4:].tolist() == [100, 100]


@pytest.mark.parametrize(
    ("collective", "algorithm"), [("all_gather", "recursive_doubling"), ("reduce_scatter", "halving_doubling")]
)
def test_powers_of_two_move_one_range_a_message(collective, algorithm):
    assert build_schedule(collective, algorithm, 8, 800).ranges_start is None
    assert build_schedule(collective, algorithm, 7, 800).ranges_start is not None
