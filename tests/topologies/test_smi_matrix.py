import random
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim.errors import FabricError, ProfileError
from netsim.fabric import ranks_of, topology_digest
from netsim.routing import Router
from tests.topologies.machine_graphs import distance, links
from topologies import build, load_profile, remarks, write_profile
from topologies.distances import NODE, PHB, PIX, PXB, SYS
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
