"""Hold a log of NCCL against a communicator: rings, trees, channels, NICs, the tuner's table and the choice at each size.

What agrees is counted, what differs is said with both values, and what cannot be compared is said too, so that an empty
list of differences means something. Values of the log are printed with few digits; those are what is compared.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from netsim.errors import NetsimError
from netsim.nccl.availability import Options
from netsim.nccl.channels import nvls_channels, operation, sources, total_channels
from netsim.nccl.communicator import Communicator
from netsim.nccl.connect import ring, swaps_rails, tree
from netsim.nccl.environment import allowed, tuner_options
from netsim.nccl.environment import settings as settings_of
from netsim.nccl.graphs import RING
from netsim.nccl.log_facts import Connection, Log, Operation, Searched
from netsim.nccl.settings import Settings
from netsim.nccl.tuner import choose, cost_table
from netsim.nccl.tuner_costs import ALL_REDUCE, TUNED, graph_of
from netsim.nccl.variables import MISSING, USED
from netsim.nccl.version import NEWEST, OLDEST, Version

_HALF_DIGIT = 0.05
# NCCL computes in single precision.
_SLOP = 1e-6
_TIME_SLOP = 0.01
_SHOWN = 16


@dataclass
class Comparison:
    """What holding a log against a communicator gave."""

    differences: list[str] = field(default_factory=list)
    """One sentence each."""
    agreed: dict[str, int] = field(default_factory=dict)
    """How many things of a kind are the same."""
    skipped: list[str] = field(default_factory=list)
    """What could not be compared, and why."""

    def hold(self, kind: str, same: bool, words: str) -> None:
        """Count what agrees, keep the words of what does not."""
        if same:
            self.agreed[kind] = self.agreed.get(kind, 0) + 1
        else:
            self.differences.append(words)


def compare(log: Log, communicator: Communicator, *, options: Options | None = None) -> Comparison:
    """Return what a log and a communicator say differently.

    Parameters
    ----------
    log : Log
        Of `netsim.nccl.log.read_log`.
    communicator : Communicator
        Its environment decides what may run; where the log's differs, that is the first thing said.
    options : Options, optional
        Data type, operator and the like of the operations in the log; of nccl-tests' defaults if not given.

    Returns
    -------
    Comparison
    """
    found = Comparison()
    if log.maker != "NCCL":
        found.skipped.append(f"the log is of {log.maker}, whose rules and numbers are not NCCL's")
    _release(found, log, communicator.version)
    _environment(found, log, communicator)
    same_ranks = log.ranks in (None, communicator.ranks)
    if log.ranks is not None:
        found.hold("ranks", same_ranks, f"ranks: {log.ranks} in the log, {communicator.ranks} predicted")
    if log.nodes is not None:
        nodes = len(communicator.nodes)
        found.hold("nodes", log.nodes == nodes, f"nodes: {log.nodes} in the log, {nodes} predicted")
    if not same_ranks:
        found.skipped.append("everything else, because the numbers of ranks differ")
        return found
    settings = settings_of(communicator.environment)
    _graphs(found, log.graphs, communicator)
    _channels(found, log, communicator, settings)
    if graph_of(communicator, RING) is None:
        found.skipped.append("rings, trees and choices, because no ring is predicted")
        return found
    _rings(found, log, communicator, settings)
    _trees(found, log, communicator, settings)
    _connections(found, log, communicator, settings)
    _table(found, log, communicator)
    _choices(found, log, communicator, settings, options)
    return found


def _release(found: Comparison, log: Log, version: Version) -> None:
    if log.version is not None:
        found.hold("release", log.version == version, f"release: {log.version} in the log, {version} predicted")
    elif log.release is not None:
        accepted = f"accepted are {OLDEST} to {NEWEST}"
        found.skipped.append(
            f"the release: {log.maker} {log.release} is not covered; {accepted}, and {version} is predicted"
        )


def _environment(found: Comparison, log: Log, communicator: Communicator) -> None:
    for name, value in log.environment.items():
        if name in USED:
            ours = communicator.environment.get(name)
            same = ours is not None and ours.strip().lower() == value.lower()
            words = f"{name}={ours}" if ours is not None else "not given"
            found.hold("environment", same, f"environment: {name}={value} in the log, {words} in the prediction")
        elif name in MISSING:
            found.skipped.append(f"{name}={value} of the log is not modelled; NCCL takes from it: {MISSING[name]}")


def _graphs(found: Comparison, graphs: Mapping[str, Searched], communicator: Communicator) -> None:
    several = len(communicator.nodes) > 1
    for name, said in graphs.items():
        graph = graph_of(communicator, name)
        if graph is None:
            found.hold("graphs", False, f"{name} graph: {said.channels} channels in the log, none predicted")
            continue
        pairs: list[tuple[str, object, object]] = [
            ("channels", said.channels, graph.channels),
            ("pattern", said.pattern, graph.pattern),
            ("GB/s inside nodes", said.intra_GBps, round(graph.intra_GBps, 6)),
            ("type inside nodes", said.type_intra, graph.type_intra),
            ("same channels", said.same_channels, graph.same_channels),
        ]
        if several:  # one node has no network, whatever is printed
            pairs += [
                ("GB/s between nodes", said.inter_GBps, round(graph.inter_GBps, 6)),
                ("type between nodes", said.type_inter, graph.type_inter),
                ("crossNic", said.cross_nic, graph.cross_nic),
            ]
        for what, theirs, ours in pairs:
            found.hold("graphs", theirs == ours, f"{name} graph, {what}: {theirs} in the log, {ours} predicted")


def _channels(found: Comparison, log: Log, communicator: Communicator, settings: Settings) -> None:
    ours = {"coll": total_channels(communicator, settings)}
    if graph_of(communicator, "nvls") is not None and communicator.multicast:
        ours["nvls"] = nvls_channels(communicator, settings)
    theirs = {"coll": log.channels} if log.channels is not None else {}
    if log.channel_counts.get("nvls"):
        theirs["nvls"] = log.channel_counts["nvls"]
    for kind, count in theirs.items():
        predicted = ours.get(kind, 0)
        found.hold("channel counts", count == predicted, f"{kind} channels: {count} in the log, {predicted} predicted")


def _rings(found: Comparison, log: Log, communicator: Communicator, settings: Settings) -> None:
    used = sources(communicator, settings)
    made: dict[int, tuple[int, ...]] = {}
    pairs = []
    for channel, theirs in log.rings.items():
        if channel < len(used):
            order = used[channel].order
            made.setdefault(order, ring(communicator, order))
            pairs.append((channel, theirs, made[order][: len(theirs)]))
    _by_channel(found, "rings", "ring", pairs, _line)


def _trees(found: Comparison, log: Log, communicator: Communicator, settings: Settings) -> None:
    if log.trees and graph_of(communicator, "tree") is None:
        found.differences.append(f"trees: {len(log.trees)} in the log, none predicted")
        return
    used = sources(communicator, settings)
    pairs = []
    for channel, said in log.trees.items():
        if channel < len(used):
            whole = tree(communicator, used[channel].order, second=used[channel].second_tree)
            known = {rank: of for rank, of in said.items() if rank < communicator.ranks}
            theirs = tuple((rank, up, *sorted(down)) for rank, (up, down) in sorted(known.items()))
            ours = tuple((rank, whole.parent[rank], *sorted(whole.children[rank])) for rank in sorted(known))
            differing = [number for number, (one, other) in enumerate(zip(theirs, ours, strict=True)) if one != other]
            if differing:
                theirs, ours = (tuple(side[number] for number in differing) for side in (theirs, ours))
            pairs.append((channel, theirs, ours))
    _by_channel(found, "trees", "tree", pairs, _branches)


def _by_channel(
    found: Comparison,
    kind: str,
    what: str,
    pairs: Iterable[tuple[int, Hashable, Hashable]],
    words: Callable[[tuple[int, ...]], str] | Callable[[tuple[tuple[int, ...], ...]], str],
) -> None:
    """Compare channel by channel, and say alike differences once."""
    alike: dict[tuple[Hashable, Hashable], list[int]] = {}
    for channel, theirs, ours in pairs:
        if theirs == ours:
            found.agreed[kind] = found.agreed.get(kind, 0) + 1
        else:
            alike.setdefault((theirs, ours), []).append(channel)
    for (theirs, ours), channels in alike.items():
        where = f"{what} of channel{'s' if len(channels) > 1 else ''} {', '.join(map(str, channels))}"
        found.differences.append(f"{where}: {words(theirs)} in the log, {words(ours)} predicted")  # type: ignore[arg-type]


def _line(ranks: tuple[int, ...]) -> str:
    return " ".join(map(str, ranks[: 4 * _SHOWN])) + (" ..." if len(ranks) > 4 * _SHOWN else "")


def _branches(branches: tuple[tuple[int, ...], ...]) -> str:
    said = [f"rank {rank} below {up} above {' '.join(map(str, down)) or 'none'}" for rank, up, *down in branches[:_SHOWN]]
    return ", ".join(said) + (" ..." if len(branches) > _SHOWN else "")


def _connections(found: Comparison, log: Log, communicator: Communicator, settings: Settings) -> None:
    """Compare how neighbours in rings are connected: way, NIC and GPUDirect RDMA."""
    node_of = {rank: number for number, node in enumerate(communicator.nodes) for rank in node}
    used, graph = sources(communicator, settings), graph_of(communicator, RING)
    assert graph is not None
    inside = "p2p" if communicator.p2p else "shm"
    ways: dict[tuple[str, str, str], int] = {}
    nics: dict[tuple[int, int | None, int | None], int] = {}
    steps = {
        (channel, *step) for channel, ranks in log.rings.items() for step in zip(ranks, (*ranks[1:], ranks[0]), strict=True)
    }
    for link in log.connections:
        ends = (node_of.get(link.source), node_of.get(link.target))
        if None in ends or link.channel >= len(used):
            continue
        near = ends[0] == ends[1]
        ways_of = ("inside nodes", link.way, inside) if near else ("between nodes", link.way, "net")
        ways[ways_of] = ways.get(ways_of, 0) + 1
        if not near and link.nic is not None and (link.channel, link.source, link.target) in steps:
            order, number = used[link.channel].order, ends[0] if link.direction == "send" else ends[1]
            mine = graph.orders[order ^ 1 if swaps_rails(communicator) and (number or 0) % 2 else order]
            nic = (number or 0, link.nic, mine.nic_out if link.direction == "send" else mine.nic_in)
            nics[nic] = nics.get(nic, 0) + 1
    for (where, theirs, ours), count in ways.items():
        if theirs == ours:
            found.agreed["connections"] = found.agreed.get("connections", 0) + count
        else:
            found.differences.append(f"connections {where}: {count} are {theirs} in the log, {ours} predicted")
    _nics(found, nics)
    remote = [link for link in log.connections if link.way == "net" and node_of.get(link.source) != node_of.get(link.target)]
    _gdr(found, remote, communicator)


def _nics(found: Comparison, nics: Mapping[tuple[int, int | None, int | None], int]) -> None:
    """Compare NICs; a numbering that is only another one is no difference, but is said."""
    to_ours: dict[tuple[int, int | None], set[int | None]] = {}
    to_theirs: dict[tuple[int, int | None], set[int | None]] = {}
    for node, theirs, ours in nics:
        to_ours.setdefault((node, theirs), set()).add(ours)
        to_theirs.setdefault((node, ours), set()).add(theirs)
    renumbered = all(len(other) == 1 for other in (*to_ours.values(), *to_theirs.values()))
    same = all(theirs == ours for _, theirs, ours in nics)
    if nics and renumbered and not same:
        said = sorted({f"{theirs} there is {ours} here" for _, theirs, ours in nics if theirs != ours})
        found.skipped.append(f"the numbers of NICs, which the log counts otherwise: {', '.join(said)}")
    for (node, theirs, ours), count in nics.items():
        if renumbered or theirs == ours:
            found.agreed["NICs"] = found.agreed.get("NICs", 0) + count
        else:
            found.differences.append(f"NIC of {count} ring ends on node {node}: {theirs} in the log, {ours} predicted")


def _gdr(found: Comparison, remote: list[Connection], communicator: Communicator) -> None:
    for gdr in (True, False):
        count = sum(link.gdr is gdr for link in remote)
        theirs, ours = (("with" if one else "without") + " GPUDirect RDMA" for one in (gdr, communicator.gdr))
        if count and gdr == communicator.gdr:
            found.agreed["GPUDirect RDMA"] = found.agreed.get("GPUDirect RDMA", 0) + count
        elif count:
            found.differences.append(f"connections over the network: {count} are {theirs} in the log, {ours} predicted")


def _table(found: Comparison, log: Log, communicator: Communicator) -> None:
    version, environment = communicator.version, communicator.environment
    for collective in TUNED if log.table else ():
        restricted = environment
        if version < Version(2, 19) and collective != ALL_REDUCE:
            # Those releases take algorithms away from all-reduce only.
            restricted = {name: value for name, value in environment.items() if name != "NCCL_ALGO"}
        left = allowed(restricted, collective, version)
        costs = cost_table(communicator, collective, tuner_options(environment, collective, version))
        for (of, algorithm, protocol), (latency, bandwidth) in log.table.items():
            if of != collective:
                continue
            pair = (algorithm, protocol)
            mine = costs.get(pair) if left is None or pair in left else None
            what = f"tuner table, {collective} by {algorithm} {protocol}"
            theirs = f"{latency:.1f} us and {bandwidth:.1f} GB/s" if bandwidth else "cannot run"
            ours = f"{mine.latency_us:.1f} us and {mine.bandwidth_GBps:.1f} GB/s" if mine else "cannot run"
            same = (mine is None) == (bandwidth == 0)
            if mine and bandwidth:
                same = _printed(mine.latency_us, latency) and _printed(mine.bandwidth_GBps, bandwidth)
            found.hold("tuner table", same, f"{what}: {theirs} in the log, {ours} predicted")


def _printed(value: float, digits: float) -> bool:
    """Say whether a value is printed so with one digit after the point."""
    return abs(value - digits) <= _HALF_DIGIT + _SLOP * abs(value)


def _choices(found: Comparison, log: Log, communicator: Communicator, settings: Settings, options: Options | None) -> None:
    if not log.operations:
        return
    if log.communicators > 1:
        found.skipped.append(f"what ran, because the log does not say on which of {log.communicators} communicators")
        return
    if log.special:
        said = ", ".join(f"{count} by {name}" for name, count in log.special.items())
        found.skipped.append(f"operations that did not go by algorithm and protocol: {said}")
    unnamed = sum(count for ran, count in log.operations.items() if ran.collective is None)
    if unnamed:
        found.skipped.append(f"{unnamed} operations of which the log does not say the collective")
    for ran in log.operations:
        if ran.collective is not None and communicator.ranks > 1:
            _choice(found, ran, ran.collective, communicator, settings, options)


def _choice(
    found: Comparison,
    ran: Operation,
    collective: str,
    communicator: Communicator,
    settings: Settings,
    options: Options | None,
) -> None:
    version, environment = communicator.version, communicator.environment
    size = ran.size_bytes(communicator.ranks)
    what = f"{collective} of {size} bytes"
    options = options or tuner_options(environment, collective, version)
    left = allowed(environment, collective, version)
    whole = total_channels(communicator, settings)
    try:
        choice = choose(communicator, collective, size, allowed=left, channels=whole, options=options)
        channels = operation(communicator, collective, choice.algorithm, choice.protocol, size, settings=settings).channels
    except NetsimError as error:
        found.differences.append(f"{what}: {ran.algorithm} {ran.protocol} in the log, but {error}")
        return
    theirs, ours = f"{ran.algorithm} {ran.protocol}", f"{choice.algorithm} {choice.protocol}"
    found.hold("choices", theirs == ours, f"{what}: {theirs} in the log, {ours} predicted")
    if theirs != ours:
        return
    if ran.channels is not None:
        words = f"{what} by {ours}, channels: {ran.channels} in the log, {channels} predicted"
        found.hold("channels of choices", ran.channels == channels, words)
    if ran.predicted_us is not None:
        near = abs(ran.predicted_us - choice.predicted_us) <= _TIME_SLOP * choice.predicted_us
        words = (
            f"{what} by {ours}, NCCL's own guess: {ran.predicted_us:g} us in the log, {choice.predicted_us:.6g} predicted"
        )
        found.hold("guessed times", near, words)
