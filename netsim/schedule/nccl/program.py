"""The primitives of NCCL's kernels on lanes and connections: what all builders of this room write their schedules with.

A lane is a channel's group of threads on a rank; it does one primitive after the other. A connection carries slices from
one rank to another and has a number of slots: a slice needs a free one, and frees it when the receiver has used it. By
the Simple protocol a slice is passed on when it is there; by LL and LL128 line by line as it comes, and what the lane
itself has to do runs while it waits. Deliberately left out: how warps share a lane's work.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.schedule.dag import COMPUTE, END, HEAD, LEFT, TRANSFER, Schedule, ScheduleBuilder
from netsim.schedule.nccl.costs import Rates
from netsim.schedule.nccl.plan import Plan

SEND = "send"
COPY_SEND = "copy_send"
RECV_COPY_SEND = "recv_copy_send"
RECV_REDUCE_SEND = "recv_reduce_send"
RECV_REDUCE_COPY_SEND = "recv_reduce_copy_send"
RECV_REDUCE_COPY = "recv_reduce_copy"
RECV = "recv"
PRIMITIVES = tuple(rate.name for rate in fields(Rates))
"""Names of the primitives; each has a rate in `Costs`."""

_NAMES = ("kind", "src", "dst", "offset", "size", "wire", "chunk", "step", "lane")
_MORE = ("reduce", "from_input", "duration", "work", "feed", "early", "group")


@dataclass
class Connection:
    """One direction between two ranks on one channel."""

    src: int
    dst: int
    sent: deque[int] = field(default_factory=deque)
    """Slices that have been sent and not yet received."""
    used: list[int] = field(default_factory=list)
    """For each slice that was received, the operation after which its slot is free."""
    count: int = 0
    """Slices sent so far."""


class Program:
    """Grow the schedule of a plan one primitive at a time.

    Parameters
    ----------
    plan : Plan
        What is to be run; its protocol, slices, slots and costs apply to every primitive.
    limit : int or None
        The most operations accepted.
    pieces : int
        Into how many pieces the largest block is cut, for the record.
    """

    def __init__(self, plan: Plan, *, limit: int | None = None, pieces: int = 1) -> None:
        self.plan = plan
        self.kind = plan.kind
        self._limit = limit
        costs = plan.costs
        self._rates = {name: getattr(costs.rates, name) for name in PRIMITIVES}
        if plan.registered and not self.kind.follows:
            self._rates[RECV] = float("inf")  # the data is where it belongs already
        self._milestone = HEAD if self.kind.follows else END
        self._columns: dict[str, list[float]] = {name: [] for name in _NAMES + _MORE}
        self._requires: list[tuple[int, int, int, float]] = []
        self._connections: dict[tuple[int, int, int, str], Connection] = {}
        self._builder = ScheduleBuilder(
            plan.collective,
            plan.algorithm,
            plan.ranks,
            plan.size_bytes,
            root=plan.root,
            align_bytes=plan.align_bytes,
            pieces=pieces,
            protocol=plan.protocol,
            buffered=True,
        )
        self._names: dict[int, tuple[int, str]] = {}
        self._threads: dict[int, int] = {}
        self._fixed: dict[int, float] = {}
        self._last: dict[int, int] = {}
        self._beside: dict[int, list[int]] = {}
        self._waiting: dict[int, list[int]] = {}

    def lane(self, rank: int, channel: int, role: str = "", *, threads: int | None = None) -> int:
        """Return the lane of a rank's channel, with the kernel's start before its first primitive.

        `threads` are those of its group where the channel's are split; they set its rates and the cost of a slice.
        """
        name = (rank, f"channel {channel}{' ' if role else ''}{role}")
        lane = self._builder.lane(*name)
        if lane not in self._names:
            self._names[lane] = name
            self._threads[lane] = self.plan.threads if threads is None else threads
            self._fixed[lane] = self.plan.costs.slice_cost_s(self.plan.protocol, self._threads[lane])
            if self.plan.costs.start_s:
                self._last[lane] = self._add(lane, -1, -1, 0, 0, 0, duration=self.plan.costs.start_s)
        return lane

    def connection(self, src: int, dst: int, channel: int, role: str = "") -> Connection:
        """Return the connection of a channel from one rank to another."""
        key = (src, dst, channel, role)
        if key not in self._connections:
            self._connections[key] = Connection(src, dst)
        return self._connections[key]

    def port(self, rank: int, role: str) -> int:
        """Return a lane of a rank's memory, which a switch reads or writes without the rank's threads."""
        return self._builder.lane(rank, role)

    def group(self, ranks: Sequence[int]) -> int:
        """Return the number of a group of ranks that one switch must join."""
        return self._builder.group(ranks)

    def take(self, connection: Connection) -> tuple[int, int, float]:
        """Return what the receiver of the next slice of a connection waits for."""
        return connection.sent.popleft(), self._milestone, 0.0

    def cost(self, lane: int, primitive: str, size: int) -> tuple[float, float]:
        """Return the fixed seconds and the seconds of work that a primitive on a slice costs a lane."""
        return self._fixed[lane], self._work_s(lane, primitive, size)

    def operation(
        self,
        lane: int,
        kind: int,
        offset: int = 0,
        size: int = 0,
        *,
        src: int = -1,
        dst: int = -1,
        needs: Iterable[tuple[int, int, float]] = (),
        used: Sequence[Connection] = (),
        group: int = -1,
        duration: float = 0.0,
        work: float = 0.0,
        early: bool = False,
        from_input: bool = False,
        chunk: int = 0,
        step: int = 0,
    ) -> int:
        """Add one operation that is no primitive, in a lane or a port, and return its number.

        Parameters
        ----------
        kind, offset, size, src, dst, group, duration, work, early, from_input, chunk, step
            As in `netsim.schedule.columns.Schedule`.
        needs : iterable of (operation, milestone, lag in seconds)
            What it waits for.
        used : sequence of Connection
            Those whose slices, taken by `take`, are free again when it has left.
        """
        wire = self.kind.wire(size)
        more: dict[str, Any] = {"duration": duration, "work": work, "early": early, "from_input": from_input}
        op = self._add(
            lane, src, dst, offset, size, wire, needs=needs, kind=kind, group=group, chunk=chunk, step=step, **more
        )
        self._step(lane, op)
        for connection in used:
            connection.used.append(op)
        return op

    def transfer(
        self,
        lane: int,
        connection: Connection,
        offset: int,
        size: int,
        *,
        needs: Iterable[tuple[int, int, float]] = (),
        used: Sequence[Connection] = (),
        duration: float = 0.0,
        work: float = 0.0,
        early: bool = False,
        reduce: bool = False,
        beside: int | None = None,
        chunk: int = 0,
        step: int = 0,
    ) -> int:
        """Send one slice whose cost and needs the caller knows, when a slot is free, and return its number.

        Parameters
        ----------
        needs, used, duration, work, early, reduce, chunk, step
            As in `operation`.
        beside : int or None
            A number, where one loop of the lane does this together with the lane's next operation.
        """
        on, pace = (lane, []) if beside is None else self._next_to(lane, beside)
        wanted = [*needs, *self._slot(connection), *pace]
        op = self._transfer(
            on, connection, offset, size, wanted, work, early, duration=duration, reduce=reduce, chunk=chunk, step=step
        )
        if beside is None:
            self._step(lane, op)
        else:
            self._waiting.setdefault(lane, []).append(op)
        for other in used:
            other.used.append(op)
        return op

    def slices(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of the slices of a chunk; a short chunk has fewer full ones and then empty ones."""
        plan = self.plan
        if plan.slices == 1:
            yield 0, size
            return
        each = max(16 * -(-size // (16 * plan.slices)), plan.least_slice_bytes)
        for number in range(plan.slices):
            first = min(number * each, size)
            yield first, min(each, size - first)

    def do(
        self,
        lane: int,
        primitive: str,
        offset: int,
        size: int,
        *,
        receive: Sequence[Connection] = (),
        send: Sequence[Connection] = (),
        reduce: bool = False,
        from_input: bool = False,
        chunk: int = 0,
        step: int = 0,
    ) -> None:
        """Do one primitive on a chunk, slice by slice.

        Parameters
        ----------
        lane : int
            Whose turn it is; see `lane`.
        primitive : str
            One of `PRIMITIVES`.
        offset, size : int, bytes
            The chunk in the collective's logical space.
        receive, send : sequence of Connection
            Where slices come from and go to; several are received one with the other, and sent side by side.
        reduce : bool
            Whether the receivers of what is sent add it to theirs.
        from_input : bool
            Whether the rank's untouched input is sent.
        chunk, step : int
            For people.
        """
        for first, part in self.slices(size):
            if not part and first:  # an empty slice still costs a wait and a post
                self._pass_empty(lane, receive, send)
                continue
            self._one(lane, primitive, offset + first, part, receive, send, reduce, from_input, chunk, step)

    def _one(
        self,
        lane: int,
        primitive: str,
        offset: int,
        size: int,
        receive: Sequence[Connection],
        send: Sequence[Connection],
        reduce: bool,
        from_input: bool,
        chunk: int,
        step: int,
    ) -> None:
        needs = [(connection.sent.popleft(), self._milestone, 0.0) for connection in receive]
        work, fixed_s = self._work_s(lane, primitive, size), self._fixed[lane]
        early = bool(needs) and self.kind.follows
        if not send:
            # What follows heads ends with the last byte, and so does a receive that waits for the end.
            milestones = [(need, END, lag) for need, _, lag in needs]
            op = self._add(
                lane, -1, -1, 0, 0, 0, needs=milestones, duration=fixed_s + work, early=early, chunk=chunk, step=step
            )
        else:
            for connection in send:
                needs += self._slot(connection)
            op = self._transfer(
                lane,
                send[0],
                offset,
                size,
                needs,
                work,
                early,
                duration=fixed_s,
                reduce=reduce,
                from_input=from_input,
                chunk=chunk,
                step=step,
            )
            for number, connection in enumerate(send[1:]):
                # The same loop writes to all peers at once: a lane beside this one, held to its pace at both ends.
                beside, pace = self._next_to(lane, number)
                self._beside.setdefault(op, []).append(
                    self._transfer(
                        beside,
                        connection,
                        offset,
                        size,
                        needs + pace,
                        work,
                        early,
                        duration=fixed_s,
                        reduce=reduce,
                        from_input=from_input,
                        chunk=chunk,
                        step=step,
                    )
                )
        for connection in receive:
            connection.used.append(op)
        self._last[lane] = op

    def _transfer(
        self,
        lane: int,
        connection: Connection,
        offset: int,
        size: int,
        needs: Sequence[tuple[int, int, float]],
        work: float,
        early: bool,
        **more: Any,
    ) -> int:
        wire = self.kind.wire(size)
        feed = self.plan.costs.feed_bytes
        feed = feed if feed and wire > feed and not self.kind.follows else 0
        op = self._add(
            lane, connection.src, connection.dst, offset, size, wire, needs=needs, work=work, feed=feed, early=early, **more
        )
        connection.sent.append(op)
        connection.count += 1
        return op

    def _next_to(self, lane: int, number: int) -> tuple[int, list[tuple[int, int, float]]]:
        """Return a lane beside another, and what makes it wait for what the other has done so far."""
        rank, role = self._names[lane]
        pace = [(self._last[lane], LEFT, 0.0)] if lane in self._last else []
        return self._builder.lane(rank, f"{role} beside {number}"), pace

    def _step(self, lane: int, op: int) -> None:
        """Note an operation as the latest of a lane, together with those that wait for it beside the lane."""
        self._last[lane] = op
        if lane in self._waiting:
            self._beside[op] = self._waiting.pop(lane)

    def _slot(self, connection: Connection) -> list[tuple[int, int, float]]:
        """Return what a further slice waits for: the use of the slice whose slot it takes."""
        place = connection.count - self.plan.slots
        if place < 0:
            return []
        if place >= len(connection.used):
            raise ScheduleError(
                f"a slice from rank {connection.src} to rank {connection.dst} needs the slot of one that is never received"
            )
        return [(connection.used[place], LEFT, self.plan.costs.credit_s)]

    def _work_s(self, lane: int, primitive: str, size: int) -> float:
        scale = min(1.0, self._threads[lane] / self.kind.max_threads)
        rate = self._rates[primitive] * scale
        each = int(self.kind.round_bytes * scale)  # fewer threads have shorter rounds
        if each and size > each:
            size = -(-size // each) * each
        return float(size / rate)

    def _pass_empty(self, lane: int, receive: Iterable[Connection], send: Iterable[Connection]) -> None:
        """Let a lane pay for an empty slice; nothing moves, and its slot is free again at once."""
        if self._fixed[lane]:
            self._last[lane] = self._add(lane, -1, -1, 0, 0, 0, duration=self._fixed[lane])

    def _add(
        self,
        lane: int,
        src: int,
        dst: int,
        offset: int,
        size: int,
        wire: int,
        *,
        needs: Iterable[tuple[int, int, float]] = (),
        duration: float = 0.0,
        work: float = 0.0,
        feed: int = 0,
        early: bool = False,
        reduce: float = False,
        from_input: float = False,
        chunk: float = 0,
        step: float = 0,
        kind: int | None = None,
        group: int = -1,
    ) -> int:
        op = len(self._columns["lane"])
        if self._limit is not None and op >= self._limit:
            raise TooManyMessagesError(
                f"{self.plan.collective} by {self.plan.algorithm} over {self.plan.ranks} ranks needs more than the limit of "
                f"{self._limit} messages; raise it with --max-messages"
            )
        if kind is None:
            kind = TRANSFER if src >= 0 else COMPUTE
        row = (kind, src, dst, offset, size, wire, chunk, step, lane, reduce, from_input, duration, work, feed, early, group)
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self._requires += [(op, need, milestone, lag) for need, milestone, lag in needs]
        last = self._last.get(lane)
        if last in self._beside:
            # The lane goes on when all that it writes side by side has left.
            self._requires += [(op, other, LEFT, 0.0) for other in self._beside.pop(last)]
        return op

    def build(self) -> Schedule:
        """Return the finished schedule."""
        count = len(self._columns["lane"])
        if count:
            columns: dict[str, Any] = {name: np.array(column) for name, column in self._columns.items()}
            self._builder.add(count, **columns)
        if self._requires:
            ops, needed, milestones, lags = (np.array(column) for column in zip(*self._requires, strict=True))
            self._builder.require(ops, needed, milestones, lags)
        return self._builder.build()
