"""Many machines: copies of one server with network cards, joined by one ideal switch.

A network switch here is one node with unlimited capacity inside; what a NIC sends and receives is one link each way.
Every GPU gets a NIC of its own under its PCIe switch (or root complex, where it has no switch), as on rail-optimised
servers; a machine that brings NICs of its own (a topology file) uses those. Without GPUDirect, traffic between a GPU
and another host is staged in host memory piece by piece; routing does that, this module records the wish. Left out:
leaf-spine and fat-tree fabrics, several rails, NICs shared by GPUs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from netsim.errors import FabricError
from netsim.fabric import GPU, HOST_MEMORY, NETWORK_SWITCH, NIC, PCIE_SWITCH, ROOT_COMPLEX, Link, ranks_of
from topologies.profiles import Profile, load_profile, profile_names
from topologies.wiring import join

if TYPE_CHECKING:
    import networkx as nx

FABRICS = ("one-switch",)
"""Networks between machines that can be built."""

NETWORK = "network"
"""Name of the network switch."""

MOST_NODES = 100_000
"""More copies of a server than this are refused: the graph would take more memory than a workstation has."""


def cluster(
    build_one_server: "Callable[[], nx.DiGraph[str]]",
    *,
    nodes: int = 1,
    nic: str | None = None,
    fabric: str = "one-switch",
    gpudirect: bool = True,
    rate: str = "effective",
) -> "nx.DiGraph[str]":
    """Build several copies of a machine, each GPU with a NIC, around one network switch.

    Parameters
    ----------
    build_one_server : callable
        Returns the topology of one machine; called once, and its graph is this function's to change.
    nodes : int
        How many machines. One machine with `nic` gets its NICs but no network.
    nic : str, optional
        Profile of the NICs (``ndr400``), by name or path. NICs of the machine's own whose speed is not known become NICs
        of this kind; where there are none, every GPU gets a new one. Without `nic` the machine's own NICs are used.
    fabric : str
        One of `FABRICS`.
    gpudirect : bool
        False: traffic between a GPU and another host is staged in host memory.
    rate : {"effective", "line"}
        Which rate of the NIC's profile to use.

    Returns
    -------
    networkx.DiGraph
        With several machines, names carry the machine: ``node3/gpu5``; ranks go machine by machine.

    Raises
    ------
    FabricError
        For an unknown fabric, a number of machines below one, no NIC to connect with, or no host memory to stage in.
    ProfileError
        If `nic` is no NIC profile.

    Notes
    -----
    The PCIe link of a new NIC equals its GPU's link to the same switch or root complex, or PCIe Gen5 x16 where the GPU's
    link is not PCIe (NVLink-C2C). A GPU that gets a new NIC carries its name under the node attribute ``nic``, a NIC the
    link to its network under ``port``.

    Examples
    --------
    >>> from topologies.server import server_builder
    >>> graph = cluster(server_builder("hgx-h100"), nodes=2, nic="ndr400")
    >>> list(graph.successors("node1/nic7"))
    ['node1/pcie_switch7', 'network']
    """
    if fabric not in FABRICS:
        raise FabricError(f"fabric {fabric!r} cannot be built yet; accepted is {', '.join(FABRICS)}")
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MOST_NODES:
        raise FabricError(f"nodes is {nodes!r}; the number of machines must be from 1 to {MOST_NODES}")
    profile = None if nic is None else nic_profile(nic)
    machine = build_one_server()
    if profile is not None:
        _add_nics(machine, profile, rate)
    if not gpudirect and not any(machine.nodes[node]["kind"] == HOST_MEMORY for node in machine):
        raise FabricError(
            f"topology {machine.graph.get('name', '')!r} has no host memory, so traffic cannot be staged without GPUDirect; "
            "add nodes of kind 'host_memory' or leave GPUDirect on"
        )
    machine.graph["gpudirect"] = gpudirect
    return machine if nodes == 1 else _copies(machine, nodes)


def nic_profile(nic: str) -> Profile:
    """Load a profile and insist that it describes a NIC."""
    names = ", ".join(profile_names("nic"))
    if nic not in profile_names() and not nic.endswith(".toml") and "/" not in nic:
        raise FabricError(f"unknown NIC kind {nic!r}; accepted are {names} or a path to a link profile (TOML)")
    profile = load_profile(nic)
    if profile.family != "nic":
        raise FabricError(f"link profile {nic!r} is of the family {profile.family!r}, not a NIC; accepted are {names}")
    return profile


def _add_nics(machine: "nx.DiGraph[str]", profile: Profile, rate: str) -> None:
    """Give the machine NICs of a kind: its own of unknown speed, or one new NIC a GPU."""
    port = profile.link(rate)
    own = [node for node, data in machine.nodes(data=True) if data["kind"] == NIC and data.get("port") is None]
    if own:
        for node in own:
            machine.nodes[node]["port"] = port
        return
    for node in machine:
        if machine.nodes[node]["kind"] == NIC:
            # A slow management port must not attract traffic that is meant for the NICs asked for.
            del machine.nodes[node]["port"]
    taken = set(machine)
    for rank, gpu in enumerate(ranks_of(machine)):
        parent = _attachment(machine, gpu)
        slot: Link = machine.edges[gpu, parent]["link"]
        if not slot.kind.startswith(("pcie", "laptop_pcie")):
            slot = load_profile("pcie5").link(rate)
        name = f"nic{rank}"
        while name in taken:
            name = f"extra_{name}"
        taken.add(name)
        machine.add_node(name, kind=NIC, host=machine.nodes[gpu].get("host"), port=port)
        join(machine, name, parent, slot)
        machine.nodes[gpu]["nic"] = name


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


def _copies(machine: "nx.DiGraph[str]", nodes: int) -> "nx.DiGraph[str]":
    """Copy one machine several times, with prefixed names, and connect the NICs that have a port to one switch."""
    import networkx as nx

    ports = [(node, data["port"]) for node, data in machine.nodes(data=True) if data.get("port") is not None]
    if not ports:
        known = ", ".join(profile_names("nic"))
        raise FabricError(
            f"{nodes} machines {machine.graph.get('name', '')!r} need NICs to talk to each other and have none with a "
            f"known speed; name a kind with --nic: {known}"
        )
    hosts = {data["host"] for _, data in machine.nodes(data=True) if "host" in data}
    members: list[tuple[str, dict[str, Any]]] = [(node, dict(data)) for node, data in machine.nodes(data=True)]
    edges: list[tuple[str, str, Link]] = list(machine.edges(data="link"))
    ranks = ranks_of(machine)
    graph: nx.DiGraph[str] = nx.DiGraph(**{key: value for key, value in machine.graph.items() if key != "ranks"})
    graph.add_node(NETWORK, kind=NETWORK_SWITCH)
    for index in range(nodes):
        prefix = f"node{index}"
        graph.add_nodes_from((f"{prefix}/{node}", _prefixed(data, prefix, len(hosts) > 1)) for node, data in members)
        graph.add_edges_from((f"{prefix}/{a}", f"{prefix}/{b}", {"link": link}) for a, b, link in edges)
        for node, port in ports:
            join(graph, f"{prefix}/{node}", NETWORK, port)
    graph.graph["ranks"] = tuple(f"node{index}/{node}" for index in range(nodes) for node in ranks)
    return graph


def _prefixed(data: dict[str, Any], prefix: str, several_hosts: bool) -> dict[str, Any]:
    """Return a node's attributes as they are in the copy of a machine with this prefix."""
    copy = {**data, "host": f"{prefix}/{data['host']}" if several_hosts and "host" in data else prefix}
    if "nic" in data:
        copy["nic"] = f"{prefix}/{data['nic']}"
    return copy
