"""What a fit means: errors before and after, where one set of numbers does not explain the times, which sizes fill the link.

Plain figures for tables; `scenarios.fit_files` writes the files. Nothing here fits.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from netsim.errors import NetsimError
from netsim.metrics.timing import bus_factor
from netsim.schedule.protocols import IDEAL
from scenarios.fit_predict import Predicted, Simulated, Task, predict
from scenarios.fit_search import Outcome
from scenarios.fit_series import Series
from scenarios.scores import BANDS, band, quantile

APART = 0.05
"""Error from which a row counts as off where neighbours are off to the same side."""
TOGETHER = 0.15
"""What the errors of neighbours come to that are no chance: three rows of 5 %, or two of 8 %."""
FAR = 0.25
"""Median error after a fit from which the machine is most likely another one."""
LEAST_ROWS = 3
"""Rows that a series needs to be looked at by itself."""
_MOST_TEXTBOOK = 44
"""Doublings of a byte up to which textbook runs are looked at: they cost the same whatever their size."""
_REFINED_TO = 1.01


@dataclass(frozen=True)
class Errors:
    """Absolute errors of a group of rows, as parts of the measured times."""

    name: str
    rows: int
    before: tuple[float, float]
    """The median, and what nine in ten rows keep to."""
    after: tuple[float, float]
    missing: int = 0
    """Rows that could not be simulated."""


@dataclass(frozen=True)
class Misfit:
    """Neighbouring rows that are all off to the same side."""

    where: str
    """The file, or what the rows have in common."""
    first: str
    last: str
    rows: int
    worst: float
    """Simulated over measured, less one, of the row that is farthest off."""


@dataclass(frozen=True)
class Reach:
    """What a fitted run comes to at small and at large sizes."""

    series: Series
    empty_us: float
    """Time of the smallest size that is looked at."""
    algbw_GBps: float  # noqa: N815 - nccl-tests' unit
    """The best of all sizes."""
    half_bytes: float | None
    """Size from which half of that is reached; None if the smallest reaches it."""
    ninety_bytes: float | None

    @property
    def busbw_GBps(self) -> float:  # noqa: N802
        """The best bus bandwidth."""
        return self.algbw_GBps * bus_factor(self.series.spec.collective, self.series.ranks)


def errors_by_series(series: Sequence[Series], outcome: Outcome) -> list[Errors]:
    """Return the errors of every series, and where there are several, last of all together, each weighing the same."""
    found = [
        _errors(one.name, [(one, row) for row in _rows(one, before, after)], len(one.rows))
        for one, before, after in zip(series, outcome.before, outcome.after, strict=True)
    ]
    every = list(_every(series, outcome))
    return [*found, _errors("all", every, sum(len(one.rows) for one in series))] if len(series) > 1 else found


def errors_by_band(series: Sequence[Series], outcome: Outcome) -> list[Errors]:
    """Return the errors of every band of sizes that has rows."""
    every = list(_every(series, outcome))
    bands = [(band(low), [pair for pair in every if low <= pair[1][0] < high]) for low, high in BANDS]
    return [_errors(name, pairs, len(pairs)) for name, pairs in bands if pairs]


_Row = tuple[int, float, float]
"""Size, and the errors before and after, with their signs."""


def _rows(one: Series, before: Sequence[Simulated | None], after: Sequence[Simulated | None]) -> Iterator[_Row]:
    for (size, measured_us), old, new in zip(one.rows, before, after, strict=True):
        if old is not None and new is not None:
            yield size, old.time_us / measured_us - 1, new.time_us / measured_us - 1


def _every(series: Sequence[Series], outcome: Outcome) -> Iterator[tuple[Series, _Row]]:
    for one, before, after in zip(series, outcome.before, outcome.after, strict=True):
        yield from ((one, row) for row in _rows(one, before, after))


def _errors(name: str, pairs: Sequence[tuple[Series, _Row]], rows: int) -> Errors:
    def figures(at: int) -> tuple[float, float]:
        sizes = [(abs(row[at]), 1 / len(one.rows)) for one, row in pairs]
        return quantile(sizes, 0.5), quantile(sizes, 0.9)

    return Errors(name, len(pairs), figures(1), figures(2), rows - len(pairs))


def misfits(series: Sequence[Series], outcome: Outcome) -> list[Misfit]:
    """Return where neighbouring rows are all off to the same side: by size in a series, by ranks where series are short."""
    found: list[Misfit] = []
    short: list[tuple[Series, _Row]] = []
    for one, before, after in zip(series, outcome.before, outcome.after, strict=True):
        rows = list(_rows(one, before, after))
        if len(one.rows) < LEAST_ROWS:
            short += [(one, row) for row in rows]
        else:
            found += _stretches(one.name, [(f"{row[0]} B", row[2]) for row in rows])

    def kind(pair: tuple[Series, _Row]) -> tuple[str, str, str, int]:
        spec = pair[0].spec
        return spec.collective, spec.algorithm, spec.protocol, pair[1][0]

    for (collective, algorithm, _, size), group in groupby(sorted(short, key=kind), kind):
        pairs = sorted(group, key=lambda pair: pair[0].ranks)
        words = f"{collective} by {algorithm} of {size} B"
        found += _stretches(words, [(f"{one.ranks} GPUs", row[2]) for one, row in pairs])
    return sorted(found, key=lambda one: -abs(one.worst) * one.rows)


def _stretches(where: str, rows: Iterable[tuple[str, float]]) -> Iterator[Misfit]:
    def side(row: tuple[str, float]) -> int:
        return 0 if abs(row[1]) < APART else 1 if row[1] > 0 else -1

    for sign, group in groupby(rows, side):
        stretch = list(group)
        if sign and len(stretch) > 1 and sum(abs(error) for _, error in stretch) >= TOGETHER:
            worst = max((error for _, error in stretch), key=abs)
            yield Misfit(where, stretch[0][0], stretch[-1][0], len(stretch), worst)


def reach(one: Series, after: Sequence[Simulated | None], task: Task) -> Reach | None:
    """Return at which sizes a fitted run reaches half and nine tenths of its best bandwidth.

    Parameters
    ----------
    one : Series
    after : sequence of Simulated or None
        What the fit came to for its rows; runs of NCCL's are looked at no farther than these go.
    task : Task
        The fitted point.

    Returns
    -------
    Reach or None
        None where there are too few sizes to say it.
    """
    if len(one.rows) < LEAST_ROWS:
        return None

    def time_us(size_bytes: int) -> float:
        try:
            ((found,),) = predict(replace(task, series=(replace(one, rows=((size_bytes, 1.0),)),)))
        except NetsimError:
            found = None
        return math.nan if found is None else found.time_us

    if one.spec.protocol == IDEAL:
        sizes = [one.ranks << doubling for doubling in range(_MOST_TEXTBOOK)]
        times = [(size, time_us(size)) for size in sizes]
    else:
        times = [(size, row.time_us) for (size, _), row in zip(one.rows, after, strict=True) if row is not None]
    times = [(size, time) for size, time in times if math.isfinite(time)]
    if len(times) < LEAST_ROWS:
        return None
    best = max(size / time for size, time in times)
    half, ninety = (_reached(times, share * best, time_us) for share in (0.5, 0.9))
    return Reach(one, times[0][1], best / 1e3, half, ninety)


def _reached(times: Sequence[tuple[int, float]], wanted: float, time_us: Callable[[int], float]) -> float | None:
    """Return the size from which a rate in bytes per microsecond is reached, to one per cent, by bisection."""
    at = next(number for number, (size, time) in enumerate(times) if size / time >= wanted)
    if at == 0:
        return None
    low, high = times[at - 1][0], times[at][0]
    while high > low * _REFINED_TO and high > low + 1:
        middle = round(math.sqrt(low * high))
        if middle / time_us(middle) >= wanted:
            high = middle
        else:
            low = middle
    return float(high)


def rows_of(series: Sequence[Series], outcome: Outcome) -> Iterator[tuple[Series, int, float, Simulated, Simulated]]:
    """Yield series, size, measured time in microseconds, and what is simulated before and after, of every row."""
    told: tuple[Predicted, Predicted] = (outcome.before, outcome.after)
    for one, before, after in zip(series, *told, strict=True):
        for (size, measured_us), old, new in zip(one.rows, before, after, strict=True):
            if old is not None and new is not None:
                yield one, size, measured_us, old, new
