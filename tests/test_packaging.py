import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

FOUR = {"netsim", "topologies", "scenarios", "calibrate"}


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("wheel")
    asked = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(repository)]
    subprocess.run(asked, check=True, capture_output=True)
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == FOUR


def test_the_wheel_carries_every_package_data_file(wheel: zipfile.ZipFile, repository: Path) -> None:
    kept = {"*.py", "*.toml", "*.yaml"}
    files = {str(path.relative_to(repository)) for room in FOUR for kind in kept for path in (repository / room).rglob(kind)}
    assert files - set(wheel.namelist()) == set()


def test_the_wheel_carries_the_licence_and_the_command(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    entry = next(name for name in names if name.endswith("entry_points.txt"))
    assert "netsim = netsim.cli.app:main" in wheel.read(entry).decode()


def test_the_wheel_has_the_version_of_the_front_page(wheel: zipfile.ZipFile) -> None:
    import netsim

    assert f"netsim_collectives-{netsim.__version__}-py3-none-any.whl" == Path(str(wheel.filename)).name


def test_every_ignored_lint_rule_has_its_reason_on_its_line(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text()
    rules = tomllib.loads(text)["tool"]["ruff"]["lint"]
    ignored = [*rules["ignore"], *(rule for several in rules["per-file-ignores"].values() for rule in several)]
    reasons = {line.split('"')[1] for line in text.splitlines() if line.strip().startswith('"') and "#" in line}
    assert set(ignored) <= reasons


def test_no_file_of_a_script_folder_bears_a_standard_library_name(repository: Path) -> None:
    names = {path.stem for room in ("scenarios", "calibrate") for path in (repository / room).glob("*.py")}
    assert names & sys.stdlib_module_names == set()
