"""The readable reference engine: one SimPy process a lane, a free-at clock a link, one event a hop.

A lane walks its operations in program order. It waits for what an operation requires, asks the first link, and is free
again when the last byte has left that link. Each further link is asked by an event at its own time, or at once where
it follows one other link alone; the event of the delivery is what dependents wait on, and it exists only where somebody
waits. There is no Resource, no Store and no
process a message: those cost ten times as much for the same answer.

Events are put into SimPy's queue at absolute times under the key (time, stage, operation, hop, piece): stage 2 holds
milestones, stage 3 link requests, above SimPy's own urgent and normal priorities. This reaches into `Environment._queue`,
which is private; the dependency is pinned to SimPy 4 and a test guards it.

The functions of a run are closures over its state, and constants sit in tuples: attribute look-ups on a run object
would cost a third of the speed.
"""

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import heappush
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from simpy import Environment

from netsim.engine.links import on_grid
from netsim.engine.prepare import EARLY, END_ONCE, END_SHARED, HEAD_SHARED, LEFT_SHARED, POSTED, Prepared, Trace
from netsim.schedule.dag import END, HEAD, LEFT

MILESTONE_STAGE = 2
REQUEST_STAGE = 3

# Operations turned into Python objects at a time: at most so many in all lanes together (some 100 bytes each), to hold
# memory to what is in flight; and in one lane no fewer than pay for the conversion and no more than are of any use.
_AHEAD, _LEAST, _MOST = 2**20, 64, 4096


class EngineEvent:
    """An event of this engine: what SimPy asks of one, in slots."""

    __slots__ = ("at", "callbacks", "tail")
    _ok = True
    _value = None

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] | None = []
        self.at = 0.0
        self.tail = 0.0


class _Hop:
    """A message on its way to its next link."""

    __slots__ = ("callbacks", "key", "link", "tail")
    callbacks: tuple[Callable[[Any], None], ...] | None
    key: int
    link: Any
    tail: float
    _ok = True
    _value = None


Requirements = list[tuple[int, int, float]]
Program = Iterator[tuple[int, int, int, float, float, int, Requirements | None]]


def run_simpy(prepared: Prepared, trace: Trace | None = None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Run a prepared schedule of whole messages; `trace` is given every service of a link.

    Returns
    -------
    start, end : ndarray of float, shape (operations,)
        Seconds; nan for an operation that never ran.
    """
    env = Environment()
    count = len(prepared.schedule)
    starts = array("d", [np.nan]) * count
    ends = array("d", [np.nan]) * count
    lane = _lanes(env, prepared, starts, ends, trace)
    for number in range(len(prepared.schedule.lane_names)):
        env.process(lane(program(prepared, number)))
    env.run()
    return np.frombuffer(starts) if count else np.empty(0), np.frombuffer(ends) if count else np.empty(0)


def program(prepared: Prepared, lane: int) -> Program:
    """Yield what a lane does, in order: (operation, class, need, hold, work, mode, requirements).

    The requirements are (operation, milestone, lag) triples; None in blocks where `need` says it all.
    """
    schedule = prepared.schedule
    first, last = int(prepared.lane_start[lane]), int(prepared.lane_start[lane + 1])
    block = min(_MOST, max(_LEAST, _AHEAD // len(schedule.lane_names)))
    for begin in range(first, last, block):
        ops = prepared.lane_order[begin : min(begin + block, last)]
        need = prepared.need[ops]
        columns = (ops, prepared.op_class[ops], need, prepared.hold[ops], prepared.work[ops], prepared.mode[ops])
        wants: Iterable[Requirements | None] = repeat(None, len(ops))
        if (need == -2).any():
            wants = _requirements(prepared, ops)
        yield from zip(*(column.tolist() for column in columns), wants, strict=True)


def _requirements(prepared: Prepared, ops: npt.NDArray[np.int64]) -> list[Requirements]:
    """Return the requirements of several operations as Python objects, converted in one go."""
    schedule = prepared.schedule
    starts, stops = schedule.requires_start[ops], schedule.requires_start[ops + 1]
    ends = np.cumsum(stops - starts)
    places = np.arange(ends[-1]) - np.repeat(ends - (stops - starts) - starts, stops - starts)
    columns = (schedule.requires_op[places], schedule.requires_milestone[places], prepared.lag[places])
    triples = list(zip(*(column.tolist() for column in columns), strict=True))
    bounds = [0, *ends.tolist()]
    return [triples[begin:end] for begin, end in pairwise(bounds)]


def waiters_of(prepared: Prepared) -> dict[int, int]:
    """Return how many operations wait for each milestone that is kept, under operation * 3 + milestone."""
    schedule = prepared.schedule
    keys, counts = np.unique(schedule.requires_op * 3 + schedule.requires_milestone, return_counts=True)
    once = np.array([kind.watch & END_ONCE for kind in prepared.classes] or [0])
    kept = (keys % 3 != END) | (once[prepared.op_class[keys // 3]] == 0)
    return dict(zip(keys[kept].tolist(), counts[kept].tolist(), strict=True))


def _routes(prepared: Prepared, tandem: bool) -> list[list[Any]]:
    """Return for every class and piece its first link as (watch, link, gap, serialisation, floor, latency, next, at once).

    `next` is such a tuple again, so that a message on its way needs no index, and `at once` says whether it may be asked
    without an event; a compute operation has link -1. Pieces that behave alike share their tuple.
    """
    links = prepared.links
    routes: list[list[Any]] = []
    for kind in prepared.classes:
        if not kind.path:
            routes.append([(kind.watch, -1, 0.0, 0.0, 0.0, 0.0, None, False)])
            continue
        known: dict[tuple[float, ...], Any] = {}
        bounds = kind.piece_bounds()
        pieces = []
        for number, (first, stop) in enumerate(bounds):
            # The gap is paid once, by the first piece; only the last is delivered to those who watch the end.
            times = tuple(links.serialisation(link, stop) - links.serialisation(link, first) for link in kind.path)
            watch = kind.watch if number == len(bounds) - 1 else -1
            key = (*times, watch, number == 0)
            if key not in known:
                hop: Any = None
                for link, serialisation in zip(reversed(kind.path), reversed(times), strict=True):
                    gap = links.gap[link] if number == 0 else 0.0
                    at_once = hop is not None and tandem and bool(prepared.tandem[hop[1]])
                    hop = (watch, link, gap, serialisation, links.floor[link], links.latency[link], hop, at_once)
                known[key] = hop
            pieces.append(known[key])
        routes.append(pieces)
    return routes


def _lanes(
    env: Environment, prepared: Prepared, starts: "array[float]", ends: "array[float]", trace: Trace | None
) -> Callable[[Program], Generator[Any, None, None]]:
    """Return the process function of a lane, closed over the state that all lanes share."""
    queue: list[Any] = env._queue
    # A run that is to be noted asks every link by an event, so that one place notes it.
    routes = _routes(prepared, tandem=trace is None)
    most = max(map(len, routes), default=1)
    # Keys: ((operation * width) + hop) * most + piece.
    span = most * (4 + max((len(kind.path) for kind in prepared.classes), default=0))
    free = [0.0] * len(prepared.links)
    once: dict[int, EngineEvent] = {}  # deliveries with one dependent: whoever comes first leaves the event here
    kept: dict[int, EngineEvent] = {}  # milestones with several dependents, under operation * 3 + milestone
    remaining = waiters_of(prepared)
    shared = [bool(kind.path) and not prepared.exclusive[kind.path[0]] for kind in prepared.classes]
    wires = [kind.wire for kind in prepared.classes]
    stops = [[stop for _, stop in kind.piece_bounds()] for kind in prepared.classes]
    alone = [bool(kind.watch & END_ONCE) for kind in prepared.classes]
    op_class = prepared.op_class
    push = heappush

    def announce(op: int, milestone: int, at: float, tail: float) -> None:
        """Put a milestone that several operations may wait for into the queue."""
        event = kept.setdefault(op * 3 + milestone, EngineEvent())
        event.at = at
        event.tail = tail
        push(queue, (at, MILESTONE_STAGE, op * span + milestone, event))

    def deliver(op: int, watch: int, head: float, tail: float) -> None:
        if watch < 0:  # a piece, and not the last
            return
        ends[op] = tail
        if watch & END_ONCE:
            event = once.pop(op, None)
            if event is None:
                event = once[op] = EngineEvent()
            push(queue, (tail, MILESTONE_STAGE, op * span, event))
        elif watch & END_SHARED:
            announce(op, END, tail, tail)
        if watch & HEAD_SHARED:
            announce(op, HEAD, head, tail)

    def compute(op: int, watch: int, begun: float, at: float) -> float:
        """Note an operation without links, whose time has passed on its lane."""
        starts[op] = begun
        deliver(op, watch, at, at)
        if watch & LEFT_SHARED:
            announce(op, LEFT, at, at)
        return at

    def send(op: int, piece: int, route: Any, ask: float, tail: float) -> float:
        """Serve a message at its first link, send it on, and return when its last byte has left; `tail`: not before."""
        watch, link, gap, serialisation, floor, latency, following, at_once = route
        start: float = free[link]
        if ask > start:
            start = ask
        if not piece:
            starts[op] = start
        lead = start + gap
        done: float = lead + serialisation
        if start + floor > done:
            done = start + floor
        free[link] = done
        # What follows another's bytes cannot have left before the last of them came, nor before its lane has made it.
        left = done if done > tail else tail
        if following is None:
            deliver(op, watch, lead + latency, left + latency)
        elif at_once:
            onward(op * span + piece, following, lead + latency, left + latency, None)
        else:
            hop = _Hop()
            hop.link = following
            hop.tail = left + latency
            hop.key = key = op * span + most + piece
            hop.callbacks = arrivals
            push(queue, (lead + latency, REQUEST_STAGE, key, hop))
        if watch > 0 and watch & LEFT_SHARED:
            announce(op, LEFT, left, left)
        return left

    def onward(key: int, route: Any, head: float, tail: float, hop: _Hop | None) -> None:
        """Serve a message at a further link, and at those that can be asked at once; then send it on or deliver it."""
        at_once = True
        while at_once:
            watch, link, gap, serialisation, floor, latency, route, at_once = route
            start = free[link]
            if head > start:
                start = head
            lead = start + gap
            done = lead + serialisation
            if start + floor > done:
                done = start + floor
            free[link] = done
            if done > tail:
                tail = done
            tail += latency
            head = lead + latency
            key += most
        if route is None:
            deliver(key // span, watch, head, tail)
            return
        if hop is None:
            hop = _Hop()
        hop.link = route
        hop.tail = tail
        hop.key = key
        hop.callbacks = arrivals
        push(queue, (head, REQUEST_STAGE, key, hop))

    def arrive(event: _Hop) -> None:
        """Serve a message at its next link."""
        onward(event.key, event.link, env._now, event.tail, event)

    def ask_later(op: int, route: Any, ask: float, tail: float) -> None:
        """Ask a shared first link at a later time, on behalf of a lane that goes on."""

        def asked(_: EngineEvent) -> None:
            first(op, 0, route, ask, tail)

        event = EngineEvent()
        event.callbacks = [asked]
        push(queue, (ask, REQUEST_STAGE, op * span, event))

    def feed(op: int, number: int, ask: float, made: float, work: float) -> Generator[Any, None, float]:
        """Make a message and feed it to its first link piece by piece; return when its last byte has left.

        A piece asks when its making begins; no more than two of a message are before the link.
        """
        last = left = sofar = 0.0
        wire, by_event = wires[number], shared[number]
        for piece, (route, stop) in enumerate(zip(routes[number], stops[number], strict=True)):
            begun = made if made > last else last
            upto = on_grid(work * stop / wire)
            made = begun + (upto - sofar)
            sofar = upto
            if begun > ask:
                ask = begun
            if by_event:
                event = EngineEvent()
                push(queue, (ask, REQUEST_STAGE, op * span + piece, event))
                yield event
            last = left
            left = first(op, piece, route, ask, made)
        return left

    def noted_send(op: int, piece: int, route: Any, ask: float, tail: float) -> float:
        """Do as `send` does, and note the service."""
        link = route[1]
        start = max(free[link], ask)
        left = send(op, piece, route, ask, tail)
        if trace is not None:
            trace.append((op, piece, 0, link, ask, start, free[link]))
        return left

    def noted_arrive(event: _Hop) -> None:
        """Do as `arrive` does, and note the service."""
        now, link = env._now, event.link[1]
        op, rest = divmod(event.key, span)
        hop, piece = divmod(rest, most)
        start = max(free[link], now)
        arrive(event)
        if trace is not None:
            trace.append((op, piece, hop, link, now, start, free[link]))

    # Only a run that is to be noted pays for it.
    first, arrivals = (send, (arrive,)) if trace is None else (noted_send, (noted_arrive,))

    def lane(operations: Program) -> Generator[Any, None, None]:
        lane_free = 0.0
        for op, number, need, hold, work, mode, wants in operations:
            ask = 0.0
            tail = 0.0
            if need >= 0:
                event = once.pop(need, None)
                if event is None:
                    event = once[need] = EngineEvent()
                    yield event
                elif event.callbacks is not None:
                    yield event
            elif need == -2:
                for wanted, milestone, later in wants or ():
                    if milestone == END and alone[op_class[wanted]]:
                        event = once.pop(wanted, None)
                        if event is None:
                            event = once[wanted] = EngineEvent()
                            yield event
                        elif event.callbacks is not None:
                            yield event
                        continue
                    key = wanted * 3 + milestone
                    event = kept.get(key)
                    if event is None:
                        event = kept[key] = EngineEvent()
                    if event.callbacks is not None:
                        yield event
                    if event.at + later > ask:
                        ask = event.at + later
                    if milestone == HEAD and event.tail > tail:
                        tail = event.tail
                    remaining[key] -= 1
                    if not remaining[key]:
                        del remaining[key], kept[key]
            now = env._now
            if now > ask:
                ask = now
            if mode & EARLY:
                begun = lane_free
                lane_free += hold
                if lane_free > ask:
                    ask = lane_free
            else:
                if lane_free > ask:
                    ask = lane_free
                begun = ask
                ask += hold
                lane_free = ask
            # From here on `lane_free` is when the making of the message begins.
            pieces = routes[number]
            route = pieces[0]
            if route[1] < 0:
                # What follows another's bytes is not over before the last of them came.
                lane_free = compute(op, route[0], begun, ask if ask > tail else tail)
            elif len(pieces) > 1:
                lane_free = yield from feed(op, number, ask, lane_free, work)
            else:
                if work and lane_free + work > tail:
                    tail = lane_free + work
                if not shared[number]:
                    lane_free = first(op, 0, route, ask, tail)
                elif mode & POSTED:
                    ask_later(op, route, ask, tail)
                    lane_free = ask
                else:
                    event = EngineEvent()
                    push(queue, (ask, REQUEST_STAGE, op * span, event))
                    yield event
                    lane_free = first(op, 0, route, ask, tail)
            if mode & POSTED:
                lane_free = ask

    return lane
