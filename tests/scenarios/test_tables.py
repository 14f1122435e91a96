from pathlib import Path

import pytest

from netsim.errors import ScenarioError
from scenarios.tables import MOST_SCORED, Entry, Measured, read_index, read_table

HEADER = "file,collective,gpu,n_gpus,n_nodes,hw_class,score\n"
COLUMNS = "size_bytes,time_us,algbw_GBps,busbw_GBps\n"


def entry(folder: Path, text: str, **cells: str) -> Entry:
    (folder / "table.csv").write_text(text)
    return Entry(folder / "table.csv", {"collective": "all_reduce", "n_gpus": "4", "n_nodes": "1"} | cells, "index.csv:2")


def table(folder: Path, text: str, **cells: str) -> list[Measured]:
    return read_table(entry(folder, COLUMNS + text, **cells))


def rows(times: dict[int, float]) -> str:
    return "".join(f"{size},{time},,\n" for size, time in times.items())


def scored(found: list[Measured]) -> list[int]:
    return [row.size_bytes for row in found if row.scored]


def test_an_index_has_an_entry_a_row(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_text(HEADER + "a.csv,all_reduce,H100,8,2,mine,yes\nb.csv,broadcast,H100,4,1,mine,no\n")
    first, second = read_index(tmp_path)
    assert (first.path, first.collective, first.ranks, first.hosts, first.scored) == (
        tmp_path / "a.csv",
        "all_reduce",
        8,
        2,
        True,
    )
    assert (second.kind, second.scored, second["no such column"]) == ("healthy", False, "")


def test_an_index_by_a_spreadsheet_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_bytes(
        ("\ufeff" + HEADER.replace("\n", "\r\n") + '"a, b.csv", all_reduce ,H100,8,2,mine,yes\r\n\r\n').encode()
    )
    (only,) = read_index(tmp_path)
    assert (only.path.name, only.collective, only.scored) == ("a, b.csv", "all_reduce", True)


def test_a_folder_without_an_index_is_told_what_one_needs(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"has no index.csv; it needs one row a table, with the columns file, collective"
    ):
        read_index(tmp_path)


def test_columns_that_an_index_lacks_are_named(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_text("file,collective,gpu,n_gpus\na.csv,all_reduce,H100,8\n")
    with pytest.raises(ScenarioError, match="index.csv: has no column n_nodes and no column hw_class"):
        read_index(tmp_path)


def test_an_index_without_rows_says_so(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_text(HEADER)
    with pytest.raises(ScenarioError, match="has no rows"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("all_reduce,H100,9,2", "index.csv:2: 9 GPUs do not spread evenly over 2 nodes"),
        ("all_reduce,H100,eight,1", "index.csv:2: n_gpus is 'eight'; it must be a whole number, one or more"),
        ("all_reduce,H100,0,1", "index.csv:2: n_gpus is '0'"),
        ("all_reduce,H100,8,", "index.csv:2: n_nodes is ''"),
        ("all_reduce,H100,8,²", "index.csv:2: n_nodes is '²'"),
        ("allreduce,H100,8,1", "index.csv:2: collective is 'allreduce'; accepted are all_reduce,"),
    ],
)
def test_a_row_that_makes_no_sense_says_so_when_it_is_asked(tmp_path: Path, cells: str, words: str) -> None:
    (tmp_path / "index.csv").write_text(HEADER + f"a.csv,{cells},mine,yes\n")
    (only,) = read_index(tmp_path)
    with pytest.raises(ScenarioError) as error:
        print(only.collective, only.ranks, only.hosts)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8,1.0,,\n16,2.0\n", "table.csv:3: has fewer cells (2) than columns (4)"),
        ("8,1.0,,,5\n", "table.csv:2: has more cells (5) than columns (4)"),
        ('8,1.0,,\n"16,2.0,,\n', "table.csv:3: no CSV"),
        ("8,1.0,,\neight,2.0,,\n", "table.csv:3: size_bytes is 'eight'; it must be a number, zero or more"),
        ("8,N/A,,\n", "table.csv:2: time_us is 'N/A'"),
        ("8,-1,,\n", "table.csv:2: time_us is '-1'"),
        ("8,nan,,\n", "table.csv:2: time_us is 'nan'"),
        ("8,,,inf\n", "table.csv:2: busbw_GBps is 'inf'"),
        ("8.5,1.0,,\n", "table.csv:2: size_bytes is '8.5'; it must be a whole number, at most"),
        ("1e300,1.0,,\n", "table.csv:2: size_bytes is '1e300'"),
        ("8,,,\n", "table.csv: has no row with a time"),
        ("", "table.csv: has no rows"),
    ],
)
def test_what_is_wrong_with_a_table_says_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as error:
        table(tmp_path, text)
    assert words in str(error.value)


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    mine = entry(tmp_path, "")
    mine.path.write_bytes(b"size_bytes,time_us\n8,\xff\n")
    with pytest.raises(ScenarioError, match="not UTF-8 text .* at byte 21"):
        read_table(mine)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot read .*gone.csv: does not exist"):
        read_table(Entry(tmp_path / "gone.csv", {"collective": "all_reduce", "n_gpus": "4"}))


def test_a_missing_time_follows_from_the_bus_bandwidth(tmp_path: Path) -> None:
    # 4 ranks: 1e6 B x 2 x 3/4 / (10 GB/s) = 150 us
    assert table(tmp_path, "1000000,,,10\n") == [Measured(1_000_000, pytest.approx(150.0), True)]


def test_the_factor_of_the_bus_bandwidth_is_the_collective_s(tmp_path: Path) -> None:
    # 4 ranks: 1e6 B x 3/4 / (10 GB/s) = 75 us
    assert table(tmp_path, "1000000,,,10\n", collective="all_gather")[0].time_us == pytest.approx(75.0)


def test_a_bus_bandwidth_below_1_gb_a_second_is_too_coarse_for_a_time(tmp_path: Path) -> None:
    found = table(tmp_path, "1000,,,0.99\n2000,,,1\n4000,,,1.5\n")
    assert [row.size_bytes for row in found] == [2000, 4000]


def test_a_time_that_is_given_counts_whatever_the_bandwidth(tmp_path: Path) -> None:
    assert table(tmp_path, "1000,7.5,,0.01\n") == [Measured(1000, 7.5, True)]


def test_rows_of_no_size_and_no_time_are_dropped(tmp_path: Path) -> None:
    assert [row.size_bytes for row in table(tmp_path, "0,5,,\n8,0,,\n16,6,,\n")] == [16]


def test_rows_come_in_the_order_of_sizes_and_of_two_of_one_size_the_first(tmp_path: Path) -> None:
    assert [(row.size_bytes, row.time_us) for row in table(tmp_path, "16,6,,\n8,5,,\n16,9,,\n")] == [(8, 5.0), (16, 6.0)]


@pytest.mark.parametrize(
    ("times", "first"),
    [
        ((15.0, 10.0, 10.0), 1),  # just 1.5 times the third is no warm-up
        ((15.1, 10.0, 10.0), 2),
        ((15.1, 15.1, 10.0), 4),
        ((10.0, 15.1, 10.0), 4),  # what came before a warm-up is one too
        ((15.1, 10.0), 1),  # nothing to hold them against
    ],
)
def test_the_first_two_rows_do_not_count_where_they_are_a_warm_up(tmp_path: Path, times, first: int) -> None:
    found = table(tmp_path, rows({2**at: time for at, time in enumerate(times)}))
    assert scored(found) == [size for size in (1, 2, 4)[: len(times)] if size >= first]


def test_up_to_12_rows_all_count(tmp_path: Path) -> None:
    assert len(scored(table(tmp_path, rows({2**at: 5.0 for at in range(MOST_SCORED)})))) == MOST_SCORED == 12


def test_of_more_rows_12_count_evenly_on_a_logarithmic_scale(tmp_path: Path) -> None:
    # 2^0 ... 2^33 in 11 equal steps: every third
    assert scored(table(tmp_path, rows({2**at: 5.0 for at in range(34)}))) == [2**at for at in range(0, 34, 3)]


def test_of_linear_steps_fewer_than_12_may_count_but_both_ends_do(tmp_path: Path) -> None:
    found = scored(table(tmp_path, rows(dict.fromkeys(range(100, 10300, 100), 5.0))))
    assert (found[0], found[-1]) == (100, 10_200)
    assert 6 <= len(found) <= MOST_SCORED
