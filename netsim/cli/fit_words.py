"""A fit by simulation as lines that people read, and its rows as CSV."""

import csv
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from netsim import __version__
from netsim.cli.options import size_words
from netsim.export.table import aligned
from scenarios.fit_files import command, constant_us, value_words
from scenarios.fit_parameters import write_point
from scenarios.fit_predict import Task
from scenarios.fit_report import FAR, Errors, Misfit, Reach, errors_by_band, errors_by_series, misfits, reach, rows_of
from scenarios.fit_search import Fitted, Outcome
from scenarios.fit_series import Series

COLUMNS = (
    "log",
    "collective",
    "topology",
    "ranks",
    "algorithm",
    "protocol",
    "channels",
    "size_bytes",
    "measured_us",
    "before_us",
    "after_us",
    "error_before",
    "error_after",
    "version",
    "schema",
)
_SCHEMA = 1
_MOST_MISFITS = 5
_MOST_NAMED = 4
_HARDLY = 0.5
"""Share from the start above which times hardly decide a number."""


def report(
    series: Sequence[Series], outcome: Outcome, files: Sequence[Path], remarks: Iterable[str], *, max_messages: int
) -> Iterator[str]:
    """Yield what a fit came to: parameters, errors before and after, sizes, doubts, and the command that uses it."""
    rows = sum(len(one.rows) for one in series)
    seen = [one for one in outcome.fitted if one.seen]
    yield (
        f"# netsim {__version__}: {len(seen)} parameter{'s' * (len(seen) != 1)} fitted to {rows} row{'s' * (rows != 1)} of "
        f"{len(series)} log{'s' * (len(series) != 1)} by simulation, {outcome.rounds} step{'s' * (outcome.rounds != 1)}"
    )
    topology = series[0].spec.machine.topology
    yield from _parameters(seen, topology)
    unseen = [one.parameter.name for one in outcome.fitted if not one.seen]
    if unseen:
        named = ", ".join(unseen[:_MOST_NAMED]) + (f" and {len(unseen) - _MOST_NAMED} more" * (len(unseen) > _MOST_NAMED))
        yield f"# not fitted, as these times do not depend on it, or hardly: {named}"
    yield ""
    yield from _errors(errors_by_series(series, outcome), "log")
    bands = errors_by_band(series, outcome)
    if len(bands) > 1:
        yield from _errors(bands, "size")
    if not outcome.stopped:
        yield from _reaches(series, outcome, max_messages)
    yield ""
    for words in _doubts(series, outcome, remarks):
        yield f"# {words}"
    constant = constant_us(outcome)
    if constant:
        yield f"# a call takes {constant:.4g} us beside all that its links do; no file holds that, so add it to these times:"
    longest = max(series, key=lambda one: (len(one.rows), one.ranks))
    yield command(longest, outcome, files)


def _parameters(seen: Sequence[Fitted], topology: str) -> Iterator[str]:
    titles = ("parameter", "before", "after", "95 % interval", "from its start")
    body = []
    for one in seen:
        low, high = (value_words(one.parameter, factor, topology) for factor in one.interval)
        limit = ", at its limit" * one.at_limit
        before, after = (value_words(one.parameter, factor, topology) for factor in (1.0, one.factor))
        body.append((one.parameter.name, before, after, f"{low} to {high}{limit}", f"{one.held:.0%}"))
    yield from aligned([titles, *body], left={0}, heads=1)


def _errors(errors: Sequence[Errors], what: str) -> Iterator[str]:
    titles = (f"error by {what}", "rows", "before", "9 in 10", "after", "9 in 10")
    body = [
        (one.name, str(one.rows), *(f"{value:.1%}" for value in (*one.before, *one.after))) for one in errors if one.rows
    ]
    yield from aligned([titles, *body], left={0}, heads=1)


def _reaches(series: Sequence[Series], outcome: Outcome, max_messages: int) -> Iterator[str]:
    """Yield at which sizes each run reaches half and nine tenths of its best bandwidth."""
    with tempfile.TemporaryDirectory() as folder:
        parameters = [one.parameter for one in outcome.fitted]
        point = write_point(parameters, outcome.values, Path(folder))
        task = Task((), point, max_messages)
        found = [reach(one, after, task) for one, after in zip(series, outcome.after, strict=True)]
    body = [_reach(one) for one in found if one is not None]
    if body:
        titles = ("fitted run", "smallest", "best algbw", "busbw", "half of it from", "90 % from")
        units = ("", "(us)", "(GB/s)", "(GB/s)", "", "")
        yield from aligned([titles, units, *body], left={0}, heads=2)


def _reach(one: Reach) -> tuple[str, ...]:
    def size(value: float | None) -> str:
        return "the smallest" if value is None else size_words(int(float(f"{value:.3g}")))

    figures = f"{one.empty_us:.4g}", f"{one.algbw_GBps:.4g}", f"{one.busbw_GBps:.4g}"
    return one.series.name, *figures, size(one.half_bytes), size(one.ninety_bytes)


def _doubts(series: Sequence[Series], outcome: Outcome, remarks: Iterable[str]) -> Iterator[str]:
    yield from remarks
    for one in series:
        for words in one.remarks:
            yield f"{one.name}: {words}"
    for error in errors_by_series(series, outcome):
        if error.missing and error.name != "all":
            words = "1 row takes" if error.missing == 1 else f"{error.missing} rows take"
            yield f"{error.name}: {words} no part: not simulated, or only with more --max-messages"
    for fitted in outcome.fitted:
        if fitted.at_limit:
            yield f"{fitted.parameter.name} is held at its limit: payload is no faster than the line"
    hardly = [one.parameter.name for one in outcome.fitted if one.seen and not one.at_limit and one.held > _HARDLY]
    if hardly:
        yield f"hardly decided by these times, and so near the start: {', '.join(hardly)}"
    far = median_after(series, outcome)
    if far > FAR:
        yield (
            f"the fit is no good, {far:.0%} off in the median: most likely the machine, the number of GPUs, the collective "
            "or the algorithm is another one than these logs are of"
        )
    found = misfits(series, outcome)
    if found:
        yield "one set of parameters does not explain all of these times:"
    for misfit in found[:_MOST_MISFITS]:
        yield f"  {_misfit(misfit)}"
    if len(found) > _MOST_MISFITS:
        yield f"  and {len(found) - _MOST_MISFITS} more stretches; --csv writes every row"


def median_after(series: Sequence[Series], outcome: Outcome) -> float:
    """Return the median error after a fit, of all rows."""
    return errors_by_series(series, outcome)[-1].after[0]


def _misfit(one: Misfit) -> str:
    side = "above" if one.worst > 0 else "below"
    span = f"{_bytes(one.first)} to {_bytes(one.last)}"
    return f"{one.where}: simulated {side} measured from {span}, {one.rows} rows in a row, {one.worst:+.0%} at worst"


def _bytes(text: str) -> str:
    """Write a size for people; numbers of GPUs stay."""
    number, _, unit = text.partition(" ")
    return size_words(int(number)) if unit == "B" else text


def csv_of(series: Sequence[Series], outcome: Outcome) -> str:
    """Return every simulated row as CSV, in full precision."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(COLUMNS)
    for one, size, measured, before, after in rows_of(series, outcome):
        run = (one.spec.collective, one.spec.machine.label, one.ranks, after.algorithm, after.protocol, after.channels)
        errors = before.time_us / measured - 1, after.time_us / measured - 1
        write([one.name, *run, size, measured, before.time_us, after.time_us, *errors, __version__, _SCHEMA])
    return out.getvalue()
