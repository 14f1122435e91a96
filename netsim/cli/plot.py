"""``netsim plot``: time and bus bandwidth against size as a picture, with crossings and measured points."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from netsim.cli import options
from netsim.cli.progress import Progress
from netsim.export.files import write_whole
from netsim.export.plot import Curve, Mark, check_plot_target, draw
from netsim.export.table import model_named
from netsim.fabric import ranks_of
from netsim.metrics.timing import bus_bandwidth
from scenarios.crossover import Crossing, Survey, find_crossings, size_grid, survey_one
from scenarios.machine import graph_of
from scenarios.measured import read_measured
from scenarios.run import Spec, settled

EXAMPLE = "netsim plot all_reduce --topology ideal-switch:8@450GB/s,1us --algos ring,tree -b 1K -e 64M -o ring_tree.svg"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
@options.gathers(spec=options.spec)
def plot(
    spec: Spec,
    algorithms: Annotated[str, typer.Option("--algos", help="One or more algorithms, separated by commas.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The picture; .svg, .png or .pdf.")],
    measured: Annotated[
        list[str] | None,
        typer.Option(
            "--measured",
            help="Drawn as points: a log of nccl-tests (times out of place), or a CSV with size_bytes and time_us. "
            "May be given several times.",
        ),
    ] = None,
    min_bytes: Annotated[str, typer.Option("-b", "--minbytes", help="Smallest size.")] = "1K",
    max_bytes: Annotated[str, typer.Option("-e", "--maxbytes", help="Largest size.")] = "1G",
    per_doubling: Annotated[int, typer.Option("--points", min=1, help="Sizes simulated in each doubling.")] = 1,
    chunks: Annotated[int | None, typer.Option("--chunks", min=1, help=options.PIECES_HELP)] = None,
) -> None:
    """Draw time and bus bandwidth against size for several algorithms, and mark where the fastest changes."""
    target = options.target_of(output, "--output", "plot.svg")
    form = check_plot_target(output)
    machine, collective = spec.machine, spec.collective
    names = options.algorithm_names(algorithms, collective)
    asked = replace(spec, chunks=chunks)
    spec = settled(asked, names)
    options.mention_textbook(asked, names)
    sizes = size_grid(options.size_of(min_bytes, "-b"), options.size_of(max_bytes, "-e"), per_doubling)
    points = [(name, read_measured(name)) for name in measured or ()]
    with Progress(len(sizes)) as progress:
        reached = 0

        def told(size: int) -> None:
            nonlocal reached
            # The sizes between two of the grid are those of the search for crossings.
            reached += size in sizes
            progress.at(min(reached, len(sizes)), options.size_words(size))

        survey = find_crossings(spec, names, sizes, told=told) if len(names) > 1 else survey_one(spec, names[0], sizes, told)
    words = options.machine_words(machine, graph_of(machine), len(ranks_of(graph_of(machine))))
    curves = [_simulated(collective, survey, place, name) for place, name in enumerate(names)]
    curves += [_measured(collective, survey.ranks, name, rows) for name, rows in points]
    marks = [_mark(survey, names, crossing) for crossing in survey.crossings]
    title = f"{collective} on {words} ({model_named(spec.nccl_version)})"
    write_whole(target, draw(curves, marks, title=title, form=form))
    told_words = f"{len(names)} curve{'s' * (len(names) != 1)}, {len(marks)} crossing{'s' * (len(marks) != 1)}"
    print(f"netsim: wrote {told_words} to {target}", file=sys.stderr)


def _simulated(collective: str, survey: Survey, place: int, name: str) -> Curve:
    sizes = tuple(size for size, _ in survey.grid)
    times = tuple(found[place] for _, found in survey.grid)
    return Curve(name, sizes, times, _rates(collective, survey.ranks, sizes, times))


def _measured(collective: str, ranks: int, name: str, rows: list[tuple[int, float]]) -> Curve:
    sizes, times = tuple(size for size, _ in rows), tuple(time for _, time in rows)
    return Curve(f"measured: {Path(name).stem}", sizes, times, _rates(collective, ranks, sizes, times), measured=True)


def _rates(collective: str, ranks: int, sizes: tuple[int, ...], times: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(bus_bandwidth(collective, ranks, size, time * 1e-6) / 1e9 for size, time in zip(sizes, times, strict=True))


def _mark(survey: Survey, names: list[str], crossing: Crossing) -> Mark:
    """Place a crossing on the curve of the algorithm that is the fastest below it."""
    place = names.index(crossing.below)
    low = max((point for point in survey.grid if point[0] <= crossing.size_bytes), key=lambda point: point[0])
    high = min((point for point in survey.grid if point[0] >= crossing.size_bytes), key=lambda point: point[0])
    time = low[1][place]
    if high[0] > low[0]:
        time += (high[1][place] - time) * (crossing.size_bytes - low[0]) / (high[0] - low[0])
    return Mark(crossing.size_bytes, time, f"{_about(crossing.size_bytes)}: {crossing.above}")


def _about(size_bytes: float) -> str:
    """Write a size in three digits.

    Examples
    --------
    >>> _about(63_100), _about(19.83e6)
    ('63.1 kB', '19.8 MB')
    """
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= limit:
            return f"{size_bytes / limit:.3g} {unit}"
    return f"{size_bytes:.3g} B"
