from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.samples import Sample, Samples, SeriesKey, parse_samples, samples_text
from netsim.errors import NetsimError

HEAD = "kind,direction,pinned,bytes,us_median\n"
KEYS = st.builds(
    SeriesKey,
    st.sampled_from(("copy", "peer")),
    st.sampled_from(("h2d", "0->1", "both")),
    st.sampled_from((True, False, None)),
)
PICOSECONDS = st.integers(min_value=1, max_value=10**13).map(lambda count: count * 1e-12)


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**40), PICOSECONDS), unique_by=lambda row: row[:2]))
def test_what_is_written_is_read_back(rows: list[tuple[SeriesKey, int, float]]) -> None:
    samples = Samples(
        tuple(Sample(key, size, time, time, 2 * time, 7, 9) for key, size, time in rows),
        {"gpu": "H200", "date": "2026"},
        ("a note",),
    )
    back = parse_samples(samples_text(samples), "here")
    assert back.facts == samples.facts
    assert back.notes == samples.notes
    assert [replace(row, median_s=0, least_s=0, most_s=0) for row in back.rows] == [
        replace(row, median_s=0, least_s=0, most_s=0) for row in samples.rows
    ]
    for row, read in zip(samples.rows, back.rows, strict=True):
        assert (read.median_s, read.most_s) == pytest.approx((row.median_s, row.most_s), rel=1e-9)


def test_columns_are_found_by_name_and_may_be_absent_or_more() -> None:
    (row,) = parse_samples("bytes,extra,us_median,direction,kind\n4,x,3.6,h2d,copy\n", "here").rows
    assert row == Sample(SeriesKey("copy", "h2d", None), 4, pytest.approx(3.6e-6))


def test_the_line_rate_is_that_of_generation_and_width() -> None:
    # 32 GT/s x 128/130 / 8 x 16 lanes = 63.015 GB/s; 16 GT/s and 8 lanes give a quarter.
    assert Samples(facts={"link_generation": "5", "link_width": "16"}).line_rate_bytes_per_s() == 63.015e9
    assert Samples(facts={"link_generation": "4", "link_width": "8"}).line_rate_bytes_per_s() == 15.754e9
    assert Samples(facts={"link_generation": "9", "link_width": "8"}).line_rate_bytes_per_s() is None
    assert Samples().line_rate_bytes_per_s() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "here: holds no samples"),
        ("# gpu: H200\n", "here: holds no samples"),
        ("kind,direction,bytes\n", "here: line 1: no column us_median"),
        (HEAD + "copy,h2d,maybe,4,3.6\n", "here: line 2: pinned is 'maybe'; accepted are True, False or nothing"),
        (HEAD + "copy,h2d,True,4,-1\n", "here: line 2: us_median is '-1'; a time in microseconds above zero is wanted"),
        (HEAD + "copy,h2d,True,4,nan\n", "us_median is 'nan'"),
        (HEAD + "copy,h2d,True,4\n", "us_median is empty"),
        (HEAD + "copy,h2d,True,4.5,3\n", "here: line 2: bytes is '4.5'; a whole number, zero or more, is wanted"),
        (
            HEAD + "copy,h2d,True,4,3\n\ncopy,h2d,True,4,3\n",
            "here: line 4: copy h2d pinned of 4 bytes stands in line 2 already",
        ),
        (HEAD + 'copy,h2d,True,"4,3\n', "here: line 2: not a row of a CSV"),
    ],
)
def test_what_is_no_sample_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(NetsimError, match=words.replace("(", r"\(")):
        parse_samples(text, "here")


def test_the_measured_copies_are_read_with_their_machine(repository: Path) -> None:
    samples = parse_samples((repository / "tests" / "data" / "h200_copies.csv").read_text(), "here")
    assert samples.facts["driver"] == "580.159.04"
    assert {str(key): len(rows) for key, rows in samples.series().items()} == {"copy h2d pinned": 24, "peer 0->1": 24}
