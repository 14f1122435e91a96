"""Does the simulator arrive at the numbers of the article behind this project, from the first link to expert parallelism?

Answer: yes, to the last digit that is stated, by simulation and not by a formula beside it. The double binary tree is the
exception on purpose: its usual formula, 2 log2(p) alpha + 2 N / B, has no pipeline in it; the simulated tree has, so both
stand side by side. `netsim reproduce` prints the table; each line names where a reader can check it by hand.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import networkx as nx
import numpy as np

import topologies
from netsim.fabric import GPU, HOST_MEMORY, Link
from netsim.metrics.closed_forms import unpipelined_tree
from netsim.metrics.timing import algorithm_bandwidth, bus_bandwidth
from netsim.record import Record
from netsim.runs import simulate, time
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import ScheduleBuilder
from netsim.schedule.replay import replay
from netsim.units import parse_rate, parse_time
from topologies.profiles import load_profile

COLUMNS = ("section", "what", "unit", "stated", "simulated", "difference", "note")

# PCIe Gen5 x16 is 32 GT/s on 16 lanes, 128 of 130 bits payload: 63.015 GB/s, printed as 63.0.
NVLINK4, NVLINK5, PCIE5, NDR = "450GB/s", "900GB/s", "63.015GB/s", "50GB/s"
STEP = "1us"
# The laptop's measured link (RTX 4060 Laptop, PCIe Gen4 x8, pinned host to device), 2026.
LAPTOP_RATE, LAPTOP_GAP = "13.45GB/s", "8.25us"

# Llama 3.1 70B at TP = 8: two all-reduces a layer, 80 layers, hidden size 8,192 in BF16.
LAYERS, HIDDEN, BYTES_EACH = 80, 8192, 2
ALL_REDUCES = 2 * LAYERS
PARAMETERS = 70.6e9
TOKENS = (1, 64, 4096)
LINKS = (
    ("NVLink 4", NVLINK4, STEP),
    ("NVLink 5", NVLINK5, STEP),
    ("PCIe Gen5 x16", PCIE5, STEP),
    ("InfiniBand NDR", NDR, STEP),
    ("laptop PCIe", LAPTOP_RATE, LAPTOP_GAP),
)


@dataclass(frozen=True)
class Line:
    """One number of the article beside the simulated one."""

    section: str
    what: str
    unit: str
    stated: str
    """As printed there, so that its last digit says how far rounding may go; empty where the article gives no number."""
    simulated: float
    note: str = ""
    apart: bool = False
    """Whether the two are meant to differ (an unpipelined formula beside a pipelined run)."""

    @property
    def difference(self) -> float | None:
        """Simulated less stated, in the line's unit."""
        return None if not self.stated else self.simulated - float(self.stated)

    @property
    def agrees(self) -> bool:
        """Whether the simulated value rounds to the stated one."""
        if self.apart or not self.stated:
            return True
        _, _, decimals = self.stated.partition(".")
        unit = 10.0 ** -len(decimals)
        return abs(self.simulated - float(self.stated)) <= 0.5 * unit * (1 + 1e-6)

    @property
    def row(self) -> tuple[object, ...]:
        """The line's cells in the order of `COLUMNS`."""
        return self.section, self.what, self.unit, self.stated, self.simulated, self.difference, self.note


def switch(ranks: int, rate: str, latency: str = STEP) -> "nx.DiGraph[str]":
    """Return an ideal switch."""
    return topologies.build(f"ideal-switch:{ranks}@{rate},{latency}")


def ring_s(size_bytes: int, graph: "nx.DiGraph[str]") -> float:
    """Return the seconds of a ring all-reduce."""
    return time("all_reduce", size_bytes, graph, algorithm="ring")


def lines() -> Iterator[Line]:
    """Yield every line, section by section."""
    for section in (_link, _ring, _trees, _semantics, _tensor_parallel, _machines, _beliefs):
        yield from section()


def rows() -> Iterator[tuple[object, ...]]:
    """Yield the lines as rows of a CSV."""
    return (line.row for line in lines())


def _copy_s(size_bytes: int, *, copies: int = 1, rate: str = LAPTOP_RATE) -> float:
    """Return the time of copies, one behind the other, from host memory to the laptop's GPU."""
    graph: nx.DiGraph[str] = nx.DiGraph(name="host link")
    graph.add_node("host", kind=GPU)
    graph.add_node("memory", kind=HOST_MEMORY, transit=True)
    graph.add_node("gpu", kind=GPU)
    graph.graph["ranks"] = ("host", "gpu")
    link = Link(0.0, parse_rate(rate), gap_s=parse_time(LAPTOP_GAP))
    wide = Link(0.0, 1e15)
    for edge, value in ((("host", "memory"), wide), (("memory", "gpu"), link), (("gpu", "host"), wide)):
        graph.add_edge(*edge, link=value)
    plan = ScheduleBuilder("broadcast", "copies", 2, size_bytes)
    for _ in range(copies):
        plan.send(0, 1, size=size_bytes)
    return simulate(graph, plan.build()).time_s


def _where(crosses: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least size from which on `crosses` holds, by bisection."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if crosses(middle) else (middle, high)
    return high


def _link() -> Iterator[Line]:
    rate = parse_rate(LAPTOP_RATE)
    half = _where(lambda size: size / _copy_s(size) >= rate / 2, 1, 1 << 30)
    yield Line("1 link", "half of B is reached at n_half, laptop", "KB", "111", half / 1e3, "alpha B = 8.25 us x 13.45 GB/s")
    note = "9 is the measured copy; the line fitted through all sizes gives this"
    for size in (4, 4096):
        yield Line("1 link", f"a copy of {size} bytes, laptop", "us", "9", _copy_s(size) * 1e6, note, apart=True)
    both = _copy_s(128 << 20, copies=2, rate="13.3GB/s")
    yield Line("1 link", "128 MiB each way through one copy engine at 13.3 GB/s", "ms", "20.2", both * 1e3, "one lane")
    laptop = load_profile("laptop_pcie4_x8")
    share = laptop.link().bandwidth_bytes_per_s / laptop.link(rate="line").bandwidth_bytes_per_s
    yield Line("1 link", "laptop, share of the line rate", "%", "85", share * 100, "profile laptop_pcie4_x8")
    h200 = load_profile("pcie5_h200_copy")
    share = h200.link().bandwidth_bytes_per_s / h200.link(rate="line").bandwidth_bytes_per_s
    yield Line("1 link", "H200 copies, share of the line rate", "%", "88", share * 100, "profile pcie5_h200_copy")


def _ring() -> Iterator[Line]:
    section = "2 ring"
    record = simulate(switch(4, NVLINK4), build_schedule("all_reduce", "ring", 4, 4_000_000, align_bytes=4))
    sent = max(_sent(record))
    yield Line(section, "a rank of 4 sends of 4 MB", "MB", "6.00", sent / 1e6, "counted on its link")
    stated = {2: "1.0", 4: "1.5", 8: "1.75", 16: "1.875", 32: "1.9375", 64: "1.96875"}
    for ranks, share in stated.items():
        size = ranks * 1000
        record = simulate(switch(ranks, NVLINK4), build_schedule("all_reduce", "ring", ranks, size))
        yield Line(section, f"a rank of {ranks} sends, per N", "N", share, max(_sent(record)) / size)
    for ranks, share in ((4, "3"), (64, "63")):
        record = simulate(switch(ranks, NVLINK4), build_schedule("all_reduce", "flat", ranks, 1000))
        yield Line(section, f"the root of {ranks} sends, flat, per N", "N", share, max(_sent(record)) / 1000)
    for ranks, steps in ((8, "14"), (64, "126")):
        simulated = ring_s(0, switch(ranks, NVLINK4)) / parse_time(STEP)
        yield Line(section, f"steps of {ranks} ranks, empty message", "alpha", steps, simulated)
    for rate, latency, megabytes in ((NVLINK4, STEP, "3.6"), (NDR, STEP, "0.4"), (LAPTOP_RATE, LAPTOP_GAP, "0.89")):
        graph = switch(8, rate, latency)
        size = _where(partial(_twice_empty, graph), 1, 1 << 24)
        yield Line(section, f"latency and bandwidth meet, 8 ranks at {rate}", "MB", megabytes, size / 1e6, "N = p alpha B")
    seconds = ring_s(10**12, switch(8, NVLINK4))
    yield Line(section, "algbw of 8 ranks, large", "GB/s", "257", algorithm_bandwidth(10**12, seconds) / 1e9)
    yield Line(section, "busbw of 8 ranks, large", "GB/s", "450", bus_bandwidth("all_reduce", 8, 10**12, seconds) / 1e9)
    yield Line(section, "a 900 MB tensor", "ms", "3.5", ring_s(900_000_000, switch(8, NVLINK4)) * 1e3)


def _twice_empty(graph: "nx.DiGraph[str]", size_bytes: int) -> bool:
    """Say whether a ring takes twice as long as with an empty message."""
    return ring_s(size_bytes, graph) >= 2 * ring_s(0, graph)


def _sent(record: Record) -> list[int]:
    """Return the bytes that left each rank of an ideal switch."""
    return [int(record.link_bytes[link]) for link, (source, _) in enumerate(record.edges) if source != "switch"]


def _trees() -> Iterator[Line]:
    from scenarios.crossover import find_crossings, size_grid
    from scenarios.machine import Machine
    from scenarios.run import Spec

    section = "3 trees"
    for rate, megabytes in (("450", "14.4"), ("50", "1.6")):
        machine = Machine(f"ideal-switch:8@{rate}GB/s,1us")
        unit = round(float(rate) * 1e3)
        survey = find_crossings(
            Spec(machine, "all_reduce", 0), ("ring", "double_binary_tree"), size_grid(unit, 64 * unit, 2)
        )
        for crossing in survey.crossings:
            assert crossing.formula_bytes is not None
            what = f"ring and double binary tree cross, {rate} GB/s"
            yield Line(section, f"{what}, formula", "MB", megabytes, crossing.formula_bytes / 1e6, "32 alpha B")
            simulated = crossing.size_bytes / 1e6
            note = "pipelined: only two latencies stay outside 2 N/B, so it crosses later, towards 48 alpha B"
            yield Line(section, f"{what}, simulated", "MB", megabytes, simulated, note, apart=True)
    size = 10**10
    for algorithm, stated in (("double_binary_tree", "2"), ("tree", "3")):
        seconds = time("all_reduce", size, switch(8, NVLINK4), algorithm=algorithm)
        per = seconds * parse_rate(NVLINK4) / size
        note = "with pipeline fill" if stated == "2" else "at least 3: three streams into an inner rank, queues in front"
        yield Line(section, f"{algorithm} of 8 ranks, large, per N/B", "N/B", stated, per, note, apart=True)


def _semantics() -> Iterator[Line]:
    section = "3 semantics"
    data = [np.arange(4) + 10 * rank for rank in range(4)]
    reduced = replay(build_schedule("all_reduce", "ring", 4, 4), data)
    for place, value in enumerate(("60", "64", "68", "72")):
        assert all(result is not None and result[place] == reduced[0][place] for result in reduced)  # type: ignore[index]
        yield Line(section, f"all-reduce of 4 ranks, element {place}, everywhere", "", value, float(reduced[0][place]))  # type: ignore[index]
    exchanged = replay(build_schedule("alltoall", "pairwise", 4, 4), data)
    for place, value in enumerate(("1", "11", "21", "31")):
        yield Line(section, f"all-to-all, rank 1, element {place}", "", value, float(exchanged[1][place]))  # type: ignore[index]
    section = "3 FSDP"
    weights = round(PARAMETERS * BYTES_EACH)
    graph = switch(8, NVLINK4)
    gather = simulate(graph, build_schedule("all_gather", "ring", 8, weights))
    scatter = simulate(graph, build_schedule("reduce_scatter", "ring", 8, weights))
    yield Line(section, "all-gather of 141 GB over 8 GPUs, each sends", "GB", "124", max(_sent(gather)) / 1e9)
    step = 2 * max(_sent(gather)) + max(_sent(scatter))
    yield Line(section, "a step: two all-gathers, a reduce-scatter", "GB", "371", step / 1e9)
    yield Line(section, "that step at 450 GB/s", "s", "0.82", 2 * gather.time_s + scatter.time_s)


def _tensor_parallel() -> Iterator[Line]:
    section = "4 TP = 8"
    stated = {
        ("NVLink 4", 1, "ring"): "2.25",
        ("NVLink 4", 4096, "ring"): "44",
        ("PCIe Gen5 x16", 4096, "ring"): "300",
        ("InfiniBand NDR", 4096, "ring"): "378",
        ("NVLink 5", 4096, "ring"): "23",
    }
    for name, rate, latency in LINKS:
        graph = switch(8, rate, latency)
        for tokens in TOKENS:
            size = tokens * HIDDEN * BYTES_EACH
            for algorithm in ("ring", "double_binary_tree", "nvls"):
                pass_ms = ALL_REDUCES * time("all_reduce", size, graph, algorithm=algorithm) * 1e3
                what = f"{name}, {tokens} tokens, {algorithm}, a forward pass"
                yield Line(section, what, "ms", stated.get((name, tokens, algorithm), ""), pass_ms)
            if (name, tokens) == ("NVLink 4", 1):
                formula = ALL_REDUCES * unpipelined_tree(8, size, parse_time(latency), parse_rate(rate)) * 1e3
                yield Line(section, f"{name}, {tokens} tokens, tree formula, a forward pass", "ms", "0.97", formula)
    for name, flops, rate, math_ms, share in (("H100", 989e12, NVLINK4, "73", "60"), ("B200", 2.25e15, NVLINK5, "32", "72")):
        seconds = 2 * PARAMETERS * TOKENS[-1] / (8 * flops)
        note = "arithmetic: two operations a parameter and token, no simulation"
        yield Line(section, f"math of {TOKENS[-1]} tokens on 8 {name}", "ms", math_ms, seconds * 1e3, note)
        talk = ALL_REDUCES * ring_s(TOKENS[-1] * HIDDEN * BYTES_EACH, switch(8, rate))
        yield Line(section, f"talking per computing, 8 {name} on NVLink, ring", "%", share, 100 * talk / seconds)
    for name, rate, share in (("PCIe Gen5", PCIE5, "4.1"), ("InfiniBand", NDR, "5.2")):
        talk = ALL_REDUCES * ring_s(TOKENS[-1] * HIDDEN * BYTES_EACH, switch(8, rate))
        seconds = 2 * PARAMETERS * TOKENS[-1] / (8 * 989e12)
        yield Line(section, f"talking per computing, 8 H100 on {name}, ring", "times", share, talk / seconds, "four to five")
    ring = ring_s(HIDDEN * BYTES_EACH, switch(8, NVLINK4))
    yield Line(section, "one all-reduce of a token, NVLink 4, ring", "us", "14", ring * 1e6)


def _machines() -> Iterator[Line]:
    section = "4 links"
    for name, profile, count, stated in (
        ("NVLink 4, 18 links", "nvlink4", 18, "450"),
        ("NVLink 5, 18 links", "nvlink5", 18, "900"),
        ("PCIe Gen5 x16", "pcie5", 1, "63.0"),
        ("400 Gb/s port", "ndr400", 1, "50"),
    ):
        rate = load_profile(profile).link(rate="line", count=count).bandwidth_bytes_per_s
        yield Line(section, f"{name}, line rate each way", "GB/s", stated, rate / 1e9)
    one_way = {
        rate: time("sendrecv", 1 << 40, switch(2, rate, "0s"), algorithm="direct")
        for rate in (NVLINK4, NVLINK5, PCIE5, "160GB/s", NDR)
    }
    note = "by the time of a large message"
    yield Line(section, "NVLink 4 against PCIe Gen5 x16", "times", "7", one_way[PCIE5] / one_way[NVLINK4], note)
    yield Line(section, "H800 NVLink against its InfiniBand port", "times", "3.2", one_way[NDR] / one_way["160GB/s"], note)
    yield Line(section, "B200 NVLink against its 400 Gb/s port", "times", "18", one_way[NDR] / one_way[NVLINK5], note)
    graph = topologies.build("gb200-nvl72", rate="line")
    total = sum(graph.edges[edge]["link"].bandwidth_bytes_per_s for edge in _nvlinks(graph))
    yield Line(section, "NVL72, all NVLinks, both ways", "TB/s", "130", total / 1e12)
    section = "4 all-to-all"
    size = 72 << 24
    rack = time("alltoall", size, graph, algorithm="direct")
    islands = topologies.build("hgx-b200", nodes=9, nic="ndr400", rate="line")
    split = time("alltoall", size, islands, algorithm="direct")
    note = "of 71 blocks 64 cross the port, so 18 x 64/71; rotating over ranks instead of servers would lose the rest"
    yield Line(section, "NVL72 against nine 8-GPU islands, 72 GPUs", "times faster", "", split / rack, note)
    section = "4 GPUDirect"
    times = [
        ring_s(1 << 30, topologies.build("hgx-a100", nodes=4, nic="hdr200", gpus_per_node=1, gpudirect=direct))
        for direct in (True, False)
    ]
    note = "the switch uplink is crossed twice: once up and once down for each direction"
    yield Line(section, "hgx-a100 x 4, one GPU each, without against with", "times slower", "", times[1] / times[0], note)


def _nvlinks(graph: "nx.DiGraph[str]") -> list[tuple[str, str]]:
    return [edge for edge in graph.edges if graph.edges[edge]["link"].kind.startswith("nvlink")]


def _beliefs() -> Iterator[Line]:
    section = "6 beliefs"
    sent = {}
    for ranks in (4, 64):
        record = simulate(switch(ranks, NVLINK4), build_schedule("all_reduce", "ring", ranks, 64_000))
        sent[ranks] = max(_sent(record)) / 64_000
    yield Line(section, "more GPUs send more per GPU: at 4", "N", "1.5", sent[4], "what grows is the number of steps")
    yield Line(section, "more GPUs send more per GPU: at 64", "N", "1.97", sent[64])
    graph = switch(8, NVLINK4)
    empty, token = (ring_s(size, graph) for size in (0, HIDDEN * BYTES_EACH))
    yield Line(section, "16 KiB over NVLink 4: time on bandwidth", "us", "0.06", (token - empty) * 1e6, "of 14.06 us")
    whole = ring_s(900_000_000, graph)
    yield Line(section, "900 MB at '900 GB/s'", "ms", "3.5", whole * 1e3, "450 GB/s each way, 1.75 times the data")


def disagreements() -> list[Line]:
    """Return the lines whose simulated value does not round to the stated one."""
    return [line for line in lines() if not line.agrees or not math.isfinite(line.simulated)]
