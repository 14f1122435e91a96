"""``netsim reproduce``: every number of the article behind the project, stated beside simulated."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from netsim.cli.progress import Progress
from netsim.export.table import aligned

if TYPE_CHECKING:
    from scenarios.article import Line

EXAMPLE = "netsim reproduce"

app = typer.Typer(add_completion=False, rich_markup_mode=None)

LEGEND = (
    "stated: as the article prints it; difference: simulated less stated, for a range by how far the value is outside",
    "agrees: rounds to what is stated; apart: meant to differ, the note says why; OFF: differs and should not",
    "no verdict: the article gives no number; scenario: the file in scenarios/ to look it up in",
)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
def reproduce(
    csv: Annotated[
        str | None, typer.Option("--csv", help="Also write the lines as CSV to this file; - prints only that.")
    ] = None,
) -> None:
    """Simulate every number of the article and print it beside the stated one; exit code 1 if one is OFF.

    A line agrees if the simulated value rounds to the stated one. Those meant to differ (an unpipelined formula, a single
    measurement) are apart, and what no simulator of links can produce is not simulated; both say why.
    """
    from netsim.export.files import check_target, write_whole
    from scenarios.reproduce import COLUMNS, lines
    from scenarios.study import study_csv

    target = None if csv is None or csv == "-" else check_target(csv)
    found: list[Line] = []
    with Progress(1) as progress:
        progress.step("the article")
        for line in lines():
            progress.say(line.what)
            found.append(line)
    text = study_csv(COLUMNS, (line.row for line in found))
    if csv == "-":
        sys.stdout.write(text)
    else:
        if target is not None:
            write_whole(target, text)
        sys.stdout.write(_table(found))
    count = Counter(line.verdict for line in found)
    told = f"{len(found)} lines; {len(found) - count['']} stated: {count['agrees']} agree, {count['apart']} apart"
    print(f"netsim: {told}, {count['not simulated']} not simulated, {count['OFF']} off", file=sys.stderr)
    if count["OFF"]:
        raise typer.Exit(1)


def _table(found: "Sequence[Line]") -> str:
    """Write the lines as an aligned table, numbers to the right."""
    titles = ("section", "what", "stated", "simulated", "difference", "unit", "verdict", "scenario", "note")
    body = [_cells(line) for line in found]
    left = {at for at, name in enumerate(titles) if name not in ("stated", "simulated", "difference")}
    head = [f"# {words}" for words in LEGEND]
    return "\n".join([*head, *aligned([titles, *body], left=left, heads=1)]) + "\n"


def _cells(line: "Line") -> tuple[str, ...]:
    difference = line.difference
    if difference is None:
        apart = ""
    elif abs(difference) < 1e-9:  # the last bits of a sum
        apart = "0"
    else:
        apart = f"{difference:+.3g}"
    simulated = "" if line.simulated is None else line.simulated
    shown = simulated if isinstance(simulated, str) else f"{simulated:.6g}"
    return line.section, line.what, line.stated, shown, apart, line.unit, line.verdict, line.scenario, line.note
