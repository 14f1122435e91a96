"""NCCL's rings: all-reduce in rounds of a chunk a rank, all-gather, reduce-scatter, pipelines of broadcast and reduce.

Each channel runs on its own share of the data. Ring positions, not ranks, number the chunks of an all-reduce. Facts of
NCCL 2.30 (device/all_reduce.h and its like), unchanged in structure since 2.12.
"""

from collections.abc import Callable

from netsim.errors import ScheduleError
from netsim.schedule.dag import Schedule
from netsim.schedule.nccl.loops import loops_of
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.schedule.nccl.program import (
    COPY_SEND,
    RECV,
    RECV_COPY_SEND,
    RECV_REDUCE_COPY,
    RECV_REDUCE_COPY_SEND,
    RECV_REDUCE_SEND,
    SEND,
    Connection,
    Program,
)


def build(plan: Plan, *, limit: int | None = None) -> Schedule:
    """Build the ring schedule of a plan.

    Parameters
    ----------
    plan : Plan
        Its collective is all_reduce, all_gather, reduce_scatter, broadcast or reduce.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If NCCL has no ring for the collective.
    """
    if plan.collective not in _BUILDERS:
        raise ScheduleError(f"ring has no {plan.collective}; accepted are {', '.join(_BUILDERS)}")
    program = Program(plan, limit=limit)
    if plan.ranks > 1:
        _BUILDERS[plan.collective](program)
    return program.build()


def _all_reduce(program: Program) -> None:
    """Send round the ring twice: n - 1 steps of adding, n - 1 of handing on, in rounds of n chunks a channel."""
    plan = program.plan
    ranks = plan.ranks
    steps: list[tuple[str, int, bool, bool]] = [(SEND, -1, True, True)]
    steps += [(RECV_REDUCE_SEND, -j, True, False) for j in range(2, ranks)]
    steps += [(RECV_REDUCE_COPY_SEND, 0, False, False)]
    steps += [(RECV_COPY_SEND, -j, False, False) for j in range(1, ranks - 1)]
    steps += [(RECV, 1, False, False)]
    shares = list(zip(plan.channels, plan.shares, map(plan.chunk_of, plan.channels), strict=True))

    def loop(number: int) -> None:
        for step, (primitive, relative, reduce, from_input) in enumerate(steps):
            for channel, (offset, share), whole in shares:
                loop = ranks * whole
                left = share - number * loop
                if left <= 0:
                    continue
                # The last round has chunks of what is left, in multiples of 16 bytes.
                chunk = whole if left >= loop else 16 * -(-left // (16 * ranks))
                for position in range(ranks):
                    which = (position + relative) % ranks
                    first = min(which * chunk, left)
                    size = min(chunk, left - first)
                    lane, before, after = _place(program, channel, position)
                    program.do(
                        lane,
                        primitive,
                        offset + number * loop + first,
                        size,
                        receive=[before] if primitive != SEND else (),
                        send=[after] if primitive != RECV else (),
                        reduce=reduce,
                        from_input=from_input,
                        chunk=number * ranks + which,
                        step=step,
                    )

    program.in_loops(*loops_of((size, ranks * chunk) for _, (_, size), chunk in shares), loop)


def _reduce_scatter(program: Program) -> None:
    """Send the block of the rank before, then hand on and add, until every rank has its own block."""
    ranks = program.plan.ranks
    steps: list[tuple[str, int, bool, bool]] = [(SEND, -1, True, True)]
    steps += [(RECV_REDUCE_SEND, -j, True, False) for j in range(2, ranks)]
    steps += [(RECV_REDUCE_COPY, 0, False, False)]
    _blocks(program, steps)


def _all_gather(program: Program) -> None:
    """Send the own block, which is copied on the way unless the collective is in place, then hand on what comes."""
    plan = program.plan
    ranks = plan.ranks
    steps: list[tuple[str, int, bool, bool]] = [(SEND if plan.in_place else COPY_SEND, 0, False, True)]
    steps += [(RECV_COPY_SEND, -j, False, False) for j in range(1, ranks - 1)]
    steps += [(RECV, 1, False, False)]
    _blocks(program, steps)


def _blocks(program: Program, steps: list[tuple[str, int, bool, bool]]) -> None:
    """Run the steps of an all-gather or reduce-scatter for every chunk of the ranks' blocks."""
    plan = program.plan
    block = plan.size_bytes // plan.ranks
    shares = list(zip(plan.channels, plan.shares, map(plan.chunk_of, plan.channels), strict=True))

    def loop(number: int) -> None:
        for step, (primitive, relative, reduce, from_input) in enumerate(steps):
            for channel, (offset, share), chunk in shares:
                size = min(chunk, share - number * chunk)
                if size <= 0:
                    continue
                for position in range(plan.ranks):
                    owner = channel.ring[(position + relative) % plan.ranks]
                    lane, before, after = _place(program, channel, position)
                    program.do(
                        lane,
                        primitive,
                        owner * block + offset + number * chunk,
                        size,
                        receive=[before] if step else (),
                        send=[after] if step < len(steps) - 1 else (),
                        reduce=reduce,
                        from_input=from_input,
                        chunk=owner,
                        step=step,
                    )

    program.in_loops(*loops_of((size, chunk) for _, (_, size), chunk in shares), loop)


def _broadcast(program: Program) -> None:
    """Send the root's data round the ring, chunk by chunk."""
    plan = program.plan

    def chunk(number: int, channel: Channel, offset: int, size: int) -> None:
        start = channel.ring.index(plan.root)
        for step in range(plan.ranks):
            lane, before, after = _place(program, channel, (start + step) % plan.ranks)
            last = step == plan.ranks - 1
            primitive = (SEND if plan.in_place else COPY_SEND) if not step else RECV if last else RECV_COPY_SEND
            program.do(
                lane,
                primitive,
                offset,
                size,
                receive=[before] if step else (),
                send=() if last else [after],
                from_input=not step,
                chunk=number,
                step=step,
            )

    _in_chunks(program, chunk)


def _reduce(program: Program) -> None:
    """Start at the rank after the root, add at every rank, end at the root."""
    plan = program.plan

    def chunk(number: int, channel: Channel, offset: int, size: int) -> None:
        start = channel.ring.index(plan.root) + 1
        for step in range(plan.ranks):
            lane, before, after = _place(program, channel, (start + step) % plan.ranks)
            last = step == plan.ranks - 1
            program.do(
                lane,
                SEND if not step else RECV_REDUCE_COPY if last else RECV_REDUCE_SEND,
                offset,
                size,
                receive=[before] if step else (),
                send=() if last else [after],
                reduce=True,
                from_input=not step,
                chunk=number,
                step=step,
            )

    _in_chunks(program, chunk)


def _in_chunks(program: Program, write: Callable[[int, Channel, int, int], None]) -> None:
    """Write (number, channel, offset, size) of every chunk, the channels in turn."""
    plan = program.plan
    shares = list(zip(plan.channels, plan.shares, map(plan.chunk_of, plan.channels), strict=True))

    def loop(number: int) -> None:
        for channel, (offset, share), chunk in shares:
            size = min(chunk, share - number * chunk)
            if size > 0:
                write(number, channel, offset + number * chunk, size)

    program.in_loops(*loops_of((size, chunk) for _, (_, size), chunk in shares), loop)


def _place(program: Program, channel: Channel, position: int) -> tuple[int, Connection, Connection]:
    """Return the lane of a position, the connection that comes in there, and the one that goes out."""
    ring = channel.ring
    ranks = len(ring)
    rank, before, after = ring[position], ring[position - 1], ring[(position + 1) % ranks]
    number = channel.number
    return program.lane(rank, number), program.connection(before, rank, number), program.connection(rank, after, number)


_BUILDERS = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "reduce": _reduce,
}
