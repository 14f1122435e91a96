"""The trees follow NCCL's building rule (nccl.md 2.4, worked tables)."""

import pytest

from netsim.schedule.catalogue import build_schedule
from netsim.schedule.tree import children_of, parent_of, second_tree_label, second_tree_node

# node: (parent, children in the rule's order), for the first and the second tree.
TABLES = {
    2: ({0: (-1, (1,)), 1: (0, ())}, {1: (-1, (0,)), 0: (1, ())}),
    3: ({0: (-1, (2,)), 2: (0, (1,)), 1: (2, ())}, {1: (-1, (0,)), 0: (1, (2,)), 2: (0, ())}),
    4: (
        {0: (-1, (2,)), 1: (2, ()), 2: (0, (1, 3)), 3: (2, ())},
        {3: (-1, (1,)), 0: (1, ()), 1: (3, (2, 0)), 2: (1, ())},
    ),
    7: (
        {0: (-1, (4,)), 4: (0, (2, 6)), 2: (4, (1, 3)), 6: (4, (5,)), 1: (2, ()), 3: (2, ()), 5: (6, ())},
        {1: (-1, (5,)), 5: (1, (3, 0)), 3: (5, (2, 4)), 0: (5, (6,)), 2: (3, ()), 4: (3, ()), 6: (0, ())},
    ),
    8: (
        {0: (-1, (4,)), 4: (0, (2, 6)), 2: (4, (1, 3)), 6: (4, (5, 7)), 1: (2, ()), 3: (2, ()), 5: (6, ()), 7: (6, ())},
        {7: (-1, (3,)), 3: (7, (5, 1)), 5: (3, (6, 4)), 1: (3, (2, 0)), 6: (5, ()), 4: (5, ()), 2: (1, ()), 0: (1, ())},
    ),
}


@pytest.mark.parametrize("count", TABLES)
def test_the_first_tree_is_the_worked_table(count):
    assert {node: (parent_of(node, count), children_of(node, count)) for node in range(count)} == TABLES[count][0]


@pytest.mark.parametrize("count", TABLES)
def test_the_second_tree_is_the_worked_table(count):
    def back(label):
        return -1 if label < 0 else second_tree_node(label, count)

    built = {}
    for node in range(count):
        label = second_tree_label(node, count)
        built[node] = back(parent_of(label, count)), tuple(back(child) for child in children_of(label, count))
    assert built == TABLES[count][1]


@pytest.mark.parametrize("count", range(1, 70))
def test_every_child_knows_its_parent(count):
    pairs = {(child, parent) for parent in range(count) for child in children_of(parent, count)}
    assert pairs == {(child, parent_of(child, count)) for child in range(1, count)}


@pytest.mark.parametrize("count", range(2, 70, 2))
def test_with_an_even_count_a_node_is_a_leaf_in_exactly_one_tree(count):
    for node in range(count):
        leaf = [not children_of(label, count) for label in (node, second_tree_label(node, count))]
        assert sum(leaf) == 1


def edges(schedule, tree):
    """Parent of each child in one of the two trees, from the transfers that travel up."""
    half = schedule.size_bytes // 2
    up = schedule.reduce & ((schedule.offset >= half) == bool(tree))
    return dict(zip(schedule.src[up].tolist(), schedule.dst[up].tolist(), strict=True))


def test_the_schedule_uses_these_trees():
    schedule = build_schedule("all_reduce", "double_binary_tree", 8, 800)
    for tree, table in enumerate(TABLES[8]):
        assert edges(schedule, tree) == {node: parent for node, (parent, _) in table.items() if parent >= 0}


def test_with_several_servers_the_tree_is_of_servers_with_chains_inside():
    schedule = build_schedule("all_reduce", "tree", 6, 600, groups=((0, 1), (2, 3), (4, 5)))
    # Servers 0 - 2 - 1 (worked table for three), GPUs 1, 3, 5 hang below 0, 2, 4.
    up = schedule.reduce
    parents = dict(zip(schedule.src[up].tolist(), schedule.dst[up].tolist(), strict=True))
    assert parents == {4: 0, 2: 4, 1: 0, 3: 2, 5: 4}


def test_a_rooted_tree_starts_at_its_root_also_inside_a_server():
    schedule = build_schedule("broadcast", "tree", 6, 600, root=3, groups=((0, 1), (2, 3), (4, 5)))
    parents = dict(zip(schedule.dst.tolist(), schedule.src.tolist(), strict=True))
    assert parents == {2: 3, 0: 3, 4: 0, 1: 0, 5: 4}


def test_by_default_a_flow_has_at_most_64_chunks_and_none_below_4_KiB():
    # All of a rank's chunks pass up its one lane; rank 1 of 2 is a leaf of the single tree.
    for size, chunks in ((0, 1), (4096, 1), (8191, 1), (8192, 2), (2**18, 64), (2**30, 64)):
        schedule = build_schedule("all_reduce", "tree", 2, size)
        assert int((schedule.src == 1).sum()) == chunks
