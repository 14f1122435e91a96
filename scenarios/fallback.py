"""Why a run whose protocol is ``auto`` is of the textbook's schedules and not of NCCL's, in words for people.

Asked before a run by `scenarios.run.settled`, and by the command line, which says so. Opens NCCL's rooms only for machines
whose GPUs are known, so that study graphs start without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from netsim.errors import ScheduleError
from netsim.schedule.catalogue import ALGORITHMS, algorithms_for
from netsim.schedule.own import is_file
from scenarios.machine import Machine
from scenarios.nccl import is_known


@dataclass(frozen=True)
class Fallback:
    """A reason."""

    words: str
    expected: bool = False
    """Whether nobody would have expected NCCL's schedules: on a study graph, and with a schedule of one's own."""


def why_textbook(
    machine: Machine, collective: str, algorithms: Sequence[str], *, pieces: Sequence[str] = ()
) -> Fallback | None:
    """Return why runs are textbook although their protocol is ``auto``; None if they are NCCL's.

    Parameters
    ----------
    machine : Machine
    collective : str
    algorithms : sequence of str
        All that are to be run, as they were asked for.
    pieces : sequence of str
        Names of what cuts data in a way that is not NCCL's own, such as ``--chunk``.

    Raises
    ------
    ScheduleError
        For a name that is known neither as NCCL's nor as the textbook's; names both.
    """
    if not is_known(machine):
        return Fallback(f"the GPUs of {machine.topology} are not known, and so not what NCCL's kernels cost on them", True)
    # Only here, so that textbook runs start without it.
    from netsim.nccl.names import algorithm_named, pair_named, unknown

    for name in algorithms:
        if is_file(name):
            return Fallback(f"{name} is a schedule of your own", expected=True)
        if algorithm_named(pair_named(name)[0], collective) is not None:
            continue
        if name.partition(":")[0] not in ALGORITHMS:
            raise ScheduleError(unknown(name, collective, algorithms_for(collective)))
        return Fallback(f"NCCL has no {name.partition(':')[0]}")
    if pieces:
        return Fallback(f"{' and '.join(pieces)} cut{'s' * (len(pieces) == 1)} data, which NCCL does by rules of its own")
    return None
