"""Binary trees (textbook, pipelined): a single one, and the double binary tree.

In the double binary tree the inner ranks of one tree are leaves of the other. Both use NCCL's building rule (nccl.md 2.4)
over servers when there are several, each server a chain of its GPUs below the first one, else over ranks. Chunks travel
up (reduce) and down (broadcast) at the same time; children are served in the order of their ranks.
"""

from itertools import pairwise
from typing import Unpack

from netsim.schedule import pipeline
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule
from netsim.schedule.options import Pieces, ServerPieces
from netsim.schedule.pieces import GivenPieces, Groups, checked_groups


def parent_of(label: int, count: int) -> int:
    """Return the parent of a label in the first tree over `count` labels, -1 for the root, which is label 0.

    With b the lowest set bit of the label, the parent has b cleared and 2b set, or only b cleared if that is too large.

    Examples
    --------
    >>> [parent_of(label, 8) for label in range(8)]
    [-1, 2, 4, 2, 0, 6, 4, 6]
    """
    if label == 0:
        return -1
    low = label & -label
    parent = (label ^ low) | (low << 1)
    return parent if parent < count else label ^ low


def children_of(label: int, count: int) -> tuple[int, ...]:
    """Return the children of a label in the first tree, first child first.

    Examples
    --------
    >>> [children_of(label, 7) for label in range(7)]
    [(4,), (), (1, 3), (), (2, 6), (), (5,)]
    """
    if label == 0:
        return (1 << ((count - 1).bit_length() - 1),) if count > 1 else ()
    half = (label & -label) >> 1
    if not half:
        return ()
    second = half
    while second and label + second >= count:
        second >>= 1
    return (label - half, label + second) if second else (label - half,)


def second_tree_label(node: int, count: int) -> int:
    """Return a node's label in the second tree: mirrored for an even number of nodes, shifted by one for an odd one."""
    return count - 1 - node if count % 2 == 0 else (node - 1) % count


def second_tree_node(label: int, count: int) -> int:
    """Return the node that has a label in the second tree."""
    return count - 1 - label if count % 2 == 0 else (label + 1) % count


def all_reduce(ranks: int, size_bytes: int, **options: Unpack[ServerPieces]) -> Schedule:
    """Build an all-reduce by a single binary tree: about 3 N/B, because an inner rank receives from three others.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    **options
        See `netsim.schedule.options.ServerPieces`: the data is cut, by default into at most 64 pieces, none below 4 KiB;
        with more than one server the tree is over servers, with a chain of GPUs inside each.
    """
    return _single("all_reduce", ranks, size_bytes, 0, **options)


def broadcast(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[ServerPieces]) -> Schedule:
    """Build a broadcast down a single binary tree; parameters as in `all_reduce`."""
    return _single("broadcast", ranks, size_bytes, root, **options)


def reduce(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[ServerPieces]) -> Schedule:
    """Build a reduce up a single binary tree; parameters as in `all_reduce`."""
    return _single("reduce", ranks, size_bytes, root, **options)


def double_all_reduce(ranks: int, size_bytes: int, *, groups: Groups | None = None, **options: Unpack[Pieces]) -> Schedule:
    """Build an all-reduce by a double binary tree, each tree with half the data: about 2 N/B.

    What is cut is the half of each tree; parameters as in `all_reduce`.
    """
    given = GivenPieces(**options)
    halves = block_bounds(size_bytes, 2, given.align_bytes)
    flows = [_flow(ranks, groups, 0, bool(tree), halves[tree], halves[tree + 1], f"tree {tree}") for tree in (0, 1)]
    return pipeline.build("all_reduce", "double_binary_tree", ranks, size_bytes, 0, flows, given)


def _single(
    collective: str, ranks: int, size_bytes: int, root: int, groups: Groups | None = None, **options: Unpack[Pieces]
) -> Schedule:
    given = GivenPieces(**options)
    flows = [_flow(ranks, groups, root, False, 0, size_bytes, "tree")]
    return pipeline.build(collective, "tree", ranks, size_bytes, root, flows, given)


def _flow(ranks: int, groups: Groups | None, root: int, second: bool, start: int, stop: int, name: str) -> pipeline.Flow:
    """Lay a tree over servers (or ranks) so that `root` is its root, and hang a chain of GPUs below each server's first."""
    servers = checked_groups(ranks, groups)
    if len(servers) == 1:
        servers = [[rank] for rank in range(ranks)]
    count = len(servers)
    turn = next((number for number, server in enumerate(servers) if root in server), 0)
    if root in servers[turn]:
        at = servers[turn].index(root)
        servers[turn] = servers[turn][at:] + servers[turn][:at]
    parents = [-1] * ranks
    children: list[tuple[int, ...]] = [()] * ranks

    def node(label: int) -> int:
        return ((second_tree_node(label, count) if second else label) + turn) % count

    for label in range(count):
        chain = servers[node(label)]
        up = parent_of(label, count)
        parents[chain[0]] = servers[node(up)][0] if up >= 0 else -1
        for parent, child in pairwise(chain):
            parents[child] = parent
            children[parent] = (child,)
        # The network is served before the chain: it is the slower of the two.
        below = sorted(node(child) for child in children_of(label, count))
        children[chain[0]] = (*(servers[child][0] for child in below), *chain[1:2])
    return pipeline.Flow(tuple(parents), start, stop, name, tuple(children))
