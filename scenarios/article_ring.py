"""Sections 2 and 6 of the article: the ring all-reduce, and the beliefs that its numbers put right."""

from collections.abc import Iterator

import networkx as nx
import numpy as np

from netsim.metrics.timing import algorithm_bandwidth, bus_bandwidth
from netsim.runs import simulate, time
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.replay import replay
from netsim.units import parse_rate
from scenarios.article import (
    BYTES_EACH,
    HIDDEN,
    LAPTOP_GAP,
    LAPTOP_RATE,
    LARGE_BYTES,
    NDR,
    NVLINK4,
    STEP,
    STEP_S,
    Line,
    copy_s,
    least_size,
    received,
    ring_s,
    sent,
    switch,
)
from scenarios.ring_order import chunk_order
from topologies.profiles import load_profile

_IDEAL = "ideal_ring.yaml"
_BYTES = "ring_bytes.py"
_MEET = "half_way.py"


def ring_lines() -> Iterator[Line]:
    """Yield section 2: which chunk goes when, who sends how much, and how long it takes."""
    yield from _order()
    yield from _bytes()
    section = "2 ring"
    for ranks, steps in ((8, "14"), (64, "126")):
        simulated = ring_s(0, switch(ranks, NVLINK4)) / STEP_S
        yield Line(section, f"steps of {ranks} ranks, empty message", "alpha", steps, simulated, scenario="steps.yaml")
    for rate, latency, megabytes in ((NVLINK4, STEP, "3.6"), (NDR, STEP, "0.4"), (LAPTOP_RATE, LAPTOP_GAP, "0.89")):
        size = _twice_empty(switch(8, rate, latency))
        what = f"latency and bandwidth meet, 8 ranks at {rate}"
        yield Line(section, what, "MB", megabytes, size / 1e6, "N = p alpha B", scenario=_MEET)
    graph = switch(8, NVLINK4)
    seconds = ring_s(LARGE_BYTES, graph)
    algbw = algorithm_bandwidth(LARGE_BYTES, seconds) / 1e9
    yield Line(section, "algbw of 8 ranks, large", "GB/s", "257", algbw, scenario=_IDEAL)
    busbw = bus_bandwidth("all_reduce", 8, LARGE_BYTES, seconds) / 1e9
    yield Line(section, "busbw of 8 ranks, large", "GB/s", "450", busbw, scenario=_IDEAL)
    yield Line(section, "a 900 MB tensor", "ms", "3.5", ring_s(900_000_000, graph) * 1e3, scenario=_IDEAL)
    yield from _factors()


def _order() -> Iterator[Line]:
    section = "2 ring"
    stated = ("0 1 2 3", "3 0 1 2", "2 3 0 1", "1 2 3 0", "0 1 2 3", "3 0 1 2")
    for step, chunks in enumerate(chunk_order(4)):
        phase, number = ("reduce-scatter", step + 1) if step < 3 else ("all-gather", step - 2)
        what = f"{phase} step {number} of 4 ranks, chunks that ranks 0 to 3 send"
        note = "in the order in which the links carried them" if not step else ""
        yield Line(section, what, "", stated[step], " ".join(map(str, chunks)), note, scenario="ring_order.py")


def _bytes() -> Iterator[Line]:
    section = "2 ring"
    record = simulate(switch(4, NVLINK4), build_schedule("all_reduce", "ring", 4, 4_000_000, align_bytes=4))
    yield Line(
        section, "a rank of 4 sends of 4 MB", "MB", "6.00", max(sent(record)) / 1e6, "counted on its link", scenario=_BYTES
    )
    data = [np.arange(1_000_000, dtype=np.float32) % 1000 + rank for rank in range(4)]
    results = replay(build_schedule("all_reduce", "ring", 4, 4_000_000, align_bytes=4), data)
    right = sum(result is not None and np.array_equal(result, sum(data)) for result in results)
    yield Line(
        section,
        "ranks of 4 that end with exactly the sum, 1,000,000 float32",
        "",
        "4",
        right,
        "replayed on data",
        scenario="semantics.py",
    )
    stated = {2: "1.0", 4: "1.5", 8: "1.75", 16: "1.875", 32: "1.9375", 64: "1.96875"}
    for ranks, share in stated.items():
        yield Line(section, f"a rank of {ranks} sends, per N", "N", share, _share(ranks), scenario=_BYTES)
    for ranks, share in ((4, "3"), (64, "63")):
        record = simulate(switch(ranks, NVLINK4), build_schedule("all_reduce", "flat", ranks, 1000))
        for verb, counted in (("sends", sent(record)), ("receives", received(record))):
            what = f"one root for {ranks} ranks {verb}, per N"
            yield Line(section, what, "N", share, max(counted) / 1000, "algorithm flat", scenario=_BYTES)


def _share(ranks: int) -> float:
    """Return how many times the data the busiest rank of a ring sends, counted on its link."""
    size = ranks * 1000
    return max(sent(simulate(switch(ranks, NVLINK4), build_schedule("all_reduce", "ring", ranks, size)))) / size


def _twice_empty(graph: "nx.DiGraph[str]") -> int:
    """Return the size from which on a ring takes twice as long as with an empty message."""
    empty = ring_s(0, graph)
    return least_size(lambda size: ring_s(size, graph) >= 2 * empty, 1, 1 << 24)


def _factors() -> Iterator[Line]:
    """Yield what nccl-tests' factor makes of a large message on a switch where every rank has 450 GB/s each way."""
    graph = switch(8, NVLINK4)
    for collective, algorithm, stated, scenario in (
        ("all_reduce", "ring", "1.75", _IDEAL),
        ("all_gather", "ring", "0.875", "fsdp.yaml"),
        ("reduce_scatter", "ring", "0.875", "fsdp.yaml"),
        ("alltoall", "direct", "0.875", "alltoall_nvl72.yaml"),
        ("broadcast", "flat", "1", "laptop_copies.yaml"),
        ("reduce", "flat", "1", ""),
    ):
        seconds = time(collective, LARGE_BYTES, graph, algorithm=algorithm)
        factor = bus_bandwidth(collective, 8, LARGE_BYTES, seconds) / algorithm_bandwidth(LARGE_BYTES, seconds)
        what = f"busbw per algbw of 8 ranks, {collective}"
        yield Line("2 ring", what, "", stated, factor, "nccl-tests' factor", scenario=scenario)


def belief_lines() -> Iterator[Line]:
    """Yield section 6: beliefs put right."""
    section = "6 beliefs"
    grows = "what grows is the number of steps, 6 at 4 GPUs and 126 at 64"
    for ranks, stated, note in ((4, "1.5", ""), (64, "1.97", grows)):
        what = f"'more GPUs send more per GPU': at {ranks}"
        yield Line(section, what, "N", stated, _share(ranks), note, scenario=_BYTES)
    graph = switch(8, NVLINK4)
    empty, token = (ring_s(size, graph) for size in (0, HIDDEN * BYTES_EACH))
    belief = "'a faster link makes decode all-reduces faster'"
    what = f"{belief}: 16 KiB on bandwidth"
    yield Line(section, what, "us", "0.06", (token - empty) * 1e6, f"of {token * 1e6:.2f} us", scenario=_IDEAL)
    yield Line(section, f"{belief}: latencies", "alpha", "14", empty / STEP_S, scenario=_IDEAL)
    belief = "'900 GB/s moves 900 MB in a millisecond'"
    both_ways = parse_rate("900GB/s")
    one_way = 900_000_000 / copy_s(900_000_000, load_profile("nvlink4").link(rate="line", count=18))
    note = f"the {both_ways / 1e9:g} are both directions of NVLink 4 together"
    yield Line(section, f"{belief}: a copy goes at", "GB/s", "450", one_way / 1e9, note, scenario="link_rates.yaml")
    whole = ring_s(900_000_000, graph) * 1e3
    yield Line(section, f"{belief}: the ring", "ms", "3.5", whole, "1.75 times the data at 450 GB/s", scenario=_IDEAL)
    yield Line(
        section,
        "'non_blocking=True makes any copy asynchronous'",
        "",
        "only pinned",
        None,
        "whether a call comes back before its copy is done is the driver's doing, not the link's",
    )
