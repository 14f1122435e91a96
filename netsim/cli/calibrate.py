"""``netsim calibrate``: measure this machine's copies, fit lines to them, publish a link profile."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netsim import __version__
from netsim.cli import INTERRUPTED, options
from netsim.cli.progress import Progress
from netsim.errors import NetsimError
from netsim.export.files import write_whole

if TYPE_CHECKING:
    from calibrate.samples import Samples

EXAMPLE = "netsim calibrate measure -o samples.csv"
MEASURE_EXAMPLE = "netsim calibrate measure -o samples.csv"
_MOST_BYTES = 16 << 20

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Measure this machine's copies and launches, fit latency and rate to them, publish a link profile.",
    epilog=f"\b\nExample:\n  {EXAMPLE}",
)


@app.callback()
def _several() -> None:
    """Keep the name of the verb even while it is alone."""


@app.command(epilog=f"\b\nExample:\n  {MEASURE_EXAMPLE}")
def measure(
    output: Annotated[str, typer.Option("-o", "--output", help="Samples to write; a file that is there is completed.")],
    collectives: Annotated[
        bool, typer.Option("--collectives", help="Also NCCL's collectives over all GPUs, by torch.distributed.")
    ] = False,
) -> int:
    """Time copies to, from, within and between the GPUs of this machine, and kernel launches; about a minute.

    Needs torch and an NVIDIA GPU. After Ctrl-C the same command goes on where it stopped, and the exit code is 130. A series
    that fails is a note in the samples.
    """
    from calibrate.measure import open_hardware
    from calibrate.samples import Samples, samples_text
    from calibrate.series import all_series
    from calibrate.series import measure as measure_series

    target = options.target_of(output, "--output", "samples.csv")
    had = _read(output) if target.exists() else Samples()
    # What failed before is tried again, and noted again if it fails again.
    had = Samples(had.rows, had.facts)
    facts = {"netsim": __version__, "date": datetime.now(UTC).date().isoformat(), "cpu": _cpu()}
    with Progress(1) as progress:
        progress.step("asking for the GPU, its driver and its link")
        hardware = open_hardware()
    asked = all_series(hardware.gpus, collectives=collectives)
    if collectives and hardware.gpus < 2:
        print("netsim: --collectives: one GPU has no collective to measure; two or more are needed", file=sys.stderr)
    samples = had

    def keep(found: Samples) -> None:
        nonlocal samples
        samples = found
        write_whole(target, samples_text(found))

    try:
        with Progress(len(asked)) as progress:
            measure_series(hardware, asked, had, keep=keep, told=progress.at, facts=facts)
    except KeyboardInterrupt:
        print(f"netsim: stopped: {len(samples.rows)} samples in {output}; the same command goes on there", file=sys.stderr)
        return INTERRUPTED
    for note in samples.notes:
        print(f"netsim: {note}", file=sys.stderr)
    if not samples.rows:
        raise NetsimError("nothing could be measured, for the reasons above")
    fresh = len(samples.rows) - len(had.rows)
    print(f"netsim: {fresh} new of {len(samples.rows)} samples in {output}", file=sys.stderr)
    return 0


def _read(path: str) -> "Samples":
    """Read samples from a file."""
    from calibrate.samples import parse_samples
    from netsim.reading import read_text

    return parse_samples(read_text(path, _MOST_BYTES, wanted="samples of netsim calibrate measure are wanted"), path)


def _cpu() -> str:
    """Return the name of the CPU, which launches are timed on."""
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
