"""Options of nccl-tests: those that change nothing of what is simulated, so that a pasted line runs, and -R.

Left out are those that mean something here (-b -e -f -i -g -r) and those whose letter means something else here: -N is
the number of servers and -T the topology, so only their long names are taken.
"""

import inspect
import sys
from typing import Annotated

import typer

from netsim.errors import NetsimError

_IGNORED = {
    "iterations": ("-n", "--iters"),
    "warmups": ("-w", "--warmup_iters"),
    "check": ("-c", "--check"),
    "blocking": ("-z", "--blocking"),
    "threads": ("-t", "--nthreads"),
    "aggregated": ("-m", "--agg_iters"),
    "averaged": ("-a", "--average"),
    "graphs": ("-G", "--cudagraph"),
    "parallel": ("-p", "--parallel_init"),
    "null_stream": ("-y", "--stream_null"),
    "cpu_time": ("-C", "--report_cputime"),
    "timestamps": ("-S", "--report_timestamps"),
    "json_file": ("-J", "--output_file"),
    "cta_policy": ("-x", "--cta_policy"),
    "device_api": ("-D", "--device_implementation"),
    "device_ctas": ("-V", "--device_cta_count"),
    "memory": ("-M", "--memory_report"),
    "unaligned": ("-u", "--unalign"),
    "per_iteration": ("-I",),
    "per_iteration_file": ("-K",),
    "cycles": ("--run_cycles",),
    "timeout": ("--timeout",),
}
"""Parameter -> its names on the command line; each takes a value."""

HELP = (
    f"Of nccl-tests' options {' '.join(names[0] for names in _IGNORED.values())} are accepted and ignored, with a note; "
    "-R 1 is --registered, -R 2 --windows."
)
Registration = Annotated[str | None, typer.Option("-R", "--local_register", hidden=True)]
_REGISTRATIONS = ("0", "1", "2")


def ignored(**given: str | None) -> list[str]:
    """Gather those options of nccl-tests that were given and change nothing."""
    return [names[0] for parameter, names in _IGNORED.items() if given[parameter] is not None]


ignored.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(
            parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(*names, hidden=True)],
        )
        for parameter, names in _IGNORED.items()
    ]
)


def registered(text: str | None, *, nccl: bool, registered: bool = False, windows: bool = False) -> dict[str, bool]:
    """Return what -R says of user buffers, as fields of `scenarios.nccl.NcclOptions`.

    Parameters
    ----------
    text : str or None
        What was given: 0 for none, 1 for buffers, 2 for symmetric windows.
    nccl : bool
        Whether NCCL's schedules run; the textbook's know no buffers, and a pasted line should run nevertheless, with a word
        on stderr.
    registered, windows : bool
        Whether options beside it ask for these, which -R must not contradict.
    """
    if text is not None and text not in _REGISTRATIONS:
        raise NetsimError(
            f"-R {text}: accepted are 0 (none), 1 (registered buffers) and 2 (symmetric windows), as in nccl-tests"
        )
    for option, asked, agrees in (("--registered", registered, "1"), ("--windows", windows, "2")):
        if asked and text not in (None, agrees):
            raise NetsimError(f"-R {text} and {option} contradict each other; give one of them, or -R {agrees}")
    if text in (None, "0"):
        return {}
    if not nccl:
        print("netsim: -R ignored: what runs is textbook, which knows no buffers", file=sys.stderr)
        return {}
    return {"registered": True} if text == "1" else {"windows": True}


def mention(names: list[str]) -> None:
    """Say on stderr that options are ignored, and why that is right."""
    if names:
        why = ["a simulated run is exact and needs no repetition or check"]
        if "-t" in names:
            why.append("every GPU is a rank, and -g says how many a server")
        print(f"netsim: {', '.join(names)} ignored: {'; '.join(why)}", file=sys.stderr)
