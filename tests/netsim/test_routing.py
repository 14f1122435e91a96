"""Routes: shortest, widest, spread without looking at names, and staged where GPUDirect is off."""

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import FabricError, ScheduleError
from netsim.fabric import Link
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.dag import ScheduleBuilder
from netsim.testing import star
from topologies import build


def graph_of(nodes, cables, **attributes):
    """Build a graph from {name: kind or attributes} and (a, b, GB/s) cables."""
    graph = nx.DiGraph(**attributes)
    for name, kind in nodes.items():
        graph.add_node(name, **(kind if isinstance(kind, dict) else {"kind": kind}))
    for a, b, rate in cables:
        graph.add_edge(a, b, link=Link(1e-6, rate * 1e9))
        graph.add_edge(b, a, link=Link(1e-6, rate * 1e9))
    return graph


def names(router, path):
    edges = [router.edges[edge] for edge in path]
    return "-".join([edges[0][0], *(target for _, target in edges)])


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


def staged(gpudirect):
    nodes, cables = {}, []
    for host in "ab":
        kinds = {"gpu": "gpu", "nic": "nic", "switch": "pcie_switch", "root": "root_complex", "memory": "host_memory"}
        nodes |= {f"{name}_{host}": {"kind": kind, "host": host} for name, kind in kinds.items()}
        pairs = [("gpu", "switch"), ("nic", "switch"), ("switch", "root"), ("root", "memory")]
        cables += [(f"{one}_{host}", f"{two}_{host}", 32) for one, two in pairs]
    nodes["net"] = "network_switch"
    cables += [("nic_a", "net", 50), ("net", "nic_b", 50)]
    return Router(graph_of(nodes, cables, gpudirect=gpudirect))


def test_with_gpudirect_data_goes_from_gpu_to_nic():
    router = staged(gpudirect=True)
    assert names(router, router.path(0, 1)) == "gpu_a-switch_a-nic_a-net-nic_b-switch_b-gpu_b"


def test_without_gpudirect_the_uplink_is_crossed_twice():
    router = staged(gpudirect=False)
    route = names(router, router.path(0, 1))
    there = "gpu_a-switch_a-root_a-memory_a-root_a-switch_a-nic_a"
    assert route == f"{there}-net-nic_b-switch_b-root_b-memory_b-root_b-switch_b-gpu_b"


def test_staging_needs_a_host_memory():
    router = staged(gpudirect=False)
    graph = router.graph.copy()
    graph.remove_node("memory_b")
    with pytest.raises(FabricError, match="no host memory"):
        Router(graph).path(0, 1)


def test_the_switch_of_a_group_is_the_one_that_all_members_touch():
    router = Router(star(4))
    switch = router.switch(range(4), "multicast")
    assert router.nodes[switch] == "switch"
    assert [router.edges[edge] for edge in router.path_up(2, switch)] == [("gpu2", "switch")]
    assert [router.edges[edge] for edge in router.path_down(switch, 3)] == [("switch", "gpu3")]


@st.composite
def graphs(draw):
    gpus, switches = draw(st.integers(2, 5)), draw(st.integers(1, 8))
    nodes = {f"g{i}": {"kind": "gpu", "transit": draw(st.booleans())} for i in range(gpus)}
    nodes |= {f"s{i}": "network_switch" for i in range(switches)}
    everyone = list(nodes)
    pairs = [(a, b) for a in everyone for b in everyone if a < b]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    chosen += [pair for pair in itertools.pairwise(everyone) if pair not in chosen and pair[::-1] not in chosen]
    return graph_of(nodes, [(a, b, draw(st.sampled_from([1, 2, 4]))) for a, b in chosen])


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


def box(gpus, cables, **attributes):
    """One host: GPUs in name order, and other nodes told by the first letter of their name."""
    kinds = {"g": "gpu", "s": "pcie_switch", "c": "root_complex", "m": "host_memory", "n": "nvswitch"}
    names = sorted({end for a, b, _ in cables for end in (a, b)})
    nodes = {name: {"kind": kinds[name[0]], "host": "h"} for name in [*gpus.split(), *names]}
    return Router(graph_of(nodes, cables, **attributes))


TWO_SOCKETS = [
    *(("g0", "s0", 9), ("g1", "s0", 9), ("g2", "s1", 9), ("g3", "s2", 9), ("s0", "c0", 9), ("s1", "c0", 9), ("s2", "c1", 9)),
    *(("c0", "c1", 9), ("c0", "m0", 9), ("c1", "m1", 9)),
]


@pytest.mark.parametrize(
    ("level", "staged"),
    [("LOC", {1, 2, 3}), ("NVL", {1, 2, 3}), ("PIX", {2, 3}), ("PXB", {2, 3}), ("PHB", {3}), ("SYS", set()), (None, set())],
)
def test_peers_copy_directly_up_to_the_level(level, staged):
    router = box("g0 g1 g2 g3", TWO_SOCKETS, p2p=level)
    assert {dst for dst in (1, 2, 3) if "m" in names(router, router.path(0, dst))} == staged


def test_what_is_staged_stops_at_the_receivers_socket():
    router = box("g0 g1 g2 g3", TWO_SOCKETS, p2p="PXB")
    assert names(router, router.path(0, 3)) == "g0-s0-c0-c1-m1-c1-s2-g3"
    assert names(router, router.path(3, 0)) == "g3-s2-c1-c0-m0-c0-s0-g0"


def test_an_unknown_level_is_refused():
    with pytest.raises(FabricError, match="p2p: unknown level 'FAR'; accepted are LOC, NVL"):
        box("g0 g1 g2 g3", TWO_SOCKETS, p2p="FAR")


def test_staging_without_host_memory_names_the_gpu():
    cables = [cable for cable in TWO_SOCKETS if "m1" not in cable and "m0" not in cable]
    with pytest.raises(FabricError, match="GPU 'g2' has no host memory"):
        box("g0 g1 g2 g3", cables, p2p="PXB").path(0, 2)


def test_the_widest_bridge_is_taken_and_only_where_there_is_no_link():
    cables = [("g0", "g1", 20), ("g1", "g3", 40), ("g0", "g2", 40), ("g2", "g3", 40)]
    cables += [(f"g{gpu}", "s0", 9) for gpu in range(4)]
    router = box("g0 g1 g2 g3", cables, nvb=True)
    assert names(router, router.path(0, 3)) == "g0-g2-g3"
    assert names(router, router.path(0, 1)) == "g0-g1"
    plain = box("g0 g1 g2 g3", cables)
    assert names(plain, plain.path(0, 3)) == "g0-s0-g3"


def rails(spine, **attributes):
    """Two hosts of two GPUs on an NVSwitch, each with a PCIe switch and a NIC of its own on the rail of its number."""
    nodes, cables = {}, []
    for host in "ab":
        for rail in (0, 1):
            kinds = {"gpu": "gpu", "nic": "nic", "switch": "pcie_switch"}
            nodes |= {f"{name}{rail}_{host}": {"kind": kind, "host": host} for name, kind in kinds.items()}
            cables += [(f"{name}{rail}_{host}", f"switch{rail}_{host}", 32) for name in ("gpu", "nic")]
            cables.append((f"gpu{rail}_{host}", f"nv_{host}", 450))
            cables.append((f"nic{rail}_{host}", f"rail{rail}", 25))
        nodes[f"nv_{host}"] = {"kind": "nvswitch", "host": host}
        nodes[f"root_{host}"] = {"kind": "root_complex", "host": host}
        cables += [(f"switch{rail}_{host}", f"root_{host}", 32) for rail in (0, 1)]
    nodes |= dict.fromkeys(("rail0", "rail1"), "network_switch")
    if spine:
        nodes["spine"] = "network_switch"
        cables += [("rail0", "spine", 25), ("rail1", "spine", 25)]
    return Router(graph_of(nodes, cables, **attributes))


def test_data_leaves_a_host_by_the_nearest_nic_of_its_gpu():
    # Over the root complex and the other GPU's NIC it would be as short and as wide.
    router = rails(spine=True)
    assert names(router, router.path(0, 3)) == "gpu0_a-switch0_a-nic0_a-rail0-spine-rail1-nic1_b-switch1_b-gpu1_b"


def test_a_relay_over_nvlink_keeps_data_on_the_destinations_rail():
    for spine in (True, False):
        router = rails(spine, pxn=True)
        route = names(router, router.path(0, 3))
        assert route == "gpu0_a-nv_a-gpu1_a-switch1_a-nic1_a-rail1-nic1_b-switch1_b-gpu1_b"
        assert names(router, router.path(0, 2)) == "gpu0_a-switch0_a-nic0_a-rail0-nic0_b-switch0_b-gpu0_b"


def test_rails_without_a_spine_or_a_relay_name_the_pair():
    with pytest.raises(FabricError, match="no route from 'gpu0_a' to 'gpu1_b'"):
        rails(spine=False).path(0, 3)


def test_a_relay_needs_nvlink():
    graph = rails(spine=False, pxn=True).graph.copy()
    graph.remove_nodes_from(["nv_a", "nv_b"])
    with pytest.raises(FabricError, match="no route from 'gpu0_a' to 'gpu1_b'.*reaches no other GPU over NVLink"):
        Router(graph).path(0, 3)


def test_only_ranks_relay():
    graph = rails(spine=False, pxn=True).graph.copy()
    graph.graph["ranks"] = ("gpu0_a", "gpu1_b")
    with pytest.raises(FabricError, match="no route from 'gpu0_a' to 'gpu1_b'"):
        Router(graph).path(0, 1)


@pytest.mark.parametrize("spine", [True, False])
def test_many_routes_over_rails_are_the_routes_one_by_one(spine):
    pairs = [(src, dst) for dst in range(4) for src in range(4) if src != dst] * 4
    one_by_one = rails(spine, pxn=True)
    assert rails(spine, pxn=True).paths(pairs) == [one_by_one.path(*pair) for pair in pairs]


def test_inside_a_host_nobody_uses_the_network():
    # By way of the NICs the other switch is four links away, over three root complexes five.
    nodes = {
        name: {"kind": kind, "host": "h"} for name, kind in {"g0": "gpu", "g1": "gpu", "n0": "nic", "n1": "nic"}.items()
    }
    nodes |= {f"c{i}": {"kind": "root_complex", "host": "h"} for i in range(4)}
    cables = [("g0", "c0", 9), ("c0", "c1", 9), ("c1", "c2", 9), ("c2", "c3", 9), ("c3", "g1", 9)]
    cables += [("g0", "n0", 50), ("n0", "net", 50), ("net", "n1", 50), ("n1", "g1", 50)]
    router = Router(graph_of({**nodes, "net": "network_switch"}, cables))
    assert names(router, router.path(0, 1)) == "g0-c0-c1-c2-c3-g1"


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


def sharing(kind="root_complex", level="PHB"):
    """Two hosts whose GPU and NIC hang on one node that has a link to itself."""
    nodes, cables = {"net": "network_switch"}, []
    for host in "ab":
        kinds = {"gpu": "gpu", "nic": "nic", "root": kind, "memory": "host_memory"}
        nodes |= {f"{name}_{host}": {"kind": sort, "host": host} for name, sort in kinds.items()}
        cables += [(f"gpu_{host}", f"root_{host}", 32), (f"nic_{host}", f"root_{host}", 32)]
        cables += [(f"root_{host}", f"memory_{host}", 32), (f"nic_{host}", "net", 50)]
    graph = graph_of(nodes, cables, gdr_level=level)
    for host in "ab":
        graph.add_edge(f"root_{host}", f"root_{host}", link=Link(0.0, 30e9))
    return graph


@pytest.mark.parametrize("kind", ["root_complex", "pcie_switch"])
def test_what_both_directions_share_is_on_the_routes_of_both(kind):
    router = Router(sharing(kind))
    assert names(router, router.path(0, 1)) == "gpu_a-root_a-root_a-nic_a-net-nic_b-root_b-root_b-gpu_b"
    shared = router.edges.index(("root_a", "root_a"))
    assert shared in router.path(0, 1)
    assert shared in router.path(1, 0)


def test_two_directions_at_once_have_the_shared_rate_between_them():
    # 3 GB each way at once over 30 GB/s in all: 0.2 s; one way alone takes 0.1.
    both = ScheduleBuilder("alltoall", "both ways", ranks=2, size_bytes=6 * 10**9)
    one = ScheduleBuilder("broadcast", "one way", ranks=2, size_bytes=3 * 10**9)
    for src in (0, 1):
        both.send(src, 1 - src, size=3 * 10**9, from_input=True)
    one.send(0, 1, size=3 * 10**9)
    assert simulate(sharing(), one.build()).time_s == pytest.approx(0.1, rel=1e-3)
    assert simulate(sharing(), both.build()).time_s == pytest.approx(0.2, rel=1e-3)


def test_what_is_staged_does_not_pass_from_gpu_to_nic():
    router = Router(sharing(level="PXB"))
    assert router.edges.index(("root_a", "root_a")) not in router.path(0, 1)


def test_only_what_passes_data_on_inside_a_host_may_have_a_link_to_itself():
    graph = sharing()
    graph.add_edge("net", "net", link=Link(0.0, 30e9))
    with pytest.raises(FabricError, match="'net' has a link to itself"):
        Router(graph)


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


def test_what_goes_via_a_rank_leaves_by_its_network_card():
    graph = build("hgx-h100", nodes=2, nic="ndr400")
    plan = ScheduleBuilder("broadcast", "via", ranks=16, size_bytes=1000)
    plan.send(0, 8, size=1000, via=3)
    record = simulate(graph, plan.build())
    used = [edge for edge, sent in zip(record.edges, record.link_bytes.tolist(), strict=True) if sent]
    assert {("node0/gpu0", "node0/nvswitch"), ("node0/nvswitch", "node0/gpu3"), ("node0/nic3", "network")} <= set(used)
    assert used[-1][1] == "node1/gpu0" or ("node1/pcie_switch0", "node1/gpu0") in used


@pytest.mark.parametrize(("via", "words"), [(2, "via a rank outside 0 to 1"), (0, "not via its own ends"), (1, "own ends")])
def test_messages_go_via_other_ranks_alone(via, words):
    plan = ScheduleBuilder("broadcast", "via", ranks=2, size_bytes=1000)
    plan.send(0, 1, size=1000, via=via)
    with pytest.raises(ScheduleError, match=words):
        plan.build()
