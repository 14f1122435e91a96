"""Closed forms: what alpha and B alone give for a textbook algorithm, and the networks on which that is exact.

They hold for uniform networks (every rank sends and receives at B, every path costs alpha), with blocks of ``ceil(N / p)``
bytes sent whole, and are the oracle of many tests. Ring, flat root, tree and NVLS formulas are those of the project's
worked numbers; bounds that hold for every schedule and machine are in `netsim.metrics.bounds`.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from weakref import WeakKeyDictionary

import numpy as np

from netsim.errors import ScheduleError
from netsim.fabric import Link, may_transit
from netsim.routing import Router
from netsim.schedule.bruck import blocks_sent_on
from netsim.schedule.collective import block_bounds, check_collective, read_size
from netsim.schedule.hierarchical import read_dims
from netsim.schedule.pat import message_offsets


def closed_form(
    collective: str,
    algorithm: str,
    ranks: int,
    size_bytes: int | str,
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

    Raises
    ------
    ScheduleError
        If the collective is unknown or a number is out of range.

    Examples
    --------
    >>> round(closed_form("all_reduce", "ring", 8, 2**26, 1e-6, 450e9) * 1e6, 3)
    274.979
    """
    p, n, alpha, rate = ranks, read_size(size_bytes), latency_s, bandwidth_bytes_per_s
    check_collective(collective, p, n, root)
    if not (alpha >= 0 and rate > 0):
        raise ScheduleError(f"alpha is {alpha!r} s and B {rate!r} B/s; accepted are zero or more, and above zero")
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
    without a pause if a block lasts at least a latency and no message passes on what the one just before brought.
    """
    block = -(-size_bytes // ranks)
    rounds = (ranks - 1).bit_length()
    order = message_offsets(ranks, block)
    messages = len(order)
    if messages == rounds and ranks == 1 << rounds:
        return rounds, (ranks - 1) * block
    pauses = any(later[0] & (later[0] - 1) == before[0] for before, later in pairwise(order))
    if messages == ranks - 1 and not pauses and block >= latency_s * bandwidth_bytes_per_s:
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


_FOUND: WeakKeyDictionary[Router, UniformNetwork | None] = WeakKeyDictionary()


def uniform_network(router: Router) -> UniformNetwork | None:
    """Recognise a topology on which the closed forms are exact; None for all others.

    A switch must join all ranks by equal links, nothing stored in it, and no other way between two ranks may be as short
    and as wide; a mesh must have an equal link for every ordered pair, a ring one to and from both neighbours. Looked for
    once a router.
    """
    if router not in _FOUND:
        _FOUND[router] = _recognised(router)
    return _FOUND[router]


def _recognised(router: Router) -> UniformNetwork | None:
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
        width = min(max(router.link_of[edge].bandwidth_bytes_per_s for edge in side) for side in edges)
        found.append((width, node, edges))
    found.sort(key=lambda entry: -entry[0])
    if not found or (len(found) > 1 and found[1][0] >= found[0][0]):
        return None
    rate, centre, (up, down) = found[0]
    if len(up) < len(members) or len(down) < len(members) or router.stored_bytes[router.index[centre]]:
        return None
    one, other = _common_link(router, up), _common_link(router, down)
    if one is None or other is None or one.bandwidth_bytes_per_s != other.bandwidth_bytes_per_s:
        return None
    return UniformNetwork("switch", one.latency_s + other.latency_s, rate)


def _common_link(router: Router, edges: set[tuple[str, str]]) -> Link | None:
    """Return the link that all edges are alike, or None if they differ or pay more than alpha and B."""
    links = {replace(router.link_of[edge], count=1, kind="", line_rate_bytes_per_s=None) for edge in edges}
    link: Link = next(iter(links))
    return None if len(links) > 1 or link.gap_s or link.floor_s else link
