"""The reference engine for messages that travel in pieces: a quantum on the links, or a node that stores and forwards.

The same lanes, links and keys as `simpy_lanes`, without its shortcuts: the next piece asks the first link when the one
before has been served (or, where a lane feeds the link in pieces, when the lane begins to make it), pieces travel as
messages, and the gap is paid once, by the first piece. n / B of the pieces adds
up to n / B of the whole to the last bit, so a quantum changes no uncontended time. A piece whose operation follows the
head of others waits for the same piece of each of them, or for all of one that travels in other pieces.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import heappush
from typing import Any

import numpy as np
import numpy.typing as npt
from simpy import Environment

from netsim.engine.classes import OpClass
from netsim.engine.links import on_grid
from netsim.engine.prepare import EARLY, END_ONCE, END_SHARED, HEAD_SHARED, LEFT_SHARED, POSTED, Prepared, Trace
from netsim.engine.program import MILESTONE_STAGE, REQUEST_STAGE, EngineEvent, program
from netsim.schedule.dag import END, HEAD, LEFT

_WATCHED_BY = {END: END_ONCE | END_SHARED, LEFT: LEFT_SHARED, HEAD: HEAD_SHARED}


@dataclass
class _Piece:
    """One piece on its way, and the event of its next request."""

    op: int
    kind: OpClass
    number: int
    tail: float
    hop: int = 0
    callbacks: list[Any] | None = field(default_factory=list)
    _ok = True
    _value = None


class PiecesRun:
    """One run; `run` returns start and end of every operation as `simpy_lanes.run_simpy` does."""

    def __init__(self, prepared: Prepared, trace: Trace | None = None) -> None:
        self.prepared = prepared
        self.trace = trace
        self.links = prepared.links
        count = len(prepared.schedule)
        self.start = np.full(count, np.nan)
        self.end = np.full(count, np.nan)
        self.free = [0.0] * len(self.links)
        self.first_start: dict[tuple[int, int], float] = {}
        self.milestones: dict[tuple[int, int, int], EngineEvent] = {}
        keys = prepared.schedule.requires_op * 3 + prepared.schedule.requires_milestone
        self.waiters = dict(zip(*(column.tolist() for column in np.unique(keys, return_counts=True)), strict=True))
        self.taken: dict[tuple[int, int, int], int] = {}
        self.env = Environment()
        self._queue: list[Any] = self.env._queue
        hops = max((len(kind.path) for kind in prepared.classes), default=0)
        self.pieces = max((kind.pieces for kind in prepared.classes), default=1)
        self.width = hops + 4

    def run(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Run to the end of the event queue."""
        for number in range(len(self.prepared.schedule.lane_names)):
            self.env.process(self._lane(number))
        self.env.run()
        return self.start, self.end

    def _lane(self, number: int) -> Generator[Any, None, None]:
        lane_free = 0.0
        for op, class_number, need, hold, work, mode, wants in program(self.prepared, number):
            kind = self.prepared.classes[class_number]
            ready = tail = 0.0
            heads = []
            for wanted, milestone, lag in wants or ([(need, END, 0.0)] if need >= 0 else []):
                pieces = self.prepared.classes[self.prepared.op_class[wanted]].pieces
                follows = milestone == HEAD and pieces == kind.pieces and bool(kind.path)
                # What travels in other pieces is followed when the last of it is there.
                piece = pieces - 1 if milestone == HEAD and pieces != kind.pieces else 0
                event = self._milestone(wanted, milestone, piece)
                if event.callbacks is not None:
                    yield event
                if milestone == HEAD:
                    tail = max(tail, event.tail)
                if follows:
                    heads.append((wanted, lag))
                else:
                    self._take(wanted, milestone, piece)
                late = milestone == HEAD and pieces != kind.pieces
                ready = max(ready, (event.tail if late else event.at) + lag)
            ready = max(ready, self.env.now)
            begun = lane_free if mode & EARLY else max(ready, lane_free)
            making = begun + hold
            ask = max(ready, making)
            if not kind.path:
                self.start[op] = begun
                # What follows another's bytes is not over before the last of them came.
                lane_free = self.end[op] = max(ask, tail)
                for milestone in (END, LEFT, HEAD):
                    self._announce(op, kind, milestone, 0, lane_free, lane_free)
                continue
            pieces = self._pieces(op, kind, heads, ask, making, work)
            if mode & POSTED:
                self.env.process(pieces)
                lane_free = ask
            else:
                lane_free = yield from pieces

    def _pieces(
        self, op: int, kind: OpClass, heads: list[tuple[int, float]], ask: float, making: float, work: float
    ) -> Generator[Any, None, float]:
        """Send an operation piece by piece and return when its last byte has left."""
        left = before = sofar = 0.0
        for piece, (_, stop) in enumerate(kind.piece_bounds()):
            begun = max(making, before) if kind.fed else making
            upto = on_grid(work * stop / kind.wire) if stop else on_grid(work)
            making = begun + (upto - sofar)
            sofar = upto
            ask = max(ask, begun)
            tail = making if work else 0.0
            for wanted, lag in heads:
                event = self._milestone(wanted, HEAD, piece)
                if event.callbacks is not None:
                    yield event
                ask = max(ask, event.at + lag, self.env.now)
                tail = max(tail, event.tail)
                self._take(wanted, HEAD, piece)
            request = EngineEvent()
            self._push(ask, REQUEST_STAGE, op, 0, piece, request)
            yield request
            done = self._serve(_Piece(op, kind, piece, tail), ask)
            before = left
            left = max(left, done, tail)
            if not kind.fed:
                ask = done
        self._announce(op, kind, LEFT, 0, left, left)
        return left

    def _serve(self, piece: _Piece, ask: float) -> float:
        """Serve a piece at its next link, send it on, and return when that link is free again."""
        kind, links = piece.kind, self.links
        link = kind.path[piece.hop]
        start = max(self.free[link], ask)
        last = piece.number == kind.pieces - 1
        sent = piece.number * kind.piece
        upto = kind.wire if last else sent + kind.piece
        serialisation = links.serialisation(link, upto) - links.serialisation(link, sent)
        lead = start + (links.gap[link] if piece.number == 0 else 0.0)
        done = lead + serialisation
        if links.floor[link]:
            first = start if piece.number == 0 else self.first_start[piece.op, piece.hop]
            self.first_start[piece.op, piece.hop] = first
            if last:
                done = max(done, first + links.floor[link])
                del self.first_start[piece.op, piece.hop]
        self.free[link] = done
        if self.trace is not None:
            self.trace.append((piece.op, piece.number, piece.hop, link, ask, start, done))
        if piece.hop == 0 and piece.number == 0:
            self.start[piece.op] = start
        head = lead + links.latency[link]
        piece.tail = max(piece.tail, done) + links.latency[link]
        piece.hop += 1
        if piece.hop == len(kind.path):
            self._announce(piece.op, kind, HEAD, piece.number, head, piece.tail)
            if last:
                self.end[piece.op] = piece.tail
                self._announce(piece.op, kind, END, 0, piece.tail, piece.tail)
        else:
            piece.callbacks = [self._arrive]
            stored = links.piece_bytes[link]
            self._push(piece.tail if stored else head, REQUEST_STAGE, piece.op, piece.hop, piece.number, piece)
        return done

    def _arrive(self, piece: _Piece) -> None:
        self._serve(piece, self.env.now)

    def _milestone(self, op: int, milestone: int, piece: int = 0) -> EngineEvent:
        return self.milestones.setdefault((op, milestone, piece), EngineEvent())

    def _take(self, op: int, milestone: int, piece: int = 0) -> None:
        """Note that one more dependent has seen a milestone, and forget it with the last of them."""
        key = (op, milestone, piece)
        count = self.taken.pop(key, 0) + 1
        if count == self.waiters[op * 3 + milestone]:
            del self.milestones[key]
        else:
            self.taken[key] = count

    def _announce(self, op: int, kind: OpClass, milestone: int, piece: int, at: float, tail: float) -> None:
        """Put a milestone into the queue if anybody waits for it."""
        if not kind.watch & _WATCHED_BY[milestone]:
            return
        event = self._milestone(op, milestone, piece)
        event.at = at
        event.tail = tail
        self._push(at, MILESTONE_STAGE, op, milestone, piece, event)

    def _push(self, at: float, stage: int, op: int, hop: int, piece: int, event: Any) -> None:
        key = (op * self.width + hop) * self.pieces + piece
        heappush(self._queue, (at, stage, key, event))
