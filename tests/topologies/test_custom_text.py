from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import netsim
from netsim.errors import FabricError
from netsim.fabric import Link, links_of, ranks_of, topology_digest
from topologies import build, preset_names
from topologies.custom import load_custom
from topologies.custom_text import describe

pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")


def again(graph: "nx.DiGraph[str]", tmp_path: Path, rate: str = "effective") -> "nx.DiGraph[str]":
    path = tmp_path / "again.yaml"
    path.write_text(describe(graph, rate=rate), encoding="utf-8")
    return load_custom(path, rate=rate)


def assert_equal(graph: "nx.DiGraph[str]", back: "nx.DiGraph[str]") -> None:
    assert list(back.nodes(data=True)) == list(graph.nodes(data=True))
    assert list(links_of(back)) == list(links_of(graph))
    assert ranks_of(back) == ranks_of(graph)
    for key in ("name", "gpudirect", "gdr_level", "p2p", "pxn", "nvb"):
        assert back.graph.get(key) == graph.graph.get(key), key
    assert back.graph.get("remarks", ()) == graph.graph.get("remarks", ())
    assert topology_digest(back) == topology_digest(graph)


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("rate", ["effective", "line"])
def test_every_preset_comes_back_equal(tmp_path: Path, name: str, rate: str) -> None:
    graph = build(name, rate=rate)
    assert_equal(graph, again(graph, tmp_path, rate))


@pytest.mark.parametrize("name", ["ideal-switch:5@450GB/s,1us", "ideal-ring:6@1GB/s,3ns", "ideal-mesh:4@400Gb/s,0.1us"])
def test_study_graphs_come_back_equal(tmp_path: Path, name: str) -> None:
    assert_equal(build(name), again(build(name), tmp_path))


def test_a_cluster_with_unused_gpus_comes_back_equal(tmp_path: Path) -> None:
    graph = build("hgx-a100", nodes=3, nic="hdr200", gpus_per_node=5, gpudirect=False)
    assert_equal(graph, again(graph, tmp_path))


def samples(folder: Path) -> list[Path]:
    paths = [folder / "h200x2" / name for name in ("nccl_topo_h200x2_vm.xml", "nvidia_smi_topo_m.txt")]
    for kind in ("nccl_topo_xml", "smi_topo_matrix", "rocm_smi_topo"):
        paths += sorted((folder / kind).iterdir())
    return [path for path in paths if path.stem not in ("aws_g5_48xl", "aws_p5_h100_v1")]


def test_every_sample_that_loads_comes_back_equal(tmp_path: Path, shared: Path) -> None:
    paths = samples(shared / "samples")
    assert len(paths) > 30
    for path in paths:
        for rate in ("effective", "line"):
            graph = build(str(path), rate=rate)
            assert_equal(graph, again(graph, tmp_path, rate))


def test_a_limit_that_both_directions_share_comes_back_equal(tmp_path: Path) -> None:
    graph = build("pcie-pair", nodes=2, nic="hdr200")
    assert graph.has_edge("node0/cpu0", "node0/cpu0")
    assert_equal(graph, again(graph, tmp_path))


def test_times_are_the_same_to_the_last_digit(tmp_path: Path) -> None:
    graph = build("dgx-1v", nodes=2, nic="edr100")
    back = again(graph, tmp_path)
    schedule = netsim.build_schedule("alltoall", "direct", ranks=16, size_bytes=2**20)
    assert netsim.simulate(back, schedule).time_s == netsim.simulate(graph, schedule).time_s


def test_links_name_their_profile_and_strangers_their_figures() -> None:
    graph = build("hgx-h100")
    stranger = Link(1e-6, 3.3e9, gap_s=2e-6, floor_s=3e-6, count=2, kind="mine", line_rate_bytes_per_s=4e9)
    graph.edges["gpu0", "nvswitch"]["link"] = stranger
    text = describe(graph)
    assert "- {between: [gpu1, nvswitch], profile: nvlink4, count: 18}" in text
    figures = "latency: 1 us, bandwidth: 3.3 GB/s, gap: 2 us, floor: 3 us, count: 2, kind: mine, line_rate: 4 GB/s"
    assert f"- {{from: gpu0, to: nvswitch, {figures}}}" in text
    assert "- {from: nvswitch, to: gpu0, profile: nvlink4, count: 18}" in text


def test_what_nccl_judges_by_is_written_as_keys() -> None:
    text = describe(build("hgx-a100"))
    assert "  gpu0: {kind: gpu, host: node0, sm: 80}" in text
    assert "  cpu1: {kind: root_complex, host: node0, cpu_arch: x86_64, cpu_vendor: AuthenticAMD, cpu_model: 49}" in text


def test_a_width_that_is_not_the_profiles_own_is_written_as_lanes() -> None:
    assert "profile: pcie5, lanes: 8}" in describe(build(str(Path(__file__).parent / "data" / "two_gpus.xml")))


def test_names_that_yaml_would_misread_are_quoted(tmp_path: Path) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph(name="no", gpudirect=True)
    names = ["off", "1e3", "a: b", "x'\"\\", "{}", "é, #", "null", "0x1f", "🙂"]
    graph.add_nodes_from(names, kind="gpu", host="yes", busid="0000:04:00.0", sm=90)
    for a, b in zip(names, names[1:] + names[:1], strict=True):
        graph.add_edge(a, b, link=Link(0.0, 1e9, kind=""))
    assert_equal(graph, again(graph, tmp_path))


def test_links_that_no_order_of_pairs_explains_come_back_in_order(tmp_path: Path) -> None:
    # Around a circle each node's first link is the one that its neighbour has last: no pair is first at both ends.
    graph: nx.DiGraph[str] = nx.DiGraph(name="", gpudirect=True)
    graph.add_nodes_from("abc", kind="gpu")
    link = Link(1e-6, 1e9, kind="custom")
    graph.add_edges_from((a, b, {"link": link}) for a, b in ("ab", "ac", "bc", "ba", "ca", "cb"))
    assert_equal(graph, again(graph, tmp_path))


@given(data=st.data(), number=st.integers(2, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_graph_comes_back_in_order(tmp_path: Path, data: st.DataObject, number: int) -> None:
    names = [f"n{index}" for index in range(number)]
    kinds = ("gpu", "nvswitch", "nic", "root_complex")
    flags = st.dictionaries(st.sampled_from(("transit", "multicast", "reduce")), st.booleans())
    labels = st.dictionaries(
        st.sampled_from(("busid", "tray", "on")),
        st.text(st.characters(categories=("L", "N", "P"))) | st.integers() | st.booleans() | st.none(),
    )
    graph: nx.DiGraph[str] = nx.DiGraph(name=data.draw(st.text("ab:#'\" -", max_size=5)), gpudirect=data.draw(st.booleans()))
    for name in names:
        kind = "gpu" if name == "n0" else data.draw(st.sampled_from(kinds))
        graph.add_node(name, kind=kind, **data.draw(flags), **data.draw(labels))
    positive = st.floats(1e-3, 1e13, exclude_min=True)
    seconds = st.just(0.0) | st.floats(1e-12, 1)
    link = st.builds(
        Link,
        seconds,
        positive,
        seconds,
        seconds,
        st.integers(1, 99),
        st.sampled_from(("", "custom", "pcie4", "pcie5_x8", "nvlink4")),
        st.none() | positive,
    )
    links = data.draw(st.lists(link, min_size=1, max_size=2))
    ring = [(a, b) for a, b in zip(names, names[1:] + names[:1], strict=True)]
    pairs = data.draw(st.permutations(ring + [(b, a) for a, b in ring]))
    more = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=12))
    for a, b in pairs + more:
        if a != b:
            graph.add_edge(a, b, link=data.draw(st.sampled_from(links)))
    assert_equal(graph, again(graph, tmp_path))


def test_an_attribute_without_a_form_is_refused_by_name() -> None:
    graph = build("pcie-pair")
    graph.nodes["gpu1"]["weights"] = (1.5, 2)
    with pytest.raises(FabricError, match="node 'gpu1': the attribute 'weights'"):
        describe(graph)
