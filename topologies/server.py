"""One machine: NVSwitch servers and PCI Express boxes, from a short plan and the link profiles.

Every plan is an NVLink side (GPUs around one node that stands for a whole layer of NVSwitches, or joined directly; each
edge remembers how many links it bundles) and a PCI Express side (sockets with root complex and host memory, PCIe
switches with GPUs under them and room for NICs). Full duplex everywhere. Names: ``gpu0``.. in rank order, ``nvswitch``,
``pcie_switch0``.., ``cpu0``.. (a socket's root complex), ``memory0``...

Cards without NVLink reach each other's memory only as far as the driver and NCCL let them (`p2p` of a plan): beyond it
traffic is staged in the receiver's host memory, one shared link a socket and direction. NCCL stops at a host bridge by
default (PXB); GeForce drivers since the RTX 40 series offer no peer-to-peer at all (LOC). The plain ``pcie-`` presets
have peer-to-peer everywhere, as with NCCL_P2P_LEVEL=SYS. Left out: the PCIe switch levels inside a card, NUMA settings
that split a socket.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import GPU, NVSWITCH, PCIE_SWITCH, Link
from topologies.plans import SERVERS, ServerPlan
from topologies.processors import processor_attributes
from topologies.profiles import Profile, load_profile
from topologies.wiring import add_socket, join

if TYPE_CHECKING:
    import networkx as nx


def server(plan: ServerPlan | str, *, rate: str = "effective", host: str = "node0") -> "nx.DiGraph[str]":
    """Build one machine.

    Parameters
    ----------
    plan : ServerPlan or str
        A plan, or the name of one in `SERVERS`.
    rate : {"effective", "line"}
        Which rate of the link profiles to use.
    host : str
        Host name that every node carries.

    Returns
    -------
    networkx.DiGraph
        GPUs come first and in rank order.

    Raises
    ------
    FabricError
        If the name is unknown.
    ProfileError
        If the plan names a profile that does not exist or the rate is unknown.

    Examples
    --------
    >>> graph = server("hgx-h100")
    >>> graph.edges["gpu3", "nvswitch"]["link"].count, graph.out_degree("nvswitch")
    (18, 8)
    """
    import networkx as nx

    if isinstance(plan, str):
        if plan not in SERVERS:
            raise FabricError(f"unknown server {plan!r}; accepted are {', '.join(SERVERS)}")
        plan = SERVERS[plan]
    gpus = [gpu for socket in plan.sockets for group in socket for gpu in group]
    names = tuple(f"gpu{rank}" for rank in range(len(gpus)))
    graph: nx.DiGraph[str] = nx.DiGraph(ranks=names)
    graph.add_nodes_from(names, kind=GPU, host=host, **({} if plan.sm is None else {"sm": plan.sm}))
    if plan.nvlink is not None:
        _add_nvlinks(graph, plan, load_profile(plan.nvlink), rate, host)
    _add_host_side(graph, plan, rate, host)
    if plan.p2p is not None:
        graph.graph["p2p"] = plan.p2p
    if plan.nvb:
        graph.graph["nvb"] = True
    return graph


def _add_nvlinks(graph: "nx.DiGraph[str]", plan: ServerPlan, nvlink: Profile, rate: str, host: str) -> None:
    """Join the GPUs by the switch, or directly."""
    if plan.nvlinks:
        graph.add_node("nvswitch", kind=NVSWITCH, host=host, multicast=plan.in_network, reduce=plan.in_network)
        link = nvlink.link(rate, count=plan.nvlinks)
        for name in graph.graph["ranks"]:
            join(graph, name, "nvswitch", link)
    for a, b, count in plan.mesh:
        join(graph, f"gpu{a}", f"gpu{b}", nvlink.link(rate, count=count))


def _add_host_side(graph: "nx.DiGraph[str]", plan: ServerPlan, rate: str, host: str) -> None:
    """Add sockets, PCIe switches and the links from there to the GPUs."""
    pcie = load_profile(plan.pcie).link(rate, lanes=plan.lanes)
    gpu_link = load_profile(plan.gpu_link).link(rate) if plan.gpu_link else pcie
    memory = load_profile("host_memory").link(rate)
    switches = 0
    for index, groups in enumerate(plan.sockets):
        root = f"cpu{index}"
        add_socket(graph, root, f"memory{index}", host, memory)
        graph.nodes[root].update(processor_attributes(plan.cpu, plan.socket_link))
        if plan.gpu_link is not None:
            # Only the plan knows the generation of such a machine's slots: its GPUs' links are not PCI Express.
            graph.nodes[root]["nic_slot"] = plan.pcie
        for group in groups:
            parent = root
            if plan.switches:
                parent = f"pcie_switch{switches}"
                switches += 1
                graph.add_node(parent, kind=PCIE_SWITCH, host=host)
                join(graph, parent, root, pcie)
            for gpu in group:
                join(graph, f"gpu{gpu}", parent, gpu_link)
    if plan.socket_link is not None:
        _join_boards(graph, plan, load_profile(plan.socket_link).link(rate))


def _join_boards(graph: "nx.DiGraph[str]", plan: ServerPlan, link: Link) -> None:
    """Join the sockets of each board in pairs, and note the board of every node where there are several."""
    size = plan.sockets_a_board
    for first in range(0, len(plan.sockets), size):
        roots = range(first, min(first + size, len(plan.sockets)))
        for a in roots:
            for b in range(a + 1, roots.stop):
                join(graph, f"cpu{a}", f"cpu{b}", link)
        if plan.boards_named is not None:
            board = f"{plan.boards_named}{first // size}"
            gpus = [f"gpu{gpu}" for index in roots for group in plan.sockets[index] for gpu in group]
            for node in (*gpus, *(f"cpu{index}" for index in roots), *(f"memory{index}" for index in roots)):
                graph.nodes[node][plan.boards_named] = board


def server_builder(name: str, rate: str = "effective") -> "Callable[[], nx.DiGraph[str]]":
    """Return a function without arguments that builds the named machine, for `topologies.cluster.cluster`."""
    return lambda: server(name, rate=rate)
