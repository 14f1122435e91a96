"""NCCL's copy-engine collectives (2.28 and later): all-gather, all-to-all, gather and scatter without a kernel.

Every rank tells all others that its buffers are ready, writes what they get into their symmetric windows by one copy a
peer, the next rank first, and tells them that it is done. A copy engine does one copy after the other, and the next begins
when the one before has been delivered. Many large copies are cut, and rotate through the peers round by round, so that no
receiver has all senders at once. Facts of NCCL 2.30 (ce_coll.cc); ranks of one NVLink domain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from netsim.errors import ScheduleError
from netsim.schedule.collective import block_bounds, check_collective
from netsim.schedule.dag import END, Schedule
from netsim.schedule.nccl.costs import FREE, Costs
from netsim.schedule.nccl.rows import Need
from netsim.schedule.nccl.writer import Writer

COLLECTIVES = ("all_gather", "alltoall", "gather", "scatter")
"""What NCCL does by copy engines."""
ROUND_BYTES = 512 * 2**20
"""From this many bytes on, more than `FEW_COPIES` copies go in rounds of as many bytes."""
FEW_COPIES = 8


@dataclass(frozen=True)
class CopyPlan:
    """One collective by copy engines."""

    collective: str
    ranks: int
    size_bytes: int
    """As nccl-tests counts it."""
    engines: int = 1
    """Copy engines of a rank that work at the same time; copies are dealt out to them in turn."""
    root: int = 0
    align_bytes: int = 1
    in_place: bool = False
    """Whether a rank's block for itself is where it belongs."""
    algorithm: str = "copy_engine"
    """Its name in records."""
    costs: Costs = field(default=FREE)
    """`start_s` before the first flag, `slice_s` for each copy, `flag_s` for a flag, `rates.recv` for a local copy."""

    def __post_init__(self) -> None:
        check_collective(self.collective, self.ranks, self.size_bytes, self.root)
        if self.collective not in COLLECTIVES:
            raise ScheduleError(f"copy engines do no {self.collective}; accepted are {', '.join(COLLECTIVES)}")
        if self.engines < 1:
            raise ScheduleError(f"{self.engines} copy engines; a rank has 1 or more")


def build(plan: CopyPlan, *, limit: int | None = None) -> Schedule:
    """Build the copies of a plan.

    Parameters
    ----------
    plan : CopyPlan
        What is to be copied.
    limit : int or None
        The most operations accepted.
    """
    writer = Writer(
        plan.collective,
        plan.algorithm,
        plan.ranks,
        plan.size_bytes,
        root=plan.root,
        align_bytes=plan.align_bytes,
        limit=limit,
        start_s=plan.costs.start_s,
    )
    if plan.ranks == 1:
        return writer.build()
    streams = [writer.lane(rank, "stream") for rank in range(plan.ranks)]
    writer.barrier(streams, plan.costs.flag_s)
    ready = [writer.hold(stream, 0.0) for stream in streams]
    for rank, stream in enumerate(streams):
        last = _copy(writer, plan, rank, ready[rank])
        writer.hold(stream, 0.0, [(op, END, 0.0) for op in last])
    writer.barrier(streams, plan.costs.flag_s)
    for stream in streams:
        writer.hold(stream, 0.0)
    return writer.build()


def _copy(writer: Writer, plan: CopyPlan, rank: int, ready: int) -> list[int]:
    """Add the copies of one rank and return the last one of each engine."""
    last: dict[int, int] = {}
    for number, (step, target, offset, size) in enumerate(_rounds(_blocks(plan, rank))):
        engine = number % plan.engines
        lane = writer.lane(rank, f"copy engine {engine}", starts=False)
        needs: list[Need] = [(last.get(engine, ready), END, 0.0)]
        names: dict[str, Any] = {"chunk": target, "step": step}
        if target == rank:
            last[engine] = writer.hold(lane, plan.costs.slice_s + size / plan.costs.rates.recv, needs, **names)
        else:
            last[engine] = writer.message(
                lane, rank, target, [(offset, size)], needs, duration=plan.costs.slice_s, from_input=True, **names
            )
    return list(last.values())


def _blocks(plan: CopyPlan, rank: int) -> list[tuple[int, int, int]]:
    """Return (target, offset, bytes) of what a rank copies: for itself first, then for the next ranks in turn."""
    size, ranks = plan.size_bytes, plan.ranks
    bounds = block_bounds(size, ranks, plan.align_bytes)
    found = []
    for away in range(ranks):
        target = (rank + away) % ranks
        which = target if plan.collective in ("alltoall", "scatter") else rank
        offset = bounds[which] + (rank * size if plan.collective == "alltoall" else 0)
        takes_part = {"gather": target == plan.root, "scatter": rank == plan.root}.get(plan.collective, True)
        block = bounds[which + 1] - bounds[which]
        if takes_part and block and not (plan.in_place and not away):
            found.append((target, offset, block))
    return found


def _rounds(blocks: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (round, target, offset, bytes) of every copy; each round begins with the next peer."""
    count = len(blocks)
    if count <= FEW_COPIES or sum(size for _, _, size in blocks) < ROUND_BYTES:
        yield from ((0, *block) for block in blocks)
        return
    chunk = ROUND_BYTES // count
    for number in range(-(-max(size for _, _, size in blocks) // chunk)):
        for place in range(count):
            target, offset, size = blocks[(place + number) % count]
            if size > number * chunk:
                yield number, target, offset + number * chunk, min(chunk, size - number * chunk)
