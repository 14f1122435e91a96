"""How bytes and time meet on a link: the constants of every link, on the engine's grid of time.

A link is a first-come server. A message of n bytes that asks it at time a is served by

    start = max(a, free);  lead = start + gap;  free = max(lead + n / B, start + floor)

and asks the next link at ``lead + latency`` (cut-through) or, behind a store-and-forward node, when its tail is there;
``tail = max(tail at the link before, free) + latency``. Full duplex, no loss, unbounded buffers behind every link;
a fast link behind a slow one is charged n / B_fast.

Latency, gap, floor and n / B are multiples of 2^-55 s, so that sums of them are exact below 0.25 s and ties between
messages do not hang on rounding. Every engine uses these expressions and no other.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from netsim.fabric import Link

if TYPE_CHECKING:
    import networkx as nx

Floats = npt.NDArray[np.float64]

_GRID = 2.0**55


def on_grid(seconds: float) -> float:
    """Round a duration to the nearest multiple of 2^-55 s.

    Examples
    --------
    >>> on_grid(1e-6) == 1e-6, abs(on_grid(1e-6) - 1e-6) < 2**-56
    (False, True)
    """
    # Above 2^-2 s a double has no finer bits than the grid, so nothing is lost; far above, scaling could overflow.
    return round(seconds * _GRID) / _GRID if seconds < 0.5 else seconds


def array_on_grid(seconds: npt.ArrayLike) -> Floats:
    """Round durations to multiples of 2^-55 s, element by element as `on_grid` does."""
    values = np.asarray(seconds, np.float64)
    return np.where(values < 0.5, np.rint(values * _GRID) / _GRID, values)


class LinkTable:
    """The constants of every directed link of a topology, in the order of the router's edge indices.

    Attributes
    ----------
    latency, gap, floor : list of float
        Seconds, on the grid.
    bandwidth : list of float
        Bytes per second.
    piece_bytes : list of int
        For a link that ends at a store-and-forward node, the piece that node waits for (at least 1); else 0.
    """

    def __init__(self, graph: "nx.DiGraph[str]", edges: Iterable[tuple[str, str]]) -> None:
        edges = list(edges)
        links: list[Link] = [graph.edges[edge]["link"] for edge in edges]
        self.latency = [on_grid(link.latency_s) for link in links]
        self.gap = [on_grid(link.gap_s) for link in links]
        self.floor = [on_grid(link.floor_s) for link in links]
        self.bandwidth = [float(link.bandwidth_bytes_per_s) for link in links]
        targets = [graph.nodes[target] for _, target in edges]
        self.piece_bytes = [
            max(int(node.get("piece_bytes", 0)), 1) if node.get("store_and_forward", False) else 0 for node in targets
        ]

    def __len__(self) -> int:
        return len(self.bandwidth)

    def serialisation(self, link: int, size_bytes: int) -> float:
        """Return n / B of a link in seconds, on the grid."""
        return on_grid(size_bytes / self.bandwidth[link])
