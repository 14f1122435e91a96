"""Topology of a real machine from a distance matrix: the text of `nvidia-smi topo -m` or of `rocm-smi --showtopo`.

Second half of the matrix importer: a distance table (`topologies.smi_text`, `topologies.rocm_text`) to a graph. NV# is
the number of NVLinks between two GPUs: direct links, or one NVSwitch node where a group of GPUs shows each pair the
same count and more of them in sum than any GPU has. PIX, PXB, PHB, NODE and SYS are distances, from which the PCIe tree
follows: switches, a root complex with host memory a NUMA node, links between all root complexes. The text tells neither
generations nor widths nor kinds of CPU: they are taken from the profiles given, else from what machines with so many
NVLinks have, and every such assumption is one of the graph's ``remarks``. Deliberately left out: host bridges inside a
NUMA node (PHB and NODE are one distance here), which NUMA nodes share a socket, NIC speeds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import GPU, NIC, NVSWITCH, PCIE_SWITCH, Link, check_fabric
from netsim.reading import read_regular
from topologies.distances import NODE, PHB, Table, Tree, tree_of
from topologies.profiles import Profile, load_profile
from topologies.rocm_text import holds_rocm_topology, parse_rocm
from topologies.smi_text import holds_smi_matrix, parse_smi
from topologies.wiring import add_socket, join

if TYPE_CHECKING:
    import networkx as nx

_MOST_BYTES = 1 << 20
# NVLinks a GPU has, as published: P100 4, V100 6, A100 12, H100 and B200 18; bridges of GA102 boards 4, of TU102 1 or 2,
# A800 and H800 8. More than 18 in sum over the pairs is only possible behind a switch.
_MOST_NVLINKS = 18
_MOST_XGMI = 7
_USUAL_NVLINKS = (1, 2, 4, 6, 8, 12, 18)
# What the rest of such a machine has: DGX-1 and DGX-2 Gen3 and Intel, DGX A100 Gen4 and AMD, DGX H100 Gen5 and Intel.
_PCIE_OF = {1: "pcie3", 2: "pcie3", 3: "pcie4", 4: "pcie5", 5: "pcie5"}
_SOCKET_OF = {"pcie3": "socket_intel_skylake", "pcie4": "socket_amd", "pcie5": "socket_intel_sapphire_rapids"}
_FIRST_IN_NETWORK = 4


def load_matrix(
    path: str | Path, *, rate: str = "effective", profiles: Mapping[str, Profile] | None = None
) -> "nx.DiGraph[str]":
    """Load a machine from a text file that holds a distance matrix, or an NCCL topology under another name than ``.xml``.

    Parameters
    ----------
    path : str or Path
        The text, pasted or saved, of either tool.
    rate : {"effective", "line"}
        Which rate of the link profiles to use.
    profiles : mapping from family to Profile, optional
        What the machine's links are (families ``nvlink``, ``xgmi``, ``pcie``, ``socket``, ``c2c``, ``memory``); for the
        others a default is taken with a remark.

    Returns
    -------
    networkx.DiGraph
        GPUs keep their numbers (``gpu3``) and are ranks in that order; ``remarks`` lists what was assumed.

    Raises
    ------
    FabricError
        If the file holds neither text, or one that cannot be read without a guess.
    """
    source = Path(path)
    text = _decode(read_regular(source, _MOST_BYTES, FabricError, "what nvidia-smi topo -m prints is wanted"))
    if text.lstrip().startswith("<") and "<system" in text:
        from topologies.nccl_xml import load_nccl_xml

        return load_nccl_xml(source, rate=rate, stated=profiles or ())
    if holds_rocm_topology(text):
        table, amd = parse_rocm(text, str(source)), True
    elif holds_smi_matrix(text):
        table, amd = parse_smi(text, str(source)), False
    else:
        raise FabricError(
            f"{source}: holds neither the matrix of `nvidia-smi topo -m` nor the tables of `rocm-smi --showtopo`; "
            "NCCL topologies end in .xml, descriptions in .yaml or .yml"
        )
    graph = matrix_topology(table, amd=amd, rate=rate, profiles=profiles)
    graph.graph["name"] = source.stem
    check_fabric(graph)
    return graph


def _decode(data: bytes) -> str:
    """Return text whatever wrote it; Windows shells write UTF-16 with a mark."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def matrix_topology(
    table: Table, *, amd: bool = False, rate: str = "effective", profiles: Mapping[str, Profile] | None = None
) -> "nx.DiGraph[str]":
    """Build the machine that a distance table describes; see `load_matrix`."""
    import networkx as nx

    names = {name: _node_name(name) for name in table.devices}
    graph: nx.DiGraph[str] = nx.DiGraph(ranks=tuple(names[gpu] for gpu in table.gpus))
    graph.add_nodes_from(graph.graph["ranks"], kind=GPU, host="node0", **({"transit": True} if table.forwards else {}))
    tree = tree_of(table)
    switched = {name for group in _switched_groups(table) for name in group} if not amd else set()
    kinds = _Kinds(table, amd, switched, dict(profiles or {}), rate)
    _add_bonds(graph, table, names, kinds)
    _add_tree(graph, table, tree, names, kinds)
    if table.staged:
        # No peer-to-peer access but over NVLink, by NCCL's name for that distance.
        graph.graph["p2p"] = "NVL"
    graph.graph["remarks"] = tuple(dict.fromkeys(table.remarks + kinds.remarks()))
    return graph


def _node_name(name: str) -> str:
    return name.lower() if name.startswith(("GPU", "NIC")) else name


class _Kinds:
    """Which profile each family of links takes, and what had to be assumed for it."""

    def __init__(self, table: Table, amd: bool, switched: set[str], profiles: dict[str, Profile], rate: str) -> None:
        self.rate = rate
        self.amd = amd
        self.given = profiles
        self.assumed: dict[str, tuple[str, str]] = {}
        self.used: list[str] = []
        totals = _link_totals(table, switched)
        self.most = max(totals.values(), default=0)
        partners = max((sum(gpu in pair for pair in table.bonds) for gpu in table.gpus), default=0)
        # Grace-Blackwell hangs on switches; the 18 links of a Grace-Hopper board of four lead to the three others.
        self.blackwell = self.most == _MOST_NVLINKS and not switched.isdisjoint(table.coherent)
        self.generation = 5 if self.blackwell else _generation(self.most, partners)
        stated = profiles.get("nvlink")
        if stated is not None and stated.name.startswith("nvlink") and stated.name[6:7].isdigit():
            self.generation = int(stated.name[6])
        self.in_network = self.generation >= _FIRST_IN_NETWORK
        self._choose(table, partners)

    def _choose(self, table: Table, partners: int) -> None:
        """Settle the defaults and the words that say why."""
        if self.amd:
            # Seven xgmi links came with the generation of MI300X, on PCIe Gen5.
            name, pcie = ("xgmi4", "pcie5") if partners >= _MOST_XGMI else ("xgmi3", "pcie4")
            self.assumed["xgmi"] = (name, "the text does not tell the generation of the xgmi links")
            why = "the text tells neither the generation nor the width of PCI Express"
        else:
            # Only GA102 boards have bridges of four links between two GPUs and no other; V100 boards have 6 links a GPU.
            name = "nvlink3_ga102" if self.generation == 3 and self.most <= 4 else f"nvlink{self.generation}"
            count = f"with {self.most} NVLinks a GPU" if self.most else "without NVLink"
            self.assumed["nvlink"] = (name, "the text does not tell the generation of the NVLinks")
            pcie = _PCIE_OF.get(self.generation, "pcie5") if self.most else "pcie4"
            why = f"the text tells neither the generation nor the width of PCI Express; machines {count} often have this one"
        self.assumed["pcie"] = (pcie, why)
        if table.coherent:
            self.assumed["socket"] = ("socket_arm", "the text does not tell the link between CPUs")
        else:
            stated = self.given["pcie"].name if "pcie" in self.given else pcie
            self.assumed["socket"] = (
                _SOCKET_OF.get(stated, _SOCKET_OF[pcie]),
                "the text tells neither the CPUs nor which NUMA nodes share one, so that every two nodes have a link",
            )
        chip = "c2c_gb200" if self.blackwell else "c2c_gh200"
        self.assumed["c2c"] = (chip, "GPU NUMA ID says that GPU memory is coherent, over a link of unknown rate")
        # Only staged traffic meets host memory.
        self.assumed["memory"] = ("host_memory", "the text does not tell the rate of host memory" if table.staged else "")

    def link(self, family: str, count: int = 1) -> Link:
        """Return a link of a family, by the profile given or the default."""
        if family not in self.used:
            self.used.append(family)
        profile = self.given.get(family) or load_profile(self.assumed[family][0])
        return profile.link(self.rate, count=count)

    def remarks(self) -> list[str]:
        """Say what was assumed for the families in use that nobody stated."""
        return [
            f"{self.assumed[family][1]}; taken as {self.assumed[family][0]}{' x16' if family == 'pcie' else ''} "
            "(--profile states another)"
            for family in self.used
            if family not in self.given and self.assumed[family][1]
        ]


def _generation(most: int, partners: int) -> int:
    """Guess the NVLink generation from the most links that a GPU shows and how many GPUs share them."""
    if most > 12:
        return 4
    if most > 6 or (most in (3, 4) and partners == 1):
        return 3  # with up to four links: a bridge of GA102 boards
    return 1 if most == partners == 4 else 2


def _link_totals(table: Table, switched: set[str]) -> dict[str, int]:
    """Return the NVLinks of each GPU: what it has to a switch, or the sum over its pairs."""
    totals = dict.fromkeys(table.gpus, 0)
    for pair, count in table.bonds.items():
        for gpu in pair:
            totals[gpu] = max(totals[gpu], count) if gpu in switched else totals[gpu] + count
    return {gpu: total for gpu, total in totals.items() if total}


def _switched_groups(table: Table) -> list[list[str]]:
    """Return the groups of GPUs that hang on NVSwitches: more links in sum than a GPU has, or 18 to a single other.

    No bridge joins two GPUs by 18 links; with fewer a pair is taken as joined directly.
    """
    groups: list[list[str]] = []
    todo = list(table.gpus)
    while todo:
        group, front = [todo[0]], [todo[0]]
        while front:
            front = [gpu for gpu in todo if gpu not in group and any(_bond(table, gpu, other) for other in front)]
            group.extend(front)
        todo = [gpu for gpu in todo if gpu not in group]
        totals = [sum(_bond(table, gpu, other) for other in group) for gpu in group]
        if max(totals) > _MOST_NVLINKS or (len(group) == 2 and totals[0] == _MOST_NVLINKS):
            groups.append(sorted(group, key=table.gpus.index))
    return groups


def _bond(table: Table, a: str, b: str) -> int:
    return table.bonds.get((a, b), 0) or table.bonds.get((b, a), 0)


def _add_bonds(graph: "nx.DiGraph[str]", table: Table, names: Mapping[str, str], kinds: _Kinds) -> None:
    """Join GPUs by a switch or directly, and note counts that look doubtful."""
    family = "xgmi" if kinds.amd else "nvlink"
    groups = [] if kinds.amd else _switched_groups(table)
    for index, group in enumerate(groups):
        _add_switch(graph, table, group, "nvswitch" if index == 0 else f"nvswitch{index}", names, kinds)
    switched = {name for group in groups for name in group}
    direct = {pair: count for pair, count in table.bonds.items() if pair[0] not in switched}
    for (a, b), count in direct.items():
        join(graph, names[a], names[b], kinds.link(family, count))
    if kinds.amd:
        return
    if any((a, b) not in table.bonds for a, b in _meshed(table, direct)):
        table.remarks.append(
            "NVLinks join some GPUs only through a third one, which does not forward here; NCCL may let it "
            "(nvb: true in a description)"
        )
    if len(table.gpus) == 2 and direct:
        table.remarks.append(
            f"{table.gpus[0]} - {table.gpus[1]}: a bridge and an NVSwitch look alike with two GPUs; taken as joined directly"
        )
    odd = {gpu: total for gpu, total in _link_totals(table, switched).items() if total not in _USUAL_NVLINKS}
    if odd:
        gpu, total = next(iter(odd.items()))
        others = f" (and {len(odd) - 1} more GPUs likewise)" if len(odd) > 1 else ""
        table.remarks.append(
            f"{gpu} shows {total} NVLinks{others}, a count no GPU is sold with ({', '.join(map(str, _USUAL_NVLINKS))}): a "
            "link may be down, a bridge not seated, or not all GPUs visible"
        )


def _meshed(table: Table, direct: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """Return every two GPUs that have direct links to a common third one."""
    beside: dict[str, set[str]] = {gpu: set() for gpu in table.gpus}
    for a, b in direct:
        beside[a].add(b)
        beside[b].add(a)
    return [(a, b) for a, b in table.pairs() if beside.get(a, set()) & beside.get(b, set())]


def _add_switch(
    graph: "nx.DiGraph[str]", table: Table, group: list[str], node: str, names: Mapping[str, str], kinds: _Kinds
) -> None:
    """Add one node for a layer of NVSwitches; each GPU has as many links to it as its widest pair shows."""
    graph.add_node(node, kind=NVSWITCH, host="node0", multicast=kinds.in_network, reduce=kinds.in_network)
    counts = {gpu: max(_bond(table, gpu, other) for other in group) for gpu in group}
    # A pair shows the smaller of both counts, so a GPU with fewer links makes all of its pairs narrower.
    narrow = {gpu: max(_bond(table, gpu, other) for other in group if other != gpu) for gpu in group}
    odd = [
        (a, b)
        for index, a in enumerate(group)
        for b in group[index + 1 :]
        if _bond(table, a, b) != min(narrow[a], narrow[b])
    ]
    if odd:
        a, b = odd[0]
        others = f" (and {len(odd) - 1} more pairs)" if odd[1:] else ""
        table.remarks.append(
            f"{a} - {b} shows {_bond(table, a, b)} NVLinks{others} where both have {min(narrow[a], narrow[b])} to an "
            "NVSwitch; taken as joined by the switch with all of them"
        )
    for gpu in group:
        join(graph, names[gpu], node, kinds.link("nvlink", counts[gpu]))
    if kinds.in_network:
        table.remarks.append(f"the NVSwitch is taken to multicast and to reduce, as that of NVLink {kinds.generation} can")


def _add_tree(graph: "nx.DiGraph[str]", table: Table, tree: Tree, names: Mapping[str, str], kinds: _Kinds) -> None:
    """Add root complexes with their memories, PCIe switches, NICs, and the links from there to the devices."""
    parents: dict[str, str] = {}
    roots: list[str] = []
    for root, memory, group in zip(*_root_names(table, tree, names), tree.roots, strict=True):
        add_socket(graph, root, memory, "node0", kinds.link("memory"))
        roots.append(root)
        parents.update(dict.fromkeys(group, root))
    count = 0
    for groups in (tree.cascades, tree.switches):
        for group in groups:
            above = parents[group[0]]
            if groups is tree.switches and group in tree.cascades:
                continue  # one switch and no cascade
            name = f"pcie_switch{count}"
            count += 1
            graph.add_node(name, kind=PCIE_SWITCH, host="node0")
            join(graph, name, above, kinds.link("pcie"))
            parents.update(dict.fromkeys(group, name))
    for nic in table.nics:
        graph.add_node(names[nic], kind=NIC, host="node0", ports=(table.ports.get(nic, nic),), port=None)
        join(graph, names[nic], parents[nic], kinds.link("pcie"))
    root_of = {name: root for root, group in zip(roots, tree.roots, strict=True) for name in group}
    for gpu in table.gpus:
        if gpu in table.coherent:
            join(graph, names[gpu], root_of[gpu], kinds.link("c2c"))
        else:
            join(graph, names[gpu], parents[gpu], kinds.link("pcie"))
    for index, a in enumerate(roots):
        for b in roots[index + 1 :]:
            join(graph, a, b, kinds.link("socket"))
    _remark_rest(table, tree)


def _root_names(table: Table, tree: Tree, names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Name root complexes by their NUMA nodes where these are told and distinct, else by position or by a NIC."""
    numbers = [{table.numa[name] for name in group if name in table.numa} for group in tree.roots]
    with_gpus = [any(name in table.gpus for name in group) for group in tree.roots]
    told = [min(found) for found in numbers if len(found) == 1]
    by_numa = len(told) == sum(with_gpus) == len(set(told))
    marks: list[str] = []
    for found, gpus, group in zip(numbers, with_gpus, tree.roots, strict=True):
        if not gpus:
            marks.append(f"_{names[group[0]]}")
        else:
            marks.append(str(min(found) if by_numa else sum(with_gpus[: len(marks)])))
    return [f"cpu{mark}" for mark in marks], [f"memory{mark}" for mark in marks]


def _remark_rest(table: Table, tree: Tree) -> None:
    """Note NICs that are at SYS distance from every GPU, and what of the host side the text leaves open."""
    apart = [name for group in tree.roots if not any(gpu in group for gpu in table.gpus) for name in group]
    if apart:
        some = ", ".join(apart[:4]) + (f" and {len(apart) - 4} more" if apart[4:] else "")
        table.remarks.append(f"{some}: at SYS distance from every GPU; given a root complex of their own")
    between = [distance for (a, b), distance in table.distances.items() if a in table.gpus and b in table.gpus]
    if not table.staged and max(between, default=0) >= PHB:
        table.remarks.append(
            "the text does not tell whether GPUs reach each other's memory beyond a host bridge, where NCCL does not try by "
            "default; taken as yes (p2p: PXB in a description says no)"
        )
    if NODE in table.distances.values():
        table.remarks.append("NODE is taken as PHB: what joins the host bridges of a NUMA node is taken not to limit")
    if table.nics:
        table.remarks.append("the text does not tell how fast the NICs are; name their kind with --nic to use them")
