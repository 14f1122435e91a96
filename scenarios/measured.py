"""Measured times by size from a CSV file: columns ``size_bytes`` and ``time_us``, others ignored.

Lines that begin with ``#`` are comments. A row without a time is left out; anything else that is no number is an error
that names its line.
"""

import csv
import io
import math
from pathlib import Path

from netsim.errors import ScenarioError
from topologies.reading import read_limited

MOST_BYTES = 64 << 20
_NEEDED = ("size_bytes", "time_us")


def read_measured(path: str | Path) -> list[tuple[int, float]]:
    """Read measured points.

    Parameters
    ----------
    path : str or Path
        A CSV file with the columns ``size_bytes`` and ``time_us``.

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
        text = read_limited(path, MOST_BYTES, ScenarioError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    if not numbered:
        raise ScenarioError(f"{path}: is empty; it needs a header with {' and '.join(_NEEDED)}, and rows")
    header = [name.strip() for name in next(csv.reader([numbered[0][1]]))]
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise ScenarioError(
            f"{path}:{numbered[0][0]}: has no column {' and no column '.join(missing)}; its columns are {', '.join(header)}"
        )
    size_at, time_at = (header.index(name) for name in _NEEDED)
    points = []
    for number, line in numbered[1:]:
        cells = next(csv.reader(io.StringIO(line)))
        if len(cells) <= max(size_at, time_at):
            raise ScenarioError(f"{path}:{number}: has {len(cells)} cells, the header has {len(header)}")
        if not cells[time_at].strip():
            continue
        size = _number(cells[size_at], "size_bytes", path, number)
        if size != int(size):
            raise ScenarioError(f"{path}:{number}: size_bytes is {cells[size_at]!r}; it must be a whole number of bytes")
        points.append((int(size), _number(cells[time_at], "time_us", path, number)))
    if not points:
        raise ScenarioError(f"{path}: has no row with a time")
    return points


def _number(text: str, name: str, path: Path, line: int) -> float:
    """Read a cell that must be zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ScenarioError(f"{path}:{line}: {name} is {text!r}; it must be a number, zero or more")
    return value
