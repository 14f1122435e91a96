"""Send/recv rounds, channels and parts follow NCCL's rules by version (nccl.md 2.9), worked examples included."""

import pytest

from netsim.errors import ScheduleError
from netsim.schedule.nccl import rounds

VERSIONS = [(2, 20), (2, 21), (2, 22), (2, 27), (2, 28), (2, 30)]


def nodes_of(*sizes):
    firsts = [sum(sizes[:place]) for place in range(len(sizes))]
    return [range(first, first + size) for first, size in zip(firsts, sizes, strict=True)]


def sent_by(rank, *sizes, version=(2, 28)):
    return [peers[rank] for peers in rounds.round_order(nodes_of(*sizes), version)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sizes", [(1,), (2,), (5,), (8,), (17,), (8, 8), (4, 4, 4), (3, 5), (6, 6), (1,) * 9, (16, 8)])
def test_every_rank_sends_to_each_once_and_receives_from_one_a_round(sizes, version):
    everyone = list(range(sum(sizes)))
    order = rounds.round_order(nodes_of(*sizes), version)
    assert [sorted(peers) for peers in order] == [everyone] * len(everyone)
    assert [sorted(peers) for peers in zip(*order, strict=True)] == [everyone] * len(everyone)
    assert order[0] == tuple(everyone)  # the copy for oneself comes first


def test_one_node_is_one_group_and_turns():
    assert sent_by(0, 8) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert sent_by(6, 8) == [6, 7, 0, 1, 2, 3, 4, 5]


def test_one_gpu_nodes_meet_in_triangular_order():
    assert sent_by(0, *[1] * 8) == [0, 1, 3, 6, 2, 7, 5, 4]
    # 16 groups: 0 1 3 6 10 15 21 28 36 ... modulo 16.
    assert sent_by(0, *[1] * 16) == [0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]


def test_two_nodes_of_eight_are_done_one_after_the_other():
    assert sent_by(1, 8, 8) == [1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15, 8]


def test_a_node_of_sixteen_among_several_is_two_groups():
    # Groups 0 to 3 in the order 0, 1, 3, 2: the own half, the other half of the own node, then the other node's halves.
    assert [peer // 8 for peer in sent_by(0, 16, 16)[::8]] == [0, 1, 3, 2]


def test_2_22_to_2_27_turn_over_nodes_and_over_their_ranks_in_triangular_order():
    assert sent_by(0, 8, version=(2, 27)) == [0, 1, 3, 6, 2, 7, 5, 4]
    assert sent_by(0, 4, 4, version=(2, 22)) == [0, 1, 3, 2, 4, 5, 7, 6]
    # Nodes of unequal sizes count as one of five: 0 1 3 6 2 7 5 4 without 5 and more.
    assert sent_by(0, 2, 3, version=(2, 25)) == [0, 1, 3, 2, 4]


def test_before_2_22_distances_grow_both_ways():
    assert sent_by(0, 8, version=(2, 21)) == [0, 1, 7, 2, 6, 3, 5, 4]
    assert sent_by(0, 2, 2, 2, version=(2, 18)) == [0, 1, 2, 3, 4, 5]


def test_groups_divide_every_node():
    assert rounds.group_size(nodes_of(6, 6)) == 2  # gcd(8, 6)
    assert rounds.group_size(nodes_of(8, 12)) == 4
    assert rounds.group_size(nodes_of(3, 5)) == 1
    assert rounds.group_size(nodes_of(16, 16), 16) == 16
    with pytest.raises(ScheduleError, match="groups of 0 ranks"):
        rounds.group_size(nodes_of(8, 8), 0)


def test_nodes_that_miss_a_rank_are_refused():
    with pytest.raises(ScheduleError, match="must hold each of the ranks 0 to 2 exactly once"):
        rounds.round_order([[0, 1], [3]])


def test_eight_h100_have_32_channels_a_peer_and_four_for_a_message_at_first():
    channels = rounds.p2p_channels(24)
    peer = rounds.nvlink_channels(370.8, 20.6)  # 18 links, two channels each
    assert (channels, peer) == (32, 36)
    per_peer = rounds.channels_per_peer([peer] * 7, channels, 8)  # 36 -> 64, at most 32
    assert per_peer == 32
    assert rounds.least_channels(per_peer, 8, channels) == 4  # 4 x 8 = 32
    assert [rounds.base_channel(number, channels) for number in range(8)] == [0, 16, 8, 24, 4, 20, 12, 28]


def test_channels_to_other_nodes_by_version():
    assert rounds.network_channels(16, 32, (2, 19), nics=4) == 2
    assert rounds.network_channels(64, 32, (2, 28)) == 2  # 2 x 64 is not above 4 x 32
    assert rounds.network_channels(65, 32, (2, 28)) == 1
    assert rounds.network_channels(65, 32, (2, 28), nics=2) == 2
    assert rounds.network_channels(65, 32, (2, 29), nic_GBps=50.0) == 4  # ceil(50/14)
    assert rounds.network_channels(65, 32, (2, 29), nics=8, nic_GBps=50.0) == 8


def test_over_several_nodes_all_peers_fit_on_the_channels_eight_each():
    # 4 x ceil(64/8) = 32 channels of 32; with 128 ranks 4 x 16 = 64 are too many, 2 x 16 = 32 fit.
    assert rounds.channels_per_peer([36, 4], 32, 64, 8) == 4
    assert rounds.channels_per_peer([36, 4], 32, 128, 16) == 2
    assert rounds.channels_per_peer([4], 32, 128, 1) == 4


def test_parts_on_two_h200s_follow_the_measured_rule():
    # nmin = 32 halved to 16 for two ranks; from 16 MiB a part, that is above 256 MiB, 32 parts.
    least, most = rounds.part_limits(524288, 1, (2, 28))
    sizes = (16384, 16385, 65536, 262144, 2**28, 2**28 + 1, 2**30)
    assert [rounds.parts(size, 16, 32, least, most) for size in sizes] == [1, 2, 4, 16, 16, 32, 32]


def test_the_least_part_is_64_kib_from_2_29_and_16_kib_before_on_one_node():
    assert rounds.part_limits(524288, 1, (2, 29))[0] == 65536
    assert rounds.part_limits(524288, 1, (2, 27))[0] == 16384
    assert rounds.part_limits(131072, 4, (2, 27)) == rounds.part_limits(131072, 4, (2, 30)) == (65536, 131072)


def test_parts_are_multiples_of_4_kib_that_cover_the_message():
    for size in (1, 4096, 100_000, 1 << 20):
        for count in (1, 2, 4, 32):
            parts = list(rounds.part_bounds(size, count))
            assert sum(part for _, part in parts) == size
            assert all(offset % 4096 == 0 or not part for offset, part in parts)


def test_ll_goes_up_to_16_kib_a_part():
    assert rounds.fits_ll(65536, 4)
    assert not rounds.fits_ll(65537, 4)


def test_chunks_are_shorter_over_the_network_for_short_messages():
    assert rounds.chunk_bytes(1) == 512 * 1024
    assert rounds.chunk_bytes(1, all_nvlink=False) == rounds.chunk_bytes(2) == 128 * 1024
    assert rounds.chunk_bytes(2, wide_network=True) == 256 * 1024
    assert [rounds.network_chunk_bytes(size, 131072) for size in (131071, 131072, 1 << 20)] == [32768, 65536, 131072]


def test_parts_of_two_rounds_meet_on_no_channel_in_any_release():
    # Two GPUs, 32 channels, 16 parts each: since 2.28 channels 0 to 15 and 16 to 31, before even and odd ones.
    for version, apart in (((2, 28), range(16)), ((2, 27), range(0, 32, 2))):
        base = rounds.base_channel(1, 32, version=version)
        found = [{rounds.part_channel(first, part, 32, version) for part in range(16)} for first in (0, base)]
        assert found == [set(apart), set(range(32)) - set(apart)]
    assert rounds.part_channel(0, 0, 1, (2, 27)) == 0


def test_eight_rounds_of_one_distance_share_a_base_between_nodes():
    # Two nodes of eight on 16 channels: rounds 0 to 7 at 0, 8 to 15 at 1, reversed in four bits 8.
    assert [rounds.base_channel(number, 16, 2, 8) for number in (0, 7, 8, 15)] == [0, 0, 8, 8]
    # Before 2.28 not reversed; nodes of 16 have two bases each.
    assert [rounds.base_channel(number, 16, 2, 16, (2, 27)) for number in (0, 7, 8, 16, 24)] == [0, 0, 1, 2, 3]
    assert rounds.base_channel(3, 1) == 0
