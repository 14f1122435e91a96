"""From a topology to a communicator: every node looked at and searched, then the least that all nodes have.

Ties `netsim.nccl.system`, `netsim.nccl.paths` and `netsim.nccl.search` together the way a communicator's start does.
What the topology says of staging (``p2p``, ``gdr_level``, ``gpudirect``, ``pxn``, ``nvb``) is taken as NCCL would find it
on such a machine; a variable of the environment has precedence. A topology that says nothing of ``p2p`` lets all GPUs of
a host reach each other, as `netsim.routing` does. Deliberately left out: nodes that differ in their orders; all are given
those of the first one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from netsim.errors import NetsimError
from netsim.fabric import NETWORK_SWITCH, Link, hosts_of, ranks_of
from netsim.nccl.communicator import Communicator, Ranks
from netsim.nccl.dump import read_dump
from netsim.nccl.graphs import COLLNET_CHAIN, COLLNET_DIRECT, GRAPH_IDS, NVLS, RING, TREE, ChannelGraph
from netsim.nccl.paths import LOC, NVB, NVL, PXB, SYS, TYPES, Paths, Reach
from netsim.nccl.search import GraphSearch, empty_graph, most_channels
from netsim.nccl.speeds import AMD, nvlink_GBps
from netsim.nccl.system import NodeSystem, node_systems
from netsim.nccl.variables import flag, level, number
from netsim.nccl.version import DEFAULT, Version
from netsim.routing import Router
from netsim.schedule.nccl.costs import Network
from netsim.schedule.nccl.protocols import PROTOCOLS

if TYPE_CHECKING:
    import networkx as nx

_NOWHERE = -1
_TWO_GPUS_FROM = Version(2, 28, 7)


def communicator(
    graph: "nx.DiGraph[str]",
    version: Version = DEFAULT,
    ranks: Sequence[int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Communicator:
    """Build what NCCL knows of a group of ranks when it decides what to run.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.
    version : Version
        The release to imitate.
    ranks : sequence of int, optional
        The topology's ranks that take part, in the communicator's order; all by default.
    environment : mapping of str to str, optional
        NCCL's variables; here NCCL_CROSS_NIC, NCCL_NVLS_ENABLE, NCCL_COLLNET_ENABLE, NCCL_P2P_LEVEL, NCCL_P2P_DISABLE,
        NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_C2C, NCCL_PXN_DISABLE, NCCL_PXN_C2C, NCCL_NVB_DISABLE, NCCL_COLLNET_NODE_THRESHOLD
        and NCCL_GRAPH_FILE matter.

    Returns
    -------
    Communicator

    Raises
    ------
    NetsimError
        If a variable has a value that NCCL does not know, `ranks` is no list of different ranks, or nodes
        have different numbers of them.
    """
    given = dict(environment or {})
    if ranks is not None:
        known = len(ranks_of(graph))
        strange = [rank for rank in ranks if not 0 <= rank < known]
        if strange or not ranks or len(set(ranks)) != len(ranks):
            words = f"rank {strange[0]}" if strange else "a rank twice" if ranks else "no rank"
            raise NetsimError(f"ranks names {words}; accepted are different ranks from 0 to {known - 1}")
    layout = node_systems(graph, version=version, ranks=ranks)
    switches = [data for _, data in graph.nodes(data=True) if data["kind"] == NETWORK_SWITCH]
    collnet = flag(given, "NCCL_COLLNET_ENABLE", False) and any(data.get("reduce", False) for data in switches)
    collnet = collnet and len(layout.nodes) >= number(given, "NCCL_COLLNET_NODE_THRESHOLD", 2, 0, 2**31 - 1)
    nvls_wanted = number(given, "NCCL_NVLS_ENABLE", 2, 0, 2) != 0
    cross_nic = number(given, "NCCL_CROSS_NIC", 2, 0, 2)
    sizes = sorted({len(node) for node in layout.nodes})
    if len(sizes) > 1:
        raise NetsimError(
            f"nodes have from {sizes[0]} to {sizes[-1]} ranks; NCCL's plan is made for equally many on every node"
        )
    distinct = list({id(system): system for system in layout.systems}.values())
    few = sizes[0] <= 2 and version < _TWO_GPUS_FROM
    reaches = [_reach(graph, system, version, given) for system in distinct]
    nodes = [
        _searched(system, reach, version, cross_nic, nvls_wanted and not few, collnet)
        for system, reach in zip(distinct, reaches, strict=True)
    ]
    if not all(node.multicast for node in nodes):
        nodes = [replace(node, graphs={**node.graphs, NVLS: empty_graph(NVLS)}) for node in nodes]
    told = _from_file(given)
    for system in distinct:
        _check_told(told, system, given.get("NCCL_GRAPH_FILE", ""), several=len(layout.nodes) > 1)
    nodes = [replace(node, graphs={**node.graphs, **told}) for node in nodes]
    found = {id(system): node for system, node in zip(distinct, nodes, strict=True)}
    cards = _by_rank(layout.nodes, [found[id(system)].cards for system in layout.systems])
    relays = _by_rank(layout.nodes, [found[id(system)].relays for system in layout.systems], ranks=True)
    vendors = {system.cpu[1] for system in distinct}
    ports = [system.net_GBps(net) for system in distinct for net in system.nets]
    capabilities = [system.devices[gpu].sm for system in distinct for gpu in system.gpus]
    return Communicator(
        nodes=layout.nodes,
        graphs={name: _agreed([node.graphs[name] for node in nodes]) for name in GRAPH_IDS},
        compute_capability=min(capabilities),
        compute_capability_max=max(capabilities),
        cpu_arch=distinct[0].cpu[0],
        cpu_vendor=vendors.pop() if len(vendors) == 1 else "mixed",
        nvswitch=all(node.nvswitch for node in nodes),
        multicast=all(node.multicast for node in nodes),
        collnet=collnet,
        nics_per_node=min(len(system.nets) for system in distinct),
        net_GBps=min(ports, default=0.0),
        gdr=all(node.gdr for node in nodes),
        p2p=all(node.p2p for node in nodes),
        peer_links=min(node.peer_links for node in nodes),
        pxn=all(reach.pxn for reach in reaches),
        rails=tuple(own[0] for own in cards),
        cards=cards,
        relays=relays,
        version=version,
        environment=given,
    )


def _from_file(environment: Mapping[str, str]) -> dict[str, ChannelGraph]:
    """Return the graphs of a file that is to be taken in place of a search; what it lacks is searched."""
    path = environment.get("NCCL_GRAPH_FILE", "").strip()
    return {name: graph for name, graph in read_dump(path).items() if graph.channels} if path else {}


def _check_told(told: Mapping[str, ChannelGraph], system: NodeSystem, path: str, *, several: bool) -> None:
    """Refuse graphs that name GPUs or network ports which a node does not have, or leave GPUs of rings and trees out."""
    for name, graph in told.items():
        for channel, order in enumerate(graph.orders):
            where = f"NCCL_GRAPH_FILE={path}: channel {channel} of the {name} graph"
            nics = [nic for nic in (order.nic_in, order.nic_out) if nic is not None]
            for what, named, there in (("GPU", order.gpus, len(system.gpus)), ("NIC", nics, len(system.nets))):
                beyond = [one for one in named if not 0 <= one < there]
                if beyond:
                    has = f"accepted are 0 to {there - 1}" if there else "the node has none"
                    raise NetsimError(f"{where} names {what} {beyond[0]}; {has}")
            if name in (RING, TREE) and len(order.gpus) != len(system.gpus):
                raise NetsimError(f"{where} has {len(order.gpus)} GPUs; accepted are all {len(system.gpus)} of a node")
            if several and name in (RING, TREE) and order.nic_in is None:
                raise NetsimError(f"{where} has no net; with several nodes a channel begins and ends with one")


def network_of(router: Router, ranks: Sequence[int], found: Communicator) -> dict[str, Network]:
    """Return by protocol what messages between the first two nodes meet beside their links.

    Parameters
    ----------
    router : Router
        Routes of the topology.
    ranks : sequence of int
        The topology's ranks that take part, in the communicator's order.
    found : Communicator
        Of these ranks; with one node there is no network and the result is empty.
    """
    if len(found.nodes) < 2:
        return {}
    first, second = ranks[found.nodes[0][0]], ranks[found.nodes[1][0]]
    there, back = ([router.links[link] for link in router.path(*ends)] for ends in ((first, second), (second, first)))
    # A message is announced once, by the network card that sends it at once up to the fewest bytes.
    announced = [link.protocols for link in there if link.protocols is not None and link.protocols.eager_bytes]
    least = min(announced, key=lambda figures: figures.eager_bytes, default=None)
    known = [link.protocols for link in there if link.protocols is not None]
    return {
        protocol: Network(
            # A word that a proxy writes over there: nothing of what data of a protocol waits for.
            credit_s=sum(link.latency_s for link in back),
            eager_bytes=0 if least is None else least.eager_bytes,
            rendezvous_s=0.0 if least is None else least.rendezvous_s,
            spread_s=max((figures.spread_s for figures in known), default=0.0),
            proxy_rate=min((dict(figures.proxy).get(protocol, math.inf) for figures in known), default=math.inf),
        )
        for protocol in PROTOCOLS
    }


def as_told(graph: "nx.DiGraph[str]", environment: Mapping[str, str]) -> "nx.DiGraph[str]":
    """Return a topology whose routes stage and relay as NCCL's variables say; the graph itself where they say nothing.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.
    environment : mapping of str to str
        Of NCCL's variables NCCL_P2P_LEVEL, NCCL_P2P_DISABLE, NCCL_NET_GDR_LEVEL, NCCL_PXN_DISABLE and NCCL_NVB_DISABLE
        matter.

    Raises
    ------
    NetsimError
        If a variable has a value that NCCL does not know.
    """
    rules: dict[str, object] = {}
    if graph.graph.get("p2p") == TYPES[PXB] and _few_on_amd(graph):
        rules["p2p"] = TYPES[SYS]
    if flag(environment, "NCCL_P2P_DISABLE", False):
        rules["p2p"] = TYPES[LOC]
    for name, rule in (("NCCL_P2P_LEVEL", "p2p"), ("NCCL_NET_GDR_LEVEL", "gdr_level")):
        if environment.get(name, "").strip():
            rules[rule] = TYPES[level(environment, name, SYS)]
    for name, rule in (("NCCL_PXN_DISABLE", "pxn"), ("NCCL_NVB_DISABLE", "nvb")):
        if flag(environment, name, False):
            rules[rule] = False
    if not rules:
        return graph
    told = graph.copy()
    told.graph.update(rules)
    return told


def _few_on_amd(graph: "nx.DiGraph[str]") -> bool:
    """Say whether hosts are AMD's with at most two GPUs each, between which NCCL then takes any path."""
    vendors = {data.get("cpu_vendor") for _, data in graph.nodes(data=True)} - {None}
    return vendors == {AMD} and max(map(len, hosts_of(graph))) <= 2


@dataclass(frozen=True)
class _Node:
    """What was found on one node."""

    graphs: Mapping[str, ChannelGraph]
    nvswitch: bool
    multicast: bool
    gdr: bool
    p2p: bool
    peer_links: int
    cards: tuple[tuple[int, ...], ...]
    relays: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=64)
def _searched(system: NodeSystem, reach: Reach, version: Version, cross_nic: int, nvls: bool, collnet: bool) -> _Node:
    """Search the five graphs of a node; a tree must have as many channels as the ring."""
    paths = Paths(system, reach)
    search = GraphSearch(paths, version=version, cross_nic=cross_nic)
    multicast = _multicasts(paths)
    ring = search.ring()
    graphs = {name: empty_graph(name) for name in GRAPH_IDS}
    graphs[RING] = ring
    graphs[TREE] = search.graph(TREE, ring.channels, ring.channels)
    if collnet:
        graphs[COLLNET_CHAIN] = search.graph(COLLNET_CHAIN, ring.channels, ring.channels, collnet=True)
        graphs[COLLNET_DIRECT] = search.graph(COLLNET_DIRECT, 1, most_channels(version), collnet=True)
    if nvls and multicast:
        graphs[NVLS] = search.graph(NVLS, 1, most_channels(version))
    links = _peer_links(paths, version)
    cards = tuple(tuple(paths.nets_of(gpu)) for gpu in range(len(system.gpus))) if system.nets else ()
    relays = tuple(tuple(paths.relay(gpu, net) for net in range(len(system.nets))) for gpu in range(len(cards)))
    return _Node(graphs, _joined_by_switch(paths), multicast, not _stages(paths, ring), paths.p2p, links, cards, relays)


def _by_rank(
    nodes: tuple[Ranks, ...], figures: list[tuple[tuple[int, ...], ...]], *, ranks: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Return the figures of each rank from those of each node's GPUs, which name GPUs where they are to name `ranks`.

    There are none where a node has none, or a GPU has none because it has no NIC within reach.
    """
    if not all(its and all(its) for its in figures):
        return ()
    of_rank = {
        rank: tuple(node[gpu] if gpu >= 0 else -1 for gpu in own) if ranks else own
        for node, its in zip(nodes, figures, strict=True)
        for rank, own in zip(node, its, strict=True)
    }
    return tuple(of_rank[rank] for rank in sorted(of_rank))


def _peer_links(paths: Paths, version: Version) -> int:
    """Return the NVLinks' worth of bandwidth between any two GPUs of a node, 0 where a pair has none."""
    one = nvlink_GBps(Link(0.0, 1.0, kind="nvlink"), paths.system.capability, version) * 1000
    pairs = [path for a, row in enumerate(paths.gpu_gpu) for b, path in enumerate(row) if a != b]
    return min((int(path.bandwidth / one + 1e-6) if path.type <= NVB else 0 for path in pairs), default=0)


def _agreed(graphs: list[ChannelGraph]) -> ChannelGraph:
    """Return the first node's graph with the least channels and speeds, and the farthest paths, of all nodes."""
    channels = min(graph.channels for graph in graphs)
    first = graphs[0]
    if channels == 0:
        return empty_graph(first.name)
    return replace(
        first,
        orders=first.orders[:channels],
        pattern=max(graph.pattern for graph in graphs),
        intra_GBps=min(graph.intra_GBps for graph in graphs),
        inter_GBps=min(graph.inter_GBps for graph in graphs),
        type_intra=max((graph.type_intra for graph in graphs), key=TYPES.index),
        type_inter=max((graph.type_inter for graph in graphs), key=TYPES.index),
        cross_nic=max(graph.cross_nic for graph in graphs),
        same_channels=all(graph.same_channels for graph in graphs),
    )


def _reach(graph: "nx.DiGraph[str]", system: NodeSystem, version: Version, environment: Mapping[str, str]) -> Reach:
    """Return how far peers and NICs of a node reach: by variable, by what the topology says, by NCCL's default."""
    rules = graph.graph
    p2p = TYPES.index(rules["p2p"]) if rules.get("p2p") is not None else SYS
    if p2p == PXB and system.cpu[1] == AMD and len(system.gpus) <= 2:
        p2p = SYS
    if flag(environment, "NCCL_P2P_DISABLE", False):
        p2p = LOC
    p2p = level(environment, "NCCL_P2P_LEVEL", p2p)
    gdr = TYPES.index(rules["gdr_level"]) if rules.get("gdr_level") is not None else PXB
    gdr = level(environment, "NCCL_NET_GDR_LEVEL", gdr)
    if not rules.get("gpudirect", True):
        gdr = _NOWHERE
    return Reach(
        p2p=p2p,
        gdr=gdr,
        gdr_c2c=version >= Version(2, 27) and flag(environment, "NCCL_NET_GDR_C2C", True),
        pxn=bool(rules.get("pxn", True)) and not flag(environment, "NCCL_PXN_DISABLE", False),
        pxn_c2c=version >= Version(2, 27) and flag(environment, "NCCL_PXN_C2C", True),
        nvb=bool(rules.get("nvb", True)) and not flag(environment, "NCCL_NVB_DISABLE", False),
    )


def _joined_by_switch(paths: Paths) -> bool:
    """Say whether all GPUs of a node reach its NVSwitch over NVLink."""
    return bool(paths.gpu_switch) and all(path.type <= NVL for path in paths.gpu_switch)


def _stages(paths: Paths, ring: ChannelGraph) -> bool:
    """Say whether a ring of a node enters or leaves by a port that does not reach the memory of the GPU there."""
    return any(
        end in paths.staged
        for order in ring.orders
        for end in ((order.gpus[0], order.nic_in), (order.gpus[-1], order.nic_out))
    )


def _multicasts(paths: Paths) -> bool:
    """Say whether the NVSwitch of a node multicasts and reduces for all of its GPUs."""
    switch = paths.system.nvswitch
    able = switch is not None and paths.system.devices[switch].multicast
    return able and _joined_by_switch(paths) and paths.system.capability >= 90
