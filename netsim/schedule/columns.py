"""A schedule as data: what operations are, their columns, and the table of what each requires.

A schedule says which rank sends which bytes to which rank and after what; it never names a link. Operations are rows of
NumPy columns, their requirements a second, sparse table; a third one holds the further ranges of messages that carry
several parts of the data. Nothing here knows about time except the costs that belong to the operation itself (a lag, a
duration). `netsim.schedule.dag` grows schedules and is where others take all of this from.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError
from netsim.schedule.collective import space_bytes

# What an operation is.
TRANSFER = 0  # source rank to destination rank
TRUNK = 1  # source rank up to the switch that will copy it to several receivers
BRANCH = 2  # from the switch to one receiver of a trunk
LEG = 3  # one member's contribution up to the switch that adds
OUTPUT = 4  # the switch's sum down to one rank
COMPUTE = 5  # occupies its lane (and a resource) without using a link
KIND_NAMES = ("transfer", "trunk", "branch", "leg", "output", "compute")

# What a requirement waits for.
END = 0  # delivered: the last byte is at the destination
LEFT = 1  # the last byte has left the source's first link: its buffer is free
HEAD = 2  # the first byte is at the end of the path; the dependent's tail is never before this one's
MILESTONE_NAMES = ("end", "left", "head")

Ids = npt.NDArray[np.int64]

COLUMNS: tuple[tuple[str, type[np.generic], object], ...] = (
    ("kind", np.uint8, TRANSFER),
    ("src", np.int32, -1),
    ("dst", np.int32, -1),
    ("offset", np.int64, 0),
    ("size", np.int64, 0),
    ("wire", np.int64, None),
    ("chunk", np.int32, 0),
    ("step", np.int32, 0),
    ("lane", np.int32, None),
    ("reduce", np.bool_, False),
    ("from_input", np.bool_, False),
    ("posted", np.bool_, False),
    ("group", np.int32, -1),
    ("duration", np.float64, 0.0),
    ("work", np.float64, 0.0),
    ("feed", np.int64, 0),
    ("early", np.bool_, False),
    ("flow", np.int32, 0),
    ("via", np.int32, -1),
    ("resource", np.int32, -1),
    ("units", np.int32, 0),
)


_ACCEPTED = {"i": "biu", "u": "biu", "f": "biuf", "b": "biu"}
"""Kinds of NumPy values that a column of some kind takes: a fraction of a byte is an error, never rounded."""


def typed(name: str, values: object, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """Return a column's values, refusing those that would be cut to fit."""
    given = np.asarray(values)
    if given.dtype == dtype:
        return given
    limits = np.iinfo(dtype) if issubclass(dtype, np.integer) else None
    fits = given.dtype.kind in _ACCEPTED[np.dtype(dtype).kind]
    if fits and limits is not None and given.size:
        fits = limits.min <= int(given.min()) and int(given.max()) <= limits.max
    if not fits:
        kind = "numbers" if limits is None else "whole numbers"
        raise ScheduleError(f"the column {name!r} takes {kind} that fit {np.dtype(dtype).name}; given was {values!r:.60}")
    return given.astype(dtype)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The message DAG of one collective over ranks ``0 .. ranks - 1``.

    Every column has one entry an operation; ``len(schedule)`` is their number.
    """

    collective: str
    algorithm: str
    ranks: int
    size_bytes: int
    """The collective's size as nccl-tests counts it, in bytes."""
    root: int
    kind: npt.NDArray[np.uint8]
    src: npt.NDArray[np.int32]
    """Source rank; -1 for a branch or an output, which start at a switch."""
    dst: npt.NDArray[np.int32]
    """Destination rank; -1 for a trunk or a leg, which end at a switch, and for a compute operation."""
    offset: npt.NDArray[np.int64]
    """First byte in the collective's logical space (see `netsim.schedule.collective`), of the first range if several."""
    size: npt.NDArray[np.int64]
    """Bytes of payload, all ranges together."""
    wire: npt.NDArray[np.int64]
    """Bytes on the links: the payload and what the protocol adds."""
    chunk: npt.NDArray[np.int32]
    """Which chunk of the algorithm this is, for people."""
    step: npt.NDArray[np.int32]
    """Which step of the algorithm this is, for people."""
    lane: npt.NDArray[np.int32]
    """The in-order server that starts this operation; an index into `lane_names`."""
    reduce: npt.NDArray[np.bool_]
    """Whether the destination adds the bytes to its own, or replaces them."""
    from_input: npt.NDArray[np.bool_]
    """Whether the source sends its untouched input, or what it has accumulated there."""
    posted: npt.NDArray[np.bool_]
    """Whether the lane goes on as soon as it has asked the first link, instead of when the last byte has left it."""
    group: npt.NDArray[np.int32]
    """For operations in a switch: the index in `groups` of the ranks that the switch must join; else -1."""
    duration: npt.NDArray[np.float64]
    """Seconds that the operation holds its lane before it asks its first link (all of a compute operation)."""
    work: npt.NDArray[np.float64]
    """Seconds in which the lane produces the bytes of a message, from when it asks: the message has not left before."""
    feed: npt.NDArray[np.int64]
    """Bytes of the pieces in which the lane feeds the first link; 0 feeds the message whole."""
    early: npt.NDArray[np.bool_]
    """Whether duration and work run from when the lane is free, while the operation still waits for what it requires."""
    flow: npt.NDArray[np.int32]
    """Messages of one pair and flow take one way. Where a rank has several network cards, flows 0, 1, ... of a pair take
    them in turn, from one on that the destination decides; hashed routes hash all of the number."""
    via: npt.NDArray[np.int32]
    """For transfers between servers the rank whose network card sends it, in place of the source's own; -1 for that."""
    resource: npt.NDArray[np.int32]
    """What a compute operation occupies (an SM share, a copy engine), or -1."""
    units: npt.NDArray[np.int32]
    """How many units of the resource."""
    requires_start: npt.NDArray[np.int64]
    """``requires_op[requires_start[i]:requires_start[i + 1]]`` are the requirements of operation i."""
    requires_op: npt.NDArray[np.int64]
    requires_milestone: npt.NDArray[np.uint8]
    requires_lag: npt.NDArray[np.float64]
    """Seconds after the milestone."""
    lane_names: tuple[tuple[int, str], ...]
    """(rank, role) of each lane."""
    groups: tuple[tuple[int, ...], ...] = ()
    align_bytes: int = 1
    """Block boundaries are multiples of this many bytes (an element, for a replay on real data)."""
    pieces: int = 1
    """Into how many pieces the algorithm cuts its largest block; 1 where every block goes whole."""
    phases: tuple[tuple[int, str], ...] = ()
    """(first step, name) of each phase of the algorithm, in order, for people."""
    protocol: str = "ideal"
    """By which protocol messages go; links may have a latency of their own for it."""
    buffered: bool = False
    """Whether messages land in slots of their connection and the receiver's lane puts them in place, so that what follows
    a head never writes where others still read."""
    ranges_start: Ids | None = None
    """Where messages carry several ranges of the logical space: the ranges of operation i after its first one are
    ``ranges_offset[ranges_start[i]:ranges_start[i + 1]]`` and as many sizes; None where every message carries one."""
    ranges_offset: Ids | None = None
    ranges_size: Ids | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.collective} {self.algorithm}: {self.ranks} ranks, {self.size_bytes} bytes, "
            f"{len(self)} operations, {len(self.requires_op)} requirements, {len(self.lane_names)} lanes>"
        )

    @property
    def space_bytes(self) -> int:
        """Length of the collective's logical space in bytes."""
        return space_bytes(self.collective, self.ranks, self.size_bytes)

    def requirements(self, op: int) -> list[tuple[int, int, float]]:
        """Return the (operation, milestone, lag in seconds) that an operation waits for."""
        span = slice(int(self.requires_start[op]), int(self.requires_start[op + 1]))
        columns = self.requires_op[span], self.requires_milestone[span], self.requires_lag[span]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def ranges(self, op: int) -> list[tuple[int, int]]:
        """Return the (offset, size) of each range of the logical space that an operation carries, in bytes."""
        offset, size = int(self.offset[op]), int(self.size[op])
        if self.ranges_start is None or self.ranges_offset is None or self.ranges_size is None:
            return [(offset, size)]
        span = slice(int(self.ranges_start[op]), int(self.ranges_start[op + 1]))
        sizes = self.ranges_size[span].tolist()
        return [(offset, size - sum(sizes)), *zip(self.ranges_offset[span].tolist(), sizes, strict=True)]

    def all_ranges(self) -> tuple[Ids, Ids, Ids]:
        """Return operation, offset and size of every range: first those that come first, then the further ones."""
        ops = np.arange(len(self), dtype=np.int64)
        if self.ranges_start is None or self.ranges_offset is None or self.ranges_size is None:
            return ops, self.offset, self.size
        further = np.repeat(ops, np.diff(self.ranges_start))
        rest = np.zeros(len(self), np.int64)
        np.add.at(rest, further, self.ranges_size)
        return (
            np.concatenate([ops, further]),
            np.concatenate([self.offset, self.ranges_offset]),
            np.concatenate([self.size - rest, self.ranges_size]),
        )

    def describe(self, op: int) -> str:
        """Say in a few words what an operation is, for error messages and listings."""
        kind = KIND_NAMES[self.kind[op]] if self.kind[op] < len(KIND_NAMES) else f"unknown kind {self.kind[op]}"
        source = f"rank {self.src[op]}" if self.src[op] >= 0 else "switch"
        target = f"rank {self.dst[op]}" if self.dst[op] >= 0 else "switch"
        if self.kind[op] == COMPUTE:
            return f"operation {op} (compute on rank {self.lane_names[self.lane[op]][0]})"
        count = 1 if self.ranges_start is None else 1 + int(self.ranges_start[op + 1] - self.ranges_start[op])
        many = f" in {count} ranges" if count > 1 else ""
        return f"operation {op} ({kind} {source} -> {target}, {self.size[op]} bytes{many}, chunk {self.chunk[op]})"

    def bytes_sent(self) -> npt.NDArray[np.int64]:
        """Return the payload bytes that leave each rank, shape ``(ranks,)``."""
        return self._bytes_by(self.src)

    def bytes_received(self) -> npt.NDArray[np.int64]:
        """Return the payload bytes that reach each rank, shape ``(ranks,)``."""
        return self._bytes_by(self.dst)

    def _bytes_by(self, end: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        total = np.zeros(self.ranks, np.int64)
        moves = (end >= 0) & (self.kind != COMPUTE)
        np.add.at(total, end[moves], self.size[moves])
        return total
