"""``netsim doctor``: what is installed, where it lies, and what is missing."""

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

EXAMPLE = "netsim doctor"
BASE = ("simpy", "networkx", "numpy", "pandas", "typer", "rich", "pydantic", "PyYAML")
EXTRAS = {
    "plot": ("matplotlib", "figures"),
    "cluster": ("dask", "sweeps on a cluster, which come later"),
    "fast": ("numba", "the compiled engine of large runs"),
    "calibrate": ("torch", "measuring this machine's link, which comes later"),
}
"""Extra -> the package that tells whether it is there, and what it is for."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
def doctor() -> int:
    """Print versions, where the packages lie, GPU or none, and the extras; exit code 1 if a fault is found."""
    import netsim
    from netsim.siblings import locations, misplaced

    print(f"netsim {netsim.__version__}, Python {sys.version.split()[0]} ({sys.executable})")
    faults = misplaced()
    home = Path(netsim.__file__).resolve().parent.parent
    if not faults:
        print(f"packages: {', '.join(locations())} in {home}")
    for name in BASE:
        found = _version(name)
        print(f"  {name:<12} {found or 'missing'}")
        if found is None:
            faults.append(f"the package {name} is missing; install netsim-collectives with pip")
    for extra, (name, purpose) in EXTRAS.items():
        found = _version(name)
        words = f"{name} {found}" if found else f"absent; pip install 'netsim-collectives[{extra}]' brings {name}"
        print(f"  extra {extra:<10} {words}, for {purpose}")
    print(f"GPU: {_gpu()}")
    for fault in faults:
        print(f"FAULT: {fault}")
    if not faults:
        print("no fault found")
    return 1 if faults else 0


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu() -> str:
    """Ask nvidia-smi, which needs no torch; a simulation needs no GPU, so that none is not a fault."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "none (no nvidia-smi on the path); nothing needs one yet"
    try:
        asked = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: nvidia-smi failed ({type(error).__name__})"
    return "; ".join(line.strip() for line in told.splitlines() if line.strip()) or "none"
