"""``netsim reproduce``: a table with a header and a column of differences, the CSV, and the exit codes."""

import pytest

from scenarios import reproduce
from scenarios.article import Line

LINES = (
    Line("1 link", "an empty copy", "us", "8.25", 8.25, "by hand", scenario="laptop_copies.yaml"),
    Line("3 trees", "a crossing", "MB", "14.4", 19.8, "pipelined", apart=True),
    Line("4 links", "a switch", "", "256", None, "no preset"),
    Line("4 links", "a ratio", "times", "", 16.2),
)


@pytest.fixture
def article(monkeypatch):
    def say(*lines):
        monkeypatch.setattr(reproduce, "lines", lambda: iter(lines))

    return say


def test_the_table_has_a_header_and_the_difference(ask, article):
    article(*LINES)
    answer = ask("reproduce")
    assert answer.code == 0
    rows = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert rows[3:] == [
        "# section what stated simulated difference unit verdict scenario note",
        "1 link an empty copy 8.25 8.25 0 us agrees laptop_copies.yaml by hand",
        "3 trees a crossing 14.4 19.8 +5.4 MB apart pipelined",
        "4 links a switch 256 not simulated no preset",
        "4 links a ratio 16.2 times",
    ]
    assert "netsim: 4 lines; 3 stated: 1 agree, 1 apart, 1 not simulated, 0 off" in answer.err


def test_a_number_that_is_off_is_an_answer_of_no(ask, article):
    article(*LINES, Line("2 ring", "steps", "alpha", "14", 15.0))
    answer = ask("reproduce")
    assert answer.code == 1
    assert "OFF" in answer.out
    assert "1 off" in answer.err


def test_the_csv_has_the_same_lines(ask, article, tmp_path):
    article(*LINES)
    target = tmp_path / "lines.csv"
    assert ask("reproduce", "--csv", str(target)).code == 0
    shown = ask("reproduce", "--csv", "-")
    assert shown.out == target.read_text(encoding="utf-8")
    assert shown.out.splitlines()[0] == "section,what,unit,stated,simulated,difference,verdict,scenario,note"
    assert shown.out.splitlines()[3] == "4 links,a switch,,256,,,not simulated,,no preset"


def test_a_csv_that_cannot_be_written_is_refused_before_the_work(ask, article, tmp_path):
    article()
    answer = ask("reproduce", "--csv", str(tmp_path))
    assert answer.code == 2
    assert "is a folder" in answer.sentence()
