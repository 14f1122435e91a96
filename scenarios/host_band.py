"""The other end of what is known where a machine stages data in host memory whose rate nobody has measured.

Machines of one kind differ by a factor of ten and more in what they pass through a socket's memory, and in which GPUs stage
at all; presets take the best that was measured. Beside such a run stands the same one on the worst machine that was
measured: all GPUs stage, through `host_memory_slow`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from netsim.export.table import Row
from netsim.fabric import ranks_of
from netsim.schedule.protocols import IDEAL
from scenarios.machine import Machine, graph_of, router_of
from scenarios.run import Spec, run_spec

KNOWN, SLOW = "host_memory", "host_memory_slow"
"""Profiles of the two ends."""
_APART = 1.1
"""Times the shown time from which the other one is worth a word."""


@dataclass(frozen=True)
class Beside:
    """A size at which the worst machine that was measured takes longer."""

    row: Row
    """As it is shown."""
    slow_us: float


def stages_unmeasured(machine: Machine) -> bool:
    """Say whether neighbours among a machine's ranks talk through host memory at the rate of the presets' profile."""
    router = router_of(machine)
    ranks = len(ranks_of(graph_of(machine)))
    pairs = ((rank, (rank + 1) % ranks) for rank in range(ranks)) if ranks > 1 else ()
    return any(router.links[link].kind == KNOWN for pair in pairs for link in router.path(*pair))


def beside(first: Spec, rows: Sequence[Row]) -> list[Beside]:
    """Return the first and the last of some rows that take longer on the worst machine; none where memory is measured.

    Parameters
    ----------
    first : Spec
        What was run, whatever its size.
    rows : sequence of Row
        What came of it, by size.
    """
    if not rows or not stages_unmeasured(first.machine):
        return []
    kept = [name for name in (first.machine.profile, SLOW) if name]
    nccl = first.nccl
    if first.protocol != IDEAL:
        nccl = replace(nccl, environment=(*nccl.environment, "NCCL_P2P_DISABLE=1"))
    spec = replace(first, machine=replace(first.machine, profile=",".join(kept)), nccl=nccl)
    found = []
    for row in rows:
        slow = run_spec(replace(spec, size_bytes=row.size_bytes))
        if slow.time_us > row.time_us * _APART:
            found.append(Beside(row, slow.time_us))
    return found[:1] + found[1:][-1:]
