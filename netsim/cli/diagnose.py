"""``netsim diagnose``: a log of a real run beside what is predicted for its machine."""

import math
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from netsim import __version__
from netsim.cli import log_options, options
from netsim.cli.progress import Progress
from netsim.export.table import aligned
from netsim.fabric import ranks_of
from scenarios.machine import Machine, graph_of

if TYPE_CHECKING:
    from scenarios.diagnose import Diagnosis, Point
    from scenarios.logged import Asked

EXAMPLE = "netsim diagnose scenarios/two_h200.log --topology hgx-h200 -g 2"
_NAMED = 3
"""How many of the largest deviations are named."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
@options.gathers(machine=options.machine, asked=log_options.asked)
def diagnose(
    log: Annotated[str, typer.Argument(help="What NCCL_DEBUG=INFO or nccl-tests printed; or a CSV of sizes and times.")],
    machine: Machine,
    asked: "Asked",
) -> int:
    """Say what agrees between a log and the prediction for a machine, and each difference.

    The exit code is 1 if there is a difference, or nothing that could be compared.

    What is compared: release, variables, ranks, graphs, channels, rings, trees, connections, the tuner's table and what ran
    at each size. Measured times are laid beside simulated ones; how far they are apart does not change the exit code.
    """
    from scenarios.diagnose import diagnose

    graph = graph_of(machine)
    with Progress(1) as progress:
        found = diagnose(log, machine, asked, told=lambda size: progress.say(options.size_words(size)))
    options.mention_remarks(machine.topology, graph)
    words = options.machine_words(machine, graph, len(ranks_of(graph)))
    print(f"# netsim {__version__}: {log} beside {words}")
    for line in _lines(found):
        print(line)
    return 0 if found.compared and not found.comparison.differences else 1


def _lines(found: "Diagnosis") -> Iterator[str]:
    given = " ".join(found.options.environment)
    yield f"# NCCL {found.options.version}{f' with {given}' if given else ''}"
    held = found.comparison
    if held.agreed:
        yield f"agrees: {', '.join(f'{kind} {count}' for kind, count in held.agreed.items())}"
    for difference in held.differences:
        yield f"differs: {difference}"
    for skipped in held.skipped:
        yield f"not compared: {skipped}"
    if found.log.unread:
        yield f"not read: {found.log.unread} torn lines"
    yield from found.remarks
    if not found.compared:
        yield "nothing could be compared: the file shows no decision of NCCL's, and no time that could be simulated here"
    if found.points:
        yield from _times(found)


def _times(found: "Diagnosis") -> Iterator[str]:
    how = {
        "graph": "replayed CUDA graphs",
        "stream": f"a stream of calls, {found.options.gpus_per_process} GPUs a host thread",
        "none": "no kernel start",
    }
    buffers = "registered" if found.options.registered else "unregistered"
    yield f"# {found.collective}: {how[found.options.launch]}, {buffers} buffers"
    titles = ("size", "measured", "simulated", "difference", "simulated as")
    units = ("(B)", "(us)", "(us)", "(%)", "")
    body = [
        (
            str(point.size_bytes),
            f"{point.measured_us:.2f}",
            f"{point.row.time_us:.2f}",
            f"{point.difference * 100:+.1f}",
            f"{point.row.algorithm} {point.row.protocol} x{point.row.channels}",
        )
        for point in found.points
    ]
    yield from aligned([titles, units, *body], left={len(titles) - 1}, heads=2)
    apart = sorted(abs(point.difference) for point in found.points)
    nine_in_ten = apart[math.ceil(0.9 * len(apart)) - 1]
    yield f"# difference: {statistics.median(apart):.1%} in the median, nine in ten within {nine_in_ten:.1%}"
    worst = sorted(found.points, key=lambda point: -abs(point.difference))[:_NAMED]
    yield f"# largest: {', '.join(map(_deviation, worst))}"


def _deviation(point: "Point") -> str:
    return (
        f"{point.difference:+.1%} at {options.size_words(point.size_bytes)} "
        f"({point.measured_us:.4g} us measured, {point.row.time_us:.4g} us simulated)"
    )
