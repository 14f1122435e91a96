from pathlib import Path

import pytest

from scenarios.study import run_study


def answer(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["study", *arguments])
    run_study("How many?", ("ranks", "share"), lambda: [(2, 0.5)])


def test_rows_go_to_stdout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer(monkeypatch)
    assert capsys.readouterr().out == "ranks,share\n2,0.5\n"


def test_rows_go_to_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer(monkeypatch, "--csv", str(tmp_path / "rows.csv"))
    assert (tmp_path / "rows.csv").read_text() == "ranks,share\n2,0.5\n"


def test_a_folder_instead_of_a_file_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        answer(monkeypatch, "--csv", str(tmp_path))
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("is a folder; give the name of a file")
