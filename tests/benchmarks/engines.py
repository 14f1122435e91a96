"""Messages per second of the SimPy engine beside a bare `heapq` loop, in CPU time of the same process.

The yardstick is the ring on that loop: one heap entry a message, a free-at clock a link, no SimPy, no schedule. Cases run
in turn and the medians of their ratios are printed, so that a noisy machine disturbs both sides alike.
"""

import argparse
import heapq
import statistics
import time
from collections.abc import Callable

from netsim.engine.prepare import prepare
from netsim.engine.simpy_lanes import run_simpy
from netsim.fabric import Link
from netsim.routing import Router
from netsim.schedule.catalogue import build_schedule
from netsim.testing import star


def bare_ring(ranks: int, steps: int) -> int:
    """Send `steps` messages round a ring from every rank and return how many were sent."""
    serialisation, latency = [1e-6 + rank * 1e-9 for rank in range(ranks)], 1e-6
    free = [0.0] * ranks
    queue = [(serialisation[rank] + latency, rank, 0) for rank in range(ranks)]
    heapq.heapify(queue)
    sent = 0
    while queue:
        now, sender, step = heapq.heappop(queue)
        sent += 1
        if step + 1 < steps:
            rank = (sender + 1) % ranks
            start = free[rank]
            if now > start:
                start = now
            done = start + serialisation[rank]
            free[rank] = done
            heapq.heappush(queue, (done + latency, rank, step + 1))
    return sent


def uneven_ring(ranks: int) -> Router:
    """Return a ring with a link a neighbour pair, all of them a little different, so that no two events tie."""
    graph = star(1)
    graph.clear()
    for rank in range(ranks):
        graph.add_node(f"gpu{rank}", kind="gpu", transit=True)
    for rank in range(ranks):
        graph.add_edge(f"gpu{rank}", f"gpu{(rank + 1) % ranks}", link=Link(1e-6 + rank * 1e-9, 450e9))
        graph.add_edge(f"gpu{(rank + 1) % ranks}", f"gpu{rank}", link=Link(1e-6, 450e9))
    return Router(graph)


def cpu_rate(run: Callable[[], int]) -> float:
    """Return what `run` counts a second of CPU time."""
    begin = time.process_time()
    count = run()
    return count / (time.process_time() - begin)


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="paired runs a case (default 7)")
    runs = parser.parse_args().runs
    cases = [
        ("ring 72", uneven_ring(72), build_schedule("all_reduce", "ring", 72, 1 << 26)),
        ("ring 1,024", uneven_ring(1024), build_schedule("reduce_scatter", "ring", 1024, 1 << 26)),
        ("all-to-all 72, switch", Router(star(72)), build_schedule("alltoall", "direct", 72, 1 << 26)),
        ("ring 72, switch", Router(star(72)), build_schedule("all_reduce", "ring", 72, 1 << 26)),
    ]
    print(f"{'case':24}{'messages':>10}{'engine msg/s':>14}{'bare loop msg/s':>17}{'ratio':>8}")
    for name, router, schedule in cases:
        prepared = prepare(router, schedule)

        def engine(prepared=prepared, schedule=schedule) -> int:  # type: ignore[no-untyped-def]
            run_simpy(prepared)
            return len(schedule)

        engine()
        pairs = [(cpu_rate(engine), cpu_rate(lambda: bare_ring(72, 142))) for _ in range(runs)]
        engine_rate, bare_rate = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        print(f"{name:24}{len(schedule):>10,}{engine_rate:>14,.0f}{bare_rate:>17,.0f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
