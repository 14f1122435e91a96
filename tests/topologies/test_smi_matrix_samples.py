"""Matrices that people published, read as graphs: the links and distances that each one tells."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from netsim.fabric import ranks_of
from netsim.routing import Router
from tests.topologies.machine_graphs import distance, links
from topologies import build, remarks
from topologies.distances import NODE, PHB, PIX, PXB, SYS, Table
from topologies.smi_matrix import load_matrix
from topologies.smi_text import parse_smi


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "samples" / "smi_topo_matrix"


@pytest.fixture(scope="module")
def load(folder: Path) -> Callable[[str], "nx.DiGraph[str]"]:
    return lambda name: build(str(folder / f"{name}.txt"))


def test_every_sample_loads_with_the_gpus_and_links_that_its_row_states(shared: Path) -> None:
    with (shared / "samples" / "index.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["kind"] == "smi_topo_matrix"]
    assert len(rows) == 18
    for row in rows:
        graph = build(str(shared / "samples" / row["file"]))
        facts = row["expected_facts"]
        gpus = re.search(r"(\d+) GPUs", facts)
        assert gpus is not None
        assert len(ranks_of(graph)) == int(gpus[1]), row["file"]
        for count in re.findall(r"\bNV(\d+)\b", facts):
            assert int(count) in links(graph, "nvlink").values(), row["file"]
        nics = re.search(r"(\d+) NICs", facts)
        if nics is not None and "each GPU pair" not in facts[: nics.start()]:
            assert sum(data["kind"] == "nic" for data in graph.nodes.values()) == int(nics[1]), row["file"]
        assert graph.graph["remarks"], "the text never tells its generations"


def test_every_distance_of_every_sample_is_in_its_graph(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        table: Table = parse_smi(path.read_text(encoding="utf-8"), path.name)
        graph = load_matrix(path)
        for (a, b), told in table.distances.items():
            names = [name.lower() if name.startswith(("GPU", "NIC")) else name for name in (a, b)]
            wanted = {PIX: {"PIX"}, PXB: {"PXB", "PIX"}, PHB: {"PHB"}, NODE: {"PHB"}, SYS: {"SYS"}}[told]
            assert distance(graph, *names) in wanted, (path.name, a, b)


def test_a_board_of_four_has_direct_links_and_a_nic_a_gpu(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("a100_4gpu_nv4_4nic")
    assert len(links(graph, "nvlink3")) == 6
    for gpu in range(4):
        assert [distance(graph, f"gpu{gpu}", f"nic{nic}") == "SYS" for nic in range(4)] == [nic != gpu for nic in range(4)]


def test_pairs_stay_pairs(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("a100_pcie_nvlink_pairs")
    assert links(graph, "nvlink") == {(f"gpu{gpu}", f"gpu{gpu + 1}"): 12 for gpu in (0, 2, 4, 6)}
    assert [distance(graph, "gpu1", other) for other in ("gpu2", "gpu4")] == ["PHB", "SYS"]


def test_one_bridge_leaves_the_third_gpu_on_pcie(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    assert links(load("a6000_3gpu_one_bridge"), "nvlink") == {("gpu0", "gpu1"): 4}


def test_nics_near_one_gpu_only(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("ansi_2gpu_nv12")
    assert sorted(graph.successors("pcie_switch0")) == ["cpu0", "gpu0", "nic0", "nic1"]
    assert distance(graph, "gpu1", "nic0") == "SYS"


def test_sixteen_gpus_hang_on_one_switch_and_nics_keep_their_names(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("dgx2_v100_16gpu")
    assert graph.out_degree("nvswitch") == 16
    assert ranks_of(graph)[-1] == "gpu15"
    assert {f"mlx5_{nic}" for nic in range(10)} <= set(graph)


def test_storage_nics_are_far_from_every_gpu_and_said_to_be(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("dgx_a100_12nic")
    assert [node for node, data in graph.nodes.items() if data["kind"] == "root_complex"][:4] == [
        "cpu3",
        "cpu1",
        "cpu7",
        "cpu5",
    ]
    for pair, nics in (((0, 1), (0, 1)), ((2, 3), (2, 3)), ((4, 5), (6, 7)), ((6, 7), (8, 9))):
        for gpu in pair:
            assert [nic for nic in range(12) if distance(graph, f"gpu{gpu}", f"nic{nic}") != "SYS"] == list(nics)
    assert any(remark.startswith("NIC4, NIC5, NIC10, NIC11: at SYS distance") for remark in graph.graph["remarks"])
    assert any("is beyond another socket for every GPU (and 3 more NICs)" in remark for remark in remarks(graph))
    assert graph.nodes["nic3"]["ports"] == ("mlx5_3",)


def test_a_grace_blackwell_tray_has_coherent_links(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("gb200_tray_4gpu")
    assert links(graph, "nvlink5") == {(f"gpu{gpu}", "nvswitch"): 18 for gpu in range(4)}
    assert [graph.edges[f"gpu{gpu}", f"cpu{gpu // 2}"]["link"].kind for gpu in range(4)] == ["c2c_gb200"] * 4
    assert {distance(graph, "gpu0", f"nic{nic}") for nic in range(6)} == {"SYS"}


def test_each_gpu_finds_its_nic_in_reversed_order(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("h100_8gpu_9nic_reversed")
    near = [[nic for nic in range(9) if distance(graph, f"gpu{gpu}", f"nic{nic}") == "PIX"] for gpu in range(8)]
    assert near == [[8], [7], [6], [5], [4], [3], [2], [1]]


def test_numa_nodes_hold_three_one_three_and_one_gpu(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("h100_8gpu_snc_uneven")
    switches = {f"pcie_switch{index}" for index in range(8)}
    assert [len(switches & set(graph.successors(f"cpu{numa}"))) for numa in range(4)] == [3, 1, 3, 1]
    assert distance(graph, "gpu7", "nic8") == "PIX"


def test_a_box_without_numa_column_has_its_sockets_from_distances(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("k80_like_8gpu_mlx4")
    assert [distance(graph, "gpu0", f"gpu{gpu}") for gpu in (1, 2, 4)] == ["PIX", "PHB", "SYS"]
    assert "cpu0" in graph.successors("mlx4_0")


def test_a_bridge_that_is_half_seated_is_remarked_upon(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    assert any("GPU0 shows 3 NVLinks" in remark for remark in remarks(load("nv3_partial_bridge")))


def test_four_gpus_and_a_nic_share_a_switch(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("rtx4090_8gpu_two_switches")
    assert sorted(graph.successors("pcie_switch0")) == ["cpu0", "gpu0", "gpu1", "gpu2", "gpu3", "nic0"]
    assert graph.nodes["nic0"]["ports"] == ("mlx5_bond_0",)


def test_a_status_table_behind_the_matrix_is_no_link_table(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("rtx5090_2gpu_phb_then_p2p")
    assert distance(graph, "gpu0", "gpu1") == "PHB"
    assert graph.graph["p2p"] == "NVL"


def test_one_gpu_is_alone_on_its_socket(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("t4_4gpu_lopsided")
    assert set(graph.successors("cpu0")) == {"cpu1", "gpu0", "memory0"}
    assert set(graph.successors("cpu1")) == {"cpu0", "gpu1", "gpu2", "gpu3", "memory1"}


def test_only_two_of_ten_nics_are_near_the_visible_gpus(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("two_of_eight_visible")
    assert [nic for nic in range(10) if distance(graph, "gpu1", f"nic{nic}") != "SYS"] == [0, 1]


def test_a_comma_list_is_one_affinity(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("v100_4gpu_nv2_commalist")
    assert len(links(graph, "nvlink2")) == 6
    assert distance(graph, "gpu2", "mlx5_0") == "PHB"


def test_the_cube_mesh_is_that_of_the_preset_under_other_numbers(load: Callable[[str], "nx.DiGraph[str]"]) -> None:
    graph = load("v100_hybrid_cube_mesh")
    found = links(graph, "nvlink2")
    number = (3, 2, 0, 1, 7, 6, 4, 5)  # of each of the sample's GPUs on a DGX-1V
    renamed = {gpu: f"gpu{number[int(gpu[3:])]}" for gpu in ranks_of(graph)}
    assert links(nx.relabel_nodes(graph, renamed), "nvlink2") == links(build("dgx-1v"), "nvlink2")
    assert sorted(found.values()) == [1] * 8 + [2] * 8
    # GPUs 0 and 5 have no link of their own, so a ring over 0, 1 and 5 falls to PCI Express.
    router = Router(graph)
    assert any(router.edges[index] == ("cpu0", "cpu1") for index in router.path(0, 5))


def test_two_gpus_with_eighteen_links_hang_on_a_switch(shared: Path) -> None:
    graph = build(str(shared / "samples" / "h200x2" / "nvidia_smi_topo_m.txt"))
    assert links(graph, "nvlink4") == {("gpu0", "nvswitch"): 18, ("gpu1", "nvswitch"): 18}
    router = Router(graph)
    assert [router.edges[index] for index in router.path(0, 1)] == [("gpu0", "nvswitch"), ("nvswitch", "gpu1")]
