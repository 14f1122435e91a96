"""What the Python scenarios share: a study is a list of columns and rows, printed as CSV or written whole to a file."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from netsim.errors import NetsimError
from netsim.export.files import check_target, write_whole
from netsim.export.table import csv_cell

Rows = Iterable[Sequence[object]]


def study_csv(columns: Sequence[str], rows: Rows) -> str:
    r"""Return a study as CSV text with full float precision.

    Examples
    --------
    >>> study_csv(("ranks", "share"), [(2, 0.5)])
    'ranks,share\n2,0.5\n'
    """
    lines = [columns, *([csv_cell(value) for value in row] for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


def run_study(question: str | None, columns: Sequence[str], rows: Callable[[], Rows]) -> None:
    """Run a study from the command line: CSV to stdout, or whole to ``--csv FILE``."""
    parser = argparse.ArgumentParser(description=question, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", default="-", metavar="FILE", help="where the rows go (default: stdout)")
    name = parser.parse_args().csv
    try:
        target = None if name == "-" else check_target(name)
        text = study_csv(columns, rows())
        if target is None:
            sys.stdout.write(text)
        else:
            write_whole(target, text)
    except NetsimError as error:
        parser.error(str(error))
