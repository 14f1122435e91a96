"""Routes: shortest, widest, spread without looking at names."""

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import FabricError
from netsim.fabric import Link
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.dag import ScheduleBuilder
from netsim.testing import star
from tests.netsim.routing_graphs import graph_of, graphs, names


def test_a_route_has_the_fewest_links_and_then_the_greatest_width():
    nodes = {"a": "gpu", "b": "gpu", "slow": "pcie_switch", "fast": "nvswitch", "far": "nvswitch"}
    cables = [
        ("a", "slow", 32),
        ("slow", "b", 32),
        ("a", "fast", 450),
        ("fast", "b", 450),
        ("a", "far", 900),
        ("far", "fast", 900),
    ]
    router = Router(graph_of(nodes, cables))
    assert names(router, router.path(0, 1)) == "a-fast-b"


def test_gpus_and_host_memories_do_not_forward_unless_they_say_so():
    cables = [("a", "b", 1), ("b", "c", 1)]
    with pytest.raises(FabricError, match="no route from 'a' to 'c'"):
        Router(graph_of(dict.fromkeys("abc", "gpu"), cables)).path(0, 2)
    nodes = {"a": "gpu", "b": {"kind": "gpu", "transit": True}, "c": "gpu"}
    router = Router(graph_of(nodes, cables))
    assert names(router, router.path(0, 2)) == "a-b-c"


def test_a_longer_way_is_taken_where_the_short_one_leads_through_a_gpu():
    nodes = {"a": "gpu", "x": "gpu", "b": "gpu", "s": "pcie_switch", "t": "pcie_switch"}
    cables = [("a", "x", 9), ("x", "b", 9), ("a", "s", 1), ("s", "t", 1), ("t", "b", 1)]
    router = Router(graph_of(nodes, cables))
    assert names(router, router.path(0, 2)) == "a-s-t-b"


def test_destinations_are_spread_over_equal_spines():
    nodes = {f"g{i}": "gpu" for i in range(8)} | dict.fromkeys(("l0", "l1", "s0", "s1", "s2", "s3"), "network_switch")
    cables = [(f"g{i}", f"l{i // 4}", 50) for i in range(8)] + [(f"l{i}", f"s{j}", 50) for i in range(2) for j in range(4)]
    router = Router(graph_of(nodes, cables))
    # One destination each of the other leaf: four spines, each used once.
    assert sorted(names(router, router.path(0, dst)).split("-")[2] for dst in range(4, 8)) == ["s0", "s1", "s2", "s3"]


def test_hashed_routes_depend_on_the_seed_and_on_nothing_else():
    nodes = {f"g{i}": "gpu" for i in range(8)} | dict.fromkeys(("l0", "l1", "s0", "s1", "s2", "s3"), "network_switch")
    cables = [(f"g{i}", f"l{i // 4}", 50) for i in range(8)] + [(f"l{i}", f"s{j}", 50) for i in range(2) for j in range(4)]
    graph = graph_of(nodes, cables)
    choices = {seed: [Router(graph, f"ecmp:{seed}").path(0, dst) for dst in range(4, 8)] for seed in range(5)}
    assert choices[3] == [Router(graph, "ecmp:3").path(0, dst) for dst in range(4, 8)]
    assert len({tuple(paths) for paths in choices.values()}) > 1


@pytest.mark.parametrize(
    "policy",
    ["spray", "random", "ecmp", "ecmp:", "ecmp:x", "ecmp:-1", "ecmp:1,flows=0", "ecmp:1,flows=", "ecmp:1,2", "ecmp:0..3"],
)
def test_unknown_policies_are_refused(policy):
    with pytest.raises(FabricError, match="ecmp:SEED"):
        Router(star(2), policy)


def test_the_switch_of_a_group_is_the_one_that_all_members_touch():
    router = Router(star(4))
    switch = router.switch(range(4), "multicast")
    assert router.nodes[switch] == "switch"
    assert [router.edges[edge] for edge in router.path_up(2, switch)] == [("gpu2", "switch")]
    assert [router.edges[edge] for edge in router.path_down(switch, 3)] == [("switch", "gpu3")]


@given(graphs())
def test_every_route_is_a_shortest_and_widest_one(graph):
    router = Router(graph)
    for src, a in enumerate(router.ranks):
        for dst, b in enumerate(router.ranks):
            if src == dst:
                continue
            banned = [node for node in graph if graph.nodes[node].get("transit") is False and node not in (a, b)]
            open_graph = graph.subgraph([node for node in graph if node not in banned])
            if not nx.has_path(open_graph, a, b):
                with pytest.raises(FabricError):
                    router.path(src, dst)
                continue
            best = list(nx.all_shortest_paths(open_graph, a, b))
            width = {
                tuple(path): min(graph.edges[e]["link"].bandwidth_bytes_per_s for e in itertools.pairwise(path))
                for path in best
            }
            route = tuple(names(router, router.path(src, dst)).split("-"))
            assert width[route] == max(width.values())


@given(graphs(), st.sampled_from(["static", "ecmp:5"]))
def test_many_routes_at_once_are_the_routes_one_by_one(graph, policy):
    for node in graph:
        graph.nodes[node]["transit"] = True
    one_by_one, at_once = Router(graph, policy), Router(graph, policy)
    ranks = range(len(one_by_one.ranks))
    pairs = [(src, dst) for src in ranks for dst in ranks if src != dst] * 3
    assert at_once.paths(pairs) == [one_by_one.path(*pair) for pair in pairs]


def test_many_routes_over_spines_are_the_routes_one_by_one():
    nodes = {f"g{i}": "gpu" for i in range(16)} | dict.fromkeys(("l0", "l1", "s0", "s1", "s2", "s3"), "network_switch")
    cables = [(f"g{i}", f"l{i // 8}", 50) for i in range(16)] + [(f"l{i}", f"s{j}", 50) for i in range(2) for j in range(4)]
    graph = graph_of(nodes, cables)
    pairs = [(src, dst) for dst in range(16) for src in range(16) if src != dst]
    one_by_one = Router(graph)
    assert Router(graph).paths(pairs) == [one_by_one.path(*pair) for pair in pairs]


def test_two_gpus_of_a_host_receive_through_two_nics():
    nodes, cables = {"net": "network_switch"}, []
    for host in "ab":
        nodes |= {f"{name}_{host}": kind for name, kind in (("g0", "gpu"), ("g1", "gpu"), ("n0", "nic"), ("n1", "nic"))}
        nodes[f"switch_{host}"] = "pcie_switch"
        cables += [(f"{name}_{host}", f"switch_{host}", 50) for name in ("g0", "g1", "n0", "n1")]
        cables += [(f"{name}_{host}", "net", 25) for name in ("n0", "n1")]
    router = Router(graph_of(nodes, cables))
    for src, dsts in ((0, (2, 3)), (2, (0, 1))):
        enters = {names(router, router.path(src, dst)).split("-")[4] for dst in dsts}
        leaves = {names(router, router.path(src, dst)).split("-")[2] for dst in dsts}
        assert len(enters) == len(leaves) == 2


def test_sixteen_destinations_use_every_pair_of_choices_in_a_three_tier_tree():
    nodes = {"g0": "gpu", "leaf": "network_switch", "far": "network_switch"} | {f"g{i}": "gpu" for i in range(1, 17)}
    cables = [("g0", "leaf", 50)] + [(f"g{i}", "far", 50) for i in range(1, 17)]
    for spine in range(4):
        nodes[f"s{spine}"] = "network_switch"
        cables.append(("leaf", f"s{spine}", 50))
        for core in range(4):
            nodes[f"c{spine}{core}"] = "network_switch"
            cables += [(f"s{spine}", f"c{spine}{core}", 50), (f"c{spine}{core}", "far", 50)]
    router = Router(graph_of(nodes, cables))
    assert len({names(router, router.path(0, dst)).split("-")[3] for dst in range(1, 17)}) == 16


def spines():
    nodes = {f"g{i}": "gpu" for i in range(8)} | dict.fromkeys(("l0", "l1", "s0", "s1", "s2", "s3"), "network_switch")
    cables = [(f"g{i}", f"l{i // 4}", 50) for i in range(8)] + [(f"l{i}", f"s{j}", 50) for i in range(2) for j in range(4)]
    return graph_of(nodes, cables)


def test_flows_of_a_pair_take_several_routes_and_the_first_is_that_of_one_flow():
    one, many = Router(spines(), "ecmp:3"), Router(spines(), "ecmp:3,flows=16")
    assert many.flows == 16
    assert many.path(0, 7) == one.path(0, 7)
    assert len({many.path(0, 7, flow) for flow in range(16)}) == 4  # 16 draws of four spines


def test_messages_of_a_pair_use_its_flows_in_turn():
    from netsim import ScheduleBuilder, simulate

    plan = ScheduleBuilder("broadcast", "eight", 8, 8000)
    for _ in range(8):
        plan.send(0, 7, size=1000)
    graph = spines()
    record = simulate(Router(graph, "ecmp:3,flows=8"), plan.build())
    router = Router(graph, "ecmp:3,flows=8")
    expected = {}
    for flow in range(8):
        for edge in router.path(0, 7, flow):
            expected[edge] = expected.get(edge, 0) + 1000
    assert {edge: int(count) for edge, count in enumerate(record.link_bytes) if count} == expected


@given(graphs(), st.integers(0, 3), st.sampled_from(["static", "ecmp:7"]))
def test_names_do_not_choose_routes(graph, turn, policy):
    for node in graph:
        graph.nodes[node]["transit"] = True
    renamed = nx.relabel_nodes(graph, {node: f"{(turn * 7 + place) % 5}{node}" for place, node in enumerate(graph)})
    pairs = [(src, dst) for src in range(len(Router(graph).ranks)) for dst in range(len(Router(graph).ranks)) if src != dst]
    assert Router(graph, policy).paths(pairs) == Router(renamed, policy).paths(pairs)


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.edges["gpu0", "switch"].update(link=Link(2e-6, 1e9)),
        lambda graph: graph.nodes["switch"].update(reduce=False),
        lambda graph: graph.nodes["switch"].update(store_and_forward=True),
        lambda graph: graph.nodes["gpu1"].update(host="elsewhere"),
        lambda graph: graph.nodes["gpu1"].update(kind="nic"),
        lambda graph: graph.nodes["gpu1"].pop("kind"),
        lambda graph: graph.add_node("gpu3"),
        lambda graph: graph.remove_edge("gpu0", "switch"),
        lambda graph: graph.graph.update(p2p="PXB"),
        lambda graph: graph.graph.update(ranks=("gpu2", "gpu1", "gpu0")),
    ],
)
def test_a_router_knows_when_its_graph_has_become_another(change):
    graph = star(3)
    router = Router(graph)
    assert router.still_describes(graph)
    assert router.still_describes(star(3))
    change(graph)
    assert not router.still_describes(graph)
    with pytest.raises(FabricError, match="changed after its Router was made; make a new Router"):
        router.digest  # noqa: B018 - the access is the test


@pytest.mark.parametrize("policy", [None, 3, ["static"]])
def test_a_policy_that_is_no_text_is_refused(policy):
    with pytest.raises(FabricError, match="unknown routing .*; accepted are static, ecmp:SEED"):
        Router(star(2), policy)


def test_hashed_routes_of_a_pair_differ_by_flow_and_static_ones_do_not():
    nodes = {"a": "gpu", "b": "gpu", "in": "network_switch", "out": "network_switch"}
    nodes |= {f"s{number}": "network_switch" for number in range(8)}
    cables = [("a", "in", 9), ("out", "b", 9)]
    cables += [(end, f"s{number}", 9) for end in ("in", "out") for number in range(8)]
    graph = graph_of(nodes, cables)
    plan = ScheduleBuilder("broadcast", "flows", ranks=2, size_bytes=64)
    for flow in range(16):
        plan.send(0, 1, size=4, offset=4 * flow, flow=flow)
    schedule = plan.build()
    # Of the eight spines, and one alone.
    for policy, least, most in (("ecmp:1", 4, 8), ("static", 1, 1)):
        record = simulate(Router(graph, policy), schedule)
        loads = zip(record.edges, record.link_bytes.tolist(), strict=True)
        assert least <= sum(edge[0] == "in" and sent > 0 for edge, sent in loads) <= most
