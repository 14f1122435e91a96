"""A machine in the words of the command line and of scenario files, and its topology and routes, built once.

Small and picklable, so that sweeps can hand it about; nothing here knows schedules or engines.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import topologies
from netsim.errors import FabricError
from netsim.routing import Router

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class Machine:
    """Which topology to build, in the words of the command line."""

    topology: str
    """Preset, study graph or file."""
    nodes: int = 1
    nic: str | None = None
    fabric: str = "one-switch"
    gpus_per_node: int | None = None
    gpudirect: bool = True
    rate: str = "effective"
    profile: str | None = None

    @property
    def label(self) -> str:
        """What the topology column shows: what was asked for, without the count of servers."""
        parts = [self.topology, self.nic, None if self.fabric == Machine.fabric else self.fabric]
        return " ".join(part for part in parts if part)


def graph_of(machine: Machine) -> "nx.DiGraph[str]":
    """Return the topology of a machine; built once, and again when a file behind it has changed.

    Raises
    ------
    FabricError
        If a fabric is given and there is only one server, or for what `topologies.build` refuses.
    """
    return _graph(machine, *_stamps(machine))


def router_of(machine: Machine, routing: str = "static") -> Router:
    """Return the routes of a machine's topology, kept for the next run."""
    return _router(machine, routing, *_stamps(machine))


def _stamps(machine: Machine) -> tuple[tuple[tuple[int, int] | None, ...], ...]:
    """Return the stamps of every file that a machine may name."""
    return stamp(machine.topology), stamp(machine.profile), stamp(machine.nic and nic_name(machine.nic))


def nic_name(text: str) -> str:
    """Return the name or path of a NIC's text, without its options; as `topologies.nics` reads it.

    Examples
    --------
    >>> nic_name("efa100:nics=8,ports=4"), nic_name("rack:7/mine.toml")
    ('efa100', 'rack:7/mine.toml')
    """
    head, colon, options = text.rpartition(":")
    return head if colon and "=" in options and ":" not in head else text


def stamp(names: str | None) -> tuple[tuple[int, int] | None, ...]:
    """Return what changes when a file does, or one of several with commas between; a preset never changes."""
    stamps: list[tuple[int, int] | None] = []
    for name in (names, *names.split(",")) if names is not None else ():
        try:
            status = Path(name.strip()).stat()
        except (OSError, ValueError):
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)


@lru_cache(maxsize=8)
def _graph(machine: Machine, *stamps: tuple[tuple[int, int] | None, ...]) -> "nx.DiGraph[str]":
    graph = topologies.build(
        machine.topology,
        nodes=machine.nodes,
        nic=machine.nic,
        fabric=machine.fabric,
        gpus_per_node=machine.gpus_per_node,
        gpudirect=machine.gpudirect,
        rate=machine.rate,
        profile=machine.profile,
    )
    # Asked last, so that a malformed fabric is told as such.
    if machine.nodes == 1 and machine.fabric != Machine.fabric:
        raise FabricError(
            f"fabric {machine.fabric!r} joins servers, and {machine.topology!r} is one; give two nodes or more, or no fabric"
        )
    return graph


@lru_cache(maxsize=8)
def _router(machine: Machine, routing: str, *stamps: tuple[tuple[int, int] | None, ...]) -> Router:
    return Router(_graph(machine, *stamps), routing)
