"""Operations and requirements as builders of this room write them: row by row, or a stretch of them again and again.

NCCL does the same loop for every piece of its data, so that most of a large schedule is one stretch of rows over and over,
each time a number of operations and bytes further on. Where the last two stretches show that, the following ones are
copied as arrays instead of being written by Python: the rows are the same to the last bit, and tests hold them to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
        self._open: dict[str, list[float]] = {name: [] for name in NAMES}
        self._needs: list[tuple[int, int, int, float]] = []
        self._closed: list[dict[str, npt.NDArray[Any]]] = []
        self._closed_needs: list[npt.NDArray[Any]] = []
        self._before = 0

    def __len__(self) -> int:
        return self._before + len(self._open["lane"])

    def add(self, row: tuple[float, ...], needs: Iterable[Need]) -> int:
        """Add an operation and what it requires, and return its number."""
        op = len(self)
        for column, value in zip(self._open.values(), row, strict=True):
            column.append(value)
        self.require(op, needs)
        return op

    def require(self, op: int, needs: Iterable[Need]) -> None:
        """Let an operation require more."""
        self._needs += [(op, *need) for need in needs]

    def repeat(self, period: int, times: int) -> bool:
        """Go on as the last two stretches of so many rows do, if they are alike, and say whether they are.

        Parameters
        ----------
        period : int
            Rows of a stretch; what they require is as far behind them in both.
        times : int
            Stretches to add.
        """
        if len(self._open["lane"]) < 2 * period:
            return False
        columns = {name: np.array(column) for name, column in self._open.items()}
        needs = np.array(self._needs, np.float64).reshape(-1, 4)
        last, first = len(self) - period, len(self) - 2 * period
        stretches = [needs[(needs[:, 0] >= start) & (needs[:, 0] < start + period)] for start in (first, last)]
        alike = all(
            np.array_equal(column[-period:], column[-2 * period : -period])
            for name, column in columns.items()
            if name not in _MOVES
        )
        if not alike or not np.array_equal(stretches[0] + (period, period, 0, 0), stretches[1]):
            return False
        self._closed.append(columns)
        self._closed_needs.append(needs)
        turns = np.arange(1, times + 1)
        block = {name: np.tile(column[-period:], times) for name, column in columns.items()}
        for name in _MOVES:
            step = columns[name][-period:] - columns[name][-2 * period : -period]
            block[name] = block[name] + (turns[:, None] * step[None, :]).reshape(-1)
        self._closed.append(block)
        on = np.repeat(turns * period, len(stretches[1]))
        again = np.tile(stretches[1], (times, 1))
        again[:, :2] += on[:, None]
        self._closed_needs.append(again)
        self._before = last + period * (times + 1)
        self._open = {name: [] for name in NAMES}
        self._needs = []
        return True

    def give(self, builder: ScheduleBuilder, further: Mapping[int, Sequence[tuple[int, int]]] | None = None) -> None:
        """Hand all rows and requirements to a builder; `further`: (offset, size) of ranges beyond an operation's first."""
        closed = [*self._closed, {name: np.array(column) for name, column in self._open.items()}]
        blocks: list[dict[str, Any]] = [dict(columns) for columns in closed if len(columns["lane"])]
        if further:
            whole: dict[str, Any] = {name: np.concatenate([block[name] for block in blocks]) for name in NAMES}
            whole["ranges"] = _all_ranges(whole.pop("offset"), whole.pop("size"), further)
            blocks = [whole]
        for block in blocks:
            builder.add(len(block["lane"]), **block)
        needs = np.concatenate([*self._closed_needs, np.array(self._needs, np.float64).reshape(-1, 4)])
        if len(needs):
            # Numbers of operations stay below 2^53, so that nothing is lost on the way.
            ops, needed, milestones = (needs[:, column].astype(np.int64) for column in range(3))
            builder.require(ops, needed, milestones, needs[:, 3])
