import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import netsim
from netsim import siblings
from netsim.errors import NetsimError

HEAVY = {"pandas", "matplotlib", "torch", "dask", "numba", "rich", "pydantic", "yaml"}
SHOW_MODULES = """
import sys
from netsim.cli.app import answer
code = answer(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""
PERF = [
    "perf",
    "all_reduce",
    "--topology",
    "ideal-switch:4@450GB/s,1us",
    "--algo",
    "ring",
    "-b",
    "1M",
    "-e",
    "1M",
    "--csv",
    "-",
]


def loaded(*arguments: str) -> set[str]:
    """Return the top-level packages that a command line loads."""
    root = Path(__file__).resolve().parent.parent
    asked = [sys.executable, "-c", SHOW_MODULES, *arguments]
    ran = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=root)
    return {name.split(".")[0] for name in ran.stderr.split()}


def test_every_public_name_resolves_and_is_listed_once() -> None:
    assert set(netsim._HOMES) | {"__version__"} == set(netsim.__all__)
    assert len(set(netsim.__all__)) == len(netsim.__all__)
    for name in netsim.__all__:
        assert getattr(netsim, name) is not None


def test_a_public_name_is_the_object_of_its_home() -> None:
    for name, home in netsim._HOMES.items():
        assert getattr(netsim, name) is getattr(import_module(home), name)


def test_an_unknown_name_of_the_front_page_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="simulate"):
        netsim.simulat  # noqa: B018 - the access is the test


def test_importing_netsim_opens_no_room() -> None:
    code = "import sys, netsim; print(*(name for name in sys.modules if name.startswith('netsim.')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_help_loads_nothing_heavy() -> None:
    pytest.importorskip("typer")
    assert loaded("--help") & (HEAVY | {"numpy", "networkx", "simpy"}) == set()


def test_perf_to_csv_loads_nothing_heavy() -> None:
    pytest.importorskip("typer")
    assert loaded(*PERF) & HEAVY == set()


def test_fits_and_profiles_need_no_torch() -> None:
    pytest.importorskip("typer")
    assert loaded("calibrate", "fit", "tests/data/h200_copies.csv", "--csv", "-") & HEAVY == set()


def test_of_calibrate_one_module_names_torch_and_one_numpy(repository: Path) -> None:
    rooms = {path.stem: path.read_text(encoding="utf-8") for path in (repository / "calibrate").glob("*.py")}
    assert [name for name, text in sorted(rooms.items()) if 'import_module("torch")' in text or "import torch" in text] == [
        "measure"
    ]
    assert [name for name, text in sorted(rooms.items()) if "import numpy" in text] == ["fit"]


def test_netsim_never_names_its_siblings_outside_the_front_door(repository: Path) -> None:
    for path in sorted((repository / "netsim").rglob("*.py")):
        if "cli" in path.relative_to(repository / "netsim").parts:
            continue
        code = [line.strip() for line in path.read_text().splitlines() if not line.strip().startswith(">>>")]
        starts = tuple(f"{verb} {room}" for verb in ("import", "from") for room in ("topologies", "scenarios", "calibrate"))
        assert not [line for line in code if line.startswith(starts)], path


def test_the_contract_that_keeps_netsim_from_its_siblings_names_every_module(repository: Path) -> None:
    settings = tomllib.loads((repository / "pyproject.toml").read_text())
    (contract,) = (
        contract
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("Of netsim, only the front door")
    )
    modules = {path.stem for path in (repository / "netsim").iterdir() if path.suffix == ".py" or path.is_dir()}
    modules -= {"__init__", "__main__", "__pycache__", "cli"}
    assert contract["source_modules"] == sorted(f"netsim.{name}" for name in modules)
    assert set(contract["forbidden_modules"]) == {"topologies", "scenarios", "calibrate"}


def test_the_four_packages_lie_in_one_folder() -> None:
    assert siblings.misplaced() == []
    assert len({place.parent for place in siblings.locations().values() if place}) == 1


def test_a_foreign_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = tmp_path / "topologies"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("")

    def shadowed(name: str):  # type: ignore[no-untyped-def]
        if name != "topologies":
            return find_spec(name)
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [str(tmp_path)])

    monkeypatch.setattr(siblings, "find_spec", shadowed)
    with pytest.raises(NetsimError, match=f"'topologies' is imported from {foreign}"):
        siblings.check_siblings()
