import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from scenarios.hardware import SetUp
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec
from scenarios.scores import BANDS, band, crossings, quantile, score, scores_by
from scenarios.tables import Entry, Measured
from scenarios.validate import Held, Point

ROW = run_spec(Spec(Machine("hgx-h100", gpus_per_node=2), "all_reduce", 1024, algorithm="ring", protocol="ll"))


def point(
    predicted_us: float, measured_us: float, size: int = 1024, model_us: float | None = None, *, counts: bool = True
) -> Point:
    return Point(size, measured_us, counts, replace(ROW, size_bytes=size, time_us=predicted_us, nccl_model_us=model_us))


def held(*points: Point, name: str = "table", protocol: str = "ll", algorithm: str = "ring", **cells: str) -> Held:
    columns = {"collective": "all_reduce", "in_place": "no", "source": "mine", "notes": "", "score": "yes"}
    entry = Entry(Path(f"{name}.csv"), columns | cells)
    found = SetUp(Machine("hgx-h100"), NcclOptions(), algorithm, protocol)
    return Held(entry, found, points, tuple(Measured(one.size_bytes, one.measured_us) for one in points))


def curve(name: str, measured: dict[int, float], predicted: dict[int, float] | None = None, **more: str) -> Held:
    told = measured if predicted is None else predicted
    return held(*(point(told[size], time, size) for size, time in measured.items()), name=name, **more)


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([(5.0, 1.0)], 0.5, 5.0),
        ([(1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)], 0.5, 2.0),
        ([(1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)], 0.51, 3.0),
        ([(4.0, 9.0), (1.0, 1.0)], 0.1, 1.0),
        ([(4.0, 9.0), (1.0, 1.0)], 0.11, 4.0),
        ([(1.0, 0.1)] * 9 + [(2.0, 0.1)], 0.9, 1.0),  # though 9 x 0.1 is not 0.9 in floats
        ([(1.0, 1.0), (2.0, 1.0)], 1.0, 2.0),
    ],
)
def test_a_quantile_is_the_value_that_a_share_of_the_weights_keeps_to(values, share: float, found: float) -> None:
    assert quantile(values, share) == found


def test_the_quantile_of_nothing_is_no_number() -> None:
    assert math.isnan(quantile([], 0.5))


def test_an_error_is_predicted_over_measured_less_one() -> None:
    one = point(12.0, 10.0, model_us=5.0)
    assert (one.error, one.model_error) == (pytest.approx(0.2), pytest.approx(-0.5))
    assert point(12.0, 10.0).model_error is None


def test_every_table_weighs_the_same_however_many_rows_it_has() -> None:
    long = held(*(point(11.0, 10.0) for _ in range(10)))
    short = [held(point(15.0, 10.0)) for _ in range(2)]
    found = score("all", [(one, one.points) for one in (long, *short)])
    assert found is not None
    # Two of three tables are off by a half, though ten of twelve rows are off by a tenth.
    assert (found.tables, found.rows, found.median) == (3, 12, pytest.approx(0.5))


def test_the_bias_keeps_its_sign_and_the_median_does_not() -> None:
    one = held(point(8.0, 10.0), point(9.0, 10.0), point(12.0, 10.0))
    found = score("all", [(one, one.points)])
    assert found is not None
    assert (found.bias, found.median, found.ninety) == (pytest.approx(-0.1), pytest.approx(0.2), pytest.approx(0.2))


def test_nccl_s_model_is_scored_on_the_rows_where_it_has_a_figure_and_we_on_the_same() -> None:
    one = held(point(11.0, 10.0, model_us=15.0), point(20.0, 10.0))
    found = score("all", [(one, one.points)])
    assert found is not None
    assert found.model == (pytest.approx(0.5), pytest.approx(0.5))
    assert found.on_models_rows == (pytest.approx(0.1), pytest.approx(0.1))


def test_without_a_figure_of_the_model_there_is_no_score_of_it() -> None:
    found = score("all", [(held(), [point(11.0, 10.0)])])
    assert found is not None
    assert (found.model, found.on_models_rows) == (None, None)


def test_no_points_have_no_score() -> None:
    assert score("all", [(held(), ())]) is None


def test_groups_come_in_the_order_of_their_first_point_and_hold_points_that_count() -> None:
    tables = [held(point(1.0, 1.0), hw_class="b"), held(point(1.0, 1.0), point(9.0, 1.0, counts=False), hw_class="a")]
    found = scores_by(tables, lambda one, _: one.entry["hw_class"])
    assert [(one.name, one.rows, one.ninety) for one in found] == [("b", 1, 0.0), ("a", 1, 0.0)]


def test_points_without_a_group_are_in_none() -> None:
    tables = [held(point(1.0, 1.0, 8), point(1.0, 1.0, 16))]
    assert [one.rows for one in scores_by(tables, lambda _, one: None if one.size_bytes == 8 else "large")] == [1]


def test_a_table_weighs_the_same_in_a_group_that_has_one_of_its_rows() -> None:
    large = held(point(11.0, 10.0, 1 << 26), *(point(19.0, 10.0, 8) for _ in range(9)))
    other = held(point(13.0, 10.0, 1 << 26))
    (found, _) = scores_by([large, other], lambda _, one: band(one.size_bytes))
    assert (found.rows, found.median, found.ninety) == (2, pytest.approx(0.1), pytest.approx(0.3))


def test_bands_follow_one_another_and_leave_out_no_size() -> None:
    assert BANDS[0][0] == 0
    assert all(low[1] == high[0] for low, high in pairwise(BANDS))
    assert [band(size) for size in ((1 << 15) - 1, 1 << 15, 1 << 50)] == [
        "below 32 KiB",
        "32 KiB to 1 MiB",
        "64 MiB and more",
    ]


def test_a_crossing_lies_where_the_ratio_of_times_is_one_on_logarithmic_axes() -> None:
    # ln(LL / Simple) is ln(1/2) at 1 KiB and ln 8 at 16 KiB: a quarter of the way, 2 KiB
    slow, fast = {1024: 10.0, 16384: 80.0}, {1024: 20.0, 16384: 10.0}
    (found,) = crossings([curve("ll", slow), curve("simple", fast, protocol="simple")])
    assert (found.first, found.second) == ("ll.csv", "simple.csv")
    assert found.measured_bytes == pytest.approx(2048)
    assert found.factor == pytest.approx(1.0)


def test_the_first_of_a_crossing_is_the_faster_below_in_whatever_order_tables_come() -> None:
    slow, fast = {1024: 10.0, 16384: 80.0}, {1024: 20.0, 16384: 10.0}
    (found,) = crossings([curve("simple", fast, protocol="simple"), curve("ll", slow)])
    assert (found.first, found.second, found.measured_bytes) == ("ll.csv", "simple.csv", pytest.approx(2048))


def test_the_factor_is_predicted_over_measured() -> None:
    measured = curve("ll", {1024: 10.0, 16384: 80.0}, {1024: 10.0, 16384: 20.0})
    # predicted: ln(1/2) and ln 2, half way, 4 KiB
    (found,) = crossings([measured, curve("simple", {1024: 20.0, 16384: 10.0}, protocol="simple")])
    assert (found.predicted_bytes, found.factor) == (pytest.approx(4096), pytest.approx(2.0))


def test_predictions_that_cross_the_other_way_or_not_at_all_are_no_match() -> None:
    measured = curve("ll", {1024: 10.0, 16384: 80.0}, {1024: 30.0, 16384: 5.0})
    (found,) = crossings([measured, curve("simple", {1024: 20.0, 16384: 10.0}, protocol="simple")])
    assert (found.predicted_bytes, found.factor) == (None, None)


def test_tables_that_agree_for_a_while_cross_in_the_middle_of_it() -> None:
    times = {1: 1.0, 2: 2.0, 4: 2.0, 8: 2.0, 16: 4.0}
    (found,) = crossings([curve("ll", times), curve("simple", {1: 2.0, 2: 2.0, 4: 2.0, 8: 2.0, 16: 2.0}, protocol="simple")])
    assert found.measured_bytes == pytest.approx(4.0)


def test_tables_that_touch_do_not_cross() -> None:
    assert (
        crossings([curve("ll", {1: 1.0, 2: 2.0, 4: 1.0}), curve("simple", {1: 2.0, 2: 2.0, 4: 2.0}, protocol="simple")])
        == []
    )


CROSSING = ({1: 1.0, 4: 4.0}, {1: 2.0, 4: 2.0})


@pytest.mark.parametrize(
    "more",
    [
        {"protocol": "ll"},
        {"protocol": "auto"},
        {"algorithm": "auto"},
        {"in_place": "yes"},
        {"source": "theirs"},
        {"collective": "broadcast"},
        {"notes": "MTU 1500"},
    ],
    ids=lambda more: " ".join(more),
)
def test_only_tables_that_differ_in_what_was_forced_and_in_nothing_else_are_held_together(more: dict[str, str]) -> None:
    low, high = CROSSING
    assert len(crossings([curve("ll", low), curve("simple", high, protocol="simple")])) == 1
    assert crossings([curve("ll", low), curve("other", high, **({"protocol": "simple"} | more))]) == []


def test_what_an_index_says_of_the_score_keeps_no_tables_apart() -> None:
    low, high = CROSSING
    notes = ({"notes": f"MTU 1500; score yes: {rows} rows"} for rows in (8, 9))
    assert len(crossings([curve("ll", low, **next(notes)), curve("simple", high, protocol="simple", **next(notes))])) == 1


def test_a_sweep_in_finer_steps_is_held_against_its_like_only() -> None:
    coarse, fine = curve("coarse", {1: 1.0, 4: 4.0}), curve("fine", {1: 2.0, 2: 2.0, 4: 2.0}, protocol="simple")
    assert crossings([coarse, fine]) == []
    assert len(crossings([curve("fine ll", {1: 1.0, 2: 1.5, 4: 4.0}), fine])) == 1


def test_a_shorter_sweep_of_the_same_steps_is_held_together_where_both_are() -> None:
    long, short = curve("long", {1: 1.0, 2: 1.0, 4: 4.0, 8: 8.0}), curve("short", {2: 2.0, 4: 2.0}, protocol="simple")
    (found,) = crossings([long, short])
    assert 2 < found.measured_bytes < 4


def test_sweeps_that_do_not_overlap_have_no_crossing() -> None:
    assert crossings([curve("low", {1: 1.0, 2: 2.0}), curve("high", {4: 1.0, 8: 3.0}, protocol="simple")]) == []
