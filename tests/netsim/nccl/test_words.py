from netsim.nccl.communicator import Communicator
from netsim.nccl.graphs import ChannelGraph, ChannelOrder
from netsim.nccl.tuner_file import Rule
from netsim.nccl.words import MOST_RANKS, graph_lines, rule_words, tree_words
from netsim.schedule.nccl.plan import Tree


def ring_of(ranks: int, **options: object) -> ChannelGraph:
    return ChannelGraph("ring", 4, (ChannelOrder(tuple(range(ranks)), 0, 0),), 20.0, 10.0, "NVL", "PIX", **options)  # type: ignore[arg-type]


def test_two_nodes_have_both_speeds_and_types_and_the_rule_for_nics():
    told = list(graph_lines(Communicator(((0, 1), (2, 3)), {"ring": ring_of(2, cross_nic=2)}, nics_per_node=1, net_GBps=10)))
    assert told[:2] == ["node 0: ranks 0-1", "node 1: ranks 2-3"]
    assert told[2].endswith("NVSwitch, peers reach each other, 1 network port of 10 GB/s a node, GPUDirect RDMA")
    assert told[3] == (
        "graph ring: 1 channel x 20 GB/s inside nodes and 10 GB/s between, pattern 4 (ring), types NVL and PIX, crossNic 2, "
        "sameChannels 1"
    )
    # One searched channel is used twice, and the ring goes through both nodes.
    assert told[-1] == "ring of channels 0-1: 0 1 2 3"


def test_without_a_ring_there_are_no_channels_to_tell():
    told = list(graph_lines(Communicator(((0, 1),), {})))
    assert told[-1] == "graph collnet_direct: nothing found"
    assert not any(line.startswith(("channels", "ring", "tree")) for line in told)


def test_a_long_ring_is_cut_and_counted():
    told = list(graph_lines(Communicator((tuple(range(100)),), {"ring": ring_of(100)})))
    assert told[-1].endswith(f" {MOST_RANKS - 1} ... (100 ranks)")


def test_a_tree_is_told_as_chains_and_where_they_hang():
    # 0 leads 1, and two nodes hang below its second GPU.
    tree = Tree((-1, 0, 1, 2, 1, 4), ((1,), (2, 4), (3,), (), (5,), ()))
    assert tree_words(tree, ((0, 1), (2, 3), (4, 5))) == "0 1; 2 3 below 1; 4 5 below 1"


def test_two_children_on_the_same_node_are_two_chains():
    tree = Tree((-1, 0, 0, 1), ((1, 2), (3,), (), ()))
    assert tree_words(tree, ((0, 1, 2, 3),)) == "0 1 3; 2 below 0"


def test_a_rule_says_every_field_that_is_not_any():
    rule = Rule("all_gather", 8, 16, "ring", "simple", 1, nodes=2, ranks=16, operations=1, registered=0)
    assert rule_words(rule) == (
        "all_gather of 8 to 16 bytes on 2 nodes with 16 ranks, 1 operation tuned together, buffers not registered: "
        "ring simple on 1 channel"
    )
    assert "but the plugin makes 1 of it" in rule_words(Rule("reduce", 0, 8, "tree", "ll"))
