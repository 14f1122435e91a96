"""Tables left out of a recipe's fit: what is predicted for them, and recipes that make no sense."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netsim.errors import ScenarioError
from scenarios.cross_validate import LeftOut, cross_validate, main
from scenarios.fit_model import Recipe
from scenarios.fit_parameters import Parameter
from scenarios.fit_series import Series
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec

SIZES = (8, 1024, 65536)
SPEC = Spec(Machine("hgx-h200", gpus_per_node=2), "all_reduce", 8, algorithm="ring", protocol="ll", nccl=NcclOptions())


def table(name: str, later_us: float) -> Series:
    """Return times that are what is simulated, and some microseconds."""
    rows = tuple((size, run_spec(replace(SPEC, size_bytes=size)).time_us + later_us) for size in SIZES)
    return Series(name, SPEC, 2, rows)


def wanted(*apart: str) -> Recipe:
    """Return a recipe of one number and two tables that agree."""
    return Recipe(
        [Parameter("hopper", ("ll.start",), width=5.0)], [table("first", 1.0), table("second", 1.0)], 30_000, apart
    )


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that cross-validates a recipe in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def ask(*apart: str, **more: Any) -> list[LeftOut]:
        monkeypatch.setattr("scenarios.cross_validate.recipe", lambda name, folders: wanted(*apart))
        return cross_validate("mine", [], **more)

    return ask


def test_a_table_is_predicted_from_the_others_alone(asked: Any) -> None:
    names: list[str] = []
    (found,) = asked("second", told=names.append)
    assert names == ["second"]
    assert (found.name, found.tables, found.rows) == ("second", 1, 3)
    # The first table tells the microsecond that kernels start later; the files that come with netsim do not know it.
    assert found.apart[0] < 0.005
    assert found.together[0] > 0.05
    assert found.apart[0] <= found.apart[1]


@pytest.mark.parametrize(
    ("apart", "words"),
    [
        ((), "mine names no tables to leave out"),
        (("third",), "apart 'third' is in the names of 0 of 2 tables"),
        (("s",), "apart 's' is in the names of 2 of 2 tables"),
    ],
)
def test_groups_that_leave_nothing_are_refused(asked: Any, apart: tuple[str, ...], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        asked(*apart)


def test_a_name_and_folders_are_needed() -> None:
    with pytest.raises(ScenarioError, match="give a name of fits.toml and folders"):
        main(["hopper"])
