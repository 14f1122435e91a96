"""`simulate` and `time` as users call them: an engine's run, held against its own lower bound.

Stands above engines and metrics, which do not know each other. A run below its bound is an internal error, never a
result. `time` is cheap enough for a planner to ask again and again.
"""

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from netsim.engine.run import DEFAULT_MAX_MESSAGES
from netsim.engine.run import simulate as run_engine
from netsim.errors import FabricError, ScheduleError
from netsim.fabric import hosts_of
from netsim.metrics.bounds import check_run
from netsim.record import Record
from netsim.routing import Router
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import Schedule
from netsim.units import parse_bytes

if TYPE_CHECKING:
    import networkx as nx

# Routers of frozen graphs: a graph that can still change is compiled anew each time.
_ROUTERS: "WeakKeyDictionary[nx.DiGraph[str], Router]" = WeakKeyDictionary()


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
    """Run a schedule on a topology and hold the result against its lower bound.

    Parameters
    ----------
    topology : networkx.DiGraph or Router
        A topology (see `netsim.fabric`); pass a `Router` to keep its routes for several runs.
    schedule : Schedule
        What to run; rank i is the i-th GPU of the topology.
    engine : {"auto", "simpy"}
        Which engine runs it; the record says which did.
    quantum_bytes : int
        Links serve messages in pieces of this many bytes; 0 serves each message whole.
    routing : str
        Policy of `netsim.routing.Router`; ignored when a router is given.
    max_messages : int
        A run with more messages than this is refused before it starts.
    record : {"all", "summary"}
        Keep the times of all operations, or counters only.

    Returns
    -------
    Record
        With `lower_bound_s` set. The same input gives the same bytes.

    Raises
    ------
    FabricError
        If the topology is incomplete or two ranks that talk have no route.
    StuckError
        If the schedule cannot finish; names operations that wait for each other.
    TooManyMessagesError
        If there are more than `max_messages` messages.
    InternalError
        If the run is below its own lower bound.

    Examples
    --------
    >>> import netsim, topologies
    >>> schedule = netsim.build_schedule("all_reduce", "ring", 8, 2**26)
    >>> record = netsim.simulate(topologies.build("ideal-switch:8@450GB/s,1us"), schedule)
    >>> round(record.time_s * 1e6, 3)
    274.979
    """
    run = run_engine(
        topology,
        schedule,
        engine=engine,
        quantum_bytes=quantum_bytes,
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
    algorithm: str = "ring",
    protocol: str = "ideal",
    root: int = 0,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
) -> float:
    """Return how long a collective takes on a topology, in seconds.

    Parameters
    ----------
    collective : str
        For example ``all_reduce``.
    size : int or str, bytes
        What nccl-tests calls the size: an integer of bytes, or text such as ``"64 MiB"``.
    topology : networkx.DiGraph
        All its GPUs take part.
    algorithm : str
        For example ``ring``.
    protocol : {"ideal"}
        Textbook alpha-beta; NCCL's protocols come later.
    root, chunk_bytes, chunks
        As in `build_schedule`.

    Examples
    --------
    >>> import netsim, topologies
    >>> round(netsim.time("all_reduce", "64 MiB", topologies.build("ideal-switch:8@450GB/s,1us")) * 1e6, 3)
    274.979
    """
    if protocol != "ideal":
        raise ScheduleError(f"unknown protocol {protocol!r}; accepted is ideal, NCCL's protocols come later")
    if not hasattr(topology, "edges"):
        raise FabricError(f"topology is {topology!r}; pass a graph, for example topologies.build('hgx-h100')")
    router = _ROUTERS.get(topology)
    if router is None:
        router = Router(topology)
        if getattr(topology, "frozen", False):
            _ROUTERS[topology] = router
    groups = hosts_of(topology)
    size_bytes = parse_bytes(size)
    schedule = _schedule(collective, algorithm, len(router.ranks), size_bytes, root, chunk_bytes, chunks, groups)
    return simulate(router, schedule, record="summary").time_s


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
