"""One spec -> one row: builds the topology and the schedule, simulates, and measures.

The end of the flow and the seam for sweeps: a `Spec` is small and picklable, a `Row` is one line of a table. Every run
is held against its own lower bound; a time below it is an internal error. No time model of its own.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

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
from netsim.schedule.dag import COMPUTE
from netsim.schedule.own import is_file
from netsim.schedule.pieces import check_pieces
from netsim.schedule.proof import prove
from netsim.schedule.together import together
from netsim.units import format_time
from scenarios.groups import Members, read_groups, servers_within
from scenarios.machine import Machine, router_of
from scenarios.protocols import IDEAL, protocol_named
from scenarios.seeds import over_seeds, policies

if TYPE_CHECKING:
    from netsim.record import Record
    from netsim.schedule.dag import Schedule

DEFAULT_MAX_PIECES = 5_000_000
"""The limit where links serve messages in pieces and none was given; a larger number is mostly a slip in the quantum."""


def limit_on_messages(given: int | None, quantum_bytes: int) -> int:
    """Return the most messages of a run, where none need have been given."""
    if given is not None:
        return given
    return DEFAULT_MAX_PIECES if quantum_bytes else DEFAULT_MAX_MESSAGES


@dataclass(frozen=True)
class Spec:
    """One run: a machine, a collective with its size, and how to run it."""

    machine: Machine
    collective: str
    size_bytes: int
    algorithm: str = "auto"
    """A textbook algorithm, a Python file with a schedule of one's own (proved before it is run), or ``auto``: all that
    can run are simulated and the fastest is taken."""
    protocol: str = IDEAL
    channels: int = 1
    chunk_bytes: int | None = None
    chunks: int | None = None
    root: int = 0
    quantum_bytes: int = 0
    routing: str = "static"
    groups: str | None = None
    """Several of the collective at once, each over a group of ranks (`scenarios.groups`)."""
    engine: str = "auto"
    max_messages: int = DEFAULT_MAX_MESSAGES
    scenario: str = ""


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
    spec = _checked(spec)
    router = router_of(spec.machine, spec.routing)
    if spec.algorithm == "auto":
        run, spec, skipped = _fastest(spec, router)
    else:
        run, skipped = _simulate(spec, router, spec.algorithm), []
    return _row(spec, router, run, skipped), run.record


def run_traced(spec: Spec) -> "tuple[Row, Schedule, Record]":
    """Simulate one spec and return its row, its schedule and a record with every service of every link.

    With ``auto`` the algorithms are compared first, and the fastest is run once more for the record.
    """
    if policies(spec.routing) is not None:
        raise FabricError(
            f"routing {spec.routing!r} is a range of seeds, and this looks at one run; give one, such as ecmp:0"
        )
    spec = _checked(spec)
    router = router_of(spec.machine, spec.routing)
    if spec.algorithm == "auto":
        taken = run_spec(spec).algorithm
        spec = replace(fitting(spec, taken), algorithm=taken)
    run = _simulate(spec, router, spec.algorithm, record="links")
    return _row(spec, router, run, []), run.schedule, run.record


def _checked(spec: Spec) -> Spec:
    """Refuse options that no algorithm could make good; ``auto`` would take each refusal for a reason to try the next."""
    check_pieces(spec.chunk_bytes, spec.chunks)
    if spec.channels < 1:
        raise ScheduleError(f"{spec.channels} channels: the number of channels must be 1 or more")
    if spec.algorithm == "auto":
        cuts = spec.chunk_bytes is not None or spec.chunks is not None
        understood = frozenset().union(*(options_for(spec.collective, name) for name in algorithms_for(spec.collective)))
        if cuts and "chunks" not in understood:
            raise ScheduleError(f"no algorithm for {spec.collective} takes a chunk size or a number of chunks; leave it out")
        if spec.channels > 1 and "channels" not in understood:
            raise ScheduleError(f"no algorithm for {spec.collective} has channels (got {spec.channels}); leave them out")
    return replace(spec, protocol=protocol_named(spec.protocol))


@dataclass(frozen=True)
class _Run:
    schedule: "Schedule"
    record: "Record"
    algorithm: str
    ranks: int
    """Ranks of the collective, or of each of those that run at once."""
    finish_s: tuple[float, ...] = ()
    """When each of several collectives at once was done."""


def _simulate(spec: Spec, router: Router, algorithm: str, record: str = "all") -> _Run:
    """Run one algorithm; what the user asked for must suit it, and `build_schedule` says so where it does not."""
    parts = _parts(spec, router, algorithm)
    joined = None if spec.groups is None else together(parts, len(router.ranks))
    schedule = parts[0][0] if joined is None else joined.schedule
    if spec.quantum_bytes > 0:
        _check_quantum(schedule, spec)
    left = simulate(
        router,
        schedule,
        engine=spec.engine,
        quantum_bytes=spec.quantum_bytes,
        max_messages=spec.max_messages,
        record=record,
    )
    finish = () if joined is None else tuple(joined.finish_s(left.end_s).tolist())
    return _Run(schedule, left, parts[0][0].algorithm, len(parts[0][1]), finish)


def _check_quantum(schedule: "Schedule", spec: Spec) -> None:
    """Count the pieces before any work: a small quantum makes millions of a few messages."""
    sent = schedule.wire[schedule.kind != COMPUTE]
    pieces = int(np.maximum(1, -(-sent // spec.quantum_bytes)).sum())
    if pieces > spec.max_messages:
        raise TooManyMessagesError(
            f"{schedule.collective} by {schedule.algorithm} of {spec.size_bytes} bytes travels in {pieces} pieces with "
            f"--quantum {spec.quantum_bytes}, more than the limit of {spec.max_messages}; give a larger --quantum, or raise "
            "--max-messages"
        )


def _parts(spec: Spec, router: Router, algorithm: str) -> "list[tuple[Schedule, Members]]":
    """Build the schedule of every group of ranks that runs the collective; all ranks are one where none is asked for."""
    hosts = hosts_of(router.graph)
    groups = read_groups(spec.groups, len(router.ranks))
    built: dict[tuple[Members, ...], Schedule] = {}
    parts = []
    for members in groups:
        servers = servers_within(members, hosts)
        if servers not in built:
            check_collective(spec.collective, len(members), spec.size_bytes, spec.root)
            built[servers] = build_schedule(
                spec.collective,
                algorithm,
                len(members),
                spec.size_bytes,
                root=spec.root,
                chunk_bytes=spec.chunk_bytes,
                chunks=spec.chunks,
                groups=servers,
                channels=spec.channels,
                limit=spec.max_messages // len(groups),
            )
            if is_file(algorithm):
                prove(built[servers])
        parts.append((built[servers], members))
    return parts


def _fastest(spec: Spec, router: Router) -> tuple[_Run, Spec, list[str]]:
    """Simulate every algorithm that can run here; among equals the first in the catalogue is taken.

    The spec that comes back holds the options that the fastest has a use for.
    """
    best: tuple[_Run, Spec] | None = None
    skipped: list[str] = []
    refusal: ScheduleError | FabricError | None = None
    for algorithm in algorithms_for(spec.collective):
        try:
            fitted = fitting(spec, algorithm)
            run = _simulate(fitted, router, algorithm)
        except (ProofError, StuckError):
            raise
        except TooManyMessagesError as error:
            skipped.append(algorithm)
            refusal = refusal or error
        except (ScheduleError, FabricError) as error:
            # Not every algorithm serves every rank count, and not every switch adds or multicasts.
            refusal = refusal or error
        else:
            if best is None or run.record.time_s < best[0].record.time_s:
                best = run, fitted
    if best is None:
        raise refusal or ScheduleError(f"no algorithm for {spec.collective}")
    return *best, skipped


def fitting(spec: Spec, algorithm: str) -> Spec:
    """Return a spec without the options that an algorithm has no use for, so that they steer only those that have."""
    understood = options_for(spec.collective, algorithm)
    if "chunks" not in understood:
        spec = replace(spec, chunks=None, chunk_bytes=None)
    return spec if "channels" in understood else replace(spec, channels=1)


def _row(spec: Spec, router: Router, run: _Run, skipped: list[str]) -> Row:
    schedule, record, ranks, algorithm = run.schedule, run.record, run.ranks, run.algorithm
    alone = spec.groups is None
    uniform = uniform_network(router) if alone else None
    formula_s = None
    if uniform is not None and uniform.serves(algorithm) and schedule.pieces == 1 and not spec.quantum_bytes:
        alpha_beta = uniform.latency_s, uniform.bandwidth_bytes_per_s
        size = spec.size_bytes
        formula_s = closed_form(spec.collective, algorithm, ranks, size, *alpha_beta, root=spec.root)
    least_us = None
    if alone:
        in_network = works_in_switches(schedule)
        bound = collective_bound(spec.collective, spec.size_bytes, router, root=spec.root, in_network=in_network)
        least_us = bound * 1e6
    busiest = bottleneck(record)
    busbw = bus_bandwidth(spec.collective, ranks, spec.size_bytes, record.time_s)
    return Row(
        collective=spec.collective,
        topology=spec.machine.label,
        ranks=ranks,
        nodes=spec.machine.nodes,
        algorithm=algorithm,
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
        collective_bound_us=least_us,
        chunk_bytes=spec.chunk_bytes,
        chunks=spec.chunks,
        quantum_bytes=spec.quantum_bytes,
        root=spec.root,
        rate=spec.machine.rate,
        profile=spec.machine.profile,
        gpudirect=router.graph.graph.get("gpudirect", True),
        routing=spec.routing,
        bottleneck_utilisation=None if busiest is None else busiest.utilisation,
        groups=spec.groups,
        note=_note(router, run, busiest, busbw, skipped),
    )


def works_in_switches(schedule: "Schedule") -> bool:
    """Say whether a schedule lets switches add or copy, so that it may send less than ranks alone must."""
    return bool((schedule.group >= 0).any())


def _note(router: Router, run: _Run, busiest: LinkLoad | None, busbw: float, skipped: list[str]) -> str:
    notes = [bus_bandwidth_note(run.algorithm, run.ranks)]
    rate = float("inf") if busiest is None else router.graph.edges[busiest.edge]["link"].bandwidth_bytes_per_s
    if busbw > rate * (1 + 1e-9) and not notes[0]:
        notes.append("busbw is no wire rate: ranks send over several links at once")
    if run.finish_s:
        first = format_time(float(f"{min(run.finish_s):.4g}"))
        notes.append(f"{len(run.finish_s)} groups at once, this row is the last of them; the first was done after {first}")
    if skipped:
        notes.append(f"not simulated, more than --max-messages: {', '.join(skipped)}")
    return "; ".join(note for note in notes if note)
