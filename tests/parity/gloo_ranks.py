"""Run collectives on four CPU processes with torch.distributed and gloo, and store inputs and results.

Started by the parity test as ``python gloo_ranks.py FOLDER``; the processes meet through a file, not a port.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 4
ELEMENTS = 1000  # a rank's block in all-gather and reduce-scatter is a quarter


def run_rank(rank: int, folder: str) -> None:
    """Run every collective as one rank and save ``rankN.npz``."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    # Whole numbers in float32: every order of summation gives the same bits.
    data = np.random.default_rng(1000 + rank).integers(-1000, 1000, ELEMENTS).astype(np.float32)
    block = data[: ELEMENTS // RANKS].copy()
    reduced = torch.from_numpy(data.copy())
    dist.all_reduce(reduced)
    gathered = [torch.empty(len(block)) for _ in range(RANKS)]
    dist.all_gather(gathered, torch.from_numpy(block))
    scattered = torch.empty(ELEMENTS // RANKS)
    dist.reduce_scatter_tensor(scattered, torch.from_numpy(data.copy()))
    exchanged = torch.empty(ELEMENTS)
    dist.all_to_all_single(exchanged, torch.from_numpy(data.copy()))
    np.savez(
        Path(folder) / f"rank{rank}.npz",
        data=data,
        block=block,
        all_reduce=reduced.numpy(),
        all_gather=torch.cat(gathered).numpy(),
        reduce_scatter=scattered.numpy(),
        alltoall=exchanged.numpy(),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run_rank, args=(sys.argv[1],), nprocs=RANKS)
