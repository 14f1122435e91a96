"""Find the tables in the text of `nvidia-smi topo`, however it was pasted: heads, rows, and how to read each row.

First step of the matrix importer. Terminal escapes, prompts, log prefixes, table bars, wrapped heads and rows, names and
cells that ran together and any order of columns are read; where a row can be read in several ways all are kept for
`topologies.smi_text`, which knows the other half of the matrix. Deliberately left out: what a cell means.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from netsim.errors import FabricError

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
    # The same after a terminal or a web page has eaten, replaced or spelled out the escape character.
    r"|(?:\^\[|\\e|\\033|\\x1b|[\ufffd\u241b\u2190])?\[[0-9;]{1,8}m"
)
# What logs, quotes and comments put before a line: each word of it ends where the next begins.
_PREFIX = re.compile(
    r"^(?:\s*(?:\[\d+,\d+\]\s*<std(?:out|err)>:?|\[[^\][]{1,64}\]:?|(?!(?:GPU|NIC)\d)[\w.@-]{1,64}:(?=\s)"
    r"|(?:\d{4}-)?\d\d-\d\d(?=[T ]\d\d:)|T?\d\d:\d\d:\d\d[\d.,+:-]*Z?(?=\s)|(?:DEBUG|INFO|WARN|ERROR)(?=\s)"
    r"|>|#|//))+"
)
_TITLES = (
    (re.compile(r"GPU\s*NUMA\s*ID"), "\x01gpu-numa"),
    (re.compile(r"CPU\s*Affinity"), "\x01cpu"),
    (re.compile(r"NUMA(?:\s*Affinity)?(?=\s|$|GPU|CPU|\x01)"), "\x01numa"),
)
_CELL = re.compile(r"X|NV[1-9]\d?|PIX|PXB|PHB|NODE|SYS|SOC")
_STATUS = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")
_GPU = re.compile(r"GPU(\d{1,4})")
_NUMBERED = re.compile(r"(?:GPU|NIC)\d{1,4}")
_DEVICE = re.compile(r"[A-Za-z][\w.:-]*\d\w*")
_LABEL = re.compile(rf"\s*((?:GPU|NIC)\d{{1,4}}|[A-Za-z][\w.-]*?\d+)(?=\s*(?:{_CELL.pattern}))")
_MOST_DEVICES = 256
_MOST_LABELS = 2048
_ACCEPTED = "X, NV#, PIX, PXB, PHB, NODE, SYS"

Cells = list[str]


@dataclass
class Row:
    """One row: where it stood, and each way to read its cells with what is left of the line behind them."""

    line: int
    readings: list[tuple[Cells, list[str]]]


@dataclass
class Grid:
    """One table of the text: its columns in order (titles begin with a control character) and its rows."""

    line: int
    columns: list[str]
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def devices(self) -> list[str]:
        """Names of the columns that are devices."""
        return [name for name in self.columns if not name.startswith("\x01")]


def read_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, numbered, without escapes, prefixes and bars; titles are single words."""
    plain = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    for number, line in enumerate(plain.split("\n"), 1):
        words = "".join(letter if letter.isprintable() else " " for letter in re.sub(r"[|│┃]", " ", line))
        words = _PREFIX.sub("", words, count=1)
        for pattern, mark in _TITLES:
            words = pattern.sub(f" {mark} ", words)
        if words.strip():
            yield number, words


def is_head(words: str) -> bool:
    """Say whether a line is a head: a GPU, nothing but names and titles, and no cell."""
    return any(_GPU.match(token) for token in words.split()) and _names_only(words)


def _names_only(words: str) -> bool:
    return all(
        token.startswith("\x01") or (_DEVICE.fullmatch(token) is not None and "X" not in _pieces(token))
        for token in words.split()
    )


def _pieces(token: str) -> list[str]:
    """Return what follows a leading device name, to tell ``GPU0GPU1`` from ``GPU0X``."""
    match = _NUMBERED.match(token)
    rest = token[match.end() :] if match else ""
    return ["X"] if _CELL.match(rest) else []


def read_grids(text: str, where: str) -> tuple[list[Grid], set[str]]:
    """Collect the link matrices of a text, and the cells of any status table."""
    lines = list(read_lines(text))
    labels = {match[1] for _, words in lines if not is_head(words) and (match := _LABEL.match(words))}
    if len(labels) > _MOST_LABELS:
        raise FabricError(f"{where}: more than {_MOST_LABELS} different devices have rows; one machine has fewer")
    grids: list[Grid] = []
    status: set[str] = set()
    grid: Grid | None = None
    index = 0
    while index < len(lines):
        number, words = lines[index]
        index += 1
        begun = grid is not None and grid in grids and not grid.rows
        if is_head(words) or (begun and _names_only(words)):
            columns = _columns(words, labels)
            if grid is not None and begun:
                grid.columns.extend(columns)  # a head that the terminal wrapped
            else:
                grid = Grid(number, columns)
                grids.append(grid)
            if len(grid.columns) > _MOST_DEVICES:
                raise FabricError(f"{where}: line {number}: more than {_MOST_DEVICES} columns; one machine has fewer")
            continue
        name = None if grid is None else _row_name(words, grid, labels)
        if grid is None or name is None:
            continue
        rest = words.strip()[len(name) :]
        tokens = rest.split()
        states = _STATUS.findall("".join(tokens))
        if states and "".join(states) == "".join(tokens) and set(states) != {"X"}:
            status.update(states)
            if grid in grids and not grid.rows:
                grids.remove(grid)
            continue
        while index < len(lines) and _continues(lines[index][1], tokens, grid):
            tokens += lines[index][1].split()
            index += 1
        if name in grid.rows:
            raise FabricError(f"{where}: line {number}: a second row of {name}; each device has one")
        grid.rows[name] = Row(number, _readings(tokens, grid, name, f"{where}: line {number}"))
    return [grid for grid in grids if grid.rows], status


def _columns(words: str, labels: set[str]) -> list[str]:
    """Split a head into names and titles; names that ran together are split by what the rows are called."""
    columns: list[str] = []
    for token in words.split():
        if token.startswith("\x01") or token in labels:
            columns.append(token)
        else:
            columns.extend(_split_names(token, sorted(labels, key=len, reverse=True)) or [token])
    return columns


def _split_names(token: str, labels: list[str]) -> list[str] | None:
    """Return the names that a token consists of, None if there is no way."""
    numbered = _NUMBERED.findall(token)
    if "".join(numbered) == token:
        return numbered
    for label in labels:
        if token == label:
            return [label]
        if token.startswith(label) and (rest := _split_names(token[len(label) :], labels)):
            return [label, *rest]
    return None


def _row_name(words: str, grid: Grid, labels: set[str]) -> str | None:
    """Return the device that a line is the row of: the longest known name it begins with."""
    line = words.strip()
    known = [name for name in (*grid.devices, *labels) if line.startswith(name)]
    if not known or "=" in line.split()[:2]:
        return None
    name = max(known, key=len)
    rest = line[len(name) :]
    return name if not rest or rest[0].isspace() or _CELL.match(rest) else None


def _continues(words: str, tokens: list[str], grid: Grid) -> bool:
    """Say whether a line goes on with a row that the terminal wrapped: cells are missing and it begins with one."""
    first = words.split()[0]
    return len(tokens) < len(grid.devices) and _CELL.fullmatch(first) is not None and "=" not in words


def _readings(tokens: list[str], grid: Grid, name: str, place: str) -> list[tuple[Cells, list[str]]]:
    """Return every way to take the cells of a row from its words; usually there is exactly one."""
    leading: list[str] = []
    words = list(tokens)
    titles = 0
    while titles < len(grid.columns) and grid.columns[titles].startswith("\x01"):
        titles += 1
    if words and not _CELL.match(words[0]):
        # Affinity columns that stand before the cells.
        for _ in range(titles):
            leading.extend(take_list(words))
    wanted = len(grid.devices)
    readings = [(cells, leading + rest) for cells, rest in _take(words, wanted)]
    if readings:
        return readings
    found = 0
    for word in words:
        if not _CELL.fullmatch(word):
            break
        found += 1
    if found == len(words):
        raise FabricError(
            f"{place}: the row of {name} has {found} cell{'s' * (found != 1)} where the head names {wanted} devices; "
            "is the text cut off?"
        )
    raise FabricError(f"{place}: the row of {name} has the cell {words[found][:40]!r}; accepted are {_ACCEPTED}")


def _take(words: list[str], wanted: int) -> list[tuple[Cells, list[str]]]:
    """Take so many cells from the front of some words, splitting words in which cells ran together."""
    if wanted == 0:
        return [([], words)]
    if not words:
        return []
    cells: Cells = []
    for index, word in enumerate(words[:wanted]):
        if not _CELL.fullmatch(word):
            found = []
            for parts, rest in _split_cells(word, wanted - index):
                left = wanted - index - len(parts)
                if rest and left:
                    continue
                found += [
                    (cells + parts + more, ([rest] if rest else []) + tail) for more, tail in _take(words[index + 1 :], left)
                ]
            return found
        cells.append(word)
    return [(cells, words[wanted:])] if len(cells) == wanted else []


def _split_cells(word: str, most: int) -> Iterator[tuple[Cells, str]]:
    """Yield each way to read a word as one to `most` cells and a rest that begins with no letter."""
    for length in range(1, 5):
        first, rest = word[:length], word[length:]
        if len(first) < length or not _CELL.fullmatch(first):
            continue
        if not rest or rest[0].isdigit() or rest.startswith("N/A"):
            yield [first], rest
        if rest and most > 1:
            for cells, tail in _split_cells(rest, most - 1):
                yield [first, *cells], tail


def take_list(words: list[str]) -> list[str]:
    """Take one affinity from the front of some words: a list keeps its parts also where blanks follow its commas."""
    value = ""
    while words:
        value += words.pop(0)
        if not value.endswith(",") and not (words and words[0].startswith(",")):
            break
    return [value] if value else []
