"""``netsim run``: a scenario file to a CSV under results/."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from netsim.cli import options
from netsim.cli.progress import Progress

EXAMPLE = "netsim run scenarios/ideal_ring.yaml"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
def run(
    file: Annotated[Path, typer.Argument(help="A scenario file (YAML).")],
    csv: Annotated[
        str | None, typer.Option("--csv", help="Where to write; by default results/NAME.csv; - is stdout.")
    ] = None,
) -> None:
    """Simulate every run of a scenario file, print the table and write the rows to results/NAME.csv."""
    from netsim.errors import NetsimError
    from netsim.export.files import write_whole
    from netsim.export.table import csv_text, human_text, model_words
    from scenarios.run import run_spec
    from scenarios.spec import load_scenario

    scenario = load_scenario(file)
    target = None if csv == "-" else options.target_of(options.results_file(scenario.name) if csv is None else csv)
    options.mention_textbook_runs(scenario.specs)
    rows = []
    with Progress(len(scenario.specs)) as progress:
        for spec in scenario.specs:
            progress.step(f"{spec.collective} of {options.size_words(spec.size_bytes)} on {spec.machine.label}")
            try:
                rows.append(run_spec(spec))
            except NetsimError as error:
                raise type(error)(f"{file}: {error}") from None
    text = csv_text(rows)
    if target is None:
        sys.stdout.write(text)
        return
    write_whole(target, text)
    sys.stdout.write(human_text(rows, head=[f"{scenario.name}: {len(rows)} runs", *model_words(rows)]))
    print(f"netsim: wrote {len(rows)} rows to {target}", file=sys.stderr)
