from pathlib import Path

import pytest

from netsim.errors import FabricError, NetsimError
from netsim.routing import Router
from topologies import build, remarks
from topologies.nics import parse_nic


def hops(graph, src: int, dst: int) -> str:
    router = Router(graph)
    edges = [router.edges[index] for index in router.path(src, dst)]
    return " ".join([edges[0][0], *(edge[1] for edge in edges)])


def entry(router: Router, src: int, dst: int) -> str:
    """The NIC by which data from one rank comes in at another."""
    return next(router.edges[edge][1] for edge in router.path(src, dst) if router.edges[edge][0] == "network")


def slots(graph) -> list[str]:
    """What each NIC of the first machine is joined to, in order of the NICs."""
    nics = [node for node in graph if graph.nodes[node]["kind"] == "nic" and "node1" not in node]
    return [next(other for other in graph.successors(nic) if "network" not in other) for nic in nics]


def test_fewer_nics_than_gpus_are_spread_over_the_gpus() -> None:
    assert slots(build("hgx-h100", nic="ndr400:nics=4")) == [f"pcie_switch{number}" for number in (0, 2, 4, 6)]
    assert slots(build("hgx-a100", nic="hdr200:nics=4")) == [f"pcie_switch{number}" for number in range(4)]


def test_more_nics_than_gpus_share_slots() -> None:
    assert slots(build("pcie-pair", nic="hdr200:nics=4")) == ["cpu0"] * 4
    assert slots(build("hgx-h100", nic="efa100:nics=16"))[:4] == ["pcie_switch0", "pcie_switch0"] + ["pcie_switch1"] * 2


def test_nics_sit_where_they_are_put() -> None:
    graph = build("pcie-gen4-8", nic="hdr200:at=gpu0+pcie_switch3+cpu1")
    assert slots(graph) == ["pcie_switch0", "pcie_switch3", "cpu1"]
    assert graph.edges["nic2", "cpu1"]["link"].kind == "pcie4"


def test_a_nic_on_the_other_socket_is_out_of_reach_of_gpudirect() -> None:
    graph = build("pcie-gen4-8", nodes=2, nic="hdr200:at=cpu1")
    assert "node0/gpu0 node0/pcie_switch0 node0/cpu0 node0/memory0 node0/cpu0 node0/cpu1 node0/nic0" in hops(graph, 0, 8)


@pytest.mark.parametrize(("level", "stops"), [("PXB", 2), ("PHB", 1), ("SYS", 0), ("LOC", 2)])
def test_gpudirect_reaches_as_far_as_it_is_told(level: str, stops: int) -> None:
    # GPU 0 sits on the other socket than the NIC, GPU 4 on the same: SYS and PHB.
    graph = build("pcie-gen4-8", nodes=2, nic=f"hdr200:at=cpu1,gdr={level}")
    assert hops(graph, 0, 12).count("memory") == stops


def test_over_a_chip_to_chip_link_gpudirect_is_used_by_default() -> None:
    graph = build("gb200-nvl72", nodes=2, nic="ndr400")
    assert "memory" not in hops(graph, 0, 72)


def test_without_host_memory_nothing_can_be_staged(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    path = tmp_path / "bare.yaml"
    path.write_text(
        "nodes: {a: {kind: gpu, host: h}, c: {kind: root_complex, host: h}}\nlinks: [{between: [a, c], profile: pcie4}]\n",
        encoding="utf-8",
    )
    graph = build(str(path), nodes=2, nic="hdr200")
    # The root complex is passed by its link to itself, which both directions share.
    assert hops(graph, 0, 1) == "node0/a node0/c node0/c node0/nic0 network node1/nic0 node1/c node1/c node1/a"


def test_a_gpu_without_a_nic_nearby_sends_through_a_peer_on_nvlink() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400:nics=4")
    assert hops(graph, 3, 8).startswith("node0/gpu3 node0/nvswitch node0/gpu2 node0/pcie_switch2 node0/nic1 network")
    # What it receives comes by its nearest NIC, which does not reach its memory: relays are the sender's.
    assert "node1/memory0" in hops(graph, 0, 9)


def test_relays_can_be_switched_off() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400:nics=4,pxn=off")
    assert "node0/memory0" in hops(graph, 3, 8)


@pytest.mark.parametrize(("nic", "stops"), [(None, 2), ("own", 2), ("own:gdr=PHB", 0)])
def test_own_nics_take_options_too(tmp_path: Path, nic: str | None, stops: int) -> None:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    path = tmp_path / "own.yaml"
    path.write_text(
        """
nodes:
  a: {kind: gpu, host: h}
  c: {kind: root_complex, host: h}
  m: {kind: host_memory, host: h}
  n: {kind: nic, host: h, port: {profile: hdr200}}
links:
  - {between: [a, c], profile: pcie4}
  - {between: [c, m], profile: host_memory}
  - {between: [n, c], profile: pcie4}
""",
        encoding="utf-8",
    )
    assert hops(build(str(path), nodes=2, nic=nic), 0, 1).count("/m") == stops


def test_the_title_names_kind_and_options() -> None:
    assert build("hgx-h100", nodes=2, nic="ndr400:nics=4").graph["name"] == "hgx-h100 x 2, ndr400:nics=4"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ndr", "unknown NIC kind 'ndr'"),
        ("ndr400:", "unknown NIC kind 'ndr400:'"),
        ("ndr400:4", "unknown NIC kind 'ndr400:4'.*KIND"),
        ("ndr400:count=4", "unknown key 'count'; accepted are nics, at, ports, gdr, pxn"),
        ("ndr400:nics=0", "nics is '0'"),
        ("ndr400:nics=99999", "nics is '99999'; it must be a whole number from 1 to 4096"),
        ("ndr400:nics=2,at=gpu0", "nics and at both say how many"),
        ("ndr400:at=gpu9", "no GPU, PCIe switch or root complex 'gpu9'; accepted are gpu0"),
        ("ndr400:at=gpu0+", "root complex ''"),
        ("ndr400:at=memory0", "root complex 'memory0'"),
        ("ndr400:gdr=FAR", "gdr: unknown level 'FAR'; accepted are LOC, NVL"),
        ("ndr400:gdr=pxb", "unknown level 'pxb'"),
        ("ndr400:pxn=yes", "pxn is 'yes'; accepted are on, off"),
        ("own:nics=4", "own NICs sit where the machine has them"),
        ("pcie5:nics=4", "family 'pcie', not a NIC"),
    ],
)
def test_a_malformed_nic_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(NetsimError, match=words) as caught:
        build("hgx-h100", nodes=2, nic=text)
    assert "\n" not in str(caught.value)


def test_own_nics_must_be_there() -> None:
    with pytest.raises(FabricError, match="need NICs"):
        build("hgx-h100", nodes=2, nic="own")


def test_a_path_with_a_colon_is_a_path() -> None:
    with pytest.raises(NetsimError, match="cannot read"):
        parse_nic("/no/such:place/my.toml")


def test_a_slot_has_the_generation_of_the_machine_where_gpus_are_not_on_pcie() -> None:
    for name, kind in (("gb300-nvl72", "pcie6"), ("gb200-nvl72", "pcie5"), ("gh200", "pcie5")):
        graph = build(name, nic="xdr800")
        assert graph.edges["cpu0", "nic0"]["link"].kind == graph.edges["nic0", "cpu0"]["link"].kind == kind


@pytest.mark.parametrize(("place", "rate"), [("gpu0", 20e9), ("s", 30e9)])
def test_a_slot_is_as_wide_as_the_links_that_a_description_states(tmp_path: Path, place: str, rate: float) -> None:
    pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")
    path = tmp_path / "box.yaml"
    path.write_text(
        "nodes: {gpu0: {kind: gpu, host: h}, s: {kind: pcie_switch, host: h}, c: {kind: root_complex, host: h}}\n"
        "links:\n"
        "- {between: [s, c], latency: 1 us, bandwidth: 30 GB/s}\n"
        "- {between: [gpu0, s], latency: 1 us, bandwidth: 20 GB/s}\n"
    )
    assert build(str(path), nic=f"ndr400:at={place}").edges["nic0", "s"]["link"].bandwidth_bytes_per_s == rate


def test_gpus_without_a_nic_of_their_own_are_dealt_out_to_those_they_share() -> None:
    # NICs beside GPUs 0, 2, 4 and 6: GPUs 1 and 3 are as far from NIC 0 as from NIC 1, GPUs 5 and 7 likewise.
    router = Router(build("hgx-h100", nodes=2, nic="hdr200:nics=4"))
    for src in range(8):
        assert [entry(router, src, dst) for dst in range(8, 16)] == [f"node1/nic{nic}" for nic in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_a_gpu_with_several_nics_receives_by_all_of_them() -> None:
    router = Router(build("hgx-h100", nodes=2, nic="efa100:nics=32"))
    assert sorted(entry(router, src, 10) for src in range(8)) == sorted([f"node1/nic{nic}" for nic in (8, 9, 10, 11)] * 2)


def test_flows_of_a_pair_use_all_nics_of_both_gpus() -> None:
    router = Router(build("hgx-h100", nodes=2, nic="efa100:nics=32"))
    assert router.ways == 4
    paths = [[router.edges[edge] for edge in router.path(1, 9, flow)] for flow in range(4)]
    for host in ("node0", "node1"):
        used = {node for path in paths for edge in path for node in edge if node.startswith(f"{host}/nic")}
        assert used == {f"{host}/nic{nic}" for nic in (4, 5, 6, 7)}


def test_striped_ports_are_one_card_of_their_joint_rate() -> None:
    graph = build("hgx-h100", nodes=2, nic="efa100:nics=8,ports=4")
    link = graph.edges["node0/nic0", "network"]["link"]
    assert (link.bandwidth_bytes_per_s, link.count) == (4 * 11.8e9, 1)
    assert Router(graph).ways == 1


def test_a_gen4_root_complex_shares_what_it_passes_between_gpu_and_nic() -> None:
    graph = build("pcie-pair", nodes=2, nic="hdr200:nics=1")
    assert graph.edges["node0/cpu0", "node0/cpu0"]["link"].bandwidth_bytes_per_s == 31.7e9
    # Two GPUs with a NIC each have root ports of their own.
    pairs = build("pcie-pair", nodes=2, nic="hdr200")
    assert pairs.edges["node0/cpu0", "node0/cpu0"]["link"].bandwidth_bytes_per_s == 63.4e9
    assert any("shares 31.7 GB/s in both directions" in remark for remark in remarks(graph))
    # Behind a switch, or in another generation, nothing is known of such a limit.
    assert not build("pcie-gen4-8", nodes=2, nic="hdr200").has_edge("node0/cpu0", "node0/cpu0")
    assert not build("rtx5090-8", nodes=2, nic="ndr400").has_edge("node0/cpu0", "node0/cpu0")


def test_a_gpu_that_no_nic_is_joined_to_is_named() -> None:
    # Trays of a rack are joined by NVLink alone; four NICs leave most of them without.
    router = Router(build("gb200-nvl72", nodes=2, nic="ndr400:nics=4"))
    with pytest.raises(FabricError, match="no route from 'node0/gpu3' to 'node1/gpu4': 'node1/gpu4' has no way to a NIC"):
        router.path(3, 76)
