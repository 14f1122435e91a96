"""Rings and trees of every channel over all nodes, laid out of what the graph search found on one node.

Between the graphs of a `Communicator` and the channels of a plan. Rules of NCCL 2.18 to 2.30 (graph/connect.cc,
graph/trees.cc): channel c of the search becomes channels c (first tree) and c + n (second tree) with the same ring, and
`netsim.nccl.channels.sources` says what further channels copy.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from netsim.errors import NetsimError
from netsim.nccl.channels import Source, head_gpus, nvls_channels, sources
from netsim.nccl.communicator import Communicator, Ranks
from netsim.nccl.graphs import COLLNET_CHAIN, PLAIN_TREE, RING, SPLIT_TREE, TREE, ChannelGraph
from netsim.nccl.settings import DEFAULT_SETTINGS, Settings
from netsim.nccl.tuner_constants import NVLS, NVLS_TREE
from netsim.nccl.tuner_costs import COLLNETS, NVLS_KINDS, graph_of
from netsim.schedule.nccl.plan import Channel, Tree
from netsim.schedule.tree import children_of, parent_of, second_tree_label, second_tree_node


def channels_of(
    communicator: Communicator, algorithm: str, count: int, settings: Settings = DEFAULT_SETTINGS
) -> tuple[Channel, ...]:
    """Return the first channels of a communicator with what an algorithm needs of them.

    Parameters
    ----------
    communicator : Communicator
    algorithm : str
        ring, tree, nvls, nvls_tree, collnet_direct, collnet_chain or pat. NVLS, CollnetDirect and PAT need nothing but
        numbers: the heads are the same in all channels, see `heads`. NVLSTree and CollnetChain have their tree as a
        forest over ranks too, one tree a head and one chain a node.
    count : int
        How many.
    settings : Settings, optional

    Raises
    ------
    NetsimError
        If there are fewer channels, or the graph does not fit the nodes.
    """
    if algorithm in NVLS_KINDS:
        _enough(count, nvls_channels(communicator, settings))
        if algorithm == NVLS:
            return tuple(Channel(number) for number in range(count))
        joined = head_trees(communicator)
        return tuple(Channel(number, tree=joined[number % 2]) for number in range(count))
    used = sources(communicator, settings)
    _enough(count, len(used))
    found: dict[Source, Channel] = {}
    channels = []
    for number, source in enumerate(used[:count]):
        if source not in found:
            found[source] = _channel(communicator, algorithm, source)
        channels.append(replace(found[source], number=number))
    return tuple(channels)


def _enough(count: int, available: int) -> None:
    if count > available:
        raise NetsimError(f"{count} channels asked for, but there are {available}; accepted are 1 to {available}")


def _channel(communicator: Communicator, algorithm: str, source: Source) -> Channel:
    if algorithm == RING:
        flows, relays = _ring_ways(communicator, source.order)
        return Channel(0, ring=ring(communicator, source.order), flows=flows, relays=relays)
    if algorithm == TREE:
        # Up and down go by the card at the first GPU of the chain.
        ends = [(order.gpus[0], order.nic_in) for order in _graph(communicator, TREE).orders]
        flows = (_card(ends, source.order),) * len(communicator.nodes)
        return Channel(0, tree=tree(communicator, source.order, second=source.second_tree), flows=flows)
    if algorithm == COLLNET_CHAIN:
        lines = chains(communicator, source.order)
        parents, below = _chained(communicator.ranks, lines)
        return Channel(0, tree=Tree(tuple(parents), tuple(map(tuple, below))))
    return Channel(0)


def _ring_ways(communicator: Communicator, channel: int) -> tuple[Ranks, Ranks]:
    """Return by which of its cards, or of whose, the last GPU of each node sends; `ring` says which nodes swap channels."""
    ends = [(order.gpus[-1], order.nic_out) for order in _graph(communicator, RING).orders]
    turned = channel ^ 1 if swaps_rails(communicator) else channel
    taken = [turned if number % 2 else channel for number in range(len(communicator.nodes))]
    flows = tuple(_card(ends, number) for number in taken)
    relays = tuple(_relay(communicator, node, *ends[number]) for node, number in zip(communicator.nodes, taken, strict=True))
    return flows, relays


def _relay(communicator: Communicator, node: Ranks, gpu: int, card: int | None) -> int:
    """Return the rank that a GPU sends to a card through, where the way to it is over a peer's NVLink; else -1."""
    relays = communicator.relays
    if card is None or not relays or card >= len(relays[node[gpu]]):
        return -1
    return relays[node[gpu]][card]


def _card(ends: Sequence[tuple[int, int | None]], channel: int) -> int:
    """Return which of the cards that channels use at one GPU a channel uses, given GPU and card of every channel."""
    gpu, card = ends[channel]
    cards = sorted({other for at, other in ends if at == gpu and other is not None})
    return 0 if card is None else cards.index(card)


def ring(communicator: Communicator, channel: int) -> Ranks:
    """Return the ring of a searched channel over all nodes, rank 0 first.

    The last GPU of a node sends to the first one of the next. Where channels may enter and leave by different NICs in
    turns, nodes with an odd number swap channels in pairs, so that data stays on its rail.

    Examples
    --------
    >>> from netsim.nccl.graphs import ChannelGraph, ChannelOrder
    >>> graph = ChannelGraph("ring", 4, (ChannelOrder((0, 2, 1)), ChannelOrder((1, 2, 0))), 48.0, 48.0, cross_nic=2)
    >>> ring(Communicator(((0, 1, 2), (3, 4, 5)), {"ring": graph}), 0)
    (0, 2, 1, 4, 5, 3)
    """
    graph = _graph(communicator, RING)
    straight = _on_nodes(communicator, graph, channel)
    turned = _on_nodes(communicator, graph, channel ^ 1) if swaps_rails(communicator) else straight
    order = [rank for number, line in enumerate(straight) for rank in (turned[number] if number % 2 else line)]
    start = order.index(min(order))
    return tuple(order[start:] + order[:start])


def swaps_rails(communicator: Communicator) -> bool:
    """Say whether rings swap channels 2i and 2i + 1 on nodes with an odd number."""
    graph, tree_graph = _graph(communicator, RING), graph_of(communicator, TREE)
    searched = min(graph.channels, tree_graph.channels) if tree_graph else graph.channels
    return graph.cross_nic == 2 and searched % 2 == 0


def tree(communicator: Communicator, channel: int, *, second: bool = False) -> Tree:
    """Return a tree of a searched channel: a tree over nodes, with a chain of GPUs in each.

    Parameters
    ----------
    channel : int
        Channel of the tree graph; its pattern says at which GPUs of the chain other nodes hang.
    second : bool
        Whether it is the second of the two trees over nodes; on one node there is only the chain.
    """
    graph = _graph(communicator, TREE)
    nodes = len(communicator.nodes)
    lines = _on_nodes(communicator, graph, channel)
    parents, below = _chained(communicator.ranks, lines)
    for number in range(nodes):
        label = second_tree_label(number, nodes) if second else number
        for child in children_of(label, nodes):
            # Which of two children it is goes by labels: the only child of the root counts as the second.
            upper = lines[number][_joint(graph, len(lines[number]), first=child < label)]
            lower = lines[second_tree_node(child, nodes) if second else child][0]
            parents[lower] = upper
            below[upper].append(lower)
    return Tree(tuple(parents), tuple(map(tuple, below)))


def _joint(graph: ChannelGraph, gpus: int, *, first: bool) -> int:
    """Return the GPU of the chain where a node's first or second child hangs."""
    if gpus == 1 or graph.pattern == PLAIN_TREE:
        return 0
    return 1 if first or graph.pattern == SPLIT_TREE else 0


def node_trees(nodes: int) -> tuple[Tree, Tree]:
    """Return the two trees over nodes.

    Examples
    --------
    >>> first, second = node_trees(4)
    >>> first.parent, second.parent
    ((-1, 2, 0, 2), (1, 3, 1, -1))
    """
    return _node_tree(nodes, second=False), _node_tree(nodes, second=True)


def _node_tree(nodes: int, *, second: bool) -> Tree:
    parents, below = [], []
    for number in range(nodes):
        label = second_tree_label(number, nodes) if second else number
        up, down = parent_of(label, nodes), children_of(label, nodes)
        if second:
            up = second_tree_node(up, nodes) if up >= 0 else -1
            down = tuple(second_tree_node(child, nodes) for child in down)
        parents.append(up)
        below.append(down)
    return Tree(tuple(parents), tuple(below))


def heads(communicator: Communicator, algorithm: str) -> tuple[Ranks, ...]:
    """Return the heads of each node for NVLS, NVLSTree or CollNet: head h of every node does the same part."""
    gpus = head_gpus(communicator, algorithm)
    for number, node in enumerate(communicator.nodes):
        if gpus and max(gpus) >= len(node):
            raise _misfit(NVLS if algorithm in NVLS_KINDS else COLLNETS[0], max(gpus) + 1, number, len(node))
    return tuple(tuple(node[gpu] for gpu in gpus) for node in communicator.nodes)


def chains(communicator: Communicator, channel: int) -> tuple[Ranks, ...]:
    """Return the chain of each node of a searched channel of CollnetChain, from the GPU at the network down."""
    graph = _graph(communicator, COLLNET_CHAIN)
    return tuple(_on_nodes(communicator, graph, channel % graph.channels))


def head_trees(communicator: Communicator) -> tuple[Tree, Tree]:
    """Return `node_trees` as two forests over ranks: for every head a tree over the same head of all nodes."""
    places = heads(communicator, NVLS_TREE)
    first, second = (_forest(communicator.ranks, over, places) for over in node_trees(len(communicator.nodes)))
    return first, second


def _forest(ranks: int, over: Tree, places: Sequence[Ranks]) -> Tree:
    parents = [-1] * ranks
    below: list[Ranks] = [()] * ranks
    for node, mine in enumerate(places):
        for number, rank in enumerate(mine):
            parents[rank] = places[over.parent[node]][number] if over.parent[node] >= 0 else -1
            below[rank] = tuple(places[child][number] for child in over.children[node])
    return Tree(tuple(parents), tuple(below))


def _chained(ranks: int, lines: Sequence[Ranks]) -> tuple[list[int], list[list[int]]]:
    """Return parents and children of ranks that hang below one another on each node."""
    parents = [-1] * ranks
    below: list[list[int]] = [[] for _ in range(ranks)]
    for line in lines:
        for upper, lower in pairwise(line):
            parents[lower] = upper
            below[upper].append(lower)
    return parents, below


def _graph(communicator: Communicator, name: str) -> ChannelGraph:
    graph = graph_of(communicator, name)
    if graph is None:
        found = ", ".join(other for other in communicator.graphs if graph_of(communicator, other)) or "none"
        raise NetsimError(f"{name}: no graph for it was found on this machine; there is {found}")
    return graph


def _on_nodes(communicator: Communicator, graph: ChannelGraph, channel: int) -> list[Ranks]:
    """Return the ranks of each node in the order of a searched channel."""
    gpus = graph.orders[channel].gpus
    complete = sorted(gpus) == list(range(len(gpus)))
    for number, node in enumerate(communicator.nodes):
        if not complete or len(node) != len(gpus):
            raise _misfit(f"channel {channel} of {graph.name}", len(gpus), number, len(node))
    return [tuple(node[gpu] for gpu in gpus) for node in communicator.nodes]


def _misfit(what: str, gpus: int, number: int, ranks: int) -> NetsimError:
    return NetsimError(
        f"{what}: a graph over {gpus} GPUs does not fit node {number} with {ranks}; accepted is one that has each of its "
        "GPUs once"
    )
