import json
from collections.abc import Callable
from pathlib import Path

import pytest

PERF = "perf all_reduce --topology hgx-h100 -b 512 -e 2M -f 4096"
RULES = """\
allreduce,0,65536,tree,simple,2,1,-1
allreduce,65537,1048576,nvls,simple,0,1,8
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.conf"
    path.write_text(RULES)
    return path


def test_nccls_costs_and_choices_stand_above_the_table(ask: Callable) -> None:
    lines = ask(f"{PERF} --show-choice --nccl-env NCCL_ALGO=ring,nvls").out.splitlines()
    assert lines[2].startswith("# NCCL's cost table for all_reduce: ")
    assert lines[3].split() == ["#", "ring", "ll", "ring", "ll128", "ring", "simple", "nvls", "simple"]
    assert lines[4].split() == ["#", "latency", "(us)", "15.0", "40.6", "56.0", "25.0"]
    assert lines[5].split() == ["#", "bandwidth", "(GB/s)", "80.6", "189.3", "205.7", "272.0"]
    # 15.0 + 512 / 80.6e3 = 15.01, and 25.0 + 2097152 / 272e3 = 32.71 against 15.0 + 2097152 / 80.6e3 = 41.0.
    assert lines[8].split() == ["#", "512", "15.01", "40.60", "56.00", "25.00", "ring", "ll"]
    assert lines[9].split()[1:3] == ["2097152", "41.03"]
    assert lines[9].split()[-3:] == ["32.71", "nvls", "simple"]
    assert all(line.startswith("#") for line in lines[:12])
    assert lines[12].split()[4:7] == ["ring", "ll", "x1"]


def test_the_layout_of_nccl_tests_keeps_its_rows(ask: Callable) -> None:
    lines = ask(f"{PERF} --show-choice --format nccl-tests").out.splitlines()
    assert any("cost table" in line for line in lines)
    assert [line.split()[0] for line in lines if not line.startswith("#")] == ["512", "2097152"]


@pytest.mark.parametrize("layout", ["--csv -", "--format json"])
def test_data_alone_leaves_no_place_for_it(layout: str, ask: Callable) -> None:
    answer = ask(f"{PERF} --show-choice {layout}")
    assert answer.err == f"netsim: --show-choice ignored: {layout} leaves no place for it on stdout\n"
    assert answer.out == ask(f"{PERF} {layout}").out
    if "json" in layout:
        assert len(json.loads(answer.out)) == 2


def test_where_the_model_is_not_asked_that_is_said(ask: Callable) -> None:
    line = "# NCCL's cost model is not asked for this "
    assert f"{line}alltoall\n" in ask("perf alltoall --topology hgx-h100 -b 1M -e 1M --show-choice").out
    assert f"{line}all_reduce\n" in ask("perf all_reduce --topology hgx-h100 -g 1 -b 1M -e 1M --show-choice").out


@pytest.mark.parametrize("more", ["--topology hgx-h100 --proto ideal", "--topology ideal-switch:8@450GB/s,1us"])
def test_textbook_runs_have_no_choice_to_show(more: str, ask: Callable) -> None:
    answer = ask(f"perf all_reduce {more} --show-choice")
    assert answer.code == 2
    assert "what runs is textbook, between which NCCL does not choose" in answer.sentence()


def test_rules_of_a_tuner_file_go_before_the_model(ask: Callable, rules: Path) -> None:
    lines = ask(f"{PERF} --tuner {rules} --show-choice").out.splitlines()
    # The first rule serves 512 B; none serves 2 MiB, and the plugin leaves one channel to NCCL's own choice.
    assert sum(line.startswith("#") and line.endswith("  tree simple, by rule x2") for line in lines) == 1
    assert any(line.endswith("nvls simple x1, no rule serves") for line in lines)
    assert [line.split()[4:7] for line in lines if not line.startswith("#")] == [
        ["tree", "simple", "x1"],
        ["nvls", "simple", "x1"],
    ]
    assert lines[-1].endswith(f"no rule of {rules} serves, so NCCL chose, on the one channel that its example plugin leaves")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--tuner no_such.conf", "no_such.conf: does not exist; rules of the tuner plugin are wanted"),
        (
            "--tuner {rules} --proto ideal",
            "--tuner: only for what NCCL would run, and this run is textbook, because the protocol is ideal",
        ),
    ],
)
def test_a_tuner_file_that_cannot_serve_is_refused(more: str, words: str, ask: Callable, rules: Path) -> None:
    answer = ask(f"{PERF} {more.format(rules=rules)}")
    assert answer.code == 2
    assert words in answer.sentence()
