"""Rows of results as text: CSV with a fixed column order, a table for people, nccl-tests' layout, JSON.

The last stage of the flow. A `Row` is what one run leaves in a table: its fields are the CSV columns, in their order.
Tables that people read use nccl-tests' units (microseconds; GB/s of 1e9 bytes). Numbers in CSV and JSON keep full
precision. Nothing here computes a result, and no pandas is needed.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

SCHEMA = 1
"""Number of the column layout; a change of columns raises it."""


@dataclass(frozen=True)
class Row:
    """One run, one line of a table. An empty cell is None; times of a run that failed are nan, and empty cells too."""

    collective: str
    topology: str
    """As it was asked for, with ``xN`` for N servers."""
    ranks: int
    nodes: int
    algorithm: str
    """The algorithm that ran; with `auto`, the one that was taken."""
    protocol: str
    channels: int
    size_bytes: int
    time_us: float
    algbw_GBps: float  # noqa: N815 - column names are nccl-tests' spelling of its units
    busbw_GBps: float  # noqa: N815
    lower_bound_us: float
    """The run's own bound: the larger of the idle critical path and the busiest link's service."""
    closed_form_us: float | None
    """The alpha-beta formula where one exists and every pair of ranks is joined alike."""
    bottleneck: str
    """The link with the most service, as ``from->to``."""
    engine: str
    messages: int
    version: str
    scenario: str
    seed: int | None
    topology_digest: str
    collective_bound_us: float | None = None
    """What no algorithm can beat on this machine."""
    bottleneck_utilisation: float | None = None
    """Share of the run during which the bottleneck was serving, 0 to 1."""
    chunk_bytes: int | None = None
    chunks: int | None = None
    quantum_bytes: int = 0
    root: int = 0
    rate: str = "effective"
    """Which rate of the link profiles the topology was built with: effective or line."""
    profile: str | None = None
    """A link profile that replaced the machine's own."""
    gpudirect: bool = True
    routing: str = "static"
    groups: str | None = None
    """Which groups of ranks ran the collective at once; empty where all ranks ran one."""
    nccl_version: str | None = None
    """The release of NCCL whose schedule ran; empty for textbook schedules."""
    nccl_model_us: float | None = None
    """What NCCL's own cost model predicts for what ran."""
    note: str = ""
    schema: int = SCHEMA


COLUMNS = tuple(field.name for field in fields(Row))


def csv_text(rows: Iterable[Row], *, header: bool = True) -> str:
    r"""Write rows as CSV.

    Parameters
    ----------
    rows : iterable of Row
        The runs, in order.
    header : bool
        Whether the first line names the columns.

    Returns
    -------
    str
        Lines that end in ``\n``; floats as the shortest text that reads back to the same number.
    """
    lines = [",".join(COLUMNS)] if header else []
    lines += [",".join(csv_cell(getattr(row, name)) for name in COLUMNS) for row in rows]
    return "".join(line + "\n" for line in lines)


def json_text(rows: Iterable[Row]) -> str:
    """Write rows as a JSON array of objects with the CSV's column names, one row a line."""
    import json  # only where used: a perf to CSV starts without it

    items = [json.dumps({name: getattr(row, name) for name in COLUMNS}, allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(items) + "\n]\n"


def aligned(rows: Sequence[Sequence[str]], *, left: Collection[int] = (), heads: int = 0) -> Iterator[str]:
    """Yield rows of cells as lines, columns as wide as their widest cell.

    Parameters
    ----------
    rows : sequence of sequence of str
        As many cells in each.
    left : collection of int
        Columns that are aligned to the left; the others are to the right.
    heads : int
        How many rows, from the first on, are titles and begin with ``#``.

    Examples
    --------
    >>> list(aligned([("size", "algorithm"), ("8", "ring")], left={1}, heads=1))
    ['# size  algorithm', '     8  ring']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, cells in enumerate(rows):
        padded = (
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield f"{'# ' if number < heads else '  '}{'  '.join(padded)}".rstrip()


def human_text(rows: Iterable[Row], *, head: Sequence[str] = ()) -> str:
    """Write rows as an aligned table for people.

    Parameters
    ----------
    rows : iterable of Row
        The runs, in order.
    head : sequence of str
        Lines above the table; each gets a ``# ``.

    Returns
    -------
    str
        Columns: size, time, algorithm and bus bandwidth, algorithm, the time over its lower bound, the bottleneck with
        its utilisation, and a note where one is needed.
    """
    rows = list(rows)
    # What differs from row to row stands in front; what does not is the head's to say.
    varying = [name for name in _MAY_VARY if len({getattr(row, name) for row in rows}) > 1]
    titles = (*varying, "size", "time", "algbw", "busbw", "algorithm", "time/bound", "bottleneck", "busy")
    units = (*[""] * len(varying), "(B)", "(us)", "(GB/s)", "(GB/s)", "", "", "", "")
    left = {*range(len(varying)), len(varying) + 4, len(varying) + 6}
    body = [(*(_plain(getattr(row, name)) for name in varying), *_human_cells(row)) for row in rows]
    lines = [f"# {words}" for words in head]
    lines += aligned([titles, units, *body], left=left, heads=2)
    lines += [f"# note: {note}" for note in dict.fromkeys(row.note for row in rows if row.note)]
    return "\n".join(lines) + "\n"


_MAY_VARY = ("topology", "collective", "chunks")


def model_words(rows: Iterable[Row]) -> list[str]:
    """Say for the head of a table which model its rows come from, one line each.

    Examples
    --------
    >>> model_words([])
    []
    """
    return [model_named(version) for version in dict.fromkeys(row.nccl_version for row in rows)]


def model_named(nccl_version: str | None) -> str:
    """Say which model runs are of: NCCL's of a release, or the textbook's for None."""
    if nccl_version is None:
        return "ideal: textbook alpha-beta, not NCCL"
    return f"NCCL {nccl_version}: its channels, chunks and choices; costs of its kernels by GPU generation"


def _plain(value: object) -> str:
    return "-" if value is None else str(value)


def _human_cells(row: Row) -> tuple[str, ...]:
    if row.time_us != row.time_us:  # a run that failed
        return (str(row.size_bytes), "-", "-", "-", row.algorithm, "-", "-", "-")
    ratio = f"{row.time_us / row.lower_bound_us:.3f}" if row.lower_bound_us else "-"
    busy = "-" if row.bottleneck_utilisation is None else f"{row.bottleneck_utilisation:.1%}"
    times = (
        f"{row.time_us:.3f}" if row.time_us < 1e4 else f"{row.time_us:.1f}",
        f"{row.algbw_GBps:.2f}",
        f"{row.busbw_GBps:.2f}",
    )
    return (str(row.size_bytes), *times, _ran(row), ratio, row.bottleneck or "-", busy)


def _ran(row: Row) -> str:
    """Name what ran: the algorithm, and of NCCL's the protocol and the channels in use."""
    return row.algorithm if row.nccl_version is None else f"{row.algorithm} {row.protocol} x{row.channels}"


# What nccl-tests prints for redop and root in each test (nccl.md 1.4, from its src/*.cu).
_REDUCES = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_NO_IN_PLACE_CHECK = ("alltoall", "sendrecv")
# Tests whose count column is the count of one rank's block, not of the whole size (nccl.md 1.1).
_COUNT_PER_RANK = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
FLOAT_BYTES = 4
"""Size of nccl-tests' default data type."""


def rounded_size(collective: str, ranks: int, size_bytes: int, element_bytes: int = FLOAT_BYTES) -> int:
    """Round a size down as nccl-tests does, by default for its default type.

    Tests whose buffer holds one block a rank cut each block to a multiple of 16 bytes; the others cut the size to
    whole elements (nccl.md 1.1).

    Examples
    --------
    >>> rounded_size("all_gather", 8, 1000), rounded_size("all_reduce", 8, 1003), rounded_size("all_reduce", 8, 1003, 1)
    (896, 1000, 1003)
    """
    elements = size_bytes // element_bytes
    if collective in _COUNT_PER_RANK:
        grain = 16 // element_bytes
        return elements // ranks // grain * grain * ranks * element_bytes
    return elements * element_bytes


def nccl_tests_text(
    rows: Iterable[Row],
    *,
    head: Sequence[str] = (),
    root: int = 0,
    datatype: str = "float",
    element_bytes: int = FLOAT_BYTES,
    operator: str = "sum",
) -> str:
    """Write rows in the layout of nccl-tests' log, so that its parsers read them.

    Parameters
    ----------
    rows : iterable of Row
        The runs, in order; sizes already rounded by `rounded_size`.
    head : sequence of str
        Lines for the ``#`` block on top.
    root : int
        What the root column shows for collectives that have one.
    datatype, operator : str
        What the type column shows, and the redop column for collectives that reduce.
    element_bytes : int
        Size of that type, by which elements are counted.

    Returns
    -------
    str
        Comment lines, one line of 13 fields a row (out-of-place and in-place show the same prediction), and the mean
        bus bandwidth over all rows.
    """
    rows = list(rows)
    lines = [f"# {words}" for words in head]
    groups = "".join(f"{name:>{width}}" for name, width in (("out-of-place", 77), ("in-place", 34)))
    side = f"{'time':>9}{'algbw':>8}{'busbw':>8}{'#wrong':>7}"
    unit = f"{'(us)':>9}{'(GB/s)':>8}{'(GB/s)':>8}{'':>7}"
    lines.append(f"#{groups}")
    lines.append(f"#{'size':>11}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}{side}{side}")
    lines.append(f"#{'(B)':>11}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}{unit}{unit}".rstrip())
    for row in rows:
        blocks = row.ranks if row.collective in _COUNT_PER_RANK else 1
        count = row.size_bytes // element_bytes // blocks
        # send/recv reduces nothing, yet nccl-tests prints sum there.
        redop = operator if row.collective in _REDUCES else "sum" if row.collective == "sendrecv" else "none"
        shown_root = root if row.collective in _ROOTED else -1
        speed = f"{_three_digits(row.time_us):>9}{row.algbw_GBps:>8.2f}{row.busbw_GBps:>8.2f}"
        in_place = "N/A" if row.collective in _NO_IN_PLACE_CHECK else "0"
        described = f"{row.size_bytes:>12}  {count:>12}  {datatype:>8}  {redop:>6}  {shown_root:>6}"
        lines.append(f"{described}{speed}{'0':>7}{speed}{in_place:>7}")
    mean = sum(row.busbw_GBps for row in rows) / len(rows) if rows else 0.0
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {mean:g} ", "#"]
    return "\n".join(lines) + "\n"


def _three_digits(time_us: float) -> str:
    """Write a time as nccl-tests does: two decimals below 100 us, one below 10,000, none above."""
    if time_us < 100:
        return f"{time_us:.2f}"
    return f"{time_us:.1f}" if time_us < 10_000 else f"{time_us:.0f}"


def csv_cell(value: object) -> str:
    """Write one CSV cell: empty for None and for what is not a number, floats in full, text in quotes where it must be."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text
