"""Loops over the pieces of a collective's data: written one by one until they do the same, then copied.

NCCL's kernels do the same for every piece. What a program remembers from loop to loop (the last operation of a lane, slices
that are under way, slots in use) tells whether a loop was the one before, shifted; then `netsim.schedule.nccl.rows` copies
it as often as there are further loops of the same sizes, and what is remembered is shifted as far.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from netsim.errors import TooManyMessagesError
from netsim.schedule.dag import ScheduleBuilder
from netsim.schedule.nccl.rows import Rows

_MOST_TRIES = 8
"""Loops after which a program no longer looks whether they do the same."""


def loops_of(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return how many loops channels need, and how many from the first on are full on all of them.

    Each part is (bytes of a channel, bytes of its loops).

    Examples
    --------
    >>> loops_of([(1000, 100), (950, 100)])
    (10, 9)
    """
    known = list(parts)
    return max(-(-size // loop) for size, loop in known), min(size // loop for size, loop in known)


class Loops:
    """Grow the rows of a schedule, in loops where there are any.

    Parameters
    ----------
    builder : ScheduleBuilder
        What all rows are given to in the end.
    limit : int or None
        The most operations accepted.
    """

    def __init__(self, builder: ScheduleBuilder, limit: int | None) -> None:
        self._builder = builder
        self._limit = limit
        self._rows = Rows()
        self._last: dict[int, int] = {}
        """For each lane its latest operation."""
        self._beside: dict[int, list[int]] = {}
        """For some operations those that their lane waits for as well before it goes on."""
        self._kept: list[deque[list[int]]] = []

    def _check_limit(self, more: int) -> None:
        if self._limit is not None and len(self._rows) + more > self._limit:
            builder = self._builder
            raise TooManyMessagesError(
                f"{builder.collective} by {builder.algorithm} over {builder.ranks} ranks needs more than the limit of "
                f"{self._limit} messages; raise it with --max-messages"
            )

    def keep(self) -> "deque[list[int]]":
        """Return a queue for what a builder has to remember from loop to loop, lists of operations."""
        kept: deque[list[int]] = deque()
        self._kept.append(kept)
        return kept

    def in_loops(self, count: int, alike: int, loop: Callable[[int], None]) -> None:
        """Run loops; where those that are alike have settled into doing the same, the rest of them is copied.

        Parameters
        ----------
        count : int
            How many there are.
        alike : int
            How many of them, from the first on, deal with pieces of the same sizes.
        loop : callable
            Given the number of a loop; writes it.
        """
        number, tries = 0, _MOST_TRIES
        before: list[int] = []
        period = 0
        while number < count:
            start = len(self._rows)
            loop(number)
            number += 1
            if not tries or number + 1 >= alike:
                continue
            now, last, period = self._remembered(), period, len(self._rows) - start
            moved = [new - old for new, old in zip(now, before, strict=False)]
            settled = period == last and len(now) == len(before) and set(moved) <= {0, period}
            before = now
            if settled:
                self._check_limit(period * (alike - number))
                tries -= 1
                if self._rows.repeat(period, alike - number):
                    self._remember([op + (alike - number) * step for op, step in zip(now, moved, strict=True)])
                    number, tries = alike, 0

    def _queues(self) -> "Iterator[deque[int]]":
        """Yield further queues of operations that are remembered from loop to loop, in an order that does not change."""
        yield from ()

    def _remembered(self) -> list[int]:
        """Return all operations that are remembered for what comes, in an order that does not change."""
        ops = list(self._last.values())
        for op, others in self._beside.items():
            ops += [op, *others]
        for queue in self._queues():
            ops += queue
        for kept in self._kept:
            for several in kept:
                ops += several
        return ops

    def _remember(self, ops: list[int]) -> None:
        """Put other operations in the places of those that `_remembered` returns."""
        rest = iter(ops)
        for lane in self._last:
            self._last[lane] = next(rest)
        self._beside = {next(rest): [next(rest) for _ in others] for others in self._beside.values()}
        for queue in self._queues():
            count = len(queue)
            queue.extend([next(rest) for _ in range(count)])
            for _ in range(count):
                queue.popleft()
        for kept in self._kept:
            for several in kept:
                several[:] = [next(rest) for _ in several]
