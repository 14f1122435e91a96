"""One spec -> one row: builds the topology and the schedule, simulates, and measures.

The end of the flow and the seam for sweeps: a `Spec` is small and picklable, a `Row` is one line of a table. Every run
is held against its own lower bound; a time below it is an internal error. No time model of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.engine.run import DEFAULT_MAX_MESSAGES
from netsim.errors import FabricError, ProofError, ScheduleError, StuckError, TooManyMessagesError
from netsim.export.table import Row, rounded_size
from netsim.fabric import hosts_of
from netsim.metrics.timing import algorithm_bandwidth, bus_bandwidth, bus_bandwidth_note
from netsim.routing import Router
from netsim.runs import result_row, simulate
from netsim.schedule.catalogue import algorithms_for, build_schedule, options_for
from netsim.schedule.collective import check_collective
from netsim.schedule.dag import COMPUTE
from netsim.schedule.nccl.feed import MOST_PIECES, fed_in_few_pieces
from netsim.schedule.own import is_file
from netsim.schedule.pieces import check_pieces
from netsim.schedule.proof import prove
from netsim.schedule.protocols import IDEAL, protocol_named
from netsim.schedule.together import together
from netsim.units import format_time
from scenarios.fallback import Fallback, why_textbook
from scenarios.groups import Members, read_groups, servers_within
from scenarios.machine import Machine, router_of
from scenarios.nccl import NcclOptions, check_process, least_call_s, told_router, windows_hindrance
from scenarios.nccl import build as build_nccl
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
    """An algorithm, a Python file with a schedule of one's own (proved before it is run), or ``auto``: of the textbook's
    all that can run are simulated and the fastest is taken; of NCCL's, what NCCL would choose."""
    protocol: str = IDEAL
    nccl: NcclOptions = field(default_factory=NcclOptions)
    """For NCCL's protocols."""
    channels: int | None = None
    """Channels; None is one for the textbook's algorithms and NCCL's number for its own."""
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

    @property
    def nccl_version(self) -> str | None:
        """The release whose schedules it runs; None for the textbook's."""
        return None if self.protocol == IDEAL else self.nccl.version


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
    router = _router(spec)
    if spec.algorithm == "auto" and spec.protocol == IDEAL:
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
    router = _router(spec)
    if spec.algorithm == "auto" and spec.protocol == IDEAL:
        taken = run_spec(spec).algorithm
        spec = replace(fitting(spec, taken), algorithm=taken)
    run = _simulate(spec, router, spec.algorithm, record="links")
    return _row(spec, router, run, []), run.schedule, run.record


def settled(spec: Spec, algorithms: Sequence[str] = ()) -> Spec:
    """Return a spec whose protocol is decided where it is ``auto``: NCCL's schedules, or the textbook's.

    NCCL's where the machine's GPUs are known, it has all the algorithms that are asked for, and data is not to be cut in a
    way that is not its own. Names of NCCL's algorithms come back in this project's spelling.

    Parameters
    ----------
    spec : Spec
    algorithms : sequence of str, optional
        What is to be run beside, or in place of, the spec's own algorithm.

    Raises
    ------
    ScheduleError
        If no such algorithm is known, or options for NCCL's schedules come with a run of the textbook's.
    """
    reason = fallback_of(spec, algorithms)
    if spec.protocol == IDEAL or reason is not None:
        told = "the protocol is ideal" if reason is None else reason.words
        if spec.nccl.asked:
            names = " and ".join(spec.nccl.asked)
            raise ScheduleError(
                f"{names}: only for what NCCL would run, and this run is textbook, because {told}; leave {names} out, or "
                "ask for one of NCCL's protocols (auto where GPUs are known, ll, ll128 or simple)"
            )
        return replace(spec, protocol=IDEAL)
    # Only here, so that textbook runs start without it.
    from netsim.nccl.names import resolved

    algorithm, protocol = resolved(spec.collective, spec.algorithm, spec.protocol)
    return replace(spec, algorithm=algorithm, protocol=protocol)


def fallback_of(spec: Spec, algorithms: Sequence[str] = ()) -> Fallback | None:
    """Return why a spec is textbook although its protocol is ``auto``; None where that is not so."""
    if spec.protocol != "auto":
        return None
    pieces = {"--chunk": spec.chunk_bytes, "--chunks": spec.chunks}
    given = [name for name, value in pieces.items() if value is not None]
    return why_textbook(spec.machine, spec.collective, (*algorithms, spec.algorithm), pieces=given)


def _checked(spec: Spec) -> Spec:
    """Refuse options that no algorithm could make good; ``auto`` would take each refusal for a reason to try the next."""
    spec = settled(replace(spec, protocol=protocol_named(spec.protocol)))
    check_pieces(spec.chunk_bytes, spec.chunks)
    if spec.protocol != IDEAL and (spec.chunk_bytes is not None or spec.chunks is not None):
        raise ScheduleError("NCCL cuts data by its own rules; a chunk size or a number of chunks is for the protocol ideal")
    if spec.channels is not None and spec.channels < 1:
        raise ScheduleError(f"{spec.channels} channels: the number of channels must be 1 or more")
    if spec.algorithm == "auto" and spec.protocol == IDEAL:
        cuts = spec.chunk_bytes is not None or spec.chunks is not None
        understood = frozenset().union(*(options_for(spec.collective, name) for name in algorithms_for(spec.collective)))
        if cuts and "chunks" not in understood:
            raise ScheduleError(f"no algorithm for {spec.collective} takes a chunk size or a number of chunks; leave it out")
        if (spec.channels or 1) > 1 and "channels" not in understood:
            raise ScheduleError(f"no algorithm for {spec.collective} has channels (got {spec.channels}); leave them out")
    return spec


def _router(spec: Spec) -> Router:
    if spec.protocol == IDEAL:
        return router_of(spec.machine, spec.routing)
    return told_router(spec.machine, spec.nccl, spec.routing)


@dataclass(frozen=True)
class _Run:
    schedule: "Schedule"
    record: "Record"
    algorithm: str
    ranks: int
    """Ranks of the collective, or of each of those that run at once."""
    channels: int
    time_s: float
    """The record's, or what the host needs for a call if that is more."""
    size_bytes: int
    cells: dict[str, Any] = field(default_factory=dict)
    """Further cells of the row."""
    notes: tuple[str, ...] = ()
    finish_s: tuple[float, ...] = ()
    """When each of several collectives at once was done."""


def _simulate(spec: Spec, router: Router, algorithm: str, record: str = "all") -> _Run:
    """Run one algorithm; what the user asked for must suit it, and `build_schedule` says so where it does not."""
    groups = read_groups(spec.groups, len(router.ranks))
    ideal = spec.protocol == IDEAL
    parts, facts = _parts(spec, router, algorithm, groups) if ideal else _nccl_parts(spec, router, algorithm, groups)
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
    first, members = parts[0]
    least_s = facts.pop("least_s", 0.0)
    return _Run(
        schedule,
        left,
        finish_s=finish,
        algorithm=first.algorithm,
        ranks=len(members),
        size_bytes=first.size_bytes,
        time_s=max(left.time_s, least_s) if len(members) > 1 else left.time_s,
        **facts,
    )


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


_Parts = tuple["list[tuple[Schedule, Members]]", dict[str, Any]]
"""The schedule of every group of ranks that runs the collective, and facts of `_Run`."""


def _parts(spec: Spec, router: Router, algorithm: str, groups: tuple[Members, ...]) -> _Parts:
    hosts = hosts_of(router.graph)
    channels = spec.channels or 1
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
                channels=channels,
                limit=spec.max_messages // len(groups),
            )
            if is_file(algorithm):
                prove(built[servers])
        parts.append((built[servers], members))
    return parts, {"channels": channels}


def _nccl_parts(spec: Spec, router: Router, algorithm: str, groups: tuple[Members, ...]) -> _Parts:
    """Build what NCCL would run; sizes are rounded as nccl-tests rounds them."""
    check_process(spec.machine, spec.nccl)
    element = spec.nccl.element_bytes
    sizes = [rounded_size(spec.collective, len(members), spec.size_bytes, element) for members in groups]
    for members, size in zip(groups, sizes, strict=True):
        check_collective(spec.collective, len(members), size, spec.root)
    options: dict[str, Any] = {"algorithm": algorithm, "protocol": spec.protocol, "root": spec.root}
    options |= {"channels": spec.channels, "limit": spec.max_messages // len(groups)}
    found = build_nccl(spec.machine, spec.nccl, groups, spec.collective, sizes, router, **options)
    first = found[0]
    predicted = None if first.choice is None else first.choice.predicted_us
    facts = {
        "channels": first.channels,
        "cells": {"nccl_version": spec.nccl.version, "nccl_model_us": predicted},
        "least_s": least_call_s(spec.machine, spec.nccl, groups[0]),
    }
    notes: list[str] = []
    if first.ruled is False:
        words = f"no rule of {spec.nccl.tuner} serves, so NCCL chose, on the one channel that its example plugin leaves"
        notes.append(words)
    if spec.channels is not None and first.channels != spec.channels:
        used = f"{first.channels} {'is' if first.channels == 1 else 'are'} used"
        notes.append(f"{spec.channels} channels were asked for, and {used}, which is what NCCL has here for this size")
    hindrance = windows_hindrance(spec.machine, spec.nccl, groups[0]) if spec.nccl.windows else None
    if hindrance is not None:
        notes.append(f"symmetric windows count as registered buffers: {hindrance}")
    kinds = list(dict.fromkeys(one.schedule.protocol for one in found))
    if len(kinds) > 1:
        words = f"groups go by different protocols ({', '.join(kinds)}), and links take their own latency and rate for all"
        notes.append(words)
    parts = []
    for one, members in zip(found, groups, strict=True):
        schedule, factor = fed_in_few_pieces(one.schedule, MOST_PIECES // len(groups))
        parts.append((schedule, members))
        if factor > 1 and members is groups[0]:
            notes.append(f"lanes feed links in pieces {factor} times as large, to be quicker")
    return parts, facts | {"notes": tuple(notes)}


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
    if spec.protocol != IDEAL:
        return spec
    understood = options_for(spec.collective, algorithm)
    if "chunks" not in understood:
        spec = replace(spec, chunks=None, chunk_bytes=None)
    return spec if "channels" in understood else replace(spec, channels=None)


def _row(spec: Spec, router: Router, run: _Run, skipped: list[str]) -> Row:
    cells: dict[str, Any] = {
        "topology": spec.machine.label,
        "nodes": spec.machine.nodes,
        "channels": run.channels,
        "scenario": spec.scenario,
        "chunk_bytes": spec.chunk_bytes,
        "chunks": spec.chunks,
        "root": spec.root,
        "rate": spec.machine.rate,
        "profile": spec.machine.profile,
        "routing": spec.routing,
    }
    size, time_s = run.size_bytes, run.time_s
    if spec.groups is not None:
        cells |= {"groups": spec.groups, "ranks": run.ranks, "algorithm": run.algorithm, "size_bytes": size}
        cells |= {"closed_form_us": None, "collective_bound_us": None}
    if spec.groups is not None or time_s != run.record.time_s:
        rates = algorithm_bandwidth(size, time_s), bus_bandwidth(spec.collective, run.ranks, size, time_s)
        cells |= {"time_us": time_s * 1e6, "algbw_GBps": rates[0] / 1e9, "busbw_GBps": rates[1] / 1e9}
    row = result_row(router, run.schedule, run.record, **cells, **run.cells)
    if spec.groups is not None:
        row = replace(row, note=bus_bandwidth_note(run.algorithm, run.ranks))
    return replace(row, note="; ".join(note for note in (row.note, *_notes(run, skipped)) if note))


def works_in_switches(schedule: "Schedule") -> bool:
    """Say whether a schedule lets switches add or copy, so that it may send less than ranks alone must."""
    return bool((schedule.group >= 0).any())


def _notes(run: _Run, skipped: list[str]) -> Iterator[str]:
    yield from run.notes
    if run.finish_s:
        first = format_time(float(f"{min(run.finish_s):.4g}"))
        yield f"{len(run.finish_s)} groups at once, this row is the last of them; the first was done after {first}"
    if skipped:
        yield f"not simulated, more than --max-messages: {', '.join(skipped)}"
