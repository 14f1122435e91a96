"""Bruck's all-gather and all-to-all: few steps for any number of ranks, and what they carry."""

import pytest

from netsim.errors import TooManyMessagesError
from netsim.schedule import pieces
from netsim.schedule.bruck import blocks_sent_on
from netsim.schedule.catalogue import build_schedule


@pytest.mark.parametrize(("ranks", "steps"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (17, 5)])
def test_the_logarithm_of_the_ranks_rounded_up_is_the_number_of_steps(ranks, steps):
    for collective in ("all_gather", "alltoall"):
        assert len(build_schedule(collective, "bruck", ranks, 1000)) == steps * ranks


def test_an_all_gather_sends_what_it_has_and_no_more_than_is_missing():
    schedule = build_schedule("all_gather", "bruck", 6, 600)
    mine = [op for op in range(len(schedule)) if schedule.src[op] == 4]
    assert schedule.dst[mine].tolist() == [3, 2, 0]
    # Blocks 4; 4, 5; then two of 4, 5, 0, 1, because the receiver has four.
    assert [schedule.ranges(op) for op in mine] == [[(400, 100)], [(400, 200)], [(400, 200)]]


def test_blocks_that_go_round_the_end_make_two_ranges():
    schedule = build_schedule("all_gather", "bruck", 6, 600)
    (op,) = [op for op in range(len(schedule)) if schedule.src[op] == 5 and schedule.step[op] == 1]
    assert schedule.ranges(op) == [(500, 100), (0, 100)]


@pytest.mark.parametrize(("ranks", "blocks"), [(2, 1), (4, 4), (8, 12), (64, 192), (5, 5)])
def test_an_all_to_all_sends_a_block_once_for_every_bit_of_its_distance(ranks, blocks):
    # p/2 log2(p) at powers of two; 1 + 1 + 2 + 1 set bits in the distances 1 to 4.
    assert blocks_sent_on(ranks) == blocks
    assert build_schedule("alltoall", "bruck", ranks, ranks * 10).bytes_sent().tolist() == [blocks * 10] * ranks


def test_more_ranges_than_memory_should_hold_are_refused(monkeypatch):
    monkeypatch.setattr(pieces, "MOST_RANGES", 95)
    with pytest.raises(TooManyMessagesError, match="has 96 ranges of bytes in its messages, more than 95"):
        build_schedule("alltoall", "bruck", 8, 80)
