"""Pipelined chains (textbook): rank after rank, server after server, chunks one behind the other.

Broadcast runs down the chain from the root, reduce up to it, all-reduce up and down again at the same time.
"""

from netsim.schedule import pipeline
from netsim.schedule.dag import Schedule
from netsim.schedule.pieces import Groups, server_order


def all_reduce(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build an all-reduce up a chain to its first rank and down again.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    chunk_bytes, chunks : int or None
        Size or number of the chunks; by default at most 64, none below 4 KiB.
    groups : sequence of sequence of int
        The ranks of each server, which follow each other in the chain.
    align_bytes : int
        Boundaries are multiples of this.
    limit : int or None
        The most operations accepted.
    """
    return _chain("all_reduce", ranks, size_bytes, 0, chunk_bytes, chunks, groups, align_bytes, limit)


def broadcast(
    ranks: int,
    size_bytes: int,
    *,
    root: int = 0,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a broadcast down a chain that starts at the root; parameters as in `all_reduce`."""
    return _chain("broadcast", ranks, size_bytes, root, chunk_bytes, chunks, groups, align_bytes, limit)


def reduce(
    ranks: int,
    size_bytes: int,
    *,
    root: int = 0,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a reduce up a chain that ends at the root; parameters as in `all_reduce`."""
    return _chain("reduce", ranks, size_bytes, root, chunk_bytes, chunks, groups, align_bytes, limit)


def _chain(
    collective: str,
    ranks: int,
    size_bytes: int,
    root: int,
    chunk_bytes: int | None,
    chunks: int | None,
    groups: Groups | None,
    align_bytes: int,
    limit: int | None,
) -> Schedule:
    order = server_order(ranks, groups)
    at = order.index(root) if root in order else 0
    flows = [pipeline.Flow(pipeline.chain_parents(order[at:] + order[:at]), 0, size_bytes, "")]
    return pipeline.build(collective, "chain", ranks, size_bytes, flows, root, chunk_bytes, chunks, align_bytes, limit)
