"""Collectives of NCCL through torch.distributed, one process a GPU, in CUDA graphs or as they are called.

Sizes are nccl-tests': bytes a rank for all-reduce and send/recv (each rank sends to the next), the total for all-gather
and reduce-scatter. Times are rank 0's, by CUDA events. Torch comes in as an argument; nothing is decided here either.
"""

import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from calibrate.samples import SeriesKey

_PATIENCE_S = 90.0
"""Longest wait for one size, the start of the processes included."""


def run_collective(
    torch: Any, gpus: int, key: SeriesKey, sizes: Sequence[int], trials: int
) -> Iterator[tuple[int, int, list[float]]]:
    """Yield bytes, pieces in a trial and the seconds a piece of each trial, size by size.

    Raises
    ------
    RuntimeError
        If a process fails or answers no more; the others are ended.
    """
    context = torch.multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory(prefix="netsim-") as folder:
        meeting = str(Path(folder, "meeting"))
        work = (gpus, meeting, key.kind, key.direction == "graph", tuple(sizes), trials, answers)
        processes = [context.Process(target=_member, args=(rank, *work), daemon=True) for rank in range(gpus)]
        try:
            for process in processes:
                process.start()
            for _ in sizes:
                try:
                    answer = answers.get(timeout=_PATIENCE_S)
                except Exception as failure:
                    raise RuntimeError(f"no answer within {_PATIENCE_S:.0f} s") from failure
                if isinstance(answer, str):
                    raise RuntimeError(answer)
                yield answer
            for process in processes:
                process.join(timeout=20)
        finally:
            for process in processes:
                if process.is_alive():
                    process.terminate()
                    process.join(timeout=5)


def _member(
    rank: int, gpus: int, meeting: str, name: str, in_graph: bool, sizes: tuple[int, ...], trials: int, answers: Any
) -> None:
    """Be one rank; rank 0 answers with times, and whoever fails with words."""
    try:
        _measure(rank, gpus, meeting, name, in_graph, sizes, trials, answers)
    except Exception as failure:
        line = traceback.extract_tb(failure.__traceback__)[-1]
        answers.put(f"rank {rank}: {type(failure).__name__}: {failure} ({line.name}, line {line.lineno})")


def _measure(
    rank: int, gpus: int, meeting: str, name: str, in_graph: bool, sizes: tuple[int, ...], trials: int, answers: Any
) -> None:
    from calibrate.measure import captured, loaded_torch

    torch = loaded_torch()
    distributed = torch.distributed
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=gpus, device_id=device)
    for size in sizes:
        once = _collective(torch, name, size, rank, gpus)
        reps = 50 if size <= 1 << 20 else 20 if size <= 1 << 24 else 5
        for _ in range(3):
            once()
        torch.cuda.synchronize()
        graph = captured(torch, once, reps) if in_graph else None
        times = []
        for trial in range(trials + 1):
            distributed.barrier()
            torch.cuda.synchronize()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            if graph is not None:
                graph.replay()
            else:
                for _ in range(reps):
                    once()
            end.record()
            end.synchronize()
            if trial:  # the first warms up
                times.append(float(start.elapsed_time(end)) * 1e-3 / reps)
        if graph is not None:
            graph.reset()  # before the communicator that it uses goes
        if rank == 0:
            answers.put((size, reps, times))
    distributed.barrier()
    distributed.destroy_process_group()


def _collective(torch: Any, name: str, size_bytes: int, rank: int, gpus: int) -> Callable[[], Any]:
    """Return one call of a collective on float buffers of their own; of zeros, whose sums stay what they are."""
    distributed = torch.distributed
    share = max(size_bytes // 4 // gpus, 1)
    whole = torch.zeros(share * gpus if name in ("all_gather", "reduce_scatter") else max(size_bytes // 4, 1), device="cuda")
    if name == "all_reduce":
        return lambda: distributed.all_reduce(whole, op=distributed.ReduceOp.SUM)
    if name == "all_gather":
        part = torch.zeros(share, device="cuda")
        gather = _newest(distributed, "all_gather_single", "all_gather_into_tensor")
        return lambda: gather(whole, part)
    if name == "reduce_scatter":
        part = torch.zeros(share, device="cuda")
        scatter = _newest(distributed, "reduce_scatter_single", "reduce_scatter_tensor")
        return lambda: scatter(part, whole)
    received = torch.empty_like(whole)

    def exchange() -> None:
        to_next = distributed.P2POp(distributed.isend, whole, (rank + 1) % gpus)
        from_last = distributed.P2POp(distributed.irecv, received, (rank - 1) % gpus)
        for work in distributed.batch_isend_irecv([to_next, from_last]):
            work.wait()

    return exchange


def _newest(distributed: Any, name: str, before: str) -> Callable[..., Any]:
    """Return a function of torch.distributed by its newer name, or by the one before where torch does not have that yet."""
    found: Callable[..., Any] = getattr(distributed, name, None) or getattr(distributed, before)
    return found
