from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import scenarios.validate as room
from netsim.errors import ScenarioError
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec
from scenarios.sweep import SerialExecutor, local_executor
from scenarios.validate import validate

COLUMNS = "file,collective,gpu,n_gpus,n_nodes,inter_link,nccl_version,algo,proto,in_place,notes,hw_class,score"
ROWS = "size_bytes,time_us,algbw_GBps,busbw_GBps\n1024,10,,\n65536,20,,\n1048576,40,,\n"
SPEC = Spec(
    Machine("hgx-h100", gpus_per_node=2),
    "all_reduce",
    1024,
    protocol="auto",
    nccl=NcclOptions("2.28.9", launch="stream"),
    engine="compiled" if find_spec("numba") else "auto",
    max_messages=room.MOST_MESSAGES,
)


def line(file: str = "a.csv", **cells: str) -> str:
    told = {"file": file, "collective": "all_reduce", "gpu": "H100", "n_gpus": "2", "n_nodes": "1", "nccl_version": "2.28.9"}
    told |= {"algo": "auto", "proto": "auto", "in_place": "no", "hw_class": "mine", "score": "yes"} | cells
    return ",".join(told.get(column, "") for column in COLUMNS.split(","))


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write an index of lines, and the same small table for each file that is not given."""

    def write(*lines: str, **tables: str) -> Path:
        (tmp_path / "index.csv").write_text("\n".join((COLUMNS, *lines)) + "\n")
        for one in lines:
            name = one.split(",")[0]
            (tmp_path / name).write_text(tables.get(Path(name).stem, ROWS))
        return tmp_path

    return write


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """Count what is simulated."""
    asked: list[Spec] = []

    def counted(spec: Spec):
        asked.append(spec)
        return run_spec(spec)

    monkeypatch.setattr(room, "run_spec", counted)
    return asked


def test_a_prediction_is_what_a_run_of_the_same_gives(folder) -> None:
    (held,) = validate([folder(line())])
    assert [point.row for point in held.points] == [
        run_spec(replace(SPEC, size_bytes=size)) for size in (1024, 65536, 1048576)
    ]
    assert [point.measured_us for point in held.points] == [10.0, 20.0, 40.0]


def test_what_was_forced_is_run(folder) -> None:
    (held,) = validate([folder(line(algo="Ring", proto="Simple"))])
    assert held.points[0].row == run_spec(replace(SPEC, algorithm="ring", protocol="simple"))


def test_a_size_is_rounded_as_nccl_tests_does(folder) -> None:
    (held,) = validate([folder(line(collective="all_gather"), a="size_bytes,time_us\n1030,10\n")])
    assert (held.points[0].size_bytes, held.points[0].row.size_bytes) == (1030, 1024)


def test_a_size_of_no_block_for_every_rank_is_taken_for_the_least_one_with_a_remark(folder) -> None:
    (held,) = validate([folder(line(collective="all_gather"), a="size_bytes,time_us\n8,5\n1024,10\n")])
    assert [(point.size_bytes, point.row.size_bytes) for point in held.points] == [(8, 32), (1024, 1024)]
    assert held.remarks == ("8 bytes are no block for every rank, 32 simulated",)


def test_one_gpu_alone_has_no_prediction_and_a_remark(folder) -> None:
    (held,) = validate([folder(line(n_gpus="1"))])
    assert (held.points, held.remarks) == ((), ("not simulated: nothing is sent, which takes no time here",))


def test_in_place_shares_the_predictions_of_out_of_place(folder, runs: list[Spec]) -> None:
    first, second = validate([folder(line("a_oop.csv"), line("a_ip.csv", in_place="yes"))])
    assert len(runs) == 3
    assert [point.row for point in first.points] == [point.row for point in second.points]


def test_in_place_and_out_of_place_are_two_predictions_where_it_matters(folder, runs: list[Spec]) -> None:
    validate([folder(line("a.csv", collective="all_gather"), line("a_ip.csv", collective="all_gather", in_place="yes"))])
    assert [spec.nccl.in_place for spec in runs] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("collective", room._SAME_IN_PLACE)
def test_in_place_makes_no_difference_where_predictions_are_shared(collective: str) -> None:
    spec = replace(SPEC, collective=collective)
    assert run_spec(spec).time_us == run_spec(replace(spec, nccl=replace(spec.nccl, in_place=True))).time_us


def test_tables_of_other_sources_in_between_keep_the_order_of_the_index(folder) -> None:
    names = ["b_oop.csv", "a.csv", "b_ip.csv"]
    assert [held.entry.path.name for held in validate([folder(*map(line, names))])] == names


def test_one_file_may_be_told_twice_in_different_words(folder) -> None:
    found = validate([folder(line(algo="Ring", proto="LL"), line(algo="Ring", proto="Simple"))])
    assert [held.points[0].row.protocol for held in found] == ["ll", "simple"]


def test_rows_of_too_many_messages_are_left_out_with_a_remark(folder) -> None:
    (held,) = validate([folder(line(algo="Ring", proto="Simple"))], max_messages=4)
    assert held.points == ()
    assert all(remark.startswith("not simulated: ") for remark in held.remarks)
    assert "4" in held.remarks[0]


def test_rows_that_do_not_count_are_simulated_on_request_only(folder) -> None:
    many = "size_bytes,time_us\n" + "".join(f"{1024 + 4 * at},10\n" for at in range(20))
    path = folder(line(), a=many)
    (some,), (every,) = validate([path]), validate([path], scored_only=False)
    assert len(some.points) <= 12
    assert (len(every.points), len(every.measured)) == (20, 20)
    assert sum(point.scored for point in every.points) == len(some.points)
    assert some.measured == every.measured


@pytest.mark.parametrize(
    ("cells", "table", "reason"),
    [
        ({"gpu": "Abacus"}, ROWS, "no rule of hardware.toml has a topology for 'Abacus'"),
        ({"n_gpus": "9", "n_nodes": "2"}, ROWS, "index.csv:2: 9 GPUs do not spread evenly over 2 nodes"),
        ({"collective": "hypercube"}, ROWS, "index.csv:2: collective is 'hypercube'"),
        ({}, ROWS + "2097152,7", "bad.csv:5: has fewer cells"),
        ({}, ROWS + "2097152,?,,", "bad.csv:5: time_us is '?'"),
    ],
)
def test_a_table_that_makes_no_sense_keeps_the_reason_and_loses_no_other(folder, cells, table: str, reason: str) -> None:
    bad, good = validate([folder(line("bad.csv", **cells), line("good.csv"), bad=table)])
    assert bad.points == ()
    assert reason in bad.remarks[0]
    assert len(good.points) == 3


def test_a_table_that_is_not_there_keeps_the_reason(folder) -> None:
    path = folder(line("gone.csv"), line())
    (path / "gone.csv").unlink()
    gone, good = validate([path])
    assert "gone.csv: does not exist" in gone.remarks[0]
    assert len(good.points) == 3


def test_a_machine_that_cannot_be_built_is_told_once(folder) -> None:
    (held,) = validate([folder(line(n_gpus="64"))])
    assert held.points == ()
    (remark,) = held.remarks
    assert remark.startswith("not simulated: ")


def test_processes_give_what_one_gives(folder) -> None:
    path = folder(line("a.csv"), line("a_ip.csv", in_place="yes"), line("b.csv", gpu="Abacus"), line("c.csv", algo="Ring"))
    with local_executor(2) as pool:
        assert validate([path], executor=pool) == validate([path], executor=SerialExecutor()) == validate([path])


def test_a_process_that_was_ended_is_told_in_a_sentence(folder) -> None:
    class Broken(Executor):
        def map(self, *rest, **more):
            raise BrokenExecutor

    with pytest.raises(ScenarioError, match="a process was ended from outside, .* try fewer --workers"):
        validate([folder(line())], executor=Broken())


def test_progress_is_told_in_tables(folder) -> None:
    told: list[tuple[int, int, str]] = []
    validate([folder(line("a_oop.csv"), line("a_ip.csv"), line("b.csv"))], told=lambda *words: told.append(words))
    assert told == [(2, 3, "a_ip.csv"), (3, 3, "b.csv")]


def test_only_some_entries_are_looked_at(folder) -> None:
    (held,) = validate([folder(line("a.csv"), line("b.csv"))], only=lambda entry: entry.path.name == "b.csv")
    assert held.entry.path.name == "b.csv"


def test_nothing_left_is_an_error(folder) -> None:
    with pytest.raises(ScenarioError, match="no table is left .* what --only keeps is in no index"):
        validate([folder(line())], only=lambda entry: False)
