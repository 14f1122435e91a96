import pytest

from calibrate.samples import Samples, SeriesKey
from calibrate.series import COLLECTIVES, all_series, measure
from netsim.errors import NetsimError
from tests.calibrate.standin import ALPHA_S, BYTES_PER_S, FakeClock


def test_every_point_is_measured_once_with_its_time_a_copy() -> None:
    asked = all_series(1)
    samples = measure(FakeClock(), asked, trials=3)
    assert len(samples.rows) == sum(len(series.sizes) for series in asked)
    for row in samples.rows:
        assert row.median_s == pytest.approx(ALPHA_S + row.size_bytes / BYTES_PER_S)
        assert 2 <= row.reps <= 200
    assert samples.notes == ()


def test_small_copies_are_many_and_large_ones_few() -> None:
    (series, *_) = all_series(1)
    rows = measure(FakeClock(), [series]).rows
    # 5 ms of copies a trial: 200 at most of 8.25 us, two at least of 20 ms.
    assert rows[0].reps == 200
    assert rows[-1].reps == 2
    assert all(row.trials == 15 for row in rows)


def test_all_that_is_measured_in_one_trial_after_another_takes_less_than_four_minutes() -> None:
    clock, spent_s = FakeClock(2), 0.0
    for row in measure(clock, all_series(2)).rows:
        spent_s += row.median_s * row.reps * row.trials
    assert spent_s < 60  # on a slow link of 13.45 GB/s


def test_a_second_gpu_brings_peers_and_collectives() -> None:
    kinds = {series.key.kind for series in all_series(2, collectives=True)} - {series.key.kind for series in all_series(1)}
    assert kinds == {"peer", *COLLECTIVES}
    assert all_series(1, collectives=True) == all_series(1)
    rows = measure(FakeClock(2), all_series(2, collectives=True), trials=3).rows
    assert {row.key.direction for row in rows if row.key.kind == "all_reduce"} == {"graph", "streamed"}


def test_a_series_that_fails_is_a_note_and_the_others_go_on() -> None:
    samples = measure(FakeClock(fails="copy d2h pinned"), all_series(1), trials=2)
    assert samples.notes == ("copy d2h pinned: RuntimeError: CUDA error: out of luck",)
    whole = sum(len(series.sizes) for series in all_series(1))
    assert len(samples.rows) == whole - len(all_series(1)[1].sizes)


def test_an_interrupted_run_keeps_each_point_and_the_next_goes_on_there() -> None:
    kept: list[Samples] = []
    with pytest.raises(KeyboardInterrupt):
        measure(FakeClock(stops_after=30), all_series(1), keep=kept.append, trials=2, facts={"date": "2026-11-29"})
    assert len(kept[-1].rows) == 30
    again = FakeClock()
    samples = measure(again, all_series(1), kept[-1], trials=2, facts={"date": "2026-12-01"})
    assert len(again.prepared) == len(samples.rows) - 30
    assert samples.rows[:30] == kept[-1].rows
    assert samples.facts["date"] == "2026-11-29"


def test_samples_of_another_machine_are_not_completed() -> None:
    had = measure(FakeClock(gpu="one"), all_series(1)[:1], trials=2)
    with pytest.raises(
        NetsimError, match="the samples that are there have gpu 'one', and here it is 'two'; give another file"
    ):
        measure(FakeClock(gpu="two"), all_series(1), had)


def test_series_are_told_as_they_begin() -> None:
    told: list[tuple[int, str]] = []
    measure(FakeClock(), all_series(1)[:2], told=lambda *words: told.append(words), trials=2)
    assert told == [(1, "copy h2d pinned"), (2, "copy d2h pinned")]
    assert str(SeriesKey("copy", "local")) == "copy local"
