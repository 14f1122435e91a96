"""How bytes and time meet on a link: the constants of every link, on the engine's grid of time.

A link is a first-come server. A message of n bytes that asks it at time a is served by

    start = max(a, free);  lead = start + gap;  free = max(lead + n / B, start + floor)

and asks the next link at ``lead + latency`` (cut-through) or, behind a store-and-forward node, when its tail is there;
``tail = max(tail at the link before, free) + latency``. Full duplex, no loss, unbounded buffers behind every link;
a fast link behind a slow one is charged n / B_fast.

Latency, gap, floor and n / B are multiples of 2^-55 s, so that sums of them are exact below 0.25 s and ties between
messages do not hang on rounding. Every engine uses these expressions and no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from netsim.clock import Floats, array_on_grid, on_grid
from netsim.fabric import Link
from netsim.routing import Router

__all__ = ["Floats", "LinkTable", "array_on_grid", "link_table", "on_grid"]

_TABLES: WeakKeyDictionary[Router, dict[str, "LinkTable"]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class LinkColumns:
    """The constants of all links as arrays, for what is computed for many operations at once."""

    latency: Floats
    gap: Floats
    floor: Floats
    bandwidth: Floats
    piece_bytes: npt.NDArray[np.int64]


class LinkTable:
    """The constants of every directed link of a topology, in the order of the router's edge indices.

    Parameters
    ----------
    links : sequence of Link
        As the router took them from the graph.
    piece_bytes : sequence of int
        For a link that ends at a store-and-forward node, the piece that node waits for (at least 1); else 0.

    Attributes
    ----------
    latency, gap, floor : list of float
        Seconds, on the grid.
    bandwidth : list of float
        Bytes per second.
    piece_bytes : list of int
        As given.
    """

    def __init__(self, links: Sequence[Link], piece_bytes: Sequence[int]) -> None:
        self.latency = [on_grid(link.latency_s) for link in links]
        self.gap = [on_grid(link.gap_s) for link in links]
        self.floor = [on_grid(link.floor_s) for link in links]
        self.bandwidth = [float(link.bandwidth_bytes_per_s) for link in links]
        self.piece_bytes = list(piece_bytes)

    def __len__(self) -> int:
        return len(self.bandwidth)

    @cached_property
    def columns(self) -> LinkColumns:
        """The same constants as arrays."""
        latency, gap, floor, bandwidth = np.array([self.latency, self.gap, self.floor, self.bandwidth])
        return LinkColumns(latency, gap, floor, bandwidth, np.array(self.piece_bytes, np.int64))

    def serialisation(self, link: int, size_bytes: int) -> float:
        """Return n / B of a link in seconds, on the grid."""
        return on_grid(size_bytes / self.bandwidth[link])


def link_table(router: Router, protocol: str = "ideal") -> LinkTable:
    """Return the constants of a router's links as a protocol meets them, built once for all its runs."""
    tables = _TABLES.setdefault(router, {})
    if protocol not in tables:
        stored = [router.stored_bytes[router.index[target]] for _, target in router.edges]
        met = {id(link): link.under(protocol) for link in router.links}  # a large cluster has a handful of distinct links
        tables[protocol] = LinkTable([met[id(link)] for link in router.links], stored)
    return tables[protocol]
