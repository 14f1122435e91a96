import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import scenarios.sweep
from netsim.export.table import COLUMNS, csv_text
from scenarios.machine import Machine
from scenarios.run import Spec, run_spec
from scenarios.sweep import Outcome, read_kept, run_point, spec_digest, sweep

IDEAL = Machine("ideal-switch:4@450GB/s,1us")
SPECS = [Spec(IDEAL, "all_reduce", size, algorithm) for size in (1024, 2**20) for algorithm in ("ring", "flat")]


def rows_of(outcomes):
    return [outcome.row for outcome in outcomes]


class Backwards(Executor):
    """Gives every second future back before the one in front of it."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        held, self.held = getattr(self, "held", None), (future, fn(*args, **kwargs))
        if held is not None:
            self.held[0].set_result(self.held[1])
            held[0].set_result(held[1])
            self.held = None
        return future


def test_rows_come_in_the_order_of_the_specs_whatever_ends_first():
    assert rows_of(sweep(SPECS, executor=Backwards(), workers=2)) == [run_spec(spec) for spec in SPECS]


def test_any_executor_will_do():
    with ThreadPoolExecutor(2) as pool:
        assert rows_of(sweep(SPECS, executor=pool, workers=2)) == [run_spec(spec) for spec in SPECS]


def test_processes_give_the_rows_of_a_serial_sweep():
    assert csv_text(rows_of(sweep(SPECS, workers=2))) == csv_text(rows_of(sweep(SPECS)))


def test_equal_points_are_run_once(monkeypatch):
    runs = []
    monkeypatch.setattr(scenarios.sweep, "run_spec", lambda spec: runs.append(spec) or run_spec(spec))
    outcomes = sweep([SPECS[0], SPECS[1], SPECS[0]])
    assert runs == SPECS[:2]
    assert outcomes[0] == outcomes[2]


def test_a_point_that_fails_is_a_row_that_says_why():
    good, bad, after = sweep([SPECS[0], Spec(IDEAL, "all_reduce", 8, "nonsense"), SPECS[1]])
    assert not good.failed
    assert not after.failed
    assert bad.failed
    assert not bad.broken
    assert bad.row.note.startswith("failed: unknown algorithm 'nonsense'")
    assert math.isnan(bad.row.time_us)
    # What is not known is empty, and no zero: ranks, then everything from the time to the messages but the engine.
    (cells,) = csv.reader([csv_text([bad.row], header=False).strip()])
    row = dict(zip(COLUMNS, cells, strict=True))
    for name in ("ranks", "time_us", "algbw_GBps", "busbw_GBps", "lower_bound_us", "bottleneck", "messages"):
        assert row[name] == ""


def test_a_fault_of_the_program_is_a_row_too_and_is_told_apart(monkeypatch):
    monkeypatch.setattr(scenarios.sweep, "run_spec", lambda spec: {}["missing"])
    outcome = run_point(SPECS[0])
    assert outcome.broken
    assert "INTERNAL ERROR: KeyError" in outcome.row.note


def test_rows_are_kept_as_they_come_and_not_run_again(tmp_path, monkeypatch):
    kept = tmp_path / "rows.csv.partial"
    first = sweep(SPECS[:3], kept=kept)
    assert len(kept.read_text().splitlines()) == 3
    runs = []
    monkeypatch.setattr(scenarios.sweep, "run_spec", lambda spec: runs.append(spec) or run_spec(spec))
    told = []
    second = sweep(SPECS, kept=kept, told=lambda done, resumed: told.append((done, resumed)))
    assert runs == SPECS[3:]
    assert second[:3] == first
    assert told == [(3, 3), (4, 3)]


def test_a_row_survives_the_file_to_the_last_bit(tmp_path):
    kept = tmp_path / "rows"
    (outcome,) = sweep(SPECS[:1], kept=kept)
    assert read_kept(kept) == {spec_digest(SPECS[0]): outcome.row}


def test_a_line_that_was_cut_off_counts_for_nothing_and_spoils_nothing(tmp_path):
    kept = tmp_path / "rows"
    sweep(SPECS[:2], kept=kept)
    kept.write_bytes(kept.read_bytes()[:-20])
    assert rows_of(sweep(SPECS[:3], kept=kept)) == [run_spec(spec) for spec in SPECS[:3]]
    assert len(read_kept(kept)) == 3


@pytest.mark.parametrize("line", ["[]", "{}", '{"key": "x", "row": {"collective": "all_reduce"}}', "\x00", "nonsense"])
def test_lines_of_another_layout_are_not_taken_for_rows(tmp_path, line):
    kept = tmp_path / "rows"
    kept.write_text(line + "\n")
    assert read_kept(kept) == {}


def test_a_failed_point_is_tried_again(tmp_path):
    kept = tmp_path / "rows"
    sweep([Spec(IDEAL, "all_reduce", 8, "nonsense")], kept=kept)
    assert read_kept(kept) == {}


def test_the_digest_changes_with_the_spec_and_with_the_file_behind_it(tmp_path):
    path = tmp_path / "pair.yaml"
    path.write_text("one")
    spec = replace(SPECS[0], machine=Machine(str(path)))
    first = spec_digest(spec)
    assert spec_digest(spec) == first
    assert spec_digest(replace(spec, size_bytes=1025)) != first
    path.write_text("two")
    assert spec_digest(spec) != first


def test_a_worker_that_dies_loses_its_own_point_only(monkeypatch):
    monkeypatch.setattr(scenarios.sweep, "run_point", die_at_flat)
    outcomes = sweep(SPECS, workers=2)
    assert [outcome.failed for outcome in outcomes] == [False, True, False, True]
    assert "ended from outside" in outcomes[1].row.note
    assert rows_of(outcomes)[2] == run_spec(SPECS[2])


def die_at_flat(spec: Spec) -> Outcome:
    if spec.algorithm == "flat":
        os.kill(os.getpid(), signal.SIGKILL)
    return run_point(spec)


def test_an_executor_that_breaks_at_once_still_gives_all_rows():
    class Broken(Executor):
        def submit(self, fn, /, *args, **kwargs):
            raise BrokenExecutor

    assert rows_of(sweep(SPECS[:2], executor=Broken())) == [run_spec(spec) for spec in SPECS[:2]]


SCENARIO = """\
topology: "ideal-switch:32@450GB/s,1us"
collective: all_reduce
algorithm: double_binary_tree
sizes: {first: 1 MiB, last: 2 GiB, factor: 2}
"""


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start_and_stop(folder: Path, how: signal.Signals, workers: int) -> subprocess.Popen[bytes]:
    """Start a sweep and stop it as soon as a few rows are done."""
    command = [sys.executable, "-m", "netsim", "sweep", "grid.yaml", "--workers", str(workers), "--csv", "grid.csv"]
    # Shells start what they put into the background deaf to SIGINT, and processes hand that on.
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, cwd=folder, preexec_fn=hears, **quiet)
    until = time.monotonic() + 60
    while lines_of(folder / "grid.csv.partial") < 3 and time.monotonic() < until and run.poll() is None:
        time.sleep(0.02)
    run.send_signal(how)
    run.wait(timeout=30)
    return run


@pytest.mark.parametrize(
    ("how", "workers"),
    [
        (signal.SIGKILL, 2),
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
    ],
)
def test_a_sweep_that_was_stopped_goes_on_and_writes_what_run_writes(tmp_path, repository, monkeypatch, how, workers):
    monkeypatch.setenv("PYTHONPATH", str(repository))
    (tmp_path / "grid.yaml").write_text(SCENARIO)
    stopped = start_and_stop(tmp_path, how, workers)
    assert stopped.returncode == (130 if how == signal.SIGINT else -9)
    assert not (tmp_path / "grid.csv").exists()
    kept = lines_of(tmp_path / "grid.csv.partial")
    assert 3 <= kept < 12
    # Every row that is kept can be read; the last line may be cut off.
    assert len(read_kept(tmp_path / "grid.csv.partial")) >= kept
    command = [sys.executable, "-m", "netsim"]
    again = [*command, "sweep", "grid.yaml", "--workers", "2", "--csv", "grid.csv"]
    ended = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "kept from before" in ended.stderr
    subprocess.run([*command, "run", "grid.yaml", "--csv", "run.csv"], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "grid.csv").read_bytes() == (tmp_path / "run.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.csv", "grid.yaml", "run.csv"]


def test_workers_end_with_the_process_that_started_them(tmp_path, repository, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(repository))
    (tmp_path / "grid.yaml").write_text(SCENARIO)
    run = start_and_stop(tmp_path, signal.SIGKILL, 2)
    until = time.monotonic() + 20
    while children_of(run.pid, tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    assert children_of(run.pid, tmp_path) == []


def children_of(pid: int, folder: Path) -> list[str]:
    """Return the processes that still work in a folder (Linux), the killed one's workers among them."""
    if not Path("/proc/self/cwd").exists():
        pytest.skip("needs /proc")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != pid:
            try:
                if (entry / "cwd").resolve() == folder.resolve() and b"spawn_main" in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_what_is_kept_is_one_json_object_a_line(tmp_path):
    sweep(SPECS[:1], kept=tmp_path / "rows")
    entry = json.loads((tmp_path / "rows").read_text())
    assert entry["key"] == spec_digest(SPECS[0])
    assert entry["row"]["algorithm"] == "ring"
