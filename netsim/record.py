"""What a run leaves behind: operation times, link counters and provenance, as plain data.

A thin layer between engines and metrics: metrics read records and never ask an engine.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Record:
    """One finished run of a schedule on a topology."""

    time_s: float
    """When the last operation ended, in seconds; 0 for a schedule without operations."""
    start_s: Floats
    """When each operation's first byte entered its first link (a compute operation: when it began); empty in a summary."""
    end_s: Floats
    """When each operation was delivered (the last byte at its end); empty in a summary."""
    op_class: npt.NDArray[np.int32]
    """For each operation the row of `idle_s` that applies to it."""
    idle_s: Floats
    """Shape (classes, 3): seconds from asking to end, left and head on idle links."""
    hold_s: Floats
    """Seconds that each operation holds its lane before it asks its first link."""
    edges: tuple[tuple[str, str], ...]
    """Every directed link as (from, to)."""
    link_bytes: npt.NDArray[np.int64]
    """Bytes that crossed each link."""
    link_messages: npt.NDArray[np.int64]
    """Messages that crossed each link."""
    link_busy_s: Floats
    """Seconds that each link was occupied."""
    messages: int
    """Messages sent, counting pieces where messages were cut."""
    engine: str
    version: str
    topology_digest: str
    schedule_digest: str
    quantum_bytes: int = 0
    routing: str = "static"
    seed: int | None = None
    lower_bound_s: float | None = None
    """What the run could not beat: its critical path on idle links, or its busiest link's work, whichever is longer."""

    def __repr__(self) -> str:
        return f"<Record {self.time_s * 1e6:.3f} us, {self.messages} messages over {len(self.edges)} links, {self.engine}>"

    @property
    def duration_s(self) -> Floats:
        """Seconds between start and end of each operation."""
        return self.end_s - self.start_s
