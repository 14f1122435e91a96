"""One line of `netsim reproduce`: a number of the article behind this project beside the simulated one, and how they agree.

The lines themselves stand in ``article_*.py``, a module for each group of sections; here is what they share: the links of
the article, the ideal switch, and the search for a size. A stated value is text, as the article prints it, because its
last digit says how far rounding may go: a number (``14.4``), a range (``60 to 70``), a limit (``up to 2``) or words.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx

import topologies
from netsim.fabric import GPU, Link
from netsim.record import Record
from netsim.runs import time

NVLINK4, NVLINK5, NDR = "450GB/s", "900GB/s", "50GB/s"
# 32 GT/s on 16 lanes, 128 of 130 bits payload: 63.015 GB/s, printed as 63.0.
PCIE5 = "63.015GB/s"
STEP = "1us"
STEP_S = 1e-6
# The laptop's measured link (RTX 4060 Laptop, PCIe Gen4 x8, pinned host to device), profile laptop_pcie4_x8.
LAPTOP_RATE, LAPTOP_GAP = "13.45GB/s", "8.25us"
LARGE_BYTES = 10**12
"""Beside this many bytes no latency counts."""

# Llama 3.1 70B: 70.6e9 parameters in BF16, 80 layers, hidden size 8,192.
PARAMETERS, LAYERS, HIDDEN, BYTES_EACH = 70_600_000_000, 80, 8192, 2

_NUMBER = r"(\d+(?:\.\d+)?)"
_FORMS = (re.compile(_NUMBER), re.compile(f"{_NUMBER} to {_NUMBER}"), re.compile(f"up to {_NUMBER}"))


@dataclass(frozen=True)
class Line:
    """One number, or word, of the article beside the simulated one."""

    section: str
    what: str
    unit: str
    stated: str
    """As printed in the article; empty where it gives nothing."""
    simulated: float | str | None
    """None where a simulator cannot produce it; the note says why."""
    note: str = ""
    apart: bool = False
    """Whether the two are meant to differ; the note says why."""
    scenario: str = ""
    """File in this folder in which the number can be looked up and changed."""

    @property
    def limits(self) -> tuple[float, float] | None:
        """Least and greatest value that agree with what is stated; None where it is no number."""
        number, span, most = (form.fullmatch(self.stated) for form in _FORMS)
        if number:
            _, _, decimals = self.stated.partition(".")
            half = 0.5 * 10.0 ** -len(decimals) * (1 + 1e-6)
            return float(self.stated) - half, float(self.stated) + half
        if span:
            return float(span[1]), float(span[2])
        return (-math.inf, float(most[1])) if most else None

    @property
    def difference(self) -> float | None:
        """Simulated less stated, in the line's unit; for a range, by how far the simulated value is outside."""
        limits = self.limits
        if limits is None or not isinstance(self.simulated, float | int):
            return None
        if _FORMS[0].fullmatch(self.stated):
            return self.simulated - float(self.stated)
        low, high = limits
        return min(self.simulated - low, 0.0) + max(self.simulated - high, 0.0)

    @property
    def fits(self) -> bool:
        """Whether the simulated value rounds to the stated one, lies within the stated range, or is the stated word."""
        if not self.stated or self.simulated is None:
            return True
        limits = self.limits
        if limits is None or isinstance(self.simulated, str):
            return self.simulated == self.stated
        return limits[0] <= self.simulated <= limits[1]

    @property
    def verdict(self) -> str:
        """``agrees``, ``apart`` (meant to differ), ``not simulated`` or ``OFF``; empty where nothing is stated."""
        if self.simulated is None:
            return "not simulated"
        if not self.stated:
            return ""
        if self.apart:
            return "apart"
        return "agrees" if self.fits else "OFF"

    @property
    def row(self) -> tuple[object, ...]:
        """The line's cells in the order of the CSV's columns."""
        told = (self.section, self.what, self.unit, self.stated, self.simulated, self.difference)
        return (*told, self.verdict, self.scenario, self.note)


def switch(ranks: int, rate: str, latency: str = STEP) -> "nx.DiGraph[str]":
    """Return an ideal switch."""
    return topologies.build(f"ideal-switch:{ranks}@{rate},{latency}")


def ring_s(size_bytes: int, graph: "nx.DiGraph[str]") -> float:
    """Return the seconds of a ring all-reduce."""
    return time("all_reduce", size_bytes, graph, algorithm="ring")


def copy_s(size_bytes: int, link: Link) -> float:
    """Return the seconds of one copy over one link, with nothing else in the way."""
    graph: nx.DiGraph[str] = nx.DiGraph(name="one link")
    for node in ("host", "gpu"):
        graph.add_node(node, kind=GPU)
    graph.add_edge("host", "gpu", link=link)
    graph.add_edge("gpu", "host", link=link)
    return time("broadcast", size_bytes, graph, algorithm="flat")


def rate_of(link: Link) -> float:
    """Return the bytes per second that a large copy over one link reaches."""
    return LARGE_BYTES / copy_s(LARGE_BYTES, link)


def sent(record: Record) -> list[int]:
    """Return the bytes that left each rank of an ideal switch."""
    return [int(record.link_bytes[link]) for link, (source, _) in enumerate(record.edges) if source != "switch"]


def received(record: Record) -> list[int]:
    """Return the bytes that reached each rank of an ideal switch."""
    return [int(record.link_bytes[link]) for link, (source, _) in enumerate(record.edges) if source == "switch"]


def least_size(crosses: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least size from which on `crosses` holds, by bisection between one that fails and one that holds."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if crosses(middle) else (middle, high)
    return high
