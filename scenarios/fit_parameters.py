"""What is fitted: numbers in files of components, of a study graph's text, and what a call costs beside its links.

A component is a generation of GPU (``netsim/nccl/gpus_data``) or a link profile; a number in its file is the same wherever
the component appears. A point is a value for every parameter, as files that take the place of the components' own. Which
numbers are fitted where nobody says it, and how well each is known before, stands in ``calibration.toml``.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.errors import ScenarioError
from netsim.nccl import gpus
from netsim.schedule.protocols import IDEAL
from netsim.units import parse_rate, parse_time
from scenarios.machine import Machine, nic_name
from scenarios.run import Spec
from topologies import profiles
from topologies.nics import OWN

DEFAULTS = Path(__file__).with_name("calibration.toml")
TOPOLOGY = "topology"
"""Stands for a file where the numbers are those of a study graph's text: its latency and its rate."""
CALL = "call"
"""Stands for a file where the number is a constant: what a textbook call costs beside all that its links do."""
WIDTH = 0.5
"""How well a number is known that ``calibration.toml`` does not list."""
_NUMBER = re.compile(r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/%µ]*)\s*")
_STUDY = re.compile(r"(?P<head>.*@\s*)(?P<rate>[^,]*),(?P<latency>[^,]*)")


@dataclass(frozen=True)
class Parameter:
    """One number of a component."""

    file: str
    """``hopper`` or another generation of GPU, the name of a link profile, ``topology`` or ``call``."""
    keys: tuple[str, ...]
    """``table.key`` in the file of a GPU, ``key`` in a profile; several are scaled together."""
    width: float = WIDTH
    """How well it is known before: a standard deviation of its logarithm."""
    source: Path | None = None
    """The file itself, if it is not the one that comes with netsim."""
    start_s: float = 0.0
    """For a constant: where it starts, in seconds."""
    text: str = field(init=False, repr=False, compare=False)
    """Of the file as it was at first: what a fit writes may take its place."""

    def __post_init__(self) -> None:
        path = self.path
        object.__setattr__(self, "text", "" if path is None else path.read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        """File and first key."""
        return f"{self.file}:{self.keys[0]}{'...' if len(self.keys) > 1 else ''}"

    @property
    def path(self) -> Path | None:
        """The file, None where there is none."""
        return None if self.file in (TOPOLOGY, CALL) else self.source or component_file(self.file)

    def before(self, topology: str = "") -> str:
        """Return the value before, as the file or the topology's text has it; of several keys the first one's."""
        if self.file == CALL:
            return f"{self.start_s * 1e6:g} us"
        if self.file == TOPOLOGY:
            return str(study_parts(topology)[self.keys[0]]).strip()
        return str(_value(self.text, self.keys[0], str(self.path)))

    def most(self) -> float:
        """Return the largest factor that makes sense: payload is no faster than the line, and a share no more than 1."""
        path = self.path
        if path is None or is_kernel_costs(path):
            return math.inf
        table = tomllib.loads(self.text)
        limits = [math.inf]
        for key in self.keys:
            if key == "effective_rate":
                limits.append(parse_rate(table["line_rate"], where=key) / parse_rate(table[key], where=key))
            elif key.startswith("share_") and key in table:
                limits.append(1 / float(table[key]))
        return min(limits)


@dataclass(frozen=True)
class Point:
    """What runs take in place of the components' own files and figures."""

    kernel_costs: tuple[tuple[str, str], ...] = ()
    """Generations of GPU, and the path of what kernels cost on each; each serves the runs on its generation."""
    links: tuple[tuple[str, str], ...] = ()
    """Kinds of links, NICs among them, and the path of the profile of each; each serves the runs that have such links."""
    study: tuple[tuple[str, float], ...] = ()
    """Factors on the latency and the rate in a study graph's text."""
    constant_s: float = 0.0
    """Seconds that a textbook call takes beside all that its links do."""

    def applied(self, spec: Spec, kinds: frozenset[str] = frozenset(), generation: str = "") -> Spec:
        """Return a run with these in place of its own: the names of its links' profiles, and of its generation of GPU."""
        machine, nccl = spec.machine, spec.nccl
        for kind, path in self.links:
            if _is_nic(machine, kind):
                assert machine.nic is not None
                machine = replace(machine, nic=path + machine.nic[len(nic_name(machine.nic)) :])
            elif kind in kinds:
                family = profiles.load_profile(path).family
                own = [name.strip() for name in (machine.profile or "").split(",") if name.strip()]
                kept = [name for name in own if profiles.load_profile(name).family != family]
                machine = replace(machine, profile=",".join((*kept, path)))
        if self.study:
            machine = replace(machine, topology=_scaled_study(machine.topology, dict(self.study)))
        mine = dict(self.kernel_costs).get(generation)
        if mine is not None and spec.protocol != IDEAL:
            nccl = replace(nccl, kernel_costs=mine)
        return replace(spec, machine=machine, nccl=nccl)


def _is_nic(machine: Machine, kind: str) -> bool:
    """Say whether a kind is that of the NICs which a machine is given, and no profile is laid over them."""
    if machine.nic is None or nic_name(machine.nic) == OWN:
        return False
    laid = [profiles.load_profile(one.strip()).family for one in (machine.profile or "").split(",") if one.strip()]
    return "nic" not in laid and profiles.load_profile(nic_name(machine.nic)).name == kind


def write_point(parameters: Sequence[Parameter], values: Sequence[float], folder: Path) -> Point:
    """Write the files of a point, whose values are logarithms of factors, and return what runs take.

    Raises
    ------
    ScenarioError
        If a key is no number of its file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    costs: list[tuple[str, str]] = []
    links: list[tuple[str, str]] = []
    for file in dict.fromkeys(parameter.file for parameter in parameters):
        chosen = [(one, value) for one, value in zip(parameters, values, strict=True) if one.file == file]
        source = chosen[0][0].path
        if source is None:
            continue
        text = chosen[0][0].text
        for parameter, value in chosen:
            for key in parameter.keys:
                text = scaled(text, key, math.exp(value), str(source))
        path = folder / f"{file}.toml"
        path.write_text(text, encoding="utf-8")
        (costs if is_kernel_costs(source) else links).append((file, str(path)))
    study = tuple(
        (key, math.exp(value))
        for one, value in zip(parameters, values, strict=True)
        if one.file == TOPOLOGY
        for key in one.keys
    )
    constant = sum(one.start_s * math.exp(value) for one, value in zip(parameters, values, strict=True) if one.file == CALL)
    return Point(tuple(costs), tuple(links), study, constant)


def component_file(name: str) -> Path:
    """Return the file of a component.

    Raises
    ------
    ScenarioError
        If there is none of that name.
    """
    for folder in (gpus.FOLDER, profiles.FOLDER):
        path = folder / f"{name}.toml"
        if path.is_file():
            return path
    raise ScenarioError(f"{name!r} is neither a generation of GPU nor a link profile that comes with netsim")


@lru_cache(maxsize=64)
def is_kernel_costs(path: Path) -> bool:
    """Say whether a file is one of what kernels cost, and not a link profile: profiles have a family."""
    return "family" not in tomllib.loads(path.read_text(encoding="utf-8"))


def scaled(text: str, key: str, factor: float, where: str = "", comment: str = "") -> str:
    r"""Return the text of a TOML file with one number times a factor; everything else stays.

    Parameters
    ----------
    text : str
    key : str
        ``table.key``, or ``key`` before any table. The value is a number or text that begins with one.
    factor : float
    where : str
        For messages.
    comment : str, optional
        In place of the comment behind the number, which stays without one.

    Examples
    --------
    >>> scaled('[ll]\nstart = "4 us"  # 3 to 5\n', "ll.start", 1.5)
    '[ll]\nstart = "6 us"  # 3 to 5\n'
    """
    value = _value(text, key, where)
    found = _NUMBER.fullmatch(str(value))
    if found is None:
        raise ScenarioError(f"{where}: {key} is {value!r}, which is no number")
    number = f"{float(found[1]) * factor:.6g}"
    return stated(text, key, f'"{number} {found[2]}"' if isinstance(value, str) else number, comment)


def stated(text: str, key: str, value: str, comment: str = "") -> str:
    """Return the text of a TOML file with a key's value, written as in TOML, replaced; what it lacks stays away."""
    table, _, name = key.rpartition(".")
    lines, inside = text.splitlines(keepends=True), ""
    for at, line in enumerate(lines):
        heading = re.match(r"\s*\[(.+?)\]", line)
        inside = heading[1] if heading else inside
        found = re.match(rf'(\s*{re.escape(name)}\s*=\s*)("(?:[^"\\]|\\.)*"|[^\s#]+)', line)
        if found and inside == table:
            rest = f"  # {comment}\n" if comment else line[found.end() :]
            lines[at] = f"{found[1]}{value}{rest}"
            break
    return "".join(lines)


def _value(text: str, key: str, where: str) -> Any:
    """Return the value of a key, which must be there."""
    table, _, name = key.rpartition(".")
    value: Any = tomllib.loads(text)
    for part in (*filter(None, table.split(".")), name):
        if not isinstance(value, dict) or part not in value:
            raise ScenarioError(f"{where}: has no {key}; a parameter is a number that the file has")
        value = value[part]
    return value


def study_parts(topology: str) -> dict[str, str]:
    """Return the parts of a study graph's text."""
    found = _STUDY.fullmatch(topology)
    if found is None:
        raise ScenarioError(f"topology {topology!r} has no latency and rate of its own; only study graphs have")
    return found.groupdict()


def _scaled_study(topology: str, factors: dict[str, float]) -> str:
    parts = study_parts(topology)
    rate = parse_rate(parts["rate"].strip(), where=f"topology {topology!r}, rate") * factors.get("rate", 1.0)
    latency = parse_time(parts["latency"].strip(), where=f"topology {topology!r}, latency") * factors.get("latency", 1.0)
    return f"{parts['head']}{rate!r}B/s,{latency!r}s"


def keys_of(path: Path) -> Iterable[str]:
    """Yield the keys of a file's numbers, ``table.key`` where they stand in a table."""
    for name, value in tomllib.loads(path.read_text(encoding="utf-8")).items():
        if isinstance(value, dict):
            yield from (f"{name}.{key}" for key, number in value.items() if _NUMBER.fullmatch(str(number)))
        elif _NUMBER.fullmatch(str(value)):
            yield name
