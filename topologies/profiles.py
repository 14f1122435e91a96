"""Link profiles: what one kind of link costs, each figure with its source, in one TOML file a kind.

A profile is the only place where a topology takes figures from. It holds two rates, the line rate (nominal, before
protocol overhead) and the effective rate (what payload reaches), so that a link can say which of the two is in use.
`calibrate` writes such a file from a measurement; the files in ``profiles_data`` are published or measured figures.
Deliberately left out: how many links a machine has, and anything about NCCL's software cost.

The file, quantities as text with a unit (`netsim.units`): ``name``, ``family`` (one of `FAMILIES`), ``line_rate``,
``effective_rate``, ``latency``, ``date`` (``2026``, ``2026-06`` or ``2026-06-30``) and ``source`` (which begins with
published, measured or assumed) are required; ``latency_source``, ``gap``, ``floor``, ``lanes`` (PCI Express lanes that
the rates stand for) and ``note`` are optional, and so is what NCCL's protocols meet on the link
(`topologies.link_protocols`), with ``protocol_source``. Rates are one direction of one link.
"""

import json
import os
import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.errors import FabricError, ProfileError, UnitError
from netsim.fabric import Link, LinkProtocols
from netsim.reading import read_limited
from netsim.units import format_rate, format_time, parse_rate, parse_time
from topologies.link_protocols import KEYS as PROTOCOL_KEYS
from topologies.link_protocols import protocol_items, read_protocols

FAMILIES = ("nvlink", "xgmi", "c2c", "pcie", "socket", "memory", "nic", "other")
"""What a link joins; a profile given by the user replaces the links of its own family."""

RATES = ("effective", "line")
"""Which of a profile's two rates a topology uses."""

FOLDER = Path(__file__).parent / "profiles_data"
"""Where the profiles are that come with netsim."""
_REQUIRED = ("name", "family", "line_rate", "effective_rate", "latency", "date", "source")
_OPTIONAL = ("latency_source", *PROTOCOL_KEYS, "protocol_source", "gap", "floor", "lanes", "note")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_SOURCES = ("published", "measured", "assumed")
_MAX_LANES = 32
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Profile:
    """One kind of link: rates and latency of one direction, and where they come from."""

    name: str
    """Name of the kind, which becomes `netsim.fabric.Link.kind`."""
    family: str
    """One of `FAMILIES`."""
    line_rate_bytes_per_s: float
    """Nominal rate, bytes per second, above zero."""
    effective_rate_bytes_per_s: float
    """Rate that payload reaches, bytes per second, above zero and not above the line rate."""
    latency_s: float
    """Seconds from first byte in to first byte out, zero or more."""
    date: str
    """When the figures were measured or read: year, year-month or year-month-day."""
    source: str
    """Where the rates come from; begins with published, measured or assumed."""
    latency_source: str = ""
    """Where the latency comes from, if not from `source`."""
    gap_s: float = 0.0
    """Seconds a message occupies the link before its bytes, zero or more."""
    floor_s: float = 0.0
    """Least seconds a message occupies the link, zero or more."""
    lanes: int | None = None
    """PCI Express lanes that the rates stand for; None for links that are not cut by lanes."""
    note: str = ""
    """Anything else a reader should know."""
    protocols: LinkProtocols | None = None
    """What NCCL's protocols meet on the link where it is not the same."""
    protocol_source: str = ""
    """Where those come from; begins with published, measured or assumed."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ProfileError(f"profile name {self.name!r}: accepted are up to 64 letters, digits, '.', '_' and '-'")
        for text, known, words in (
            (self.family, self.family in FAMILIES, f"family is {self.family!r}; accepted are {', '.join(FAMILIES)}"),
            (self.date, bool(_DATE.fullmatch(self.date)), f"date is {self.date!r}; write a year, 2026-06 or 2026-06-30"),
            (
                self.source,
                self.source.startswith(_SOURCES),
                f"source is {self.source!r}; it must begin with {', '.join(_SOURCES[:-1])} or {_SOURCES[-1]}",
            ),
        ):
            if not (text and known):
                raise ProfileError(f"profile {self.name}: {words}")
        if self.protocols is not None and not self.protocol_source.startswith(_SOURCES):
            raise ProfileError(
                f"profile {self.name}: protocol_source is {self.protocol_source!r}; what protocols meet needs one that "
                f"begins with {', '.join(_SOURCES[:-1])} or {_SOURCES[-1]}"
            )
        if self.lanes is not None and not 1 <= self.lanes <= _MAX_LANES:
            raise ProfileError(f"profile {self.name}: lanes is {self.lanes!r}; it must be from 1 to {_MAX_LANES}")
        for field in ("line_rate", "effective_rate"):
            rate = getattr(self, f"{field}_bytes_per_s")
            if not 0 < rate < float("inf"):
                raise ProfileError(f"profile {self.name}: {field} is {rate!r} bytes/s; it must be above zero and finite")
        for field in ("latency", "gap", "floor"):
            seconds = getattr(self, f"{field}_s")
            if not 0 <= seconds < float("inf"):
                raise ProfileError(f"profile {self.name}: {field} is {seconds!r} s; it must be zero or more and finite")
        if self.effective_rate_bytes_per_s > self.line_rate_bytes_per_s:
            raise ProfileError(
                f"profile {self.name}: effective_rate {format_rate(self.effective_rate_bytes_per_s)} is above line_rate "
                f"{format_rate(self.line_rate_bytes_per_s)}; payload cannot move faster than the line"
            )

    def link(self, rate: str = "effective", count: int = 1, lanes: int | None = None) -> Link:
        """Return a link of this kind.

        Parameters
        ----------
        rate : {"effective", "line"}
            Which rate to use; the line rate is kept beside it, so that the choice stays visible.
        count : int
            Parallel links that the edge stands for; rates are multiplied by it, latency, gap and floor are not.
        lanes : int, optional
            Width of a PCI Express link; the rates scale with it and another width than the profile's own is appended
            to the kind (``pcie4_x8``).

        Returns
        -------
        netsim.fabric.Link

        Raises
        ------
        ProfileError
            For an unknown rate, a count below one, or lanes on a profile that states none.

        Examples
        --------
        >>> load_profile("nvlink4").link(count=18).bandwidth_bytes_per_s
        370800000000.0
        >>> load_profile("pcie4").link("line", lanes=8).bandwidth_bytes_per_s
        15750000000.0
        """
        if rate not in RATES:
            raise ProfileError(f"profile {self.name}: rate {rate!r} is unknown; accepted are {' and '.join(RATES)}")
        if count < 1:
            raise ProfileError(f"profile {self.name}: count is {count!r}; it must be 1 or more")
        kind, factor = self.name, float(count)
        if lanes is not None and lanes != self.lanes:
            if self.lanes is None:
                raise ProfileError(f"profile {self.name}: it states no lanes, so a width of {lanes} lanes means nothing")
            if not 1 <= lanes <= _MAX_LANES:
                raise ProfileError(f"profile {self.name}: {lanes!r} lanes; accepted are 1 to {_MAX_LANES}")
            kind, factor = f"{self.name}_x{lanes}", count * lanes / self.lanes
        if self.family == "c2c" and not kind.startswith("c2c"):
            # Routes tell a chip-to-chip link by its kind, and a NIC behind one is in reach of GPUDirect (netsim.routing).
            kind = f"c2c_{kind}"
        line = self.line_rate_bytes_per_s * factor
        return Link(
            latency_s=self.latency_s,
            bandwidth_bytes_per_s=line if rate == "line" else self.effective_rate_bytes_per_s * factor,
            gap_s=self.gap_s,
            floor_s=self.floor_s,
            count=count,
            kind=kind,
            line_rate_bytes_per_s=line,
            protocols=self.protocols,
        )


def profile_names(family: str | None = None) -> tuple[str, ...]:
    """Return the names of the profiles that travel with netsim, sorted, all or those of one family."""
    names = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
    return names if family is None else tuple(name for name in names if load_profile(name).family == family)


def load_profile(name_or_path: str) -> Profile:
    """Load a profile by the name of its kind or from a TOML file.

    Parameters
    ----------
    name_or_path : str
        One of `profile_names`, or a path (anything that ends in ``.toml`` or contains a path separator).

    Returns
    -------
    Profile

    Raises
    ------
    ProfileError
        If there is no such profile, or the file is incomplete, has unknown keys or impossible values.

    Examples
    --------
    >>> load_profile("pcie5").effective_rate_bytes_per_s
    48000000000.0
    """
    text = str(name_or_path)
    if text.endswith(".toml") or "/" in text or os.sep in text:
        return _read(Path(text))
    return _named(text)


@lru_cache(maxsize=1024)
def family_of(kind: str) -> str | None:
    """Return the family of a link kind, or None if the kind does not come from a known profile."""
    base = re.sub(r"_x\d+$", "", kind)
    for name in (kind, base):
        if _NAME.fullmatch(name) and (FOLDER / f"{name}.toml").is_file():
            return _named(name).family
    return None


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile to a TOML file, which appears complete or not at all.

    Raises
    ------
    ProfileError
        If the file cannot be written.
    """
    rows: list[tuple[str, str | float]] = [
        ("name", profile.name),
        ("family", profile.family),
        ("line_rate", format_rate(profile.line_rate_bytes_per_s)),
        ("effective_rate", format_rate(profile.effective_rate_bytes_per_s)),
        ("latency", format_time(profile.latency_s)),
    ]
    rows += [(key, format_time(value)) for key, value in (("gap", profile.gap_s), ("floor", profile.floor_s)) if value]
    rows += protocol_items(profile.protocols).items()
    rows += [("lanes", profile.lanes)] if profile.lanes is not None else []
    rows += [("date", profile.date), ("source", profile.source)]
    rows += [
        (key, value)
        for key, value in (
            ("latency_source", profile.latency_source),
            ("protocol_source", profile.protocol_source),
            ("note", profile.note),
        )
        if value
    ]
    # A JSON string is a TOML basic string, except that TOML also wants DEL escaped.
    text = "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows).replace("\x7f", "\\u007f")
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        try:
            temporary.write_text(text, encoding="utf-8", newline="\n")
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ProfileError(f"cannot write the profile {target}: {error.strerror or error}") from error


@lru_cache(maxsize=256)
def _named(name: str) -> Profile:
    if not _NAME.fullmatch(name) or not (FOLDER / f"{name}.toml").is_file():
        known = ", ".join(profile_names())
        raise ProfileError(f"unknown link profile {name!r}; accepted are a path to a TOML file or {known}")
    return _read(FOLDER / f"{name}.toml")


def _read(path: Path) -> Profile:
    """Read and check one file; errors name the file and the key."""
    data = read_limited(path, _MAX_BYTES, ProfileError)
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProfileError(f"{path}: not a TOML file: {error}") from error
    missing = [key for key in _REQUIRED if key not in table]
    if missing:
        raise ProfileError(f"{path}: {', '.join(missing)} missing; a link profile needs {', '.join(_REQUIRED)}")
    unknown = [key for key in table if key not in _REQUIRED + _OPTIONAL]
    if unknown:
        raise ProfileError(f"{path}: unknown key {unknown[0]!r}; accepted are {', '.join(_REQUIRED + _OPTIONAL)}")
    return _from_table(table, path)


def _from_table(table: dict[str, Any], path: Path) -> Profile:
    for key in ("name", "family", "date", "source", "latency_source", "protocol_source", "note"):
        if not isinstance(table.get(key, ""), str):
            raise ProfileError(f"{path}: {key} is {table[key]!r}; write it as text in quotes")
    lanes = table.get("lanes")
    if lanes is not None and (isinstance(lanes, bool) or not isinstance(lanes, int)):
        raise ProfileError(f"{path}: lanes is {lanes!r}; it must be a whole number")
    try:
        return Profile(
            name=table["name"],
            family=table["family"],
            line_rate_bytes_per_s=parse_rate(table["line_rate"], where="line_rate"),
            effective_rate_bytes_per_s=parse_rate(table["effective_rate"], where="effective_rate"),
            latency_s=parse_time(table["latency"], where="latency"),
            gap_s=parse_time(table.get("gap", "0"), where="gap"),
            floor_s=parse_time(table.get("floor", "0"), where="floor"),
            date=table["date"],
            source=table["source"],
            latency_source=table.get("latency_source", ""),
            lanes=lanes,
            note=table.get("note", ""),
            protocols=read_protocols(table),
            protocol_source=table.get("protocol_source", ""),
        )
    except (UnitError, ProfileError, FabricError) as error:
        raise ProfileError(f"{path}: {error}") from error
