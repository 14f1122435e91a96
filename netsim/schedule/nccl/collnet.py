"""NCCL's CollNet: an all-reduce over several nodes in which the network adds up, joined by one or several heads a node.

A head gives the network its node's sum of a chunk (a leg to the switch that adds for the heads of one number) and is
given the result (an output of the same legs). CollnetDirect deals a chunk to each of a node's heads, who exchange with
all GPUs of the node; in CollnetChain the GPUs of a node form a chain that ends at its only head. Facts of NCCL 2.30
(device/all_reduce.h). Deliberately left out: how the network's reducers are cut into trees of switches of their own.
"""

from itertools import pairwise

from netsim.errors import ScheduleError
from netsim.schedule.dag import COMPUTE, END, HEAD, LEFT, LEG, OUTPUT, Schedule
from netsim.schedule.nccl.loops import loops_of
from netsim.schedule.nccl.nvls import check_simple, heads_of, nodes_of
from netsim.schedule.nccl.plan import Channel, Plan, Ranks
from netsim.schedule.nccl.program import RECV, RECV_COPY_SEND, RECV_REDUCE_SEND, SEND, Connection, Program
from netsim.schedule.nccl.tree import order_of

MAX_LOCAL_RANKS = 8
"""Most ranks of a node (NCCL_MAX_DIRECT_ARITY + 1)."""


def build_direct(plan: Plan, *, limit: int | None = None) -> Schedule:
    """Build the CollnetDirect schedule of a plan.

    Parameters
    ----------
    plan : Plan
        Its collective is all_reduce and its protocol simple; its heads are by default all ranks of a node.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If the plan is for anything else, or a node has more than 8 ranks.
    """
    program = _program(plan, "collnet_direct", limit)
    if plan.ranks > 1:
        heads = heads_of(plan, "collnet_direct")
        parts = [_Direct(program, channel, nodes_of(plan), heads) for channel in plan.channels]
        laid = list(zip(parts, plan.shares, map(plan.chunk_of, plan.channels), strict=True))
        count = len(heads[0])

        def loop(number: int) -> None:
            for part, (offset, share), chunk in laid:
                done = number * count * chunk
                if share > done:
                    part.run(number, offset + done, min(share - done, count * chunk), chunk)

        program.in_loops(*loops_of((share, count * chunk) for _, (_, share), chunk in laid), loop)
    return program.build()


def build_chain(plan: Plan, *, limit: int | None = None) -> Schedule:
    """Build the CollnetChain schedule of a plan.

    Parameters
    ----------
    plan : Plan
        Its collective is all_reduce and its protocol simple; the tree of every channel is a forest with one chain a node,
        whose root is the rank at the network.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If the plan is for anything else, chains do not fit the nodes, or a node has more than 8 ranks.
    """
    program = _program(plan, "collnet_chain", limit)
    if plan.ranks > 1:
        parts = [_Chain(program, channel, nodes_of(plan)) for channel in plan.channels]
        laid = list(zip(parts, plan.shares, map(plan.chunk_of, plan.channels), strict=True))

        def loop(number: int) -> None:
            for part, (offset, share), chunk in laid:
                done = number * chunk
                if share > done:
                    part.run(number, offset + done, min(share - done, chunk))

        program.in_loops(*loops_of((share, chunk) for _, (_, share), chunk in laid), loop)
    return program.build()


def _program(plan: Plan, name: str, limit: int | None) -> Program:
    if plan.collective != "all_reduce":
        raise ScheduleError(f"{name} has no {plan.collective}; accepted is all_reduce")
    check_simple(plan, name)
    largest = max(len(node) for node in nodes_of(plan))
    if largest > MAX_LOCAL_RANKS:
        raise ScheduleError(f"{name} takes at most {MAX_LOCAL_RANKS} ranks a node, but one has {largest}")
    return Program(plan, limit=limit)


class _Network:
    """One channel's way through the network for the heads of one number, one a node."""

    def __init__(self, program: Program, channel: int, heads: Ranks) -> None:
        self._program = program
        self._channel = channel
        self._heads = heads
        self._group = program.group(heads)
        self._used = {head: program.keep() for head in heads}
        self._outputs: dict[int, int] = {}

    def reduce(
        self, number: int, offset: int, size: int, role: str, threads: int, below: dict[int, list[Connection]]
    ) -> None:
        """Let every head add up what comes from `below` and give it to the network, and the network give back the sum."""
        program, plan = self._program, self._program.plan
        legs = []
        for head in self._heads:
            lane = program.lane(head, self._channel, role, threads=threads)
            fixed_s, work_s = program.cost(lane, RECV_REDUCE_SEND if below[head] else SEND, size)
            needs = [program.take(connection) for connection in below[head]]
            if number >= plan.slots:
                needs += [(op, LEFT, plan.costs.credit_s) for op in self._used[head].popleft()]
            legs.append(
                program.operation(
                    lane,
                    LEG,
                    offset,
                    size,
                    src=head,
                    needs=needs,
                    used=below[head],
                    group=self._group,
                    duration=fixed_s,
                    work=work_s,
                    chunk=number,
                    step=1,
                )
            )
        self._outputs = {
            head: program.operation(
                program.port(head, f"channel {self._channel} network"),
                OUTPUT,
                offset,
                size,
                dst=head,
                needs=[(leg, HEAD, 0.0) for leg in legs],
                group=self._group,
                chunk=number,
                step=2,
            )
            for head in self._heads
        }

    def hand_on(
        self, number: int, offset: int, size: int, role: str, threads: int, above: dict[int, list[Connection]]
    ) -> None:
        """Let every head store the sum and send it to all who wait for it."""
        program = self._program
        for head in self._heads:
            lane = program.lane(head, self._channel, role, threads=threads)
            needs = [(self._outputs[head], END, 0.0)]
            if not above[head]:
                seconds = sum(program.cost(lane, RECV, size))
                op = program.operation(lane, COMPUTE, needs=needs, duration=seconds, chunk=number, step=3)
            else:
                fixed_s, work_s = program.cost(lane, RECV_COPY_SEND, size)
                last = len(above[head]) - 1
                for place, connection in enumerate(above[head]):
                    op = program.transfer(
                        lane,
                        connection,
                        offset,
                        size,
                        needs=needs,
                        duration=fixed_s,
                        work=work_s,
                        beside=None if place == last else place,
                        chunk=number,
                        step=3,
                    )
            self._used[head].append([op])


class _Direct:
    """CollnetDirect on one channel: four groups of threads on every rank."""

    def __init__(self, program: Program, channel: Channel, nodes: tuple[Ranks, ...], heads: tuple[Ranks, ...]) -> None:
        self.program = program
        self.channel = channel.number
        self.threads = program.plan.threads // 4
        self.nodes = nodes
        self.heads = heads
        self.networks = [_Network(program, channel.number, members) for members in zip(*heads, strict=True)]

    def run(self, number: int, offset: int, size: int, chunk: int) -> None:
        """Do one loop: every head of a node deals with a chunk."""
        count = len(self.networks)
        bounds = [min(head * chunk, size) for head in range(count + 1)]
        parts = [(offset + first, stop - first) for first, stop in pairwise(bounds)]
        self._exchange("scatter", number, parts)
        for which, (network, (first, part)) in enumerate(zip(self.networks, parts, strict=True)):
            if part:
                peers = {
                    heads[which]: [rank for rank in node if rank != heads[which]]
                    for node, heads in zip(self.nodes, self.heads, strict=True)
                }
                ins = {head: [self._between(rank, head, "scatter") for rank in others] for head, others in peers.items()}
                outs = {head: [self._between(head, rank, "gather") for rank in others] for head, others in peers.items()}
                network.reduce(number, first, part, "reduce", self.threads, ins)
                network.hand_on(number, first, part, "broadcast", self.threads, outs)
        self._exchange("gather", number, parts)

    def _exchange(self, role: str, number: int, parts: list[tuple[int, int]]) -> None:
        """Let every rank send its part to each head of its node, or receive the result from each, from its own on."""
        for node, heads in zip(self.nodes, self.heads, strict=True):
            for place, rank in enumerate(node):
                for turn in range(len(heads)):
                    which = (place + turn) % len(heads)
                    head, (offset, size) = heads[which], parts[which]
                    if head == rank or not size:
                        continue
                    lane = self.program.lane(rank, self.channel, role, threads=self.threads)
                    if role == "scatter":
                        out = [self._between(rank, head, role)]
                        self.program.do(lane, SEND, offset, size, send=out, reduce=True, from_input=True, chunk=number)
                    else:
                        back = [self._between(head, rank, role)]
                        self.program.do(lane, RECV, offset, size, receive=back, chunk=number, step=4)

    def _between(self, src: int, dst: int, way: str) -> Connection:
        return self.program.connection(src, dst, self.channel, way)


class _Chain:
    """CollnetChain on one channel: two groups of threads on every rank."""

    def __init__(self, program: Program, channel: Channel, nodes: tuple[Ranks, ...]) -> None:
        order_of(channel, program.plan.ranks, roots=len(nodes))
        assert channel.tree is not None
        chains = []
        for top in (rank for rank, parent in enumerate(channel.tree.parent) if parent < 0):
            chain = [top]
            for rank in chain:  # grows while it is walked
                chain += channel.tree.children[rank]
            chains.append(chain)
        forks = [rank for rank, below in enumerate(channel.tree.children) if len(below) > 1]
        if forks or sorted(map(sorted, chains)) != sorted(map(sorted, nodes)):
            raise ScheduleError(
                f"the tree of channel {channel.number} has the chains {chains} for the nodes {nodes}; collnet_chain takes "
                "one a node, of all its ranks and without forks"
            )
        self.program = program
        self.channel = channel.number
        self.threads = program.plan.threads // 2
        self.chains = chains
        self.network = _Network(program, channel.number, tuple(chain[0] for chain in chains))

    def run(self, number: int, offset: int, size: int) -> None:
        """Send a chunk up the chains, through the network and down again."""
        program = self.program
        for chain in self.chains:
            for lower, rank, upper in reversed(list(zip((*chain[2:], -1), chain[1:], chain, strict=False))):
                program.do(
                    program.lane(rank, self.channel, "up", threads=self.threads),
                    SEND if lower < 0 else RECV_REDUCE_SEND,
                    offset,
                    size,
                    receive=[] if lower < 0 else [self._between(lower, rank, "up")],
                    send=[self._between(rank, upper, "up")],
                    reduce=True,
                    chunk=number,
                )
        tops = {chain[0]: chain[1:2] for chain in self.chains}
        ins = {head: [self._between(rank, head, "up") for rank in others] for head, others in tops.items()}
        outs = {head: [self._between(head, rank, "down") for rank in others] for head, others in tops.items()}
        self.network.reduce(number, offset, size, "up", self.threads, ins)
        self.network.hand_on(number, offset, size, "down", self.threads, outs)
        for chain in self.chains:
            for upper, rank, lower in zip(chain, chain[1:], (*chain[2:], -1), strict=False):
                program.do(
                    program.lane(rank, self.channel, "down", threads=self.threads),
                    RECV if lower < 0 else RECV_COPY_SEND,
                    offset,
                    size,
                    receive=[self._between(upper, rank, "down")],
                    send=[] if lower < 0 else [self._between(rank, lower, "down")],
                    chunk=number,
                    step=4,
                )

    def _between(self, src: int, dst: int, way: str) -> Connection:
        return self.program.connection(src, dst, self.channel, way)
