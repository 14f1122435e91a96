"""Networks between machines: one switch, rails, leaf and spine, three tiers; from a line of text to switches and links.

A network switch is one node with unlimited capacity inside; what its ports carry is on the edges, each direction a link
of its own. A link between two switches is one edge of the rate that is stated, or that its tier needs: all that comes
up from below, shared evenly over the switches above and divided by the oversubscription. Routes choose among equal
switches (`netsim.routing`). Deliberately left out: adaptive routing, buffers, and switches' own limits.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import NETWORK_SWITCH, Link
from netsim.units import parse_rate, parse_time
from topologies.options import check_keys, choice, split_options, whole
from topologies.wiring import join

if TYPE_CHECKING:
    import networkx as nx

NETWORK = "network"
"""Name of the switch of ``one-switch``."""

_RATES = ("uplink", "oversubscription", "hop")
_SHARP = "sharp"
_FORMS: dict[str, tuple[str, ...]] = {
    "one-switch": (_SHARP,),
    "rails": ("servers", "spines", _SHARP, *_RATES),
    "rails-only": (_SHARP,),
    "leaf-spine": ("leaves", "servers", "spines", "order", _SHARP, *_RATES),
    "fat-tree": ("k", "pods", "leaves", "spines", "cores", "order", "core", _SHARP, *_RATES),
}
FABRICS = tuple(_FORMS)
"""Networks between machines that can be built."""

FORMS = (
    "one-switch, rails[:servers=N,spines=N,uplink=RATE,oversubscription=X], rails-only, "
    "leaf-spine:leaves=N|servers=N,spines=N[,...], fat-tree:k=N or fat-tree:pods=N,leaves=N,spines=N,cores=N[,core=RATE,...]"
    ", each with sharp=on where switches reduce"
)
"""The forms a fabric's text takes, for help and messages."""

# Of a link between two switches: a switch passes a packet on in 0.13 us (port to port, by the vendor's sheet for HDR
# InfiniBand), 25 m of fibre at 5 ns a metre are as much again. What NICs and the first switch cost is in the NIC's profile.
_HOP_S = 0.25e-6
_MOST_LINKS = 4_000_000
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)

Ports = Sequence[Sequence[tuple[str, Link]]]
"""NICs of every server, in order, each with the link to its switch."""


@dataclass(frozen=True)
class FabricSpec:
    """A network between machines, as its text describes it."""

    text: str
    form: str
    """One of `FABRICS`."""
    counts: dict[str, int]
    """``leaves``, ``spines``, ``servers``, ``pods``, ``cores``, ``k``: those that were given."""
    uplink_bytes_per_s: float | None = None
    """Of each link between a leaf (or rail) and a spine; None for what comes from below."""
    core_bytes_per_s: float | None = None
    """Of each link between a spine and a core."""
    oversubscription: float = 1.0
    """What a tier's links down carry over what its links up do."""
    hop_s: float = _HOP_S
    """Latency of a link between two switches."""
    striped: bool = False
    """Whether servers are dealt out to the leaves one by one instead of in blocks."""
    sharp: bool = False
    """Whether switches add up what several servers send (SHARP), for CollNet and NVLS over several servers."""


def parse_fabric(text: str) -> FabricSpec:
    """Read a fabric's text.

    Raises
    ------
    FabricError, UnitError
        One sentence with the text, the key and what is accepted.

    Examples
    --------
    >>> parse_fabric("leaf-spine:leaves=2,spines=4,uplink=100GB/s").counts
    {'leaves': 2, 'spines': 4}
    """
    form, options = split_options(text, "fabric")
    if form not in _FORMS:
        raise FabricError(f"unknown fabric {text!r}; accepted are {FORMS}")
    where = f"fabric {text!r}"
    check_keys(options, _FORMS[form], where)
    names = ("k", "pods", "leaves", "servers", "spines", "cores")
    counts = {name: whole(options[name], f"{where}: {name}", 100_000) for name in names if name in options}
    for given, one, other in ((options, "uplink", "oversubscription"), (options, "leaves", "servers")):
        if one in given and other in given:
            raise FabricError(f"{where}: {one} and {other} state the same thing; write one of them")
    _check_needed(form, options, where)
    ratio = options.get("oversubscription", "1")
    if not _NUMBER.fullmatch(ratio) or float(ratio) <= 0:
        raise FabricError(f"{where}: oversubscription is {ratio!r}; it must be a number above zero, such as 2 or 1.5")
    rates = {key: parse_rate(options[key], where=f"{where}: {key}") for key in ("uplink", "core") if key in options}
    return FabricSpec(
        text,
        form,
        counts,
        uplink_bytes_per_s=rates.get("uplink"),
        core_bytes_per_s=rates.get("core"),
        oversubscription=float(ratio),
        hop_s=parse_time(options["hop"], where=f"{where}: hop") if "hop" in options else _HOP_S,
        striped=choice(options.get("order", "block"), ("block", "stripe"), f"{where}: order") == "stripe",
        sharp=choice(options.get(_SHARP, "off"), ("on", "off"), f"{where}: {_SHARP}") == "on",
    )


def _check_needed(form: str, options: dict[str, str], where: str) -> None:
    """Insist on the counts that a form cannot do without."""
    if form == "leaf-spine" and not ("spines" in options and {"leaves", "servers"} & set(options)):
        raise FabricError(f"{where}: say how many switches, for example leaf-spine:leaves=2,spines=4, or servers=N a leaf")
    if form == "fat-tree":
        tiers = {"pods", "leaves", "spines", "cores"}
        if "k" in options:
            clash = sorted(set(options) & (tiers | {"order", "uplink", "core", "oversubscription"}))
            if clash:
                raise FabricError(f"{where}: k fixes all of the tree; {clash[0]} cannot stand beside it")
        elif not tiers <= set(options):
            raise FabricError(f"{where}: give k=N (even), or all of pods, leaves, spines (a pod) and cores (a spine)")


def add_network(graph: "nx.DiGraph[str]", spec: FabricSpec, servers: Ports) -> None:
    """Add a fabric's switches to a graph and join the servers' NICs to them.

    Names: ``network``; ``rail3``; ``leaf0``, ``spine0``; ``pod0/leaf0``, ``pod0/spine0``, ``core0``. With several groups
    of servers a rail is ``group0/rail3``.
    """
    before = set(graph)
    _add_tiers(graph, spec, servers)
    if spec.sharp:
        for switch in graph:
            if switch not in before:
                graph.nodes[switch]["reduce"] = True


def _add_tiers(graph: "nx.DiGraph[str]", spec: FabricSpec, servers: Ports) -> None:
    if spec.form == "one-switch":
        _switches(graph, [NETWORK])
        for nics in servers:
            for nic, port in nics:
                join(graph, nic, NETWORK, port)
    elif spec.form == "fat-tree":
        if "k" in spec.counts:
            _k_ary(graph, spec, servers)
        else:
            _three_tiers(graph, spec, servers)
    else:
        leaves = _rails(graph, spec, servers) if spec.form.startswith("rails") else _leaves(graph, spec, servers)
        if spec.form != "rails-only":
            spines = [f"spine{number}" for number in range(spec.counts.get("spines", 1))]
            if len(leaves) > 1:
                _up(graph, spec, leaves, spines, spec.uplink_bytes_per_s)


def _switches(graph: "nx.DiGraph[str]", names: Sequence[str]) -> None:
    graph.add_nodes_from(names, kind=NETWORK_SWITCH)


def _up(
    graph: "nx.DiGraph[str]", spec: FabricSpec, below: dict[str, float], above: Sequence[str], rate: float | None
) -> dict[str, float]:
    """Join every switch of a tier to every one above; return what the switches above get from below."""
    _check_links(spec, len(below) * len(above))
    _switches(graph, above)
    enters = 0.0
    for switch, down in below.items():
        bandwidth = down / (len(above) * spec.oversubscription) if rate is None else rate
        link = Link(spec.hop_s, bandwidth, kind="uplink", line_rate_bytes_per_s=bandwidth)
        enters += bandwidth
        for other in above:
            join(graph, switch, other, link)
    return dict.fromkeys(above, enters)


def _check_links(spec: FabricSpec, links: int) -> None:
    if links > _MOST_LINKS:
        raise FabricError(f"fabric {spec.text!r}: {links} links between two tiers are more than the {_MOST_LINKS} accepted")


def _rails(graph: "nx.DiGraph[str]", spec: FabricSpec, servers: Ports) -> dict[str, float]:
    """Add the rail switches, NIC i of each server on rail i; return what each has below it."""
    block = spec.counts.get("servers", len(servers))
    several = len(servers) > block
    rails: dict[str, float] = {}
    for place, nics in enumerate(servers):
        for number, (nic, port) in enumerate(nics):
            rail = f"group{place // block}/rail{number}" if several else f"rail{number}"
            if rail not in rails:
                _switches(graph, [rail])
            join(graph, nic, rail, port)
            rails[rail] = rails.get(rail, 0.0) + port.bandwidth_bytes_per_s
    return rails


def _leaves(graph: "nx.DiGraph[str]", spec: FabricSpec, servers: Ports) -> dict[str, float]:
    """Add the leaves, all NICs of a server on one; return what each has below it."""
    count = spec.counts.get("leaves") or math.ceil(len(servers) / spec.counts["servers"])
    return _deal(graph, spec, servers, [f"leaf{number}" for number in range(count)])


def _deal(graph: "nx.DiGraph[str]", spec: FabricSpec, servers: Ports, names: Sequence[str]) -> dict[str, float]:
    """Deal servers out to leaves, in blocks or one by one."""
    if len(names) > len(servers):
        raise FabricError(f"fabric {spec.text!r}: {len(names)} leaves for {len(servers)} servers; use at most one a server")
    _switches(graph, names)
    below = dict.fromkeys(names, 0.0)
    block = spec.counts.get("servers")
    for place, nics in enumerate(servers):
        if spec.striped:
            leaf = names[place % len(names)]
        else:
            leaf = names[place // block if block else place * len(names) // len(servers)]
        for nic, port in nics:
            join(graph, nic, leaf, port)
            below[leaf] += port.bandwidth_bytes_per_s
    return below


def _three_tiers(graph: "nx.DiGraph[str]", spec: FabricSpec, servers: Ports) -> None:
    """Pods of leaves and spines; spine i of every pod is joined to the i-th group of cores."""
    pods, leaves, spines, cores = (spec.counts[name] for name in ("pods", "leaves", "spines", "cores"))
    _check_links(spec, pods * spines * max(leaves, cores))
    names = [f"pod{pod}/leaf{leaf}" for pod in range(pods) for leaf in range(leaves)]
    below = _deal(graph, spec, servers, names)
    groups: list[dict[str, float]] = [{} for _ in range(spines)]
    for pod in range(pods):
        here = {name: below[name] for name in names[pod * leaves : (pod + 1) * leaves]}
        up = _up(graph, spec, here, [f"pod{pod}/spine{spine}" for spine in range(spines)], spec.uplink_bytes_per_s)
        for spine, (name, enters) in enumerate(up.items()):
            groups[spine][name] = enters
    if pods > 1:
        for spine, group in enumerate(groups):
            above = [f"core{spine * cores + core}" for core in range(cores)]
            _up(graph, spec, group, above, spec.core_bytes_per_s)


def _k_ary(graph: "nx.DiGraph[str]", spec: FabricSpec, servers: Ports) -> None:
    """Build a tree of k-port switches, all links alike: k/2 NICs a leaf, k/2 leaves and spines a pod, (k/2)^2 cores."""
    ports = [port for nics in servers for port in nics]
    k = spec.counts["k"]
    half, most = k // 2, k**3 // 4
    if k % 2 or len(ports) > most:
        raise FabricError(
            f"fabric {spec.text!r}: k is {k}; it must be even, and k^3/4 at least the number of NICs ({len(ports)})"
        )
    rate = ports[0][1].bandwidth_bytes_per_s
    leaves = -(-len(ports) // half)
    pods = -(-leaves // half)
    _check_links(spec, pods * half * half)
    names = [f"pod{leaf // half}/leaf{leaf % half}" for leaf in range(leaves)]
    _switches(graph, names)
    for place, (nic, port) in enumerate(ports):
        join(graph, nic, names[place // half], port)
    for pod in range(pods if leaves > 1 else 0):
        below = dict.fromkeys(names[pod * half : (pod + 1) * half], rate)
        spines = [f"pod{pod}/spine{spine}" for spine in range(half)]
        _up(graph, spec, below, spines, rate)
        if pods > 1:
            for spine, name in enumerate(spines):
                _up(graph, spec, {name: rate}, [f"core{spine * half + core}" for core in range(half)], rate)
