from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("yaml")

SCENARIO = """\
topology: ["ideal-switch:4@450GB/s,1us", hgx-a100]
collective: all_reduce
algorithm: [ring, two_shot]
sizes: [1 MiB, 0]
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_writes_the_bytes_that_run_writes(workers: int, ask: Callable, scenario: Path) -> None:
    table = ask("run", str(scenario), "--csv", "run.csv").out
    answer = ask("sweep", str(scenario), "--workers", str(workers))
    assert answer.code == 0
    assert Path("results/mine.csv").read_bytes() == Path("run.csv").read_bytes()
    assert answer.out == table
    assert "wrote 8 rows to results/mine.csv" in answer.err


def test_nothing_but_the_csv_is_left(ask: Callable, scenario: Path) -> None:
    ask("sweep", str(scenario), "--workers", "1")
    assert [path.name for path in Path("results").iterdir()] == ["mine.csv"]


def test_a_failing_run_is_a_row_and_exit_code_one(ask: Callable, scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("two_shot", "nvls"))
    answer = ask("sweep", str(scenario), "--workers", "1")
    assert answer.code == 1
    assert "2 of 8 runs failed" in answer.err
    lines = Path("results/mine.csv").read_text().splitlines()
    assert len(lines) == 9
    assert sum("failed: no switch with" in line for line in lines) == 2


def test_a_dash_writes_csv_alone_to_stdout(ask: Callable, scenario: Path) -> None:
    answer = ask("sweep", str(scenario), "--workers", "1", "--csv", "-")
    assert answer.out == ask("run", str(scenario), "--csv", "-").out
    assert not Path("results").exists()


def test_a_file_that_is_no_scenario_writes_nothing(ask: Callable, scenario: Path) -> None:
    scenario.write_text("collective: all_reduce\n")
    answer = ask("sweep", str(scenario))
    assert answer.code == 2
    assert "mine.yaml" in answer.sentence()
    assert not Path("results").exists()


def test_the_pace_is_told_in_words() -> None:
    from netsim.cli.sweep import _pace

    # 10 done in 5 s, 2 of them from before: 1.6 a second, 32 left
    assert _pace(10, 2, 42, 5.0) == "10 done, 1.6 a second, 20 s left"
    assert _pace(2, 2, 42, 0.1) == "2 done"


def test_rows_stay_kept_while_a_run_fails_and_are_not_run_again(ask: Callable, scenario: Path, monkeypatch) -> None:
    import scenarios.sweep

    scenario.write_text(SCENARIO.replace("two_shot", "nvls"))
    first = ask("sweep", str(scenario), "--workers", "1")
    assert "the other 6 rows stay in results/mine.csv.partial, and the next sweep runs only what failed" in first.err
    runs = []
    monkeypatch.setattr(scenarios.sweep, "run_spec", lambda spec: runs.append(spec) or scenarios.run.run_spec(spec))
    assert ask("sweep", str(scenario), "--workers", "1").code == 1
    assert [(spec.machine.topology, spec.algorithm) for spec in runs] == [("hgx-a100", "nvls")] * 2
    # Mended, the rest is done and the file goes.
    scenario.write_text(SCENARIO.replace(", two_shot", ""))
    assert ask("sweep", str(scenario), "--workers", "1").code == 0
    assert [path.name for path in Path("results").iterdir()] == ["mine.csv"]


def test_an_interruption_says_how_many_rows_are_kept(ask: Callable, scenario: Path, monkeypatch) -> None:
    import scenarios.sweep

    runs = []

    def interrupted(spec):
        runs.append(spec)
        if len(runs) == 4:
            raise KeyboardInterrupt
        return scenarios.run.run_spec(spec)

    monkeypatch.setattr(scenarios.sweep, "run_spec", interrupted)
    answer = ask("sweep", str(scenario), "--workers", "1")
    assert answer.code == 130
    assert answer.sentence() == (
        "netsim: stopped; 3 of 8 rows are kept in results/mine.csv.partial, and the same sweep goes on from there"
    )
