"""What a file of measured times says of its run: what NCCL was told, how calls were launched, which collective it was.

A log of NCCL_DEBUG=INFO or of nccl-tests, its JSON, or a CSV of `scenarios.measured`. What the file does not say can be
given, and is assumed otherwise, with a remark. `scenarios.diagnose` holds it against a machine, `scenarios.fit_series` fits
a machine to it.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from netsim.errors import NetsimError
from netsim.nccl.elements import DATATYPES, OPERATORS
from netsim.nccl.environment import allowed, settings, tuner_options
from netsim.nccl.log import parse_log
from netsim.nccl.log_facts import Log
from netsim.nccl.tuner_costs import TUNED
from netsim.nccl.variables import check_name
from netsim.reading import read_text
from netsim.schedule.collective import COLLECTIVES
from scenarios.machine import Machine
from scenarios.measured import logged_times, read_measured
from scenarios.nccl import NcclOptions, communicator_of
from scenarios.nccl_tests_json import as_log

_MOST_BYTES = 512 << 20
_SIZES = "size_bytes"
_WANTED = "a log of NCCL_DEBUG=INFO or of nccl-tests is wanted"
_TEST = re.compile(rf"\b({'|'.join(COLLECTIVES)})_perf(?:_mpi)?\b")
_BUFFERS = re.compile(r"_perf(?:_mpi)?\b[^\n]* -R *([012])\b")
_HEAD = re.compile(r"nThread \d+ nGpus (\d{1,9}) minBytes [^\n]*")
_ROW = re.compile(rf"\b\d+ +\d+ +({'|'.join(DATATYPES)}) +({'|'.join(OPERATORS)}|none) +-?\d+ +\d")
_GRAPH = re.compile(r"\bgraph: (\d+)")


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
    windows: bool | None = None
    """Whether buffers were symmetric windows."""


@dataclass(frozen=True)
class Logged:
    """A file, and what was read of it."""

    path: str
    text: str
    """As a log, also where the file is JSON."""
    log: Log
    times: tuple[tuple[int, float], ...]
    """Size in bytes and time in microseconds."""

    @property
    def silent(self) -> bool:
        """Whether NCCL says nothing in it."""
        return self.log == Log(unread=self.log.unread)


def read_logged(path: str | Path) -> Logged:
    """Read a file.

    Raises
    ------
    NetsimError
        If neither NCCL nor nccl-tests says anything in it, and it is no CSV of sizes and times.
    """
    text = as_log(read_text(path, _MOST_BYTES, wanted=_WANTED))
    log, times = parse_log(text), logged_times(text)
    found = Logged(str(path), text, log, tuple(times))
    return replace(found, times=tuple(_from_csv(path, text))) if found.silent and not times else found


def _from_csv(path: str | Path, text: str) -> list[tuple[int, float]]:
    try:
        return read_measured(path)
    except NetsimError as error:
        if _SIZES in text:
            raise NetsimError(f"{error}; {_WANTED}, or a CSV of {_SIZES} and time_us") from None
        raise NetsimError(
            f"{path}: neither NCCL nor nccl-tests says anything in it; {_WANTED}, or a CSV of {_SIZES} and time_us"
        ) from None


def options_of(logged: Logged, asked: Asked, remarks: list[str]) -> NcclOptions:
    """Put together how NCCL ran, from a file and from what is asked for in its place; say in `remarks` what was assumed.

    Raises
    ------
    NetsimError
        If the file contradicts what is asked for.
    """
    text, log = logged.text, logged.log
    _check_collective(logged.path, text, asked)
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
        if head is None and logged.times:
            remarks.append("assumed: replayed CUDA graphs, because no head of nccl-tests' says how calls were launched")
    buffers = _BUFFERS.search(text)
    windows = asked.windows
    if windows is None:
        windows = registered is None and buffers is not None and buffers[1] == "2"
    if registered is None and buffers is not None:
        registered = buffers[1] == "1"
    if registered is None:
        # NCCL registers the buffers of captured collectives unless it is told not to.
        captured = head is not None and launch == "graph"
        registered = captured and log.environment.get("NCCL_GRAPH_REGISTER", "1") != "0"
    gpus = asked.gpus_per_process or (int(head[1]) if head else 1)
    datatype, operator = _elements(text, asked)
    told = (*known, *asked.environment)
    return NcclOptions(version, told, registered, launch, gpus, windows=windows, datatype=datatype, operator=operator)


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


def without_refused(machine: Machine, options: NcclOptions, log: Log, asked: Asked, remarks: list[str]) -> NcclOptions:
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


def collective_of(logged: Logged, asked: Asked) -> str:
    """Return the collective whose times a file holds.

    Raises
    ------
    NetsimError
        If it names none, or several, and none is asked for.
    """
    _check_collective(logged.path, logged.text, asked)
    if asked.collective is not None:
        return asked.collective
    named = list(dict.fromkeys(_TEST.findall(logged.text)))
    if len(named) == 1:
        return str(named[0])
    words = f"names several collectives ({', '.join(named)})" if named else "does not say which collective its times are of"
    raise NetsimError(f"{logged.path}: {words}; --collective says it: one of {', '.join(COLLECTIVES)}")
