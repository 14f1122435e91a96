"""Parameters of components out of measured tables, by running the simulator: what kernels cost, what links carry.

A parameter is a number in a file of a component: a generation of GPU (``netsim/nccl/gpus_data``) or a link profile. It is
the same wherever that component appears, so nothing can be fitted to one table. The fit is Gauss and Newton's on logarithms
of times and of parameters, with weights after Huber so that single rows off do not steer it, and with a pull to where each
parameter starts, as wide as what was known of it: what tables do not decide stays there, and its interval says so.
"""

import math
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.errors import NetsimError, ScenarioError
from netsim.export.table import Row
from netsim.fabric import links_of
from netsim.nccl import gpus
from netsim.nccl.schedules import generation_of
from scenarios.hardware import SetUp, set_up
from scenarios.machine import Machine, graph_of
from scenarios.nccl import NcclOptions, communicator_of
from scenarios.run import Spec
from scenarios.tables import Entry, read_index
from scenarios.validate import MOST_MESSAGES, predicted
from topologies import profiles

Floats = npt.NDArray[np.float64]

RECIPES = Path(__file__).with_name("fits.toml")
QUICK_MESSAGES = 30_000
"""Rows of more messages do not take part where a recipe is fitted, so that a step takes minutes."""
_HUBER = 0.08
"""Error (of a logarithm) from which a row counts less."""
_STEP = 0.1
"""Relative step of the finite differences; small ones meet the steps that schedules have."""
_DAMPINGS = (0.0, 0.3, 1.0, 3.0, 10.0)
"""On the diagonal of the normal equations, after Levenberg and Marquardt."""
_NUMBER = re.compile(r"\s*([0-9.eE+-]+)\s*(.*)")


@dataclass(frozen=True)
class Parameter:
    """One number of a component."""

    file: str
    """``hopper`` or another generation of GPU, or the name of a link profile."""
    keys: tuple[str, ...]
    """``table.key`` in the file of a GPU, ``key`` in a profile; several are scaled together."""
    width: float = 0.5
    """How well it is known before: a standard deviation of its logarithm."""

    @property
    def name(self) -> str:
        """File and first key."""
        return f"{self.file}:{self.keys[0]}{'...' if len(self.keys) > 1 else ''}"


@dataclass(frozen=True)
class Fitted:
    """What came of a parameter."""

    parameter: Parameter
    factor: float
    """On its first value."""
    interval: tuple[float, float]
    """Two standard errors either way, as factors on the first value."""
    held: float
    """Share of what is known of it that came from its start and not from tables, 0 to 1."""


@dataclass(frozen=True)
class Task:
    """The tables of one evaluation, with files in place of the components' own."""

    entries: tuple[Entry, ...]
    kernel_costs: tuple[str, ...] = ()
    """Paths of what kernels cost, one a generation of GPU; each serves the machines of its generation."""
    links: tuple[str, ...] = ()
    """Paths of link profiles and of NICs; each serves the machines that have such links."""
    max_messages: int = MOST_MESSAGES


def fit(
    parameters: Sequence[Parameter],
    entries: Sequence[Entry],
    folder: str | Path,
    *,
    rounds: int = 6,
    max_messages: int = MOST_MESSAGES,
    executor: Executor | None = None,
    told: Callable[[int, float], None] = lambda number, error: None,
) -> list[Fitted]:
    """Fit parameters to tables.

    Parameters
    ----------
    parameters : sequence of Parameter
    entries : sequence of Entry
        The tables; each weighs the same.
    folder : str or Path
        Where files of components are written while it goes on; at the end they are in ``best``.
    rounds : int
        At most so many steps.
    max_messages : int
        Rows that need more do not take part, so that an evaluation stays quick.
    executor : Executor, optional
        Where evaluations run, one for each parameter and step.
    told : callable, optional
        Called with the number of a step and the median error after it.

    Raises
    ------
    ScenarioError
        If a parameter is in no file, or no row is left.
    """
    place = Path(folder)
    width = np.array([parameter.width for parameter in parameters])

    def evaluate(points: Sequence[Floats]) -> list[Floats]:
        tasks = [
            replace(_task(parameters, point, entries, place / f"point{number}"), max_messages=max_messages)
            for number, point in enumerate(points)
        ]
        found = list(map(errors, tasks) if executor is None else executor.map(errors, tasks))
        return [np.array(one) for one in found]

    at = np.zeros(len(parameters))
    tables = errors_by_table(replace(_task(parameters, at, entries, place / "point0"), max_messages=max_messages))
    weights = np.array([1 / len(table) for table in tables for _ in table])
    here = np.array([error for table in tables for error in table])
    covariance = np.diag(width**2)
    for number in range(1, rounds + 1):
        steps = [at + _STEP * (np.arange(len(at)) == one) for one in range(len(at))]
        slopes = np.array([(moved - here) / _STEP for moved in evaluate(steps)]).T
        robust = weights * np.minimum(1.0, _HUBER / np.maximum(np.abs(here), 1e-9))
        normal = slopes.T @ (slopes * robust[:, None]) / _HUBER**2 + np.diag(width**-2.0)
        pull = -(slopes.T @ (robust * here)) / _HUBER**2 - at / width**2
        # Where times have steps, a straight line leads astray: the more a step is damped, the more it goes down the slope.
        moves = [np.linalg.solve(normal + damped * np.diag(np.diag(normal)), pull) for damped in _DAMPINGS]
        covariance = np.linalg.inv(normal)
        tried = [at + np.clip(move, -0.7, 0.7) for move in moves]
        results = evaluate(tried)
        costs = [_cost(result, weights, point, width) for result, point in zip(results, tried, strict=True)]
        best = int(np.argmin(costs))
        if costs[best] >= _cost(here, weights, at, width) * (1 - 1e-3):
            break
        at, here = tried[best], results[best]
        told(number, float(np.median(np.abs(here))))
    _task(parameters, at, entries, place / "best")
    deviation = np.sqrt(np.diag(covariance))
    return [
        Fitted(
            parameter,
            math.exp(value),
            (math.exp(value - 2 * error), math.exp(value + 2 * error)),
            float(min(1.0, (error / wide) ** 2)),
        )
        for parameter, value, error, wide in zip(parameters, at, deviation, width, strict=True)
    ]


def errors(task: Task) -> list[float]:
    """Return the logarithm of predicted over measured time of every counted row, table after table."""
    return [error for table in errors_by_table(task) for error in table]


def errors_by_table(task: Task) -> list[list[float]]:
    """Return the same by table; a row that cannot be simulated has an error of zero, so that rows stay aligned."""
    found = []
    some = False
    known: dict[Spec, Row | str] = {}
    for entry in task.entries:
        at = _with_files(set_up(entry), task)
        rows = predicted(entry, at, known, max_messages=task.max_messages)
        some = some or any(row is not None for _, row in rows)
        found.append([0.0 if row is None else math.log(row.time_us / measured.time_us) for measured, row in rows])
    if not some:
        reasons = ", ".join(sorted({reason for reason in known.values() if isinstance(reason, str)})[:3])
        raise ScenarioError(f"no row of the tables could be simulated: {reasons}")
    return found


def _with_files(found: SetUp, task: Task) -> SetUp:
    """Return a set-up with the components' files in place of their own, where it has these components."""
    machine, options = found.machine, found.options
    name = _generation(machine, options)
    mine = [path for path in task.kernel_costs if Path(path).stem == name]
    if mine:
        options = replace(options, kernel_costs=mine[0])
    kinds = _kinds(machine)
    kept = list(filter(None, [machine.profile]))
    for path in task.links:
        kind = Path(path).stem
        if machine.nic and machine.nic.partition(":")[0] == kind:
            machine = replace(machine, nic=machine.nic.replace(kind, path, 1))
        elif kind in kinds:
            kept.append(path)
    return replace(found, machine=replace(machine, profile=",".join(kept) or None), options=options)


@lru_cache(maxsize=256)
def _kinds(machine: Machine) -> frozenset[str]:
    """Return the kinds of a machine's links, narrower ones of PCI Express by the name of the whole."""
    return frozenset(link.kind.partition("_x")[0] for _, _, link in links_of(graph_of(machine)))


@lru_cache(maxsize=256)
def _generation(machine: Machine, options: NcclOptions) -> str:
    """Return the generation of GPU whose costs a machine's kernels have."""
    return generation_of(communicator_of(machine, options, None))


def _cost(here: Floats, weights: Floats, at: Floats, width: Floats) -> float:
    size = np.abs(here)
    huber = np.where(size < _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2))
    return float((weights * huber).sum() / _HUBER**2 + (at**2 / width**2).sum() / 2)


def _task(parameters: Sequence[Parameter], point: Floats, entries: Sequence[Entry], folder: Path) -> Task:
    """Write the files of a point and return what to evaluate."""
    folder.mkdir(parents=True, exist_ok=True)
    costs: list[str] = []
    links: list[str] = []
    for file in dict.fromkeys(parameter.file for parameter in parameters):
        source = component_file(file)
        text = source.read_text(encoding="utf-8")
        for parameter, value in zip(parameters, point, strict=True):
            if parameter.file == file:
                for key in parameter.keys:
                    text = scaled(text, key, math.exp(value), str(source))
        path = folder / f"{file}.toml"
        path.write_text(text, encoding="utf-8")
        (costs if source.parent == gpus.FOLDER else links).append(str(path))
    return Task(tuple(entries), tuple(costs), tuple(links))


def component_file(name: str) -> Path:
    """Return the file of a component.

    Raises
    ------
    ScenarioError
        If there is none of that name.
    """
    for folder in (gpus.FOLDER, profiles.FOLDER):
        path = folder / f"{name}.toml"
        if path.is_file():
            return path
    raise ScenarioError(f"{name!r} is neither a generation of GPU nor a link profile that comes with netsim")


def scaled(text: str, key: str, factor: float, where: str = "") -> str:
    r"""Return the text of a TOML file with one number times a factor; comments and everything else stay.

    Parameters
    ----------
    text : str
    key : str
        ``table.key``, or ``key`` before any table. The value is a number or text that begins with one.
    factor : float
    where : str
        For messages.

    Examples
    --------
    >>> scaled('[ll]\nstart = "4 us"  # 3 to 5\n', "ll.start", 1.5)
    '[ll]\nstart = "6 us"  # 3 to 5\n'
    """
    table, _, name = key.rpartition(".")
    value: Any = tomllib.loads(text)
    for part in (*filter(None, table.split(".")), name):
        if not isinstance(value, dict) or part not in value:
            raise ScenarioError(f"{where}: has no {key}; a parameter is a number that the file has")
        value = value[part]
    found = _NUMBER.fullmatch(str(value))
    if found is None:
        raise ScenarioError(f"{where}: {key} is {value!r}, which is no number")
    number = f"{float(found[1]) * factor:.6g}"
    new = f'"{number} {found[2]}"' if isinstance(value, str) else number
    lines, inside = text.splitlines(keepends=True), ""
    for at, line in enumerate(lines):
        heading = re.match(r"\s*\[(.+?)\]", line)
        inside = heading[1] if heading else inside
        stated = re.match(rf'(\s*{re.escape(name)}\s*=\s*)("[^"]*"|[^\s#]+)', line)
        if stated and inside == table:
            lines[at] = f"{stated[1]}{new}{line[stated.end() :]}"
            break
    return "".join(lines)


def recipe(name: str, folders: Sequence[str | Path]) -> tuple[list[Parameter], list[Entry]]:
    """Return the parameters and the tables of a fit that ``fits.toml`` describes.

    Raises
    ------
    ScenarioError
        If it describes none of that name.
    """
    known = tomllib.loads(RECIPES.read_text(encoding="utf-8"))
    if name not in known:
        raise ScenarioError(f"{RECIPES.name} describes no fit {name!r}; accepted are {', '.join(known)}")
    told = known[name]
    parameters = [Parameter(one["file"], tuple(one["keys"]), one["width"]) for one in told["parameters"]]
    entries = [
        entry
        for folder in folders
        for entry in read_index(folder)
        if entry.scored
        and (entry["n_nodes"] == "1" or told.get("several_nodes", False))
        and entry["hw_class"] in told["classes"]
        and not any(part in entry.path.name for part in told["without"])
    ]
    return parameters, entries


def main(arguments: Sequence[str]) -> None:
    """Fit what a recipe names to the tables of folders; print each parameter, leave files in ``results/fit_NAME/best``."""
    if len(arguments) < 2:
        raise ScenarioError("give a name of fits.toml and folders with an index.csv: NAME FOLDER...")
    name, *folders = arguments
    parameters, entries = recipe(name, folders)
    messages = tomllib.loads(RECIPES.read_text(encoding="utf-8"))[name].get("max_messages", QUICK_MESSAGES)
    print(f"# {name}: {len(parameters)} parameters, {len(entries)} tables")
    with ProcessPoolExecutor() as pool:
        found = fit(
            parameters,
            entries,
            Path("results") / f"fit_{name}",
            max_messages=messages,
            executor=pool,
            told=lambda number, error: print(f"# step {number}: error {error:.1%} in the median", flush=True),
        )
    for one in found:
        low, high = one.interval
        print(f"{one.parameter.name:32} x {one.factor:.3f}  ({low:.3f} to {high:.3f}), {one.held:.0%} from its start")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NetsimError as problem:
        print(f"fit_model: {problem}", file=sys.stderr)
        sys.exit(2)
