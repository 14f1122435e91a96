"""Name -> builder, for the command line, scenario files and `netsim.time`: which algorithm serves which collective.

A new algorithm is one builder and one line of the table here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.schedule import alltoall, chain, direct, halving, nvls, ring, tree
from netsim.schedule.collective import COLLECTIVES, check_collective
from netsim.schedule.collective import space_bytes as length_of_space
from netsim.schedule.dag import Schedule
from netsim.schedule.pieces import Groups, check_pieces, checked_groups


@dataclass(frozen=True)
class _Entry:
    """A builder and which options it understands beside the alignment and the limit."""

    build: Callable[..., Schedule]
    options: frozenset[str] = frozenset()
    power_of_two: bool = False


_CHUNKS = frozenset({"chunks"})
_SERVERS = _CHUNKS | {"groups"}
_CHANNELS = _SERVERS | {"channels"}
_ROOT = frozenset({"root"})

_TABLE: dict[str, dict[str, _Entry]] = {
    "all_reduce": {
        "ring": _Entry(ring.all_reduce, _CHANNELS),
        "tree": _Entry(tree.all_reduce, _SERVERS),
        "double_binary_tree": _Entry(tree.double_all_reduce, _SERVERS),
        "chain": _Entry(chain.all_reduce, _SERVERS),
        "halving_doubling": _Entry(halving.all_reduce),
        "recursive_doubling": _Entry(halving.doubling_all_reduce),
        "one_shot": _Entry(direct.one_shot_all_reduce),
        "two_shot": _Entry(direct.two_shot_all_reduce),
        "flat": _Entry(direct.flat_all_reduce, _ROOT),
        "nvls": _Entry(nvls.all_reduce, _CHUNKS),
    },
    "all_gather": {
        "ring": _Entry(ring.all_gather, _CHANNELS),
        "recursive_doubling": _Entry(halving.all_gather, power_of_two=True),
        "direct": _Entry(direct.all_gather),
        "nvls": _Entry(nvls.all_gather, _CHUNKS),
    },
    "reduce_scatter": {
        "ring": _Entry(ring.reduce_scatter, _CHANNELS),
        "halving_doubling": _Entry(halving.reduce_scatter, power_of_two=True),
        "direct": _Entry(direct.reduce_scatter),
        "nvls": _Entry(nvls.reduce_scatter, _CHUNKS),
    },
    "broadcast": {
        "ring": _Entry(ring.broadcast, _CHANNELS | _ROOT),
        "tree": _Entry(tree.broadcast, _SERVERS | _ROOT),
        "chain": _Entry(chain.broadcast, _SERVERS | _ROOT),
        "flat": _Entry(direct.flat_broadcast, _ROOT),
        "nvls": _Entry(nvls.broadcast, _CHUNKS | _ROOT),
    },
    "reduce": {
        "ring": _Entry(ring.reduce, _CHANNELS | _ROOT),
        "tree": _Entry(tree.reduce, _SERVERS | _ROOT),
        "chain": _Entry(chain.reduce, _SERVERS | _ROOT),
        "flat": _Entry(direct.flat_reduce, _ROOT),
        "nvls": _Entry(nvls.reduce, _CHUNKS | _ROOT),
    },
    "alltoall": {"pairwise": _Entry(alltoall.pairwise), "direct": _Entry(alltoall.direct)},
    "sendrecv": {"direct": _Entry(alltoall.sendrecv)},
    "gather": {"flat": _Entry(direct.gather, _ROOT), "direct": _Entry(partial(direct.gather, algorithm="direct"), _ROOT)},
    "scatter": {"flat": _Entry(direct.scatter, _ROOT), "direct": _Entry(partial(direct.scatter, algorithm="direct"), _ROOT)},
}

ALGORITHMS: dict[str, str] = {
    "ring": "each rank talks to the next one; p - 1 steps a phase, 2(p - 1)/p N a rank for an all-reduce",
    "tree": "a single binary tree, pipelined up and down; about 3 N/B, few steps",
    "double_binary_tree": "two binary trees with half the data each, a rank inner in one and leaf in the other; about 2 N/B",
    "chain": "rank after rank, pipelined; p - 1 steps deep",
    "halving_doubling": "exchanges between ranks that differ in one bit, the data halved at each step, then doubled",
    "recursive_doubling": "exchanges between ranks that differ in one bit, all data (all-gather: all so far) at each step",
    "one_shot": "everybody sends its whole input to everybody; one step, (p - 1) N a rank",
    "two_shot": "direct reduce-scatter, then direct all-gather; two steps, 2(p - 1)/p N a rank",
    "flat": "one root talks to all others; two steps for an all-reduce, (p - 1) N through the root's link",
    "nvls": "the switch adds and multicasts; N(1 + 1/p) a rank and direction for an all-reduce",
    "pairwise": "rounds in which each rank sends to one and receives from one, each waiting for the one before",
    "direct": "everything is posted at once, in rotated order, without relays",
}
"""What each algorithm does, in a line."""

LATER = ("nvls_tree", "collnet_direct", "collnet_chain", "pat", "bruck", "hierarchical")
"""Algorithms with a reserved name that have no builder."""


def algorithms_for(collective: str, ranks: int | None = None) -> tuple[str, ...]:
    """Return the algorithms that serve a collective; with `ranks`, those that serve that many.

    Examples
    --------
    >>> algorithms_for("alltoall")
    ('pairwise', 'direct')
    """
    if collective not in _TABLE:
        raise ScheduleError(f"unknown collective {collective!r}; accepted are {', '.join(COLLECTIVES)}")
    fits = ranks is None or ranks & (ranks - 1) == 0
    return tuple(name for name, entry in _TABLE[collective].items() if fits or not entry.power_of_two)


def options_for(collective: str, algorithm: str) -> frozenset[str]:
    """Return which of the options root, chunks, groups and channels change an algorithm's schedule."""
    return _entry(collective, algorithm).options


def build_schedule(
    collective: str,
    algorithm: str,
    ranks: int,
    size_bytes: int,
    *,
    root: int = 0,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    channels: int = 1,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build the schedule of a collective.

    Parameters
    ----------
    collective, algorithm : str
        Names as in `algorithms_for`.
    ranks : int
        How many ranks take part.
    size_bytes : int
        What nccl-tests' size column means, in bytes.
    root : int
        For broadcast, reduce, gather, scatter and the flat all-reduce; others ignore it.
    chunk_bytes, chunks : int or None
        Size, or number, of the pieces in which a pipelined algorithm sends its blocks.
    groups : sequence of sequence of int
        The ranks of each server (`netsim.fabric.hosts_of`); algorithms without a notion of servers ignore it.
    channels : int
        Independent rings.
    align_bytes : int
        Boundaries are multiples of this many bytes.
    limit : int or None
        The most operations accepted.

    Returns
    -------
    Schedule

    Raises
    ------
    ScheduleError
        If the algorithm does not serve the collective or that many ranks, or has no use for an option that was given.
    TooManyMessagesError
        If there would be more than `limit` operations.

    Examples
    --------
    >>> build_schedule("all_reduce", "ring", 4, 4_000_000)
    <Schedule all_reduce ring: 4 ranks, 4000000 bytes, 24 operations, 20 requirements, 4 lanes>
    """
    entry = _entry(collective, algorithm)
    check_collective(collective, ranks, size_bytes, root)
    check_pieces(chunk_bytes, chunks)
    checked_groups(ranks, groups)
    if align_bytes < 1:
        raise ScheduleError(f"an alignment of {align_bytes} bytes: it must be 1 or more")
    if channels < 1:
        raise ScheduleError(f"{channels} channels: the number of channels must be 1 or more")
    least = channels * ranks * (ranks - 1)
    if channels > 1 and limit is not None and least > limit:
        raise TooManyMessagesError(
            f"{collective} by {algorithm} over {ranks} ranks and {channels} channels needs at least {least} messages, "
            f"more than the limit of {limit}; raise it with --max-messages, or use fewer channels"
        )
    if entry.power_of_two and ranks & (ranks - 1):
        raise ScheduleError(
            f"{algorithm} serves {collective} only for powers of two, not for {ranks} ranks; "
            f"accepted are {', '.join(algorithms_for(collective, ranks))}"
        )
    if length_of_space(collective, ranks, size_bytes) >= 2**63:
        raise ScheduleError(f"{collective} of {size_bytes} bytes over {ranks} ranks is more than 2^63 bytes in all")
    given: dict[str, Any] = {"align_bytes": align_bytes, "limit": limit}
    if (chunk_bytes is not None or chunks is not None) and "chunks" not in entry.options:
        raise ScheduleError(f"{algorithm} {collective} sends its blocks whole; it takes no chunk size or number of chunks")
    if channels > 1 and "channels" not in entry.options:
        raise ScheduleError(f"{algorithm} {collective} has no channels; only ring does (got {channels})")
    if "chunks" in entry.options:
        given |= {"chunk_bytes": chunk_bytes, "chunks": chunks}
    for name, value in (("root", root), ("groups", groups), ("channels", channels)):
        if name in entry.options:
            given[name] = value
    return entry.build(ranks, size_bytes, **given)


def _entry(collective: str, algorithm: str) -> _Entry:
    """Look an algorithm up, or say which ones there are."""
    serving = algorithms_for(collective)
    if algorithm in serving:
        return _TABLE[collective][algorithm]
    accepted = f"accepted for {collective} are {', '.join(serving)}"
    if algorithm in LATER:
        raise ScheduleError(f"the algorithm {algorithm!r} is not yet available; {accepted}")
    if algorithm in ALGORITHMS:
        raise ScheduleError(f"the algorithm {algorithm!r} does not serve {collective}; {accepted}")
    raise ScheduleError(f"unknown algorithm {algorithm!r}; {accepted}")
