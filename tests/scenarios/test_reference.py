"""The scenarios of the project give the rows in results/reference/ again, and those rows say what they claim."""

import csv
import importlib
import io
import itertools
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netsim.export.table import csv_text
from scenarios.run import run_spec
from scenarios.spec import load_scenario
from scenarios.study import study_csv

STUDIES = ("ring_bytes", "half_way", "nvls_pieces", "ring_or_tree", "ring_order", "semantics", "packets")
FILES = sorted(path.name for path in (Path(__file__).resolve().parents[2] / "scenarios").glob("*.yaml"))
# What may differ between releases without a change of results.
PROVENANCE = ("version", "schema", "topology_digest")


def reference(repository, name):
    text = (repository / "results" / "reference" / name).read_text(encoding="utf-8")
    return [{key: value for key, value in row.items() if key not in PROVENANCE} for row in csv.DictReader(io.StringIO(text))]


def assert_same_rows(text, expected):
    rows = [{key: value for key, value in row.items() if key not in PROVENANCE} for row in csv.DictReader(io.StringIO(text))]
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        assert row.keys() == wanted.keys()
        for key in row:
            assert same_cell(key, row[key], wanted[key]), (key, row[key], wanted[key])


def same_cell(key, one, other):
    # Closed forms may differ in the last bit between mathematics libraries; a crossing is read off two times that differ
    # little, so its last digits depend on which sizes were tried on the way.
    tolerance = 1e-8 if key == "in_alpha_B" else 1e-12
    try:
        return math.isclose(float(one), float(other), rel_tol=tolerance)
    except ValueError:
        return one == other


@pytest.mark.parametrize("name", [study for study in STUDIES if study != "ring_or_tree"])
def test_a_study_gives_its_reference_rows(repository, name):
    study = importlib.import_module(f"scenarios.{name}")
    assert_same_rows(study_csv(study.COLUMNS, study.rows()), reference(repository, f"{name}.csv"))


def test_ring_or_tree_gives_its_reference_rows(repository):
    # As a command, the way a reader would run it.
    done = subprocess.run(
        [sys.executable, "-m", "scenarios.ring_or_tree"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert_same_rows(done.stdout, reference(repository, "ring_or_tree.csv"))


@pytest.mark.parametrize("file", FILES)
def test_a_scenario_file_gives_its_reference_rows(repository, monkeypatch, file):
    # A topology in the file itself goes by the file's name as it was given.
    monkeypatch.chdir(repository)
    scenario = load_scenario(Path("scenarios", file))
    # Which engine `auto` takes hangs on what is installed; the rows are SimPy's.
    rows = csv_text([run_spec(replace(spec, engine="simpy")) for spec in scenario.specs])
    assert_same_rows(rows, reference(repository, f"{scenario.name}.csv"))


@pytest.mark.parametrize("file", FILES)
def test_a_scenario_file_opens_with_its_question_and_the_answer(repository, file):
    lines = (repository / "scenarios" / file).read_text(encoding="utf-8").splitlines()
    comment = " ".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
    assert "?" in comment
    assert "# Answer: " in comment


def test_every_reference_has_a_scenario(repository):
    names = {path.name for path in (repository / "results" / "reference").glob("*.csv")}
    files = {f"{file.removesuffix('.yaml').replace('_', '-')}.csv" for file in FILES}
    assert names == {f"{study}.csv" for study in (*STUDIES, "reproduce")} | files


def test_the_ring_sends_2_p_minus_1_over_p_and_the_root_p_minus_1_times_the_data(repository):
    for row in reference(repository, "ring_bytes.csv"):
        ranks = int(row["ranks"])
        assert float(row["ring_sent_per_size"]) == pytest.approx(2 * (ranks - 1) / ranks)
        assert float(row["root_sent_per_size"]) == ranks - 1


def test_latency_and_bandwidth_meet_at_p_alpha_b(repository):
    rows = reference(repository, "half_way.csv")
    assert [float(row["time_per_latency"]) for row in rows] == pytest.approx([2.0] * len(rows), rel=1e-5)
    sizes = {(row["ranks"], row["bandwidth_GBps"]): int(row["size_bytes"]) for row in rows}
    assert (sizes["8", "450.0"], sizes["8", "50.0"]) == (3_600_000, 400_000)
    assert sizes["8", "13.45"] == pytest.approx(0.89e6, rel=0.01)


def test_ring_and_double_tree_cross_where_the_design_says(repository):
    rows = {
        (row["bandwidth_GBps"], row["tree"], int(row["chunks"])): row for row in reference(repository, "ring_or_tree.csv")
    }
    crossings = [
        float(rows["450", "double_binary_tree", chunks]["crossing_bytes"]) / 1e6 for chunks in (1, 4, 8, 16, 64, 256)
    ]
    assert crossings == pytest.approx([1.1, 5.1, 10.2, 15.8, 19.8, 21.1], rel=0.025)
    formulas = [float(rows[rate, "double_binary_tree", 64]["formula_bytes"]) / 1e6 for rate in ("450", "50")]
    assert formulas == pytest.approx([14.4, 1.6], rel=1e-4)
    assert float(rows["450", "tree", 64]["crossing_bytes"]) == pytest.approx(2.5e6, rel=0.05)
    # 48 alpha B is the limit of small chunks.
    assert float(rows["50", "double_binary_tree", 256]["in_alpha_B"]) == pytest.approx(48, rel=0.03)


def test_nvls_wins_in_two_pieces_and_tends_to_its_limit(repository):
    rows = reference(repository, "nvls_pieces.csv")
    gains = [float(row["ring_per_nvls"]) for row in rows]
    assert gains[0] < 1 < gains[1]
    assert gains == sorted(gains)
    assert float(rows[-1]["nvls_us"]) == pytest.approx(float(rows[-1]["limit_us"]), rel=0.005)


def test_the_ideal_ring_reaches_its_link(repository):
    last = reference(repository, "ideal-ring.csv")[-1]
    assert float(last["busbw_GBps"]) == pytest.approx(450, rel=1e-3)
    assert float(last["algbw_GBps"]) == pytest.approx(257, rel=1e-3)


def test_half_bandwidth_is_reached_at_alpha_b(repository):
    rows = {int(row["size_bytes"]): row for row in reference(repository, "laptop-copies.csv")}
    assert float(rows[0]["time_us"]) == pytest.approx(8.25)
    # 8.25 us x 13.45 GB/s = 110,962.5 bytes; half of 13.45 is 6.725.
    assert float(rows[110963]["algbw_GBps"]) == pytest.approx(6.725, rel=1e-5)


def test_copies_to_the_h200_lie_on_the_floor_and_then_on_the_line(repository):
    times = {int(row["size_bytes"]): float(row["time_us"]) for row in reference(repository, "h200-copies.csv")}
    assert (times[4], times[32768]) == pytest.approx((3.6, 3.6))
    # 3 us + 2^28 / 55.4e3 bytes/us = 3 + 4845.40
    assert times[1 << 28] == pytest.approx(4848.40, abs=0.01)


def test_one_copy_engine_serves_both_directions_one_behind_the_other(repository):
    (row,) = reference(repository, "copy-engine.csv")
    # 2 x (8.25 us + 2^27 / 13.3e3 bytes/us) = 2 x 10,099.81
    assert float(row["time_us"]) == pytest.approx(20199.62, abs=0.01)
    assert row["bottleneck"] == "queue->engine"


def test_the_tensor_parallel_table_has_every_cell(repository):
    rows = reference(repository, "tensor-parallel.csv")
    cells = {(row["topology"], row["algorithm"], row["size_bytes"]): 0.16 * float(row["time_us"]) for row in rows}
    assert len(cells) == len(rows) == 5 * 3 * 3
    largest = {
        topology: ms for (topology, algorithm, size), ms in cells.items() if (algorithm, size) == ("ring", "67108864")
    }
    # 160 all-reduces: 160 x (14 alpha + 1.75 x 2^26 / B), in ms
    assert list(largest.values()) == pytest.approx([43.997, 23.118, 300.431, 378.050, 1415.542], abs=0.001)


def test_a_step_of_fsdp_has_three_collectives_of_seven_eighths(repository):
    rows = {row["collective"]: float(row["time_us"]) for row in reference(repository, "fsdp.csv")}
    # each: 7 us + 7/8 x 141.2 GB / 450 GB/s = 274,562.6 us
    assert rows == pytest.approx({"all_gather": 274562.556, "reduce_scatter": 274562.556}, abs=0.001)
    assert (2 * rows["all_gather"] + rows["reduce_scatter"]) / 1e6 == pytest.approx(0.82, abs=0.005)


def test_an_nvl72_beats_islands_by_the_rates_and_the_blocks_that_leave(repository):
    (rack,), (islands,) = (reference(repository, f"alltoall-{name}.csv") for name in ("nvl72", "islands"))
    assert (rack["ranks"], islands["ranks"], islands["nodes"]) == ("72", "72", "9")
    # 900 / 50 GB/s, and 64 of 71 blocks leave: 16.225; some latency beside it
    assert float(islands["time_us"]) / float(rack["time_us"]) == pytest.approx(18 * 64 / 71, rel=0.001)


def test_staging_crosses_the_uplink_twice(repository):
    (direct,), (staged,) = (reference(repository, f"gpudirect-{mode}.csv") for mode in ("on", "off"))
    assert (direct["gpudirect"], staged["gpudirect"]) == ("true", "false")
    assert "pcie_switch0" in staged["bottleneck"]
    # 1.5 N through a port of 21.9 GB/s; 3 N through an uplink of 24 GB/s
    assert float(direct["time_us"]) == pytest.approx(1.5 * 2**30 / 21.9e3, rel=0.002)
    assert float(staged["time_us"]) == pytest.approx(3 * 2**30 / 24e3, rel=0.002)


def test_an_empty_message_takes_one_latency_a_step(repository):
    rows = {(row["ranks"], row["algorithm"]): float(row["time_us"]) for row in reference(repository, "steps.csv")}
    for ranks in (8, 64, 128):
        assert rows[str(ranks), "ring"] == pytest.approx(2 * (ranks - 1))
        assert rows[str(ranks), "double_binary_tree"] == pytest.approx(2 * math.log2(ranks))


def test_links_carry_their_line_rates(repository):
    rates = [float(row["algbw_GBps"]) for row in reference(repository, "link-rates.csv")]
    assert rates == pytest.approx([450, 900, 200, 31.5, 63, 50], rel=1e-5)


def test_the_switch_beats_the_ring_by_less_than_twice(repository):
    rows = {
        (int(row["ranks"]), row["algorithm"]): float(row["time_us"]) for row in reference(repository, "nvls-and-ring.csv")
    }
    for ranks in (8, 16):
        # 2(p - 1)/p against 1 + 1/p times the data, and 1.6 % for filling the pipeline
        limit = 2 * (ranks - 1) / (ranks + 1)
        assert limit * 0.98 < rows[ranks, "ring"] / rows[ranks, "nvls"] < limit


def test_ring_and_double_tree_cross_within_the_sizes_that_the_file_names(repository):
    rows = reference(repository, "ring-and-trees.csv")
    times = {
        (row["topology"][15:].split("GB")[0], row["algorithm"], row["size_bytes"]): float(row["time_us"]) for row in rows
    }
    for rate, below, above in (("450", "19200000", "20800000"), ("50", "2000000", "2400000")):
        assert times[rate, "double_binary_tree", below] < times[rate, "ring", below]
        assert times[rate, "double_binary_tree", above] > times[rate, "ring", above]


def test_packets_of_128_bytes_carry_86_per_cent(repository):
    shares = {int(row["payload_bytes"]): float(row["share"]) for row in reference(repository, "packets.csv")}
    assert shares[128] == pytest.approx(128 / 148)
