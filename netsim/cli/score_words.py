"""Tables of errors in words: for people, as Markdown for a README, and every row as CSV."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from netsim import __version__
from netsim.export.table import aligned

if TYPE_CHECKING:
    from scenarios.scores import Score
    from scenarios.validate import Held

_WORST = 10


def counted(held: "Iterable[Held]") -> "list[Held]":
    """Return the tables that count and have a prediction."""
    return [one for one in held if one.entry.scored and one.points]


def class_scores(held: "Sequence[Held]") -> "list[Score]":
    """Return the scores of classes by name, and last that of all; of nothing, where no table counts."""
    from scenarios.scores import score, scores_by

    chosen = counted(held)
    everything = score("all", [(one, [point for point in one.points if point.scored]) for one in chosen])
    by_class = sorted(scores_by(chosen, lambda one, _: one.entry["hw_class"]), key=lambda one: one.name)
    return [*by_class, everything] if everything is not None else []


def table_scores(held: "Sequence[Held]") -> "list[Score]":
    """Return the score of every table, the worst first."""
    from scenarios.scores import scores_by

    return sorted(scores_by(counted(held), lambda one, _: one.entry.path.stem), key=lambda one: -one.median)


def score_lines(held: "Sequence[Held]", *, every_table: bool) -> Iterator[str]:
    """Yield all that `netsim validate` prints."""
    from scenarios.scores import band, scores_by

    chosen = counted(held)
    yield f"# netsim {__version__}: {_count(len(held), 'table')}, {len(chosen)} of them counted; errors of time in %"
    if chosen:
        yield from _aligned("class", class_scores(held))
        yield from _aligned("collective", scores_by(chosen, lambda one, _: one.entry.collective))
        yield from _aligned(
            "predicted as", scores_by(chosen, lambda _, point: f"{point.row.algorithm} {point.row.protocol}")
        )
        yield from _aligned("size", scores_by(chosen, lambda _, point: band(point.size_bytes)))
        tables = table_scores(held)
        yield from _aligned("table" if every_table else "worst tables", tables if every_table else tables[:_WORST])
    yield from _crossings(held)
    yield from _switches(chosen)
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
            if remark.startswith(("not simulated", "left out")):
                yield f"# {one.entry.path.name}: {remark}"


def markdown_lines(title: str, scores: "Iterable[Score]") -> Iterator[str]:
    """Yield a Markdown table of errors in per cent, median / nine in ten."""
    yield f"| {title} | tables | rows | median / nine in ten | NCCL's model | ours on its rows |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for one in scores:
        model, ours = _percent(one.model), _percent(one.on_models_rows)
        name = one.name.replace("|", "\\|")
        yield f"| {name} | {one.tables} | {one.rows} | {_percent((one.median, one.ninety))} | {model} | {ours} |"


def csv_of(held: "Iterable[Held]") -> str:
    """Return a line for every row that was simulated."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("hw_class", "kind", "score", "collective", "n_gpus", "n_nodes", "nccl_version", "in_place")
    predicted = ("algorithm", "protocol", "channels", "nccl_model_us", "bottleneck")
    writer.writerow(("file", *columns, "size_bytes", "measured_us", "time_us", "error", "counted", *predicted))
    for one in held:
        for point in one.points:
            counts = "yes" if point.scored and one.entry.scored else "no"
            figures = (point.size_bytes, point.measured_us, point.row.time_us, point.error, counts)
            cells = (getattr(point.row, name) for name in predicted)
            writer.writerow((one.entry.path.name, *(one.entry[name] for name in columns), *figures, *cells))
    return text.getvalue()


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
            f"# {_count(len(found), 'crossing')}, {len(factors)} of them predicted, off by a factor of "
            f"{math.exp(statistics.median(apart)):.2f} in the median, {math.exp(max(apart)):.2f} at most"
        )


def _switches(held: "Sequence[Held]") -> Iterator[str]:
    from scenarios.switches import kinds, kinks_in_all, switches

    found = switches(held)
    if not found:
        return
    yield "# steps of size in which NCCL's choice is predicted to change, and the steepest kink of the measured curve near"
    for one in found:
        kink = "no kink near" if one.kink is None else f"kink {one.kink.from_bytes:,} to {one.kink.to_bytes:,} B"
        step = f"{one.from_bytes:,} to {one.to_bytes:,} B"
        yield f"  {one.file}: {one.below} -> {one.above} {step}, {kink}"
    yield "# the same by what changes: changes, those with a kink near, those in its step, and how far apart they are"
    for kind in kinds(found):
        apart = "" if kind.factor is None else f", a factor of {kind.factor:.2f}"
        yield f"  {kind.name}: {kind.changes}, {kind.near} near, {kind.together} in the step{apart}"
    near = sum(one.kink is not None for one in found)
    inside = sum(one.together for one in found)
    yield f"# {_count(len(found), 'change')}, {near} of them with a kink near, {inside} in the same step"
    everywhere = _count(kinks_in_all(held), "kink")
    yield f"# the curves have {everywhere} in all"


def _aligned(title: str, scores: "Iterable[Score]") -> Iterator[str]:
    rows = [(title, "tables", "rows", "median", "9 in 10", "bias", "NCCL's model", "(ours there)")]
    for one in scores:
        figures = (f"{one.median * 100:.1f}", f"{one.ninety * 100:.1f}", f"{one.bias * 100:+.1f}")
        rows.append((one.name, str(one.tables), str(one.rows), *figures, _percent(one.model), _percent(one.on_models_rows)))
    yield from aligned(rows, left={0}, heads=1)


def _percent(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{pair[0] * 100:.1f} / {pair[1] * 100:.1f}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
