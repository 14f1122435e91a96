"""`simulate` and `time` as users call them: an engine's run, held against its own lower bound; and a run as a row.

Stands above engines, metrics and export, which do not know each other. A run below its bound is an internal error, never
a result. `time` is cheap enough for a planner to ask again and again.
"""

from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from netsim.engine.run import DEFAULT_MAX_MESSAGES, schedule_digest
from netsim.engine.run import simulate as run_engine
from netsim.errors import FabricError, NetsimError, ProofError, ScheduleError, StuckError
from netsim.export.table import COLUMNS, Row, rounded_size
from netsim.fabric import check_is_graph, hosts_of
from netsim.metrics.bounds import check_run, collective_bound
from netsim.metrics.closed_forms import closed_form, uniform_network
from netsim.metrics.links import bottleneck
from netsim.metrics.timing import algorithm_bandwidth, bus_bandwidth, bus_bandwidth_note
from netsim.record import Record
from netsim.routing import Router
from netsim.schedule.catalogue import algorithms_for, build_schedule, options_for
from netsim.schedule.collective import check_collective, is_whole, read_size
from netsim.schedule.dag import Schedule, check_is_schedule
from netsim.schedule.nccl.feed import fed_in_few_pieces
from netsim.schedule.own import is_file
from netsim.schedule.pieces import check_pieces
from netsim.schedule.protocols import IDEAL, protocol_named

if TYPE_CHECKING:
    import networkx as nx

    from netsim.nccl.communicator import Communicator

# Routes of the graphs and policies that were asked for last, the latest at the end.
_ROUTERS: "OrderedDict[tuple[nx.DiGraph[str], str], Router]" = OrderedDict()
_MOST_ROUTERS = 4


def simulate(
    topology: "nx.DiGraph[str] | Router",
    schedule: Schedule,
    *,
    engine: str = "auto",
    quantum_bytes: int | str = 0,
    routing: str = "static",
    max_messages: int = DEFAULT_MAX_MESSAGES,
    record: str = "all",
) -> Record:
    """Run a schedule on a topology and hold the result against its lower bound.

    Parameters
    ----------
    topology : networkx.DiGraph or Router
        A topology (see `netsim.fabric`); pass a `Router` to keep its routes for several runs.
    schedule : Schedule
        What to run; rank i is the i-th GPU of the topology.
    engine : {"auto", "simpy", "compiled"}
        Which engine runs it, with the same times; ``compiled`` needs numba, and ``auto`` takes it for large runs where it
        is there. The record says which ran.
    quantum_bytes : int or str, bytes
        Links serve messages in pieces of this many bytes; 0 serves each message whole.
    routing : str
        Policy of `netsim.routing.Router`; ignored when a router is given.
    max_messages : int
        A run with more messages than this is refused before it starts.
    record : {"all", "summary", "links"}
        Keep the times of all operations, counters only, or also when every link served every message.

    Returns
    -------
    Record
        With `lower_bound_s` set. The same input gives the same bytes.

    Raises
    ------
    FabricError
        If the topology is none, or incomplete, or two ranks that talk have no route.
    ScheduleError
        If the schedule is none, or a number is out of range.
    StuckError
        If the schedule cannot finish; names operations that wait for each other.
    TooManyMessagesError
        If there are more than `max_messages` messages.
    InternalError
        If the run is below its own lower bound.

    Examples
    --------
    >>> import netsim, topologies
    >>> schedule = netsim.build_schedule("all_reduce", "ring", 8, "64 MiB")
    >>> record = netsim.simulate(topologies.build("ideal-switch:8@450GB/s,1us"), schedule)
    >>> round(record.time_s * 1e6, 3)
    274.979
    """
    if not isinstance(topology, Router):
        check_is_graph(topology)
    check_is_schedule(schedule)
    if not is_whole(max_messages, 0):
        raise ScheduleError(f"max_messages is {max_messages!r}; it must be a whole number, zero or more")
    run = run_engine(
        topology,
        schedule,
        engine=engine,
        quantum_bytes=read_size(quantum_bytes, "quantum_bytes"),
        routing=routing,
        max_messages=max_messages,
        record=record,
    )
    return replace(run, lower_bound_s=check_run(schedule, run))


def time(
    collective: str,
    size: int | str,
    topology: "nx.DiGraph[str]",
    *,
    algorithm: str = "auto",
    protocol: str = "ideal",
    root: int = 0,
    chunk_bytes: int | str | None = None,
    chunks: int | None = None,
    nccl_version: str | None = None,
) -> float:
    """Return how long a collective takes on a topology, in seconds.

    Parameters
    ----------
    collective : str
        For example ``all_reduce``.
    size : int or str, bytes
        What nccl-tests calls the size: an integer of bytes, or text such as ``"64 MiB"``.
    topology : networkx.DiGraph
        All its GPUs take part. The routes of the last few graphs are kept, for as long as those stay as they are.
    algorithm : str
        For example ``ring``; ``auto`` is the fastest of all textbook algorithms that can run, or NCCL's choice.
    protocol : {"ideal", "auto", "ll", "ll128", "simple"}
        Textbook alpha-beta, or what NCCL runs, with the costs of its GPUs; ``auto`` is NCCL's choice of a protocol. Sizes
        are then rounded as nccl-tests rounds them, and calls are replayed in a CUDA graph.
    root, chunk_bytes, chunks
        As in `build_schedule`; NCCL cuts data by its own rules and takes neither of the last two.
    nccl_version : str, optional
        Release to imitate, for NCCL's protocols.

    Examples
    --------
    >>> import netsim, topologies
    >>> switch = topologies.build("ideal-switch:8@450GB/s,1us")
    >>> round(netsim.time("all_reduce", "64 MiB", switch, algorithm="ring") * 1e6, 3)
    274.979
    >>> netsim.time("all_reduce", "64 MiB", switch) < 180e-6  # the switch adds and multicasts
    True
    >>> netsim.time("all_reduce", "64 MiB", topologies.build("hgx-h100"), protocol="auto") > 180e-6  # by NVLS, with kernels
    True
    """
    protocol = protocol_named(protocol)
    ideal = protocol == IDEAL
    if nccl_version is not None and ideal:
        raise ScheduleError("nccl_version is for NCCL's protocols; the protocol ideal is the textbook's")
    router = _router_of(topology)
    ranks, groups, size_bytes = len(router.ranks), hosts_of(topology), read_size(size, "size")
    check_collective(collective, ranks, size_bytes, root)
    if isinstance(chunk_bytes, str):
        chunk_bytes = read_size(chunk_bytes, "chunk_bytes")
    check_pieces(chunk_bytes, chunks)
    if not isinstance(algorithm, str) or is_file(algorithm):
        raise ScheduleError(
            f"algorithm is {algorithm!r}; time takes names only: build a file's schedule with build_schedule, prove it and "
            "simulate it"
        )
    if not ideal:
        if chunk_bytes is not None or chunks is not None:
            raise ScheduleError("NCCL cuts data by its own rules; chunk_bytes and chunks are for the protocol ideal")
        schedule = _nccl_schedule(router, collective, size_bytes, algorithm, protocol, root, nccl_version)
        return simulate(router, schedule, record="summary").time_s
    if algorithm != "auto":
        schedule = _schedule(collective, algorithm, ranks, size_bytes, root, chunk_bytes, chunks, groups)
        return simulate(router, schedule, record="summary").time_s
    refusal: NetsimError | None = None
    best: float | None = None
    for name in algorithms_for(collective):
        pieces = "chunks" in options_for(collective, name)
        cut = (chunk_bytes, chunks) if pieces else (None, None)
        try:
            schedule = _schedule(collective, name, ranks, size_bytes, root, *cut, groups)
            seconds = simulate(router, schedule, record="summary").time_s
        except (ProofError, StuckError):
            raise  # a fault of a builder, never a reason to take another
        except (FabricError, ScheduleError) as error:
            # Not every switch adds or multicasts, and not every number of ranks suits every algorithm.
            refusal = refusal or error
        else:
            best = seconds if best is None else min(best, seconds)
    if best is None:
        raise refusal or ScheduleError(f"no algorithm serves {collective}")
    return best


def _nccl_schedule(
    router: Router, collective: str, size_bytes: int, algorithm: str, protocol: str, root: int, version: str | None
) -> Schedule:
    """Build what NCCL would run on all ranks; its rooms are opened here, so that textbook runs start without them."""
    from netsim.nccl import schedules
    from netsim.nccl.from_topology import network_of
    from netsim.nccl.names import resolved

    algorithm, protocol = resolved(collective, algorithm, protocol)
    found = _communicator(router, version)
    built = schedules.build(
        found,
        collective,
        rounded_size(collective, len(router.ranks), size_bytes),
        algorithm=algorithm,
        protocol=protocol,
        root=root,
        network=network_of(router, range(len(router.ranks)), found),
        limit=DEFAULT_MAX_MESSAGES,
    )
    return fed_in_few_pieces(built.schedule)[0]


@lru_cache(maxsize=_MOST_ROUTERS)
def _communicator(router: Router, version: str | None) -> "Communicator":
    from netsim.nccl.from_topology import communicator
    from netsim.nccl.version import DEFAULT, Version

    return communicator(router.graph, DEFAULT if version is None else Version.parse(version, "nccl_version"))


def result_row(topology: "nx.DiGraph[str] | Router", schedule: Schedule, record: Record, /, **cells: Any) -> Row:
    """Return a run as one row of a table, with the columns that `netsim perf --csv` writes.

    Parameters
    ----------
    topology : networkx.DiGraph or Router
        What the schedule ran on.
    schedule : Schedule
        What ran, over all ranks at once.
    record : Record
        The run.
    **cells
        Cells that replace those found here, by column: for example ``topology``, a label, ``scenario``, or the
        ``chunk_bytes`` that was asked for, which a schedule does not remember.

    Returns
    -------
    Row
        For `netsim.csv_text` and `netsim.to_frame`.

    Raises
    ------
    NetsimError
        If the record is of another topology or schedule, or a column does not exist.

    Examples
    --------
    >>> import netsim, topologies
    >>> switch = topologies.build("ideal-switch:8@450GB/s,1us")
    >>> schedule = netsim.build_schedule("all_reduce", "ring", 8, "64 MiB")
    >>> row = netsim.result_row(switch, schedule, netsim.simulate(switch, schedule), scenario="mine")
    >>> row.bottleneck, round(row.time_us, 3), round(row.closed_form_us, 3)
    ('gpu0->switch', 274.979, 274.979)
    """
    check_is_schedule(schedule)
    router = topology if isinstance(topology, Router) else _router_of(topology, record.routing)
    for what, mine, its in (
        ("topology", router.digest, record.topology_digest),
        ("schedule", schedule_digest(schedule), record.schedule_digest),
    ):
        if mine != its:
            raise NetsimError(f"this record is of another {what} (digest {its}, not {mine}); give the one that ran")
    ranks, size, root = schedule.ranks, schedule.size_bytes, schedule.root
    graph, busiest = router.graph.graph, bottleneck(record)
    formula_s, least_s = _yardsticks(router, schedule, record)
    channels = {role.split()[1] for _, role in schedule.lane_names if role.startswith("channel ")}
    busbw = bus_bandwidth(schedule.collective, ranks, size, record.time_s)
    note = bus_bandwidth_note(schedule.algorithm, ranks)
    if busiest is not None and not note:
        rate = router.links[router.edges.index(busiest.edge)].bandwidth_bytes_per_s
        note = "busbw is no wire rate: ranks send over several links at once" if busbw > rate * (1 + 1e-9) else ""
    found = Row(
        collective=schedule.collective,
        topology=str(graph.get("name", "")),
        ranks=ranks,
        nodes=graph.get("nodes", len(hosts_of(router.graph))),
        algorithm=schedule.algorithm,
        protocol=schedule.protocol,
        channels=max(1, len(channels)),
        size_bytes=size,
        time_us=record.time_s * 1e6,
        algbw_GBps=algorithm_bandwidth(size, record.time_s) / 1e9,
        busbw_GBps=busbw / 1e9,
        lower_bound_us=(record.lower_bound_s or 0.0) * 1e6,
        closed_form_us=None if formula_s is None else formula_s * 1e6,
        bottleneck="" if busiest is None else busiest.name,
        engine=record.engine,
        messages=record.messages,
        version=record.version,
        scenario="",
        seed=record.seed,
        topology_digest=record.topology_digest,
        collective_bound_us=None if least_s is None else least_s * 1e6,
        bottleneck_utilisation=None if busiest is None else busiest.utilisation,
        quantum_bytes=record.quantum_bytes,
        root=root,
        rate=graph.get("rate", "effective"),
        profile=graph.get("profile"),
        gpudirect=bool(graph.get("gpudirect", True)),
        routing=record.routing,
        note=note,
    )
    unknown = sorted(cells.keys() - set(COLUMNS))
    if unknown:
        raise NetsimError(f"there is no column {unknown[0]!r}; the columns are {', '.join(COLUMNS)}")
    return replace(found, **cells)


def _yardsticks(router: Router, schedule: Schedule, record: Record) -> tuple[float | None, float | None]:
    """Return the closed form's time and the bound of the collective in seconds, None where there is none."""
    if schedule.ranks != len(router.ranks):
        return None, None
    collective, size, root = schedule.collective, schedule.size_bytes, schedule.root
    uniform, formula_s = uniform_network(router), None
    textbook = schedule.protocol == "ideal" and schedule.pieces == 1 and not record.quantum_bytes
    if textbook and uniform is not None and uniform.serves(schedule.algorithm):
        alpha_beta = uniform.latency_s, uniform.bandwidth_bytes_per_s
        formula_s = closed_form(collective, schedule.algorithm, schedule.ranks, size, *alpha_beta, root=root)
    in_network = bool((schedule.group >= 0).any())
    protocol = schedule.protocol
    return formula_s, collective_bound(collective, size, router, root=root, in_network=in_network, protocol=protocol)


def _router_of(topology: "nx.DiGraph[str]", routing: str = "static") -> Router:
    """Return the routes of a graph, those that were kept if the graph is still what they were compiled from."""
    check_is_graph(topology)
    router = _ROUTERS.pop((topology, routing), None)
    if router is None or not router.still_describes(topology):
        router = Router(topology, routing)
    _ROUTERS[topology, routing] = router
    while len(_ROUTERS) > _MOST_ROUTERS:
        _ROUTERS.popitem(last=False)
    return router


@lru_cache(maxsize=8)
def _schedule(
    collective: str,
    algorithm: str,
    ranks: int,
    size_bytes: int,
    root: int,
    chunk_bytes: int | None,
    chunks: int | None,
    groups: tuple[tuple[int, ...], ...],
) -> Schedule:
    return build_schedule(
        collective, algorithm, ranks, size_bytes, root=root, chunk_bytes=chunk_bytes, chunks=chunks, groups=groups
    )
