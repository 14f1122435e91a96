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
from netsim.errors import FabricError, NetsimError, ProofError, ScheduleError, StuckError
from netsim.fabric import hosts_of
from netsim.metrics.bounds import check_run
from netsim.record import Record
from netsim.routing import Router
from netsim.schedule.catalogue import algorithms_for, build_schedule, options_for
from netsim.schedule.dag import Schedule
from netsim.schedule.own import is_file
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
    record : {"all", "summary", "links"}
        Keep the times of all operations, counters only, or also when every link served every message.

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
    algorithm: str = "auto",
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
        For example ``ring``; ``auto`` is the fastest of all textbook algorithms that can run.
    protocol : {"ideal"}
        Textbook alpha-beta; NCCL's protocols come later.
    root, chunk_bytes, chunks
        As in `build_schedule`.

    Examples
    --------
    >>> import netsim, topologies
    >>> switch = topologies.build("ideal-switch:8@450GB/s,1us")
    >>> round(netsim.time("all_reduce", "64 MiB", switch, algorithm="ring") * 1e6, 3)
    274.979
    >>> netsim.time("all_reduce", "64 MiB", switch) < 180e-6  # the switch adds and multicasts
    True
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
    ranks, groups, size_bytes = len(router.ranks), hosts_of(topology), parse_bytes(size)
    if is_file(algorithm):
        raise ScheduleError(
            f"algorithm is {algorithm!r}; time takes names only: build a file's schedule with build_schedule, prove it and "
            "simulate it"
        )
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
