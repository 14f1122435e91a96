"""The GPU of this machine as `calibrate.series` wants it, through torch: as thin as possible, nothing is decided here.

The only module that imports torch, inside functions. Times are those of CUDA events, on the GPU's own time line; only
``copy_sync`` is seen from the CPU. Where pieces should follow each other without a pause, the GPU first spins while the
CPU queues them all, and it is checked that the CPU was through before the spin ended. The same buffers are copied again
and again, so a small copy within a GPU meets its cache. Collectives run in a process a GPU (`calibrate.collectives`).
"""

import contextlib
import ctypes
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from calibrate.samples import SeriesKey
from netsim.errors import NetsimError

_CYCLES_PER_S = 2.2e9
"""Above the clock of any GPU so far, so that a spin is never shorter than asked for."""
_CALL_S = 20e-6
"""What queueing one piece may cost the CPU; a longer head start is taken where it was too short."""
_TRIES = 5
_LOAD_BYTES = 256 << 20
_SMI = "driver_version,pcie.link.gen.current,pcie.link.width.current"
_ASYNC_ENGINE_COUNT = 40  # CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT of the CUDA driver API
_INSTEAD = "`netsim calibrate fit` reads samples of another machine and `netsim diagnose` its logs"


def open_hardware() -> "TorchHardware":
    """Return the GPUs of this machine.

    Raises
    ------
    NetsimError
        If torch is not installed or finds no GPU.
    """
    try:
        torch = loaded_torch()
    except (ImportError, OSError) as error:
        raise NetsimError(
            f"measure needs torch ({error}): pip install 'netsim-collectives[calibrate]'; without it, {_INSTEAD}"
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a driver that it cannot use; the sentence below says it
        found = torch.cuda.is_available() and torch.version.cuda is not None
    if not found:
        raise NetsimError(f"measure needs an NVIDIA GPU, and torch {torch.__version__} finds none; without one, {_INSTEAD}")
    return TorchHardware(torch)


def loaded_torch() -> Any:
    """Import torch; as a module of any type, because it is an extra that types may not be known of."""
    return import_module("torch")


class TorchHardware:
    """The GPUs that torch sees; the first is measured, and copies between it and the second.

    Parameters
    ----------
    torch : module
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.gpus: int = torch.cuda.device_count()
        self._buffers: dict[tuple[str, bool], Any] = {}
        self._streams: dict[tuple[int, int], Any] = {}
        self._remarks: list[str] = []
        self._head_starts: dict[SeriesKey, float] = {}
        torch.cuda.set_device(0)
        torch.cuda.synchronize()

    def facts(self) -> dict[str, str]:
        """Return names and versions; what cannot be asked is left out."""
        torch = self._torch
        found = {
            "gpu": str(torch.cuda.get_device_name(0)),
            "gpus": str(self.gpus),
            "cuda": str(torch.version.cuda),
            "torch": str(torch.__version__),
        }
        with contextlib.suppress(Exception):
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        with contextlib.suppress(Exception):
            found["copy_engines"] = str(_copy_engines())
        # A link at rest runs at a lower generation, so it is asked while copies keep it busy.
        try:
            names = ("driver", "link_generation", "link_width")
            found |= {name: value for name, value in zip(names, self._ask_under_load(), strict=True) if value[:1].isdigit()}
        except Exception as failure:
            self._remark(f"nvidia-smi told neither driver nor link: {type(failure).__name__}: {failure}")
        nccl = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NCCL_"))
        return found | ({"environment": " ".join(nccl)} if nccl else {})

    def remarks(self) -> list[str]:
        """Return what should be known about the measurement so far."""
        return list(self._remarks)

    def prepare(self, key: SeriesKey, size_bytes: int) -> Callable[[int], float]:
        """Return a function that does so many pieces and returns the seconds of all of them."""
        if key.kind in ("kernel_empty", "kernel_small"):
            return self._kernels(key)
        if key.kind == "peer":
            return self._peers(key, size_bytes)
        if key.direction == "both":
            return self._both(key, size_bytes)
        return self._copies(key, size_bytes)

    def collective(self, key: SeriesKey, sizes: Sequence[int], trials: int) -> Iterator[tuple[int, int, list[float]]]:
        """Yield bytes, pieces in a trial and the seconds a piece of each trial, from a process a GPU."""
        from calibrate.collectives import run_collective

        yield from run_collective(self._torch, self.gpus, key, sizes, trials)

    def _copies(self, key: SeriesKey, size_bytes: int) -> Callable[[int], float]:
        """Prepare copies in one direction on one stream."""
        source, target = self._ends(key, size_bytes)
        torch = self._torch

        def queue(reps: int) -> None:
            for _ in range(reps):
                target.copy_(source, non_blocking=True)

        def wait_for_each(reps: int) -> float:
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(reps):
                target.copy_(source)  # returns when the copy is done
            return time.perf_counter() - began

        if key.kind == "copy_sync":
            return wait_for_each
        # Pageable memory is staged by the CPU, copy by copy: there is nothing to queue.
        head_start = key.kind == "copy" and key.pinned is not False
        return lambda reps: self._span(key, lambda: queue(reps), reps if head_start else 0)

    def _both(self, key: SeriesKey, size_bytes: int) -> Callable[[int], float]:
        """Prepare copies to and from the GPU at once, a stream each."""
        ways = [self._ends(SeriesKey(key.kind, way, key.pinned), size_bytes) for way in ("h2d", "d2h")]
        return self._at_once(key, [(self._stream(0, 1 + place), None, *way) for place, way in enumerate(ways)])

    def _peers(self, key: SeriesKey, size_bytes: int) -> Callable[[int], float]:
        """Prepare copies between the first two GPUs; torch hands over events between their streams for each."""
        ways = [(0, 1), (1, 0)] if key.direction == "both" else [(int(key.direction[0]), int(key.direction[-1]))]
        made = []
        for place, (source, target) in enumerate(ways):
            ends = [self._buffer(f"peer {source}->{target} on {gpu}", gpu)[:size_bytes] for gpu in (source, target)]
            made.append((self._stream(0, 1 + place), self._stream(1, 1 + place), *ends))
        return self._at_once(key, made)

    def _at_once(self, key: SeriesKey, ways: list[tuple[Any, Any, Any, Any]]) -> Callable[[int], float]:
        """Prepare copies on streams of their own that begin together: stream, stream of the other GPU, source, target."""
        torch = self._torch

        def queue(reps: int) -> None:
            main = torch.cuda.current_stream(0)
            began = torch.cuda.Event()
            began.record(main)
            for stream, other, source, target in ways:
                stream.wait_event(began)
                with torch.cuda.stream(other) if other is not None else contextlib.nullcontext(), torch.cuda.stream(stream):
                    if other is not None:
                        other.wait_event(began)
                    for _ in range(reps):
                        target.copy_(source, non_blocking=True)
            for stream, other, _source, _target in ways:
                main.wait_stream(stream)
                if other is not None:
                    main.wait_stream(other)

        return lambda reps: self._span(key, lambda: queue(reps), reps * len(ways))

    def _kernels(self, key: SeriesKey) -> Callable[[int], float]:
        """Prepare kernels that do nothing, or add to one number: as they are called, queued beforehand, or in a graph."""
        torch = self._torch
        number = torch.zeros(1, device="cuda:0")
        once: Callable[[], Any] = (lambda: torch.cuda._sleep(0)) if key.kind == "kernel_empty" else (lambda: number.add_(1))
        graphs: dict[int, Any] = {}

        def queue(reps: int) -> None:
            for _ in range(reps):
                once()

        def run(reps: int) -> float:
            if key.direction != "graph":
                return self._span(key, lambda: queue(reps), reps if key.direction == "queued" else 0)
            if reps not in graphs:
                graphs[reps] = captured(torch, once, reps)
            return self._span(key, graphs[reps].replay, 1)

        return run

    def _span(self, key: SeriesKey, queue: Callable[[], None], calls: int) -> float:
        """Return the seconds between two events around what is queued; with calls, the CPU has queued all of it before."""
        torch = self._torch
        seconds = 0.0
        for _ in range(_TRIES if calls else 1):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            call_s = self._head_starts.get(key, _CALL_S)
            if calls:
                torch.cuda._sleep(int((calls + 5) * call_s * _CYCLES_PER_S))
            start.record()
            queue()
            end.record()
            in_time = not start.query()
            end.synchronize()
            seconds = float(start.elapsed_time(end)) * 1e-3
            if in_time or not calls:
                return seconds
            self._head_starts[key] = 2 * call_s
        self._head_starts.pop(key)
        self._remark(f"{key}: the CPU could not queue {calls} calls ahead of the GPU, so times may be the CPU's")
        return seconds

    def _ends(self, key: SeriesKey, size_bytes: int) -> tuple[Any, Any]:
        """Return source and target of copies."""
        if key.direction == "local":
            return self._buffer("here", 0)[:size_bytes], self._buffer("there", 0)[:size_bytes]
        host = self._buffer(f"host {key.direction}", None, pinned=bool(key.pinned))[:size_bytes]
        device = self._buffer(f"device {key.direction}", 0)[:size_bytes]
        return (host, device) if key.direction == "h2d" else (device, host)

    def _buffer(self, name: str, gpu: int | None, *, pinned: bool = False) -> Any:
        """Return a buffer of the largest size, made when it is first asked for; every page of it is there."""
        if (name, pinned) not in self._buffers:
            more = {"pin_memory": pinned} if gpu is None else {"device": f"cuda:{gpu}"}
            self._buffers[name, pinned] = self._torch.ones(_LOAD_BYTES, dtype=self._torch.uint8, **more)
        return self._buffers[name, pinned]

    def _stream(self, gpu: int, number: int) -> Any:
        if (gpu, number) not in self._streams:
            self._streams[gpu, number] = self._torch.cuda.Stream(device=gpu)
        return self._streams[gpu, number]

    def _ask_under_load(self) -> list[str]:
        """Return driver, link generation and link width as nvidia-smi tells them while copies run."""
        torch = self._torch
        source, target = self._ends(SeriesKey("copy", "h2d", True), _LOAD_BYTES)
        which = "0"
        with contextlib.suppress(Exception):
            uuid = str(torch.cuda.get_device_properties(0).uuid)
            which = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        command = ["nvidia-smi", f"--query-gpu={_SMI}", "--format=csv,noheader", "-i", which]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as asked:
            until = time.monotonic() + 20
            while asked.poll() is None and time.monotonic() < until:
                for _ in range(4):
                    target.copy_(source, non_blocking=True)
                torch.cuda.synchronize()
            asked.kill()
            words = asked.communicate()[0]
        if asked.returncode != 0:
            raise OSError(words.strip() or f"exit code {asked.returncode}")
        return [word.strip() for word in words.splitlines()[0].split(",")]

    def _remark(self, words: str) -> None:
        if words not in self._remarks:
            self._remarks.append(words)


def captured(torch: Any, once: Callable[[], Any], reps: int) -> Any:
    """Return a CUDA graph of so many pieces; the first few run outside it, because what is first used is set up then."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            once()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog thread asks for events while a capture is under way, which only the capturing thread may not do.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(reps):
            once()
    torch.cuda.synchronize()
    return graph


def _copy_engines() -> int:
    """Ask the driver how many copies it can run beside kernels (torch does not tell)."""
    driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    device, count = ctypes.c_int(), ctypes.c_int()
    for code in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDeviceGetAttribute(ctypes.byref(count), _ASYNC_ENGINE_COUNT, device),
    ):
        if code:
            raise OSError(f"the CUDA driver answers with error {code}")
    return count.value
