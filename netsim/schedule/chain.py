"""Pipelined chains (textbook): rank after rank, server after server, chunks one behind the other.

Broadcast runs down the chain from the root, reduce up to it, all-reduce up and down again at the same time.
"""

from typing import Unpack

from netsim.schedule import pipeline
from netsim.schedule.dag import Schedule
from netsim.schedule.options import Pieces, ServerPieces
from netsim.schedule.pieces import GivenPieces, Groups, server_order


def all_reduce(ranks: int, size_bytes: int, **options: Unpack[ServerPieces]) -> Schedule:
    """Build an all-reduce up a chain to its first rank and down again.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    **options
        See `netsim.schedule.options.ServerPieces`: the data is cut, by default into at most 64 pieces, none below 4 KiB.
    """
    return _chain("all_reduce", ranks, size_bytes, 0, **options)


def broadcast(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[ServerPieces]) -> Schedule:
    """Build a broadcast down a chain that starts at the root; parameters as in `all_reduce`."""
    return _chain("broadcast", ranks, size_bytes, root, **options)


def reduce(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[ServerPieces]) -> Schedule:
    """Build a reduce up a chain that ends at the root; parameters as in `all_reduce`."""
    return _chain("reduce", ranks, size_bytes, root, **options)


def _chain(
    collective: str, ranks: int, size_bytes: int, root: int, groups: Groups | None = None, **options: Unpack[Pieces]
) -> Schedule:
    given = GivenPieces(**options)
    order = server_order(ranks, groups)
    at = order.index(root) if root in order else 0
    flows = [pipeline.Flow(pipeline.chain_parents(order[at:] + order[:at]), 0, size_bytes, "")]
    return pipeline.build(collective, "chain", ranks, size_bytes, root, flows, given)
