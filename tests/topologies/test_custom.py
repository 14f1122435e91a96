from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from netsim.errors import FabricError, NetsimError
from topologies import build
from topologies.custom import custom_topology, load_custom

PAIR: dict[str, Any] = {
    "nodes": {"a": {"kind": "gpu"}, "b": {"kind": "gpu"}, "m": {"kind": "host_memory"}},
    "links": [
        {"between": ["a", "b"], "profile": "nvlink4", "count": 18},
        {"from": "a", "to": "m", "latency": "1 us", "bandwidth": "10 GB/s", "gap": "2 us", "floor": "3 us"},
    ],
}


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    result = deepcopy(PAIR)
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


def test_links_go_both_ways_or_one_way_as_written() -> None:
    graph = custom_topology(PAIR)
    assert sorted(graph.edges) == [("a", "b"), ("a", "m"), ("b", "a")]


def test_a_link_has_the_figures_of_its_profile_or_its_own() -> None:
    graph = custom_topology(PAIR)
    assert graph.edges["b", "a"]["link"].bandwidth_bytes_per_s == pytest.approx(370.8e9)
    own = graph.edges["a", "m"]["link"]
    assert (own.latency_s, own.bandwidth_bytes_per_s, own.gap_s, own.floor_s) == (1e-6, 10e9, 2e-6, 3e-6)


def test_the_rate_chosen_applies_to_profiles_only() -> None:
    graph = custom_topology(PAIR, rate="line")
    assert graph.edges["a", "b"]["link"].bandwidth_bytes_per_s == 450e9
    assert graph.edges["a", "m"]["link"].bandwidth_bytes_per_s == 10e9


def test_nodes_can_be_a_list_and_ranks_follow_the_file() -> None:
    nodes = [{"name": "z", "kind": "gpu", "host": "h0"}, {"name": "a", "kind": "gpu", "transit": True}]
    graph = custom_topology({"nodes": nodes, "links": [{"between": ["a", "z"], "profile": "pcie4", "lanes": 8}]})
    assert list(graph) == ["z", "a"]
    assert graph.nodes["z"] == {"kind": "gpu", "host": "h0"}
    assert graph.nodes["a"]["transit"] is True


def test_a_gpu_states_its_capability_and_a_root_complex_its_processor() -> None:
    cpu = {"kind": "root_complex", "cpu_arch": "x86_64", "cpu_vendor": "AuthenticAMD", "cpu_model": 49}
    graph = custom_topology(
        {
            "nodes": {"a": {"kind": "gpu", "sm": 90}, "b": {"kind": "gpu", "labels": {"sm": 80}}, "cpu": cpu},
            "links": [{"between": [gpu, "cpu"], "profile": "pcie5"} for gpu in "ab"],
        }
    )
    # As a label, too: descriptions were written so before it was a key.
    assert [graph.nodes[gpu]["sm"] for gpu in "ab"] == [90, 80]
    assert dict(graph.nodes["cpu"]) == cpu


def test_store_and_forward_takes_its_piece_and_host_memory_a_default() -> None:
    nodes = PAIR["nodes"] | {"s": {"kind": "network_switch", "store_and_forward": True, "piece": "64 KiB"}}
    graph = custom_topology(PAIR | {"nodes": nodes})
    assert graph.nodes["s"]["piece_bytes"] == 65536
    assert graph.nodes["m"]["piece_bytes"] == 524288


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("nodes", "a", "kind"), "gpus", "node 'a': kind is 'gpus'"),
        (("nodes", "a", "colour"), "red", "node 'a': unknown key 'colour'"),
        (("nodes", "a", "transit"), "yes", "node 'a': transit is 'yes'"),
        (("nodes", "a", "host"), 3, "node 'a': host: 3 is not text"),
        (("nodes", "a", "piece"), "1 KiB", "without store_and_forward"),
        (("nodes", "m", "piece"), "0 B", "one byte or more"),
        (("nodes", "m", "piece"), "1 Kb", "node 'm': piece: '1 Kb'"),
        (("nodes", "a"), None, "node 'a' is None"),
        (("nodes", 7), {"kind": "gpu"}, "node 7: name: 7 is not text"),
        (("nodes",), {}, "nodes is {}"),
        (("nodes",), [{"kind": "gpu"}], "write name and kind"),
        (("nodes",), [{"name": "a", "kind": "gpu"}] * 2, "two nodes of this name"),
        (("links",), {}, "links is {}"),
        (("links", 0), "a-b", "link 1 is 'a-b'"),
        (("links", 0, "between"), ["a"], "link 1: between is"),
        (("links", 0, "between"), ["a", "c"], "link 1 .a - c.: there is no node 'c'"),
        (("links", 0, "between"), ["a", "a"], "joins a node to itself"),
        (("links", 0, "from"), "a", "between as well as from and to"),
        (("links", 0, "count"), 0, "count is 0"),
        (("links", 0, "count"), True, "count is True"),
        (("links", 0, "count"), 1.5, "count is 1.5"),
        (("links", 0, "profile"), "nvlink9", "unknown link profile 'nvlink9'"),
        (("links", 0, "latency"), "1 us", "latency stands beside profile"),
        (("links", 0, "speed"), 1, "link 1: unknown key 'speed'"),
        (("links", 1, "bandwidth"), "10 GB", "link 2 .a - m.: bandwidth: '10 GB'"),
        (("links", 1, "bandwidth"), "-1 GB/s", "above zero"),
        (("links", 1, "bandwidth"), "nan GB/s", "not a finite number"),
        (("links", 1, "bandwidth"), 10, "has no unit"),
        (("links", 1, "latency"), "1", "no unit"),
        (("links", 1, "lanes"), 8, "beside a PCI Express profile"),
        (("links", 1, "to"), "b", "has a link already"),
        (("gpudirect",), "no", "gpudirect is 'no'"),
        (("rank",), ["a"], "unknown key 'rank'"),
        (("ranks",), "a", "ranks is 'a'; it must be a list of text"),
        (("ranks",), ["m"], "rank node 'm' is not a GPU"),
        (("ranks",), ["a", "a"], "appears twice"),
        (("remarks",), [1], "remarks: 1 is not text"),
        (("p2p",), "NEAR", "p2p: unknown level 'NEAR'"),
        (("nodes", "a", "ports"), "x", "ports is 'x'"),
        (("nodes", "a", "port"), "fast", "port is 'fast'"),
        (("nodes", "a", "port"), {"between": ["a", "b"]}, "port: unknown key 'between'"),
        (("nodes", "a", "labels"), ["x"], "labels is"),
        (("nodes", "a", "labels"), {"host": "x"}, "host is a key of the node itself"),
        (("nodes", "a", "labels"), {"x": 1.5}, "x is 1.5"),
        (("nodes", "a", "sm"), "90", "sm is '90'; a whole number is accepted"),
        (("nodes", "a", "sm"), True, "sm is True; a whole number is accepted"),
        (("nodes", "a", "cpu_vendor"), "GenuineIntel", "cpu_vendor means nothing on a gpu"),
        (("nodes", "m", "sm"), 90, "sm means nothing on a host_memory"),
        (("links", 1, "line_rate"), "10 GB", "line_rate: '10 GB'"),
    ],
)
def test_an_error_names_the_entry_and_the_key(path: tuple[Any, ...], value: Any, words: str) -> None:
    with pytest.raises(NetsimError, match=words):
        custom_topology(changed(path, value))


@pytest.mark.parametrize("key", ["latency", "bandwidth", "to"])
def test_a_missing_key_is_named(key: str) -> None:
    description = deepcopy(PAIR)
    del description["links"][1][key]
    with pytest.raises(FabricError, match=f"{key} is missing"):
        custom_topology(description)


def test_a_name_that_would_break_a_table_is_refused() -> None:
    with pytest.raises(FabricError, match="line break"):
        custom_topology({"nodes": {"a\nb": {"kind": "gpu"}}, "links": []})


def test_a_disconnected_graph_is_refused() -> None:
    with pytest.raises(FabricError, match="disconnected"):
        custom_topology({"nodes": PAIR["nodes"], "links": []})


def yaml_file(tmp_path: Path, text: str) -> Path:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


TEXT = """nodes:
  a: {kind: gpu}
  b: {kind: gpu}
links:
- {between: [a, b], latency: 1 us, bandwidth: 50 GB/s}
"""


def test_a_file_is_a_topology_wherever_a_preset_is(tmp_path: Path) -> None:
    graph = build(str(yaml_file(tmp_path, TEXT)))
    assert graph.graph["name"] == "mine"
    assert graph.edges["b", "a"]["link"].bandwidth_bytes_per_s == 50e9


def test_the_topology_of_a_scenario_file_is_found(tmp_path: Path) -> None:
    text = "sizes: [1 MiB]\ntopology:\n" + "".join(f"  {line}\n" for line in TEXT.splitlines())
    assert len(load_custom(yaml_file(tmp_path, text))) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "describes no topology"),
        ("- 1\n", "describes no topology"),
        ("nodes: [", "not YAML"),
        ("nodes: !!python/object:os.system {}", "not YAML"),
        ("nodes:\n  a: {kind: gpu}\n  a: {kind: nic}\nlinks: []\n", "line 2: the key 'a' stands there twice"),
        ("[" * 5000, "nest"),
        ("nodes: !!bool abc\n", "not YAML: a value is not what its tag"),
        ("nodes: !!timestamp abc\n", "not YAML: a value is not what its tag"),
        ("nodes:\n  a: {kind: gpu\n", "line 3: not YAML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FabricError, match=words):
        load_custom(yaml_file(tmp_path, text))


def test_a_yaml_bomb_costs_no_time_and_its_error_is_short(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    with pytest.raises(FabricError) as caught:
        load_custom(yaml_file(tmp_path, "\n".join(lines) + "\nnodes: *a29\n"))
    assert len(str(caught.value)) < 1000


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    with pytest.raises(FabricError, match="cannot read"):
        load_custom(tmp_path / "none.yaml")
