"""Which parameters are fitted to a set of runs: those of the components that the runs use, or those that the user names.

Links count that lie on routes between ranks. Whether a run's time depends on a number at all is not asked here; the fit
finds that out.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.errors import ScenarioError
from netsim.fabric import ranks_of
from netsim.nccl import gpus
from netsim.nccl.schedules import generation_of
from netsim.schedule.protocols import IDEAL
from netsim.units import parse_time
from scenarios.fit_parameters import CALL, DEFAULTS, TOPOLOGY, WIDTH, Parameter, component_file, keys_of
from scenarios.fit_series import Series
from scenarios.machine import Machine, graph_of, nic_name, router_of
from scenarios.nccl import NcclOptions, communicator_of
from scenarios.run import Spec
from topologies import profiles
from topologies.study import is_study_text

_FILE_NAME = re.compile(r"\w[\w.-]{0,63}", re.ASCII)
_MANY = 16
"""Ranks up to which the routes between all of them are looked at, and not only those of the first and to neighbours."""


@dataclass(frozen=True)
class Components:
    """What runs use."""

    kernels: dict[str, Path]
    """Generations of GPU, or files in their place."""
    links: dict[str, tuple[str, Path]]
    """Families and files of link profiles, by the name of the kind."""
    study: bool
    """Whether a run is on a study graph."""
    textbook: bool
    """Whether a run is of the textbook's schedules."""
    remarks: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What may stand before the colon of a parameter."""
        rest = ((TOPOLOGY,) if self.study else ()) + ((CALL,) if self.textbook else ())
        return (*self.kernels, *self.links, *rest)


def components(series: Sequence[Series]) -> Components:
    """Return what the runs of some series use."""
    kernels: dict[str, Path] = {}
    links: dict[str, tuple[str, Path]] = {}
    remarks: dict[str, None] = {}
    for spec in {_without_size(one.spec): None for one in series}:
        if spec.protocol != IDEAL:
            kernels |= _kernels(spec)
        if not is_study_text(spec.machine.topology):
            links |= _links(spec, remarks)
    study = any(is_study_text(one.spec.machine.topology) for one in series)
    textbook = any(one.spec.protocol == IDEAL for one in series)
    return Components(kernels, links, study, textbook, tuple(remarks))


def _without_size(spec: Spec) -> Spec:
    """Return what of a run decides about its components."""
    return Spec(spec.machine, "", 0, protocol=spec.protocol, nccl=spec.nccl)


@lru_cache(maxsize=64)
def kinds_of(machine: Machine) -> frozenset[str]:
    """Return the names of the profiles that the links of a machine come from, for which others can stand in."""
    kinds = {data["link"].kind for _, _, data in graph_of(machine).edges(data=True)}
    named = {_own(machine, kind) for kind in kinds}
    return frozenset(found[1] for found in named if found is not None)


@lru_cache(maxsize=64)
def generation_used(machine: Machine, nccl: NcclOptions) -> str:
    """Return the name of what kernels cost in a run."""
    return next(iter(_kernels(Spec(machine, "", 0, nccl=nccl))))


def chosen(series: Sequence[Series], names: Sequence[str] = ()) -> tuple[list[Parameter], list[str]]:
    """Return the parameters to fit, and remarks on those that cannot be.

    Parameters
    ----------
    series : sequence of Series
    names : sequence of str
        As the user names them: ``hopper:ll.start``, ``nvlink4:latency_ll``, ``topology:rate``, ``call:constant``, with a
        plus between keys that are scaled together. Without any, those of ``calibration.toml``.

    Raises
    ------
    ScenarioError
        If a name is none, or its component is in no run.
    """
    used = components(series)
    listed = _defaults(used)
    if not names:
        return listed, list(used.remarks)
    known = {(one.file, one.keys): one.width for one in listed}
    found: list[Parameter] = []
    taken: set[tuple[str, str]] = set()
    for name in names:
        file, colon, rest = name.partition(":")
        keys = tuple(key.strip() for key in rest.split("+"))
        if not colon or not all(keys):
            raise ScenarioError(f"--parameters: {name!r} is no parameter; write COMPONENT:KEY, such as hopper:ll.start")
        if file not in used.names:
            raise ScenarioError(f"--parameters: {file!r} is used by none of these runs; they use {', '.join(used.names)}")
        for key in keys:
            if (file, key) in taken:
                raise ScenarioError(f"--parameters: {file}:{key} is named twice; every number is fitted once")
            taken.add((file, key))
        width = known.get(
            (file, keys), next((one.width for one in listed if one.file == file and keys[0] in one.keys), WIDTH)
        )
        found.append(_named(file, keys, width, used, name))
    return found, list(used.remarks)


def _named(file: str, keys: tuple[str, ...], width: float, used: Components, name: str) -> Parameter:
    if file in (TOPOLOGY, CALL):
        accepted: Sequence[str] = ("latency", "rate") if file == TOPOLOGY else ("constant",)
        source = None
    else:
        source = used.kernels[file] if file in used.kernels else used.links[file][1]
        accepted = tuple(keys_of(source))
    for key in keys:
        if key not in accepted:
            raise ScenarioError(f"--parameters: {name!r}: {file} has no number {key}; it has {', '.join(accepted)}")
    return Parameter(file, keys, width, source, _constant_s() if file == CALL else 0.0)


def _defaults(used: Components) -> list[Parameter]:
    """Return the parameters that `calibration.toml` lists for some components, as far as their files have them."""
    told = _told()
    found = []
    for name, path in used.kernels.items():
        found += _present(name, path, told["kernel_costs"]["parameters"])
    book = told["textbook"]
    for name, (family, path) in used.links.items():
        if used.kernels:
            found += _present(name, path, told["link"].get(family, told["link"])["parameters"])
        elif used.textbook:
            found += [Parameter(name, (key,), book["width"], path) for key in book["link"]]
    if used.study:
        found += [Parameter(TOPOLOGY, (key,), book["width"]) for key in book["study"]]
    if used.textbook:
        found.append(Parameter(CALL, ("constant",), book["width"], None, _constant_s()))
    return found


def _present(name: str, path: Path, listed: Sequence[dict[str, Any]]) -> list[Parameter]:
    there = set(keys_of(path))
    kept = ((tuple(key for key in one["keys"] if key in there), float(one["width"])) for one in listed)
    return [Parameter(name, keys, width, path) for keys, width in kept if keys]


@lru_cache(maxsize=1)
def _told() -> dict[str, Any]:
    return tomllib.loads(DEFAULTS.read_text(encoding="utf-8"))


def _constant_s() -> float:
    return parse_time(_told()["textbook"]["constant"], where=DEFAULTS.name)


def _kernels(spec: Spec) -> dict[str, Path]:
    if spec.nccl.kernel_costs is not None:
        path = Path(spec.nccl.kernel_costs)
        named = str(gpus.read_costs(path).get("name", ""))
        # The name becomes that of a file, and part of what the user names for a parameter, beside those of links.
        taken = (TOPOLOGY, CALL, *profiles.profile_names())
        fit_names = (name for name in (named, path.stem) if _FILE_NAME.fullmatch(name) and name not in taken)
        return {next(fit_names, "kernel_costs"): path}
    name = generation_of(communicator_of(spec.machine, spec.nccl))
    return {name: component_file(name)}


def _links(spec: Spec, remarks: dict[str, None]) -> dict[str, tuple[str, Path]]:
    """Return the profiles of the links between ranks; of a family with several kinds none, as one profile replaces all."""
    machine = spec.machine
    router = router_of(machine)
    ranks = len(ranks_of(graph_of(machine)))
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b and (ranks <= _MANY or not a or b == a + 1)]
    kinds = sorted({router.links[edge].kind for a, b in pairs for edge in router.path(a, b)})
    found: dict[str, tuple[str, Path]] = {}
    for kind in kinds:
        own = _own(machine, kind)
        if own is None:
            remarks[f"not fitted: links of the kind {kind or 'without a name'}, which come from no profile"] = None
        else:
            found[own[1]] = (own[0], own[2])
    for family in dict.fromkeys(family for family, _ in found.values()):
        alike = [name for name, (of, _) in found.items() if of == family]
        if len(alike) > 1:
            words = f"not fitted: links of {' and '.join(alike)}, as one profile of their family would replace both"
            remarks[words] = None
            found = {name: value for name, value in found.items() if name not in alike}
    return found


def _own(machine: Machine, kind: str) -> tuple[str, str, Path] | None:
    """Return the family, the name and the file of the profile that a kind of link comes from."""
    base = re.sub(r"_x\d+$", "", kind)
    given = [one.strip() for one in (machine.profile or "").split(",") if one.strip()]
    # A profile lies over the NICs, so it is asked before theirs.
    given += [nic_name(machine.nic)] if machine.nic is not None else []
    for name in given:
        if not name.endswith(".toml") and "/" not in name:
            continue
        profile = profiles.load_profile(name)
        if profile.name in (kind, base, base.removeprefix("c2c_")):
            return profile.family, profile.name, Path(name)
    for name in (kind, base):
        if re.fullmatch(r"[\w.-]+", name) and (profiles.FOLDER / f"{name}.toml").is_file():
            return profiles.load_profile(name).family, name, profiles.FOLDER / f"{name}.toml"
    return None
