"""``netsim calibrate``: measure this machine's copies, fit lines to them, publish a link profile; or fit to logs."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netsim import __version__
from netsim.cli import INTERRUPTED, calibrate_from_logs, options
from netsim.cli.progress import Progress
from netsim.errors import NetsimError
from netsim.export.files import write_whole

if TYPE_CHECKING:
    from calibrate.fit import Fit
    from calibrate.samples import Samples

EXAMPLE = "netsim calibrate fit tests/data/h200_copies.csv"
MEASURE_EXAMPLE = "netsim calibrate measure -o samples.csv"
FIT_EXAMPLE = "netsim calibrate fit tests/data/h200_copies.csv --line-rate 64GB/s --kind copy"
PUBLISH_EXAMPLE = "netsim calibrate publish tests/data/h200_copies.csv --name pcie5_mine -o mine.toml"
_MOST_BYTES = 16 << 20

SamplesFile = Annotated[
    str, typer.Argument(help="Samples as measure writes them: a CSV with kind, direction, bytes, us_median.")
]
LineRate = Annotated[
    str | None,
    typer.Option("--line-rate", help="Line rate of the link, such as 64GB/s; by default that of the samples' link."),
]
Known = Annotated[
    str | None, typer.Option("--profile", help="Take the line rate from this profile (publish: also family and lanes).")
]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Measure this machine's copies and launches, fit latency and rate to them, publish a link profile; or fit the "
    "model's numbers to logs of nccl-tests.",
    epilog=f"\b\nExample:\n  {EXAMPLE}",
)
app.command(calibrate_from_logs.NAME, epilog=f"\b\nExample:\n  {calibrate_from_logs.EXAMPLE}")(
    calibrate_from_logs.from_nccl_tests
)


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


@app.command(epilog=f"\b\nExample:\n  {FIT_EXAMPLE}")
def fit(
    samples: SamplesFile,
    line_rate: LineRate = None,
    profile: Known = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only series of this kind, such as copy or peer.")] = None,
    direction: Annotated[str | None, typer.Option("--direction", help="Only series of this direction, such as h2d.")] = None,
    residuals: Annotated[bool, typer.Option("--residuals", help="Also measured and fitted time of each size.")] = False,
    csv: options.Csv = None,
) -> None:
    """Fit time = max(floor, alpha + n / B) to each series, with 95 % intervals and the size of half the rate.

    By least squares on the logarithm of the times, disturbed points weighing little (Huber); intervals from the linearised
    covariance. A rate above the line rate is refused: of copies to and from the host, or of what --direction picks. What one
    line cannot fit is said below the table, with the size where it breaks.
    """
    from calibrate.findings import together
    from netsim.cli.calibrate_tables import csv_of, table

    target = None if csv is None or csv == "-" else options.target_of(csv)
    read = _read(samples)
    rate = _line_rate(read, line_rate, profile)
    fits = _fits(read, samples, rate, kind, direction)
    if target is not None:
        write_whole(target, csv_of(fits, rate))
    if csv == "-":
        sys.stdout.write(csv_of(fits, rate))
        return
    facts = ", ".join(f"{name} {value}" for name, value in read.facts.items() if name in ("gpu", "driver", "cuda", "date"))
    print(f"# netsim {__version__}: fits of {samples}{f', {facts}' * bool(facts)}")
    for line in table(fits, rate, residuals=residuals):
        print(line)
    for words in together(read, fits):
        print(f"# {words}")


@app.command(epilog=f"\b\nExample:\n  {PUBLISH_EXAMPLE}")
def publish(
    samples: SamplesFile,
    name: Annotated[str, typer.Option("--name", help="Name of the kind of link, such as pcie5_mine.")],
    output: Annotated[str, typer.Option("-o", "--output", help="Profile to write, FILE.toml; --profile FILE.toml uses it.")],
    line_rate: LineRate = None,
    profile: Known = None,
    kind: Annotated[str, typer.Option("--kind", help="The series to publish, by kind.")] = "copy",
    direction: Annotated[str, typer.Option("--direction", help="And by direction.")] = "h2d",
    pageable: Annotated[bool, typer.Option("--pageable", help="Of pageable host memory, not of pinned.")] = False,
    family: Annotated[str | None, typer.Option("--family", help="What the link joins, by default pcie or nvlink.")] = None,
    lanes: Annotated[int | None, typer.Option("--lanes", min=1, help="PCI Express lanes that were measured.")] = None,
) -> None:
    """Fit one series and write it as a link profile, which `--profile FILE.toml` lays over any topology."""
    from calibrate.findings import HOST_DIRECTIONS, line_words, misfit
    from calibrate.publish import profile_of
    from topologies.profiles import load_profile, write_profile

    if not output.endswith(".toml"):
        raise NetsimError(f"--output: {output!r} does not end in .toml, by which --profile knows a file")
    target = options.target_of(output, "--output", "mine.toml")
    read = _read(samples)
    rate = _line_rate(read, line_rate, profile)
    if rate is None:
        raise NetsimError(f"{samples}: tells no line rate of its link, which a profile needs; give --line-rate or --profile")
    known = None if profile is None else load_profile(profile)
    fits = [found for found in _fits(read, samples, rate, kind, direction) if pageable == (found.key.pinned is False)]
    if not fits:
        memory = "pageable" if pageable else "pinned"
        raise NetsimError(f"{samples}: no series {kind} {direction} of {memory} memory; it has {_names(read)}")
    width = read.facts.get("link_width", "")
    if lanes is None:
        lanes = known.lanes if known is not None and known.lanes else int(width) if width.isdecimal() else None
    usual = known.family if known is not None else "pcie" if direction in HOST_DIRECTIONS else "nvlink"
    family = family or usual
    made = profile_of(
        fits[0],
        read.facts,
        name=name,
        line_rate_bytes_per_s=rate,
        family=family,
        lanes=lanes if family == "pcie" else None,
        samples=Path(samples).name,
    )
    write_profile(made, target)
    for words in misfit(fits[0]):
        print(f"netsim: {words}", file=sys.stderr)
    print(f"netsim: wrote {name} to {output}: {line_words(fits[0].best)}", file=sys.stderr)


def _fits(read: "Samples", where: str, rate: float | None, kind: str | None, direction: str | None) -> "list[Fit]":
    """Fit the series that are asked for; what has too few sizes to fit is said on stderr."""
    from calibrate.findings import HOST_DIRECTIONS, refuse_impossible
    from calibrate.fit import fit as fit_series

    chosen = {
        key: rows
        for key, rows in read.series().items()
        if (kind is None or key.kind == kind) and (direction is None or key.direction == direction)
    }
    if not chosen:
        asked = " ".join(word for word in (kind, direction) if word)
        raise NetsimError(f"{where}: no series {asked}; it has {_names(read)}" if asked else f"{where}: holds no samples")
    fits = []
    reasons = []
    for key, rows in chosen.items():
        if len(rows) == 1 and len(chosen) > 1:
            continue  # one time, no line: kernels
        try:
            fits.append(fit_series(key, rows))
        except NetsimError as error:
            reasons.append(str(error))
    if not fits:
        raise NetsimError(f"{where}: {'; '.join(reasons) or 'no series has more than one size'}")
    for reason in reasons:
        print(f"netsim: not fitted: {reason}", file=sys.stderr)
    for found in fits:
        if rate is not None and (direction is not None or found.key.direction in HOST_DIRECTIONS):
            refuse_impossible(found, rate)
    return fits


def _names(read: "Samples") -> str:
    return ", ".join(map(str, read.series())) or "none"


def _line_rate(read: "Samples", line_rate: str | None, profile: str | None) -> float | None:
    """Return the line rate by option, by profile, or by the link of the samples."""
    from netsim.units import parse_rate
    from topologies.profiles import load_profile

    if line_rate is not None:
        return parse_rate(line_rate, where="--line-rate")
    if profile is not None:
        return load_profile(profile).line_rate_bytes_per_s
    return read.line_rate_bytes_per_s()


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
