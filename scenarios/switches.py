"""Where NCCL's own choice changes from one algorithm or protocol to another, and the kink of the measured curve near it.

After `scenarios.validate`. A measured table does not say what ran; but a switch shows, if at all, as one step of the size
over which the time grows faster than over the step before and the step after. The curve of one algorithm bends upwards
without such a kink. Noise makes kinks too, so that a kink far from a switch, or a switch without one, proves nothing.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from netsim.export.table import rounded_size
from scenarios.choices import choices
from scenarios.run import Spec
from scenarios.tables import Measured
from scenarios.validate import Held

_NEAR = 2
"""How many times smaller or larger than the predicted step a kink is still taken for the switch's."""
_STEEPER = 0.1
"""How much larger than on both sides the slope of a kink is, on logarithmic axes; noise of a step is below half of that."""
_STEPS = (1.9, 4.1)
"""Ratios of neighbouring sizes at which slopes are compared; over finer steps they are mostly noise."""


@dataclass(frozen=True)
class Kink:
    """A step of the size over which a measured curve is steeper than before and after."""

    from_bytes: int
    to_bytes: int
    slope: float
    """Of the logarithm of the time over that of the size."""


@dataclass(frozen=True)
class Switch:
    """A predicted change of algorithm or protocol between two simulated sizes, and the steepest kink near it."""

    file: str
    below: str
    above: str
    """Algorithm and protocol."""
    from_bytes: int
    to_bytes: int
    kink: Kink | None
    """None where the measured curve has none near by."""

    @property
    def name(self) -> str:
        """From what to what."""
        return f"{self.below} -> {self.above}"

    @property
    def factor(self) -> float | None:
        """Where it is predicted over where the kink is, middles of their steps; None without a kink."""
        if self.kink is None:
            return None
        return math.sqrt(self.from_bytes * self.to_bytes / (self.kink.from_bytes * self.kink.to_bytes))

    @property
    def together(self) -> bool:
        """Whether the kink's step and the predicted one overlap."""
        return self.kink is not None and self.kink.from_bytes < self.to_bytes and self.from_bytes < self.kink.to_bytes


def switches(held: Sequence[Held]) -> list[Switch]:
    """Return where the predictions of tables with NCCL's own choice change, in the order of tables and sizes.

    Of several changes near one kink it is that of the nearest.
    """
    return [switch for one in _chosen(held) for switch in _of_table(one)]


@dataclass(frozen=True)
class Kind:
    """All changes from one algorithm and protocol to one other."""

    name: str
    changes: int
    near: int
    """How many have a kink near."""
    together: int
    """How many have it in the same step."""
    factor: float | None
    """By how much the position is off either way, in the median of those with a kink near."""


def kinds(found: Sequence[Switch]) -> list[Kind]:
    """Return the changes by what changes, the most frequent first."""
    names = sorted({one.name for one in found})
    made = []
    for name in names:
        mine = [one for one in found if one.name == name]
        apart = [abs(math.log(one.factor)) for one in mine if one.factor is not None]
        factor = math.exp(statistics.median(apart)) if apart else None
        made.append(Kind(name, len(mine), len(apart), sum(one.together for one in mine), factor))
    return sorted(made, key=lambda one: -one.changes)


def kinks_in_all(held: Sequence[Held]) -> int:
    """Return how many kinks the tables have that `switches` looks at: what noise makes of them, if few are near a change."""
    return sum(len(kinks(one.measured)) for one in _chosen(held))


def _chosen(held: Sequence[Held]) -> list[Held]:
    """Return the tables in which NCCL chose."""
    return [one for one in held if one.set_up is not None and "auto" in (one.set_up.algorithm, one.set_up.protocol)]


def _of_table(one: Held) -> Iterator[Switch]:
    ran = _ran(one)
    changes = [(low, high, below, above) for (low, below), (high, above) in pairwise(ran) if below != above]
    if not changes:
        return
    mine: dict[int, list[Kink]] = {}
    for kink in kinks(one.measured):
        centre = math.log(kink.from_bytes * kink.to_bytes)
        place = min(range(len(changes)), key=lambda at: abs(math.log(changes[at][0] * changes[at][1]) - centre))
        mine.setdefault(place, []).append(kink)
    for place, (low, high, below, above) in enumerate(changes):
        near = [kink for kink in mine.get(place, ()) if low <= kink.from_bytes * _NEAR and kink.to_bytes <= high * _NEAR]
        steepest = max(near, key=lambda kink: kink.slope, default=None)
        yield Switch(one.entry.path.name, below, above, low, high, steepest)


def _ran(one: Held) -> list[tuple[int, str]]:
    """Return size and choice of the rows: of all where NCCL's model chooses, of those simulated where nobody asks it."""
    simulated = [(point.size_bytes, f"{point.row.algorithm} {point.row.protocol}") for point in one.points]
    if not simulated or one.set_up is None:
        return simulated
    spec = Spec(
        one.set_up.machine,
        one.entry.collective,
        simulated[0][0],
        algorithm=one.set_up.algorithm,
        protocol=one.set_up.protocol,
        nccl=one.set_up.options,
    )
    whole = {
        row.size_bytes: rounded_size(spec.collective, one.entry.ranks, row.size_bytes, spec.nccl.element_bytes)
        for row in one.measured
        if row.size_bytes >= simulated[0][0]
    }
    decided = dict(choices(spec, filter(None, whole.values())).decisions)
    chosen = [(size, decided[rounded].choice) for size, rounded in whole.items() if rounded in decided]
    return [(size, f"{choice.algorithm} {choice.protocol}") for size, choice in chosen] or simulated


def kinks(rows: Sequence[Measured]) -> list[Kink]:
    """Return the steps of a table over which its time grows faster than over those on both sides.

    Examples
    --------
    >>> kinks([Measured(1, 1.0), Measured(2, 1.0), Measured(4, 2.0), Measured(8, 2.0)])
    [Kink(from_bytes=2, to_bytes=4, slope=1.0)]
    """
    steps = [(low, high, _slope(low, high)) for low, high in pairwise(rows)]
    found = []
    for (start, _, before), (low, high, slope), (_, end, after) in zip(steps, steps[1:], steps[2:], strict=False):
        ratios = (low.size_bytes / start.size_bytes, high.size_bytes / low.size_bytes, end.size_bytes / high.size_bytes)
        if all(_STEPS[0] <= ratio <= _STEPS[1] for ratio in ratios) and slope > max(before, after) + _STEEPER:
            found.append(Kink(low.size_bytes, high.size_bytes, slope))
    return found


def _slope(low: Measured, high: Measured) -> float:
    return math.log(high.time_us / low.time_us) / math.log(high.size_bytes / low.size_bytes)
