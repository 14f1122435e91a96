"""Section 4 of the article: what tensor parallelism over eight GPUs costs Llama 3.1 70B on each link."""

from collections.abc import Iterator

from netsim.fabric import Link
from netsim.metrics.closed_forms import unpipelined_tree
from netsim.runs import time
from netsim.units import parse_rate, parse_time
from scenarios.article import (
    BYTES_EACH,
    HIDDEN,
    LAPTOP_GAP,
    LAPTOP_RATE,
    LAYERS,
    NDR,
    NVLINK4,
    NVLINK5,
    PARAMETERS,
    PCIE5,
    STEP,
    Line,
    rate_of,
    ring_s,
    switch,
)

SECTION, SCENARIO = "4 TP = 8", "tensor_parallel.yaml"
RANKS = 8
ALL_REDUCES = 2 * LAYERS
TOKENS = (1, 64, 4096)
ALGORITHMS = ("ring", "double_binary_tree", "nvls")
LINKS = (
    ("NVLink 4", NVLINK4, STEP),
    ("NVLink 5", NVLINK5, STEP),
    ("PCIe Gen5 x16", PCIE5, STEP),
    ("InfiniBand NDR", NDR, STEP),
    ("laptop PCIe", LAPTOP_RATE, LAPTOP_GAP),
)
H100_FLOPS, B200_FLOPS, H100_MEMORY = 989e12, 2.25e15, "3.35TB/s"
_STATED = {
    ("NVLink 4", 1, "ring"): "2.25",
    ("NVLink 4", 1, "double_binary_tree"): "0.97",
    ("NVLink 4", 4096, "ring"): "44",
    ("PCIe Gen5 x16", 4096, "ring"): "300",
    ("InfiniBand NDR", 4096, "ring"): "378",
    ("NVLink 5", 4096, "ring"): "23",
}
_READ = {
    ("NVLink 4", 64): "latency-bound",
    ("NVLink 5", 64): "latency-bound",
    ("PCIe Gen5 x16", 64): "bandwidth-bound",
    ("InfiniBand NDR", 64): "bandwidth-bound",
}


def tensor_parallel_lines() -> Iterator[Line]:
    """Yield what there is to send, the whole table, how its columns read, and what stands beside it."""
    token = HIDDEN * BYTES_EACH
    note = "arithmetic: hidden size 8,192 in BF16"
    yield Line(SECTION, "an all-reduce, a token", "KiB", "16", token / 1024, note)
    note = "arithmetic: two a layer, 80 layers"
    yield Line(SECTION, "all-reduces a forward pass", "", "160", ALL_REDUCES, note)
    yield from _table(token)
    yield from _one_token(token)
    yield from _reading(token)
    yield from _beside(token)


def _table(token: int) -> Iterator[Line]:
    for name, rate, latency in LINKS:
        graph = switch(RANKS, rate, latency)
        for tokens in TOKENS:
            for algorithm in ALGORITHMS:
                pass_ms = ALL_REDUCES * time("all_reduce", tokens * token, graph, algorithm=algorithm) * 1e3
                what = f"{name}, {tokens} tokens, {algorithm}, a forward pass"
                stated = _STATED.get((name, tokens, algorithm), "")
                apart = bool(stated) and algorithm == "double_binary_tree"
                note = (
                    "filling the pipeline over six steps costs 3 N/B here, the formula without one counts 2" if apart else ""
                )
                yield Line(SECTION, what, "ms", stated, pass_ms, note, apart, SCENARIO)
    formula = unpipelined_tree(RANKS, token, parse_time(STEP), parse_rate(NVLINK4))
    note = "2 log2(p) alpha + 2 N/B: arithmetic, no simulation"
    yield Line(SECTION, "NVLink 4, 1 tokens, tree formula, a forward pass", "ms", "0.97", ALL_REDUCES * formula * 1e3, note)


def _one_token(token: int) -> Iterator[Line]:
    """Yield one all-reduce of one token on every fast link."""
    for name, rate, latency in LINKS[:-1]:
        ring_us = ring_s(token, switch(RANKS, rate, latency)) * 1e6
        apart = name == "InfiniBand NDR"
        note = "about 14: 14 latencies and 0.57 us for the bytes, 4 % more" if apart else "about 14: 14 latencies"
        yield Line(SECTION, f"{name}, one all-reduce of a token, ring", "us", "14", ring_us, note, apart, SCENARIO)


def _reading(token: int) -> Iterator[Line]:
    """Yield whether latencies or bytes fill most of a ring's time, for every cell of the table."""
    for name, rate, latency in LINKS:
        graph = switch(RANKS, rate, latency)
        empty = ring_s(0, graph)
        for tokens in TOKENS:
            share = empty / ring_s(tokens * token, graph)
            bound = "latency-bound" if share > 0.5 else "bandwidth-bound"
            note = f"latencies are {100 * share:.0f} % of the time"
            what = f"{name}, {tokens} tokens, the ring is"
            yield Line(SECTION, what, "", _READ.get((name, tokens), ""), bound, note, scenario=SCENARIO)


def _beside(token: int) -> Iterator[Line]:
    """Yield the reads of weights and the mathematics that the talking stands beside."""
    weights = PARAMETERS * BYTES_EACH / RANKS
    read_ms = weights / rate_of(Link(0.0, parse_rate(H100_MEMORY))) * 1e3
    note = f"a GPU's eighth of 141 GB through memory of {H100_MEMORY}"
    yield Line(SECTION, "1 token, a GPU reads its weights", "ms", "5.3", read_ms, note)
    for name, flops, math_ms in (("H100", H100_FLOPS, "73"), ("B200", B200_FLOPS, "32")):
        note = "arithmetic: two operations a parameter and token, no simulation"
        yield Line(SECTION, f"math of {TOKENS[-1]} tokens on 8 {name}", "ms", math_ms, _math_s(flops) * 1e3, note)
    in_tens = "23.1 ms beside 32.1 ms, 70 in tens: the link is twice as fast as NVLink 4, the math 2.3 times"
    for name, flops, rate, note in (("H100", H100_FLOPS, NVLINK4, ""), ("B200", B200_FLOPS, NVLINK5, in_tens)):
        share = 100 * _talk_s(token, rate) / _math_s(flops)
        what = f"talking per computing, 8 {name} on NVLink, ring"
        yield Line(SECTION, what, "%", "60 to 70", share, note, bool(note), SCENARIO)
    whole = "378 ms beside 73.1 ms, five in whole times: the port has 50 GB/s, PCIe Gen5 63"
    for name, rate, note in (("PCIe Gen5", PCIE5, ""), ("InfiniBand", NDR, whole)):
        ratio = _talk_s(token, rate) / _math_s(H100_FLOPS)
        what = f"talking per computing, 8 H100 on {name}, ring"
        yield Line(SECTION, what, "times", "4 to 5", ratio, note, bool(note), SCENARIO)


def _talk_s(token: int, rate: str) -> float:
    """Return the seconds of a forward pass's all-reduces of the most tokens."""
    return ALL_REDUCES * ring_s(TOKENS[-1] * token, switch(RANKS, rate))


def _math_s(flops: float) -> float:
    """Return the seconds of a forward pass's mathematics over all GPUs."""
    return 2 * PARAMETERS * TOKENS[-1] / (RANKS * flops)
