"""`netsim calibrate from-nccl-tests`: logs in, files and the command line that uses them out."""

import csv
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from scenarios import fit_search

RING = "--topology ideal-switch:4@10GB/s,1us --collective all_reduce --algo ring"
FOUR = "# nThread 1 nGpus 4 minBytes 262144 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 validation: 0\n"
DEVICES = "".join(f"#   Rank  {rank} Pid  1 on     node-a device  {rank} [0x1a] GPU\n" for rank in range(4))
TITLES = "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def old_log(here: Path) -> Path:
    """Forty microseconds and 3.277 GB/s over four GPUs, in a layout without root, validation and times in place."""
    rows = ""
    for size in (2**doubling for doubling in range(18, 31, 2)):
        time = 40 + size / 3.277e3
        rows += (
            f"{size:12} {size // 4:12}   float     sum  {time:.1f}  {size / time / 1e3:.2f}  {size / time / 667:.2f}  N/A\n"
        )
    path = here / "old.txt"
    path.write_text(FOUR + DEVICES + TITLES + rows + "# Out of bounds values : 0 OK\n", encoding="utf-8")
    return path


def times_of(folder: Path, name: str, rows: dict[int, float]) -> str:
    text = "".join(f"{size},{time}\n" for size, time in rows.items())
    (folder / name).write_text(f"size_bytes,time_us\n{text}", encoding="utf-8")
    return name


def parameters(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "parameters.csv").open(encoding="utf-8") as stream:
        return {row["parameter"]: row for row in csv.DictReader(stream)}


def number(text: str) -> float:
    return float(text.split()[0])


def test_an_old_log_gives_the_line_of_its_ring(ask: Callable, old_log: Path, here: Path) -> None:
    answer = ask(f"calibrate from-nccl-tests {old_log} {RING} -o mine")
    assert answer.code == 0
    found = parameters(here / "mine")
    # 40 us are six steps of 6.67 us; 3.277 GB/s of the algorithm are 4.915 of the bus.
    assert number(found["topology:latency"]["after"]) == pytest.approx(6.67, rel=0.01)
    assert number(found["topology:rate"]["after"]) == pytest.approx(4.915, rel=0.003)
    assert "call:constant is not fitted: in these logs it cannot be told from topology:latency" in answer.out
    # Half of the bandwidth at p a B = 131 kB, nine tenths at nine times that.
    (line,) = [line for line in answer.out.splitlines() if line.startswith("  old.txt") and line.endswith("B")]
    smallest, best, bus, half, _, ninety, _ = line.split()[1:]
    assert (float(smallest), float(best), float(bus)) == pytest.approx((40.0, 3.277, 4.915), rel=0.01)
    assert (float(half), float(ninety)) == pytest.approx((0.131, 1.18), rel=0.03)


def test_the_last_line_is_the_command_that_uses_it(ask: Callable, old_log: Path) -> None:
    words = ask(f"calibrate from-nccl-tests {old_log} {RING} -o mine").out.splitlines()[-1]
    assert words.startswith("netsim perf all_reduce --topology ideal-switch:4@4.9")
    rows = list(csv.DictReader(ask("", *shlex.split(words)[1:], "--csv", "-").out.splitlines()))
    # At 1 GiB 40 us are nothing beside 1.07 GB / 3.277 GB/s.
    assert float(rows[-1]["time_us"]) == pytest.approx(2**30 / 3.277e3, rel=0.002)


def test_the_real_log_of_that_layout_gives_it_too(ask: Callable, shared: Path, here: Path) -> None:
    log = shared / "samples" / "nccl_tests_logs" / "old_layout_NA_no_inplace.txt"
    assert ask(f"calibrate from-nccl-tests {log} {RING} -o mine").code == 0
    found = parameters(here / "mine")
    assert number(found["topology:latency"]["after"]) == pytest.approx(6.7, rel=0.02)
    assert number(found["topology:rate"]["after"]) == pytest.approx(4.915, rel=0.005)


@pytest.fixture
def latencies(here: Path) -> str:
    """Latencies by the number of GPUs of NVIDIA/nccl-tests #123, us."""
    times = (10, 13.76, 16.88, 20.8, 25.2, 29.5, 33.7)
    names = (times_of(here, f"p{gpus}.csv", {8: time}) for gpus, time in zip(range(2, 9), times, strict=True))
    return " ".join(f"{name}:gpus={gpus}" for gpus, name in zip(range(2, 9), names, strict=True))


LATENCY = "--topology ideal-switch:8@10GB/s,1us --collective all_reduce --algo ring -o mine"


def test_latency_by_the_number_of_gpus_has_a_constant_part(ask: Callable, latencies: str, here: Path) -> None:
    answer = ask(f"calibrate from-nccl-tests {latencies} {LATENCY} --errors absolute")
    found = parameters(here / "mine")
    # 1.98 us a step and 5.56 us.
    assert number(found["topology:latency"]["after"]) == pytest.approx(1.98, rel=0.01)
    assert number(found["call:constant"]["after"]) == pytest.approx(5.56, rel=0.02)
    assert "# not fitted, as these times do not depend on it, or hardly: topology:rate\n" in answer.out
    assert "one set of parameters does not explain" not in answer.out
    assert "us beside all that its links do; no file holds that, so add it" in answer.out


def test_without_a_constant_that_latency_is_said_not_to_fit(ask: Callable, latencies: str) -> None:
    answer = ask(f"calibrate from-nccl-tests {latencies} {LATENCY} --parameters topology:latency")
    assert "one set of parameters does not explain all of these times:\n" in answer.out
    assert (
        "#   all_reduce by ring of 8 B: simulated below measured from 2 GPUs to 4 GPUs, 3 rows in a row, -47%" in answer.out
    )


def test_ring_and_one_shot_on_four_pcie_gpus(ask: Callable, here: Path) -> None:
    # vllm-project/vllm #56128; the slopes between 128 and 384 KiB are 12.4 and 10.4 GB/s.
    ring = times_of(here, "ring.csv", {4096: 19.4, 8192: 20.3, 32768: 24.2, 131072: 51.8, 393216: 83.5})
    shot = times_of(here, "shot.csv", {4096: 4.0, 8192: 5.0, 32768: 11.8, 131072: 44.5, 393216: 120.3})
    machine = "--topology ideal-switch:4@10GB/s,1us --collective all_reduce -b 128K -o mine"
    for log, algorithm, rate in ((ring, "ring", 12.4), (shot, "one_shot", 10.4)):
        assert ask(f"calibrate from-nccl-tests {log}:algo={algorithm} {machine}").code == 0
        assert number(parameters(here / "mine")["topology:rate"]["after"]) == pytest.approx(rate, rel=0.01)


def test_the_files_of_a_server_go_into_perf(ask: Callable, repository: Path, here: Path) -> None:
    log = repository / "scenarios" / "two_h200.log"
    some = "--parameters hopper:launch.call,nvlink4:effective_rate --name rack-7"
    answer = ask(f"calibrate from-nccl-tests {log} --topology hgx-h200 {some} -o mine --csv rows.csv")
    assert answer.code == 0
    assert sorted(path.name for path in (here / "mine").iterdir()) == ["hopper.toml", "nvlink4.toml", "parameters.csv"]
    assert "measured: fitted by simulation to rack-7 (1 log" in (here / "mine" / "hopper.toml").read_text(encoding="utf-8")
    with (here / "rows.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["size_bytes"] for row in rows] == ["4096", "32768", "2097152", "67108864", "1073741824"]
    words = answer.out.splitlines()[-1]
    table = ask("", *shlex.split(words)[1:], "--csv", "-")
    assert table.code == 0
    times = {row["size_bytes"]: float(row["time_us"]) for row in csv.DictReader(table.out.splitlines())}
    # The same simulation, as far as six digits of a file go.
    for row in rows:
        assert times[row["size_bytes"]] == pytest.approx(float(row["after_us"]), rel=1e-4)


def test_json_of_nccl_tests_is_a_log_too(ask: Callable, repository: Path, here: Path) -> None:
    log = repository / "tests" / "data" / "nccl_tests_all_gather.json"
    answer = ask(f"calibrate from-nccl-tests {log} --topology hgx-h200 --parameters hopper:launch.call -o mine")
    assert answer.code == 0
    assert answer.out.splitlines()[-1].startswith("netsim perf all_gather --topology hgx-h200 -g 2 ")


def test_a_folder_of_tables_needs_no_topology(ask: Callable, repository: Path, here: Path) -> None:
    folder = repository / "tests" / "data" / "tables"
    answer = ask(f"calibrate from-nccl-tests {folder} --parameters hopper:launch.call -b 1K -e 4K -o mine --steps 2 -j 1")
    assert answer.code == 0
    assert " of 6 logs by simulation" in answer.out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "old.txt: a log does not say on which machine it ran; --topology says it"),
        ("-g 4", "-g says something of a machine; give its --topology too"),
        ("--topology ideal-switch:4@10GB/s,1us --algo ring", "old.txt: does not say which collective its times are of"),
        (f"{RING} -g 2", "old.txt: is of 4 ranks, and ideal-switch:4@10GB/s,1us with 1 server has 2"),
        (f"{RING} --parameters hopper:ll.start", "'hopper' is used by none of these runs; they use topology, call"),
        (f"{RING} --errors squared", "--errors: 'squared' is unknown; accepted are relative and absolute"),
        (f"{RING} -b 2G", "no row is of 2 GiB to 1 TiB"),
        (f"{RING} -o old.txt", "--output: 'old.txt' is a file; give a folder"),
        (f"{RING} -o no/such", "there is no folder 'no'; make it first"),
        (f"{RING} -o ''", "--output: the name is empty"),
        (f"{RING} -o my,cluster", "--output: 'my,cluster' has a comma, which parts files in --profile"),
        ("--fabric rails", "--fabric says something of a machine; give its --topology too"),
        ("--no-gpudirect", "--no-gpudirect says something of a machine; give its --topology too"),
        ("--rate line", "--rate says something of a machine; give its --topology too"),
        (f"{RING} --name 'bad\udcff'", "--name: 'bad\\udcff' has what cannot be printed"),
        (f"{RING} --name 'del\x7f'", "--name: 'del\\x7f' has what cannot be printed"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_writes_nothing(more: str, words: str, ask: Callable, old_log: Path) -> None:
    output = "" if "-o " in more else " -o mine"
    answer = ask("", *shlex.split(f"calibrate from-nccl-tests old.txt {more}{output}"))
    assert answer.code == 2
    assert words in answer.sentence()
    assert [path.name for path in old_log.parent.iterdir()] == ["old.txt"]


def test_a_fit_into_its_own_folder_tells_where_it_started(ask: Callable, repository: Path, here: Path) -> None:
    log = repository / "scenarios" / "two_h200.log"
    words = f"calibrate from-nccl-tests {log} --topology hgx-h200"
    first = "--parameters hopper:launch.call,nvlink4:effective_rate --steps 2 -o my"
    assert ask(f"{words} {first}").code == 0
    starts = {name: row["after"] for name, row in parameters(here / "my").items()}
    answer = ask(f"{words} {first} --kernel-costs my/hopper.toml --profile my/nvlink4.toml")
    found = parameters(here / "my")
    assert {name: row["before"] for name, row in found.items()} == starts
    for row in found.values():
        assert number(row["low"]) <= number(row["after"]) <= number(row["high"])
    # A second fit stays where the first one ended.
    for row in found.values():
        assert number(row["after"]) == pytest.approx(number(row["before"]), rel=0.05)
    assert answer.out.splitlines()[-1].count("my/") == 2


def test_rows_alone_go_to_stdout(ask: Callable, old_log: Path, here: Path) -> None:
    answer = ask(f"calibrate from-nccl-tests {old_log} {RING} -o mine --csv -")
    assert answer.code == 0
    rows = list(csv.DictReader(answer.out.splitlines()))
    assert {row["log"] for row in rows} == {"old.txt"}
    assert {path.name for path in here.iterdir()} == {"old.txt", "mine"}


def test_what_is_left_out_of_a_log_is_said(ask: Callable, old_log: Path) -> None:
    text = old_log.read_text(encoding="utf-8")
    old_log.write_text(text + text.splitlines()[-2] + "\n", encoding="utf-8")
    answer = ask(f"calibrate from-nccl-tests {old_log} {RING} -o mine -e 256M")
    assert "# old.txt: left out: 1 row of a size that stands there before; its first time counts\n" in answer.out
    assert "# old.txt: left out: 1 row not of 1 B to 256 MiB, which -b and -e say\n" in answer.out


def test_a_log_whose_name_is_no_text_is_read(ask: Callable, old_log: Path, here: Path) -> None:
    strange = old_log.rename(here / "bad\udcff\x7f.txt")
    answer = ask("", "calibrate", "from-nccl-tests", str(strange), *shlex.split(RING), "-o", "mine")
    assert answer.code == 0
    assert "  bad??.txt " in answer.out


def test_why_no_table_of_a_folder_is_left_is_said(ask: Callable, repository: Path, here: Path) -> None:
    folder = repository / "tests" / "data" / "tables"
    sentence = ask(f"calibrate from-nccl-tests {folder} -b 1T -e 1T -o mine").sentence()
    assert "nothing to fit to (left out: " in sentence
    assert "no row is of the sizes that take part" in sentence


def test_times_that_no_such_link_can_reach_are_refused(ask: Callable, here: Path) -> None:
    # 700 GB/s where the line carries 450.
    log = times_of(here, "fast.csv", {size: 2 + size / 700e3 for size in (2**22, 2**25, 2**28)})
    answer = ask(f"calibrate from-nccl-tests {log} --topology hgx-h200 -g 2 --collective all_reduce --proto ideal -o mine")
    assert answer.code == 2
    assert "times the line rate of nvlink4, and payload is no faster than the line" in answer.sentence()
    assert not (here / "mine").exists()


def test_a_fit_that_is_no_good_is_a_no(ask: Callable, here: Path) -> None:
    # Once, three times and nine times as long in turn is no ring.
    log = times_of(here, "odd.csv", {2**k: 3 ** (k % 3) * 2**k / 1e3 for k in range(18, 30)})
    answer = ask(f"calibrate from-nccl-tests {log} {RING} -o mine")
    assert answer.code == 1
    assert "# the fit is no good, " in answer.out


def test_times_that_decide_nothing_are_said_to(ask: Callable, here: Path) -> None:
    log = times_of(here, "small.csv", {8: 9.0, 16: 9.0, 32: 9.0})
    answer = ask(f"calibrate from-nccl-tests {log} {RING} --parameters topology:rate -o mine")
    assert "these times decide none of the parameters (topology:rate); other sizes" in answer.sentence()


def test_an_interrupted_fit_leaves_the_best_so_far(
    ask: Callable, old_log: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = fit_search._Search.step

    def stops(search: fit_search._Search) -> bool:
        if search.rounds == 2:
            raise KeyboardInterrupt
        return step(search)

    monkeypatch.setattr(fit_search._Search, "step", stops)
    answer = ask(f"calibrate from-nccl-tests {old_log} {RING} -o mine")
    assert answer.code == 130
    assert answer.err.endswith("netsim: stopped after 2 steps; mine holds the best so far\n")
    assert parameters(here / "mine")
    monkeypatch.setattr(fit_search._Search, "step", lambda search: (_ for _ in ()).throw(KeyboardInterrupt))
    assert ask(f"calibrate from-nccl-tests {old_log} {RING} -o other").code == 130
    assert not (here / "other").exists()


def test_a_folder_that_cannot_be_written_is_said_at_once(ask: Callable, old_log: Path, here: Path, monkeypatch) -> None:
    (here / "mine").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    answer = ask(f"calibrate from-nccl-tests {old_log} {RING} -o mine")
    assert answer.code == 2
    assert "--output: no permission to write in 'mine'" in answer.sentence()
