"""The chain of events that actually set a run's finish time, and what its time was spent on.

The walk begins at the last delivery and asks each time what came last: the requirement, the lane, the link. It needs a
record of every service (``record="links"``) and the schedule behind it, and no engine. Where `critical_path` follows
requirements on idle links and gives a bound, this follows what happened: its parts lie end to end from zero to the
finish, so they add up to the time exactly.

What the parts mean: *latency* is the way of a first byte or of the last one along a link, and the lag of a requirement;
*serialisation* is a link serving (gap and floor included) an operation of the chain; *waiting* is an operation of the
chain standing in a link's queue behind other lanes' messages; *compute* is a lane at work, no link
having been what it waited for; *launch* is time before the chain's first operation could begin. Where an operation stands
behind its own lane, the chain goes on along the lane: that is the order that the schedule asked for, not a queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from netsim.clock import on_grid
from netsim.errors import InternalError, NetsimError
from netsim.fabric import Link
from netsim.metrics.segments import PARTS, CriticalChain, Segment
from netsim.record import Record, Services
from netsim.schedule.dag import END, HEAD, LEFT, Schedule

__all__ = ["PARTS", "CriticalChain", "Segment", "critical_chain"]

Ints = npt.NDArray[np.int64]

_SAME = 1e-15
"""Times closer than this, or than this part of themselves, are one time: sums beyond 0.25 s are rounded."""


def critical_chain(schedule: Schedule, record: Record, link_of: Callable[[tuple[str, str]], Link]) -> CriticalChain:
    """Walk back from the last delivery to the start of a run.

    Parameters
    ----------
    schedule : Schedule
        What ran.
    record : Record
        The run, with the services of its links (``record="links"``).
    link_of : callable
        Returns the `Link` of a directed edge, for its latency and gap: ``lambda edge: graph.edges[edge]["link"]``.

    Returns
    -------
    CriticalChain
        Empty for a run of no time.

    Raises
    ------
    NetsimError
        If the record was kept without the services of its links.

    Examples
    --------
    >>> import netsim, topologies
    >>> graph = topologies.build("ideal-switch:8@450GB/s,1us")
    >>> schedule = netsim.build_schedule("all_reduce", "ring", 8, 2**26)
    >>> record = netsim.simulate(graph, schedule, record="links")
    >>> chain = critical_chain(schedule, record, lambda edge: graph.edges[edge]["link"])
    >>> {part: round(seconds * 1e6, 3) for part, seconds in chain.split_s().items()}
    {'latency': 14.0, 'serialisation': 260.979, 'waiting': 0.0, 'compute': 0.0, 'launch': 0.0}
    """
    if record.services is None:
        raise NetsimError("this record has no services of links; simulate with record='links'")
    if not record.time_s:
        return CriticalChain(())
    walk = _Walk(schedule, record, record.services, link_of)
    walk.run()
    return CriticalChain(tuple(reversed(walk.segments)))


_Step = tuple[str, int, int, int]
"""Where the walk stands: what happened (a name of `_Walk`'s steps), to which operation, piece and hop."""


@dataclass
class _Walk:
    """The walk itself: `at` moves from the finish to zero, each move leaving a segment behind."""

    schedule: Schedule
    record: Record
    services: Services
    link_of: Callable[[tuple[str, str]], Link]
    segments: list[Segment] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.schedule)
        rows = self.services
        self.first_row = np.searchsorted(rows.op, np.arange(count + 1))
        paths = rows.hop[self.first_row[1:] - 1] if len(rows) else np.full(count, -1)
        self.hops = np.where(np.diff(self.first_row) > 0, paths + 1, 0)
        lanes = np.argsort(self.schedule.lane, kind="stable")
        same = self.schedule.lane[lanes][1:] == self.schedule.lane[lanes][:-1]
        self.before = np.full(count, -1)
        self.before[lanes[1:][same]] = lanes[:-1][same]
        self.at = float(self.record.time_s)
        self.by_link: dict[int, Ints] = {}
        self.tails: dict[tuple[int, int], list[float]] = {}
        self.makings: dict[int, list[tuple[float, float]]] = {}
        self.costly = (self.schedule.work > 0) | (self.schedule.feed > 0)

    def run(self) -> None:
        """Walk until nothing came before."""
        step: _Step | None = self._end(int(np.argmax(self.record.end_s)))
        moves: dict[str, Callable[[int, int, int], _Step | None]] = {
            "end": self._from_end,
            "tail": self._from_tail,
            "free": self._from_free,
        }
        moves |= {"start": self._from_start, "ask": self._from_ask, "ready": self._from_ready}
        moves |= {"made": self._from_made, "begun": self._from_begun}
        # Each operation is visited at most once for each piece, hop and kind of step.
        patience = 8 * (len(self.services) + len(self.schedule)) + 8
        while step is not None:
            name, op, piece, hop = step
            step = moves[name](op, piece, hop)
            patience -= 1
            if patience < 0:
                raise InternalError(f"the critical chain of {self.schedule!r} runs in a circle")

    def _go(self, to_s: float, part: str, op: int, link: int = -1) -> None:
        """Move back in time; a stretch of no length leaves nothing."""
        to_s = min(max(to_s, 0.0), self.at)
        if to_s < self.at:
            self.segments.append(Segment(to_s, self.at, part, op, link))
            self.at = to_s

    def _same(self, one_s: float, other_s: float) -> bool:
        return abs(one_s - other_s) <= _SAME * max(1.0, abs(one_s))

    def _row(self, op: int, piece: int, hop: int) -> int:
        return int(self.first_row[op] + piece * self.hops[op] + hop)

    def _pieces(self, op: int) -> int:
        return int((self.first_row[op + 1] - self.first_row[op]) // self.hops[op])

    def _link(self, row: int) -> Link:
        return self.link_of(self.record.edges[self.services.link[row]]).under(self.schedule.protocol)

    def _followed(self, op: int, piece: int) -> tuple[float, int]:
        """Return when the last byte of what an operation follows was delivered, and what that is; (0, -1) for nothing."""
        heads = [need for need, milestone, _ in self.schedule.requirements(op) if milestone == HEAD]
        ends = [(self._come(need, op, piece), need) for need in heads]
        return max(ends, key=lambda found: (found[0], -found[1]), default=(0.0, -1))

    def _come(self, need: int, op: int, piece: int) -> float:
        """Return when a piece of what an operation follows had come, or all of it where they travel in other pieces."""
        if not self.hops[need] or self._apart(need, op):
            return float(self.record.end_s[need])
        return self._tail_of(need, piece)[-1]

    def _apart(self, need: int, op: int) -> bool:
        """Say whether two operations travel in different numbers of pieces; one without links is one piece."""
        return bool(self.hops[need]) and self._pieces(need) != (self._pieces(op) if self.hops[op] else 1)

    def _tail_of(self, op: int, piece: int) -> list[float]:
        return self.tails.get((op, piece)) or self._tails(op, piece)

    def _tails(self, op: int, piece: int) -> list[float]:
        """Return when a piece's last byte was at the end of each link of its route."""
        # What is followed comes first; a stack of our own, because a schedule may follow heads a thousand deep.
        todo = [op]
        while todo:
            needed = [need for need, milestone, _ in self.schedule.requirements(todo[-1]) if milestone == HEAD]
            missing = [
                need
                for need in needed
                if self.hops[need] and (need, piece) not in self.tails and not self._apart(need, todo[-1])
            ]
            if missing:
                todo += missing
                continue
            current = todo.pop()
            tail = max(self._followed(current, piece)[0], self._made(current, piece))
            found = []
            for hop in range(self.hops[current]):
                row = self._row(current, piece, hop)
                tail = max(tail, float(self.services.free_s[row])) + self._link(row).latency_s
                found.append(tail)
            self.tails[current, piece] = found
        return self.tails[op, piece]

    def _end(self, op: int) -> _Step:
        return ("end", op, 0, 0)

    def _from_end(self, op: int, piece: int, hop: int) -> _Step:
        """Go on from the delivery of an operation."""
        if not self.hops[op]:
            before, need = self._followed(op, 0)
            done = float(self.record.start_s[op] + self.record.hold_s[op])
            if need >= 0 and before > done and not self._same(before, done) and self._same(before, self.at):
                return ("tail", need, 0, int(self.hops[need]) - 1) if self.hops[need] else ("end", need, 0, 0)
            return ("ask", op, 0, 0)
        return ("tail", op, self._pieces(op) - 1, int(self.hops[op]) - 1)

    def _from_tail(self, op: int, piece: int, hop: int) -> _Step:
        """Go on from a last byte at the end of a link: served there last, or late from the link before."""
        row = self._row(op, piece, hop)
        free = float(self.services.free_s[row])
        before = self._tail_of(op, piece)[hop - 1] if hop else max(self._followed(op, piece)[0], self._made(op, piece))
        late = before > free or self._same(before, free)
        self._go(before if late and hop else max(free, before), "latency", op, self._at(row))
        if hop:
            return ("tail", op, piece, hop - 1) if late else ("free", op, piece, hop)
        return self._left(op, piece)

    def _left(self, op: int, piece: int) -> _Step:
        """Return what made a last byte leave its first link when it did: the link, its lane, or what it follows."""
        free = float(self.services.free_s[self._row(op, piece, 0)])
        before, need = self._followed(op, piece)
        made = self._made(op, piece)
        if made > max(free, before) and not self._same(made, max(free, before)):
            return ("made", op, piece, 0)
        if need >= 0 and before > free and not self._same(before, free):
            if not self.hops[need] or self._apart(need, op):
                return ("end", need, 0, 0)
            return ("tail", need, piece, int(self.hops[need]) - 1)
        return ("free", op, piece, 0)

    def _at(self, row: int) -> int:
        return int(self.services.link[row])

    def _from_free(self, op: int, piece: int, hop: int) -> _Step:
        """Go on from the end of a service."""
        row = self._row(op, piece, hop)
        self._go(float(self.services.start_s[row]), "serialisation", op, self._at(row))
        return ("start", op, piece, hop)

    def _from_start(self, op: int, piece: int, hop: int) -> _Step:
        """Go on from the begin of a service: the piece was just there, or stood in the queue."""
        row = self._row(op, piece, hop)
        if self._same(float(self.services.ask_s[row]), self.at):
            return ("ask", op, piece, hop)
        if hop == 0:
            other = self._just_served(row)
            if other >= 0:
                return ("free", int(self.services.op[other]), int(self.services.piece[other]), 0)
        self._go(float(self.services.ask_s[row]), "waiting", op, self._at(row))
        return ("ask", op, piece, hop)

    def _just_served(self, row: int) -> int:
        """Return the service of the same lane that the link ended as this one began, -1 if another lane's was before."""
        link = self._at(row)
        if link not in self.by_link:
            rows = np.flatnonzero(self.services.link == link)
            self.by_link[link] = rows[np.lexsort((rows, self.services.start_s[rows], self.services.free_s[rows]))]
        rows = self.by_link[link]
        place = int(np.searchsorted(self.services.free_s[rows], self.services.start_s[row], side="right")) - 1
        lane = self.schedule.lane
        while place >= 0 and self._same(float(self.services.free_s[rows[place]]), float(self.services.start_s[row])):
            other = int(rows[place])
            if other != row and self.services.hop[other] == 0:
                mine = lane[self.services.op[other]] == lane[self.services.op[row]]
                took = self.services.free_s[other] > self.services.start_s[other]
                if mine and (took or self.services.op[other] < self.services.op[row]):
                    return other
            if self.services.free_s[other] > self.services.start_s[other]:
                return -1  # this one kept the link until now; what ended before it did not
            place -= 1
        return -1

    def _from_ask(self, op: int, piece: int, hop: int) -> _Step:
        """Go on from a piece that asks a link: it came along the link before, or its lane sends it."""
        if hop:
            row = self._row(op, piece, hop - 1)
            link = self._link(row)
            start = float(self.services.start_s[row])
            if self._same(start + link.gap_s + link.latency_s, self.at):
                self._go(start + link.gap_s, "latency", op, self._at(row))
                self._go(start, "serialisation", op, self._at(row))
                return ("start", op, piece, hop - 1)
            return ("tail", op, piece, hop - 1)  # stored and forwarded
        if piece and self.schedule.feed[op]:
            return ("begun" if self._same(self._making(op)[piece][0], self.at) else "ready", op, piece, 0)
        if piece and self._same(float(self.services.free_s[self._row(op, piece - 1, 0)]), self.at):
            return ("free", op, piece - 1, 0)
        return ("ready", op, piece, 0)

    def _from_made(self, op: int, piece: int, hop: int) -> _Step:
        """Go on from a lane that has made a piece."""
        self._go(self._making(op)[piece][0], "compute", op)
        return ("begun", op, piece, 0)

    def _from_begun(self, op: int, piece: int, hop: int) -> _Step:
        """Go on from a lane that begins to make a piece: it made the one before, or the one before that has left."""
        if not piece:
            return ("ready", op, 0, 0)
        if self._same(self._making(op)[piece - 1][1], self.at):
            return ("made", op, piece - 1, 0)
        return self._left(op, piece - 2)

    def _making(self, op: int) -> list[tuple[float, float]]:
        """Return when the lane began and ended to make each piece."""
        if op not in self.makings:
            begun = float(self.services.ask_s[self._row(op, 0, 0)])
            if self.schedule.early[op]:
                before = int(self.before[op])
                begun = (self._released(before)[0] if before >= 0 else 0.0) + float(self.record.hold_s[op])
            found: list[tuple[float, float]] = []
            work, wire = float(self.record.work_s[op]), int(self.schedule.wire[op])
            self.makings[op] = found
            last, bytes_a_piece, sofar = self._pieces(op) - 1, self._piece_bytes(op), 0.0
            for piece in range(last + 1):
                if piece > 1 and self.schedule.feed[op]:
                    begun = max(begun, self._piece_left(op, piece - 2))
                upto = work if piece == last else on_grid(work * ((piece + 1) * bytes_a_piece) / wire)
                found.append((begun, begun + (upto - sofar)))
                begun, sofar = found[-1][1], upto
        return self.makings[op]

    def _piece_bytes(self, op: int) -> int:
        pieces, wire = self._pieces(op), int(self.schedule.wire[op])
        sizes = [int(size) for size in (self.schedule.feed[op], self.record.quantum_bytes) if size]
        return wire if pieces == 1 else min(sizes, default=-(-wire // pieces))

    def _made(self, op: int, piece: int) -> float:
        """Return when the lane had made a piece; zero where it costs the lane nothing."""
        return self._making(op)[piece][1] if self.costly[op] and self.schedule.work[op] else 0.0

    def _from_ready(self, op: int, piece: int, hop: int) -> _Step | None:
        """Go on from a lane that sends: after its own work, because a requirement was met, or the lane was free."""
        hold, early = float(self.record.hold_s[op]), bool(self.schedule.early[op])
        if piece == 0 and not early:
            self._go(self.at - hold, "compute", op)
        best: tuple[float, float, _Step | None] = (0.0, 0.0, None)
        for need, milestone, lag in self.schedule.requirements(op):
            all_of_it = milestone == HEAD and self._apart(need, op)
            met, step = self._milestone(need, END if all_of_it else milestone, piece)
            if met + lag > best[0] or best[2] is None:
                best = (met + lag, lag, step)
        before = int(self.before[op])
        released: tuple[float, _Step | None] = self._released(before) if before >= 0 else (0.0, None)
        if early and self._same(released[0] + hold, self.at):
            # The lane's own work, begun while the operation still waited, was over last.
            self._go(released[0], "compute", op)
            best = (released[0], 0.0, released[1])
        elif before >= 0 and piece == 0 and not early and released[0] > best[0] and not self._same(released[0], best[0]):
            best = (released[0], 0.0, released[1])
        if not self._same(best[0], self.at):
            self._go(best[0], "launch", op)
        self._go(best[0] - best[1], "latency", op)
        return best[2]

    def _milestone(self, op: int, milestone: int, piece: int) -> tuple[float, _Step]:
        """Return when a milestone was reached, and the step that leads on from there."""
        if milestone == END or not self.hops[op]:
            return float(self.record.end_s[op]), ("end", op, 0, 0)
        if milestone == LEFT:
            return self._left_s(op), self._left(op, self._pieces(op) - 1)
        row = self._row(op, piece, int(self.hops[op]) - 1)
        link = self._link(row)
        # The head's way along the last link: told as that link's, and as if a further link were asked.
        return float(self.services.start_s[row]) + link.gap_s + link.latency_s, ("ask", op, piece, int(self.hops[op]))

    def _released(self, op: int) -> tuple[float, _Step]:
        """Return when an operation let its lane go on, and the step that leads on from there."""
        if not self.hops[op]:
            return float(self.record.end_s[op]), ("end", op, 0, 0)
        if self.schedule.posted[op]:
            return float(self.services.ask_s[self._row(op, 0, 0)]), ("ask", op, 0, 0)
        return self._left_s(op), self._left(op, self._pieces(op) - 1)

    def _left_s(self, op: int) -> float:
        return self._piece_left(op, self._pieces(op) - 1)

    def _piece_left(self, op: int, piece: int) -> float:
        free = float(self.services.free_s[self._row(op, piece, 0)])
        return max(free, self._followed(op, piece)[0], self._made(op, piece))
