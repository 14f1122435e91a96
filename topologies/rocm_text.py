"""Read the text of `rocm-smi --showtopo` into a distance table.

First half of the importer for AMD machines. Four tables count: the link type and the hops (or else the weight) between
two GPUs, and the NUMA node of each GPU. Weights are the kernel driver's: 15 (older 13) a hop over xgmi, 20 for a
PCI Express link of a GPU, and between NUMA nodes the system's distance, so that two GPUs of one node are at 40 and more
means different nodes. The text says neither how many xgmi links join two GPUs nor where PCIe switches and NICs are.
Most releases count any way over xgmi as one hop, so that the weight has the last word on which GPUs have a link.
"""

import re

from netsim.errors import FabricError
from topologies.distances import NODE, PIX, SYS, Table
from topologies.smi_grid import read_lines

_TITLE = re.compile(r"=+\s*([^=]*?)\s*=+")
_GPU = re.compile(r"GPU(\d{1,4})")
_NUMA = re.compile(r"GPU\s?\[?(\d{1,4})\]?\s*:\s*\(Topology\)\s*Numa Node:\s*(-?\d{1,4})")
_SECTIONS = {"link type between two gpus": "type", "hops between two gpus": "hops", "weight between two gpus": "weight"}
_SAME_NODE_WEIGHT = 40
_XGMI_HOP_WEIGHTS = (15, 13)
_MOST_GPUS = 256

Grid = dict[tuple[str, str], str]


def holds_rocm_topology(text: str) -> bool:
    """Say whether a text looks like that of `rocm-smi --showtopo`."""
    titles = (match[1].lower() for _, line in read_lines(text) if (match := _TITLE.fullmatch(line.strip())))
    return any(title in _SECTIONS or title == "rocm system management interface" for title in titles)


def parse_rocm(text: str, where: str) -> Table:
    """Read the topology tables of a text.

    Parameters
    ----------
    text : str
        What was printed.
    where : str
        Where it comes from, for error messages.

    Returns
    -------
    topologies.distances.Table
        Bonds are xgmi links, one for each pair that is one hop apart.

    Raises
    ------
    FabricError
        If the table of link types is missing or incomplete, or a value is none that the tool prints; names the line.
    """
    grids, numa = _sections(text, where)
    types = grids.get("type")
    if not types:
        raise FabricError(f"{where}: has no table 'Link Type between two GPUs'; print it with rocm-smi --showtopo")
    gpus = sorted({name for pair in types for name in pair}, key=lambda name: int(name[3:]))
    table = Table(gpus)
    for gpu in gpus:
        if gpu in numa and numa[gpu] >= 0:
            table.numa[gpu] = numa[gpu]
            table.near[gpu] = str(numa[gpu])
    for a, b in table.pairs():
        kinds = {grid for pair in ((a, b), (b, a)) if (grid := types.get(pair)) is not None}
        if len(kinds) != 1:
            words = f"the link types {' and '.join(sorted(kinds))}" if kinds else "no link type"
            raise FabricError(f"{where}: {a} - {b} has {words} in the table; each pair of GPUs has one")
        kind = kinds.pop()
        hops, weight = (_number(grids.get(key, {}), a, b, key, where) for key in ("hops", "weight"))
        if kind == "XGMI" and _direct(hops, weight):
            table.bonds[a, b] = 1
        elif kind == "PCIE":
            distance = _distance(hops, weight)
            if distance is not None:
                table.distances[a, b] = distance
    _remark(table, grids, where)
    return table


def _sections(text: str, where: str) -> tuple[dict[str, Grid], dict[str, int]]:
    """Return the tables by what they hold, and the NUMA node of each GPU."""
    grids: dict[str, Grid] = {}
    numa: dict[str, int] = {}
    current: Grid | None = None
    columns: list[str] = []
    for number, line in read_lines(text):
        title = _TITLE.fullmatch(line.strip())
        if title:
            key = _SECTIONS.get(title[1].lower())
            current, columns = (None, []) if key is None else (grids.setdefault(key, {}), [])
            continue
        node = _NUMA.search(line)
        if node:
            gpu = f"GPU{int(node[1])}"
            if numa.setdefault(gpu, int(node[2])) != int(node[2]):
                raise FabricError(f"{where}: line {number}: a second NUMA node of {gpu}; a topology is one machine")
        words = line.split()
        if current is None or not words or not _GPU.fullmatch(words[0]):
            continue
        if all(_GPU.fullmatch(word) for word in words) and not columns:
            columns = words
            if len(columns) > _MOST_GPUS or len(set(columns)) != len(columns):
                raise FabricError(f"{where}: line {number}: the head names a GPU twice, or more than {_MOST_GPUS} of them")
            continue
        if len(words) != len(columns) + 1:
            raise FabricError(
                f"{where}: line {number}: the row of {words[0]} has {len(words) - 1} cells where the head names "
                f"{len(columns)} GPUs; is the text cut off?"
            )
        for column, word in zip(columns, words[1:], strict=True):
            if current.setdefault((words[0], column), word.upper()) != word.upper():
                raise FabricError(
                    f"{where}: line {number}: a second, different row of {words[0]} in such a table; a topology is one "
                    "machine, so keep one"
                )
    for kind in grids.get("type", {}).items():
        (a, b), word = kind
        if a != b and word not in ("XGMI", "PCIE", "N/A"):
            raise FabricError(
                f"{where}: the link type between {a} and {b} is {word[:40]!r}; accepted are XGMI, PCIE and N/A"
            )
    return grids, numa


def _number(grid: Grid, a: str, b: str, key: str, where: str) -> int | None:
    """Return the larger of a pair's two numbers; None where the table is missing or says N/A."""
    found = [word for pair in ((a, b), (b, a)) if (word := grid.get(pair)) not in (None, "N/A")]
    for word in found:
        if not re.fullmatch(r"\d{1,6}", str(word), re.ASCII):
            raise FabricError(f"{where}: the {key} between {a} and {b} is {str(word)[:40]!r}; a whole number is accepted")
    return max((int(str(word)) for word in found), default=None)


def _direct(hops: int | None, weight: int | None) -> bool:
    """Say whether a link joins two xgmi GPUs: newer tools count any way over xgmi as one hop, but weigh each."""
    several = weight is not None and any(weight > hop and weight % hop == 0 for hop in _XGMI_HOP_WEIGHTS)
    return not several and (hops is None or hops <= 1)


def _distance(hops: int | None, weight: int | None) -> int | None:
    """Say how far two GPUs on PCI Express are: one hop is a switch, two the CPU of both, more another NUMA node."""
    if hops is not None:
        return PIX if hops <= 1 else NODE if hops == 2 else SYS
    if weight is not None:
        return NODE if weight <= _SAME_NODE_WEIGHT else SYS
    return None


def _remark(table: Table, grids: dict[str, Grid], where: str) -> None:
    """Note what the text leaves open."""
    types = grids["type"]
    if table.bonds:
        table.remarks.append("the text does not say how many xgmi links join two GPUs; taken as one link a pair")
    far = [pair for pair in table.pairs() if types.get(pair, types.get(pair[::-1])) == "XGMI" and pair not in table.bonds]
    if far:
        a, b = far[0]
        others = f" (and {len(far) - 1} more pairs)" if far[1:] else ""
        table.forwards = True
        table.remarks.append(
            f"{a} - {b} is XGMI over several hops{others}: no link joins them; taken to go through other GPUs wherever "
            "that is no more links than over PCI Express (transit: true)"
        )
    nothing = [pair for pair in table.pairs() if types.get(pair, types.get(pair[::-1])) == "N/A"]
    if nothing:
        a, b = nothing[0]
        table.remarks.append(f"{a} - {b} has the link type N/A: peer-to-peer access is off; taken as PCI Express")
    if "hops" not in grids:
        table.remarks.append("the text has no table of hops; distances follow the weights and NUMA nodes")
