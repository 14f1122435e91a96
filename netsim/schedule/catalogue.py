"""Name -> builder, for the command line, scenario files and `netsim.time`: which algorithm serves which collective.

A new algorithm is one builder and one line of the table here.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from netsim.errors import ScheduleError, TooManyMessagesError
from netsim.schedule import alltoall, bruck, chain, direct, halving, hierarchical, nvls, pat, ring, tree
from netsim.schedule.collective import COLLECTIVES, check_collective, is_whole, read_size
from netsim.schedule.collective import space_bytes as length_of_space
from netsim.schedule.dag import Schedule
from netsim.schedule.own import build_own, is_file
from netsim.schedule.pieces import Groups, check_pieces, checked_groups


@dataclass(frozen=True)
class _Entry:
    """A builder and which options it understands beside the alignment and the limit."""

    build: Callable[..., Schedule]
    options: frozenset[str] = frozenset()


_CHUNKS = frozenset({"chunks"})
_GROUPS = frozenset({"groups"})
_DIMS = frozenset({"dims"})
_SERVERS = _CHUNKS | _GROUPS
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
        "hierarchical": _Entry(hierarchical.all_reduce, _SERVERS | _DIMS),
    },
    "all_gather": {
        "ring": _Entry(ring.all_gather, _CHANNELS),
        "recursive_doubling": _Entry(halving.all_gather),
        "direct": _Entry(direct.all_gather),
        "nvls": _Entry(nvls.all_gather, _CHUNKS),
        "pat": _Entry(pat.all_gather, _CHUNKS),
        "bruck": _Entry(bruck.all_gather),
    },
    "reduce_scatter": {
        "ring": _Entry(ring.reduce_scatter, _CHANNELS),
        "halving_doubling": _Entry(halving.reduce_scatter),
        "direct": _Entry(direct.reduce_scatter),
        "nvls": _Entry(nvls.reduce_scatter, _CHUNKS),
        "pat": _Entry(pat.reduce_scatter, _CHUNKS),
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
    "alltoall": {
        "pairwise": _Entry(alltoall.pairwise, frozenset({"groups"})),
        "direct": _Entry(alltoall.direct, frozenset({"groups"})),
        "bruck": _Entry(bruck.all_to_all),
        "hierarchical": _Entry(hierarchical.all_to_all, _GROUPS | _DIMS),
    },
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
    "pat": "parallel aggregated trees: log2(p) rounds where small blocks share messages, (p - 1)/p N a rank; far first",
    "bruck": "log2(p) steps for any p: an all-gather sends all so far, an all-to-all about log2(p)/2 N a rank",
    "hierarchical": "one dimension after the other (hierarchical:2x8, or server, then network); all-to-all along rails",
}
"""What each algorithm does, in a line."""

NCCL_ONLY = ("nvls_tree", "collnet_direct", "collnet_chain")
"""Algorithms that NCCL alone defines; the textbook has no schedule of theirs (`netsim.nccl.schedules` builds them)."""


def algorithms_for(collective: str) -> tuple[str, ...]:
    """Return the algorithms that serve a collective.

    Examples
    --------
    >>> algorithms_for("alltoall")
    ('pairwise', 'direct', 'bruck', 'hierarchical')
    """
    if collective not in COLLECTIVES:
        raise ScheduleError(f"unknown collective {collective!r}; accepted are {', '.join(COLLECTIVES)}")
    return tuple(_TABLE[collective])


def options_for(collective: str, algorithm: str) -> frozenset[str]:
    """Return which of the options root, chunks, groups, channels and dims change an algorithm's schedule."""
    return _entry(collective, algorithm).options


def build_schedule(
    collective: str,
    algorithm: str | os.PathLike[str],
    ranks: int,
    size_bytes: int | str,
    *,
    root: int = 0,
    chunk_bytes: int | str | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    dims: Sequence[int] | None = None,
    channels: int = 1,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build the schedule of a collective.

    Parameters
    ----------
    collective, algorithm : str
        Names as in `algorithms_for`; ``hierarchical:2x8`` gives dimensions too. The path of a Python file with a
        function ``schedule(ranks, size_bytes)`` runs that file (see `netsim.schedule.own`).
    ranks : int
        How many ranks take part.
    size_bytes : int or str, bytes
        What nccl-tests' size column means: a whole number, or text with a unit such as ``"256 MiB"``.
    root : int
        For broadcast, reduce, gather, scatter and the flat all-reduce; others ignore it.
    chunk_bytes, chunks : int or None
        Size (or text with a unit), or number, of the pieces in which a pipelined algorithm sends its blocks.
    groups : sequence of sequence of int
        The ranks of each server (`netsim.fabric.hosts_of`); algorithms without a notion of servers ignore it.
    dims : sequence of int
        Sizes of the dimensions of a hierarchical algorithm, the first reduced first; by default those of the servers.
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
        If the algorithm does not serve the collective or that many ranks, or has no use for an option that was given, or
        a number is no whole one or out of range.
    UnitError
        If a size is text that cannot be read.
    TooManyMessagesError
        If there would be more than `limit` operations.

    Examples
    --------
    >>> build_schedule("all_reduce", "ring", 4, 4_000_000)
    <Schedule all_reduce ring: 4 ranks, 4000000 bytes, 24 operations, 20 requirements, 4 lanes>
    """
    algorithm = os.fspath(algorithm) if isinstance(algorithm, os.PathLike) else algorithm
    entry = _entry(collective, algorithm)
    size_bytes = read_size(size_bytes)
    check_collective(collective, ranks, size_bytes, root)
    ranks, root = int(ranks), int(root)
    dims = _dims(collective, algorithm, entry, dims)
    chunk_bytes = read_size(chunk_bytes, "chunk_bytes") if isinstance(chunk_bytes, str) else chunk_bytes
    check_pieces(chunk_bytes, chunks)
    checked_groups(ranks, groups)
    _check_numbers(collective, algorithm, ranks, size_bytes, channels, align_bytes, limit)
    _check_use(collective, algorithm, entry, chunk_bytes is not None or chunks is not None, channels)
    offered: dict[str, dict[str, Any]] = {
        "root": {"root": root},
        "chunks": {"chunk_bytes": chunk_bytes, "chunks": chunks},
        "groups": {"groups": groups},
        "channels": {"channels": channels},
        "dims": {"dims": dims},
    }
    given = {name: value for option in entry.options for name, value in offered[option].items()}
    return entry.build(ranks, size_bytes, align_bytes=align_bytes, limit=limit, **given)


def _dims(collective: str, algorithm: str, entry: _Entry, dims: Sequence[int] | None) -> Sequence[int] | None:
    """Return the dimensions, which stand behind the algorithm's name or in the option."""
    if dims is not None and not _are_numbers(dims):
        raise ScheduleError(f"dims is {dims!r}; give whole numbers such as (2, 8), or write hierarchical:2x8")
    if "dims" not in entry.options:
        if dims is not None:
            raise ScheduleError(f"{algorithm} {collective} has no dimensions; only hierarchical does (got {tuple(dims)})")
        return None
    _, colon, text = algorithm.partition(":")
    if not colon:
        return dims
    if dims is not None:
        raise ScheduleError(f"give dimensions once: in {algorithm!r} or as {tuple(dims)}")
    return hierarchical.read_dims(text)


def _are_numbers(values: object) -> bool:
    return isinstance(values, tuple | list) and all(is_whole(value, 0) for value in values)


def _check_numbers(
    collective: str, algorithm: str, ranks: int, size_bytes: int, channels: int, align_bytes: int, limit: int | None
) -> None:
    """Refuse numbers with which no builder should start."""
    if not is_whole(align_bytes, 1):
        raise ScheduleError(f"an alignment of {align_bytes!r} bytes: it must be a whole number, 1 or more")
    if not is_whole(channels, 1):
        raise ScheduleError(f"{channels!r} channels: the number of channels must be a whole number, 1 or more")
    if limit is not None and not is_whole(limit, 0):
        raise ScheduleError(f"a limit of {limit!r} operations: it must be a whole number, zero or more, or None")
    least = channels * ranks * (ranks - 1)
    if channels > 1 and limit is not None and least > limit:
        raise TooManyMessagesError(
            f"{collective} by {algorithm} over {ranks} ranks and {channels} channels needs at least {least} messages, "
            f"more than the limit of {limit}; raise it with --max-messages, or use fewer channels"
        )
    if length_of_space(collective, ranks, size_bytes) >= 2**63:
        raise ScheduleError(f"{collective} of {size_bytes} bytes over {ranks} ranks is more than 2^63 bytes in all")


def _check_use(collective: str, algorithm: str, entry: _Entry, cuts: bool, channels: int) -> None:
    """Refuse options that would change nothing although they were given."""
    if cuts and "chunks" not in entry.options:
        words = "cuts its data itself" if is_file(algorithm) else "sends its blocks whole"
        raise ScheduleError(f"{algorithm} {collective} {words}; it takes no chunk size or number of chunks")
    if channels > 1 and "channels" not in entry.options:
        raise ScheduleError(f"{algorithm} {collective} has no channels; only ring does (got {channels})")


def _entry(collective: str, algorithm: str) -> _Entry:
    """Look an algorithm up, or say which ones there are."""
    serving = algorithms_for(collective)
    if not isinstance(algorithm, str):
        raise ScheduleError(
            f"algorithm is {algorithm!r}; accepted for {collective} are {', '.join(serving)}, or a file's path"
        )
    if is_file(algorithm):
        return _Entry(partial(build_own, algorithm, collective), _ROOT)
    name, colon, _ = algorithm.partition(":")
    if name in serving and (not colon or "dims" in _TABLE[collective][name].options):
        return _TABLE[collective][name]
    accepted = f"accepted for {collective} are {', '.join(serving)}"
    if algorithm in NCCL_ONLY:
        words = "is NCCL's alone, and the textbook (protocol ideal) has none; ask for it with protocol auto or simple"
        raise ScheduleError(f"the algorithm {algorithm!r} {words}; {accepted}")
    if algorithm in ALGORITHMS:
        raise ScheduleError(f"the algorithm {algorithm!r} does not serve {collective}; {accepted}")
    raise ScheduleError(f"unknown algorithm {algorithm!r}; {accepted}")
