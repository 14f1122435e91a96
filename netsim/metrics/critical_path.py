"""The longest chain of requirements with every link idle: a time that no run of the schedule can beat.

Only requirements count, not the order within lanes and not contention, so the value is a lower bound for every engine,
every routing policy that gives the same routes, and every quantum.
"""

import math

import numpy as np
import numpy.typing as npt

from netsim.clock import Floats, array_on_grid
from netsim.record import Record
from netsim.schedule.dag import HEAD, LEFT, Schedule

Ints = npt.NDArray[np.int64]


def critical_path_s(schedule: Schedule, record: Record) -> float:
    """Return the idle-link length of the longest chain of requirements, in seconds.

    Notes
    -----
    Works through the DAG one level at a time, each level as arrays: cost grows with the number of requirements, and
    with the number of levels only by a small constant. Where a compiled run has loaded numba, and every operation requires
    earlier ones only, one pass of a kernel does the same.
    """
    count = len(schedule)
    if not count:
        return 0.0
    if record.engine == "compiled":
        length = _in_one_pass(schedule, record)
        if not math.isnan(length):
            return length
    return _by_levels(schedule, record)


def _in_one_pass(schedule: Schedule, record: Record) -> float:
    """Return the length by the kernel; nan if the numbers of operations are no order of the DAG."""
    from netsim.metrics.critical_path_numba import longest

    columns = (schedule.requires_start, schedule.requires_op, schedule.requires_milestone)
    costs = (record.op_class, record.idle_s, record.hold_s, record.work_s, schedule.early)
    return float(longest(*map(np.ascontiguousarray, (*columns, array_on_grid(schedule.requires_lag), *costs))))


def _by_levels(schedule: Schedule, record: Record) -> float:
    """Return the length by NumPy alone."""
    count = len(schedule)
    to_end, to_left, to_head, onward = record.idle_s[record.op_class].T
    consumers = np.repeat(np.arange(count), np.diff(schedule.requires_start))
    by_producer = np.argsort(schedule.requires_op, kind="stable")
    first = np.searchsorted(schedule.requires_op[by_producer], np.arange(count + 1))
    waiting = np.diff(schedule.requires_start).astype(np.int64)
    lags = array_on_grid(schedule.requires_lag)
    ready = np.zeros(count)
    tail = np.zeros(count)
    end = np.zeros(count)
    level = np.flatnonzero(waiting == 0)
    while len(level):
        ask = _asks(schedule, record, level, ready[level])
        made = _made(schedule, record, level, ask)
        end[level] = np.maximum(np.maximum(ask + to_end[level], made + onward[level]), tail[level])
        edges = by_producer[_spans(first, level)]
        producer, consumer = schedule.requires_op[edges], consumers[edges]
        milestone = schedule.requires_milestone[edges]
        asked = _asks(schedule, record, producer, ready[producer])
        made = _made(schedule, record, producer, asked)
        left = np.maximum(np.maximum(asked + to_left[producer], made), tail[producer])
        at = np.where(milestone == LEFT, left, end[producer])
        at = np.where(milestone == HEAD, asked + to_head[producer], at) + lags[edges]
        np.maximum.at(ready, consumer, at)
        follows = milestone == HEAD
        np.maximum.at(tail, consumer[follows], end[producer[follows]])
        np.subtract.at(waiting, consumer, 1)
        level = np.unique(consumer[waiting[consumer] == 0])
    return float(end.max())


def _asks(schedule: Schedule, record: Record, ops: Ints, ready: Floats) -> Floats:
    """Return when operations ask at the earliest: after their hold, which runs while those wait that begin early."""
    hold = record.hold_s[ops]
    return np.where(schedule.early[ops], np.maximum(ready, hold), ready + hold)


def _made(schedule: Schedule, record: Record, ops: Ints, ask: Floats) -> Floats:
    """Return when lanes have made the bytes at the earliest: from the ask on, or from the start if that begins early."""
    return np.where(schedule.early[ops], record.hold_s[ops], ask) + record.work_s[ops]


def _spans(first: Ints, rows: Ints) -> Ints:
    """Concatenate the index ranges ``first[row] .. first[row + 1]`` of several rows."""
    lengths = first[rows + 1] - first[rows]
    ends = np.cumsum(lengths)
    within: Ints = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths - first[rows], lengths)
    return within
