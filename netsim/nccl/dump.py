"""Read and write NCCL_GRAPH_DUMP_FILE: the graphs that NCCL's search found, as the XML that NCCL itself writes.

A dump of a real machine can stand in for the search, and a searched graph can be held against one. Reads what NCCL 2.4 to
2.30 write (device numbers decimal or hexadecimal, with or without ``latencyinter``); text between tags is ignored. No
document type, no entities, bounded size. GPUs are numbered within the node by their rank, where the file states it, or by
device number; ports keep their device number. Deliberately left out: user-written graphs of several alternatives for one id.
"""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from netsim.errors import NetsimError
from netsim.nccl.graphs import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    GRAPH_IDS,
    NVLS,
    RING,
    TREE,
    ChannelGraph,
    ChannelOrder,
)
from netsim.nccl.paths import TYPES
from netsim.reading import parse_xml, read_regular

MOST_BYTES = 8 << 20
_MOST_ELEMENTS = 200_000
_ORDER_OF_A_DUMP = (RING, TREE, COLLNET_DIRECT, COLLNET_CHAIN, NVLS)
_NAMES = {number: name for name, number in GRAPH_IDS.items()}
_PARENTS = {"graphs": None, "graph": "graphs", "channel": "graph", "gpu": "channel", "net": "channel"}
_WHOLE = re.compile(r"(-?\d{1,9})|0[xX]([0-9a-fA-F]{1,12})", re.ASCII)
_SPEED = re.compile(r"\d{1,9}(\.\d{1,9})?([eE][+-]?\d{1,2})?", re.ASCII)

_Channel = list[tuple[str, dict[str, str], int]]


def read_dump(path: str | Path) -> dict[str, ChannelGraph]:
    """Read a dump.

    Returns
    -------
    dict of str to ChannelGraph
        By name, in the order of the file; what the file lacks is lacking.

    Raises
    ------
    NetsimError
        If the file cannot be read, is too large, is no graph dump or holds impossible values; the message says where.
    """
    data = read_regular(path, MOST_BYTES, wanted="a graph dump (NCCL_GRAPH_DUMP_FILE) is wanted")
    return parse_dump(data, str(path))


def parse_dump(data: bytes, where: str = "graph dump") -> dict[str, ChannelGraph]:
    """Read a dump that is in memory already; `where` names it in messages."""
    if len(data) > MOST_BYTES:
        raise NetsimError(f"{where}: larger than {MOST_BYTES >> 20} MiB; a graph dump is not")
    found: dict[str, ChannelGraph] = {}
    for attributes, line, channels in _elements(data, where):
        graph = _graph(attributes, channels, f"{where}: line {line}")
        if graph.name in found:
            raise NetsimError(f"{where}: line {line}: there are two graphs with id {GRAPH_IDS[graph.name]}; one is accepted")
        found[graph.name] = graph
    return found


def format_dump(graphs: Mapping[str, ChannelGraph]) -> str:
    """Write graphs the way NCCL 2.28 does.

    Examples
    --------
    >>> graph = ChannelGraph("ring", 4, (ChannelOrder((0, 1)),), 20.0, 20.0, "NVL", "PIX")
    >>> parse_dump(format_dump({"ring": graph}).encode()) == {"ring": graph}
    True
    """
    lines = ['<graphs version="1">']
    for name in _ORDER_OF_A_DUMP:
        if name in graphs:
            lines += _graph_lines(graphs[name])
    return "\n".join([*lines, "</graphs>"]) + "\n"


def _graph_lines(graph: ChannelGraph) -> Iterable[str]:
    stated: dict[str, object] = {
        "id": GRAPH_IDS[graph.name],
        "pattern": graph.pattern,
        "crossnic": graph.cross_nic,
        "nchannels": graph.channels,
        "speedintra": f"{graph.intra_GBps:g}",
        "speedinter": f"{graph.inter_GBps:g}",
        "latencyinter": f"{graph.latency_inter_us:g}",
        "typeintra": graph.type_intra,
        "typeinter": graph.type_inter,
        "samechannels": int(graph.same_channels),
    }
    head = "  <graph " + " ".join(f'{key}="{value}"' for key, value in stated.items())
    if not graph.orders:
        return [head + "/>"]
    lines = [head + ">"]
    for order in graph.orders:
        devices = [("gpu", gpu) for gpu in order.gpus]
        if order.nic_in is not None:
            devices.insert(0, ("net", order.nic_in))
        if order.nic_out is not None:
            devices.append(("net", order.nic_out))
        lines.append("    <channel>")
        lines += [f'      <{tag} dev="{device:#x}"/>' if device else f'      <{tag} dev="0"/>' for tag, device in devices]
        lines.append("    </channel>")
    return [*lines, "  </graph>"]


def _elements(data: bytes, where: str) -> list[tuple[dict[str, str], int, list[_Channel]]]:
    """Parse the XML to (attributes, line, channels) of each graph, and check how elements are nested."""
    open_tags: list[str] = []
    graphs: list[tuple[dict[str, str], int, list[_Channel]]] = []
    count = 0

    def start(tag: str, attributes: dict[str, str], line: int) -> None:
        nonlocal count
        count += 1
        above = open_tags[-1] if open_tags else None
        if count > _MOST_ELEMENTS:
            raise NetsimError(f"{where}: line {line}: more than {_MOST_ELEMENTS} elements; a graph dump has fewer")
        if above is None and tag != "graphs":
            hint = "; this is a topology (NCCL_TOPO_DUMP_FILE)" if tag == "system" else ""
            raise NetsimError(f"{where}: the root element is <{tag[:40]}>, but a graph dump begins with <graphs>{hint}")
        if tag not in _PARENTS or _PARENTS[tag] != above:
            known = "graphs > graph > channel > net and gpu"
            raise NetsimError(f"{where}: line {line}: <{tag[:40]}> stands in <{above}>; a graph dump has {known}")
        open_tags.append(tag)
        if tag == "graph":
            graphs.append((attributes, line, []))
        elif tag == "channel":
            graphs[-1][2].append([])
        elif tag in ("gpu", "net"):
            graphs[-1][2][-1].append((tag, attributes, line))

    def end() -> None:
        open_tags.pop()

    parse_xml(data, where, "graph dumps", start, end)
    return graphs


def _graph(attributes: Mapping[str, str], channels: list[_Channel], place: str) -> ChannelGraph:
    number = _whole(attributes, "id", f"{place}: <graph>", least=0, most=max(_NAMES))
    pattern = _whole(attributes, "pattern", f"{place}: <graph>", least=1, most=6)
    stated = _whole(attributes, "nchannels", f"{place}: <graph>", least=0, most=1024)
    if stated != len(channels):
        raise NetsimError(f"{place}: <graph> has nchannels={stated} but {len(channels)} channel elements; both must agree")
    numbers = _positions(channels, place)
    orders = tuple(_order(channel, numbers, place) for channel in channels)
    whole = [sorted(order.gpus) for order in orders]
    if _NAMES[number] not in (NVLS, COLLNET_DIRECT) and any(gpus != whole[0] for gpus in whole):
        raise NetsimError(
            f"{place}: the channels of <graph id={number}> have different GPUs; each channel has all of a node"
        )
    return ChannelGraph(
        _NAMES[number],
        pattern,
        orders,
        _speed(attributes, "speedintra", place),
        _speed(attributes, "speedinter", place),
        _type(attributes, "typeintra", place),
        _type(attributes, "typeinter", place),
        _speed({"latencyinter": "0"} | dict(attributes), "latencyinter", place),
        _whole(attributes, "crossnic", f"{place}: <graph>", least=0, most=2),
        bool(_whole(attributes, "samechannels", f"{place}: <graph>", least=0, most=1)),
    )


def _positions(channels: list[_Channel], place: str) -> dict[int, int]:
    """Return the position within the node of each GPU's device number: by rank where stated, else by number."""
    keys: dict[int, int] = {}
    for channel in channels:
        for tag, attributes, line in channel:
            if tag == "gpu":
                where = f"{place.rsplit(':', 1)[0]}: line {line}: <gpu>"
                device = _whole(attributes, "dev", where, least=0, most=2**48)
                rank = _whole(attributes, "rank", where, least=0, most=2**31) if "rank" in attributes else device
                if keys.setdefault(device, rank) != rank:
                    raise NetsimError(f"{where}: device {device} has rank {rank} here and {keys[device]} before")
    return {device: position for position, device in enumerate(sorted(keys, key=lambda one: (keys[one], one)))}


def _order(channel: _Channel, numbers: Mapping[int, int], place: str) -> ChannelOrder:
    """Read one channel: a port if there are several nodes, GPUs, a port."""
    head = place.rsplit(":", 1)[0]
    tags = "".join(tag[0] for tag, _, _ in channel)
    if not re.fullmatch(r"g+|ng+n", tags):
        line = channel[0][2] if channel else place.rsplit(" ", 1)[1]
        words = " ".join(tag for tag, _, _ in channel[:9]) or "nothing"
        raise NetsimError(f"{head}: line {line}: a channel holds GPUs, or a net, GPUs and a net; found {words}")
    devices = [
        _whole(attributes, "dev", f"{head}: line {line}: <{tag}>", least=0, most=2**48) for tag, attributes, line in channel
    ]
    nets = [device for device, tag in zip(devices, tags, strict=True) if tag == "n"]
    gpus = tuple(numbers[device] for device, tag in zip(devices, tags, strict=True) if tag == "g")
    if len(set(gpus)) != len(gpus):
        raise NetsimError(f"{head}: line {channel[0][2]}: a channel has a GPU twice; each stands there once")
    return ChannelOrder(gpus, *(nets or (None, None)))


def _whole(attributes: Mapping[str, Any], key: str, place: str, *, least: int, most: int) -> int:
    """Read a whole number within bounds, decimal or hexadecimal."""
    text = str(attributes.get(key, "")).strip()
    written = _WHOLE.fullmatch(text)
    value = None if written is None else int(written[1]) if written[1] else int(written[2], 16)
    if value is None or not least <= value <= most:
        raise NetsimError(f"{place} has {key}={text[:40]!r}; a whole number from {least} to {most} is accepted")
    return value


def _speed(attributes: Mapping[str, str], key: str, place: str) -> float:
    text = attributes.get(key, "").strip()
    if not _SPEED.fullmatch(text) or not math.isfinite(float(text)):
        raise NetsimError(f"{place}: <graph> has {key}={text[:40]!r}; a number of zero or more is accepted")
    return float(text)


def _type(attributes: Mapping[str, str], key: str, place: str) -> str:
    text = attributes.get(key, "").strip()
    if text not in TYPES:
        raise NetsimError(f"{place}: <graph> has {key}={text[:40]!r}; accepted are {', '.join(TYPES)}")
    return text
