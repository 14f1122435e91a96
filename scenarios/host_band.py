"""The other end of what is known where a machine stages data in host memory whose rate nobody has measured.

Machines of one kind differ by a factor of ten and more in what they pass through a socket's memory, and in which GPUs stage
at all; presets take the best that was measured. Beside such a run stands the same one on the worst machine that was
measured: all GPUs stage, through `host_memory_slow`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from netsim.errors import NetsimError
from netsim.export.table import Row
from netsim.fabric import ranks_of
from netsim.schedule.protocols import IDEAL
from scenarios.machine import Machine, graph_of
from scenarios.nccl import NcclOptions, told_router
from scenarios.run import Spec, run_spec
from topologies.profiles import load_profile

KNOWN, SLOW = "host_memory", "host_memory_slow"
"""Profiles of the two ends."""
_APART = 1.1
"""Times the shown time from which the other one is worth a word."""


@dataclass(frozen=True)
class Slower:
    """A size at which the worst machine that was measured takes longer."""

    shown: Row
    """What is predicted for the best one."""
    slow_us: float


def stages_unmeasured(machine: Machine, nccl: NcclOptions) -> bool:
    """Say whether neighbours among a machine's ranks talk through host memory of which nobody has said what it passes."""
    if any(load_profile(name.strip()).family == "memory" for name in (machine.profile or "").split(",") if name.strip()):
        return False
    router = told_router(machine, nccl, "static")
    ranks = len(ranks_of(graph_of(machine)))
    pairs = ((rank, (rank + 1) % ranks) for rank in range(ranks)) if ranks > 1 else ()
    return any(router.links[link].kind == KNOWN for pair in pairs for link in router.path(*pair))


def slower(first: Spec, rows: Sequence[Row], told: Callable[[Row], None] = lambda row: None) -> list[Slower]:
    """Return the first and the last of some rows that take longer on the worst machine; none where memory is measured.

    Parameters
    ----------
    first : Spec
        What was run, whatever its size.
    rows : sequence of Row
        What came of it, by size.
    told : callable, optional
        Called with each row before it is simulated again.
    """
    if first.protocol == IDEAL or first.machine.rate != Machine.rate or not stages_unmeasured(first.machine, first.nccl):
        return []  # of the textbook's runs pairs below one switch would not stage, and memory has no slow line rate
    kept = [name for name in (first.machine.profile, SLOW) if name]
    nccl = replace(first.nccl, environment=(*first.nccl.environment, "NCCL_P2P_DISABLE=1"))
    spec = replace(first, machine=replace(first.machine, profile=",".join(kept)), nccl=nccl)

    def run(row: Row) -> Slower | None:
        told(row)
        try:
            slow = run_spec(replace(spec, size_bytes=row.size_bytes))
        except NetsimError:
            return None  # the table stands without a word on other machines
        return Slower(row, slow.time_us) if slow.time_us > row.time_us * _APART else None

    # From each end up to the first that differs: what lies between is not simulated again.
    at = 0
    ends: list[Slower] = []
    while at < len(rows) and not ends:
        ends += filter(None, [run(rows[at])])
        at += 1
    for row in reversed(rows[at:]):
        last = run(row)
        if last is not None:
            return [*ends, last]
    return ends
