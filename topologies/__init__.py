"""Topologies: from a preset's name, a study graph's text or a file to a NetworkX graph that netsim can run on.

First stage of the flow. `build` is the way in; the modules behind it can be used on their own. Names are resolved when
first used, so that importing the package loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topologies.catalogue import build, preset_names
    from topologies.check import remarks
    from topologies.profiles import Profile, load_profile, profile_names, write_profile

__all__ = ["Profile", "build", "load_profile", "preset_names", "profile_names", "remarks", "write_profile"]

_HOMES = {
    "Profile": "topologies.profiles",
    "build": "topologies.catalogue",
    "load_profile": "topologies.profiles",
    "preset_names": "topologies.catalogue",
    "profile_names": "topologies.profiles",
    "remarks": "topologies.check",
    "write_profile": "topologies.profiles",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'topologies' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
