"""In which order a schedule's operations may happen, and what is over before each of them starts.

Works along the requirements alone: neither step numbers nor lanes count, so what holds here holds for any machine. The
closures are Python integers used as bit sets, one bit an operation of the same weakly connected component.
"""

from collections import deque

import numpy as np

from netsim.errors import ProofError, ScheduleError, StuckError
from netsim.schedule.dag import BRANCH, END, HEAD, KIND_NAMES, LEFT, LEG, OUTPUT, TRUNK, Schedule

MAX_COMPONENT = 2**17
"""Most operations in one connected component: its closures may need `MAX_COMPONENT`**2 / 4 bytes (4 GiB) and more."""


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

    An operation that requires the head of another follows it: it may hand on the same bytes as they come, but the other
    is over only when the follower itself has left or is delivered (its last byte cannot go before it came).

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
        self._closures: dict[int, tuple[int, int, int]] = {}
        self._current, self._ended, self._read = -1, 0, 0
        self._followed: set[int] = set()

    def enter(self, op: int) -> None:
        """Make `op` the current operation."""
        ended = read = followed = 0
        self._followed = set()
        for at in range(self._start[op], self._start[op + 1]):
            need, milestone = self._needed[at], self._milestone[at]
            bit = 1 << self._bit[need]
            need_ended, need_read, need_followed = self._closures[need]
            ended |= need_ended
            read |= need_read
            if milestone == HEAD:
                followed |= need_followed | bit
                if self._same_bytes(op, need):
                    self._followed.add(need)
            else:
                # Its own last byte has left, so all that it followed came to its end before.
                ended |= need_followed
                read |= need_followed | bit
                if milestone == END:
                    ended |= bit
            self._dependents[need] -= 1
            if not self._dependents[need]:
                del self._closures[need]
        if self._dependents[op]:
            self._closures[op] = (ended, read, followed)
        # What it hands on byte by byte is read there before it is written here, though it starts before that is over.
        for member in self.streams.get(op, ()):
            read |= 1 << self._bit[member]
        self._current, self._ended, self._read = self._component[op], ended, read

    def delivered(self, op: int) -> bool:
        """Say whether `op` is delivered before the current operation starts."""
        return self._component[op] == self._current and bool(self._ended >> self._bit[op] & 1)

    def sees(self, op: int) -> bool:
        """Say whether the current operation reads what `op` wrote: delivered, or followed byte by byte."""
        return op in self._followed or self.delivered(op)

    def was_read(self, op: int) -> bool:
        """Say whether the source of `op` has been read before the current operation writes there."""
        return self._component[op] == self._current and bool(self._read >> self._bit[op] & 1)

    def _same_bytes(self, op: int, other: int) -> bool:
        one, another = ([part for part in self._schedule.ranges(each) if part[1]] for each in (op, other))
        return one == another


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
            if schedule.group[need] != schedule.group[op] or schedule.ranges(need) != schedule.ranges(op):
                raise ProofError(f"{schedule.describe(op)} and {schedule.describe(need)} differ in group or byte range")
        streams[op] = found
    return streams
