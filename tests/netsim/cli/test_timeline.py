import json
from collections.abc import Callable
from pathlib import Path

import pytest

LINE = "timeline all_reduce --topology ideal-switch:4@450GB/s,1us --size 1M --algo ring -o"


def test_a_trace_is_written_and_said(ask: Callable, tmp_path: Path) -> None:
    answer = ask(LINE, str(tmp_path / "trace.json"))
    assert answer.code == 0
    assert answer.out == ""
    # 2 x 3 steps of 4 ranks
    assert "wrote 24 operations of all_reduce by ring" in answer.err
    trace = json.loads((tmp_path / "trace.json").read_text())
    end = max(event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X")
    assert abs(end - trace["otherData"]["time_us"]) < 1e-5


def test_a_dash_writes_to_stdout(ask: Callable, tmp_path: Path) -> None:
    ask(LINE, str(tmp_path / "trace.json"))
    assert ask(LINE, "-").out == (tmp_path / "trace.json").read_text()


def test_auto_takes_the_fastest(ask: Callable) -> None:
    trace = json.loads(ask("timeline all_reduce --topology ideal-switch:4@450GB/s,1us --size 8 -o -").out)
    assert trace["otherData"]["algorithm"] == "one_shot"


def test_a_run_too_large_for_a_viewer_is_refused_before_it_starts(ask: Callable) -> None:
    answer = ask("timeline all_reduce --topology ideal-switch:512@450GB/s,1us --size 1G --algo ring -o trace.json")
    assert answer.code == 2
    assert "--max-messages" in answer.sentence()


def test_an_output_that_cannot_be_written_is_refused(ask: Callable) -> None:
    answer = ask(LINE, ".")
    assert answer.code == 2
    assert "--output" in answer.sentence()


@pytest.mark.parametrize(
    ("more", "words"), [(("",), "such as trace.json"), (("-", "--routing", "ecmp:0..3"), "range of seeds")]
)
def test_a_wrong_question_gets_one_sentence(more: tuple[str, ...], words: str, ask: Callable) -> None:
    answer = ask(LINE, *more)
    assert answer.code == 2
    assert words in answer.sentence()
