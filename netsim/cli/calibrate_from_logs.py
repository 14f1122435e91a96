"""``netsim calibrate from-nccl-tests``: numbers of the model out of a user's own logs, by running the simulator."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netsim.cli import INTERRUPTED, log_options, nccl_options, options
from netsim.cli.progress import Progress
from netsim.errors import NetsimError
from netsim.export.files import write_whole

if TYPE_CHECKING:
    from scenarios.fit_parameters import Parameter
    from scenarios.fit_search import Outcome
    from scenarios.fit_series import Series
    from scenarios.logged import Asked
    from scenarios.machine import Machine

NAME = "from-nccl-tests"
EXAMPLE = (
    "netsim calibrate from-nccl-tests scenarios/two_h200.log --topology hgx-h200 "
    "--parameters hopper:launch.call,nvlink4:effective_rate -o my_cluster"
)
MEASURES = ("relative", "absolute")
_MAX_MESSAGES = 200_000
_NCCL_STEPS = 8
_TEXTBOOK_STEPS = 40
_FEW_RUNS = 100


def machine(
    topology: Annotated[
        str | None,
        typer.Option("--topology", "-T", help="Preset, study graph or file; a folder's rules say it where it is not given."),
    ] = None,
    nodes: options.Nodes = 1,
    nic: options.Nic = None,
    fabric: options.Fabric = "one-switch",
    gpus_per_node: options.GpusPerNode = None,
    gpudirect: options.Gpudirect = True,
    rate: options.Rate = "effective",
    profile: options.Profile = None,
) -> "Machine | None":
    """Gather the options that describe a machine; None where no topology is given."""
    if topology is not None:
        return options.machine(topology, nodes, nic, fabric, gpus_per_node, gpudirect, rate, profile)
    given: dict[str, object] = {
        "--nodes": nodes != 1,
        "--nic": nic,
        "--fabric": fabric != "one-switch",
        "-g": gpus_per_node,
        "--no-gpudirect": not gpudirect,
        "--rate": rate != "effective",
        "--profile": profile,
    }
    for name, value in given.items():
        if value:
            raise NetsimError(f"{name} says something of a machine; give its --topology too")
    return None


@options.gathers(on=machine, asked=log_options.asked)
def from_nccl_tests(
    logs: Annotated[
        list[str],
        typer.Argument(
            help="Logs of nccl-tests, its JSON, CSVs of size_bytes and time_us, each perhaps with "
            "FILE:gpus=4,algo=ring,proto=ll,collective=all_gather; or folders of tables with an index.csv."
        ),
    ],
    on: "Machine | None",
    asked: "Asked",
    output: Annotated[str, typer.Option("-o", "--output", help="Folder for the files of what was fitted.")],
    algorithm: Annotated[str, typer.Option("--algo", help="What ran, where logs do not say it; see perf.")] = "auto",
    protocol: Annotated[str, typer.Option("--proto", help="By which protocol; ideal fits a textbook line.")] = "auto",
    kernel_costs: nccl_options.KernelCosts = None,
    parameters: Annotated[
        str | None,
        typer.Option(
            "--parameters",
            help="What to fit, with commas between: hopper:ll.start, nvlink4:latency_ll, topology:rate, call:constant; a "
            "plus between keys that are scaled together. By default all that the runs use (scenarios/calibration.toml).",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What was measured, for the sources of the files.")] = None,
    min_bytes: Annotated[str, typer.Option("-b", "--minbytes", help="Smallest size that takes part.")] = "1",
    max_bytes: Annotated[str, typer.Option("-e", "--maxbytes", help="Largest size that takes part.")] = "1T",
    every_row: Annotated[
        bool,
        typer.Option("--every-row", help="All rows of a log take part, not a dozen evenly spread; takes longer."),
    ] = False,
    errors: Annotated[
        str, typer.Option("--errors", help="relative; or absolute: microseconds count, and so long times more.")
    ] = "relative",
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Most steps of the search; 8, textbook 40.")] = None,
    max_messages: options.MaxMessages = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Processes to work with; one a core if not given.")
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option("--csv", help="Also write every row, before and after, to this file; - writes them alone to stdout."),
    ] = None,
) -> int:
    """Fit the model's numbers to logs of nccl-tests by running the simulator, and write files that perf takes.

    What kernels cost goes to GENERATION.toml for --kernel-costs, what links carry to LINK.toml for --profile, all numbers to
    parameters.csv. Intervals are of 95 %; the last column says how much of a number came from its start and not from the
    times. A rate above the line rate is refused. The exit code is 1 if the fit is off by over 25 % in the median; Ctrl-C
    keeps the best so far, and it is 130.
    """
    from netsim.cli.fit_words import csv_of, median_after, report
    from scenarios.fit_choice import chosen
    from scenarios.fit_files import write_files
    from scenarios.fit_report import FAR
    from scenarios.fit_search import separable
    from scenarios.fit_series import Wanted, read_series

    if errors not in MEASURES:
        raise NetsimError(f"--errors: {errors!r} is unknown; accepted are {' and '.join(MEASURES)}")
    folder = _folder(output)
    if name is not None and not name.isprintable():
        raise NetsimError(f"--name: {name!r} has what cannot be printed; give a line of plain text such as rack-7")
    target = None if csv is None or csv == "-" else options.target_of(csv)
    sizes = options.size_of(min_bytes, "-b"), options.size_of(max_bytes, "-e")
    wanted = Wanted(on, asked, algorithm, protocol, kernel_costs, sizes, every_row)
    said: list[str] = []
    series = read_series(logs, wanted, said)
    found, remarks = chosen(series, [one.strip() for one in parameters.split(",")] if parameters is not None else ())
    if parameters is None:
        found, words = separable(found, series)
        remarks += [words] if words else []
    most = max_messages or _MAX_MESSAGES
    told = {"steps": steps, "max_messages": most, "absolute": errors == "absolute"}
    outcome = _fit(found, series, workers, told)
    label = name or ", ".join(one.name for one in series[:3]) + (f" and {len(series) - 3} more" if len(series) > 3 else "")
    files = write_files(outcome, series, folder, label)
    if target is not None:
        write_whole(target, csv_of(series, outcome))
    for words in dict.fromkeys(said):
        print(f"netsim: {words}", file=sys.stderr)
    if csv == "-":
        sys.stdout.write(csv_of(series, outcome))
    else:
        for line in report(series, outcome, files, remarks, max_messages=most):
            print(line)
    if outcome.stopped:
        steps_words = f"{outcome.rounds} step{'s' * (outcome.rounds != 1)}"
        print(f"netsim: stopped after {steps_words}; {folder} holds the best so far", file=sys.stderr)
        return INTERRUPTED
    return 1 if median_after(series, outcome) > FAR else 0


def _folder(name: str) -> Path:
    """Return the folder for the files, or say at once why they cannot be written there."""
    if not name:
        raise NetsimError("--output: the name is empty; give a folder such as my_cluster")
    if "," in name:
        raise NetsimError(f"--output: {name!r} has a comma, which parts files in --profile; give a folder without one")
    path = Path(name)
    if path.exists() and not path.is_dir():
        raise NetsimError(f"--output: {name!r} is a file; give a folder, which is made if it is missing")
    if not path.is_dir():
        options.target_of(path, "--output", "my_cluster")
    elif not os.access(path, os.W_OK):
        raise NetsimError(f"--output: no permission to write in {name!r}")
    return path


def _fit(
    parameters: "Sequence[Parameter]", series: "Sequence[Series]", workers: int | None, told: dict[str, Any]
) -> "Outcome":
    """Run the search, with progress, in as many processes as are asked for; textbook runs are too short for them."""
    from netsim.schedule.protocols import IDEAL
    from scenarios.fit_search import fit
    from scenarios.sweep import local_executor

    textbook = all(one.spec.protocol == IDEAL for one in series)
    steps = told["steps"] or (_TEXTBOOK_STEPS if textbook else _NCCL_STEPS)
    rows = sum(len(one.rows) for one in series)
    # A few short runs are done before a process has started.
    small = textbook or len(parameters) * rows < _FEW_RUNS
    workers = workers or (1 if small else min(os.cpu_count() or 1, len(parameters)))
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="netsim-fit-"))
        pool = stack.enter_context(local_executor(workers)) if workers > 1 else None
        progress = stack.enter_context(Progress(steps))
        what = f"{len(parameters)} parameter{'s' * (len(parameters) != 1)}, {rows} row{'s' * (rows != 1)}"
        progress.at(1, what)

        def say(number: int, error: float) -> None:
            progress.at(min(number + 1, steps), f"{what}, error {error:.1%}")

        try:
            return fit(
                parameters,
                series,
                place,
                rounds=steps,
                max_messages=told["max_messages"],
                noise=None,
                absolute=told["absolute"],
                executor=pool,
                told=say,
            )
        except BrokenExecutor:
            raise NetsimError(
                "a process was ended from outside, most likely for want of memory; try fewer --workers or --max-messages"
            ) from None
