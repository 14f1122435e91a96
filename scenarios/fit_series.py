"""What a model is fitted to: measured times of one run each, with the run that is to explain them.

Out of logs of nccl-tests and CSVs, held against a machine that the user names, or out of a folder of tables, whose index
says what each was measured on. Nothing here fits or simulates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from netsim.errors import ScenarioError
from netsim.fabric import ranks_of
from netsim.metrics.timing import bus_factor
from netsim.schedule.collective import COLLECTIVES
from netsim.schedule.protocols import IDEAL, protocol_named
from netsim.units import format_bytes
from scenarios.hardware import set_up
from scenarios.logged import Asked, Logged, collective_of, options_of, read_logged, without_refused
from scenarios.machine import Machine, graph_of
from scenarios.measured import bus_ratio
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, settled
from scenarios.tables import INDEX, Entry, counted, read_index, read_table, warm_up
from scenarios.validate import spec_of
from topologies.options import check_keys, split_options, whole

KEYS = ("gpus", "algo", "proto", "collective")
"""What may be said of one file, behind its name."""
_FAILED = "FAILED"
_MOST_REASONS = 3
"""Reasons that a message has room for."""
_RATIO_OFF = 0.02
"""Difference of ratios of bandwidths from which they are those of another number of GPUs."""


@dataclass(frozen=True)
class Series:
    """Measured times of one run by size, and the run."""

    name: str
    """Of the file, for tables."""
    spec: Spec
    """The run, but for the size."""
    ranks: int
    rows: tuple[tuple[int, float], ...]
    """Size in bytes and time in microseconds, by size."""
    remarks: tuple[str, ...] = field(default=(), repr=False)
    """What was assumed or left out."""


@dataclass(frozen=True)
class Wanted:
    """What the user says of all files."""

    machine: Machine | None = None
    asked: Asked = field(default_factory=Asked)
    algorithm: str = "auto"
    protocol: str = "auto"
    kernel_costs: str | None = None
    """A file from which costs of kernels start."""
    sizes: tuple[int, int] = (1, 1 << 62)
    """The smallest and the largest size that take part, in bytes."""
    every_row: bool = False
    """Whether all rows of a file take part, and not a dozen evenly spread."""


def read_series(names: Sequence[str], wanted: Wanted, left_out: list[str] | None = None) -> list[Series]:
    """Read logs, CSVs and folders of tables.

    Parameters
    ----------
    names : sequence of str
        Files, each perhaps with ``:gpus=4,algo=ring,proto=ll,collective=all_gather`` behind its name; or folders with an
        ``index.csv``.
    wanted : Wanted
    left_out : list of str, optional
        Takes a sentence for every table of a folder that counts and takes no part nevertheless.

    Returns
    -------
    list of Series
        In the order of the names.

    Raises
    ------
    NetsimError
        One sentence for what cannot be read, contradicts the machine, or leaves no row.
    """
    found: list[Series] = []
    left_out = [] if left_out is None else left_out
    for name in names:
        if Path(name).is_dir():
            found += _of_folder(name, wanted, left_out)
        else:
            found.append(_of_file(name, wanted))
    if not found:
        reasons = "; ".join(dict.fromkeys(left_out[:_MOST_REASONS]))
        more = f"; and {len(left_out) - _MOST_REASONS} more" if len(left_out) > _MOST_REASONS else ""
        raise ScenarioError(
            f"no table in {' and '.join(names)} is scored and mapped to a machine; nothing to fit to"
            + (f" ({reasons}{more})" if reasons else "")
        )
    return found


def series_of(entry: Entry, *, kernel_costs: str | None = None) -> Series:
    """Return the rows of an index's table that count for a score, with the run that a rule maps it to.

    Raises
    ------
    ScenarioError
        If no rule does, or the table cannot be read.
    """
    found = set_up(entry)
    if kernel_costs is not None:
        found = replace(found, options=replace(found.options, kernel_costs=kernel_costs))
    rows = tuple((row.size_bytes, row.time_us) for row in read_table(entry) if row.scored)
    return Series(entry.path.name, spec_of(entry, found), entry.ranks, rows, found.remarks)


def _of_folder(name: str, wanted: Wanted, left_out: list[str]) -> list[Series]:
    """Return the tables of a folder that count, on the machine that a rule says, or on the user's own."""
    if not (Path(name) / INDEX).is_file():
        raise ScenarioError(f"{name}: is a folder without {INDEX}; give logs one by one, or a folder that has one")
    found = []
    for entry in read_index(name):
        if not entry.scored:
            continue
        try:
            one = series_of(entry, kernel_costs=wanted.kernel_costs)
        except ScenarioError as error:
            left_out.append(f"left out: {entry.path.name}: {error}")
            continue
        machine = wanted.machine
        if machine is not None:
            per_server = one.ranks // machine.nodes
            machine = replace(machine, gpus_per_node=machine.gpus_per_node or per_server)
            one = replace(one, spec=replace(one.spec, machine=machine))
            _check_ranks(one.name, one.ranks, machine)
        remarks = list(one.remarks)
        rows = _within(one.rows, wanted.sizes, remarks)
        if rows:
            found.append(replace(one, rows=rows, remarks=tuple(remarks)))
        else:
            left_out.append(f"left out: {one.name}: no row is of the sizes that take part")
    return found


def _of_file(name: str, wanted: Wanted) -> Series:
    path, options = _split(name)
    if wanted.machine is None:
        raise ScenarioError(f"{path}: a log does not say on which machine it ran; --topology says it, such as hgx-h100")
    logged = read_logged(path)
    asked = replace(wanted.asked, collective=options.get("collective", wanted.asked.collective))
    if not logged.times:
        raise ScenarioError(f"{path}: there is no whole row of nccl-tests' in it, and so nothing to fit to")
    remarks: list[str] = []
    collective = collective_of(logged, asked)
    machine, ranks = _machine(path, logged, wanted.machine, options, remarks)
    spec = _spec(logged, machine, collective, asked, options, wanted, remarks)
    if _FAILED in logged.text and "Out of bounds" in logged.text:
        remarks.append("nccl-tests found wrong values in this run, so that its times may be of something broken")
    ratio = _bus_factor_off(logged, collective, ranks)
    if ratio is not None:
        remarks.append(ratio)
    rows = _rows(path, logged, spec, wanted, remarks)
    return Series(_shown(Path(path).name), spec, ranks, rows, tuple(remarks))


def _shown(name: str) -> str:
    """Return a file's name as tables and sources can have it: names on disk may be of any bytes."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _split(name: str) -> tuple[str, dict[str, str]]:
    """Take what is said of a file from behind its name; a file that is really called so is that file."""
    if Path(name).exists() or ":" not in name:
        return name, {}
    path, colon, rest = name.rpartition(":")
    what, options = split_options(f"FILE:{rest}", f"what is said of {path}") if colon else (name, {})
    check_keys(options, KEYS, f"{what}:{rest}")
    if "collective" in options and options["collective"] not in COLLECTIVES:
        raise ScenarioError(f"{name}: collective is {options['collective']!r}; accepted are {', '.join(COLLECTIVES)}")
    return path, options


def _machine(
    path: str, logged: Logged, machine: Machine, options: dict[str, str], remarks: list[str]
) -> tuple[Machine, int]:
    """Return the machine with as many GPUs as took part: as the file's options, `-g`, or the log say."""
    ranks = logged.log.ranks
    if "gpus" in options:
        said = whole(options["gpus"], f"{path}: gpus")
        if ranks is not None and ranks != said:
            raise ScenarioError(f"{path}: gpus={said}, and the log is of {ranks} ranks; leave gpus out")
        ranks = said
    if ranks is not None and machine.gpus_per_node is None and ranks % machine.nodes == 0:
        full = len(ranks_of(graph_of(machine)))
        if ranks < full:
            machine = replace(machine, gpus_per_node=ranks // machine.nodes)
            if "gpus" not in options:
                remarks.append(f"{ranks} GPUs took part, so {ranks // machine.nodes} a server are taken")
    here = len(ranks_of(graph_of(machine)))
    _check_ranks(path, here if ranks is None else ranks, machine)
    return machine, here


def _check_ranks(path: str, ranks: int, machine: Machine) -> None:
    here = len(ranks_of(graph_of(machine)))
    if here != ranks:
        raise ScenarioError(
            f"{path}: is of {ranks} ranks, and {machine.label} with {machine.nodes} "
            f"server{'s' * (machine.nodes != 1)} has {here}; --nodes, -g and --topology say how many there were"
        )
    if here == 1:
        raise ScenarioError(f"{path}: is of one rank, which sends nothing; there is nothing to fit to")


def _spec(
    logged: Logged,
    machine: Machine,
    collective: str,
    asked: Asked,
    options: dict[str, str],
    wanted: Wanted,
    remarks: list[str],
) -> Spec:
    """Return the run of a log: of NCCL's schedules where the GPUs are known, of the textbook's otherwise."""
    spec = Spec(
        machine,
        collective,
        0,
        algorithm=options.get("algo", wanted.algorithm),
        protocol=protocol_named(options.get("proto", wanted.protocol), "--proto"),
        engine="compiled" if find_spec("numba") else "auto",
    )
    spec = settled(spec)
    if spec.protocol == IDEAL:
        return replace(spec, engine="auto")
    found = options_of(logged, asked, remarks)
    found = without_refused(machine, found, logged.log, asked, remarks)
    told: NcclOptions = replace(found, kernel_costs=wanted.kernel_costs)
    return replace(spec, nccl=told)


def _rows(path: str, logged: Logged, spec: Spec, wanted: Wanted, remarks: list[str]) -> tuple[tuple[int, float], ...]:
    """Return the rows that take part; a size that stands there twice keeps its first time."""
    times: dict[int, float] = {}
    again = 0
    for size, time_us in logged.times:
        if size and time_us:
            again += size in times
            times.setdefault(size, time_us)
    if again:
        remarks.append(f"left out: {again} row{'s' * (again > 1)} of a size that stands there before; its first time counts")
    sizes = sorted(times)
    if not sizes:
        raise ScenarioError(f"{path}: has no row with a size and a time above zero; nothing to fit to")
    first = warm_up([times[size] for size in sizes])
    chosen = counted(sizes, [times[size] for size in sizes])
    # Textbook runs cost nothing, so that all rows can take part.
    if wanted.every_row or spec.protocol == IDEAL:
        chosen = set(sizes[first:])
    if first:
        remarks.append(f"left out: the first {first} row{'s' * (first > 1)}, a warm-up")
    rows = _within(tuple((size, times[size]) for size in sizes if size in chosen), wanted.sizes, remarks)
    if not rows:
        low, high = wanted.sizes
        raise ScenarioError(
            f"{path}: no row is of {format_bytes(low)} to {format_bytes(high)}; -b and -e say which take part"
        )
    return rows


def _within(
    rows: tuple[tuple[int, float], ...], sizes: tuple[int, int], remarks: list[str]
) -> tuple[tuple[int, float], ...]:
    kept = tuple(row for row in rows if sizes[0] <= row[0] <= sizes[1])
    beyond = len(rows) - len(kept)
    if beyond:
        span = f"{format_bytes(sizes[0])} to {format_bytes(sizes[1])}"
        remarks.append(f"left out: {beyond} row{'s' * (beyond > 1)} not of {span}, which -b and -e say")
    return kept


def _bus_factor_off(logged: Logged, collective: str, ranks: int) -> str | None:
    """Say if a log's bandwidths are of another number of ranks; None if they are not, or if it cannot be told."""
    ratio = bus_ratio(logged.text)
    expected = bus_factor(collective, ranks)
    # Tests of before 2020 printed one bandwidth twice for gathers and scatters.
    if ratio is None or math.isclose(ratio, expected, rel_tol=_RATIO_OFF) or (collective != "all_reduce" and ratio == 1):
        return None
    return (
        f"bus over algorithm bandwidth is {ratio:.4g} in it, and of {collective} over {ranks} ranks it is {expected:.4g}: "
        "another collective, or another number of GPUs"
    )
