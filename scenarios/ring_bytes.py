"""How much does each rank send in a ring all-reduce, and what does one root that adds for everybody have to carry?

Answer: the ring sends 2 (p - 1) / p of the data from every rank, never as much as twice (1.5 times at 4 ranks, 1.97 at
64). The root of the flat plan carries p - 1 times the data in each direction (3 times at 4 ranks, 63 at 64).
Counted on the links of an ideal switch while the schedules run; sizes are multiples of p.
"""

from collections.abc import Iterator

import topologies
from netsim.engine.run import simulate
from netsim.routing import Router
from netsim.schedule.catalogue import build_schedule
from scenarios.study import run_study

COLUMNS = ("ranks", "size_bytes", "ring_sent_bytes", "ring_sent_per_size", "root_sent_bytes", "root_sent_per_size")
BLOCK_BYTES = 1_000_000


def rows() -> Iterator[tuple[object, ...]]:
    """Yield one row for every number of ranks from 2 to 64."""
    for ranks in range(2, 65):
        size = ranks * BLOCK_BYTES
        router = Router(topologies.build(f"ideal-switch:{ranks}@450GB/s,1us"))
        sent = []
        for algorithm in ("ring", "flat"):
            record = simulate(router, build_schedule("all_reduce", algorithm, ranks, size), record="summary")
            up = [int(record.link_bytes[link]) for link, (source, _) in enumerate(record.edges) if source in router.ranks]
            sent.append(max(up))
        yield ranks, size, sent[0], sent[0] / size, sent[1], sent[1] / size


if __name__ == "__main__":
    run_study(__doc__, COLUMNS, rows)
