"""`time`: a collective's completion time in one call, cheap enough for a planner to ask again and again."""

from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from netsim.engine.run import simulate
from netsim.errors import FabricError, ScheduleError
from netsim.fabric import hosts_of
from netsim.routing import Router
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.dag import Schedule
from netsim.units import parse_bytes

if TYPE_CHECKING:
    import networkx as nx

# Routers of frozen graphs: a graph that can still change is compiled anew each time.
_ROUTERS: "WeakKeyDictionary[nx.DiGraph[str], Router]" = WeakKeyDictionary()


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
