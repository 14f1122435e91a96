"""How well tables are predicted that took no part in a fit: the recipes of ``fits.toml``, with some tables left out in turn.

``python -m scenarios.cross_validate NAME FOLDER...`` fits the recipe once for every name in its ``apart``, without the
tables whose files have that in their names, and predicts those. Beside it stands the error of the same tables with the
files that come with netsim, which were fitted to all.
"""

import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from netsim.errors import NetsimError, ScenarioError
from scenarios.fit_model import RECIPES, recipe
from scenarios.fit_parameters import Point, write_point
from scenarios.fit_predict import Task, predict
from scenarios.fit_search import fit
from scenarios.fit_series import Series
from scenarios.scores import quantile

ROUNDS = 3
"""Steps of each fit: the first ones bring nearly all."""


@dataclass(frozen=True)
class LeftOut:
    """What came of leaving some tables out."""

    name: str
    """What their files have in their names."""
    tables: int
    rows: int
    apart: tuple[float, float]
    """Error of their times, the median and what nine in ten rows are below, predicted from the other tables."""
    together: tuple[float, float]
    """The same, with what was fitted to all."""


def cross_validate(
    name: str,
    folders: Sequence[str | Path],
    *,
    executor: Executor | None = None,
    told: Callable[[str], None] = lambda words: None,
) -> list[LeftOut]:
    """Leave each group of tables of a recipe out in turn.

    Parameters
    ----------
    name : str
        A recipe of ``fits.toml`` with a key ``apart``.
    folders : sequence of str or Path
        With an index.csv each.
    executor : Executor, optional
        Where evaluations run.
    told : callable, optional
        Called with the name of each group before its fit.

    Raises
    ------
    ScenarioError
        If there is no such recipe, it names no groups, or a group leaves nothing to fit to.
    """
    wanted = recipe(name, folders)
    parameters, series, most = wanted.parameters, wanted.series, wanted.max_messages
    if not wanted.apart:
        raise ScenarioError(f"{RECIPES.name}: {name} names no tables to leave out; apart = [...] does")
    found = []
    for group in wanted.apart:
        out = [one for one in series if group in one.name]
        rest = [one for one in series if group not in one.name]
        if not out or not rest:
            raise ScenarioError(
                f"{RECIPES.name}: {name}: apart {group!r} is in the names of {len(out)} of {len(series)} tables"
            )
        told(group)
        folder = Path("results") / f"fit_{name}_without_{group}"
        outcome = fit(parameters, rest, folder, rounds=ROUNDS, max_messages=most, executor=executor)
        point = write_point(parameters, outcome.values, folder / "best")
        found.append(
            LeftOut(
                group,
                len(out),
                sum(len(one.rows) for one in out),
                _error(out, point, most),
                _error(out, Point(), most),
            )
        )
    return found


def _error(series: Sequence[Series], point: Point, most: int) -> tuple[float, float]:
    """Return the median and nine-in-ten error of series; each weighs the same."""
    weighed = []
    for one, rows in zip(series, predict(Task(tuple(series), point, most)), strict=True):
        known = [(row.time_us, time_us) for row, (_, time_us) in zip(rows, one.rows, strict=True) if row is not None]
        weighed += [(abs(predicted / measured - 1), 1 / len(known)) for predicted, measured in known]
    return (quantile(weighed, 0.5), quantile(weighed, 0.9)) if weighed else (math.nan, math.nan)


def main(arguments: Sequence[str]) -> None:
    """Print a line for each group of tables that was left out."""
    if len(arguments) < 2:
        raise ScenarioError("give a name of fits.toml and folders with an index.csv: NAME FOLDER...")
    name, *folders = arguments
    with ProcessPoolExecutor() as pool:
        found = cross_validate(name, folders, executor=pool, told=lambda group: print(f"# without {group}", flush=True))
    print(f"# {name}: tables left out, their number, rows, error in % (median / nine in ten) apart, and fitted to all")
    for one in found:
        figures = (f"{low * 100:.1f} / {high * 100:.1f}" for low, high in (one.apart, one.together))
        print(f"{one.name:28} {one.tables:3} {one.rows:4}  " + "  ".join(f"{words:>13}" for words in figures))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NetsimError as problem:
        print(f"cross_validate: {problem}", file=sys.stderr)
        sys.exit(2)
