"""``netsim timeline``: one run as a trace that Perfetto opens."""

import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from netsim.cli import options
from netsim.cli.progress import Progress
from netsim.export.files import write_whole
from netsim.export.timeline import timeline_text
from netsim.fabric import ranks_of
from scenarios.machine import graph_of
from scenarios.run import Spec, run_traced

EXAMPLE = "netsim timeline all_reduce --topology ideal-switch:4@450GB/s,1us --size 1M --algo ring -o -"
MOST_MESSAGES = 200_000
"""Traces beyond some hundred megabytes are no longer opened by a browser; a message takes about half a kilobyte."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}\n\nOpen the file at ui.perfetto.dev or in chrome://tracing.")
@options.gathers(spec=options.spec, pieces=options.pieces, defaults={"max_messages": MOST_MESSAGES})
def timeline(
    spec: Spec,
    pieces: dict[str, Any],
    size: options.Size,
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write, such as trace.json; - is stdout.")],
    algorithm: options.Algorithm = "auto",
) -> None:
    """Simulate one run and write its operations, links and messages as a Perfetto trace."""
    target = None if output == "-" else options.target_of(output, "--output", "trace.json")
    spec = replace(spec, size_bytes=options.size_of(size, "--size"), algorithm=algorithm, **pieces)
    options.mention_textbook(spec)
    machine, collective = spec.machine, spec.collective
    with Progress(1) as progress:
        progress.step(f"{collective} of {options.size_words(spec.size_bytes)} on {machine.label}")
        row, schedule, record = run_traced(spec)
        text = timeline_text(schedule, record, ranks_of(graph_of(machine)))
    if target is None:
        sys.stdout.write(text)
        return
    write_whole(target, text)
    print(
        f"netsim: wrote {len(schedule)} operations of {collective} by {row.algorithm}, {row.time_us:.3f} us, to {target}",
        file=sys.stderr,
    )
