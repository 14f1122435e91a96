"""Read the text of `nvidia-smi topo -m` into a distance table.

Second step of the matrix importer, after `topologies.smi_grid` has found the rows; what the table means is
`topologies.smi_matrix`'s affair. A cell is placed by the names of its row and column only. Where the two halves of the
matrix differ, the slower reading is taken with a remark. A status table (`topo -p2p`) in the same paste is told apart by
its cells. Text that cannot be placed without a guess is refused with its line.
"""

import re
from collections.abc import Iterable

from netsim.errors import FabricError
from topologies.distances import NODE, PHB, PIX, PXB, SYS, Table
from topologies.smi_grid import Grid, Row, is_head, read_grids, read_lines, take_list

# SOC is what older drivers print for SYS.
_CLASSES = {"PIX": PIX, "PXB": PXB, "PHB": PHB, "NODE": NODE, "SYS": SYS, "SOC": SYS}
_GPU = re.compile(r"GPU(\d{1,4})")
_LEGEND = re.compile(r"\s*(NIC\d{1,4})\s*:\s*(\S+)\s*")


def holds_smi_matrix(text: str) -> bool:
    """Say whether a text looks like one that holds a matrix of `nvidia-smi topo`: a row of GPU names as its head."""
    return any(is_head(words) for _, words in read_lines(text))


def parse_smi(text: str, where: str) -> Table:
    """Read the first link matrix of a text.

    Parameters
    ----------
    text : str
        What was printed or pasted, with anything around it.
    where : str
        Where it comes from, for error messages.

    Returns
    -------
    topologies.distances.Table

    Raises
    ------
    FabricError
        If there is no link matrix, there are several different ones, or a row cannot be placed; names the line.
    """
    grids, status = read_grids(text, where)
    if not grids:
        only = "; it holds only the status table of `nvidia-smi topo -p2p`, which names no links" if status else ""
        raise FabricError(f"{where}: holds no matrix of `nvidia-smi topo -m` (a head of GPU names and a row for each){only}")
    grid = grids[0]
    if any(_content(other) != _content(grid) for other in grids[1:]):
        raise FabricError(
            f"{where}: line {grids[1].line}: a second, different matrix begins here; a topology is one machine, so keep one"
        )
    table = _table(grid, where)
    _add_legend(table, text)
    refused = sorted(status - {"OK", "X"})
    if refused:
        table.staged = "OK" not in status
        table.remarks.append(
            f"the text also holds a status table (topo -p2p) in which {'no' if table.staged else 'not every'} GPU reaches "
            f"another one directly ({', '.join(refused)}); "
            + (
                "what does not go over NVLink is staged in host memory"
                if table.staged
                else "which of them do is not taken from it"
            )
        )
    return table


def _content(grid: Grid) -> object:
    return grid.devices, {name: row.readings[0][0] for name, row in grid.rows.items()}


# From rows to a table


def _table(grid: Grid, where: str) -> Table:
    devices = grid.devices
    if len(set(devices)) != len(devices):
        twice = next(name for name in devices if devices.count(name) > 1)
        raise FabricError(f"{where}: line {grid.line}: the head names {twice} twice")
    for name in grid.rows:
        if name not in devices:
            raise FabricError(f"{where}: line {grid.rows[name].line}: {name} has a row but no column; is the head complete?")
    gpus = sorted((name for name in devices if _GPU.fullmatch(name)), key=lambda name: int(name[3:]))
    if not any(gpu in grid.rows for gpu in gpus):
        raise FabricError(f"{where}: line {grid.line}: no GPU has a row")
    table = Table(gpus, [name for name in devices if name not in gpus])
    cells = _cells(grid, where)
    bare = [name for name in devices if name not in grid.rows]
    if bare:
        table.remarks.append(
            f"{_listed(bare)} {'has' if len(bare) == 1 else 'have'} a column but no row; read from the others"
        )
    unequal: list[str] = []
    for a, b in table.pairs():
        found = {cell for cell in (cells.get((a, b)), cells.get((b, a))) if cell is not None}
        if not found:
            if a in gpus and b in gpus:
                raise FabricError(
                    f"{where}: neither {a} nor {b} has a row, so nothing tells what joins them; is the text cut off?"
                )
            continue
        if len(found) > 1:
            unequal.append(f"{a} - {b} ({' and '.join(sorted(found))})")
        slower = max(found, key=_slowness)
        if slower.startswith("NV"):
            if a not in gpus or b not in gpus:
                raise FabricError(f"{where}: {a} - {b} is {slower}, but NVLink joins GPUs only")
            table.bonds[a, b] = int(slower[2:])
        else:
            table.distances[a, b] = _CLASSES[slower]
    if unequal:
        table.remarks.append(f"the two halves of the matrix differ at {_listed(unequal)}; the slower reading is taken")
    _add_affinities(table, grid)
    return table


def _slowness(cell: str) -> tuple[int, int]:
    """Order cells from the fastest to the slowest."""
    return (0, -int(cell[2:])) if cell.startswith("NV") else (_CLASSES[cell], 0)


def _cells(grid: Grid, where: str) -> dict[tuple[str, str], str]:
    """Settle on one reading a row: it has its X where its name says, and agrees with the rows that leave no choice."""
    devices = grid.devices
    for name, row in grid.rows.items():
        position = devices.index(name)
        fitting = [reading for reading in row.readings if reading[0].index("X") == position] if _has_x(row) else []
        fitting = [reading for reading in fitting if reading[0].count("X") == 1]
        if not fitting:
            raise FabricError(
                f"{where}: line {row.line}: the row of {name} has no single X under its own name (column {position + 1}); "
                "cells have moved or are missing"
            )
        row.readings = fitting
    sure = {
        (name, other): cell
        for name, row in grid.rows.items()
        if len(row.readings) == 1
        for other, cell in zip(devices, row.readings[0][0], strict=True)
    }
    cells: dict[tuple[str, str], str] = {}
    for name, row in grid.rows.items():
        readings = row.readings
        if len(readings) > 1:
            readings = [
                reading
                for reading in readings
                if all(sure.get((other, name), cell) == cell for other, cell in zip(devices, reading[0], strict=True))
            ]
        different = {tuple(reading[0]) for reading in readings}
        if len(different) != 1:
            raise FabricError(
                f"{where}: line {row.line}: cells of the row of {name} ran together and can be read in "
                f"{len(row.readings)} ways; put blanks between them"
            )
        row.readings = readings[:1]
        cells.update({(name, other): cell for other, cell in zip(devices, readings[0][0], strict=True)})
    return cells


def _has_x(row: Row) -> bool:
    row.readings = [reading for reading in row.readings if "X" in reading[0]]
    return bool(row.readings)


def _add_affinities(table: Table, grid: Grid) -> None:
    """Read CPU and NUMA affinity and the GPUs' own NUMA nodes from what stands beside the cells."""
    titles = [column for column in grid.columns if column.startswith("\x01")]
    glued: list[str] = []
    for gpu in table.gpus:
        row = grid.rows.get(gpu)
        words = list(row.readings[0][1]) if row else []
        values: list[str] = []
        while words:
            values += take_list(words)
        if not values or not titles:
            continue
        if len(values) != len(titles):
            # One text for the GPUs of one NUMA node all the same.
            glued.append(gpu)
            table.near[gpu] = " ".join(values)
            continue
        named = dict(zip(titles, values, strict=True))
        numa = named.get("\x01numa", "N/A")
        near = numa if numa != "N/A" else named.get("\x01cpu", "N/A")
        if near != "N/A":
            table.near[gpu] = near
        if re.fullmatch(r"\d{1,4}", numa, re.ASCII):
            table.numa[gpu] = int(numa)
        if re.fullmatch(r"\d{1,4}", named.get("\x01gpu-numa", ""), re.ASCII):
            table.coherent.append(gpu)
    if glued:
        table.remarks.append(
            f"the affinity columns of {_listed(glued)} do not match the head; GPUs with the same text there are taken to "
            "sit on one NUMA node, others not"
        )


def _add_legend(table: Table, text: str) -> None:
    """Read ``NIC0: mlx5_0`` lines."""
    for _, words in read_lines(text):
        match = _LEGEND.fullmatch(words)
        if match and match[1] in table.nics:
            table.ports[match[1]] = match[2]


def _listed(names: Iterable[str]) -> str:
    """Name the first few of a list."""
    some = list(names)
    return ", ".join(some[:3]) + (f" and {len(some) - 3} more" if some[3:] else "")
