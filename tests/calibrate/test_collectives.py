import pytest

from calibrate import measure as module
from calibrate.measure import TorchHardware
from calibrate.samples import SeriesKey
from calibrate.series import COLLECTIVES, all_series, measure
from tests.calibrate.standin import fake_torch


@pytest.mark.parametrize("launched", ["graph", "streamed"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_rank_0_answers_with_each_size_in_order(name: str, launched: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(2)
    monkeypatch.setattr(module, "loaded_torch", lambda: torch)
    found = list(TorchHardware(torch).collective(SeriesKey(name, launched), [8, 1 << 23, 1 << 27], 3))
    assert [(size, reps, len(times)) for size, reps, times in found] == [(8, 50, 3), (1 << 23, 20, 3), (1 << 27, 5, 3)]
    # A span of the stand-in is a millisecond.
    assert found[0][2] == pytest.approx([1e-3 / 50] * 3)


def test_a_rank_that_fails_is_a_note_and_the_other_series_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(2)
    monkeypatch.setattr(module, "loaded_torch", lambda: torch)

    def fail(*_given: object, **_named: object) -> None:
        raise RuntimeError("NCCL error: unhandled system error")

    torch.distributed.all_gather_into_tensor = fail
    asked = [series for series in all_series(2, collectives=True) if series.key.kind in COLLECTIVES]
    samples = measure(TorchHardware(torch), asked, trials=2)
    notes = [note for note in samples.notes if note.startswith("all_gather")]
    assert len(notes) == 2
    assert "RuntimeError: NCCL error: unhandled system error" in notes[0]
    assert {row.key.kind for row in samples.rows} == {*COLLECTIVES} - {"all_gather"}
