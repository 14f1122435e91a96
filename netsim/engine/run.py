"""The front door of the engines: `simulate` lays a schedule on a topology, runs it, and returns a record.

Chooses the engine, refuses what would not fit, turns a run that cannot finish into an error that names the stuck
operations, and counts what crossed each link. No physics of its own.
"""

import hashlib
from importlib.util import find_spec
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

import netsim
from netsim.engine.links import Floats
from netsim.engine.prepare import Prepared, Trace, prepare
from netsim.errors import NetsimError, StuckError, TooManyMessagesError
from netsim.record import Record, Services
from netsim.routing import Router
from netsim.schedule.dag import COLUMNS, MILESTONE_NAMES, Schedule

if TYPE_CHECKING:
    import networkx as nx

ENGINES = ("auto", "simpy", "compiled")
RECORDS = ("all", "summary", "links")
"""What a record can keep: operation times, counters only, or also every service of every link."""
DEFAULT_MAX_MESSAGES = 50_000_000

_DIGESTS: "WeakKeyDictionary[Schedule, str]" = WeakKeyDictionary()
"""Digests of schedules, which do not change once they are built."""
_DIGEST_ROWS = 1 << 16
"""Rows of a column that are digested at a time, few enough to stay in a cache."""

_COMPILED_FROM = 30_000
"""Messages (or operations, if they are more) and requirements from which `auto` compiles; below, SimPy is through before
numba is loaded.

Loading takes 0.6 s, once in a process; SimPy 15 to 37 us for each. On one machine NVLS over 8 GPUs at 16 MiB, 32,128 of
them, took 0.45 s by SimPy and 0.008 s compiled, over 72 GPUs at 1 MiB, 35,680 of them, 1.2 and 0.02 s.
"""


def simulate(
    topology: "nx.DiGraph[str] | Router",
    schedule: Schedule,
    *,
    engine: str = "auto",
    quantum_bytes: int = 0,
    routing: str = "static",
    max_messages: int = DEFAULT_MAX_MESSAGES,
    record: str = "all",
) -> Record:
    """Run a schedule on a topology; parameters and errors as in `netsim.runs.simulate`, which also checks the result."""
    if engine not in ENGINES:
        raise NetsimError(f"unknown engine {engine!r}; accepted are {', '.join(ENGINES)}")
    if record not in RECORDS:
        raise NetsimError(f"unknown record {record!r}; accepted are {', '.join(RECORDS)}")
    if quantum_bytes < 0:
        raise NetsimError(f"quantum of {quantum_bytes} bytes: it must be zero (whole messages) or more")
    router = topology if isinstance(topology, Router) else Router(topology, routing)
    prepared = prepare(router, schedule, quantum_bytes)
    messages = prepared.messages
    if messages > max_messages:
        raise TooManyMessagesError(
            f"this run needs {messages} messages, more than the limit of {max_messages}; "
            "raise it with --max-messages, or use larger chunks or a larger quantum"
        )
    engine = _chosen(engine, max(messages, len(schedule)) + len(schedule.requires_op))
    start, end, services = _run(prepared, engine, record == "links")
    if np.isnan(end).any():
        raise StuckError(_stuck(schedule, end))
    table = prepared.table
    bytes_, counts, busy = table.link_counters(prepared.links, prepared.numbers)
    if record == "summary":
        time_s, start, end = float(end.max(initial=0.0)), np.empty(0), np.empty(0)
    else:
        time_s = float(end.max(initial=0.0))
    return Record(
        time_s=time_s,
        start_s=start,
        end_s=end,
        op_class=prepared.op_class,
        idle_s=table.idle_times(prepared.links),
        hold_s=prepared.hold,
        work_s=prepared.work,
        edges=tuple(router.edges),
        link_bytes=bytes_,
        link_messages=counts,
        link_busy_s=busy,
        messages=messages,
        engine=engine,
        version=netsim.__version__,
        topology_digest=router.digest,
        schedule_digest=schedule_digest(schedule),
        quantum_bytes=quantum_bytes,
        routing=router.policy,
        seed=router.seed,
        services=services,
    )


def _chosen(engine: str, work: int) -> str:
    """Return the engine that runs: `auto` compiles what is large, where numba is there."""
    if engine != "auto":
        return engine
    return "compiled" if work >= _COMPILED_FROM and find_spec("numba") else "simpy"


def _run(prepared: Prepared, engine: str, noted: bool) -> tuple[Floats, Floats, Services | None]:
    """Return start and end of every operation, and the services of links if they are to be noted."""
    # Engines are loaded where they run, so that listing and proving schedules does not pay for them.
    if engine == "compiled":
        from netsim.engine.compiled import run_compiled

        return run_compiled(prepared, noted)
    trace: Trace | None = [] if noted else None
    if prepared.pieced:
        from netsim.engine.simpy_pieces import PiecesRun

        start, end = PiecesRun(prepared, trace).run()
    else:
        from netsim.engine.simpy_lanes import run_simpy

        start, end = run_simpy(prepared, trace)
    return start, end, None if trace is None else _services(trace)


def _services(trace: Trace) -> Services:
    """Turn what an engine noted into columns, in an order that does not hang on when it was noted."""
    columns = list(zip(*sorted(trace), strict=True)) or [()] * 7
    op, piece, hop, link = (np.array(column, np.int64) for column in columns[:4])
    ask, start, free = (np.array(column, np.float64) for column in columns[4:])
    return Services(op, piece, hop, link, ask, start, free)


def schedule_digest(schedule: Schedule) -> str:
    """Return twelve hex digits that change whenever an operation or a requirement does, names for people apart."""
    if schedule not in _DIGESTS:
        _DIGESTS[schedule] = _digest(schedule)
    return _DIGESTS[schedule]


def _digest(schedule: Schedule) -> str:
    facts = (schedule.collective, schedule.ranks, schedule.size_bytes, schedule.root, schedule.lane_names, schedule.groups)
    digest = hashlib.sha256(repr(facts).encode())
    # What lanes cost is left out where nothing has such a cost.
    quiet = [name for name in ("work", "feed", "early", "flow") if not getattr(schedule, name).any()]
    quiet += ["via"] if (schedule.via < 0).all() else []
    columns = [name for name, _, _ in COLUMNS if name not in ("chunk", "step", *quiet)]
    ranges = () if schedule.ranges_start is None else ("ranges_start", "ranges_offset", "ranges_size")
    for name in (*columns, "requires_start", "requires_op", "requires_milestone", "requires_lag", *ranges):
        column = getattr(schedule, name)
        for first in range(0, len(column), _DIGEST_ROWS):
            digest.update(column[first : first + _DIGEST_ROWS].tobytes())
    return digest.hexdigest()[:12]


def _stuck(schedule: Schedule, end: Floats) -> str:
    """Name the operations at which lanes stand, and what they wait for."""
    unfinished = np.flatnonzero(np.isnan(end))
    _, heads = np.unique(schedule.lane[unfinished], return_index=True)
    standing = unfinished[np.sort(heads)]
    words = []
    for op in standing[:4].tolist():
        waits = [(need, milestone) for need, milestone, _ in schedule.requirements(op) if np.isnan(end[need])]
        if waits:
            need, milestone = waits[0]
            words.append(f"{schedule.describe(op)} waits for the {MILESTONE_NAMES[milestone]} of {schedule.describe(need)}")
        else:
            words.append(f"{schedule.describe(op)} never started")
    more = f", and {len(standing) - 4} more lanes" if len(standing) > 4 else ""
    return f"the schedule cannot finish: {len(unfinished)} operations never ran; {'; '.join(words)}{more}"
