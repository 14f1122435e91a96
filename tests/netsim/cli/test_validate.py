import csv
import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

TABLES = "validate tests/data/tables"
ONE = f"{TABLES} --only Ring_LL"


@pytest.fixture(autouse=True)
def _at_the_root(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)


def cells(text: str, name: str) -> list[str]:
    """Return the cells of the first line of a table that has this name."""
    (line, *_) = (line for line in text.splitlines() if line.startswith(f"  {name} "))
    return re.split(r"\s{2,}", line.strip())


@pytest.fixture(scope="module")
def everything(repository: Path) -> str:
    """Return what all tables here give, asked once."""
    import contextlib

    app = pytest.importorskip("netsim.cli.app", reason="the command line needs typer")
    before = Path.cwd()
    told = io.StringIO()
    os.chdir(repository)
    try:
        with contextlib.redirect_stdout(told):
            assert app.answer(TABLES.split()) == 0
    finally:
        os.chdir(before)
    return told.getvalue()


def test_tables_and_rows_that_count_are_counted(everything: str) -> None:
    assert re.match(r"# netsim \S+: 6 tables, 6 of them counted; errors of time in %\n", everything)
    assert cells(everything, "h200_pair")[1:3] == ["6", "72"]
    assert cells(everything, "all")[1:3] == ["6", "72"]
    assert cells(everything, "all_reduce")[1:3] == ["5", "60"]


def test_errors_come_by_class_collective_choice_size_and_table(everything: str) -> None:
    heads = [line.split("  ")[0] for line in everything.splitlines() if line.startswith("# ") and " median " in line]
    assert heads == ["# class", "# collective", "# predicted as", "# size", "# worst tables"]


def test_our_own_measurements_are_predicted_better_than_by_nccl_s_model(everything: str) -> None:
    *_, median, ninety, _, model, ours = cells(everything, "all")
    assert float(median) < 10 < float(ninety) < 30
    assert float(ours.split(" / ")[0]) < float(model.split(" / ")[0])


def test_what_was_forced_crosses_once_and_what_was_not_switches_at_a_kink(everything: str) -> None:
    assert (
        "  h200x2_nv18_all_reduce_graph_Ring_LL.csv -> h200x2_nv18_all_reduce_graph_Ring_Simple.csv: measured 3,"
        in everything
    )
    assert "# 1 crossing, 1 of them predicted, off by a factor of " in everything
    assert "default.csv: ring ll -> ring simple 1,048,576 to 2,097,152 B, kink 1,048,576 to 2,097,152 B" in everything
    assert "  ring ll -> ring simple: 3, 3 near, 3 in the step, a factor of 1.00\n" in everything
    assert "# 4 changes, 4 of them with a kink near, 4 in the same step\n# the curves have 8 kinks in all" in everything


def test_processes_print_what_one_prints(ask: Callable) -> None:
    one, two = (ask(f"{TABLES} --only graph_Ring --workers {workers}") for workers in (1, 2))
    assert (one.code, one.out) == (0, two.out)


def test_only_keeps_tables_by_file_or_class_whatever_the_case(ask: Callable) -> None:
    assert " 1 table, 1 of them counted" in ask(f"{TABLES} --only ring_simple").out
    assert " 6 tables, " in ask(f"{TABLES} --only H200_PAIR --max-messages 1").out


def test_every_table_is_shown_on_request(ask: Callable) -> None:
    text = ask(f"{ONE} --tables").out
    assert "# table " in text
    assert "# worst tables" not in text
    assert cells(text, "h200x2_nv18_all_reduce_graph_Ring_LL")[1:3] == ["1", "12"]


def test_every_row_of_a_table_is_simulated_on_request(ask: Callable) -> None:
    rows = list(csv.DictReader(io.StringIO(ask(f"{ONE} --every-row --csv -").out)))
    assert len(rows) == 28
    assert sum(row["counted"] == "yes" for row in rows) == 12


def test_csv_alone_goes_to_stdout_with_an_error_a_row(ask: Callable) -> None:
    answer = ask(f"{ONE} --csv -")
    assert answer.out.splitlines()[0] == (
        "file,hw_class,kind,score,collective,n_gpus,n_nodes,nccl_version,in_place,size_bytes,measured_us,time_us,error,"
        "counted,algorithm,protocol,channels,nccl_model_us,bottleneck"
    )
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert len(rows) == 12
    for row in rows:
        assert float(row["error"]) == float(row["time_us"]) / float(row["measured_us"]) - 1


def test_csv_goes_to_a_file_beside_what_is_printed(ask: Callable, tmp_path: Path) -> None:
    answer = ask(ONE, "--csv", str(tmp_path / "rows.csv"))
    assert answer.out.startswith("# netsim")
    assert (tmp_path / "rows.csv").read_text() == ask(f"{ONE} --csv -").out


def test_markdown_is_the_table_of_classes(ask: Callable) -> None:
    head, rule, mine, total = ask(f"{ONE} --format markdown").out.splitlines()
    assert head == "| class | tables | rows | median / nine in ten | NCCL's model | ours on its rows |"
    assert set(rule) == set("|-: ")
    assert re.fullmatch(r"\| h200_pair \| 1 \| 12 \| \d+\.\d / \d+\.\d \| \d+\.\d / \d+\.\d \| \d+\.\d / \d+\.\d \|", mine)
    assert total == mine.replace("h200_pair", "all")


def test_markdown_has_a_table_of_tables_on_request(ask: Callable) -> None:
    text = ask(f"{ONE} --format markdown --tables").out
    assert "\n\n| table | tables |" in text
    assert "| h200x2_nv18_all_reduce_graph_Ring_LL | 1 | 12 |" in text


def test_the_text_is_the_format_where_none_is_asked_for(ask: Callable) -> None:
    assert ask(f"{ONE} --format text").out == ask(ONE).out


def test_a_figure_is_written_beside_what_is_printed(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer = ask(ONE, "--figure", str(tmp_path / "errors.png"))
    assert answer.out == ask(ONE).out
    assert f"wrote 1 panel to {tmp_path / 'errors.png'}" in answer.err
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_says_how_large_the_errors_are(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer = ask(ONE, "--figure", str(tmp_path / "errors.svg"))
    median, ninety = cells(answer.out, "all")[3:5]
    text = (tmp_path / "errors.svg").read_text()
    assert f"beside 1 measured table: median error {median} %, nine in ten within {ninety} %" in text
    assert f">h200_pair: {median} %, 1 table<" in text


def test_without_a_prediction_there_is_no_figure_and_a_sentence_says_so(ask: Callable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer = ask(f"{ONE} --max-messages 1", "--figure", str(tmp_path / "errors.svg"))
    assert answer.code == 0
    assert "wrote no figure: no table that counts has a prediction" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_prediction_is_listed_with_the_reason(ask: Callable, tmp_path: Path) -> None:
    columns = "file,collective,gpu,n_gpus,n_nodes,nccl_version,notes,hw_class,kind,score\n"
    lines = [
        "odd.csv,all_reduce,Abacus,2,1,2.28.9,,mine,healthy,yes",
        "torn.csv,all_reduce,H100,2,1,2.28.9,,mine,healthy,yes",
        "slow.csv,all_reduce,H100,2,1,2.28.9,NCCL_NTHREDS=1,mine,fault,no",
    ]
    (tmp_path / "index.csv").write_text(columns + "\n".join(lines) + "\n")
    (tmp_path / "torn.csv").write_text("size_bytes,time_us\n1024\n")
    (tmp_path / "slow.csv").write_text("size_bytes,time_us\n1024,1000000\n")
    answer = ask("validate", str(tmp_path))
    assert answer.code == 0
    assert "3 tables, 0 of them counted" in answer.out
    assert "  odd.csv: no rule of hardware.toml has a topology for 'Abacus' of class 'mine'" in answer.out
    assert f"  torn.csv: {tmp_path}/torn.csv:2: has fewer cells (1) than columns (2)" in answer.out
    assert re.search(
        r"how many times longer than predicted they took, in the median\n +\d{5,}\.\d\d  fault    slow.csv", answer.out
    )
    assert "# slow.csv: left out: " in answer.out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("validate nowhere", "nowhere: has no index.csv; it needs one row a table"),
        (f"{TABLES} --only nothing", "no table is left"),
        (f"{TABLES} --format html", "--format: unknown format 'html'; accepted are text, markdown"),
        (f"{TABLES} --format markdown --csv -", "--csv - and --format markdown both want stdout"),
        (f"{TABLES} --csv nowhere/rows.csv", "--csv: cannot write 'nowhere/rows.csv': there is no folder 'nowhere'"),
        (f"{TABLES} --figure nowhere/errors.svg", "--figure: cannot write 'nowhere/errors.svg': there is no folder"),
        (f"{TABLES} --figure errors.jpg", "--figure: 'errors.jpg' ends in '.jpg'; accepted are .svg, .png and .pdf"),
        (f"{TABLES} --workers 0", "--workers"),
    ],
)
def test_a_wrong_question_gets_one_sentence(ask: Callable, line: str, words: str) -> None:
    answer = ask(line)
    assert answer.code == 2
    assert words in answer.sentence()


def test_tables_of_more_gpus_can_be_left_out(ask):
    done = ask(f"{TABLES} --max-ranks 1")
    assert "left out: 2 GPUs, more than 1" in done.out
