import pytest

from netsim.errors import ScenarioError
from scenarios.sizes import size_list


def test_a_factor_multiplies_up_to_the_last_size() -> None:
    assert size_list(8, 2**10, factor=4) == [8, 32, 128, 512]


def test_without_a_factor_a_step_is_added() -> None:
    assert size_list(2**20, 3 * 2**20) == [2**20, 2 * 2**20, 3 * 2**20]


def test_equal_ends_are_one_size_even_zero() -> None:
    assert size_list(0, 0, factor=2) == [0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 5), "below the smallest"),
        ((0, 8, 2), "never grow"),
        ((0, 8, 1, 0), "never grow"),
        ((0, 2**40, 1, 1), "more than"),
    ],
)
def test_an_empty_endless_or_huge_range_is_refused(arguments: tuple[int, ...], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        size_list(*arguments)
