"""How much faster than a ring is an all-reduce that the switch adds and multicasts, and in how many pieces?

Answer: in one piece it loses: every rank's port carries its legs and then all branches, alpha + 2 N / B, against the ring's
1.75 N / B at 8 ranks. Cut into pieces the two halves overlap: two pieces win, and the time falls towards N (1 + 1/p) / B,
1.56 times faster than the ring at 8 ranks; with 64 pieces a block it is within 2 % of that.
"""

from collections.abc import Iterator

import topologies
from netsim.runs import time
from scenarios.study import run_study

COLUMNS = ("ranks", "size_bytes", "pieces", "ring_us", "nvls_us", "ring_per_nvls", "limit_us")
RANKS = 8
SIZE_BYTES = 1 << 30
BANDWIDTH = 450e9


def rows() -> Iterator[tuple[object, ...]]:
    """Yield one row for each number of pieces."""
    topology = topologies.build(f"ideal-switch:{RANKS}@450GB/s,1us")
    ring = time("all_reduce", SIZE_BYTES, topology, algorithm="ring")
    limit = SIZE_BYTES * (1 + 1 / RANKS) / BANDWIDTH
    for pieces in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        nvls = time("all_reduce", SIZE_BYTES, topology, algorithm="nvls", chunks=pieces)
        yield RANKS, SIZE_BYTES, pieces, ring * 1e6, nvls * 1e6, ring / nvls, limit * 1e6


if __name__ == "__main__":
    run_study(__doc__, COLUMNS, rows)
