"""Tiny fabrics and Hypothesis strategies for testing engines, schedules and metrics; nothing in the library uses it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
from hypothesis import strategies as st

from netsim.fabric import GPU, NETWORK_SWITCH, NVSWITCH, Link, ranks_of
from netsim.schedule.dag import BRANCH, END, HEAD, LEFT, LEG, OUTPUT, TRUNK, Schedule, ScheduleBuilder

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


def _links(draw: "DrawFn") -> Link:
    return Link(
        latency_s=draw(st.sampled_from([0.0, 1e-6, 2e-6, 3.3e-6])),
        bandwidth_bytes_per_s=draw(st.sampled_from([1e9, 2e9, 7e8])),
        gap_s=draw(st.sampled_from([0.0, 0.0, 5e-7])),
        floor_s=draw(st.sampled_from([0.0, 0.0, 4e-6])),
    )


@st.composite
def fabrics(draw: "DrawFn", *, max_ranks: int = 5) -> "nx.DiGraph[str]":
    """Draw GPUs on one switch that multicasts and reduces, with links between some of them and a chain of switches.

    Links differ in latency, bandwidth, gap and floor, zero latency included; routes have one to several links.
    """
    ranks = draw(st.integers(2, max_ranks))
    graph = star(ranks)
    for edge in graph.edges:
        graph.edges[edge]["link"] = _links(draw)
    chain = draw(st.integers(0, 3))
    for place in range(chain):
        graph.add_node(f"chain{place}", kind=NETWORK_SWITCH)
        if place:
            graph.add_edge(f"chain{place - 1}", f"chain{place}", link=_links(draw))
    if chain:
        # Away from the switch: this GPU alone sends through the chain, to the last one.
        graph.add_edge("gpu0", "chain0", link=_links(draw))
        graph.add_edge(f"chain{chain - 1}", f"gpu{ranks - 1}", link=_links(draw))
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    for a, b in draw(st.lists(st.sampled_from(pairs), max_size=3, unique=True)):
        graph.add_edge(f"gpu{a}", f"gpu{b}", link=_links(draw))
    if chain and draw(st.booleans()):
        graph.nodes["switch"]["transit"] = False
        for a, b in pairs:
            if not graph.has_edge(f"gpu{a}", f"gpu{b}") and (a, b) != (0, ranks - 1):
                graph.add_edge(f"gpu{a}", f"gpu{b}", link=_links(draw))
    return graph


@st.composite
def operation_dags(draw: "DrawFn", ranks: int, *, max_steps: int = 15, heads: bool = True) -> Schedule:
    """Draw a schedule of transfers, multicasts, in-network reductions and compute operations.

    Sizes, lanes, posts, what lanes cost, requirements of all milestones and lags are random. It moves bytes at random and
    promises nothing: for engines, not for proofs. Requirements point back, so it always finishes. Without `heads` no
    operation follows another's head, and switches neither multicast nor reduce.
    """
    plan = ScheduleBuilder("broadcast", "random", ranks, 1 << 20)
    group = plan.group(range(ranks))
    wires: list[int] = []
    fed: set[int] = set()

    def after(size: int) -> list[tuple[int, int, float]]:
        if not wires:
            return []
        needed = draw(st.lists(st.integers(0, len(wires) - 1), max_size=3, unique=True))
        milestones = [draw(st.sampled_from([END, END, LEFT, HEAD if heads else LEFT])) for _ in needed]
        lags = [draw(st.sampled_from([0.0, 0.0, 1e-6])) for _ in needed]
        # A follower carries as many bytes as what it follows, which travels whole.
        loose = [wires[need] != size or need in fed for need in needed]
        fitting = [END if other else milestone for other, milestone in zip(loose, milestones, strict=True)]
        return list(zip(needed, fitting, lags, strict=True))

    def add(src: int, dst: int, size: int, needs: list[tuple[int, int, float]], **columns: Any) -> int:
        rank = src if src >= 0 else dst
        posted = draw(st.booleans())
        if not posted:
            columns["work"] = draw(st.sampled_from([0.0, 0.0, 3e-6, 7e-5]))
            columns["early"] = draw(st.booleans())
            if "kind" not in columns and all(milestone != HEAD for _, milestone, _ in needs):
                columns["feed"] = draw(st.sampled_from([0, 0, 400, 30_000]))
                fed.update({len(wires)} if columns["feed"] else ())
        wires.append(size)
        return plan.send(
            src,
            dst,
            size=size,
            after=needs,
            lane=plan.lane(rank, draw(st.sampled_from(["send", "send", "other"]))),
            posted=posted,
            duration=draw(st.sampled_from([0.0, 0.0, 1e-6])),
            **columns,
        )

    for _ in range(draw(st.integers(1, max_steps))):
        what = draw(st.sampled_from(["transfer", "transfer", "transfer", "compute", *["multicast", "reduce"] * heads]))
        size = draw(st.sampled_from([0, 1, 1000, 1000, 4096, 100_000]))
        src = draw(st.integers(0, ranks - 1))
        if what == "transfer":
            dst = draw(st.integers(0, ranks - 2))
            add(src, dst + (dst >= src), size, after(size))
        elif what == "compute":
            needs = after(0)
            wires.append(0)
            seconds = draw(st.sampled_from([0.0, 2e-6]))
            plan.compute(src, seconds, after=needs, lane=plan.lane(src), early=draw(st.booleans()))
        elif what == "multicast":
            trunk = add(src, -1, size, after(size), kind=TRUNK, group=group)
            for rank in draw(st.lists(st.integers(0, ranks - 1), unique=True)):
                add(-1, rank, size, [(trunk, HEAD, 0.0)], kind=BRANCH, group=group)
        else:
            legs = [add(rank, -1, size, after(size), kind=LEG, group=group) for rank in range(ranks)]
            add(-1, src, size, [(leg, HEAD, 0.0) for leg in legs], kind=OUTPUT, group=group)
    return plan.build()


def runs(max_ranks: int = 5, *, heads: bool = True) -> "SearchStrategy[tuple[nx.DiGraph[str], Schedule]]":
    """Draw a fabric and a random schedule over its GPUs; `heads` as in `operation_dags`."""
    return fabrics(max_ranks=max_ranks).flatmap(
        lambda graph: st.tuples(st.just(graph), operation_dags(len(ranks_of(graph)), heads=heads))
    )
