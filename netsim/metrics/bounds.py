"""Lower bounds: what no run of a schedule, and no schedule of a collective, can beat on a machine.

A run below its own bound is an internal error, never a result. The volume and cut bounds follow from what the collective
promises: a region of the data that a set of ranks contributes to and that somebody outside must hold has to leave the
set at least once. Closed forms of single algorithms are in `netsim.metrics.closed_forms`.
"""

from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from netsim.errors import FabricError, InternalError
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


def collective_bound(
    collective: str,
    size_bytes: int,
    router: Router,
    *,
    root: int = 0,
    in_network: bool = False,
    protocol: str = "ideal",
) -> float:
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
    protocol : str
        By which protocol messages go, for the latencies of links.
    """
    ranks = len(router.ranks)
    if ranks == 1 or not size_bytes:
        return 0.0  # nothing has to move, though an algorithm may send empty messages
    machine = _machine(router, protocol)
    bound = _latency_bound(collective, size_bytes, machine, root)
    if collective == "alltoall":
        bounds = np.array(block_bounds(size_bytes, ranks), np.int64)
        blocks = bounds[1:] - bounds[:-1]
        volume = (ranks - 1) * size_bytes
        crossing = partial(_crossing_alltoall, blocks)
    else:
        regions = _regions(collective, ranks, size_bytes, root)
        volume = _volume(regions, ranks)
        crossing = partial(_crossing, regions)
    for sets in machine.parts:
        leaves, enters = crossing(sets.of_rank, len(sets.out))
        bound = max(bound, *(bytes_ / rate for bytes_, rate in zip(leaves, sets.out, strict=True)))
        bound = max(bound, *(bytes_ / rate for bytes_, rate in zip(enters, sets.into, strict=True)))
    if not in_network:
        alone = machine.parts[0]
        bound = max(bound, volume / sum(alone.out), volume / sum(alone.into))
    return bound


@dataclass(frozen=True)
class _Sets:
    """The ranks dealt out to sets, and the rates at which each set can send and receive."""

    of_rank: npt.NDArray[np.int64]
    out: list[float]
    into: list[float]


class _Machine:
    """What the bounds of all collectives and sizes take from a router: computed once, and from what the router holds."""

    def __init__(self, router: Router, protocol: str) -> None:
        met = {id(link): link.under(protocol).latency_s for link in router.links}
        self.ranks = [router.index[node] for node in router.ranks]
        self._onward: list[list[tuple[int, float]]] = [[] for _ in router.nodes]
        self._back: list[list[tuple[int, float]]] = [[] for _ in router.nodes]
        for (source, target), link in zip(router.edges, router.links, strict=True):
            a, b = router.index[source], router.index[target]
            self._onward[a].append((b, met[id(link)]))
            self._back[b].append((a, met[id(link)]))
        self._reached: dict[tuple[int, bool], list[float]] = {}
        self.parts = [_each_alone(router)]
        servers = dict.fromkeys(router.hosts[node] for node in self.ranks)
        if len(servers) > 1:
            rates = _host_rates(router)
            number = {host: place for place, host in enumerate(servers)}
            of_rank = np.array([number[router.hosts[node]] for node in self.ranks], np.int64)
            self.parts.append(_Sets(of_rank, *(list(side) for side in zip(*map(rates.__getitem__, servers), strict=True))))

    def quickest(self, rank: int, *, towards: bool = False) -> list[float]:
        """Return the least sum of latencies from a rank to every rank, or from every rank to it (Dijkstra)."""
        key = (rank, towards)
        if key not in self._reached:
            edges = self._back if towards else self._onward
            reached: dict[int, float] = {}
            queue = [(0.0, self.ranks[rank])]
            while queue:
                latency, node = heappop(queue)
                if node in reached:
                    continue
                reached[node] = latency
                for other, further in edges[node]:
                    if other not in reached:
                        heappush(queue, (latency + further, other))
            self._reached[key] = [reached[node] for node in self.ranks]
        return self._reached[key]


_MACHINES: WeakKeyDictionary[Router, dict[str, _Machine]] = WeakKeyDictionary()


def _machine(router: Router, protocol: str) -> _Machine:
    machines = _MACHINES.setdefault(router, {})
    if protocol not in machines:
        machines[protocol] = _Machine(router, protocol)
    return machines[protocol]


def _latency_bound(collective: str, size_bytes: int, machine: _Machine, root: int) -> float:
    """Somebody far away must be heard: the quickest way to the last of those that the collective certainly needs.

    Ways over other ranks count, since a rank may pass data on. Of few bytes the last ranks have an empty block, which
    nobody has to send or to hear.
    """
    ranks = len(machine.ranks)
    if collective == "sendrecv":
        starts = range(ranks) if ranks <= _ALL_PAIRS else range(1)
        return max(machine.quickest(rank)[(rank + 1) % ranks] for rank in starts)
    whole = collective in ("all_reduce", "all_gather", "broadcast", "reduce")
    bounds = block_bounds(size_bytes, ranks)
    others = [rank for rank in range(ranks) if whole or bounds[rank + 1] > bounds[rank]]
    # Block 0 is never empty, so rank 0 has something to say in every collective without a root.
    reached = machine.quickest(root if collective in ROOTED else 0, towards=collective in ("reduce", "gather"))
    return max(reached[rank] for rank in others)


def _each_alone(router: Router) -> _Sets:
    """Return the rates at which every rank can send and receive.

    The links that its routes start and end with, and those to switches that add or copy; or simply all it has.
    """
    ranks = len(router.ranks)
    leaving: dict[str, list[int]] = {node: [] for node in router.ranks}
    entering: dict[str, list[int]] = {node: [] for node in router.ranks}
    for edge, (source, target) in enumerate(router.edges):
        if source in leaving:
            leaving[source].append(edge)
        if target in entering:
            entering[target].append(edge)
    if ranks <= _ALL_PAIRS and router.flows <= _ALL_FLOWS:
        others = [(a, b, flow) for a in range(ranks) for b in range(ranks) if a != b for flow in range(router.flows)]
        paths = [path for pair in others if (path := _path(router, *pair))]
        first, last = {path[0] for path in paths}, {path[-1] for path in paths}
        for node in router.ranks:
            leaving[node] = [edge for edge in leaving[node] if edge in first or _works(router, router.edges[edge][1])]
            entering[node] = [edge for edge in entering[node] if edge in last or _works(router, router.edges[edge][0])]
    out, into = ([_summed_rate(router, side[node]) for node in router.ranks] for side in (leaving, entering))
    return _Sets(np.arange(ranks), out, into)


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
    for (source, target), link in zip(router.edges, router.links, strict=True):
        here, there = router.hosts[router.index[source]], router.hosts[router.index[target]]
        if here != there:
            out[here] = out.get(here, 0.0) + link.bandwidth_bytes_per_s
            into[there] = into.get(there, 0.0) + link.bandwidth_bytes_per_s
    infinite = float("inf")
    return {name: (out.get(name, infinite), into.get(name, infinite)) for name in router.hosts}


def _works(router: Router, node: str) -> bool:
    """Say whether a node can add or copy, so that data may take its links whatever the routes between ranks are."""
    return any(able[router.index[node]] for able in router.abilities.values())


def _summed_rate(router: Router, edges: list[int]) -> float:
    return float(sum(router.links[edge].bandwidth_bytes_per_s for edge in edges))


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


def _crossing(regions: _Regions, set_of: npt.NDArray[np.int64], sets: int) -> tuple[list[int], list[int]]:
    """Return the fewest bytes that must leave and enter each of several sets of ranks, none of which is all of them."""
    everyone = regions.size[(regions.owner < 0) & (regions.receiver < 0)].sum()
    leaves, enters = np.full(sets, everyone), np.full(sets, everyone)
    owned, received = regions.owner >= 0, regions.receiver >= 0
    # What all own or all want concerns every set but that of its one receiver or owner, which it still enters or leaves.
    for most, few, one, end in (
        (leaves, enters, received & ~owned, regions.receiver),
        (enters, leaves, owned & ~received, regions.owner),
    ):
        most += regions.size[one].sum()
        np.subtract.at(most, set_of[end[one]], regions.size[one])
        np.add.at(few, set_of[end[one]], regions.size[one])
    both = owned & received
    source, target = set_of[regions.owner[both]], set_of[regions.receiver[both]]
    apart = source != target
    np.add.at(leaves, source[apart], regions.size[both][apart])
    np.add.at(enters, target[apart], regions.size[both][apart])
    return leaves.tolist(), enters.tolist()


def _crossing_alltoall(
    blocks: npt.NDArray[np.int64], set_of: npt.NDArray[np.int64], sets: int
) -> tuple[list[int], list[int]]:
    """Return what `_crossing` would for an all-to-all, whose regions are too many to list."""
    wanted = np.zeros(sets, np.int64)
    np.add.at(wanted, set_of, blocks)
    total, ranks = int(blocks.sum()), len(blocks)
    pairs = list(zip(wanted.tolist(), np.bincount(set_of, minlength=sets).tolist(), strict=True))
    return [members * (total - own) for own, members in pairs], [(ranks - members) * own for own, members in pairs]


def _volume(regions: _Regions, ranks: int) -> int:
    """Return the fewest bytes that all ranks together must send where only ranks add and copy.

    A region takes one transfer less than it has owners to add up, one less than it has receivers to spread, and one
    more where no receiver owns anything of it.
    """
    owners, receivers = (np.where(end < 0, ranks, 1) for end in (regions.owner, regions.receiver))
    apart = (regions.owner >= 0) & (regions.receiver >= 0) & (regions.owner != regions.receiver)
    return int((regions.size * (owners + receivers - 2 + apart)).sum())
