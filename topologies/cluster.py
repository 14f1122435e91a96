"""Many machines: copies of one server with network cards, joined by a network.

NICs are placed by `topologies.nics` and switches by `topologies.fabrics`; this module copies the machine, names the
copies and puts the three together. What is staged in host memory and what is relayed through a GPU is routing's; the
wish is recorded in the graph. Left out: clusters of unlike machines.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netsim.errors import FabricError
from netsim.fabric import HOST_MEMORY, Link, ranks_of
from topologies.fabrics import Ports, add_network, parse_fabric
from topologies.nics import add_nics, add_rules, add_shared_limits, parse_nic
from topologies.profiles import Profile, profile_names

if TYPE_CHECKING:
    import networkx as nx

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
    port_profile: Profile | None = None,
) -> "nx.DiGraph[str]":
    """Build several copies of a machine with NICs, joined by a network.

    Parameters
    ----------
    build_one_server : callable
        Returns the topology of one machine; called once, and its graph is this function's to change.
    nodes : int
        How many machines. One machine with `nic` gets its NICs but no network.
    nic : str, optional
        Profile of the NICs (``ndr400``), by name or path, with options if wanted (``ndr400:nics=4``, see
        `topologies.nics`). Without `nic` the machine's own NICs are used.
    fabric : str
        The network, for example ``rails`` or ``leaf-spine:leaves=2,spines=4`` (see `topologies.fabrics`).
    gpudirect : bool
        False: all traffic between a GPU and another host is staged in host memory. True: what is farther from its NIC
        than NCCL's GPUDirect level is, where the machine has host memory.
    rate : {"effective", "line"}
        Which rate of the NIC's profile to use.
    port_profile : Profile, optional
        A NIC profile whose figures replace those of every port, before links between switches are derived from them.

    Returns
    -------
    networkx.DiGraph
        With several machines, names carry the machine: ``node3/gpu5``; ranks go machine by machine.

    Raises
    ------
    FabricError
        For an unknown fabric or a malformed one, a number of machines below one, no NIC to connect with, or no host
        memory to stage in.
    ProfileError
        If `nic` is no NIC profile.

    Notes
    -----
    The PCIe link of a new NIC equals its GPU's link to the same switch or root complex. Where that is not PCIe
    (NVLink-C2C), the root complex's attribute ``nic_slot`` names the profile, PCIe Gen5 x16 if absent. A GPU that gets
    a new NIC carries its name under the node attribute ``nic``, a NIC the link to its network under ``port``.

    Examples
    --------
    >>> from topologies.server import server_builder
    >>> graph = cluster(server_builder("hgx-h100"), nodes=2, nic="ndr400")
    >>> list(graph.successors("node1/nic7"))
    ['node1/pcie_switch7', 'network']
    """
    network = parse_fabric(fabric)
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MOST_NODES:
        raise FabricError(f"nodes is {nodes!r}; the number of machines must be from 1 to {MOST_NODES}")
    spec = None if nic is None else parse_nic(nic)
    machine = build_one_server()
    if spec is not None:
        add_nics(machine, spec, rate)
    if not gpudirect and not any(machine.nodes[node]["kind"] == HOST_MEMORY for node in machine):
        raise FabricError(
            f"topology {machine.graph.get('name', '')!r} has no host memory, so traffic cannot be staged without GPUDirect; "
            "add nodes of kind 'host_memory' or leave GPUDirect on"
        )
    add_rules(machine, spec, gpudirect)
    add_shared_limits(machine, rate)
    if port_profile is not None:
        for _, data in machine.nodes(data=True):
            if data.get("port") is not None:
                striped = 1 if spec is None or spec.profile is None else spec.ports
                count = data["port"].count
                data["port"] = replace(port_profile.link(rate, count=count * striped), count=count)
    if nodes == 1:
        return machine
    graph, ports = _copies(machine, nodes)
    add_network(graph, network, ports)
    return graph


def _copies(machine: "nx.DiGraph[str]", nodes: int) -> "tuple[nx.DiGraph[str], Ports]":
    """Copy one machine several times, with prefixed names; return the copies and each one's NICs that have a port."""
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
    for index in range(nodes):
        prefix = f"node{index}"
        graph.add_nodes_from((f"{prefix}/{node}", _prefixed(data, prefix, len(hosts) > 1)) for node, data in members)
        graph.add_edges_from((f"{prefix}/{a}", f"{prefix}/{b}", {"link": link}) for a, b, link in edges)
    graph.graph["ranks"] = tuple(f"node{index}/{node}" for index in range(nodes) for node in ranks)
    return graph, [[(f"node{index}/{node}", port) for node, port in ports] for index in range(nodes)]


def _prefixed(data: dict[str, Any], prefix: str, several_hosts: bool) -> dict[str, Any]:
    """Return a node's attributes as they are in the copy of a machine with this prefix."""
    copy = {**data, "host": f"{prefix}/{data['host']}" if several_hosts and "host" in data else prefix}
    if "nic" in data:
        copy["nic"] = f"{prefix}/{data['nic']}"
    return copy
