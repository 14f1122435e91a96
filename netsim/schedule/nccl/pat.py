"""NCCL's PAT: all-gather and reduce-scatter by parallel aggregated trees, block by block on groups of a channel's threads.

Which blocks share a message and in which order messages go is the same as in `netsim.schedule.pat`. Here a message is
made by up to 16 groups of threads, a block each in turn, and sent by a proxy; a block stays in the receiver's buffer until
it has been passed on to all its children, and messages of one distance have eight slots. Facts of NCCL 2.30
(include/collectives.h, device/prims_simple.h); Simple only.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from netsim.errors import ScheduleError
from netsim.schedule.dag import END, LEFT, Schedule
from netsim.schedule.nccl.pace import Pace
from netsim.schedule.nccl.plan import Plan, flow_of
from netsim.schedule.nccl.program import (
    COPY_SEND,
    RECV,
    RECV_COPY_SEND,
    RECV_REDUCE_COPY,
    RECV_REDUCE_SEND,
    SEND,
)
from netsim.schedule.nccl.protocols import SLOTS
from netsim.schedule.nccl.writer import Slots, Writer
from netsim.schedule.pat import aggregation, message_offsets

MOST_WORKERS = 16
"""Groups of threads of a channel (NCCL_PAT_NWORKERS)."""


def build(plan: Plan, *, limit: int | None = None) -> Schedule:
    """Build the PAT schedule of a plan.

    Parameters
    ----------
    plan : Plan
        Its collective is all_gather or reduce_scatter, its protocol simple.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If NCCL has no PAT for the collective or the protocol, or there are fewer slots than the order needs.
    """
    if plan.collective not in ("all_gather", "reduce_scatter"):
        raise ScheduleError(f"pat has no {plan.collective}; accepted are all_gather, reduce_scatter")
    if plan.protocol != "simple":
        raise ScheduleError(f"pat by protocol {plan.protocol}; accepted is simple")
    if plan.slots < SLOTS:
        raise ScheduleError(f"pat with {plan.slots} slots; its order needs {SLOTS} or more")
    writer = Writer(
        plan.collective,
        plan.algorithm,
        plan.ranks,
        plan.size_bytes,
        align_bytes=plan.align_bytes,
        limit=limit,
        start_s=plan.costs.start_s,
    )
    trees = [
        _Trees(writer, plan, channel.number, offset, share)
        for channel, (offset, share) in zip(plan.channels, plan.shares, strict=True)
        if share and plan.ranks > 1
    ]
    for number in range(max((-(-tree.share // plan.chunk_bytes) for tree in trees), default=0)):
        for tree in trees:
            if tree.share > number * plan.chunk_bytes:
                tree.write(number)
    return writer.build()


@dataclass
class _Block:
    """What one rank has received, or gathers to send on, of one block."""

    message: int = -1
    """The message that brought it."""
    uses: list[tuple[int, int]] = field(default_factory=list)
    """What uses that message, of all its blocks."""
    sums: list[int] = field(default_factory=list)
    """Reduce-scatter: what has put something into the outgoing buffer, one after the other."""
    copied: bool = False
    """All-gather: whether it has been stored."""


class _Trees:
    """The trees of one channel, at all ranks."""

    def __init__(self, writer: Writer, plan: Plan, channel: int, offset: int, share: int) -> None:
        self.share = share
        self._writer, self._plan, self._channel, self._offset = writer, plan, channel, offset
        _, most = aggregation(plan.ranks, share)
        workers = min(most, MOST_WORKERS)
        self._pace = Pace("simple", plan.costs, max(1, plan.threads // workers))
        self._workers = [
            [writer.lane(rank, f"channel {channel} worker {number}") for number in range(workers)]
            for rank in range(plan.ranks)
        ]
        self._turn = [0] * plan.ranks
        self._messages = message_offsets(plan.ranks, share)
        credit_s = plan.costs.credit_s + plan.costs.network.credit_s  # every rank is a node
        self._slots: defaultdict[tuple[int, int], Slots] = defaultdict(lambda: Slots(credit_s, plan.slots))
        self._sent: defaultdict[int, int] = defaultdict(int)

    def write(self, number: int) -> None:
        """Write one chunk of all blocks."""
        first = number * self._plan.chunk_bytes
        self._first, self._size = self._offset + first, min(self._plan.chunk_bytes, self.share - first)
        self._blocks: defaultdict[tuple[int, int], _Block] = defaultdict(_Block)
        gathers = self._plan.collective == "all_gather"
        # Which message of its distance each is, counted over all chunks.
        messages = self._messages if gathers else self._messages[::-1]
        self._places: dict[int, int] = {}
        for message in messages:
            hop = _hop(message[0])
            self._places |= dict.fromkeys(message, self._sent[hop])
            self._sent[hop] += 1
        for step, message in enumerate(messages):
            for rank in range(self._plan.ranks):
                (self._gather if gathers else self._scatter)(rank, message, step)
            for rank in range(self._plan.ranks):
                (self._store if gathers else self._add)(rank, message, step)

    def _gather(self, rank: int, message: list[int], step: int) -> None:
        """Pass blocks on to the rank at the message's distance; the own one is copied on the way unless it is in place."""
        hop = _hop(message[0])
        free = self._free(rank, message[0], -hop)
        made = []
        for offset in message:
            block = self._blocks[rank, offset - hop]
            arrived = [(block.message, END, 0.0)] if offset != hop else []
            primitive = SEND if block.copied or (offset == hop and self._plan.in_place) else COPY_SEND
            if offset != hop and not block.copied:
                primitive = RECV_COPY_SEND
            block.copied = True
            made.append(self._work(rank, primitive, arrived + free, step))
            block.uses.append((made[-1], LEFT))
        self._post(rank, -hop, message, [(rank + offset - hop) % self._plan.ranks for offset in message], made, step)

    def _store(self, rank: int, message: list[int], step: int) -> None:
        """Take out of the buffer what nobody else needs."""
        for offset in message:
            if not any(offset + child < self._plan.ranks for child in _below(_hop(offset))):
                block = self._blocks[rank, offset]
                block.uses.append((self._work(rank, RECV, [(block.message, END, 0.0)], step), LEFT))

    def _scatter(self, rank: int, message: list[int], step: int) -> None:
        """Send sums on; where no other rank adds to them, the own input."""
        hop = _hop(message[0])
        made = []
        for offset in message:
            block = self._blocks[rank, offset]
            if not block.sums:
                block.sums.append(self._work(rank, SEND, self._free(rank, offset, hop), step))
            made.append(block.sums[-1])
        self._post(rank, hop, message, [(rank + offset) % self._plan.ranks for offset in message], made, step)

    def _add(self, rank: int, message: list[int], step: int) -> None:
        """Add what has come to what goes on, or to the own block at the end."""
        hop = _hop(message[0])
        for offset in message:
            come, onward = self._blocks[rank, offset], self._blocks[rank, offset - hop]
            needs = [(come.message, END, 0.0)]
            if onward.sums:
                needs.append((onward.sums[-1], END, 0.0))
            elif offset != hop:
                needs += self._free(rank, offset - hop, _hop(offset - hop))
            onward.sums.append(self._work(rank, RECV_REDUCE_SEND if offset != hop else RECV_REDUCE_COPY, needs, step))
            come.uses.append((onward.sums[-1], LEFT))

    def _free(self, rank: int, offset: int, away: int) -> list[tuple[int, int, float]]:
        """Return what must be over before the message that serves an offset may be written."""
        return self._slots[rank, away].needs(self._places[offset])

    def _post(self, rank: int, away: int, message: list[int], owners: list[int], made: list[int], step: int) -> None:
        """Let the proxy send a message when all its blocks are made."""
        plan = self._plan
        target = (rank + away) % plan.ranks
        block = plan.size_bytes // plan.ranks
        slots = self._slots[rank, away]
        op = self._writer.message(
            self._writer.lane(rank, f"channel {self._channel} proxy {abs(away)}", starts=False),
            rank,
            target,
            [(owner * block + self._first, self._size) for owner in owners],
            [(work, END, plan.costs.network.handshake_s(self._size * len(made), len(plan.channels))) for work in made],
            reduce=plan.collective == "reduce_scatter",
            chunk=owners[0],
            step=step,
            flow=flow_of(
                self._channel, self._channel, len(self._slots[rank, away].used) % plan.queue_pairs, plan.queue_pairs
            ),
        )
        uses: list[tuple[int, int]] = []
        slots.used.append(uses)
        for offset in message:
            come = self._blocks[target, offset]
            come.message, come.uses = op, uses

    def _work(self, rank: int, primitive: str, needs: list[tuple[int, int, float]], step: int) -> int:
        """Give a block to the next group of threads."""
        workers = self._workers[rank]
        lane = workers[self._turn[rank] % len(workers)]
        self._turn[rank] += 1
        return self._writer.work(lane, self._pace, primitive, self._size, needs, step=step)


def _hop(offset: int) -> int:
    return offset & -offset


def _below(hop: int) -> list[int]:
    """Return the powers of two below one."""
    return [1 << bit for bit in range(hop.bit_length() - 1)]
