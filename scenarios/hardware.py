"""From a row of an index to the machine and the run that it describes, by rules that are data.

The rules stand in ``hardware.toml``: each has patterns for columns of the index and says what follows where they fit. All
that fit apply, the later ones over the earlier ones, so that a rule for a GPU comes first and the rule of a class last. What
no rule maps is told, never left out silently.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.errors import NetsimError, ScenarioError
from netsim.nccl.elements import DATATYPES
from netsim.nccl.environment import read_assignments
from netsim.nccl.variables import USED
from netsim.nccl.version import NEWEST, OLDEST, Version
from netsim.units import parse_bytes
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.tables import Entry

RULES = Path(__file__).with_name("hardware.toml")
_VARIABLE = re.compile(r"\b((?:[A-Z][A-Z0-9]*_[A-Z0-9_]+=)+)(\d+ [KMG]i?B\b|(?:[^\s;,)]|,(?!\s|NCCL_|$))+)")
_OTHERS = re.compile(r"\d with $")
_QUEUE_PAIRS = re.compile(r"\b(\d+) QPs\b")
_RELEASE = re.compile(r"(?:nccl\s*)?v?(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
_DATATYPE = re.compile(r"\bdtype (\w+)|\b(\w+) datatype\b")
_ALGORITHMS = ("ring", "tree", "nvls", "nvlstree", "collnetdirect", "collnetchain", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")


class UnmappedError(ScenarioError):
    """No rule says what a table was measured on."""


@dataclass(frozen=True)
class SetUp:
    """What a table was measured on, in words of this project."""

    machine: Machine
    options: NcclOptions
    algorithm: str = "auto"
    protocol: str = "auto"
    remarks: tuple[str, ...] = ()
    """What was assumed."""


@dataclass(frozen=True)
class _Facts:
    """What rules may say."""

    topology: str = ""
    nic: str = ""
    fabric: str = ""
    profile: str = ""
    gpus_per_server: int = 0
    """GPUs of what NCCL takes for a node, where that is not the host."""
    nccl_version: str = ""
    """Where the index does not know it."""
    nccl_env: tuple[str, ...] = ()
    registered: bool = False
    launch: str = "stream"
    one_process: bool = False
    """Whether one host thread drives all GPUs of a server, and not one each."""
    not_covered: str = ""
    """Why no prediction is made."""


def set_up(entry: Entry) -> SetUp:
    """Return what a row of an index describes.

    Raises
    ------
    UnmappedError
        If no rule names a topology for it, or one says that it is not covered.
    ScenarioError
        If the row makes no sense.
    """
    entry.check()
    facts, environment = _facts(entry)
    if facts.not_covered:
        raise UnmappedError(facts.not_covered)
    if not facts.topology:
        raise UnmappedError(f"no rule of {RULES.name} has a topology for {entry['gpu']!r} of class {entry['hw_class']!r}")
    servers = entry.hosts
    if facts.gpus_per_server:
        servers = -(-entry.ranks // facts.gpus_per_server)
    if servers > 1 and not facts.nic:
        raise UnmappedError(f"no rule of {RULES.name} has a NIC for {entry['inter_link']!r} of class {entry['hw_class']!r}")
    if entry.ranks % servers:
        raise UnmappedError(f"{entry.ranks} GPUs do not spread evenly over {servers} servers")
    machine = Machine(
        facts.topology,
        nodes=servers,
        nic=facts.nic if servers > 1 else None,
        fabric=facts.fabric if servers > 1 and facts.fabric else Machine.fabric,
        gpus_per_node=entry.ranks // servers,
        profile=facts.profile or None,
    )
    version, remarks = _version(entry["nccl_version"], facts.nccl_version)
    told = list(environment)
    for assignment in _told(entry):
        try:
            read_assignments((assignment,), entry.place)
        except NetsimError as error:
            remarks.append(f"left out: {error}")
        else:
            told.append(assignment)
    datatype = _datatype(entry["notes"], remarks)
    options = NcclOptions(
        version,
        tuple(told),
        registered=facts.registered,
        launch=facts.launch,
        gpus_per_process=entry.ranks // servers if facts.one_process else 1,
        in_place=entry["in_place"] == "yes",
        datatype=datatype,
    )
    return SetUp(
        machine,
        options,
        _forced(entry["algo"], _ALGORITHMS),
        _forced(entry["proto"], _PROTOCOLS),
        tuple(remarks),
    )


def _facts(entry: Entry) -> tuple[_Facts, tuple[str, ...]]:
    """Return what all rules that fit say together."""
    said: dict[str, Any] = {}
    environment: list[str] = []
    for rule in _rules():
        if rule.fits(entry):
            said |= rule.says
            environment += rule.says.get("nccl_env", ())
    return _Facts(**said), tuple(environment)


@dataclass(frozen=True)
class _Rule:
    patterns: dict[str, tuple[str, ...]]
    says: dict[str, Any]

    def fits(self, entry: Entry) -> bool:
        """Say whether every column fits one of its patterns, whatever the case of letters."""
        return all(
            any(fnmatchcase(entry[column].lower(), pattern.lower()) for pattern in patterns)
            for column, patterns in self.patterns.items()
        )


@lru_cache(maxsize=1)
def _rules() -> tuple[_Rule, ...]:
    known = {one.name: type(one.default) for one in fields(_Facts)}
    rules = []
    for number, rule in enumerate(tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"], 1):
        when = {column: (one,) if isinstance(one, str) else tuple(one) for column, one in rule.pop("when").items()}
        says = {name: tuple(value) if isinstance(value, list) else value for name, value in rule.items()}
        wrong = [name for name, value in says.items() if not isinstance(value, known.get(name, ()))]
        if wrong:
            raise ScenarioError(f"{RULES}: rule {number} has {', '.join(wrong)}; accepted are {', '.join(known)}")
        rules.append(_Rule(when, says))
    return tuple(rules)


def _version(text: str, assumed: str) -> tuple[str, list[str]]:
    """Return the release to imitate, and a remark where it is not the one that ran."""
    found = _RELEASE.match(text)
    if found is None:
        version = assumed or NcclOptions.version
        return version, [f"release not known, {version} assumed"]
    try:
        return str(Version.parse(found[1])), []
    except NetsimError:
        below = tuple(map(int, found[1].split("."))) < (OLDEST.major, OLDEST.minor, OLDEST.patch)
    nearest = str(OLDEST if below else NEWEST)
    return nearest, [f"release {text} is not covered, {nearest} taken"]


def _datatype(notes: str, remarks: list[str]) -> str:
    """Return the data type that notes name, and remark upon one that is not known."""
    found = _DATATYPE.search(notes)
    if found is None:
        return NcclOptions.datatype
    name = found[1] or found[2]
    if name in DATATYPES:
        return name
    remarks.append(f"data type {name!r} is not known, {NcclOptions.datatype} taken")
    return NcclOptions.datatype


def _told(entry: Entry) -> Iterable[str]:
    """Yield the variables that an index names in words, ``NCCL_A=NCCL_B=1`` for two of them.

    ``NCCL_`` may be missing where a name has a line in it: ``MIN_CTAS=24``.
    """
    for column in ("algo", "notes", "intra_link", "inter_link"):
        for found in _VARIABLE.finditer(entry[column]):
            if _OTHERS.search(entry[column][: found.start()]):
                continue  # what another run had: "391 with NCCL_MIN_CTAS=24"
            names = [name for name in found[1].rstrip("=").split("=") if name.startswith("NCCL_") or f"NCCL_{name}" in USED]
            for name in names:
                value = str(parse_bytes(found[2])) if " " in found[2] else found[2].rstrip(".:")
                yield f"NCCL_{name.removeprefix('NCCL_')}={value}"
    pairs = _QUEUE_PAIRS.findall(entry["algo"])
    stated = any("QPS_PER_CONNECTION=" in entry[column] for column in ("algo", "notes"))
    if len(pairs) == 1 and not stated:
        yield f"NCCL_IB_QPS_PER_CONNECTION={pairs[0]}"


def _forced(text: str, names: tuple[str, ...]) -> str:
    """Return the algorithm or protocol that was forced: one word, and after it at most a bracket, a list or ``with``.

    What the index expects of ``auto`` stands in brackets too; ``LL to 1.0 MB`` forces nothing.
    """
    found = re.match(r"(\w+)\s*(?:$|[(,;]|with\b)", text.strip().lower())
    word = found[1].replace("_", "") if found else ""
    return (
        {"nvlstree": "nvls_tree", "collnetdirect": "collnet_direct", "collnetchain": "collnet_chain"}.get(word, word)
        if (word in names)
        else "auto"
    )
