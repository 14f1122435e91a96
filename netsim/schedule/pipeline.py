"""Pipelines along rooted trees: chunks travel up adding, down replacing, one behind the other.

The common part of trees, chains and rings with a root. Every (rank, flow, direction) has a lane of its own, so that what
travels up never waits behind what travels down. Operations are numbered lane by lane, all upward lanes before all
downward ones: at a tie in time a reduction goes first, because a whole result still depends on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.schedule.dag import Schedule
from netsim.schedule.pieces import GivenPieces

DIRECTIONS = {"all_reduce": ("up", "down"), "reduce": ("up",), "broadcast": ("down",)}
"""Which ways the data of a collective travels."""


@dataclass(frozen=True)
class Flow:
    """One rooted tree over all ranks and the bytes that it carries."""

    parents: tuple[int, ...]
    """Parent of each rank, -1 at the root."""
    start: int
    stop: int
    name: str
    """Prefix of its lanes' roles, may be empty."""
    children: tuple[tuple[int, ...], ...] = ()
    """Children of each rank in the order in which they are served; by default in rank order."""


@dataclass(frozen=True)
class _Move:
    """One transfer of a chunk in a flow."""

    src: int
    dst: int
    up: bool
    step: int
    """Steps after the first in which this chunk can move."""
    after: tuple[int, ...]
    """Moves of the same chunk that must be delivered first, as places in the flow's list."""


def chain_parents(order: Sequence[int]) -> tuple[int, ...]:
    """Return the parents that make a chain of the ranks, the root first."""
    parents = [-1] * len(order)
    for parent, child in pairwise(order):
        parents[child] = parent
    return tuple(parents)


def build(
    collective: str,
    algorithm: str,
    ranks: int,
    size_bytes: int,
    root: int,
    flows: Sequence[Flow],
    given: GivenPieces,
) -> Schedule:
    """Build an all-reduce (up and down), a reduce (up) or a broadcast (down) along trees.

    Parameters
    ----------
    collective : str
        One of `DIRECTIONS`.
    algorithm : str
        What the schedule is called.
    ranks, size_bytes, root : int
        As in `Schedule`.
    flows : sequence of Flow
        Trees that together carry all bytes.
    given : GivenPieces
        Each flow is cut; by default into at most 64 pieces, none below 4 KiB.
    """
    directions = DIRECTIONS[collective]
    starts, stops = [flow.start for flow in flows], [flow.stop for flow in flows]
    count = given.count(max(stop - start for start, stop in zip(starts, stops, strict=True)))
    per_chunk = len(flows) * len(directions) * (ranks - 1)
    builder = given.builder(collective, algorithm, ranks, size_bytes, root, expected=count * per_chunk, pieces=count)
    if per_chunk == 0:
        return builder.build()
    columns: dict[str, list[int]] = {name: [] for name in ("up", "flow", "src", "dst", "lane", "step")}
    pairs: list[tuple[int, int]] = []
    for number, flow in enumerate(flows):
        first = len(columns["src"])
        for move in _moves(flow, directions):
            op = len(columns["src"])
            role = f"{flow.name} {'up' if move.up else 'down'}".strip()
            row = (int(move.up), number, move.src, move.dst, builder.lane(move.src, role), move.step)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
            pairs.extend((op, first + need) for need in move.after)
    bounds = given.cut(starts, stops, count)
    one = {name: np.array(values, np.int64) for name, values in columns.items()}
    place = _places(one, count)
    chunk = np.arange(count)[:, None]
    start, stop = bounds[one["flow"], chunk], bounds[one["flow"], chunk + 1]
    table: dict[str, Any] = {name: one[name] for name in ("src", "dst", "lane")}
    table |= {"reduce": one["up"], "offset": start, "size": stop - start}
    table |= {"chunk": one["flow"] * count + chunk, "step": one["step"] + chunk}
    for name, values in table.items():
        placed = np.empty(place.size, np.int64)
        placed[place] = values
        table[name] = placed
    builder.add(place.size, **table)
    if pairs:
        consumers, producers = np.array(pairs).T
        builder.require(place[:, consumers], place[:, producers])
    return builder.build()


def _places(one: dict[str, npt.NDArray[np.int64]], count: int) -> npt.NDArray[np.int64]:
    """Return the ids of all moves, shape (chunks, moves): upward first, then by flow, source rank, chunk, child."""
    moves = len(one["src"])
    order = np.lexsort((np.arange(moves), one["src"], one["flow"], -one["up"]))
    lane = one["lane"][order]
    first = np.maximum.accumulate(np.where(np.diff(lane, prepend=-1) != 0, np.arange(moves), 0))
    length = np.bincount(lane)[lane]
    place = np.empty((count, moves), np.int64)
    place[:, order] = count * first + np.arange(count)[:, None] * length + np.arange(moves) - first
    return place


def _children(parents: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    children: list[list[int]] = [[] for _ in parents]
    for child, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(child)
    return tuple(map(tuple, children))


def _moves(flow: Flow, directions: tuple[str, ...]) -> list[_Move]:
    """List one chunk's transfers in an order in which they can happen."""
    children = flow.children or _children(flow.parents)
    queue = [flow.parents.index(-1)]
    depth = {queue[0]: 0}
    for rank in queue:
        for child in children[rank]:
            depth[child] = depth[rank] + 1
            queue.append(child)
    deepest = max(depth.values())
    moves: list[_Move] = []
    rising: dict[int, int] = {}
    if "up" in directions:
        for rank in reversed(queue[1:]):
            rising[rank] = len(moves)
            needs = tuple(rising[child] for child in children[rank])
            moves.append(_Move(rank, flow.parents[rank], True, deepest - depth[rank], needs))
    falling: dict[int, int] = {}
    if "down" in directions:
        base = deepest if rising else 0
        for rank in queue:
            needs = tuple(rising[child] for child in children[rank] if rising) if rank == queue[0] else (falling[rank],)
            for child in children[rank]:
                falling[child] = len(moves)
                moves.append(_Move(rank, child, False, base + depth[rank], needs))
    return moves
