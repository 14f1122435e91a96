"""Which NICs a machine gets and where they sit: from ``ndr400`` or ``ndr400:nics=4,gdr=PHB`` to nodes and links.

Without options every GPU gets a NIC of its own beside it, under its PCIe switch or root complex, unless the machine
brings NICs whose speed is not known: they become NICs of this kind. ``nics=N`` spreads N over the GPUs, ``at=`` names
the places one by one, and ``ports=N`` joins N ports of a NIC to one way to the network, as plugins do that stripe messages
over rails. ``own`` keeps the machine's NICs as they are.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import GPU, HOST_MEMORY, NIC, NVSWITCH, PCIE_SWITCH, ROOT_COMPLEX, Link, ranks_of
from netsim.reach import DEFAULT_LEVEL, check_level
from netsim.units import format_rate
from topologies.options import check_keys, choice, split_options, whole
from topologies.profiles import Profile, family_of, load_profile, profile_names
from topologies.wiring import join

if TYPE_CHECKING:
    import networkx as nx

OWN = "own"
"""Name that stands for the NICs which a machine brings."""

FORM = "KIND[:nics=N | at=gpu0+gpu4+cpu1][,ports=N][,gdr=LEVEL][,pxn=on|off]"
"""The form of a NIC's text, for help and messages."""

_KEYS = ("nics", "at", "ports", "gdr", "pxn")
_GEN4, _SHARED_GEN4 = "pcie4", "root_pcie4"
_MOST_NICS = 4096
_MOST_PORTS = 64


@dataclass(frozen=True)
class NicSpec:
    """The NICs that were asked for."""

    text: str
    profile: Profile | None
    """Of new NICs; None for the machine's own."""
    label: str
    """How titles and tables name them."""
    count: int | None = None
    """NICs a machine; None for one a GPU."""
    at: tuple[str, ...] = ()
    """Where each NIC sits: beside this GPU, or under this switch or root complex."""
    ports: int = 1
    """Ports of each new NIC, over which every message is striped."""
    gdr_level: str | None = None
    """Farthest path at which GPUDirect is used; None for NCCL's default."""
    pxn: bool = True
    """Whether GPUs may send through a peer on NVLink."""


def parse_nic(text: str) -> NicSpec:
    """Read a NIC's text: the name or path of a profile, or ``own``, and options.

    Examples
    --------
    >>> parse_nic("ndr400:nics=4,gdr=PHB").count
    4
    """
    where = f"NIC {text!r}"
    # A path may hold a colon, so only what looks like options is split off.
    head, colon, tail = text.rpartition(":")
    kind, options = split_options(text, "NIC") if colon and "=" in tail and ":" not in head else (text, {})
    check_keys(options, _KEYS, where)
    if "nics" in options and "at" in options:
        raise FabricError(f"{where}: nics and at both say how many; write one of them")
    profile = None
    if kind != OWN:
        profile = nic_profile(kind)
    elif {"nics", "at", "ports"} & set(options):
        raise FabricError(f"{where}: own NICs sit where the machine has them; nics, at and ports are for new ones")
    return NicSpec(
        text,
        profile,
        text if profile is None else text.replace(kind, profile.name, 1),
        count=whole(options["nics"], f"{where}: nics", _MOST_NICS) if "nics" in options else None,
        at=tuple(options["at"].split("+")) if "at" in options else (),
        ports=whole(options.get("ports", "1"), f"{where}: ports", _MOST_PORTS),
        gdr_level=check_level(options["gdr"], f"{where}: gdr") if "gdr" in options else None,
        pxn=choice(options.get("pxn", "on"), ("on", "off"), f"{where}: pxn") == "on",
    )


def nic_profile(nic: str) -> Profile:
    """Load a profile and insist that it describes a NIC."""
    names = ", ".join(profile_names("nic"))
    if nic not in profile_names() and not nic.endswith(".toml") and "/" not in nic:
        raise FabricError(
            f"unknown NIC kind {nic!r}; accepted are {names}, a path to a link profile (TOML) or {OWN}, in the form {FORM}"
        )
    profile = load_profile(nic)
    if profile.family != "nic":
        raise FabricError(f"link profile {nic!r} is of the family {profile.family!r}, not a NIC; accepted are {names}")
    return profile


def add_nics(machine: "nx.DiGraph[str]", spec: NicSpec, rate: str) -> None:
    """Give the machine the NICs of a spec: its own of unknown speed, or new ones, each with its link under ``port``."""
    if spec.profile is None:
        return
    # Striped ports are one way: NCCL sees one device, and a message has the rate of all.
    port = replace(spec.profile.link(rate, count=spec.ports), count=1)
    own = [node for node, data in machine.nodes(data=True) if data["kind"] == NIC and data.get("port") is None]
    if own and spec.count is None and not spec.at:
        for node in own:
            machine.nodes[node]["port"] = port
        return
    for node in machine:
        if machine.nodes[node]["kind"] == NIC:
            # A slow management port must not attract traffic that is meant for the NICs asked for.
            machine.nodes[node].pop("port", None)
    taken = set(machine)
    for number, place in enumerate(_places(machine, spec)):
        parent, slot = _slot(machine, place, rate)
        name = f"nic{number}"
        while name in taken:
            name = f"extra_{name}"
        taken.add(name)
        machine.add_node(name, kind=NIC, host=machine.nodes[place].get("host"), port=port)
        join(machine, name, parent, slot)
        if machine.nodes[place]["kind"] == GPU:
            machine.nodes[place].setdefault("nic", name)


def add_rules(machine: "nx.DiGraph[str]", spec: NicSpec | None, gpudirect: bool) -> None:
    """Record by graph attributes how GPUs reach NICs: by NCCL's distance where data can be staged, and over peers.

    What the machine itself says (a description written by hand) stays where the spec is silent.
    """
    machine.graph["gpudirect"] = gpudirect
    if not any(data["kind"] == NIC for _, data in machine.nodes(data=True)):
        return
    stages = any(data["kind"] == HOST_MEMORY for _, data in machine.nodes(data=True))
    if spec is not None and spec.gdr_level is not None:
        machine.graph["gdr_level"] = spec.gdr_level
    elif stages:
        machine.graph.setdefault("gdr_level", DEFAULT_LEVEL)
    if spec is not None and not spec.pxn:
        machine.graph["pxn"] = False
    elif gpudirect and _has_gpu_links(machine):
        machine.graph.setdefault("pxn", True)


def add_shared_limits(machine: "nx.DiGraph[str]", rate: str) -> None:
    """Say what a root complex passes on between GPUs and NICs that hang on it without a switch, both directions together.

    Data that is staged in host memory does not meet it: its limit is that memory's. It is known for PCIe Gen4 only, of one
    GPU and its NIC, whose root ports are their own: several pairs have as many times as much. A link of the root complex to
    itself that is there already stays.
    """
    for root in [node for node, data in machine.nodes(data=True) if data["kind"] == ROOT_COMPLEX]:
        beside = Counter(
            machine.nodes[b]["kind"] for _, b, data in machine.out_edges(root, data=True) if data["link"].kind == _GEN4
        )
        pairs = min(beside[GPU], beside[NIC])
        if pairs and not machine.has_edge(root, root):
            one = load_profile(_SHARED_GEN4).link(rate)
            link = replace(
                one,
                bandwidth_bytes_per_s=pairs * one.bandwidth_bytes_per_s,
                line_rate_bytes_per_s=pairs * (one.line_rate_bytes_per_s or one.bandwidth_bytes_per_s),
            )
            machine.add_edge(root, root, link=link)
            words = f"assumed: what {root} passes on between GPUs and NICs shares {format_rate(link.bandwidth_bytes_per_s)}"
            machine.graph["remarks"] = (*machine.graph.get("remarks", ()), f"{words} in both directions ({_SHARED_GEN4})")


def _has_gpu_links(machine: "nx.DiGraph[str]") -> bool:
    """Say whether GPUs are joined by NVLink or the like, directly or over a switch."""
    kind = machine.nodes
    return any(kind[a]["kind"] == GPU and kind[b]["kind"] in (GPU, NVSWITCH) for a, b in machine.edges)


def _places(machine: "nx.DiGraph[str]", spec: NicSpec) -> list[str]:
    """Return the node beside or under which each NIC is put."""
    if spec.at:
        for place in spec.at:
            if place not in machine or machine.nodes[place]["kind"] not in (GPU, PCIE_SWITCH, ROOT_COMPLEX):
                known = [node for node in machine if machine.nodes[node]["kind"] in (GPU, PCIE_SWITCH, ROOT_COMPLEX)]
                raise FabricError(
                    f"NIC {spec.text!r}: there is no GPU, PCIe switch or root complex {place!r}; "
                    f"accepted are {', '.join(known[:40])}{', ...' if known[40:] else ''}"
                )
        return list(spec.at)
    ranks = ranks_of(machine)
    count = len(ranks) if spec.count is None else spec.count
    return [ranks[number * len(ranks) // count] for number in range(count)]


def _slot(machine: "nx.DiGraph[str]", place: str, rate: str) -> tuple[str, Link]:
    """Return what a NIC is joined to, and the link: as a GPU's there, or what the root complex says, or PCIe Gen5 x16."""
    if machine.nodes[place]["kind"] == GPU:
        parent = _attachment(machine, place)
        beside = [(place, parent)]
    else:
        parent = place
        beside = list(machine.out_edges(place))
    found = next((machine.edges[edge]["link"] for edge in beside if _is_pcie(machine, *edge)), None)
    return parent, found or load_profile(str(machine.nodes[parent].get("nic_slot", "pcie5"))).link(rate)


def _is_pcie(machine: "nx.DiGraph[str]", a: str, b: str) -> bool:
    """Say whether a link is PCI Express: by its profile, or by its ends where its figures come from no known one."""
    kind = machine.edges[a, b]["link"].kind
    family = family_of(kind)
    if family is not None:
        return family == "pcie"
    ends = {machine.nodes[a]["kind"], machine.nodes[b]["kind"]}
    return not kind.startswith("c2c") and ends <= {GPU, NIC, PCIE_SWITCH, ROOT_COMPLEX} and len(ends) > 1


def _attachment(machine: "nx.DiGraph[str]", gpu: str) -> str:
    """Return the PCIe switch above a GPU, or else its root complex."""
    for wanted in (PCIE_SWITCH, ROOT_COMPLEX):
        for other in machine.successors(gpu):
            if machine.nodes[other]["kind"] == wanted:
                return str(other)
    raise FabricError(
        f"{GPU} {gpu!r} has neither a PCIe switch nor a root complex beside it, so no NIC can be attached to it; "
        "give the topology its PCI Express side, or describe the NICs in it"
    )
