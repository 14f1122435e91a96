"""Messages per second of the engines, beside a bare `heapq` loop and beside each other, in CPU time of the same process.

The yardstick is the ring on that loop: one heap entry a message, a free-at clock a link, no SimPy, no schedule. Cases run
in turn and the medians of their ratios are printed, so that a noisy machine disturbs both sides alike. What comes before the
clock starts (`prepare`) is in neither; what the compiled engine lays out for itself is.
"""

import argparse
import heapq
import statistics
import time
from collections.abc import Callable

import numpy as np

import topologies
from netsim.engine.compiled import run_compiled
from netsim.engine.prepare import Prepared, prepare
from netsim.engine.simpy_lanes import run_simpy
from netsim.fabric import Link
from netsim.nccl.from_topology import communicator
from netsim.nccl.schedules import build
from netsim.routing import Router
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import Schedule, ScheduleBuilder
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


def skewed(ranks: int) -> Schedule:
    """Return an all-to-all of 1 KB and 1 GB messages, all of them posted at once: what calendars of equal days dislike."""
    plan = ScheduleBuilder("alltoall", "by hand", ranks, ranks * 10**9)
    src = np.repeat(np.arange(ranks), ranks - 1)
    dst = (src + 1 + np.tile(np.arange(ranks - 1), ranks)) % ranks
    size = np.where(np.random.default_rng(1).integers(2, size=len(src)), 1000, 10**9)
    plan.add(len(src), src=src, dst=dst, size=size, lane=plan.lanes(range(ranks))[src], posted=True)
    return plan.build()


def cases() -> list[tuple[str, Router, Schedule]]:
    """Return what is run: textbook schedules, and NCCL's, whose lanes feed shared links in pieces."""
    found = [
        ("ring 72", uneven_ring(72), build_schedule("all_reduce", "ring", 72, 1 << 26)),
        ("ring 1,024", uneven_ring(1024), build_schedule("reduce_scatter", "ring", 1024, 1 << 26)),
        ("all-to-all 72, switch", Router(star(72)), build_schedule("alltoall", "direct", 72, 1 << 26)),
        ("ring 72, switch", Router(star(72)), build_schedule("all_reduce", "ring", 72, 1 << 26)),
        ("double tree 64, switch", Router(star(64)), build_schedule("all_reduce", "double_binary_tree", 64, 1 << 26)),
        ("1 KB and 1 GB, switch", Router(star(128)), skewed(128)),
    ]
    machine = topologies.build("hgx-h100")
    group = communicator(machine)
    for algorithm in ("ring", "nvls"):
        built = build(group, "all_reduce", 1 << 27, algorithm=algorithm, protocol="simple")
        found.append((f"NCCL's {algorithm}, hgx-h100", Router(machine), built.schedule))
    return found


def engine_rates(prepared: Prepared, messages: int) -> tuple[float, float]:
    """Return the messages a second of SimPy and compiled, after making sure that their times are equal."""
    results = []

    def simpy() -> int:
        results.append(run_simpy(prepared))
        return messages

    def compiled() -> int:
        results.append(run_compiled(prepared)[:2])
        return messages

    rates = cpu_rate(simpy), cpu_rate(compiled)
    for one, other in zip(*results, strict=True):
        if not np.array_equal(one, other):
            raise SystemExit("the engines do not agree")
    return rates


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="paired runs a case (default 7)")
    runs = parser.parse_args().runs
    print(
        f"{'case':26}{'messages':>10}{'loop msg/s':>12}{'SimPy msg/s':>13}{'/ loop':>8}{'compiled msg/s':>16}{'/ SimPy':>9}"
    )
    gains = []
    for name, router, schedule in cases():
        prepared = prepare(router, schedule)
        messages = prepared.messages
        engine_rates(prepared, messages)  # translates, and warms what can be
        rows = [(cpu_rate(lambda: bare_ring(72, 142)), *engine_rates(prepared, messages)) for _ in range(runs)]
        loop, simpy, compiled = (statistics.median(column) for column in zip(*rows, strict=True))
        against_loop = statistics.median(row[1] / row[0] for row in rows)
        gains.append(statistics.median(row[2] / row[1] for row in rows))
        print(
            f"{name:26}{messages:>10,}{loop:>12,.0f}{simpy:>13,.0f}{against_loop:>8.2f}{compiled:>16,.0f}{gains[-1]:>9.1f}",
            flush=True,
        )
    print(f"compiled / SimPy, geometric mean: {statistics.geometric_mean(gains):.1f}")


if __name__ == "__main__":
    main()
