"""``netsim validate``: measured tables beside predictions, and the errors by class, collective, protocol and size."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netsim import __version__
from netsim.cli import options
from netsim.cli.progress import Progress
from netsim.cli.score_words import class_scores, counted, csv_of, markdown_lines, score_lines, table_scores
from netsim.errors import NetsimError
from netsim.export.files import write_whole
from netsim.export.plot import Comparison, Panel, check_plot_target, draw_panels

if TYPE_CHECKING:
    from scenarios.validate import Held

EXAMPLE = "netsim validate tests/data/tables"
FORMATS = ("text", "markdown")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
def validate(
    folders: Annotated[list[str], typer.Argument(help="Folders of measured tables, each with an index.csv.")],
    only: Annotated[str | None, typer.Option("--only", help="Only tables whose file or class has this in its name.")] = None,
    every_row: Annotated[
        bool, typer.Option("--every-row", help="Simulate all rows, also those that do not count for the score.")
    ] = False,
    max_messages: options.MaxMessages = None,
    max_ranks: Annotated[
        int | None, typer.Option("--max-ranks", min=1, help="Leave tables of more GPUs out; a thousand take many minutes.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", "-j", min=1, help="Processes to work with.")] = 1,
    tables: Annotated[bool, typer.Option("--tables", help="Also the errors of every table.")] = False,
    rows: Annotated[
        str | None, typer.Option("--csv", help="Also write every row to this file; - writes CSV alone to stdout.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--format", help="text; markdown: only the table of classes, as a README shows it.")
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option("--figure", help="Also draw measured and predicted times, a panel a class; .svg, .png or .pdf."),
    ] = None,
) -> int:
    """Hold measured tables against predictions and print the errors of time.

    Every table that counts weighs the same, with at most 12 of its rows, evenly spread; the first rows are left out where
    they are a warm-up. A table that no rule maps to a machine is listed with the reason. Faults and tables of unclear origin
    are listed apart: they should be found off.
    """
    from scenarios import validate as room
    from scenarios.sweep import local_executor

    if layout is not None and layout not in FORMATS:
        raise NetsimError(f"--format: unknown format {layout!r}; accepted are {', '.join(FORMATS)}")
    if layout is not None and rows == "-":
        raise NetsimError(f"--csv - and --format {layout} both want stdout; give --csv a file name")
    target = None if rows is None or rows == "-" else options.target_of(rows)
    picture = None if figure is None else options.target_of(figure, "--figure", "errors.svg")
    form = "" if figure is None else check_plot_target(figure, "--figure")
    words = (only or "").lower()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(local_executor(workers)) if workers > 1 else None
        progress = stack.enter_context(Progress(1))
        held = room.validate(
            folders,
            scored_only=not every_row,
            max_messages=max_messages or room.MOST_MESSAGES,
            max_ranks=max_ranks,
            only=lambda entry: words in f"{entry.path.name} {entry['hw_class']}".lower(),
            executor=pool,
            told=lambda done, total, name: progress.say(f"{done} of {total} tables, {name}"),
        )
    if rows == "-":
        print(csv_of(held), end="")
    elif target is not None:
        write_whole(target, csv_of(held))
    if picture is not None:
        _draw(held, picture, form)
    if rows != "-":
        for line in _markdown(held, every_table=tables) if layout == "markdown" else score_lines(held, every_table=tables):
            print(line)
    return 0


def _markdown(held: "Sequence[Held]", *, every_table: bool) -> Iterator[str]:
    yield from markdown_lines("class", class_scores(held))
    if every_table:
        yield ""
        yield from markdown_lines("table", table_scores(held))


def _draw(held: "Sequence[Held]", target: Path, form: str) -> None:
    """Write the figure, a panel a class and a colour a collective; or say that there is nothing to draw."""
    chosen, scores = counted(held), class_scores(held)
    if not scores:
        print("netsim: wrote no figure: no table that counts has a prediction", file=sys.stderr)
        return
    panels = [
        Panel(
            f"{one.name}: {one.median * 100:.1f} %, {one.tables} table{'s' * (one.tables != 1)}",
            tuple(_comparison(member) for member in chosen if member.entry["hw_class"] == one.name),
        )
        for one in scores[:-1]
    ]
    everything = scores[-1]
    title = (
        f"netsim {__version__} beside {everything.tables} measured table{'s' * (everything.tables != 1)}: "
        f"median error {everything.median * 100:.1f} %, nine in ten within {everything.ninety * 100:.1f} %"
    )
    write_whole(target, draw_panels(panels, title=title, form=form))
    print(f"netsim: wrote {len(panels)} panel{'s' * (len(panels) != 1)} to {target}", file=sys.stderr)


def _comparison(one: "Held") -> Comparison:
    return Comparison(
        one.entry.collective,
        tuple(point.size_bytes for point in one.points),
        tuple(point.measured_us for point in one.points),
        tuple(point.row.time_us for point in one.points),
    )
