from pathlib import Path

import pytest

from netsim.errors import ScenarioError
from scenarios.measured import read_measured


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
