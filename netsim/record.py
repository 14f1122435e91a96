"""What a run leaves behind: operation times, link counters and provenance, as plain data.

A thin layer between engines and metrics: metrics read records and never ask an engine.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netsim.errors import NetsimError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Services:
    """When each link served each message: one row a message, piece and link, by operation, piece and place on the route."""

    op: npt.NDArray[np.int64]
    """Which operation's message."""
    piece: npt.NDArray[np.int64]
    """Which piece of it, from 0; always 0 where messages are served whole."""
    hop: npt.NDArray[np.int64]
    """Place of the link on the operation's route, from 0."""
    link: npt.NDArray[np.int64]
    """Which link, an index into `Record.edges`."""
    ask_s: Floats
    """When the link was asked: the first byte is there, and waits until the link is free."""
    start_s: Floats
    """When the link began to serve."""
    free_s: Floats
    """When the link was free again."""

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, eq=False)
class Record:
    """One finished run of a schedule on a topology.

    Columns have one entry an operation (by id) or one a link (in the order of `edges`). A record kept with
    ``record="summary"`` has no `start_s` and `end_s`; only one kept with ``record="links"`` has `services`, and knows how
    long messages waited.

    Attributes
    ----------
    time_s : float
        When the last operation ended, in seconds.
    lower_bound_s : float or None
        Seconds that the run could not beat; set by `netsim.simulate`.
    start_s, end_s : ndarray of float
        Seconds at which each operation's first byte entered its first link, and at which it was delivered.
    edges : tuple of (str, str)
        Every directed link as (from, to): ``topology.edges[edge]["link"]`` is what it is.
    link_bytes, link_messages : ndarray of int
        What crossed each link.
    link_busy_s : ndarray of float
        Seconds that each link was occupied.
    messages : int
        Messages sent, counting pieces where messages were cut.
    services : Services or None
        When each link served each message.
    engine, version, topology_digest, schedule_digest, quantum_bytes, routing, seed
        Where the numbers come from; the same in two runs of the same input.
    op_class, idle_s, hold_s, work_s
        What each operation takes with all links idle; for metrics.

    Examples
    --------
    >>> import netsim, topologies
    >>> schedule = netsim.build_schedule("gather", "flat", 4, "12 kB")
    >>> record = netsim.simulate(topologies.build("ideal-switch:4@1GB/s,1us"), schedule, record="links")
    >>> record.bottleneck, record.longest_waiting
    (('switch', 'gpu0'), ('switch', 'gpu0'))
    >>> float(record.waiting_s.max().round(9))  # three messages of 3 us meet: the second waits 3 us, the third 6
    9e-06
    """

    time_s: float
    """When the last operation ended, in seconds; 0 for a schedule without operations."""
    start_s: Floats
    """When each operation's first byte entered its first link (a compute operation: when it began); empty in a summary."""
    end_s: Floats
    """When each operation was delivered (the last byte at its end); empty in a summary."""
    op_class: npt.NDArray[np.int32]
    """For each operation the row of `idle_s` that applies to it."""
    idle_s: Floats
    """Shape (classes, 4): seconds from asking to end, left and head on idle links, and the latencies from left to end."""
    hold_s: Floats
    """Seconds that each operation holds its lane before it asks its first link."""
    work_s: Floats
    """Seconds in which its lane makes each operation's bytes, while its first link serves them."""
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
    services: Services | None = None
    """Every service of every link, where the run was asked for them."""
    lower_bound_s: float | None = None
    """What the run could not beat: its critical path on idle links, or its busiest link's work, whichever is longer."""

    def __repr__(self) -> str:
        return f"<Record {self.time_s * 1e6:.3f} us, {self.messages} messages over {len(self.edges)} links, {self.engine}>"

    @property
    def duration_s(self) -> Floats:
        """Seconds between start and end of each operation."""
        return self.end_s - self.start_s

    @property
    def bottleneck(self) -> tuple[str, str] | None:
        """The link that was occupied longest, the first created among equals; None where nothing was sent."""
        if not self.link_messages.any():
            return None
        return self.edges[int(np.argmax(np.where(self.link_messages > 0, self.link_busy_s, -1.0)))]

    @property
    def waiting_s(self) -> Floats:
        """Seconds that messages waited for each link while it served others, all messages together.

        Raises
        ------
        NetsimError
            If the record was kept without the services of its links.
        """
        if self.services is None:
            raise NetsimError("this record does not know who waited; simulate with record='links'")
        waits = self.services.start_s - self.services.ask_s
        total = np.zeros(len(self.edges))
        np.add.at(total, self.services.link, waits)
        return total

    @property
    def longest_waiting(self) -> tuple[str, str] | None:
        """The link for which messages waited longest, the first created among equals; None where nothing waited."""
        waits = self.waiting_s
        return self.edges[int(np.argmax(waits))] if waits.any() else None
