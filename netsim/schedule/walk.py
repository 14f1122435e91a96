"""Carries values through a schedule: one walker for the proof (sets of ranks) and for the replay (arrays of numbers).

The logical space is cut into *atoms* at every boundary of an operation or of the promise. Each rank keeps one value an
atom, at first its own input where it owns one. An operation reads at its source and writes at its destination, replacing
or adding; how the two meet is decided by the requirements alone. A replacing write lands in place: any other access to
the same bytes that no requirement orders before or after it is a race, and an error. What is to be added waits in a
receive buffer until an operation at that rank that requires it comes (so ranks may swap partial sums): a read that no
requirement orders against it does not see it, and then whoever does see it must also wait for that read.

Cost: some ten microseconds of Python for each (operation, atom) that is read and written, plus the closures of
`netsim.schedule.order`; more than `MAX_VISITS` steps are refused.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from netsim.errors import ProofError, ScheduleError
from netsim.schedule.collective import Region, promise
from netsim.schedule.dag import BRANCH, COMPUTE, END, HEAD, LEG, OUTPUT, TRANSFER, TRUNK, Schedule
from netsim.schedule.order import History, topological_order

MAX_VISITS = 10_000_000
"""Most (operation, atom) visits: about two minutes and up to 5 GB."""

T = TypeVar("T")


@dataclass(slots=True)
class _Cell(Generic[T]):
    """What one rank holds of one atom, and who has touched it since the last replacing write."""

    base: T | None
    writer: int = -1
    """The replacing write that set `base`, or -1 for the input."""
    adds: list[tuple[int, T]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    unseen: list[tuple[int, int]] = field(default_factory=list)
    """(add, read) pairs that nothing orders: the add waits until that read is over."""
    seers: dict[int, int] = field(default_factory=dict)
    """For every add that somebody has read, the first who did."""
    total: T | None = None
    """Sum of base and adds, once somebody has asked for it."""


class Walker(Generic[T]):
    """Run a schedule on values of some kind.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    initial : callable
        ``initial(rank, atom)`` gives a rank's own input, called only where the rank owns one.
    add : callable
        ``add(one, other, where)`` gives the sum; `where` says in words where, for an error.
    """

    def __init__(
        self,
        schedule: Schedule,
        initial: Callable[[int, int], T],
        add: Callable[[T, T, Callable[[], str]], T],
    ) -> None:
        self._schedule = schedule = _landed(schedule)
        self._initial = initial
        self._add = add
        numbers = (schedule.collective, schedule.ranks, schedule.size_bytes, schedule.root, schedule.align_bytes)
        self.regions: list[Region] = [region for region in promise(*numbers) if region.size]
        self.bounds = _atom_bounds(schedule, self.regions)
        ops, offset, size = schedule.all_ranges()
        first = np.searchsorted(self.bounds, offset)
        last = np.searchsorted(self.bounds, offset + size)
        visits = int((last - first).sum())
        if visits > MAX_VISITS:
            raise ScheduleError(
                f"{schedule.collective} by {schedule.algorithm}: {visits} steps to follow, more than {MAX_VISITS}; "
                "prove the same algorithm with fewer ranks or chunks"
            )
        self._first, self._last = first[: len(schedule)].tolist(), last[: len(schedule)].tolist()
        # The atoms of the further ranges of the operations that carry several; those of the first follow each other.
        self._further: dict[int, list[int]] = {}
        for op, start, stop in zip(*(part[len(schedule) :].tolist() for part in (ops, first, last)), strict=True):
            self._further.setdefault(op, []).extend(range(start, stop))
        known: dict[tuple[int, ...], frozenset[int]] = {}
        self._owners = [known.setdefault(region.owners, frozenset(region.owners)) for region in self.regions]
        self._from_input, self._reduce = schedule.from_input.tolist(), schedule.reduce.tolist()
        # What a switch delivers into a buffer of its own disturbs neither who reads nor what lies in slots.
        self._apart = (np.isin(schedule.kind, (BRANCH, OUTPUT)) & schedule.buffered).tolist()
        starts = [region.offset for region in self.regions]
        self._region_of = (np.searchsorted(starts, self.bounds[:-1], side="right") - 1).tolist()
        self._cells: dict[tuple[int, int], _Cell[T]] = {}
        self._carried: dict[int, list[T]] = {}

    def run(self) -> None:
        """Carry out every operation.

        Raises
        ------
        StuckError
            If requirements form a cycle.
        ProofError
            If an operation reads what is not there, a contribution would count twice, or two operations race.
        """
        schedule = self._schedule
        order = topological_order(schedule)
        self._history = history = History(schedule)
        kinds, sources, targets = schedule.kind.tolist(), schedule.src.tolist(), schedule.dst.tolist()
        for op in order:
            history.enter(op)
            kind = kinds[op]
            if kind in (TRANSFER, TRUNK, LEG):
                values = [self._read(op, sources[op], atom) for atom in self._atoms_of(op)]
            elif kind == BRANCH:
                values = self._carried[history.streams[op][0]]
            elif kind == OUTPUT:
                values = self._sum_of_legs(op, history.streams[op])
            if kind in (TRUNK, LEG):
                self._carried[op] = values
            elif kind != COMPUTE:
                for atom, value in zip(self._atoms_of(op), values, strict=True):
                    self._write(op, targets[op], atom, value)

    def held(self, rank: int, atom: int) -> T | None:
        """Return what a rank holds of an atom when everything is over, or None."""
        cell = self._cell(rank, atom)
        return self._total(cell, cell.adds, rank, atom)

    def atoms(self, region: Region) -> range:
        """Return the atoms that make up a region of the promise."""
        return range(bisect_left(self.bounds, region.offset), bisect_left(self.bounds, region.offset + region.size))

    def words(self, rank: int, atom: int) -> str:
        """Say which bytes of which rank an atom is."""
        return f"rank {rank}, bytes {self.bounds[atom]} to {self.bounds[atom + 1]}"

    def _atoms_of(self, op: int) -> Sequence[int]:
        atoms = range(self._first[op], self._last[op])
        return [*atoms, *self._further[op]] if op in self._further else atoms

    def _cell(self, rank: int, atom: int) -> _Cell[T]:
        cell = self._cells.get((rank, atom))
        if cell is None:
            own = rank in self._owners[self._region_of[atom]]
            self._cells[rank, atom] = cell = _Cell(self._initial(rank, atom) if own else None)
        return cell

    def _read(self, op: int, rank: int, atom: int) -> T:
        if self._from_input[op]:
            if rank not in self._owners[self._region_of[atom]]:
                where = self.words(rank, atom)
                raise ProofError(f"{self._schedule.describe(op)} sends an input that is not there ({where})")
            return self._initial(rank, atom)
        cell = self._cell(rank, atom)
        if cell.writer >= 0 and not self._history.sees(cell.writer):
            self._race(op, cell.writer, rank, atom)
        self._check_unseen(op, cell, rank, atom)
        seen = cell.adds
        for add, _ in cell.adds:
            if self._history.sees(add):
                cell.seers.setdefault(add, op)
                continue
            if add in cell.seers:
                # Somebody has taken the add in, and nothing says whether before this read or after it.
                self._race(op, cell.seers[add], rank, atom)
            cell.unseen.append((add, op))
            seen = [pair for pair in seen if pair[0] != add]
        cell.reads.append(op)
        value = self._total(cell, seen, rank, atom)
        if value is None:
            raise ProofError(f"{self._schedule.describe(op)} sends data that is not there ({self.words(rank, atom)})")
        return value

    def _write(self, op: int, rank: int, atom: int, value: T) -> None:
        cell = self._cell(rank, atom)
        history = self._history
        adds, apart = self._reduce[op], self._apart[op]
        if cell.writer >= 0:
            self._must_follow(op, cell.writer, rank, atom)
        self._check_unseen(op, cell, rank, atom)
        for read in cell.reads:
            if not history.was_read(read) and not apart:
                if not adds:
                    self._race(op, read, rank, atom)
                cell.unseen.append((op, read))
        if adds:
            cell.adds.append((op, value))
            cell.total = None
            return
        slotted = [pair for pair in cell.adds if apart and pair[0] not in cell.seers]
        for pair in cell.adds:
            if pair not in slotted:
                self._must_follow(op, pair[0], rank, atom)
        # Whoever comes next must follow this write, and through it everything that this write follows.
        self._cells[rank, atom] = after = _Cell(value, op)
        if apart:
            kept = {add for add, _ in slotted}
            after.adds = slotted
            after.unseen = [pair for pair in cell.unseen if pair[0] in kept]
            after.reads = [read for read in cell.reads if not history.was_read(read)]

    def _total(self, cell: _Cell[T], adds: list[tuple[int, T]], rank: int, atom: int) -> T | None:
        if adds is cell.adds and cell.total is not None:
            return cell.total
        total = cell.base
        for op, value in adds:
            total = value if total is None else self._add(total, value, lambda op=op: self._write_words(op, rank, atom))  # type: ignore[misc]
        if adds is cell.adds:
            cell.total = total
        return total

    def _sum_of_legs(self, op: int, legs: list[int]) -> list[T]:
        atoms = self._atoms_of(op)
        values = self._carried[legs[0]]
        for leg in legs[1:]:
            pairs = zip(atoms, values, self._carried[leg], strict=True)
            values = [
                self._add(one, other, lambda leg=leg, atom=atom: self._write_words(leg, self._schedule.dst[op], atom))  # type: ignore[misc]
                for atom, one, other in pairs
            ]
        return values

    def _must_follow(self, op: int, earlier: int, rank: int, atom: int) -> None:
        if not self._history.delivered(earlier):
            self._race(op, earlier, rank, atom)

    def _check_unseen(self, op: int, cell: _Cell[T], rank: int, atom: int) -> None:
        for add, read in cell.unseen:
            if self._history.sees(add) and not self._history.was_read(read):
                self._race(op, read, rank, atom)

    def _write_words(self, op: int, rank: int, atom: int) -> str:
        return f"{self._schedule.describe(op)} at {self.words(rank, atom)}"

    def _race(self, op: int, earlier: int, rank: int, atom: int) -> None:
        describe = self._schedule.describe
        raise ProofError(
            f"{describe(op)} and {describe(earlier)} race for the same data ({self.words(rank, atom)}): "
            "no requirement makes one wait for the other"
        )


def _atom_bounds(schedule: Schedule, regions: list[Region]) -> list[int]:
    """Return the sorted boundaries of all operations that move something and of the promise's regions."""
    offsets = [region.offset for region in regions]
    ends = [region.offset + region.size for region in regions]
    _, start, size = schedule.all_ranges()
    moved = start[size > 0]
    promised = np.array(offsets + ends, np.int64)
    bounds: list[int] = np.unique(np.concatenate([promised, moved, moved + size[size > 0]])).tolist()
    return bounds or [0]


def _landed(schedule: Schedule) -> Schedule:
    """Return a schedule whose messages are put in place when they have come, if they land in slots first.

    What follows such a message line by line takes the lines out of the slots in the order in which they came, so it reads
    and writes as if it waited for the whole message.
    """
    if not schedule.buffered:
        return schedule
    lands = np.isin(schedule.kind[schedule.requires_op], (TRANSFER, OUTPUT))
    follows = (schedule.requires_milestone == HEAD) & lands
    return replace(schedule, requires_milestone=np.where(follows, END, schedule.requires_milestone).astype(np.uint8))
