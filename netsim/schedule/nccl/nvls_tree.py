"""NCCL's NVLSTree: an all-reduce over several nodes, by NVLS inside them and by trees of heads between them.

Head h of a node deals with chunk h of every piece and talks to heads h of other nodes only. On a channel its nodes form
one tree (the plan's: one of two, by the channel's number). A node's sum goes up with those of its children, when they are
there, as one slice; the result comes down, is multicast and handed on by a further group of threads. The root does both
in one. Facts of NCCL 2.30 (device/all_reduce.h, graph/connect.cc).
"""

from netsim.errors import ScheduleError
from netsim.schedule.dag import END, HEAD, Schedule
from netsim.schedule.nccl.nvls import Domain, check_simple, heads_of, loops, nodes_of, rounds_of
from netsim.schedule.nccl.plan import Channel, Plan, Ranks
from netsim.schedule.nccl.program import Connection, Program
from netsim.schedule.nccl.rows import Need
from netsim.schedule.nccl.tree import order_of


def build(plan: Plan, *, limit: int | None = None) -> Schedule:
    """Build the NVLSTree schedule of a plan.

    Parameters
    ----------
    plan : Plan
        Its collective is all_reduce and its protocol simple; the tree of every channel is a forest with one tree a head,
        each over the same head of all nodes. Ranks that are no heads have no parent and no children.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If the plan is for anything else, or trees do not fit the heads.
    """
    if plan.collective != "all_reduce":
        raise ScheduleError(f"nvls_tree has no {plan.collective}; accepted is all_reduce")
    check_simple(plan, "nvls_tree")
    program = Program(plan, limit=limit)
    if plan.ranks > 1:
        heads = heads_of(plan, "nvls_tree")
        parts = [_Part(program, channel, nodes_of(plan), heads) for channel in plan.channels]

        def loop(number: int) -> None:
            for place, size, chunks in loops(plan, len(heads[0]), number):
                parts[place].run(number, size, chunks)

        program.in_loops(*rounds_of(plan, len(heads[0])), loop)
    return program.build()


class _Part:
    """One channel on all nodes."""

    def __init__(self, program: Program, channel: Channel, nodes: tuple[Ranks, ...], heads: tuple[Ranks, ...]) -> None:
        self.program = program
        self.channel = channel.number
        self._loop_s = program.plan.costs.nvls_loop_s
        self.domains = [Domain(program, channel.number, node, mine) for node, mine in zip(nodes, heads, strict=True)]
        ranks = program.plan.ranks
        order = order_of(channel, ranks, roots=ranks - len(heads[0]) * (len(nodes) - 1))
        assert channel.tree is not None
        self.tree = channel.tree
        place = {rank: (node, head) for node, mine in enumerate(heads) for head, rank in enumerate(mine)}
        for rank in order:
            for child in self.tree.children[rank]:
                if rank not in place or child not in place or place[rank][1] != place[child][1]:
                    raise ScheduleError(
                        f"the tree of channel {channel.number} joins ranks {rank} and {child}; "
                        "nvls_tree joins the same head of two nodes"
                    )
        self.order = [(rank, *place[rank]) for rank in order if rank in place]
        """(rank, node, head), parents before children."""

    def run(self, loop: int, size: int, chunks: list[tuple[int, int]]) -> None:
        """Do one loop: everything up, then everything down."""
        rooms = []
        for domain in self.domains:
            domain.copy_in(loop, size)
            rooms.append(domain.room(loop))
        for rank, node, head in reversed(self.order):
            if chunks[head][1]:
                self._up(rank, self.domains[node], loop, *chunks[head], rooms[node])
        for rank, node, head in self.order:
            parent = self.tree.parent[rank]
            if parent >= 0 and chunks[head][1]:
                above = self._between(parent, rank, "down")
                needs = [*rooms[node], self.program.take(above)]
                domain = self.domains[node]
                self._hand_on(rank, domain, loop, "broadcast", *chunks[head], needs, self._loop_s)
                domain.push(loop, rank, "broadcast", *chunks[head], needs, used=[above])
        for domain in self.domains:
            domain.copy_out(loop, size)

    def _up(self, rank: int, domain: Domain, loop: int, offset: int, size: int, room: list[Need]) -> None:
        """Add up what the own node and the nodes below have; send it up, or at the root down."""
        program, parent = self.program, self.tree.parent[rank]
        below = [self._between(child, rank, "up") for child in self.tree.children[rank]]
        # The loop waits for all that it adds before it begins.
        needs = [program.take(connection) for connection in below]
        begun, output = domain.pull(loop, rank, offset, size, needs if parent >= 0 else needs + room)
        if parent < 0:
            self._hand_on(rank, domain, loop, "reduce", offset, size, [(output, END, 0.0), (begun, END, self._loop_s)], 0.0)
            needs = [(output, HEAD, 0.0)]
            op = domain.push(loop, rank, "reduce", offset, size, needs, early=True, used=below)
        else:
            op = program.transfer(
                program.lane(rank, self.channel, "reduce"),
                self._between(rank, parent, "up"),
                offset,
                size,
                needs=[(output, END, 0.0)],
                used=below,
                duration=self._loop_s,
                work=program.plan.costs.nvls_reduce_s(size),
                early=True,
                reduce=True,
                chunk=loop,
            )
        domain.read(op)

    def _hand_on(
        self, rank: int, domain: Domain, loop: int, role: str, offset: int, size: int, needs: list[Need], duration: float
    ) -> None:
        """Send a result to the nodes below, in the same loop of a lane that multicasts it next."""
        for number, child in enumerate(self.tree.children[rank]):
            self.program.transfer(
                self.program.lane(rank, self.channel, role),
                self._between(rank, child, "down"),
                offset,
                size,
                needs=needs,
                duration=duration,
                work=self.program.plan.costs.nvls_reduce_s(size),
                beside=number,
                chunk=loop,
                step=1,
            )

    def _between(self, src: int, dst: int, way: str) -> Connection:
        return self.program.connection(src, dst, self.channel, way)
