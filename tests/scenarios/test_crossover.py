from dataclasses import dataclass, replace

import pytest

from netsim.errors import ScenarioError
from scenarios import crossover
from scenarios.crossover import find_crossings, formula_crossing, size_grid
from scenarios.machine import Machine
from scenarios.run import Spec, run_spec

IDEAL = Spec(Machine("ideal-switch:8@450GB/s,1us"), "all_reduce", 0)
LINES = {"flat": (1.0, 1.0), "middle": (10.0, 0.1), "steep": (100.0, 0.001)}


@dataclass(frozen=True)
class Timed:
    time_us: float
    ranks: int = 8
    topology_digest: str = ""
    version: str = ""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace simulation by three straight lines, fixed + slope x size."""

    def timed(spec: Spec) -> Timed:
        fixed, slope = LINES[spec.algorithm]
        return Timed(fixed + slope * spec.size_bytes)

    monkeypatch.setattr(crossover, "run_spec", timed)
    monkeypatch.setattr(crossover, "_told", lambda spec, algorithm, size: Spec(spec.machine, "all_reduce", size, algorithm))


def test_a_grid_is_even_on_a_logarithmic_scale() -> None:
    assert size_grid(8, 64, 1) == [8, 16, 32, 64]
    assert size_grid(100, 400, 2) == [100, 141, 200, 283, 400]


@pytest.mark.parametrize("ends", [(0, 8), (8, 8), (16, 8)])
def test_a_grid_needs_two_sizes(ends: tuple[int, int]) -> None:
    with pytest.raises(ScenarioError):
        size_grid(*ends, 2)


def test_a_grid_without_end_is_refused() -> None:
    with pytest.raises(ScenarioError, match="1000000001 sizes, more than 100000"):
        size_grid(1, 2, 10**9)


@pytest.mark.usefixtures("lines")
def test_straight_lines_cross_where_they_do() -> None:
    survey = find_crossings(IDEAL, ["flat", "steep"], size_grid(1, 10**6, 1))
    (found,) = survey.crossings
    # 1 + N = 100 + 0.001 N at N = 99 / 0.999
    assert found.size_bytes == pytest.approx(99 / 0.999, rel=1e-9)
    assert (found.below, found.above, survey.first_winner) == ("flat", "steep", "flat")


@pytest.mark.usefixtures("lines")
def test_a_third_algorithm_that_wins_in_between_is_found_inside_one_step_of_the_grid() -> None:
    survey = find_crossings(IDEAL, ["flat", "middle", "steep"], [1, 10**6])
    # 1 + N = 10 + 0.1 N at N = 10; 10 + 0.1 N = 100 + 0.001 N at N = 90 / 0.099 = 909.09
    assert [(found.below, found.above) for found in survey.crossings] == [("flat", "middle"), ("middle", "steep")]
    assert [found.size_bytes for found in survey.crossings] == pytest.approx([10, 90 / 0.099], rel=1e-9)


@pytest.mark.usefixtures("lines")
def test_no_change_of_winner_is_no_crossing() -> None:
    survey = find_crossings(IDEAL, ["flat", "steep"], [1000, 2000])
    assert survey.crossings == ()
    assert survey.first_winner == "steep"


@pytest.mark.parametrize("algorithms", [[], ["ring"], ["ring", "ring"]])
def test_a_crossing_needs_two_different_algorithms(algorithms: list[str]) -> None:
    with pytest.raises(ScenarioError, match="two or more different"):
        find_crossings(IDEAL, algorithms, [8, 16])


def test_formulas_of_ring_and_double_binary_tree_cross_at_32_alpha_b() -> None:
    assert formula_crossing(IDEAL, "double_binary_tree", "ring", near_bytes=2e7) == pytest.approx(14.4e6, rel=1e-5)
    slower = Spec(Machine("ideal-switch:8@50GB/s,1us"), "all_reduce", 0)
    assert formula_crossing(slower, "double_binary_tree", "ring", near_bytes=1e3) == pytest.approx(1.6e6, rel=1e-5)


def test_no_formula_no_crossing_of_formulas() -> None:
    assert formula_crossing(IDEAL, "tree", "ring", near_bytes=1e6) is None
    cluster = Spec(Machine("hgx-h100", 2, "ndr400"), "all_reduce", 0)
    assert formula_crossing(cluster, "two_shot", "ring", near_bytes=1e6) is None


def test_a_formula_that_bends_crosses_where_its_own_branch_does() -> None:
    # alpha + 7 N/B = 2 alpha + 9/8 N/B (NVLS in one piece, small sizes) at N = alpha B / 5.875 = 76.6 kB
    found = formula_crossing(IDEAL, "one_shot", "nvls", near_bytes=1e5)
    assert found == pytest.approx(1e-6 * 450e9 / 5.875, rel=1e-4)


def test_the_single_tree_crosses_the_ring_near_two_and_a_half_megabytes() -> None:
    # 3 N/B and more against the ring's 14 us: the reference is about 2.5 MB.
    survey = find_crossings(IDEAL, ["ring", "tree"], size_grid(10**6, 8 * 10**6, 1))
    (found,) = survey.crossings
    assert found.size_bytes == pytest.approx(2.5e6, rel=0.15)


def test_channels_are_given_to_those_algorithms_that_have_them() -> None:
    survey = find_crossings(replace(IDEAL, channels=2), ["ring", "double_binary_tree"], [2**20, 2**21])
    alone = [
        run_spec(replace(IDEAL, size_bytes=2**20, algorithm=name, channels=count)).time_us
        for name, count in (("ring", 2), ("double_binary_tree", 1))
    ]
    assert survey.grid[0] == (2**20, tuple(alone))
