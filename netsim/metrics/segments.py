"""The stretches that a run's time is split into, end to end from zero to its finish, and their sums."""

import math
from dataclasses import dataclass

PARTS = ("latency", "serialisation", "waiting", "compute", "launch")
"""What the time of a run is split into."""


@dataclass(frozen=True)
class Segment:
    """One stretch of the chain."""

    begin_s: float
    end_s: float
    part: str
    """One of `PARTS`."""
    op: int
    """The operation of the chain."""
    link: int
    """The link, an index into `Record.edges`; -1 where there is none."""

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class CriticalChain:
    """Segments from zero to the finish, each beginning where the one before ends."""

    segments: tuple[Segment, ...]

    @property
    def time_s(self) -> float:
        """When the last segment ends: the run's time."""
        return self.segments[-1].end_s if self.segments else 0.0

    @property
    def operations(self) -> tuple[int, ...]:
        """The operations of the chain, first to last."""
        return tuple(dict.fromkeys(segment.op for segment in self.segments))

    def split_s(self) -> dict[str, float]:
        """Return the seconds of each part, in the order of `PARTS`."""
        return {part: math.fsum(piece.duration_s for piece in self.segments if piece.part == part) for part in PARTS}

    def by_link_s(self, part: str) -> dict[int, float]:
        """Return the seconds that one part spent on each link, the most first (the first link among equals)."""
        spent: dict[int, list[float]] = {}
        for segment in self.segments:
            if segment.part == part and segment.link >= 0:
                spent.setdefault(segment.link, []).append(segment.duration_s)
        total = {link: math.fsum(values) for link, values in spent.items()}
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))
