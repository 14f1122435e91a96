"""``netsim crossover``: the sizes at which another algorithm becomes the fastest."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from netsim.cli import options
from netsim.cli.progress import Progress
from netsim.errors import NetsimError
from netsim.export.files import write_whole
from netsim.export.table import csv_cell, model_named
from scenarios.crossover import Survey, find_crossings, size_grid
from scenarios.machine import graph_of
from scenarios.run import Spec, settled

EXAMPLE = "netsim crossover all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring,tree -b 1M -e 4M"
COLUMNS = (
    "collective,topology,ranks,below,above,chunks,crossing_bytes,low_bytes,high_bytes,formula_bytes,"
    "version,topology_digest,schema"
)
SCHEMA = 1

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
@options.gathers(spec=options.spec)
def crossover(
    spec: Spec,
    algorithms: Annotated[
        str, typer.Option("--algos", help="Two or more algorithms, with commas; NCCL's also as ring:ll,ring:simple.")
    ],
    min_bytes: Annotated[str, typer.Option("-b", "--minbytes", help="Smallest size.")] = "1K",
    max_bytes: Annotated[str, typer.Option("-e", "--maxbytes", help="Largest size.")] = "1G",
    per_doubling: Annotated[int, typer.Option("--points", min=1, help="Sizes of the first grid in each doubling.")] = 2,
    chunks: Annotated[
        str | None, typer.Option("--chunks", help=f"{options.PIECES_HELP} A list, such as 1,16,256, is a series.")
    ] = None,
    csv: options.Csv = None,
) -> None:
    """Print every size at which the fastest of several algorithms changes, by simulation, beside the formulas' crossing."""
    machine, collective = spec.machine, spec.collective
    names = options.algorithm_names(algorithms, collective)
    asked = replace(spec, chunks=1) if chunks else spec
    spec = settled(asked, names)
    options.mention_textbook(asked, names)
    series = _counts(chunks)
    sizes = size_grid(options.size_of(min_bytes, "-b"), options.size_of(max_bytes, "-e"), per_doubling)
    target = None if csv is None or csv == "-" else options.target_of(csv)
    surveys: list[tuple[int | None, Survey]] = []
    with Progress(len(series)) as progress:
        for count in series:
            told = f"{count} chunks" if count else " against ".join(names)
            progress.step(told)
            surveys.append(
                (
                    count,
                    find_crossings(
                        replace(spec, chunks=count),
                        names,
                        sizes,
                        told=lambda size, told=told: progress.say(f"{told}, {options.size_words(size)}"),  # type: ignore[misc]
                    ),
                )
            )
    text = _csv_text(collective, machine.label, surveys)
    if target is not None:
        write_whole(target, text)
    if csv == "-":
        sys.stdout.write(text)
        return
    words = options.machine_words(machine, graph_of(machine), surveys[0][1].ranks)
    print(f"# netsim {surveys[0][1].version}: {collective} on {words}")
    print(f"# {model_named(spec.nccl_version)}")
    for count, survey in surveys:
        for line in _lines(count, survey, names, sizes):
            print(line)


def _counts(text: str | None) -> list[int | None]:
    if text is None:
        return [None]
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise NetsimError(
            f"--chunks: {text!r} is not a list of whole numbers from 1 up, separated by commas, such as 1,16,256"
        )
    return [int(part) for part in parts]


def _lines(count: int | None, survey: Survey, names: list[str], sizes: list[int]) -> list[str]:
    """Say what a survey found, one line a crossing."""
    where = f"{count} chunk{'s' * (count != 1)}: " if count else ""
    if not survey.crossings:
        span = f"{options.size_words(sizes[0])} to {options.size_words(sizes[-1])}"
        fastest = f"{survey.first_winner} is the fastest of {', '.join(names)}"
        return [f"{where}no crossing from {span}: {fastest} (the first named, where they tie)"]
    lines = []
    for crossing in survey.crossings:
        beside = "no formula" if crossing.formula_bytes is None else f"formula: {_megabytes(crossing.formula_bytes)}"
        lines.append(
            f"{where}{crossing.below} is faster below {_megabytes(crossing.size_bytes)}, {crossing.above} above "
            f"(simulated at {crossing.low_bytes} and {crossing.high_bytes} B; {beside})"
        )
    return lines


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:.4g} MB"


def _csv_text(collective: str, label: str, surveys: list[tuple[int | None, Survey]]) -> str:
    lines = [COLUMNS]
    for count, survey in surveys:
        for found in survey.crossings:
            # Digits beyond a byte are noise of the bisection, which encloses the size to one per cent.
            formula = None if found.formula_bytes is None else round(found.formula_bytes)
            values = (collective, label, survey.ranks, found.below, found.above, count, round(found.size_bytes))
            rest = (found.low_bytes, found.high_bytes, formula, survey.version, survey.topology_digest, SCHEMA)
            lines.append(",".join(csv_cell(value) for value in values + rest))
    return "".join(line + "\n" for line in lines)
