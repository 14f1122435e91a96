"""The readable reference engine: one SimPy process a lane, a free-at clock a link, one event a hop.

A lane walks its operations in program order. It waits for what an operation requires, asks the first link, and is free
again when the last byte has left that link. Each further link is asked by an event at its own time; the event of the
delivery is what dependents wait on, and it exists only where somebody waits. There is no Resource, no Store and no
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

from netsim.engine.prepare import END_ONCE, END_SHARED, HEAD_SHARED, LEFT_SHARED, Prepared, Trace
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
Program = Iterator[tuple[int, int, int, float, bool, Requirements | None]]


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
    """Yield what a lane does, in order: (operation, class, need, hold, posted, requirements).

    The requirements are (operation, milestone, lag) triples; None in blocks where `need` says it all.
    """
    schedule = prepared.schedule
    first, last = int(prepared.lane_start[lane]), int(prepared.lane_start[lane + 1])
    block = min(_MOST, max(_LEAST, _AHEAD // len(schedule.lane_names)))
    for begin in range(first, last, block):
        ops = prepared.lane_order[begin : min(begin + block, last)]
        need = prepared.need[ops]
        columns = (ops, prepared.op_class[ops], need, prepared.hold[ops], schedule.posted[ops])
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


def _routes(prepared: Prepared) -> list[Any]:
    """Return the first link of every class as (watch, link, gap, serialisation, floor, latency, next link or None).

    The next link is such a tuple again, so that a message on its way needs no index; a compute operation has link -1.
    """
    links = prepared.links
    routes: list[Any] = []
    for kind in prepared.classes:
        hop: Any = None
        for link in reversed(kind.path):
            serialisation = links.serialisation(link, kind.wire)
            hop = (kind.watch, link, links.gap[link], serialisation, links.floor[link], links.latency[link], hop)
        routes.append(hop or (kind.watch, -1, 0.0, 0.0, 0.0, 0.0, None))
    return routes


def _lanes(
    env: Environment, prepared: Prepared, starts: "array[float]", ends: "array[float]", trace: Trace | None
) -> Callable[[Program], Generator[Any, None, None]]:
    """Return the process function of a lane, closed over the state that all lanes share."""
    queue: list[Any] = env._queue
    routes = _routes(prepared)
    width = 4 + max((len(kind.path) for kind in prepared.classes), default=0)  # keys: operation * width + hop
    free = [0.0] * len(prepared.links)
    once: dict[int, EngineEvent] = {}  # deliveries with one dependent: whoever comes first leaves the event here
    kept: dict[int, EngineEvent] = {}  # milestones with several dependents, under operation * 3 + milestone
    remaining = waiters_of(prepared)
    shared = [bool(kind.path) and not prepared.exclusive[kind.path[0]] for kind in prepared.classes]
    alone = [bool(route[0] & END_ONCE) for route in routes]
    op_class = prepared.op_class
    push = heappush

    def announce(op: int, milestone: int, at: float, tail: float) -> None:
        """Put a milestone that several operations may wait for into the queue."""
        event = kept.setdefault(op * 3 + milestone, EngineEvent())
        event.at = at
        event.tail = tail
        push(queue, (at, MILESTONE_STAGE, op * width + milestone, event))

    def deliver(op: int, watch: int, head: float, tail: float) -> None:
        ends[op] = tail
        if watch & END_ONCE:
            event = once.pop(op, None)
            if event is None:
                event = once[op] = EngineEvent()
            push(queue, (tail, MILESTONE_STAGE, op * width, event))
        elif watch & END_SHARED:
            announce(op, END, tail, tail)
        if watch & HEAD_SHARED:
            announce(op, HEAD, head, tail)

    def send(op: int, number: int, ask: float, tail: float, hold: float) -> float:
        """Serve an operation at its first link, send it on, and return when its last byte has left."""
        link: int
        watch, link, gap, serialisation, floor, latency, following = routes[number]
        if link < 0:  # compute: its time has passed on the lane
            starts[op] = ask - hold
            deliver(op, watch, ask, ask)
            if watch & LEFT_SHARED:
                announce(op, LEFT, ask, ask)
            return ask
        start = free[link]
        if ask > start:
            start = ask
        starts[op] = start
        lead = start + gap
        done: float = lead + serialisation
        if start + floor > done:
            done = start + floor
        free[link] = done
        # What follows another's bytes cannot have left before the last of them came.
        left = done if done > tail else tail
        tail = left + latency
        if following is None:
            deliver(op, watch, lead + latency, tail)
        else:
            hop = _Hop()
            hop.link = following
            hop.tail = tail
            hop.key = key = op * width + 1
            hop.callbacks = arrivals
            push(queue, (lead + latency, REQUEST_STAGE, key, hop))
        if watch & LEFT_SHARED:
            announce(op, LEFT, left, left)
        return left

    def ask_later(op: int, number: int, ask: float, tail: float) -> None:
        """Ask a shared first link at a later time, on behalf of a lane that goes on."""

        def asked(_: EngineEvent) -> None:
            first(op, number, ask, tail, 0.0)

        event = EngineEvent()
        event.callbacks = [asked]
        push(queue, (ask, REQUEST_STAGE, op * width, event))

    def arrive(event: _Hop) -> None:
        """Serve a message at its next link."""
        watch, link, gap, serialisation, floor, latency, following = event.link
        start = free[link]
        now = env._now
        if now > start:
            start = now
        lead = start + gap
        done = lead + serialisation
        if start + floor > done:
            done = start + floor
        free[link] = done
        tail = event.tail
        if done > tail:
            tail = done
        tail += latency
        if following is None:
            deliver(event.key // width, watch, lead + latency, tail)
        else:
            event.link = following
            event.tail = tail
            event.key += 1
            event.callbacks = arrivals
            push(queue, (lead + latency, REQUEST_STAGE, event.key, event))

    def noted_send(op: int, number: int, ask: float, tail: float, hold: float) -> float:
        """Do as `send` does, and note the service."""
        done = send(op, number, ask, tail, hold)
        link = routes[number][1]
        if link >= 0 and trace is not None:
            trace.append((op, 0, 0, link, ask, starts[op], free[link]))
        return done

    def noted_arrive(event: _Hop) -> None:
        """Do as `arrive` does, and note the service."""
        now, link = env._now, event.link[1]
        op, hop = divmod(event.key, width)
        start = max(free[link], now)
        arrive(event)
        if trace is not None:
            trace.append((op, 0, hop, link, now, start, free[link]))

    # Only a run that is to be noted pays for it.
    first, arrivals = (send, (arrive,)) if trace is None else (noted_send, (noted_arrive,))

    def lane(operations: Program) -> Generator[Any, None, None]:
        lane_free = 0.0
        for op, number, need, hold, posted, wants in operations:
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
            if lane_free > ask:
                ask = lane_free
            if hold:
                ask += hold
            if not shared[number]:
                done = first(op, number, ask, tail, hold)
            elif posted:
                ask_later(op, number, ask, tail)
                done = ask
            else:
                event = EngineEvent()
                push(queue, (ask, REQUEST_STAGE, op * width, event))
                yield event
                done = first(op, number, ask, tail, hold)
            lane_free = ask if posted else done

    return lane
