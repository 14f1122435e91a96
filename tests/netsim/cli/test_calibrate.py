import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from calibrate import measure as hardware
from tests.calibrate.standin import FakeClock

COPIES = "tests/data/h200_copies.csv"


@pytest.fixture
def here(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeClock], None]:
    def use(made: FakeClock) -> None:
        monkeypatch.setattr(hardware, "open_hardware", lambda: made)

    return use


def test_measure_without_a_gpu_is_one_sentence_and_no_file(ask: Callable, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    answer = ask(f"calibrate measure -o {tmp_path / 'samples.csv'}")
    assert answer.code == 2
    assert "`netsim calibrate fit` reads samples of another machine" in answer.sentence()
    assert list(tmp_path.iterdir()) == []


def test_measure_then_fit_then_publish_then_perf(ask: Callable, clock: Callable, tmp_path: Path) -> None:
    samples, profile = tmp_path / "samples.csv", tmp_path / "mine.toml"
    clock(FakeClock())
    assert ask(f"calibrate measure -o {samples}").code == 0
    fitted = ask(f"calibrate fit {samples}")
    assert fitted.code == 0
    # The made-up clock is a laptop's: 8.25 us, 13.45 GB/s of 15.754, n_half 110962 B.
    (line,) = [line for line in fitted.out.splitlines() if line.lstrip().startswith("copy h2d pinned")]
    cells = line.split()
    assert [cells[place] for place in (3, 4, 6, 8, 10, 11)] == ["21", "-", "8.250", "13.450", "85.4", "110962"]
    assert line.endswith("gap")
    assert "# kernel_empty graph: 8.25 us (8.25 to 8.25)\n" in fitted.out
    assert ask(f"calibrate publish {samples} --name laptop -o {profile}").code == 0
    answer = ask(f"perf all_reduce --topology pcie-gen4-8 --profile {profile} -b 1M -e 1M --csv -")
    assert answer.code == 0


def test_an_interrupted_measurement_is_completed_by_the_same_command(ask: Callable, clock: Callable, tmp_path: Path) -> None:
    samples = tmp_path / "samples.csv"
    clock(FakeClock(stops_after=30))
    answer = ask(f"calibrate measure -o {samples}")
    assert answer.code == 130
    assert "stopped: 30 samples in" in answer.err
    clock(FakeClock())
    answer = ask(f"calibrate measure -o {samples}")
    assert answer.code == 0
    assert f"netsim: {216 - 30} new of 216 samples in" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["samples.csv"]


def test_a_series_that_fails_is_said_and_tried_again(ask: Callable, clock: Callable, tmp_path: Path) -> None:
    samples = tmp_path / "samples.csv"
    clock(FakeClock(fails="kernel_empty graph"))
    answer = ask(f"calibrate measure -o {samples}")
    assert answer.code == 0
    assert "netsim: kernel_empty graph: RuntimeError: CUDA error: out of luck\n" in answer.err
    clock(FakeClock())
    assert "1 new of 216 samples" in ask(f"calibrate measure -o {samples}").err
    assert "# note" not in samples.read_text(encoding="utf-8")


def test_collectives_need_two_gpus(ask: Callable, clock: Callable, tmp_path: Path) -> None:
    clock(FakeClock())
    answer = ask(f"calibrate measure -o {tmp_path / 'one.csv'} --collectives")
    assert "one GPU has no collective to measure" in answer.err
    clock(FakeClock(2))
    assert ask(f"calibrate measure -o {tmp_path / 'two.csv'} --collectives").code == 0
    assert "all_reduce,graph,,8," in (tmp_path / "two.csv").read_text(encoding="utf-8")


@pytest.mark.usefixtures("here")
def test_fit_prints_a_table_and_what_one_line_cannot_do(ask: Callable) -> None:
    answer = ask(f"calibrate fit {COPIES} --residuals")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].endswith(
        "fits of tests/data/h200_copies.csv, gpu NVIDIA H200, driver 580.159.04, cuda 13.0, date 2026-11-29"
    )
    assert (
        "  copy h2d pinned     24  3.648  0.044   2.664  0.122   55.046   0.830     87.4   146614   -6.6  128 KiB  gap"
        in lines
    )
    assert "     131072     5.401     5.045  -6.6" in lines
    assert any("is within 4.1% at every size" in line for line in lines)


@pytest.mark.usefixtures("here")
def test_fit_writes_a_row_a_series(ask: Callable) -> None:
    answer = ask(f"calibrate fit {COPIES} --csv -")
    copy, peer = csv.DictReader(io.StringIO(answer.out))
    assert (copy["kind"], copy["direction"], copy["pinned"], copy["sizes"]) == ("copy", "h2d", "True", "24")
    assert float(copy["floor_us"]) == pytest.approx(3.648, abs=1e-3)
    assert float(copy["line_rate_GBps"]) == pytest.approx(63.015)
    assert copy["break_bytes"] == "131072"
    # No line rate is known between GPUs.
    assert (peer["line_rate_GBps"], peer["floor_us"]) == ("", "")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            f"fit {COPIES} --line-rate 50GB/s",
            "copy h2d pinned: the fitted rate of 54.75 GB/s is above the line rate of 50 GB/s",
        ),
        (f"fit {COPIES} --line-rate 50", "--line-rate"),
        (f"fit {COPIES} --profile nonsense", "unknown link profile 'nonsense'"),
        (f"fit {COPIES} --kind copi", "no series copi; it has copy h2d pinned, peer 0->1"),
        ("fit /nowhere.csv", "cannot read /nowhere.csv: does not exist; samples of netsim calibrate measure are wanted"),
        ("fit README.md", "README.md: line "),
        (f"publish {COPIES} --name mine -o mine", "--output: 'mine' does not end in .toml"),
        (f"publish {COPIES} --name mine -o /nowhere/mine.toml", "there is no folder '/nowhere'"),
        (f"publish {COPIES} --name mine -o mine.toml --pageable", "no series copy h2d of pageable memory; it has copy h2d"),
        (f"publish {COPIES} --name mine -o mine.toml --direction 0->1 --kind peer", "the fitted rate of 378 GB/s is above"),
        (f"publish {COPIES} --name ../mine -o mine.toml", "profile name '../mine'"),
        (f"publish {COPIES} --name mine -o mine.toml --family road", "family is 'road'"),
    ],
)
def test_a_wrong_question_is_one_sentence(ask: Callable, line: str, words: str) -> None:
    answer = ask(f"calibrate {line}")
    assert answer.code == 2
    assert words in answer.sentence()
    assert not Path("mine.toml").exists()


@pytest.mark.usefixtures("here")
def test_peers_are_published_as_nvlink_with_a_warning(ask: Callable, tmp_path: Path) -> None:
    profile = tmp_path / "bridge.toml"
    line = f"calibrate publish {COPIES} --name bridge -o {profile} --kind peer --direction 0->1 --line-rate 450GB/s"
    answer = ask(line)
    assert answer.code == 0
    assert "least squares are off by -26.9% at 1 MiB" in answer.err
    text = profile.read_text(encoding="utf-8")
    assert 'family = "nvlink"' in text
    assert "one line does not fit these times" in text
    assert "lanes" not in text.split("date")[0]


@pytest.mark.usefixtures("here")
def test_presets_with_pcie_take_the_published_profile(ask: Callable, tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    assert ask(f"calibrate publish {COPIES} --name pcie5_mine -o {profile}").code == 0
    for preset in ("hgx-h100", "pcie-gen5-8", "pcie-gen4-8", "pcie-pair", "rtx4060-laptop", "l40s-8"):
        answer = ask(f"topo show {preset} --profile {profile}")
        assert answer.code == 0, answer.err
