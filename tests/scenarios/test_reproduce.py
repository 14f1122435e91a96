"""The article's numbers: simulated, none off by more than rounding, and in the reference CSV."""

import csv
import io

import pytest

from scenarios.reproduce import COLUMNS, Line, lines, rows
from scenarios.study import study_csv


@pytest.fixture(scope="module")
def found():
    return list(lines())


def test_every_stated_number_is_simulated_to_its_last_digit(found):
    wrong = [(line.what, line.stated, line.simulated) for line in found if not line.agrees]
    assert wrong == []


def test_only_formulas_without_pipeline_and_single_measurements_stand_apart(found):
    apart = [line.what for line in found if line.apart]
    assert len(apart) == 6
    assert all("tree" in what or "copy of" in what for what in apart)
    assert all(line.note for line in found if line.apart)


def test_the_tensor_parallel_table_is_complete(found):
    passes = [line for line in found if line.what.endswith("a forward pass") and "formula" not in line.what]
    assert len(passes) == 5 * 3 * 3


def test_the_sections_of_the_article_are_all_there(found):
    assert {line.section.split()[0] for line in found} == {"1", "2", "3", "4", "6"}


def test_a_line_off_by_more_than_rounding_is_found():
    assert Line("x", "what", "us", "14.4", 14.449).agrees
    assert not Line("x", "what", "us", "14.4", 14.46).agrees
    assert Line("x", "what", "us", "14.4", 19.8, apart=True).agrees


def test_the_reference_csv_is_what_is_simulated(found, repository):
    text = (repository / "results" / "reference" / "reproduce.csv").read_text(encoding="utf-8")
    stored = list(csv.DictReader(io.StringIO(text)))
    assert [row["what"] for row in stored] == [line.what for line in found]
    for row, line in zip(stored, found, strict=True):
        assert float(row["simulated"]) == pytest.approx(line.simulated, rel=1e-9)


def test_rows_follow_the_columns():
    first = next(iter(rows()))
    assert len(first) == len(COLUMNS)
    assert study_csv(COLUMNS, [first]).startswith("section,what,unit,stated,simulated")
