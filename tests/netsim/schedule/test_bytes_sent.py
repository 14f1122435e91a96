"""How many bytes each rank sends, by the formulas of the algorithms."""

import numpy as np
import pytest

from netsim.schedule.catalogue import build_schedule


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16, 32, 64])
def test_a_ring_all_reduce_sends_two_p_minus_one_blocks_a_rank(ranks):
    size = ranks * 1000
    sent = build_schedule("all_reduce", "ring", ranks, size).bytes_sent()
    assert sent.tolist() == [2 * (ranks - 1) * 1000] * ranks  # 2 (p - 1)/p N


def test_four_ranks_of_four_megabytes_send_six_each():
    assert build_schedule("all_reduce", "ring", 4, 4_000_000).bytes_sent().tolist() == [6_000_000] * 4


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_the_flat_root_sends_and_receives_p_minus_one_times_everything(ranks):
    schedule = build_schedule("all_reduce", "flat", ranks, 100, root=1)
    assert schedule.bytes_sent()[1] == schedule.bytes_received()[1] == (ranks - 1) * 100
    assert schedule.bytes_sent()[0] == 100


@pytest.mark.parametrize(
    ("collective", "algorithm", "blocks"),
    [
        ("all_gather", "ring", 7),
        ("all_gather", "direct", 7),
        ("all_gather", "recursive_doubling", 7),  # 1 + 2 + 4
        ("all_gather", "nvls", 1),
        ("reduce_scatter", "ring", 7),
        ("reduce_scatter", "direct", 7),
        ("reduce_scatter", "halving_doubling", 7),  # 4 + 2 + 1
        ("reduce_scatter", "nvls", 8),
        ("all_reduce", "two_shot", 14),
        ("all_reduce", "halving_doubling", 14),
        ("all_reduce", "recursive_doubling", 24),  # log2(8) times everything
        ("all_reduce", "one_shot", 56),  # everything to seven others
        ("all_reduce", "nvls", 9),  # N (1 + 1/p)
        ("alltoall", "pairwise", 7),  # the own block stays
        ("alltoall", "direct", 7),
        ("sendrecv", "direct", 8),
    ],
)
def test_eight_ranks_send_so_many_blocks_of_an_eighth(collective, algorithm, blocks):
    schedule = build_schedule(collective, algorithm, 8, 80_000)
    assert schedule.bytes_sent().tolist() == [blocks * 10_000] * 8


def test_nvls_receives_everything_once_and_its_own_block_twice():
    assert build_schedule("all_reduce", "nvls", 8, 80_000).bytes_received().tolist() == [90_000] * 8


@pytest.mark.parametrize("algorithm", ["ring", "tree", "chain"])
def test_a_pipelined_broadcast_delivers_everything_once_to_all_but_the_root(algorithm):
    received = build_schedule("broadcast", algorithm, 5, 1009, root=3).bytes_received()
    assert received.tolist() == [1009, 1009, 1009, 0, 1009]


def test_a_double_binary_tree_sends_at_most_three_halves_up_and_down():
    # Inner in one tree (up one half, down two), leaf in the other (up one half): 2 N; a root saves one half.
    sent = build_schedule("all_reduce", "double_binary_tree", 8, 1000).bytes_sent()
    assert sorted(sent.tolist()) == [1000, 1000, 2000, 2000, 2000, 2000, 2000, 2000]


def test_what_is_sent_is_received():
    for algorithm in ("ring", "tree", "halving_doubling", "two_shot"):
        schedule = build_schedule("all_reduce", algorithm, 6, 1009)
        assert schedule.bytes_sent().sum() == schedule.bytes_received().sum() == schedule.size.sum()


def test_only_one_ring_in_k_enters_a_server_at_the_same_gpu():
    groups = ((0, 1, 2, 3), (4, 5, 6, 7))
    schedule = build_schedule("all_reduce", "ring", 8, 3200, groups=groups, channels=4)
    crossing = (schedule.src < 4) & (schedule.dst >= 4)
    # Each channel carries 800 B in 8 blocks of 100 B over 14 steps through one GPU.
    senders, counts = np.unique(schedule.src[crossing], return_counts=True)
    assert senders.tolist() == [0, 1, 2, 3]
    assert counts.tolist() == [14] * 4
