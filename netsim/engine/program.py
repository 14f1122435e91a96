"""What the SimPy engines share: the program of each lane, the links of each route as tuples, and the order of events.

Events stand in SimPy's queue at absolute times under the key (time, stage, operation, hop, piece): stage 2 holds
milestones, stage 3 link requests, above SimPy's own urgent and normal priorities.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.engine.prepare import END_ONCE, Prepared
from netsim.schedule.dag import END

MILESTONE_STAGE = 2
REQUEST_STAGE = 3

# Operations turned into Python objects at a time: at most so many in all lanes together (some 100 bytes each), to hold
# memory to what is in flight; and in one lane no fewer than pay for the conversion and no more than are of any use.
_AHEAD, _LEAST, _MOST = 2**20, 64, 4096


class EngineEvent:
    """An event of this engine: what SimPy asks of one, in slots."""

    __slots__ = ("at", "callbacks", "tail")
    _ok = True
    _value = None

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] | None = []
        self.at = 0.0
        self.tail = 0.0


Requirements = list[tuple[int, int, float]]
Program = Iterator[tuple[int, int, int, float, float, int, Requirements | None]]


def program(prepared: Prepared, lane: int) -> Program:
    """Yield what a lane does, in order: (operation, class, need, hold, work, mode, requirements).

    The requirements are (operation, milestone, lag) triples; None in blocks where `need` says it all.
    """
    schedule = prepared.schedule
    first, last = int(prepared.lane_start[lane]), int(prepared.lane_start[lane + 1])
    block = min(_MOST, max(_LEAST, _AHEAD // len(schedule.lane_names)))
    for begin in range(first, last, block):
        ops = prepared.lane_order[begin : min(begin + block, last)]
        need = prepared.need[ops]
        columns = (ops, prepared.op_class[ops], need, prepared.hold[ops], prepared.work[ops], prepared.mode[ops])
        wants: Iterable[Requirements | None] = repeat(None, len(ops))
        if (need == -2).any():
            wants = _requirements(prepared, ops)
        yield from zip(*(column.tolist() for column in columns), wants, strict=True)


def _requirements(prepared: Prepared, ops: npt.NDArray[np.int64]) -> list[Requirements]:
    """Return the requirements of several operations as Python objects, converted in one go."""
    schedule = prepared.schedule
    starts, stops = schedule.requires_start[ops], schedule.requires_start[ops + 1]
    ends = np.cumsum(stops - starts)
    places = np.arange(ends[-1]) - np.repeat(ends - (stops - starts) - starts, stops - starts)
    columns = (schedule.requires_op[places], schedule.requires_milestone[places], prepared.lag[places])
    triples = list(zip(*(column.tolist() for column in columns), strict=True))
    bounds = [0, *ends.tolist()]
    return [triples[begin:end] for begin, end in pairwise(bounds)]


def waiters_of(prepared: Prepared) -> dict[int, int]:
    """Return how many operations wait for each milestone that is kept, under operation * 3 + milestone."""
    schedule = prepared.schedule
    keys, counts = np.unique(schedule.requires_op * 3 + schedule.requires_milestone, return_counts=True)
    once = np.array([kind.watch & END_ONCE for kind in prepared.classes] or [0])
    kept = (keys % 3 != END) | (once[prepared.op_class[keys // 3]] == 0)
    return dict(zip(keys[kept].tolist(), counts[kept].tolist(), strict=True))


def routes_of(prepared: Prepared, tandem: bool) -> list[list[Any]]:
    """Return for every class and piece its first link as (watch, link, gap, serialisation, floor, latency, next, at once).

    `next` is such a tuple again, so that a message on its way needs no index, and `at once` says whether it may be asked
    without an event; a compute operation has link -1. Pieces that behave alike share their tuple.
    """
    links = prepared.links
    routes: list[list[Any]] = []
    for kind in prepared.classes:
        if not kind.path:
            routes.append([(kind.watch, -1, 0.0, 0.0, 0.0, 0.0, None, False)])
            continue
        known: dict[tuple[float, ...], Any] = {}
        bounds = kind.piece_bounds()
        pieces = []
        for number, (first, stop) in enumerate(bounds):
            # The gap is paid once, by the first piece; only the last is delivered to those who watch the end.
            times = tuple(links.serialisation(link, stop) - links.serialisation(link, first) for link in kind.path)
            watch = kind.watch if number == len(bounds) - 1 else -1
            key = (*times, watch, number == 0)
            if key not in known:
                hop: Any = None
                for link, serialisation in zip(reversed(kind.path), reversed(times), strict=True):
                    gap = links.gap[link] if number == 0 else 0.0
                    at_once = hop is not None and tandem and bool(prepared.tandem[hop[1]])
                    hop = (watch, link, gap, serialisation, links.floor[link], links.latency[link], hop, at_once)
                known[key] = hop
            pieces.append(known[key])
        routes.append(pieces)
    return routes
