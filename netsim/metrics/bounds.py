"""Closed forms and lower bounds: what alpha and B alone say about a collective.

Closed forms hold for uniform networks (every rank sends and receives at B, every path costs alpha) and are exact there;
bounds hold for every schedule. Blocks are ``ceil(N / p)`` bytes. Both are the oracle of many tests: a run below its own
bound is an internal error, never a result.

Notes
-----
Ring, flat root, tree and NVLS formulas are those of the project's worked numbers; the volume and cut bounds follow from
what the collective promises: a region of the data that a set of ranks contributes to and that somebody outside must
hold has to leave the set at least once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from math import prod

import numpy as np
import numpy.typing as npt

from netsim.errors import FabricError, InternalError
from netsim.fabric import Link, hosts_of, links_of, may_transit
from netsim.metrics.critical_path import critical_path_s
from netsim.record import Record
from netsim.routing import Path, Router
from netsim.schedule.bruck import blocks_sent_on
from netsim.schedule.collective import block_bounds, promise
from netsim.schedule.dag import Schedule
from netsim.schedule.hierarchical import read_dims
from netsim.schedule.pat import message_offsets

_ALL_PAIRS = 64  # ranks up to which every route is looked at for a bound


def closed_form(
    collective: str,
    algorithm: str,
    ranks: int,
    size_bytes: int,
    latency_s: float,
    bandwidth_bytes_per_s: float,
    *,
    root: int = 0,
) -> float | None:
    """Return the exact time of an unchunked textbook algorithm on an ideal switch, in seconds.

    Parameters
    ----------
    collective, algorithm : str
        Names as the command line spells them.
    ranks, size_bytes : int
        p and N.
    latency_s, bandwidth_bytes_per_s : float
        Alpha of a whole path between two ranks, and B.
    root : int
        For gather and scatter, whose root keeps its own block.

    Returns
    -------
    float or None
        None where no exact form exists: pipelined trees and chains, halving or doubling over other than powers of two,
        and algorithms of paired steps over so few bytes that more than the last block is short.

    Examples
    --------
    >>> round(closed_form("all_reduce", "ring", 8, 2**26, 1e-6, 450e9) * 1e6, 3)
    274.979
    """
    p, n, alpha, rate = ranks, size_bytes, latency_s, bandwidth_bytes_per_s
    if p == 1:
        return 0.0
    block = -(-n // p)
    bounds = block_bounds(n, p)
    others = n - (bounds[root + 1] - bounds[root])
    full = n == 0 or (p - 1) * block < n  # only the last block may be shorter
    two = p & (p - 1) == 0 and full
    rounds = p.bit_length() - 1
    steps = {
        ("all_reduce", "ring"): (2 * (p - 1), 2 * (p - 1) * block),
        ("all_reduce", "one_shot"): (1, (p - 1) * n),
        ("all_reduce", "two_shot"): (2, 2 * (p - 1) * block),
        ("all_reduce", "flat"): (2, 2 * (p - 1) * n),
        ("all_reduce", "halving_doubling"): (2 * rounds, 2 * (p - 1) * block) if two else None,
        ("all_reduce", "recursive_doubling"): (rounds, rounds * n) if two else None,
        ("all_gather", "ring"): (p - 1, (p - 1) * block),
        ("all_gather", "direct"): (1, (p - 1) * block),
        ("all_gather", "recursive_doubling"): (rounds, (p - 1) * block) if two else None,
        ("all_gather", "nvls"): (1, n),
        ("all_gather", "bruck"): ((p - 1).bit_length(), (p - 1) * block) if full else None,
        ("all_gather", "pat"): _pat_steps(p, n, alpha, rate) if full else None,
        ("reduce_scatter", "ring"): (p - 1, (p - 1) * block),
        ("reduce_scatter", "direct"): (1, (p - 1) * block),
        ("reduce_scatter", "halving_doubling"): (rounds, (p - 1) * block) if two else None,
        ("reduce_scatter", "nvls"): (1, n),
        ("reduce_scatter", "pat"): _pat_steps(p, n, alpha, rate) if full else None,
        ("broadcast", "flat"): (1, (p - 1) * n),
        ("broadcast", "nvls"): (1, n),
        ("reduce", "flat"): (1, (p - 1) * n),
        ("reduce", "nvls"): (1, n),
        ("alltoall", "pairwise"): (p - 1, (p - 1) * block) if full else None,
        ("alltoall", "direct"): (1, (p - 1) * block),
        ("alltoall", "bruck"): ((p - 1).bit_length(), blocks_sent_on(p) * block) if full else None,
        ("gather", "flat"): (1, others),
        ("gather", "direct"): (1, others),
        ("scatter", "flat"): (1, others),
        ("scatter", "direct"): (1, others),
        ("sendrecv", "direct"): (1, n),
    }.get((collective, algorithm))
    if steps is not None:
        return steps[0] * alpha + steps[1] / rate
    if collective == "all_reduce" and algorithm.startswith("hierarchical:") and n % p == 0:
        # Ring phases along the dimensions, in one chunk: p - 1 blocks out in all, however p is factored.
        dims = read_dims(algorithm.partition(":")[2])
        if prod(dims) != p:
            return None
        return 2 * sum(length - 1 for length in dims) * alpha + 2 * (p - 1) * block / rate
    if (collective, algorithm) == ("all_reduce", "nvls"):
        # In one piece: legs of all blocks, then trunks; either both latencies show, or each port's queue of branches.
        return max(2 * alpha + (n + block) / rate, alpha + 2 * n / rate)
    return None


def _pat_steps(ranks: int, size_bytes: int, latency_s: float, bandwidth_bytes_per_s: float) -> tuple[int, int] | None:
    """Return latencies and bytes of PAT in whole blocks, exact in two cases; else None.

    At powers of two with a message a dimension each round waits for the one before. With a block a message a rank sends
    without a pause if a block lasts at least a latency, because what it waits for never came just before.
    """
    block = -(-size_bytes // ranks)
    rounds = (ranks - 1).bit_length()
    messages = len(message_offsets(ranks, block))
    if messages == rounds and ranks == 1 << rounds:
        return rounds, (ranks - 1) * block
    if messages == ranks - 1 and block >= latency_s * bandwidth_bytes_per_s:
        return 1, (ranks - 1) * block
    return None


def unpipelined_tree(ranks: int, size_bytes: int, latency_s: float, bandwidth_bytes_per_s: float) -> float:
    """Return ``2 log2(p) alpha + 2 N / B``, the usual formula of a double binary tree without pipeline fill."""
    return float(2 * np.log2(ranks) * latency_s + 2 * size_bytes / bandwidth_bytes_per_s)


@dataclass(frozen=True)
class UniformNetwork:
    """A topology on which every route between two ranks costs the same."""

    shape: str
    """``switch``: one switch joins all; ``mesh``: a link each pair; ``ring``: links between neighbours only."""
    latency_s: float
    """Of a whole route (of a link, for a ring)."""
    bandwidth_bytes_per_s: float

    def serves(self, algorithm: str) -> bool:
        """Say whether closed forms of an algorithm hold on this shape.

        On a mesh a rank can send to several peers at once, which only the algorithms of one peer a step do not use.
        """
        if self.shape == "switch":
            return True
        stepwise = ("ring", "halving_doubling", "recursive_doubling", "pairwise", "pat", "bruck", "hierarchical")
        return algorithm.partition(":")[0] in (stepwise if self.shape == "mesh" else ("ring",))


def uniform_network(router: Router) -> UniformNetwork | None:
    """Recognise a topology on which the closed forms are exact; None for all others.

    A switch must join all ranks by equal links, nothing stored in it, and no other way between two ranks may be as short
    and as wide; a mesh must have an equal link for every ordered pair, a ring one to and from both neighbours.
    """
    graph, ranks = router.graph, router.ranks
    if len(ranks) < 2:
        return UniformNetwork("switch", 0.0, float("inf"))
    if router.rules.p2p is not None:
        return None  # which pairs are staged depends on how far they are apart
    members = set(ranks)
    direct = {(a, b) for a in ranks for b in graph.successors(a) if b in members}
    if direct:
        around = {(ranks[place], ranks[place - 1]) for place in range(len(ranks))}
        around |= {(b, a) for a, b in around}
        shape = "mesh" if len(direct) == len(ranks) * (len(ranks) - 1) else "ring"
        link = _common_link(router, direct) if direct >= around else None
        return None if link is None else UniformNetwork(shape, link.latency_s, link.bandwidth_bytes_per_s)
    return _uniform_switch(router, members)


def _uniform_switch(router: Router, members: set[str]) -> UniformNetwork | None:
    """Find the switch that the ranks' widest two-link routes share, and check that nothing disturbs it."""
    graph = router.graph
    ends: dict[str, tuple[set[str], set[str]]] = {}
    for rank in router.ranks:
        for node in graph.successors(rank):
            ends.setdefault(node, (set(), set()))[0].add(rank)
        for node in graph.predecessors(rank):
            ends.setdefault(node, (set(), set()))[1].add(rank)
    found = []
    for node, (into, out) in ends.items():
        if not may_transit(graph.nodes[node]) or not (into and out):
            continue
        edges = {(rank, node) for rank in into}, {(node, rank) for rank in out}
        width = min(max(graph.edges[edge]["link"].bandwidth_bytes_per_s for edge in side) for side in edges)
        found.append((width, node, edges))
    found.sort(key=lambda entry: -entry[0])
    if not found or (len(found) > 1 and found[1][0] >= found[0][0]):
        return None
    rate, centre, (up, down) = found[0]
    if len(up) < len(members) or len(down) < len(members) or graph.nodes[centre].get("store_and_forward", False):
        return None
    one, other = _common_link(router, up), _common_link(router, down)
    if one is None or other is None or one.bandwidth_bytes_per_s != other.bandwidth_bytes_per_s:
        return None
    return UniformNetwork("switch", one.latency_s + other.latency_s, rate)


def _common_link(router: Router, edges: set[tuple[str, str]]) -> Link | None:
    """Return the link that all edges are alike, or None if they differ or pay more than alpha and B."""
    links = {replace(router.graph.edges[edge]["link"], count=1, kind="", line_rate_bytes_per_s=None) for edge in edges}
    link: Link = next(iter(links))
    return None if len(links) > 1 or link.gap_s or link.floor_s else link


def run_lower_bound(schedule: Schedule, record: Record) -> float:
    """Return the larger of the critical path with idle links and the busiest link's total service, in seconds."""
    busiest = float(record.link_busy_s.max(initial=0.0))
    return max(critical_path_s(schedule, record), busiest)


def check_run(schedule: Schedule, record: Record) -> float:
    """Return a run's lower bound, after making sure that the run is not below it.

    Raises
    ------
    InternalError
        If the run beat its bound: the simulator is wrong, not the user.
    """
    bound = run_lower_bound(schedule, record)
    # Beyond 0.25 s sums are rounded once a message, always the same way where messages are alike.
    rounding = 1e-12 + int(record.link_messages.max(initial=0)) * 2.0**-52
    if record.time_s < bound * (1 - rounding):
        raise InternalError(
            f"the run of {schedule!r} took {record.time_s!r} s, below its own lower bound of {bound!r} s: "
            "this is a fault of the simulator; please report it with the command that led here"
        )
    return bound


def collective_bound(collective: str, size_bytes: int, router: Router, *, root: int = 0, in_network: bool = False) -> float:
    """Return a time in seconds that no schedule of a collective can beat on a topology, with the router's routes.

    Parameters
    ----------
    collective, size_bytes, root
        As in `Schedule`.
    router : Router
        The topology and its routes.
    in_network : bool
        Whether switches may add and copy; then the volume bound does not apply, only what each rank and each server
        must send and receive once.
    """
    ranks = len(router.ranks)
    if ranks == 1:
        return 0.0
    bound = _latency_bound(collective, router, root)
    if collective == "alltoall":
        bounds = np.array(block_bounds(size_bytes, ranks), np.int64)
        blocks = bounds[1:] - bounds[:-1]
        volume = (ranks - 1) * size_bytes
        crossing = partial(_crossing_alltoall, blocks)
    else:
        regions = _regions(collective, ranks, size_bytes, root)
        volume = _volume(regions, ranks)
        crossing = partial(_crossing, regions)
    every_pair = ranks <= _ALL_PAIRS
    out, into = zip(*(_port_rates(router, rank, every_pair) for rank in range(ranks)), strict=True)
    sets = [([rank], out[rank], into[rank]) for rank in range(ranks)]
    hosts = hosts_of(router.graph)
    if len(hosts) > 1:
        rates = _host_rates(router)
        sets += [(list(host), *rates[router.graph.nodes[router.ranks[host[0]]].get("host")]) for host in hosts]
    for members, rate_out, rate_in in sets:
        inside = np.zeros(ranks, np.bool_)
        inside[members] = True
        leaves, enters = crossing(inside)
        bound = max(bound, leaves / rate_out, enters / rate_in)
    if not in_network:
        bound = max(bound, volume / sum(out), volume / sum(into))
    return bound


def _latency_bound(collective: str, router: Router, root: int) -> float:
    """Somebody far away must be heard: the quickest way to the last of those that the collective certainly needs.

    Ways over other ranks count, since a rank may pass data on.
    """
    ranks = len(router.ranks)
    if collective == "sendrecv":
        starts = range(ranks) if ranks <= _ALL_PAIRS else range(1)
        return max(_quickest(router.graph.succ, router.ranks[rank])[router.ranks[(rank + 1) % ranks]] for rank in starts)
    edges = router.graph.pred if collective in ("reduce", "gather") else router.graph.succ
    reached = _quickest(edges, router.ranks[root])
    return max(reached[node] for node in router.ranks)


def _quickest(edges: Mapping[str, Mapping[str, Mapping[str, Link]]], start: str) -> dict[str, float]:
    """Return the least sum of latencies from a node to every other (Dijkstra)."""
    reached: dict[str, float] = {}
    queue = [(0.0, start)]
    while queue:
        latency, node = heappop(queue)
        if node in reached:
            continue
        reached[node] = latency
        for other, attributes in edges[node].items():
            if other not in reached:
                heappush(queue, (latency + attributes["link"].latency_s, other))
    return reached


def _port_rates(router: Router, rank: int, every_pair: bool) -> tuple[float, float]:
    """Return the rates at which a rank can send and receive.

    The links that its routes start and end with, and those to switches that add or copy; or simply all it has.
    """
    node = router.ranks[rank]
    if every_pair:
        others = [other for other in range(len(router.ranks)) if other != rank]
        out_edges = {router.edges[path[0]] for other in others if (path := _path(router, rank, other))}
        into_edges = {router.edges[path[-1]] for other in others if (path := _path(router, other, rank))}
        out = [edge for edge in router.graph.out_edges(node) if edge in out_edges or _works(router, edge[1])]
        into = [edge for edge in router.graph.in_edges(node) if edge in into_edges or _works(router, edge[0])]
    else:
        out, into = list(router.graph.out_edges(node)), list(router.graph.in_edges(node))
    return _summed_rate(router, out), _summed_rate(router, into)


def _path(router: Router, src: int, dst: int) -> Path:
    """Return a route, empty where there is none: two ranks that never talk need none."""
    try:
        return router.path(src, dst)
    except FabricError:
        return ()


def _host_rates(router: Router) -> dict[object, tuple[float, float]]:
    """Return the summed rates of the links out of and into every server; infinite where there are none."""
    out: dict[object, float] = {}
    into: dict[object, float] = {}
    host: dict[str, object] = {node: attributes.get("host") for node, attributes in router.graph.nodes.items()}
    for source, target, link in links_of(router.graph):
        if host[source] != host[target]:
            out[host[source]] = out.get(host[source], 0.0) + link.bandwidth_bytes_per_s
            into[host[target]] = into.get(host[target], 0.0) + link.bandwidth_bytes_per_s
    infinite = float("inf")
    return {name: (out.get(name, infinite), into.get(name, infinite)) for name in host.values()}


def _works(router: Router, node: str) -> bool:
    """Say whether a node can add or copy, so that data may take its links whatever the routes between ranks are."""
    attributes = router.graph.nodes[node]
    return bool(attributes.get("reduce") or attributes.get("multicast"))


def _summed_rate(router: Router, edges: list[tuple[str, str]]) -> float:
    return float(sum(router.graph.edges[edge]["link"].bandwidth_bytes_per_s for edge in edges))


@dataclass(frozen=True)
class _Regions:
    """The promise of a collective as columns; -1 stands for all ranks, else there is one owner or receiver."""

    size: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    receiver: npt.NDArray[np.int64]


def _regions(collective: str, ranks: int, size_bytes: int, root: int) -> _Regions:
    rows = [
        (region.size, *(members[0] if len(members) == 1 else -1 for members in (region.owners, region.receivers)))
        for region in promise(collective, ranks, size_bytes, root)
    ]
    return _Regions(*np.array(rows, np.int64).T)


def _crossing(regions: _Regions, inside: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return the fewest bytes that must leave and enter a set of ranks, given as a mask, that is not all of them."""
    owned, received = (np.where(end < 0, True, inside[end]) for end in (regions.owner, regions.receiver))
    owned_outside, received_outside = (np.where(end < 0, True, ~inside[end]) for end in (regions.owner, regions.receiver))
    leaves = regions.size[owned & received_outside].sum()
    enters = regions.size[owned_outside & received].sum()
    return int(leaves), int(enters)


def _crossing_alltoall(blocks: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return what `_crossing` would for an all-to-all, whose regions are too many to list."""
    wanted = int(blocks[inside].sum())
    members = int(inside.sum())
    return members * (int(blocks.sum()) - wanted), (len(blocks) - members) * wanted


def _volume(regions: _Regions, ranks: int) -> int:
    """Return the fewest bytes that all ranks together must send where only ranks add and copy.

    A region takes one transfer less than it has owners to add up, one less than it has receivers to spread, and one
    more where no receiver owns anything of it.
    """
    owners, receivers = (np.where(end < 0, ranks, 1) for end in (regions.owner, regions.receiver))
    apart = (regions.owner >= 0) & (regions.receiver >= 0) & (regions.owner != regions.receiver)
    return int((regions.size * (owners + receivers - 2 + apart)).sum())
