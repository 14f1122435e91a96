"""NCCL's trees: an all-reduce in which every chunk of a channel goes up its tree and comes down again.

Nothing is split by rank. A channel's threads form two groups that work at the same time, one upwards and one downwards;
the root does both in one. Trees are the plan's (chains of GPUs inside nodes, a binary tree over nodes). Facts of NCCL
2.30 (device/all_reduce.h), the same from 2.18 on.
"""

from netsim.errors import ScheduleError
from netsim.schedule.dag import Schedule
from netsim.schedule.nccl.loops import loops_of
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.schedule.nccl.program import (
    RECV,
    RECV_COPY_SEND,
    RECV_REDUCE_COPY_SEND,
    RECV_REDUCE_SEND,
    SEND,
    Program,
)

MAX_CHILDREN = 3
"""Two nodes and the next GPU of the chain (NCCL_MAX_TREE_ARITY)."""


def build(plan: Plan, *, limit: int | None = None) -> Schedule:
    """Build the tree schedule of a plan.

    Parameters
    ----------
    plan : Plan
        Its collective is all_reduce, and every channel has a tree over all ranks.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If the collective is another, or a channel has no such tree.
    """
    if plan.collective != "all_reduce":
        raise ScheduleError(f"tree has no {plan.collective}; accepted is all_reduce")
    program = Program(plan, limit=limit)
    if plan.ranks > 1:
        orders = [order_of(channel, plan.ranks) for channel in plan.channels]
        _all_reduce(program, orders)
    return program.build()


def order_of(channel: Channel, ranks: int, *, roots: int = 1) -> list[int]:
    """Return all ranks, parents before children, after making sure that a channel has a tree, or a forest, over them.

    Parameters
    ----------
    channel : Channel
        Whose tree is looked at.
    ranks : int
        How many ranks it must be over.
    roots : int
        How many ranks must have no parent.

    Raises
    ------
    ScheduleError
        If it is no such tree.
    """
    tree, name = channel.tree, f"the tree of channel {channel.number}"
    if tree is None:
        raise ScheduleError(f"{name} is missing; give the channel one over ranks 0 to {ranks - 1}")
    if len(tree.parent) != ranks or len(tree.children) != ranks:
        raise ScheduleError(
            f"{name} has {len(tree.parent)} parents and {len(tree.children)} lists of children; it must have {ranks} of each"
        )
    order = [rank for rank, parent in enumerate(tree.parent) if parent < 0]
    if len(order) != roots:
        raise ScheduleError(f"{name} has {len(order)} ranks without a parent; it must have {roots}")
    seen = set(order)
    for rank in order:  # grows while it is walked
        children = tree.children[rank]
        if len(children) > MAX_CHILDREN:
            raise ScheduleError(f"{name} gives rank {rank} {len(children)} children; at most {MAX_CHILDREN} are served")
        for child in children:
            if not 0 <= child < ranks or tree.parent[child] != rank or child in seen:
                raise ScheduleError(f"{name} has {child} as a child of rank {rank}, which is not its only parent")
            order.append(child)
            seen.add(child)
    if len(order) < ranks:
        left = next(rank for rank in range(ranks) if rank not in seen)
        raise ScheduleError(f"{name} does not reach rank {left} from a root")
    return order


def split_threads(plan: Plan) -> tuple[int, int]:
    """Return how many of a channel's threads work upwards and how many downwards.

    Half and half by Simple, with 64 more upwards where half is 256 or more; else 70 % upwards in whole warps.

    Examples
    --------
    >>> from dataclasses import replace
    >>> plan = Plan("all_reduce", "tree", "simple", 2, 8, (), (), 8, threads=640)
    >>> split_threads(plan), split_threads(replace(plan, protocol="ll"))
    ((384, 256), (448, 192))
    """
    if plan.kind.follows:
        up = plan.threads * 7 // 10 // 32 * 32
    else:
        up = plan.threads // 2
        up += 64 if up >= 256 else 0
    return up, plan.threads - up


def _all_reduce(program: Program, orders: list[list[int]]) -> None:
    """Send every chunk up and down, the channels in turn."""
    plan = program.plan
    up_threads, down_threads = split_threads(plan)
    laid = list(zip(plan.channels, plan.shares, map(plan.chunk_of, plan.channels), orders, strict=True))

    def loop(number: int) -> None:
        for channel, (offset, share), chunk, order in laid:
            size = min(chunk, share - number * chunk)
            if size <= 0:
                continue
            tree, name, start = channel.tree, channel.number, offset + number * chunk
            assert tree is not None
            for rank in reversed(order):
                parent, children = tree.parent[rank], tree.children[rank]
                ups = [program.connection(child, rank, name, "up") for child in children]
                downs = [program.connection(rank, child, name, "down") for child in children]
                if parent < 0:
                    lane = program.lane(rank, name, "root")
                    program.do(lane, RECV_REDUCE_COPY_SEND, start, size, receive=ups, send=downs, chunk=number, step=1)
                    continue
                program.do(
                    program.lane(rank, name, "up", threads=up_threads),
                    RECV_REDUCE_SEND if children else SEND,
                    start,
                    size,
                    receive=ups,
                    send=[program.connection(rank, parent, name, "up")],
                    reduce=True,
                    chunk=number,
                )
            for rank in order[1:]:
                children = tree.children[rank]
                program.do(
                    program.lane(rank, name, "down", threads=down_threads),
                    RECV_COPY_SEND if children else RECV,
                    start,
                    size,
                    receive=[program.connection(tree.parent[rank], rank, name, "down")],
                    send=[program.connection(rank, child, name, "down") for child in children],
                    chunk=number,
                    step=2,
                )

    program.in_loops(*loops_of((share, chunk) for _, (_, share), chunk, _ in laid), loop)
