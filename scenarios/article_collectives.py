"""Section 3 of the article: trees, in-network reduction, what the collectives do, and FSDP."""

from collections.abc import Iterator

from netsim.runs import simulate, time
from netsim.schedule.catalogue import build_schedule
from netsim.units import parse_rate
from scenarios.article import BYTES_EACH, NVLINK4, PARAMETERS, STEP_S, Line, ring_s, sent, switch
from scenarios.crossover import find_crossings, size_grid
from scenarios.machine import Machine
from scenarios.run import Spec
from scenarios.semantics import results

_STEPS = "steps.yaml"
_TREES = "ring_and_trees.yaml"
_SUMMIT_RANKS = 128
"""So many GPUs stand for Summit's 24,576, whose ring has 1.2e9 messages."""


def collective_lines() -> Iterator[Line]:
    """Yield section 3."""
    yield from _trees()
    yield from _crossings()
    yield from _latencies()
    yield from _in_the_switch()
    yield from _semantics()
    yield from _fsdp()


def _trees() -> Iterator[Line]:
    section = "3 trees"
    steps = time("all_reduce", 0, switch(8, NVLINK4), algorithm="double_binary_tree") / STEP_S
    yield Line(section, "double binary tree, steps of 8 ranks, empty message", "alpha", "6", steps, scenario=_STEPS)
    schedule = build_schedule("all_reduce", "double_binary_tree", 8, 1 << 20)
    second = schedule.offset >= schedule.size_bytes // 2
    inner = [set(schedule.dst[schedule.reduce & (second == tree)].tolist()) for tree in (False, True)]
    note = "at most one: counted in the schedule"
    yield Line(section, "double binary tree, ranks that are inner in both trees", "", "0", len(inner[0] & inner[1]), note)
    share = float(schedule.size[second].sum() / schedule.size.sum())
    yield Line(section, "double binary tree, share of the bytes in the second tree", "", "0.5", share, "half the data")
    for algorithm, stated, apart, note in (
        ("double_binary_tree", "2", False, "the pipeline of 64 chunks has to fill first: 2 is the limit of many chunks"),
        ("tree", "3", True, "at least 3: an inner rank receives three streams, and they queue in front of its link"),
    ):
        seconds = time("all_reduce", 10**10, switch(8, NVLINK4), algorithm=algorithm)
        per = seconds * parse_rate(NVLINK4) / 10**10
        yield Line(section, f"{algorithm} of 8 ranks, 10 GB, per N/B", "N/B", stated, per, note, apart, _TREES)


def _crossings() -> Iterator[Line]:
    section = "3 trees"
    for rate, megabytes in (("450", "14.4"), ("50", "1.6")):
        machine = Machine(f"ideal-switch:8@{rate}GB/s,1us")
        unit = round(float(rate) * 1e3)
        sizes = size_grid(unit, 64 * unit, 1)
        survey = find_crossings(Spec(machine, "all_reduce", 0), ("ring", "double_binary_tree"), sizes)
        for crossing in survey.crossings:
            assert crossing.formula_bytes is not None
            what = f"ring and double binary tree cross, {rate} GB/s"
            note = "32 alpha B: 2 log2(p) alpha + 2 N/B, without a pipeline, against the ring"
            yield Line(section, f"{what}, formula", "MB", megabytes, crossing.formula_bytes / 1e6, note)
            note = "pipelined only two latencies stay outside 2 N/B, so it crosses later, towards 48 alpha B"
            simulated = crossing.size_bytes / 1e6
            yield Line(section, f"{what}, simulated", "MB", megabytes, simulated, note, True, "ring_or_tree.py")


def _latencies() -> Iterator[Line]:
    section = "3 trees"
    yield Line(
        section,
        "Summit, 24,576 GPUs, latency of ring over tree",
        "times",
        "up to 180",
        None,
        "a measurement, with launches in it and shorter steps inside a server; that ring has 1.2e9 messages",
    )
    graph = switch(_SUMMIT_RANKS, NVLINK4)
    ring, tree = (time("all_reduce", 0, graph, algorithm=name) for name in ("ring", "double_binary_tree"))
    note = "2(p - 1) steps against 2 log2(p), all equally long; 24,576 GPUs would give 49,150 against 30"
    yield Line(section, f"{_SUMMIT_RANKS} GPUs, latency of ring over tree", "times", "", ring / tree, note, scenario=_STEPS)


def _in_the_switch() -> Iterator[Line]:
    section, scenario = "3 switch", "nvls_and_ring.yaml"
    size = 4 << 30
    for ranks in (8, 16):
        graph = switch(ranks, NVLINK4)
        gain = ring_s(size, graph) / time("all_reduce", size, graph, algorithm="nvls")
        note = "2(p - 1)/p against 1 + 1/p times the data: twice as fast in the limit of many GPUs"
        yield Line(section, f"NVLS against ring, {ranks} GPUs, 4 GiB", "times", "up to 2", gain, note, scenario=scenario)
    record = simulate(switch(8, NVLINK4), build_schedule("all_reduce", "nvls", 8, 8 << 20))
    enters = max(sent(record)) / (8 << 20)
    note = "about once: a GPU's data, and the sum of its own block once more to be multicast, 1 + 1/p"
    yield Line(section, "NVLS of 8 GPUs, what a GPU sends into the switch, per N", "N", "1", enters, note, scenario=scenario)
    yield Line(
        section,
        "SMs that communication takes, ring against in-network reduction",
        "",
        "16 against 6",
        None,
        "a textbook schedule takes no SM",
    )


def _semantics() -> Iterator[Line]:
    section, scenario = "3 semantics", "semantics.py"
    reduced = results("all_reduce")
    alike = "the same on all ranks and by every algorithm" if reduced.count(reduced[0]) == 4 else "ranks DIFFER"
    scattered, gathered, exchanged = (results(name) for name in ("reduce_scatter", "all_gather", "alltoall"))
    for place, value in enumerate(("60", "64", "68", "72")):
        what = f"all-reduce of 4 ranks, element {place}, everywhere"
        yield Line(section, what, "", value, reduced[0][place], alike, scenario=scenario)
    for rank, value in enumerate(("60", "64", "68", "72")):
        (held,) = scattered[rank]
        yield Line(
            section, f"reduce-scatter, rank {rank} ends with", "", value, held, "by every algorithm", scenario=scenario
        )
    for place, value in enumerate(("1", "11", "21", "31")):
        what = f"all-to-all, rank 1, element {place}"
        yield Line(section, what, "", value, exchanged[1][place], "the transpose", scenario=scenario)
    for place in range(4):
        what = f"all-gather, block {place} came from rank"
        yield Line(section, what, "", str(place), gathered[0][place] // 10, "in rank order", scenario=scenario)
    yield Line(
        section,
        "torch.distributed with gloo, four CPU processes",
        "",
        "the same",
        None,
        "another program's results: tests/parity compares with them where torch is installed",
    )


def _fsdp() -> Iterator[Line]:
    section, scenario = "3 FSDP", "fsdp.yaml"
    weights = PARAMETERS * BYTES_EACH
    yield Line(section, "a 70B model in BF16", "GB", "141", weights / 1e9, "arithmetic: 70.6e9 parameters of 2 bytes")
    graph = switch(8, NVLINK4)
    gather = simulate(graph, build_schedule("all_gather", "ring", 8, weights))
    scatter = simulate(graph, build_schedule("reduce_scatter", "ring", 8, weights))
    what = "all-gather of 141 GB over 8 GPUs, each sends"
    yield Line(section, what, "GB", "124", max(sent(gather)) / 1e9, "7/8 of it, counted on its link", scenario=scenario)
    step = 2 * max(sent(gather)) + max(sent(scatter))
    what = "a step: two all-gathers, a reduce-scatter, each sends"
    yield Line(section, what, "GB", "371", step / 1e9, scenario=scenario)
    seconds = 2 * gather.time_s + scatter.time_s
    yield Line(section, "that step at 450 GB/s", "s", "0.82", seconds, scenario=scenario)
