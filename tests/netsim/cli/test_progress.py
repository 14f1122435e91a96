import time

import pytest

pytest.importorskip("typer")

from netsim.cli.progress import Progress


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, shown=True) as progress:
        progress.step("quick")
    assert capsys.readouterr().err == ""


def test_long_work_shows_where_it_is_and_wipes_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(3, shown=True, patience_s=0.01) as progress:
        progress.step("first")
        progress.step("all_reduce of 64 MiB")
        time.sleep(0.1)
    err = capsys.readouterr().err
    assert "2 of 3: all_reduce of 64 MiB" in err
    assert err.endswith("\r\x1b[K")


def test_nothing_is_shown_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, patience_s=0.0) as progress:
        progress.step("any")
        time.sleep(0.05)
    assert capsys.readouterr().err == ""
