"""Measured times by size: from a CSV file, or straight from a log of nccl-tests.

A CSV has the columns ``size_bytes`` and ``time_us``, others are ignored. Lines that begin with ``#`` are comments. A row
without a time is left out; anything else that is no number is an error that names its line. From a log, or the JSON of
``-J``, the times out of place are taken, whatever launchers put in front of its lines; rows that words of NCCL have torn
are put together again, sizes of 0 and everything that is no row are passed over.
"""

import csv
import io
import math
import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from netsim.errors import ScenarioError
from netsim.nccl.log_lines import Thread, lines_of
from netsim.reading import read_limited
from scenarios.nccl_tests_json import as_log

MOST_BYTES = 64 << 20
_NEEDED = ("size_bytes", "time_us")

# What launchers put in front of a line: mpirun's "[1,0]<stdout>:", srun's "0: ".
# Bounded, so that a long line costs no more than its length times that.
_PREFIX = re.compile(r"\s{0,64}(?:\[\d{1,9},\d{1,9}\]<\w{1,64}>:|\d{1,9}:(?=\s))")
_TYPES = re.compile(r"u?int(?:8|32|64)|half|float|double|bfloat16|f8e[0-9]m[0-9]|fp8_\w+|char")
_TITLES = ("size", "count", "type")
# No buffer has more; Python reads no number of thousands of digits, and no float holds one of hundreds.
_COUNTED = re.compile(r"\d{1,18}", re.ASCII)
_LEAST_BUS = 10.0
"""GB/s from which two decimals tell the ratio of bus to algorithm bandwidth to a thousandth."""


class LoggedRow(NamedTuple):
    """One whole row of nccl-tests, out of place."""

    size_bytes: int
    time_us: float
    algbw: float
    """GB/s, as printed."""
    busbw: float | None
    """GB/s, as printed; None if it is not there."""


def read_measured(path: str | Path) -> list[tuple[int, float]]:
    """Read measured points.

    Parameters
    ----------
    path : str or Path
        A CSV file with the columns ``size_bytes`` and ``time_us``, or a log of nccl-tests.

    Returns
    -------
    list of (int, float)
        Size in bytes and time in microseconds, in the order of the file.

    Raises
    ------
    ScenarioError
        One sentence with the file, the line and what is accepted.
    """
    path = Path(path)
    try:
        text = as_log(read_limited(path, MOST_BYTES, ScenarioError).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    if not numbered:
        raise ScenarioError(
            f"{path}: is empty; it needs a header with {' and '.join(_NEEDED)} and rows, or nccl-tests' rows"
        )
    header = [name.strip() for name in _cells(numbered[0][1], path, numbered[0][0])]
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        logged = logged_times(text)
        if logged:
            return logged
        raise ScenarioError(
            f"{path}:{numbered[0][0]}: has no column {' and no column '.join(missing)}, and there is no whole row of "
            f"nccl-tests' in the file; its columns are {reprlib.repr(', '.join(header))}"
        )
    size_at, time_at = (header.index(name) for name in _NEEDED)
    points = []
    for number, line in numbered[1:]:
        cells = _cells(line, path, number)
        if len(cells) <= max(size_at, time_at):
            raise ScenarioError(f"{path}:{number}: has {len(cells)} cells, the header has {len(header)}")
        if not cells[time_at].strip():
            continue
        size = read_number(cells[size_at], "size_bytes", path, number)
        if size != int(size):
            raise ScenarioError(f"{path}:{number}: size_bytes is {cells[size_at]!r}; it must be a whole number of bytes")
        points.append((int(size), read_number(cells[time_at], "time_us", path, number)))
    if not points:
        raise ScenarioError(f"{path}: has no row with a time")
    return points


def _cells(line: str, path: Path, number: int) -> list[str]:
    """Take a line apart; Python's reader has a limit for one cell."""
    try:
        return next(csv.reader(io.StringIO(line)))
    except csv.Error as error:
        raise ScenarioError(f"{path}:{number}: is no line of a CSV ({error})") from None


def logged_times(text: str) -> list[tuple[int, float]]:
    """Return size in bytes and time out of place in microseconds of every whole row in a log of nccl-tests.

    Examples
    --------
    >>> logged_times("[1,0]<stdout>:  1024  256  float  sum  -1  12.50  0.08  0.14  0  12.40  0.08  0.14  0")
    [(1024, 12.5)]
    """
    return [(row.size_bytes, row.time_us) for row in logged_rows(text)]


def logged_rows(text: str) -> list[LoggedRow]:
    """Return every whole row in a log of nccl-tests, those put together that words of NCCL's have torn."""
    rows: list[LoggedRow] = []
    rooted: bool | None = None
    head: list[str] = []
    for words in _words(text):
        titles = [word for word in words if word != "#"]
        if tuple(titles[:3]) == _TITLES and "time" in titles:
            rooted = "root" in titles[: titles.index("time")]
            head = []
        elif len(words) > 2 and all(map(_COUNTED.fullmatch, words[:2])) and _TYPES.fullmatch(words[2]):
            head = words
        elif head and _figures(words):
            # nccl-tests prints a row in three goes, and NCCL may speak between them.
            head = [*head, *words]
        else:
            continue
        found = _logged(int(head[0]), head[3:], rooted) if head else None
        if found is not None:
            rows.append(found)
            head = []
    return rows


def bus_ratio(text: str) -> float | None:
    """Return bus over algorithm bandwidth in a log, which tells the number of ranks; None where it is too coarse."""
    told = [row for row in logged_rows(text) if row.busbw is not None and min(row.algbw, row.busbw) >= _LEAST_BUS]
    if not told:
        return None
    best = max(told, key=lambda row: row.algbw)
    return None if best.busbw is None else best.busbw / best.algbw


def _words(text: str) -> Iterator[list[str]]:
    """Yield the words of each line, and of each part of a line beside what NCCL said in it."""
    for line in lines_of("\n".join(_PREFIX.sub("", line, count=1) for line in text.splitlines())):
        if line.thread == Thread():
            yield line.text.split()


def _figures(words: list[str]) -> bool:
    """Say whether these may be the rest of a row: numbers and N/A only."""
    return all(word == "N/A" or re.fullmatch(r"-?[\d.]+(?:e[+-]?\d+)?", word) for word in words)


def _logged(size_bytes: int, rest: list[str], rooted: bool | None) -> LoggedRow | None:
    """Read what follows the type in a row: operation and root, where the layout has them, then time and bandwidths."""
    if rest and rest[0].isalpha():
        rest = rest[1:]
    if rooted if rooted is not None else len(rest) % 4 == 1:
        rest = rest[1:]
    try:
        time_us, algbw = float(rest[0]), float(rest[1])
    except (IndexError, ValueError):
        return None
    if not size_bytes or not 0 < time_us < math.inf:
        return None
    # The bandwidth beside it says whether it is the time: a torn row, or one without a column, does not fit.
    fits = math.isclose(size_bytes / time_us / 1e3, algbw, rel_tol=0.02, abs_tol=0.011)
    if not fits:
        return None
    try:
        busbw = float(rest[2])
    except (IndexError, ValueError):
        busbw = None
    return LoggedRow(size_bytes, time_us, algbw, busbw)


def read_number(text: str, name: str, path: Path, line: int) -> float:
    """Read a cell that must be zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ScenarioError(f"{path}:{line}: {name} is {text!r}; it must be a number, zero or more")
    return value
