"""Runs of NCCL's own schedules on a machine: its communicators, kept for the next run, and what launching costs.

Which release, which variables, registered buffers or not, and how calls are launched come with a spec as `NcclOptions`.
NCCL's rooms are opened where they are used, so that textbook runs start without them.
"""

from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from netsim.errors import ScenarioError
from netsim.fabric import hosts_of, ranks_of
from netsim.nccl.elements import ELEMENT_BYTES, Elements
from netsim.nccl.version import DEFAULT, Version
from netsim.routing import Router
from scenarios.machine import Machine, graph_of, router_of, stamp
from topologies.profiles import family_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import networkx as nx

    from netsim.nccl.communicator import Communicator
    from netsim.nccl.schedules import Built
    from netsim.nccl.tuner_file import Rule
    from netsim.schedule.nccl.costs import Network

_OF_ALL = ("datatype", "operator")
"""What textbook runs may be given too, as it makes no difference there."""
LAUNCHES = ("graph", "stream", "none")


@dataclass(frozen=True)
class NcclOptions:
    """What NCCL is told and how it is called."""

    version: str = str(DEFAULT)
    """Release to imitate."""
    environment: tuple[str, ...] = ()
    """Assignments such as ``NCCL_NVLS_ENABLE=0``."""
    registered: bool = False
    """Whether user buffers are registered."""
    launch: str = "graph"
    """``graph``: replayed in a CUDA graph, no cost of the host; ``stream``: calls back to back, which the host must keep up
    with; ``none``: not even the kernel's start."""
    gpus_per_process: int = 1
    """GPUs that one host thread drives, for ``stream``."""
    tuner: str | None = None
    """A file of rules of NCCL's example tuner plugin."""
    windows: bool = False
    """Whether user buffers are symmetric windows, so that NCCL may take kernels and copy engines that need those."""
    in_place: bool = False
    """Whether input and output are one buffer, as in the right half of nccl-tests' tables."""
    datatype: str = "float"
    """By the names of nccl-tests."""
    kernel_costs: str | None = None
    """A file of what NCCL's kernels cost, in place of that of the GPUs' generation."""
    operator: str = "sum"
    """What all_reduce, reduce and reduce_scatter do with elements."""
    given: tuple[str, ...] = field(default=(), compare=False)
    """Names of those above that were asked for, as the user knows them, also where the value is the default."""

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of what was asked for; where nobody said it, of what is not the default."""
        return self.given or tuple(
            one.name
            for one in fields(self)
            if one.compare and one.name not in _OF_ALL and getattr(self, one.name) != one.default
        )

    def __post_init__(self) -> None:
        # One name for one release, so that tables say which patch 2.28 is, and communicators are kept once.
        object.__setattr__(self, "version", str(Version.parse(self.version)))
        if self.launch not in LAUNCHES:
            raise ScenarioError(f"launch is {self.launch!r}; accepted are {', '.join(LAUNCHES)}")
        if self.gpus_per_process < 1:
            raise ScenarioError(f"{self.gpus_per_process} GPUs a process; accepted are 1 or more")
        Elements(self.datatype, self.operator)

    @property
    def words(self) -> tuple[str, ...]:
        """What of elements, buffers and calls is not the default, for the head of a table."""
        elements = "" if (self.datatype, self.operator) == ("float", "sum") else f"{self.operator} of {self.datatype}"
        buffers = "symmetric windows" if self.windows else "registered buffers" if self.registered else ""
        buffers = ", ".join(filter(None, (buffers, "in place" if self.in_place else "")))
        calls = {
            "graph": "",
            "stream": f"stream of calls, {self.gpus_per_process} GPU{'s' * (self.gpus_per_process > 1)} a thread",
            "none": "no kernel start",
        }
        tuner = f"rules of {self.tuner}" if self.tuner else ""
        costs = f"kernel costs of {self.kernel_costs}" if self.kernel_costs else ""
        return tuple(one for one in (elements, buffers, calls[self.launch], tuner, costs) if one)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.datatype]


def told_graph(machine: Machine, options: NcclOptions) -> "nx.DiGraph[str]":
    """Return the topology with the staging and the relays that NCCL's variables ask for."""
    return _told(_Graph(graph_of(machine)), options.environment)


def told_router(machine: Machine, options: NcclOptions, routing: str) -> Router:
    """Return the routes of that topology, kept for the next run."""
    graph = told_graph(machine, options)
    return router_of(machine, routing) if graph is graph_of(machine) else _router(_Graph(graph), routing)


@lru_cache(maxsize=8)
def _told(graph: "_Graph", environment: tuple[str, ...]) -> "nx.DiGraph[str]":
    from netsim.nccl.environment import read_assignments
    from netsim.nccl.from_topology import as_told

    return as_told(graph.graph, read_assignments(environment))


@lru_cache(maxsize=4)
def _router(graph: "_Graph", routing: str) -> Router:
    return Router(graph.graph, routing)


def communicator_of(machine: Machine, options: NcclOptions, members: tuple[int, ...] | None = None) -> "Communicator":
    """Return what NCCL knows of these ranks of a machine, or of all; built once for a machine and the same options."""
    graph = graph_of(machine)
    members = tuple(range(len(ranks_of(graph)))) if members is None else members
    return _communicator(_Graph(graph), options.version, options.environment, members, _files(options.environment))


def _files(environment: tuple[str, ...]) -> tuple[object, ...]:
    """Return what changes when a file does that the environment names."""
    return tuple(stamp(text.rpartition("=")[2]) for text in environment)


class _Graph:
    """A topology by identity: the one graph of a machine is kept by `scenarios.machine`."""

    def __init__(self, graph: "nx.DiGraph[str]") -> None:
        self.graph = graph

    def __hash__(self) -> int:
        return id(self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Graph) and other.graph is self.graph


@lru_cache(maxsize=64)
def _communicator(
    graph: _Graph, version: str, environment: tuple[str, ...], members: tuple[int, ...], files: tuple[object, ...]
) -> "Communicator":
    from netsim.nccl.environment import read_assignments
    from netsim.nccl.from_topology import communicator

    return communicator(graph.graph, Version.parse(version), members, read_assignments(environment))


def build(
    machine: Machine,
    options: NcclOptions,
    groups: "Sequence[tuple[int, ...]]",
    collective: str,
    sizes_bytes: "Sequence[int]",
    router: Router,
    **asked: Any,
) -> "list[Built]":
    """Build the schedules that NCCL would run, one for each group of ranks; groups that are alike share one.

    Parameters
    ----------
    machine : Machine
    options : NcclOptions
    groups : sequence of tuple of int
        Ranks of the machine, in each communicator's order.
    collective : str
    sizes_bytes : sequence of int, bytes
        One for each group.
    router : Router
        Routes of the machine.
    **asked
        Algorithm, protocol, root, channels and limit, as in `netsim.nccl.schedules.build`.
    """
    from netsim.nccl import schedules
    from netsim.nccl.from_topology import network_of

    rules = rules_of(options)
    kept: list[tuple[tuple[Communicator, int, dict[str, Network]], Built]] = []
    all_built: list[Built] = []
    for members, size in zip(groups, sizes_bytes, strict=True):
        found = communicator_of(machine, options, members)
        key = (found, size, network_of(router, members, found))
        built = next((built for other, built in kept if other == key), None)
        if built is None:
            built = schedules.build(
                found,
                collective,
                size,
                registered=options.registered,
                symmetric=options.windows,
                in_place=options.in_place,
                datatype=options.datatype,
                operator=options.operator,
                started=options.launch != "none",
                network=key[2],
                rules=rules,
                kernel_costs=options.kernel_costs,
                **asked,
            )
            kept.append((key, built))
        all_built.append(built)
    return all_built


def rules_of(options: NcclOptions) -> "list[Rule] | None":
    """Return the rules of the tuner plugin that is given, None without one."""
    from netsim.nccl.tuner_file import read_rules

    return None if options.tuner is None else read_rules(options.tuner)


def least_call_s(machine: Machine, options: NcclOptions, members: tuple[int, ...]) -> float:
    """Return the time in seconds that the host needs for a call, below which no stream of calls gets."""
    from netsim.nccl.gpus import launch_s
    from netsim.nccl.schedules import generation_of

    if options.launch != "stream":
        return 0.0
    name = options.kernel_costs or generation_of(communicator_of(machine, options, members))
    return launch_s(name) * options.gpus_per_process


def windows_hindrance(machine: Machine, options: NcclOptions, members: tuple[int, ...]) -> str | None:
    """Say why symmetric windows change nothing for these ranks; None where they may."""
    from netsim.nccl.windows import hindrance

    return hindrance(communicator_of(machine, options, members))


def check_process(machine: Machine, options: NcclOptions) -> None:
    """Refuse more GPUs a process than a server has, those that take no part included."""
    if options.gpus_per_process <= max(map(len, hosts_of(graph_of(machine)))):
        return
    most = max(map(len, hosts_of(graph_of(replace(machine, gpus_per_node=None)))))
    if options.gpus_per_process > most:
        raise ScenarioError(
            f"{options.gpus_per_process} GPUs a process: a server of {machine.label} has {most}, and a process drives GPUs "
            f"of one server; accepted are 1 to {most}"
        )


def is_known(machine: Machine) -> bool:
    """Say whether a machine's GPUs are known, so that NCCL's costs and figures mean something: no study graph's are.

    Nor are AMD's, on which RCCL runs.
    """
    graph = graph_of(machine)
    gpus = ranks_of(graph)
    if any(graph.nodes[gpu].get("vendor") == "AMD" for gpu in gpus):
        return False
    if any("sm" in graph.nodes[gpu] for gpu in gpus):
        return True
    kinds = {link.kind for gpu in gpus for link in (data["link"] for data in graph.succ[gpu].values())}
    families = {family_of(kind) for kind in kinds}
    return "xgmi" not in families and bool(families - {None})


def pairs_of(machine: Machine, options: NcclOptions, collective: str) -> list[tuple[str, str]]:
    """Return the algorithms and protocols that NCCL's cost model has for a collective on all ranks of a machine."""
    from netsim.nccl.environment import read_assignments, tuner_options
    from netsim.nccl.tuner import cost_table
    from netsim.nccl.tuner_costs import TUNED

    members = tuple(range(len(ranks_of(graph_of(machine)))))
    if collective not in TUNED or len(members) == 1:
        return []
    found = communicator_of(machine, options, members)
    told = tuner_options(
        read_assignments(options.environment),
        collective,
        found.version,
        datatype=options.datatype,
        operator=options.operator,
    )
    return list(cost_table(found, collective, told))
