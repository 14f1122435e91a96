"""What every engine needs before the clock starts: routes, classes of operations, lanes, and who waits for what.

Operations that take the same route with the same bytes and are watched in the same way behave alike, so they share one
*class*; engines look constants up by class and touch no graph. A first link that one lane alone feeds may be asked
without an event of its own, and so may a link that one other link alone feeds, because the order of what comes is that
link's; which links those are is decided here, once, for all engines.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from netsim.engine.classes import ClassTable, OpClass
from netsim.engine.links import Floats, LinkTable, array_on_grid, link_table
from netsim.errors import FabricError, ScheduleError
from netsim.routing import Path, Router
from netsim.schedule.dag import COMPUTE, END, HEAD, LEFT, LEG, OUTPUT, TRANSFER, TRUNK, Schedule

# How an operation's milestones are watched; bits of `OpClass.watch`.
END_ONCE = 1  # one dependent waits for the delivery, without a lag
END_SHARED = 2  # several dependents, or one with a lag
LEFT_SHARED = 4
HEAD_SHARED = 8

# What `Prepared.mode` says of an operation.
POSTED = 1
EARLY = 2

Trace = list[tuple[int, int, int, int, float, float, float]]
"""Services of links as an engine notes them: operation, piece, hop, link; asked, started, free again."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A schedule laid on a topology."""

    schedule: Schedule
    router: Router
    links: LinkTable
    table: ClassTable
    op_class: npt.NDArray[np.int32]
    """Index into `classes` of every operation."""
    exclusive: npt.NDArray[np.bool_]
    """For every link: one lane alone asks it, always as the first link."""
    tandem: npt.NDArray[np.bool_]
    """For every link: all that asks it comes from one and the same other link, so it is asked in that link's order."""
    lane_order: npt.NDArray[np.int64]
    """Operations sorted by lane, in program order within a lane."""
    lane_start: npt.NDArray[np.int64]
    """Lane i has ``lane_order[lane_start[i]:lane_start[i + 1]]``."""
    hold: Floats
    """Seconds that each operation holds its lane before it asks, on the grid."""
    work: Floats
    """Seconds in which the lane produces an operation's bytes, on the grid."""
    mode: npt.NDArray[np.uint8]
    """For each operation the sum of `POSTED` and `EARLY` where they apply."""
    lag: Floats
    """Lag of each requirement in seconds, on the grid."""
    need: npt.NDArray[np.int64]
    """For each operation: -1 requires nothing; i >= 0 the delivery of i, for which it alone waits; -2 anything else."""

    @property
    def classes(self) -> list[OpClass]:
        """The classes, one object each."""
        return self.table.objects

    @property
    def pieced(self) -> bool:
        """Whether a quantum is in force or any operation is stored on its way."""
        return not bool(self.table.plain.all())

    @property
    def messages(self) -> int:
        """Number of messages, counting the pieces; compute operations send none."""
        return int((self.numbers * np.where(self.table.hops > 0, self.table.pieces, 0)).sum())

    @cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """How many operations each class has."""
        return np.bincount(self.op_class, minlength=len(self.table))


def prepare(router: Router, schedule: Schedule, quantum_bytes: int = 0) -> Prepared:
    """Lay a schedule on a topology.

    Parameters
    ----------
    router : Router
        Routes between ranks.
    schedule : Schedule
        What to run.
    quantum_bytes : int
        Serve messages in pieces of this many bytes; 0 serves them whole.

    Raises
    ------
    FabricError
        If the topology has fewer GPUs than the schedule has ranks, or two ranks that talk have no route.
    ScheduleError
        If the schedule asks for something that no engine models yet.
    """
    if schedule.ranks > len(router.ranks):
        raise FabricError(
            f"the schedule has {schedule.ranks} ranks but the topology {router.graph.graph.get('name', '')!r} has "
            f"{len(router.ranks)} GPUs; use at most that many ranks"
        )
    if (schedule.resource >= 0).any():
        op = int(np.argmax(schedule.resource >= 0))
        raise ScheduleError(f"{schedule.describe(op)} occupies resource {schedule.resource[op]}; resources come later")
    links = link_table(router, schedule.protocol)
    paths, path_of = _paths(router, schedule)
    watch, need = _watched(schedule)
    rows, op_class = _unique_rows(path_of, schedule.wire, watch, schedule.feed)
    table = _table(links, paths, rows, quantum_bytes)
    lanes = len(schedule.lane_names)
    order = np.argsort(schedule.lane, kind="stable")
    starts = np.searchsorted(schedule.lane[order], np.arange(lanes + 1))
    return Prepared(
        schedule=schedule,
        router=router,
        links=links,
        table=table,
        op_class=op_class.astype(np.int32),
        exclusive=_exclusive(len(links), table, op_class, schedule.lane),
        tandem=table.follows_in_order(links),
        lane_order=order,
        lane_start=starts,
        hold=array_on_grid(schedule.duration),
        work=array_on_grid(schedule.work),
        mode=(schedule.posted * POSTED + schedule.early * EARLY).astype(np.uint8),
        lag=array_on_grid(schedule.requires_lag),
        need=need,
    )


def _paths(router: Router, schedule: Schedule) -> tuple[list[Path], npt.NDArray[np.int64]]:
    """Return the distinct routes and the index of each operation's; a compute operation has the empty route."""
    ranks, kind = schedule.ranks, schedule.kind
    groups = np.maximum(schedule.group, 0).astype(np.int64)
    up = np.isin(kind, (TRUNK, LEG))
    reduces = np.isin(kind, (LEG, OUTPUT))
    end = np.where(up | (kind == TRANSFER), schedule.src, schedule.dst).astype(np.int64)
    other = np.where(kind == TRANSFER, schedule.dst, groups)
    sort = np.where(kind == TRANSFER, 1, np.where(up, 2, 4) + reduces)
    sort = np.where(kind == COMPUTE, 0, sort)
    width = max(ranks, len(schedule.groups), 1)
    code = np.where(sort == 0, 0, (sort * ranks + np.maximum(end, 0)) * width + other)
    relays = int(schedule.via.max(initial=-1)) + 2
    # Which way a message takes between its ends: a flow, and a rank that it goes via, from 1 up, or none.
    ways, way_of = distinct(np.where(kind == TRANSFER, _flows(router, schedule, code) * relays + schedule.via + 1, 0))
    codes, path_of = distinct(code * len(ways) + way_of)
    rest, way = np.divmod(codes, len(ways))
    rest, target = np.divmod(rest, width)
    what, rank = np.divmod(rest, ranks)
    flow, via = np.divmod(ways[way], relays)
    paths: list[Path] = [()] * len(codes)
    direct = np.flatnonzero((what == 1) & (via == 0))
    pairs = zip(*(column[direct].tolist() for column in (rank, target, flow)), strict=True)
    for place, path in zip(direct.tolist(), router.paths(list(pairs)), strict=True):
        paths[place] = path
    for place in np.flatnonzero(via).tolist():
        over = int(via[place]) - 1
        paths[place] = router.path(int(rank[place]), over) + router.path(over, int(target[place]), int(flow[place]))
    switches: dict[tuple[int, str], int] = {}
    for place in np.flatnonzero(what > 1).tolist():
        ability, group = "reduce" if what[place] % 2 else "multicast", int(target[place])
        if (group, ability) not in switches:
            switches[group, ability] = router.switch(schedule.groups[group], ability)
        switch, member = switches[group, ability], int(rank[place])
        paths[place] = router.path_up(member, switch) if what[place] < 4 else router.path_down(switch, member)
    if len(ways) == 1:
        return paths, path_of
    # Flows that go the same way are alike.
    places: dict[Path, int] = {}
    place_of = np.array([places.setdefault(path, len(places)) for path in paths], np.int64)
    return list(places), place_of[path_of]


def _flows(router: Router, schedule: Schedule, code: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return by which of the flows between its ends each transfer goes: `code` tells the ends."""
    if router.flows > 1:
        return _turns(code) % router.flows
    # Hashed routes hash a message's flow; static ones have as many ways as ranks have network cards.
    flow = schedule.flow.astype(np.int64)
    return flow % router.ways if router.seed is None and flow.any() else flow


def distinct(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the sorted distinct values, zero or more, and the index of each: `np.unique` without a sort where it can be.

    A table of all values up to the largest takes a tenth of the time of sorting, as long as it is no longer than the input.
    """
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if values.strides == (0,):
        return values[:1].astype(np.int64), np.zeros(len(values), np.int64)
    largest = int(values.max())
    if largest > 4 * len(values):
        found = np.unique(values)
        if len(found) > 1024:
            return np.unique(values, return_inverse=True)
        return found, np.searchsorted(found, values)
    there = np.zeros(largest + 1, np.bool_)
    there[values] = True
    found = np.flatnonzero(there)
    place = np.empty(largest + 1, np.int64)
    place[found] = np.arange(len(found))
    return found, place[values]


def _turns(code: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count for every operation how many with the same code stand before it."""
    order = np.argsort(code, kind="stable")
    places = np.arange(len(code))
    first = np.ones(len(code), np.bool_)
    first[1:] = code[order][1:] != code[order][:-1]
    turns = np.empty(len(code), np.int64)
    turns[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return turns


def _watched(schedule: Schedule) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the watch bits of every operation, and what each waits for in the short form of `Prepared.need`."""
    count = len(schedule)
    needed, milestone = schedule.requires_op, schedule.requires_milestone
    watch = np.zeros(count, np.int64)
    for which, bit in ((LEFT, LEFT_SHARED), (HEAD, HEAD_SHARED)):
        watch[needed[milestone == which]] |= bit
    ends = milestone == END
    waiters = np.bincount(needed[ends], minlength=count)
    lagged = np.zeros(count, np.bool_)
    lagged[needed[ends & (schedule.requires_lag > 0)]] = True
    once = (waiters == 1) & ~lagged
    watch[once] |= END_ONCE
    watch[(waiters > 0) & ~once] |= END_SHARED
    numbers = np.diff(schedule.requires_start)
    need = np.where(numbers == 0, -1, -2)
    single = numbers == 1
    at = schedule.requires_start[:-1][single]
    simple = ends[at] & once[needed[at]]
    need[single] = np.where(simple, needed[at], -2)
    return watch, need


def _unique_rows(
    path_of: npt.NDArray[np.int64], wire: npt.NDArray[np.int64], watch: npt.NDArray[np.int64], feed: npt.NDArray[np.int64]
) -> tuple[tuple[npt.NDArray[np.int64], ...], npt.NDArray[np.int64]]:
    """Return the distinct (path, wire, watch, feed) as columns and the index of each operation's."""
    sizes, size_of = distinct(wire)
    feeds, feed_of = distinct(feed)
    code = ((path_of * len(sizes) + size_of) * len(feeds) + feed_of) * 16 + watch
    codes, op_class = distinct(code)
    rest, bits = np.divmod(codes, 16)
    rest, fed = np.divmod(rest, max(len(feeds), 1))
    path, size = np.divmod(rest, max(len(sizes), 1))
    return (path, sizes[size], bits, feeds[fed]), op_class


def _table(links: LinkTable, paths: list[Path], rows: tuple[npt.NDArray[np.int64], ...], quantum_bytes: int) -> ClassTable:
    """Return the classes; their operations travel in the smaller of the route's and the lane's pieces."""
    path, wire, watch, feed = rows
    # Most topologies have neither nodes that store nor floors, and then routes need no look at.
    piece, floored = np.full(len(wire), quantum_bytes), np.zeros(len(wire), np.bool_)
    if any(links.piece_bytes):
        piece = np.array([_piece(links, route, quantum_bytes) for route in paths], np.int64)[path]
    if any(links.floor):
        floored = np.array([any(links.floor[link] for link in route) for route in paths], np.bool_)[path]
    least = np.where((piece > 0) & (feed > 0), np.minimum(piece, feed), np.maximum(piece, feed))
    # What computes is one piece, so that it waits for all of what it follows, and is followed when it is over.
    least = np.where(np.array([bool(route) for route in paths], np.bool_)[path], least, 0)
    return ClassTable(paths, path, wire, watch, least, feed > 0, (piece == 0) & ~((feed > 0) & floored))


def _piece(links: LinkTable, path: Path, quantum_bytes: int) -> int:
    """Return the bytes of a piece on a route: the least that the quantum or a node that stores asks for; 0 for none."""
    stored = [links.piece_bytes[link] for link in path[:-1] if links.piece_bytes[link]]
    return min([*stored, quantum_bytes] if quantum_bytes else stored, default=0)


def _exclusive(
    links: int, table: ClassTable, op_class: npt.NDArray[np.int64], lane: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Return which links one lane alone asks, always as the first link; true of a link that nobody asks."""
    class_of, hop, link = table.flat
    first = np.full(len(table), links)
    first[class_of[hop == 0]] = link[hop == 0]
    first_of = first[op_class]
    only = np.full(links + 1, -1, lane.dtype)
    only[first_of] = lane  # the last to ask; alone if no other did
    exclusive = np.ones(links + 1, np.bool_)
    exclusive[first_of[only[first_of] != lane]] = False
    exclusive[link[hop > 0]] = False
    return exclusive[:links]
