import pytest

from netsim.errors import FabricError, NetsimError
from netsim.fabric import check_fabric
from netsim.routing import Router
from topologies import build
from topologies.fabrics import parse_fabric


def cluster(fabric: str, nodes: int = 4, nic: str = "ndr400", machine: str = "hgx-h100"):
    return build(machine, nodes=nodes, nic=nic, fabric=fabric)


def switches(graph) -> list[str]:
    return sorted(node for node in graph if graph.nodes[node]["kind"] == "network_switch")


def rate(graph, a: str, b: str) -> float:
    return graph.edges[a, b]["link"].bandwidth_bytes_per_s


def test_nic_i_of_every_server_is_on_rail_i() -> None:
    graph = cluster("rails", nodes=3)
    for node in range(3):
        for number in range(8):
            assert graph.has_edge(f"node{node}/nic{number}", f"rail{number}")
    assert switches(graph) == [*(f"rail{number}" for number in range(8)), "spine0"]


def test_rails_only_have_no_spine() -> None:
    assert switches(cluster("rails-only")) == [f"rail{number}" for number in range(8)]


def test_groups_of_servers_have_rails_of_their_own_below_common_spines() -> None:
    graph = cluster("rails:servers=2,spines=3", nodes=5)
    # Groups of 2, 2 and 1 servers: three times eight rails.
    assert len(switches(graph)) == 3 * 8 + 3
    assert graph.has_edge("node3/nic5", "group1/rail5")
    assert graph.has_edge("group2/rail7", "spine2")


@pytest.mark.parametrize(
    ("options", "uplink"),
    [
        ("spines=2", 4 * 47.9e9 / 2),  # all that four NICs send, over two spines
        ("spines=2,oversubscription=4", 4 * 47.9e9 / 8),
        ("spines=2,uplink=30GB/s", 30e9),
        ("spines=2,uplink=400Gb/s", 50e9),
    ],
)
def test_uplinks_carry_what_comes_from_below_unless_told_otherwise(options: str, uplink: float) -> None:
    graph = cluster(f"rails:{options}")
    assert rate(graph, "rail0", "spine1") == rate(graph, "spine1", "rail0") == pytest.approx(uplink)


def test_leaves_get_servers_in_blocks_or_dealt_out() -> None:
    for order, leaves in (("block", "0011"), ("stripe", "0101")):
        graph = cluster(f"leaf-spine:leaves=2,spines=2,order={order}")
        assert all(graph.has_edge(f"node{node}/nic{7}", f"leaf{leaf}") for node, leaf in enumerate(leaves))


def test_servers_a_leaf_say_how_many_leaves() -> None:
    graph = cluster("leaf-spine:servers=3,spines=1", nodes=7)
    assert switches(graph) == ["leaf0", "leaf1", "leaf2", "spine0"]
    assert graph.in_degree("leaf2") == 8 + 1  # one server and the spine


def test_one_leaf_needs_no_spine() -> None:
    assert switches(cluster("leaf-spine:leaves=1,spines=4")) == ["leaf0"]


def test_links_between_switches_cost_the_stated_latency() -> None:
    graph = cluster("leaf-spine:leaves=2,spines=2,hop=1us")
    assert graph.edges["leaf0", "spine1"]["link"].latency_s == 1e-6
    assert cluster("rails").edges["rail0", "spine0"]["link"].latency_s == 0.25e-6


def test_three_tiers_join_spine_i_of_every_pod_to_its_own_cores() -> None:
    graph = cluster("fat-tree:pods=2,leaves=2,spines=2,cores=3")
    check_fabric(graph)
    assert len(switches(graph)) == 2 * (2 + 2) + 2 * 3
    assert set(graph.predecessors("core4")) == {"pod0/spine1", "pod1/spine1"}
    # A leaf has 8 NICs, so 4 NICs' worth to each of two spines; a spine gets that from two leaves, over three cores.
    assert rate(graph, "pod0/leaf0", "pod0/spine0") == pytest.approx(4 * 47.9e9)
    assert rate(graph, "pod1/spine1", "core4") == pytest.approx(8 * 47.9e9 / 3)


@pytest.mark.parametrize(
    "fabric", ["one-switch", "rails:spines=2", "rails-only", "leaf-spine:leaves=2,spines=2", "fat-tree:k=4"]
)
def test_switches_reduce_where_they_are_told_to(fabric: str) -> None:
    text = f"{fabric}{',' if ':' in fabric else ':'}sharp=on"
    nodes = 2 if fabric.startswith("fat-tree") else 4
    sharp = build("pcie-pair", nodes=nodes, nic="hdr200", fabric=text)
    plain = build("pcie-pair", nodes=nodes, nic="hdr200", fabric=fabric)
    assert switches(sharp) == switches(plain)
    assert all(sharp.nodes[name].get("reduce") for name in switches(sharp))
    assert not any(plain.nodes[name].get("reduce") for name in switches(plain))


def test_oversubscription_applies_to_every_tier() -> None:
    graph = cluster("fat-tree:pods=2,leaves=2,spines=2,cores=2,oversubscription=2")
    assert rate(graph, "pod0/leaf0", "pod0/spine0") == pytest.approx(2 * 47.9e9)
    assert rate(graph, "pod1/spine1", "core3") == pytest.approx(2 * 47.9e9 / 2)


def test_a_tree_of_k_port_switches_has_k_half_of_everything() -> None:
    graph = cluster("fat-tree:k=4", nodes=16, nic="ndr400:nics=1", machine="hgx-a100")
    # 16 NICs = k^3/4: four pods of two leaves and two spines, four cores, all links alike.
    assert len(switches(graph)) == 4 * 4 + 4
    for node in switches(graph):
        assert graph.out_degree(node) == 4
        assert {rate(graph, node, other) for other in graph.successors(node)} == {47.9e9}


def test_a_tree_of_k_port_switches_builds_only_what_is_used() -> None:
    graph = cluster("fat-tree:k=8", nodes=1 + 1, nic="ndr400:nics=2")
    assert switches(graph) == ["pod0/leaf0"]


@pytest.mark.parametrize(
    "fabric",
    [
        "one-switch",
        "rails",
        "rails-only",
        "rails:servers=2,spines=2",
        "leaf-spine:leaves=4,spines=2,oversubscription=1.5",
        "fat-tree:k=8",
        "fat-tree:pods=2,leaves=2,spines=2,cores=2,core=10GB/s",
    ],
)
def test_every_pair_of_ranks_has_a_route_on_every_fabric(fabric: str) -> None:
    graph = cluster(fabric)
    router = Router(graph)
    pairs = [(a, b) for a in range(32) for b in range(32) if a != b]
    if fabric == "rails:servers=2,spines=2":
        assert "group1/rail3" in graph
    assert all(router.paths(pairs))
    assert router.paths(pairs) == [Router(graph).path(*pair) for pair in pairs[:40]] + router.paths(pairs[40:])


def test_a_nic_profile_sets_the_uplinks_too() -> None:
    graph = build("hgx-h100", nodes=4, nic="ndr400", fabric="leaf-spine:leaves=2,spines=1", profile="hdr200")
    assert rate(graph, "leaf0", "spine0") == pytest.approx(2 * 8 * 21.9e9)
    assert rate(graph, "node0/nic0", "leaf0") == pytest.approx(21.9e9)


def test_the_fabric_is_part_of_the_title() -> None:
    assert cluster("rails").graph["name"] == "hgx-h100 x 4, ndr400, rails"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torus", "unknown fabric 'torus'; accepted are one-switch"),
        ("", "unknown fabric ''"),
        ("one-switch:spines=2", "unknown key 'spines'; accepted are sharp"),
        ("rails-only:spines=2", "unknown key 'spines'"),
        ("rails:", "no option; write KEY=VALUE"),
        ("rails:spines", "no option; write KEY=VALUE"),
        ("rails:spines=2,spines=3", "spines stands there twice"),
        ("rails:spines=0", "spines is '0'; it must be a whole number from 1"),
        ("rails:spines=-1", "spines is '-1'"),
        ("rails:spines=1e3", "spines is '1e3'"),
        ("rails:spines=²", "spines is '²'"),
        ("rails:leaves=2", "unknown key 'leaves'"),
        ("leaf-spine", "say how many switches"),
        ("leaf-spine:leaves=2", "say how many switches"),
        ("leaf-spine:leaves=2,servers=2,spines=2", "leaves and servers state the same thing"),
        ("leaf-spine:leaves=5,spines=2", "5 leaves for 4 servers"),
        ("leaf-spine:leaves=2,spines=2,uplink=100GB/s,oversubscription=2", "uplink and oversubscription"),
        ("leaf-spine:leaves=2,spines=2,uplink=100", "uplink"),
        ("leaf-spine:leaves=2,spines=2,uplink=0GB/s", "uplink"),
        ("leaf-spine:leaves=2,spines=2,oversubscription=0", "oversubscription is '0'"),
        ("leaf-spine:leaves=2,spines=2,oversubscription=nan", "oversubscription is 'nan'"),
        ("leaf-spine:leaves=2,spines=2,hop=1", "hop"),
        ("leaf-spine:leaves=2,spines=2,order=random", "order is 'random'; accepted are block, stripe"),
        ("leaf-spine:leaves=2,spines=99999999", "spines is '99999999'"),
        ("fat-tree:2", "no option; write KEY=VALUE"),
        ("fat-tree:k=3", "k is 3; it must be even"),
        ("fat-tree:k=4", "at least the number of NICs \\(32\\)"),
        ("fat-tree:k=8,spines=2", "k fixes all of the tree"),
        ("fat-tree:pods=2,leaves=2", "give k=N"),
        ("fat-tree:pods=4,leaves=1,spines=90000,cores=90000", "more than the 4000000 accepted"),
    ],
)
def test_a_malformed_fabric_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(NetsimError, match=words) as caught:
        cluster(text)
    assert "\n" not in str(caught.value)


def test_a_fabric_is_checked_even_where_one_machine_needs_none() -> None:
    with pytest.raises(FabricError, match="unknown fabric"):
        build("hgx-h100", fabric="rail")


def test_the_text_is_kept() -> None:
    assert parse_fabric("rails:spines=2").text == "rails:spines=2"
