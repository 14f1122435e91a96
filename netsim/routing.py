"""Which links a pair of ranks uses: deterministic shortest routes over a topology, computed on demand.

Stands between the fabric and the engines; there is no time in it. The graph is compiled once to integer adjacency; a
route is found by a search from both ends that stops where they meet, so that a route inside a server costs the same in
a cluster of any size. Among routes with the fewest links the widest wins (nccl.md 5.1), and among equally wide ones the
policy decides; node names never do. Ranks that are joined without NICs never talk through one, and data that leaves or
enters a host does so by a NIC nearest to its GPU, as with NCCL: which of those, and what lies between, is the search's.

Policies: ``static`` spreads destinations over equal next hops by the destination's rank, tier by tier, the way
destination-based fat-tree routing does, and deals the GPUs of a host out to the NICs by which their data comes in;
``ecmp:SEED`` hashes source, destination and seed; ``ecmp:SEED,flows=F`` gives each pair F hashed routes, which its
messages use in turn, as NCCL's InfiniBand transport does with its queue pairs.
``spray`` (one message over several routes) is refused until an engine can split a message.

What a graph's attributes add (`netsim.reach.Rules`): without GPUDirect, or where a NIC is farther from its GPU than
``gdr_level``, a route from a GPU to another host stops in host memory on that side; links met twice are listed twice.
GPUs of a host that are farther apart than ``p2p`` stage in host memory on the receiver's side, where NCCL's
shared-memory transport puts its buffer. With ``nvb`` two GPUs may talk over NVLink through a third. With ``pxn`` a GPU
sends through a peer on NVLink that sits on the destination's rail, where its own route would cross more than one
network switch, or its own NIC is out of GPUDirect's reach, or there is no route at all. A relay cuts through: what it
holds back is its chunk, which is the schedule's affair.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import (
    GPU,
    HOST_MEMORY,
    NETWORK_SWITCH,
    NIC,
    NVSWITCH,
    check_fabric,
    ranks_of,
    topology_digest,
)
from netsim.node_routes import NodeRoutes, Path
from netsim.reach import Rules, path_type
from netsim.ways import distance

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["POLICIES", "Path", "Router"]

POLICIES = "static, ecmp:SEED and ecmp:SEED,flows=F"
"""The routing policies, for messages."""

_MANY = 8  # routes to one rank from which on a search of the whole graph is cheaper than as many from both ends
_MOST_FLOWS = 4096
_ECMP = re.compile(r"ecmp:([0-9]{1,18})(?:,flows=([0-9]{1,4}))?", re.ASCII)


class Router(NodeRoutes):
    """Routes between the ranks of one topology.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.
    policy : str
        ``static``, ``ecmp:SEED`` or ``ecmp:SEED,flows=F`` (whole numbers).

    Raises
    ------
    FabricError
        If the graph is not a topology or the policy is unknown.

    Examples
    --------
    >>> import networkx as nx
    >>> from netsim.fabric import Link
    >>> graph = nx.DiGraph()
    >>> graph.add_nodes_from(("a", "b"), kind="gpu")
    >>> graph.add_edge("a", "b", link=Link(1e-6, 1e9))
    >>> graph.add_edge("b", "a", link=Link(1e-6, 1e9))
    >>> Router(graph).path(0, 1)
    (0,)
    """

    flows: int
    """Routes that the messages between two ranks use in turn."""

    def __init__(self, graph: "nx.DiGraph[str]", policy: str = "static") -> None:
        check_fabric(graph)
        seed, self.flows = _seed_and_flows(policy)
        super().__init__(graph, seed)
        self.policy = policy
        self.seed = seed
        self.rules = Rules.of(graph.graph)
        self.ranks = ranks_of(graph)
        self._rank_node = [self.index[node] for node in self.ranks]
        self._memories: dict[object, list[int]] = {}
        for node, kind in enumerate(self._kind):
            if kind == HOST_MEMORY:
                self._memories.setdefault(self.hosts[node], []).append(node)
        self._between: dict[tuple[int, ...], Path] = {}
        self._near: dict[tuple[int, bool], int] = {}
        self._peers: dict[int, dict[int, Path]] = {}
        self._rank_of = {node: rank for rank, node in enumerate(self._rank_node)}
        self._sharers: dict[tuple[object, tuple[int, ...]], list[int]] = {}

    @cached_property
    def digest(self) -> str:
        """The topology's digest (`netsim.fabric.topology_digest`), computed once.

        Raises
        ------
        FabricError
            If the graph is no longer what these routes were compiled from.
        """
        if not self.still_describes(self.graph):
            raise FabricError("the topology graph was changed after its Router was made; make a new Router of it")
        return topology_digest(self.graph)

    def still_describes(self, graph: "nx.DiGraph[str]") -> bool:
        """Say whether all that was taken from a graph still stands there, so that these routes hold for it."""
        return super().still_describes(graph) and ranks_of(graph) == self.ranks and Rules.of(graph.graph) == self.rules

    def path(self, src: int, dst: int, flow: int = 0) -> Path:
        """Return the links from one rank to another, in order, as indices into `edges`.

        `flow` is below `flows`, or below `ways` where routes are static: it turns the choice among the network cards that
        a rank has for itself, which begins with the destination's rank.

        Raises
        ------
        FabricError
            If there is no route; the message names both GPUs.
        """
        key = (src, dst, flow)
        found = self._between.get(key)
        if found is None:
            a, b = self._rank_node[src], self._rank_node[dst]
            spread = dst + (flow if self.seed is None else flow * len(self.ranks))
            same = self.hosts[a] == self.hosts[b]
            found = self._between[key] = self._within(a, b, spread) if same else self._across(a, b, spread)
        return found

    @cached_property
    def ways(self) -> int:
        """How many static routes two ranks may have: the most network cards that a rank has for itself."""
        shares = [1]
        for gpu in self._rank_node if NIC in self._kind else ():
            doors = self._doors_of(gpu, leaving=False)
            shares.append(-(-len(doors) // len(self._sharers_of(gpu, doors))))
        return max(shares)

    def paths(self, pairs: Sequence[tuple[int, ...]]) -> list[Path]:
        """Return the links of many routes at once, each given as `path` takes it.

        Where many lead to one rank, the graph is searched once for all.
        """
        towards: dict[tuple[int, str], list[tuple[int, ...]]] = {}
        for pair in pairs:
            if (*pair, 0)[:3] not in self._between:
                a, b = (self._rank_node[rank] for rank in pair[:2])
                towards.setdefault((b, self._manner(a, b)), []).append(pair)
        for (node, manner), several in towards.items():
            if len(several) >= _MANY:
                self._aim(node, manner)
                for pair in several:
                    self.path(*pair)
        return [self.path(*pair) for pair in pairs]

    def switch(self, ranks: Sequence[int], need: str) -> int:
        """Return the node of the switch that can join a group of ranks.

        Ranks of several hosts may also be joined by a network switch behind their NICs: that with the fewest links to all.

        Parameters
        ----------
        ranks : sequence of int
            The members.
        need : {"multicast", "reduce"}
            What the switch must be able to do.

        Raises
        ------
        FabricError
            If no switch with that ability has a direct link to and from every member, nor a network switch a route.
        """
        members = [self._rank_node[rank] for rank in ranks]
        common = None
        for node in members:
            around = {other for other, _ in self._out[node]} & {other for other, _ in self._in[node]}
            common = around if common is None else common & around
        for node in sorted(common or ()):
            if self.abilities[need][node]:
                return node
        if len({self.hosts[node] for node in members}) > 1:
            found = [
                (links, node)
                for node, kind in enumerate(self._kind)
                if kind == NETWORK_SWITCH and self.abilities[need][node] and (links := self._links_to_all(ranks, node))
            ]
            if found:
                return min(found)[1]
        raise FabricError(
            f"no switch with {need}=True is linked to all of the {len(members)} GPUs from {self.nodes[members[0]]!r} "
            f"to {self.nodes[members[-1]]!r}; in-network operations need one (NVSwitch of Hopper or later)"
        )

    def _links_to_all(self, ranks: Sequence[int], switch: int) -> int:
        """Count the links of the routes from some ranks to a switch and back, 0 where one has none."""
        count = 0
        for rank in ranks:
            node = self._rank_node[rank]
            up, down = self._find(node, switch, rank), self._find(switch, node, rank)
            if up is None or down is None:
                return 0
            count += len(up) + len(down)
        return count

    def path_up(self, rank: int, switch: int) -> Path:
        """Return the links from a rank to a switch that `switch` found."""
        return self._route(self._rank_node[rank], switch, rank)

    def path_down(self, switch: int, rank: int) -> Path:
        """Return the links from a switch that `switch` found to a rank."""
        return self._route(switch, self._rank_node[rank], rank)

    def _within(self, a: int, b: int, spread: int) -> Path:
        """Return the route between two GPUs of a host."""
        route = self._route(a, b, spread)
        if self.rules.nvb or self.rules.p2p is not None:
            far = self._type(route, gpu_first=True)
            if self.rules.nvb and far not in ("NVL", "NVB"):
                bridges = self._bridges(a, b)
                if bridges:
                    return bridges[spread % len(bridges)]
            if a != b and not self.rules.peers_reach(far):
                memory = self._nearest_memory(b, leaving=False)
                return self._route(a, memory, spread) + self._route(memory, b, spread)
        return route

    def _across(self, a: int, b: int, spread: int) -> Path:
        """Return the route between GPUs of two hosts."""
        direct = self._find(a, b, spread)
        relay = self._relay(a, b, direct, spread) if self.rules.pxn else None
        if relay is not None:
            over, peer = relay
            return over + self._staged(peer, b, self._route(peer, b, spread), spread)
        if direct is None:
            raise self._no_route(a, b)
        return self._staged(a, b, direct, spread)

    def _entry(self, b: int, source: int, hops: list[tuple[int, int]], spread: int) -> tuple[int, int] | None:
        """Deal a host's GPUs out to the NICs that they share; a GPU with several for itself takes them by source and flow.

        The digits of the destination would send GPUs 1 and 3 of eight with four NICs through the same one.
        """
        doors = self._doors_of(b, leaving=False)
        if b not in self._rank_of or not {node for node, _ in hops} <= set(doors):
            return None
        sharers = self._sharers_of(b, doors)
        own = -(-len(hops) // len(sharers))
        turn = self._rank_of.get(source, source) + spread - self._rank_of[b]
        return hops[(sharers.index(b) + len(sharers) * (turn % own)) % len(hops)]

    def _sharers_of(self, gpu: int, doors: tuple[int, ...]) -> list[int]:
        """Return the ranks of a GPU's host that have the same nearest NICs."""
        key = (self.hosts[gpu], doors)
        if key not in self._sharers:
            self._sharers[key] = [
                node
                for node in self._rank_node
                if self.hosts[node] == key[0] and self._doors_of(node, leaving=False) == doors
            ]
        return self._sharers[key]

    def _staged(self, a: int, b: int, direct: Path, spread: int) -> Path:
        """Return a route between hosts with a stop in host memory wherever a NIC does not reach the GPU's."""
        nics = [place for place, edge in enumerate(direct) if self._kind[self._ends[edge][0]] == NIC]
        if not nics:
            return direct
        out, back = direct[: nics[0]], direct[nics[-1] :]
        if not self.rules.nic_reaches(self._type(out, gpu_first=True)):
            here = self._nearest_memory(a, leaving=True)
            out = self._route(a, here, spread) + self._route(here, self._ends[direct[nics[0]]][0], spread)
        else:
            out = self._with_shared(out)
        if not self.rules.nic_reaches(self._type(back, gpu_first=False)):
            there = self._nearest_memory(b, leaving=False)
            back = self._route(self._ends[direct[nics[-1]]][0], there, spread) + self._route(there, b, spread)
        else:
            back = self._with_shared(back)
        return out + direct[nics[0] : nics[-1]] + back

    def _type(self, route: Path, *, gpu_first: bool) -> str:
        """Return NCCL's type of a route that begins, or ends, at a GPU."""
        kinds = [self._kind[self._ends[edge][0]] for edge in route[1:]]
        own = route[0 if gpu_first else -1] if route else None
        chip = own is not None and self.links[own].kind.startswith("c2c")
        return path_type(kinds, chip)

    def _bridges(self, a: int, b: int) -> list[Path]:
        """Return the widest ways over one GPU that has an NVLink to both, in order of creation."""
        onward = {node: edge for node, edge in self._in[b] if self._kind[node] == GPU}
        ways = [(edge, onward[node]) for node, edge in self._out[a] if node in onward]
        widths = [min(self._width[edge] for edge in way) for way in ways]
        return [way for way, width in zip(ways, widths, strict=True) if width == max(widths)]

    def _relay(self, a: int, b: int, direct: Path | None, spread: int) -> tuple[Path, int] | None:
        """Return a peer on the destination's rail and the way there, None where it gains nothing or there is none."""
        crossed = len(self.nodes)
        if direct is not None:
            reaches = self._departs_directly(direct)
            crossed = self._crossed(direct) + (not reaches)
            if crossed <= 1:
                return None
        rails = self._rails_of(b, leaving=False)
        best: list[int] = []
        least = (crossed, 0)
        peers = self._peers_of(a)
        for peer in peers:
            onward = self._find(peer, b, spread) if rails & self._rails_of(peer, leaving=True) else None
            if onward is None or not self._departs_directly(onward) or self._crossed(onward) >= crossed:
                continue
            cost = (self._crossed(onward), len(onward))
            if not best or cost < least:
                best, least = [], cost
            if cost == least:
                best.append(peer)
        if not best:
            return None
        # Sources, not destinations, are spread over equal peers: what goes to one rail has few destinations. Counting
        # only those who need a relay gives each peer as many of them.
        turn = sum(peer not in best and self._rank_of[peer] < self._rank_of[a] for peer in peers)
        chosen = best[turn % len(best)]
        return peers[chosen], chosen

    def _crossed(self, route: Path) -> int:
        """Count the network switches that a route passes."""
        return sum(self._kind[self._ends[edge][1]] == NETWORK_SWITCH for edge in route)

    def _departs_directly(self, route: Path) -> bool:
        """Say whether the first NIC of a route to another host reads the GPU's memory itself."""
        first = next((place for place, edge in enumerate(route) if self._kind[self._ends[edge][0]] == NIC), 0)
        return not first or self.rules.nic_reaches(self._type(route[:first], gpu_first=True))

    def _peers_of(self, a: int) -> dict[int, Path]:
        """Return the other ranks of a GPU's host that it reaches over NVLink, and how, in order of rank."""
        if a not in self._peers:
            found: dict[int, Path] = {}
            for node, edge in self._out[a]:
                if self._kind[node] == GPU:
                    found[node] = (edge,)
                elif self._kind[node] == NVSWITCH:
                    for other, onward in self._out[node]:
                        if self._kind[other] == GPU and other != a:
                            found.setdefault(other, (edge, onward))
            self._peers[a] = (
                {node: found[node] for node in self._rank_node if node in found and self.hosts[node] == self.hosts[a]}
                if found
                else {}
            )
        return self._peers[a]

    def _rails_of(self, gpu: int, *, leaving: bool) -> set[int]:
        """Return the network switches behind a GPU's nearest NICs."""
        adjacency = self._out if leaving else self._in
        doors = self._doors_of(gpu, leaving=leaving)
        return {end for nic in doors for end, _ in adjacency[nic] if self._kind[end] == NETWORK_SWITCH}

    def _nearest_memory(self, node: int, *, leaving: bool) -> int:
        """Return the host memory with the fewest links to a GPU of the same host (the first created among equals)."""
        key = (node, leaving)
        if key not in self._near:
            best: tuple[int, int] | None = None
            for memory in self._memories.get(self.hosts[node], ()):
                ends = (node, memory) if leaving else (memory, node)
                length = distance(self._out, self._in, self._inside, *ends)
                if length is not None and (best is None or length < best[0]):
                    best = (length, memory)
            if best is None:
                raise FabricError(
                    f"GPU {self.nodes[node]!r} has no host memory to stage in: what cannot be copied directly needs a "
                    "node of kind 'host_memory' on the GPU's side"
                )
            self._near[key] = best[1]
        return self._near[key]

    def _no_route(self, a: int, b: int) -> FabricError:
        """Say that two nodes have no route, and what stands between them where they are joined by NICs."""
        words = f"there is no route from {self.nodes[a]!r} to {self.nodes[b]!r}"
        doors = [self._doors_of(a, leaving=True), self._doors_of(b, leaving=False)]
        if self._manner(a, b) == "doors" and not all(doors):
            lone = self.nodes[b if doors[0] else a]
            return FabricError(f"{words}: {lone!r} has no way to a NIC of its server; give it one")
        if self._manner(a, b) == "doors":
            here, there = (", ".join(repr(self.nodes[nic]) for nic in nics[:4]) for nics in doors)
            words += f": no network joins the nearest NICs ({here} and {there})"
            if self.rules.pxn and not self._peers_of(a):
                words += f", and {self.nodes[a]!r} reaches no other GPU over NVLink that could pass data on"
            elif self.rules.pxn:
                words += f", and no GPU that {self.nodes[a]!r} reaches over NVLink sits on the right rail"
            return FabricError(f"{words}; join them by a spine, or let GPUs relay")
        return super()._no_route(a, b)


def _seed_and_flows(policy: object) -> tuple[int | None, int]:
    """Read a policy: the seed of hashed routes (None for static ones) and how many routes a pair has."""
    if not isinstance(policy, str):
        raise FabricError(f"unknown routing {policy!r}; accepted are {POLICIES}")
    if policy == "static":
        return None, 1
    match = _ECMP.fullmatch(policy)
    if match and 1 <= int(match[2] or 1) <= _MOST_FLOWS:
        return int(match[1]), int(match[2] or 1)
    if policy.startswith("spray"):
        raise FabricError(
            f"routing {policy!r} is not available yet: a message cannot be split over routes; accepted are {POLICIES}"
        )
    raise FabricError(
        f"unknown routing {policy!r}; accepted are {POLICIES}, with a whole number for SEED and 1 to {_MOST_FLOWS} for F"
    )
