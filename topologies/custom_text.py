"""The way back from a graph to a description that a person can edit: YAML text that `topologies.custom` reads.

Reading the text again gives an equal graph: nodes, links, ranks, rules and remarks, and the order in which links leave
each node, so that routes and times are the same to the last digit. A link whose figures are those of a profile that
travels with netsim is written by the profile's name, any other by its figures.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from netsim.errors import FabricError, ProfileError
from netsim.fabric import GPU, Link, ranks_of
from netsim.units import format_bytes, format_rate, format_time
from topologies.custom import FLAGS, HARDWARE, LEVELS, NODE_KEYS, SWITCHES
from topologies.link_protocols import protocol_items
from topologies.profiles import family_of, load_profile

if TYPE_CHECKING:
    import networkx as nx

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
# What YAML takes for something else than text.
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"))
_WIDTH = re.compile(r"(.+)_x(\d+)")
_HELP = """\
# nodes: name: {kind: gpu, nvswitch, pcie_switch, root_complex, host_memory, nic or network_switch; host: server it is in}
# links: between is both directions, from and to is one; count is how many run in parallel. A link has the figures of a
# profile (`netsim topo list` names them) or states latency and bandwidth itself, all parallel links together.
"""


def describe(graph: "nx.DiGraph[str]", *, rate: str = "effective", heading: str = "") -> str:
    """Write a topology as YAML.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.
    rate : {"effective", "line"}
        The rate with which it was built and will be read: links that have a profile's figures at this rate name it.
    heading : str
        A line for the top of the text, as a comment.

    Returns
    -------
    str
        Ends with a line end.

    Raises
    ------
    FabricError
        If a node carries an attribute that a description has no form for.

    Examples
    --------
    >>> from topologies import build
    >>> print(describe(build("pcie-pair")).splitlines()[-1])
    - {between: [gpu1, cpu0], profile: pcie4}
    """
    lines = [f"# {' '.join(heading.split())}"] if heading else []
    lines.extend(_HELP.splitlines())
    lines.append(f"name: {_scalar(str(graph.graph.get('name') or ''))}")
    lines.extend(f"{key}: {_scalar(graph.graph[key])}" for key in SWITCHES if key in graph.graph)
    lines.extend(f"{key}: {_scalar(graph.graph[key])}" for key in LEVELS if graph.graph.get(key) is not None)
    if graph.graph.get("remarks"):
        lines.append("remarks:  # what was assumed or looks doubtful; take out what you have settled")
        lines.extend(f"- {_scalar(str(remark))}" for remark in graph.graph["remarks"])
    if ranks_of(graph) != tuple(node for node, data in graph.nodes.items() if data["kind"] == GPU):
        lines.append(f"ranks: {_scalar(list(ranks_of(graph)))}")
    lines.append("nodes:")
    lines.extend(f"  {_scalar(node)}: {_node(node, data, rate)}" for node, data in graph.nodes(data=True))
    texts: dict[Link, str] = {}
    lines.append("links:" if graph.number_of_edges() else "links: []")
    for ends, link in _entries(graph):
        if link not in texts:
            texts[link] = _mapping(_link(link, rate))
        lines.append(f"- {{{ends}, {texts[link]}}}")
    return "\n".join(lines) + "\n"


def _node(node: str, data: dict[str, Any], rate: str) -> str:
    """Write the attributes of one node; those without a key of their own are labels."""
    items: dict[str, str] = {"kind": _scalar(data["kind"])}
    labels: dict[str, str] = {}
    for key, value in data.items():
        if key == "kind":
            continue
        if key == "piece_bytes":
            items["piece"] = format_bytes(value)
        elif key == "port" and isinstance(value, Link):
            items[key] = f"{{{_mapping(_link(value, rate))}}}"
        elif key in FLAGS or key in HARDWARE or key in ("host", "port", "ports"):
            items[key] = _scalar(list(value) if key == "ports" else value)
        elif key not in NODE_KEYS and (isinstance(value, str | int) or value is None):
            labels[_scalar(key)] = _scalar(value)
        else:
            raise FabricError(f"node {node!r}: the attribute {key!r} ({value!r}) cannot be written into a description")
    if labels:
        items["labels"] = f"{{{_mapping(labels)}}}"
    return f"{{{_mapping(items)}}}"


def _link(link: Link, rate: str) -> dict[str, str]:
    """Return the keys of a link: its profile's name where that says everything, else its figures."""
    by_name = _by_profile(link, rate)
    if by_name is not None:
        return by_name
    items = {"latency": format_time(link.latency_s), "bandwidth": format_rate(link.bandwidth_bytes_per_s)}
    for key, seconds in (("gap", link.gap_s), ("floor", link.floor_s)):
        if seconds:
            items[key] = format_time(seconds)
    if link.count != 1:
        items["count"] = str(link.count)
    if link.kind != "custom":
        items["kind"] = _scalar(link.kind)
    if link.line_rate_bytes_per_s is not None:
        items["line_rate"] = format_rate(link.line_rate_bytes_per_s)
    return items | {key: str(value) for key, value in protocol_items(link.protocols).items()}


def _by_profile(link: Link, rate: str) -> dict[str, str] | None:
    if family_of(link.kind) is None:
        return None
    width = _WIDTH.fullmatch(link.kind)
    for name, lanes in ((link.kind, None), (width[1], int(width[2])) if width else ("", None)):
        try:
            same = load_profile(name).link(rate, count=link.count, lanes=lanes) == link
        except ProfileError:
            continue
        if same:
            items = {"profile": _scalar(name)}
            items |= {"count": str(link.count)} if link.count != 1 else {}
            return items | ({"lanes": str(lanes)} if lanes is not None else {})
    return None


def _entries(graph: "nx.DiGraph[str]") -> Iterator[tuple[str, Link]]:
    """Yield the ends of each entry with its link, so that reading keeps the order in which links leave each node.

    Two directions make one entry when both are next in line at their nodes; where no two are, one direction goes alone.
    """
    waiting = {node: list(reversed(list(graph.successors(node)))) for node in graph}
    place = {node: index for index, node in enumerate(graph)}
    todo = list(reversed(place))
    behind: list[str] = []
    while todo or behind:
        if not todo:
            # Every node waits for another one: let the first go on by itself.
            todo = list(reversed(behind))
            behind = []
            node = todo[-1]
            other = waiting[node].pop()
            yield f"from: {_scalar(node)}, to: {_scalar(other)}", graph.edges[node, other]["link"]
        node = todo.pop()
        while waiting[node]:
            other = waiting[node][-1]
            link = graph.edges[node, other]["link"]
            back = other != node and graph.has_edge(other, node) and graph.edges[other, node]["link"] == link
            if not back or node not in waiting[other]:
                waiting[node].pop()
                yield f"from: {_scalar(node)}, to: {_scalar(other)}", link
            elif waiting[other][-1] == node:
                waiting[node].pop()
                waiting[other].pop()
                yield f"between: {_scalar(sorted((node, other), key=place.__getitem__))}", link
                if other in behind:
                    behind.remove(other)
                    todo.append(other)
            else:
                behind.append(node)
                break


def _mapping(items: dict[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in items.items())


def _scalar(value: object) -> str:
    """Write text, a number, a truth value, nothing or a list of text in YAML's short form."""
    if isinstance(value, list):
        return f"[{', '.join(_scalar(one) for one in _texts(value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    # A JSON string is a YAML string; names hold printable characters only.
    return json.dumps(value, ensure_ascii=False)


def _texts(values: Iterable[object]) -> Iterator[str]:
    return (str(value) for value in values)
