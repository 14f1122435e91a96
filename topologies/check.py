"""What looks wrong about a topology: remarks for `netsim topo check`, none of which is an error.

Collects what a loader had to assume and looks for the usual suspects: GPUs with fewer NVLinks than their neighbours, a
link much slower than its like, or slower or faster than its kind can be, parts that nothing joins to the GPUs, a GPU
without a path, a NIC far from its GPU, near to none, or faster than the slot it sits in.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from netsim.fabric import HOST_MEMORY, NETWORK_SWITCH, NIC, ROOT_COMPLEX, Link, link_name, may_transit, ranks_of
from netsim.units import format_rate
from topologies.profiles import family_of, load_profile, profile_names

if TYPE_CHECKING:
    import networkx as nx

# A link below this share of the usual rate of its like is remarked upon; an x8 slot among x16 ones just is.
_MUCH_SLOWER = 0.51
# The NVLinks of the GPU with the most, as NCCL's documentation shows a Rubin's.
_MOST_GPU_LINKS = 36
# A link this much above the line rate of its kind is remarked upon; below, somebody may have rounded.
_TOO_FAST = 1.05
# A port this much faster than its slot is remarked upon; 200 Gb/s in a Gen4 slot (25 and 24 GB/s) is a usual match.
_NARROW = 1.1
# From so many GPUs the search for missing paths and far NICs starts; more only repeat what the first show.
_MOST_STARTS = 128
_GPU_FAMILIES = ("nvlink", "xgmi")
_FAR = 1_000_000


def remarks(graph: "nx.DiGraph[str]") -> list[str]:
    """List what looks wrong or had to be assumed.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.

    Returns
    -------
    list of str
        One sentence each; empty if nothing is remarkable.

    Examples
    --------
    >>> from topologies import build
    >>> remarks(build("hgx-h100"))
    []
    """
    found = [str(remark) for remark in graph.graph.get("remarks", ())]
    found.extend(_unequal_links(graph))
    told: set[tuple[str, str]] = set()
    found.extend(_slow_links(graph, told))
    found.extend(_slow_for_their_kind(graph, told))
    found.extend(_loose_parts(graph))
    found.extend(_missing_paths(graph))
    found.extend(_far_nics(graph))
    found.extend(_narrow_slots(graph))
    return found


def _unequal_links(graph: "nx.DiGraph[str]") -> Iterable[str]:
    """GPUs whose number of NVLinks differs from what most have, or between both directions."""
    ranks = ranks_of(graph)
    counts = {gpu: _gpu_links(data["link"] for _, _, data in graph.out_edges(gpu, data=True)) for gpu in ranks}
    often = Counter(counts.values())
    # Of two numbers as frequent as each other the larger is what the machine should have.
    usual = max(often, key=lambda count: (often[count], count))
    odd = {gpu: count for gpu, count in counts.items() if count != usual}
    if odd:
        gpu, count = next(iter(odd.items()))
        most = "most" if 2 * often[usual] > len(ranks) else "other"
        others = f" (and {len(odd) - 1} more GPUs differ)" if len(odd) > 1 else ""
        yield f"{gpu} has {count} GPU-to-GPU links where {most} GPUs have {usual}{others}"
    beyond = [gpu for gpu, count in counts.items() if count > _MOST_GPU_LINKS]
    if beyond:
        gpu = beyond[0]
        others = f" (and {len(beyond) - 1} more GPUs likewise)" if beyond[1:] else ""
        yield f"{gpu} has {counts[gpu]} GPU-to-GPU links; no GPU is sold with more than {_MOST_GPU_LINKS}{others}"
    back = {
        gpu: _gpu_links(data["link"] for _, _, data in graph.in_edges(gpu, data=True)) for gpu in ranks if gpu not in odd
    }
    uneven = [gpu for gpu, count in back.items() if count != counts[gpu]]
    if uneven:
        gpu = uneven[0]
        others = f" (and {len(uneven) - 1} more GPUs likewise)" if uneven[1:] else ""
        yield f"{gpu} sends over {counts[gpu]} GPU-to-GPU links but receives over {back[gpu]}{others}"


def _gpu_links(links: Iterable[Link]) -> int:
    return sum(link.count for link in links if _is_gpu_link(link))


def _is_gpu_link(link: Link) -> bool:
    return family_of(link.kind) in _GPU_FAMILIES


def _slow_links(graph: "nx.DiGraph[str]", told: set[tuple[str, str]]) -> Iterable[str]:
    """Links of at most half the rate that is usual between such nodes, added to `told`; a cable counts once."""
    groups: dict[tuple[str, str, str], dict[tuple[str, str], float]] = defaultdict(dict)
    link: Link
    for a, b, link in graph.edges(data="link"):
        ends = sorted((graph.nodes[a]["kind"], graph.nodes[b]["kind"]))
        rate = link.bandwidth_bytes_per_s / (link.count if _is_gpu_link(link) else 1)
        groups[ends[0], ends[1], family_of(link.kind) or link.kind][a, b] = rate
    for (one, other, family), rates in groups.items():
        usual = statistics.median_high(rates.values())
        slow: dict[tuple[str, str], str] = {}
        for edge, rate in rates.items():
            if rate < _MUCH_SLOWER * usual:
                told.add(edge)
                back = edge[::-1]
                if back in slow:
                    slow[back] = f"{back[0]}<->{back[1]}"
                else:
                    slow[edge] = link_name(edge)
        if slow:
            edge, name = next(iter(slow.items()))
            link = graph.edges[edge]["link"]
            others = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
            yield (
                f"{f'each of {link.count} links' if _is_gpu_link(link) and link.count > 1 else 'link'} {name} moves "
                f"{_short_rate(rates[edge])} where {family} links between {one} and {other} usually move "
                f"{_short_rate(usual)}{others}"
            )


def _slow_for_their_kind(graph: "nx.DiGraph[str]", told: set[tuple[str, str]]) -> Iterable[str]:
    """Links that reach half of their kind's effective rate or exceed its line rate, but for those told of already."""
    slow: dict[tuple[str, str], tuple[Link, float]] = {}
    fast: dict[tuple[str, str], tuple[Link, float]] = {}
    usual: dict[Link, float] = {}
    most: dict[Link, float] = {}
    link: Link
    for a, b, link in graph.edges(data="link"):
        if link not in usual:
            usual[link], most[link] = _rate_of_kind(link, "effective"), _rate_of_kind(link, "line")
        if most[link] and link.bandwidth_bytes_per_s > _TOO_FAST * most[link] and (b, a) not in fast:
            fast[a, b] = (link, most[link])
        if link.bandwidth_bytes_per_s < _MUCH_SLOWER * usual[link] and not {(a, b), (b, a)} & (told | slow.keys()):
            slow[a, b] = (link, usual[link])
    for found, words in ((slow, "moves"), (fast, "signals no more than")):
        if found:
            edge, (link, wanted) = next(iter(found.items()))
            others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            yield (
                f"link {link_name(edge)} moves {_short_rate(link.bandwidth_bytes_per_s)} where its kind {link.kind} {words} "
                f"{_short_rate(wanted)}{others}"
            )


def _short_rate(bytes_per_s: float) -> str:
    return format_rate(float(f"{bytes_per_s:.4g}"))


def _rate_of_kind(link: Link, rate: str) -> float:
    """Return the rate that a link's kind, count and width promise; 0 for a kind without a profile."""
    if family_of(link.kind) is None:
        return 0.0
    name, mark, lanes = link.kind.rpartition("_x")
    if mark and lanes.isdigit() and family_of(name) == "pcie":
        profile = load_profile(name if name in profile_names() else link.kind)
        return profile.link(rate, link.count, lanes=int(lanes) if profile.name == name else None).bandwidth_bytes_per_s
    return load_profile(link.kind).link(rate, link.count).bandwidth_bytes_per_s


def _loose_parts(graph: "nx.DiGraph[str]") -> Iterable[str]:
    """Nodes that no link, however indirect, joins to the first GPU."""
    joined = {ranks_of(graph)[0]}
    todo = list(joined)
    while todo:
        node = todo.pop()
        for other in (*graph.successors(node), *graph.predecessors(node)):
            if other not in joined:
                joined.add(other)
                todo.append(other)
    loose = [node for node in graph if node not in joined]
    if loose:
        others = f" (and {len(loose) - 1} more nodes)" if loose[1:] else ""
        yield f"{loose[0]} is joined to no GPU{others}: the topology falls into parts"


def _missing_paths(graph: "nx.DiGraph[str]") -> Iterable[str]:
    """GPUs without a route to others, given that GPUs and host memory do not forward."""
    ranks = ranks_of(graph)
    for gpu in ranks[:_MOST_STARTS]:
        reached = _distances(graph, gpu)
        lost = [other for other in ranks if other not in reached]
        if lost:
            others = f" and {len(lost) - 1} more GPUs" if len(lost) > 1 else ""
            yield f"{gpu} has no route to {lost[0]}{others}: GPUs and host memory do not forward unless they say transit"
            return


def _distances(graph: "nx.DiGraph[str]", start: str, avoid: tuple[str, ...] = ()) -> dict[str, tuple[int, int]]:
    """For each node a route reaches: its links, and the root complexes passed on the way (fewest links first)."""
    reached = {start: (0, 0)}
    front = [start]
    while front:
        following = []
        for node in front:
            if node != start and not may_transit(graph.nodes[node]):
                continue
            hops, roots = reached[node]
            roots += graph.nodes[node]["kind"] == ROOT_COMPLEX
            for other in graph.successors(node):
                if other not in reached and graph.nodes[other]["kind"] not in avoid:
                    reached[other] = (hops + 1, roots)
                    following.append(other)
        front = following
    return reached


def _far_nics(graph: "nx.DiGraph[str]") -> Iterable[str]:
    """GPUs whose nearest NIC is beyond a root complex, where GPUDirect is not used by default; NICs near to no GPU."""
    nics = {node for node in graph if graph.nodes[node]["kind"] == NIC}
    if not nics:
        return
    far: list[tuple[str, str, int]] = []
    without: list[str] = []
    nearest: dict[str, int] = {}
    ranks = ranks_of(graph)[:_MOST_STARTS]
    for gpu in ranks:
        reached = _distances(graph, gpu, avoid=(NETWORK_SWITCH, HOST_MEMORY))
        for node in nics & reached.keys():
            nearest[node] = min(nearest.get(node, _FAR), reached[node][1])
        near = min(((hops, roots, node) for node, (hops, roots) in reached.items() if node in nics), default=None)
        if near is None:
            without.append(gpu)
        elif near[1] and not _on_chip(graph, gpu):
            far.append((gpu, near[2], near[1]))
    idle = [nic for nic in graph if nic in nics and nearest.get(nic, 0) > 1]
    if idle and len(ranks) == len(ranks_of(graph)):
        others = f" (and {len(idle) - 1} more NICs)" if idle[1:] else ""
        yield f"{idle[0]} is beyond another socket for every GPU{others}: no GPU is near it"
    if without:
        yield f"{without[0]} reaches no NIC of its own machine" + (f" (and {len(without) - 1} more)" if without[1:] else "")
    if far:
        gpu, nic, roots = far[0]
        where = "another socket" if roots > 1 else "the root complex"
        others = f" (and {len(far) - 1} more GPUs are as far)" if far[1:] else ""
        yield f"{gpu} reaches its nearest NIC {nic} only through {where}: no GPUDirect there by NCCL's default{others}"


def _on_chip(graph: "nx.DiGraph[str]", gpu: str) -> bool:
    """Say whether a GPU is joined to its CPU by a chip-to-chip link, over which NCCL does use GPUDirect."""
    return any(data["link"].kind.startswith("c2c") for _, _, data in graph.out_edges(gpu, data=True))


def _narrow_slots(graph: "nx.DiGraph[str]") -> Iterable[str]:
    """NICs whose network port is faster than the slot they sit in."""
    narrow = []
    for nic in (node for node in graph if graph.nodes[node]["kind"] == NIC):
        rates: dict[bool, float] = {}
        for _, other, data in graph.out_edges(nic, data=True):
            network = graph.nodes[other]["kind"] == NETWORK_SWITCH
            rates[network] = max(rates.get(network, 0.0), data["link"].bandwidth_bytes_per_s)
        port: Link | None = graph.nodes[nic].get("port")
        wanted = rates.get(True, port.bandwidth_bytes_per_s if port is not None else 0.0)
        if wanted > _NARROW * rates.get(False, float("inf")):
            narrow.append((nic, wanted, rates[False]))
    if narrow:
        nic, wanted, slot = narrow[0]
        others = f" (and {len(narrow) - 1} more)" if narrow[1:] else ""
        yield f"{nic} could move {_short_rate(wanted)} but sits in a slot of {_short_rate(slot)}{others}"
