"""Where the four packages of this project lie: they must come from one folder, or results come from a stranger's code.

The names topologies, scenarios and calibrate are generic, so a package of somebody else may shadow one of them. This
module only looks for them on the import path; it imports none.
"""

from importlib.util import find_spec
from pathlib import Path

from netsim.errors import NetsimError

SIBLINGS = ("netsim", "topologies", "scenarios", "calibrate")


def locations() -> dict[str, Path | None]:
    """Return the folder of each of the four packages, or None where Python finds no such package."""
    found: dict[str, Path | None] = {}
    for name in SIBLINGS:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        found[name] = Path(places[0]).resolve() if places else None
    return found


def misplaced() -> list[str]:
    """Say in one sentence each which packages are missing or lie elsewhere than netsim itself."""
    found = locations()
    home = Path(__file__).resolve().parent.parent
    faults = []
    for name, place in found.items():
        if place is None:
            faults.append(f"the package {name!r} is missing beside netsim in {home}")
        elif place.parent != home:
            faults.append(f"the package {name!r} is imported from {place}, but netsim lives in {home}")
    return faults


def check_siblings() -> None:
    """Raise `NetsimError` unless all four packages lie in the same folder."""
    faults = misplaced()
    if faults:
        raise NetsimError(
            "; ".join(faults)
            + "; a foreign package shadows this project's: install netsim-collectives in a virtual environment of its own"
        )
