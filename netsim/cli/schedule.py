"""``netsim schedule``: the algorithms, their steps in words, their proof, and rules for NCCL's tuner plugin."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from netsim.cli import options
from netsim.cli.progress import Progress
from netsim.cli.schedule_options import Asked, asked
from netsim.errors import NetsimError
from netsim.export.table import aligned

if TYPE_CHECKING:
    from scenarios.run import Spec
    from scenarios.tuner_rules import Fastest

EXAMPLE = "netsim schedule list"
SHOW_EXAMPLE = "netsim schedule show all_reduce --algo ring --ranks 4"
PROVE_EXAMPLE = "netsim schedule prove all_reduce --algo double_binary_tree --ranks 8 --size 1MiB"
EXPORT_EXAMPLE = "netsim schedule export all_reduce --topology pcie-pair --algos ring -b 64K -e 1M -f 4"
IMPORT_EXAMPLE = "netsim schedule import scenarios/nccl_tuner.conf"

FORMATS = ("nccl-tuner",)

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List algorithms, show their steps in words, prove what they do; read and write rules of NCCL's tuner plugin.",
    epilog=f"\b\nExample:\n  {EXAMPLE}",
)
Format = Annotated[str, typer.Option("--format", help="nccl-tuner: the CSV of NCCL's example tuner plugin.")]


@app.command("list", epilog=f"\b\nExample:\n  {EXAMPLE}")
def list_() -> None:
    """List the algorithms of each collective: the textbook's, then NCCL's own."""
    from netsim.nccl.names import served
    from netsim.schedule.catalogue import algorithms_for
    from netsim.schedule.collective import COLLECTIVES

    for collective in COLLECTIVES:
        print(f"{collective:<15} {' '.join(algorithms_for(collective))}")
    print("NCCL's own, whose schedules depend on the machine (show and prove take --topology, perf --proto auto):")
    for collective in COLLECTIVES:
        print(f"{collective:<15} {' '.join(served(collective))}")


@app.command(epilog=f"\b\nExample:\n  {SHOW_EXAMPLE}")
@options.gathers(made=asked)
def show(
    made: Asked,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Show at most this many steps.")] = 100,
    moves: Annotated[int, typer.Option("--moves", min=1, help="Name at most this many moves a step.")] = 100,
) -> None:
    """Print the steps of an algorithm in words; with --topology, of what NCCL would run on that machine."""
    from itertools import islice

    from netsim.schedule.words import steps_in_words

    schedule = made.schedule
    print(f"{made.words}: {schedule.ranks} ranks, {schedule.size_bytes} bytes, {len(schedule)} operations")
    lines = steps_in_words(schedule, most=moves)
    for line in islice(lines, steps):
        print(line)
    left_out = sum(1 for _ in lines)
    if left_out:
        print(f"and {left_out} more steps; --steps shows more")


@app.command(epilog=f"\b\nExample:\n  {PROVE_EXAMPLE}")
@options.gathers(made=asked)
def prove(made: Asked) -> None:
    """Prove that every rank ends with exactly what the collective promises; exit code 1 if it does not.

    With --topology, of what NCCL would run on that machine.
    """
    from netsim.schedule.proof import prove as prove_schedule

    schedule = made.schedule
    prove_schedule(schedule)
    print(
        f"proved: {made.words} over {schedule.ranks} ranks, {schedule.size_bytes} bytes: each rank ends with "
        f"what is promised, each input counted once ({len(schedule)} operations)"
    )


@app.command(epilog=f"\b\nExample:\n  {EXPORT_EXAMPLE}")
@options.gathers(defaults={"protocol": "auto"}, spec=options.spec)
def export(
    spec: "Spec",
    algorithms: Annotated[
        str | None,
        typer.Option("--algos", help="What is tried, such as ring,tree:ll128; by default everything that can run here."),
    ] = None,
    min_bytes: Annotated[str, typer.Option("-b", "--minbytes", help="Smallest size.")] = "1K",
    max_bytes: Annotated[str, typer.Option("-e", "--maxbytes", help="Largest size.")] = "64M",
    step_factor: Annotated[int, typer.Option("-f", "--stepfactor", min=2, help="Multiply by this.")] = 4,
    layout: Format = FORMATS[0],
    output: Annotated[str | None, typer.Option("-o", "--output", help="File to write; stdout without it.")] = None,
) -> None:
    """Simulate what NCCL could run at each size and write the fastest as rules for its example tuner plugin.

    The rules end at the largest size; for larger ones the plugin leaves NCCL one channel, so let -e reach as far as yours.
    """
    from netsim import __version__
    from netsim.export.files import write_whole
    from netsim.nccl.tuner_file import format_rules
    from netsim.schedule.protocols import IDEAL
    from scenarios.sizes import size_list
    from scenarios.tuner_rules import fastest, rules

    _check_format(layout)
    if spec.protocol == IDEAL:
        raise NetsimError("--proto ideal: NCCL's tuner knows nothing of textbook algorithms; give auto, ll, ll128 or simple")
    target = None if output is None else options.target_of(output, "--output", "nccl_tuner.conf")
    names = [] if algorithms is None else options.algorithm_names(algorithms, spec.collective)
    sizes = size_list(options.size_of(min_bytes, "-b"), options.size_of(max_bytes, "-e"), step_factor)
    with Progress(len(sizes)) as progress:
        found = fastest(
            spec, sizes, names, told=lambda size: progress.step(f"{spec.collective} of {options.size_words(size)}")
        )
    made = rules(spec, found)
    comments = [
        f"netsim {__version__}, {spec.collective} on {spec.machine.label}: fastest of NCCL {spec.nccl.version}, simulated",
        f"simulated at {', '.join(str(one.size_bytes) for one in found[:8])}{' ...' if len(found) > 8 else ''} bytes",
        f"holds up to {found[-1].size_bytes} bytes, the largest size that was simulated; above it nothing is known",
        "what no rule serves gets one channel of this plugin: other collectives, other machines, sizes above the last",
    ]
    text = format_rules(made, comments=comments)
    if target is None:
        sys.stdout.write(text)
    else:
        write_whole(target, text)
        print(f"# {comments[0]}")
        for line in _times(found):
            print(line)
        print(f"netsim: wrote {len(made)} rule{'s' * (len(made) != 1)} to {target}", file=sys.stderr)


@app.command("import", epilog=f"\b\nExample:\n  {IMPORT_EXAMPLE}")
def import_(
    file: Annotated[str, typer.Argument(help="Rules of NCCL's example tuner plugin, such as nccl_tuner.conf.")],
    layout: Format = FORMATS[0],
) -> None:
    """Read rules of NCCL's example tuner plugin and say what each means; `perf --tuner FILE` runs by them."""
    from netsim.nccl.tuner_file import read_rules
    from netsim.nccl.words import rule_words

    _check_format(layout)
    rules = read_rules(file)
    print(f"{file}: {len(rules)} rule{'s' * (len(rules) != 1)}, of which the first that serves counts")
    for rule in rules:
        print(rule_words(rule))
    if not rules:
        print(f"netsim: no line of {file} is a rule, so the plugin leaves NCCL one channel for everything", file=sys.stderr)


def _check_format(layout: str) -> None:
    if layout not in FORMATS:
        raise NetsimError(f"--format: unknown format {layout!r}; accepted is {', '.join(FORMATS)}")


def _times(found: "list[Fastest]") -> Iterator[str]:
    """Yield a line a size: the simulated time of each pair, the fastest, and what NCCL's cost model takes of them."""
    titles = ("size (B)", *(" ".join(pair) for pair in found[0].times_us), "fastest", "NCCL's model takes")
    rows = [
        (str(one.size_bytes), *(f"{time:.2f}" for time in one.times_us.values()), " ".join(one.pair), " ".join(one.model))
        for one in found
    ]
    yield from aligned([titles, *rows], heads=1)
