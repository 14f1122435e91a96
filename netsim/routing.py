"""Which links a pair of ranks uses: deterministic shortest routes over a topology, computed on demand.

Stands between the fabric and the engines; there is no time in it. The graph is compiled once to integer adjacency; a
route is found by a search from both ends that stops where they meet, so that a route inside a server costs the same in
a cluster of any size. Among routes with the fewest links the widest wins (nccl.md 5.1), and among equally wide ones the
policy decides; node names never do.

Policies: ``static`` spreads destinations over equal next hops by the destination's rank, tier by tier, the way
destination-based fat-tree routing does; ``ecmp:SEED`` hashes source, destination and seed. ``spray`` (a message over
several routes) is refused until an engine can split a message.

Without GPUDirect (graph attribute ``gpudirect`` False) a route from a GPU to another host passes through the NICs that
it would use with it, and stops in host memory before the first and after the last; links met twice are listed twice.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import GPU, HOST_MEMORY, NIC, check_fabric, links_of, may_transit, ranks_of, topology_digest

if TYPE_CHECKING:
    import networkx as nx

Path = tuple[int, ...]

_MANY = 8  # routes to one rank from which on a search of the whole graph is cheaper than as many from both ends


class Router:
    """Routes between the ranks of one topology.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.
    policy : str
        ``static`` or ``ecmp:SEED`` (SEED a whole number).

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

    edges: list[tuple[str, str]]
    """Every directed link as (from, to), in the order of its index."""
    nodes: list[str]
    """Every node, in the order of its index."""

    def __init__(self, graph: "nx.DiGraph[str]", policy: str = "static") -> None:
        check_fabric(graph)
        self._seed = _policy_seed(policy)
        self.policy = policy
        self.graph = graph
        self.nodes = list(graph)
        index = {node: position for position, node in enumerate(self.nodes)}
        self.ranks = ranks_of(graph)
        self._rank_node = [index[node] for node in self.ranks]
        self._kind = [graph.nodes[node]["kind"] for node in self.nodes]
        self._host = [graph.nodes[node].get("host") for node in self.nodes]
        self._transit = [may_transit(graph.nodes[node]) for node in self.nodes]
        self._out: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        self._in: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        self.edges = []
        self._width: list[float] = []
        self._source: list[int] = []
        for source, target, link in links_of(graph):
            edge = len(self.edges)
            self.edges.append((source, target))
            self._source.append(index[source])
            self._width.append(link.bandwidth_bytes_per_s)
            self._out[index[source]].append((index[target], edge))
            self._in[index[target]].append((index[source], edge))
        self._gpudirect = bool(graph.graph.get("gpudirect", True))
        self._memories = [node for node, kind in enumerate(self._kind) if kind == HOST_MEMORY]
        self._between: dict[tuple[int, int], Path] = {}
        self._paths: dict[tuple[int, int, int], Path] = {}
        self._near: dict[tuple[int, bool], int] = {}
        self._aimed: tuple[int, _Ways] = (-1, _Ways())

    @cached_property
    def digest(self) -> str:
        """The topology's digest (`netsim.fabric.topology_digest`), computed once."""
        return topology_digest(self.graph)

    def path(self, src: int, dst: int) -> Path:
        """Return the links from one rank to another, in order, as indices into `edges`.

        Raises
        ------
        FabricError
            If there is no route; the message names both GPUs.
        """
        found = self._between.get((src, dst))
        if found is None:
            a, b = self._rank_node[src], self._rank_node[dst]
            staged = not self._gpudirect and self._host[a] != self._host[b]
            found = self._between[src, dst] = self._staged(a, b, dst) if staged else self._route(a, b, dst)
        return found

    def paths(self, pairs: Sequence[tuple[int, int]]) -> list[Path]:
        """Return the links of many routes at once; where many lead to one rank, the graph is searched once for all."""
        towards: dict[int, list[int]] = {}
        for src, dst in pairs:
            if (src, dst) not in self._between:
                towards.setdefault(dst, []).append(src)
        for dst, sources in towards.items():
            if len(sources) >= _MANY:
                node = self._rank_node[dst]
                self._aimed = (node, self._ways_to(node))
                for src in sources:
                    self.path(src, dst)
        self._aimed = (-1, _Ways())
        return [self.path(src, dst) for src, dst in pairs]

    def switch(self, ranks: Sequence[int], need: str) -> int:
        """Return the node of the switch that can join a group of ranks.

        Parameters
        ----------
        ranks : sequence of int
            The members.
        need : {"multicast", "reduce"}
            What the switch must be able to do.

        Raises
        ------
        FabricError
            If no switch with that ability has a direct link to and from every member.
        """
        members = [self._rank_node[rank] for rank in ranks]
        common = None
        for node in members:
            around = {other for other, _ in self._out[node]} & {other for other, _ in self._in[node]}
            common = around if common is None else common & around
        for node in sorted(common or ()):
            if self.graph.nodes[self.nodes[node]].get(need, False):
                return node
        raise FabricError(
            f"no switch with {need}=True is linked to all of the {len(members)} GPUs from {self.nodes[members[0]]!r} "
            f"to {self.nodes[members[-1]]!r}; in-network operations need one (NVSwitch of Hopper or later)"
        )

    def path_up(self, rank: int, switch: int) -> Path:
        """Return the links from a rank to a switch that `switch` found."""
        return self._route(self._rank_node[rank], switch, rank)

    def path_down(self, switch: int, rank: int) -> Path:
        """Return the links from a switch that `switch` found to a rank."""
        return self._route(switch, self._rank_node[rank], rank)

    def _staged(self, a: int, b: int, dst: int) -> Path:
        """Return the route that the two GPUs would take through their NICs, with a stop in host memory on either side."""
        direct = self._route(a, b, dst)
        on_the_way = [self._source[edge] for edge in direct]
        nics = [position for position, node in enumerate(on_the_way) if self._kind[node] == NIC]
        if not nics:
            return direct
        first, last = nics[0], nics[-1]
        here, there = self._nearest_memory(a, leaving=True), self._nearest_memory(b, leaving=False)
        out = self._route(a, here, dst) + self._route(here, on_the_way[first], dst)
        back = self._route(on_the_way[last], there, dst) + self._route(there, b, dst)
        return out + direct[first:last] + back

    def _nearest_memory(self, node: int, *, leaving: bool) -> int:
        """Return the host memory with the fewest links to a GPU of the same host (the first created among equals)."""
        key = (node, leaving)
        if key not in self._near:
            best: tuple[int, int] | None = None
            for memory in self._memories:
                if self._host[memory] != self._host[node]:
                    continue
                ends = (node, memory) if leaving else (memory, node)
                length = _meet(self._out, self._in, self._transit, *ends)
                if length is not None and (best is None or length < best[0]):
                    best = (length, memory)
            if best is None:
                raise FabricError(
                    f"GPU {self.nodes[node]!r} has no host memory to stage in: without GPUDirect every host needs a "
                    "node of kind 'host_memory' on the GPU's side"
                )
            self._near[key] = best[1]
        return self._near[key]

    def _route(self, a: int, b: int, dst: int) -> Path:
        """Return one shortest route between two nodes; `dst` spreads equal choices."""
        key = (a, b, dst)
        if key not in self._paths:
            self._paths[key] = self._search(a, b, dst)
        return self._paths[key]

    def _search(self, a: int, b: int, dst: int) -> Path:
        if a == b:
            return ()
        ways = self._aimed[1] if self._aimed[0] == b else self._ways_between(a, b)
        if a not in ways.hops:
            raise FabricError(
                f"there is no route from {self.nodes[a]!r} to {self.nodes[b]!r}; routes pass through switches, root "
                f"complexes and NICs, and through a {GPU} or a {HOST_MEMORY} only where it says transit: true"
            )
        widest = ways.width[a]
        route: list[int] = []
        node, spread = a, dst
        while node != b:
            hops = [hop for hop in ways.hops[node] if min(self._width[hop[1]], ways.width[hop[0]]) >= widest]
            if self._seed is None:
                # The digits of the destination, tier by tier; each digit is added to the next, so that destinations that
                # share a tier's choice still differ at the next one and those that differ need not meet again.
                rest, choice = divmod(spread, len(hops))
                spread = rest + choice
            else:
                choice = _hash(self._seed, a, dst, len(route)) % len(hops)
            node, edge = hops[choice]
            route.append(edge)
        return tuple(route)

    def _ways_between(self, a: int, b: int) -> "_Ways":
        """Return the shortest ways between two nodes, searched from both ends."""
        length = _meet(self._out, self._in, self._transit, a, b)
        if length is None:
            return _Ways()
        middle = length // 2
        left = _levels(self._out, self._transit, a, b, middle)
        right = _levels(self._in, self._transit, b, a, length - middle)
        # A node at forward distance d is on a shortest way if its backward distance is length - d. Near the start only
        # forward distances are known, so prune backwards from the meeting level.
        levels = [set[int]()] * middle + [left[middle] & right[length - middle]]
        for level in range(middle - 1, -1, -1):
            levels[level] = {node for node in left[level] if any(hop[0] in levels[level + 1] for hop in self._out[node])}
        return self._ways(levels + [right[length - level] for level in range(middle + 1, length + 1)], b)

    def _ways_to(self, b: int) -> "_Ways":
        """Return the shortest ways from every node to one."""
        levels = [{b}]
        seen = {b}
        while levels[-1]:
            following = set()
            for node in levels[-1]:
                if node == b or self._transit[node]:
                    for other, _ in self._in[node]:
                        if other not in seen:
                            seen.add(other)
                            following.add(other)
            levels.append(following)
        return self._ways(levels[::-1], b)

    def _ways(self, levels: list[set[int]], b: int) -> "_Ways":
        """Return next hops and greatest widths of the nodes of levels that end at `b`, next hops in order of creation."""
        ways = _Ways()
        ways.width[b] = float("inf")
        for here, ahead in zip(levels[-2::-1], levels[:0:-1], strict=True):
            for node in here:
                hops = [hop for hop in self._out[node] if hop[0] in ahead and (hop[0] == b or self._transit[hop[0]])]
                if hops:
                    ways.hops[node] = hops
                    ways.width[node] = max(min(self._width[edge], ways.width[other]) for other, edge in hops)
        return ways


class _Ways:
    """Shortest ways to one node: for each node its next hops as (node, edge), and the greatest width from there."""

    def __init__(self) -> None:
        self.hops: dict[int, list[tuple[int, int]]] = {}
        self.width: dict[int, float] = {}


def _policy_seed(policy: str) -> int | None:
    if policy == "static":
        return None
    name, _, seed = policy.partition(":")
    if name == "ecmp" and seed.isascii() and seed.isdigit():
        return int(seed)
    if name == "spray":
        raise FabricError("routing 'spray' is not available yet; accepted are static and ecmp:SEED")
    raise FabricError(f"unknown routing {policy!r}; accepted are static and ecmp:SEED with a whole number for SEED")


def _hash(*values: int) -> int:
    """Mix integers into 32 bits, the same on every machine and in every process."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=4).digest(), "big")


Adjacency = list[list[tuple[int, int]]]


def _levels(adjacency: Adjacency, transit: list[bool], start: int, goal: int, depth: int) -> list[set[int]]:
    """Breadth-first levels 0 to `depth` from a node, of nodes that forward and the goal."""
    levels = [{start}]
    seen = {start}
    for _ in range(depth):
        levels.append(_grow(adjacency, transit, levels[-1], seen, goal))
    return levels


def _meet(out: Adjacency, into: Adjacency, transit: list[bool], a: int, b: int) -> int | None:
    """Return the number of links of a shortest route, None where there is none.

    Grows the side whose next level is cheaper to look at, so that a route between neighbours in a large cluster never
    walks over all ports of a network switch.
    """
    if a == b:
        return 0
    seen_a, seen_b = {a}, {b}
    front_a, front_b = {a}, {b}
    length = 0
    while front_a and front_b:
        length += 1
        if sum(len(out[node]) for node in front_a) <= sum(len(into[node]) for node in front_b):
            front_a = _grow(out, transit, front_a, seen_a, b)
            met = front_a & seen_b
        else:
            front_b = _grow(into, transit, front_b, seen_b, a)
            met = front_b & seen_a
        if met:
            return length
    return None


def _grow(adjacency: Adjacency, transit: list[bool], front: set[int], seen: set[int], goal: int) -> set[int]:
    """Return the unseen neighbours of a level that forward, or are the goal, and mark all neighbours as seen."""
    following = set()
    for node in front:
        for other, _ in adjacency[node]:
            if other not in seen:
                seen.add(other)
                if transit[other] or other == goal:
                    following.add(other)
    return following
