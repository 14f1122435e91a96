"""A log of a real run beside what is predicted for a machine: NCCL's decisions, and measured times beside simulated ones.

The log says which release ran with which variables, and, where nccl-tests wrote it, which collective, how calls were
launched and how many GPUs a thread drove; what it does not say can be given, and is assumed otherwise
(`scenarios.logged`). Times of CSV files and of nccl-tests' JSON are held against a machine in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from netsim.errors import NetsimError
from netsim.export.table import Row, rounded_size
from netsim.nccl.log_comparison import Comparison, compare
from netsim.nccl.log_facts import Log
from netsim.nccl.variables import MISSING
from scenarios.logged import Asked, collective_of, options_of, read_logged, without_refused
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions, communicator_of
from scenarios.run import Spec, fallback_of, run_spec

# What agrees although NCCL decided nothing: the release is the log's own, and the rest is what it was told.
_NO_DECISIONS = ("release", "environment", "ranks", "nodes")


@dataclass(frozen=True)
class Point:
    """One measured time and what is simulated for it."""

    size_bytes: int
    measured_us: float
    row: Row

    @property
    def difference(self) -> float:
        """Simulated over measured, less one."""
        return self.row.time_us / self.measured_us - 1


@dataclass(frozen=True)
class Diagnosis:
    """What came of holding a log against a machine."""

    options: NcclOptions
    log: Log
    collective: str | None
    """Of the measured times."""
    comparison: Comparison
    points: tuple[Point, ...] = ()
    remarks: tuple[str, ...] = field(default=())
    """What was assumed, and what was left out and why."""

    @property
    def compared(self) -> bool:
        """Whether a decision of NCCL's, or a time, could be held against the prediction at all."""
        held = self.comparison
        return bool(self.points or held.differences or any(kind not in _NO_DECISIONS for kind in held.agreed))


def diagnose(
    path: str | Path, machine: Machine, asked: Asked | None = None, told: Callable[[int], None] = lambda size: None
) -> Diagnosis:
    """Hold a log against a machine.

    Parameters
    ----------
    path : str or Path
        A log with what NCCL_DEBUG=INFO prints, or with rows of nccl-tests, or both; or a CSV of `scenarios.measured`.
    machine : Machine
    asked : Asked, optional
    told : callable, optional
        Called with each size before it is simulated.

    Raises
    ------
    NetsimError
        If the file says nothing of either kind, contradicts what is asked for, or something asked for is not accepted.
    """
    asked = asked or Asked()
    logged = read_logged(path)
    log, measured = logged.log, logged.times
    remarks: list[str] = []
    options = options_of(logged, asked, remarks)
    options = without_refused(machine, options, log, asked, remarks)
    communicator = communicator_of(machine, options)
    told_names = {assignment.partition("=")[0] for assignment in options.environment}
    log = replace(
        log, environment={name: value for name, value in log.environment.items() if name in told_names or name in MISSING}
    )
    comparison = Comparison() if logged.silent else compare(log, communicator)
    if not measured:
        remarks.append("no times: there is no whole row of nccl-tests' in it")
        return Diagnosis(options, log, None, comparison, remarks=tuple(remarks))
    ranks = log.ranks or communicator.ranks
    if ranks != communicator.ranks:
        remarks.append(
            f"no times: the log is of {ranks} ranks, and the machine has {communicator.ranks}; -g and -N say how many"
        )
        return Diagnosis(options, log, None, comparison, remarks=tuple(remarks))
    collective = collective_of(logged, asked)
    spec = Spec(machine, collective, 0, protocol="auto", nccl=options)
    if fallback_of(spec) is not None:
        remarks.append("no times: the machine's GPUs are not known, and so not what NCCL's kernels cost on them")
        return Diagnosis(options, log, collective, comparison, remarks=tuple(remarks))
    points = _points(spec, measured, ranks, remarks, told)
    return Diagnosis(options, log, collective, comparison, points, tuple(remarks))


def _points(
    spec: Spec, measured: Sequence[tuple[int, float]], ranks: int, remarks: list[str], told: Callable[[int], None]
) -> tuple[Point, ...]:
    rows: dict[int, Row | None] = {}
    points = []
    for size, time_us in measured:
        whole = rounded_size(spec.collective, ranks, size, spec.nccl.element_bytes)
        if whole not in rows:
            told(size)
            rows[whole] = None
            try:
                if whole and time_us:
                    rows[whole] = run_spec(replace(spec, size_bytes=whole))
            except NetsimError as error:
                remarks.append(f"not simulated: {size} bytes: {error}")
        row = rows[whole]
        if row is not None and row.time_us > 0 and time_us > 0:
            points.append(Point(size, time_us, row))
    return tuple(points)
