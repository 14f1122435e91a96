"""The primitives of NCCL's kernels on lanes and connections: what all builders of this room write their schedules with.

A lane is a channel's group of threads on a rank; it does one primitive after the other. A connection carries slices from
one rank to another and has a number of slots: a slice needs a free one, and frees it when the receiver has used it. By
the Simple protocol a slice is passed on when it is there; by LL and LL128 line by line as it comes, and what the lane
itself has to do runs while it waits. Between nodes a lane writes slices into a buffer at home, whatever the protocol, and
a proxy sends each when it is whole: the lane is free by then, and the slot at home with it once the slice is over there.
Deliberately left out: how warps share a lane's work, and how a proxy's own thread shares its time.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from netsim.errors import ScheduleError
from netsim.schedule.dag import END, HEAD, LEFT
from netsim.schedule.nccl.lanes import (
    COPY_SEND,
    PRIMITIVES,
    RECV,
    RECV_COPY_SEND,
    RECV_REDUCE_COPY,
    RECV_REDUCE_COPY_SEND,
    RECV_REDUCE_SEND,
    SEND,
    Lanes,
)
from netsim.schedule.nccl.pace import Pace
from netsim.schedule.nccl.plan import Plan, flow_of
from netsim.schedule.nccl.rows import Need

__all__ = [
    "COPY_SEND",
    "PRIMITIVES",
    "RECV",
    "RECV_COPY_SEND",
    "RECV_REDUCE_COPY",
    "RECV_REDUCE_COPY_SEND",
    "RECV_REDUCE_SEND",
    "SEND",
    "Connection",
    "Program",
]


@dataclass
class Connection:
    """One direction between two ranks on one channel."""

    src: int
    dst: int
    channel: int = 0
    card: int = 0
    """Which of the sender's network cards it uses."""
    via: int = -1
    """The rank whose network card it uses, if not the sender's."""
    sent: deque[int] = field(default_factory=deque)
    """Slices that have been sent and not yet received."""
    used: deque[int] = field(default_factory=deque)
    """Operations after which slots are free at the receiver, each for the slice that takes the slot next."""
    count: int = 0
    """Slices sent so far."""
    credit_s: float = 0.0
    """Seconds until the sender sees that a slot is free."""
    proxy: int | None = None
    """Between nodes, the lane of the proxy that sends what the sender's lane has written into a buffer at home."""
    left_home: deque[int] = field(default_factory=deque)
    """Between nodes, the proxy's messages after which slots at home are free, likewise."""


class Program(Lanes):
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
        super().__init__(plan, limit=limit, pieces=pieces)
        self._milestone = HEAD if self.kind.follows else END
        self._connections: dict[tuple[int, int, int, str], Connection] = {}
        self._node = {rank: number for number, node in enumerate(plan.nodes) for rank in node}
        self._pace = Pace(plan.protocol, plan.costs, plan.threads)
        self._flows = {channel.number: channel.flows for channel in plan.channels}
        self._relays = {channel.number: channel.relays for channel in plan.channels}

    def connection(self, src: int, dst: int, channel: int, role: str = "") -> Connection:
        """Return the connection of a channel from one rank to another."""
        key = (src, dst, channel, role)
        if key not in self._connections:
            costs = self.plan.costs
            made = self._connections[key] = Connection(src, dst, credit_s=costs.credit_s)
            if self._node.get(src) != self._node.get(dst):
                made.credit_s += costs.network.credit_s
                flows = self._flows.get(channel, ())
                made.channel, made.card = channel, flows[self._node[src]] if flows else 0
                relays = self._relays.get(channel, ())
                made.via = relays[self._node[src]] if relays else -1
                made.proxy = self.port(src, f"channel {channel} proxy to {dst}{' ' if role else ''}{role}")
        return self._connections[key]

    def _queues(self) -> "Iterator[deque[int]]":
        """Yield what connections remember."""
        for connection in self._connections.values():
            yield from (connection.sent, connection.used, connection.left_home)

    def take(self, connection: Connection) -> Need:
        """Return what the receiver of the next slice of a connection waits for."""
        return connection.sent.popleft(), self._milestone, 0.0

    def operation(
        self,
        lane: int,
        kind: int,
        offset: int = 0,
        size: int = 0,
        *,
        src: int = -1,
        dst: int = -1,
        needs: Iterable[Need] = (),
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
        needs: Iterable[Need] = (),
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
        more: dict[str, Any] = {"reduce": reduce, "chunk": chunk, "step": step}
        if connection.proxy is None:
            op = self._transfer(on, connection, offset, size, wanted, work, early, duration=duration, **more)
        else:
            op = self._write(on, wanted, duration + work, early, chunk=chunk, step=step)
            self._post(connection, (op, END, 0.0), offset, size, **more)
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
        for number, (first, part) in enumerate(self.slices(size)):
            if number and not part:
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
        pace = self._paces[lane]
        work, fixed_s = pace.work_s(primitive, size), pace.fixed_s
        early = bool(needs) and self.kind.follows
        for connection in send:
            needs += self._slot(connection)
        near = [connection for connection in send if connection.proxy is None]
        more: dict[str, Any] = {"reduce": reduce, "from_input": from_input, "chunk": chunk, "step": step}
        if not near:
            op = self._write(lane, needs, fixed_s + work, early, chunk=chunk, step=step)
        else:
            op = self._transfer(lane, near[0], offset, size, needs, work, early, duration=fixed_s, **more)
            for number, connection in enumerate(near[1:]):
                # The same loop writes to all peers at once: a lane beside this one, held to its pace at both ends.
                beside, held = self._next_to(lane, number)
                other = self._transfer(beside, connection, offset, size, needs + held, work, early, duration=fixed_s, **more)
                self._beside.setdefault(op, []).append(other)
        for connection in send:
            if connection.proxy is not None:
                self._post(connection, (op, LEFT if near else END, 0.0), offset, size, **more)
        for connection in receive:
            connection.used.append(op)
        self._last[lane] = op

    def _write(self, lane: int, needs: Iterable[Need], seconds: float, early: bool, **more: Any) -> int:
        """Let a lane put a slice where it is wanted on its own GPU: in user memory, or in a buffer of the proxy."""
        # What follows heads ends with the last byte, and so does what waits for the end.
        milestones = [(need, END if milestone == HEAD else milestone, lag) for need, milestone, lag in needs]
        return self._add(lane, -1, -1, 0, 0, 0, needs=milestones, duration=seconds, early=early, **more)

    def _post(self, connection: Connection, made: Need, offset: int, size: int, **more: Any) -> None:
        """Let the proxy send a slice that is made, when the receiver has a free slot for it."""
        assert connection.proxy is not None
        wire = self.kind.wire(size)
        network = self.plan.costs.network
        needs = [(*made[:2], network.handshake_s(wire, len(self.plan.channels))), *self._taken(connection)]
        more["duration"] = network.proxy_s(wire)
        pairs = self.plan.queue_pairs
        more["via"] = -1 if connection.via in (connection.src, connection.dst) else connection.via
        more["flow"] = flow_of(connection.card, connection.channel, connection.count % pairs, pairs)
        op = self._add(connection.proxy, connection.src, connection.dst, offset, size, wire, needs=needs, **more)
        connection.sent.append(op)
        connection.left_home.append(op)
        connection.count += 1

    def _transfer(
        self,
        lane: int,
        connection: Connection,
        offset: int,
        size: int,
        needs: Sequence[Need],
        work: float,
        early: bool,
        **more: Any,
    ) -> int:
        wire = self.kind.wire(size)
        feed = self._pace.feed(wire)
        op = self._add(
            lane, connection.src, connection.dst, offset, size, wire, needs=needs, work=work, feed=feed, early=early, **more
        )
        connection.sent.append(op)
        connection.count += 1
        return op

    def _slot(self, connection: Connection) -> list[Need]:
        """Return what a lane waits for before it writes a further slice: that the slot it takes is free."""
        if connection.proxy is None:
            return self._taken(connection)
        return [] if connection.count < self.plan.slots else [(connection.left_home.popleft(), END, 0.0)]

    def _taken(self, connection: Connection) -> list[Need]:
        """Return the use at the receiver of the slice whose slot there the next one takes."""
        if connection.count < self.plan.slots:
            return []
        if not connection.used:
            raise ScheduleError(
                f"a slice from rank {connection.src} to rank {connection.dst} needs the slot of one that is never received"
            )
        return [(connection.used.popleft(), LEFT, connection.credit_s)]

    def _pass_empty(self, lane: int, receive: Sequence[Connection], send: Sequence[Connection]) -> None:
        """Let a lane do its part for an empty slice: nothing moves, but it is waited for, posted, and takes its slots."""
        needs = [(connection.sent.popleft(), END, 0.0) for connection in receive]
        for connection in send:
            needs += self._slot(connection)
        op = self._write(lane, needs, self._paces[lane].fixed_s, early=False)
        for connection in send:
            posted = op
            if connection.proxy is not None:
                wanted = [(op, END, 0.0), *self._taken(connection)]
                posted = self._add(connection.proxy, -1, -1, 0, 0, 0, needs=wanted)
                connection.left_home.append(posted)
            connection.sent.append(posted)
            connection.count += 1
        for connection in receive:
            connection.used.append(op)
        self._last[lane] = op
