import time
from pathlib import Path

import pytest

from netsim.errors import ScenarioError
from scenarios.measured import bus_ratio, logged_times, read_measured


def file_with(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_sizes_and_times_are_read_whatever_stands_beside_them(tmp_path: Path) -> None:
    path = file_with(tmp_path, "# a note\nname,time_us,size_bytes\na,12.5,8\n\nb,,16\nc,13,32\n")
    # The second row has no time and is left out.
    assert read_measured(path) == [(8, 12.5), (32, 13.0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("size_bytes,time\n8,1\n", "table.csv:1: has no column time_us"),
        ("size_bytes,time_us\n8,fast\n", "table.csv:2: time_us is 'fast'"),
        ("size_bytes,time_us\n8,-1\n", "table.csv:2: time_us is '-1'"),
        ("size_bytes,time_us\n8,inf\n", "table.csv:2: time_us is 'inf'"),
        ("size_bytes,time_us\n8.5,1\n", "whole number"),
        ("size_bytes,time_us\n8\n", "table.csv:2: has 1 cells"),
        ("size_bytes,time_us\n8,\n", "no row with a time"),
    ],
)
def test_what_is_no_table_gets_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as refused:
        read_measured(file_with(tmp_path, text))
    assert words in str(refused.value)


def test_every_measured_table_of_the_samples_is_read(shared: Path) -> None:
    tables = sorted((shared / "measurements").glob("*_oop.csv"))
    assert tables
    for path in tables:
        assert read_measured(path)


TITLES = "#  size  count  type  redop  {}time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"


@pytest.mark.parametrize(
    "text",
    [
        # mpirun's and srun's prefixes, and none
        "[1,0]<stdout>: 2048 512 float sum -1 10.24 0.20 0.35 0 11.00 0.19 0.33 0\n",
        "0: 2048 512 float sum -1 10.24 0.20 0.35 0 11.00 0.19 0.33 0\n",
        "  2048 512 half none -1 10.24 0.20 0.35 N/A 11.00 0.19 0.33 N/A\n",
        # no column for the root, none for the operation, and no times in place
        TITLES.format("") + " 2048 512 float 10.24 0.20 0.35 0e+00 11.00 0.19 0.33 1e+00\n",
        TITLES.format("root ") + " 2048 512 float 0 10.24 0.20 0.20 N/A 11.00 0.19 0.19 N/A\n",
        "# a note\n 2048 512 float sum 10.24 0.20 0.35 N/A\n",
        # size 0, a torn row and words of NCCL are passed over
        "node:1:2 [0] NCCL INFO Channel 00\n 0 0 float sum -1 0.75 0.00 0.00 0 0.77 0.00 0.00 0\n"
        " 4096 1024 float sum -1node:1:2 [0] NCCL INFO\n  12.00 0.99 0.60 0\n"
        " 2048 512 float sum -1 10.24 0.20 0.35 0 11.00 0.19 0.33 0\n# Avg bus bandwidth : 0.35\n",
        # 1 MiB in 10 us would be 104 GB/s: what stands there is no time
        " 1048576 262144 float sum -1 10.00 0.35 0 11.00\n 2048 512 float sum -1 10.24 0.20 0.35 0 11.00 0.19 0.33 0\n",
    ],
)
def test_a_log_of_nccl_tests_is_read_whatever_its_layout(text: str, tmp_path: Path) -> None:
    # 2,048 bytes in 10.24 us are 0.2 GB/s
    assert read_measured(file_with(tmp_path, text)) == [(2048, 10.24)]


def test_a_log_without_a_whole_row_is_said_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no whole row of nccl-tests'"):
        read_measured(file_with(tmp_path, "nThread 1 nGpus 8\n# Avg bus bandwidth : 0\n"))


def test_a_row_that_words_of_nccl_tore_is_put_together_again(tmp_path: Path) -> None:
    said = "vm:1:1 [0] NCCL INFO AllReduce: 2048 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
    row = f" 2048 512 float sum -1{said}{said}{said}  10.24 0.20 0.20 N/A{said} 11.0 0.19 0.19 N/A\n"
    text = TITLES.format("redop root ") + row
    assert read_measured(file_with(tmp_path, text)) == [(2048, 10.24)]


def test_the_ratio_of_bandwidths_is_that_of_the_largest_row() -> None:
    rows = " 8388608 2097152 float sum -1 83.9 100.00 175.00 0\n 67108864 16777216 float sum -1 335.5 200.00 375.00 0\n"
    # 2 * 15 / 16
    assert bus_ratio(rows) == 1.875
    assert bus_ratio(" 2048 512 float sum -1 10.24 0.20 0.35 0\n") is None


def test_every_log_of_the_samples_that_has_whole_rows_is_read(shared: Path) -> None:
    logs = sorted((shared / "samples" / "nccl_tests_logs").glob("*.txt"))
    assert logs
    assert all(read_measured(path) for path in logs)
    rows = dict(read_measured(shared / "samples" / "h200x2" / "nccl_tests_all_gather.log"))
    # Of its 28 rows two are of size 0.
    assert (len(rows), rows[2**30]) == (26, 1984.96)
    # Each of its six rows is torn in two.
    torn = read_measured(shared / "samples" / "h200x2" / "nccl_tests_all_reduce_debug_info.log")
    assert torn == [(8, 23.31), (64, 21.93), (512, 22.8), (4096, 21.87), (32768, 21.67), (262144, 27.27)]


@pytest.mark.parametrize("size", ["9" * 5000, "1" + "0" * 400, "1" + "0" * 90])
def test_a_row_of_a_size_that_no_buffer_has_is_none(size):
    row = "1024  256  float  sum  -1  12.50  0.08  0.14  0  12.40  0.08  0.14  0"
    assert logged_times(f"{row.replace('1024', size)}\n{row}") == [(1024, 12.5)]


def test_a_line_that_is_no_csv_is_named(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(f"size_bytes,time_us\n8,{'1' * 140_000}\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"long\.csv:2: is no line of a CSV \(field larger than field limit"):
        read_measured(path)
    path.write_text("x" * 140_000, encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"long\.csv:1: is no line of a CSV"):
        read_measured(path)


@pytest.mark.parametrize("line", ["1" * 1_000_000, " " * 1_000_000, "[1,1]<" + "a" * 1_000_000])
def test_a_long_line_takes_no_longer_than_many_short_ones(line):
    start = time.process_time()
    assert logged_times(line) == []
    # A few seconds at most; a search from every letter to the end takes hours.
    assert time.process_time() - start < 20
