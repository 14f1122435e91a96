"""What a topology graph must carry: node kinds, the frozen `Link` on every edge, and the check that all of it is there.

A topology is a `networkx.DiGraph`; each directed edge is one link and holds a `Link` under the key ``link``. Both
directions of a cable are two edges (full duplex). A limit that several flows share is one edge on all of their paths. One
that both directions share is a link from a root complex or a PCIe switch to itself: all data that passes there between a
GPU and a NIC without a stop in host memory, whichever way, takes it too. The graph is a description: engines keep their
running state elsewhere. Nothing here knows about time on a link or about routes.

Node attributes: ``kind`` (one of `KINDS`), ``host`` (name of the server a node belongs to, or absent),
``multicast`` and ``reduce`` (the switch can copy a message to several ports, or add up several messages),
``transit`` (whether a route may pass through; what `TRANSIT` says of its kind where absent),
``store_and_forward`` with ``piece_bytes`` (a message is received whole, in pieces of that size, before it goes on).
Graph attributes: ``name``, ``ranks`` (GPU nodes in rank order), ``gpudirect`` (False: traffic between a GPU and a NIC
is staged in host memory), ``gdr_level``, ``p2p``, ``pxn`` and ``nvb`` (staging by distance and relays through GPUs; see
`netsim.reach.Rules`), ``remarks`` (doubtful values met while loading).
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

from netsim.errors import DisconnectedError, FabricError

if TYPE_CHECKING:
    import networkx as nx

GPU = "gpu"
NVSWITCH = "nvswitch"
PCIE_SWITCH = "pcie_switch"
ROOT_COMPLEX = "root_complex"
HOST_MEMORY = "host_memory"
NIC = "nic"
NETWORK_SWITCH = "network_switch"

KINDS = (GPU, NVSWITCH, PCIE_SWITCH, ROOT_COMPLEX, HOST_MEMORY, NIC, NETWORK_SWITCH)

# Whether a route may pass through a node of this kind when the node does not say so itself: GPUs do not forward
# (nccl.md 5.1) and host memory is an end point; staging names it as a stop of its own.
TRANSIT = {kind: kind not in (GPU, HOST_MEMORY) for kind in KINDS}


SHARING = (ROOT_COMPLEX, PCIE_SWITCH)
"""Kinds of nodes that may have a link to themselves: a limit that both directions of what passes there share."""


@dataclass(frozen=True)
class LinkProtocols:
    """What messages of NCCL's protocols meet on a link in place of its plain figures.

    Between nodes that is more than the wire: proxies, flags and fences, buffers in host memory.
    """

    latency_s: tuple[tuple[str, float], ...] = ()
    """(protocol, seconds) for protocols whose hop takes another time, flags and fences included."""
    share: tuple[tuple[str, float], ...] = ()
    """(protocol, part of the bandwidth) for protocols that do not reach all of it; above 0, at most 1."""
    post_s: float = 0.0
    """Seconds that a message occupies the link at least: one is posted after the other, while bytes of earlier ones go."""
    eager_bytes: int = 0
    """Bytes on the wire that are sent at once; a larger message is announced first. 0 where all are sent at once."""
    rendezvous_s: float = 0.0
    """Seconds that an announcement takes."""
    spread_s: float = 0.0
    """Seconds by which a hop is longer with each doubling of the channels that send at once: the slowest message counts."""
    proxy: tuple[tuple[str, float], ...] = ()
    """(protocol, bytes on the wire a second) that a channel's proxy passes on, where it must look at every line."""

    def __post_init__(self) -> None:
        times = [*self.latency_s, ("posts", self.post_s), ("announcements", self.rendezvous_s), ("spread", self.spread_s)]
        for name, seconds in times:
            if not 0 <= seconds < math.inf:
                raise FabricError(f"the time of {name} on a link is {seconds!r} s; it must be zero or more and finite")
        for name, share in self.share:
            if not 0 < share <= 1:
                raise FabricError(f"the share of {name} on a link is {share!r}; it must be above 0 and at most 1")
        for name, rate in self.proxy:
            if not 0 < rate < math.inf:
                raise FabricError(f"the proxy's rate of {name} on a link is {rate!r} B/s; it must be above 0 and finite")
        if self.eager_bytes < 0:
            raise FabricError(f"a link sends {self.eager_bytes!r} bytes at once; it must be zero or more")

    def nearer(self, share: float) -> "LinkProtocols":
        """Return the figures with this share of the latencies."""
        return replace(self, latency_s=tuple((name, seconds * share) for name, seconds in self.latency_s))


@dataclass(frozen=True)
class Link:
    """One direction of a connection: what a message pays on it.

    Full duplex, no loss, unbounded buffers behind it; see `netsim.engine` for how bytes and time meet.
    """

    latency_s: float
    """Seconds from the first byte entering to the first byte leaving (alpha), zero or more."""
    bandwidth_bytes_per_s: float
    """Bytes per second of all parallel links together (B), above zero."""
    gap_s: float = 0.0
    """Seconds paid once per message before its bytes; unlike latency it occupies the link."""
    floor_s: float = 0.0
    """Least seconds that a message occupies the link."""
    count: int = 1
    """How many parallel physical links this edge stands for."""
    kind: str = ""
    """Name of the link kind, for example ``nvlink4`` or ``pcie5``: the profile it came from."""
    line_rate_bytes_per_s: float | None = None
    """Nominal rate of the same links before protocol overhead, if known."""
    protocols: LinkProtocols | None = None
    """What NCCL's protocols meet where it is not the same."""

    def under(self, protocol: str) -> "Link":
        """Return the link as messages of a protocol meet it; those of the textbook (``ideal``) meet it as it is.

        Examples
        --------
        >>> link = Link(1e-6, 1e9, protocols=LinkProtocols(latency_s=(("ll", 4e-7),), share=(("ll128", 0.5),)))
        >>> link.under("ll").latency_s, link.under("simple").latency_s, link.under("ll128").bandwidth_bytes_per_s
        (4e-07, 1e-06, 500000000.0)
        """
        figures = self.protocols
        if figures is None or protocol == "ideal":
            return self
        return replace(
            self,
            latency_s=dict(figures.latency_s).get(protocol, self.latency_s),
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * dict(figures.share).get(protocol, 1.0),
            floor_s=max(self.floor_s, figures.post_s),
            protocols=None,
        )

    def nearer(self, share: float) -> "Link":
        """Return the link with this share of its latencies."""
        figures = None if self.protocols is None else self.protocols.nearer(share)
        return replace(self, latency_s=self.latency_s * share, protocols=figures)

    def __post_init__(self) -> None:
        for name, least in (("latency_s", 0.0), ("gap_s", 0.0), ("floor_s", 0.0)):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and least <= value < math.inf):
                raise FabricError(
                    f"link {self.kind or 'without a kind'}: {name} is {value!r}; it must be zero or more seconds"
                )
        rate = self.bandwidth_bytes_per_s
        if not (isinstance(rate, int | float) and 0 < rate < math.inf):
            raise FabricError(
                f"link {self.kind or 'without a kind'}: bandwidth_bytes_per_s is {rate!r}; it must be above zero and finite"
            )
        if self.count < 1:
            raise FabricError(f"link {self.kind or 'without a kind'}: count is {self.count!r}; it must be 1 or more")


def ranks_of(graph: "nx.DiGraph[str]") -> tuple[str, ...]:
    """Return the GPU nodes of a topology in rank order: its ``ranks`` attribute, or all GPUs in order of creation."""
    ranks = graph.graph.get("ranks")
    if ranks is None:
        ranks = tuple(node for node, attributes in graph.nodes.items() if attributes.get("kind") == GPU)
    return tuple(ranks)


def links_of(graph: "nx.DiGraph[str]") -> Iterable[tuple[str, str, Any]]:
    """Return (from, to, link) of every directed edge, in order of creation."""
    return cast("Iterable[tuple[str, str, Any]]", graph.edges(data="link"))


def hosts_of(graph: "nx.DiGraph[str]") -> tuple[tuple[int, ...], ...]:
    """Group the ranks by the server they sit in, servers in order of their first rank; one group if none is named."""
    groups: dict[object, list[int]] = {}
    for rank, node in enumerate(ranks_of(graph)):
        groups.setdefault(graph.nodes[node].get("host"), []).append(rank)
    return tuple(tuple(group) for group in groups.values())


def link_name(edge: tuple[str, str]) -> str:
    """Name a directed link the way that tables print it: ``from->to``."""
    return f"{edge[0]}->{edge[1]}"


def may_transit(attributes: dict[str, object]) -> bool:
    """Say whether a route may pass through a node with these attributes."""
    return bool(attributes.get("transit", TRANSIT[str(attributes["kind"])]))


def check_is_graph(topology: object) -> None:
    """Raise `FabricError` for what is no graph at all, such as None or the name of a preset."""
    if not hasattr(topology, "edges") or not hasattr(topology, "is_directed"):
        raise FabricError(f"topology is {topology!r}; pass a graph, for example topologies.build('hgx-h100')")


def check_fabric(graph: "nx.DiGraph[str]") -> None:
    """Check that a graph is a complete topology.

    Raises
    ------
    FabricError
        Names the node or link that lacks something, and what would be accepted.
    """
    check_is_graph(graph)
    if not graph.is_directed():
        raise FabricError("the topology graph is undirected; it must be a networkx.DiGraph with one edge a direction")
    for node, attributes in graph.nodes.items():
        kind = attributes.get("kind")
        if kind not in KINDS:
            raise FabricError(f"node {node!r} has the kind {kind!r}; accepted are {', '.join(KINDS)}")
    for source, target, link in links_of(graph):
        if not isinstance(link, Link):
            raise FabricError(f"edge {source!r} -> {target!r} carries no Link under the key 'link' (found {link!r})")
        if source == target and graph.nodes[source]["kind"] not in SHARING:
            raise FabricError(
                f"node {source!r} has a link to itself; a link joins two nodes, or is what a root complex or a PCIe switch "
                "passes on between GPUs and NICs, both directions together"
            )
    ranks = ranks_of(graph)
    if not ranks:
        raise FabricError("the topology has no GPU, so it has no ranks; add nodes of kind 'gpu'")
    if len(set(ranks)) != len(ranks):
        raise FabricError("a GPU appears twice in the topology's 'ranks'; each rank needs a GPU of its own")
    for node in ranks:
        if node not in graph or graph.nodes[node]["kind"] != GPU:
            raise FabricError(f"rank node {node!r} is not a GPU of the topology; ranks are nodes of kind 'gpu'")
    _check_connected(graph, ranks)


def _check_connected(graph: "nx.DiGraph[str]", ranks: tuple[str, ...]) -> None:
    """Every GPU must be joined to the first in both directions; which of those ways a route may take is routing's."""
    for edges, words in ((graph.succ, "reach"), (graph.pred, "be reached from")):
        seen = {ranks[0]}
        todo = [ranks[0]]
        while todo:
            for other in edges[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        for node in ranks:
            if node not in seen:
                raise DisconnectedError(f"the topology is disconnected: GPU {ranks[0]!r} cannot {words} GPU {node!r}")


def topology_digest(graph: "nx.DiGraph[str]") -> str:
    """Return twelve hex digits that change whenever a node, a link value or a rank does."""
    digest = hashlib.sha256()
    for part in _canonical(graph):
        digest.update(part.encode())
        digest.update(b"\n")
    return digest.hexdigest()[:12]


def _canonical(graph: "nx.DiGraph[str]") -> Iterable[str]:
    yield repr((ranks_of(graph), graph.graph.get("gpudirect", True)))
    yield from (repr((key, graph.graph[key])) for key in ("gdr_level", "nvb", "p2p", "pxn") if graph.graph.get(key))
    for node, attributes in sorted(graph.nodes.items(), key=lambda item: str(item[0])):
        yield repr((node, sorted((key, repr(value)) for key, value in attributes.items())))
    names = [field.name for field in fields(Link)]
    written: dict[Link, str] = {}  # a large cluster has a handful of distinct links
    for source, target, link in sorted(links_of(graph), key=lambda item: (str(item[0]), str(item[1]))):
        if link not in written:
            values = [getattr(link, name) for name in names]
            written[link] = repr(values if values[-1] is not None else values[:-1])  # few links know of protocols
        yield f"({source!r}, {target!r}, {written[link]})"
