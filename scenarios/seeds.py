"""Hashed routes have luck: the same run over many seeds, as a distribution instead of one lucky number.

``ecmp:0..31`` (also ``ecmp:0..31,flows=4``) stands for these seeds. A row of it is the run of median time, and its note
tells the fastest, the median and the slowest. Seeds follow each other, so a range is reproducible; a range is no
statement about how likely each outcome is on a real switch, whose hash nobody publishes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.units import format_time

if TYPE_CHECKING:
    from netsim.export.table import Row
    from scenarios.run import Spec

MOST_SEEDS = 10_000
_RANGE = re.compile(r"ecmp:([0-9]{1,18})\.\.([0-9]{1,18})((?:,flows=.*)?)", re.ASCII)


@dataclass(frozen=True)
class Spread:
    """Times of one spec over seeds, in seconds."""

    seeds: tuple[int, ...]
    times_s: tuple[float, ...]

    @property
    def least_s(self) -> float:
        """Time of the luckiest seed."""
        return min(self.times_s)

    @property
    def median_s(self) -> float:
        """Time of the middle seed (the lower middle of an even number), so that it is a run that happened."""
        return sorted(self.times_s)[(len(self.times_s) - 1) // 2]

    @property
    def most_s(self) -> float:
        """Time of the unluckiest seed."""
        return max(self.times_s)

    def words(self) -> str:
        """Say it in a line."""
        least, median, most = (format_time(float(f"{time:.4g}")) for time in (self.least_s, self.median_s, self.most_s))
        return f"{len(self.seeds)} ECMP seeds: {least} to {most}, median {median} (this row)"


def policies(routing: str) -> tuple[str, ...] | None:
    """Return the policies that a range of seeds stands for; None for a single policy.

    Raises
    ------
    FabricError
        If the range is empty or too long.

    Examples
    --------
    >>> policies("ecmp:3..5,flows=2")
    ('ecmp:3,flows=2', 'ecmp:4,flows=2', 'ecmp:5,flows=2')
    """
    match = _RANGE.fullmatch(routing)
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    if not 0 <= last - first < MOST_SEEDS:
        raise FabricError(
            f"routing {routing!r}: the seeds must go upwards and be at most {MOST_SEEDS}, for example ecmp:0..31"
        )
    return tuple(f"ecmp:{seed}{match[3]}" for seed in range(first, last + 1))


def over_seeds(spec: "Spec", run: "Callable[[Spec], Row]") -> "tuple[Row, Spread]":
    """Run a spec for every seed of its range; return the row of median time, with a note, and the distribution."""
    singles = policies(spec.routing) or (spec.routing,)
    rows = [run(replace(spec, routing=policy)) for policy in singles]
    seeds = tuple(int(policy.removeprefix("ecmp:").partition(",")[0]) for policy in singles)
    spread = Spread(seeds, tuple(row.time_us / 1e6 for row in rows))
    median = next(row for row, time_s in zip(rows, spread.times_s, strict=True) if time_s == spread.median_s)
    note = "; ".join(part for part in (spread.words(), median.note) if part)
    return replace(median, note=note), spread
