"""Operations and requirements as builders of this room write them: row by row, or a stretch of them again and again.

NCCL does the same loop for every piece of its data, so that most of a large schedule is one stretch of rows over and over,
each time a number of operations and bytes further on. Where the last two stretches show that, the following ones are
copied as arrays instead of being written by Python: the rows are the same to the last bit, and tests hold them to it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.schedule.columns import COLUMNS, typed
from netsim.schedule.dag import ScheduleBuilder

NAMES = (
    *("kind", "src", "dst", "offset", "size", "wire", "chunk", "step", "lane"),
    *("reduce", "from_input", "duration", "work", "feed", "early", "group", "flow", "via"),
)
"""Columns of a row, in order."""

_MOVES = ("offset", "chunk")
"""Columns in which one stretch is further on than the one before."""

Need = tuple[int, int, float]
"""(operation, milestone, lag in seconds)"""

_TYPES = {name: dtype for name, dtype, _ in COLUMNS}
_Needs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.float64]]
"""(operations, those that they require, milestones, lags)"""


def _column(name: str, values: Sequence[float]) -> npt.NDArray[Any]:
    """Return a column as an array; where it holds one value only, that takes no memory."""
    column = typed(name, values, _TYPES[name])
    return np.broadcast_to(column[0], column.shape) if (column == column[0]).all() else column


def _needs(ops: list[int], needed: list[int], milestones: list[int], lags: list[float]) -> _Needs:
    """Return requirements as arrays."""
    return np.array(ops, np.int64), np.array(needed, np.int64), np.array(milestones, np.uint8), np.array(lags, np.float64)


def _all_ranges(
    offset: npt.NDArray[Any], size: npt.NDArray[Any], further: Mapping[int, Sequence[tuple[int, int]]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many ranges each operation has, and the offsets and sizes of all, operation after operation."""
    counts = np.ones(len(offset), np.int64)
    for op, ranges in further.items():
        counts[op] += len(ranges)
    first = np.cumsum(counts) - counts
    offsets, sizes = np.zeros(int(counts.sum()), np.int64), np.zeros(int(counts.sum()), np.int64)
    offsets[first], sizes[first] = offset, size
    for op, ranges in further.items():
        places = slice(first[op] + 1, first[op] + 1 + len(ranges))
        offsets[places], sizes[places] = zip(*ranges, strict=True)
    return counts, offsets, sizes


class Rows:
    """Grow the columns and requirements of a schedule."""

    def __init__(self) -> None:
        self._open: dict[str, list[float]] = {}
        self._needs: tuple[list[int], list[int], list[int], list[float]] = ([], [], [], [])
        self._closed: list[dict[str, npt.NDArray[Any]]] = []
        self._closed_needs: list[_Needs] = []
        self._before = 0
        self._reopen()

    def __len__(self) -> int:
        return self._before + len(self._lanes)

    def add(self, row: tuple[float, ...], needs: Iterable[Need]) -> int:
        """Add an operation and what it requires, and return its number."""
        op = len(self)
        for column, value in zip(self._open.values(), row, strict=True):
            column.append(value)
        ops, needed, milestones, lags = self._needs
        for other, milestone, lag in sorted(needs):
            ops.append(op)
            needed.append(other)
            milestones.append(milestone)
            lags.append(lag)
        return op

    def fan(self, count: int, row: Mapping[str, float | Sequence[float]], need: Need) -> range:
        """Add operations side by side that all require the same, and return their numbers.

        Parameters
        ----------
        count : int
            How many.
        row : mapping of str to number or sequence
            For each column one value for all, or one for each.
        """
        first = len(self)
        for name, column in self._open.items():
            value = row[name]
            column += value if isinstance(value, Sequence) else [value] * count
        ops, needed, milestones, lags = self._needs
        ops += range(first, first + count)
        needed += [need[0]] * count
        milestones += [need[1]] * count
        lags += [need[2]] * count
        return range(first, first + count)

    def repeat(self, period: int, times: int) -> bool:
        """Go on as the last two stretches of so many rows do, if they are alike, and say whether they are.

        Parameters
        ----------
        period : int
            Rows of a stretch; what they require is as far behind them in both.
        times : int
            Stretches to add.
        """
        if len(self._lanes) < 2 * period:
            return False
        recent = {name: _column(name, column[-2 * period :]) for name, column in self._open.items()}
        last, first = len(self) - period, len(self) - 2 * period
        begin, middle = (bisect_left(self._needs[0], op) for op in (first, last))
        earlier, later = self._needs_from(begin, middle), self._needs_from(middle, len(self._needs[0]))
        alike = [(column[:period], column[period:]) for name, column in recent.items() if name not in _MOVES]
        alike += [(earlier[0] + period, later[0]), (earlier[1] + period, later[1])]
        alike += [(earlier[2], later[2]), (earlier[3], later[3])]
        if not all(np.array_equal(old, new) for old, new in alike):
            return False
        self._close()
        turns = np.arange(1, times + 1)
        block = {}
        for name, column in recent.items():
            if name in _MOVES:
                block[name] = (column[period:] + np.multiply.outer(turns, column[period:] - column[:period])).ravel()
            elif column.strides == (0,):
                block[name] = np.broadcast_to(column[0], times * period)
            else:
                block[name] = np.tile(column[period:], times)
        self._closed.append(block)
        on = np.repeat(turns * period, len(later[0]))
        ops, needed, milestones, lags = later
        numbers = np.tile(ops, times) + on, np.tile(needed, times) + on
        self._closed_needs.append((*numbers, np.tile(milestones, times), np.tile(lags, times)))
        self._before += times * period
        return True

    def give(self, builder: ScheduleBuilder, further: Mapping[int, Sequence[tuple[int, int]]] | None = None) -> None:
        """Hand all rows and requirements to a builder; `further`: (offset, size) of ranges beyond an operation's first."""
        self._close()
        blocks: list[dict[str, Any]] = [dict(columns) for columns in self._closed]
        if further:
            whole: dict[str, Any] = {name: np.concatenate([block[name] for block in blocks]) for name in NAMES}
            whole["ranges"] = _all_ranges(whole.pop("offset"), whole.pop("size"), further)
            blocks = [whole]
        for block in blocks:
            builder.add(len(block["lane"]), **block)
        for needs in self._closed_needs:
            builder.require(*needs)

    def _close(self) -> None:
        """Make arrays of what is open."""
        if not self._lanes:
            return
        self._closed.append({name: _column(name, column) for name, column in self._open.items()})
        self._closed_needs.append(_needs(*self._needs))
        self._before = len(self)
        self._reopen()

    def _needs_from(self, begin: int, end: int) -> _Needs:
        """Return a stretch of the open requirements as arrays."""
        ops, needed, milestones, lags = self._needs
        return _needs(ops[begin:end], needed[begin:end], milestones[begin:end], lags[begin:end])

    def _reopen(self) -> None:
        self._open = {name: [] for name in NAMES}
        self._lanes = self._open["lane"]
        self._needs = ([], [], [], [])
