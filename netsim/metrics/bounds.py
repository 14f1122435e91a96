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

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from netsim.errors import InternalError
from netsim.fabric import hosts_of, links_of
from netsim.metrics.critical_path import critical_path_s
from netsim.record import Record
from netsim.routing import Router
from netsim.schedule.collective import block_bounds, promise
from netsim.schedule.dag import Schedule

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
        ("reduce_scatter", "ring"): (p - 1, (p - 1) * block),
        ("reduce_scatter", "direct"): (1, (p - 1) * block),
        ("reduce_scatter", "halving_doubling"): (rounds, (p - 1) * block) if two else None,
        ("reduce_scatter", "nvls"): (1, n),
        ("broadcast", "flat"): (1, (p - 1) * n),
        ("broadcast", "nvls"): (1, n),
        ("reduce", "flat"): (1, (p - 1) * n),
        ("reduce", "nvls"): (1, n),
        ("alltoall", "pairwise"): (p - 1, (p - 1) * block) if full else None,
        ("alltoall", "direct"): (1, (p - 1) * block),
        ("gather", "flat"): (1, others),
        ("gather", "direct"): (1, others),
        ("scatter", "flat"): (1, others),
        ("scatter", "direct"): (1, others),
        ("sendrecv", "direct"): (1, n),
    }.get((collective, algorithm))
    if steps is not None:
        return steps[0] * alpha + steps[1] / rate
    if (collective, algorithm) == ("all_reduce", "nvls"):
        # In one piece: legs of all blocks, then trunks; either both latencies show, or each port's queue of branches.
        return max(2 * alpha + (n + block) / rate, alpha + 2 * n / rate)
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
        stepwise = ("ring", "halving_doubling", "recursive_doubling", "pairwise")
        return algorithm in (stepwise if self.shape == "mesh" else ("ring",))


def uniform_network(router: Router) -> UniformNetwork | None:
    """Recognise a topology on which the closed forms are exact; None for all others."""
    ranks = range(len(router.ranks))
    if len(ranks) < 2:
        return UniformNetwork("switch", 0.0, float("inf"))
    around = [router.path(rank, (rank + 1) % len(ranks)) for rank in ranks]
    links = [[router.graph.edges[router.edges[edge]]["link"] for edge in path] for path in around]
    costs = {
        tuple((link.latency_s, link.bandwidth_bytes_per_s, link.gap_s, link.floor_s) for link in path) for path in links
    }
    if len(costs) != 1:
        return None
    cost = next(iter(costs))
    if any(gap or floor for _, _, gap, floor in cost):
        return None
    latency, rate = sum(hop[0] for hop in cost), min(hop[1] for hop in cost)
    if len(cost) == 2:
        centres = {router.edges[path[0]][1] for path in around}
        ends_differ = len({path[0] for path in around}) == len(ranks) == len({path[1] for path in around})
        return UniformNetwork("switch", latency, rate) if len(centres) == 1 and ends_differ else None
    if len(cost) == 1:
        pairs = len(ranks) <= _ALL_PAIRS and all(len(router.path(a, b)) == 1 for a in ranks for b in ranks if a != b)
        return UniformNetwork("mesh" if pairs else "ring", latency, rate)
    return None


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
    if record.time_s < bound - 1e-12 * bound:
        raise InternalError(
            f"the run of {schedule!r} took {record.time_s!r} s, below its own lower bound of {bound!r} s: "
            "this is a fault of the simulator; please report it with the command that led here"
        )
    return bound


def collective_bound(collective: str, size_bytes: int, router: Router, *, root: int = 0, in_network: bool = False) -> float:
    """Return a time in seconds that no schedule of a collective can beat on a topology with the router's routes.

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
    """Somebody far away must be heard: the longest route among those that the collective certainly needs."""
    ranks = len(router.ranks)
    if collective == "sendrecv":
        pairs = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    elif collective in ("reduce", "gather"):
        pairs = [(rank, root) for rank in range(ranks) if rank != root]
    else:
        pairs = [(root, rank) for rank in range(ranks) if rank != root]
    latency = [float(router.graph.edges[ends]["link"].latency_s) for ends in router.edges]
    return max(sum(latency[edge] for edge in router.path(a, b)) for a, b in pairs)


def _port_rates(router: Router, rank: int, every_pair: bool) -> tuple[float, float]:
    """Return the rates at which a rank can send and receive: the links its routes start and end with, or all it has."""
    node = router.ranks[rank]
    if every_pair:
        others = [other for other in range(len(router.ranks)) if other != rank]
        out = [router.edges[edge] for edge in sorted({router.path(rank, other)[0] for other in others})]
        into = [router.edges[edge] for edge in sorted({router.path(other, rank)[-1] for other in others})]
    else:
        out, into = list(router.graph.out_edges(node)), list(router.graph.in_edges(node))
    return _summed_rate(router, out), _summed_rate(router, into)


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
