"""What the README shows is what happens: its Python runs, its commands run, its table is the one that is printed."""

import contextlib
import io
import re
import shlex

import pytest

from netsim.cli.app import answer
from tests.calibrate.standin import FakeClock

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def blocks(repository):
    text = (repository / "README.md").read_text(encoding="utf-8")
    return FENCE.findall(text)


def commands(blocks):
    for language, block in blocks:
        if language == "sh":
            for line in block.splitlines():
                words = line.partition("#")[0].strip()
                if words.startswith("netsim "):
                    yield words


def printed(words):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert answer(shlex.split(words)[1:]) == 0
    return text.getvalue()


def test_the_python_runs_as_shown(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snippets = [block for language, block in blocks if language == "python"]
    assert len(snippets) == 2
    namespace = {}
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        for snippet in snippets:
            exec(snippet, namespace)
    assert "GB/s bus bandwidth" in text.getvalue()
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["tree.csv", "tree.json"]


def test_the_commands_run(blocks, tmp_path, monkeypatch, repository):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("calibrate.measure.open_hardware", FakeClock)  # a GPU, for `calibrate measure`
    for folder in ("scenarios", "tests"):
        (tmp_path / folder).symlink_to(repository / folder)
    (tmp_path / "my_nccl_topo.xml").symlink_to(sorted((repository / "tests" / "topologies" / "data").glob("*.xml"))[0])
    lines = list(commands(blocks))
    assert len(lines) >= 6
    for words in lines:
        if not words.startswith(("netsim doctor", "netsim topo")):
            assert printed(words) or "--csv" in words or " -o " in words
    assert {"netsim doctor", "netsim topo list"} <= set(lines)


def test_the_table_is_the_one_that_the_first_command_prints(blocks):
    shown = next(block for language, block in blocks if language == "text")
    setup = next(block for language, block in blocks if language == "sh")
    words = "netsim " + setup.strip().rpartition("/netsim ")[2]
    assert printed(words) == shown


def test_the_fit_is_the_one_that_its_command_prints(blocks, tmp_path, monkeypatch, repository):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(repository / "scenarios")
    (words,) = (line for line in commands(blocks) if line.startswith("netsim calibrate from-nccl-tests"))
    (shown,) = (block for language, block in blocks if language == "text" and "by simulation" in block)
    assert printed(words) == shown


def test_ci_runs_the_test_command_of_the_readme(blocks, repository):
    lines = [block.strip() for language, block in blocks if language == "sh" and "pytest" in block]
    assert len(lines) == 1
    assert lines[0].endswith(".venv/bin/python -m pytest -q -n auto")
    assert "README.md" in (repository / ".ci" / "run").read_text(encoding="utf-8")
