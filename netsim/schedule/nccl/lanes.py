"""Lanes of a plan and the rows of its schedule: what `netsim.schedule.nccl.program` puts primitives on.

A lane is a group of threads of a channel on a rank, with what a primitive costs it; a port is memory that a switch reads
or writes without threads. Rows are kept as columns until the schedule is built.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from netsim.schedule.dag import COMPUTE, LEFT, TRANSFER, Schedule, ScheduleBuilder
from netsim.schedule.nccl.costs import Rates
from netsim.schedule.nccl.loops import Loops
from netsim.schedule.nccl.pace import Pace
from netsim.schedule.nccl.plan import Plan
from netsim.schedule.nccl.rows import NAMES, Need

SEND = "send"
COPY_SEND = "copy_send"
RECV_COPY_SEND = "recv_copy_send"
RECV_REDUCE_SEND = "recv_reduce_send"
RECV_REDUCE_COPY_SEND = "recv_reduce_copy_send"
RECV_REDUCE_COPY = "recv_reduce_copy"
RECV = "recv"
PRIMITIVES = tuple(rate.name for rate in fields(Rates))
"""Names of the primitives; each has a rate in `Costs`."""


class Lanes(Loops):
    """Grow the columns of a plan's schedule, lane by lane.

    Parameters
    ----------
    plan, limit, pieces
        As in `netsim.schedule.nccl.program.Program`.
    """

    def __init__(self, plan: Plan, *, limit: int | None = None, pieces: int = 1) -> None:
        builder = ScheduleBuilder(
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
        super().__init__(builder, limit)
        self.plan = plan
        self.kind = plan.kind
        self._costs = plan.costs
        if plan.registered and not self.kind.follows:
            # The data is where it belongs already.
            self._costs = replace(plan.costs, rates=replace(plan.costs.rates, recv=math.inf))
        self._names: dict[int, tuple[int, str]] = {}
        self._paces: dict[int, Pace] = {}
        self._waiting: dict[int, list[int]] = {}

    def lane(self, rank: int, channel: int, role: str = "", *, threads: int | None = None) -> int:
        """Return the lane of a rank's channel, with the kernel's start before its first primitive.

        `threads` are those of its group where the channel's are split; they set its rates and the cost of a slice.
        """
        name = (rank, f"channel {channel}{' ' if role else ''}{role}")
        lane = self._builder.lane(*name)
        if lane not in self._names:
            self._names[lane] = name
            self._paces[lane] = Pace(self.plan.protocol, self._costs, self.plan.threads if threads is None else threads)
            if self.plan.costs.start_s:
                self._last[lane] = self._add(lane, -1, -1, 0, 0, 0, duration=self.plan.costs.start_s)
        return lane

    def port(self, rank: int, role: str) -> int:
        """Return a lane of a rank's memory, which a switch reads or writes without the rank's threads."""
        return self._builder.lane(rank, role)

    def group(self, ranks: Sequence[int]) -> int:
        """Return the number of a group of ranks that one switch must join."""
        return self._builder.group(ranks)

    def cost(self, lane: int, primitive: str, size: int) -> tuple[float, float]:
        """Return the fixed seconds and the seconds of work that a primitive on a slice costs a lane."""
        return self._paces[lane].fixed_s, self._paces[lane].work_s(primitive, size)

    def fan(
        self,
        lanes: Sequence[int],
        kind: int,
        offset: int,
        size: int,
        need: Need,
        *,
        src: float | Sequence[int] = -1,
        dst: float | Sequence[int] = -1,
        group: int = -1,
        from_input: bool = False,
        chunk: int = 0,
        step: int = 0,
    ) -> range:
        """Add an operation in each of several ports, all waiting for the same, and return their numbers.

        Parameters
        ----------
        lanes : sequence of int
            The ports; nothing else has to be remembered of them from loop to loop.
        kind, offset, size, group, from_input, chunk, step
            As in `netsim.schedule.columns.Schedule`, for all of them.
        need : (operation, milestone, lag in seconds)
            What they wait for.
        src, dst : int or sequence of int
            One rank for all, or one for each.
        """
        self._check_limit(len(lanes))
        row: dict[str, float | Sequence[float]] = dict.fromkeys(NAMES, 0)
        row |= {"kind": kind, "src": src, "dst": dst, "offset": offset, "size": size, "wire": self.kind.wire(size)}
        row |= {"lane": lanes, "from_input": from_input, "chunk": chunk, "step": step, "group": group, "via": -1}
        return self._rows.fan(len(lanes), row, need)

    def _next_to(self, lane: int, number: int) -> tuple[int, list[Need]]:
        """Return a lane beside another, and what makes it wait for what the other has done so far."""
        rank, role = self._names[lane]
        pace = [(self._last[lane], LEFT, 0.0)] if lane in self._last else []
        return self._builder.lane(rank, f"{role} beside {number}"), pace

    def _step(self, lane: int, op: int) -> None:
        """Note an operation as the latest of a lane, together with those that wait for it beside the lane."""
        self._last[lane] = op
        if lane in self._waiting:
            self._beside[op] = self._waiting.pop(lane)

    def _add(
        self,
        lane: int,
        src: int,
        dst: int,
        offset: int,
        size: int,
        wire: int,
        *,
        needs: Iterable[Need] = (),
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
        flow: int = 0,
        via: int = -1,
    ) -> int:
        self._check_limit(1)
        if kind is None:
            kind = TRANSFER if src >= 0 else COMPUTE
        row: tuple[float, ...] = (kind, src, dst, offset, size, wire, chunk, step, lane, reduce, from_input)
        last = self._last.get(lane)
        if last in self._beside:
            # The lane goes on when all that it writes side by side has left.
            needs = [*needs, *((other, LEFT, 0.0) for other in self._beside.pop(last))]
        return self._rows.add((*row, duration, work, feed, early, group, flow, via), needs)

    def build(self) -> Schedule:
        """Return the finished schedule."""
        self._rows.give(self._builder)
        return self._builder.build()
