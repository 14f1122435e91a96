import csv
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.export.table import COLUMNS, Row, csv_text, human_text, json_text, nccl_tests_text, rounded_size

CONTRACT = (
    "collective,topology,ranks,nodes,algorithm,protocol,channels,size_bytes,time_us,algbw_GBps,busbw_GBps,lower_bound_us,"
    "closed_form_us,bottleneck,engine,messages,version,scenario,seed,topology_digest,"
)

ROW = Row(
    collective="all_reduce",
    topology="ideal-switch:8@450GB/s,1us",
    ranks=8,
    nodes=1,
    algorithm="ring",
    protocol="ideal",
    channels=1,
    size_bytes=2**26,
    time_us=274.97923555555555,
    algbw_GBps=244.05,
    busbw_GBps=427.09,
    lower_bound_us=260.979,
    closed_form_us=None,
    bottleneck="gpu0->switch",
    engine="simpy",
    messages=112,
    version="0.1.0",
    scenario="",
    seed=None,
    topology_digest="0123456789ab",
    bottleneck_utilisation=0.949,
)


def test_the_columns_of_the_contract_come_first_and_schema_last() -> None:
    header = csv_text([]).rstrip("\n")
    assert header.startswith(CONTRACT)
    assert header.endswith(",schema")


def test_csv_reads_back_to_the_same_numbers() -> None:
    (read,) = csv.DictReader(io.StringIO(csv_text([ROW])))
    assert float(read["time_us"]) == ROW.time_us
    assert read["topology"] == ROW.topology
    assert read["closed_form_us"] == read["seed"] == ""


@given(st.floats(allow_nan=False, allow_infinity=False), st.text())
def test_any_float_and_any_text_survive_csv(number: float, text: str) -> None:
    row = replace(ROW, time_us=number, note=text)
    _, read = csv.reader(io.StringIO(csv_text([row]), newline=""))
    assert float(read[COLUMNS.index("time_us")]) == number
    assert read[COLUMNS.index("note")] == text


def test_csv_lines_end_in_a_line_feed_alone() -> None:
    text = csv_text([ROW, ROW])
    assert text.count("\n") == 3
    assert "\r" not in text


def test_json_has_the_columns_and_full_precision() -> None:
    (read,) = json.loads(json_text([ROW]))
    assert tuple(read) == COLUMNS
    assert read["time_us"] == ROW.time_us


def test_the_table_for_people_names_units_bound_and_bottleneck() -> None:
    text = human_text([ROW], head=["ideal"])
    assert text.startswith("# ideal\n")
    assert "(us)" in text
    assert "(GB/s)" in text
    # 274.979 / 260.979 = 1.0536
    assert text.splitlines()[-1].split() == [
        "67108864",
        "274.979",
        "244.05",
        "427.09",
        "ring",
        "1.054",
        "gpu0->switch",
        "94.9%",
    ]


def test_the_table_for_people_shows_what_varies() -> None:
    text = human_text([replace(ROW, chunks=1), replace(ROW, chunks=16)])
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["1", "16"]
    assert "topology" not in text


def test_a_note_is_printed_once_below_the_table() -> None:
    text = human_text([replace(ROW, note="careful"), replace(ROW, note="careful")])
    assert text.count("# note: careful") == 1


def test_an_instant_run_has_no_ratio() -> None:
    text = human_text([replace(ROW, time_us=0.0, lower_bound_us=0.0, bottleneck="", bottleneck_utilisation=None)])
    assert text.splitlines()[-1].split()[-3:] == ["-", "-", "-"]


def data_lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def test_a_data_line_of_nccl_tests_has_thirteen_fields() -> None:
    (fields,) = data_lines(nccl_tests_text([ROW]))
    # 64 MiB of 4-byte floats are 16,777,216 elements; times above 100 us have one decimal.
    assert fields[:5] == ["67108864", "16777216", "float", "sum", "-1"]
    assert fields[5:] == ["275.0", "244.05", "427.09", "0"] * 2


@pytest.mark.parametrize(
    ("collective", "count", "redop", "root", "wrong"),
    [
        ("all_gather", 2**24 // 8, "none", "-1", "0"),
        ("reduce_scatter", 2**24 // 8, "sum", "-1", "0"),
        ("broadcast", 2**24, "none", "3", "0"),
        ("reduce", 2**24, "sum", "3", "0"),
        ("alltoall", 2**24 // 8, "none", "-1", "N/A"),
        ("sendrecv", 2**24, "sum", "-1", "N/A"),
    ],
)
def test_count_redop_and_root_follow_nccl_tests(collective: str, count: int, redop: str, root: str, wrong: str) -> None:
    (fields,) = data_lines(nccl_tests_text([replace(ROW, collective=collective)], root=3))
    assert fields[1:5] == [str(count), "float", redop, root]
    assert fields[-1] == wrong


@pytest.mark.parametrize(("time_us", "text"), [(99.994, "99.99"), (100.04, "100.0"), (9999.4, "9999.4"), (10505.2, "10505")])
def test_times_have_the_decimals_of_nccl_tests(time_us: float, text: str) -> None:
    (fields,) = data_lines(nccl_tests_text([replace(ROW, time_us=time_us)]))
    assert fields[5] == text


def test_the_log_ends_with_the_mean_bus_bandwidth() -> None:
    text = nccl_tests_text([replace(ROW, busbw_GBps=100.0), replace(ROW, busbw_GBps=300.0)])
    assert "# Avg bus bandwidth    : 200" in text


def test_sizes_round_down_as_in_nccl_tests() -> None:
    # all-gather over 3 ranks: 1000 // 4 = 250 elements, 83 a rank, cut to 80 (16 bytes): 80 * 3 * 4 = 960
    assert rounded_size("all_gather", 3, 1000) == 960
    assert rounded_size("all_gather", 8, 100) == 0
    assert rounded_size("all_reduce", 3, 1003) == 1000


@given(st.sampled_from(["all_reduce", "all_gather", "alltoall"]), st.integers(1, 64), st.integers(0, 2**40))
def test_rounding_twice_is_rounding_once(collective: str, ranks: int, size: int) -> None:
    once = rounded_size(collective, ranks, size)
    assert 0 <= once <= size
    assert rounded_size(collective, ranks, once) == once
