"""Errors, stretches of rows off to one side, and sizes of half and of nine tenths of the bandwidth."""

import math
from pathlib import Path

import pytest

from scenarios.fit_parameters import CALL, TOPOLOGY, Parameter, write_point
from scenarios.fit_predict import Simulated, Task
from scenarios.fit_report import errors_by_band, errors_by_series, misfits, reach
from scenarios.fit_search import Outcome
from scenarios.fit_series import Series
from scenarios.machine import Machine
from scenarios.run import Spec

SPEC = Spec(Machine("ideal-switch:8@230GB/s,2us"), "all_reduce", 0, algorithm="ring")


def made(name: str, off: dict[int, float], ranks: int = 8) -> tuple[Series, list[Simulated | None]]:
    """Return a series of times of 100 us, and what is simulated: as much more as is said."""
    series = Series(name, SPEC, ranks, tuple((size, 100.0) for size in off))
    return series, [None if math.isnan(more) else Simulated(100 * (1 + more), "ring", "ideal", 1) for more in off.values()]


def outcome_of(*pairs: tuple[Series, list[Simulated | None]]) -> tuple[list[Series], Outcome]:
    series = [one for one, _ in pairs]
    before = [[Simulated(200.0, "ring", "ideal", 1) for _ in one.rows] for one in series]
    return series, Outcome((), before, [after for _, after in pairs], 3)


def test_errors_are_of_each_log_and_of_all_with_each_log_weighing_the_same() -> None:
    one = made("a", {8: 0.02, 16: -0.02, 32: 0.5})
    two = made("b", {8: 0.1, 64: math.nan})
    found = errors_by_series(*outcome_of(one, two))
    assert [(error.name, error.rows, error.missing) for error in found] == [("a", 3, 0), ("b", 1, 1), ("all", 4, 1)]
    assert found[0].before == pytest.approx((1.0, 1.0))
    assert found[0].after == pytest.approx((0.02, 0.5))


def test_errors_are_of_bands_of_sizes_too() -> None:
    found = errors_by_band(*outcome_of(made("a", {8: 0.02, 2**20: 0.3, 2**30: 0.1})))
    assert [error.name for error in found] == ["below 32 KiB", "1 MiB to 64 MiB", "64 MiB and more"]


def test_neighbours_off_to_one_side_are_found_by_size() -> None:
    (one,) = misfits(*outcome_of(made("a", {8: 0.01, 16: 0.06, 32: 0.07, 64: 0.08, 128: -0.06, 256: 0.06})))
    assert (one.where, one.first, one.last, one.rows) == ("a", "16 B", "64 B", 3)
    assert one.worst == pytest.approx(0.08)


def test_and_by_the_number_of_gpus_where_logs_are_short() -> None:
    pairs = [made(f"p{ranks}", {8: off}, ranks) for ranks, off in ((4, 0.01), (3, -0.2), (2, -0.4), (8, 0.1))]
    (one,) = misfits(*outcome_of(*pairs))
    assert (one.where, one.first, one.last) == ("all_reduce by ring of 8 B", "2 GPUs", "3 GPUs")


def test_single_rows_off_and_small_errors_are_no_stretch() -> None:
    assert not misfits(*outcome_of(made("a", {8: 0.3, 16: -0.3, 32: 0.3, 64: 0.04, 128: 0.04, 256: 0.04})))


def test_half_the_bandwidth_of_a_ring_is_reached_at_p_alpha_b(tmp_path: Path) -> None:
    # NVIDIA/nccl #583: 8 GPUs, 2 us, 230 GB/s: half at p a B = 3.68 MB, nine tenths at nine times that.
    series, after = made("a", dict.fromkeys((8, 2**20, 2**30), 0.0))
    found = reach(series, after, Task(()))
    assert found is not None
    assert found.half_bytes == pytest.approx(3.68e6, rel=0.011)
    assert found.ninety_bytes == pytest.approx(33.1e6, rel=0.011)
    assert found.empty_us == pytest.approx(28, rel=1e-3)
    assert found.busbw_GBps == pytest.approx(230, rel=1e-3)


def test_a_constant_moves_those_sizes(tmp_path: Path) -> None:
    parameters = [Parameter(TOPOLOGY, ("latency",)), Parameter(CALL, ("constant",), start_s=28e-6)]
    series, after = made("a", dict.fromkeys((8, 2**20, 2**30), 0.0))
    found = reach(series, after, Task((), write_point(parameters, [0.0, 0.0], tmp_path)))
    assert found is not None
    # As much again beside 14 steps of 2 us.
    assert found.half_bytes == pytest.approx(2 * 3.68e6, rel=0.011)


def test_a_log_of_a_size_or_two_says_nothing_of_it() -> None:
    assert reach(*made("a", {8: 0.0, 16: 0.0}), Task(())) is None
