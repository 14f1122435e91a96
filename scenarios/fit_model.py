"""The numbers of the project's own component files out of measured tables, by the recipes of ``fits.toml``.

``python -m scenarios.fit_model NAME FOLDER...`` prints each parameter and leaves files in ``results/fit_NAME/best``. What is
done is `scenarios.fit_search`'s.
"""

import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from netsim.errors import NetsimError, ScenarioError
from scenarios.fit_parameters import Parameter
from scenarios.fit_search import fit
from scenarios.fit_series import Series, series_of
from scenarios.tables import read_index

RECIPES = Path(__file__).with_name("fits.toml")
QUICK_MESSAGES = 30_000
"""Rows of more messages do not take part where a recipe is fitted, so that a step takes minutes."""


@dataclass(frozen=True)
class Recipe:
    """What ``fits.toml`` says of one fit, with the tables that it is of."""

    parameters: list[Parameter]
    series: list[Series]
    max_messages: int
    """Up to how many messages rows have that take part."""
    apart: tuple[str, ...]
    """What the files of tables have in their names that `scenarios.cross_validate` leaves out in turn."""


def recipe(name: str, folders: Sequence[str | Path]) -> Recipe:
    """Return a fit that ``fits.toml`` describes.

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
    series = [
        series_of(entry)
        for folder in folders
        for entry in read_index(folder)
        if entry.scored
        and (entry["n_nodes"] == "1" or told.get("several_nodes", False))
        and entry["hw_class"] in told["classes"]
        and not any(part in entry.path.name for part in told["without"])
    ]
    return Recipe(parameters, series, told.get("max_messages", QUICK_MESSAGES), tuple(told.get("apart", ())))


def main(arguments: Sequence[str]) -> None:
    """Fit what a recipe names to the tables of folders; print each parameter, leave files in ``results/fit_NAME/best``."""
    if len(arguments) < 2:
        raise ScenarioError("give a name of fits.toml and folders with an index.csv: NAME FOLDER...")
    name, *folders = arguments
    told = recipe(name, folders)
    print(f"# {name}: {len(told.parameters)} parameters, {len(told.series)} tables")
    with ProcessPoolExecutor() as pool:
        found = fit(
            told.parameters,
            told.series,
            Path("results") / f"fit_{name}",
            max_messages=told.max_messages,
            executor=pool,
            told=lambda number, error: print(f"# step {number}: error {error:.1%} in the median", flush=True),
        )
    for one in found.fitted:
        low, high = one.interval
        print(f"{one.parameter.name:32} x {one.factor:.3f}  ({low:.3f} to {high:.3f}), {one.held:.0%} from its start")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NetsimError as problem:
        print(f"fit_model: {problem}", file=sys.stderr)
        sys.exit(2)
