import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError
from netsim.nccl.channels import Operation, head_gpus, nvls_channels, operation, sources, total_channels
from netsim.nccl.communicator import Communicator
from netsim.nccl.settings import Settings
from netsim.nccl.version import Version
from tests.netsim.nccl.tuner_machines import NEWEST, h100_nodes, h100x8, machine, two_h200

KIB, MIB = 2**10, 2**20
BEFORE_CELLS = Version(2, 21, 5)
DEALT = Version(2, 19, 4)
SIZES = [4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB]

# nccl.md 3.5, derived there by an independent implementation; all-reduce, sizes as in SIZES.
LEAST_32_KIB = {
    "ring ll, n = 8": [1, 1, 1, 2, 4, 8, 16, 24, 24],
    "ring ll, n = 16": [1, 1, 1, 1, 2, 4, 8, 16, 16],
    "ring ll128, n = 8": [1, 1, 2, 4, 8, 16, 16, 22, 24],
    "ring simple, n = 8": [1, 1, 1, 2, 4, 8, 16, 22, 24],
    "tree ll, n = 16": [1, 4, 8, 16, 16, 16, 16, 16, 16],
    "tree ll128, n = 16": [1, 1, 2, 4, 8, 16, 16, 16, 16],
    "nvls simple, n = 8": [1, 1, 2, 4, 8, 16, 16, 16, 16],
}
LEAST_16_KIB = LEAST_32_KIB | {
    "ring ll128, n = 8": [1, 2, 4, 8, 16, 16, 22, 22, 24],
    "tree ll128, n = 16": [1, 2, 4, 8, 16, 16, 16, 16, 16],
    "nvls simple, n = 8": [1, 2, 4, 8, 16, 16, 16, 16, 16],
    "ring ll, n = 2": [1, 2, 4, 8, 16, 22, 24, 24, 24],
}


def ours(label: str, version: Version) -> list[int]:
    algorithm, protocol = label.split(",")[0].split()
    made = {"2": two_h200(version), "8": h100x8(version), "16": h100_nodes(2, version)}[label.split("= ")[1]]
    return [operation(made, "all_reduce", algorithm, protocol, size).channels for size in SIZES]


@pytest.mark.parametrize("label", LEAST_32_KIB)
def test_channels_by_size_from_2_29_on(label: str) -> None:
    assert ours(label, Version(2, 29, 2)) == ours(label, NEWEST) == LEAST_32_KIB[label]


@pytest.mark.parametrize("label", LEAST_16_KIB)
def test_channels_by_size_from_2_23_to_2_28(label: str) -> None:
    assert ours(label, Version(2, 23, 4)) == ours(label, Version(2, 28, 9)) == LEAST_16_KIB[label]


def test_a_simple_ring_of_2_mib_uses_all_channels() -> None:
    # 2 x 2 MiB / 24 = 174762 of traffic: 11 cells of 16 KiB traffic, 256 cells, so 24 channels; of 32 KiB: 6 of 128, so 22.
    assert operation(h100x8(Version(2, 28, 9)), "all_reduce", "ring", "simple", 2 * MIB).channels == 24
    assert operation(h100x8(Version(2, 29, 2)), "all_reduce", "ring", "simple", 2 * MIB).channels == 22


def test_every_logged_channel_count_on_two_h200s_comes_out(repository: Path) -> None:
    lines = (repository / "tests" / "golden" / "nccl_choices_h200x2.csv").read_text(encoding="utf-8").splitlines()
    logged = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    for row in logged:
        found = operation(two_h200(), row["collective"], row["algorithm"], row["protocol"], int(row["size_bytes"]))
        assert found.channels == int(row["channels"]), row
    assert len(logged) == 82


def test_the_usual_machines_have_the_channels_that_nccl_logs_for_them() -> None:
    assert total_channels(machine(1, 8, (12, 20), capability=80)) == 24  # 8 A100
    assert total_channels(h100x8()) == 24
    assert total_channels(machine(1, 72, (16, 45), capability=100)) == 32
    assert total_channels(h100_nodes(2)) == total_channels(h100_nodes(64)) == 16
    assert [total_channels(machine(1, 2, (rings, 12))) for rings in (1, 2)] == [2, 4]  # two GPUs on PCIe
    assert total_channels(Communicator(((0, 1),), {})) == 1


def test_collnet_adds_half_the_channels_if_its_chains_are_faster_inside_nodes() -> None:
    # 2 x 8 = 16, and 8 more; not so where chains are as fast between nodes or nodes have one rank.
    assert total_channels(machine(2, 8, (8, 40), collnet=(8, 40, 20))) == 24
    assert total_channels(machine(2, 8, (8, 40), collnet=(8, 40, 40))) == 16
    assert total_channels(machine(2, 1, (8, 40), collnet=(8, 40, 20))) == 16


def test_copies_repeat_the_channels_of_both_trees() -> None:
    made = [(source.order, source.second_tree) for source in sources(machine(2, 8, (2, 48)))]
    assert made == [(0, False), (1, False), (0, True), (1, True)] * 2


def test_the_environment_first_limits_and_then_fills_up() -> None:
    def made(**values: int) -> list[tuple[int, bool]]:
        return [(source.order, source.second_tree) for source in sources(machine(1, 2, (2, 20)), Settings(**values))]

    assert made(max_channels=3) == made(max_ctas=3) == [(0, False), (1, False), (0, True)]
    assert made(min_channels=6) == made(min_ctas=6) == [(0, False), (1, False), (0, True), (1, True), (0, False), (1, False)]
    assert made(max_channels=1, min_channels=3) == [(0, False)] * 3
    assert len(made(min_channels=1000)) == 64


def test_nvls_has_channels_of_its_own() -> None:
    def count(nodes: int, capability: int, version: Version, **more: float) -> int:
        return nvls_channels(
            machine(nodes, 8, (8, 48), nvls=(8, 40), capability=capability, version=version, **more)  # type: ignore[arg-type]
        )

    assert [count(nodes, 90, Version(2, 28, 9)) for nodes in (1, 4)] == [16, 16]
    assert [count(nodes, 100, Version(2, 25, 1)) for nodes in (1, 4)] == [32, 32]
    assert [count(nodes, 100, Version(2, 28, 9)) for nodes in (1, 4)] == [24, 32]
    # 2.30 goes by NIC where there are several Blackwell nodes.
    assert [count(nodes, 100, NEWEST, net_GBps=50) for nodes in (1, 2, 4)] == [24, 32, 24]
    assert [count(4, 100, NEWEST, net_GBps=speed) for speed in (25, 100)] == [32, 24]
    hopper = h100x8()
    assert nvls_channels(hopper, Settings(nvls_channels=8)) == nvls_channels(hopper, Settings(max_ctas=8)) == 8
    assert nvls_channels(hopper, Settings(min_ctas=20)) == 20


def test_nvls_over_a_network_has_no_more_channels_than_rings() -> None:
    nodes = machine(2, 8, (2, 40), nvls=(8, 40), collnet=(2, 40))
    assert operation(nodes, "all_reduce", "nvls", "simple", 1024 * MIB).channels == 4
    assert operation(nodes, "all_reduce", "nvls_tree", "simple", 1024 * MIB).channels == 16


@pytest.mark.parametrize(
    ("algorithm", "protocol", "size"),
    [
        ("ring", "simple", 768 * KIB),  # 24 x 512 x 64
        ("ring", "ll128", 120 * KIB),  # 24 x 640 x 8
        ("ring", "ll", 768 * KIB),  # 24 x 512 x 8 x 8 ranks
        ("tree", "ll", 96 * KIB),  # 24 x 512 x 8
    ],
)
def test_all_channels_are_worth_it_from_a_size_on(algorithm: str, protocol: str, size: int) -> None:
    # Of a release without least traffic, which would hide the rule.
    old = h100x8(BEFORE_CELLS)
    assert operation(old, "all_reduce", algorithm, protocol, size).channels == 24
    assert operation(old, "all_reduce", algorithm, protocol, size - 16).channels == 23


def test_threads_are_halved_when_one_channel_is_left() -> None:
    def threads(protocol: str, size: int, algorithm: str = "ring") -> tuple[int, int]:
        found = operation(h100x8(), "all_reduce", algorithm, protocol, size)
        return found.threads, found.block_threads

    # A thread wants 64 B: 512 at 32 KiB, 256 at 16 KiB, ... A block has a warp for synchronisation and three at least.
    assert [threads("simple", size * KIB) for size in (32, 16, 8, 1)] == [(512, 544), (256, 288), (128, 160), (64, 96)]
    # LL on 8 ranks 8 x 8 B; all threads move data.
    assert [threads("ll", size * KIB) for size in (32, 31, 8, 1)] == [(512, 512), (256, 256), (128, 128), (96, 96)]
    # LL128 8 B; 320 is no multiple of 128.
    assert [threads("ll128", size * KIB) for size in (5, 4, 1)] == [(640, 640), (320, 320), (320, 320)]
    assert threads("ll", 8, "tree") == threads("simple", 8, "tree") == threads("simple", 8, "nvls") == (640, 640)


def test_threads_can_be_asked_for_and_slow_rings_have_half() -> None:
    def threads(protocol: str, pair: Communicator, **values: int) -> int:
        return operation(pair, "all_reduce", "ring", protocol, MIB, settings=Settings(**values)).threads

    fast, slow = machine(1, 2, (2, 12)), machine(1, 2, (1, 12))
    assert [threads("simple", pair) for pair in (fast, slow)] == [512, 256]
    assert threads("ll", slow) == 512
    assert [threads("simple", slow, threads=asked) for asked in (128, 16, 1024, 100)] == [128, 512, 512, 512]
    assert threads("ll", fast, threads=32) == 96  # 64 at least, and three warps are launched
    assert [threads("ll128", fast, ll128_threads=asked) for asked in (320, 32)] == [320, 160]


def test_collnet_direct_drops_channels_by_halves() -> None:
    # A channel: 640 threads x 8 heads x 512 B = 2.5 MiB for 16 of 24; dropping the first of the last twelve halves it.
    nodes = machine(2, 8, (8, 40), collnet=(8, 40, 20))
    assert operation(nodes, "all_reduce", "collnet_direct", "simple", 60 * MIB).channels == 24  # 24 x 2.5
    assert operation(nodes, "all_reduce", "collnet_direct", "simple", 59 * MIB).channels == 23  # 23 x 1.25
    assert operation(nodes, "all_reduce", "collnet_direct", "simple", 20 * MIB).channels == 16  # 16 x 1.25
    assert operation(nodes, "all_reduce", "collnet_direct", "simple", 64).channels == 1


def test_cells_of_a_broadcast_count_bytes_once() -> None:
    # 16 KiB of traffic a cell and channel: 100000 B are seven cells, the last of them short.
    found = operation(two_h200(), "broadcast", "ring", "simple", 100_000)
    assert found.shares == ((0, 49152), (49152, 49152), (98304, 1696))  # three channels by size: 33333 B, so three cells


def test_shares_of_an_all_gather_lie_within_a_block() -> None:
    # 64 KiB of two blocks: 4 channels of 32 KiB (512 x 8 x 2 B = 8 KiB each: 8); traffic 4 x 64 KiB / 8 = 32 KiB, cells
    # of 16 KiB / 8 = 2 KiB of a block: two each.
    found = operation(two_h200(), "all_gather", "ring", "ll", 64 * KIB)
    assert found.shares == tuple((4096 * channel, 4096) for channel in range(8))


def test_before_2_22_pieces_are_equal() -> None:
    # 1000000 / 24 = 41666.7, in whole 16 B 41680; the last has 1000000 - 23 x 41680.
    found = operation(h100x8(BEFORE_CELLS), "all_reduce", "ring", "simple", 1_000_000)
    assert found.shares == (*((41_680 * channel, 41_680) for channel in range(23)), (958_640, 41_360))
    assert not found.interleaved


def test_before_2_20_chunks_are_dealt_in_turns() -> None:
    # Turns of 24 channels x 8 chunks x 2 MiB = 384 MiB. 400 MiB: one, and 16 MiB / 192 = 87381.3 B a chunk, in multiples
    # of 512 threads x 8 B 90112; a channel's 8 are 720896 B, the last one has 16777216 - 23 x 720896 = 196608.
    found = operation(h100x8(DEALT), "all_reduce", "ring", "simple", 400 * MIB)
    sizes = [size for _, size in found.shares]
    assert sizes == [16 * MIB + 720_896] * 23 + [16 * MIB + 196_608]
    assert found.interleaved


def test_before_2_20_the_last_turn_goes_by_threads_with_ll_and_ll128_too() -> None:
    # LL: four channels, 132768 / 4 = 33192 B in multiples of 512 x 8 B x 8 ranks = 32 KiB: two have 64 KiB, one the rest.
    low = operation(h100x8(DEALT), "all_reduce", "ring", "ll", 128 * KIB + 1696)
    assert [size for _, size in low.shares] == [64 * KIB, 64 * KIB, 1696]
    # LL128: half of 640 x 60 B x 2 ranks = 38400 B.
    line = operation(two_h200(DEALT), "all_reduce", "ring", "ll128", 100_000)
    assert [size for _, size in line.shares] == [38_400, 38_400, 23_200]


def test_collnet_takes_turns_without_shrinking_them() -> None:
    # Chain: 16 channels, chunks of 128 KiB (see test_chunks): 1 GiB + 1 MiB are 512 chunks each and eight more.
    nodes = machine(2, 8, (8, 48), collnet=(8, 48))
    found = operation(nodes, "all_reduce", "collnet_chain", "simple", 1025 * MIB)
    assert [size // KIB for _, size in found.shares] == [65_664] * 8 + [65_536] * 8
    assert found.interleaved


def test_heads_are_the_first_gpus_of_their_graph() -> None:
    nodes = machine(2, 8, (8, 48), nvls=(4, 48), collnet=(2, 48))
    assert head_gpus(nodes, "nvls") == head_gpus(nodes, "nvls_tree") == (0, 1, 2, 3)
    assert head_gpus(nodes, "collnet_direct") == head_gpus(nodes, "collnet_chain") == (0, 1)
    assert head_gpus(h100x8(Version(2, 17, 1)), "nvls") == tuple(range(8))


def test_a_plugin_may_ask_for_channels() -> None:
    assert operation(two_h200(), "all_reduce", "ring", "simple", MIB, channels=8).channels == 8
    assert operation(two_h200(), "all_reduce", "ring", "simple", MIB, channels=99).channels == 22  # 24 are all there are


def test_no_bytes_are_one_channel_with_nothing() -> None:
    for version in (NEWEST, BEFORE_CELLS, DEALT):
        assert operation(h100x8(version), "all_reduce", "ring", "simple", 0).shares == ((0, 0),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("alltoall", "ring", "simple", 64), "alltoall: NCCL sends it message by message; accepted here are all_reduce"),
        (("all_reduce", "star", "simple", 64), "'star' is no algorithm of NCCL; accepted are tree, ring"),
        (("all_reduce", "ring", "ideal", 64), "'ideal' is no protocol of NCCL; accepted are ll, ll128, simple"),
        (
            ("broadcast", "tree", "ll", 64),
            "NCCL 2.30.7 has no broadcast by tree ll; accepted are ring ll, ring ll128",
        ),
        (("all_reduce", "ring", "ll", -1), "all_reduce of -1 bytes: the size must be a whole number, zero or more"),
        (("all_gather", "ring", "ll", 12), "all_gather of 12 bytes over 8 ranks: .* accepted are multiples of 8 bytes"),
        (("all_reduce", "collnet_chain", "simple", 64), "collnet_chain: no graph for it was found"),
    ],
)
def test_what_nccl_does_not_have_is_refused(arguments: tuple[str, str, str, int], message: str) -> None:
    with pytest.raises(NetsimError, match=message):
        operation(h100x8(), *arguments)


def test_numbers_that_leave_nothing_are_refused() -> None:
    with pytest.raises(NetsimError, match="all_reduce on 0 channels; accepted are 1 or more"):
        operation(h100x8(), "all_reduce", "ring", "ll", 64, channels=0)
    with pytest.raises(NetsimError, match="NCCL_BUFFSIZE: 4095 is too little; accepted are whole numbers from 4096 up"):
        Settings(buffer_bytes=4095)


RELEASES = [Version(2, 18, 5), DEALT, BEFORE_CELLS, Version(2, 22, 3), Version(2, 23, 4), Version(2, 28, 9), NEWEST]
PAIRS = [("ring", "ll"), ("ring", "ll128"), ("ring", "simple"), ("tree", "ll128"), ("nvls", "simple"), ("pat", "simple")]


@st.composite
def operations(draw: st.DrawFn) -> tuple[Operation, int, int]:
    """Return an operation, the bytes to be shared and how many channels there are at most."""
    nodes, gpus = draw(st.integers(1, 16)), draw(st.integers(1, 8))
    ring = (draw(st.integers(1, 16)), draw(st.sampled_from([10.0, 30.0, 48.0])))
    version = draw(st.sampled_from(RELEASES))
    collnet = (ring[0], 40.0) if nodes > 1 else None
    made = machine(nodes, gpus, ring, nvls=(gpus, 40.0), collnet=collnet, version=version)
    algorithm, protocol = draw(st.sampled_from(PAIRS))
    collective = "all_gather" if algorithm == "pat" and version >= Version(2, 23) else "all_reduce"
    if collective == "all_reduce":
        algorithm = "ring" if algorithm == "pat" else algorithm
    elif draw(st.booleans()):
        collective = "reduce_scatter"
    part = draw(st.one_of(st.integers(1, 5000), st.integers(1, 2**32)))
    size = part if collective == "all_reduce" else part * made.ranks
    settings_ = Settings(max_channels=draw(st.sampled_from([None, 1, 2, 5])))
    found = operation(made, collective, algorithm, protocol, size, settings=settings_)
    most = nvls_channels(made, settings_) if algorithm == "nvls" else total_channels(made, settings_)
    return found, part, most


@given(operations())
def test_shares_follow_each_other_and_cover_everything_once(drawn: tuple[Operation, int, int]) -> None:
    found, part, most = drawn
    end = 0
    for start, size in found.shares:
        assert start == end
        assert size > 0
        end = start + size
    assert end == part
    assert 1 <= found.channels <= most
    assert all(chunk > 0 for chunk in found.chunk_bytes)
    assert len(found.chunk_bytes) == found.channels


def test_nvls_has_no_more_channels_than_nccl_can_have() -> None:
    assert nvls_channels(h100x8(NEWEST), Settings(min_ctas=1000)) == 64
    assert nvls_channels(h100x8(DEALT), Settings(min_ctas=1000)) == 32
