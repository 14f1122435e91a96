"""A scenario file: its schema, and the loader whose every message points at the file and the line.

A scenario is one YAML mapping: a machine, a collective, algorithms and sizes. Lists multiply: every topology with every
collective, algorithm, protocol, number of chunks and size is one run. The schema is strict, because YAML is not: it reads
``1e9`` as text, ``12:30`` as a number and ``no`` as false, and all of these fail loudly here. Sizes carry a unit.
"""

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from netsim.engine.run import ENGINES
from netsim.errors import ScenarioError, ScheduleError, UnitError
from netsim.nccl.elements import DATATYPES, OPERATORS
from netsim.nccl.names import unknown
from netsim.schedule.catalogue import algorithms_for
from netsim.schedule.collective import COLLECTIVES
from netsim.schedule.own import is_file
from netsim.schedule.protocols import ACCEPTED, IDEAL, protocol_named
from netsim.units import parse_bytes
from scenarios.machine import Machine
from scenarios.nccl import LAUNCHES, NcclOptions
from scenarios.run import Spec, limit_on_messages
from scenarios.sizes import size_list
from scenarios.spec_nccl import Places, check_keys, check_nccl_algorithm, check_nccl_protocol, is_nccls, nccl_options
from scenarios.spec_text import MOST_RUNS, Lines, line_of, read_scenario

_Count = Annotated[int, Field(ge=1)]
_Text = Annotated[str, Field(min_length=1)]
_Item = TypeVar("_Item")
_Some = Annotated[list[_Item], Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SizeRange(_Strict):
    """Sizes from `first` to `last`, multiplied by `factor` or increased by `step`."""

    first: str
    last: str
    factor: Annotated[int, Field(ge=2)] | None = None
    step: str | None = None


class ScenarioFile(_Strict):
    """The keys of a scenario file; each description says what is accepted."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")] | None = Field(
        None, description="letters, digits, - and _, 100 at most; it names the CSV"
    )
    topology: _Text | _Some[_Text] | dict[str, Any] = Field(
        description="a preset, a study graph or a file, a list of those, or a mapping with nodes and links"
    )
    nodes: _Count = Field(1, description="a whole number from 1 up")
    nic: _Text | None = Field(None, description="a network card's profile, for example ndr400 or ndr400:nics=4")
    fabric: _Text = Field(
        "one-switch", description="a network between servers, for example one-switch, rails or leaf-spine:leaves=2,spines=4"
    )
    gpus_per_node: _Count | None = Field(None, description="a whole number from 1 up")
    gpudirect: bool = Field(True, description="true or false")
    rate: Literal["effective", "line"] = Field("effective", description="effective or line")
    profile: _Text | None = Field(None, description="the name or file of a link profile, or several with commas")
    collective: _Text | _Some[_Text] = Field(description="a collective or a list of collectives")
    algorithm: _Text | _Some[_Text] = Field(
        "auto", description="an algorithm or a list of algorithms; a Python file with a schedule of your own is one"
    )
    protocol: _Text | _Some[_Text] = Field(IDEAL, description=f"{ACCEPTED}; or a list of those")
    nccl_version: _Text | None = Field(None, description='a release of NCCL in quotes, such as "2.28.9"')
    nccl_env: _Text | _Some[_Text] = Field([], description="a variable such as NCCL_ALGO=ring or a file of them, or a list")
    registered: bool = Field(False, description="true or false: whether user buffers are registered")
    launch: Literal["graph", "stream", "none"] = Field("graph", description=", ".join(LAUNCHES))
    gpus_per_process: _Count = Field(1, description="a whole number from 1 up: GPUs that one host thread drives")
    tuner: _Text | None = Field(None, description="a file of rules of NCCL's example tuner plugin")
    kernel_costs: _Text | None = Field(None, description="a file of what NCCL's kernels cost, beside the scenario")
    in_place: bool = Field(False, description="true or false: whether input and output are one buffer")
    windows: bool = Field(False, description="true or false: whether user buffers are symmetric windows")
    datatype: _Text = Field("float", description=", ".join(DATATYPES))
    operator: _Text = Field("sum", description=", ".join(OPERATORS))
    channels: _Count | None = Field(None, description="a whole number from 1 up")
    sizes: list[str | Literal[0]] | SizeRange = Field(
        description="a list of sizes with a unit such as [1 MiB, 64 MiB], or first and last with factor or step"
    )
    chunk: str | None = Field(None, description="a size with a unit such as 512 KiB")
    chunks: _Count | _Some[_Count] | None = Field(None, description="a whole number from 1 up, or a list of those")
    root: Annotated[int, Field(ge=0)] = Field(0, description="a rank, a whole number from 0 up")
    quantum: str | Literal[0] = Field(0, description="a size with a unit such as 4 KiB, or 0")
    routing: _Text = Field("static", description="static, ecmp:SEED, ecmp:SEED,flows=F or ecmp:FIRST..LAST")
    groups: _Text | None = Field(None, description="groups of ranks that run at once: div:8, mod:8 or 0-3/4,5,6,7")
    engine: _Text = Field("auto", description=", ".join(ENGINES))
    max_messages: _Count | None = Field(None, description="a whole number from 1 up")


@dataclass(frozen=True)
class Scenario:
    """A checked scenario: its name, its file and its runs in order."""

    name: str
    path: Path
    specs: tuple[Spec, ...]


def load_scenario(path: str | Path) -> Scenario:
    """Read and check a scenario file.

    Parameters
    ----------
    path : str or Path
        A YAML file.

    Returns
    -------
    Scenario
        One `Spec` for every run.

    Raises
    ------
    ScenarioError
        One sentence that begins with ``file:line:`` and says what is wrong and what is accepted.
    """
    path = Path(path)
    data, lines = read_scenario(path)
    try:
        file = ScenarioFile.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(_complaint(path, data, lines, error)) from None
    where = _Where(path, lines)
    name = file.name or re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)
    return Scenario(name, path, tuple(_specs(file, name, where)))


@dataclass(frozen=True)
class _Where:
    """Names places in the file."""

    path: Path
    lines: Lines

    def __call__(self, *place: str | int) -> str:
        return f"{self.path}:{line_of(self.lines, place)}: {place[0]}"


def _specs(file: ScenarioFile, name: str, where: _Where) -> Iterator[Spec]:
    collectives = [_collective(value, where) for value in _listed(file.collective)]
    algorithms = [_own_file(name, where) if is_file(name) else name for name in _listed(file.algorithm)]
    protocols = [_protocol(name, where) for name in _listed(file.protocol)]
    places = Places(where, lambda name: _beside(name, where.path))
    check_keys(places, sorted(file.model_fields_set), protocols)
    for collective in collectives:
        for algorithm in algorithms:
            for protocol in protocols:
                # Where NCCL lacks an algorithm of the textbook's, auto is the textbook.
                check_nccl_protocol(places, collective, protocol)
                if not is_nccls(collective, algorithm, protocol):
                    _check_algorithm(collective, algorithm, protocol, where)
                elif protocol != "auto":
                    check_nccl_algorithm(places, collective, algorithm)
    nccl = nccl_options(
        places,
        version=file.nccl_version,
        environment=_listed(file.nccl_env),
        registered=file.registered,
        launch=file.launch,
        gpus_per_process=file.gpus_per_process,
        tuner=file.tuner,
        windows=file.windows,
        in_place=file.in_place,
        kernel_costs=file.kernel_costs,
        datatype=file.datatype,
        operator=file.operator,
        given=sorted(file.model_fields_set),
    )
    # Keys for NCCL's schedules are refused where no run of the file has a use for them; other runs go without.
    runs = list(product(collectives, algorithms, protocols))
    some = any(is_nccls(*run) for run in runs)
    if file.engine not in ENGINES:
        raise ScenarioError(f"{where('engine')} is {file.engine!r}; accepted are {', '.join(ENGINES)}")
    sizes = _sizes(file.sizes, where)
    quantum = _size(file.quantum, where("quantum"))
    chunk = None if file.chunk is None else _size(file.chunk, where("chunk"))
    if chunk == 0:
        raise ScenarioError(f"{where('chunk')} is {file.chunk!r}; a chunk has one byte or more")
    # Nodes and links in the file itself: the topology is this file.
    topologies = [str(where.path)] if isinstance(file.topology, dict) else _listed(file.topology)
    chunk_counts = _listed(file.chunks)
    count = math.prod(map(len, (topologies, collectives, algorithms, protocols, chunk_counts, sizes)))
    if count > MOST_RUNS:
        raise ScenarioError(f"{where.path}: its lists multiply to {count} runs, more than {MOST_RUNS}")
    for topology in topologies:
        machine = Machine(
            topology=_beside(topology, where.path),
            nodes=file.nodes,
            nic=file.nic,
            fabric=file.fabric,
            gpus_per_node=file.gpus_per_node,
            gpudirect=file.gpudirect,
            rate=file.rate,
            profile=None
            if file.profile is None
            else ",".join(_beside(name.strip(), where.path) for name in file.profile.split(",")),
        )
        for collective, algorithm, protocol, chunks, size in product(
            collectives, algorithms, protocols, chunk_counts, sizes
        ):
            yield Spec(
                machine=machine,
                collective=collective,
                size_bytes=size,
                algorithm=algorithm,
                protocol=protocol,
                nccl=nccl if not some or is_nccls(collective, algorithm, protocol) else NcclOptions(),
                channels=file.channels,
                chunk_bytes=chunk if protocol == IDEAL else None,
                chunks=chunks if protocol == IDEAL else None,
                root=file.root,
                quantum_bytes=quantum,
                routing=file.routing,
                groups=file.groups,
                engine=file.engine,
                max_messages=limit_on_messages(file.max_messages, quantum),
                scenario=name,
            )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _beside(name: str, path: Path) -> str:
    """Take a file name as relative to the scenario's own folder, where there is such a file; leave any other name alone."""
    candidate = path.parent / name
    return str(candidate) if not Path(name).is_absolute() and candidate.is_file() else name


def _own_file(name: str, where: _Where) -> str:
    """Return the path of a Python file with a schedule of one's own, which stands beside the scenario or where it says."""
    path = _beside(name, where.path)
    if not Path(path).is_file():
        raise ScenarioError(f"{where('algorithm')} is {name!r}, and there is no such file beside {where.path.name}")
    return path


def _protocol(name: str, where: _Where) -> str:
    try:
        return protocol_named(name, where("protocol"))
    except ScheduleError as error:
        raise ScenarioError(str(error)) from None


def _collective(name: str, where: _Where) -> str:
    if name not in COLLECTIVES:
        raise ScenarioError(
            f"{where('collective')} is {name!r}{_meant(name, COLLECTIVES)}; accepted are {', '.join(COLLECTIVES)}"
        )
    return name


def _check_algorithm(collective: str, algorithm: str, protocol: str, where: _Where) -> None:
    accepted = (*algorithms_for(collective), "auto")
    # What stands behind a colon, as in hierarchical:2x8, is read with the number of ranks; so is a file of one's own.
    if is_file(algorithm):
        return
    if algorithm.partition(":")[0] not in accepted:
        if protocol != IDEAL:
            raise ScenarioError(f"{where('algorithm')}: {unknown(algorithm, collective, algorithms_for(collective))}")
        words = f"{where('algorithm')} is {algorithm!r}{_meant(algorithm, accepted)}"
        raise ScenarioError(f"{words}; accepted for {collective} are {', '.join(accepted)}")


def _sizes(value: list[str | Literal[0]] | SizeRange, where: _Where) -> list[int]:
    if isinstance(value, list):
        if not value:
            raise ScenarioError(f"{where('sizes')} is empty; give at least one size with a unit such as 64 MiB")
        return [_size(size, where("sizes", index)) for index, size in enumerate(value)]
    if (value.factor is None) == (value.step is None):
        raise ScenarioError(f"{where('sizes')} needs either factor or step, besides first and last")
    first, last = _size(value.first, where("sizes", "first")), _size(value.last, where("sizes", "last"))
    try:
        if value.step is None:
            return size_list(first, last, factor=value.factor or 1)
        return size_list(first, last, step=_size(value.step, where("sizes", "step")))
    except ScenarioError as error:
        raise ScenarioError(f"{where('sizes')}: {error}") from None


def _size(text: str | int, where: str) -> int:
    try:
        return parse_bytes(text, where=where)
    except UnitError as error:
        raise ScenarioError(str(error)) from None


def _complaint(path: Path, data: dict[str, Any], lines: Lines, error: ValidationError) -> str:
    """Turn the first thing that the schema found into one sentence."""
    found = min(error.errors(), key=lambda item: _rank(item["type"], item["loc"], lines))
    place = found["loc"]
    key = str(place[0])
    where = f"{path}:{line_of(lines, place)}"
    if found["type"] == "extra_forbidden":
        unknown = str(place[-1])
        accepted = tuple(SizeRange.model_fields if len(place) > 1 else ScenarioFile.model_fields)
        return f"{where}: unknown key {unknown!r}{_meant(unknown, accepted)}; accepted are {', '.join(accepted)}"
    accepts = ScenarioFile.model_fields[key].description
    if found["type"] == "missing":
        if len(place) == 1:
            return f"{where}: the key {key!r} is missing; it takes {accepts}"
        return f"{where}: {key}: {place[-1]} is missing; {key} takes {accepts}"
    wrong: Any = data
    for step in place:
        if isinstance(wrong, dict | list) and (step in wrong if isinstance(wrong, dict) else isinstance(step, int)):
            wrong = wrong[step]  # type: ignore[index]
    kind = {bool: "a truth value", int: "a number", float: "a number", str: "text"}.get(type(wrong), "")
    return f"{where}: {key} is {wrong!r}{f', {kind}' if kind else ''}; accepted is {accepts}"


def _rank(kind: str, place: tuple[str | int, ...], lines: Lines) -> tuple[bool, int, int]:
    """Order complaints: by line, keys that are missing altogether last; of several about one key, the plainest first."""
    plainest = {"extra_forbidden": 0, "missing": 1}.get(kind, 2)
    return len(place) == 1 and kind == "missing", line_of(lines, place), plainest


def _meant(name: str, accepted: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, accepted, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
