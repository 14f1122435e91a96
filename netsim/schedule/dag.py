"""A schedule: a DAG of operations stored as columns, and the builder that grows one.

A schedule says which rank sends which bytes to which rank and after what; it never names a link. Operations are rows of
NumPy columns, their requirements a second, sparse table. Ids are dense, in order of creation, and break every tie in
time, so the order of ids is the builder's to choose. Nothing here knows about time except the costs that belong to the
operation itself (a lag, a duration).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.schedule.collective import check_collective, space_bytes

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
    ("resource", np.int32, -1),
    ("units", np.int32, 0),
)


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
    """First byte in the collective's logical space (see `netsim.schedule.collective`)."""
    size: npt.NDArray[np.int64]
    """Bytes of payload."""
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

    def describe(self, op: int) -> str:
        """Say in a few words what an operation is, for error messages and listings."""
        kind = KIND_NAMES[self.kind[op]] if self.kind[op] < len(KIND_NAMES) else f"unknown kind {self.kind[op]}"
        source = f"rank {self.src[op]}" if self.src[op] >= 0 else "switch"
        target = f"rank {self.dst[op]}" if self.dst[op] >= 0 else "switch"
        if self.kind[op] == COMPUTE:
            return f"operation {op} (compute on rank {self.lane_names[self.lane[op]][0]})"
        return f"operation {op} ({kind} {source} -> {target}, {self.size[op]} bytes, chunk {self.chunk[op]})"

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


@dataclass
class ScheduleBuilder:
    """Grow a `Schedule` one operation, or one array of operations, at a time.

    Parameters
    ----------
    collective, algorithm : str
        What the schedule is for; the collective decides what `netsim.prove` checks.
    ranks, size_bytes, root : int
        As in `Schedule`.
    expected : int
        Number of operations that will be added, if known: with `limit` it refuses a schedule before it is built.
    limit : int or None
        The most operations accepted.
    align_bytes : int
        Block boundaries are multiples of this.
    phases : tuple of (int, str)
        First step and name of each phase of the algorithm, for listings.

    Examples
    --------
    >>> plan = ScheduleBuilder("broadcast", "by hand", ranks=3, size_bytes=100)
    >>> first = plan.send(0, 1, size=100)
    >>> second = plan.send(1, 2, size=100, after=[first])
    >>> plan.build()
    <Schedule broadcast by hand: 3 ranks, 100 bytes, 2 operations, 1 requirements, 2 lanes>
    """

    collective: str
    algorithm: str
    ranks: int
    size_bytes: int
    root: int = 0
    expected: int = 0
    limit: int | None = None
    align_bytes: int = 1
    phases: tuple[tuple[int, str], ...] = ()
    pieces: int = 1
    _blocks: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _rows: list[tuple[Any, ...]] = field(default_factory=list, repr=False)
    _requires: list[tuple[Any, Any, Any, Any]] = field(default_factory=list, repr=False)
    _row_requires: list[tuple[int, int, int, float]] = field(default_factory=list, repr=False)
    _lanes: dict[tuple[int, str], int] = field(default_factory=dict, repr=False)
    _groups: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False)
    _count: int = 0

    def __post_init__(self) -> None:
        check_collective(self.collective, self.ranks, self.size_bytes, self.root)
        if self.limit is not None and self.expected > self.limit:
            raise TooManyMessagesError(
                f"{self.collective} by {self.algorithm} over {self.ranks} ranks needs {self.expected} messages, "
                f"more than the limit of {self.limit}; raise it with --max-messages, or use larger chunks"
            )

    def lane(self, rank: int, role: str = "send") -> int:
        """Return the number of a rank's lane with this role, made when first asked for."""
        return self._lanes.setdefault((rank, role), len(self._lanes))

    def lanes(self, ranks: Iterable[int], role: str = "send") -> npt.NDArray[np.int32]:
        """Return the lane numbers of several ranks for one role, shape ``(len(ranks),)``."""
        return np.array([self.lane(rank, role) for rank in ranks], np.int32)

    def group(self, ranks: Sequence[int]) -> int:
        """Return the number of a group of ranks that one switch must join."""
        return self._groups.setdefault(tuple(ranks), len(self._groups))

    def send(
        self,
        src: int,
        dst: int,
        *,
        size: int,
        offset: int = 0,
        after: Iterable[int | tuple[int, int] | tuple[int, int, float]] = (),
        reduce: bool = False,
        from_input: bool = False,
        lane: int | None = None,
        **columns: Any,
    ) -> int:
        """Add one transfer and return its id.

        Parameters
        ----------
        src, dst : int
            Ranks.
        size, offset : int, bytes
            Which part of the logical space moves.
        after : iterable of int, (int, milestone) or (int, milestone, lag)
            Operations that must be delivered first, or another milestone of theirs, with a lag in seconds.
        reduce : bool
            Add at the destination instead of replacing.
        from_input : bool
            Send the source's own input, not what it has accumulated.
        lane : int
            The lane that starts it; by default the source's "send" lane.
        **columns
            Any other column of `Schedule` (kind, chunk, step, wire, posted, duration, group, resource, units).
        """
        op = self._count
        if lane is None:
            lane = self.lane(src if src >= 0 else dst)
        columns.setdefault("wire", size)
        given = {"src": src, "dst": dst, "offset": offset, "size": size, "lane": lane, "reduce": reduce}
        given |= {"from_input": from_input} | columns
        self._rows.append(tuple(given.get(name, default) for name, _, default in COLUMNS))
        self._count += 1
        for need in after:
            if isinstance(need, tuple):
                self._row_requires.append((op, need[0], need[1], need[2] if len(need) > 2 else 0.0))
            else:
                self._row_requires.append((op, int(need), END, 0.0))
        return op

    def compute(
        self, rank: int, seconds: float, *, after: Iterable[Any] = (), lane: int | None = None, **columns: Any
    ) -> int:
        """Add an operation that holds a lane of a rank for some time without using a link, and return its id."""
        lane = self.lane(rank, "compute") if lane is None else lane
        return self.send(-1, -1, size=0, kind=COMPUTE, duration=seconds, after=after, lane=lane, **columns)

    def add(self, count: int, *, after: Iterable[npt.ArrayLike] = (), milestone: int = END, **columns: Any) -> Ids:
        """Add many operations at once and return their ids, shape ``(count,)``.

        Parameters
        ----------
        count : int
            How many.
        after : iterable of array_like of int
            Each array has one required operation for each new one (broadcast to shape ``(count,)``), -1 for none.
        milestone : int
            What all these requirements wait for.
        **columns
            Columns of `Schedule`, each a scalar or an array of shape ``(count,)``; `lane` is required, `wire` is the
            size unless given.
        """
        self._flush()
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        if "wire" not in columns:
            columns["wire"] = columns["size"]
        block = {}
        for name, dtype, default in COLUMNS:
            value = columns.pop(name, default)
            if value is None:
                raise TypeError(f"ScheduleBuilder.add needs the column {name!r}")
            block[name] = np.broadcast_to(np.asarray(value, dtype), (count,))
        if columns:
            raise TypeError(f"ScheduleBuilder.add got unknown columns {sorted(columns)}")
        self._blocks.append(block)
        self._count += count
        for needed in after:
            self.require(ids, needed, milestone)
        return ids

    def require(self, ops: npt.ArrayLike, needed: npt.ArrayLike, milestone: int = END, lag_s: float = 0.0) -> None:
        """Make operations wait for a milestone of others (two arrays of equal or broadcastable shape; -1 for none)."""
        consumers, producers = np.broadcast_arrays(np.asarray(ops, np.int64), np.asarray(needed, np.int64))
        keep = producers >= 0
        consumers, producers = consumers[keep], producers[keep]
        shape = consumers.shape
        self._requires.append((consumers, producers, np.full(shape, milestone, np.uint8), np.full(shape, lag_s)))

    def build(self) -> Schedule:
        """Return the finished schedule.

        Raises
        ------
        ScheduleError
            If a rank, a size, a lane or a requirement does not exist, or an operation requires itself.
        """
        self._flush()
        columns = {
            name: np.concatenate([block[name] for block in self._blocks]) if self._blocks else np.empty(0, dtype)
            for name, dtype, _ in COLUMNS
        }
        parts = list(zip(*self._requires, strict=True)) if self._requires else []
        dtypes = (np.int64, np.int64, np.uint8, np.float64)
        ops, needed, milestones, lags = (
            np.concatenate(parts[index]) if parts else np.empty(0, dtype) for index, dtype in enumerate(dtypes)
        )
        order = np.lexsort((milestones, needed, ops))
        ops = ops[order]
        start = np.searchsorted(ops, np.arange(self._count + 1))
        schedule = Schedule(
            collective=self.collective,
            algorithm=self.algorithm,
            ranks=self.ranks,
            size_bytes=self.size_bytes,
            root=self.root,
            requires_start=start.astype(np.int64),
            requires_op=needed[order],
            requires_milestone=milestones[order],
            requires_lag=lags[order],
            lane_names=tuple(self._lanes),
            groups=tuple(self._groups),
            align_bytes=self.align_bytes,
            pieces=self.pieces,
            phases=self.phases,
            **columns,
        )
        _check(schedule, ops)
        return schedule

    def _flush(self) -> None:
        if self._rows:
            values = zip(*self._rows, strict=True)
            self._blocks.append(
                {name: np.array(column, dtype) for (name, dtype, _), column in zip(COLUMNS, values, strict=True)}
            )
            self._rows.clear()
        if self._row_requires:
            ops, needed, milestones, lags = zip(*self._row_requires, strict=True)
            who = np.array(ops, np.int64), np.array(needed, np.int64), np.array(milestones, np.uint8)
            self._requires.append((*who, np.array(lags, np.float64)))
            self._row_requires.clear()


def _check(schedule: Schedule, ops: Ids) -> None:
    """Raise `ScheduleError` for the first thing in a schedule that no engine could run."""
    count = len(schedule)
    kind = schedule.kind
    in_switch = np.isin(kind, (TRUNK, BRANCH, LEG, OUTPUT))
    end = np.where(schedule.src >= 0, schedule.src, schedule.dst)
    ranks = f"0 to {schedule.ranks - 1}"
    faults: list[tuple[npt.NDArray[np.bool_], str]] = [
        (
            kind >= len(KIND_NAMES),
            f"is of kind {int(kind.max(initial=0))}, but kinds are 0 ({KIND_NAMES[0]}) to {len(KIND_NAMES) - 1}",
        ),
        (schedule.size < 0, "has a negative size"),
        (schedule.wire < schedule.size, "has fewer bytes on the wire than it carries"),
        (~(schedule.duration >= 0) | np.isinf(schedule.duration), "has a duration that is not zero or more seconds"),
        ((schedule.src < -1) | (schedule.src >= schedule.ranks), f"has a source outside {ranks}"),
        ((schedule.dst < -1) | (schedule.dst >= schedule.ranks), f"has a destination outside {ranks}"),
        (np.isin(kind, (TRANSFER, TRUNK, LEG)) & (schedule.src < 0), "has no source rank"),
        (np.isin(kind, (TRANSFER, BRANCH, OUTPUT)) & (schedule.dst < 0), "has no destination rank"),
        (np.isin(kind, (BRANCH, OUTPUT, COMPUTE)) & (schedule.src >= 0), "has a source rank although it has none to send"),
        (np.isin(kind, (TRUNK, LEG, COMPUTE)) & (schedule.dst >= 0), "has a destination rank although it ends elsewhere"),
        ((kind == TRANSFER) & (schedule.src == schedule.dst), "sends to its own rank"),
        (
            in_switch & ((schedule.group < 0) | (schedule.group >= len(schedule.groups))),
            "works in a switch but names no group",
        ),
        ((schedule.lane < 0) | (schedule.lane >= len(schedule.lane_names)), "has no lane"),
        ((schedule.offset < 0) | (schedule.offset + schedule.size > schedule.space_bytes), "reaches outside the data"),
    ]
    for wrong, words in faults:
        if wrong.any():
            raise ScheduleError(f"{schedule.describe(int(np.argmax(wrong)))} {words}")
    lane_rank = np.array([rank for rank, _ in schedule.lane_names] or [-1])[schedule.lane]
    # A transfer may be the receiver's: it reads from the source's memory.
    elsewhere = (kind != COMPUTE) & (lane_rank != schedule.src) & (lane_rank != schedule.dst)
    if elsewhere.any():
        op = int(np.argmax(elsewhere))
        raise ScheduleError(f"{schedule.describe(op)} is in a lane of rank {lane_rank[op]}; its own ranks are accepted")
    _check_groups(schedule, end, in_switch)
    needed = schedule.requires_op
    dangling = (needed < 0) | (needed >= count)
    if dangling.any():
        at = int(np.argmax(dangling))
        raise ScheduleError(f"{schedule.describe(int(ops[at]))} requires operation {needed[at]}, which does not exist")
    if (needed == ops).any():
        raise ScheduleError(f"{schedule.describe(int(ops[np.argmax(needed == ops)]))} requires itself")
    if len(ops) and not ((ops >= 0) & (ops < count)).all():
        raise ScheduleError("a requirement was added for an operation that does not exist")
    if (schedule.requires_milestone >= len(MILESTONE_NAMES)).any():
        raise ScheduleError(f"a requirement waits for a milestone that is none of {', '.join(MILESTONE_NAMES)}")
    if not ((schedule.requires_lag >= 0) & np.isfinite(schedule.requires_lag)).all():
        raise ScheduleError("a requirement has a lag that is not zero or more seconds")
    heads = schedule.requires_milestone == HEAD
    unequal = heads & (schedule.wire[needed] != schedule.wire[ops])
    if unequal.any():
        at = int(np.argmax(unequal))
        raise ScheduleError(
            f"{schedule.describe(int(ops[at]))} follows the head of {schedule.describe(int(needed[at]))} "
            "but does not carry as many bytes"
        )


def _check_groups(schedule: Schedule, end: npt.NDArray[np.int32], in_switch: npt.NDArray[np.bool_]) -> None:
    """Raise `ScheduleError` for an operation in a switch whose rank is not a member of its group."""
    for number, group in enumerate(schedule.groups):
        outside = in_switch & (schedule.group == number) & ~np.isin(end, group)
        if outside.any():
            op = int(np.argmax(outside))
            raise ScheduleError(f"{schedule.describe(op)} is for a rank outside its group {group}")
