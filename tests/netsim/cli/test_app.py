import contextlib
import importlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("typer")

from netsim.cli import app
from netsim.errors import InternalError
from tests.calibrate.standin import FakeClock

NETSIM = [sys.executable, "-c", "from netsim.cli.app import main; main()"]
PERF = "perf all_reduce --topology ideal-switch:8@450GB/s,1us --algo ring -b 64M -e 64M"


def helps() -> list[tuple[str, ...]]:
    return [
        (),
        *((verb,) for verb in app.VERBS),
        ("topo", "show"),
        ("topo", "check"),
        ("schedule", "show"),
        ("schedule", "prove"),
        ("schedule", "export"),
        ("schedule", "import"),
        ("calibrate", "measure"),
        ("calibrate", "fit"),
        ("calibrate", "publish"),
        ("calibrate", "from-nccl-tests"),
    ]


@pytest.mark.parametrize("words", helps(), ids=" ".join)
def test_every_verb_has_help_with_an_example_that_runs(
    words: tuple[str, ...], ask: Callable, repository: Path, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(repository)
    shown = ask(" ".join((*words, "--help")))
    assert shown.code == 0
    (example,) = re.findall(r"Example:\s+netsim ([^\n]+(?:\n[^\n]+)*)", shown.out)
    arguments = shlex.split(example)
    if arguments[0] == "plot":
        pytest.importorskip("matplotlib")
        arguments[-1] = str(tmp_path / arguments[-1])
    if "-o" in arguments and arguments[0] == "calibrate":
        monkeypatch.setattr("calibrate.measure.open_hardware", FakeClock)
        arguments[-1] = str(tmp_path / arguments[-1])
    if arguments[0] in ("run", "sweep"):
        arguments += ["--csv", "-"]
        if not Path(arguments[1]).exists():
            pytest.skip("the scenario is not there yet")
    assert ask("", *arguments).code == 0


def test_no_verb_at_all_prints_the_list_of_verbs(ask: Callable) -> None:
    shown = ask("")
    assert shown.code == 0
    for verb in app.VERBS:
        assert f"  {verb} " in shown.out


def test_every_listed_verb_has_its_module() -> None:
    for verb in app.VERBS:
        assert importlib.import_module(f"netsim.cli.{verb}").app


def test_version_is_the_front_pages(ask: Callable) -> None:
    import netsim

    assert ask("--version").out.strip() == netsim.__version__


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "nonsense"),
        ("perf", "Missing argument"),
        ("perf all_reduce", "--topology"),
        (PERF + " --nodes x", "--nodes"),
        (PERF + " --nodes 0", "0 is not a whole number, 1 or more; see"),
        (PERF + " --nodes 1.5", "'1.5' is not a whole number, 1 or more; see"),
        (PERF + " --root x", "'x' is not a whole number; see"),
        (PERF + " --no-such-option", "--no-such-option"),
        ("perf all_reduce --topology nonsense", "nonsense"),
        (
            "perf all_reduc --topology ideal-switch:8@450GB/s,1us",
            "unknown collective 'all_reduc' (did you mean all_reduce?)",
        ),
        ("schedule show allgather", "did you mean all_gather?"),
        ("perf all_reduce --topology ideal-switch:0@450GB/s,1us", "ideal-switch:0"),
        ("perf all_reduce --topology ideal-switch:8@450Gb,1us", "450Gb"),
        ("perf all_reduce --topology ideal-switch:8@-450GB/s,1us", "-450GB/s"),
        ("perf all_reduce --topology ideal-switch:8@nanGB/s,1us", "nan"),
        ("perf all_reduce --topology ideal-switch:8@450GB/s,1us --algo rign", "rign"),
        ("perf alltoall --topology ideal-switch:8@450GB/s,1us --algo ring", "pairwise"),
        (PERF + " --proto udp", "accepted is ideal (textbook), or NCCL's: auto"),
        (PERF + " --engine warp", "warp"),
        (PERF + " --format xml", "nccl-tests"),
        (PERF + " --format json --csv -", "both want stdout"),
        (PERF + " --chunk 0", "--chunk"),
        (PERF + " --quantum 1.5", "--quantum"),
        (PERF + " --max-messages 10", "--max-messages"),
        (PERF + " --routing ecmp:x", "ecmp"),
        (PERF + " -r 8", "root"),
        ("perf all_reduce --topology ideal-switch:8@450GB/s,1us -b 64 -e 8", "below the smallest"),
        ("perf all_reduce --topology ideal-switch:8@450GB/s,1us -b 64Mb -e 64Mb", "bits"),
        ("perf all_reduce --topology /nowhere/at/all.xml", "/nowhere/at/all.xml"),
        (PERF + " --csv /proc/nowhere/rows.csv", "/proc/nowhere"),
        (PERF + " --csv /nowhere/at/all/rows.csv", "there is no folder '/nowhere/at/all'; make it first"),
        (PERF + " --fabric rails", "fabric 'rails' joins servers, and 'ideal-switch:8@450GB/s,1us' is one"),
        ("topo show hgx-h100 --fabric rails", "fabric 'rails' joins servers, and 'hgx-h100' is one"),
        ("crossover all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring", "two or more"),
        ("crossover all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring,,tree", "'ring,,tree' has an empty name"),
        (
            "crossover all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring,tree -b 4M -e 1M",
            "the sizes run from 4194304 to 1048576 bytes; the smallest must be 1 byte or more and below the largest",
        ),
        ("explain all_reduce --topology ideal-switch:8@450GB/s,1us --size 1M --routing ecmp:0..3", "is a range of seeds"),
        ("crossover all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring,tree --chunks 1,x", "1,x"),
        ("run /nowhere.yaml", "/nowhere.yaml"),
        ("topo show nonsense", "nonsense"),
        ("schedule show all_reduce --algo nonsense", "nonsense"),
        ("schedule prove all_reduce --ranks 8 -g 3", "divisor"),
    ],
)
def test_a_wrong_question_gets_one_sentence_and_exit_code_two(line: str, words: str, ask: Callable) -> None:
    answer = ask(line)
    assert answer.code == 2
    assert words in answer.sentence()


def test_a_simulator_that_contradicts_itself_says_so_loudly(ask: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import netsim.runs

    def beaten(*_: object) -> float:
        raise InternalError("the run took 1 s, below its own lower bound of 2 s")

    monkeypatch.setattr(netsim.runs, "check_run", beaten)
    answer = ask(PERF)
    assert answer.code == 70
    assert "INTERNAL ERROR, do not trust this result" in answer.sentence()


def test_an_unexpected_fault_is_no_traceback_but_an_internal_error(ask: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import netsim.runs

    monkeypatch.setattr(netsim.runs, "check_run", lambda *_: {}["missing"])
    answer = ask(PERF)
    assert answer.code == 70
    assert "KeyError" in answer.sentence()


def test_a_value_of_a_hundred_thousand_characters_is_cut(ask: Callable) -> None:
    answer = ask(f"perf {'z' * 100_000} --topology ideal-switch:8@450GB/s,1us")
    assert answer.code == 2
    assert "accepted are all_reduce" in answer.sentence()
    assert len(answer.sentence()) < 2100


def test_ctrl_c_ends_with_130_and_leaves_a_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("old")
    long = "perf all_reduce --topology ideal-switch:64@450GB/s,1us --algo ring -b 1M -e 4G"
    run = subprocess.Popen(
        [*NETSIM, *long.split(), "--csv", str(target)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Shells start what they put into the background deaf to SIGINT, and processes hand that on.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    # On a busy machine the first may come while modules are loaded, where Python can lose it; people press again.
    for _ in range(20):
        time.sleep(1.5)
        run.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(timeout=1)
            break
    _, err = run.communicate(timeout=20)
    assert run.returncode == 130
    assert "Traceback" not in err
    (left,) = tmp_path.iterdir()
    found = re.search(r"stopped after (\d+) of 4096 sizes", err)
    if found and found[1] != "0":
        head, *rows = left.read_text().splitlines()
        assert len(rows) == int(found[1])
        assert all(row.count(",") >= head.count(",") for row in rows)
    else:  # so early that nothing was done
        assert left.read_text() == "old"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_a_closed_stream_is_no_fault(closed: str, tmp_path: Path) -> None:
    line = f"{shlex.join(NETSIM)} {PERF} --csv {shlex.quote(str(tmp_path / 'rows.csv'))} {closed}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "rows.csv").read_text().startswith("collective,")


def test_a_file_that_cannot_be_written_is_refused_before_the_run(ask: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import netsim.cli.perf

    monkeypatch.setattr(netsim.cli.perf, "run_spec", lambda _: pytest.fail("it ran"))
    answer = ask(PERF + " --csv .")
    assert answer.code == 2
    assert "'.' is a folder" in answer.sentence()


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    line = f"{shlex.join(NETSIM)} schedule show all_reduce --algo ring --ranks 64 --steps 200 | head -1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True)
    assert ran.returncode == 0
    assert ran.stderr == ""
    assert ran.stdout.startswith("all_reduce by ring: 64 ranks")
