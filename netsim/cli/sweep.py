"""``netsim sweep``: the runs of a scenario file on several processes, resumed after an interruption."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from netsim.cli import options
from netsim.cli.progress import Progress

EXAMPLE = "netsim sweep scenarios/ideal_ring.yaml --workers 2"
KEPT = ".partial"
"""What is added to the CSV's name for the file of rows that are done."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
def sweep(
    file: Annotated[Path, typer.Argument(help="A scenario file (YAML).")],
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Processes; by default one a core, 1 runs in this one.")
    ] = None,
    csv: Annotated[
        str | None, typer.Option("--csv", help="Where to write; by default results/NAME.csv; - is stdout, without resuming.")
    ] = None,
) -> int:
    """Simulate every run of a scenario file on several processes; the CSV is the one that `netsim run` writes.

    Rows are kept in a file beside the CSV as they come, and the next sweep goes on from there. A run that fails is a row
    with its error in the note; the exit code is then 1, and the rows that are done stay kept.
    """
    from netsim.export.files import write_whole
    from netsim.export.table import csv_text, human_text, model_words
    from scenarios.spec import load_scenario
    from scenarios.sweep import count_failed, count_kept
    from scenarios.sweep import sweep as run_sweep

    scenario = load_scenario(file)
    target = None if csv == "-" else options.target_of(options.results_file(scenario.name) if csv is None else csv)
    options.mention_textbook_runs(scenario.specs)
    # Beside a device or a pipe there is no place to keep rows.
    plain = target is not None and (target.is_file() or not target.exists())
    kept = options.target_of(target.with_name(target.name + KEPT)) if target is not None and plain else None
    began = time.monotonic()
    total = len(scenario.specs)
    resumed = 0
    try:
        with Progress(total) as progress:

            def told(done: int, before: int) -> None:
                nonlocal resumed
                resumed = before
                # The display counts the work that is under way, so it is one ahead of what is done.
                progress.at(min(done + 1, total), _pace(done, before, total, time.monotonic() - began))

            outcomes = run_sweep(scenario.specs, kept=kept, workers=workers or _cores(), told=told)
    except KeyboardInterrupt:
        if kept is None:
            print("netsim: stopped; no rows are kept, because they go to no file", file=sys.stderr)
        else:
            words = f"{count_kept(scenario.specs, kept)} of {total} rows are kept in {kept}"
            print(f"netsim: stopped; {words}, and the same sweep goes on from there", file=sys.stderr)
        raise
    rows = [outcome.row for outcome in outcomes]
    failed = count_failed(outcomes)
    text = csv_text(rows)
    if target is None:
        sys.stdout.write(text)
    else:
        write_whole(target, text)
        if kept is not None and not failed:
            kept.unlink(missing_ok=True)
        head = [f"{scenario.name}: {total} runs", *model_words(rows)]
        sys.stdout.write(human_text(rows, head=head))
        again = f", {resumed} of them kept from before" if resumed else ""
        print(f"netsim: wrote {total} rows to {target}{again}", file=sys.stderr)
    if failed:
        words = f"{failed} of {total} runs failed; the note of their rows says why"
        if kept is not None:
            words += f"; the other {total - failed} rows stay in {kept}, and the next sweep runs only what failed"
        print(f"netsim: {words}", file=sys.stderr)
    if any(outcome.broken for outcome in outcomes):
        return 70
    return 1 if failed else 0


def _pace(done: int, before: int, total: int, seconds: float) -> str:
    """Say how fast it goes and how long it will take, in words for a display of progress."""
    if done <= before or seconds <= 0:
        return f"{done} done"
    rate = (done - before) / seconds
    return f"{done} done, {rate:.3g} a second, {_duration((total - done) / rate)} left"


def _duration(seconds: float) -> str:
    """Write a duration in words.

    Examples
    --------
    >>> _duration(3.2), _duration(200), _duration(7300)
    ('3 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
