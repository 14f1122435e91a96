"""A torch and a clock that stand in for hardware: enough of their methods to walk through every line of `measure`."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from calibrate.samples import SeriesKey

ALPHA_S, BYTES_PER_S = 8.25e-6, 13.45e9


class FakeClock:
    """Hardware whose copies cost alpha + n / B, and which fails or is interrupted where asked to."""

    def __init__(self, gpus: int = 1, *, fails: str = "", stops_after: int = 10**9, gpu: str = "made up") -> None:
        self.gpus = gpus
        self.prepared: list[tuple[str, int]] = []
        self._fails, self._stops_after, self._gpu = fails, stops_after, gpu

    def facts(self) -> dict[str, str]:
        return {"gpu": self._gpu, "gpus": str(self.gpus), "torch": "2", "link_generation": "4", "link_width": "8"}

    def remarks(self) -> list[str]:
        return []

    def prepare(self, key: SeriesKey, size_bytes: int) -> Callable[[int], float]:
        if len(self.prepared) >= self._stops_after:
            raise KeyboardInterrupt
        if str(key) == self._fails:
            raise RuntimeError("CUDA error:\nout of luck")
        self.prepared.append((str(key), size_bytes))
        return lambda reps: reps * (ALPHA_S + size_bytes / BYTES_PER_S)

    def collective(self, key: SeriesKey, sizes: Sequence[int], trials: int) -> Iterator[tuple[int, int, list[float]]]:
        for size in sizes:
            yield size, 20, [ALPHA_S + size / BYTES_PER_S] * trials


class _Tensor:
    def __init__(self, size: int) -> None:
        self.size = size

    def __getitem__(self, part: slice) -> "_Tensor":
        return _Tensor(part.stop)

    def copy_(self, source: "_Tensor", non_blocking: bool = False) -> None:
        assert source.size == self.size

    def add_(self, _more: int) -> None:
        pass


class _Event:
    def __init__(self, enable_timing: bool = False) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "_Event") -> float:
        return 1.0


class _Stream(_Event):
    def __init__(self, device: int = 0) -> None:
        pass

    def wait_event(self, event: _Event) -> None:
        pass

    def wait_stream(self, stream: "_Stream") -> None:
        pass


class _Graph:
    def replay(self) -> None:
        pass

    def reset(self) -> None:
        pass


class _Process(threading.Thread):
    """A process that is a thread; it cannot be ended, so what it does must end by itself."""

    def terminate(self) -> None:
        pass


def _nothing(*_given: Any, **_named: Any) -> None:
    pass


def fake_torch(gpus: int = 1) -> Any:
    """Return an object with the part of torch's face that `measure` uses; every span lasts a millisecond."""
    cuda = SimpleNamespace(
        device_count=lambda: gpus,
        set_device=lambda _gpu: None,
        synchronize=lambda: None,
        get_device_name=lambda _gpu: "made up",
        get_device_properties=lambda _gpu: SimpleNamespace(uuid="1234"),
        nccl=SimpleNamespace(version=lambda: (2, 28, 9)),
        current_stream=lambda _gpu=0: _Stream(),
        Event=_Event,
        Stream=_Stream,
        CUDAGraph=_Graph,
        stream=lambda _stream: contextlib.nullcontext(),
        graph=lambda _graph, capture_error_mode: contextlib.nullcontext(),
        _sleep=lambda cycles: None,
    )
    names = ("init_process_group", "destroy_process_group", "barrier", "all_reduce", "all_gather_into_tensor")
    distributed = SimpleNamespace(
        **dict.fromkeys((*names, "reduce_scatter_tensor", "isend", "irecv", "P2POp"), _nothing),
        batch_isend_irecv=lambda _moves: [SimpleNamespace(wait=_nothing)],
        ReduceOp=SimpleNamespace(SUM="sum"),
    )
    return SimpleNamespace(
        __version__="2",
        version=SimpleNamespace(cuda="13.0"),
        uint8="uint8",
        ones=lambda size, **_kept: _Tensor(size),
        zeros=lambda size, **_kept: _Tensor(size),
        empty_like=lambda tensor: _Tensor(tensor.size),
        device=lambda kind, number: (kind, number),
        cuda=cuda,
        distributed=distributed,
        multiprocessing=SimpleNamespace(get_context=lambda _how: SimpleNamespace(Queue=queue.Queue, Process=_Process)),
    )
