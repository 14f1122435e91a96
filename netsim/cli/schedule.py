"""``netsim schedule``: the algorithms, their steps in words, and their proof."""

from typing import TYPE_CHECKING, Annotated

import typer

from netsim.cli import options
from netsim.errors import NetsimError

if TYPE_CHECKING:
    from netsim.schedule.dag import Schedule

EXAMPLE = "netsim schedule list"
SHOW_EXAMPLE = "netsim schedule show all_reduce --algo ring --ranks 4"
PROVE_EXAMPLE = "netsim schedule prove all_reduce --algo double_binary_tree --ranks 8 --size 1MiB"

MaxMessages = Annotated[int, typer.Option("--max-messages", min=1, help="Refuse schedules of more messages than this.")]
MOST_MESSAGES = 1_000_000
"""A schedule is built whole before it is told or proved; a million messages take a while to prove, and nobody reads them."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List algorithms, show their steps in words, prove that they do what the collective promises.",
    epilog=f"\b\nExample:\n  {EXAMPLE}",
)
Algorithm = Annotated[
    str | None,
    typer.Option("--algo", help="An algorithm, or a Python file with your own; by default the first of schedule list."),
]
Ranks = Annotated[int, typer.Option("--ranks", "-p", min=1, help="Number of ranks.")]
Size = Annotated[str, typer.Option("--size", "-s", help="Size of the collective.")]
Groups = Annotated[int | None, typer.Option("-g", "--gpus-per-node", min=1, help="Ranks a server; by default all in one.")]


@app.command("list", epilog=f"\b\nExample:\n  {EXAMPLE}")
def list_() -> None:
    """List the algorithms of each collective."""
    from netsim.schedule.catalogue import algorithms_for
    from netsim.schedule.collective import COLLECTIVES

    for collective in COLLECTIVES:
        print(f"{collective:<15} {' '.join(algorithms_for(collective))}")


@app.command(epilog=f"\b\nExample:\n  {SHOW_EXAMPLE}")
def show(
    collective: options.Collective,
    algorithm: Algorithm = None,
    ranks: Ranks = 4,
    size: Size = "1MiB",
    root: options.Root = 0,
    chunk: options.Chunk = None,
    chunks: options.Chunks = None,
    channels: options.Channels = 1,
    gpus_per_node: Groups = None,
    max_messages: MaxMessages = MOST_MESSAGES,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Show at most this many steps.")] = 100,
    moves: Annotated[int, typer.Option("--moves", min=1, help="Name at most this many moves a step.")] = 100,
) -> None:
    """Print the steps of an algorithm in words."""
    from itertools import islice

    from netsim.schedule.words import steps_in_words

    schedule = _build(collective, algorithm, ranks, size, root, chunk, chunks, channels or 1, gpus_per_node, max_messages)
    print(f"{collective} by {schedule.algorithm}: {ranks} ranks, {schedule.size_bytes} bytes, {len(schedule)} operations")
    lines = steps_in_words(schedule, most=moves)
    for line in islice(lines, steps):
        print(line)
    left_out = sum(1 for _ in lines)
    if left_out:
        print(f"and {left_out} more steps; --steps shows more")


@app.command(epilog=f"\b\nExample:\n  {PROVE_EXAMPLE}")
def prove(
    collective: options.Collective,
    algorithm: Algorithm = None,
    ranks: Ranks = 4,
    size: Size = "1MiB",
    root: options.Root = 0,
    chunk: options.Chunk = None,
    chunks: options.Chunks = None,
    channels: options.Channels = 1,
    gpus_per_node: Groups = None,
    max_messages: MaxMessages = MOST_MESSAGES,
) -> None:
    """Prove that every rank ends with exactly what the collective promises; exit code 1 if it does not."""
    from netsim.schedule.proof import prove as prove_schedule

    schedule = _build(collective, algorithm, ranks, size, root, chunk, chunks, channels or 1, gpus_per_node, max_messages)
    prove_schedule(schedule)
    print(
        f"proved: {collective} by {schedule.algorithm} over {ranks} ranks, {schedule.size_bytes} bytes: each rank ends with "
        f"what is promised, each input counted once ({len(schedule)} operations)"
    )


def _build(
    collective: str,
    algorithm: str | None,
    ranks: int,
    size: str,
    root: int,
    chunk: str | None,
    chunks: int | None,
    channels: int,
    gpus_per_node: int | None,
    max_messages: int,
) -> "Schedule":
    from netsim.schedule.catalogue import algorithms_for, build_schedule

    options.check_collective(collective)
    if ranks - 1 > max_messages:
        raise NetsimError(
            f"-p {ranks}: {collective} takes at least {ranks - 1} messages, more than the limit of {max_messages}; give "
            "fewer ranks, or raise it with --max-messages"
        )
    algorithm = algorithm or algorithms_for(collective)[0]
    per_node = gpus_per_node or ranks
    if ranks % per_node:
        raise NetsimError(f"-g {per_node}: {ranks} ranks do not fill servers of {per_node}; give a divisor of {ranks}")
    groups = tuple(tuple(range(first, first + per_node)) for first in range(0, ranks, per_node))
    return build_schedule(
        collective,
        algorithm,
        ranks,
        options.size_of(size, "--size"),
        root=root,
        chunk_bytes=options.optional_size(chunk, "--chunk"),
        chunks=chunks,
        groups=groups,
        channels=channels,
        limit=max_messages,
    )
