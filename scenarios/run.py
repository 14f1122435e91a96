"""One spec -> one row: builds the topology and the schedule, simulates, and measures.

The end of the flow and the seam for sweeps: a `Spec` is small and picklable, a `Row` is one line of a table. Every run
is held against its own lower bound; a time below it is an internal error. No time model of its own.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import topologies
from netsim.engine.run import DEFAULT_MAX_MESSAGES
from netsim.errors import FabricError, ProofError, ScheduleError, StuckError, TooManyMessagesError
from netsim.export.table import Row
from netsim.fabric import hosts_of
from netsim.metrics.bounds import collective_bound
from netsim.metrics.closed_forms import closed_form, uniform_network
from netsim.metrics.links import LinkLoad, bottleneck
from netsim.metrics.timing import algorithm_bandwidth, bus_bandwidth, bus_bandwidth_note
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.catalogue import algorithms_for, build_schedule, options_for
from netsim.schedule.collective import check_collective
from netsim.schedule.own import is_file
from netsim.schedule.proof import prove
from scenarios.seeds import over_seeds, policies

if TYPE_CHECKING:
    import networkx as nx

    from netsim.record import Record
    from netsim.schedule.dag import Schedule


@dataclass(frozen=True)
class Machine:
    """Which topology to build, in the words of the command line."""

    topology: str
    """Preset, study graph or file."""
    nodes: int = 1
    nic: str | None = None
    fabric: str = "one-switch"
    gpus_per_node: int | None = None
    gpudirect: bool = True
    rate: str = "effective"
    profile: str | None = None

    @property
    def label(self) -> str:
        """What the topology column shows: what was asked for, without the count of servers."""
        parts = [self.topology, self.nic, None if self.fabric == "one-switch" else self.fabric]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Spec:
    """One run: a machine, a collective with its size, and how to run it."""

    machine: Machine
    collective: str
    size_bytes: int
    algorithm: str = "auto"
    """A textbook algorithm, a Python file with a schedule of one's own (proved before it is run), or ``auto``: all that
    can run are simulated and the fastest is taken."""
    protocol: str = "ideal"
    channels: int = 1
    chunk_bytes: int | None = None
    chunks: int | None = None
    root: int = 0
    quantum_bytes: int = 0
    routing: str = "static"
    engine: str = "auto"
    max_messages: int = DEFAULT_MAX_MESSAGES
    scenario: str = ""


def graph_of(machine: Machine) -> "nx.DiGraph[str]":
    """Return the topology of a machine; built once, and again when a file behind it has changed."""
    return _graph(machine, _stamp(machine.topology), _stamp(machine.profile))


def router_of(machine: Machine, routing: str = "static") -> Router:
    """Return the routes of a machine's topology, kept for the next run."""
    return _router(machine, routing, _stamp(machine.topology), _stamp(machine.profile))


def run_spec(spec: Spec) -> Row:
    """Simulate one spec and return its row.

    Raises
    ------
    NetsimError
        For anything in the spec that cannot be run.
    InternalError
        If the simulated time is below its own lower bound.
    """
    if policies(spec.routing) is not None:
        return over_seeds(spec, run_spec)[0]
    return run_recorded(spec)[0]


def run_recorded(spec: Spec) -> "tuple[Row, Record]":
    """Simulate one spec and return its row and the record behind it."""
    router = router_of(spec.machine, spec.routing)
    check_collective(spec.collective, len(router.ranks), spec.size_bytes, spec.root)
    if spec.algorithm == "auto":
        run, skipped = _fastest(spec, router)
    else:
        run, skipped = _simulate(spec, router, spec.algorithm), []
    return _row(spec, router, run, skipped), run.record


def run_traced(spec: Spec) -> "tuple[Row, Schedule, Record]":
    """Simulate one spec and return its row, its schedule and a record with every service of every link.

    With ``auto`` the algorithms are compared first, and the fastest is run once more for the record.
    """
    router = router_of(spec.machine, spec.routing)
    if spec.algorithm == "auto":
        taken = run_spec(spec).algorithm
        spec = replace(fitting(spec, taken), algorithm=taken)
    check_collective(spec.collective, len(router.ranks), spec.size_bytes, spec.root)
    run = _simulate(spec, router, spec.algorithm, record="links")
    return _row(spec, router, run, []), run.schedule, run.record


@dataclass(frozen=True)
class _Run:
    schedule: "Schedule"
    record: "Record"


def _simulate(spec: Spec, router: Router, algorithm: str, record: str = "all") -> _Run:
    """Run one algorithm; what the user asked for must suit it, and `build_schedule` says so where it does not."""
    schedule = build_schedule(
        spec.collective,
        algorithm,
        len(router.ranks),
        spec.size_bytes,
        root=spec.root,
        chunk_bytes=spec.chunk_bytes,
        chunks=spec.chunks,
        groups=hosts_of(router.graph),
        channels=spec.channels,
        limit=spec.max_messages,
    )
    if is_file(algorithm):
        prove(schedule)
    left = simulate(
        router,
        schedule,
        engine=spec.engine,
        quantum_bytes=spec.quantum_bytes,
        max_messages=spec.max_messages,
        record=record,
    )
    return _Run(schedule, left)


def _fastest(spec: Spec, router: Router) -> tuple[_Run, list[str]]:
    """Simulate every algorithm that can run here; among equals the first in the catalogue is taken."""
    best: _Run | None = None
    skipped: list[str] = []
    refusal: ScheduleError | FabricError | None = None
    for algorithm in algorithms_for(spec.collective):
        try:
            run = _simulate(fitting(spec, algorithm), router, algorithm)
        except (ProofError, StuckError):
            raise
        except TooManyMessagesError as error:
            skipped.append(algorithm)
            refusal = refusal or error
        except (ScheduleError, FabricError) as error:
            # Not every algorithm serves every rank count, and not every switch adds or multicasts.
            refusal = refusal or error
        else:
            if best is None or run.record.time_s < best.record.time_s:
                best = run
    if best is None:
        raise refusal or ScheduleError(f"no algorithm for {spec.collective}")
    return best, skipped


def fitting(spec: Spec, algorithm: str) -> Spec:
    """Return a spec without the options that an algorithm has no use for, so that they steer only those that have."""
    understood = options_for(spec.collective, algorithm)
    if "chunks" not in understood:
        spec = replace(spec, chunks=None, chunk_bytes=None)
    return spec if "channels" in understood else replace(spec, channels=1)


def _row(spec: Spec, router: Router, run: _Run, skipped: list[str]) -> Row:
    schedule, record, ranks = run.schedule, run.record, len(router.ranks)
    uniform = uniform_network(router)
    formula_s = None
    if uniform is not None and uniform.serves(schedule.algorithm) and schedule.pieces == 1 and not spec.quantum_bytes:
        alpha_beta = uniform.latency_s, uniform.bandwidth_bytes_per_s
        size = spec.size_bytes
        formula_s = closed_form(spec.collective, schedule.algorithm, ranks, size, *alpha_beta, root=spec.root)
    in_network = _works_in_switches(schedule)
    least_s = collective_bound(spec.collective, spec.size_bytes, router, root=spec.root, in_network=in_network)
    busiest = bottleneck(record)
    busbw = bus_bandwidth(spec.collective, ranks, spec.size_bytes, record.time_s)
    return Row(
        collective=spec.collective,
        topology=spec.machine.label,
        ranks=ranks,
        nodes=spec.machine.nodes,
        algorithm=schedule.algorithm,
        protocol=spec.protocol,
        channels=spec.channels,
        size_bytes=spec.size_bytes,
        time_us=record.time_s * 1e6,
        algbw_GBps=algorithm_bandwidth(spec.size_bytes, record.time_s) / 1e9,
        busbw_GBps=busbw / 1e9,
        lower_bound_us=(record.lower_bound_s or 0.0) * 1e6,
        closed_form_us=None if formula_s is None else formula_s * 1e6,
        bottleneck="" if busiest is None else busiest.name,
        engine=record.engine,
        messages=record.messages,
        version=record.version,
        scenario=spec.scenario,
        seed=record.seed,
        topology_digest=record.topology_digest,
        collective_bound_us=least_s * 1e6,
        chunk_bytes=spec.chunk_bytes,
        chunks=spec.chunks,
        quantum_bytes=spec.quantum_bytes,
        root=spec.root,
        rate=spec.machine.rate,
        profile=spec.machine.profile,
        gpudirect=router.graph.graph.get("gpudirect", True),
        routing=spec.routing,
        bottleneck_utilisation=None if busiest is None else busiest.utilisation,
        note=_note(router, schedule, busiest, busbw, skipped),
    )


def _works_in_switches(schedule: "Schedule") -> bool:
    """Say whether a schedule lets switches add or copy, so that it may send less than ranks alone must."""
    return bool((schedule.group >= 0).any())


def _note(router: Router, schedule: "Schedule", busiest: LinkLoad | None, busbw: float, skipped: list[str]) -> str:
    notes = [bus_bandwidth_note(schedule.algorithm, schedule.ranks)]
    rate = float("inf") if busiest is None else router.graph.edges[busiest.edge]["link"].bandwidth_bytes_per_s
    if busbw > rate * (1 + 1e-9) and not notes[0]:
        notes.append("busbw is no wire rate: ranks send over several links at once")
    if skipped:
        notes.append(f"not simulated, more than --max-messages: {', '.join(skipped)}")
    return "; ".join(note for note in notes if note)


def _stamp(names: str | None) -> tuple[tuple[int, int] | None, ...]:
    """Return what changes when a file does, or one of several with commas between; a preset never changes."""
    stamps: list[tuple[int, int] | None] = []
    for name in (names, *names.split(",")) if names is not None else ():
        try:
            status = Path(name.strip()).stat()
        except (OSError, ValueError):
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)


@lru_cache(maxsize=8)
def _graph(machine: Machine, *stamps: tuple[tuple[int, int] | None, ...]) -> "nx.DiGraph[str]":
    return topologies.build(
        machine.topology,
        nodes=machine.nodes,
        nic=machine.nic,
        fabric=machine.fabric,
        gpus_per_node=machine.gpus_per_node,
        gpudirect=machine.gpudirect,
        rate=machine.rate,
        profile=machine.profile,
    )


@lru_cache(maxsize=8)
def _router(machine: Machine, routing: str, *stamps: tuple[tuple[int, int] | None, ...]) -> Router:
    return Router(_graph(machine, *stamps), routing)
