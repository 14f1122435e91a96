"""What fits mean, in words and with a check against the link: sums of what `calibrate.fit` found, no numerics.

Which part of a time a fitted alpha is, whether one line does, whether two directions overlap, and the refusal of what no
link could do. Figures go out in units that people read; printing is the command line's.
"""

from collections.abc import Iterable, Iterator

from calibrate.fit import TOLERANCE, Fit, Line, largest
from calibrate.samples import Samples, SeriesKey
from netsim.errors import NetsimError
from netsim.units import format_bytes, format_rate

HOST_DIRECTIONS = ("h2d", "d2h", "both")

_QUEUED = SeriesKey("copy", "h2d", True)
_SEEN = SeriesKey("copy_sync", "h2d", True)
_OVERLAP = 1.3  # below: both directions at once take hardly longer than the slower one alone
_IN_TURN = 1.7  # above: they take turns


def meaning(key: SeriesKey) -> str:
    """Say which part of a time the fitted alpha of a series is.

    Examples
    --------
    >>> meaning(SeriesKey("copy", "h2d", True)), meaning(SeriesKey("copy_sync", "h2d", True))
    ('gap', 'latency + call')
    """
    if key.kind == "copy_sync":
        return "latency + call"
    if key.kind == "copy_streamed":
        return "gap or call"
    if key.kind == "copy" and key.pinned is False:
        return "gap + staging"
    return "gap" if key.kind in ("copy", "peer") or key.direction in (*HOST_DIRECTIONS, "local") else "latency"


def refuse_impossible(fit: Fit, line_rate_bytes_per_s: float) -> None:
    """Refuse a rate that is above the line rate of the link.

    Raises
    ------
    NetsimError
    """
    rate = fit.best.bandwidth_bytes_per_s
    if rate > line_rate_bytes_per_s:
        raise NetsimError(
            f"{fit.key}: the fitted rate of {rate / 1e9:.4g} GB/s is above the line rate of "
            f"{format_rate(line_rate_bytes_per_s)}, which no copy can be: the samples or the line rate are of something else"
        )


def line_words(line: Line) -> str:
    """Write a line for people."""
    floor = f"floor {line.floor_s * 1e6:.4g} us, " if line.floor_s else ""
    return f"{floor}{line.gap_s * 1e6:.4g} us + n / {line.bandwidth_bytes_per_s / 1e9:.4g} GB/s"


def misfit(fit: Fit) -> list[str]:
    """Say where one line is off by more than `TOLERANCE`, whether another would do, and where it breaks."""
    off, size = fit.worst
    if abs(off) <= TOLERANCE:
        return []
    many = sum(abs(deviation) > TOLERANCE for deviation in fit.deviations)
    words = f"{fit.key}: least squares are off by {off:+.1%} at {format_bytes(size)}"
    words += f", by more than {TOLERANCE:.0%} at {many} size{'s' * (many != 1)}"
    if fit.even is not None:
        least = largest(fit.even, fit.sizes, fit.measured_s)
        if least <= TOLERANCE:
            words += f"; {line_words(fit.even)} is within {least:.1%} at every size"
        else:
            words += f"; no such line is nearer than {least:.1%} at every size"
    said = [words]
    if fit.broken is not None:
        pair = fit.broken
        words = f"{fit.key}: it breaks at {format_bytes(pair.from_bytes)}: {line_words(pair.below)} below it, "
        words += f"{line_words(pair.above)} from it on ({pair.worst:.1%} off at most)"
        if largest(fit.best, fit.sizes, fit.measured_s) > TOLERANCE:
            words += "; a link of one line cannot show this: it would need another line for messages below a size"
        said.append(words)
    return said


def together(samples: Samples, fits: Iterable[Fit]) -> Iterator[str]:
    """Yield what only several series tell: gap or latency, one direction beside both, CPU or GPU."""
    series = samples.series()
    first = {key: rows[0] for key, rows in series.items()}
    if _QUEUED in first and _SEEN in first:
        gap_s, seen_s = first[_QUEUED].median_s, first[_SEEN].median_s
        size, more_s = format_bytes(first[_QUEUED].size_bytes), max(seen_s - gap_s, 0.0)
        yield (
            f"gap or latency: copies of {size} back to back take {gap_s * 1e6:.2f} us each, a gap; one that the CPU waits "
            f"for takes {seen_s * 1e6:.2f} us, so {more_s * 1e6:.2f} us are latency and calls"
        )
    streamed = SeriesKey("copy_streamed", "h2d", True)
    if _QUEUED in first and streamed in first:
        yield (
            f"without a head start the CPU feeds a copy every {first[streamed].median_s * 1e6:.2f} us, "
            f"and the GPU takes {first[_QUEUED].median_s * 1e6:.2f} us"
        )
    for kind, pinned, ways in (("copy", True, ("h2d", "d2h")), ("peer", None, ("0->1", "1->0"))):
        words = _both(samples, kind, pinned, ways)
        if words:
            yield words
    for key, rows in series.items():
        if len(rows) == 1:
            row = rows[0]
            span = f" ({row.least_s * 1e6:.2f} to {row.most_s * 1e6:.2f})" if row.least_s and row.most_s else ""
            yield f"{key}: {row.median_s * 1e6:.2f} us{span}"
    for found in fits:
        yield from misfit(found)


def _both(samples: Samples, kind: str, pinned: bool | None, ways: tuple[str, str]) -> str:
    """Say whether two directions at once overlap, at the largest size that all three series have."""
    times = {
        (row.key.direction, row.size_bytes): row.median_s
        for row in samples.rows
        if row.key.kind == kind and row.key.pinned == pinned
    }
    sizes = [size for way, size in times if way == "both" and all((one, size) in times for one in ways)]
    if not sizes:
        return ""
    size = max(sizes)
    ratio = times["both", size] / max(times[one, size] for one in ways)
    verdict = "they overlap" if ratio < _OVERLAP else "they take turns" if ratio > _IN_TURN else "they share something"
    engines = samples.facts.get("copy_engines")
    known = f" ({engines} copy engine{'s' * (engines != '1')})" if engines and kind == "copy" else ""
    each = size / times["both", size] / 1e9
    return (
        f"{kind} both: {format_bytes(size)} each way at once take {ratio:.2f} times the slower way alone, "
        f"{each:.1f} GB/s each way: {verdict}{known}"
    )
