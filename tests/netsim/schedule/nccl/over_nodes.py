"""Plans over nodes, written by hand: trees of nodes with chains of GPUs, trees of heads, and the channels' shares."""

from dataclasses import replace

import topologies
from netsim.runs import simulate
from netsim.schedule.nccl.plan import Channel, Plan, Tree

# Parents of each node in the first and the second tree, as nccl.md 2.4 works them out.
NODE_TREES = {
    1: ((-1,), (-1,)),
    2: ((-1, 0), (1, -1)),
    3: ((-1, 2, 0), (1, -1, 0)),
    4: ((-1, 2, 0, 2), (1, 3, 1, -1)),
    7: ((-1, 2, 4, 2, 0, 6, 4), (5, -1, 3, 5, 3, 1, 0)),
    8: ((-1, 2, 4, 2, 0, 6, 4, 6), (1, 3, 1, 7, 5, 3, 5, -1)),
}


def nodes_of(nodes, gpus):
    """Ranks of each node, in order."""
    return tuple(tuple(range(node * gpus, (node + 1) * gpus)) for node in range(nodes))


def tree_of(parent):
    """A tree or forest of its parents, children in order of rank."""
    children = tuple(tuple(rank for rank, above in enumerate(parent) if above == member) for member in range(len(parent)))
    return Tree(tuple(parent), children)


def chained_tree(nodes, gpus, which, first=0):
    """A tree over nodes whose links are all at the first GPU of each node's chain."""
    parent = []
    for node in range(nodes):
        above = NODE_TREES[nodes][which][node]
        for gpu in range(gpus):
            place = (gpu - first) % gpus
            top = -1 if above < 0 else above * gpus + first
            parent.append(top if not place else node * gpus + (gpu - 1) % gpus)
    return tree_of(parent)


def head_trees(nodes, gpus, which, heads=None):
    """A forest with a tree over nodes for each head."""
    parent = []
    for node in range(nodes):
        above = NODE_TREES[nodes][which][node]
        parent += [above * gpus + gpu if above >= 0 and gpu < (heads or gpus) else -1 for gpu in range(gpus)]
    return tree_of(parent)


def node_chains(nodes, gpus, first=0):
    """A forest with a chain on each node."""
    places = [(node, gpu) for node in range(nodes) for gpu in range(gpus)]
    return tree_of([-1 if gpu == first else node * gpus + (gpu - 1) % gpus for node, gpu in places])


def shares_of(size, channels):
    """Contiguous shares of a size, in multiples of 16 bytes."""
    each = -(-size // channels)
    each += -each % 16
    return tuple((min(c * each, size), min(each, size - min(c * each, size))) for c in range(channels))


def plan_of(algorithm, nodes, gpus, size, trees, *, protocol="simple", chunk=4096, collective="all_reduce", **more):
    """A plan with one channel for each of `trees`, of which some may be None."""
    ranks = nodes * gpus
    total = size if collective == "all_reduce" else size // ranks
    channels = tuple(Channel(number, tree=tree) for number, tree in enumerate(trees))
    more = {"nodes": nodes_of(nodes, gpus), "threads": 640} | more
    return Plan(collective, algorithm, protocol, ranks, size, channels, shares_of(total, len(trees)), chunk, **more)


def servers(nodes, *, nvlink=1e15, cable=1e15):
    """HGX H100 servers with a NIC a GPU and a network that adds, without latencies; other links never count."""
    graph = topologies.build("hgx-h100", nodes=nodes, nic="ndr400").copy()
    graph.nodes["network"]["reduce"] = True
    for source, target, edge in graph.edges(data=True):
        rate = nvlink if edge["link"].kind == "nvlink4" else cable if "network" in (source, target) else 1e15
        edge["link"] = replace(edge["link"], latency_s=0.0, bandwidth_bytes_per_s=rate, protocols=None)
    return graph


def further_s(graph, schedules):
    """Seconds by which the second of two schedules takes longer than the first."""
    first, second = (simulate(graph, schedule, record="summary").time_s for schedule in schedules)
    return second - first
