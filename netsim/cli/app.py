"""The front door: the list of verbs, and the one place where errors become a sentence and an exit code.

A verb's module is imported only when the verb is used, so that ``netsim --help`` answers at once. Exit codes: 0 fine,
1 the answer is no, 2 the question was wrong, 70 the simulator contradicts itself, 130 interrupted.
"""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from netsim.cli import INTERRUPTED
from netsim.errors import InternalError, NetsimError

VERBS = {
    "perf": "nccl-tests for a machine you do not have: time and bandwidth of a collective by size",
    "crossover": "the sizes at which another algorithm becomes the fastest, by simulation",
    "explain": "why a collective takes that long, what limits it, what would change it most",
    "diagnose": "a log of NCCL or nccl-tests beside the prediction: what agrees, each difference, times",
    "validate": "measured tables beside predictions: errors by class, collective, protocol and size",
    "run": "a scenario file to a CSV under results/",
    "sweep": "the same on several processes, resumed after an interruption; a failing point is a row",
    "timeline": "one run as a Perfetto trace: a track a lane, a track a link, message arrows",
    "plot": "time and bus bandwidth against size, with crossings and measured points",
    "reproduce": "every number of the article, stated beside simulated",
    "calibrate": "this machine: measure its copies, fit, publish a link profile; or fit to logs of nccl-tests",
    "topo": "list, show and check machines: presets, study graphs, files",
    "schedule": "list, show and prove the steps of an algorithm",
    "doctor": "versions, GPU or none, extras, shadowed packages",
}
"""Verb -> one line of help; the verb's module in this package has the same name."""

BROKEN = 70
"""Exit code of a simulator that contradicts itself (EX_SOFTWARE of sysexits)."""

_LONGEST = 2000
"""Characters of the longest message that is printed whole."""

# How the parser says that a text is no whole number, or that one is below the least that is accepted.
_NO_NUMBER = re.compile(r"(\S+) is not (?:a valid int(?: range|eger(?: range)?)?|in the range \S+)\.?$")

# typer keeps the base class of its usage errors private; a public member of the family leads to it.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


class Verbs(TyperGroup):
    """Commands that are imported when they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of the flow."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a verb's module and return its command."""
        if cmd_name not in VERBS:
            return None
        command = typer.main.get_command(import_module(f"netsim.cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(
    name="netsim",
    cls=Verbs,
    help="How long a collective takes on a GPU machine you do not have, by exact simulation of a proved schedule.",
    epilog="Example: netsim perf all_reduce --topology ideal-switch:8@450GB/s,1us -b 8 -e 64M -f 8",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _front(ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from netsim import __version__

        typer.echo(__version__)
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def answer(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every failure becomes one sentence on stderr."""
    try:
        from netsim.siblings import check_siblings

        if list(arguments[:1]) != ["doctor"]:
            check_siblings()
        outcome = typer.main.get_command(app)(args=list(arguments), prog_name="netsim", standalone_mode=False)
        sys.stdout.flush()
    except Exception as error:
        return _say(error)
    except SystemExit:
        # typer leaves this way, and only this way, when the reader of stdout is gone.
        return _say(BrokenPipeError())
    except KeyboardInterrupt:
        return INTERRUPTED
    return outcome if isinstance(outcome, int) else 0


def _say(error: Exception) -> int:
    """Print what went wrong and return the exit code."""
    if isinstance(error, InternalError):
        _stderr(f"netsim: INTERNAL ERROR, do not trust this result: {error} (please report it with the command line)")
        return BROKEN
    if isinstance(error, NetsimError):
        _stderr(f"netsim: {_one_line(str(error))}")
        return error.exit_code
    if isinstance(error, _USAGE_ERROR):
        words = _one_line(_plain_words(error))
        context = getattr(error, "ctx", None)
        _stderr(f"netsim: {words.rstrip('.')}; see '{context.command_path if context else 'netsim'} --help'")
        return 2
    if isinstance(error, BrokenPipeError):
        # The reader has seen enough (`| head`): point stdout at nothing, so that the last flush is quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, OSError):
        place = f" {error.filename!r}" if error.filename else ""
        _stderr(f"netsim: cannot read or write{place}: {error.strerror or error}")
        return 2
    if isinstance(error, UnicodeDecodeError):
        _stderr(f"netsim: a file that should be text is not UTF-8: {error.reason} at byte {error.start}")
        return 2
    if isinstance(error, MemoryError):
        _stderr("netsim: not enough memory for this run; use larger chunks, fewer ranks or a lower --max-messages")
        return 2
    if os.environ.get("NETSIM_TRACEBACK"):
        traceback.print_exception(error)
    words = _one_line(f"{type(error).__name__}: {error}")
    _stderr(f"netsim: INTERNAL ERROR: {words} (please report it; NETSIM_TRACEBACK=1 shows where)")
    return BROKEN


def _plain_words(error: Exception) -> str:
    """Return the words of a usage error; for numbers with what is accepted in place of the parser's terms."""
    words: str = error.format_message()  # type: ignore[attr-defined]
    kind = getattr(getattr(error, "param", None), "type", None)
    least = getattr(kind, "min", None)
    number = _NO_NUMBER.search(words)
    if number is None:
        return words
    whole = "a whole number" if least is None else f"a whole number, {least} or more"
    return f"{words[: number.start()]}{number[1]} is not {whole}"


def _one_line(text: str) -> str:
    """Put a message on one line; a value of a hundred thousand characters in it is cut in the middle."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"


def _stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> NoReturn:
    """Answer the command line of this process and exit."""
    # Python has no stream where the caller has closed one (`>&-`); what is written there then goes nowhere.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - likewise
    sys.exit(answer(sys.argv[1:]))
