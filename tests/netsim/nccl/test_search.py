"""What the search finds on machines for which NCCL's logs, or its rules worked through by hand, say what it should."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from netsim.nccl.communicator import Communicator
from netsim.nccl.dump import format_dump, read_dump
from netsim.nccl.from_topology import communicator
from netsim.nccl.graphs import COLLNET_CHAIN, COLLNET_DIRECT, NVLS, RING, TREE, ChannelGraph
from netsim.nccl.paths import SYS, Paths, Reach
from netsim.nccl.system import node_systems
from netsim.nccl.version import Version
from topologies import build
from topologies.custom import custom_topology

IN_ORDER = tuple(range(8))


def found(topology: str, version: str = "2.28.9", ranks: int | None = None, **options: Any) -> Communicator:
    graph = build(topology, **options)
    return communicator(graph, Version.parse(version), ranks=None if ranks is None else range(ranks))


def figures(graph: ChannelGraph) -> tuple[int, float, float]:
    return graph.channels, graph.intra_GBps, graph.inter_GBps


def test_eight_a100_have_twelve_rings_of_20() -> None:
    # 12 links of 20 carry 240 = 6 x 40, and each channel is then run twice at half the speed.
    graphs = found("hgx-a100").graphs
    assert figures(graphs[RING]) == figures(graphs[TREE]) == (12, 20.0, 20.0)
    assert {order.gpus for order in graphs[RING].orders} == {IN_ORDER}
    assert (graphs[RING].type_intra, graphs[RING].type_inter, graphs[RING].same_channels) == ("NVL", "PIX", True)
    assert graphs[NVLS].channels == 0


def test_eight_h100_have_twelve_rings_and_chains_of_30_and_eight_heads() -> None:
    # 18 links of 20.6 carry 370.8: 6 x 60 = 360. A head loads its own links twice: 9 x 40 = 360.
    graphs = found("hgx-h100").graphs
    assert figures(graphs[RING]) == figures(graphs[TREE]) == (12, 30.0, 30.0)
    assert figures(graphs[NVLS]) == (8, 40.0, 60.0)
    assert [order.gpus for order in graphs[NVLS].orders] == [(head,) for head in range(8)]
    assert (graphs[RING].pattern, graphs[TREE].pattern, graphs[NVLS].pattern) == (4, 1, 5)


def test_eight_b200_have_sixteen_rings_of_45() -> None:
    # 18 links of 40.1 carry 721.8: 8 x 90 = 720; heads 9 x 80 = 720.
    graphs = found("hgx-b200", "2.29.2").graphs
    assert figures(graphs[RING]) == figures(graphs[TREE]) == (16, 45.0, 45.0)
    assert figures(graphs[NVLS]) == (8, 80.0, 90.0)


def test_trees_of_b200_run_at_40_before_45_was_tried() -> None:
    # The first 14 chains take 700 of the 721.8 of seven GPUs; the steps run out before others are tried in their place.
    assert figures(found("hgx-b200", "2.28.9").graphs[TREE]) == (16, 40.0, 40.0)


def test_a_rack_of_72_has_sixteen_rings_and_32_heads() -> None:
    # A head's links carry 33 x 20 = 660 of 721.8; 33 x 24 would be 792.
    graphs = found("gb200-nvl72").graphs
    assert figures(graphs[RING]) == (16, 45.0, 45.0)
    assert figures(graphs[NVLS]) == (32, 20.0, 40.0)
    assert all(sorted(order.gpus) == list(range(72)) for order in graphs[RING].orders)


def test_two_h200_have_half_of_their_chains_reversed() -> None:
    # A chain of two loads one direction only, so 12 x 60 fit in 2 x 370.8 where a ring has 6 x 60.
    graphs = found("hgx-h200", ranks=2).graphs
    assert figures(graphs[RING]) == (12, 30.0, 30.0)
    assert figures(graphs[TREE]) == (12, 60.0, 60.0)
    assert [order.gpus for order in graphs[TREE].orders] == [(0, 1)] * 6 + [(1, 0)] * 6
    assert (graphs[RING].same_channels, graphs[TREE].same_channels) == (True, False)


def test_two_a100_have_chains_of_40() -> None:
    # A public log: 12 x 20 and 12 x 40, six of them reversed.
    graphs = found("hgx-a100", ranks=2).graphs
    assert figures(graphs[RING]) == (12, 20.0, 20.0)
    assert figures(graphs[TREE]) == (12, 40.0, 40.0)
    assert [order.gpus for order in graphs[TREE].orders] == [(0, 1)] * 6 + [(1, 0)] * 6


def test_rings_over_rails_enter_and_leave_by_neighbouring_nics_in_turn() -> None:
    # Seen in a log of two such hosts. With one NIC a ring, 8 x 48 = 384 would be more than the 370.8 of a GPU.
    graph = found("hgx-h100", nodes=2, nic="ndr400").graphs[RING]
    assert figures(graph) == (8, 48.0, 48.0)
    assert (graph.type_intra, graph.type_inter, graph.cross_nic) == ("NVL", "PIX", 2)
    assert [(order.nic_in, order.nic_out) for order in graph.orders] == [
        *((0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4), (6, 7), (7, 6)),
    ]
    assert graph.orders[0].gpus == (0, 7, 6, 5, 4, 3, 2, 1)
    assert graph.orders[1].gpus == (1, 2, 3, 4, 5, 6, 7, 0)
    assert graph.orders[2].gpus == (2, 1, 0, 7, 6, 5, 4, 3)


def test_chains_over_rails_are_plain_trees_and_heads_sit_at_the_nics() -> None:
    graphs = found("hgx-h100", nodes=2, nic="ndr400").graphs
    assert (graphs[TREE].pattern, *figures(graphs[TREE])) == (3, 8, 48.0, 48.0)
    assert [order.gpus[0] for order in graphs[TREE].orders] == list(range(8))
    assert all(order.nic_in == order.nic_out == order.gpus[0] for order in graphs[TREE].orders)
    # 9 x 40 = 360 of 370.8 inside, the NICs' 48 between nodes.
    assert figures(graphs[NVLS]) == (8, 40.0, 48.0)


def test_forbidding_to_cross_rails_leaves_room_for_seven_rings() -> None:
    # Ring by ring all eight GPUs send 48 (the last one to a peer at the NIC): 7 x 48 = 336, 8 x 45 = 360 fits and is more.
    graph = communicator(build("hgx-h100", nodes=2, nic="ndr400"), environment={"NCCL_CROSS_NIC": "0"}).graphs[RING]
    assert (graph.cross_nic, graph.type_inter, *figures(graph)) == (0, "PXN", 8, 45.0, 45.0)
    assert all(order.nic_in == order.nic_out for order in graph.orders)


def test_a100_with_a_nic_each_have_eight_balanced_trees() -> None:
    # Two GPUs and two NICs below a switch: half of a NIC's 24 goes by each of two neighbours without leaving the switch.
    graphs = found("hgx-a100", nodes=2, nic="hdr200").graphs
    assert figures(graphs[RING]) == (8, 24.0, 24.0)
    # 7/8 of 8 x 30 is 210 of 240; 8 x 48 would not fit.
    assert (graphs[TREE].pattern, *figures(graphs[TREE])) == (1, 8, 30.0, 24.0)
    assert (graphs[RING].type_inter, graphs[TREE].type_inter) == ("PIX", "PIX")


@pytest.mark.parametrize(("nics", "channels"), [(1, 2), (3, 6)])
def test_few_nics_run_their_channels_twice(nics: int, channels: int) -> None:
    # One channel of 48 a NIC, then twice as many of 24.
    graph = found("hgx-h100", nodes=2, nic=f"ndr400:nics={nics}").graphs[RING]
    assert figures(graph) == (channels, 24.0, 24.0)
    assert {order.nic_in for order in graph.orders} == set(range(nics))


def test_a_hybrid_mesh_is_covered_by_six_different_rings() -> None:
    # Six links of 20 a GPU, in both directions: 6 x 20 = 120, all of them.
    communicator_ = found("dgx-1v")
    graph = communicator_.graphs[RING]
    assert figures(graph) == (6, 20.0, 20.0)
    assert (graph.type_intra, graph.same_channels) == ("NVL", False)
    topology = build("dgx-1v")
    used: dict[tuple[int, int], int] = {}
    for order in graph.orders:
        for a, b in zip(order.gpus, order.gpus[1:] + order.gpus[:1], strict=True):
            used[a, b] = used.get((a, b), 0) + 1
    for (a, b), count in used.items():
        assert count <= topology.edges[f"gpu{a}", f"gpu{b}"]["link"].count
    assert sum(used.values()) == 48


def pcie_box(kind: str, vendor: str) -> Communicator:
    """Eight GPUs under one root complex."""
    nodes: dict[str, Any] = {f"gpu{rank}": {"kind": "gpu", "sm": 80} for rank in range(8)}
    nodes["cpu"] = {"kind": "root_complex", "cpu_vendor": vendor, "cpu_model": 85, "cpu_arch": "x86_64"}
    links = [{"between": [f"gpu{rank}", "cpu"], "profile": kind} for rank in range(8)]
    return communicator(custom_topology({"nodes": nodes, "links": links}))


def test_eight_gpus_on_pcie_gen4_have_two_rings_of_12_and_gen3_one() -> None:
    # 24 GB/s hold one channel of 20, or two of 12 = 24; 12 GB/s hold one of 12.
    assert figures(pcie_box("pcie4", "AuthenticAMD").graphs[RING]) == (2, 12.0, 12.0)
    assert figures(pcie_box("pcie3", "AuthenticAMD").graphs[RING]) == (1, 12.0, 12.0)


def test_a_host_bridge_of_intel_costs_a_fifth_more() -> None:
    # 10 x 6/5 = 12 of Gen3; of Gen4's 24, 20 x 6/5 = 24 is one channel, and two of 12 would take 28.8.
    assert figures(pcie_box("pcie3", "GenuineIntel").graphs[RING]) == (1, 10.0, 10.0)
    assert figures(pcie_box("pcie4", "GenuineIntel").graphs[RING]) == (1, 20.0, 20.0)


def test_two_amd_sockets_let_15_through() -> None:
    # 16 GB/s between the sockets; two rings of 12 would need different channels, which are not tried across AMD sockets.
    graph = found("pcie-gen4-8").graphs[RING]
    assert (graph.type_intra, *figures(graph)) == ("SYS", 1, 15.0, 15.0)


def test_where_nothing_fits_there_is_one_slow_channel_in_plain_order() -> None:
    # From compute capability 10.0 on no channel below 18 is tried on one node, and AMD sockets exchange 16.
    graph = found("rtx5090-8").graphs[RING]
    assert (*figures(graph), graph.orders[0].gpus) == (1, 0.1, 0.1, IN_ORDER)


def test_one_gpu_a_node_sends_and_receives_by_its_nic() -> None:
    # As a sample dump of a Gen4 machine has it: ring 24, chain 48 inside (no link limits it) and 24 between nodes.
    graphs = found("gh200", nodes=2, nic="slingshot200").graphs
    assert (graphs[RING].type_intra, *figures(graphs[RING])) == ("LOC", 1, 24.0, 24.0)
    assert (graphs[TREE].pattern, *figures(graphs[TREE])) == (3, 1, 48.0, 24.0)


def test_collnet_is_searched_where_the_network_reduces_and_it_is_asked_for() -> None:
    graph = build("hgx-a100", nodes=2, nic="hdr200").copy()
    asked = {"NCCL_COLLNET_ENABLE": "1"}
    assert communicator(graph, environment=asked).graphs[COLLNET_CHAIN].channels == 0
    graph.nodes["network"]["reduce"] = True
    assert communicator(graph).graphs[COLLNET_CHAIN].channels == 0
    graphs = communicator(graph, environment=asked).graphs
    assert (graphs[COLLNET_CHAIN].pattern, *figures(graphs[COLLNET_CHAIN])) == (3, 8, 30.0, 24.0)
    assert [order.gpus for order in graphs[COLLNET_DIRECT].orders] == [(head,) for head in range(8)]


def test_the_dump_of_two_h200_is_reproduced_from_their_topology(shared: Path) -> None:
    folder = shared / "samples" / "h200x2"
    graph = build(str(folder / "nccl_topo_h200x2_vm.xml"))
    graphs = communicator(graph, Version(2, 28, 9), environment={"NCCL_NVLS_ENABLE": "0"}).graphs
    stored = folder / "nccl_graph_h200x2_vm.xml"
    assert graphs == read_dump(stored)
    assert format_dump(graphs) == stored.read_text(encoding="utf-8")


def test_two_gpus_have_no_nvls_until_2_28_7(shared: Path) -> None:
    graph = build(str(shared / "samples" / "h200x2" / "nccl_topo_h200x2_vm.xml"))
    assert communicator(graph, Version(2, 28, 3)).graphs[NVLS].channels == 0
    # Two heads, each GPU loaded 3 x 60 = 180 of 370.8: no faster channel is tried.
    assert figures(communicator(graph, Version(2, 28, 9)).graphs[NVLS]) == (2, 60.0, 60.0)


@pytest.mark.parametrize(
    ("topology", "options"),
    [
        *((name, {}) for name in ("hgx-a100", "hgx-h100", "dgx-1v", "gh200-4", "pcie-gen5-8", "gb200-nvl72")),
        *((name, {"nodes": 2, "nic": "ndr400"}) for name in ("hgx-h100", "hgx-b200", "gh200-4", "pcie-pair")),
        *((name, {"nodes": 2, "nic": "hdr200:nics=3"}) for name in ("hgx-a100", "hgx-h100", "dgx-1v")),
    ],
)
def test_rings_visit_every_gpu_once_and_overload_no_wire(topology: str, options: dict[str, Any]) -> None:
    graph = build(topology, **options)
    system = node_systems(graph).systems[0]
    paths = Paths(system, Reach(p2p=SYS))
    found = communicator(graph).graphs[RING]
    load = [0] * len(system.wires)
    for order in found.orders:
        assert sorted(order.gpus) == list(range(len(system.gpus)))
        hops = [paths.gpu_gpu[a][b] for a, b in itertools.pairwise(order.gpus)]
        if order.nic_in is None or order.nic_out is None:
            hops.append(paths.gpu_gpu[order.gpus[-1]][order.gpus[0]])
        else:
            hops += [paths.net_gpu[order.nic_in][order.gpus[0]], paths.gpu_net[order.gpus[-1]][order.nic_out]]
        for path in hops:
            for wire, amount in path.loads(round(1000 * found.intra_GBps)):
                load[wire] += amount
    assert all(carried <= wire.capacity for carried, wire in zip(load, system.wires, strict=True))
