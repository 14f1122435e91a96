"""NCCL's grouped sends and receives: all-to-all, send/recv, gather and scatter, round by round on few channels.

A message is cut into parts, each on a channel of its own. A channel works on the rounds of one block of eight at the same
time, with a part of its threads for each, half of them sending and half receiving, and then on those of the next. A part
of one chunk is therefore sent and then received; later chunks overlap. What goes to another node is written to a buffer,
of the sender or, by PXN, of the GPU of its node that sits on the receiver's rail, and a proxy sends it from there: two
messages that hold each other up by their slots. The relay's route stays on its rail, so a router has nothing to relay
once more. Left out: that proxies may send small messages of several ranks as one.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import END, LEFT, Schedule
from netsim.schedule.nccl.loops import loops_of
from netsim.schedule.nccl.pace import Pace
from netsim.schedule.nccl.peers import PeerPlan
from netsim.schedule.nccl.plan import flow_of
from netsim.schedule.nccl.program import RECV, SEND
from netsim.schedule.nccl.protocols import PROTOCOLS
from netsim.schedule.nccl.rounds import part_bounds, part_channel
from netsim.schedule.nccl.rows import Need
from netsim.schedule.nccl.writer import Writer
from netsim.schedule.pieces import checked_groups


@dataclass(frozen=True)
class _Part:
    """One part of what one rank sends to another, or keeps."""

    src: int
    dst: int
    round: int
    channel: int
    offset: int
    size: int
    chunk: int
    protocol: str
    network: bool


def build(plan: PeerPlan, *, limit: int | None = None) -> Schedule:
    """Build the schedule of a plan of sends and receives.

    Parameters
    ----------
    plan : PeerPlan
        What is to be run.
    limit : int or None
        The most operations accepted.
    """
    servers = checked_groups(plan.ranks, plan.nodes or None)
    node = {rank: number for number, server in enumerate(servers) for rank in server}
    parts = _parts(plan, node) if plan.ranks > 1 else []
    # Links have one latency a schedule: that of the messages between nodes, where there are any.
    seen = sorted({(not part.network, part.protocol) for part in parts if part.src != part.dst})
    writer = Writer(
        plan.collective,
        plan.algorithm,
        plan.ranks,
        plan.size_bytes,
        root=plan.root,
        align_bytes=plan.align_bytes,
        protocol=seen[0][1] if seen else "simple",
        limit=limit,
        start_s=(plan.costs if any(protocol != "ll" for _, protocol in seen) else plan.ll_costs).start_s,
    )
    relay = {(part.src, part.dst): _relay(plan, servers, node, part) for part in parts if part.network}
    for _, block in groupby(parts, key=lambda part: part.round // plan.batch):
        _Batch(writer, plan, list(block), relay).write()
    return writer.build()


def _parts(plan: PeerPlan, node: dict[int, int]) -> list[_Part]:
    """Return all parts in order of rounds, ranks and channels."""
    found = []
    for number, peers in enumerate(plan.rounds):
        for src, dst in enumerate(peers):
            offset, size = _message(plan, src, dst)
            if not size or (src == dst and plan.in_place):
                continue
            network = node[src] != node[dst]
            protocol = plan.protocol_of(size, network=network) if src != dst else "simple"
            chunk = plan.chunk_of(size, protocol, network=network)
            for place, (first, part) in enumerate(part_bounds(size, plan.parts(size))):
                channel = part_channel(plan.bases[number], place, plan.channels, plan.version)
                if part:
                    found.append(_Part(src, dst, number, channel, offset + first, part, chunk, protocol, network))
    return found


def _message(plan: PeerPlan, src: int, dst: int) -> tuple[int, int]:
    """Return the offset and size of what one rank has for another; for itself, too."""
    size = plan.size_bytes
    if plan.collective == "sendrecv":
        return src * size, size if dst == (src + 1) % plan.ranks else 0
    bounds = block_bounds(size, plan.ranks, plan.align_bytes)
    other = {"alltoall": dst, "gather": src, "scatter": dst}[plan.collective]
    offset, block = bounds[other], bounds[other + 1] - bounds[other]
    if plan.collective == "alltoall":
        return src * size + offset, block
    return offset, block if plan.root == (dst if plan.collective == "gather" else src) else 0


def _relay(plan: PeerPlan, servers: list[list[int]], node: dict[int, int], part: _Part) -> int:
    """Return the rank whose NIC sends a part to another node: on the receiver's rail, by PXN, or the sender itself."""
    here, there = servers[node[part.src]], servers[node[part.dst]]
    place = there.index(part.dst)
    rail = {rank: plan.rails[rank] if plan.rails else at for server in (here, there) for at, rank in enumerate(server)}
    same = [rank for rank in here if rail[rank] == rail[part.dst]]
    if not (plan.pxn and plan.pxn_always) or part.src in same or not same:
        return part.src
    return here[place] if place < len(here) and here[place] in same else same[0]


class _Buffer:
    """Slots of one part's connection, at home or over there."""

    def __init__(self, writer: Writer, milestone: int, lag_s: float) -> None:
        self.sent = writer.keep()
        """Chunks that are in a slot, in order."""
        self.used = writer.keep()
        """What frees the slots, in order."""
        self._milestone = milestone
        self._lag_s = lag_s

    def needs(self, number: int, slots: int) -> list[Need]:
        """Return what a chunk waits for: that the slot is free which the chunk some slots before took."""
        return [] if number < slots else [(op, self._milestone, self._lag_s) for op in self.used.popleft()]


class _Batch:
    """The parts of one block of rounds."""

    def __init__(self, writer: Writer, plan: PeerPlan, parts: list[_Part], relay: dict[tuple[int, int], int]) -> None:
        self._writer, self._plan, self._parts, self._relay = writer, plan, parts, relay
        rounds: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for part in parts:
            for rank in {part.src, part.dst}:
                rounds[rank, part.channel].add(part.round)
        self._places = {key: {number: at for at, number in enumerate(sorted(found))} for key, found in rounds.items()}
        self._paces: dict[tuple[str, int, float], Pace] = {}
        self._buffers: dict[_Part, list[_Buffer]] = {}

    def write(self) -> None:
        """Write the block's operations: of all parts the first chunk, then the second, so that slots are freed in time."""
        plan = self._plan
        for part in self._parts:
            costs = plan.ll_costs if part.protocol == "ll" else plan.costs
            # At home a slot is free when the proxy's message is over there, over there when it has been received.
            last = _Buffer(self._writer, LEFT, costs.credit_s + part.network * costs.network.credit_s)
            self._buffers[part] = [_Buffer(self._writer, END, costs.credit_s), last] if part.network else [last]
        for part in self._parts:
            if part.src == part.dst:
                self._copy(part)
        moves = [part for part in self._parts if part.src != part.dst]

        def loop(number: int) -> None:
            left = [part for part in moves if part.size > number * part.chunk]
            for part in left:
                self._send(part, number)
            for part in left:
                self._receive(part, number)

        if moves:
            self._writer.in_loops(*loops_of((part.size, part.chunk) for part in moves), loop)
        for (rank, channel), places in self._places.items():
            lanes = [(rank, channel, at, role) for at in range(len(places)) for role in ("send", "receive")]
            self._writer.join([self._lane(*lane) for lane in lanes])

    def _lane(self, rank: int, channel: int, place: int, role: str) -> int:
        return self._writer.lane(rank, f"channel {channel} {role} {place}")

    def _copy(self, part: _Part) -> None:
        """Copy what a rank has for itself, with all threads of the round's part of the block."""
        places = self._places[part.src, part.channel]
        lane = self._lane(part.src, part.channel, places[part.round], "send")
        # Nobody waits for it slice by slice, so it costs no more than its bytes.
        costs = replace(self._plan.costs, slice_s=0.0, threads_s=0.0)
        pace = Pace("simple", costs, max(1, self._plan.threads // len(places)))
        self._writer.work(lane, pace, RECV, part.size, chunk=part.dst, step=part.round)

    def _send(self, part: _Part, number: int) -> None:
        """Write one chunk into the receiver's buffer, or into one from which a proxy sends it."""
        writer, first = self._writer, self._buffers[part][0]
        ranges = [(part.offset + number * part.chunk, min(part.chunk, part.size - number * part.chunk))]
        lane, pace = self._end(part, part.src, "send")
        names: dict[str, Any] = {"chunk": part.dst, "step": part.round}
        needs = first.needs(number, self._plan.slots)
        relay = self._relay.get((part.src, part.dst), part.dst)
        if relay != part.src:
            made = writer.send(lane, pace, SEND, part.src, relay, ranges, needs, from_input=True, **names)
        else:
            made = writer.work(lane, pace, SEND, ranges[0][1], needs, **names)
        first.sent.append([made])
        if part.network:
            second = self._buffers[part][1]
            proxy = writer.lane(relay, f"channel {part.channel} proxy of {part.src} to {part.dst}", starts=False)
            (made,) = first.sent.popleft()
            costs = self._plan.ll_costs if part.protocol == "ll" else self._plan.costs
            wire = PROTOCOLS[part.protocol].wire(ranges[0][1])
            op = writer.message(
                proxy,
                relay,
                part.dst,
                ranges,
                [(made, END, costs.network.handshake_s(wire)), *second.needs(number, self._plan.slots)],
                protocol=part.protocol,
                from_input=relay == part.src,
                flow=flow_of(part.channel, part.channel, number % self._plan.queue_pairs, self._plan.queue_pairs),
                duration=costs.network.proxy_s(wire),
                **names,
            )
            first.used.append([op])
            second.sent.append([op])

    def _receive(self, part: _Part, number: int) -> None:
        """Take one chunk out of the buffer."""
        last = self._buffers[part][-1]
        lane, pace = self._end(part, part.dst, "receive")
        size = min(part.chunk, part.size - number * part.chunk)
        follows = pace.kind.follows
        if self._plan.registered and not part.network and not follows:
            size = 0  # it is where it belongs already
        (come,) = last.sent.popleft()
        op = self._writer.work(lane, pace, RECV, size, [(come, END, 0.0)], early=follows, chunk=part.dst, step=part.round)
        last.used.append([op])

    def _end(self, part: _Part, rank: int, role: str) -> tuple[int, Pace]:
        """Return the lane of one end of a part and what it costs there: half of the round's part of the threads."""
        places = self._places[rank, part.channel]
        costs = self._plan.ll_costs if part.protocol == "ll" else self._plan.costs
        threads = max(1, self._plan.threads // (2 * len(places)))
        return self._lane(rank, part.channel, places[part.round], role), Pace(part.protocol, costs, threads, costs.halves)
