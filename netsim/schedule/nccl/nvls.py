"""NCCL's NVLS: the NVSwitch adds what it pulls from all GPUs and copies what it is given to all of them.

Each channel loops over pieces of a chunk a head. Three groups of threads work at the same time on following loops: copy
in (from user memory to a buffer that the switch reads), reduce and multicast (each head its chunk), copy out. What the
switch reads and writes moves through ports of the GPUs' memory, without their threads. Every GPU is pulled from and
written to, heads included, so an all-reduce costs each GPU S + S/H bytes out and as many in. Facts of NCCL 2.30
(device/all_reduce.h and its like). Over several nodes a network that reduces joins the same head of all nodes: it is given
a node's sum and gives back that of all, which a fourth group of threads multicasts. Deliberately left out: flags and
fences, which are part of a loop's cost; all-gather and reduce-scatter over several nodes.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from netsim.errors import ScheduleError
from netsim.schedule.dag import BRANCH, COMPUTE, END, HEAD, LEFT, LEG, OUTPUT, TRUNK, Schedule
from netsim.schedule.nccl.loops import loops_of
from netsim.schedule.nccl.plan import Plan, Ranks
from netsim.schedule.nccl.program import Program
from netsim.schedule.nccl.rows import Need

MAX_HEADS = 32
"""Most heads of a node (NCCL_MAX_NVLS_ARITY)."""
GRAIN_BYTES = 16_384
"""The chunks of a last, shorter loop are multiples of this."""


def build(plan: Plan, *, limit: int | None = None) -> Schedule:
    """Build the NVLS schedule of a plan.

    Parameters
    ----------
    plan : Plan
        Its collective is all_reduce, or on one node all_gather or reduce_scatter, its protocol simple; its heads are by
        default the first 32 ranks of each node.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If the plan is for anything else; all-gather and reduce-scatter need every rank to be a head.
    """
    if plan.collective not in _BUILDERS:
        raise ScheduleError(f"nvls has no {plan.collective}; accepted are {', '.join(_BUILDERS)}")
    check_simple(plan, "nvls")
    nodes = nodes_of(plan)
    if len(nodes) > 1 and plan.collective != "all_reduce":
        raise ScheduleError(f"nvls has {plan.collective} inside one node only, but the plan has {len(nodes)} nodes")
    program = Program(plan, limit=limit)
    if len(nodes) > 1:
        _over_nodes(program, nodes, heads_of(plan, "nvls"))
    elif plan.ranks > 1:
        heads = heads_of(plan, "nvls")[0]
        if plan.collective != "all_reduce" and sorted(heads) != list(range(plan.ranks)):
            raise ScheduleError(
                f"{plan.collective} by nvls needs every rank to be a head, but {len(heads)} of {plan.ranks} are; "
                f"at most {MAX_HEADS} can be"
            )
        members = tuple(range(plan.ranks))
        domains = [Domain(program, channel.number, members, heads) for channel in plan.channels]
        _BUILDERS[plan.collective](program, domains)
    return program.build()


def check_simple(plan: Plan, name: str) -> None:
    """Raise `ScheduleError` unless a plan is for Simple, the only protocol of algorithms in switches."""
    if plan.protocol != "simple":
        raise ScheduleError(f"{name} has no protocol {plan.protocol}; accepted is simple")


def nodes_of(plan: Plan) -> tuple[Ranks, ...]:
    """Return the ranks of each node of a plan, one node if it names none, after making sure that they are all there."""
    nodes = plan.nodes or (tuple(range(plan.ranks)),)
    if sorted(rank for node in nodes for rank in node) != list(range(plan.ranks)):
        raise ScheduleError(f"the nodes {nodes} do not hold each of {plan.ranks} ranks once")
    return nodes


def heads_of(plan: Plan, name: str) -> tuple[Ranks, ...]:
    """Return the heads of each node of a plan, by default its first ranks, as many on all nodes.

    Raises
    ------
    ScheduleError
        If they are no ranks of their nodes, or not as many on each.
    """
    nodes = nodes_of(plan)
    most = min(MAX_HEADS, *map(len, nodes))
    heads = plan.heads or tuple(node[:most] for node in nodes)
    if len(heads) != len(nodes):
        raise ScheduleError(f"{name} has heads for {len(heads)} nodes, but the plan has {len(nodes)}")
    for node, mine in zip(nodes, heads, strict=True):
        if len(mine) != len(heads[0]) or not 1 <= len(set(mine) & set(node)) == len(mine) <= MAX_HEADS:
            raise ScheduleError(
                f"{name} on the node of ranks {node} has the heads {mine}; accepted are 1 to {MAX_HEADS} different ones "
                "of its ranks, as many as on the first node"
            )
    return heads


def rounds_of(plan: Plan, heads: int) -> tuple[int, int]:
    """Return how many loops an all-reduce has, and how many from the first on are full on all channels."""
    laid = zip(plan.channels, plan.shares, strict=True)
    return loops_of((share, heads * plan.chunk_of(channel)) for channel, (_, share) in laid)


def loops(plan: Plan, heads: int, number: int) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Yield (place of the channel, bytes, chunks) of one loop of an all-reduce, the channels in turn.

    The chunks are (offset, size) of each head; in the last loop of a channel they are shorter, in steps of 16 KiB, so
    that the last heads may have none.
    """
    for place, (channel, (offset, share)) in enumerate(zip(plan.channels, plan.shares, strict=True)):
        whole = plan.chunk_of(channel)
        piece = heads * whole
        left = min(share - number * piece, piece)
        if left <= 0:
            continue
        grain = min(GRAIN_BYTES, whole)
        chunk = min(whole, grain * -(-left // (heads * grain)))
        bounds = [min(head * chunk, left) for head in range(heads + 1)]
        start = offset + number * piece
        yield place, left, [(start + bounds[h], bounds[h + 1] - bounds[h]) for h in range(heads)]


class Domain:
    """The stages of NVLS for one channel on the ranks that one switch joins.

    Parameters
    ----------
    program : Program
        Where operations go.
    channel : int
        Number of the channel.
    ranks : tuple of int
        All ranks at the switch.
    heads : tuple of int
        Those that reduce and multicast.
    """

    def __init__(self, program: Program, channel: int, ranks: Ranks, heads: Ranks) -> None:
        self.program = program
        self.channel = channel
        self.ranks = ranks
        self.heads = heads
        self._group = program.group(ranks)
        self._filled: list[int] = []
        """The copies into the buffer of this loop."""
        self._read = program.keep()
        """For each loop what must have left before the buffer is free again."""
        self._arrived: list[range] = []
        """What the switch delivers to the ranks in this loop, in their order."""
        self._ports: dict[str, list[int]] = {}
        """For each role the ports of the ranks, in their order."""
        self._emptied = program.keep()
        """For each loop the copies out of the buffer."""

    def copy_in(self, loop: int, size: int) -> None:
        """Let every rank copy its data of a loop into its buffer; no buffer is needed where user memory is registered."""
        plan = self.program.plan
        if plan.registered:
            return
        needs = self._freed(self._read, loop)
        self._read.append([])
        seconds = plan.costs.nvls_copy_s(size)
        self._filled = [
            self.program.operation(
                self.program.lane(rank, self.channel, "copy in"), COMPUTE, needs=needs, duration=seconds, chunk=loop
            )
            for rank in self.ranks
        ]

    def pull(self, loop: int, head: int, offset: int, size: int, needs: Sequence[Need] = ()) -> tuple[int, int]:
        """Let a head have its chunk added up from all ranks; return where its lane begins with it, and the output.

        The lane's next operation can run `early`, as it does its work while the chunk comes.
        """
        program, number = self.program, self.channel
        wanted = [(op, END, 0.0) for op in self._filled]
        begun = program.operation(program.lane(head, number, "reduce"), COMPUTE, needs=[*wanted, *needs], chunk=loop)
        legs = program.fan(
            self._of_all(f"channel {number} leg {head}"),
            LEG,
            offset,
            size,
            (begun, END, 0.0),
            src=self.ranks,
            group=self._group,
            from_input=True,
            chunk=loop,
        )
        output = program.operation(
            program.port(head, f"channel {number} output"),
            OUTPUT,
            offset,
            size,
            dst=head,
            needs=[(leg, HEAD, 0.0) for leg in legs],
            group=self._group,
            chunk=loop,
        )
        return begun, output

    def read(self, op: int) -> None:
        """Note that an operation is the last to read what this loop has copied in, for one of the heads."""
        if not self.program.plan.registered:
            self._read[-1].append(op)

    def room(self, loop: int) -> list[Need]:
        """Return what a head waits for before it multicasts into a loop's slot of the buffers."""
        return self._freed(self._emptied, loop)

    def push(self, loop: int, head: int, role: str, offset: int, size: int, needs: Sequence[Need], **more: Any) -> int:
        """Let a head multicast its chunk to all ranks in one of its lanes, and return the trunk; `more`: its columns."""
        program, number = self.program, self.channel
        trunk = program.operation(
            program.lane(head, number, role),
            TRUNK,
            offset,
            size,
            src=head,
            needs=needs,
            group=self._group,
            duration=program.plan.costs.nvls_loop_s,
            work=program.plan.costs.nvls_reduce_s(size),
            chunk=loop,
            step=1,
            **more,
        )
        branches = program.fan(
            self._of_all(f"channel {number} branch {head}"),
            BRANCH,
            offset,
            size,
            (trunk, HEAD, 0.0),
            dst=self.ranks,
            group=self._group,
            chunk=loop,
            step=1,
        )
        self._arrived.append(branches)
        return trunk

    def copy_out(self, loop: int, size: int) -> None:
        """Let every rank copy a loop's result out of its buffer; where user memory is registered it is there already."""
        plan, arrived = self.program.plan, self._arrived
        self._arrived = []
        if plan.registered:
            return
        seconds = plan.costs.nvls_copy_s(size)
        self._emptied.append(
            [
                self.program.operation(
                    self.program.lane(rank, self.channel, "copy out"),
                    COMPUTE,
                    needs=[(branches[place], END, 0.0) for branches in arrived],
                    duration=seconds,
                    chunk=loop,
                    step=2,
                )
                for place, rank in enumerate(self.ranks)
            ]
        )

    def _of_all(self, role: str) -> list[int]:
        """Return the ports of all ranks for one role."""
        if role not in self._ports:
            self._ports[role] = [self.program.port(rank, role) for rank in self.ranks]
        return self._ports[role]

    def _freed(self, users: deque[list[int]], loop: int) -> list[Need]:
        """Return what waits for the slot of a loop: those who used it some loops ago, one slot a loop."""
        plan = self.program.plan
        free = users.popleft() if users and loop >= plan.slots else []
        return [(op, LEFT, plan.costs.credit_s) for op in free]


def _all_reduce(program: Program, domains: list[Domain]) -> None:
    """Copy in, reduce and multicast, copy out."""
    heads = len(domains[0].heads)

    def loop(number: int) -> None:
        for place, size, chunks in loops(program.plan, heads, number):
            domain = domains[place]
            domain.copy_in(number, size)
            room = domain.room(number)
            for head, (offset, part) in zip(domain.heads, chunks, strict=True):
                if part:
                    _, output = domain.pull(number, head, offset, part, room)
                    domain.read(domain.push(number, head, "reduce", offset, part, [(output, HEAD, 0.0)], early=True))
            domain.copy_out(number, size)

    program.in_loops(*rounds_of(program.plan, heads), loop)


def _over_nodes(program: Program, nodes: tuple[Ranks, ...], heads: tuple[Ranks, ...]) -> None:
    """Copy in, reduce and give to the network, take from it and multicast, copy out."""
    plan = program.plan
    channels = [
        [Domain(program, channel.number, node, mine) for node, mine in zip(nodes, heads, strict=True)]
        for channel in plan.channels
    ]
    groups = [program.group(members) for members in zip(*heads, strict=True)]
    taken = {(place, head): program.keep() for place in range(len(channels)) for mine in heads for head in mine}

    def chunk(number: int, place: int, which: int, offset: int, part: int, rooms: list[list[Need]]) -> None:
        """Let the heads of one number give a chunk to the network, and multicast what it gives back."""
        channel, domains = plan.channels[place].number, channels[place]
        here: dict[str, Any] = {"offset": offset, "size": part, "group": groups[which], "chunk": number, "step": 1}
        work: dict[str, Any] = {"duration": plan.costs.nvls_loop_s, "work": plan.costs.nvls_reduce_s(part), "early": True}
        legs = []
        for domain in domains:
            head = domain.heads[which]
            before = taken[place, head].popleft() if number >= plan.slots else []
            _, output = domain.pull(number, head, offset, part, [(op, LEFT, plan.costs.credit_s) for op in before])
            lane = program.lane(head, channel, "reduce")
            legs.append(program.operation(lane, LEG, src=head, needs=[(output, END, 0.0)], **here, **work))
            domain.read(legs[-1])
        for domain, room in zip(domains, rooms, strict=True):
            head = domain.heads[which]
            port = program.port(head, f"channel {channel} network")
            total = program.operation(port, OUTPUT, dst=head, needs=[(leg, HEAD, 0.0) for leg in legs], **here)
            needs = [*room, (total, END, 0.0)]
            taken[place, head].append([domain.push(number, head, "broadcast", offset, part, needs)])

    def loop(number: int) -> None:
        for place, size, chunks in loops(plan, len(groups), number):
            for domain in channels[place]:
                domain.copy_in(number, size)
            rooms = [domain.room(number) for domain in channels[place]]
            for which, (offset, part) in enumerate(chunks):
                if part:
                    chunk(number, place, which, offset, part, rooms)
            for domain in channels[place]:
                domain.copy_out(number, size)

    program.in_loops(*rounds_of(plan, len(groups)), loop)


def _all_gather(program: Program, domains: list[Domain]) -> None:
    """Multicast every rank's own block from user memory, copy out."""

    def part(number: int, domain: Domain, size: int, blocks: list[tuple[int, int]]) -> None:
        room = domain.room(number)
        for head, offset in blocks:
            domain.push(number, head, "multicast", offset, size, room, from_input=True)
        domain.copy_out(number, size * len(blocks))

    _in_blocks(program, domains, part)


def _reduce_scatter(program: Program, domains: list[Domain]) -> None:
    """Copy in, have every rank's block added up for it, straight into user memory."""
    costs = program.plan.costs

    def part(number: int, domain: Domain, size: int, blocks: list[tuple[int, int]]) -> None:
        domain.copy_in(number, size * len(blocks))
        seconds = costs.nvls_loop_s + costs.nvls_reduce_s(size)
        for head, offset in blocks:
            _, output = domain.pull(number, head, offset, size)
            lane = program.lane(head, domain.channel, "reduce")
            needs = [(output, END, 0.0)]
            domain.read(program.operation(lane, COMPUTE, needs=needs, duration=seconds, early=True, chunk=number, step=1))

    _in_blocks(program, domains, part)


def _in_blocks(
    program: Program, domains: list[Domain], write: Callable[[int, Domain, int, list[tuple[int, int]]], None]
) -> None:
    """Write (loop, domain, size of a chunk, (head, offset) of each chunk) where every rank has a block."""
    plan = program.plan
    block = plan.size_bytes // plan.ranks
    laid = list(zip(domains, plan.shares, map(plan.chunk_of, plan.channels), strict=True))

    def loop(number: int) -> None:
        for domain, (offset, share), chunk in laid:
            size = min(chunk, share - number * chunk)
            if size > 0:
                start = offset + number * chunk
                write(number, domain, size, [(head, head * block + start) for head in domain.heads])

    program.in_loops(*loops_of((share, chunk) for _, (_, share), chunk in laid), loop)


_BUILDERS = {"all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter}
