"""Classes of operations: what operations have in common that take the same route with the same bytes in the same way.

Engines look constants up by class and touch no graph. The table holds columns, because a direct all-to-all has as many
classes as operations; the SimPy engines ask for one object a class, made when first wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from netsim.engine.links import Floats, LinkTable, array_on_grid
from netsim.routing import Path

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OpClass:
    """What the operations of one class have in common."""

    path: Path
    """Links in order; empty for a compute operation."""
    wire: int
    """Bytes on the links."""
    watch: int
    """Which milestones somebody waits for."""
    piece: int
    """Bytes of a piece on this route, 0 for a whole message."""
    fed: bool = False
    """Whether the lane feeds the pieces: each asks when the lane begins to make it, not when the one before was served."""
    plain: bool = True
    """Whether the pieces, if any, are the lane's alone: no quantum is in force, no node stores, no floor spans them."""

    @property
    def pieces(self) -> int:
        """How many pieces one operation travels in."""
        return max(1, -(-self.wire // self.piece)) if self.piece else 1

    def piece_bounds(self) -> list[tuple[int, int]]:
        """Return the first byte and the byte after the last of every piece."""
        if self.pieces == 1:
            return [(0, self.wire)]
        return [(first, min(first + self.piece, self.wire)) for first in range(0, self.wire, self.piece)]


@dataclass(frozen=True, eq=False)
class ClassTable:
    """All classes of a prepared schedule as columns, one entry a class."""

    paths: Sequence[Path]
    """The distinct routes."""
    path_of: _Numbers
    """Index into `paths`."""
    wire: _Numbers
    watch: _Numbers
    piece: _Numbers
    fed: npt.NDArray[np.bool_]
    plain: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.wire)

    @cached_property
    def objects(self) -> list[OpClass]:
        """The same, one object a class."""
        columns = (self.path_of, self.wire, self.watch, self.piece, self.fed, self.plain)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [OpClass(self.paths[path], *rest) for path, *rest in rows]

    @cached_property
    def pieces(self) -> _Numbers:
        """How many pieces an operation of each class travels in."""
        return np.where(self.piece > 0, np.maximum(1, -(-self.wire // np.maximum(self.piece, 1))), 1)

    @cached_property
    def _lengths(self) -> _Numbers:
        return np.fromiter(map(len, self.paths), np.int64, len(self.paths))

    @cached_property
    def hops(self) -> _Numbers:
        """How many links each class takes."""
        return self._lengths[self.path_of]

    @cached_property
    def flat(self) -> tuple[_Numbers, _Numbers, _Numbers]:
        """Class, place on the route and link of every hop: class after class, in the order of the route."""
        lengths = self._lengths
        links = np.fromiter(chain.from_iterable(self.paths), np.int64, int(lengths.sum()))
        first = (np.cumsum(lengths) - lengths)[self.path_of]
        ends = np.cumsum(self.hops)
        class_of = np.repeat(np.arange(len(self)), self.hops)
        hop = np.arange(len(class_of)) - (ends - self.hops)[class_of]
        return class_of, hop, links[first[class_of] + hop]

    def serialisation(self, links: LinkTable) -> Floats:
        """Return n / B of the whole message at every hop, in seconds on the grid, in the order of `flat`."""
        class_of, _, link = self.flat
        return array_on_grid(self.wire[class_of] / links.columns.bandwidth[link])

    def follows_in_order(self, links: LinkTable) -> npt.NDArray[np.bool_]:
        """Return which links are asked by what one other link has served, and by nothing else.

        A message that takes that link no time may ask at the same moment as the one before it, so that an order by
        operation decides; where there is one, events keep it.
        """
        class_of, hop, link = self.flat
        before = np.full(len(link), -2)
        later = np.flatnonzero(hop)
        least = (self.wire - (self.pieces - 1) * self.piece)[class_of[later]]
        ahead = link[later - 1]
        takes_time = array_on_grid(least / links.columns.bandwidth[ahead]) > 0
        before[later[takes_time]] = ahead[takes_time]
        feeder = np.full(len(links), -1)
        feeder[link] = before
        in_order = feeder >= 0
        in_order[link[before != feeder[link]]] = False
        return in_order

    def idle_times(self, links: LinkTable) -> Floats:
        """Return seconds on idle links for each class: from asking to end, left and head, and from left to end at least.

        Shape (classes, 4). Behind a store-and-forward node the first byte waits for the first piece; the last byte is at
        least where the links' serialisation puts it, so the value is a lower bound there and exact elsewhere.
        """
        head, tail, left, latencies = (np.zeros(len(self)) for _ in range(4))
        class_of, hop, link = self.flat
        whole, own = self.serialisation(links), links.columns
        stored = (own.piece_bytes[link] > 0) & (hop + 1 < self.hops[class_of])
        first_piece = array_on_grid(np.minimum(self.piece, self.wire)[class_of] / own.bandwidth[link])
        for place in range(int(self.hops.max(initial=0))):
            at = np.flatnonzero(hop == place)
            number, which = class_of[at], link[at]
            lead = head[number] + own.gap[which]
            done = np.maximum(lead + whole[at], head[number] + own.floor[which])
            if place == 0:
                left[number] = done
            tail[number] = np.maximum(tail[number], done) + own.latency[which]
            head[number] = lead + own.latency[which] + np.where(stored[at], first_piece[at], 0.0)
            latencies[number] += own.latency[which]
        return np.stack([tail, left, head, latencies], axis=1)

    def link_counters(self, links: LinkTable, numbers: _Numbers) -> tuple[_Numbers, _Numbers, Floats]:
        """Return bytes, messages and occupied seconds of every link, with so many operations in each class.

        A message in several pieces counts as its gap and bytes only: while its floor runs the link may serve others' pieces.
        """
        class_of, _, link = self.flat
        number, pieces, own = numbers[class_of], self.pieces[class_of], links.columns
        bytes_, counts, busy = np.zeros(len(links), np.int64), np.zeros(len(links), np.int64), np.zeros(len(links))
        np.add.at(bytes_, link, number * self.wire[class_of])
        np.add.at(counts, link, number * pieces)
        each = own.gap[link] + self.serialisation(links)
        each = np.where(pieces > 1, each, np.maximum(each, own.floor[link]))
        np.add.at(busy, link, number * each)
        return bytes_, counts, busy
