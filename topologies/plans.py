"""What the machines consist of that netsim knows by name: short plans, from which `topologies.server` builds graphs.

Layouts: DGX/HGX A100 has four PCIe switches of two GPUs (and two NICs) each, two a socket (Azure's NDv4 and AWS's p4d
topology files); H100 and later have a PCIe switch of its own for every GPU and its NIC, four a socket (Oracle's and
Azure's H100 topology files). A GB200 NVL72 rack has 18 trays of two Grace CPUs with two GPUs each on chip-to-chip links;
as for NCCL, the rack is one NVLink domain and so one host, the tray is kept as a node attribute. A four-GPU GH200 board
joins every two GPUs by six NVLinks, each GPU with a Grace of its own; one of A100 by four, all under one socket.
"""

from dataclasses import dataclass

from topologies.processors import GRACE, GRANITE_RAPIDS, Cpu

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
        "8 L40S on PCIe Gen4 x16, 2 switches of 4 GPUs, 2 AMD sockets (Genoa); peer-to-peer below a switch only",
        _TWO_FOURS,
        pcie="pcie4",
        socket_link="socket_amd_gen5",
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
