"""Halving and doubling (textbook): log2(p) exchanges between ranks whose numbers differ in one bit.

Halving-doubling all-reduce is a recursive halving reduce-scatter and a recursive doubling all-gather: little data, twice
the steps. Recursive doubling swaps everything at each step: few steps, log2(p) N bytes. For other rank counts than powers
of two, each extra rank first sends its data to a partner, which works on the blocks of both, and gets the result last. A
step starts when a rank's step before is over on its side: its partner's data is in and its own has left.
"""

from typing import Unpack

import numpy as np
import numpy.typing as npt

from netsim.schedule.dag import LEFT, Ids, Schedule
from netsim.schedule.options import Common
from netsim.schedule.pieces import Given

Numbers = npt.NDArray[np.int64]
Ranges = tuple[Numbers, Numbers, Numbers]
"""How many ranges each message has, and the offsets and sizes of all."""


def all_reduce(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build a halving-doubling all-reduce.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    **options
        See `netsim.schedule.options.Common`.

    Examples
    --------
    >>> all_reduce(8, 8000).bytes_sent().tolist()[:2]
    [14000, 14000]
    """
    core, bits = _power_of_two(ranks)
    names = ((0, "reduce-scatter"), (bits, "all-gather")) if core == ranks else ()
    plan = _Exchanges("all_reduce", "halving_doubling", ranks, size_bytes, 2 * bits, Given(**options), names)
    plan.fold_in()
    for bit in reversed(range(bits)):
        plan.halve(bit)
    for bit in range(bits):
        plan.double(bit)
    return plan.finish()


def reduce_scatter(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build a recursive halving reduce-scatter; parameters as in `all_reduce`."""
    _, bits = _power_of_two(ranks)
    plan = _Exchanges("reduce_scatter", "halving_doubling", ranks, size_bytes, bits, Given(**options))
    plan.fold_in()
    for bit in reversed(range(bits)):
        plan.halve(bit)
    return plan.finish()


def all_gather(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build a recursive doubling all-gather; parameters as in `all_reduce`."""
    _, bits = _power_of_two(ranks)
    plan = _Exchanges("all_gather", "recursive_doubling", ranks, size_bytes, bits, Given(**options))
    plan.fold_in()
    for bit in range(bits):
        plan.double(bit)
    return plan.finish()


def doubling_all_reduce(ranks: int, size_bytes: int, **options: Unpack[Common]) -> Schedule:
    """Build a recursive doubling all-reduce: at each step two ranks swap all they have summed so far.

    A rank adds what it received once its own copy has left; parameters as in `all_reduce`.
    """
    _, bits = _power_of_two(ranks)
    plan = _Exchanges("all_reduce", "recursive_doubling", ranks, size_bytes, bits, Given(**options))
    plan.fold_in()
    for bit in range(bits):
        plan.swap(bit)
    return plan.finish()


def _power_of_two(ranks: int) -> tuple[int, int]:
    """Return the largest power of two that is not above a rank count, and its logarithm."""
    bits = max(ranks, 1).bit_length() - 1
    return 1 << bits, bits


class _Exchanges:
    """Steps in which each of the first 2^k ranks exchanges with the one that differs in one bit."""

    def __init__(
        self,
        collective: str,
        algorithm: str,
        ranks: int,
        size_bytes: int,
        steps: int,
        given: Given,
        phases: tuple[tuple[int, str], ...] = (),
    ) -> None:
        self.core, _ = _power_of_two(ranks)
        self.extra = ranks - self.core
        expected = steps * self.core + 2 * self.extra
        self.builder = given.builder(collective, algorithm, ranks, size_bytes, expected=expected, phases=phases)
        self.size_bytes = size_bytes
        # What belongs to a rank at one end has a block for each rank, else there is one for each that exchanges.
        self.bounds = given.blocks(size_bytes, self.core if collective == "all_reduce" else ranks)
        self.lanes = self.builder.lanes(range(ranks))
        self.step = 0
        self.received = np.full(self.core, -1, np.int64)
        self.sent = np.full(self.core, -1, np.int64)

    def fold_in(self) -> None:
        """Send the data of the extra ranks to their partners."""
        if self.extra:
            partners = np.arange(self.extra)
            extra = partners + self.core
            data = self._own(extra) if self.builder.collective == "all_gather" else self._all_but_own(extra)
            adds = self.builder.collective != "all_gather"
            self.received[: self.extra] = self._add(extra, partners, data, adds, from_input=True)

    def halve(self, bit: int) -> None:
        """Keep the half of the own range that has the own bit, send the other half to be added."""
        rank = np.arange(self.core)
        partner = rank ^ (1 << bit)
        self._exchange(partner, partner >> bit << bit, 1 << bit, True)

    def double(self, bit: int) -> None:
        """Send the own range, so that it doubles."""
        rank = np.arange(self.core)
        self._exchange(rank ^ (1 << bit), rank >> bit << bit, 1 << bit, False)

    def swap(self, bit: int) -> None:
        """Send everything, to be added."""
        self._exchange(np.arange(self.core) ^ (1 << bit), np.zeros(self.core, np.int64), self.core, True)

    def finish(self) -> Schedule:
        """Send the result to the extra ranks, if there are any, and return the schedule."""
        if self.extra:
            partners = np.arange(self.extra)
            extra = partners + self.core
            # A block that is scattered lacks only what its own rank has kept.
            adds = self.builder.collective == "reduce_scatter"
            data = self._own(extra) if adds else self._all_but_own(extra)
            ids = self._add(partners, extra, data, adds)
            self.builder.require(ids, self.received[: self.extra])
            self.builder.require(ids, self.sent[: self.extra], LEFT)
        return self.builder.build()

    def _exchange(self, partner: Numbers, first: Numbers, blocks: int, adds: bool) -> None:
        ids = self._add(np.arange(self.core), partner, self._run(first, blocks), adds, chunk=first)
        self.builder.require(ids, self.received)
        self.builder.require(ids, self.sent, LEFT)
        self.received, self.sent = ids[partner], ids

    def _own(self, rank: Numbers) -> Ranges:
        return np.ones_like(rank), self.bounds[rank], self.bounds[rank + 1] - self.bounds[rank]

    def _all_but_own(self, rank: Numbers) -> Ranges:
        """Return all data for an all-reduce, else what stands before and after a rank's own block."""
        if self.builder.collective == "all_reduce":
            return np.ones_like(rank), np.zeros_like(rank), np.full_like(rank, self.size_bytes)
        start, stop = self.bounds[rank], self.bounds[rank + 1]
        offsets = np.stack([np.zeros_like(start), stop], 1)
        sizes = np.stack([start, self.size_bytes - stop], 1)
        return np.full_like(rank, 2), offsets.ravel(), sizes.ravel()

    def _run(self, first: Numbers, blocks: int) -> Ranges:
        """Return a run of blocks, and those that came with them from the extra ranks."""
        start, stop = self.bounds[first], self.bounds[first + blocks]
        if len(self.bounds) == self.core + 1:
            return np.ones_like(first), start, stop - start
        beside = self.bounds[np.minimum(np.stack([first, first + blocks], 1), self.extra) + self.core]
        counts = np.where(first < self.extra, 2, 1)
        kept = np.stack([counts > 0, counts > 1], 1)
        offsets = np.stack([start, beside[:, 0]], 1)
        sizes = np.stack([stop - start, beside[:, 1] - beside[:, 0]], 1)
        return counts, offsets[kept], sizes[kept]

    def _add(
        self,
        src: Numbers,
        dst: Numbers,
        ranges: Ranges,
        adds: bool,
        *,
        chunk: Numbers | int = 0,
        from_input: bool = False,
    ) -> Ids:
        ids = self.builder.add(
            len(src),
            src=src,
            dst=dst,
            ranges=ranges,
            reduce=adds,
            chunk=chunk,
            step=self.step,
            lane=self.lanes[src],
            from_input=from_input,
        )
        self.step += 1
        return ids
