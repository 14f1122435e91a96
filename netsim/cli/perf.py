"""``netsim perf``: nccl-tests for a machine you do not have."""

import contextlib
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from netsim.cli import INTERRUPTED, nccl_tests, options
from netsim.cli.progress import Progress
from netsim.errors import NetsimError
from netsim.export.files import write_whole
from netsim.export.table import Row, csv_text, human_text, json_text, model_words, nccl_tests_text, rounded_size
from netsim.fabric import ranks_of
from netsim.schedule.protocols import IDEAL
from scenarios.groups import read_groups
from scenarios.machine import graph_of
from scenarios.run import Spec, run_spec, settled
from scenarios.sizes import size_list

EXAMPLE = "netsim perf all_reduce --topology ideal-switch:8@450GB/s,1us -b 8 -e 64M -f 8 --algo ring"
FORMATS = ("table", "nccl-tests", "json")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}\n\n{nccl_tests.HELP}")
@options.gathers(spec=options.spec, pieces=options.pieces, ignored=nccl_tests.ignored)
def perf(
    spec: Spec,
    pieces: dict[str, Any],
    ignored: list[str],
    min_bytes: Annotated[str, typer.Option("-b", "--minbytes", help="Smallest size.")] = "32M",
    max_bytes: Annotated[str, typer.Option("-e", "--maxbytes", help="Largest size.")] = "32M",
    step_factor: Annotated[int, typer.Option("-f", "--stepfactor", min=1, help="Multiply by this; 1 adds -i instead.")] = 1,
    step_bytes: Annotated[str, typer.Option("-i", "--stepbytes", help="Add this to the size.")] = "1M",
    algorithm: options.Algorithm = "auto",
    csv: options.Csv = None,
    layout: Annotated[str | None, typer.Option("--format", help="table, nccl-tests or json.")] = None,
    registration: nccl_tests.Registration = None,
    show_choice: Annotated[
        bool,
        typer.Option("--show-choice", help="Above the table: NCCL's cost table, its predicted times, and what it takes."),
    ] = False,
) -> int:
    """Print time, algorithm bandwidth and bus bandwidth of a collective for a range of sizes, by simulation.

    Ctrl-C prints the sizes that are done, and the exit code is 130.
    """
    if layout is not None and layout not in FORMATS:
        raise NetsimError(f"--format: unknown format {layout!r}; accepted are {', '.join(FORMATS)}")
    if layout is not None and csv == "-":
        raise NetsimError(f"--csv - and --format {layout} both want stdout; give --csv a file name")
    target = None if csv is None or csv == "-" else options.target_of(csv)
    nccl_tests.mention(ignored)
    asked = replace(spec, algorithm=algorithm, **pieces)
    first = settled(asked)
    options.mention_textbook(asked)
    buffers: dict[str, Any] = nccl_tests.registered(
        registration, nccl=first.protocol != IDEAL, registered=first.nccl.registered, windows=first.nccl.windows
    )
    first = replace(first, nccl=replace(first.nccl, **buffers))
    machine, collective = spec.machine, spec.collective
    sizes = size_list(
        options.size_of(min_bytes, "-b"), options.size_of(max_bytes, "-e"), step_factor, options.size_of(step_bytes, "-i")
    )
    graph = graph_of(machine)
    options.mention_remarks(machine.topology, graph)
    ranks = len(ranks_of(graph))
    if layout == "nccl-tests":
        members = len(read_groups(spec.groups, ranks)[0])
        sizes = [rounded_size(collective, members, size, spec.nccl.element_bytes) for size in sizes]
    chosen = _choice(first, sizes) if show_choice else []
    if chosen and (csv == "-" or layout == "json"):
        words = "--csv -" if csv == "-" else "--format json"
        print(f"netsim: --show-choice ignored: {words} leaves no place for it on stdout", file=sys.stderr)
    rows = _simulate(first, sizes)
    stopped = len(rows) < len(sizes)
    if stopped:
        print(f"netsim: stopped after {len(rows)} of {len(sizes)} sizes", file=sys.stderr)
    if not rows:
        return INTERRUPTED
    if target is not None:
        write_whole(target, csv_text(rows))
    where = options.machine_words(machine, graph, ranks)
    head = [f"netsim {rows[0].version}: {collective} on {where}{f', groups {spec.groups}' * bool(spec.groups)}"]
    head[0] += "".join(f", {words}" for words in first.nccl.words)
    head += [*model_words(rows), *chosen]
    if csv != "-" and layout != "json" and not stopped:
        with contextlib.suppress(KeyboardInterrupt):  # the table stands without it
            head += _host_band(first, rows)
    if csv == "-":
        text = csv_text(rows)
    elif layout == "json":
        text = json_text(rows)
    elif layout == "nccl-tests":
        told = spec.nccl
        element: dict[str, Any] = {"datatype": told.datatype, "operator": told.operator}
        element |= {"element_bytes": told.element_bytes}
        text = nccl_tests_text(rows, head=head, root=spec.root, **element)
    else:
        text = human_text(rows, head=head)
    sys.stdout.write(text)
    return INTERRUPTED if stopped else 0


def _host_band(first: Spec, rows: list[Row]) -> list[str]:
    """Return a line about the slowest machine that was measured, where data is staged in memory whose rate nobody knows."""
    from scenarios.host_band import KNOWN, SLOW, slower
    from topologies.profiles import load_profile

    with Progress(len(rows)) as progress:
        found = slower(first, rows, lambda row: progress.step(f"{options.size_words(row.size_bytes)} on a slower host"))
    if not found:
        return []
    best, worst = (f"{load_profile(name).effective_rate_bytes_per_s / 1e9:g}" for name in (KNOWN, SLOW))
    times = ", ".join(f"{one.shown.size_bytes} B {one.slow_us:.0f} us (here {one.shown.time_us:.0f})" for one in found)
    return [
        f"band: data is staged in host memory, at {best} GB/s a socket, the best that was measured; where all GPUs stage at "
        f"{worst}, the worst: {times}; a profile of the family memory says which yours is"
    ]


def _choice(first: Spec, sizes: list[int]) -> list[str]:
    """Return lines about NCCL's choice."""
    from netsim.cli.choice_words import choice_lines
    from scenarios.choices import choices

    if first.protocol == IDEAL:
        raise NetsimError(
            "--show-choice: what runs is textbook, between which NCCL does not choose; leave out --proto ideal, pieces and "
            "textbook algorithms, and take a machine whose GPUs are known, or give --proto simple"
        )
    return list(choice_lines(choices(first, sizes), first.collective))


def _simulate(first: Spec, sizes: list[int]) -> list[Row]:
    """Run the sizes in order; Ctrl-C ends the list with the last one that is done."""
    rows: list[Row] = []
    # The widths of a table's columns are known with its last row, so rows are kept until then, not printed as they come.
    with contextlib.suppress(KeyboardInterrupt), Progress(len(sizes)) as progress:
        for size in sizes:
            progress.step(f"{first.collective} of {options.size_words(size)}")
            rows.append(run_spec(replace(first, size_bytes=size)))
    return rows
