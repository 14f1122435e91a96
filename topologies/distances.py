"""How far the devices of one machine are from each other: what a distance table says, and the tree that follows from it.

Between the readers of distance tables (`topologies.smi_text`, `topologies.rocm_text`) and the graph builder
(`topologies.smi_matrix`). A table gives each pair of devices a class: under one PCIe switch, under cascaded switches,
under one root complex, or on different NUMA nodes. In a tree, two of the three distances among any three devices are
equal and the largest; that fills pairs which the table does not tell (GPUs joined by NVLink show the links instead) and
finds tables that contradict themselves. Deliberately left out: rates, and what the links are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# Classes of distance, nearest first; the names are those of NVIDIA's table.
PIX, PXB, PHB, NODE, SYS = 1, 2, 3, 4, 5
WORDS = {PIX: "PIX", PXB: "PXB", PHB: "PHB", NODE: "NODE", SYS: "SYS"}

_MOST_NAMED = 3


@dataclass
class Table:
    """What a text says about one machine; every pair is stored in the order of the devices."""

    gpus: list[str]
    """Names of the GPUs in rank order."""
    nics: list[str] = field(default_factory=list)
    """Names of the NICs in the order of the text."""
    bonds: dict[tuple[str, str], int] = field(default_factory=dict)
    """Direct or switched GPU links of a pair of GPUs, as many as the text says."""
    distances: dict[tuple[str, str], int] = field(default_factory=dict)
    """Class of distance of the pairs for which the text states one."""
    near: dict[str, str] = field(default_factory=dict)
    """GPU -> text that is equal for GPUs of one NUMA node."""
    numa: dict[str, int] = field(default_factory=dict)
    """GPU -> number of its NUMA node, where it is one number."""
    coherent: list[str] = field(default_factory=list)
    """GPUs whose memory is a NUMA node of its own: joined to their CPU by a chip-to-chip link."""
    ports: dict[str, str] = field(default_factory=dict)
    """NIC -> name of its network device."""
    staged: bool = False
    """Whether the text says that GPUs have no peer-to-peer access over PCI Express."""
    forwards: bool = False
    """Whether GPUs without a link between them reach each other through other GPUs."""
    remarks: list[str] = field(default_factory=list)
    """What had to be assumed or looks doubtful, one sentence each."""

    @property
    def devices(self) -> list[str]:
        """GPUs, then NICs."""
        return self.gpus + self.nics

    def pairs(self) -> Iterable[tuple[str, str]]:
        """Yield every two devices once, in the order of the devices."""
        names = self.devices
        for index, a in enumerate(names):
            for b in names[index + 1 :]:
                yield a, b


@dataclass(frozen=True)
class Tree:
    """Devices by NUMA node, cascade of PCIe switches, and single switch."""

    roots: list[list[str]]
    """Devices of each NUMA node."""
    cascades: list[list[str]]
    """Devices of two and more that share PCIe switches below their root complex."""
    switches: list[list[str]]
    """Devices of two and more that share one switch; each group lies within a cascade."""


def tree_of(table: Table) -> Tree:
    """Infer the PCIe tree, adding to the table's remarks what it does not tell.

    Parameters
    ----------
    table : Table
        Its `distances` may lack pairs; they are filled from the other pairs or from the NUMA nodes.

    Returns
    -------
    Tree
        Groups in the order of their first device.
    """
    known = _filled(table)
    names = table.devices
    tree = Tree(*(_groups(names, known, at_most) for at_most in (NODE, PXB, PIX)))
    _remark_contradictions(table, known, tree)
    for groups in (tree.cascades, tree.switches):
        groups[:] = [group for group in groups if len(group) > 1]
    return tree


def _filled(table: Table) -> dict[tuple[str, str], int]:
    """Return the distance of every pair."""
    known = dict(table.distances)
    by_device: dict[str, dict[str, int]] = {name: {} for name in table.devices}
    for (a, b), distance in table.distances.items():
        by_device[a][b] = by_device[b][a] = distance
    slots: list[tuple[str, str]] = []
    guessed: list[tuple[str, str]] = []
    for a, b in table.pairs():
        if (a, b) in known:
            continue
        beside = [(by_device[a][c], by_device[b][c]) for c in by_device[a].keys() & by_device[b].keys()]
        bound = min((max(pair) for pair in beside), default=SYS)
        exact = any(one != other and max(one, other) == bound for one, other in beside)
        if not exact and bound == SYS:
            # No third device tells; what is left is whether both name the same NUMA node.
            here, there = table.near.get(a), table.near.get(b)
            if here is None or there is None:
                guessed.append((a, b))
            bound = SYS if here is not None and there is not None and here != there else NODE
        if not exact and bound in (PHB, NODE):
            slots.append((a, b))
        known[a, b] = bound
    if guessed:
        table.remarks.append(
            f"neither the table nor an affinity column tells which NUMA node {_some(guessed)} sit on; taken as the same"
        )
    if slots:
        table.remarks.append(
            f"the PCIe distance of {_some(slots)} is not told (linked GPUs show their links instead); "
            "each is taken to have a slot of its own below the root complex"
        )
    return known


def _groups(names: list[str], known: dict[tuple[str, str], int], at_most: int) -> list[list[str]]:
    """Join devices that are at most so far from each other, and everything that is joined to them."""
    group_of = {name: [name] for name in names}
    for (a, b), distance in known.items():
        if distance <= at_most and group_of[a] is not group_of[b]:
            small, large = sorted((group_of[a], group_of[b]), key=len)
            large.extend(small)
            for name in small:
                group_of[name] = large
    order = {name: index for index, name in enumerate(names)}
    seen: dict[int, list[str]] = {}
    for name in names:
        seen.setdefault(id(group_of[name]), sorted(group_of[name], key=order.__getitem__))
    return list(seen.values())


def _remark_contradictions(table: Table, known: dict[tuple[str, str], int], tree: Tree) -> None:
    """Note pairs that end up nearer than the table says, and NUMA numbers that the distances contradict."""
    root, cascade, switch = (_index(groups) for groups in (tree.roots, tree.cascades, tree.switches))

    def nearer(a: str, b: str) -> bool:
        distance = known[a, b]
        return (
            (distance > NODE and root[a] == root[b])
            or (distance > PXB and cascade[a] == cascade[b])
            or (distance > PIX and switch[a] == switch[b])
        )

    _note(
        table,
        nearer,
        "is {distance} in the table, but other cells place both nearer to each other; the nearer reading is taken",
        known,
    )

    def split(a: str, b: str) -> bool:
        return table.numa.get(a, -1) == table.numa.get(b, -2) and known[a, b] == SYS

    _note(table, split, "is {distance} in the table although both name one NUMA node; the distance is taken", known)

    def merged(a: str, b: str) -> bool:
        return a in table.numa and b in table.numa and table.numa[a] != table.numa[b] and known[a, b] < SYS

    _note(table, merged, "is {distance} in the table although they name different NUMA nodes; the distance is taken", known)


def _note(table: Table, odd: Callable[[str, str], bool], words: str, known: dict[tuple[str, str], int]) -> None:
    found = [pair for pair in table.pairs() if odd(*pair)]
    if found:
        a, b = found[0]
        others = f" (and {len(found) - 1} more pairs)" if found[1:] else ""
        table.remarks.append(f"{a} - {b} {words.format(distance=WORDS[known[a, b]])}{others}")


def _index(groups: list[list[str]]) -> dict[str, int]:
    return {name: index for index, group in enumerate(groups) for name in group}


def _some(pairs: list[tuple[str, str]]) -> str:
    """Name the devices of some pairs."""
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    if len(names) <= _MOST_NAMED:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more devices"
