"""Routes inside hosts and out of them: staged in memory, over bridges, rails and relays, past limits of both ways."""

import pytest

from netsim.errors import FabricError, ScheduleError
from netsim.fabric import Link
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.dag import ScheduleBuilder
from tests.netsim.routing_graphs import graph_of, names
from topologies import build


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
