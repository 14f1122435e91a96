"""In which order a schedule's operations may happen, and what is over before each of them starts.

Works along the requirements alone: neither step numbers nor lanes count, so what holds here holds for any machine. The
closures are Python integers used as bit sets, one bit an operation of the same weakly connected component.
"""

from collections import deque

import numpy as np

from netsim.errors import ProofError, ScheduleError, StuckError
from netsim.schedule.dag import BRANCH, HEAD, KIND_NAMES, LEFT, LEG, OUTPUT, TRUNK, Schedule

MAX_COMPONENT = 2**17
"""Most operations in one connected component: its two closures may need `MAX_COMPONENT`**2 / 4 bytes (4 GiB)."""


def topological_order(schedule: Schedule) -> list[int]:
    """Return all operations so that each stands after those that it requires; ids in order where they allow it.

    Raises
    ------
    StuckError
        If requirements form a cycle; names its operations.
    """
    count = len(schedule)
    needed = schedule.requires_op
    consumers = np.repeat(np.arange(count), np.diff(schedule.requires_start))
    if (needed < consumers).all():
        return list(range(count))
    by_producer = np.argsort(needed, kind="stable")
    waiting = np.diff(schedule.requires_start).tolist()
    start = np.searchsorted(needed[by_producer], np.arange(count + 1)).tolist()
    followers = consumers[by_producer].tolist()
    ready = deque(op for op in range(count) if not waiting[op])
    order = []
    while ready:
        op = ready.popleft()
        order.append(op)
        for follower in followers[start[op] : start[op + 1]]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    if len(order) < count:
        raise StuckError(_cycle_words(schedule, {op for op in range(count) if waiting[op]}))
    return order


def _cycle_words(schedule: Schedule, stuck: set[int]) -> str:
    """Follow requirements among the stuck operations until one comes twice: that walk ends in a cycle."""
    walked: dict[int, int] = {}
    op = min(stuck)
    while op not in walked:
        walked[op] = len(walked)
        op = next(need for need, _, _ in schedule.requirements(op) if need in stuck)
    cycle = [member for member, place in walked.items() if place >= walked[op]]
    words = [schedule.describe(member) for member in cycle[:4]]
    if len(cycle) > 4:
        words.append(f"{len(cycle) - 4} more")
    return f"the schedule can never finish: these {len(cycle)} operations wait for each other in a cycle: {', '.join(words)}"


class History:
    """What is delivered, and which source buffers have been read, before an operation starts.

    Operations must be entered in topological order. A closure is kept until the last operation that requires it has
    been entered, so memory follows the width of the schedule, not its length.

    Attributes
    ----------
    streams : dict of int to list of int
        What an operation that starts in a switch hands on as it comes: the trunk of a branch, the legs of an output.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._start = schedule.requires_start.tolist()
        self._needed = schedule.requires_op.tolist()
        self._milestone = schedule.requires_milestone.tolist()
        self._dependents = np.bincount(schedule.requires_op, minlength=len(schedule)).tolist()
        self._component, self._bit = _components(schedule)
        largest = int(np.bincount(self._component).max()) if len(schedule) else 0
        if largest > MAX_COMPONENT:
            raise ScheduleError(
                f"{schedule.collective} by {schedule.algorithm}: {largest} operations hang together by requirements, "
                f"too many to prove (at most {MAX_COMPONENT}); prove the same algorithm with fewer ranks or chunks"
            )
        self.streams = _streams(schedule)
        self._done: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._current, self._current_done, self._current_read = -1, 0, 0

    def enter(self, op: int) -> None:
        """Make `op` the current operation."""
        done = read = 0
        for at in range(self._start[op], self._start[op + 1]):
            need, milestone = self._needed[at], self._milestone[at]
            bit = 1 << self._bit[need]
            done |= self._done[need]
            read |= self._read[need]
            if milestone != LEFT:
                done |= bit
            if milestone != HEAD:
                read |= bit
                for member in self.streams.get(need, ()):
                    read |= 1 << self._bit[member]
            self._dependents[need] -= 1
            if not self._dependents[need]:
                del self._done[need], self._read[need]
        if self._dependents[op]:
            self._done[op] = done
            self._read[op] = read
        # What it hands on byte by byte is read there before it is written here, though it starts before that is over.
        for member in self.streams.get(op, ()):
            read |= 1 << self._bit[member]
        self._current, self._current_done, self._current_read = self._component[op], done, read

    def delivered(self, op: int) -> bool:
        """Say whether `op` is delivered before the current operation starts."""
        return self._component[op] == self._current and bool(self._current_done >> self._bit[op] & 1)

    def was_read(self, op: int) -> bool:
        """Say whether the source of `op` has been read before the current operation writes there."""
        return self._component[op] == self._current and bool(self._current_read >> self._bit[op] & 1)


def _components(schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return each operation's weakly connected component and its number inside that component."""
    count = len(schedule)
    parent = list(range(count))

    def find(op: int) -> int:
        while parent[op] != op:
            parent[op] = op = parent[parent[op]]
        return op

    consumers = np.repeat(np.arange(count), np.diff(schedule.requires_start)).tolist()
    for consumer, producer in zip(consumers, schedule.requires_op.tolist(), strict=True):
        one, other = find(consumer), find(producer)
        if one != other:
            parent[max(one, other)] = min(one, other)
    sizes: dict[int, int] = {}
    component, bits = [0] * count, [0] * count
    for op in range(count):
        root = find(op)
        component[op] = root
        bits[op] = sizes[root] = sizes.get(root, -1) + 1
    return component, bits


def _streams(schedule: Schedule) -> dict[int, list[int]]:
    """Find the trunk of every branch and the legs of every output, and check that they fit."""
    streams = {}
    kinds = schedule.kind
    for op in np.flatnonzero((kinds == BRANCH) | (kinds == OUTPUT)).tolist():
        wanted = TRUNK if kinds[op] == BRANCH else LEG
        found = [need for need, milestone, _ in schedule.requirements(op) if kinds[need] == wanted and milestone != LEFT]
        if not found or (wanted == TRUNK and len(found) > 1):
            raise ProofError(
                f"{schedule.describe(op)} requires {len(found)} {KIND_NAMES[wanted]} operations; "
                f"a branch hands on exactly one trunk, an output the sum of at least one leg"
            )
        for need in found:
            for column in (schedule.group, schedule.offset, schedule.size):
                if column[need] != column[op]:
                    raise ProofError(f"{schedule.describe(op)} and {schedule.describe(need)} differ in group or byte range")
        streams[op] = found
    return streams
