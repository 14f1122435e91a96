import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netsim.nccl.communicator import Communicator
from netsim.nccl.graphs import GRAPH_IDS, PLAIN_TREE, ChannelGraph, ChannelOrder
from netsim.nccl.tuner import Options, choose, cost_table
from netsim.nccl.version import Version
from tests.netsim.nccl.tuner_machines import NEWEST, h100_nodes, h100x8, machine, two_h200

KIB, MIB, GIB = 2**10, 2**20, 2**30
OUR_NAMES = {"AllReduce": "all_reduce", "AllGather": "all_gather"}

A100X8 = machine(1, 8, (12, 20), capability=80)
B200X8 = machine(1, 8, (16, 45), nvls=(8, 80, 90), capability=100)
NVL72 = machine(1, 72, (16, 45), nvls=(32, 20, 40), capability=100)
PCIE_GEN3_X8 = machine(1, 8, (2, 12), capability=80, types=("PHB", "PIX"))


def table(communicator: Communicator, collective: str = "all_reduce") -> dict[str, tuple[float, float]]:
    """Return the cost table as NCCL prints it, to one digit."""
    costs = cost_table(communicator, collective)
    return {" ".join(pair): (round(cost.latency_us, 1), round(cost.bandwidth_GBps, 1)) for pair, cost in costs.items()}


def switches(communicator: Communicator, collective: str, largest: int) -> list[tuple[int, str]]:
    """Return every change of the winner from 8 B to `largest` in powers of two, the first winner at size 0."""
    found: list[tuple[int, str]] = []
    for size in (2**power for power in range(3, largest.bit_length())):
        choice = choose(communicator, collective, size)
        winner = f"{choice.algorithm} {choice.protocol}"
        if not found or found[-1][1] != winner:
            found.append((size if found else 0, winner))
    return found


def rows(path: Path) -> list[dict[str, str]]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def dumped_graphs(path: Path) -> dict[str, ChannelGraph]:
    names = {number: name for name, number in GRAPH_IDS.items()}
    graphs = {}
    for element in ElementTree.parse(path).getroot():
        name = names[int(element.attrib["id"])]
        orders = [ChannelOrder(tuple(int(gpu.attrib["dev"], 16) for gpu in channel.iter("gpu"))) for channel in element]
        intra, inter, kind_in, kind_out = (element.attrib[k] for k in ("speedintra", "speedinter", "typeintra", "typeinter"))
        pattern, same = int(element.attrib["pattern"]), element.attrib["samechannels"] == "1"
        graphs[name] = ChannelGraph(
            name, pattern, tuple(orders), float(intra), float(inter), kind_in, kind_out, same_channels=same
        )
    return graphs


def test_the_table_that_nccl_logged_on_two_h200s_comes_out_to_the_printed_digit(repository: Path) -> None:
    golden = rows(repository / "tests" / "golden" / "nccl_tuner_h200x2.csv")
    for collective in ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce"):
        logged = {
            f"{row['algorithm']} {row['protocol']}": (float(row["latency_us"]), float(row["bandwidth_GBps"]))
            for row in golden
            if row["collective"] == collective
        }
        assert table(two_h200(), collective) == logged
    assert len(golden) == 18


def test_the_dump_of_that_run_holds_the_graphs_which_the_table_is_computed_from(shared: Path) -> None:
    graphs = dumped_graphs(shared / "samples" / "h200x2" / "nccl_graph_h200x2_vm.xml")
    found = {name: (graph.channels, graph.intra_GBps, graph.type_intra) for name, graph in graphs.items()}
    assert found == {
        "ring": (12, 30, "NVL"),
        "tree": (12, 60, "NVL"),
        "collnet_direct": (0, 0, "LOC"),
        "collnet_chain": (0, 0, "LOC"),
        "nvls": (0, 0, "LOC"),
    }


def test_every_logged_choice_on_two_h200s_is_nccls(shared: Path) -> None:
    graphs = dumped_graphs(shared / "samples" / "h200x2" / "nccl_graph_h200x2_vm.xml")
    pair = Communicator(((0, 1),), graphs)
    logged = rows(shared / "measurements" / "h200x2" / "nccl_choices_h200x2.csv")
    for row in logged:
        forced = None if row["forced"] == "default" else [tuple(row["forced"].lower().split())]
        choice = choose(pair, OUR_NAMES[row["collective"]], int(row["size_bytes"]), allowed=forced)  # type: ignore[arg-type]
        assert (choice.algorithm, choice.protocol) == (row["algo"].lower(), row["proto"].lower()), row
    assert len(logged) == 82


WORKED = {
    # 2.30 (nccl.md 4.7, derived there by an independent implementation); graphs as stated there.
    "8 H100": (
        h100x8(),
        {
            "tree ll": (15.2, 43.6),
            "tree ll128": (31.5, 128.8),
            "tree simple": (64.4, 165.6),
            "ring ll": (15.0, 80.6),
            "ring ll128": (40.6, 189.3),
            "ring simple": (56.0, 205.7),
            "nvls simple": (25, 272),
        },
    ),
    "8 A100": (
        A100X8,
        {
            "ring ll": (15.0, 50.1),
            "ring ll128": (40.6, 126.2),
            "ring simple": (56.0, 137.1),
            "tree ll": (15.2, 29.1),
            "tree simple": (64.4, 110.4),
        },
    ),
    "8 B200": (B200X8, {"ring ll": (15.0, 161.1), "ring simple": (56, 411.4), "nvls simple": (25, 411.4)}),
    "NVL72": (NVL72, {"ring ll": (91.8, 143), "nvls simple": (25, 465.3)}),
    "2 x 8 H100": (
        h100_nodes(2),
        {
            "tree ll": (25.2, 19.5),
            "tree ll128": (48.5, 146.8),
            "ring simple": (131.6, 204.8),
            "nvls_tree simple": (66.8, 246.2),
        },
    ),
    "4 x 8 H100": (
        h100_nodes(4),
        {
            "tree ll": (35.2, 10.2),
            "tree ll128": (65.5, 116),
            "ring simple": (282.8, 198.2),
            "nvls_tree simple": (108.6, 187.9),
        },
    ),
    "8 on PCIe Gen3": (PCIE_GEN3_X8, {"ring ll": (20.6, 6.9), "ring simple": (88.2, 13.7)}),
}


@pytest.mark.parametrize("name", WORKED)
def test_the_worked_tables_come_out(name: str) -> None:
    communicator, worked = WORKED[name]
    found = table(communicator)
    assert {pair: found[pair] for pair in worked} == worked


def test_more_nodes_only_add_latency_to_trees_and_nvls_trees() -> None:
    many, most = table(h100_nodes(16)), table(h100_nodes(64))
    assert (many["tree ll"][0], many["tree ll128"][0], many["nvls_tree simple"]) == (55.2, 99.5, (192.2, 183.4))
    assert (most["tree ll"][0], most["tree ll128"][0], most["nvls_tree simple"]) == (75.2, 133.5, (275.8, 182.4))


def test_the_worked_all_gather_on_eight_h100s_comes_out() -> None:
    # NVLS: 8 channels x 40 x 0.85 x 7/8 x 7/8 = 208.25, which printf takes to the even digit.
    found = table(h100x8(), "all_gather")
    assert found == {
        "ring ll": (10.8, 161.1),
        "ring ll128": (27.3, 378.5),
        "ring simple": (32.2, 411.4),
        "nvls simple": (25, 208.2),
    }


WINNERS = [
    (h100x8(), "all_reduce", [(0, "ring ll"), (2 * MIB, "nvls simple")]),
    (A100X8, "all_reduce", [(0, "ring ll"), (4 * MIB, "ring ll128"), (32 * MIB, "ring simple")]),
    (B200X8, "all_reduce", [(0, "ring ll"), (4 * MIB, "nvls simple")]),
    (NVL72, "all_reduce", [(0, "nvls simple")]),
    (h100_nodes(2), "all_reduce", [(0, "tree ll"), (256 * KIB, "tree ll128"), (4 * MIB, "nvls_tree simple")]),
    (
        h100_nodes(4),
        "all_reduce",
        [(0, "tree ll"), (256 * KIB, "tree ll128"), (16 * MIB, "nvls_tree simple"), (GIB, "ring simple")],
    ),
    (h100_nodes(64), "all_reduce", [(0, "tree ll"), (256 * KIB, "tree ll128"), (64 * MIB, "nvls_tree simple")]),
    (PCIE_GEN3_X8, "all_reduce", [(0, "ring ll"), (MIB, "ring simple")]),
    (h100x8(), "all_gather", [(0, "ring ll"), (8 * MIB, "ring ll128"), (32 * MIB, "ring simple")]),
]


@pytest.mark.parametrize(("communicator", "collective", "expected"), WINNERS)
def test_the_worked_winners_change_where_they_should(
    communicator: Communicator, collective: str, expected: list[tuple[int, str]]
) -> None:
    assert switches(communicator, collective, 8 * GIB) == expected


def test_on_sixteen_nodes_the_ring_of_8_x_48_comes_back_at_8_gib() -> None:
    # Ring: 1190.0 x 1.4 + 8 GiB / 193.5 = 46.05 ms; NVLSTree: 192.2 us + 8 GiB / 183.4 = 47.03 ms.
    expected = [(0, "tree ll"), (256 * KIB, "tree ll128"), (32 * MIB, "nvls_tree simple"), (8 * GIB, "ring simple")]
    assert switches(h100_nodes(16), "all_reduce", 8 * GIB) == expected


def test_with_a_ring_of_8_x_45_four_nodes_stay_with_the_nvls_tree() -> None:
    # Ring 360 x 32/62 = 185.8 GB/s against 187.9.
    four = machine(4, 8, (8, 45), nvls=(8, 40, 48))
    assert switches(four, "all_reduce", 8 * GIB)[-1] == (16 * MIB, "nvls_tree simple")


@pytest.mark.parametrize(
    ("communicator", "ranks", "size", "busbw"),
    [
        (h100x8(), 8, 256 * MIB, 464.2),  # 2^28 B / (25 us + 2^28 / 272 GB/s) x 14/8
        (h100x8(), 8, 8 * GIB, 475.6),
        (A100X8, 8, 8 * GIB, 239.8),
        (B200X8, 8, 8 * GIB, 719.1),
        (h100_nodes(2), 16, 8 * GIB, 460.7),
        (PCIE_GEN3_X8, 8, 8 * GIB, 24.0),
    ],
)
def test_the_predicted_bus_bandwidth_is_the_worked_one(
    communicator: Communicator, ranks: int, size: int, busbw: float
) -> None:
    time_us = choose(communicator, "all_reduce", size).predicted_us
    assert round(size / (time_us * 1000) * 2 * (ranks - 1) / ranks, 1) == busbw


def pair(
    capability: int, ring: tuple[int, float], tree: tuple[int, float], version: Version, arch: str = "x86_64"
) -> Communicator:
    return machine(1, 2, ring, tree, capability=capability, version=version, cpu_arch=arch)


A100X2 = pair(80, (12, 20), (12, 40), Version(2, 27, 3))
H100X2 = pair(90, (12, 30), (12, 60), Version(2, 29, 2))
B200X2 = pair(100, (16, 45), (16, 90), Version(2, 28, 9))
GB200X2 = pair(100, (16, 45), (16, 90), Version(2, 29, 2), arch="arm64")


@pytest.mark.parametrize(
    ("communicator", "all_reduce", "gathers"),
    [(A100X2, MIB, 2 * MIB), (H100X2, 2 * MIB, 4 * MIB), (B200X2, 4 * MIB, 8 * MIB), (GB200X2, 4 * MIB, 8 * MIB)],
)
def test_pairs_leave_ll_where_the_measured_tables_jump(communicator: Communicator, all_reduce: int, gathers: int) -> None:
    # Kinks of the aiconfigurator tables of these releases (half, NVLink), 0.12.0.
    assert switches(communicator, "all_reduce", GIB) == [(0, "ring ll"), (all_reduce, "ring simple")]
    for collective in ("all_gather", "reduce_scatter"):
        assert switches(communicator, collective, GIB) == [(0, "ring ll"), (gathers, "ring simple")]


def test_eight_gpus_leave_ll_where_the_measured_tables_jump() -> None:
    a100 = machine(1, 8, (12, 20), capability=80, version=Version(2, 27, 3))
    b200 = machine(1, 8, (16, 45), nvls=(8, 80, 90), capability=100, version=Version(2, 28, 9))
    assert switches(a100, "all_reduce", GIB) == [(0, "ring ll"), (4 * MIB, "ring ll128"), (32 * MIB, "ring simple")]
    assert switches(h100x8(Version(2, 29, 2)), "all_reduce", GIB) == [(0, "ring ll"), (2 * MIB, "nvls simple")]
    assert switches(b200, "all_reduce", GIB) == [(0, "ring ll"), (4 * MIB, "nvls simple")]


def test_the_public_log_of_two_nodes_over_sockets_comes_out() -> None:
    # A public log of NCCL 2.29.7: two RTX 5090 as two nodes, sockets; ring 1 x 2.4, tree 2 x 2.4 of pattern 3.
    nodes = machine(
        2, 1, (1, 2.4), (2, 2.4), tree_pattern=PLAIN_TREE, capability=120, types=("LOC", "PHB"), version=Version(2, 29, 7)
    )
    assert table(nodes) == {
        "tree ll": (16.8, 0.5),
        "tree simple": (36.4, 1.9),
        "ring ll": (16.6, 1.2),
        "ring simple": (36.4, 2.4),
    }
    # One rank a node: hops at the tree's latency, and PAT is considered.
    gathers = {"ring ll": (11.6, 2.4), "ring simple": (22.4, 4.8), "pat simple": (17.6, 3.6)}
    assert table(nodes, "all_gather") == table(nodes, "reduce_scatter") == gathers
    assert table(nodes, "broadcast") == {"ring ll": (9.3, 1.2), "ring simple": (22.4, 2.4)}
    assert switches(nodes, "broadcast", 128 * MIB) == [(0, "ring ll"), (32 * KIB, "ring simple")]


def test_a_network_of_amd_hosts_has_its_own_ll_limit_and_overhead() -> None:
    intel, amd = (table(h100_nodes(2, cpu_vendor=vendor)) for vendor in ("GenuineIntel", "AuthenticAMD"))
    # 30 steps, 2 of them between nodes: 28 x max(0.6, overhead) + 2 x 2.7 + 6.6; LL limits 39 and 22.5 times 16/30.
    assert (intel["ring ll"], amd["ring ll"]) == ((40.0, 20.8), (68.0, 12.0))
    # Simple counts the overhead three times: 28 x max(3.4, 6) + 2 x 14 + 8.4.
    assert (intel["ring simple"][0], amd["ring simple"][0]) == (131.6, 204.4)
    given = cost_table(h100_nodes(2), "all_reduce", Options(net_overhead_us=3))["ring", "ll"]
    assert given.latency_us == pytest.approx(6.6 + 28 * 3 + 2 * 2.7)


def test_a_tree_of_the_plain_pattern_is_worth_less() -> None:
    # 8 channels x min(0.92 x 48, 41.4) / 2 = 165.6; the pattern takes 15 %.
    plain = machine(2, 8, (8, 48), tree_pattern=PLAIN_TREE)
    assert (table(h100_nodes(2))["tree simple"][1], table(plain)["tree simple"][1]) == (165.6, 140.8)


def test_on_power_hosts_a_tree_over_pcie_is_as_late_as_a_ring() -> None:
    power = machine(1, 8, (2, 12), capability=70, types=("PHB", "PIX"), cpu_arch="ppc64")
    assert table(PCIE_GEN3_X8)["tree simple"][0] == 64.4  # 8.4 + 14 x 4.0
    assert table(power)["tree simple"][0] == 88.2  # 8.4 + 14 x 5.7


def test_the_network_latency_of_a_graph_counts_once_and_for_simple_twice() -> None:
    nodes = machine(2, 8, (8, 48))
    late = {name: ChannelGraph(**{**vars(graph), "latency_inter_us": 1.5}) for name, graph in nodes.graphs.items()}
    slow, fast = table(Communicator(**{**vars(nodes), "graphs": late})), table(nodes)
    # Two hops between nodes in a ring and in a tree of two nodes.
    assert round(slow["ring ll"][0] - fast["ring ll"][0], 1) == 3.0
    assert round(slow["tree simple"][0] - fast["tree simple"][0], 1) == 6.0


def test_collnet_costs_are_those_worked_by_hand() -> None:
    found = table(h100_nodes(4, collnet=(8, 40, 48)))
    # Direct: one GPU a NIC, so 8 x 40 x 0.85 / 2; 2 x (3.7 + 7 x 0.4) + 31. Chain: 320 / 2; 2 x 7 x 2.8 + 30.
    assert found["collnet_direct simple"] == (44.0, 136.0)
    assert found["collnet_chain simple"] == (69.2, 160.0)
    # NVLS through the network: min(59.5, 48) x 8 x 32/62; 25 + 18.
    assert found["nvls simple"] == (43.0, 198.2)
    # Two GPUs a NIC: divided by 2 - 1/2. 4 x 40 / 1.5 x 0.85 / 2.
    assert table(h100_nodes(4, collnet=(4, 40, 48)))["collnet_direct simple"][1] == 45.3


def test_all_gather_through_the_network_needs_a_nic_a_rank_and_a_plugin_that_gathers() -> None:
    options = Options(collnet_gathers=True)
    enough, few = (h100_nodes(4, collnet=speed) for speed in ((8, 40, 48), (4, 40, 48)))
    found = cost_table(enough, "all_gather", options)
    assert found["collnet_direct", "simple"].bandwidth_GBps == 320  # 8 x min(40, 0.9 x 48)
    assert found["nvls", "simple"].bandwidth_GBps == pytest.approx(208.25)
    for communicator, wish in ((few, options), (enough, Options())):
        assert {algorithm for algorithm, _ in cost_table(communicator, "all_gather", wish)} == {"ring"}


def test_broadcast_along_different_channels_pays_every_hop() -> None:
    same = machine(1, 8, (12, 30))
    other = {name: ChannelGraph(**{**vars(graph), "same_channels": False}) for name, graph in same.graphs.items()}
    found = table(Communicator(**{**vars(same), "graphs": other}), "broadcast")
    # n hops, and those of Simple as late as the tree's: 6.6 + 8 x 0.6, 14 + 8 x 1.9, 8.4 + 8 x 4.0.
    assert [latency for latency, _ in found.values()] == [11.4, 29.2, 40.4]
    assert [latency for latency, _ in table(same, "broadcast").values()] == [7.2, 15.9, 11.8]


def test_one_rank_has_no_table() -> None:
    assert cost_table(machine(1, 1, (1, 1), version=NEWEST), "all_reduce") == {}
