"""Measured tables and the index that says what each was measured on: read, checked, and thinned for a score.

A folder holds CSV files with the columns ``size_bytes, time_us, algbw_GBps, busbw_GBps`` and an ``index.csv`` with one row a
file. Where a table has no time it follows from the bus bandwidth, if that is large enough to be known. Nothing here knows
the simulator.
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netsim.errors import ScenarioError
from netsim.metrics.timing import bus_factor
from netsim.reading import read_limited
from netsim.schedule.collective import COLLECTIVES
from scenarios.measured import read_number

INDEX = "index.csv"
_NEEDED = ("file", "collective", "gpu", "n_gpus", "n_nodes", "hw_class")
_MOST_BYTES = 64 << 20
_MOST_SIZE = 1 << 50
"""Bytes of a collective beyond which a size is a slip."""
_LEAST_BANDWIDTH = 1.0
"""GB/s below which two decimals are too coarse to tell a time."""
MOST_SCORED = 12
"""Rows of a table that count for a score."""
_WARM = 1.5
"""Times the third row, above which the first rows are taken for a warm-up."""


@dataclass(frozen=True)
class Entry:
    """One row of an index: a table, and what it was measured on."""

    path: Path
    columns: dict[str, str] = field(repr=False)
    """All cells of the row, by the name of the column."""
    place: str = field(default="", repr=False)
    """File and line of the row, for messages."""

    def __getitem__(self, name: str) -> str:
        return self.columns.get(name, "")

    @property
    def collective(self) -> str:
        """By the names of this project."""
        name = self["collective"]
        if name not in COLLECTIVES:
            raise ScenarioError(f"{self.place}: collective is {name!r}; accepted are {', '.join(COLLECTIVES)}")
        return name

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self._number("n_gpus")

    @property
    def hosts(self) -> int:
        """Hosts, which are not always what NCCL takes for a node."""
        hosts = self._number("n_nodes")
        if self.ranks % hosts:
            raise ScenarioError(f"{self.place}: {self.ranks} GPUs do not spread evenly over {hosts} nodes")
        return hosts

    @property
    def kind(self) -> str:
        """``healthy``, ``fault`` or ``unclear``."""
        return self["kind"] or "healthy"

    @property
    def scored(self) -> bool:
        """Whether predictions may be scored by it."""
        return self["score"] == "yes"

    def check(self) -> None:
        """Raise ScenarioError, with file and line, if what the row says of a run makes no sense."""
        _ = self.collective, self.ranks, self.hosts

    def _number(self, name: str) -> int:
        text = self[name]
        if not (text.isdecimal() and text.isascii() and 0 < int(text) < 10**7):
            raise ScenarioError(f"{self.place}: {name} is {text!r}; it must be a whole number, one or more")
        return int(text)


@dataclass(frozen=True)
class Measured:
    """One row of a table."""

    size_bytes: int
    time_us: float
    scored: bool = False
    """Whether it is among the rows that count."""


def read_index(folder: str | Path) -> list[Entry]:
    """Read the index of a folder.

    What a row says is checked where it is asked for, so that one bad row does not lose the others.

    Raises
    ------
    ScenarioError
        If there is none, or it lacks a column.
    """
    path = Path(folder) / INDEX
    if not path.is_file():
        raise ScenarioError(f"{folder}: has no {INDEX}; it needs one row a table, with the columns {', '.join(_NEEDED)}")
    rows = _rows(path)
    missing = [name for name in _NEEDED if name not in rows[0][1]]
    if missing:
        raise ScenarioError(f"{path}: has no column {' and no column '.join(missing)}")
    return [Entry(path.parent / cells["file"], cells, f"{path}:{line}") for line, cells in rows]


def read_table(entry: Entry) -> list[Measured]:
    """Read a table, in the order of its sizes, with the rows marked that count for a score.

    Raises
    ------
    ScenarioError
        If the file is not there, has no time in it, or a cell is no number.
    """
    rows: dict[int, float] = {}
    for line, cells in _rows(entry.path):
        size = _size_bytes(entry.path, line, cells.get("size_bytes", ""))
        time_us = _time_us(entry, line, cells, size)
        if size > 0 and time_us > 0:
            rows.setdefault(size, time_us)
    if not rows:
        raise ScenarioError(f"{entry.path}: has no row with a time")
    sizes = sorted(rows)
    chosen = counted(sizes, [rows[size] for size in sizes])
    return [Measured(size, rows[size], size in chosen) for size in sizes]


def _time_us(entry: Entry, line: int, cells: dict[str, str], size: int) -> float:
    """Return a row's time, by its bus bandwidth where it has none; 0 where that cannot tell it."""
    if cells.get("time_us"):
        return read_number(cells["time_us"], "time_us", entry.path, line)
    busbw = read_number(cells.get("busbw_GBps") or "0", "busbw_GBps", entry.path, line)
    if busbw < _LEAST_BANDWIDTH:
        return 0.0
    return size * bus_factor(entry.collective, entry.ranks) / busbw / 1e3


def warm_up(times: Sequence[float]) -> int:
    """Return how many of the first rows are a warm-up, by their times in the order of their sizes."""
    if len(times) < 3:
        return 0
    return 1 + max((at for at in (0, 1) if times[at] > _WARM * times[2]), default=-1)


def counted(sizes: Sequence[int], times: Sequence[float]) -> set[int]:
    """Return the sizes that count: without a warm-up, and no more than some, evenly spread on a logarithmic scale."""
    left = sizes[warm_up(times) :]
    if len(left) <= MOST_SCORED:
        return set(left)
    low, high = math.log(left[0]), math.log(left[-1])
    wanted = [low + (high - low) * at / (MOST_SCORED - 1) for at in range(MOST_SCORED)]
    return {min(left, key=lambda size: abs(math.log(size) - target)) for target in wanted}


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV file with their lines, cells by column."""
    try:
        text = read_limited(path, _MOST_BYTES, ScenarioError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if cells and len(cells) != len(header):
                more = "more" if len(cells) > len(header) else "fewer"
                raise ScenarioError(
                    f"{path}:{reader.line_num}: has {more} cells ({len(cells)}) than columns ({len(header)})"
                )
            if cells:
                rows.append((reader.line_num, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}))
    except csv.Error as error:
        raise ScenarioError(f"{path}:{reader.line_num}: no CSV ({error})") from None
    if not rows:
        raise ScenarioError(f"{path}: has no rows")
    return rows


def _size_bytes(path: Path, line: int, text: str) -> int:
    value = read_number(text, "size_bytes", path, line)
    if value > _MOST_SIZE or value != int(value):
        raise ScenarioError(f"{path}:{line}: size_bytes is {text!r}; it must be a whole number, at most {_MOST_SIZE}")
    return int(value)
