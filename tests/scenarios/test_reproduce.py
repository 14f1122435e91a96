"""The article's numbers: simulated, none off by more than rounding, complete, and in the reference CSV."""

import csv
import io
import math

import pytest

from scenarios.article import Line
from scenarios.reproduce import COLUMNS, lines
from scenarios.study import study_csv

# What the article states, section by section; a number that stands there twice is listed once.
STATED = {
    "1": "8.25 13.45 3;_15_x_200;_7_x_2 111 9 21_to_24 15.754 85 86 13.3 12.0 20.2 63.0 55.4 88 3.6 refused",
    "2": "6.00 4 1.0 1.5 1.75 1.875 1.9375 1.96875 3 63 14 126 3.6 0.4 0.89 257 450 3.5 0.875 1",
    "3": "6 0 0.5 2 3 14.4 1.6 up_to_180 up_to_2 16_against_6 60 64 68 72 1 11 21 31 141 124 371 0.82 the_same",
    "4": "16 160 2.25 0.97 44 300 378 23 14 5.3 73 32 60_to_70 4_to_5 latency-bound bandwidth-bound "
    "450 25 900 15.754 31.5 63.0 50 7 3.2 18 160 72 130 14.4 256",
    "6": "1.5 1.97 0.06 14 450 3.5 only_pinned",
}
APART = {
    "laptop, a copy of 4 bytes",
    "laptop, 256 MiB from pinned memory",
    "H200, a copy of 64 KiB",
    "tree of 8 ranks, 10 GB, per N/B",
    "ring and double binary tree cross, 450 GB/s, simulated",
    "ring and double binary tree cross, 50 GB/s, simulated",
    "NVLink 4, 1 tokens, double_binary_tree, a forward pass",
    "InfiniBand NDR, one all-reduce of a token, ring",
    "talking per computing, 8 B200 on NVLink, ring",
    "talking per computing, 8 H100 on InfiniBand, ring",
    "H800 NVLink, a large message",
}


@pytest.fixture(scope="module")
def found():
    return list(lines())


def test_every_stated_number_is_simulated_to_its_last_digit(found):
    wrong = [(line.what, line.stated, line.simulated) for line in found if line.verdict == "OFF"]
    assert wrong == []


def test_what_stands_apart_differs_and_says_why(found):
    apart = [line for line in found if line.apart]
    assert {line.what for line in apart} == APART
    assert all(line.note and not line.fits for line in apart)


def test_what_cannot_be_simulated_says_why(found):
    missing = [line for line in found if line.simulated is None]
    assert len(missing) == 8
    assert all(line.note and line.stated and not line.scenario for line in missing)


@pytest.mark.parametrize("section", STATED)
def test_no_number_of_a_section_is_missing(found, section):
    stated = {line.stated.replace(" ", "_") for line in found if line.section.startswith(section)}
    assert set(STATED[section].split()) <= stated


def test_the_tensor_parallel_table_is_complete(found):
    passes = [line for line in found if line.what.endswith("a forward pass") and line.scenario == "tensor_parallel.yaml"]
    assert len(passes) == 5 * 3 * 3
    read = [line for line in found if line.what.endswith("the ring is")]
    assert len(read) == 5 * 3
    assert {line.what.split(",")[0] for line in read if line.stated == "latency-bound"} == {"NVLink 4", "NVLink 5"}


def test_a_line_names_a_scenario_that_is_there(found, repository):
    named = {line.scenario for line in found if line.scenario}
    assert named <= {path.name for path in (repository / "scenarios").iterdir()}
    assert {"tensor_parallel.yaml", "fsdp.yaml", "laptop_copies.yaml", "gpudirect_on.yaml", "alltoall_nvl72.yaml"} <= named


@pytest.mark.parametrize(
    ("stated", "simulated", "difference", "verdict"),
    [
        ("14.4", 14.449, 0.049, "agrees"),
        ("14.4", 14.46, 0.06, "OFF"),
        ("60 to 70", 60.2, 0.0, "agrees"),
        ("60 to 70", 72.0, 2.0, "OFF"),
        ("60 to 70", 57.0, -3.0, "OFF"),
        ("up to 2", 1.8, 0.0, "agrees"),
        ("up to 2", 2.5, 0.5, "OFF"),
        ("0 1 2 3", "0 1 2 3", None, "agrees"),
        ("0 1 2 3", "0 1 3 2", None, "OFF"),
        ("latency-bound", "bandwidth-bound", None, "OFF"),
        ("refused", 1.0, None, "OFF"),
        ("16 against 6", None, None, "not simulated"),
        ("", 3.0, None, ""),
    ],
)
def test_a_verdict_follows_from_what_is_stated(stated, simulated, difference, verdict):
    line = Line("x", "what", "us", stated, simulated)
    assert line.verdict == verdict
    assert line.difference == (None if difference is None else pytest.approx(difference))


def test_what_is_meant_to_differ_is_apart():
    assert Line("x", "what", "us", "14.4", 19.8, apart=True).verdict == "apart"


def test_the_reference_csv_is_what_is_simulated(found, repository):
    text = (repository / "results" / "reference" / "reproduce.csv").read_text(encoding="utf-8")
    stored = list(csv.DictReader(io.StringIO(text)))
    again = list(csv.DictReader(io.StringIO(study_csv(COLUMNS, (line.row for line in found)))))
    assert len(stored) == len(again)
    for old, new in zip(stored, again, strict=True):
        assert old.keys() == new.keys()
        numbers = {"simulated", "difference"}
        assert {key: old[key] for key in old.keys() - numbers} == {key: new[key] for key in new.keys() - numbers}
        assert _same(old["simulated"], new["simulated"])


def _same(one, other):
    """Compare two cells, as numbers where they are; a crossing is read off two times that differ little."""
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-8)
    except ValueError:
        return one == other
