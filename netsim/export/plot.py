"""Figures: time and bus bandwidth against size, with crossings and measured points, and predictions beside tables.

The only module that knows matplotlib, which is an extra and imported inside functions. Pictures are drawn without a
display, and the same data gives the same bytes with the same matplotlib. Nothing here computes a result: curves,
crossings and measured points come in as numbers.
"""

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsim.errors import NetsimError

SUFFIXES = (".svg", ".png", ".pdf")
"""Forms of picture, by the end of the file's name."""

# Okabe and Ito's palette, which people with any colour vision tell apart; its black is kept for what was measured.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
_MARKS = "osD^vP*"
_MEASURED_MARKS = "x+1234"
_UNSTABLE = {"svg": ("Date",), "png": ("Software",), "pdf": ("CreationDate",)}
"""What a form of picture would tell about when or by what it was drawn."""
_TITLE_COLUMNS = 110  # what fits above both panels in the title's font size
# Text stays text in SVG and PDF, and ids are not random, so that the same data gives the same bytes.
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "netsim", "pdf.fonttype": 42, "font.size": 9.0}
_PANELS_A_ROW = 4
_PANEL_INCHES = (3.0, 2.4)
_PANEL_COLUMNS = 42  # characters of a title that fit above one panel


@dataclass(frozen=True)
class Curve:
    """One line, or one set of measured points."""

    name: str
    sizes_bytes: tuple[int, ...]
    times_us: tuple[float, ...]
    busbw_GBps: tuple[float, ...]  # noqa: N815 - nccl-tests' spelling of its units
    measured: bool = False


@dataclass(frozen=True)
class Mark:
    """A size at which another algorithm becomes the fastest."""

    size_bytes: float
    time_us: float
    words: str


@dataclass(frozen=True)
class Comparison:
    """One measured table and what is predicted at its sizes."""

    name: str
    """What its line is coloured by."""
    sizes_bytes: tuple[int, ...]
    measured_us: tuple[float, ...]
    predicted_us: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """Comparisons that are drawn over one another."""

    title: str
    comparisons: tuple[Comparison, ...]


def check_plot_target(name: str, option: str = "--output") -> str:
    """Return the form of a picture from its file's name, and say early when it cannot be drawn.

    Raises
    ------
    NetsimError
        If the name ends in none of them, or matplotlib is not installed.
    """
    from importlib.util import find_spec

    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        end = f"ends in {suffix!r}" if suffix else "has no ending that tells the kind of picture"
        raise NetsimError(f"{option}: {name!r} {end}; accepted are {', '.join(SUFFIXES[:-1])} and {SUFFIXES[-1]}")
    if find_spec("matplotlib") is None:
        raise NetsimError(
            "a plot needs matplotlib, which is not installed; install it with: pip install 'netsim-collectives[plot]'"
        )
    return suffix[1:]


def draw(curves: Sequence[Curve], marks: Sequence[Mark], *, title: str, form: str) -> bytes:
    """Draw time (logarithmic) and bus bandwidth against size (logarithmic) side by side.

    Parameters
    ----------
    curves : sequence of Curve
        Simulated ones become lines, measured ones points. Sizes and times of zero have no place on a logarithmic axis
        and are left out.
    marks : sequence of Mark
        Crossings.
    title : str
        What was asked.
    form : {"svg", "png", "pdf"}
        What to return.

    Returns
    -------
    bytes
        The picture.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8.4, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        time_axes, rate_axes = figure.subplots(1, 2)
        simulated = [curve for curve in curves if not curve.measured]
        measured = [curve for curve in curves if curve.measured]
        for place, curve in enumerate(simulated):
            style = {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKS[place % len(_MARKS)]}
            _line(time_axes, rate_axes, curve, style | {"markersize": 3, "linewidth": 1.2})
        for place, curve in enumerate(measured):
            sign = _MEASURED_MARKS[place % len(_MEASURED_MARKS)]
            _line(time_axes, rate_axes, curve, {"color": "black", "linestyle": "none", "marker": sign, "markersize": 5})
        for mark in marks:
            _crossing(time_axes, mark)
            rate_axes.axvline(mark.size_bytes, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
        time_axes.set(xscale="log", yscale="log", xlabel="size (bytes)", ylabel="time (us)")
        rate_axes.set(xscale="log", xlabel="size (bytes)", ylabel="bus bandwidth (GB/s)")
        rate_axes.set_ylim(bottom=0)
        for axes in (time_axes, rate_axes):
            _size_ticks(axes)
            axes.grid(visible=True, color="0.9", linewidth=0.6)
            axes.set_axisbelow(True)
        figure.legend(*time_axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle(textwrap.fill(title, _TITLE_COLUMNS), fontsize=10)
        return _written(figure, form)


def draw_panels(panels: Sequence[Panel], *, title: str, form: str) -> bytes:
    """Draw small multiples of time against size, both logarithmic: measured points in black, predictions as lines.

    Parameters
    ----------
    panels : sequence of Panel
        At least one. Comparisons of one name have one colour and one mark in all panels. Sizes and times of zero have no
        place on a logarithmic axis and are left out.
    title : str
        What is compared, and how well it agrees.
    form : {"svg", "png", "pdf"}
        What to return.

    Returns
    -------
    bytes
        The picture.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(one.name for panel in panels for one in panel.comparisons))
    across = min(_PANELS_A_ROW, len(panels))
    down = -(-len(panels) // across)
    with mpl.rc_context(_STYLE):
        width, height = _PANEL_INCHES
        # A single narrow panel would leave no room for the title.
        figure = Figure(figsize=(max(2, across) * width, down * height + 0.8), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.set_axis_off()
                continue
            _compare(axes, panels[place], names)
            # Those of the lowest row, and those that have nothing below.
            if place + across >= len(panels):
                axes.set_xlabel("size (bytes)")
            if place % across == 0:
                axes.set_ylabel("time (us)")
        figure.legend(handles=_legend(names), loc="outside lower center", ncols=3 * max(2, across), frameon=False)
        figure.suptitle(textwrap.fill(title, max(2, across) * _PANEL_COLUMNS), fontsize=10)
        return _written(figure, form)


def _compare(axes: Any, panel: Panel, names: Sequence[str]) -> None:
    """Draw the comparisons of one panel."""
    for one in panel.comparisons:
        place = names.index(one.name)
        columns = zip(one.sizes_bytes, one.measured_us, one.predicted_us, strict=True)
        shown = [(size, found, told) for size, found, told in columns if min(size, found, told) > 0]
        if shown:
            sizes, measured, predicted = zip(*shown, strict=True)
            axes.plot(sizes, predicted, color=_COLOURS[place % len(_COLOURS)], linewidth=1.0)
            axes.plot(sizes, measured, **_measured_style(place))
    axes.set(xscale="log", yscale="log")
    axes.set_title(textwrap.fill(panel.title, _PANEL_COLUMNS), fontsize=8.5, parse_math=False)
    axes.tick_params(labelsize=7.5)
    _size_ticks(axes)
    axes.grid(visible=True, color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def _legend(names: Sequence[str]) -> list[Any]:
    """Return a sample of the line and the mark of each name, and one that says which of them is measured."""
    from matplotlib.lines import Line2D

    samples = []
    for place, name in enumerate(names):
        sign: dict[str, Any] = _measured_style(place) | {"linestyle": "-", "markersize": 5, "markeredgecolor": "black"}
        sign["color"] = _COLOURS[place % len(_COLOURS)]
        samples.append(Line2D([], [], linewidth=1.5, label=name, **sign))
    samples.append(Line2D([], [], color="0.4", linewidth=1.5, label="predicted"))
    samples.append(Line2D([], [], **_measured_style(0), label="measured"))
    return samples


def _measured_style(place: int) -> dict[str, Any]:
    sign = _MEASURED_MARKS[place % len(_MEASURED_MARKS)]
    return {"color": "black", "linestyle": "none", "marker": sign, "markersize": 3.5, "markeredgewidth": 0.7}


def _written(figure: Any, form: str) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=form, metadata=dict.fromkeys(_UNSTABLE[form]), dpi=100)
    return stream.getvalue()


def _line(time_axes: Any, rate_axes: Any, curve: Curve, style: dict[str, Any]) -> None:
    """Draw one curve into both panels."""
    columns = zip(curve.sizes_bytes, curve.times_us, curve.busbw_GBps, strict=True)
    shown = [(size, time, rate) for size, time, rate in columns if size > 0 and time > 0]
    sizes, times, rates = (list(column) for column in zip(*shown, strict=True)) if shown else ([], [], [])
    time_axes.plot(sizes, times, label=curve.name, **style)
    rate_axes.plot(sizes, rates, label=curve.name, **style)


def _crossing(axes: Any, mark: Mark) -> None:
    """Mark a crossing on the panel of times."""
    axes.axvline(mark.size_bytes, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    axes.plot([mark.size_bytes], [mark.time_us], marker="o", markersize=8, fillstyle="none", color="0.3", linestyle="none")
    axes.annotate(
        mark.words,
        (mark.size_bytes, mark.time_us),
        xytext=(6, -14),
        textcoords="offset points",
        color="0.3",
        fontsize=7.5,
    )


def _size_ticks(axes: Any) -> None:
    """Put ticks at powers of two, a few of them, in binary units."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.xaxis.set_major_locator(LogLocator(base=16, numticks=12))
    axes.xaxis.set_minor_locator(LogLocator(base=4, numticks=24))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _size_words(value)))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def _size_words(size_bytes: float) -> str:
    """Write a size on an axis.

    Examples
    --------
    >>> _size_words(16), _size_words(4096), _size_words(2**30)
    ('16', '4 Ki', '1 Gi')
    """
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size_bytes >= 2**power:
            return f"{size_bytes / 2**power:g} {unit}"
    return f"{size_bytes:g}"
