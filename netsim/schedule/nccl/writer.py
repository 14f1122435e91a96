"""Lanes, work and messages one by one: for builders of this room whose order is no loop of primitives over slots.

Where `netsim.schedule.nccl.program` writes what a ring or a tree does chunk after chunk, this writes whatever is asked:
messages of several ranges, messages of a proxy or a copy engine, what happens inside a switch, and lanes that wait for
each other. The costs are the same.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from netsim.errors import ScheduleError
from netsim.schedule.dag import COMPUTE, LEFT, TRANSFER, Schedule, ScheduleBuilder
from netsim.schedule.nccl.loops import Loops
from netsim.schedule.nccl.pace import Pace
from netsim.schedule.nccl.protocols import PROTOCOLS, SLOTS
from netsim.schedule.nccl.rows import Need

Ranges = Sequence[tuple[int, int]]

_NOTHING: Ranges = ((0, 0),)


@dataclass
class Slots:
    """The buffer of one connection: a message takes the slot of the one `count` messages before, once that is used."""

    lag_s: float = 0.0
    """Seconds until the sender sees that a slot is free."""
    count: int = SLOTS
    sent: deque[int] = field(default_factory=deque)
    """Messages on their way, in order."""
    used: list[list[tuple[int, int]]] = field(default_factory=list)
    """(operation, milestone) of all that uses each message, in order; when they are over its slot is free."""

    def needs(self, number: int) -> list[Need]:
        """Return what message `number` of the connection must wait for before anything is written into its slot."""
        if number < self.count:
            return []
        if number - self.count >= len(self.used):
            raise ScheduleError(f"message {number} of a connection with {self.count} slots needs one that is never free")
        return [(op, milestone, self.lag_s) for op, milestone in self.used[number - self.count]]


class Writer(Loops):
    """Grow a schedule of lanes.

    Parameters
    ----------
    collective, algorithm, ranks, size_bytes, root, align_bytes, protocol
        As in `Schedule`.
    limit : int or None
        The most operations accepted.
    start_s : float, seconds
        What every lane waits at first, unless it is asked for without.
    """

    def __init__(
        self,
        collective: str,
        algorithm: str,
        ranks: int,
        size_bytes: int,
        *,
        root: int = 0,
        align_bytes: int = 1,
        protocol: str = "simple",
        limit: int | None = None,
        start_s: float = 0.0,
    ) -> None:
        builder = ScheduleBuilder(
            collective,
            algorithm,
            ranks,
            size_bytes,
            root=root,
            align_bytes=align_bytes,
            protocol=protocol,
            buffered=True,
        )
        super().__init__(builder, limit)
        self._start_s = start_s
        self._further: dict[int, Ranges] = {}
        self._known: set[int] = set()
        self._pending: dict[int, list[Need]] = {}

    def lane(self, rank: int, role: str, *, starts: bool = True) -> int:
        """Return the lane of a rank, made when first asked for; with `starts` it begins with the kernel."""
        lane = self._builder.lane(rank, role)
        if lane not in self._known:
            self._known.add(lane)
            if starts and self._start_s:
                self.hold(lane, self._start_s)
        return lane

    def group(self, ranks: Sequence[int]) -> int:
        """Return the number of a group of ranks that one switch must join."""
        return self._builder.group(ranks)

    def hold(self, lane: int, seconds: float, needs: Iterable[Need] = (), **columns: Any) -> int:
        """Occupy a lane for some time without a link, and return the operation."""
        return self._add(lane, -1, -1, _NOTHING, needs, kind=COMPUTE, duration=seconds, **columns)

    def work(
        self,
        lane: int,
        pace: Pace,
        primitive: str,
        size: int,
        needs: Iterable[Need] = (),
        *,
        early: bool = False,
        **columns: Any,
    ) -> int:
        """Let a lane do its part of a primitive without a link; with `early` it works while it waits, as LL does."""
        return self.hold(lane, pace.fixed_s + pace.work_s(primitive, size), needs, early=early, **columns)

    def message(
        self,
        lane: int,
        src: int,
        dst: int,
        ranges: Ranges,
        needs: Iterable[Need] = (),
        *,
        protocol: str = "simple",
        **columns: Any,
    ) -> int:
        """Send ranges of the data without work of the lane (a proxy, a copy engine, a switch), and return the operation.

        `columns` are those of `Schedule`; the bytes on the wire are the protocol's unless given.
        """
        columns.setdefault("wire", PROTOCOLS[protocol].wire(sum(size for _, size in ranges)))
        return self._add(lane, src, dst, ranges, needs, **columns)

    def send(
        self,
        lane: int,
        pace: Pace,
        primitive: str,
        src: int,
        dst: int,
        ranges: Ranges,
        needs: Iterable[Need] = (),
        **columns: Any,
    ) -> int:
        """Send ranges that a lane makes by a primitive while they go out, and return the operation."""
        size = sum(part for _, part in ranges)
        wire = pace.kind.wire(size)
        made = {"duration": pace.fixed_s, "work": pace.work_s(primitive, size), "feed": pace.feed(wire), "wire": wire}
        return self._add(lane, src, dst, ranges, needs, **(made | columns))

    def join(self, lanes: Sequence[int]) -> None:
        """Let lanes of a rank go on only when all of them have done what they have so far."""
        last = [(self._last[lane], LEFT, 0.0) for lane in lanes if lane in self._last]
        for lane in lanes:
            self._pending.setdefault(lane, []).extend(need for need in last if need[0] != self._last.get(lane))

    def barrier(self, lanes: Sequence[int], lag_s: float) -> None:
        """Let lanes of different ranks go on only when each has seen that all others are here, a flag later.

        What they have written must have arrived before they say so; give it to `hold` as needs before.
        """
        last = [(self.hold(lane, 0.0), LEFT) for lane in lanes]
        for lane, (own, _) in zip(lanes, last, strict=True):
            self._pending.setdefault(lane, []).extend((op, LEFT, lag_s) for op, _ in last if op != own)

    def build(self) -> Schedule:
        """Return the finished schedule."""
        self._rows.give(self._builder, self._further)
        return self._builder.build()

    def _add(
        self,
        lane: int,
        src: int,
        dst: int,
        ranges: Ranges,
        needs: Iterable[Need],
        *,
        kind: int = TRANSFER,
        wire: int = 0,
        chunk: int = 0,
        step: int = 0,
        reduce: bool = False,
        from_input: bool = False,
        duration: float = 0.0,
        work: float = 0.0,
        feed: int = 0,
        early: bool = False,
        group: int = -1,
        flow: int = 0,
    ) -> int:
        self._check_limit(1)
        (offset, size), further = ranges[0], ranges[1:]
        row: tuple[float, ...] = (kind, src, dst, offset, size, wire, chunk, step, lane, reduce, from_input)
        wanted = [*needs, *self._pending.pop(lane, ())]
        op = self._rows.add((*row, duration, work, feed, early, group, flow, -1), wanted)
        if further:
            self._further[op] = further
        self._last[lane] = op
        return op
