"""What NCCL expects of every algorithm and protocol, and what it therefore takes: its own prediction beside the simulation.

Nothing is run here. Sizes are rounded as they are for a run, so that a choice stands beside the row of the same size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from netsim.errors import ScheduleError
from netsim.export.table import rounded_size
from netsim.fabric import ranks_of
from netsim.nccl.elements import Elements
from netsim.nccl.environment import tuner_options
from netsim.nccl.schedules import Decision, decide
from netsim.nccl.tuner import Cost, Pair, cost_table
from netsim.schedule.protocols import IDEAL
from scenarios.groups import read_groups
from scenarios.machine import graph_of
from scenarios.nccl import communicator_of, rules_of
from scenarios.run import Spec, settled


@dataclass(frozen=True)
class Choices:
    """NCCL's cost table for a collective, and its decision at each size; both empty where it chooses nothing."""

    costs: Mapping[Pair, Cost]
    """Of what may run: what the machine lacks, or the environment excludes, is not there."""
    decisions: tuple[tuple[int, Decision], ...]
    """Size in bytes and decision; a predicted time in us for each pair of `costs` is in the decision's table."""


def choices(spec: Spec, sizes: Iterable[int]) -> Choices:
    """Return what NCCL would take for each size; of groups that run at once, in the first.

    Raises
    ------
    ScheduleError
        If the spec is of textbook algorithms, between which NCCL does not choose.
    """
    spec = settled(spec)
    if spec.protocol == IDEAL:
        raise ScheduleError(
            "what runs here is textbook (protocol ideal), between which NCCL does not choose; accepted are NCCL's protocols "
            "on a machine whose GPUs are known"
        )
    members = read_groups(spec.groups, len(ranks_of(graph_of(spec.machine))))[0]
    communicator = communicator_of(spec.machine, spec.nccl, members)
    rules = rules_of(spec.nccl)
    decisions: list[tuple[int, Decision]] = []
    element = spec.nccl.element_bytes
    for size in dict.fromkeys(rounded_size(spec.collective, len(members), size, element) for size in sizes):
        made = decide(
            communicator,
            spec.collective,
            size,
            spec.algorithm,
            spec.protocol,
            rules=rules,
            registered=spec.nccl.registered,
            elements=Elements(spec.nccl.datatype, spec.nccl.operator),
        )
        if made is not None:
            decisions.append((size, made))
    if not decisions:
        return Choices({}, ())
    asked = None if spec.protocol == "auto" else spec.protocol
    options = tuner_options(
        communicator.environment,
        spec.collective,
        communicator.version,
        protocols=asked,
        datatype=spec.nccl.datatype,
        operator=spec.nccl.operator,
    )
    costs = cost_table(communicator, spec.collective, options)
    return Choices({pair: costs[pair] for pair in decisions[0][1].choice.table if pair in costs}, tuple(decisions))
