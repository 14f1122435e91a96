"""PAT follows NCCL's rule (nccl.md 2.8): dependence, order and aggregation, and its worked examples."""

import pytest

from netsim.schedule import pat
from netsim.schedule.catalogue import build_schedule

KIB = 1024


def lowest_bit(offset):
    return offset & -offset


def test_eight_ranks_send_one_two_and_four_blocks_to_the_ranks_4_2_and_1_below():
    assert pat.aggregation(8, 1000) == (4, 4)
    assert pat.message_offsets(8, 1000) == [[4], [2, 6], [1, 3, 5, 7]]
    schedule = build_schedule("all_gather", "pat", 8, 8000)
    assert schedule.dst[schedule.src == 5].tolist() == [1, 3, 4]
    # To rank r - hop goes the block of owner r + s - hop for every offset s: for rank 5 own, own and 7, then 5, 7, 1, 3.
    blocks = [[offset // 1000 for offset, _ in schedule.ranges(op)] for op in (5, 13, 21)]
    assert blocks == [[5], [5, 1], [5, 7, 1, 3]]


@pytest.mark.parametrize(
    ("block", "factor", "most", "messages"),
    [
        (512, 64, 64, 7),  # one message a dimension
        (64 * KIB, 64, 8, 18),  # 1, 2, 4, then 8 blocks each: 1 + 1 + 1 + (8 + 16 + 32 + 64)/8
        (512 * KIB, 8, 1, 127),
        (4096 * KIB, 8, 1, 127),
    ],
)
def test_how_many_blocks_of_128_ranks_share_a_message(block, factor, most, messages):
    assert pat.aggregation(128, block) == (factor, most)
    offsets = pat.message_offsets(128, block)
    assert len(offsets) == messages
    assert max(map(len, offsets)) == most


def test_large_blocks_of_128_ranks_go_far_first_then_depth_first_down_the_tree():
    offsets = [message[0] for message in pat.message_offsets(128, 512 * KIB)]
    assert offsets[:7] == [64, 32, 96, 16, 48, 80, 112]  # A = 8, D = 16: scales 4, 2, 1
    # Then each of eight subtrees at q, children first by the largest.
    assert [offset for offset in offsets[7:] if offset < 16] == [8, 12, 14, 15, 13, 10, 11, 9, 4, 6, 7, 5, 2, 3, 1]
    assert offsets[7:15] == [8, 24, 40, 56, 72, 88, 104, 120]


@pytest.mark.parametrize("block", [1, 100 * KIB, 512 * KIB])
def test_every_offset_is_served_once_and_after_its_parent(block):
    for ranks in range(1, 140):
        order = [offset for message in pat.message_offsets(ranks, block) for offset in message]
        assert sorted(order) == list(range(1, ranks))
        place = {offset: at for at, offset in enumerate(order)}
        assert all(place.get(offset - lowest_bit(offset), -1) < place[offset] for offset in order)


def test_a_message_serves_offsets_of_one_distance():
    for message in pat.message_offsets(100, 64 * KIB):
        assert len(set(map(lowest_bit, message))) == 1


def test_a_reduce_scatter_is_the_all_gather_backwards():
    gather, scatter = (build_schedule(name, "pat", 12, 1200) for name in ("all_gather", "reduce_scatter"))

    def moves(schedule, back):
        found = [(int(schedule.src[op]), int(schedule.dst[op]), sorted(schedule.ranges(op))) for op in range(len(schedule))]
        steps = [found[at : at + 12] for at in range(0, len(found), 12)]
        if back:
            steps = [[(dst, src, ranges) for src, dst, ranges in step] for step in reversed(steps)]
        return [sorted(step) for step in steps]

    assert moves(gather, False) == moves(scatter, True)


@pytest.mark.parametrize("ranks", [5, 8, 12])
def test_every_rank_sends_p_minus_1_blocks(ranks):
    for collective in ("all_gather", "reduce_scatter"):
        for block in (100, 600 * KIB):
            sent = build_schedule(collective, "pat", ranks, ranks * block).bytes_sent()
            assert sent.tolist() == [(ranks - 1) * block] * ranks


def test_smaller_pieces_are_aggregated_more():
    whole, pieces = (build_schedule("all_gather", "pat", 8, 8 * 512 * KIB, chunks=chunks) for chunks in (1, 8))
    assert len(whole) == 7 * 8
    assert len(pieces) == 8 * 3 * 8  # pieces of 64 KiB: three messages a rank each
    assert pieces.pieces == 8


@pytest.mark.parametrize(("ranks", "expected"), [(3, (1, 1)), (5, (2, 2)), (8, (4, 4)), (9, (4, 4)), (17, (8, 8))])
def test_odd_numbers_of_ranks_are_halved_downwards(ranks, expected):
    # The factor grows while it is below half of the ranks in whole numbers.
    assert pat.aggregation(ranks, 1000) == expected


def test_five_ranks_need_four_messages():
    assert pat.message_offsets(5, 1000) == [[4], [2], [3], [1]]
