"""Binary trees (textbook, pipelined): a single one, and the double binary tree.

In the double binary tree the inner ranks of one tree are leaves of the other. Both use NCCL's building rule (nccl.md 2.4)
over servers when there are several, each server a chain of its GPUs below the first one, else over ranks. Chunks travel
up (reduce) and down (broadcast) at the same time; children are served in the order of their ranks.
"""

from itertools import pairwise

from netsim.schedule import pipeline
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule
from netsim.schedule.pieces import Groups, checked_groups


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
    """Build an all-reduce by a single binary tree: about 3 N/B, because an inner rank receives from three others.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    chunk_bytes, chunks : int or None
        Size or number of the chunks; by default at most 64, none below 4 KiB.
    groups : sequence of sequence of int
        The ranks of each server; with more than one the tree is over servers, with a chain of GPUs inside each.
    align_bytes : int
        Boundaries are multiples of this.
    limit : int or None
        The most operations accepted.
    """
    flows = [_flow(ranks, groups, 0, False, 0, size_bytes, "tree")]
    return pipeline.build("all_reduce", "tree", ranks, size_bytes, flows, 0, chunk_bytes, chunks, align_bytes, limit)


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
    """Build a broadcast down a single binary tree; parameters as in `all_reduce`."""
    flows = [_flow(ranks, groups, root, False, 0, size_bytes, "tree")]
    return pipeline.build("broadcast", "tree", ranks, size_bytes, flows, root, chunk_bytes, chunks, align_bytes, limit)


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
    """Build a reduce up a single binary tree; parameters as in `all_reduce`."""
    flows = [_flow(ranks, groups, root, False, 0, size_bytes, "tree")]
    return pipeline.build("reduce", "tree", ranks, size_bytes, flows, root, chunk_bytes, chunks, align_bytes, limit)


def double_all_reduce(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    groups: Groups | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build an all-reduce by a double binary tree, each tree with half the data: about 2 N/B.

    `chunk_bytes` or `chunks` apply to each tree; by default at most 64 a tree, none below 4 KiB. Other parameters as in
    `all_reduce`.
    """
    halves = block_bounds(size_bytes, 2, align_bytes)
    flows = [_flow(ranks, groups, 0, bool(tree), halves[tree], halves[tree + 1], f"tree {tree}") for tree in (0, 1)]
    name = "double_binary_tree"
    return pipeline.build("all_reduce", name, ranks, size_bytes, flows, 0, chunk_bytes, chunks, align_bytes, limit)


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
