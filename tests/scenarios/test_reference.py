"""The scenarios of the project give the rows in results/reference/ again, and those rows say what they claim."""

import csv
import importlib
import io
import math
import subprocess
import sys

import pytest

from netsim.export.table import csv_text
from scenarios.run import run_spec
from scenarios.spec import load_scenario
from scenarios.study import study_csv

STUDIES = ("ring_bytes", "half_way", "nvls_pieces", "ring_or_tree")
FILES = {"ideal_ring.yaml": "ideal-ring.csv"}
# What may differ between releases without a change of results.
PROVENANCE = ("version", "schema")


def reference(repository, name):
    text = (repository / "results" / "reference" / name).read_text(encoding="utf-8")
    return [{key: value for key, value in row.items() if key not in PROVENANCE} for row in csv.DictReader(io.StringIO(text))]


def assert_same_rows(text, expected):
    rows = [{key: value for key, value in row.items() if key not in PROVENANCE} for row in csv.DictReader(io.StringIO(text))]
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        assert row.keys() == wanted.keys()
        for key in row:
            assert same_cell(row[key], wanted[key]), (key, row[key], wanted[key])


def same_cell(one, other):
    try:
        # Closed forms may differ in the last bit between mathematics libraries.
        return math.isclose(float(one), float(other), rel_tol=1e-12)
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


@pytest.mark.parametrize(("file", "name"), FILES.items())
def test_a_scenario_file_gives_its_reference_rows(repository, file, name):
    scenario = load_scenario(repository / "scenarios" / file)
    assert_same_rows(csv_text([run_spec(spec) for spec in scenario.specs]), reference(repository, name))


def test_every_reference_has_a_scenario(repository):
    names = {path.name for path in (repository / "results" / "reference").glob("*.csv")}
    assert names == {f"{study}.csv" for study in (*STUDIES, "reproduce")} | set(FILES.values())


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
