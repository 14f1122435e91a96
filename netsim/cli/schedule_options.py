"""What `schedule show` and `schedule prove` are asked about: a textbook schedule, or what NCCL would run on a machine.

The textbook's needs no more than a number of ranks. NCCL's depends on the machine, whose topology is then given in place of
that number; nothing is run here.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netsim.cli import nccl_options, options
from netsim.errors import NetsimError

if TYPE_CHECKING:
    from netsim.schedule.dag import Schedule
    from scenarios.run import Spec

MOST_MESSAGES = 1_000_000
"""A schedule is built whole before it is told or proved; a million messages take a while to prove, and nobody reads them."""
_RANKS = 4
"""How many ranks a schedule has where nothing says it."""

Algorithm = Annotated[
    str | None,
    typer.Option(
        "--algo",
        help="An algorithm, or a Python file with your own; by default the first of schedule list, or NCCL's choice.",
    ),
]
Ranks = Annotated[
    int | None, typer.Option("--ranks", "-p", min=1, help=f"Number of ranks without --topology; {_RANKS} if not given.")
]
Size = Annotated[str, typer.Option("--size", "-s", help="Size of the collective.")]
GpusPerNode = Annotated[
    int | None,
    typer.Option("-g", "--gpus-per-node", min=1, help="Ranks a server; by default all in one, or all of the topology's."),
]
Topology = Annotated[
    str | None,
    typer.Option("--topology", "-T", help="A machine as in perf: show what NCCL would run there (see --proto)."),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--proto", help="With --topology: auto (NCCL's choice, the default), ll, ll128, simple, or ideal (textbook)."
    ),
]
MaxMessages = Annotated[int, typer.Option("--max-messages", min=1, help="Refuse schedules of more messages than this.")]


@dataclass(frozen=True)
class Asked:
    """A schedule, and how to name it."""

    schedule: "Schedule"
    words: str
    """Collective and algorithm; of NCCL's also protocol, channels, release and machine."""


def asked(
    collective: options.Collective,
    algorithm: Algorithm = None,
    ranks: Ranks = None,
    size: Size = "1MiB",
    root: options.Root = 0,
    chunk: options.Chunk = None,
    chunks: options.Chunks = None,
    channels: options.Channels = None,
    gpus_per_node: GpusPerNode = None,
    max_messages: MaxMessages = MOST_MESSAGES,
    topology: Topology = None,
    nodes: options.Nodes = 1,
    nic: options.Nic = None,
    fabric: options.Fabric = "one-switch",
    protocol: Protocol = None,
    nccl_version: nccl_options.NcclVersion = None,
    nccl_env: nccl_options.NcclEnv = None,
    registered: nccl_options.Registered = False,
    windows: nccl_options.Windows = False,
    in_place: nccl_options.InPlace = False,
    datatype: nccl_options.Datatype = None,
    operator: nccl_options.Operator = None,
    tuner: nccl_options.Tuner = None,
) -> Asked:
    """Build the schedule that the options of a verb ask for."""
    options.check_collective(collective)
    size_bytes = options.size_of(size, "--size")
    pieces = options.pieces(chunk, chunks)
    if topology is None:
        for name, given in (
            ("--nodes", nodes > 1),
            ("--nic", nic),
            ("--fabric", fabric != "one-switch"),
            ("--nccl-version", nccl_version),
            ("--nccl-env", nccl_env),
            ("--registered", registered),
            ("--windows", windows),
            ("--in-place", in_place),
            ("--tuner", tuner),
        ):
            if given:
                raise NetsimError(f"{name}: only for a machine, which says what NCCL would run; give --topology with it")
        if protocol not in (None, "ideal"):
            raise NetsimError(f"--proto {protocol}: NCCL's schedules depend on the machine; give --topology with it")
        count = ranks or _RANKS
        if count - 1 > max_messages:
            raise NetsimError(
                f"-p {count}: {collective} takes at least {count - 1} messages, more than the limit of {max_messages}; give "
                "fewer ranks, or raise it with --max-messages"
            )
        per_node = gpus_per_node or count
        if count % per_node:
            raise NetsimError(f"-g {per_node}: {count} ranks do not fill servers of {per_node}; give a divisor of {count}")
        groups = tuple(tuple(range(first, first + per_node)) for first in range(0, count, per_node))
        more = {"root": root, "channels": channels or 1, "limit": max_messages, **pieces}
        return _textbook(collective, algorithm or "auto", size_bytes, groups, more)
    if ranks is not None:
        raise NetsimError(f"-p {ranks}: --topology says how many ranks there are; -g takes the first GPUs of each server")
    from netsim.schedule.protocols import protocol_named
    from scenarios.machine import Machine
    from scenarios.run import Spec

    nccl = nccl_options.told(
        nccl_version,
        nccl_env,
        registered=registered,
        windows=windows,
        in_place=in_place,
        datatype=datatype,
        operator=operator,
        tuner=tuner,
    )
    spec = Spec(
        Machine(topology, nodes, nic, fabric, gpus_per_node=gpus_per_node),
        collective,
        size_bytes,
        algorithm or "auto",
        protocol_named(protocol or "auto", "--proto"),
        nccl,
        channels=channels,
        root=root,
        max_messages=max_messages,
    )
    return _on_machine(replace(spec, **pieces))  # type: ignore[arg-type]


def _on_machine(asked: "Spec") -> Asked:
    """Build what a run of the spec would simulate, the whole of it for one collective over all ranks."""
    from netsim.export.table import rounded_size
    from netsim.fabric import hosts_of
    from netsim.schedule.collective import check_collective
    from netsim.schedule.protocols import IDEAL
    from scenarios.machine import graph_of
    from scenarios.nccl import build, told_router
    from scenarios.run import settled

    spec = settled(asked)
    options.mention_textbook(asked)
    if spec.protocol == IDEAL:
        more: dict[str, Any] = {"root": spec.root, "channels": spec.channels or 1, "limit": spec.max_messages}
        more |= {"chunk_bytes": spec.chunk_bytes, "chunks": spec.chunks}
        return _textbook(spec.collective, spec.algorithm, spec.size_bytes, hosts_of(graph_of(spec.machine)), more)
    if spec.chunk_bytes is not None or spec.chunks is not None:
        raise NetsimError("--chunk and --chunks: NCCL cuts data by its own rules; they are for --proto ideal")
    router = told_router(spec.machine, spec.nccl, spec.routing)
    members = tuple(range(len(router.ranks)))
    size_bytes = rounded_size(spec.collective, len(members), spec.size_bytes, spec.nccl.element_bytes)
    check_collective(spec.collective, len(members), size_bytes, spec.root)
    (built,) = build(
        spec.machine,
        spec.nccl,
        [members],
        spec.collective,
        [size_bytes],
        router,
        algorithm=spec.algorithm,
        protocol=spec.protocol,
        root=spec.root,
        channels=spec.channels,
        limit=spec.max_messages,
    )
    words = f"{spec.collective} by {built.algorithm} {built.protocol} x{built.channels}"
    return Asked(built.schedule, f"{words}, as NCCL {spec.nccl.version} would run it on {spec.machine.label}")


def _textbook(
    collective: str, algorithm: str, size_bytes: int, groups: "tuple[tuple[int, ...], ...]", more: dict[str, Any]
) -> Asked:
    from netsim.schedule.catalogue import algorithms_for, build_schedule

    name = algorithms_for(collective)[0] if algorithm == "auto" else algorithm
    schedule = build_schedule(collective, name, sum(map(len, groups)), size_bytes, groups=groups, **more)
    return Asked(schedule, f"{collective} by {schedule.algorithm}")
