from collections.abc import Callable
from dataclasses import replace

import pytest

from netsim.nccl.communicator import Communicator
from netsim.nccl.tuner import Options, cost_table
from netsim.nccl.version import Version
from tests.netsim.nccl.tuner_machines import h100_nodes, h100x8, machine, two_h200

RELEASES = [(2, 17, 1), (2, 18, 5), (2, 19, 4), (2, 20, 5), (2, 21, 5), (2, 22, 3), (2, 23, 4), (2, 24, 3)]
RELEASES += [(2, 25, 1), (2, 26, 2), (2, 27, 3), (2, 28, 3), (2, 28, 9), (2, 29, 2), (2, 30, 7)]


def entry(
    communicator_of: Callable[[Version], Communicator], release: tuple[int, ...], pair: str, collective: str = "all_reduce"
) -> tuple[float, float]:
    algorithm, protocol = pair.split()
    cost = cost_table(communicator_of(Version(*release)), collective)[algorithm, protocol]
    return round(cost.latency_us, 1), round(cost.bandwidth_GBps, 1)


def two_nodes(version: Version) -> Communicator:
    return h100_nodes(2, version)


def b200_nodes(version: Version) -> Communicator:
    return machine(4, 8, (16, 45), nvls=(16, 80, 96), capability=100, version=version)


EIGHT_H100 = [
    # Ring LL: 14 hops; 12 x 30 / 4 = 90, capped at 87.7; from 2.21 360 / 2, capped at 141; times 8/14.
    ((2, 17, 1), "ring ll", (10.2, 50.1)),  # 3.6 + 14 x 0.47
    ((2, 18, 5), "ring ll", (15.0, 50.1)),  # 6.6 + 14 x 0.6
    ((2, 20, 5), "ring ll", (15.0, 50.1)),
    ((2, 21, 5), "ring ll", (15.0, 80.6)),
    ((2, 17, 1), "ring ll128", (36.6, 189.3)),  # 10 + 14 x 1.9
    # Tree Simple: 0.92 x 360 / 2; 14 hops of 28, 4, 28 us without base, then of 4 us with 8.4.
    ((2, 17, 1), "tree simple", (392.0, 165.6)),
    ((2, 18, 5), "tree simple", (56.0, 165.6)),
    ((2, 19, 4), "tree simple", (392.0, 165.6)),
    ((2, 22, 3), "tree simple", (392.0, 165.6)),
    ((2, 23, 4), "tree simple", (64.4, 165.6)),
    # NVLS: 2.17 from the ring's 360 x 3/4; then 8 x 40 x 5/6; 2.28 8 x 40 x 0.85 x 7/8 x 2 x 8/14.
    ((2, 17, 1), "nvls simple", (40.0, 270.0)),
    ((2, 18, 5), "nvls simple", (23.0, 266.7)),
    ((2, 20, 5), "nvls simple", (23.0, 266.7)),
    ((2, 21, 5), "nvls simple", (25.0, 266.7)),
    ((2, 27, 3), "nvls simple", (25.0, 266.7)),
    ((2, 28, 3), "nvls simple", (25.0, 272.0)),
]


@pytest.mark.parametrize(("release", "pair", "expected"), EIGHT_H100)
def test_all_reduce_on_eight_h100s_by_release(release: tuple[int, ...], pair: str, expected: tuple[float, float]) -> None:
    assert entry(h100x8, release, pair) == expected


@pytest.mark.parametrize(
    ("release", "pair", "expected"),
    [
        # min(87.7, 360 / 3) x 8/7; from 2.21 min(141, 360 / 2) x 8/7
        ((2, 20, 5), "ring ll", (10.8, 100.2)),
        ((2, 21, 5), "ring ll", (10.8, 161.1)),
        # NVLS 320 x 5/6, unconverted from 2.23, 7/8 of it from 2.27, 40 x 0.85 x 7/8 x 7/8 a channel from 2.28
        ((2, 22, 3), "nvls simple", (25.0, 266.7)),
        ((2, 23, 4), "nvls simple", (25.0, 320.0)),
        ((2, 27, 3), "nvls simple", (25.0, 280.0)),
        ((2, 28, 3), "nvls simple", (25.0, 208.2)),
    ],
)
def test_all_gather_on_eight_h100s_by_release(release: tuple[int, ...], pair: str, expected: tuple[float, float]) -> None:
    assert entry(h100x8, release, pair, "all_gather") == expected


@pytest.mark.parametrize(
    ("release", "pair", "expected"),
    [
        # NVLSTree: 320 x 0.7 x 2/2, 320 x 5/6, then 461.6 x 16/30; hops of 19, 14 and 20.9 us, two of them.
        ((2, 18, 5), "nvls_tree simple", (61.0, 224.0)),
        ((2, 20, 5), "nvls_tree simple", (51.0, 266.7)),
        ((2, 27, 3), "nvls_tree simple", (53.0, 266.7)),
        ((2, 28, 9), "nvls_tree simple", (53.0, 246.2)),
        ((2, 29, 2), "nvls_tree simple", (66.8, 246.2)),
        # Ring: 2N steps between nodes before 2.23, 2(N - 1) since; 2.17: 9.6 us each, LL hops inside 1.8 times.
        ((2, 17, 1), "ring simple", (135.2, 197.3)),  # 8.4 + 26 x 3.4 + 4 x 9.6; min(384, 370) x 16/30
        ((2, 17, 1), "ring ll", (36.4, 20.8)),  # 3.6 + 26 x 0.47 x 1.8 + 4 x 2.7; 39 x 16/30
        ((2, 22, 3), "ring simple", (152.8, 204.8)),  # 8.4 + 26 x 3.4 + 4 x 14
        ((2, 23, 4), "ring simple", (131.6, 204.8)),  # 8.4 + 28 x 3.4 + 2 x 14
    ],
)
def test_all_reduce_on_two_nodes_by_release(release: tuple[int, ...], pair: str, expected: tuple[float, float]) -> None:
    assert entry(two_nodes, release, pair) == expected


@pytest.mark.parametrize(
    ("release", "ring_ll128", "tree_simple", "nvls_tree"),
    [
        # 16 channels on four nodes; ring x 32/62, tree / 2, NVLSTree x 5/6, from 2.28 x 32/62.
        ((2, 24, 3), None, 288.0, 640.0),  # LL128 not known to work; 16 x 36; 16 x 96/2
        ((2, 25, 1), 341.9, 331.2, 640.0),  # 0.92 x 720; 0.92 x 720
        ((2, 28, 9), 341.9, 192.0, 361.7),  # tree cap 24; NVLSTree 16 x 43.8 x 32 / 62
        ((2, 30, 7), 330.3, 192.0, 660.6),  # ring cap 40; NVLSTree cap 80
    ],
)
def test_blackwell_was_taken_for_hopper_then_for_twice_hopper_then_fitted(
    release: tuple[int, ...], ring_ll128: float | None, tree_simple: float, nvls_tree: float
) -> None:
    table = cost_table(b200_nodes(Version(*release)), "all_reduce")
    found = {pair: round(cost.bandwidth_GBps, 1) for pair, cost in table.items()}
    assert found.get(("ring", "ll128")) == ring_ll128
    assert (found["tree", "simple"], found["nvls_tree", "simple"]) == (tree_simple, nvls_tree)


def test_two_nodes_of_blackwell_lost_half_of_ring_ll128_within_2_28() -> None:
    def bandwidth(version: Version) -> float:
        nodes = machine(2, 8, (16, 45), capability=100, version=version)
        return cost_table(nodes, "all_reduce")["ring", "ll128"].bandwidth_GBps

    # min(0.92 x 720, 16 x cap) x 16/30 with a cap of 73.4 and of 34.6
    assert [bandwidth(Version(2, 28, patch)) for patch in (3, 7)] == pytest.approx([662.4 * 16 / 30, 553.6 * 16 / 30])


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_has_rings_and_trees_for_two_h200s(release: tuple[int, ...]) -> None:
    table = cost_table(two_h200(Version(*release)), "all_reduce")
    assert set(table) == {(algorithm, protocol) for algorithm in ("tree", "ring") for protocol in ("ll", "ll128", "simple")}


def test_ring_ll_was_worth_a_quarter_and_for_gathers_a_third_until_2_20() -> None:
    def a100(version: Version) -> Communicator:
        return machine(1, 8, (12, 20), capability=80, version=version)

    # 240 / 4 x 8/14 and 240 / 3 x 8/7; then the limit, 87.7 x 8/14 and x 8/7
    assert [entry(a100, (2, 20, 5), "ring ll", collective)[1] for collective in ("all_reduce", "all_gather")] == [34.3, 91.4]
    assert [entry(a100, (2, 21, 5), "ring ll", collective)[1] for collective in ("all_reduce", "all_gather")] == [
        50.1,
        100.2,
    ]


def test_one_rank_a_node_was_seen_otherwise_before_2_23() -> None:
    def alone(version: Version) -> Communicator:
        return machine(16, 1, (2, 24), types=("LOC", "PIX"), version=version)

    # 2.22 counts 32 of the 30 steps between nodes: 14 + 32 x 4.0 - 2 x 2.5 and 0.7 x 48 x 16/30.
    # 2.23: 14 + 30 x 8.5 and 0.92 x 48 x 16/30.
    assert entry(alone, (2, 22, 3), "ring ll128") == (137.0, 17.9)
    assert entry(alone, (2, 23, 4), "ring ll128") == (269.0, 23.6)
    # PAT began with 0.85 x 48.
    assert entry(alone, (2, 23, 4), "pat simple", "all_gather") == (68.8, 40.8)


def test_collnet_by_release() -> None:
    def four_nodes(version: Version) -> Communicator:
        return machine(4, 8, (8, 40), collnet=(8, 40), version=version)

    # Direct: 2 x (8 + 7 x 0.5) + 10.7 and 320 / 2, from 2.18 x 0.85 on Hopper; 2.19: 2 x (3.7 + 7 x 0.4) + 31.
    found = [entry(four_nodes, release, "collnet_direct simple") for release in ((2, 17, 1), (2, 18, 5), (2, 19, 4))]
    assert found == [(33.7, 160.0), (33.7, 136.0), (44.0, 136.0)]
    # Chain: 2 x 7 x 8 without the network and 3/4 of 160; 2 x 7 x 4.75 + 14; 2 x 7 x 2.8 + 30.
    found = [entry(four_nodes, release, "collnet_chain simple") for release in ((2, 17, 1), (2, 18, 5), (2, 19, 4))]
    assert found == [(112.0, 120.0), (80.5, 160.0), (69.2, 160.0)]


def test_all_gather_by_collnet_by_release() -> None:
    def direct(gpus: int, release: tuple[int, ...]) -> float | None:
        nodes = machine(4, gpus, (8, 48), collnet=(8, 40, 40), version=Version(*release))
        cost = cost_table(nodes, "all_gather", Options(collnet_gathers=True)).get(("collnet_direct", "simple"))
        return None if cost is None else round(cost.bandwidth_GBps, 1)

    # 8 x 40 x 0.85; 4 x 40 x (0.85 x 3/7 + 0.95 x 4/7); from 2.27 n x min(40, 0.9 x 40)
    assert [direct(8, release) for release in ((2, 19, 4), (2, 20, 5), (2, 27, 3))] == [None, 272.0, 288.0]
    assert [direct(4, release) for release in ((2, 20, 5), (2, 27, 3))] == [145.1, 144.0]


def test_2_17_takes_a_network_latency_that_is_known_instead_of_its_own() -> None:
    def late(version: Version) -> Communicator:
        nodes = h100_nodes(2, version)
        graphs = {name: replace(graph, latency_inter_us=1.5) for name, graph in nodes.graphs.items()}
        return replace(nodes, graphs=graphs)

    # 3.6 + 26 x 0.47 x 1.8 + 4 x 1.5; later 6.6 + 26 x 1.0 + 4 x (2.7 + 1.5)
    assert entry(late, (2, 17, 1), "ring ll")[0] == 31.6
    assert entry(late, (2, 18, 5), "ring ll")[0] == 49.4
