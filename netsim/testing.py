"""Tiny fabrics and Hypothesis strategies for testing engines, schedules and metrics; nothing in the library uses it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
from hypothesis import strategies as st

from netsim.fabric import GPU, NETWORK_SWITCH, NVSWITCH, Link
from netsim.schedule.dag import END, LEFT, Schedule, ScheduleBuilder

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy


def star(ranks: int, *, latency_s: float = 1e-6, bandwidth_bytes_per_s: float = 1e9, **link: float) -> "nx.DiGraph[str]":
    """Return `ranks` GPUs on one switch that multicasts and reduces.

    All latency is on the way up, so that a whole path costs it once; other `Link` fields apply to both ways.
    """
    graph: nx.DiGraph[str] = nx.DiGraph(name="star")
    for rank in range(ranks):
        graph.add_node(f"gpu{rank}", kind=GPU)
    graph.add_node("switch", kind=NVSWITCH, multicast=True, reduce=True)
    for rank in range(ranks):
        graph.add_edge(f"gpu{rank}", "switch", link=Link(latency_s, bandwidth_bytes_per_s, **link))  # type: ignore[arg-type]
        graph.add_edge("switch", f"gpu{rank}", link=Link(0.0, bandwidth_bytes_per_s, **link))  # type: ignore[arg-type]
    return graph


def line(*links: Link, kinds: Sequence[dict[str, Any]] = ()) -> "nx.DiGraph[str]":
    """Return two GPUs joined by a chain of links (the same ones back), with switches between.

    `kinds` replaces the attributes of the inner nodes, in order.
    """
    graph: nx.DiGraph[str] = nx.DiGraph(name="line")
    inner = [f"switch{index}" for index in range(len(links) - 1)]
    names = ["gpu0", *inner, "gpu1"]
    attributes: list[dict[str, Any]] = [{"kind": NETWORK_SWITCH}] * len(inner)
    for name, given in zip(inner, [*kinds, *attributes[len(kinds) :]], strict=True):
        graph.add_node(name, **given)
    graph.add_node("gpu0", kind=GPU)
    graph.add_node("gpu1", kind=GPU)
    graph.graph["ranks"] = ("gpu0", "gpu1")
    for source, target, link in zip(names, names[1:], links, strict=False):
        graph.add_edge(source, target, link=link)
        graph.add_edge(target, source, link=link)
    return graph


@st.composite
def stars(draw: "DrawFn", *, max_ranks: int = 5) -> "nx.DiGraph[str]":
    """Draw a star whose links differ in latency, bandwidth, gap and floor, zero latency included."""
    graph = star(draw(st.integers(2, max_ranks)))
    for edge in graph.edges:
        graph.edges[edge]["link"] = Link(
            latency_s=draw(st.sampled_from([0.0, 1e-6, 2e-6, 3.3e-6])),
            bandwidth_bytes_per_s=draw(st.sampled_from([1e9, 2e9, 7e8])),
            gap_s=draw(st.sampled_from([0.0, 0.0, 5e-7])),
            floor_s=draw(st.sampled_from([0.0, 0.0, 4e-6])),
        )
    return graph


@st.composite
def transfer_dags(draw: "DrawFn", ranks: int, *, max_ops: int = 25) -> Schedule:
    """Draw a schedule of transfers with random sizes, lanes, posts, durations, requirements and lags; it always finishes.

    It moves bytes at random and promises nothing: for engines, not for proofs.
    """
    plan = ScheduleBuilder("broadcast", "random", ranks, 1 << 20)
    for op in range(draw(st.integers(1, max_ops))):
        src = draw(st.integers(0, ranks - 1))
        dst = draw(st.integers(0, ranks - 2))
        needed = draw(st.lists(st.integers(0, op - 1), max_size=3, unique=True)) if op else []
        after = [(need, draw(st.sampled_from([END, END, LEFT])), draw(st.sampled_from([0.0, 0.0, 1e-6]))) for need in needed]
        plan.send(
            src,
            dst + (dst >= src),
            size=draw(st.sampled_from([0, 1, 1000, 1000, 4096, 100_000])),
            after=after,
            lane=plan.lane(src, draw(st.sampled_from(["send", "send", "other"]))),
            posted=draw(st.booleans()),
            duration=draw(st.sampled_from([0.0, 0.0, 1e-6])),
        )
    return plan.build()


def runs(max_ranks: int = 5) -> "SearchStrategy[tuple[nx.DiGraph[str], Schedule]]":
    """Draw a star and a random schedule over its GPUs."""
    return stars(max_ranks=max_ranks).flatmap(
        lambda graph: st.tuples(st.just(graph), transfer_dags(graph.number_of_nodes() - 1))
    )
