"""What a topology must carry, and that the check says what is missing."""

import math

import networkx as nx
import pytest

from netsim.errors import FabricError
from netsim.fabric import Link, check_fabric, hosts_of, ranks_of, topology_digest
from netsim.testing import star


@pytest.mark.parametrize(
    "values",
    [
        {"latency_s": -1e-6},
        {"latency_s": math.nan},
        {"bandwidth_bytes_per_s": 0.0},
        {"bandwidth_bytes_per_s": math.inf},
        {"bandwidth_bytes_per_s": math.nan},
        {"gap_s": -1.0},
        {"floor_s": math.inf},
        {"count": 0},
    ],
)
def test_a_link_refuses_values_that_no_link_has(values):
    with pytest.raises(FabricError):
        Link(**{"latency_s": 0.0, "bandwidth_bytes_per_s": 1e9} | values)


def test_a_complete_star_passes():
    check_fabric(star(4))


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (lambda graph: graph.nodes["gpu1"].update(kind="toaster"), "toaster"),
        (lambda graph: graph.edges["gpu1", "switch"].pop("link"), "carries no Link"),
        (lambda graph: graph.remove_edge("gpu1", "switch"), "cannot be reached from GPU 'gpu1'|cannot reach"),
        (lambda graph: graph.remove_edge("switch", "gpu1"), "cannot reach GPU 'gpu1'"),
        (lambda graph: graph.graph.update(ranks=("gpu0", "switch")), "not a GPU"),
        (lambda graph: graph.graph.update(ranks=("gpu0", "gpu0")), "twice"),
        (lambda graph: graph.graph.update(ranks=()), "no GPU"),
        (lambda graph: graph.add_edge("gpu0", "gpu0", link=Link(0.0, 1.0)), "itself"),
    ],
)
def test_what_is_missing_is_named(breaks, words):
    graph = star(3)
    breaks(graph)
    with pytest.raises(FabricError, match=words):
        check_fabric(graph)


def test_an_undirected_graph_is_refused():
    with pytest.raises(FabricError, match="DiGraph"):
        check_fabric(nx.Graph())


def test_ranks_are_the_gpus_in_order_of_creation_unless_named():
    graph = star(3)
    assert ranks_of(graph) == ("gpu0", "gpu1", "gpu2")
    graph.graph["ranks"] = ("gpu2", "gpu0")
    assert ranks_of(graph) == ("gpu2", "gpu0")


def test_hosts_group_the_ranks_in_order_of_their_first():
    graph = star(4)
    for node, host in zip(("gpu0", "gpu1", "gpu2", "gpu3"), "abab", strict=True):
        graph.nodes[node]["host"] = host
    assert hosts_of(graph) == ((0, 2), (1, 3))


def test_the_digest_follows_every_value_and_no_order_of_creation():
    assert topology_digest(star(4)) == topology_digest(star(4))
    assert topology_digest(star(4)) != topology_digest(star(4, latency_s=2e-6))
    shuffled = nx.DiGraph()
    shuffled.add_nodes_from(reversed(list(star(4).nodes(data=True))))
    shuffled.add_edges_from(reversed(list(star(4).edges(data=True))))
    shuffled.graph["ranks"] = ranks_of(star(4))
    assert topology_digest(shuffled) == topology_digest(star(4))


@pytest.mark.parametrize("topology", [None, "hgx-h100", {}])
def test_what_is_no_graph_is_refused(topology):
    with pytest.raises(FabricError, match="topology is .*; pass a graph"):
        check_fabric(topology)
