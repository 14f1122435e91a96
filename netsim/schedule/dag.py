"""The builder that grows a schedule, a DAG of operations, and the names that all who read one need.

Ids are dense, in order of creation, and break every tie in time, so the order of ids is the builder's to choose. What a
schedule is stands in `netsim.schedule.columns`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.schedule.checks import check_schedule
from netsim.schedule.collective import check_collective, is_whole
from netsim.schedule.columns import (
    BRANCH,
    COLUMNS,
    COMPUTE,
    END,
    HEAD,
    KIND_NAMES,
    LEFT,
    LEG,
    MILESTONE_NAMES,
    OUTPUT,
    TRANSFER,
    TRUNK,
    Ids,
    Schedule,
    typed,
)

__all__ = [
    "BRANCH",
    "COLUMNS",
    "COMPUTE",
    "END",
    "HEAD",
    "KIND_NAMES",
    "LEFT",
    "LEG",
    "MILESTONE_NAMES",
    "OUTPUT",
    "TRANSFER",
    "TRUNK",
    "Ids",
    "Schedule",
    "ScheduleBuilder",
    "check_is_schedule",
]


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
    pieces, protocol, buffered
        As in `Schedule`.

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
    protocol: str = "ideal"
    buffered: bool = False
    _blocks: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _rows: list[tuple[Any, ...]] = field(default_factory=list, repr=False)
    _requires: list[tuple[Any, Any, Any, Any]] = field(default_factory=list, repr=False)
    _row_requires: list[tuple[int, int, int, float]] = field(default_factory=list, repr=False)
    _lanes: dict[tuple[int, str], int] = field(default_factory=dict, repr=False)
    _groups: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False)
    _ranges: list[tuple[Ids, Ids, Ids]] = field(default_factory=list, repr=False)
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
        size: int | None = None,
        offset: int = 0,
        ranges: Sequence[tuple[int, int]] | None = None,
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
        ranges : sequence of (offset, size)
            In place of size and offset: several parts, in one message.
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
        if ranges is not None:
            if size is not None or offset or not len(ranges):
                raise ScheduleError(f"operation {op} takes either a size and an offset, or one or more ranges")
            offset, size = ranges[0][0], sum(part for _, part in ranges)
            if len(ranges) > 1:
                offsets, sizes = np.array(ranges[1:], np.int64).T
                self._ranges.append((np.full(len(sizes), op, np.int64), offsets, sizes))
        elif size is None:
            raise ScheduleError(f"operation {op} from rank {src} to rank {dst} needs a size in bytes, or ranges")
        columns.setdefault("wire", size)
        unknown = columns.keys() - {name for name, _, _ in COLUMNS}
        if unknown:
            raise TypeError(f"operation {op} got unknown columns {sorted(unknown)}")
        given = {"src": src, "dst": dst, "offset": offset, "size": size, "lane": lane, "reduce": reduce}
        given |= {"from_input": from_input} | columns
        self._rows.append(tuple(given.get(name, default) for name, _, default in COLUMNS))
        self._count += 1
        for need in after:
            wanted = need[0] if isinstance(need, tuple) else need
            if not is_whole(wanted, np.iinfo(np.int64).min):
                raise ScheduleError(f"operation {op} requires {wanted!r}; give numbers of operations, as send returns them")
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

    def add(
        self,
        count: int,
        *,
        after: Iterable[npt.ArrayLike] = (),
        milestone: int = END,
        ranges: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike] | None = None,
        **columns: Any,
    ) -> Ids:
        """Add many operations at once and return their ids, shape ``(count,)``.

        Parameters
        ----------
        count : int
            How many.
        after : iterable of array_like of int
            Each array has one required operation for each new one (broadcast to shape ``(count,)``), -1 for none.
        milestone : int
            What all these requirements wait for.
        ranges : (counts, offsets, sizes), array_like of int
            In place of the columns offset and size: how many ranges each operation carries (one or more), and the
            offsets and sizes of all ranges, operation after operation.
        **columns
            Columns of `Schedule`, each a scalar or an array of shape ``(count,)``; `lane` is required, `wire` is the
            size unless given.
        """
        self._flush()
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        if ranges is not None:
            columns["offset"], columns["size"] = self._keep_ranges(ids, *(np.asarray(part, np.int64) for part in ranges))
        if "wire" not in columns:
            columns["wire"] = columns["size"]
        block = {}
        for name, dtype, default in COLUMNS:
            value = columns.pop(name, default)
            if value is None:
                raise TypeError(f"ScheduleBuilder.add needs the column {name!r}")
            block[name] = np.broadcast_to(typed(name, value, dtype), (count,))
        if columns:
            raise TypeError(f"ScheduleBuilder.add got unknown columns {sorted(columns)}")
        self._blocks.append(block)
        self._count += count
        for needed in after:
            self.require(ids, needed, milestone)
        return ids

    def require(
        self, ops: npt.ArrayLike, needed: npt.ArrayLike, milestone: npt.ArrayLike = END, lag_s: npt.ArrayLike = 0.0
    ) -> None:
        """Make operations wait for milestones of others (arrays of equal or broadcastable shape; -1 needs nothing)."""
        columns = np.broadcast_arrays(
            np.asarray(ops, np.int64),
            np.asarray(needed, np.int64),
            np.asarray(milestone, np.uint8),
            np.asarray(lag_s, np.float64),
        )
        keep = columns[1] >= 0
        self._requires.append((columns[0][keep], columns[1][keep], columns[2][keep], columns[3][keep]))

    def build(self) -> Schedule:
        """Return the finished schedule.

        Raises
        ------
        ScheduleError
            If a rank, a size, a lane or a requirement does not exist, or an operation requires itself.
        """
        self._flush()
        columns: dict[str, Any] = {name: self._column(name, dtype) for name, dtype, _ in COLUMNS}
        for column in columns.values():
            column.flags.writeable = False  # what is built does not change; digests are kept
        parts = list(zip(*self._requires, strict=True)) if self._requires else []
        dtypes = (np.int64, np.int64, np.uint8, np.float64)
        ops, needed, milestones, lags = (
            np.concatenate(parts[index]) if parts else np.empty(0, dtype) for index, dtype in enumerate(dtypes)
        )
        if not _in_order(ops, needed, milestones):
            order = np.lexsort((milestones, needed, ops))
            ops, needed, milestones, lags = ops[order], needed[order], milestones[order], lags[order]
        start = np.searchsorted(ops, np.arange(self._count + 1))
        schedule = Schedule(
            collective=self.collective,
            algorithm=self.algorithm,
            ranks=self.ranks,
            size_bytes=self.size_bytes,
            root=self.root,
            requires_start=start.astype(np.int64),
            requires_op=needed,
            requires_milestone=milestones,
            requires_lag=lags,
            lane_names=tuple(self._lanes),
            groups=tuple(self._groups),
            align_bytes=self.align_bytes,
            pieces=self.pieces,
            phases=self.phases,
            protocol=self.protocol,
            buffered=self.buffered,
            **self._range_table(),
            **columns,
        )
        check_schedule(schedule, ops)
        return schedule

    def _column(self, name: str, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
        """Join a column's blocks; one value in all of them stays one value, spread over the length without memory."""
        parts = [block[name] for block in self._blocks]
        if not parts:
            return np.empty(0, dtype)
        first = parts[0].flat[0] if parts[0].size else None
        if all(part.strides == (0,) and part.size and part.flat[0] == first for part in parts):
            return np.broadcast_to(np.asarray(first, dtype), (self._count,))
        return np.concatenate(parts)

    def _keep_ranges(self, ids: Ids, counts: Ids, offsets: Ids, sizes: Ids) -> tuple[Ids, Ids]:
        """Put all ranges but the first of each operation aside; return the first offsets and the summed sizes."""
        if len(counts) != len(ids) or int(counts.sum()) != len(offsets) or (counts < 1).any():
            raise ScheduleError(
                f"{len(offsets)} ranges do not give each of {len(ids)} operations as many as counted, 1 or more"
            )
        if not len(ids):
            return ids, ids
        first = np.cumsum(counts) - counts
        further = np.ones(len(offsets), np.bool_)
        further[first] = False
        if further.any():
            self._ranges.append((np.repeat(ids, counts)[further], offsets[further], sizes[further]))
        return offsets[first], np.add.reduceat(sizes, first)

    def _range_table(self) -> dict[str, Any]:
        """Return the columns of further ranges; none where every message carries one range."""
        if not self._ranges:
            return {}
        ops, offsets, sizes = (np.concatenate(parts) for parts in zip(*self._ranges, strict=True))
        order = np.argsort(ops, kind="stable")
        start = np.searchsorted(ops[order], np.arange(self._count + 1)).astype(np.int64)
        return {"ranges_start": start, "ranges_offset": offsets[order], "ranges_size": sizes[order]}

    def _flush(self) -> None:
        if self._rows:
            values = zip(*self._rows, strict=True)
            self._blocks.append(
                {name: typed(name, column, dtype) for (name, dtype, _), column in zip(COLUMNS, values, strict=True)}
            )
            self._rows.clear()
        if self._row_requires:
            ops, needed, milestones, lags = zip(*self._row_requires, strict=True)
            who = np.array(ops, np.int64), np.array(needed, np.int64), np.array(milestones, np.uint8)
            self._requires.append((*who, np.array(lags, np.float64)))
            self._row_requires.clear()


def _in_order(*keys: npt.NDArray[Any]) -> bool:
    """Say whether rows are sorted by their keys, the first one first."""
    undecided = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if (undecided & (key[1:] < key[:-1])).any():
            return False
        undecided &= key[1:] == key[:-1]
    return True


def check_is_schedule(schedule: object) -> None:
    """Raise `ScheduleError` for what is no schedule at all, such as None or a builder that was not ended."""
    if isinstance(schedule, ScheduleBuilder):
        raise ScheduleError("schedule is a ScheduleBuilder; pass what its build() returns")
    if not isinstance(schedule, Schedule):
        raise ScheduleError(f"schedule is {schedule!r}; pass a Schedule, for example that of netsim.build_schedule")
