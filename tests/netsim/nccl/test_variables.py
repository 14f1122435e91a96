from collections.abc import Callable

import pytest

from netsim.errors import NetsimError
from netsim.nccl.variables import HARMLESS, MISSING, USED, check_name, flag, level, number


def one_sentence(call: Callable[[], object]) -> str:
    with pytest.raises(NetsimError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_every_variable_stands_in_one_table_only() -> None:
    assert len({*USED, *MISSING, *HARMLESS}) == len(USED) + len(MISSING) + len(HARMLESS)


@pytest.mark.parametrize(
    ("text", "value"), [("4096", 4096), ("0x1000", 4096), ("010", 8), ("0", 0), ("+5", 5), (" 7 ", 7), ("", 99)]
)
def test_numbers_are_read_as_nccl_reads_them(text: str, value: int) -> None:
    assert number({"NCCL_BUFFSIZE": text}, "NCCL_BUFFSIZE", 99, 0, 10_000) == value


@pytest.mark.parametrize("text", ["-1", "10001", "1e3", "x", "0x", "08", "1 2", "٣", "9" * 40])
def test_other_numbers_are_refused(text: str) -> None:
    said = one_sentence(lambda: number({"NCCL_BUFFSIZE": text}, "NCCL_BUFFSIZE", 99, 0, 10_000))
    assert "is not accepted; it is a whole number from 0 to 10000" in said


def test_levels_have_names_and_old_numbers() -> None:
    # LOC 0, NVL 1, NVB 2, C2C 3, PIX 4, PXB 5; the old 2 is PXB, all from 4 on are SYS.
    assert [level({"A": text}, "A", 7) for text in ("LOC", "pxb", "2", "")] == [0, 5, 5, 7]
    assert level({"A": "4"}, "A", 0) == level({"A": "9" * 30}, "A", 0) == level({"A": "SYS"}, "A", 0)


def test_a_level_that_is_none_is_refused() -> None:
    assert "A='FAR' is no path type; accepted are LOC, NVL" in one_sentence(lambda: level({"A": "FAR"}, "A", 0))


def test_flags_are_zero_or_one() -> None:
    assert [flag({"A": text}, "A", True) for text in ("0", "1", "")] == [False, True, True]
    assert "whole number from 0 to 1" in one_sentence(lambda: flag({"A": "2"}, "A", True))


def test_names_of_tests_and_plugins_are_known_by_their_beginning() -> None:
    check_name("NCCL_TESTS_SPLIT_MASK", "here")
    check_name("NCCL_OFI_ANYTHING", "here")
    assert one_sentence(lambda: check_name("NCCL_XYZZY_PLUGH", "here")) == (
        "here: 'NCCL_XYZZY_PLUGH' is no variable of NCCL; accepted are NCCL's own names, such as NCCL_ALGO"
    )
