from dataclasses import replace
from pathlib import Path

import pytest

from netsim.units import format_rate
from topologies import build, load_profile, preset_names, remarks


@pytest.mark.parametrize("name", preset_names())
def test_presets_have_nothing_remarkable(name: str) -> None:
    assert remarks(build(name)) == []


def test_clusters_with_matching_nics_have_nothing_remarkable() -> None:
    for name, nic in (("hgx-a100", "hdr200"), ("hgx-h100", "ndr400"), ("gb200-nvl72", "ndr400")):
        assert remarks(build(name, nodes=2, nic=nic)) == []


def test_missing_nvlinks_are_seen() -> None:
    graph = build("hgx-h100")
    link = graph.edges["gpu3", "nvswitch"]["link"]
    graph.edges["gpu3", "nvswitch"]["link"] = replace(link, count=17)
    assert remarks(graph) == ["gpu3 has 17 GPU-to-GPU links where most GPUs have 18"]


def test_of_two_equally_frequent_numbers_the_larger_is_usual() -> None:
    graph = build("hgx-h100")
    for gpu in range(4):
        for edge in ((f"gpu{gpu}", "nvswitch"), ("nvswitch", f"gpu{gpu}")):
            graph.edges[edge]["link"] = load_profile("nvlink4").link(count=12)
    assert remarks(graph) == ["gpu0 has 12 GPU-to-GPU links where other GPUs have 18 (and 3 more GPUs differ)"]


def test_more_links_than_any_gpu_has_are_seen(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    # Three GPUs that list 19 links to each of two others: 38 a GPU.
    path = tmp_path / "mesh.yaml"
    links = "".join(f"- {{between: [{pair}], profile: nvlink4, count: 19}}\n" for pair in ("a, b", "a, c", "b, c"))
    path.write_text("nodes: {a: {kind: gpu}, b: {kind: gpu}, c: {kind: gpu}}\nlinks:\n" + links)
    assert remarks(build(str(path))) == [
        "a has 38 GPU-to-GPU links; no GPU is sold with more than 36 (and 2 more GPUs likewise)"
    ]


def test_fewer_links_in_one_direction_are_seen() -> None:
    graph = build("hgx-h100")
    graph.edges["nvswitch", "gpu3"]["link"] = load_profile("nvlink4").link(count=9)
    assert remarks(graph) == ["gpu3 sends over 18 GPU-to-GPU links but receives over 9"]


def test_a_slow_bundle_is_told_a_link() -> None:
    graph = build("hgx-h100")
    link = graph.edges["gpu3", "nvswitch"]["link"]
    graph.edges["gpu3", "nvswitch"]["link"] = replace(link, bandwidth_bytes_per_s=100e9)
    (remark,) = remarks(graph)
    assert remark.startswith("each of 18 links gpu3->nvswitch moves 5.556 GB/s")  # 100 / 18


def test_a_link_faster_than_its_kind_can_signal_is_seen() -> None:
    graph = build("pcie-pair")
    link = graph.edges["gpu0", "cpu0"]["link"]
    graph.edges["gpu0", "cpu0"]["link"] = replace(link, bandwidth_bytes_per_s=50e9)
    line = load_profile("pcie4").line_rate_bytes_per_s
    assert remarks(graph) == [
        f"link gpu0->cpu0 moves 50 GB/s where its kind pcie4 signals no more than {format_rate(float(f'{line:.4g}'))}"
    ]


def test_a_slow_link_is_seen() -> None:
    graph = build("pcie-gen4-8")
    link = graph.edges["gpu5", "pcie_switch2"]["link"]
    graph.edges["gpu5", "pcie_switch2"]["link"] = replace(link, bandwidth_bytes_per_s=3e9)
    (remark,) = remarks(graph)
    assert remark.startswith("link gpu5->pcie_switch2 moves 3 GB/s")
    assert "24 GB/s" in remark


def test_a_link_that_is_slow_for_its_kind_is_seen() -> None:
    graph = build("pcie-pair")
    for _, _, data in graph.edges(data=True):
        if data["link"].kind == "pcie4":
            data["link"] = replace(data["link"], bandwidth_bytes_per_s=6e9)
    assert remarks(graph) == ["link gpu0->cpu0 moves 6 GB/s where its kind pcie4 moves 24 GB/s (and 1 more)"]


def test_the_width_of_a_slot_belongs_to_its_kind() -> None:
    graph = build("rtx4060-laptop")
    half = load_profile("pcie4").link(lanes=8)
    for edge in (("gpu0", "cpu0"), ("cpu0", "gpu0")):
        graph.edges[edge]["link"] = half
    assert remarks(graph) == []  # 12 of 24 GB/s, as eight lanes have
    for edge in (("gpu0", "cpu0"), ("cpu0", "gpu0")):
        graph.edges[edge]["link"] = replace(half, bandwidth_bytes_per_s=5e9)
    assert remarks(graph) == ["link gpu0->cpu0 moves 5 GB/s where its kind pcie4_x8 moves 12 GB/s"]


def test_a_part_that_nothing_joins_is_seen() -> None:
    graph = build("pcie-gen4-8", nic="edr100").copy()
    for nic in ("nic2", "nic3"):
        graph.remove_edges_from([*graph.in_edges(nic), *graph.out_edges(nic)])
    assert "nic2 is joined to no GPU (and 1 more nodes): the topology falls into parts" in remarks(graph)


def test_a_nic_that_is_near_no_gpu_is_seen() -> None:
    graph = build("pcie-pair", nic="edr100").copy()
    link = graph.edges["nic1", "cpu0"]["link"]
    graph.remove_node("nic1")
    graph.add_node("cpu1", kind="root_complex", host="node0")
    graph.add_node("storage", kind="nic", host="node0", port=None)
    for a, b in (("cpu0", "cpu1"), ("cpu1", "storage")):
        graph.add_edge(a, b, link=link)
        graph.add_edge(b, a, link=link)
    assert "storage is beyond another socket for every GPU: no GPU is near it" in remarks(graph)


def test_a_gpu_without_a_route_is_seen() -> None:
    graph = build("ideal-ring:5@1GB/s,1us")
    for node in graph:
        graph.nodes[node]["transit"] = False
    assert any("gpu0 has no route to gpu2 and 1 more" in remark for remark in remarks(graph))


def test_a_nic_beyond_the_root_complex_is_seen() -> None:
    shared, remark = remarks(build("pcie-pair", nodes=2, nic="edr100"))
    assert shared.startswith("assumed: what cpu0 passes on between GPUs and NICs shares 63.4 GB/s")
    assert remark.startswith("node0/gpu0 reaches its nearest NIC node0/nic0 only through the root complex")


def test_a_nic_on_the_other_socket_is_seen() -> None:
    graph = build("pcie-gen4-8", nic="edr100").copy()
    for nic in [f"nic{rank}" for rank in range(4, 8)]:
        graph.remove_node(nic)
    (remark,) = remarks(graph)
    assert remark.startswith("gpu4 reaches its nearest NIC nic0 only through another socket")
    assert "3 more GPUs" in remark


def test_a_nic_faster_than_its_slot_is_seen() -> None:
    (remark,) = remarks(build("hgx-b200", nodes=2, nic="xdr800"))
    assert remark == "node0/nic0 could move 100 GB/s but sits in a slot of 48 GB/s (and 15 more)"


def test_what_the_loader_assumed_comes_first() -> None:
    graph = build("hgx-h100")
    graph.graph["remarks"] = ("something was assumed",)
    assert remarks(graph)[0] == "something was assumed"
