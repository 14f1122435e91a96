"""Small graphs for tests of routes, and the names of the nodes on a path."""

import itertools

import networkx as nx
from hypothesis import strategies as st

from netsim.fabric import Link


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
