"""What crossed each link, how long it was busy, how long it let messages wait, and which link a run leaned on most."""

from dataclasses import dataclass

import numpy as np

from netsim.fabric import link_name
from netsim.record import Floats, Record


@dataclass(frozen=True)
class LinkLoad:
    """One directed link's share of a run."""

    edge: tuple[str, str]
    name: str
    """``from->to``."""
    bytes: int
    messages: int
    busy_s: float
    """Seconds occupied."""
    utilisation: float
    """Occupied share of the run's time, 0 to 1; above 1 only by rounding, below because a link idles."""
    waiting_s: float | None = None
    """Seconds that messages waited for it, all together; None unless the run was kept with ``record="links"``."""


def link_loads(record: Record, *, idle: bool = False) -> list[LinkLoad]:
    """Return the load of every link that carried something, busiest first (ties in order of creation).

    Parameters
    ----------
    record : Record
        A run.
    idle : bool
        Also list links that carried nothing.
    """
    order = np.argsort(-record.link_busy_s, kind="stable")
    waits = None if record.services is None else record.waiting_s
    return [_load(record, int(link), waits) for link in order if idle or record.link_messages[link]]


def bottleneck(record: Record) -> LinkLoad | None:
    """Return the busiest link of a run, the first created among equals; None where nothing was sent."""
    edge = record.bottleneck
    if edge is None:
        return None
    return _load(record, record.edges.index(edge), None if record.services is None else record.waiting_s)


def _load(record: Record, link: int, waits: Floats | None) -> LinkLoad:
    busy = float(record.link_busy_s[link])
    return LinkLoad(
        edge=record.edges[link],
        name=link_name(record.edges[link]),
        bytes=int(record.link_bytes[link]),
        messages=int(record.link_messages[link]),
        busy_s=busy,
        utilisation=busy / record.time_s if record.time_s > 0 else 0.0,
        waiting_s=None if waits is None else float(waits[link]),
    )
