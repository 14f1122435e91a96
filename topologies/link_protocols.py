"""The text form of what NCCL's protocols meet on a link: the keys of a profile, and of a link in a description.

``latency_ll``, ``latency_ll128`` and ``latency_simple`` (a time) are what a hop takes in place of ``latency``; ``share_ll``
and its like (a number above 0, at most 1) what is left of the rate; ``post`` (a time) what a message occupies the link
at least; ``eager`` (a size) and ``rendezvous`` (a time) say from which size on messages are announced first, and
how long that takes; ``spread`` (a time) by how much a hop is longer with each doubling of the channels that send at once;
``proxy_ll`` (a rate) how many bytes of LL on the wire the proxy of a channel passes on.
"""

from collections.abc import Mapping
from typing import Any

from netsim.errors import FabricError, UnitError
from netsim.fabric import LinkProtocols
from netsim.units import format_bytes, format_rate, format_time, parse_bytes, parse_rate, parse_time

_PROTOCOLS = ("ll", "ll128", "simple")
_LATENCIES = {f"latency_{name}": name for name in _PROTOCOLS}
_SHARES = {f"share_{name}": name for name in _PROTOCOLS}
_PROXIES = {"proxy_ll": "ll"}
_TIMES = ("post", "rendezvous", "spread")
KEYS = (*_LATENCIES, *_SHARES, *_PROXIES, "post", "eager", "rendezvous", "spread")
"""All keys, in the order in which they are written."""


def read_protocols(table: Mapping[str, Any], where: str = "") -> LinkProtocols | None:
    """Read the figures that a mapping holds, None where it has no key of them.

    Raises
    ------
    UnitError
        For a quantity that is none, or a share that is no number.
    FabricError
        For a figure that makes no sense.
    """
    if not any(key in table for key in KEYS):
        return None
    place = f"{where}: " if where else ""

    def share(key: str) -> float:
        value = table[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnitError(f"{place}{key} is {value!r}; write a number above 0, at most 1")
        return float(value)

    times = {key: parse_time(table.get(key, "0"), where=f"{place}{key}") for key in _TIMES}
    latencies = {key: parse_time(table[key], where=f"{place}{key}") for key in _LATENCIES if key in table}
    shares = {key: share(key) for key in _SHARES if key in table}
    proxies = {key: parse_rate(table[key], where=f"{place}{key}") for key in _PROXIES if key in table}
    eager_bytes = parse_bytes(str(table.get("eager", "0")), where=f"{place}eager")
    if (eager_bytes > 0) != (times["rendezvous"] > 0):
        raise FabricError(
            f"{place}eager and rendezvous go together: up to how many bytes are sent at once, and how long the announcement "
            "of a larger message takes; write both, or neither"
        )
    try:
        return LinkProtocols(
            latency_s=tuple((_LATENCIES[key], seconds) for key, seconds in latencies.items()),
            share=tuple((_SHARES[key], part) for key, part in shares.items()),
            post_s=times["post"],
            eager_bytes=eager_bytes,
            rendezvous_s=times["rendezvous"],
            spread_s=times["spread"],
            proxy=tuple((_PROXIES[key], rate) for key, rate in proxies.items()),
        )
    except FabricError as error:
        raise FabricError(f"{place}{error}") from error


def protocol_items(figures: LinkProtocols | None) -> dict[str, str | float]:
    """Return what `read_protocols` reads to the same figures."""
    if figures is None:
        return {}
    items: dict[str, str | float] = {f"latency_{name}": format_time(value) for name, value in figures.latency_s}
    items |= {f"share_{name}": value for name, value in figures.share}
    items |= {f"proxy_{name}": format_rate(value) for name, value in figures.proxy}
    for key, seconds in (("post", figures.post_s), ("rendezvous", figures.rendezvous_s), ("spread", figures.spread_s)):
        if seconds:
            items[key] = format_time(seconds)
    if figures.eager_bytes:
        items["eager"] = format_bytes(figures.eager_bytes)
    return items
