"""One machine: NVSwitch servers and PCI Express boxes, from a short plan and the link profiles.

Every plan is an NVLink side (GPUs around one node that stands for a whole layer of NVSwitches, or joined directly; each
edge remembers how many links it bundles) and a PCI Express side (sockets with root complex and host memory, PCIe
switches with GPUs under them and room for NICs). Full duplex everywhere. Names: ``gpu0``.. in rank order, ``nvswitch``,
``pcie_switch0``.., ``cpu0``.. (a socket's root complex), ``memory0``...

Layouts: DGX/HGX A100 has four PCIe switches of two GPUs (and two NICs) each, two a socket (Azure's NDv4 and AWS's p4d
topology files); H100 and later have a PCIe switch of its own for every GPU and its NIC, four a socket (Oracle's and
Azure's H100 topology files). A GB200 NVL72 rack has 18 trays of two Grace CPUs with two GPUs each on chip-to-chip links;
as for NCCL, the rack is one NVLink domain and so one host, the tray is kept as a node attribute. A four-GPU GH200 board
joins every two GPUs by six NVLinks, each GPU with a Grace of its own.

Cards without NVLink reach each other's memory only as far as the driver and NCCL let them (`ServerPlan.p2p`): beyond it
traffic is staged in the receiver's host memory, one shared link a socket and direction. NCCL stops at a host bridge by
default (PXB); GeForce drivers since the RTX 40 series offer no peer-to-peer at all (LOC). The plain ``pcie-`` presets
have peer-to-peer everywhere, as with NCCL_P2P_LEVEL=SYS. Left out: the PCIe switch levels inside a card, NUMA settings
that split a socket.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import GPU, NVSWITCH, PCIE_SWITCH, Link
from topologies.processors import GRACE, GRANITE_RAPIDS, Cpu, processor_attributes
from topologies.profiles import Profile, load_profile
from topologies.wiring import add_socket, join

if TYPE_CHECKING:
    import networkx as nx

Socket = tuple[tuple[int, ...], ...]
"""GPUs of one socket, one group a PCIe switch."""

_FOUR_PAIRS: tuple[Socket, ...] = (((0, 1), (2, 3)), ((4, 5), (6, 7)))
_TWO_FOURS: tuple[Socket, ...] = (((0, 1, 2, 3),), ((4, 5, 6, 7),))
_ONE_EACH: tuple[Socket, ...] = (((0,), (1,), (2,), (3,)), ((4,), (5,), (6,), (7,)))
# Links between V100s as a DGX-1V's `nvidia-smi topo -m` numbers them (GPUs 0 and 1 below one PCIe switch): 8 pairs of 2,
# 8 of 1. Servers of other vendors have the same mesh under other numbers (nccl-tests issue 29).
_CUBE_MESH = (
    *((0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 5, 2), (2, 3, 2), (4, 7, 2), (5, 6, 2), (6, 7, 2)),
    *((0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (5, 7, 1)),
)
# 18 links a GPU, six to each of the other three (quad GH200 boards of Alps and Jupiter, as their operators publish).
_QUAD_MESH = tuple((a, b, 6) for a in range(4) for b in range(a + 1, 4))


@dataclass(frozen=True)
class ServerPlan:
    """What a machine consists of; figures come from the link profiles it names."""

    description: str
    """One line for lists of presets."""
    sockets: tuple[Socket, ...]
    """GPUs by socket and PCIe switch."""
    pcie: str
    """Profile of PCI Express links, or of its slots for NICs alone (16 lanes unless `lanes` says otherwise)."""
    socket_link: str | None
    """Profile of the link between the sockets of a board; None for one socket."""
    nvlink: str | None = None
    """Profile of one NVLink; None for machines without NVLink."""
    nvlinks: int = 0
    """NVLinks from each GPU to the NVSwitch; 0 for machines without one."""
    mesh: tuple[tuple[int, int, int], ...] = ()
    """Direct NVLinks for machines without an NVSwitch: (GPU, GPU, links)."""
    in_network: bool = False
    """Whether the NVSwitch multicasts and reduces (Hopper and later)."""
    switches: bool = True
    """Whether GPUs sit under PCIe switches; otherwise directly under the root complex."""
    gpu_link: str | None = None
    """Profile of the link between a GPU and its host side, where that is not `pcie`."""
    lanes: int | None = None
    """Width of the PCI Express links; None for what the profile states."""
    sockets_a_board: int = 2
    """How many sockets are joined with each other."""
    boards_named: str | None = None
    """Name of a board where a machine has several (``tray``), kept as a node attribute."""
    p2p: str | None = None
    """Farthest NCCL path type at which GPUs copy directly; beyond it they stage in host memory. None for any."""
    nvb: bool = False
    """Whether GPUs without an NVLink between them use a third one that has one to each, as NCCL does."""
    sm: int | None = None
    """Compute capability of the GPUs times ten, a node attribute by which NCCL judges them; None where not told."""
    cpu: Cpu | None = None
    """Processor of the sockets, where the link between them does not tell it."""


def _nvl72_sockets() -> tuple[Socket, ...]:
    """36 Grace CPUs with two GPUs each."""
    return tuple(((2 * cpu, 2 * cpu + 1),) for cpu in range(36))


SERVERS: dict[str, ServerPlan] = {
    "hgx-a100": ServerPlan(
        "8 A100, 12 NVLink 3 each to NVSwitch, 4 PCIe Gen4 switches, 2 AMD sockets",
        _FOUR_PAIRS,
        pcie="pcie4",
        socket_link="socket_amd",
        nvlink="nvlink3",
        nvlinks=12,
        sm=80,
    ),
    "hgx-h100": ServerPlan(
        "8 H100, 18 NVLink 4 each to NVSwitch (multicast, reduction), 8 PCIe Gen5 switches, 2 Sapphire Rapids sockets",
        _ONE_EACH,
        pcie="pcie5",
        socket_link="socket_intel_sapphire_rapids",
        nvlink="nvlink4",
        nvlinks=18,
        in_network=True,
        sm=90,
    ),
    "hgx-h200": ServerPlan(
        "8 H200, 18 NVLink 4 each to NVSwitch (multicast, reduction), 8 PCIe Gen5 switches, 2 Sapphire Rapids sockets",
        _ONE_EACH,
        pcie="pcie5",
        socket_link="socket_intel_sapphire_rapids",
        nvlink="nvlink4",
        nvlinks=18,
        in_network=True,
        sm=90,
    ),
    "hgx-b200": ServerPlan(
        "8 B200, 18 NVLink 5 each to NVSwitch (multicast, reduction), 8 PCIe Gen5 switches, 2 Emerald Rapids sockets",
        _ONE_EACH,
        pcie="pcie5",
        socket_link="socket_intel_emerald_rapids",
        nvlink="nvlink5",
        nvlinks=18,
        in_network=True,
        sm=100,
    ),
    "gb200-nvl72": ServerPlan(
        "72 GB200 GPUs in one NVLink 5 domain (one rack, 18 trays of 2 Grace CPUs and 4 GPUs)",
        _nvl72_sockets(),
        pcie="pcie5",
        socket_link="socket_arm",
        nvlink="nvlink5",
        nvlinks=18,
        in_network=True,
        switches=False,
        gpu_link="c2c_gb200",
        boards_named="tray",
        sm=100,
    ),
    "dgx-1v": ServerPlan(
        "8 V100 in a hybrid cube mesh of NVLink 2 (6 a GPU), 4 PCIe Gen3 switches, 2 Broadwell sockets",
        _FOUR_PAIRS,
        pcie="pcie3",
        socket_link="socket_intel_broadwell",
        nvlink="nvlink2",
        mesh=_CUBE_MESH,
        nvb=True,
        sm=70,
    ),
    # The data sheets of H20 and H800 differ from H100's in NVLink as follows: H20 900 GB/s (all 18 links), H800 400 GB/s
    # (8 links); the H800's effective rate by NCCL's constant, 8 x 20.6 = 164.8 GB/s, agrees with the 160 that users report.
    "hgx-h20": ServerPlan(
        "8 H20, 18 NVLink 4 each to NVSwitch (multicast, reduction), 8 PCIe Gen5 switches, 2 Sapphire Rapids sockets",
        _ONE_EACH,
        pcie="pcie5",
        socket_link="socket_intel_sapphire_rapids",
        nvlink="nvlink4",
        nvlinks=18,
        in_network=True,
        sm=90,
    ),
    "hgx-h800": ServerPlan(
        "8 H800, 8 NVLink 4 each to NVSwitch (multicast, reduction), 8 PCIe Gen5 switches, 2 Sapphire Rapids sockets",
        _ONE_EACH,
        pcie="pcie5",
        socket_link="socket_intel_sapphire_rapids",
        nvlink="nvlink4",
        nvlinks=8,
        in_network=True,
        sm=90,
    ),
    # B300: NVLink as B200 (1.8 TB/s, data sheet), PCIe Gen6 to the NICs; its Granite Rapids hosts (model 0xAD) have the
    # socket link that NCCL gives to models from 0x8F on.
    "hgx-b300": ServerPlan(
        "8 B300, 18 NVLink 5 each to NVSwitch (multicast, reduction), 8 PCIe Gen6 switches, 2 Granite Rapids sockets",
        _ONE_EACH,
        pcie="pcie6",
        socket_link="socket_intel_sapphire_rapids",
        nvlink="nvlink5",
        nvlinks=18,
        in_network=True,
        sm=103,
        cpu=GRANITE_RAPIDS,
    ),
    "gb300-nvl72": ServerPlan(
        "72 GB300 GPUs in one NVLink 5 domain (one rack, 18 trays of 2 Grace CPUs and 4 GPUs)",
        _nvl72_sockets(),
        pcie="pcie6",
        socket_link="socket_arm",
        nvlink="nvlink5",
        nvlinks=18,
        in_network=True,
        switches=False,
        gpu_link="c2c_gb200",
        boards_named="tray",
        sm=103,
    ),
    "gh200": ServerPlan(
        "1 GH200: a Hopper on 450 GB/s chip-to-chip to its Grace",
        (((0,),),),
        pcie="pcie5",
        socket_link=None,
        switches=False,
        gpu_link="c2c_gh200",
        sockets_a_board=1,
        sm=90,
        cpu=GRACE,
    ),
    "a100-4": ServerPlan(
        "4 A100 on a board, every two joined by 4 NVLink 3, each on PCIe Gen4 x16 directly under one AMD socket",
        (((0, 1, 2, 3),),),
        pcie="pcie4",
        socket_link=None,
        nvlink="nvlink3",
        mesh=tuple((one, other, 4) for one, other, _ in _QUAD_MESH),
        switches=False,
        sockets_a_board=1,
        sm=80,
    ),
    "dgx-2": ServerPlan(
        "16 V100, 6 NVLink 2 each to NVSwitch, 4 PCIe Gen3 switches, 2 Skylake sockets",
        (((0, 1, 2, 3), (4, 5, 6, 7)), ((8, 9, 10, 11), (12, 13, 14, 15))),
        pcie="pcie3",
        socket_link="socket_intel_skylake",
        nvlink="nvlink2",
        nvlinks=6,
        sm=70,
    ),
    "gh200-4": ServerPlan(
        "4 GH200 on a board, every two GPUs joined by 6 NVLink 4, each with a Grace of its own",
        (((0,),), ((1,),), ((2,),), ((3,),)),
        pcie="pcie5",
        socket_link="socket_arm",
        nvlink="nvlink4",
        mesh=_QUAD_MESH,
        switches=False,
        gpu_link="c2c_gh200",
        sockets_a_board=4,
        sm=90,
    ),
    "pcie-gen4-8": ServerPlan(
        "8 GPUs on PCIe Gen4 x16, 4 switches of 2 GPUs, 2 AMD sockets, no NVLink",
        _FOUR_PAIRS,
        pcie="pcie4",
        socket_link="socket_amd",
    ),
    "pcie-gen5-8": ServerPlan(
        "8 GPUs on PCIe Gen5 x16, 4 switches of 2 GPUs, 2 AMD sockets (Genoa or later), no NVLink",
        _FOUR_PAIRS,
        pcie="pcie5",
        socket_link="socket_amd_gen5",
    ),
    # Layouts of these three are assumed, as built by several vendors; a machine of your own may differ (topo -m shows it).
    "l40s-8": ServerPlan(
        "8 L40S on PCIe Gen4 x16, 2 switches of 4 GPUs, 2 AMD sockets; peer-to-peer below a switch only",
        _TWO_FOURS,
        pcie="pcie4",
        socket_link="socket_amd",
        p2p="PXB",
        sm=89,
    ),
    "rtx4090-4": ServerPlan(
        "4 RTX 4090 on PCIe Gen4 x16 directly under one socket, no peer-to-peer: staged in host memory",
        (((0, 1, 2, 3),),),
        pcie="pcie4",
        socket_link=None,
        switches=False,
        sockets_a_board=1,
        p2p="LOC",
        sm=89,
    ),
    "rtx5090-8": ServerPlan(
        "8 RTX 5090 on PCIe Gen5 x16 directly under 2 AMD sockets, no peer-to-peer: staged in host memory",
        _TWO_FOURS,
        pcie="pcie5",
        socket_link="socket_amd_gen5",
        switches=False,
        p2p="LOC",
        sm=120,
    ),
    "rtxpro6000-8": ServerPlan(
        "8 RTX PRO 6000 on PCIe Gen5 x16 directly under 2 AMD sockets; peer-to-peer where NCCL takes it",
        _TWO_FOURS,
        pcie="pcie5",
        socket_link="socket_amd_gen5",
        switches=False,
        p2p="PXB",
        sm=120,
    ),
    "pcie-two-sockets": ServerPlan(
        "2 GPUs on PCIe Gen4 x16, each directly under an AMD socket of its own",
        (((0,),), ((1,),)),
        pcie="pcie4",
        socket_link="socket_amd",
        switches=False,
    ),
    "pcie-pair": ServerPlan(
        "2 GPUs on PCIe Gen4 x16 directly under one root complex",
        (((0, 1),),),
        pcie="pcie4",
        socket_link=None,
        switches=False,
        sockets_a_board=1,
    ),
    "rtx4060-laptop": ServerPlan(
        "1 RTX 4060 Laptop GPU on PCIe Gen4 x8, the measured reference link",
        (((0,),),),
        pcie="laptop_pcie4_x8",
        socket_link=None,
        switches=False,
        sockets_a_board=1,
        sm=89,
    ),
}
"""The machines that netsim knows by name."""


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
