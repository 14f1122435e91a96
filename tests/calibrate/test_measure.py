import sys
from importlib.util import find_spec

import pytest

from calibrate import measure as module
from calibrate.measure import TorchHardware, open_hardware
from calibrate.samples import SeriesKey
from calibrate.series import all_series, measure
from netsim.errors import NetsimError
from tests.calibrate.standin import fake_torch


def test_every_series_walks_through_torch() -> None:
    # Every span of the stand-in lasts a millisecond, whatever is queued in it.
    samples = measure(TorchHardware(fake_torch(2)), all_series(2), trials=2)
    (note,) = samples.notes
    assert note.startswith("nvidia-smi told neither driver nor link: ")
    assert samples.facts["nccl"] == "2.28.9"
    for row in samples.rows:
        if row.key.kind != "copy_sync":
            assert row.median_s == pytest.approx(1e-3 / row.reps)


def test_a_cpu_that_cannot_keep_ahead_is_a_remark_after_longer_head_starts() -> None:
    torch = fake_torch()
    spins: list[int] = []
    torch.cuda._sleep = spins.append
    torch.cuda.Event.query = lambda _event: True
    try:
        hardware = TorchHardware(torch)
        hardware.prepare(SeriesKey("copy", "h2d", True), 4)(100)
    finally:
        torch.cuda.Event.query = lambda _event: False
    # 105 calls of 20 us at 2.2 GHz: 4.62 million cycles, doubled four times.
    assert spins == [4_620_000 * factor for factor in (1, 2, 4, 8, 16)]
    assert hardware.remarks() == [
        "copy h2d pinned: the CPU could not queue 100 calls ahead of the GPU, so times may be the CPU's"
    ]


@pytest.mark.parametrize("key", [SeriesKey("copy", "h2d", False), SeriesKey("copy_streamed", "h2d", True)], ids=str)
def test_what_the_cpu_feeds_itself_gets_no_head_start(key: SeriesKey) -> None:
    torch = fake_torch()
    torch.cuda._sleep = lambda _cycles: pytest.fail("nothing is queued ahead here")
    assert TorchHardware(torch).prepare(key, 4)(10) == pytest.approx(1e-3)


def test_without_torch_it_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NetsimError, match="measure needs torch .*calibrate fit` .* `netsim diagnose` its logs"):
        open_hardware()


def test_without_a_gpu_it_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch()
    torch.cuda.is_available = lambda: False
    monkeypatch.setattr(module, "loaded_torch", lambda: torch)
    with pytest.raises(
        NetsimError, match="measure needs an NVIDIA GPU, and torch 2 finds none; without one, .*netsim diagnose"
    ):
        open_hardware()


@pytest.mark.gpu
def test_a_gpu_copies_pinned_memory_faster_the_more_there_is() -> None:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    try:
        hardware = open_hardware()
    except NetsimError as reason:
        pytest.skip(str(reason))
    small, large = (hardware.prepare(SeriesKey("copy", "h2d", True), size) for size in (4096, 1 << 26))
    small(3), large(3)
    assert 1e-7 < small(50) / 50 < 1e-4 < large(5) / 5
    assert hardware.facts()["gpu"]
