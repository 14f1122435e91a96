"""Fits as a table that people read and as CSV, one row a series."""

import csv
import io
from collections.abc import Iterator, Sequence

from calibrate.findings import HOST_DIRECTIONS, meaning
from calibrate.fit import Estimate, Fit
from netsim import __version__
from netsim.cli.options import size_words
from netsim.export.table import aligned

COLUMNS = (
    "kind",
    "direction",
    "pinned",
    "sizes",
    "floor_us",
    "floor_low_us",
    "floor_high_us",
    "alpha_us",
    "alpha_low_us",
    "alpha_high_us",
    "alpha_is",
    "bandwidth_GBps",
    "bandwidth_low_GBps",
    "bandwidth_high_GBps",
    "half_bytes",
    "line_rate_GBps",
    "worst_deviation",
    "worst_bytes",
    "best_floor_us",
    "best_alpha_us",
    "best_bandwidth_GBps",
    "break_bytes",
    "version",
    "schema",
)
_SCHEMA = 1


def table(fits: Sequence[Fit], line_rate_bytes_per_s: float | None, *, residuals: bool = False) -> Iterator[str]:
    """Yield the lines of a table in the style of nccl-tests, and with residuals those of each series by size."""
    yield "# time = max(floor, alpha + n / B) by least squares on its logarithm; +- is half of the 95 % interval"
    titles = ("series", "sizes", "floor", "+-", "alpha", "+-", "B", "+-", "of line", "n_half", "worst", "at", "alpha is")
    units = ("", "", "(us)", "", "(us)", "", "(GB/s)", "", "(%)", "(B)", "(%)", "", "")
    yield from _columns([titles, units, *(_row(found, line_rate_bytes_per_s) for found in fits)])
    if not residuals:
        return
    for found in fits:
        yield f"# {found.key}"
        rows = [
            (str(size), f"{time * 1e6:.3f}", f"{found.line.time_s(size) * 1e6:.3f}", f"{off * 100:+.1f}", "")
            for size, time, off in zip(found.sizes, found.measured_s, found.deviations, strict=True)
        ]
        yield from _columns([("size", "measured", "fitted", "off", ""), ("(B)", "(us)", "(us)", "(%)", ""), *rows])


def csv_of(fits: Sequence[Fit], line_rate_bytes_per_s: float | None) -> str:
    """Return the fits as CSV, in full precision."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(COLUMNS)
    for found in fits:
        line = _line_rate(found, line_rate_bytes_per_s)
        best = found.best
        write(
            [
                found.key.kind,
                found.key.direction,
                "" if found.key.pinned is None else found.key.pinned,
                len(found.sizes),
                *_ends(found.floor, 1e6),
                *_ends(found.gap, 1e6),
                meaning(found.key),
                *_ends(found.bandwidth, 1e-9),
                found.half_bytes,
                "" if line is None else line * 1e-9,
                *found.worst,
                best.floor_s * 1e6 or "",
                best.gap_s * 1e6,
                best.bandwidth_bytes_per_s * 1e-9,
                "" if found.broken is None else found.broken.from_bytes,
                __version__,
                _SCHEMA,
            ]
        )
    return out.getvalue()


def _row(found: Fit, line_rate_bytes_per_s: float | None) -> tuple[str, ...]:
    line = _line_rate(found, line_rate_bytes_per_s)
    rate = found.bandwidth
    off, size = found.worst
    return (
        str(found.key),
        str(len(found.sizes)),
        *(("-", "-") if found.floor is None else _figure(found.floor, 1e6)),
        *_figure(found.gap, 1e6),
        *_figure(rate, 1e-9),
        "-" if line is None else f"{rate.value / line * 100:.1f}",
        f"{found.half_bytes:.0f}",
        f"{off * 100:+.1f}",
        size_words(size),
        meaning(found.key),
    )


def _line_rate(found: Fit, line_rate_bytes_per_s: float | None) -> float | None:
    """Return the line rate where it is that of this series: the host's link."""
    return line_rate_bytes_per_s if found.key.direction in HOST_DIRECTIONS else None


def _figure(estimate: Estimate, factor: float) -> tuple[str, str]:
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.value * factor:.3f}", f"{half * factor:.3f}"


def _ends(estimate: Estimate | None, factor: float) -> list[float | str]:
    if estimate is None:
        return ["", "", ""]
    return [estimate.value * factor, estimate.low * factor, estimate.high * factor]


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with the last cell left-aligned, two of them as the head."""
    yield from aligned(rows, left={len(rows[0]) - 1}, heads=2)
