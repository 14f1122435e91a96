"""NCCL's kernels on symmetric memory (2.27 and later): GPUs read and write each other's buffers, no slots, no proxies.

All-reduce in one shot (every GPU writes its input to all, by LL, and adds for itself), in two (each GPU loads its share
from all, adds, and stores the sum to all), and both inside the switch; all-gather by stores, reduce-scatter by loads, the
same by multicast and in-network reduction, and by LL. Every block of threads has a part of the data; peers are visited
from the next rank on. Kernels that do not use LL begin and end with a barrier of the blocks of one number; LL needs none.
Facts of NCCL 2.30 (sym_kernels.cc and device/symmetric). All ranks must reach each other over NVLink, for multicast
through one switch. Assumptions: a load takes as long as a store of the same bytes; the multicast of LL one-shot brings no
copy to the sender itself; the reduce-scatter by LL pays for its additions what a receive-reduce-copy costs.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from netsim.errors import ScheduleError
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import BRANCH, END, HEAD, LEFT, LEG, OUTPUT, TRUNK, Schedule
from netsim.schedule.nccl.pace import Pace
from netsim.schedule.nccl.plan import Plan
from netsim.schedule.nccl.program import RECV, RECV_REDUCE_COPY, SEND
from netsim.schedule.nccl.rows import Need
from netsim.schedule.nccl.writer import Writer

KERNELS: dict[str, tuple[str, ...]] = {
    "all_reduce": ("agxll_r", "agxllmc_r", "rsxld_agxst", "rsxldmc_agxstmc"),
    "all_gather": ("ll", "llmc", "st", "stmc"),
    "reduce_scatter": ("ll", "ld", "ldmc"),
}
"""Kernels of each collective, by NCCL's names in lower case."""


def protocol_of(kernel: str) -> str:
    """Return the protocol of a kernel.

    Examples
    --------
    >>> protocol_of("agxllmc_r"), protocol_of("stmc")
    ('ll', 'simple')
    """
    return "ll" if kernel in ("agxll_r", "agxllmc_r", "ll", "llmc") else "simple"


def build(plan: Plan, kernel: str, *, limit: int | None = None) -> Schedule:
    """Build what a kernel does.

    Parameters
    ----------
    plan : Plan
        Its channels are the kernel's blocks, with shares of the whole data for all-reduce and of every rank's block else;
        chunks are what a block loads before it stores, two of them at a time. Its protocol must be the kernel's.
    kernel : str
        One of `KERNELS` of the collective.
    limit : int or None
        The most operations accepted.

    Raises
    ------
    ScheduleError
        If there is no such kernel for the collective, or the plan's protocol is not its own.
    """
    kernels = KERNELS.get(plan.collective)
    if kernels is None:
        raise ScheduleError(f"symmetric kernels do no {plan.collective}; accepted are {', '.join(KERNELS)}")
    if kernel not in kernels:
        raise ScheduleError(f"{plan.collective} has no symmetric kernel {kernel!r}; accepted are {', '.join(kernels)}")
    if plan.protocol != protocol_of(kernel):
        raise ScheduleError(f"symmetric kernel {kernel} by protocol {plan.protocol}; it goes by {protocol_of(kernel)}")
    writer = Writer(
        plan.collective,
        plan.algorithm,
        plan.ranks,
        plan.size_bytes,
        align_bytes=plan.align_bytes,
        protocol=plan.protocol,
        limit=limit,
        start_s=plan.costs.start_s,
    )
    if plan.ranks > 1:
        for channel, (offset, share) in zip(plan.channels, plan.shares, strict=True):
            if share:
                _WRITERS[plan.collective, kernel](_Block(writer, plan, channel.number, offset, share))
    return writer.build()


@dataclass(frozen=True)
class _Block:
    """One block of threads at every rank, and its part of the data."""

    writer: Writer
    plan: Plan
    number: int
    offset: int
    share: int

    halves: bool = False
    """Whether half of the threads load while the others store."""

    @property
    def pace(self) -> Pace:
        threads = self.plan.threads // 2 if self.halves else self.plan.threads
        return Pace(self.plan.protocol, self.plan.costs, max(1, threads))

    @property
    def writes(self) -> str:
        """The lane of those who store."""
        return "store" if self.halves else ""

    def lane(self, rank: int, role: str = "") -> int:
        return self.writer.lane(rank, f"block {self.number}{' ' if role else ''}{role}", starts=not role)

    def others(self, rank: int) -> list[int]:
        """Return the peers of a rank in the order in which it visits them."""
        return [(rank + away) % self.plan.ranks for away in range(1, self.plan.ranks)]

    def blocks(self) -> list[tuple[int, int]]:
        """Return (offset, bytes) of what each rank is in charge of: a share of the part, or of its block."""
        ranks = self.plan.ranks
        if self.plan.collective != "all_reduce":
            block = self.plan.size_bytes // ranks
            return [(rank * block + self.offset, self.share) for rank in range(ranks)]
        bounds = block_bounds(self.share, ranks, self.plan.align_bytes)
        return [(self.offset + bounds[rank], bounds[rank + 1] - bounds[rank]) for rank in range(ranks)]

    def chunks(self, ranges: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Yield the next chunk of each range until all are done; those that are done have empty ones."""
        chunk = self.plan.chunk_bytes
        for first in range(0, max(size for _, size in ranges), chunk):
            yield [(offset + first, max(0, min(chunk, size - first))) for offset, size in ranges]

    def barrier(self, written: Sequence[list[int]] = ()) -> None:
        """Let the block wait for its like at all ranks; what each has written, by operation, must have arrived."""
        lanes = [self.lane(rank) for rank in range(self.plan.ranks)]
        for lane, ops in zip(lanes, written, strict=False):
            self.writer.hold(lane, 0.0, [(op, END, 0.0) for op in ops])
        self.writer.barrier(lanes, self.plan.costs.flag_s)
        for lane in lanes:
            self.writer.hold(lane, 0.0)

    def store(self, rank: int, target: int, part: tuple[int, int], needs: list[Need], *, reduce: bool, raw: bool) -> int:
        """Write to a peer."""
        return self.writer.send(
            self.lane(rank, self.writes),
            self.pace,
            SEND,
            rank,
            target,
            [part],
            needs,
            reduce=reduce,
            from_input=raw,
            chunk=rank,
        )

    def load(self, rank: int, source: int, part: tuple[int, int], needs: list[Need]) -> int:
        """Read a peer's input and add it to the own."""
        return self.writer.send(
            self.lane(rank), self.pace, RECV, source, rank, [part], needs, reduce=True, from_input=True, chunk=rank
        )

    def multicast(
        self, rank: int, part: tuple[int, int], needs: list[Need], *, reduce: bool, raw: bool
    ) -> tuple[int, list[int]]:
        """Write to the switch, which copies to all, and return that and the arrivals; what is added skips the own rank."""
        writer, ranks = self.writer, self.plan.ranks
        group = writer.group(range(ranks))
        trunk = writer.send(
            self.lane(rank, self.writes),
            self.pace,
            SEND,
            rank,
            -1,
            [part],
            needs,
            kind=TRUNK,
            group=group,
            from_input=raw,
            feed=0,
            chunk=rank,
        )
        receivers = [target for target in range(ranks) if not (reduce and target == rank)]
        return trunk, [
            writer.message(
                self.lane(target, f"from {rank}"),
                -1,
                target,
                [part],
                [(trunk, HEAD, 0.0)],
                protocol=self.plan.protocol,
                kind=BRANCH,
                group=group,
                reduce=reduce,
                chunk=rank,
            )
            for target in receivers
        ]

    def load_sum(self, rank: int, part: tuple[int, int], needs: list[Need]) -> int:
        """Let the switch add everybody's data for one rank, and return the arrival of the sum."""
        writer, ranks = self.writer, self.plan.ranks
        group = writer.group(range(ranks))
        hold = writer.hold(self.lane(rank), self.pace.fixed_s, needs)  # the request goes out before anybody is read
        legs = [
            writer.message(
                self.lane(member, f"for {rank}"),
                member,
                -1,
                [part],
                [(hold, LEFT, 0.0)],
                kind=LEG,
                group=group,
                from_input=True,
                chunk=rank,
            )
            for member in range(ranks)
        ]
        return writer.message(
            self.lane(rank, "sum"),
            -1,
            rank,
            [part],
            [(leg, HEAD, 0.0) for leg in legs],
            kind=OUTPUT,
            group=group,
            chunk=rank,
        )


def _to_all(block: _Block, *, multicast: bool) -> None:
    """One shot by LL: write all of the input to all, then add up what has come; or, with blocks of ranks, store it."""
    adds = block.plan.collective == "all_reduce"
    ranges = [(block.offset, block.share)] * block.plan.ranks if adds else block.blocks()
    for parts in block.chunks(ranges):
        come: list[list[int]] = [[] for _ in parts]
        for rank, part in enumerate(parts):
            if multicast:
                _, arrivals = block.multicast(rank, part, [], reduce=adds, raw=True)
                targets = [target for target in range(len(parts)) if not (adds and target == rank)]
            else:
                targets = block.others(rank)
                arrivals = [block.store(rank, target, part, [], reduce=adds, raw=True) for target in targets]
            for target, op in zip(targets, arrivals, strict=True):
                come[target].append(op)
        for rank, part in enumerate(parts):
            # One loop takes what has come from all: the bytes of every peer count.
            _take(block, rank, part[1] * (len(parts) - 1), come[rank])


def _take(block: _Block, rank: int, size: int, come: list[int]) -> None:
    primitive = RECV if block.plan.collective == "all_gather" else RECV_REDUCE_COPY
    needs = [(op, END, 0.0) for op in come]
    block.writer.work(block.lane(rank), block.pace, primitive, size, needs, early=True)


def _two_shots(block: _Block, *, in_switch: bool) -> None:
    """Load the own share from all peers, or its sum from the switch, and store the sum to all.

    Half of the threads load while the others store; a load waits for the stores of the chunk before the last, so that what
    is read and what is written share the links all the time.
    """
    block = replace(block, halves=True)
    block.barrier()
    ranks = block.plan.ranks
    written: list[list[int]] = [[] for _ in range(ranks)]
    stored: list[deque[list[Need]]] = [deque([[], []]) for _ in range(ranks)]
    for parts in block.chunks(block.blocks()):
        summed: list[list[Need]] = []
        for rank, part in enumerate(parts):
            free = stored[rank].popleft()
            if not part[1]:
                summed.append([])
            elif in_switch:
                summed.append([(block.load_sum(rank, part, free), END, 0.0)])
            else:
                summed.append([(block.load(rank, peer, part, free), END, 0.0) for peer in block.others(rank)])
        for rank, part in enumerate(parts):
            sent: list[int] = []
            if part[1] and in_switch:
                trunk, arrivals = block.multicast(rank, part, summed[rank], reduce=False, raw=False)
                sent = [trunk]
                written[rank] += arrivals
            elif part[1]:
                sent = [block.store(rank, to, part, summed[rank], reduce=False, raw=False) for to in block.others(rank)]
                written[rank] += sent
            stored[rank].append([(op, LEFT, 0.0) for op in sent])
    block.barrier(written)


def _gather(block: _Block, *, multicast: bool) -> None:
    """Store the own block to all."""
    block.barrier()
    written: list[list[int]] = [[] for _ in range(block.plan.ranks)]
    for parts in block.chunks(block.blocks()):
        for rank, part in enumerate(parts):
            if multicast:
                written[rank] += block.multicast(rank, part, [], reduce=False, raw=True)[1]
            else:
                written[rank] += [block.store(rank, to, part, [], reduce=False, raw=True) for to in block.others(rank)]
    block.barrier(written)


def _scatter(block: _Block, *, in_switch: bool) -> None:
    """Load the own block from all, added up by oneself or by the switch."""
    block.barrier()
    loaded: list[list[int]] = [[] for _ in range(block.plan.ranks)]
    for parts in block.chunks(block.blocks()):
        for rank, part in enumerate(parts):
            if in_switch:
                loaded[rank].append(block.load_sum(rank, part, []))
            else:
                loaded[rank] += [block.load(rank, peer, part, []) for peer in block.others(rank)]
    block.barrier(loaded)


def _scatter_by_ll(block: _Block) -> None:
    """Write everybody's block of the own input to its owner, who adds up what comes."""
    for parts in block.chunks(block.blocks()):
        come: list[list[int]] = [[] for _ in parts]
        for rank in range(len(parts)):
            for target in block.others(rank):
                come[target].append(block.store(rank, target, parts[target], [], reduce=True, raw=True))
        for rank, part in enumerate(parts):
            _take(block, rank, part[1] * (len(parts) - 1), come[rank])


_WRITERS: dict[tuple[str, str], Callable[[_Block], None]] = {
    ("all_reduce", "agxll_r"): partial(_to_all, multicast=False),
    ("all_reduce", "agxllmc_r"): partial(_to_all, multicast=True),
    ("all_reduce", "rsxld_agxst"): partial(_two_shots, in_switch=False),
    ("all_reduce", "rsxldmc_agxstmc"): partial(_two_shots, in_switch=True),
    ("all_gather", "ll"): partial(_to_all, multicast=False),
    ("all_gather", "llmc"): partial(_to_all, multicast=True),
    ("all_gather", "st"): partial(_gather, multicast=False),
    ("all_gather", "stmc"): partial(_gather, multicast=True),
    ("reduce_scatter", "ll"): _scatter_by_ll,
    ("reduce_scatter", "ld"): partial(_scatter, in_switch=False),
    ("reduce_scatter", "ldmc"): partial(_scatter, in_switch=True),
}
