"""Why a run took as long as it did, and what would change it most, by running it again with something changed.

Puts the critical chain of a run beside its busiest link, then asks what-if questions by simulation, never by formula:
the bandwidth of a kind of link doubled, every latency halved, each other algorithm. Links are first come, first served,
so a faster link may gain nothing or even lose; what comes out is said. Nothing here prints.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from netsim.errors import FabricError, InternalError, NetsimError, ProofError, ScheduleError, StuckError
from netsim.fabric import Link, link_name, links_of
from netsim.metrics.critical_chain import CriticalChain, critical_chain
from netsim.metrics.links import bottleneck
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.catalogue import algorithms_for
from netsim.schedule.protocols import IDEAL
from scenarios.machine import graph_of
from scenarios.nccl import pairs_of, told_graph
from scenarios.run import Spec, fitting, run_spec, run_traced, settled, works_in_switches

if TYPE_CHECKING:
    import networkx as nx

    from netsim.export.table import Row
    from netsim.record import Record
    from netsim.schedule.dag import Schedule

GAIN = 1e-3
"""A change of the time by less than this part of it is no gain."""
_ALIKE = 1e-9


@dataclass(frozen=True)
class WhatIf:
    """One run with something changed."""

    words: str
    """What was changed."""
    what: str
    """``bandwidth``, ``latency`` or ``algorithm``."""
    time_us: float
    change: float
    """Part by which the time changed: -0.5 is half the time."""

    @property
    def gains(self) -> bool:
        """Whether the change makes the run faster by more than a thousandth."""
        return self.change < -GAIN


@dataclass(frozen=True)
class Explanation:
    """What set the time of one run."""

    row: "Row"
    chain: CriticalChain
    edges: tuple[str, ...]
    """Name of every link, by its index."""
    kinds: tuple[str, ...]
    """Kind of every link, by its index; for a link without one, its name."""
    alike: int
    """How many links are as busy as the bottleneck, itself included."""
    bottleneck_kind: str
    in_network: bool
    """Whether switches add or copy; the row's bound of the collective is then that of such algorithms."""
    what_ifs: tuple[WhatIf, ...]
    """Runs with something changed, the largest gain first."""
    refused: tuple[tuple[str, str], ...]
    """(algorithm, why) of other algorithms that could not run here."""

    def by_kind_us(self, part: str) -> dict[str, float]:
        """Return the microseconds that one part of the chain spent on each kind of link, the most first."""
        spent: dict[str, float] = {}
        for link, seconds in self.chain.by_link_s(part).items():
            spent[self.kinds[link]] = spent.get(self.kinds[link], 0.0) + seconds * 1e6
        return dict(sorted(spent.items(), key=lambda item: -item[1]))


def explain(spec: Spec, *, told: Callable[[str], None] = lambda words: None) -> Explanation:
    """Run a spec, find what set its time, and run it again with changes.

    Parameters
    ----------
    spec : Spec
        What to run; with ``auto`` the fastest algorithm is explained.
    told : callable
        Called with words before each run.

    Returns
    -------
    Explanation

    Raises
    ------
    NetsimError
        If the run itself is refused; other algorithms that cannot run here are listed instead.
    """
    spec = settled(spec)
    told(f"{spec.collective} by {spec.algorithm}")
    row, schedule, record = run_traced(spec)
    graph = _graph(spec)
    links = [graph.edges[edge]["link"] for edge in record.edges]
    chain = critical_chain(schedule, record, lambda edge: graph.edges[edge]["link"])
    busiest = bottleneck(record)
    limit = "" if busiest is None else _kind(graph.edges[busiest.edge]["link"], busiest.edge)
    kinds = tuple(_kind(link, edge) for link, edge in zip(links, record.edges, strict=True))
    found: list[WhatIf] = []
    refused: list[tuple[str, str]] = []
    if record.time_s:
        found += _with_other_links(spec, schedule, record, _kinds_to_double(limit, kinds, chain), told)
        found += _with_other_algorithms(spec, row, refused, told)
    return Explanation(
        row=row,
        chain=chain,
        edges=tuple(link_name(edge) for edge in record.edges),
        kinds=kinds,
        alike=0 if busiest is None else int((record.link_busy_s >= busiest.busy_s * (1 - _ALIKE)).sum()),
        bottleneck_kind=limit,
        in_network=works_in_switches(schedule),
        what_ifs=tuple(sorted(found, key=lambda item: item.change)),
        refused=tuple(refused),
    )


def _graph(spec: Spec) -> "nx.DiGraph[str]":
    return graph_of(spec.machine) if spec.protocol == IDEAL else told_graph(spec.machine, spec.nccl)


def _kind(link: Link, edge: tuple[str, str]) -> str:
    return link.kind or link_name(edge)


def _kinds_to_double(limit: str, kinds: tuple[str, ...], chain: CriticalChain) -> list[str]:
    """Return the busiest link's kind, and where it is another, the kind at which the chain spent most time."""
    spent: dict[str, float] = {}
    for part in ("serialisation", "waiting"):
        for link, seconds in chain.by_link_s(part).items():
            spent[kinds[link]] = spent.get(kinds[link], 0.0) + seconds
    most = max(spent, key=lambda kind: spent[kind], default=limit)
    return [kind for kind in dict.fromkeys((limit, most)) if kind]


def _with_other_links(
    spec: Spec, schedule: "Schedule", record: "Record", kinds: Iterable[str], told: Callable[[str], None]
) -> Iterator[WhatIf]:
    """Run the same schedule on the same topology with other links, and with lanes that cost half."""
    changes: list[tuple[str, str, Callable[[Link, tuple[str, str]], Link]]] = []
    kinds = list(kinds)
    # Two kinds of one rate on one path hide each other: neither alone gains what both together do.
    for chosen in [[kind] for kind in kinds] + ([kinds] if len(kinds) > 1 else []):

        def doubled(link: Link, edge: tuple[str, str], chosen: list[str] = chosen) -> Link:
            if _kind(link, edge) not in chosen:
                return link
            line = link.line_rate_bytes_per_s
            return replace(
                link,
                bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s,
                line_rate_bytes_per_s=None if line is None else 2 * line,
            )

        changes.append((f"twice the bandwidth of {' and '.join(chosen)} links", "bandwidth", doubled))
    changes.append(("half the latency of every link", "latency", lambda link, _: link.nearer(0.5)))
    graph = _graph(spec)
    machines = [(words, what, _changed(graph, change), schedule) for words, what, change in changes]
    if schedule.work.any() or schedule.duration.any():
        cheaper = replace(schedule, work=schedule.work / 2, duration=schedule.duration / 2)
        machines.append(("half the cost of every lane (starts and copy loops)", "lanes", graph, cheaper))
    for words, what, machine, run in machines:
        told(words)
        time_s = simulate(
            Router(machine, spec.routing),
            run,
            engine=spec.engine,
            quantum_bytes=spec.quantum_bytes,
            max_messages=spec.max_messages,
            record="summary",
        ).time_s
        yield WhatIf(words, what, time_s * 1e6, time_s / record.time_s - 1)


def _changed(graph: "nx.DiGraph[str]", change: Callable[[Link, tuple[str, str]], Link]) -> "nx.DiGraph[str]":
    """Return a copy of a topology with other links."""
    other = graph.copy()
    for source, target, link in list(links_of(other)):
        other.edges[source, target]["link"] = change(link, (source, target))
    return other


def _with_other_algorithms(
    spec: Spec, row: "Row", refused: list[tuple[str, str]], told: Callable[[str], None]
) -> Iterator[WhatIf]:
    """Run every other algorithm that serves the collective; what cannot run here is added to `refused`."""
    for algorithm, protocol in _others(spec, row):
        told(f"{spec.collective} by {algorithm}")
        try:
            other = run_spec(replace(fitting(spec, algorithm), algorithm=algorithm, protocol=protocol))
        except (ProofError, StuckError, InternalError):
            raise
        except (ScheduleError, FabricError) as error:
            refused.append((algorithm, str(error)))
            continue
        nccl = spec.protocol != IDEAL
        words = f"{algorithm}{f' {protocol}' * nccl} instead of {row.algorithm}{f' {row.protocol}' * nccl}"
        yield WhatIf(words, "algorithm", other.time_us, other.time_us / row.time_us - 1)


def _others(spec: Spec, row: "Row") -> list[tuple[str, str]]:
    """Return the algorithms and protocols beside the one that ran; of NCCL's those that its cost model has here."""
    if spec.protocol == IDEAL:
        return [(algorithm, IDEAL) for algorithm in algorithms_for(spec.collective) if algorithm != row.algorithm]
    pairs = pairs_of(spec.machine, spec.nccl, spec.collective)
    return [pair for pair in pairs if pair != (row.algorithm, row.protocol)]


def count_runs(spec: Spec) -> int:
    """Return how many runs an explanation takes at most, for a display of progress."""
    try:
        return 6 + len(algorithms_for(spec.collective))
    except NetsimError:
        return 1
