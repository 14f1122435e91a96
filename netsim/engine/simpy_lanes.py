"""The readable reference engine: one SimPy process a lane, a free-at clock a link, one event a hop.

A lane walks its operations in program order. It waits for what an operation requires, asks the first link, and is free
again when the last byte has left that link. Each further link is asked by an event at its own time, or at once where it
follows one other link alone; the event of the delivery is what dependents wait on, and it exists only where somebody
waits. There is no Resource, no Store and no process a message: those cost ten times as much for the same answer.

Events are put into SimPy's queue in the order of `netsim.engine.program`. This reaches into `Environment._queue`, which is
private; the dependency is pinned to SimPy 4 and a test guards it.

The functions of a run are closures over its state, and constants sit in tuples: attribute look-ups on a run object
would cost a third of the speed.
"""

from array import array
from collections.abc import Callable, Generator
from heapq import heappush
from typing import Any

import numpy as np
import numpy.typing as npt
from simpy import Environment

from netsim.engine.links import on_grid
from netsim.engine.prepare import EARLY, END_ONCE, END_SHARED, HEAD_SHARED, LEFT_SHARED, POSTED, Prepared, Trace
from netsim.engine.program import (
    MILESTONE_STAGE,
    REQUEST_STAGE,
    EngineEvent,
    Program,
    program,
    routes_of,
    waiters_of,
)
from netsim.schedule.dag import END, HEAD, LEFT


class _Hop:
    """A message on its way to its next link."""

    __slots__ = ("callbacks", "key", "link", "tail")
    callbacks: tuple[Callable[[Any], None], ...] | None
    key: int
    link: Any
    tail: float
    _ok = True
    _value = None


class _Feed:
    """A lane that makes a message and feeds it to a link that others ask too: the event of its next piece."""

    __slots__ = ("callbacks", "done", "last", "left", "made", "number", "op", "piece", "sofar", "work")
    callbacks: tuple[Callable[[Any], None], ...] | None
    _ok = True
    _value = None

    def __init__(self, op: int, number: int, made: float, work: float) -> None:
        self.op, self.number, self.made, self.work = op, number, made, work
        self.piece = 0
        self.last = self.left = self.sofar = 0.0
        self.done = EngineEvent()


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


def _lanes(
    env: Environment, prepared: Prepared, starts: "array[float]", ends: "array[float]", trace: Trace | None
) -> Callable[[Program], Generator[Any, None, None]]:
    """Return the process function of a lane, closed over the state that all lanes share."""
    queue: list[Any] = env._queue
    # A run that is to be noted asks every link by an event, so that one place notes it.
    routes = routes_of(prepared, tandem=trace is None)
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

    def feed(event: _Feed, ask: float) -> float:
        """Begin to make the next piece of a message, and return when it asks.

        A piece asks when its making begins; no more than two of a message are before the link.
        """
        made, last, number = event.made, event.last, event.number
        begun = made if made > last else last
        upto = on_grid(event.work * stops[number][event.piece] / wires[number])
        event.made = begun + (upto - event.sofar)
        event.sofar = upto
        return begun if begun > ask else ask

    def feed_alone(event: _Feed, ask: float) -> float:
        """Feed a whole message to a link that no other lane asks; return when its last byte has left."""
        for piece, route in enumerate(routes[event.number]):
            event.piece = piece
            ask = feed(event, ask)
            event.last = event.left
            event.left = first(event.op, piece, route, ask, event.made)
        return event.left

    def fed(event: _Feed) -> None:
        """Serve the piece whose turn it is and come back for the next; with the last one the lane goes on."""
        number, piece = event.number, event.piece
        pieces = routes[number]
        ask = env._now
        event.last = event.left
        event.left = first(event.op, piece, pieces[piece], ask, event.made)
        piece += 1
        if piece == len(pieces):
            done = event.done
            callbacks, done.callbacks = done.callbacks, None
            for callback in callbacks or ():
                callback(done)
            return
        event.piece = piece
        event.callbacks = feeding
        push(queue, (feed(event, ask), REQUEST_STAGE, event.op * span + piece, event))

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

    feeding = (fed,)
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
                feeder = _Feed(op, number, lane_free, work)
                if shared[number]:
                    feeder.callbacks = feeding
                    push(queue, (feed(feeder, ask), REQUEST_STAGE, op * span, feeder))
                    yield feeder.done
                    lane_free = feeder.left
                else:
                    lane_free = feed_alone(feeder, ask)
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
