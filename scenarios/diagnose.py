"""A log of a real run beside what is predicted for a machine: NCCL's decisions, and measured times beside simulated ones.

The log says which release ran with which variables, and, where nccl-tests wrote it, which collective, how calls were
launched and how many GPUs a thread drove; what it does not say can be given, and is assumed otherwise. Times of CSV files
(`scenarios.measured`) are held against a machine in the same way.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from netsim.errors import NetsimError
from netsim.export.table import Row, rounded_size
from netsim.nccl.elements import DATATYPES, OPERATORS
from netsim.nccl.environment import allowed, settings, tuner_options
from netsim.nccl.log import parse_log
from netsim.nccl.log_comparison import Comparison, compare
from netsim.nccl.log_facts import Log
from netsim.nccl.tuner_costs import TUNED
from netsim.nccl.variables import MISSING, check_name
from netsim.reading import read_text
from netsim.schedule.collective import COLLECTIVES
from scenarios.machine import Machine
from scenarios.measured import logged_times, read_measured
from scenarios.nccl import NcclOptions, communicator_of
from scenarios.run import Spec, fallback_of, run_spec

_MOST_BYTES = 512 << 20
_SIZES = "size_bytes"
_WANTED = "a log of NCCL_DEBUG=INFO or of nccl-tests is wanted"
_TEST = re.compile(rf"\b({'|'.join(COLLECTIVES)})_perf\b")
_HEAD = re.compile(r"nThread \d+ nGpus (\d+) minBytes [^\n]*")
_ROW = re.compile(rf"\b\d+ +\d+ +({'|'.join(DATATYPES)}) +({'|'.join(OPERATORS)}|none) +-?\d+ +\d")
_GRAPH = re.compile(r"\bgraph: (\d+)")
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
class Asked:
    """What the user says in place of the log; None is the log's word."""

    version: str | None = None
    environment: tuple[str, ...] = ()
    """Beside the log's variables; of two values for one name this one counts."""
    registered: bool | None = None
    launch: str | None = None
    gpus_per_process: int | None = None
    collective: str | None = None
    datatype: str | None = None


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
    text = read_text(path, _MOST_BYTES, wanted=_WANTED)
    log, measured = parse_log(text), logged_times(text)
    silent = log == Log(unread=log.unread)
    if silent and not measured:
        measured = _from_csv(path, text)
    _check_collective(path, text, asked)
    remarks: list[str] = []
    options = _options(text, log, asked, remarks, timed=bool(measured))
    options = _without_refused(machine, options, log, asked, remarks)
    communicator = communicator_of(machine, options)
    told_names = {assignment.partition("=")[0] for assignment in options.environment}
    log = replace(
        log, environment={name: value for name, value in log.environment.items() if name in told_names or name in MISSING}
    )
    comparison = Comparison() if silent else compare(log, communicator)
    if not measured:
        remarks.append("no times: there is no whole row of nccl-tests' in it")
        return Diagnosis(options, log, None, comparison, remarks=tuple(remarks))
    ranks = log.ranks or communicator.ranks
    if ranks != communicator.ranks:
        remarks.append(
            f"no times: the log is of {ranks} ranks, and the machine has {communicator.ranks}; -g and -N say how many"
        )
        return Diagnosis(options, log, None, comparison, remarks=tuple(remarks))
    collective = _collective(path, text, asked)
    spec = Spec(machine, collective, 0, protocol="auto", nccl=options)
    if fallback_of(spec) is not None:
        remarks.append("no times: the machine's GPUs are not known, and so not what NCCL's kernels cost on them")
        return Diagnosis(options, log, collective, comparison, remarks=tuple(remarks))
    points = _points(spec, measured, ranks, remarks, told)
    return Diagnosis(options, log, collective, comparison, points, tuple(remarks))


def _from_csv(path: str | Path, text: str) -> list[tuple[int, float]]:
    try:
        return read_measured(path)
    except NetsimError as error:
        if _SIZES in text:
            raise NetsimError(f"{error}; {_WANTED}, or a CSV of {_SIZES} and time_us") from None
        raise NetsimError(
            f"{path}: neither NCCL nor nccl-tests says anything in it; {_WANTED}, or a CSV of {_SIZES} and time_us"
        ) from None


def _options(text: str, log: Log, asked: Asked, remarks: list[str], *, timed: bool) -> NcclOptions:
    """Put together how NCCL ran, from the log and from what is asked for in its place."""
    version = asked.version
    if version is None and log.version is not None:
        version = str(log.version)
    if version is None:
        version = NcclOptions.version
        words = "the file says no release" if log.release is None else f"{log.maker} {log.release} is not covered"
        remarks.append(f"assumed: NCCL {version}, because {words}")
    known = []
    for name, value in log.environment.items():
        try:
            check_name(name, "the log")
        except NetsimError:
            remarks.append(f"left out: {name} of the log, which is no variable known here")
        else:
            known.append(f"{name}={value}")
    head = _HEAD.search(text)
    graph = _GRAPH.search(head[0]) if head else None
    launch, registered = asked.launch, asked.registered
    if launch is None:
        launch = "stream" if head and (graph is None or graph[1] == "0") else NcclOptions.launch
        if head is None and timed:
            remarks.append("assumed: replayed CUDA graphs, because no head of nccl-tests' says how calls were launched")
    if registered is None:
        # NCCL registers the buffers of captured collectives unless it is told not to.
        captured = head is not None and launch == "graph"
        registered = captured and log.environment.get("NCCL_GRAPH_REGISTER", "1") != "0"
    gpus = asked.gpus_per_process or (int(head[1]) if head else 1)
    datatype, operator = _elements(text, asked)
    told = (*known, *asked.environment)
    return NcclOptions(version, told, registered, launch, gpus, datatype=datatype, operator=operator)


def _elements(text: str, asked: Asked) -> tuple[str, str]:
    """Return type and operator of the rows of nccl-tests; sums of floats where there are none."""
    rows = _ROW.findall(text)
    types, operators = ({row[place] for row in rows} for place in (0, 1))
    if len(types) > 1:
        raise NetsimError(f"the rows are of {' and '.join(sorted(types))}; give a file of one type")
    own = types.pop() if types else None
    if asked.datatype is not None and own not in (None, asked.datatype):
        raise NetsimError(f"-d {asked.datatype}: the rows are of {own}; leave it out, or give that")
    operator = operators.pop() if len(operators) == 1 else NcclOptions.operator
    return own or asked.datatype or NcclOptions.datatype, NcclOptions.operator if operator == "none" else operator


def _without_refused(machine: Machine, options: NcclOptions, log: Log, asked: Asked, remarks: list[str]) -> NcclOptions:
    """Leave variables of the log out whose values are not accepted here; what is asked for beside it must be right."""
    given = {assignment.partition("=")[0] for assignment in asked.environment}
    while True:
        try:
            found = communicator_of(machine, options)
            settings(found.environment)
            for collective in TUNED:
                allowed(found.environment, collective, found.version)
                tuner_options(found.environment, collective, found.version)
        except NetsimError as error:
            # Such messages begin with the name of the variable.
            name = next((name for name in log.environment if re.match(rf"{re.escape(name)}\b", str(error))), None)
            kept = tuple(text for text in options.environment if text.partition("=")[0] != name)
            if name is None or name in given or kept == options.environment:
                raise
            remarks.append(f"left out: {name} of the log, because {error}")
            options = replace(options, environment=kept)
        else:
            return options


def _check_collective(path: str | Path, text: str, asked: Asked) -> None:
    named = list(dict.fromkeys(_TEST.findall(text)))
    if asked.collective is not None and named and asked.collective not in named:
        raise NetsimError(f"--collective {asked.collective}: {path} is of {' and '.join(named)}; leave it out, or give that")


def _collective(path: str | Path, text: str, asked: Asked) -> str:
    if asked.collective is not None:
        return asked.collective
    named = list(dict.fromkeys(_TEST.findall(text)))
    if len(named) == 1:
        return str(named[0])
    words = f"names several collectives ({', '.join(named)})" if named else "does not say which collective its times are of"
    raise NetsimError(f"{path}: {words}; --collective says it: one of {', '.join(COLLECTIVES)}")


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
