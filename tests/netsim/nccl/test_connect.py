import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError
from netsim.nccl.channels import total_channels
from netsim.nccl.communicator import Communicator, Ranks
from netsim.nccl.connect import chains, channels_of, head_trees, heads, node_trees, ring, tree
from netsim.nccl.dump import read_dump
from netsim.nccl.from_topology import communicator
from netsim.nccl.graphs import BALANCED_TREE, PLAIN_TREE, RING, RING_PATTERN, SPLIT_TREE, TREE, ChannelGraph, ChannelOrder
from netsim.nccl.settings import Settings
from netsim.nccl.version import Version
from netsim.schedule.nccl.plan import Tree
from tests.netsim.nccl.tuner_machines import h100_nodes, h100x8, machine
from topologies import build

Orders = list[tuple[int, ...]]


def orders_on_rails(gpus: int = 8) -> Orders:
    """Return the orders of nodes with a NIC a GPU: even channels walk down from their NIC, odd ones up."""
    return [tuple((c + (step if c % 2 else -step)) % gpus for step in range(gpus)) for c in range(gpus)]


def laid(nodes: int, orders: Orders, *, cross_nic: int = 0, pattern: int = PLAIN_TREE) -> Communicator:
    """Return nodes whose ring and tree graphs have some orders."""
    channels, gpus = tuple(ChannelOrder(order) for order in orders), len(orders[0])
    return Communicator(
        tuple(tuple(range(node * gpus, node * gpus + gpus)) for node in range(nodes)),
        {
            RING: ChannelGraph(RING, RING_PATTERN, channels, 40.0, 40.0, cross_nic=cross_nic),
            TREE: ChannelGraph(TREE, pattern, channels, 40.0, 40.0),
        },
    )


def turned(text: str) -> Ranks:
    """Return a ring that is written from any rank on, from rank 0 on."""
    ranks = tuple(map(int, text.replace("|", " ").split()))
    return ranks[ranks.index(0) :] + ranks[: ranks.index(0)]


# nccl.md 2.3, worked there for two nodes of eight.
RINGS_2X8 = [
    "0 7 6 5 4 3 2 1 | 9 10 11 12 13 14 15 8",
    "1 2 3 4 5 6 7 0 | 8 15 14 13 12 11 10 9",
    "2 1 0 7 6 5 4 3 | 11 12 13 14 15 8 9 10",
]


@pytest.mark.parametrize("channel", range(3))
def test_rings_of_two_nodes_stay_on_their_rails(channel: int) -> None:
    assert ring(laid(2, orders_on_rails(), cross_nic=2), channel) == turned(RINGS_2X8[channel])


def test_two_h100_servers_have_the_rings_and_trees_of_a_public_log(repository: Path) -> None:
    # From the topology on: graphs, channels, rings, trees.
    lines = (repository / "tests" / "golden" / "nccl_two_h100_nodes.csv").read_text(encoding="utf-8").splitlines()
    logged = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    made = communicator(build("hgx-h100", nodes=2, nic="ndr400"), Version(2, 28, 9))
    assert total_channels(made) == 16
    rings, trees = (channels_of(made, algorithm, 16) for algorithm in ("ring", "tree"))
    for row in logged:
        number = int(row["number"])
        if row["kind"] == "ring":
            ranks = tuple(map(int, row["values"].split()))
            assert rings[number].ring == rings[number + 8].ring == ranks
        else:
            assert [below_and_above(channel.tree, number) for channel in trees] == row["values"].split()
    assert len(logged) == 8 + 9
    assert heads(made, "nvls") == (tuple(range(8)), tuple(range(8, 16)))


def below_and_above(one: Tree | None, rank: int) -> str:
    """Return the children and the parent of a rank as the golden file has them."""
    assert one is not None
    return "/".join(map(str, one.children[rank])) + f">{one.parent[rank]}"


def test_two_h200s_have_the_rings_and_trees_that_they_logged(shared: Path) -> None:
    folder = shared / "samples" / "h200x2"
    log = (folder / "nccl_tests_all_reduce_debug_info.log").read_text(encoding="utf-8")
    made = Communicator(((0, 1),), read_dump(folder / "nccl_graph_h200x2_vm.xml"))
    trees = channels_of(made, "tree", 24)
    stated = set(re.findall(r"Tree (\d+) : (-?\d+) -> (\d+) -> (-?\d+)/", log))
    assert len(stated) > 24
    for number, up, rank, down in (map(int, row) for row in stated):
        one = trees[number].tree
        assert one is not None
        assert (one.parent[rank], one.children[rank]) == (up, (down,) if down >= 0 else ())
    rings = re.findall(r"Channel (\d+)/24 : (.*)", log)
    assert {int(number): tuple(map(int, ranks.split())) for number, ranks in rings} == {
        channel.number: channel.ring for channel in channels_of(made, "ring", 24)
    }


def test_ranks_0_and_8_meet_in_four_channels_only() -> None:
    # As in a public log of two such nodes.
    made = laid(2, orders_on_rails(), cross_nic=2)
    rings = [channel.ring for channel in channels_of(made, "ring", total_channels(made))]
    neighbours = [{frozenset((a, b)) for a, b in zip(one, one[1:] + one[:1], strict=True)} for one in rings]
    assert [number for number, pairs in enumerate(neighbours) if frozenset((0, 8)) in pairs] == [0, 1, 8, 9]


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_on_an_even_number_of_nodes_no_ring_changes_rail(nodes: int) -> None:
    made = laid(nodes, orders_on_rails(), cross_nic=2)
    for channel in range(8):
        one = ring(made, channel)
        between = [(a, b) for a, b in zip(one, one[1:] + one[:1], strict=True) if a // 8 != b // 8]
        assert len(between) == nodes
        assert all(a % 8 == b % 8 for a, b in between)


def test_channels_leave_by_the_cards_that_they_were_searched_with() -> None:
    # Four cards a GPU: the two ends of each ring channel use all of them, each for as many channels.
    found = communicator(build("hgx-h100", nodes=3, nic="efa100:nics=32"))
    for algorithm in ("ring", "tree"):
        used: dict[tuple[int, int], list[int]] = {}
        for channel in channels_of(found, algorithm, 64):
            assert len(channel.flows) == 3
            for node, flow in enumerate(channel.flows):
                ranks = found.nodes[node]
                if channel.tree is not None:
                    leaves = next(rank for rank in ranks if channel.tree.parent[rank] not in ranks)
                else:
                    steps = zip(channel.ring, (*channel.ring[1:], channel.ring[0]), strict=True)
                    leaves = next(rank for rank, following in steps if rank in ranks and following not in ranks)
                used.setdefault((node, leaves), []).append(flow)
        assert len(used) == 3 * 8
        for flows in used.values():
            assert sorted(flows) == sorted([0, 1, 2, 3] * 2), algorithm


def test_on_an_odd_number_of_nodes_only_the_last_hop_changes_rail() -> None:
    one = ring(laid(3, orders_on_rails(), cross_nic=2), 0)
    between = [(a, b) for a, b in zip(one, one[1:] + one[:1], strict=True) if a // 8 != b // 8]
    assert between == [(1, 9), (8, 16), (17, 0)]


@pytest.mark.parametrize(("cross_nic", "channels"), [(0, 8), (1, 8), (2, 7)])
def test_nodes_swap_channels_only_in_turns_and_in_pairs(cross_nic: int, channels: int) -> None:
    made = laid(2, orders_on_rails()[:channels], cross_nic=cross_nic)
    assert ring(made, 0) == turned("0 7 6 5 4 3 2 1 | 8 15 14 13 12 11 10 9")


def test_nodes_of_scattered_ranks_are_visited_in_order() -> None:
    graph = ChannelGraph(RING, RING_PATTERN, (ChannelOrder((1, 0)),), 40.0, 40.0)
    assert ring(Communicator(((0, 3), (1, 4), (2, 5)), {RING: graph}), 0) == (0, 4, 1, 5, 2, 3)


# nccl.md 2.4, worked there: node -> parent and children, first child first; -1 is none.
Table = dict[int, tuple[int, Ranks]]
TREES: dict[int, tuple[Table, Table]] = {
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
        {
            **{0: (-1, (4,)), 4: (0, (2, 6)), 2: (4, (1, 3)), 6: (4, (5, 7))},
            **{1: (2, ()), 3: (2, ()), 5: (6, ()), 7: (6, ())},
        },
        {
            **{7: (-1, (3,)), 3: (7, (5, 1)), 5: (3, (6, 4)), 1: (3, (2, 0))},
            **{6: (5, ()), 4: (5, ()), 2: (1, ()), 0: (1, ())},
        },
    ),
}


@pytest.mark.parametrize("nodes", TREES)
def test_trees_over_nodes_are_nccls(nodes: int) -> None:
    for made, table in zip(node_trees(nodes), TREES[nodes], strict=True):
        assert {node: (made.parent[node], made.children[node]) for node in range(nodes)} == table


@pytest.mark.parametrize("nodes", TREES)
def test_a_tree_of_nodes_of_one_rank_is_the_tree_over_nodes(nodes: int) -> None:
    for pattern in (BALANCED_TREE, SPLIT_TREE, PLAIN_TREE):
        made = laid(nodes, [(0,)], pattern=pattern)
        assert (tree(made, 0), tree(made, 0, second=True)) == node_trees(nodes)


@pytest.mark.parametrize(("nodes", "depth"), [(2, 1), (4, 2), (5, 3), (6, 3), (7, 3), (8, 3), (9, 4), (16, 4)])
def test_trees_are_as_deep_as_stated(nodes: int, depth: int) -> None:
    for made in node_trees(nodes):
        assert max(len(path(made, node)) for node in range(nodes)) == depth


def path(made: Tree, rank: int) -> list[int]:
    """Return the ancestors of a rank, nearest first; a circle raises."""
    found: list[int] = []
    while made.parent[rank] >= 0:
        rank = made.parent[rank]
        assert rank not in found
        found.append(rank)
    return found


@pytest.mark.parametrize(
    ("pattern", "first", "second", "only"),
    [
        # Chain 7 6 8 of node 2: the first child hangs at the second GPU, the second one at the first, ...
        (BALANCED_TREE, 6, 7, 1),
        (SPLIT_TREE, 6, 6, 0),
        (PLAIN_TREE, 7, 7, 1),
    ],
)
def test_children_hang_where_the_pattern_says(pattern: int, first: int, second: int, only: int) -> None:
    # Four nodes with chain 1 0 2. First tree: 2 has the children 1 and 3 and is the second child of the root 0.
    made = tree(laid(4, [(1, 0, 2)], pattern=pattern), 0)
    assert [made.parent[rank] for rank in (4, 10, 7)] == [first, second, only]
    assert made.root == 1
    assert [made.parent[rank] for rank in (0, 2)] == [1, 0]  # the chain
    # The chain comes before the nodes, the first child before the second.
    below = {7: [6], 6: [8]}
    below[first].append(4)
    below[second].append(10)
    assert [list(made.children[rank]) for rank in (7, 6)] == [below[7], below[6]]


def test_the_second_tree_hangs_children_by_its_own_labels() -> None:
    # Mirror of four nodes: node 1 has the children 2, its first, and 0; chain 1 0 2.
    made = tree(laid(4, [(1, 0, 2)], pattern=BALANCED_TREE), 0, second=True)
    assert (made.root, made.parent[7], made.parent[1], made.parent[4]) == (10, 3, 4, 10)


def test_one_node_is_a_chain_in_both_trees() -> None:
    made = laid(1, [(2, 0, 1)], pattern=BALANCED_TREE)
    assert tree(made, 0) == tree(made, 0, second=True) == Tree((2, 0, -1), ((1,), (), (0,)))


def test_the_second_half_of_the_channels_has_the_second_tree() -> None:
    made = laid(4, orders_on_rails())
    channels = channels_of(made, "tree", 16)
    assert [channel.number for channel in channels] == list(range(16))
    assert [channel.tree for channel in channels] == [
        *(tree(made, number) for number in range(8)),
        *(tree(made, number, second=True) for number in range(8)),
    ]


def test_channels_beyond_repeat_the_first_ones() -> None:
    made = laid(4, orders_on_rails()[:2])
    few = channels_of(made, "tree", 4)
    assert [channel.tree for channel in channels_of(made, "tree", 6, Settings(min_channels=6))] == [
        channel.tree for channel in (*few, *few[:2])
    ]
    rings = [channel.ring for channel in channels_of(made, "ring", 4)]
    assert rings == [ring(made, 0), ring(made, 1)] * 2


def test_trees_over_nodes_alternate_on_the_channels_of_nvls_tree() -> None:
    channels = channels_of(h100_nodes(3), "nvls_tree", 16)
    assert [channel.tree for channel in channels] == [*head_trees(h100_nodes(3))] * 8
    assert all(channel.tree is None for channel in channels_of(h100x8(), "nvls", 16))


def test_trees_of_nvls_join_equal_heads() -> None:
    # Three nodes of two, worked above: 2 under 0 and 1 under 2; then 0 under 1 and 2 under 0. Heads 0 and 1 do the same.
    nodes = machine(3, 2, (2, 48), nvls=(2, 40))
    first = Tree((-1, -1, 4, 5, 0, 1), ((4,), (5,), (), (), (2,), (3,)))
    second = Tree((2, 3, -1, -1, 0, 1), ((4,), (5,), (0,), (1,), (), ()))
    assert [channel.tree for channel in channels_of(nodes, "nvls_tree", 16)] == [first, second] * 8


def test_ranks_that_are_no_heads_have_no_part_in_trees_of_nvls() -> None:
    first, second = head_trees(machine(2, 3, (3, 48), nvls=(1, 40)))
    assert first == Tree((-1, -1, -1, 0, -1, -1), ((3,), (), (), (), (), ()))
    assert second == Tree((3, -1, -1, -1, -1, -1), ((), (), (), (0,), (), ()))


def test_heads_are_ranks_of_every_node() -> None:
    nodes = machine(2, 8, (8, 48), nvls=(4, 48), collnet=(2, 48))
    assert heads(nodes, "nvls_tree") == ((0, 1, 2, 3), (8, 9, 10, 11))
    assert heads(nodes, "collnet_direct") == ((0, 1), (8, 9))


def test_chains_of_collnet_end_at_the_network() -> None:
    nodes = machine(2, 3, (3, 48), collnet=(3, 48))
    assert chains(nodes, 1) == ((1, 2, 0), (4, 5, 3))
    second = channels_of(nodes, "collnet_chain", 2)[1]
    assert second.tree == Tree((2, -1, 1, 5, -1, 4), ((), (2,), (0,), (), (5,), (3,)))
    tops = [channel.tree.parent.index(-1) for channel in channels_of(nodes, "collnet_chain", 4) if channel.tree is not None]
    assert tops == [chains(nodes, number)[0][0] for number in (0, 1, 2, 0)]


def test_what_does_not_fit_is_refused() -> None:
    uneven = Communicator(((0, 1, 2), (3, 4)), laid(1, [(0, 1, 2)]).graphs)
    with pytest.raises(NetsimError, match="channel 0 of ring: a graph over 3 GPUs does not fit node 1 with 2; accepted is"):
        ring(uneven, 0)
    with pytest.raises(NetsimError, match="channel 0 of tree: a graph over 3 GPUs does not fit node 1 with 2"):
        tree(uneven, 0)
    headless = machine(1, 8, (8, 48), nvls=(8, 48))
    with pytest.raises(NetsimError, match="nvls: a graph over 8 GPUs does not fit node 0 with 4"):
        heads(Communicator(((0, 1, 2, 3),), headless.graphs), "nvls")
    with pytest.raises(NetsimError, match="tree: no graph for it was found on this machine; there is ring"):
        tree(Communicator(((0, 1),), {RING: laid(1, [(0, 1)]).graphs[RING]}), 0)
    with pytest.raises(NetsimError, match="3 channels asked for, but there are 2; accepted are 1 to 2"):
        channels_of(laid(1, [(0, 1)]), "ring", 3)


@st.composite
def machines(draw: st.DrawFn) -> Communicator:
    """Return nodes with any orders of GPUs."""
    gpus, nodes = draw(st.integers(1, 8)), draw(st.integers(1, 16))
    orders = draw(st.lists(st.permutations(range(gpus)), min_size=1, max_size=4))
    pattern = draw(st.sampled_from([BALANCED_TREE, SPLIT_TREE, PLAIN_TREE]))
    return laid(nodes, [tuple(order) for order in orders], cross_nic=draw(st.integers(0, 2)), pattern=pattern)


@given(machines())
def test_every_ring_visits_every_rank_once_and_node_by_node(made: Communicator) -> None:
    gpus = made.ranks_per_node
    for channel in channels_of(made, "ring", total_channels(made)):
        assert channel.ring[0] == 0
        assert sorted(channel.ring) == list(range(made.ranks))
        hops = sum(a // gpus != b // gpus for a, b in zip(channel.ring, channel.ring[1:] + channel.ring[:1], strict=True))
        assert hops == (len(made.nodes) if len(made.nodes) > 1 else 0)


@given(machines())
def test_every_tree_reaches_every_rank_and_no_rank_has_more_than_three_children(made: Communicator) -> None:
    for channel in channels_of(made, "tree", total_channels(made)):
        one = channel.tree
        assert one is not None
        assert all(path(one, rank)[-1:] == [one.root] or rank == one.root for rank in range(made.ranks))
        children = [(parent, child) for parent, below in enumerate(one.children) for child in below]
        assert sorted(children) == sorted((parent, child) for child, parent in enumerate(one.parent) if parent >= 0)
        assert max(map(len, one.children)) <= 3
        assert len(one.children[one.root]) <= 2


@given(machines())
def test_with_an_even_number_of_nodes_a_node_is_a_leaf_in_one_of_the_two_trees(made: Communicator) -> None:
    nodes = len(made.nodes)
    first, second = node_trees(nodes)
    leaves = [(not first.children[node], not second.children[node]) for node in range(nodes)]
    if nodes % 2 == 0:
        assert all(a != b for a, b in leaves)
        assert [a for a, _ in leaves] == [node % 2 == 1 for node in range(nodes)]
    else:
        assert nodes == 1 or not any(leaves[0])
