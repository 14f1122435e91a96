"""Options of the command line about NCCL: its release and variables, buffers, elements, calls and costs.

Beside `netsim.cli.options`, for the verbs that run or show what NCCL would.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from scenarios.nccl import NcclOptions

NcclVersion = Annotated[
    str | None, typer.Option("--nccl-version", help="Release of NCCL to imitate, 2.17 to 2.30; 2.28.9 if not given.")
]
NcclEnv = Annotated[
    list[str] | None,
    typer.Option("--nccl-env", help="A variable for NCCL such as NCCL_NVLS_ENABLE=0, or a file of them; may be repeated."),
]
Registered = Annotated[
    bool, typer.Option("--registered", help="User buffers are registered (nccl-tests -R 1, CUDA graphs).")
]
Windows = Annotated[
    bool,
    typer.Option("--windows", help="User buffers are symmetric windows (nccl-tests -R 2), which NCCL uses from 2.27 on."),
]
InPlace = Annotated[
    bool, typer.Option("--in-place", help="Input and output are one buffer, as in the right half of nccl-tests' tables.")
]
Datatype = Annotated[
    str | None,
    typer.Option("-d", "--datatype", help="Type of the elements, by the names of nccl-tests; float if not given."),
]
Operator = Annotated[str | None, typer.Option("-o", "--op", help="sum (if not given), prod, min, max, avg or mulsum.")]
Launch = Annotated[
    str | None,
    typer.Option(
        "--launch",
        help="graph: no cost of the host (the default); stream: the host must keep up with the calls; none: not even a "
        "kernel start.",
    ),
]
GpusPerProcess = Annotated[
    int | None,
    typer.Option("--gpus-per-process", min=1, help="GPUs that one host thread drives, for --launch stream; 1 if not given."),
]
Tuner = Annotated[
    str | None,
    typer.Option("--tuner", help="Rules of NCCL's example tuner plugin (nccl_tuner.conf), asked before NCCL's cost model."),
]
KernelCosts = Annotated[
    str | None,
    typer.Option(
        "--kernel-costs", help="A TOML file of what NCCL's kernels cost, in place of that of the GPUs' generation."
    ),
]


def told(version: str | None, environment: list[str] | None, **asked: Any) -> "NcclOptions":
    """Return what NCCL is told and how it is called, by what was given of it; None and False are what was not.

    `asked` are fields of `scenarios.nccl.NcclOptions`.
    """
    from scenarios.nccl import NcclOptions

    mention_variables(environment or [])
    asked = {"version": version, "environment": tuple(environment or ()), **asked}
    given = {field: value for field, value in asked.items() if value not in (None, False, ())}
    # Textbook runs know types and operators no more; a line pasted from nccl-tests should run nevertheless.
    names = {"version": "--nccl-version", "environment": "--nccl-env"}
    options = (names.get(field, f"--{field.replace('_', '-')}") for field in given if field not in ("datatype", "operator"))
    return NcclOptions(**given, given=tuple(options))


def mention_variables(given: list[str]) -> None:
    """Say on stderr which variables for NCCL do not bear on the result, and why."""
    from netsim.nccl.environment import notes, read_assignments

    for note in notes(read_assignments(given)) if given else ():
        print(f"netsim: {note}", file=sys.stderr)
