"""What is simulated for measured times at a point of a fit: every row of every series, with files in place of the own ones.

Small and picklable in and out, so that points can be looked at in several processes.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from netsim.errors import NetsimError
from netsim.export.table import Row
from netsim.schedule.protocols import IDEAL
from scenarios.fit_choice import generation_used, kinds_of
from scenarios.fit_parameters import Point
from scenarios.fit_series import Series
from scenarios.run import Spec, run_spec
from scenarios.validate import MOST_MESSAGES, sized


class Simulated(NamedTuple):
    """What stands for a measured time."""

    time_us: float
    algorithm: str
    protocol: str
    channels: int


Predicted = list[list[Simulated | None]]
"""For every series and row; None where it cannot be simulated."""


@dataclass(frozen=True)
class Task:
    """The series of one evaluation, with files in place of the components' own."""

    series: tuple[Series, ...]
    point: Point = field(default_factory=Point)
    max_messages: int = MOST_MESSAGES


def predict(task: Task, known: dict[Spec, Row | str] | None = None) -> Predicted:
    """Simulate every row of every series; `known` keeps what was simulated, for series that share it."""
    known = {} if known is None else known
    return [[_simulated(one, size, task, known) for size, _ in one.rows] for one in task.series]


def _simulated(one: Series, size_bytes: int, task: Task, known: dict[Spec, Row | str]) -> Simulated | None:
    own, point = one.spec, task.point
    textbook = own.protocol == IDEAL
    kinds = kinds_of(own.machine) if point.links else frozenset()
    spec = point.applied(own, kinds, generation_used(own.machine, own.nccl) if point.kernel_costs and not textbook else "")
    spec = replace(spec, max_messages=task.max_messages, size_bytes=size_bytes)
    if not textbook:
        spec = sized(spec, one.ranks, size_bytes)
    if spec not in known:
        try:
            known[spec] = run_spec(spec)
        except NetsimError as error:
            known[spec] = f"not simulated: {error}"
    row = known[spec]
    if isinstance(row, str):
        return None
    time_us = row.time_us + task.point.constant_s * 1e6 * textbook
    return Simulated(time_us, row.algorithm, row.protocol, row.channels) if time_us > 0 else None
