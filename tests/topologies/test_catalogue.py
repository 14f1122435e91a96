from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

from netsim.errors import FabricError, NetsimError, ProfileError
from netsim.fabric import check_fabric, topology_digest
from netsim.routing import Router
from topologies import build, load_profile, preset_names, write_profile


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_builds_under_its_name_and_has_a_description(name: str) -> None:
    graph = build(name)
    check_fabric(graph)
    assert graph.graph["name"] == name
    assert len(preset_names()[name]) > 20


@pytest.mark.parametrize("name", ["hgx-a100", "hgx-h100", "hgx-b200", "gb200-nvl72", "pcie-gen5-8", "pcie-pair", "dgx-1v"])
def test_every_preset_can_be_a_cluster(name: str) -> None:
    graph = build(name, nodes=3, nic="hdr200")
    assert len(graph.graph["ranks"]) == 3 * len(build(name).graph["ranks"])
    assert graph.graph["name"] == f"{name} x 3, hdr200"


def test_the_same_wish_gives_the_same_graph() -> None:
    first, second = (build("hgx-h100", nodes=2, nic="ndr400") for _ in range(2))
    assert topology_digest(first) == topology_digest(second)
    assert list(first.edges) == list(second.edges)


@pytest.mark.parametrize("name", ["hgx-h100", "ideal-switch:2@1GB/s,1us"])
def test_what_is_built_is_frozen_and_a_copy_is_not(name: str) -> None:
    graph = build(name)
    with pytest.raises(nx.NetworkXError, match="Frozen"):
        graph.remove_node("gpu0")
    mine = graph.copy()
    mine.remove_node("gpu0")
    assert "gpu0" in graph


def test_a_graph_remembers_how_many_machines_at_which_rate() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400", rate="line", profile="nvlink5")
    assert (graph.graph["nodes"], graph.graph["rate"], graph.graph["profile"]) == (2, "line", "nvlink5")


def test_the_first_gpus_of_each_machine_become_ranks() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400", gpus_per_node=3)
    assert graph.graph["ranks"] == tuple(f"node{node}/gpu{gpu}" for node in (0, 1) for gpu in (0, 1, 2))
    assert "node0/gpu7" in graph


def test_the_first_gpus_of_a_study_graph_become_ranks() -> None:
    assert build("ideal-switch:8@1GB/s,1us", gpus_per_node=2).graph["ranks"] == ("gpu0", "gpu1")


@pytest.mark.parametrize("gpus", [0, -1, 9, True])
def test_more_gpus_than_a_machine_has_are_refused(gpus: int) -> None:
    with pytest.raises(FabricError, match="8 GPUs: 1 to 8"):
        build("hgx-h100", gpus_per_node=gpus)


def test_a_profile_replaces_the_links_of_its_family_only(tmp_path: Path) -> None:
    graph = build("hgx-h100", profile="nvlink5")
    link = graph.edges["gpu0", "nvswitch"]["link"]
    assert (link.kind, link.count, link.bandwidth_bytes_per_s) == ("nvlink5", 18, pytest.approx(18 * 40.1e9))
    assert graph.edges["gpu0", "pcie_switch0"]["link"].kind == "pcie5"


def test_a_measured_profile_from_a_file_is_used(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    write_profile(load_profile("pcie5_h200_copy"), path)
    link = build("pcie-gen5-8", profile=str(path)).edges["gpu0", "pcie_switch0"]["link"]
    assert (link.bandwidth_bytes_per_s, link.gap_s, link.floor_s) == (55.4e9, 3e-6, 3.6e-6)


def test_a_replaced_profile_keeps_the_width_of_a_slot(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "data" / "two_gpus.xml").read_text(encoding="utf-8")
    path = tmp_path / "m.xml"
    path.write_text(text, encoding="utf-8")
    graph = build(str(path), profile="pcie4")
    assert graph.edges["gpu0", "pcie-0000:01:00.0"]["link"].bandwidth_bytes_per_s == 12e9  # x8 of 24
    assert graph.edges["gpu1", "pcie-0000:01:00.0"]["link"].bandwidth_bytes_per_s == 24e9


def test_a_nic_of_several_ports_keeps_the_rate_of_all_under_a_profile() -> None:
    plain = build("hgx-h100", nodes=2, nic="efa100:nics=8,ports=4")
    laid = build("hgx-h100", nodes=2, nic="efa100:nics=8,ports=4", profile="efa100")
    assert dict(laid.edges) == dict(plain.edges)
    other = build("hgx-h100", nodes=2, nic="efa100:nics=8,ports=4", profile="ndr400").edges["node0/nic0", "network"]["link"]
    assert other.kind == "ndr400"
    assert other.bandwidth_bytes_per_s == 4 * load_profile("ndr400").effective_rate_bytes_per_s


def test_a_profile_without_links_of_its_family_is_refused() -> None:
    with pytest.raises(ProfileError, match="no link; it has memory, pcie, socket"):
        build("pcie-gen4-8", profile="nvlink4")
    with pytest.raises(ProfileError, match="no link that comes from a profile"):
        build("ideal-switch:2@1GB/s,1us", profile="nvlink4")


def test_the_line_rate_is_used_everywhere_when_asked_for() -> None:
    for _, _, data in build("hgx-b200", nodes=2, nic="ndr400", rate="line").edges(data=True):
        assert data["link"].bandwidth_bytes_per_s == data["link"].line_rate_bytes_per_s


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hgx-h10", "did you mean hgx-h100"),
        ("HGX-H100", "accepted are hgx-a100"),
        ("", "unknown topology ''"),
        ("machine.txt", "end in .xml"),
        ("none.xml", "cannot read none.xml"),
        ("./none", "end in .xml"),
        ("ideal-switch:8", "no study graph"),
    ],
)
def test_an_unknown_topology_is_refused_with_what_is_accepted(name: str, words: str) -> None:
    with pytest.raises(FabricError, match=words) as caught:
        build(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"nodes": 2}, "study graph"), ({"nic": "ndr400"}, "study graph"), ({"rate": "best"}, "effective and line")],
)
def test_options_that_make_no_sense_for_a_study_graph_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(NetsimError, match=words):
        build("ideal-switch:8@450GB/s,1us", **options)  # type: ignore[arg-type]


def test_importing_the_package_loads_no_heavy_library() -> None:
    import subprocess
    import sys

    heavy = "{'networkx', 'numpy', 'pandas', 'yaml', 'pydantic'}"
    code = f"import sys, topologies.catalogue; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_chip_to_chip_profile_of_any_name_keeps_gpudirect(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    write_profile(replace(load_profile("c2c_gh200"), name="mine", effective_rate_bytes_per_s=400e9), path)
    graph = build("gh200", nodes=2, nic="ndr400", profile=str(path))
    assert graph.edges["node0/gpu0", "node0/cpu0"]["link"].bandwidth_bytes_per_s == 400e9
    router = Router(graph)
    assert not any("memory" in router.edges[edge][1] for edge in router.path(0, 1))
