"""A collective as NCCL would run it on a communicator: what it chooses, the plan of it, and the operations.

The front of this room. Collectives that NCCL knows by name go through its cost model, and through rules of a tuner plugin
where there are some; all-to-all, send/recv, gather and scatter are grouped sends and receives. Costs are those of the GPUs'
generation unless others are given.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netsim.errors import NetsimError
from netsim.nccl import windows
from netsim.nccl.availability import Options
from netsim.nccl.channels import total_channels
from netsim.nccl.communicator import Communicator
from netsim.nccl.elements import ELEMENT_BYTES, FLOATS, Elements
from netsim.nccl.environment import allowed, settings, tuner_options
from netsim.nccl.gpus import copy_costs, generation, window_costs
from netsim.nccl.gpus import costs as gpu_costs
from netsim.nccl.peer_planning import plan_peers
from netsim.nccl.planning import plan
from netsim.nccl.tuner import Choice, choose
from netsim.nccl.tuner_constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    LL,
    NVLS,
    NVLS_TREE,
    PAT,
    RING,
    SIMPLE,
    TREE,
)
from netsim.nccl.tuner_costs import NVLS_KINDS, TUNED
from netsim.nccl.tuner_file import Rule, apply
from netsim.schedule.dag import Schedule
from netsim.schedule.nccl import collnet, nvls, nvls_tree, pat, peers, ring, sendrecv, tree
from netsim.schedule.nccl.costs import FREE, Costs, Network
from netsim.schedule.nccl.plan import Plan
from netsim.schedule.nccl.symmetric import protocol_of

PEERS = "p2p"
"""Name of the algorithm of grouped sends and receives."""
COLLECTIVES = (*TUNED, *peers.COLLECTIVES)

_BUILDERS: dict[str, Callable[..., Schedule]] = {
    RING: ring.build,
    TREE: tree.build,
    NVLS: nvls.build,
    NVLS_TREE: nvls_tree.build,
    COLLNET_DIRECT: collnet.build_direct,
    COLLNET_CHAIN: collnet.build_chain,
    PAT: pat.build,
}
_WINDOWED = (windows.SYMMETRIC, windows.COPY_ENGINE)
ALGORITHMS = (*_BUILDERS, PEERS, *_WINDOWED)
"""Algorithms of NCCL, by this project's names."""


@dataclass(frozen=True)
class Built:
    """One collective, ready to be run."""

    schedule: Schedule
    algorithm: str
    protocol: str
    channels: int
    """Channels in use."""
    choice: Choice | None
    """What NCCL's cost model says of all that could have run; None where it is not asked."""
    ruled: bool | None = None
    """Whether a rule of a tuner plugin served; None where there were no rules to ask."""


@dataclass(frozen=True)
class Decision:
    """What NCCL takes for one collective and size."""

    choice: Choice
    """With a rule of a tuner plugin, what the rule asks for."""
    channels: int | None = None
    """What the plugin asks for in place of NCCL's own number."""
    ruled: bool | None = None
    """As in `Built`."""


def build(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    *,
    algorithm: str = "auto",
    protocol: str = "auto",
    root: int = 0,
    align_bytes: int | None = None,
    datatype: str = "float",
    operator: str = "sum",
    channels: int | None = None,
    registered: bool = False,
    symmetric: bool = False,
    in_place: bool = False,
    free: bool = False,
    started: bool = True,
    network: Mapping[str, Network] | None = None,
    rules: Sequence[Rule] | None = None,
    kernel_costs: str | None = None,
    limit: int | None = None,
) -> Built:
    """Return the schedule of a collective as NCCL would run it.

    Parameters
    ----------
    communicator : Communicator
        Ranks and hardware, with NCCL's release and environment.
    collective : str
        One of `COLLECTIVES`.
    size_bytes : int, bytes
        As nccl-tests counts and rounds it.
    algorithm, protocol : str
        Names, or ``auto`` for NCCL's choice among what its environment leaves.
    root : int
        For broadcast, reduce, gather and scatter.
    align_bytes : int, optional
        Bytes of an element, in place of the type's.
    datatype, operator : str
        Names of nccl-tests; they bear on which algorithms there are, and integers of one byte on what adding costs.
    channels : int, optional
        In place of NCCL's number for the size.
    registered, in_place : bool
        Whether user buffers are registered, and whether input and output are one.
    symmetric : bool
        Whether they are symmetric windows, so that NCCL may take kernels or copy engines that need those.
    free : bool
        Whether GPUs cost nothing, so that links alone decide.
    started : bool
        Whether the start of the kernel counts.
    network : mapping of str to Network, optional
        By protocol, what messages between nodes meet beside their links (`netsim.nccl.from_topology.network_of`).
    rules : sequence of Rule, optional
        Of NCCL's example tuner plugin, asked before the cost model decides.
    kernel_costs : str, optional
        A file of what kernels cost, in place of that of the GPUs' generation.
    limit : int, optional
        The most operations accepted.

    Raises
    ------
    NetsimError
        If NCCL would refuse, or has no such operation.
    """
    if collective not in COLLECTIVES:
        raise NetsimError(f"NCCL has no {collective}; accepted are {', '.join(COLLECTIVES)}")
    given = settings(communicator.environment)
    elements = Elements(datatype, operator)
    align_bytes = ELEMENT_BYTES[datatype] if align_bytes is None else align_bytes

    def costs_of(kind: str, **uses: bool) -> Costs:
        name = kernel_costs or generation_of(communicator, nvls=uses.get("nvls", False))
        found = FREE if free else _started(gpu_costs(name, kind, datatype=datatype, **uses), started)
        return replace(found, network=(network or {}).get(kind, Network()))

    def costs_on_windows(kind: str) -> Costs:
        name = kernel_costs or generation(communicator.compute_capability)
        found = copy_costs(name) if kind == windows.COPY_ENGINE else window_costs(name, kind, collective)
        return FREE if free else _started(found, started)

    registered = registered or symmetric
    decided = decide(
        communicator,
        collective,
        size_bytes,
        algorithm,
        protocol,
        rules=rules,
        registered=registered,
        elements=elements,
    )
    if symmetric and algorithm == protocol == "auto" and rules is None:
        predicted_us = None if decided is None else decided.choice.predicted_us
        algorithm = windows.taken(communicator, collective, size_bytes, predicted_us, elements) or algorithm
    if algorithm.partition(":")[0] in _WINDOWED:
        return _on_windows(
            communicator,
            collective,
            size_bytes,
            algorithm,
            costs_on_windows,
            elements=elements,
            blocks=channels,
            root=root,
            align_bytes=align_bytes,
            in_place=in_place,
            limit=limit,
        )
    if collective in peers.COLLECTIVES:
        if algorithm not in ("auto", PEERS):
            raise NetsimError(f"NCCL runs {collective} by sends and receives ({PEERS}), not by {algorithm}")
        sends = plan_peers(
            communicator,
            collective,
            size_bytes,
            protocol=protocol,
            collective_channels=total_channels(communicator, given),
            channels=channels,
            costs=costs_of(SIMPLE, peers=True),
            ll_costs=costs_of(LL, peers=True),
            root=root,
            align_bytes=align_bytes,
            registered=registered,
            in_place=in_place,
            settings=given,
        )
        schedule = sendrecv.build(sends, limit=limit)
        return Built(schedule, PEERS, schedule.protocol, _channels_used(schedule), None)
    taken = (RING, LL) if decided is None else (decided.choice.algorithm, decided.choice.protocol)
    if channels is None and decided is not None:
        channels = decided.channels
    made: Plan = plan(
        communicator,
        collective,
        size_bytes,
        *taken,
        costs=costs_of(taken[1], nvls=taken[0] in NVLS_KINDS, trees=taken[0] == NVLS_TREE),
        root=root,
        align_bytes=align_bytes,
        channels=channels,
        registered=registered,
        in_place=in_place,
        settings=given,
    )
    schedule = _BUILDERS[taken[0]](made, limit=limit)
    if decided is None:
        return Built(schedule, *taken, len(made.channels), None)
    return Built(schedule, *taken, len(made.channels), decided.choice, decided.ruled)


def decide(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    algorithm: str = "auto",
    protocol: str = "auto",
    *,
    rules: Sequence[Rule] | None = None,
    registered: bool = False,
    elements: Elements = FLOATS,
) -> Decision | None:
    """Return what NCCL takes; None where its cost model is not asked.

    That is so for sends and receives, for symmetric windows and copy engines, and for one rank, which only copies.

    Parameters
    ----------
    communicator : Communicator
    collective : str
    size_bytes : int, bytes
    algorithm, protocol : str
        As in `build`; what they exclude no rule brings back.
    rules : sequence of Rule, optional
        Of NCCL's example tuner plugin. Where none serves, the cost model decides, and one channel is used, because that
        plugin sets one before it looks for a rule.
    registered : bool
        Whether user buffers are registered, which rules may ask for.
    elements : Elements
        What is reduced and how.
    """
    if collective not in TUNED or communicator.ranks == 1 or algorithm.partition(":")[0] in _WINDOWED:
        return None
    choice = _choice(communicator, collective, size_bytes, algorithm, protocol, elements)
    if rules is None:
        return Decision(choice)
    nodes, ranks = len(communicator.nodes), communicator.ranks
    asked = apply(rules, collective, size_bytes, nodes, ranks, registered=registered, available=choice.table)
    if asked is None:
        return Decision(choice, channels=1, ruled=False)
    pair = (asked.algorithm, asked.protocol)
    taken = replace(choice, algorithm=pair[0], protocol=pair[1], predicted_us=choice.table[pair])
    return Decision(taken, asked.channels, ruled=True)


def _on_windows(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    algorithm: str,
    costs_of: Callable[[str], Costs],
    *,
    elements: Elements,
    blocks: int | None,
    **numbers: Any,
) -> Built:
    """Build a collective on symmetric windows, by a kernel or by copy engines."""
    if algorithm == windows.COPY_ENGINE:
        schedule = windows.by_copies(communicator, collective, size_bytes, costs_of(windows.COPY_ENGINE), **numbers)
        return Built(schedule, algorithm, SIMPLE, 0, None)
    kernel, used = windows.kernel_of(communicator, algorithm, collective, size_bytes, blocks, elements=elements)
    protocol = protocol_of(kernel)
    more = {name: numbers[name] for name in ("align_bytes", "limit")}
    schedule = windows.by_kernel(communicator, collective, size_bytes, kernel, used, costs_of(protocol), **more)
    return Built(schedule, schedule.algorithm, protocol, used, None)


def _choice(
    communicator: Communicator, collective: str, size_bytes: int, algorithm: str, protocol: str, elements: Elements
) -> Choice:
    """Return what the cost model takes."""
    pairs: Collection[tuple[str, str]] | None = allowed(
        communicator.environment,
        collective,
        communicator.version,
        algorithms=None if algorithm == "auto" else algorithm,
        protocols=None if protocol == "auto" else protocol,
    )
    asked = None if protocol == "auto" else protocol
    options: Options = tuner_options(
        communicator.environment,
        collective,
        communicator.version,
        protocols=asked,
        datatype=elements.datatype,
        operator=elements.operator,
    )
    return choose(
        communicator,
        collective,
        size_bytes,
        allowed=pairs,
        channels=total_channels(communicator, settings(communicator.environment)),
        options=options,
    )


def generation_of(communicator: Communicator, *, nvls: bool = False) -> str:
    """Return the generation whose costs apply to a communicator's kernels (`netsim.nccl.gpus.generation`).

    GPUs that reach each other over PCI Express have costs of their own, but what the NVSwitch adds goes over NVLink, and
    GPUs that are alone on their nodes write to buffers at home.
    """
    over_nvlink = nvls or communicator.ranks_per_node == 1 or communicator.peer_links > 0
    return generation(communicator.compute_capability, nvlink=over_nvlink)


def _channels_used(schedule: Schedule) -> int:
    """Count the channels whose lanes do anything."""
    return len({role.split()[1] for _, role in schedule.lane_names if role.startswith("channel ")})


def _started(costs: Costs, started: bool) -> Costs:
    return costs if started else replace(costs, start_s=0.0)
