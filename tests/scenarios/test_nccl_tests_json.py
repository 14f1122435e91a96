"""The JSON of nccl-tests says what the log of the same run says."""

import json
from pathlib import Path

import pytest

from netsim.nccl.log import parse_log
from scenarios.logged import Asked, collective_of, options_of, read_logged
from scenarios.measured import logged_times, read_measured
from scenarios.nccl_tests_json import as_log


@pytest.fixture
def path(repository: Path) -> Path:
    return repository / "tests" / "data" / "nccl_tests_all_gather.json"


def test_sizes_and_times_are_those_out_of_place(path: Path) -> None:
    # The row of 0 bytes takes no part.
    assert read_measured(path) == [(1048576, 21.57), (67108864, 158.41), (1073741824, 1984.96)]


def test_release_ranks_variables_and_calls_are_read(path: Path) -> None:
    logged = read_logged(path)
    assert (str(logged.log.version), logged.log.ranks, dict(logged.log.environment)) == (
        "2.28.9",
        2,
        {"NCCL_NVLS_ENABLE": "0"},
    )
    assert collective_of(logged, Asked()) == "all_gather"
    found = options_of(logged, Asked(), [])
    assert (found.launch, found.gpus_per_process, found.registered, found.datatype) == ("stream", 2, False, "float")


@pytest.mark.parametrize(("flag", "buffers"), [("0", (False, False)), ("1", (True, False)), ("2", (False, True))])
def test_how_buffers_were_registered_is_read(flag: str, buffers: tuple[bool, bool], path: Path, tmp_path: Path) -> None:
    other = tmp_path / "run.json"
    other.write_text(path.read_text(encoding="utf-8").replace('"-R", "0"', f'"-R", "{flag}"'), encoding="utf-8")
    found = options_of(read_logged(other), Asked(), [])
    assert (found.registered, found.windows) == buffers
    assert options_of(read_logged(other), Asked(registered=False), []).registered is False


def test_a_torn_file_keeps_its_whole_rows(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    torn = text[: text.index("1984.96")]
    assert logged_times(as_log(torn)) == [(1048576, 21.57), (67108864, 158.41)]
    assert parse_log(as_log(torn)).ranks == 2


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '{"a": 1}', "{" * 5000, "8 2 float sum -1 9.5 0.00 0.00 N/A"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert as_log(text) == text


def test_what_is_missing_or_of_another_kind_is_passed_over() -> None:
    report = {
        "results": [1, {"size": 8}, {"out_of_place": None}],
        "config": 3,
        "env": [4],
        "args": None,
        "nccl_version": "x",
    }
    assert as_log(json.dumps(report)) == ""
