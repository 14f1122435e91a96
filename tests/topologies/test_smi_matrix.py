import csv
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim.errors import FabricError, ProfileError
from netsim.fabric import ranks_of, topology_digest
from netsim.reach import path_type
from netsim.routing import Router
from topologies import build, load_profile, remarks, write_profile
from topologies.distances import NODE, PHB, PIX, PXB, SYS, Table
from topologies.smi_matrix import load_matrix, matrix_topology
from topologies.smi_text import parse_smi

WORDS = {PIX: "PIX", PXB: "PXB", PHB: "PHB", NODE: "NODE", SYS: "SYS"}


def machine(tmp_path: Path, text: str, name: str = "machine.txt") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def matrix(cells: dict[str, str], affinity: dict[str, str] | None = None) -> str:
    """Write a matrix from rows of cells without their X."""
    names = list(cells)
    lines = ["\t" + "\t".join(names) + ("\tCPU Affinity" if affinity else "")]
    for index, (name, row) in enumerate(cells.items()):
        words = row.split()
        words.insert(index, "X")
        lines.append("\t".join([name, *words, *([affinity[name]] if affinity and name in affinity else [])]))
    return "\n".join(lines) + "\n"


def all_pairs(gpus: int, cell: str) -> str:
    return matrix({f"GPU{gpu}": " ".join([cell] * (gpus - 1)) for gpu in range(gpus)})


def links(graph: "nx.DiGraph[str]", kind: str) -> dict[tuple[str, str], int]:
    return {(a, b): link.count for a, b, link in graph.edges(data="link") if link.kind.startswith(kind) and a < b}


def distance(graph: "nx.DiGraph[str]", a: str, b: str) -> str:
    """Return NVIDIA's word for how far two devices are on the PCIe side of a graph."""
    tree = graph.subgraph(
        node for node, data in graph.nodes.items() if data["kind"] not in ("gpu", "nic", "nvswitch") or node in (a, b)
    ).copy()
    if tree.has_edge(a, b):
        tree.remove_edge(a, b)
    kinds = [graph.nodes[node]["kind"] for node in nx.shortest_path(tree, a, b)[1:-1]]
    return path_type(kinds)


# The links between GPUs


@pytest.mark.parametrize(
    ("gpus", "cell", "switched"),
    [
        (8, "NV18", True),
        (8, "NV12", True),
        (16, "NV6", True),  # 15 x 6 = 90 links in sum
        (4, "NV18", True),
        (8, "NV8", True),  # H800
        (2, "NV18", True),  # no bridge has 18 links
        (4, "NV6", False),  # 3 x 6 = 18: a board of four with direct links
        (4, "NV4", False),
        (4, "NV2", False),
        (2, "NV12", False),
    ],
)
def test_equal_counts_mean_a_switch_where_they_are_more_than_a_gpu_has(
    tmp_path: Path, gpus: int, cell: str, switched: bool
) -> None:
    graph = load_matrix(machine(tmp_path, all_pairs(gpus, cell)))
    assert ("nvswitch" in graph) is switched
    count = int(cell[2:])
    found = links(graph, "nvlink")
    assert set(found.values()) == {count}
    assert len(found) == (gpus if switched else gpus * (gpus - 1) // 2)


def test_two_islands_have_a_switch_each(tmp_path: Path) -> None:
    cells = {f"GPU{a}": " ".join("NV12" if a // 4 == b // 4 else "SYS" for b in range(8) if b != a) for a in range(8)}
    graph = load_matrix(machine(tmp_path, matrix(cells)))
    assert sorted(graph.successors("nvswitch")) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert sorted(graph.successors("nvswitch1")) == ["gpu4", "gpu5", "gpu6", "gpu7"]


def test_a_gpu_with_fewer_links_to_the_switch_is_seen(tmp_path: Path) -> None:
    cells = {f"GPU{a}": " ".join("NV16" if 3 in (a, b) else "NV18" for b in range(8) if b != a) for a in range(8)}
    graph = load_matrix(machine(tmp_path, matrix(cells)))
    assert graph.edges["gpu3", "nvswitch"]["link"].count == 16
    assert graph.edges["gpu2", "nvswitch"]["link"].count == 18
    assert "gpu3 has 16 GPU-to-GPU links where most GPUs have 18" in remarks(graph)


@pytest.mark.parametrize(
    ("gpus", "cell", "kinds"),
    [
        (8, "NV18", {"nvlink4", "pcie5"}),
        (8, "NV12", {"nvlink3", "pcie4"}),
        (16, "NV6", {"nvlink2", "pcie3"}),
        (2, "NV4", {"nvlink3_ga102", "pcie4"}),
        (2, "NV2", {"nvlink2", "pcie3"}),
        (5, "NV1", {"nvlink1", "pcie3"}),
        (2, "PHB", {"pcie4"}),
    ],
)
def test_generations_are_assumed_with_a_remark_each(tmp_path: Path, gpus: int, cell: str, kinds: set[str]) -> None:
    graph = load_matrix(machine(tmp_path, all_pairs(gpus, cell)))
    assert {link.kind for _, _, link in graph.edges(data="link")} == kinds | {"host_memory"}
    for kind in kinds:
        assert any(f"taken as {kind}" in remark for remark in graph.graph["remarks"])


def test_a_coherent_board_of_four_is_hopper_and_a_coherent_switch_blackwell(tmp_path: Path) -> None:
    def coherent(cell: str) -> "nx.DiGraph[str]":
        rows = [f"GPU{a}\t" + "\t".join("X" if a == b else cell for b in range(4)) + f"\t{a}\t{4 + a}\n" for a in range(4)]
        return load_matrix(machine(tmp_path, "GPU0 GPU1 GPU2 GPU3 NUMA Affinity GPU NUMA ID\n" + "".join(rows)))

    # Six links to each of three others are the 18 of a Hopper, 25 GB/s each; 18 to everybody lead to a switch.
    board, tray = coherent("NV6"), coherent("NV18")
    assert board.edges["gpu0", "gpu1"]["link"].kind == "nvlink4"
    assert board.edges["gpu0", "cpu0"]["link"].kind == "c2c_gh200"
    assert tray.edges["gpu0", "nvswitch"]["link"].kind == "nvlink5"
    assert tray.edges["gpu0", "cpu0"]["link"].kind == "c2c_gb200"


def test_what_the_user_states_is_taken_and_not_remarked_upon(tmp_path: Path) -> None:
    path = str(machine(tmp_path, all_pairs(8, "NV18")))
    graph = build(path, profile="nvlink5, pcie6")
    assert graph.edges["gpu0", "nvswitch"]["link"].kind == "nvlink5"
    assert graph.edges["gpu0", "cpu0"]["link"].kind == "pcie6"
    assert not [remark for remark in graph.graph["remarks"] if "NVLinks;" in remark or "width" in remark]


def test_the_switch_adds_and_copies_from_hopper_on(tmp_path: Path) -> None:
    assert load_matrix(machine(tmp_path, all_pairs(8, "NV18"))).nodes["nvswitch"]["reduce"] is True
    path = str(machine(tmp_path, all_pairs(8, "NV8")))
    assert build(path).nodes["nvswitch"]["reduce"] is False
    assert build(path, profile="nvlink4").nodes["nvswitch"]["reduce"] is True  # H800, not A800


def test_the_link_between_cpus_goes_with_the_pci_express_that_is_stated(tmp_path: Path) -> None:
    path = str(machine(tmp_path, all_pairs(2, "SYS")))
    assert build(path).edges["cpu0", "cpu1"]["link"].kind == "socket_amd"
    assert build(path, profile="pcie5").edges["cpu0", "cpu1"]["link"].kind == "socket_intel_sapphire_rapids"


def test_a_generation_to_come_is_taken_as_stated(tmp_path: Path) -> None:
    profile = tmp_path / "nvlink6.toml"
    write_profile(replace(load_profile("nvlink5"), name="nvlink6"), profile)
    graph = build(str(machine(tmp_path, all_pairs(8, "NV36"))), profile=str(profile))
    assert graph.nodes["nvswitch"]["reduce"] is True
    assert graph.edges["gpu0", "nvswitch"]["link"].count == 36


def test_two_profiles_of_one_family_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="both of the family 'nvlink'"):
        build(str(machine(tmp_path, all_pairs(8, "NV18"))), profile="nvlink4,nvlink5")


def test_a_profile_of_a_family_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="of which this topology has no link"):
        build(str(machine(tmp_path, all_pairs(2, "PHB"))), profile="nvlink4")


# The PCIe side


def test_devices_at_pix_share_a_switch_and_pxb_is_a_cascade(tmp_path: Path) -> None:
    cells = {"GPU0": "SYS PIX PXB", "GPU1": "SYS SYS SYS", "NIC0": "PIX SYS PXB", "NIC1": "PXB SYS PXB"}
    graph = load_matrix(machine(tmp_path, matrix(cells)))
    assert sorted(graph.successors("pcie_switch1")) == ["gpu0", "nic0", "pcie_switch0"]
    assert sorted(graph.successors("pcie_switch0")) == ["cpu0", "nic1", "pcie_switch1"]
    assert sorted(graph.successors("cpu1")) == ["cpu0", "gpu1", "memory1"]


def test_linked_gpus_find_their_place_by_what_is_near_them(tmp_path: Path) -> None:
    # GPU0 and GPU1 show NV12; NIC0 is under the switch of one and on the other socket for the other.
    cells = {"GPU0": "NV12 PIX", "GPU1": "NV12 SYS", "NIC0": "PIX SYS"}
    graph = load_matrix(machine(tmp_path, matrix(cells)))
    assert distance(graph, "gpu0", "gpu1") == "SYS"


def test_linked_gpus_are_apart_when_only_their_affinities_tell(tmp_path: Path) -> None:
    cells = {f"GPU{gpu}": "NV4 NV4" for gpu in range(3)}
    graph = load_matrix(machine(tmp_path, matrix(cells, {"GPU0": "0-7", "GPU1": "0-7", "GPU2": "8-15"})))
    assert distance(graph, "gpu0", "gpu1") == "PHB"
    assert distance(graph, "gpu1", "gpu2") == "SYS"


def test_nothing_that_tells_the_numa_node_is_remarked_upon(tmp_path: Path) -> None:
    found = load_matrix(machine(tmp_path, all_pairs(2, "NV4"))).graph["remarks"]
    assert any("neither the table nor an affinity column tells" in remark for remark in found)


def test_a_table_that_contradicts_itself_takes_the_nearer_reading(tmp_path: Path) -> None:
    cells = {"GPU0": "PIX SYS", "GPU1": "PIX PIX", "GPU2": "SYS PIX"}
    graph = load_matrix(machine(tmp_path, matrix(cells)))
    assert len([node for node, data in graph.nodes.items() if data["kind"] == "pcie_switch"]) == 1
    assert any(remark.startswith("GPU0 - GPU2 is SYS in the table, but") for remark in graph.graph["remarks"])


def test_numa_numbers_that_contradict_the_distances_are_remarked_upon(tmp_path: Path) -> None:
    head = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
    apart = load_matrix(machine(tmp_path, head + "GPU0\tX\tSYS\t0-7\t0\nGPU1\tSYS\tX\t0-7\t0\n"))
    assert any("although both name one NUMA node" in remark for remark in apart.graph["remarks"])
    together = load_matrix(machine(tmp_path, head + "GPU0\tX\tPIX\t0-7\t0\nGPU1\tPIX\tX\t8-15\t1\n"))
    assert any("although they name different NUMA nodes" in remark for remark in together.graph["remarks"])


def test_no_peer_to_peer_stages_what_does_not_go_over_nvlink(tmp_path: Path) -> None:
    status = "\n \tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n"
    router = Router(build(str(machine(tmp_path, all_pairs(2, "PHB") + status))))
    names = [router.edges[index] for index in router.path(0, 1)]
    assert ("cpu0", "memory0") in names
    assert not any("does not tell whether GPUs reach each other" in remark for remark in router.graph.graph["remarks"])
    linked = Router(build(str(machine(tmp_path, all_pairs(2, "NV4") + status))))
    assert [linked.edges[index] for index in linked.path(0, 1)] == [("gpu0", "gpu1")]


@st.composite
def trees(draw: st.DrawFn) -> dict[str, tuple[int, int, int, int]]:
    """Draw devices by their place: NUMA node, host bridge, cascade, switch."""
    number = draw(st.integers(2, 10))
    place = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1), st.integers(0, 1))
    places = draw(st.lists(place, min_size=number, max_size=number))
    gpus = draw(st.integers(1, number))
    return {
        f"{'GPU' if index < gpus else 'NIC'}{index if index < gpus else index - gpus}": p for index, p in enumerate(places)
    }


def class_of(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> int:
    common = next((depth for depth in range(4) if a[depth] != b[depth]), 4)
    return (SYS, NODE, PHB, PXB, PIX)[common]


@given(places=trees(), seed=st.integers(0, 10**6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_tree_comes_back_from_its_matrix_in_any_order(places: dict[str, tuple[int, int, int, int]], seed: int) -> None:
    shuffled = list(places)
    random.Random(seed).shuffle(shuffled)
    rows = [
        [a, *("X" if a == b else WORDS[class_of(places[a], places[b])] for b in shuffled)]
        for a in random.Random(seed + 1).sample(shuffled, len(shuffled))
    ]
    table = parse_smi("\n".join("\t".join(row) for row in [["", *shuffled], *rows]), "here")
    assert table.remarks == []
    graph = matrix_topology(table)
    for a, b in table.pairs():
        wanted = {PIX: "PIX", PXB: "PXB", PHB: "PHB", NODE: "PHB", SYS: "SYS"}[class_of(places[a], places[b])]
        found = distance(graph, a.lower(), b.lower())
        # Two devices that hang on the top switch of a cascade themselves have that one switch between them.
        assert found == wanted or (wanted, found) == ("PXB", "PIX")
    assert not any("nearer reading" in remark for remark in graph.graph["remarks"])


# Files


def test_a_text_is_recognised_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    text = all_pairs(8, "NV12")
    digests = {topology_digest(build(str(machine(tmp_path, text, name)))) for name in ("a.txt", "b.log", "c", "d.out.1")}
    assert len(digests) == 1


def test_an_nccl_topology_is_read_under_any_name(tmp_path: Path) -> None:
    gpus = "".join(
        f'<pci busid="0000:0{gpu}:00.0" class="0x030200" link_speed="16.0 GT/s" link_width="16"><gpu sm="80"/></pci>'
        for gpu in (1, 2)
    )
    text = f'<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">{gpus}</cpu></system>'
    graph = build(str(machine(tmp_path, "\n" + text, "dump.txt")), profile="pcie5")
    assert graph.edges["gpu0", "cpu0"]["link"].kind == "pcie5"
    assert topology_digest(build(str(machine(tmp_path, text, "dump.xml")), profile="pcie5")) == topology_digest(graph)


def test_a_name_in_this_folder_needs_no_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, all_pairs(2, "PHB"), "mybox")
    monkeypatch.chdir(tmp_path)
    assert build("mybox").graph["name"] == "mybox"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_what_other_systems_write_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "m.txt"
    path.write_bytes(("é\n" + all_pairs(2, "NV12")).encode(encoding))
    assert ranks_of(load_matrix(path)) == ("gpu0", "gpu1")


@pytest.mark.parametrize("text", ["", "hello\n", "\x00\x01\x02", "<html/>", "nodes: {}\n"])
def test_other_files_are_refused_with_what_is_accepted(tmp_path: Path, text: str) -> None:
    with pytest.raises(FabricError, match=r"holds neither the matrix of `nvidia-smi topo -m` nor"):
        build(str(machine(tmp_path, text)))


def test_several_such_machines_make_a_cluster(tmp_path: Path) -> None:
    cells = {"GPU0": "NV12 PIX SYS", "GPU1": "NV12 SYS PIX", "NIC0": "PIX SYS SYS", "NIC1": "SYS PIX SYS"}
    graph = build(str(machine(tmp_path, matrix(cells))), nodes=2, nic="hdr200")
    router = Router(graph)
    assert ("node1/nic1", "node1/pcie_switch1") in [router.edges[index] for index in router.path(0, 3)]


# The samples


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
