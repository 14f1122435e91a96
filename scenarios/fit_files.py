"""The files that a fit leaves, and the command line that uses them.

A generation's kernel costs and every link profile that changed keep their form and their comments; numbers that were fitted
have their interval beside them, and date and source say where they come from. A constant of textbook calls and the figures
of a study graph are in no file: the command line and the table of parameters hold them.
"""

import csv
import io
import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from netsim import __version__
from netsim.export.files import write_whole
from netsim.nccl import gpus
from netsim.nccl.environment import notes, read_assignments
from netsim.schedule.protocols import IDEAL
from netsim.units import parse_rate, parse_time
from scenarios.fit_choice import generation_used, kinds_of
from scenarios.fit_parameters import CALL, TOPOLOGY, Parameter, Point, is_kernel_costs, scaled, stated, study_parts
from scenarios.fit_search import Fitted, Outcome
from scenarios.fit_series import Series
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec
from topologies import profiles
from topologies.link_protocols import KEYS as PROTOCOL_KEYS

PARAMETERS = "parameters.csv"
"""Name of the table of all parameters."""
_COLUMNS = ("parameter", "before", "after", "low", "high", "from_start", "seen", "at_limit", "version", "schema")
_SCHEMA = 1
_SIGNIFICANT = 4
_LARGER = {"ns": "us", "us": "ms", "MB/s": "GB/s", "Mb/s": "Gb/s"}


def value_words(parameter: Parameter, factor: float, topology: str = "") -> str:
    """Return a parameter's value times a factor, with its unit.

    Examples
    --------
    >>> value_words(Parameter("nvlink4", ("latency_ll",)), 2.0)
    '818 ns'
    """
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(.*)", parameter.before(topology))
    assert found is not None
    number, unit = float(found[1]) * factor, found[2]
    while abs(number) >= 1000 and unit in _LARGER:
        number, unit = number / 1000, _LARGER[unit]
    return f"{number:.{_SIGNIFICANT}g} {unit}".rstrip()


def write_files(outcome: Outcome, series: Sequence[Series], folder: Path, name: str) -> list[Path]:
    """Write the components that changed and the table of parameters; each file appears whole or not at all.

    Parameters
    ----------
    outcome : Outcome
    series : sequence of Series
    folder : Path
        Made if it is missing.
    name : str
        What was measured, for the sources.

    Returns
    -------
    list of Path
        The components' files, kernel costs first.

    Raises
    ------
    NetsimError
        If a file cannot be written.
    """
    written = []
    seen = [one for one in outcome.fitted if one.seen]
    for file in dict.fromkeys(one.parameter.file for one in seen):
        fitted = [one for one in seen if one.parameter.file == file]
        if fitted[0].parameter.path is None:
            continue
        path = folder / f"{file}.toml"
        _check(text := _component(fitted, name, len(series)), kernels=is_kernel_costs(fitted[0].parameter.path))
        write_whole(path, text)
        written.append(path)
    topology = series[0].spec.machine.topology
    write_whole(folder / PARAMETERS, parameters_csv(outcome, topology))
    return sorted(written, key=lambda path: not is_kernel_costs(path))


def _component(fitted: Sequence[Fitted], name: str, logs: int) -> str:
    """Return the text of a component with its fitted numbers, their intervals, the date and the source."""
    source = fitted[0].parameter.path
    assert source is not None
    text = fitted[0].parameter.text
    for one in fitted:
        first = value_words(one.parameter, one.interval[0]), value_words(one.parameter, one.interval[1])
        for key in one.parameter.keys:
            # The interval is of the first of several keys; the others move with it.
            comment = f"{first[0]} to {first[1]}" if key == one.parameter.keys[0] else f"with {one.parameter.keys[0]}"
            text = scaled(text, key, one.factor, str(source), comment=comment)
    today = datetime.now(UTC).date().isoformat()
    keys = ", ".join(key for one in fitted for key in one.parameter.keys)
    measured = f"measured: fitted by simulation to {name} ({logs} log{'s' * (logs != 1)}, netsim {__version__}, {today})"
    text = stated(text, "date", json.dumps(today))
    if is_kernel_costs(source):
        return _sourced(text, "source", f"{measured}: {keys}", keep=True)
    own = {key for one in fitted for key in one.parameter.keys}
    if own & {"effective_rate", "gap", "floor"}:
        text = _sourced(text, "source", measured, keep=True)
    if "latency" in own:
        text = _sourced(text, "latency_source", measured, keep=False)
    if own & set(PROTOCOL_KEYS):
        keys = ", ".join(key for key in PROTOCOL_KEYS if key in own)
        text = _sourced(text, "protocol_source", f"{measured}: {keys}", keep=True)
    return text


def _sourced(text: str, key: str, words: str, *, keep: bool) -> str:
    """Return a file's text with a source, behind it what it said before of all the rest."""
    before = str(tomllib.loads(text).get(key, ""))
    if keep and before:
        words = f"{words}; the rest {before}"
    value = _quoted(words)
    if f"\n{key} = " in f"\n{text}":
        return stated(text, key, value)
    return stated(text, "source", f"{_quoted(str(tomllib.loads(text)['source']))}\n{key} = {value}")


def _quoted(words: str) -> str:
    """Write text in TOML: as in JSON, but that DEL is escaped too."""
    return json.dumps(words, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check(text: str, *, kernels: bool) -> None:
    """Read a file's text as a run would, before it is written where it is looked for."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.toml"
        path.write_text(text, encoding="utf-8")
        if kernels:
            gpus.read_costs(path)
        else:
            profiles.load_profile(str(path))


def parameters_csv(outcome: Outcome, topology: str) -> str:
    """Return all parameters as CSV, values with their units."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(_COLUMNS)
    for one in outcome.fitted:
        values = (value_words(one.parameter, factor, topology) for factor in (1.0, one.factor, *one.interval))
        name = f"{one.parameter.file}:{'+'.join(one.parameter.keys)}"
        write([name, *values, one.held, one.seen, one.at_limit, __version__, _SCHEMA])
    return out.getvalue()


def fitted_topology(topology: str, outcome: Outcome) -> str:
    """Return a study graph's text with the fitted latency and rate, six digits each; any other as it is.

    Raises
    ------
    ScenarioError
        If there are figures for a study graph, and the text is none.
    """
    factors = {one.parameter.keys[0]: one.factor for one in outcome.fitted if one.parameter.file == TOPOLOGY}
    if not factors:
        return topology
    parts = study_parts(topology)
    rate = parse_rate(parts["rate"].strip(), where="rate") * factors.get("rate", 1.0)
    latency = parse_time(parts["latency"].strip(), where="latency") * factors.get("latency", 1.0)
    return f"{parts['head']}{rate / 1e9:.6g}GB/s,{latency * 1e6:.6g}us"


def constant_us(outcome: Outcome) -> float:
    """Return what a textbook call costs beside its links, in microseconds; 0 where that was not fitted."""
    return sum(one.parameter.start_s * one.factor * 1e6 for one in outcome.fitted if one.parameter.file == CALL)


def command(one: Series, outcome: Outcome, files: Sequence[Path]) -> str:
    """Return the command line that repeats a series with what was fitted."""
    spec = _with_files(one.spec, files)
    machine = spec.machine
    words = ["netsim", "perf", spec.collective, "--topology", fitted_topology(machine.topology, outcome)]
    words += _machine_words(machine)
    words += ["--algo", spec.algorithm] if spec.algorithm != "auto" else []
    if spec.protocol == IDEAL:
        words += ["--proto", IDEAL]
    else:
        words += ["--proto", spec.protocol] if spec.protocol != "auto" else []
        words += _nccl_words(spec.nccl)
    sizes = [size for size, _ in one.rows]
    words += ["-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", "2"]
    return shlex.join(words)


def _with_files(spec: Spec, files: Sequence[Path]) -> Spec:
    """Return a run with those of some files that are of its components, as the fit itself ran it."""
    costs = tuple((path.stem, str(path)) for path in files if is_kernel_costs(path))
    links = tuple((path.stem, str(path)) for path in files if not is_kernel_costs(path))
    kinds = kinds_of(spec.machine) if links else frozenset()
    generation = generation_used(spec.machine, spec.nccl) if costs and spec.protocol != IDEAL else ""
    return Point(costs, links).applied(spec, kinds, generation)


def _machine_words(machine: Machine) -> list[str]:
    words = ["--nodes", str(machine.nodes)] if machine.nodes > 1 else []
    words += ["--nic", machine.nic] if machine.nic else []
    words += ["--fabric", machine.fabric] if machine.fabric != Machine.fabric else []
    words += ["-g", str(machine.gpus_per_node)] if machine.gpus_per_node else []
    words += [] if machine.gpudirect else ["--no-gpudirect"]
    words += ["--rate", machine.rate] if machine.rate != Machine.rate else []
    return [*words, "--profile", machine.profile] if machine.profile else words


def _nccl_words(told: NcclOptions) -> list[str]:
    words = ["--nccl-version", told.version]
    for assignment in told.environment:
        # What changes nothing would only be said on stderr.
        if not notes(read_assignments([assignment])):
            words += ["--nccl-env", assignment]
    words += ["--registered"] * told.registered + ["--windows"] * told.windows + ["--in-place"] * told.in_place
    words += ["--launch", told.launch] if told.launch != "graph" else []
    words += ["--gpus-per-process", str(told.gpus_per_process)] if told.gpus_per_process > 1 else []
    words += ["-d", told.datatype] if told.datatype != "float" else []
    words += ["-o", told.operator] if told.operator != "sum" else []
    return [*words, "--kernel-costs", told.kernel_costs] if told.kernel_costs else words
