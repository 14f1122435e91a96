"""What NCCL finds on a machine, in words: its graphs, the rings and trees of every channel over all nodes, its heads.

For people, beside `netsim.nccl.dump` for programs; and what a rule of a tuner file means. Channels that are alike stand
together; of very many ranks the first are told. Computes nothing of its own.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from netsim.nccl.channels import nvls_channels, total_channels
from netsim.nccl.communicator import Communicator, Ranks
from netsim.nccl.connect import channels_of, heads
from netsim.nccl.environment import settings
from netsim.nccl.graphs import (
    BALANCED_TREE,
    COLLNET_DIRECT,
    COLLNET_DIRECT_PATTERN,
    GRAPH_IDS,
    LAST_RESORT_GBPS,
    NVLS,
    NVLS_PATTERN,
    PLAIN_TREE,
    RING,
    RING_PATTERN,
    SPLIT_TREE,
    TREE,
    ChannelGraph,
)
from netsim.nccl.tuner_costs import graph_of
from netsim.nccl.tuner_file import ANY, MOST_CHANNELS, Rule
from netsim.schedule.nccl.plan import Channel, Tree

MOST_RANKS = 64
"""Of a longer ring, and of more chains of a tree, the rest is counted."""

_MOST_NODES = 8
_Kind = TypeVar("_Kind", bound=Hashable)
_PATTERNS = {
    BALANCED_TREE: "balanced tree",
    SPLIT_TREE: "split tree",
    PLAIN_TREE: "tree",
    RING_PATTERN: "ring",
    NVLS_PATTERN: "heads under a switch",
    COLLNET_DIRECT_PATTERN: "heads at the network",
}


def graph_lines(communicator: Communicator) -> Iterator[str]:
    """Yield what NCCL finds on a machine, a line each.

    Examples
    --------
    >>> from netsim.nccl.graphs import ChannelGraph, ChannelOrder
    >>> ring = ChannelGraph("ring", 4, (ChannelOrder((0, 1)),) * 12, 30.0, 30.0, "NVL")
    >>> for line in graph_lines(Communicator(((0, 1),), {"ring": ring})):
    ...     print(line)
    node 0: ranks 0-1
    seen as: compute capability 9.0, x86_64 GenuineIntel, NVSwitch, peers reach each other
    graph ring: 12 channels x 30 GB/s, pattern 4 (ring), type NVL, sameChannels 1
    graph tree: nothing found
    graph collnet_chain: nothing found
    graph nvls: nothing found
    graph collnet_direct: nothing found
    channels: 24 of rings and trees
    ring of channels 0-23: 0 1
    """
    several = len(communicator.nodes) > 1
    alike: dict[int, list[int]] = {}
    for number, node in enumerate(communicator.nodes):
        alike.setdefault(len(node), []).append(number)
    if len(communicator.nodes) <= _MOST_NODES:
        for number, node in enumerate(communicator.nodes):
            yield f"node {number}: ranks {ranges(node)}"
    else:
        for count, numbers in alike.items():
            yield f"nodes {ranges(numbers)}: {count} ranks each"
    yield f"seen as: {', '.join(_hardware(communicator))}"
    for name in GRAPH_IDS:
        graph = communicator.graphs.get(name)
        found = "nothing found" if graph is None or not graph.channels else ", ".join(_graph(graph, several))
        if graph is not None and graph.channels and graph.intra_GBps == LAST_RESORT_GBPS:
            found += "; none of NCCL's speeds is reached, so that it takes one channel in order of ranks"
        yield f"graph {name}: {found}"
    if graph_of(communicator, RING) is None:
        return
    given = settings(communicator.environment)
    count = total_channels(communicator, given)
    counts = [f"{count} of rings and trees"]
    switched = graph_of(communicator, NVLS) is not None and communicator.multicast
    if switched:
        counts.append(f"{nvls_channels(communicator, given)} of nvls")
    yield f"channels: {', '.join(counts)}"
    for ring, channels in _alike(channels_of(communicator, RING, count, given), _ring_of):
        rest = f" ... ({len(ring)} ranks)" if len(ring) > MOST_RANKS else ""
        yield f"ring of {_channels(channels)}: {' '.join(map(str, ring[:MOST_RANKS]))}{rest}"
    if graph_of(communicator, TREE) is not None:
        for tree, channels in _alike(channels_of(communicator, TREE, count, given), _tree_of):
            yield f"tree of {_channels(channels)}: {tree_words(tree, communicator.nodes)}"
    for kind in (NVLS, COLLNET_DIRECT):
        if graph_of(communicator, kind) is not None and (switched or kind != NVLS):
            told = heads(communicator, kind)
            words = "; ".join(f"node {number}: {' '.join(map(str, mine))}" for number, mine in enumerate(told[:_MOST_NODES]))
            yield f"heads of {kind}: {words}{' ...' if len(told) > _MOST_NODES else ''}"


def tree_words(tree: Tree, nodes: Sequence[Ranks]) -> str:
    """Say a tree as its chains inside nodes, from the root down, and where each hangs.

    Examples
    --------
    >>> tree_words(Tree((-1, 0, 1, 2), ((1,), (2,), (3,), ())), ((0, 1), (2, 3)))
    '0 1; 2 3 below 1'
    """
    node_of = {rank: number for number, node in enumerate(nodes) for rank in node}
    chains: list[str] = []
    waiting = [rank for rank, parent in enumerate(tree.parent) if parent < 0]
    for first in waiting:
        chain = [first]
        while True:
            below = tree.children[chain[-1]]
            near = [rank for rank in below if node_of[rank] == node_of[first]]
            waiting += [rank for rank in below if rank not in near[:1]]
            if not near:
                break
            chain.append(near[0])
        above = tree.parent[first]
        chains.append(" ".join(map(str, chain)) + (f" below {above}" if above >= 0 else ""))
    rest = [f"... ({len(chains)} chains)"] if len(chains) > MOST_RANKS else []
    return "; ".join(chains[:MOST_RANKS] + rest)


def rule_words(rule: Rule) -> str:
    """Say what a rule of the example tuner plugin means.

    Examples
    --------
    >>> rule_words(Rule("all_reduce", 0, 65536, "tree", "simple", 2, nodes=1, registered=1))
    'all_reduce of 0 to 65536 bytes on 1 node, buffers registered: tree simple on 2 channels'
    >>> rule_words(Rule("reduce", 4096, 8192, "ring", "ll128", 0, ranks=16))
    "reduce of 4096 to 8192 bytes on 16 ranks: ring ll128 on NCCL's own number of channels"
    """
    counts = ((rule.nodes, "node"), (rule.ranks, "rank"))
    places = [f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count != ANY]
    where = f" on {' with '.join(places)}" if places else ""
    if rule.operations != ANY:
        where += f", {rule.operations} operation{'s' * (rule.operations != 1)} tuned together"
    if rule.registered != ANY:
        where += f", buffers {'registered' if rule.registered else 'not registered'}"
    channels = f"{rule.channels} channels"
    if rule.channels > MOST_CHANNELS:
        channels += f" (NCCL has {MOST_CHANNELS} at most, and uses those that there are)"
    if rule.channels == 0:
        channels = "NCCL's own number of channels"
    elif rule.channels == ANY:
        channels = "1 channel (-1 is meant as NCCL's own number, but the plugin makes 1 of it)"
    elif rule.channels == 1:
        channels = "1 channel"
    size = f"{rule.least_bytes} to {rule.most_bytes} bytes"
    return f"{rule.collective} of {size}{where}: {rule.algorithm} {rule.protocol} on {channels}"


def ranges(numbers: Iterable[int]) -> str:
    """Write ascending whole numbers with runs of them put together.

    Examples
    --------
    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2 5 7-8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return " ".join("-".join(map(str, run)) for run in runs)


def _channels(numbers: Sequence[int]) -> str:
    return f"channel{'s' * (len(numbers) > 1)} {ranges(numbers)}"


def _hardware(communicator: Communicator) -> Iterator[str]:
    least, most = (value / 10 for value in (communicator.compute_capability, communicator.compute_capability_max))
    yield f"compute capability {least}" + (f" to {most}" if most != least else "")
    yield f"{communicator.cpu_arch} {communicator.cpu_vendor}".strip()
    if communicator.nvswitch:
        yield "NVSwitch that multicasts and reduces" if communicator.multicast else "NVSwitch"
    yield "peers reach each other" if communicator.p2p else "peers stage in host memory"
    if communicator.nics_per_node:
        ports = f"{communicator.nics_per_node} network port{'s' * (communicator.nics_per_node > 1)}"
        yield f"{ports} of {communicator.net_GBps:g} GB/s a node"
        yield "GPUDirect RDMA" if communicator.gdr else "no GPUDirect RDMA"
    if communicator.collnet:
        yield "a network that reduces"


def _graph(graph: ChannelGraph, several: bool) -> Iterator[str]:
    speeds = f"{graph.intra_GBps:g} GB/s"
    types = f"type {graph.type_intra}"
    if several:
        speeds = f"{graph.intra_GBps:g} GB/s inside nodes and {graph.inter_GBps:g} GB/s between"
        types = f"types {graph.type_intra} and {graph.type_inter}"
    yield f"{graph.channels} channel{'s' * (graph.channels != 1)} x {speeds}"
    yield f"pattern {graph.pattern} ({_PATTERNS.get(graph.pattern, 'unknown')})"
    yield types
    if several:
        yield f"crossNic {graph.cross_nic}"
    yield f"sameChannels {int(graph.same_channels)}"


def _ring_of(channel: Channel) -> Ranks | None:
    return channel.ring


def _tree_of(channel: Channel) -> Tree | None:
    return channel.tree


def _alike(channels: Iterable[Channel], part: Callable[[Channel], _Kind | None]) -> list[tuple[_Kind, list[int]]]:
    """Put the numbers of channels together that have the same of something."""
    found: dict[_Kind, list[int]] = {}
    for channel in channels:
        of = part(channel)
        if of is not None:
            found.setdefault(of, []).append(channel.number)
    return list(found.items())
