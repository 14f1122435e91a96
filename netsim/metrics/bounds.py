"""Lower bounds: what no run of a schedule, and no schedule of a collective, can beat on a machine.

A run below its own bound is an internal error, never a result. The volume and cut bounds follow from what the collective
promises: a region of the data that a set of ranks contributes to and that somebody outside must hold has to leave the
set at least once. Closed forms of single algorithms are in `netsim.metrics.closed_forms`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from netsim.errors import FabricError, InternalError
from netsim.fabric import Link, hosts_of, links_of
from netsim.metrics.critical_path import critical_path_s
from netsim.record import Record
from netsim.routing import Path, Router
from netsim.schedule.collective import ROOTED, block_bounds, promise
from netsim.schedule.dag import Schedule

_ALL_PAIRS = 64  # ranks up to which every route is looked at for a bound
_ALL_FLOWS = 16  # routes a pair up to which each is


def run_lower_bound(schedule: Schedule, record: Record) -> float:
    """Return the largest of the idle critical path, the busiest link's and the busiest lane's work, in seconds."""
    busiest = float(record.link_busy_s.max(initial=0.0))
    if record.hold_s.any() or record.work_s.any():
        lanes = np.bincount(schedule.lane, record.hold_s + record.work_s)
        busiest = max(busiest, float(lanes.max(initial=0.0)))
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
    if ranks == 1 or not size_bytes:
        return 0.0  # nothing has to move, though an algorithm may send empty messages
    bound = _latency_bound(collective, size_bytes, router, root)
    if collective == "alltoall":
        bounds = np.array(block_bounds(size_bytes, ranks), np.int64)
        blocks = bounds[1:] - bounds[:-1]
        volume = (ranks - 1) * size_bytes
        crossing = partial(_crossing_alltoall, blocks)
    else:
        regions = _regions(collective, ranks, size_bytes, root)
        volume = _volume(regions, ranks)
        crossing = partial(_crossing, regions)
    every_pair = ranks <= _ALL_PAIRS and router.flows <= _ALL_FLOWS
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


def _latency_bound(collective: str, size_bytes: int, router: Router, root: int) -> float:
    """Somebody far away must be heard: the quickest way to the last of those that the collective certainly needs.

    Ways over other ranks count, since a rank may pass data on. Of few bytes the last ranks have an empty block, which
    nobody has to send or to hear.
    """
    ranks = len(router.ranks)
    if collective == "sendrecv":
        starts = range(ranks) if ranks <= _ALL_PAIRS else range(1)
        return max(_quickest(router.graph.succ, router.ranks[rank])[router.ranks[(rank + 1) % ranks]] for rank in starts)
    whole = collective in ("all_reduce", "all_gather", "broadcast", "reduce")
    bounds = block_bounds(size_bytes, ranks)
    others = [rank for rank in range(ranks) if whole or bounds[rank + 1] > bounds[rank]]
    edges = router.graph.pred if collective in ("reduce", "gather") else router.graph.succ
    # Block 0 is never empty, so rank 0 has something to say in every collective without a root.
    reached = _quickest(edges, router.ranks[root if collective in ROOTED else 0])
    return max(reached[router.ranks[rank]] for rank in others)


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
        flows = range(router.flows)
        away = [path for other in others for flow in flows if (path := _path(router, rank, other, flow))]
        here = [path for other in others for flow in flows if (path := _path(router, other, rank, flow))]
        out_edges = {router.edges[path[0]] for path in away}
        into_edges = {router.edges[path[-1]] for path in here}
        out = [edge for edge in router.graph.out_edges(node) if edge in out_edges or _works(router, edge[1])]
        into = [edge for edge in router.graph.in_edges(node) if edge in into_edges or _works(router, edge[0])]
    else:
        out, into = list(router.graph.out_edges(node)), list(router.graph.in_edges(node))
    return _summed_rate(router, out), _summed_rate(router, into)


def _path(router: Router, src: int, dst: int, flow: int) -> Path:
    """Return a route, empty where there is none: two ranks that never talk need none."""
    try:
        return router.path(src, dst, flow)
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
