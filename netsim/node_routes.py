"""Routes between any two nodes of a topology: shortest, then widest, then spread; over the nearest NICs between servers.

The graph is compiled once to integer adjacency. A route is found by a search from both ends that stops where they meet,
so that a route inside a server costs the same in a cluster of any size. What hangs together without NICs (an island:
a server, mostly) keeps its own routes off them; from one island to another data goes by a nearest NIC of each end, and
which of those, and what lies between, is the search's. `netsim.routing` builds on it: ranks, staging and relays.
"""

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from netsim.errors import FabricError
from netsim.fabric import GPU, HOST_MEMORY, NIC, Link, links_of, may_transit
from netsim.ways import Ways, distance, ways_between, ways_to

if TYPE_CHECKING:
    import networkx as nx

Path = tuple[int, ...]


class NodeRoutes:
    """Routes between the nodes of one graph, computed on demand.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.
    seed : int or None
        Hash equal next hops with this seed; None spreads destinations over them tier by tier.
    """

    edges: list[tuple[str, str]]
    """Every directed link as (from, to), in the order of its index."""
    links: list[Link]
    """What every link is, in the same order, as it was when the graph was compiled."""
    nodes: list[str]
    """Every node, in the order of its index."""
    hosts: list[object]
    """The server of every node, None where it names none."""
    abilities: dict[str, list[bool]]
    """Under ``multicast`` and ``reduce``: whether each node can copy, or add up."""
    stored_bytes: list[int]
    """For every node that stores and forwards, the piece that it waits for (at least 1); 0 for all others."""

    def __init__(self, graph: "nx.DiGraph[str]", seed: int | None) -> None:
        self.graph = graph
        self._seed = seed
        self.nodes = list(graph)
        self.index = {node: position for position, node in enumerate(self.nodes)}
        attributes = list(graph.nodes.values())
        self._kind = [data["kind"] for data in attributes]
        self._transit = [may_transit(data) for data in attributes]
        self.hosts, self.abilities, self.stored_bytes = _hosts(attributes), _abilities(attributes), _stored(attributes)
        self._inside = [passes and self._kind[node] != NIC for node, passes in enumerate(self._transit)]
        self._out: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        self._in: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        self.edges = []
        self.links = []
        self._width: list[float] = []
        self._ends: list[tuple[int, int]] = []
        self._shared: dict[int, int] = {}
        for source, target, link in links_of(graph):
            edge = len(self.edges)
            self.edges.append((source, target))
            self._ends.append((self.index[source], self.index[target]))
            self.links.append(link)
            self._width.append(link.bandwidth_bytes_per_s)
            if source == target:
                self._shared[self.index[source]] = edge
                continue
            self._out[self.index[source]].append((self.index[target], edge))
            self._in[self.index[target]].append((self.index[source], edge))
        self._island = self._islands()
        self._into = list(self._inside)
        self._paths: dict[tuple[int, int, int], Path | None] = {}
        self._doors: dict[tuple[int, bool], tuple[int, ...]] = {}
        self._aimed: tuple[int, str, Ways] = (-1, "", Ways())

    @cached_property
    def link_of(self) -> dict[tuple[str, str], Link]:
        """What every link is, by (from, to)."""
        return dict(zip(self.edges, self.links, strict=True))

    def still_describes(self, graph: "nx.DiGraph[str]") -> bool:
        """Say whether all that was taken from a graph, nodes, links and attributes, still stands there."""
        attributes = list(graph.nodes.values())
        return (
            list(graph) == self.nodes
            and [data.get("kind") for data in attributes] == self._kind
            and [may_transit(data) for data in attributes] == self._transit
            and _hosts(attributes) == self.hosts
            and _abilities(attributes) == self.abilities
            and _stored(attributes) == self.stored_bytes
            and [(source, target) for source, target, _ in links_of(graph)] == self.edges
            and [link for _, _, link in links_of(graph)] == self.links
        )

    def _islands(self) -> list[int]:
        """Return a number for each part that hangs together without NICs; every NIC is a part of its own."""
        island = [-1] * len(self.nodes)
        for start, kind in enumerate(self._kind):
            if island[start] < 0:
                island[start] = start
                todo = [] if kind == NIC else [start]
                while todo:
                    node = todo.pop()
                    for other, _ in (*self._out[node], *self._in[node]):
                        if island[other] < 0 and self._kind[other] != NIC:
                            island[other] = start
                            todo.append(other)
        return island

    def _manner(self, a: int, b: int) -> str:
        """Say how two nodes are joined: ``inside``, where NICs do not forward, or over ``doors``, their nearest NICs."""
        if NIC in (self._kind[a], self._kind[b]) or self._island[a] == self._island[b]:
            return "inside"
        return "doors"

    def _with_shared(self, path: Path) -> Path:
        """Return a path with the links to themselves of the nodes that it passes."""
        if not self._shared:
            return path
        full: list[int] = []
        for place, edge in enumerate(path):
            full.append(edge)
            node = self._ends[edge][1]
            if node in self._shared and place + 1 < len(path):
                full.append(self._shared[node])
        return tuple(full)

    def _route(self, a: int, b: int, spread: int) -> Path:
        """Return one shortest route between two nodes; `spread` chooses among equal ones."""
        found = self._find(a, b, spread)
        if found is None:
            raise self._no_route(a, b)
        return found

    def _find(self, a: int, b: int, spread: int) -> Path | None:
        """Return one shortest route between two nodes, None where there is none."""
        key = (a, b, spread)
        if key not in self._paths:
            if a == b:
                found: Path | None = ()
            elif self._manner(a, b) == "doors":
                found = self._through_doors(a, b, spread)
            else:
                found = self._follow(self._ways(a, b, "inside"), a, b, spread, a, spread)
                if found is None and NIC in self._kind:
                    found = self._follow(self._ways(a, b, "any"), a, b, spread, a, spread)
            self._paths[key] = found
        return self._paths[key]

    def _through_doors(self, a: int, b: int, spread: int) -> Path | None:
        """Return the route between two islands: by a nearest NIC of `a` and a nearest NIC of `b`."""
        ways = {nic: self._ways(nic, b, "doors") for nic in self._doors_of(a, leaving=True)}
        onward = {nic: self._length(way, nic, b) for nic, way in ways.items() if nic in way.hops}
        if not onward:
            return None
        out = {nic: self._route(a, nic, spread) for nic, length in onward.items() if length == min(onward.values())}
        width = {nic: min(ways[nic].width[nic], *(self._width[edge] for edge in path)) for nic, path in out.items()}
        doors = [nic for nic in out if width[nic] == max(width.values())]
        choice, rest = self._choose(len(doors), a, spread, 0, spread)
        back = self._follow(ways[doors[choice]], doors[choice], b, rest, a, spread)
        return None if back is None else out[doors[choice]] + back

    @staticmethod
    def _length(ways: Ways, node: int, b: int) -> int:
        """Count the links of the shortest ways from a node; all are as long."""
        length = 0
        while node != b:
            node = ways.hops[node][0][0]
            length += 1
        return length

    def _follow(self, ways: Ways, node: int, b: int, rest: int, source: int, spread: int) -> Path | None:
        """Walk one of the widest among the shortest ways, from `node` on."""
        if node not in ways.hops:
            return None
        widest = ways.width[node]
        route: list[int] = []
        while node != b:
            hops = [hop for hop in ways.hops[node] if min(self._width[hop[1]], ways.width[hop[0]]) >= widest]
            entry = self._entry(b, source, hops, spread) if len(hops) > 1 and self._seed is None else None
            if entry is None:
                choice, rest = self._choose(len(hops), source, spread, node, rest)
                entry = hops[choice]
            node, edge = entry
            route.append(edge)
        return tuple(route)

    def _entry(self, b: int, source: int, hops: list[tuple[int, int]], spread: int) -> tuple[int, int] | None:
        """Return which of several equal NICs of `b` data comes in by, None where this is not for `b` to say."""
        return None

    def _choose(self, count: int, source: int, spread: int, place: int, rest: int) -> tuple[int, int]:
        """Choose among equal next hops; return the choice and what is left to choose by."""
        if count == 1:
            return 0, rest
        if self._seed is not None:
            return _hash(self._seed, source, spread, place) % count, rest
        # The digits of the destination, tier by tier; each digit is added to the next, so that destinations that
        # share a tier's choice still differ at the next one and those that differ need not meet again.
        above, choice = divmod(rest, count)
        return choice, above + choice

    def _ways(self, a: int, b: int, manner: str) -> Ways:
        """Return the shortest ways between two nodes; those that a search for all sources has found, if it has."""
        if self._aimed[:2] == (b, manner):
            return self._aimed[2]
        transit = self._open(b, manner)
        length = distance(self._out, self._in, transit, a, b)
        ways = ways_between(self._out, self._in, transit, self._width, a, b, length)
        self._close(b, manner)
        return ways

    def _aim(self, b: int, manner: str) -> None:
        """Search the ways from everywhere to a node at once, for the routes to it that are asked for next."""
        self._aimed = (b, manner, ways_to(self._out, self._in, self._open(b, manner), self._width, b))
        self._close(b, manner)

    def _open(self, b: int, manner: str) -> list[bool]:
        """Return which nodes forward on the way to `b`: no NIC, all of them, or the nearest ones of `b`."""
        if manner == "any":
            return self._transit
        if manner == "inside":
            return self._inside
        for nic in self._doors_of(b, leaving=False):
            self._into[nic] = True
        return self._into

    def _close(self, b: int, manner: str) -> None:
        if manner == "doors":
            for nic in self._doors_of(b, leaving=False):
                self._into[nic] = False

    def _doors_of(self, node: int, *, leaving: bool) -> tuple[int, ...]:
        """Return the nearest NICs that lead out of what a node is joined to without NICs, in order of creation."""
        key = (node, leaving)
        if key not in self._doors:
            adjacency = self._out if leaving else self._in
            home = self._island[node]
            front, seen, doors = [node], {node}, set[int]()
            while front and not doors:
                following = []
                for here in front:
                    for other, _ in adjacency[here]:
                        if other not in seen:
                            seen.add(other)
                            if self._kind[other] != NIC:
                                following += [other] * self._inside[other]
                            elif self._transit[other] and any(self._island[end] != home for end, _ in adjacency[other]):
                                doors.add(other)
                front = following
            self._doors[key] = tuple(sorted(doors))
        return self._doors[key]

    def _no_route(self, a: int, b: int) -> FabricError:
        """Say that two nodes have no route."""
        return FabricError(
            f"there is no route from {self.nodes[a]!r} to {self.nodes[b]!r}; routes pass through switches, root "
            f"complexes and NICs, and through a {GPU} or a {HOST_MEMORY} only where it says transit: true"
        )


def _hosts(attributes: list[dict[str, Any]]) -> list[object]:
    return [data.get("host") for data in attributes]


def _abilities(attributes: list[dict[str, Any]]) -> dict[str, list[bool]]:
    return {name: [bool(data.get(name, False)) for data in attributes] for name in ("multicast", "reduce")}


def _stored(attributes: list[dict[str, Any]]) -> list[int]:
    return [max(int(data.get("piece_bytes", 0)), 1) if data.get("store_and_forward", False) else 0 for data in attributes]


def _hash(*values: int) -> int:
    """Mix integers into 32 bits, the same on every machine and in every process."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=4).digest(), "big")
