"""``netsim validate``: measured tables beside predictions, and the errors by class, collective, protocol and size."""

import contextlib
import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import TYPE_CHECKING, Annotated

import typer

from netsim import __version__
from netsim.cli import options
from netsim.cli.progress import Progress
from netsim.export.files import write_whole

if TYPE_CHECKING:
    from scenarios.scores import Score
    from scenarios.validate import Held

EXAMPLE = "netsim validate tests/data/tables"
_WORST = 10

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
def validate(
    folders: Annotated[list[str], typer.Argument(help="Folders of measured tables, each with an index.csv.")],
    only: Annotated[str | None, typer.Option("--only", help="Only tables whose file or class has this in its name.")] = None,
    every_row: Annotated[
        bool, typer.Option("--every-row", help="Simulate all rows, also those that do not count for the score.")
    ] = False,
    max_messages: options.MaxMessages = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes to work with.")] = 1,
    tables: Annotated[bool, typer.Option("--tables", help="Also the errors of every table.")] = False,
    rows: Annotated[
        str | None, typer.Option("--csv", help="Also write every row to this file; - writes it to stdout.")
    ] = None,
) -> int:
    """Hold measured tables against predictions and print the errors of time.

    Every table that counts weighs the same, with at most 12 of its rows, evenly spread; the first rows are left out where
    they are a warm-up. A table that no rule maps to a machine is listed with the reason. Faults and tables of unclear origin
    are listed apart: they should be found off.
    """
    from scenarios import validate as room

    target = None if rows is None or rows == "-" else options.target_of(rows)
    words = (only or "").lower()
    with contextlib.ExitStack() as stack:
        pool: Executor | None = stack.enter_context(ProcessPoolExecutor(workers)) if workers > 1 else None
        progress = stack.enter_context(Progress(1))
        held = room.validate(
            folders,
            scored_only=not every_row,
            max_messages=max_messages or room.MOST_MESSAGES,
            only=lambda entry: words in f"{entry.path} {entry['hw_class']}".lower(),
            executor=pool,
            told=lambda done, total, name: progress.say(f"{done} of {total} tables, {name}"),
        )
    if rows == "-":
        print(_csv(held), end="")
    elif target is not None:
        write_whole(target, _csv(held))
    if rows != "-":
        for line in _lines(held, every_table=tables):
            print(line)
    return 0


def _lines(held: "Sequence[Held]", *, every_table: bool) -> Iterator[str]:
    from scenarios.scores import band, score, scores_by

    counted = [one for one in held if one.entry.scored and one.points]
    yield f"# netsim {__version__}: {len(held)} tables, {len(counted)} of them counted; errors of time in %"
    everything = score("all", [(one, [point for point in one.points if point.scored]) for one in counted])
    if everything is not None:
        yield from _table(
            "class", [*sorted(scores_by(counted, lambda one, _: one.entry["hw_class"]), key=_name), everything]
        )
        yield from _table("collective", scores_by(counted, lambda one, _: one.entry.collective))
        yield from _table("predicted as", scores_by(counted, lambda _, point: f"{point.row.algorithm} {point.row.protocol}"))
        yield from _table("size", scores_by(counted, lambda _, point: band(point.size_bytes)))
        by_table = scores_by(counted, lambda one, _: one.entry.path.stem)
        worst = sorted(by_table, key=lambda one: -one.median)
        yield from _table("table" if every_table else "worst tables", worst if every_table else worst[:_WORST])
    yield from _crossings(held)
    apart = [one for one in held if one.points and not one.entry.scored]
    if apart:
        yield "# tables that do not count: how many times longer than predicted they took, in the median"
        for one in apart:
            factor = statistics.median(point.measured_us / point.row.time_us for point in one.points)
            yield f"  {factor:6.2f}  {one.entry.kind:8} {one.entry.path.name}"
    missing = [one for one in held if not one.points]
    if missing:
        yield "# without a prediction"
        for one in missing:
            yield f"  {one.entry.path.name}: {'; '.join(one.remarks)}"
    for one in held:
        for remark in one.remarks if one.points else ():
            if remark.startswith("not simulated"):
                yield f"# {one.entry.path.name}: {remark}"


def _crossings(held: "Sequence[Held]") -> Iterator[str]:
    from scenarios.scores import crossings

    found = crossings(held)
    if not found:
        return
    yield "# sizes at which tables of one machine that differ in what was forced change places"
    for one in found:
        where = "nowhere" if one.factor is None else f"{one.predicted_bytes:,.0f} B, {one.factor:.2f} of it"
        yield f"  {one.first} -> {one.second}: measured {one.measured_bytes:,.0f} B, predicted {where}"
    factors = [one.factor for one in found if one.factor is not None]
    apart = [abs(math.log(factor)) for factor in factors]
    if factors:
        yield (
            f"# {len(found)} crossings, {len(factors)} of them predicted, off by a factor of "
            f"{math.exp(statistics.median(apart)):.2f} in the median, {math.exp(max(apart)):.2f} at most"
        )


def _name(one: "Score") -> str:
    return one.name


def _table(title: str, scores: "Iterable[Score]") -> Iterator[str]:
    rows = [(title, "tables", "rows", "median", "9 in 10", "bias", "NCCL's model", "(ours there)")]
    for one in scores:
        model = "" if one.model is None else f"{one.model[0] * 100:.1f} / {one.model[1] * 100:.1f}"
        mine = "" if one.on_models_rows is None else f"{one.on_models_rows[0] * 100:.1f} / {one.on_models_rows[1] * 100:.1f}"
        figures = (f"{one.median * 100:.1f}", f"{one.ninety * 100:.1f}", f"{one.bias * 100:+.1f}")
        rows.append((one.name, str(one.tables), str(one.rows), *figures, model, mine))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, cells in enumerate(rows):
        line = "  ".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        yield f"{'# ' if not number else '  '}{cells[0].ljust(widths[0])}  {line}".rstrip()


def _csv(held: "Sequence[Held]") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("hw_class", "kind", "score", "collective", "n_gpus", "n_nodes", "nccl_version", "in_place")
    predicted = ("algorithm", "protocol", "channels", "nccl_model_us", "bottleneck")
    writer.writerow(("file", *columns, "size_bytes", "measured_us", "time_us", "error", "counted", *predicted))
    for one in held:
        for point in one.points:
            counted = "yes" if point.scored and one.entry.scored else "no"
            figures = (point.size_bytes, point.measured_us, point.row.time_us, point.error, counted)
            cells = (getattr(point.row, name) for name in predicted)
            writer.writerow((one.entry.path.name, *(one.entry[name] for name in columns), *figures, *cells))
    return text.getvalue()
