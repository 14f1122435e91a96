"""Which chunk does which rank send at each step of a ring all-reduce?

Answer: rank r sends chunk (r - s) mod p at step s of the reduce-scatter and (r + 1 - s) mod p in the all-gather, s from 0,
always to rank (r + 1) mod p. Read off a simulated run, by the time at which each message entered its link.
"""

from collections.abc import Iterator

import numpy as np

import topologies
from netsim.runs import simulate
from netsim.schedule.catalogue import build_schedule
from scenarios.study import run_study

COLUMNS = ("ranks", "step", "phase", "rank", "to_rank", "chunk")


def chunk_order(ranks: int) -> list[list[int]]:
    """Return the chunk that each rank sends, for every step, in order of the times at which they were sent."""
    return [[chunk for _, _, chunk in sends] for sends in _sends(ranks)]


def rows() -> Iterator[tuple[object, ...]]:
    """Yield one row a message for 4 and 5 ranks."""
    for ranks in (4, 5):
        for step, sends in enumerate(_sends(ranks)):
            phase = "reduce-scatter" if step < ranks - 1 else "all-gather"
            for rank, to_rank, chunk in sends:
                yield ranks, step % (ranks - 1) + 1, phase, rank, to_rank, chunk


def _sends(ranks: int) -> list[list[tuple[int, int, int]]]:
    """Return (rank, to, chunk) of every message by simulated time: all ranks send at the same moments."""
    graph = topologies.build(f"ideal-switch:{ranks}@450GB/s,1us")
    schedule = build_schedule("all_reduce", "ring", ranks, ranks * 1000)
    start = simulate(graph, schedule).start_s
    moments: list[list[tuple[int, int, int]]] = []
    for moment in np.unique(start):
        ops = np.flatnonzero(start == moment)
        sends = zip(*(column[ops].tolist() for column in (schedule.src, schedule.dst, schedule.chunk)), strict=True)
        moments.append(sorted(sends))
    return moments


if __name__ == "__main__":
    run_study(__doc__, COLUMNS, rows)
