"""Read what NCCL_DEBUG=INFO printed: rings and trees, channels, NICs, the tuner's table and what ran at each size.

Tolerant: what is not known, torn or cut is passed over (and counted where it can be told), several ranks may speak at once,
and nothing has to be there. Reads the forms of NCCL 2.17 to 2.30; the subsystems INIT, GRAPH, TUNING and ENV hold all of it.
`netsim.nccl.log_comparison` holds a log against a communicator. Of nccl-tests only its list of ranks and the name of a test
are read; deliberately left out are its times and rows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from netsim.errors import NetsimError
from netsim.nccl.communicator import Ranks
from netsim.nccl.graphs import COLLNET_CHAIN, COLLNET_DIRECT, NVLS, RING, TREE
from netsim.nccl.log_facts import Connection, Log, Operation, Searched
from netsim.nccl.log_lines import Line, Thread, lines_of
from netsim.nccl.tuner_constants import ALGORITHMS, PROTOCOLS
from netsim.nccl.tuner_costs import TUNED
from netsim.nccl.version import Version
from netsim.reading import read_text

__all__ = ["Connection", "Log", "Operation", "Searched", "parse_log", "read_log"]

_MOST_BYTES = 512 << 20
_NO_RANK = -1

_VERSION = re.compile(r"(?:^|[\s>:\]])(NCCL|RCCL) version *:? *v?(\d+\.\d+(?:\.\d+)?)")
_LIBRARY = re.compile(r"nccl-library=(\d{5})\b")
_TEST = re.compile(r"# Collective test starting: (\w+?)_perf")
_TESTED = re.compile(r"#\s+Rank +(\d+) +(?:Group +(\d+) +)?Pid ")
_COMM = re.compile(r"comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+)")
_COMM_ID = re.compile(r"commId (0x[0-9a-f]+)")
_NODES = re.compile(r"nNodes (\d+) localRanks (\d+)")
_RING = re.compile(r"Channel (\d+)(?:/(\d+))? *: +(\d+(?: +\d+)*)")
_NEXT = re.compile(r"Ring (\d+) : (-?\d+) -> (\d+) -> (-?\d+)")
_TREE = re.compile(r"Tree (\d+) : (-?\d+) -> (\d+) -> (-?\d+(?:/-?\d+)*)")
_TREES = re.compile(r"\[(\d+)\] (-?\d+(?:/-?\d+)*)->(\d+)->(-?\d+(?:/-?\d+)*)(?=\s|$)")
_CONNECTION = re.compile(
    r"(?:Channel|Ring) (\d+)(?:/(\d+))? : (\d+)(?:\[\w+\])? -> (\d+)(?:\[\w+\])?(?: \[(send|receive)\])? via (\S.*)"
)
_NET = re.compile(r"NET/(.+?)/(\d+)(?:\((\d+)\))?(/GDRDMA)?(?:[/(].*)?")
_ABOUT_COMM = re.compile(r" +comm (0x[0-9a-f]+) nRanks \d+.*")
_COUNTS = re.compile(r"(\d+ [a-z0-9]+ channels(?: per peer)?(?:, )?)+")
_COUNT = re.compile(r"(\d+) ([a-z0-9]+) channels( per peer)?")
_GRAPH = re.compile(
    r"Pattern (\d+), crossNic (\d+), nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+), .*?type (\w+)/(\w+), sameChannels (\d)"
)
_ENVIRONMENT = re.compile(r"(NCCL_[A-Z0-9_]+) set by environment to (.*)")
_USE = re.compile(r"Connected all rings, use ring PXN (\d) GDR (\d)")
_OPERATION = re.compile(
    r"(?:([A-Za-z]+): )?(\d+) Bytes -> Algo (\w+) proto (\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}| time ([\d.]+(?:e[+-]?\d+)?))?"
)
_SPECIAL = re.compile(r"([A-Za-z]+) \[([A-Z][A-Za-z ]+)[^\]]*\]: (\d+) Bytes")
_CELL = re.compile(r"([\d.]+)/ *([\d.]+)")

_FUNCTIONS = {name.replace("_", ""): name for name in TUNED}
_ALGORITHMS = {name.replace("_", ""): name for name in ALGORITHMS} | {"collnet": COLLNET_DIRECT}


@dataclass
class _Found:
    """What was read of one communicator."""

    ranks: int = 0
    nodes: int | None = None
    ranks_per_node: int | None = None
    channels: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    graphs: dict[str, Searched] = field(default_factory=dict)
    rings: dict[int, Ranks] = field(default_factory=dict)
    following: dict[int, dict[int, int]] = field(default_factory=dict)
    trees: dict[int, dict[int, tuple[int, frozenset[int]]]] = field(default_factory=dict)
    connections: dict[Connection, None] = field(default_factory=dict)
    use: tuple[bool, bool] | None = None
    table: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)


def read_log(path: str | Path) -> Log:
    """Read a log from a file.

    Raises
    ------
    NetsimError
        If it cannot be read, or NCCL says nothing in it.
    """
    log = parse_log(read_text(path, _MOST_BYTES, wanted="a log printed with NCCL_DEBUG=INFO is wanted"))
    if log == Log(unread=log.unread):
        raise NetsimError(f"{path}: NCCL says nothing in it; a log printed with NCCL_DEBUG=INFO is wanted")
    return log


def parse_log(text: str) -> Log:
    """Read a log that is in memory already.

    Examples
    --------
    >>> said = "a:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"
    >>> list(parse_log(said).operations)[0].algorithm
    'ring'
    """
    reader = _Reader()
    for line in lines_of(text):
        reader.take(line)
    return reader.log()


class _Reader:
    """Collects what lines say, for each communicator apart."""

    def __init__(self) -> None:
        self.found: dict[str, _Found] = {}
        self.of_thread: dict[Thread, str] = {}
        self.of_pointer: dict[tuple[str, int, str], str] = {}
        self.guessed: dict[tuple[Thread, str], str] = {}
        self.columns: dict[Thread, list[tuple[str, str]]] = {}
        self.trees_read: dict[Thread, int] = {}
        self.test: str | None = None
        self.tested: dict[str, set[int]] = {}
        self.whole = Log()
        self.operations: dict[Operation, int] = {}
        self.special: dict[str, int] = {}
        self.environment: dict[str, str] = {}

    def take(self, line: Line) -> None:
        """Read a line; numbers that are none, such as 1..2 or thousands of digits, are torn."""
        try:
            self._take(line)
        except ValueError:
            self.whole.unread += 1

    def _take(self, line: Line) -> None:
        text = line.text
        if version := _VERSION.search(text):
            self._version(version[1], version[2])
        elif library := _LIBRARY.search(text):
            number = int(library[1])
            self._version("NCCL", f"{number // 10000}.{number // 100 % 100}.{number % 100}")
        elif test := _TEST.search(text):
            self.test = _FUNCTIONS.get(test[1].replace("_", ""))
        elif tested := _TESTED.search(text):
            self.tested.setdefault(tested[2] or "", set()).add(int(tested[1]))
        elif comm := _COMM.search(text):
            self._communicator(line, comm)
        elif text.startswith(("Channel ", "Ring ", "Tree ", "Trees ")):
            self._laid(line)
        elif counts := _COUNTS.fullmatch(text):
            self._of(line.thread).counts |= {name + per: int(count) for count, name, per in _COUNT.findall(counts[0])}
        elif graph := _GRAPH.match(text):
            self._graph(line.thread, graph)
        elif environment := _ENVIRONMENT.match(text):
            self.environment[environment[1]] = environment[2].strip().removesuffix(".")
        elif use := _USE.match(text):
            self._of(line.thread).use = (use[1] == "1", use[2] == "1")
        elif "|" in text and line.thread != Thread():
            self._row(line)
        elif " Bytes" in text:
            self._operation(text)

    def _version(self, maker: str, text: str) -> None:
        self.whole.maker, self.whole.release = maker, text
        try:
            self.whole.version = Version.parse(text)
        except NetsimError:
            self.whole.version = None

    def _communicator(self, line: Line, comm: re.Match[str]) -> None:
        """Take ranks and nodes; a line that begins a communicator makes its thread speak of that one from now on."""
        pointer = (line.thread.host, line.thread.process, comm[1])
        identity = _COMM_ID.search(line.text)
        if "Init START" in line.text and identity:
            self.of_thread[line.thread] = self.of_pointer[pointer] = identity[1]
            self.guessed.clear()
        elif "Destroy" in line.text or "Abort" in line.text:
            return
        key = self.of_pointer.setdefault(pointer, self.of_thread.get(line.thread, ""))
        found = self.found.setdefault(key, _Found())
        found.ranks = max(found.ranks, int(comm[3]))
        if nodes := _NODES.search(line.text):
            found.nodes = int(nodes[1])
            found.ranks_per_node = max(int(nodes[2]), found.ranks_per_node or 0)

    def _of(self, thread: Thread, pointer: str = "") -> _Found:
        """Return the communicator that a line is about, as far as that can be told."""
        key = self.of_pointer.get((thread.host, thread.process, pointer), self.of_thread.get(thread))
        if key is None:
            key = self.guessed.get((thread, pointer))
        if key is None:
            process = thread[:2]
            near = {of for other, of in self.of_thread.items() if other[:2] == process and other.device == thread.device}
            every = near or set(self.found) or {""}
            # Connections may be made late, by a thread that has begun no communicator: with several it stays open which.
            key = self.guessed[thread, pointer] = every.pop() if len(every) == 1 else "?"
        return self.found.setdefault(key, _Found())

    def _laid(self, line: Line) -> None:
        """Take a line about rings, trees or connections."""
        text, pointer = line.text, ""
        if about := _ABOUT_COMM.search(text):
            text, pointer = text[: about.start()], about[1]
        found = self._of(line.thread, pointer)
        if ring := _RING.fullmatch(text):
            found.rings[int(ring[1])] = tuple(map(int, ring[3].split()))
            found.channels = int(ring[2]) if ring[2] else found.channels
        elif after := _NEXT.fullmatch(text):
            found.following.setdefault(int(after[1]), {})[int(after[3])] = int(after[4])
        elif tree := _TREE.fullmatch(text):
            found.trees.setdefault(int(tree[1]), {})[int(tree[3])] = (int(tree[2]), _below(tree[4]))
        elif text.startswith("Trees "):
            for channel, first, rank, last in _TREES.findall(text):
                # Until 2.6 the rank above came first.
                up, down = (first, last) if "/" in last and "/" not in first else (last, first)
                found.trees.setdefault(int(channel), {})[int(rank)] = (int(up), _below(down))
        elif (connection := _CONNECTION.fullmatch(text)) and (read := _connection(connection)):
            # 1 and up are channels of sends and receives.
            if connection[2] in (None, "0"):
                found.connections[read] = None
        else:
            self.whole.unread += 1

    def _graph(self, thread: Thread, said: re.Match[str]) -> None:
        graphs = self._of(thread).graphs
        pattern, cross, channels, same = int(said[1]), int(said[2]), int(said[3]), said[8] == "1"
        kind = {4: RING, 5: NVLS, 6: COLLNET_DIRECT}.get(pattern, TREE)
        if kind == RING:
            self.trees_read[thread] = 0
        elif kind == TREE:
            # The chain of CollNet has the pattern of a tree, and follows it.
            self.trees_read[thread] = self.trees_read.get(thread, 0) + 1
            kind = TREE if self.trees_read[thread] == 1 else COLLNET_CHAIN
        read = Searched(pattern, cross, channels, float(said[4]), float(said[5]), said[6], said[7], same)
        graphs.setdefault(kind, read)

    def _row(self, line: Line) -> None:
        """Take a line of the tuner's table: since 2.19 in blocks of algorithms, before in one."""
        head, *cells = (cell.strip() for cell in line.text.split("|"))
        cells = cells[:-1] if cells and not cells[-1] else cells
        if head == "Algorithm":
            known = [_ALGORITHMS.get(_folded(cell)) for cell in cells if cell]
            self.columns[line.thread] = [(name or "", protocol) for name in known for protocol in PROTOCOLS]
        elif head == "Latency/AlgBw":
            pairs = [[_folded(part) for part in cell.split("/")] for cell in cells]
            self.columns[line.thread] = [(_ALGORITHMS.get(pair[0], ""), pair[-1]) for pair in pairs]
        elif _folded(head) in _FUNCTIONS:
            table = self._of(line.thread).table
            for (algorithm, protocol), cell in zip(self.columns.get(line.thread, ()), cells, strict=False):
                read = _CELL.fullmatch(cell)
                if read and algorithm and protocol in PROTOCOLS:
                    table[_FUNCTIONS[_folded(head)], algorithm, protocol] = (float(read[1]), float(read[2]))

    def _operation(self, text: str) -> None:
        if special := _SPECIAL.match(text):
            self.special[special[2]] = self.special.get(special[2], 0) + 1
            return
        said = _OPERATION.match(text)
        if not said:
            self.whole.unread += " Bytes -> " in text
            return
        algorithm, protocol = _named(said[3], ALGORITHMS, _ALGORITHMS), _named(said[4], PROTOCOLS, {})
        collective = _FUNCTIONS.get(_folded(said[1])) if said[1] else self.test
        if not algorithm or not protocol or (said[1] and not collective) or not (said[5] or said[7]):
            self.whole.unread += 1
            return
        channels = int(said[6]) - int(said[5]) + 1 if said[5] else None
        ran = Operation(collective, int(said[2]), algorithm, protocol, channels, float(said[7]) if said[7] else None)
        self.operations[ran] = self.operations.get(ran, 0) + 1

    def log(self) -> Log:
        """Return everything, with what belongs to the largest communicator."""
        begun = [found for found in self.found.values() if found.ranks]
        found = max(begun or self.found.values(), key=lambda one: (one.ranks, len(one.rings)), default=_Found())
        ranks = found.ranks or _ranks_of(found) or _tested(self.tested)
        rings = {channel: ring for channel, ring in found.rings.items() if _whole(ring, ranks)}
        for channel, following in found.following.items():
            if channel not in rings and (ring := _closed(following, ranks)):
                rings[channel] = ring
        return replace(
            self.whole,
            communicators=len(begun),
            ranks=ranks or None,
            nodes=found.nodes,
            ranks_per_node=found.ranks_per_node,
            channels=found.channels or found.counts.get("coll"),
            channel_counts=found.counts,
            graphs=found.graphs,
            rings=dict(sorted(rings.items())),
            trees=dict(sorted(found.trees.items())),
            connections=tuple(found.connections),
            pxn=found.use[0] if found.use else None,
            gdr=found.use[1] if found.use else None,
            table=found.table,
            operations=self.operations,
            special=self.special,
            environment=self.environment,
            unread=self.whole.unread + sum(not _whole(ring, ranks) for ring in found.rings.values()),
        )


# NCCL cuts a line after about a thousand characters; shorter rings of fewer ranks than there are were torn.
_CUT_RANKS = 150


def _ranks_of(found: _Found) -> int:
    """Return the ranks of a communicator that no line counts: those of a whole ring, or up to the highest that is named."""
    whole = [len(ring) for ring in found.rings.values() if set(ring) == set(range(len(ring)))]
    if whole:
        return max(whole)
    named = [rank for ring in found.rings.values() for rank in ring]
    named += [rank for tree in found.trees.values() for rank in tree]
    named += [rank for following in found.following.values() for rank in following]
    named += [rank for link in found.connections for rank in (link.source, link.target)]
    return max(named, default=-1) + 1


def _tested(groups: Mapping[str, set[int]]) -> int:
    """Return the ranks that nccl-tests lists; where it splits them, those of the largest group."""
    if len(groups) == 1:
        return max(next(iter(groups.values()))) + 1
    return max(map(len, groups.values()), default=0)


def _whole(ring: Ranks, ranks: int) -> bool:
    distinct = len(set(ring)) == len(ring) and all(0 <= rank < ranks for rank in ring)
    return distinct and (len(ring) == ranks or len(ring) >= _CUT_RANKS)


def _closed(following: Mapping[int, int], ranks: int) -> Ranks | None:
    """Put a ring together from what every rank says of the next one."""
    if len(following) < ranks:
        return None
    ring = [0]
    while len(ring) < ranks and (after := following.get(ring[-1])) is not None:
        ring.append(after)
    return tuple(ring) if _whole(tuple(ring), ranks) and following.get(ring[-1]) == 0 else None


def _connection(said: re.Match[str]) -> Connection | None:
    channel, _, source, target, direction, via = said.groups()
    ends = (int(channel), int(source), int(target))
    via = via.strip()
    if not via.startswith("NET/"):
        return Connection(*ends, re.split(r"[/\[ ]", via)[0].lower())
    net = _NET.fullmatch(via)
    if not net:
        return None
    through = int(net[3]) if net[3] else None
    return Connection(*ends, "net", direction or "", net[1], int(net[2]), bool(net[4]), through)


def _below(text: str) -> frozenset[int]:
    return frozenset(int(rank) for rank in text.split("/")) - {_NO_RANK}


def _folded(text: str) -> str:
    return text.strip().lower().replace("_", "")


def _named(text: str, order: tuple[str, ...], names: Mapping[str, str]) -> str | None:
    """Return an algorithm or protocol, by NCCL's number or by name."""
    if text.isdecimal():
        return order[int(text)] if int(text[:3]) < len(order) else None
    folded = _folded(text)
    return names.get(folded, folded if folded in order else None)
