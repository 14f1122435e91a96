from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.hardware import SetUp
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec
from scenarios.switches import Kink, kinds, kinks, kinks_in_all, switches
from scenarios.tables import Entry, Measured
from scenarios.validate import Held, Point

ROW = run_spec(Spec(Machine("hgx-h100", gpus_per_node=2), "all_reduce", 1024, algorithm="ring", protocol="ll"))
SIZES = [2**at for at in range(10, 18)]
KINKED = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
"""Twice as long from 16 KiB on."""


def rows(times: list[float], sizes: list[int] = SIZES) -> list[Measured]:
    return [Measured(size, time) for size, time in zip(sizes, times, strict=True)]


def held(protocols: dict[int, str], times: list[float] = KINKED, forced: str = "auto") -> Held:
    points = [Point(size, 1.0, True, replace(ROW, protocol=protocol)) for size, protocol in protocols.items()]
    found = SetUp(Machine("hgx-h100"), NcclOptions(), forced, forced)
    # Of sends and receives NCCL's model is not asked, so that what was simulated counts.
    told = {"collective": "sendrecv", "n_gpus": "8", "n_nodes": "1"}
    return Held(Entry(Path("table.csv"), told), found, tuple(points), tuple(rows(times)))


def test_a_kink_is_a_step_that_is_steeper_than_those_on_both_sides() -> None:
    assert kinks(rows(KINKED)) == [Kink(8192, 16384, 1.0)]


def test_a_curve_that_only_bends_upwards_has_no_kink() -> None:
    assert kinks(rows([10 + size / 4096 for size in SIZES])) == []


def test_noise_makes_no_kink() -> None:
    # 2 % up and down: slopes differ by 2 ln(1.02) / ln 2 = 0.06
    assert kinks(rows([1.0, 1.02, 1.0, 1.02, 1.0, 1.02, 1.0, 1.02])) == []


@pytest.mark.parametrize("step", [1024, 2**12])
def test_only_steps_of_about_a_doubling_are_looked_at(step: int) -> None:
    sizes = [65536 + step * at for at in range(8)]
    assert kinks(rows(KINKED, sizes)) == []


def test_a_table_of_fewer_than_four_rows_has_no_kink() -> None:
    assert kinks(rows([1.0, 1.0, 2.0], SIZES[:3])) == []


def test_a_switch_lies_between_the_simulated_sizes_and_has_the_kink_near_it() -> None:
    (found,) = switches([held({1024: "ll", 8192: "ll", 16384: "simple", 131072: "simple"})])
    assert (found.file, found.below, found.above) == ("table.csv", "ring ll", "ring simple")
    assert (found.from_bytes, found.to_bytes, found.kink) == (8192, 16384, Kink(8192, 16384, 1.0))
    assert found.together


def test_a_kink_beside_the_predicted_step_is_near_but_not_together() -> None:
    (found,) = switches([held({8192: "ll", 16384: "ll", 32768: "simple"})])
    assert found.kink is not None
    assert not found.together


def test_a_kink_far_from_a_switch_is_not_its() -> None:
    (found,) = switches([held({32768: "ll", 65536: "simple"})])
    assert (found.kink, found.together) == (None, False)


def test_a_kink_is_that_of_the_nearest_change_only() -> None:
    first, second = switches([held({4096: "ll", 8192: "ll128", 16384: "simple"})])
    assert (first.kink, second.kink) == (None, Kink(8192, 16384, 1.0))


def test_kinks_of_tables_in_which_nccl_chose_are_counted_wherever_they_are() -> None:
    assert kinks_in_all([held({1024: "ll"}), held({32768: "ll", 65536: "simple"}), held({1024: "ll"}, forced="ring")]) == 2


def test_without_a_change_there_is_no_switch() -> None:
    assert switches([held({1024: "ll", 131072: "ll"})]) == []


def test_what_was_forced_does_not_switch() -> None:
    assert switches([held({1024: "ll", 131072: "simple"}, forced="ring")]) == []


def test_tables_without_a_prediction_have_no_switch() -> None:
    assert switches([Held(Entry(Path("table.csv"), {}), remarks=("no rule",))]) == []


def test_where_the_model_chooses_every_row_is_asked_and_not_only_those_simulated() -> None:
    told = {"collective": "all_reduce", "n_gpus": "8", "n_nodes": "1"}
    sizes = [2**at for at in range(10, 26)]
    found = SetUp(Machine("hgx-h100"), NcclOptions())
    one = Held(Entry(Path("table.csv"), told), found, (Point(1024, 1.0, True, ROW),), tuple(rows([1.0] * 16, sizes)))
    (change,) = switches([one])
    assert change.name == "ring ll -> nvls simple"
    assert change.to_bytes == 2 * change.from_bytes == 2**21


def test_changes_are_counted_by_what_changes_with_how_far_they_are_off() -> None:
    here = held({8192: "ll", 16384: "simple"})
    beside = held({16384: "ll", 32768: "simple"})
    nowhere = held({8192: "ll", 16384: "simple"}, times=[1.0] * 8)
    (kind,) = kinds(switches([here, beside, nowhere]))
    assert (kind.name, kind.changes, kind.near, kind.together) == ("ring ll -> ring simple", 3, 2, 1)
    assert kind.factor == pytest.approx(2**0.5)  # the median of one and two
