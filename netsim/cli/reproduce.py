"""``netsim reproduce``: every number of the article behind the project, stated beside simulated."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netsim.cli.progress import Progress

if TYPE_CHECKING:
    from scenarios.reproduce import Line

EXAMPLE = "netsim reproduce"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=f"\b\nExample:\n  {EXAMPLE}")
def reproduce(
    csv: Annotated[
        str | None, typer.Option("--csv", help="Also write the lines as CSV to this file; - prints only that.")
    ] = None,
) -> None:
    """Simulate every number of the article and print it beside the stated one; exit code 1 if one does not round to it.

    Lines marked ~ are meant to differ: an unpipelined formula or a single measurement beside the simulated value.
    """
    from netsim.export.files import check_target, write_whole
    from scenarios.reproduce import COLUMNS, lines
    from scenarios.study import study_csv

    target = None if csv in (None, "-") else Path(csv)
    if target is not None:
        check_target(target)
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
        sys.stdout.write("".join(_words(line) for line in found))
    wrong = [line for line in found if not line.agrees]
    stated = sum(bool(line.stated) for line in found)
    print(
        f"netsim: {len(found)} lines, {stated} with a stated value, {len(wrong)} off by more than rounding", file=sys.stderr
    )
    if wrong:
        raise typer.Exit(1)


def _words(line: "Line") -> str:
    mark = "~" if line.apart else " " if line.agrees else "!"
    note = f"  ({line.note})" if line.note else ""
    return f"{line.section:14}{line.what:66}{line.stated:>8} {line.simulated:>11.6g} {line.unit:13}{mark}{note}\n"
