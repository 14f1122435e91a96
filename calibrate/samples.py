"""Samples as plain data, and their CSV: one row a point, with the machine's facts in lines that begin with ``#``.

This is what `calibrate.measure` leaves behind and `calibrate.fit` reads. A head line ``# gpu: NVIDIA H200`` is a fact,
``# note: ...`` tells what went wrong, any other line with ``#`` is a remark and skipped. Columns are found by name:
``kind``, ``direction``, ``bytes`` and ``us_median`` are needed; ``pinned``, ``us_min``, ``us_max``, ``reps``, ``trials``
may be empty or absent. Left out: where the text lies on disk, which is the affair of who calls.
"""

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from netsim.errors import NetsimError

COLUMNS = ("kind", "direction", "pinned", "bytes", "us_median", "us_min", "us_max", "reps", "trials")
_NEEDED = ("kind", "direction", "bytes", "us_median")
_FACT = re.compile(r"#\s*([a-z][a-z0-9_]*):\s*(.*)")
_PINNED = {"true": True, "false": False, "": None}
_US = 1e-6
_LANE_BYTES_PER_S = {
    1: 0.25e9,
    2: 0.5e9,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 7.5625e9,
}
"""Payload of one lane of PCI Express by generation: signalling rate less line code (6: flits of 242 of 256 bytes)."""


@dataclass(frozen=True)
class SeriesKey:
    """What a series of samples has in common."""

    kind: str
    """``copy``, ``copy_sync``, ``peer``, ``all_reduce`` ..."""
    direction: str
    """``h2d``, ``d2h``, ``both``, ``0->1``, ``local``; of kernels and collectives how they were launched."""
    pinned: bool | None = None
    """Whether host memory was pinned; None where no host memory is touched."""

    def __str__(self) -> str:
        memory = {True: " pinned", False: " pageable", None: ""}[self.pinned]
        return f"{self.kind} {self.direction}{memory}".replace("  ", " ")


@dataclass(frozen=True)
class Sample:
    """The time of one piece of work, per piece."""

    key: SeriesKey
    size_bytes: int
    """Bytes of one piece, zero or more; with both directions at once, of each."""
    median_s: float
    """Median of the trials, seconds, above zero."""
    least_s: float | None = None
    """Fastest trial, seconds."""
    most_s: float | None = None
    """Slowest trial, seconds."""
    reps: int | None = None
    """Pieces back to back in one trial."""
    trials: int | None = None
    """How often it was repeated."""


@dataclass(frozen=True)
class Samples:
    """Samples of one machine."""

    rows: tuple[Sample, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Hardware and versions, by names such as ``gpu``, ``driver``, ``link_width``, ``date``."""
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""

    def series(self) -> dict[SeriesKey, list[Sample]]:
        """Return the samples of each series by size, series in the order in which they first come."""
        found: dict[SeriesKey, list[Sample]] = {}
        for row in self.rows:
            found.setdefault(row.key, []).append(row)
        return {key: sorted(rows, key=lambda row: row.size_bytes) for key, rows in found.items()}

    def line_rate_bytes_per_s(self) -> float | None:
        """Return the line rate of the host link by its generation and width; None where the samples do not tell them."""
        generation, width = (self.facts.get(name, "") for name in ("link_generation", "link_width"))
        if not (generation.isdecimal() and width.isdecimal()) or int(generation) not in _LANE_BYTES_PER_S:
            return None
        return round(_LANE_BYTES_PER_S[int(generation)] * int(width), -6) or None  # to the MB/s


def samples_text(samples: Samples) -> str:
    """Write samples as the text of a CSV file.

    Examples
    --------
    >>> row = Sample(SeriesKey("copy", "h2d", True), 4, 3.663e-6, 3.587e-6, 5.438e-6, 200, 9)
    >>> print(samples_text(Samples((row,), {"gpu": "NVIDIA H200"})), end="")
    # gpu: NVIDIA H200
    kind,direction,pinned,bytes,us_median,us_min,us_max,reps,trials
    copy,h2d,True,4,3.663,3.587,5.438,200,9
    """
    out = io.StringIO()
    for name, value in samples.facts.items():
        out.write(f"# {name}: {' '.join(value.split())}\n")
    for note in samples.notes:
        out.write(f"# note: {' '.join(note.split())}\n")
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in samples.rows:
        times = [_us_words(time) for time in (row.median_s, row.least_s, row.most_s)]
        counts = ["" if count is None else count for count in (row.reps, row.trials)]
        pinned = "" if row.key.pinned is None else row.key.pinned
        table.writerow([row.key.kind, row.key.direction, pinned, row.size_bytes, *times, *counts])
    return out.getvalue()


def parse_samples(text: str, where: str) -> Samples:
    """Read the text of a CSV file of samples.

    Parameters
    ----------
    text : str
    where : str
        Names the file in messages.

    Returns
    -------
    Samples

    Raises
    ------
    NetsimError
        If a column is missing, or a line holds something else than a sample; the message names the line.
    """
    facts: dict[str, str] = {}
    notes: list[str] = []
    rows: list[Sample] = []
    columns: list[str] | None = None
    seen: dict[tuple[SeriesKey, int], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if line.startswith("#"):
            fact = _FACT.fullmatch(line.strip())
            if fact and fact[1] == "note":
                notes.append(fact[2])
            elif fact:
                facts[fact[1]] = fact[2]
            continue
        try:
            (cells,) = csv.reader([line], strict=True)
        except csv.Error as error:
            raise NetsimError(f"{where}: line {number}: not a row of a CSV: {error}") from error
        if columns is None:
            columns = [cell.strip() for cell in cells]
            missing = [name for name in _NEEDED if name not in columns]
            if missing:
                raise NetsimError(f"{where}: line {number}: no column {missing[0]}; samples have {','.join(COLUMNS)}")
            continue
        row = _sample(dict(zip(columns, (cell.strip() for cell in cells), strict=False)), f"{where}: line {number}")
        place = (row.key, row.size_bytes)
        if place in seen:
            raise NetsimError(
                f"{where}: line {number}: {row.key} of {row.size_bytes} bytes stands in line {seen[place]} already"
            )
        seen[place] = number
        rows.append(row)
    if columns is None:
        raise NetsimError(f"{where}: holds no samples; a line of columns is wanted: {','.join(COLUMNS)}")
    return Samples(tuple(rows), facts, tuple(notes))


def _sample(cells: dict[str, str], where: str) -> Sample:
    """Read one row, whose cells are named."""
    pinned = cells.get("pinned", "").lower()
    if pinned not in _PINNED:
        raise NetsimError(f"{where}: pinned is {cells['pinned']!r}; accepted are True, False or nothing")
    median = _time(cells, "us_median", where)
    if median is None:
        raise NetsimError(f"{where}: us_median is empty; a time in microseconds is wanted")
    return Sample(
        SeriesKey(cells.get("kind", ""), cells.get("direction", ""), _PINNED[pinned]),
        _count(cells, "bytes", where, needed=True) or 0,
        median,
        _time(cells, "us_min", where),
        _time(cells, "us_max", where),
        _count(cells, "reps", where),
        _count(cells, "trials", where),
    )


def _time(cells: dict[str, str], name: str, where: str) -> float | None:
    text = cells.get(name, "")
    if not text:
        return None
    try:
        time = float(text)
    except ValueError:
        time = math.nan
    if not 0 < time < math.inf:
        raise NetsimError(f"{where}: {name} is {text!r}; a time in microseconds above zero is wanted")
    return time * _US


def _count(cells: dict[str, str], name: str, where: str, *, needed: bool = False) -> int | None:
    text = cells.get(name, "")
    if not text and not needed:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise NetsimError(f"{where}: {name} is {text!r}; a whole number, zero or more, is wanted")
    return int(text)


def _us_words(time_s: float | None) -> str:
    """Write microseconds to the picosecond, finer than any clock."""
    return "" if time_s is None else repr(round(time_s / _US, 6))
