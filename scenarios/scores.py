"""Figures of errors: quantiles over tables that weigh the same, by any grouping, and where measured curves cross.

Errors are absolute and relative, of time. Every table weighs the same, however many rows it has: each of its rows counts
one over their number.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from netsim.units import format_bytes
from scenarios.tables import Entry
from scenarios.validate import Held, Point

BANDS = ((0, 1 << 15), (1 << 15, 1 << 20), (1 << 20, 1 << 26), (1 << 26, 1 << 62))
"""Bands of sizes, from and below, in bytes."""


@dataclass(frozen=True)
class Score:
    """The errors of one group of tables."""

    name: str
    tables: int
    rows: int
    median: float
    ninety: float
    """What nine in ten rows keep to."""
    bias: float
    """The median of the error with its sign."""
    model: tuple[float, float] | None = None
    """Median and nine in ten of NCCL's own cost model, on the rows where it has a figure; None where it has none."""
    on_models_rows: tuple[float, float] | None = None
    """The same of the prediction on just those rows."""


@dataclass(frozen=True)
class Crossing:
    """Where two measured tables of one machine change places, and where their predictions do."""

    first: str
    second: str
    """Files; the first is the faster one below."""
    measured_bytes: float
    predicted_bytes: float | None
    """None if the predictions do not cross."""

    @property
    def factor(self) -> float | None:
        """Predicted size over measured size."""
        return None if self.predicted_bytes is None else self.predicted_bytes / self.measured_bytes


def quantile(values: Sequence[tuple[float, float]], share: float) -> float:
    """Return the value that a share of all weights does not exceed.

    Parameters
    ----------
    values : sequence of (float, float)
        Value and weight.
    share : float
        0 to 1.

    Examples
    --------
    >>> quantile([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)], 0.5), quantile([(1.0, 9.0), (2.0, 1.0)], 0.95)
    (2.0, 2.0)
    """
    ordered = sorted(values)
    needed = share * math.fsum(weight for _, weight in ordered)
    total = 0.0
    for value, weight in ordered:
        total += weight
        if total >= needed * (1 - 1e-12):
            return value
    return math.nan


def score(name: str, held: Iterable[tuple[Held, Sequence[Point]]]) -> Score | None:
    """Return the score of a group of tables with those of their points that belong to it; None if there are no points."""
    chosen = [(one, points) for one, points in held if points]
    if not chosen:
        return None
    errors = [(point.error, 1 / len(points)) for _, points in chosen for point in points]
    size = [(abs(error), weight) for error, weight in errors]
    both = [
        (abs(point.model_error), abs(point.error), 1 / len(points))
        for _, points in chosen
        for point in points
        if point.model_error is not None
    ]
    return Score(
        name,
        len(chosen),
        len(errors),
        quantile(size, 0.5),
        quantile(size, 0.9),
        quantile(errors, 0.5),
        _pair([(model, weight) for model, _, weight in both]),
        _pair([(mine, weight) for _, mine, weight in both]),
    )


def _pair(values: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    return (quantile(values, 0.5), quantile(values, 0.9)) if values else None


def scores_by(held: Iterable[Held], key: Callable[[Held, Point], Hashable]) -> list[Score]:
    """Return the scores of groups of points by a key, in the order of the keys' first appearance; None groups none."""
    groups: defaultdict[Hashable, list[tuple[Held, list[Point]]]] = defaultdict(list)
    for one in held:
        mine: defaultdict[Hashable, list[Point]] = defaultdict(list)
        for point in one.points:
            if point.scored:
                mine[key(one, point)].append(point)
        for name, points in mine.items():
            groups[name].append((one, points))
    found = (score(str(name), members) for name, members in groups.items() if name is not None)
    return [one for one in found if one is not None]


def band(size_bytes: int) -> str:
    """Return the name of the band of a size.

    Examples
    --------
    >>> band(1024), band(1 << 26)
    ('below 32 KiB', '64 MiB and more')
    """
    low, high = next((low, high) for low, high in BANDS if low <= size_bytes < high)
    if not low:
        return f"below {format_bytes(high)}"
    return f"{format_bytes(low)} and more" if high == BANDS[-1][1] else f"{format_bytes(low)} to {format_bytes(high)}"


def crossings(held: Sequence[Held]) -> list[Crossing]:
    """Return where tables that differ only in what was forced change places, by measurement and by prediction.

    Of one source, with the same notes, and measured at the same sizes as far as their ranges overlap: a sweep in finer steps
    is held against its like only.
    """
    groups: defaultdict[Hashable, list[Held]] = defaultdict(list)
    for one in held:
        if one.points and one.set_up is not None and "auto" not in (one.set_up.algorithm, one.set_up.protocol):
            groups[_same_but_forced(one)].append(one)
    return [
        crossing
        for group in groups.values()
        for first, second in combinations(group, 2)
        if _forced(first) != _forced(second) and _same_steps(first, second)
        for crossing in _between(first, second)
    ]


def _same_but_forced(one: Held) -> Hashable:
    assert one.set_up is not None
    entry: Entry = one.entry
    # What an index says of the score, at the end of its notes, counts rows.
    notes = entry["notes"].rpartition("score ")[0] or entry["notes"]
    return one.set_up.machine, one.set_up.options, entry.collective, entry["in_place"], notes, entry["source"]


def _forced(one: Held) -> tuple[str, str]:
    assert one.set_up is not None
    return one.set_up.algorithm, one.set_up.protocol


def _same_steps(first: Held, second: Held) -> bool:
    """Say whether neither table has a size that the other lacks, where the ranges of both overlap."""
    ours, theirs = ([row.size_bytes for row in one.measured] for one in (first, second))
    low, high = max(ours[0], theirs[0]), min(ours[-1], theirs[-1])
    return all(low <= high and not low <= size <= high for size in {*ours} ^ {*theirs})


def _between(first: Held, second: Held) -> Iterator[Crossing]:
    others = {point.size_bytes: point for point in second.points}
    both = [(point, others[point.size_bytes]) for point in first.points if point.size_bytes in others]
    measured = [(a.size_bytes, math.log(a.measured_us / b.measured_us)) for a, b in both]
    predicted = list(_zeros([(a.size_bytes, math.log(a.row.time_us / b.row.time_us)) for a, b in both]))
    for size, rising in _zeros(measured):
        alike = [at for at, up in predicted if up == rising]
        nearest = min(alike, key=lambda at: abs(math.log(at / size)), default=None)
        names = (first.entry.path.name, second.entry.path.name)
        yield Crossing(*(names if rising else names[::-1]), size, nearest)


def _zeros(curve: Sequence[tuple[int, float]]) -> Iterator[tuple[float, bool]]:
    """Yield sizes at which a difference changes its sign, and whether it rises: between two sizes by their logarithms.

    Where it is zero on the way, the middle of that part.
    """
    differing = [at for at, (_, value) in enumerate(curve) if value]
    for at, after in pairwise(differing):
        (size, value), (next_size, next_value) = curve[at], curve[after]
        if (value < 0) == (next_value < 0):
            continue
        if after == at + 1:
            yield size * (next_size / size) ** (value / (value - next_value)), value < 0
        else:
            yield math.sqrt(curve[at + 1][0] * curve[after - 1][0]), value < 0
