"""Tables left out of a recipe's fit: what is predicted for them, and recipes that make no sense."""

from dataclasses import replace
from pathlib import Path

import pytest

from netsim.errors import ScenarioError
from scenarios import cross_validate as room
from scenarios.cross_validate import cross_validate, main
from scenarios.fit_parameters import Parameter
from scenarios.fit_series import Series
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec

SIZES = (8, 1024, 65536)
SPEC = Spec(Machine("hgx-h200", gpus_per_node=2), "all_reduce", 8, algorithm="ring", protocol="ll", nccl=NcclOptions())
RECIPE = '[mine]\napart = ["second"]\nclasses = []\nwithout = []\nparameters = []\n'


def table(name: str, later_us: float) -> Series:
    """Return times that are what is simulated, and some microseconds."""
    rows = tuple((size, run_spec(replace(SPEC, size_bytes=size)).time_us + later_us) for size in SIZES)
    return Series(name, SPEC, 2, rows)


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fits.toml"
    path.write_text(RECIPE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(room, "RECIPES", path)
    monkeypatch.setattr("scenarios.fit_model.RECIPES", path)
    start = [Parameter("hopper", ("ll.start",), width=5.0)]
    monkeypatch.setattr(room, "recipe", lambda name, folders: (start, [table("first", 1.0), table("second", 1.0)]))
    return path


def test_a_table_is_predicted_from_the_others_alone(recipes: Path) -> None:
    names: list[str] = []
    (found,) = cross_validate("mine", [], told=names.append)
    assert names == ["second"]
    assert (found.name, found.tables, found.rows) == ("second", 1, 3)
    # The first table tells the microsecond that kernels start later; the files that come with netsim do not know it.
    assert found.apart[0] < 0.005
    assert found.together[0] > 0.05
    assert found.apart[0] <= found.apart[1]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (RECIPE.replace('apart = ["second"]\n', ""), "mine names no tables to leave out"),
        (RECIPE.replace("second", "third"), "apart 'third' is in the names of 0 of 2 tables"),
        (RECIPE.replace("second", "s"), "apart 's' is in the names of 2 of 2 tables"),
    ],
)
def test_groups_that_leave_nothing_are_refused(recipes: Path, recipe: str, words: str) -> None:
    recipes.write_text(recipe, encoding="utf-8")
    with pytest.raises(ScenarioError, match=words):
        cross_validate("mine", [])


def test_a_name_and_folders_are_needed() -> None:
    with pytest.raises(ScenarioError, match="give a name of fits.toml and folders"):
        main(["hopper"])
