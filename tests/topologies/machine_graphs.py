"""What tests ask of a machine's graph: its links of a kind, and how far two devices are in NVIDIA's words."""

import networkx as nx

from netsim.reach import path_type


def links(graph: "nx.DiGraph[str]", kind: str) -> dict[tuple[str, str], int]:
    return {(a, b): link.count for a, b, link in graph.edges(data="link") if link.kind.startswith(kind) and a < b}


def distance(graph: "nx.DiGraph[str]", a: str, b: str) -> str:
    """Return NVIDIA's word for how far two devices are on the PCIe side of a graph."""
    tree = graph.subgraph(
        node for node, data in graph.nodes.items() if data["kind"] not in ("gpu", "nic", "nvswitch") or node in (a, b)
    ).copy()
    if tree.has_edge(a, b):
        tree.remove_edge(a, b)
    kinds = [graph.nodes[node]["kind"] for node in nx.shortest_path(tree, a, b)[1:-1]]
    return path_type(kinds)
