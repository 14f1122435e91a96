import pytest

from netsim.nccl.channels import operation
from netsim.nccl.chunks import Steps, steps_of
from netsim.nccl.communicator import Communicator
from netsim.nccl.settings import Settings
from netsim.nccl.version import Version
from tests.netsim.nccl.tuner_machines import NEWEST, h100_nodes, h100x8, machine, two_h200

KIB, MIB, GIB = 2**10, 2**20, 2**30
MEASURED = Version(2, 28, 9)


def chunk(made: Communicator, algorithm: str, protocol: str, size: int, collective: str = "all_reduce", **more: bool) -> int:
    return operation(made, collective, algorithm, protocol, size, **more).chunk_bytes[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_chunk_of_a_simple_ring_is_four_steps_in_two_slices(collective: str) -> None:
    found = operation(two_h200(), collective, "ring", "simple", 64 * MIB)
    # 4 x 512 KiB; 8 steps hold four slices of two; 1 MiB / 32.
    assert (found.chunk_bytes[0], found.slices, found.slots, found.least_slice_bytes) == (2 * MIB, 2, 4, 32 * KIB)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_pipelines_move_single_steps(collective: str) -> None:
    found = operation(two_h200(), collective, "ring", "simple", 64 * MIB)
    assert (found.chunk_bytes[0], found.slices, found.slots, found.least_slice_bytes) == (512 * KIB, 1, 8, 16 * KIB)


@pytest.mark.parametrize(("protocol", "payload"), [("ll", 32 * KIB), ("ll128", 576_000)])
def test_a_chunk_of_lines_is_the_payload_of_a_step(protocol: str, payload: int) -> None:
    found = operation(two_h200(), "all_reduce", "ring", protocol, 64 * MIB)
    assert (found.chunk_bytes[0], found.slices, found.slots, found.least_slice_bytes) == (payload, 1, 8, 0)


def test_only_simple_rings_have_chunks_of_several_steps() -> None:
    assert steps_of("all_reduce", "ring", "simple") == Steps(4, 2)
    others = [("all_reduce", "tree", "simple"), ("all_reduce", "ring", "ll"), ("all_gather", "nvls", "simple")]
    assert {steps_of(*other) for other in others} == {Steps(1, 1)}


def test_buffers_set_the_step() -> None:
    def found(protocol: str, collective: str = "all_reduce", **values: int) -> tuple[int, int]:
        made = operation(two_h200(), collective, "ring", protocol, MIB, settings=Settings(**values))
        return made.chunk_bytes[0], made.least_slice_bytes

    # 128 KiB / 8 = 16 KiB a step: a chunk of four, a slice of two, at least 1/32 of that.
    assert found("simple", buffer_bytes=128 * KIB) == (64 * KIB, KIB)
    assert found("simple", "broadcast", buffer_bytes=128 * KIB) == (16 * KIB, 512)
    assert found("ll", ll_buffer_bytes=64 * KIB) == (4 * KIB, 0)
    # 160 KiB / 8 = 20480 B of lines carry 15/16, 19200 B, which are ten times 1920.
    assert found("ll128", ll128_buffer_bytes=160 * KIB) == (19_200, 0)
    assert found("simple", buffer_bytes=8 * 1000) == (3584, 62)  # 4000 B are seven whole grains of 512; 2000 / 32


def test_a_simple_tree_has_chunks_of_512_kib_from_2_20_on() -> None:
    assert [chunk(h100_nodes(2, Version(2, 20, 5)), "tree", "simple", size) for size in (KIB, GIB)] == [512 * KIB] * 2


@pytest.mark.parametrize(
    ("size", "kib"),
    [
        # Two nodes of eight: depth 7 + 1 = 8, 16 channels.
        (GIB, 512),  # 64 MiB a channel: 128 chunks, not below 8 x 8
        (512 * MIB, 512),  # 64
        (256 * MIB, 256),  # 32, then 64
        (64 * MIB, 128),  # 8, 16, 32, not below 4 x 8
        (32 * MIB, 64),  # 4, 8, 16, 32
        (4 * MIB, 32),  # 0, 1, 2, at 64 KiB 4, below 8, and 8
        (64 * KIB, 32),
    ],
)
def test_a_simple_tree_shortened_its_chunks_before_2_20(size: int, kib: int) -> None:
    assert chunk(h100_nodes(2, Version(2, 19, 4)), "tree", "simple", size) == kib * KIB


@pytest.mark.parametrize(
    ("size", "payload"),
    [
        # Two nodes of eight: k = 1 + 1 + 0.8, 64 k / 8 = 22.4, 16 k / 8 = 5.6, 16 channels.
        (GIB, 576_000),  # 116 chunks
        (128 * MIB, 288_000),  # 14, 29
        (64 * MIB, 144_000),  # 7, 14, 29
        (16 * MIB, 71_040),  # 1, 3, 7, at 72000 14, enough for the second rule; in whole 1920 B
        (MIB, 17_280),  # 0, 0, 0, 0, 1, 3 at 18000
    ],
)
def test_a_tree_of_lines_shortens_its_chunks(size: int, payload: int) -> None:
    assert chunk(h100_nodes(2, MEASURED), "tree", "ll128", size) == payload


def test_a_tree_with_ll_has_chunks_of_one_step() -> None:
    assert [chunk(h100_nodes(2), "tree", "ll", size) for size in (KIB, GIB)] == [32 * KIB] * 2


@pytest.mark.parametrize(
    ("size", "kib"),
    [
        # 16 channels, 8 heads: 1 GiB is 64 loops of 8 x 128 KiB on each.
        (GIB, 128),
        (GIB - 1024 * KIB, 64),
        (64 * MIB, 64),  # 8 loops of 8 x 64 KiB
        (63 * MIB, 32),
        (8 * MIB, 32),  # 2 loops of 8 x 32 KiB
        (7 * MIB, 16),
        (KIB, 16),
    ],
)
def test_nvls_shortens_its_chunks_by_loops_over_its_heads(size: int, kib: int) -> None:
    assert chunk(h100x8(MEASURED), "nvls", "simple", size) == kib * KIB


def test_the_last_channel_can_have_shorter_chunks() -> None:
    # 63 x 8 + 1 cells of 16 KiB on 16 channels: traffic 16531456 / 16 = 1033216, 32 cells of 32 KiB each but the last.
    size = 505 * 16 * KIB
    found = operation(h100x8(), "all_reduce", "nvls", "simple", size)
    assert found.shares[0][1] == 512 * KIB
    assert found.shares[-1][1] == size - 15 * 512 * KIB == 409_600
    # 512 KiB are 2 loops of 8 x 32 KiB, 409600 B are fewer.
    assert found.chunk_bytes == (32 * KIB,) * 15 + (16 * KIB,)


def test_nvls_gathers_registered_buffers_by_whole_steps() -> None:
    assert chunk(h100x8(), "nvls", "simple", 64 * MIB, "all_gather", registered=True) == 512 * KIB
    assert chunk(h100x8(), "nvls", "simple", 64 * MIB, "all_gather") == 64 * KIB
    assert chunk(h100x8(), "nvls", "simple", 64 * MIB, registered=True) == 64 * KIB


def test_nvls_over_a_slow_network_has_short_chunks() -> None:
    def found(between: float) -> int:
        return chunk(machine(2, 8, (8, 48), nvls=(8, 40, between), collnet=(8, 48)), "nvls", "simple", 64 * GIB)

    # Expected: min(2 x 40 x 0.85 x 7/8, between) x 8 channels x n/s = 16/30: 150 GB/s are 35.2 a channel.
    assert [found(48), found(36), found(35)] == [128 * KIB, 128 * KIB, 32 * KIB]


@pytest.mark.parametrize(
    ("nodes", "size", "kib"),
    [
        # 16 channels, 8 heads: 64 MiB are four loops of 8 x 128 KiB on each.
        (2, 64 * MIB, 128),
        (2, 63 * MIB, 64),
        (2, 8 * MIB, 64),  # one loop of 8 x 64 KiB
        (2, 7 * MIB, 32),
        (4, GIB, 64),
        (3, GIB, 128),
    ],
)
def test_trees_of_nvls_shorten_their_chunks(nodes: int, size: int, kib: int) -> None:
    assert chunk(h100_nodes(nodes, MEASURED), "nvls_tree", "simple", size) == kib * KIB


def test_trees_of_nvls_on_blackwell_go_by_nic_from_2_30_on() -> None:
    def found(nodes: int, gpus: int, speed: float, near: str = "PIX", version: Version = NEWEST) -> int:
        made = machine(nodes, gpus, (8, 48), nvls=(gpus, 40, 48), capability=100, version=version, net_GBps=speed)
        graphs = dict(made.graphs)
        graphs["nvls"] = type(graphs["nvls"])(**{**vars(graphs["nvls"]), "type_inter": near})
        made = type(made)(**{**vars(made), "graphs": graphs})
        return chunk(made, "nvls_tree", "simple", 64 * GIB) // KIB

    assert [found(2, gpus, 50) for gpus in (4, 8, 12, 16)] == [256, 64, 128, 64]
    assert (found(2, 8, 50, "PXN"), found(2, 8, 100)) == (128, 128)
    assert [found(4, gpus, 100) for gpus in (8, 16, 32)] == [256, 128, 64]
    assert (found(4, 8, 50), found(4, 8, 50, "PXN")) == (64, 128)
    assert [found(nodes, 8, 25) for nodes in (2, 4)] == [128, 64]  # slower NICs: as before
    assert [found(nodes, 8, 50, version=Version(2, 29, 2)) for nodes in (2, 4)] == [128, 64]


def test_the_environment_sets_chunks_of_nvls() -> None:
    def found(algorithm: str, **values: int) -> int:
        nodes = h100_nodes(2, MEASURED) if algorithm == "nvls_tree" else h100x8(MEASURED)
        return operation(nodes, "all_reduce", algorithm, "simple", 64 * GIB, settings=Settings(**values)).chunk_bytes[0]

    assert found("nvls", nvls_chunk_bytes=256 * KIB) == found("nvls_tree", nvls_chunk_bytes=256 * KIB) == 256 * KIB
    assert found("nvls_tree", nvls_tree_chunk_bytes=32 * KIB) == 32 * KIB


@pytest.mark.parametrize(
    ("algorithm", "size", "kib"),
    [
        # 16 channels of all the data. Direct: 8 heads, depth 2, so 128 and 16 chunks are wanted.
        ("collnet_direct", 4 * GIB, 256),  # 64, 128
        ("collnet_direct", GIB, 128),  # 16, 32, 64
        ("collnet_direct", 128 * MIB, 64),  # 2, 4, 8, 16
        ("collnet_direct", 64 * MIB, 32),  # 1, 2, 4, 8, 16
        # Chain: from 256 KiB, depth 8, so 512, 64 and 8 are wanted.
        ("collnet_chain", 4 * GIB, 256),  # 1024
        ("collnet_chain", GIB, 128),  # 256, 512
        ("collnet_chain", 64 * MIB, 64),  # 16, 32, 64
        ("collnet_chain", 4 * MIB, 32),  # 1, 2, 4, 8
    ],
)
def test_collnet_shortens_its_chunks_by_all_the_data(algorithm: str, size: int, kib: int) -> None:
    made = machine(2, 8, (8, 48), collnet=(8, 48))
    assert chunk(made, algorithm, "simple", size) == kib * KIB


def test_pat_shortens_its_chunks() -> None:
    # 16 ranks, 4 channels, 64 MiB: 16 MiB a channel. 32 chunks for all-gather, 16 for reduce-scatter; 64 KiB at least.
    nodes = machine(16, 1, (2, 24), version=MEASURED)
    assert chunk(nodes, "pat", "simple", 64 * MIB, "all_gather") == 512 * KIB
    assert chunk(nodes, "pat", "simple", 16 * MIB, "all_gather") == 128 * KIB
    assert chunk(nodes, "pat", "simple", 16 * MIB, "reduce_scatter") == 256 * KIB
    assert chunk(nodes, "pat", "simple", KIB, "all_gather") == 64 * KIB
