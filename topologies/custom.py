"""Topologies written by hand: the ``nodes`` and ``links`` of a scenario file, as plain data, to a graph.

Nodes are a mapping ``{name: {kind: gpu, host: node0}}`` or a list ``[{name: gpu0, kind: gpu}]``; links are a list of
``{between: [a, b], ...}`` (both directions) or ``{from: a, to: b, ...}`` (one). A link takes its figures from a profile
(``profile: nvlink4, count: 18``) or states ``latency`` and ``bandwidth`` (and ``gap``, ``floor``) itself. Everything is
checked and nothing is guessed; an error names the entry and the key. Ranks are the GPUs in the order of the file unless
``ranks`` lists them. What NCCL judges a machine by may be stated, too: ``sm`` (compute capability times ten) of a GPU,
``cpu_arch``, ``cpu_vendor`` and ``cpu_model`` of a root complex. `topologies.custom_text` writes such a description.
"""

import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsim.errors import FabricError, ProfileError
from netsim.fabric import GPU, HOST_MEMORY, KINDS, ROOT_COMPLEX, SHARING, Link, check_fabric
from netsim.reach import check_level
from netsim.reading import UNREADABLE, first_problem, read_regular, safe_yaml
from netsim.units import parse_bytes, parse_rate, parse_time
from topologies.link_protocols import KEYS as PROTOCOL_KEYS
from topologies.link_protocols import read_protocols
from topologies.profiles import load_profile
from topologies.wiring import STAGING_PIECE_BYTES

if TYPE_CHECKING:
    import networkx as nx

SWITCHES = ("gpudirect", "pxn", "nvb")
"""Rules of a topology that are true or false; see `netsim.reach.Rules`."""
LEVELS = ("gdr_level", "p2p")
"""Rules of a topology that are a path type."""
FLAGS = ("transit", "multicast", "reduce", "store_and_forward")
"""What a node can or cannot do, true or false."""
HARDWARE = ("sm", "cpu_arch", "cpu_vendor", "cpu_model")
"""What NCCL judges by: compute capability times ten of a GPU; architecture, vendor and model of a root complex."""
NODE_KEYS = ("kind", "host", *FLAGS, "piece", "ports", "port", *HARDWARE, "labels")
"""Keys of a node; anything else that a graph's node carries is one of its labels."""

_TOP_KEYS = ("name", "nodes", "links", "ranks", "remarks", *SWITCHES, *LEVELS)
_FIGURES = ("latency", "bandwidth", "gap", "floor", "line_rate", *PROTOCOL_KEYS)
_PORT_KEYS = ("profile", "count", "lanes", *_FIGURES, "kind")
_LINK_KEYS = ("between", "from", "to", *_PORT_KEYS)
_MOST_ENTRIES = 2_000_000
_MOST_YAML_BYTES = 8 << 20


def custom_topology(
    description: Mapping[str, Any], *, where: str = "topology", rate: str = "effective"
) -> "nx.DiGraph[str]":
    """Build the topology that parsed YAML describes.

    Parameters
    ----------
    description : mapping
        ``nodes`` and ``links``, and if wanted ``name``, ``ranks`` (names of GPUs in rank order), ``remarks`` (sentences),
        and the rules ``gpudirect``, ``pxn``, ``nvb``, ``gdr_level`` and ``p2p`` (`netsim.reach.Rules`).
    where : str
        Where it comes from, for error messages.
    rate : {"effective", "line"}
        Which rate of the named profiles to use; rates stated in the file stay as they are.

    Returns
    -------
    networkx.DiGraph

    Raises
    ------
    FabricError
        If anything is missing, unknown, repeated or impossible, or the result is not a topology.
    UnitError
        If a quantity has no unit, a wrong one or an impossible value.

    Examples
    --------
    >>> graph = custom_topology(
    ...     {
    ...         "nodes": {"a": {"kind": "gpu"}, "b": {"kind": "gpu"}},
    ...         "links": [{"between": ["a", "b"], "profile": "nvlink4", "count": 18}],
    ...     }
    ... )
    >>> graph.edges["a", "b"]["link"].bandwidth_bytes_per_s
    370800000000.0
    """
    import networkx as nx

    _check_keys(description, _TOP_KEYS, where)
    graph: nx.DiGraph[str] = nx.DiGraph(name=_text(description.get("name", ""), f"{where}: name"))
    graph.graph["gpudirect"] = True
    for key in SWITCHES:
        if key in description:
            graph.graph[key] = _flag(description[key], f"{where}: {key}")
    for key in LEVELS:
        if key in description:
            graph.graph[key] = check_level(_text(description[key], f"{where}: {key}"), f"{where}: {key}")
    if "remarks" in description:
        graph.graph["remarks"] = _texts(description["remarks"], f"{where}: remarks")
    for name, entry, place in _node_entries(description.get("nodes"), where):
        if name in graph:
            raise FabricError(f"{place}: there are two nodes of this name; every node needs its own")
        graph.add_node(name, **_node(entry, place, rate))
    if "ranks" in description:
        graph.graph["ranks"] = _texts(description["ranks"], f"{where}: ranks")
    links = description.get("links", [])
    if not isinstance(links, list):
        raise FabricError(f"{where}: links is {_short(links)}; it must be a list of links")
    for index, entry in enumerate(links):
        _add_link(graph, entry, f"{where}: link {index + 1}", rate)
    try:
        check_fabric(graph)
    except FabricError as error:
        raise type(error)(f"{where}: {error}") from error
    return graph


def load_custom(path: str | Path, *, rate: str = "effective") -> "nx.DiGraph[str]":
    """Load a topology from a YAML file: ``nodes`` and ``links`` at the top, or under ``topology`` as in a scenario.

    Raises
    ------
    FabricError
        If the file cannot be read, is not YAML, repeats a key, or does not describe a topology.
    """
    document = _read_yaml(Path(path))
    if isinstance(document, dict) and isinstance(document.get("topology"), dict):
        document = document["topology"]
    if not isinstance(document, dict) or "nodes" not in document:
        raise FabricError(f"{path}: describes no topology; it needs 'nodes' and 'links', at the top or under 'topology'")
    return custom_topology(document, where=str(path), rate=rate)


def _read_yaml(path: Path) -> object:
    """Parse a YAML file of plain values; a key met twice is an error, not the last one's win."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise FabricError(f"{path}: reading YAML needs the package PyYAML, which is not installed") from error

    class Loader(safe_yaml()):  # type: ignore[misc]
        """Refuses repeated keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
            seen = set()
            for key in keys:
                if key in seen:
                    raise FabricError(f"{path}: line {node.start_mark.line + 1}: the key {_short(key)} stands there twice")
                seen.add(key)
            return super().construct_mapping(node, deep)  # type: ignore[no-any-return]

    data = read_regular(path, _MOST_YAML_BYTES, FabricError, "a description of a machine in YAML is wanted")
    try:
        return yaml.load(data.decode("utf-8"), Loader=Loader)
    except UnicodeDecodeError as error:
        raise FabricError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except yaml.YAMLError as error:
        line, words = first_problem(error)
        raise FabricError(f"{path}: {f'line {line}: ' if line else ''}not YAML: {words}") from error
    except UNREADABLE as error:
        raise FabricError(f"{path}: not YAML: a value is not what its tag (!!bool, !!int, ...) says") from error
    except RecursionError as error:
        raise FabricError(f"{path}: nested too deeply for a topology") from error


def _node_entries(nodes: object, where: str) -> Iterable[tuple[str, Mapping[str, Any], str]]:
    """Yield (name, entry, place for errors) from either form."""
    if not isinstance(nodes, Mapping | list) or not nodes:
        raise FabricError(f"{where}: nodes is {_short(nodes)}; it must be a mapping from names to nodes, or a list of nodes")
    if len(nodes) > _MOST_ENTRIES:
        raise FabricError(f"{where}: {len(nodes)} nodes are more than the {_MOST_ENTRIES} that are accepted")
    if isinstance(nodes, Mapping):
        for name, entry in nodes.items():
            place = f"{where}: node {_short(name)}"
            if not isinstance(entry, Mapping):
                raise FabricError(f"{place} is {_short(entry)}; write its keys, for example kind: gpu")
            yield _text(name, f"{place}: name"), entry, place
        return
    for index, entry in enumerate(nodes):
        place = f"{where}: node {index + 1}"
        if not isinstance(entry, Mapping) or "name" not in entry:
            raise FabricError(f"{place} is {_short(entry)}; write name and kind")
        name = _text(entry["name"], f"{place}: name")
        yield name, {key: value for key, value in entry.items() if key != "name"}, f"{where}: node {_short(name)}"


def _node(entry: Mapping[str, Any], place: str, rate: str) -> dict[str, Any]:
    """Check one node and return its attributes."""
    _check_keys(entry, NODE_KEYS, place)
    kind = entry.get("kind")
    if kind not in KINDS:
        raise FabricError(f"{place}: kind is {_short(kind)}; accepted are {', '.join(KINDS)}")
    attributes: dict[str, Any] = {"kind": kind}
    if "host" in entry:
        attributes["host"] = _text(entry["host"], f"{place}: host")
    for key in FLAGS:
        if key in entry:
            attributes[key] = _flag(entry[key], f"{place}: {key}")
    if "ports" in entry:
        attributes["ports"] = _texts(entry["ports"], f"{place}: ports")
    if "port" in entry:
        attributes["port"] = _port(entry["port"], f"{place}: port", rate)
    attributes |= _labels(entry.get("labels", {}), f"{place}: labels")
    attributes |= _hardware({**attributes, **entry}, kind, place)
    if kind == HOST_MEMORY:
        attributes.setdefault("store_and_forward", True)
    if attributes.get("store_and_forward"):
        piece = parse_bytes(entry.get("piece", STAGING_PIECE_BYTES), where=f"{place}: piece")
        if piece < 1:
            raise FabricError(f"{place}: piece is {_short(entry['piece'])}; a piece has one byte or more")
        attributes["piece_bytes"] = piece
    elif "piece" in entry:
        raise FabricError(f"{place}: piece means nothing without store_and_forward: true")
    return attributes


def _port(entry: object, place: str, rate: str) -> Link | None:
    """Read the link from a NIC to its network: figures, or nothing for a NIC of unknown speed."""
    if entry is None:
        return None
    if not isinstance(entry, Mapping):
        raise FabricError(f"{place} is {_short(entry)}; write a profile or figures, or null for a NIC of unknown speed")
    _check_keys(entry, _PORT_KEYS, place)
    return _link(entry, place, rate)


def _labels(entry: object, place: str) -> dict[str, Any]:
    """Read what else is known of a node, for example its bus id: names to text, whole numbers, true or false."""
    if not isinstance(entry, Mapping):
        raise FabricError(f"{place} is {_short(entry)}; write a mapping such as busid: 0000:1b:00.0")
    for key, value in entry.items():
        if _text(key, place) in (*NODE_KEYS, "piece_bytes") and key not in HARDWARE:
            raise FabricError(f"{place}: {key} is a key of the node itself, not a label")
        if isinstance(value, str):
            _text(value, f"{place}: {key}")
        elif not isinstance(value, int) and value is not None:
            raise FabricError(f"{place}: {key} is {_short(value)}; accepted are text, whole numbers, true and false")
    return dict(entry)


def _hardware(entry: Mapping[str, Any], kind: str, place: str) -> dict[str, Any]:
    """Read the kind of a GPU or of a root complex's processor, as keys of the node or (older files) as labels."""
    found: dict[str, Any] = {}
    for key in HARDWARE:
        if key not in entry:
            continue
        if kind != (GPU if key == "sm" else ROOT_COMPLEX):
            raise FabricError(
                f"{place}: {key} means nothing on a {kind}; it belongs to a {GPU} (sm) or a {ROOT_COMPLEX} (cpu_)"
            )
        value = entry[key]
        if key in ("cpu_arch", "cpu_vendor"):
            found[key] = _text(value, f"{place}: {key}")
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31:
            raise FabricError(f"{place}: {key} is {_short(value)}; a whole number is accepted, for example sm: 90")
        else:
            found[key] = value
    return found


def _add_link(graph: "nx.DiGraph[str]", entry: object, place: str, rate: str) -> None:
    """Check one link and lay it, in both directions for ``between``."""
    if not isinstance(entry, Mapping):
        raise FabricError(f"{place} is {_short(entry)}; write between: [a, b] and the link's figures")
    _check_keys(entry, _LINK_KEYS, place)
    ends = _ends(entry, place)
    place = f"{place} ({ends[0]} - {ends[1]})"
    for end in ends:
        if end not in graph:
            raise FabricError(f"{place}: there is no node {_short(end)} in nodes")
    if ends[0] == ends[1] and graph.nodes[ends[0]]["kind"] not in SHARING:
        raise FabricError(
            f"{place}: it joins a node to itself; a link joins two nodes, or is what a {' or '.join(SHARING)} passes on "
            "between GPUs and NICs, both directions together"
        )
    link = _link(entry, place, rate)
    for pair in dict.fromkeys((ends, ends[::-1]) if "between" in entry else (ends,)):
        if graph.has_edge(*pair):
            raise FabricError(
                f"{place}: {pair[0]!r} -> {pair[1]!r} has a link already; parallel links are one entry with count"
            )
        graph.add_edge(*pair, link=link)


def _ends(entry: Mapping[str, Any], place: str) -> tuple[str, str]:
    if "between" in entry:
        if "from" in entry or "to" in entry:
            raise FabricError(f"{place}: it has between as well as from and to; write one or the other")
        pair = entry["between"]
        if not isinstance(pair, list) or len(pair) != 2:
            raise FabricError(f"{place}: between is {_short(pair)}; it must be a list of two node names")
        return _text(pair[0], f"{place}: between"), _text(pair[1], f"{place}: between")
    for key in ("from", "to"):
        if key not in entry:
            raise FabricError(f"{place}: {key} is missing; write between: [a, b], or from: and to:")
    return _text(entry["from"], f"{place}: from"), _text(entry["to"], f"{place}: to")


def _link(entry: Mapping[str, Any], place: str, rate: str) -> Link:
    count = _whole(entry.get("count", 1), f"{place}: count")
    if "profile" in entry:
        clash = [key for key in (*_FIGURES, "kind") if key in entry]
        if clash:
            raise FabricError(f"{place}: {clash[0]} stands beside profile; the profile states it already")
        lanes = _whole(entry["lanes"], f"{place}: lanes") if "lanes" in entry else None
        try:
            return load_profile(_text(entry["profile"], f"{place}: profile")).link(rate, count=count, lanes=lanes)
        except ProfileError as error:
            raise FabricError(f"{place}: {error}") from error
    for key in ("latency", "bandwidth"):
        if key not in entry:
            raise FabricError(f"{place}: {key} is missing; state latency and bandwidth, or a profile")
    if "lanes" in entry:
        raise FabricError(f"{place}: lanes means something beside a PCI Express profile only")
    return Link(
        latency_s=parse_time(entry["latency"], where=f"{place}: latency"),
        bandwidth_bytes_per_s=parse_rate(entry["bandwidth"], where=f"{place}: bandwidth"),
        gap_s=parse_time(entry.get("gap", "0"), where=f"{place}: gap"),
        floor_s=parse_time(entry.get("floor", "0"), where=f"{place}: floor"),
        count=count,
        kind=_text(entry.get("kind", "custom"), f"{place}: kind"),
        line_rate_bytes_per_s=parse_rate(entry["line_rate"], where=f"{place}: line_rate") if "line_rate" in entry else None,
        protocols=read_protocols(entry, place),
    )


def _check_keys(entry: Mapping[str, Any], accepted: tuple[str, ...], place: str) -> None:
    for key in entry:
        if key not in accepted:
            raise FabricError(f"{place}: unknown key {_short(key)}; accepted are {', '.join(accepted)}")


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise FabricError(f"{place}: {_short(value)} is not text; put it in quotes")
    if not value.isprintable():
        # Names stand in tables and CSV files, one row a line.
        raise FabricError(f"{place}: {_short(value)} holds a line break or another character that cannot be printed")
    return value


def _texts(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise FabricError(f"{place} is {_short(value)}; it must be a list of text")
    return tuple(_text(one, place) for one in value)


def _flag(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise FabricError(f"{place} is {_short(value)}; it must be true or false")
    return value


def _whole(value: object, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise FabricError(f"{place} is {_short(value)}; it must be a whole number from 1 to 1000000")
    return value


def _short(value: object) -> str:
    """Return a value as text, short whatever the file holds."""
    return reprlib.repr(value)
