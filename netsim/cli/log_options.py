"""Options of the verbs that read logs of real runs: what is said in place of a log's own words."""

from typing import TYPE_CHECKING, Annotated

import typer

from netsim.cli import nccl_options, nccl_tests, options

if TYPE_CHECKING:
    from scenarios.logged import Asked


def asked(
    collective: Annotated[
        str | None, typer.Option("--collective", help="Whose times they are, where the file does not say it.")
    ] = None,
    nccl_version: Annotated[
        str | None, typer.Option("--nccl-version", help="Release of NCCL, in place of the log's; 2.28.9 if it says none.")
    ] = None,
    nccl_env: Annotated[
        list[str] | None,
        typer.Option("--nccl-env", help="A variable such as NCCL_NVLS_ENABLE=0, or a file of them, beside the log's."),
    ] = None,
    registered: Annotated[
        bool | None, typer.Option("--registered/--not-registered", help="Whether user buffers were registered.")
    ] = None,
    launch: Annotated[
        str | None, typer.Option("--launch", help="graph, stream or none (see perf); by default what nccl-tests says.")
    ] = None,
    gpus_per_process: Annotated[
        int | None, typer.Option("--gpus-per-process", min=1, help="GPUs that one host thread drove.")
    ] = None,
    datatype: nccl_options.Datatype = None,
    registration: nccl_tests.Registration = None,
) -> "Asked":
    """Gather what is asked for in place of a log's own words."""
    from scenarios.logged import Asked

    if collective is not None:
        options.check_collective(collective)
    nccl_options.mention_variables(nccl_env or [])
    windows = None
    if registration is not None:
        found = nccl_tests.registered(registration, nccl=True, registered=bool(registered), windows=False)
        registered, windows = found.get("registered", False), found.get("windows", False)
    told = (nccl_version, tuple(nccl_env or ()), registered, launch, gpus_per_process, collective)
    return Asked(*told, datatype, windows)
