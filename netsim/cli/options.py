"""Options that several verbs share, and how their text becomes a `scenarios.run.Machine` or `scenarios.run.Spec`.

A verb that takes a whole machine or run names it as one parameter, and `gathers` lays the options out: each list of
options is said once, here.
"""

import contextlib
import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netsim.cli import nccl_options
from netsim.errors import NetsimError
from netsim.schedule.collective import COLLECTIVES
from netsim.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import networkx as nx

    from scenarios.machine import Machine
    from scenarios.run import Spec

Collective = Annotated[str, typer.Argument(help=f"{', '.join(COLLECTIVES[:-1])} or {COLLECTIVES[-1]}.", show_default=False)]
Topology = Annotated[
    str, typer.Option("--topology", "-T", help="Preset, study graph such as ideal-switch:8@450GB/s,1us, or a file.")
]
TopologyArgument = Annotated[str, typer.Argument(help="Preset, study graph such as ideal-switch:8@450GB/s,1us, or a file.")]
Nodes = Annotated[int, typer.Option("--nodes", "-N", min=1, help="How many such servers.")]
Nic = Annotated[
    str | None,
    typer.Option(
        "--nic",
        help="Network cards: ndr400 is one a GPU. Options: ndr400:nics=4 or ndr400:at=gpu0+gpu4+cpu1 (how many, where), "
        "ports=N (one card of N ports, over which messages are spread), "
        "gdr=PHB (GPUDirect that far; PXB by default), pxn=off (no relay over NVLink); own: those of the machine.",
    ),
]
Fabric = Annotated[
    str,
    typer.Option(
        "--fabric",
        help="How the servers are joined: one-switch, rails[:servers=N,spines=N], rails-only, "
        "leaf-spine:leaves=N,spines=N (or servers=N a leaf), fat-tree:k=N, fat-tree:pods=N,leaves=N,spines=N,cores=N. "
        "Also oversubscription=X or uplink=RATE a link, hop=TIME, order=stripe, sharp=on (switches that reduce).",
    ),
]
GpusPerNode = Annotated[
    int | None, typer.Option("-g", "--gpus-per-node", "--ngpus", help="Use only the first GPUs of each server.")
]
Gpudirect = Annotated[bool, typer.Option("--gpudirect/--no-gpudirect", help="Whether NICs reach GPU memory directly.")]
Rate = Annotated[str, typer.Option("--rate", help="effective: what transfers reach; line: the nominal rate.")]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Link profile by name or file; replaces the figures of its family. Several with commas: nvlink4,pcie5.",
    ),
]
Routing = Annotated[
    str, typer.Option("--routing", help="static, ecmp:SEED or ecmp:SEED,flows=F; ecmp:0..31 runs all these seeds.")
]
Root = Annotated[int, typer.Option("-r", "--root", help="Root rank of broadcast, reduce, gather and scatter.")]
Size = Annotated[str, typer.Option("--size", "-s", help="One size, as in nccl-tests: a bare K, M or G is binary.")]
Algorithm = Annotated[
    str,
    typer.Option(
        "--algo",
        help="auto: what NCCL would choose, or of the textbook's all, and the fastest is taken; a name; of NCCL's also "
        "lists as in NCCL_ALGO (Tree,Ring or ^NVLS), symmetric, copy_engine; or a Python file.",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        "--proto",
        help="ideal (textbook alpha-beta), or NCCL's: auto (what NCCL would choose), ll, ll128, simple, or a list as in "
        "NCCL_PROTO (^LL128).",
    ),
]
Channels = Annotated[
    int | None, typer.Option("--channels", min=1, help="Lanes a rank uses side by side; 1, or NCCL's number.")
]
Chunk = Annotated[str | None, typer.Option("--chunk", help="Size that a pipelined algorithm cuts its data into.")]
Chunks = Annotated[int | None, typer.Option("--chunks", min=1, help="The same as a count of pieces.")]
Quantum = Annotated[str, typer.Option("--quantum", help="Largest piece a link serves at once; 0 serves messages whole.")]
AtOnce = Annotated[
    str | None,
    typer.Option(
        "--groups",
        help="Several collectives at once, each over a group of ranks: div:8 or mod:8 (rank by rank, as nccl-tests splits), "
        "or lists such as 0-3/4,5,6,7.",
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", help="simpy, compiled (needs numba; same times), or auto: compiled for large runs.")
]
MaxMessages = Annotated[
    int | None,
    typer.Option("--max-messages", min=1, help="Refuse runs of more messages (with --quantum: pieces) than this."),
]
Csv = Annotated[str | None, typer.Option("--csv", help="Also write CSV to this file; - writes CSV alone to stdout.")]

PIECES_HELP = "Into how many pieces trees, chains and NVLS cut their data; rings keep their block of a rank each."
_RESULTS = Path("results")
_LOWER_SUFFIX = re.compile(r"\s*[0-9]+(\.[0-9]*)?\s*[kmg]\s*", re.ASCII)


def gathers(
    *, defaults: dict[str, Any] | None = None, **builders: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of other functions in place of one parameter each.

    ``@gathers(machine=machine)`` makes a command with a parameter `machine` take all options of `machine` instead, which
    is called with them; `defaults` replaces defaults of single options.
    """

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        taken: dict[str, list[str]] = {}
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(verb).parameters.items():
            if name in builders:
                options = list(inspect.signature(builders[name]).parameters.values())
                taken[name] = [option.name for option in options]
                parameters += options
            else:
                parameters.append(parameter)
        changed = defaults or {}
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=changed.get(parameter.name, parameter.default))
            for parameter in parameters
        ]

        @functools.wraps(verb)
        def command(**given: Any) -> Any:
            built = {name: builders[name](**{key: given.pop(key) for key in keys}) for name, keys in taken.items()}
            return verb(**built, **given)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def machine(
    topology: Topology,
    nodes: Nodes = 1,
    nic: Nic = None,
    fabric: Fabric = "one-switch",
    gpus_per_node: GpusPerNode = None,
    gpudirect: Gpudirect = True,
    rate: Rate = "effective",
    profile: Profile = None,
) -> "Machine":
    """Gather the options that describe a machine."""
    from scenarios.machine import Machine

    return Machine(topology, nodes, nic, fabric, gpus_per_node, gpudirect, rate, profile)


# The same where the topology is the argument of the command.
@functools.wraps(machine)
def named_machine(**given: Any) -> "Machine":  # noqa: D103 - it has the docstring of the other
    return machine(**given)


_OPTIONS = inspect.signature(machine)
named_machine.__signature__ = _OPTIONS.replace(  # type: ignore[attr-defined]
    parameters=[
        option.replace(annotation=TopologyArgument) if name == "topology" else option
        for name, option in _OPTIONS.parameters.items()
    ]
)


@gathers(on=machine)
def spec(
    collective: Collective,
    on: "Machine",
    root: Root = 0,
    protocol: Protocol = "auto",
    nccl_version: nccl_options.NcclVersion = None,
    nccl_env: nccl_options.NcclEnv = None,
    registered_buffers: nccl_options.Registered = False,
    launch: nccl_options.Launch = None,
    gpus_per_process: nccl_options.GpusPerProcess = None,
    tuner: nccl_options.Tuner = None,
    windows: nccl_options.Windows = False,
    in_place: nccl_options.InPlace = False,
    kernel_costs: nccl_options.KernelCosts = None,
    datatype: nccl_options.Datatype = None,
    operator: nccl_options.Operator = None,
    channels: Channels = None,
    quantum: Quantum = "0",
    routing: Routing = "static",
    groups: AtOnce = None,
    engine: Engine = "auto",
    max_messages: MaxMessages = None,
) -> "Spec":
    """Gather the options of a run; its size and algorithm are left to the verb."""
    from netsim.schedule.protocols import protocol_named
    from scenarios.run import Spec, limit_on_messages

    check_collective(collective)
    quantum_bytes = size_of(quantum, "--quantum")
    nccl = nccl_options.told(
        nccl_version,
        nccl_env,
        registered=registered_buffers,
        launch=launch,
        gpus_per_process=gpus_per_process,
        tuner=tuner,
        windows=windows,
        in_place=in_place,
        kernel_costs=kernel_costs,
        datatype=datatype,
        operator=operator,
    )
    return Spec(
        machine=on,
        collective=collective,
        size_bytes=0,
        protocol=protocol_named(protocol, "--proto"),
        nccl=nccl,
        channels=channels,
        root=root,
        quantum_bytes=quantum_bytes,
        routing=routing,
        groups=groups,
        engine=engine,
        max_messages=limit_on_messages(max_messages, quantum_bytes),
    )


def pieces(chunk: Chunk = None, chunks: Chunks = None) -> dict[str, int | None]:
    """Gather the two ways to say how data is cut, as keywords of a `Spec`."""
    return {"chunk_bytes": optional_size(chunk, "--chunk"), "chunks": chunks}


def size_of(text: str, option: str) -> int:
    """Read a size option; a bare K, M or G, or k, m, g, is binary, as in nccl-tests."""
    if _LOWER_SUFFIX.fullmatch(text):
        text = text.upper()
    return parse_bytes(text, where=option, bare_suffix=True)


def optional_size(text: str | None, option: str) -> int | None:
    """Read a size option that may be absent and must not be zero."""
    if text is None:
        return None
    size = size_of(text, option)
    if size == 0:
        raise NetsimError(f"{option}: {text!r} is zero bytes; give one byte or more")
    return size


def check_collective(name: str) -> None:
    """Refuse an unknown collective, and say which was most likely meant."""
    if name not in COLLECTIVES:
        close = difflib.get_close_matches(name, COLLECTIVES, n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise NetsimError(f"unknown collective {name!r}{meant}; accepted are {', '.join(COLLECTIVES)}")


def algorithm_names(text: str, collective: str) -> list[str]:
    """Read a list of algorithms; of lists for functions, as NCCL_ALGO may hold them, the one for the collective."""
    functions = {name.replace("_", ""): name for name in COLLECTIVES} | {name: name for name in COLLECTIVES}
    chosen: str | None = None
    for entry in text.split(";"):
        head, colon, rest = entry.partition(":")
        function = functions.get(head.strip().lower()) if colon else None
        if function == collective:
            chosen = rest
        elif function is None and chosen is None:
            chosen = entry
    names = [] if chosen is None else [name.strip() for name in chosen.split(",")]
    if chosen is None:
        raise NetsimError(f"--algos: {text!r} has no list for {collective}; accepted are names, or {collective}:NAME,NAME")
    if not all(names):
        raise NetsimError(f"--algos: {text!r} has an empty name; give algorithms with one comma between two")
    return names


def results_file(scenario: str) -> Path:
    """Return where the rows of a scenario go unless something else is asked for."""
    return _RESULTS / f"{scenario}.csv"


def target_of(name: str | Path, option: str = "--csv", example: str = "rows.csv") -> Path:
    """Return the path that a result will be written to, or say at once why it cannot be.

    A folder that does not exist is most often a slip, so only the one for results is made.
    """
    from netsim.export.files import check_target

    path = Path(name)
    if not str(name):
        raise NetsimError(f"{option}: the file name is empty; give a name such as {example}")
    if path.parent != _RESULTS and not path.parent.exists():
        raise NetsimError(f"{option}: cannot write {str(name)!r}: there is no folder {str(path.parent)!r}; make it first")
    return check_target(path, option)


def machine_words(machine: "Machine", graph: "nx.DiGraph[str]", ranks: int) -> str:
    """Describe a machine in the head of a table."""
    words = [machine.label, f"{ranks} rank{'s' * (ranks != 1)}", f"{machine.rate} rates"]
    if not graph.graph.get("gpudirect", True):
        words.append("no GPUDirect")
    if machine.profile:
        words.append(f"profile {machine.profile}")
    return ", ".join(words)


def mention_textbook(spec: "Spec", algorithms: Sequence[str] = ()) -> None:
    """Say on stderr that a run is textbook where NCCL's schedules could be expected, and why."""
    from scenarios.run import fallback_of

    reason = fallback_of(spec, algorithms)
    if reason is not None and not reason.expected:
        print(f"netsim: textbook schedules (protocol ideal), not NCCL's, because {reason.words}", file=sys.stderr)


def mention_textbook_runs(specs: "Sequence[Spec]") -> None:
    """Say the same of the runs of a scenario file, once for what is alike; what cannot run says so when it is run."""
    alike = {(spec.collective, spec.algorithm, spec.protocol): spec for spec in specs}
    for spec in alike.values():
        with contextlib.suppress(NetsimError):
            mention_textbook(spec)


def mention_remarks(topology: str, graph: "nx.DiGraph[str]") -> None:
    """Say on stderr that a topology was read with assumptions or doubts, and where they are listed."""
    count = len(graph.graph.get("remarks", ()))
    if count:
        words = f"{count} remark{'s' * (count != 1)} on {topology}: see netsim topo check {topology}"
        print(f"netsim: {words}", file=sys.stderr)


def size_words(size_bytes: int) -> str:
    """Write a size for people: exact bytes below one kibibyte, binary units where they are whole, else MB."""
    whole = format_bytes(size_bytes)
    return whole if not whole.endswith(" B") or size_bytes < 10_000 else f"{size_bytes / 1e6:.6g} MB"
