"""From which size on is a ring all-reduce faster than trees on eight GPUs, and how much do the tree's chunks matter?

Answer: the usual formula, 2 log2(p) alpha + 2 N / B without pipeline fill, puts the crossing of ring and double binary
tree at 32 alpha B: 14.4 MB at 450 GB/s, 1.6 MB at 50 GB/s (1 us). Simulated with the pipeline the crossing moves with the
number of chunks a tree: 1.1 MB in one piece, 19.8 MB in 64, 21.1 MB in 256, towards 48 alpha B = 21.6 MB, because with
small chunks only two latencies stay outside 2 N / B. A single tree, at 3 N / B or more, crosses near 2.5 MB.
"""

from collections.abc import Iterator

from scenarios.crossover import find_crossings, size_grid
from scenarios.machine import Machine
from scenarios.run import Spec
from scenarios.study import run_study

COLUMNS = ("bandwidth_GBps", "tree", "chunks", "crossing_bytes", "formula_bytes", "in_alpha_B")
LATENCY_S = 1e-6
STUDIES = (("double_binary_tree", (1, 4, 8, 16, 64, 256)), ("tree", (64,)))


def rows() -> Iterator[tuple[object, ...]]:
    """Yield one row for every crossing at each bandwidth, tree and number of chunks."""
    for rate in (450, 50):
        machine = Machine(f"ideal-switch:8@{rate}GB/s,1us")
        for tree, counts in STUDIES:
            for chunks in counts:
                spec = Spec(machine, "all_reduce", 0, chunks=chunks)
                unit = LATENCY_S * rate * 1e9
                sizes = size_grid(round(0.9 * unit), round(60 * unit), 1)
                for crossing in find_crossings(spec, ("ring", tree), sizes).crossings:
                    size = crossing.size_bytes
                    yield rate, tree, chunks, round(size), crossing.formula_bytes, size / unit


if __name__ == "__main__":
    run_study(__doc__, COLUMNS, rows)
