"""Rules of NCCL's example tuner plugin: read from its CSV, written from a list of choices, applied as the plugin does.

One rule a line: collective, least and most bytes, algorithm, protocol, channels, nodes, ranks and, optionally, operations
tuned together and whether buffers are registered; -1 is any. Bytes are what nccl-tests calls size. Hands over text; who
calls writes the file. Stricter than the plugin, which takes an unknown collective for all_reduce, an unknown algorithm for
ring and an unknown protocol for Simple, and cuts lines after 255 characters.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from netsim.errors import NetsimError
from netsim.nccl.tuner_constants import ALGORITHMS, PROTOCOLS
from netsim.nccl.tuner_costs import TUNED
from netsim.reading import read_text

Pair = tuple[str, str]
"""Algorithm and protocol."""

ANY = -1
_CHANNELS_OF_ANY = 1
"""What the example plugin leaves where a rule says -1: it sets the count to 1 before it looks for a rule."""

_COLLECTIVES = {name.replace("_", ""): name for name in TUNED}
_HEAD = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
_MOST_FILE_BYTES = 8 << 20
_MOST_LINE = 255
_MOST_BYTES = 2**64 - 1
_MOST = 2**31 - 1
_WHOLE = re.compile(r"-1|[0-9]{1,20}", re.ASCII)
_FIELDS = (
    *("collective_type", "min_bytes", "max_bytes", "algorithm", "protocol", "channels", "nNodes", "nRanks"),
    *("numPipeOps", "regBuff"),
)
_REQUIRED = 8
_MEASURED = ["collective", "size_bytes"]
"""How the head of the optimiser's measurements begins."""
MOST_CHANNELS = 64
"""What NCCL has at most (MAXCHANNELS; 32 before 2.25)."""


@dataclass(frozen=True)
class Rule:
    """One line: what is to run for a range of bytes."""

    collective: str
    least_bytes: int
    most_bytes: int
    """Inclusive."""
    algorithm: str
    protocol: str
    channels: int = ANY
    """0 for NCCL's own count; -1 is meant so, too, but gives one channel, see `apply`."""
    nodes: int = ANY
    ranks: int = ANY
    operations: int = ANY
    """Operations tuned together."""
    registered: int = ANY
    """0 or 1, or -1 for any."""

    def serves(self, collective: str, size_bytes: int, nodes: int, ranks: int, operations: int, registered: bool) -> bool:
        """Say whether the rule speaks of such an operation."""
        return (
            self.collective == collective
            and self.least_bytes <= size_bytes <= self.most_bytes
            and self.nodes in (ANY, nodes)
            and self.ranks in (ANY, ranks)
            and self.operations in (ANY, operations)
            and self.registered in (ANY, int(registered))
        )


class Row(NamedTuple):
    """What is best at one size."""

    size_bytes: int
    algorithm: str
    protocol: str
    channels: int
    """0 for NCCL's own count."""


class Applied(NamedTuple):
    """What the plugin asks NCCL for."""

    algorithm: str
    protocol: str
    channels: int | None
    """None for NCCL's own count."""


def rules_of(
    rows: Iterable[Row | tuple[int, str, str, int]],
    collective: str,
    *,
    nodes: int = ANY,
    ranks: int = ANY,
    last_byte: int | None = None,
) -> list[Rule]:
    """Merge choices at single sizes into ranges of bytes.

    Parameters
    ----------
    rows : iterable of (size in bytes, algorithm, protocol, channels)
        In any order. A choice holds from its size up to the next row's; the first one also below, the last one for its own
        size alone unless `last_byte` is given.
    collective : str
    nodes, ranks : int, optional
        For which machines the rules hold; any by default.
    last_byte : int, bytes, optional
        Where the last range ends; the largest size if not given, because nothing is known of what lies above.

    Raises
    ------
    NetsimError
        If a row is no choice of NCCL's, or two rows disagree about one size.

    Notes
    -----
    Channels of 0 are NCCL's own count, which goes by size. The -1 that stands for it in NCCL's example is not written,
    because the plugin makes one channel of it.

    Examples
    --------
    >>> rows = [(1024, "ring", "ll", 1), (2048, "ring", "ll", 1), (4096, "nvls", "simple", 16)]
    >>> print(format_rules(rules_of(rows, "all_reduce", nodes=1, ranks=8)), end="")
    # collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
    allreduce,0,4095,ring,ll,1,1,8,-1,-1
    allreduce,4096,4096,nvls,simple,16,1,8,-1,-1
    """
    ordered = sorted({Row(*row) for row in rows})
    for row in ordered:
        if row.channels < 0:
            raise NetsimError(
                f"{row.size_bytes} bytes on {row.channels} channels; accepted are 1 or more, or 0 for NCCL's own count"
            )
    for row, after in pairwise(ordered):
        if row.size_bytes == after.size_bytes:
            raise NetsimError(f"two choices for {row.size_bytes} bytes of {collective}; one a size is accepted")
    end = max((row.size_bytes for row in ordered), default=0) if last_byte is None else last_byte
    rules: list[Rule] = []
    for row in ordered:
        before = rules[-1] if rules else None
        if before and (before.algorithm, before.protocol, before.channels) == row[1:]:
            continue
        if before:
            rules[-1] = replace(before, most_bytes=row.size_bytes - 1)
        rules.append(Rule(collective, row.size_bytes if rules else 0, end, *row[1:], nodes, ranks))
    for rule in rules:
        _check(rule, f"{rule.least_bytes} to {rule.most_bytes} bytes of {collective}")
    return rules


def apply(
    rules: Sequence[Rule],
    collective: str,
    size_bytes: int,
    nodes: int,
    ranks: int,
    *,
    operations: int = 1,
    registered: bool = False,
    available: Collection[Pair] | None = None,
) -> Applied | None:
    """Return what the first rule that serves asks for, or None if there is none.

    Parameters
    ----------
    rules : sequence of Rule
    collective : str
    size_bytes : int, bytes
        nccl-tests' size: the larger of what a rank sends and receives in all.
    nodes, ranks : int
    operations : int
        Operations tuned together.
    registered : bool
        Whether user buffers are registered.
    available : collection of (algorithm, protocol), optional
        What can run, such as the keys of `netsim.nccl.tuner.Choice.table`; rules for anything else are passed over, as
        the plugin does.

    Notes
    -----
    A rule with -1 channels gives one, because the example plugin does: it sets one before it looks for a rule, and NCCL
    takes its own count only where a plugin says 0. For the same reason NCCL runs one channel with that plugin where no
    rule serves; None leaves that to the caller.

    Examples
    --------
    >>> apply([Rule("all_reduce", 0, 4095, "tree", "ll", 2)], "all_reduce", 1024, 1, 8)
    Applied(algorithm='tree', protocol='ll', channels=2)
    """
    for rule in rules:
        if not rule.serves(collective, size_bytes, nodes, ranks, operations, registered):
            continue
        if available is None or (rule.algorithm, rule.protocol) in available:
            channels = _CHANNELS_OF_ANY if rule.channels == ANY else rule.channels
            return Applied(rule.algorithm, rule.protocol, channels or None)
    return None


def format_rules(rules: Iterable[Rule], *, comments: Sequence[str] = ()) -> str:
    """Write rules as the plugin reads them, with lines of comment above."""
    lines = [f"# {' '.join(comment.split())}"[:_MOST_LINE] for comment in comments]
    lines.append(_HEAD)
    for rule in rules:
        _check(rule, f"{rule.least_bytes} to {rule.most_bytes} bytes of {rule.collective}")
        name = rule.collective.replace("_", "")
        numbers = (rule.channels, rule.nodes, rule.ranks, rule.operations, rule.registered)
        fields = (name, rule.least_bytes, rule.most_bytes, rule.algorithm, rule.protocol, *numbers)
        lines.append(",".join(map(str, fields)))
    return "\n".join(lines) + "\n"


def read_rules(path: str | Path) -> list[Rule]:
    """Read a file of rules.

    Raises
    ------
    NetsimError
        With file and line, if the file cannot be read or a line is no rule.
    """
    return parse_rules(read_text(path, _MOST_FILE_BYTES, wanted="rules of the tuner plugin are wanted"), str(path))


def parse_rules(text: str, where: str = "tuner rules") -> list[Rule]:
    """Read rules that are in memory already; `where` names them in messages.

    Examples
    --------
    >>> parse_rules("allreduce,0,65535,tree,ll,-1,2,16")[0].nodes
    2
    """
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            rules.append(_rule(line, f"{where}, line {number}"))
    return rules


def _rule(line: str, place: str) -> Rule:
    if len(line.encode()) > _MOST_LINE:
        raise NetsimError(f"{place}: longer than {_MOST_LINE} characters, where the plugin would cut it")
    fields = [field.strip(" \t") for field in line.split(",")]
    if fields[:2] == _MEASURED:
        raise NetsimError(
            f"{place}: this is a table of measurements, from which the plugin's optimiser makes rules; rules are accepted"
        )
    if not _REQUIRED <= len(fields) <= len(_FIELDS):
        raise NetsimError(f"{place}: {len(fields)} fields; accepted are {_REQUIRED} to {len(_FIELDS)}: {', '.join(_FIELDS)}")
    if fields[0] not in _COLLECTIVES:
        raise NetsimError(f"{place}: {fields[0][:40]!r} is no collective_type; accepted are {', '.join(_COLLECTIVES)}")
    numbers = {name: field for name, field in zip(_FIELDS, fields, strict=False) if name not in ("algorithm", "protocol")}
    values = {name: _number(field, name, place) for name, field in list(numbers.items())[1:]}
    channels, nodes, ranks = values["channels"], values["nNodes"], values["nRanks"]
    rule = Rule(
        _COLLECTIVES[fields[0]],
        values["min_bytes"],
        values["max_bytes"],
        fields[3],
        fields[4],
        *(channels, nodes, ranks, values.get("numPipeOps", ANY), values.get("regBuff", ANY)),
    )
    _check(rule, place)
    return rule


def _number(text: str, name: str, place: str) -> int:
    bytes_ = name.endswith("_bytes")
    least, most = (0, _MOST_BYTES) if bytes_ else (ANY, 1 if name == "regBuff" else _MOST)
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        any_ = "" if bytes_ else ", 0 being NCCL's own count" if name == "channels" else ", -1 being any"
        raise NetsimError(f"{place}: {name} is {text[:40]!r}; accepted is a whole number from {least} to {most}{any_}")
    return int(text)


def _check(rule: Rule, place: str) -> None:
    for what, value, accepted in (
        ("collective", rule.collective, TUNED),
        ("algorithm", rule.algorithm, ALGORITHMS),
        ("protocol", rule.protocol, PROTOCOLS),
    ):
        if value not in accepted:
            raise NetsimError(
                f"{place}: {value[:40]!r} is no {what} of the tuner plugin; accepted are {', '.join(accepted)}"
            )
    if not 0 <= rule.least_bytes <= rule.most_bytes:
        raise NetsimError(
            f"{place}: from {rule.least_bytes} to {rule.most_bytes} bytes is no range; accepted is one that does not fall"
        )
    for name, count in (("nNodes", rule.nodes), ("nRanks", rule.ranks)):
        if count == 0:
            raise NetsimError(f"{place}: {name} is 0; accepted are 1 or more, or -1 for any")
