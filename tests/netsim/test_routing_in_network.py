"""Network switches that add or copy for GPUs of several hosts, through their NICs."""

import networkx as nx
import pytest

from netsim.errors import FabricError
from netsim.fabric import Link
from netsim.routing import Router


def two_hosts(**attributes):
    """Two hosts of two GPUs on an NVSwitch and one NIC; leaf switches and two spines, with attributes by name."""
    graph = nx.DiGraph()
    for host in "ab":
        for name, kind in (
            ("gpu0", "gpu"),
            ("gpu1", "gpu"),
            ("nvswitch", "nvswitch"),
            ("pcie", "pcie_switch"),
            ("nic", "nic"),
        ):
            graph.add_node(host + name, kind=kind, host=host)
        graph.add_node(host + "leaf", kind="network_switch")
        pairs = [
            ("gpu0", "nvswitch"),
            ("gpu1", "nvswitch"),
            ("gpu0", "pcie"),
            ("gpu1", "pcie"),
            ("pcie", "nic"),
            ("nic", "leaf"),
        ]
        for one, other in pairs:
            graph.add_edge(host + one, host + other, link=Link(1e-6, 1e9))
            graph.add_edge(host + other, host + one, link=Link(1e-6, 1e9))
    for spine in ("far", "spine"):
        graph.add_node(spine, kind="network_switch")
        for leaf in ("aleaf", "bleaf"):
            graph.add_edge(leaf, spine, link=Link(1e-6, 1e9))
            graph.add_edge(spine, leaf, link=Link(1e-6, 1e9))
    for name, given in attributes.items():
        graph.nodes[name].update(given)
    graph.graph["ranks"] = ("agpu0", "agpu1", "bgpu0", "bgpu1")
    return Router(graph)


def names(router, path):
    edges = [router.edges[edge] for edge in path]
    return "-".join([edges[0][0], *(target for _, target in edges)])


def test_gpus_of_two_hosts_meet_at_a_switch_behind_their_nics():
    router = two_hosts(spine={"reduce": True})
    switch = router.switch((0, 3), "reduce")
    assert names(router, router.path_up(0, switch)) == "agpu0-apcie-anic-aleaf-spine"
    assert names(router, router.path_down(switch, 3)) == "spine-bleaf-bnic-bpcie-bgpu1"


def test_of_several_the_one_with_the_fewest_links_is_taken():
    # From hosts a and b the leaf of a is 3 + 5 links away, a spine 4 + 4; among equals the first one made.
    router = two_hosts(spine={"reduce": True}, far={"reduce": True}, bleaf={"multicast": True})
    assert router.nodes[router.switch((0, 2), "reduce")] == "far"
    assert router.nodes[router.switch((0, 2), "multicast")] == "bleaf"


def test_gpus_of_one_host_do_not_meet_outside():
    router = two_hosts(spine={"reduce": True})
    with pytest.raises(
        FabricError, match="no switch with reduce=True is linked to all of the 2 GPUs from 'agpu0' to 'agpu1'"
    ):
        router.switch((0, 1), "reduce")


def test_a_switch_without_the_ability_joins_nobody():
    with pytest.raises(FabricError, match="no switch with multicast=True is linked to all"):
        two_hosts(spine={"reduce": True}).switch((0, 2), "multicast")
