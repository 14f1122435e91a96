from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("yaml")

SCENARIO = """\
topology: ideal-switch:4@450GB/s,1us
collective: all_reduce
algorithm: [ring, flat]
sizes: [1 MiB]
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(SCENARIO)
    return path


def test_rows_go_to_results_under_the_scenarios_name(ask: Callable, scenario: Path) -> None:
    answer = ask("run", str(scenario))
    assert answer.code == 0
    text = Path("results/mine.csv").read_text()
    assert [line.split(",")[5] for line in text.splitlines()[1:]] == ["ring", "flat"]
    assert all(",mine," in line for line in text.splitlines()[1:])
    assert "wrote 2 rows to results/mine.csv" in answer.err
    assert "ring" in answer.out


def test_two_runs_write_the_same_bytes(ask: Callable, scenario: Path) -> None:
    ask("run", str(scenario))
    first = Path("results/mine.csv").read_bytes()
    ask("run", str(scenario))
    assert Path("results/mine.csv").read_bytes() == first


def test_a_run_that_fails_writes_nothing(ask: Callable, scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("4@", "0@"))
    answer = ask("run", str(scenario))
    assert answer.code == 2
    assert "ideal-switch:0" in answer.sentence()
    assert not Path("results").exists()


def test_a_dash_writes_csv_alone_to_stdout(ask: Callable, scenario: Path) -> None:
    answer = ask("run", str(scenario), "--csv", "-")
    assert answer.out.startswith("collective,")
    assert not Path("results").exists()


def test_runs_that_are_textbook_although_nccls_were_asked_for_are_said_once(ask: Callable, tmp_path: Path) -> None:
    path = tmp_path / "shots.yaml"
    keys = "topology: hgx-h100\ncollective: all_reduce\nprotocol: auto\nsizes: [1 MiB, 2 MiB]\n"
    path.write_text(f"{keys}algorithm: [Ring, one_shot]\n")
    words = "netsim: textbook schedules (protocol ideal), not NCCL's, because NCCL has no one_shot\n"
    assert ask(f"run {path} --csv -").err == words
    path.write_text(f"{keys}algorithm: Ring\n")
    assert ask(f"run {path} --csv -").err == ""
