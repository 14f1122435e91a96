"""Study graphs: topologies of one link kind, described by a line of text, for formulas and textbook comparisons.

``ideal-switch:8@450GB/s,1us``: ranks around one switch that multicasts and reduces; each rank sends and receives at the
rate, and a path between two ranks costs the latency once (all of it on the link up to the switch).
``ideal-ring:8@450GB/s,1us``: a link each way between neighbours, latency and rate a link; GPUs forward, so that a route
goes the shorter way around. ``ideal-mesh:8@450GB/s,1us``: a link each way between every two ranks.
"""

import re
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import GPU, NVSWITCH, Link
from netsim.units import parse_rate, parse_time

if TYPE_CHECKING:
    import networkx as nx

ACCEPTED = (
    "ideal-switch:P@RATE,LATENCY, ideal-ring:P@RATE,LATENCY and ideal-mesh:P@RATE,LATENCY, "
    "for example ideal-switch:8@450GB/s,1us"
)
"""The forms a study graph can take, for error messages."""

# Most ranks of each form: beyond this the graph alone takes gigabytes.
_MOST_RANKS = {"ideal-switch": 1_000_000, "ideal-ring": 1_000_000, "ideal-mesh": 1024}
_FORM = re.compile(r"(ideal-[a-z]+):\s*([^@]*?)\s*@\s*([^,]*?)\s*,\s*([^,]*?)\s*")
_COUNT = re.compile(r"[0-9]{1,9}")


def is_study_text(text: str) -> bool:
    """Say whether a topology's name is meant as a study graph, well formed or not."""
    return text.startswith("ideal-")


def study_graph(text: str) -> "nx.DiGraph[str]":
    """Build the study graph that a line of text describes.

    Parameters
    ----------
    text : str
        ``ideal-switch:P@RATE,LATENCY``, ``ideal-ring:...`` or ``ideal-mesh:...``; P ranks, a rate such as ``450GB/s``
        and a time such as ``1us`` (`netsim.units`).

    Returns
    -------
    networkx.DiGraph

    Raises
    ------
    FabricError
        If the text has another form or P is not a number of ranks.
    UnitError
        If the rate or the latency has no unit, a wrong one, or an impossible value.

    Examples
    --------
    >>> graph = study_graph("ideal-switch:8@450GB/s,1us")
    >>> len(graph.graph["ranks"]), graph.edges["gpu0", "switch"]["link"].latency_s
    (8, 1e-06)
    """
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in _MOST_RANKS:
        raise FabricError(f"topology {text!r} is no study graph; accepted are {ACCEPTED}")
    form, count, rate, latency = match.groups()
    most = _MOST_RANKS[form]
    if not _COUNT.fullmatch(count) or not 1 <= int(count) <= most:
        raise FabricError(f"topology {text!r}: the number of ranks is {count!r}; accepted are 1 to {most} ({ACCEPTED})")
    bandwidth_bytes_per_s = parse_rate(rate, where=f"topology {text!r}, rate")
    latency_s = parse_time(latency, where=f"topology {text!r}, latency")
    builder = {"ideal-switch": _switch, "ideal-ring": _ring, "ideal-mesh": _mesh}[form]
    graph = builder(int(count), _link(bandwidth_bytes_per_s, latency_s))
    graph.graph.update(name=text, ranks=_names(int(count)))
    return graph


def _link(bandwidth_bytes_per_s: float, latency_s: float) -> Link:
    return Link(latency_s, bandwidth_bytes_per_s, kind="ideal", line_rate_bytes_per_s=bandwidth_bytes_per_s)


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"gpu{rank}" for rank in range(count))


def _switch(count: int, up: Link) -> "nx.DiGraph[str]":
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    down = _link(up.bandwidth_bytes_per_s, 0.0)
    graph.add_nodes_from(_names(count), kind=GPU)
    graph.add_node("switch", kind=NVSWITCH, multicast=True, reduce=True)
    for name in _names(count):
        graph.add_edge(name, "switch", link=up)
        graph.add_edge("switch", name, link=down)
    return graph


def _ring(count: int, link: Link) -> "nx.DiGraph[str]":
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    names = _names(count)
    graph.add_nodes_from(names, kind=GPU, transit=True)
    # Each GPU's link onward is laid before its link back, so that all of them choose alike between ways of equal length.
    for step in (1, -1):
        for rank in range(count if count > 1 else 0):
            graph.add_edge(names[rank], names[(rank + step) % count], link=link)
    return graph


def _mesh(count: int, link: Link) -> "nx.DiGraph[str]":
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    names = _names(count)
    graph.add_nodes_from(names, kind=GPU)
    graph.add_edges_from(((a, b) for a in names for b in names if a != b), link=link)
    return graph
