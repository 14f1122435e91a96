import pytest

from netsim.errors import FabricError
from netsim.fabric import check_fabric, hosts_of
from netsim.routing import Router
from topologies import build


def hops(name: str, src: int, dst: int, **options: object) -> list[str]:
    graph = build(name, **options)  # type: ignore[arg-type]
    router = Router(graph)
    edges = [router.edges[index] for index in router.path(src, dst)]
    return [edges[0][0], *(edge[1] for edge in edges)]


def test_every_gpu_has_a_nic_under_its_own_pcie_switch() -> None:
    graph = build("hgx-h100", nodes=3, nic="ndr400")
    for index in range(3):
        for gpu in range(8):
            nic = f"node{index}/nic{gpu}"
            assert list(graph.successors(nic)) == [f"node{index}/pcie_switch{gpu}", "network"]
            assert graph.nodes[f"node{index}/gpu{gpu}"]["nic"] == nic
    assert graph.degree("network") == 2 * 24


def test_ranks_go_machine_by_machine_and_hosts_group_them() -> None:
    graph = build("hgx-a100", nodes=4, nic="hdr200")
    assert graph.graph["ranks"][9] == "node1/gpu1"
    assert hosts_of(graph) == tuple(tuple(range(first, first + 8)) for first in (0, 8, 16, 24))


def test_a_cluster_is_its_servers_and_nothing_else() -> None:
    one, four = build("hgx-a100", nic="hdr200"), build("hgx-a100", nodes=4, nic="hdr200")
    assert len(four) == 4 * len(one) + 1
    assert four.number_of_edges() == 4 * one.number_of_edges() + 2 * 32


def test_one_node_with_nics_has_no_network() -> None:
    graph = build("hgx-h100", nic="ndr400")
    assert "network" not in graph
    assert list(graph.successors("nic3")) == ["pcie_switch3"]


def test_a_gpu_without_pcie_switch_has_its_nic_at_the_root_complex() -> None:
    graph = build("gb200-nvl72", nodes=2, nic="ndr400")
    assert list(graph.successors("node1/nic71")) == ["node1/cpu35", "network"]
    assert graph.edges["node1/nic71", "node1/cpu35"]["link"].kind == "pcie5"


def test_nic_links_are_the_profiles_and_their_pcie_links_those_of_the_gpu() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400", rate="line")
    assert graph.edges["node0/nic0", "network"]["link"].bandwidth_bytes_per_s == 50e9
    assert graph.edges["node0/nic0", "node0/pcie_switch0"]["link"].bandwidth_bytes_per_s == 63e9


def test_with_gpudirect_the_path_between_hosts_stays_off_the_cpu() -> None:
    path = hops("hgx-h100", 7, 8, nodes=2, nic="ndr400")
    assert path == [
        "node0/gpu7",
        "node0/pcie_switch7",
        "node0/nic7",
        "network",
        "node1/nic0",
        "node1/pcie_switch0",
        "node1/gpu0",
    ]


def test_a_hop_between_nodes_costs_what_was_measured_for_its_network() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400")
    router = Router(graph)
    latency_s = sum(graph.edges[router.edges[index]]["link"].latency_s for index in router.path(7, 8))
    assert latency_s == pytest.approx(5e-6)  # four PCIe links of 0.25 us and two network links of 2 us


def test_without_gpudirect_traffic_stops_in_host_memory_on_both_sides() -> None:
    path = hops("hgx-h100", 7, 8, nodes=2, nic="ndr400", gpudirect=False)
    assert [node for node in path if "memory" in node] == ["node0/memory1", "node1/memory0"]
    assert [node for node in path if "cpu" in node] == ["node0/cpu1"] * 2 + ["node1/cpu0"] * 2


def test_a_card_without_a_pcie_switch_is_beyond_gpudirect_and_staged() -> None:
    # NCCL stops at a host bridge by default; here GPUs and NICs are joined by nothing else. Four NICs are as near.
    path = hops("rtx5090-8", 0, 8, nodes=2, nic="ndr400")
    assert path[:5] == ["node0/gpu0", "node0/cpu0", "node0/memory0", "node0/cpu0", "node0/nic0"]
    assert path[-5:] == ["node1/nic0", "node1/cpu0", "node1/memory0", "node1/cpu0", "node1/gpu0"]


def test_several_racks_are_joined_by_their_nics() -> None:
    graph = build("gb200-nvl72", nodes=3, nic="ndr400", fabric="rails")
    assert len(graph.graph["ranks"]) == 216
    assert graph.in_degree("rail71") == 3 + 1  # a NIC of every rack, and the spine


@pytest.mark.parametrize("fabric", ["rails:servers=32,spines=16", "leaf-spine:servers=32,spines=16"])
def test_4096_gpus_get_their_leaves(fabric: str) -> None:
    graph = build("hgx-h100", nodes=512, nic="ndr400", fabric=fabric)
    check_fabric(graph)
    switches = sum(kind == "network_switch" for _, kind in graph.nodes(data="kind"))
    assert switches == (16 * 8 if fabric.startswith("rails") else 16) + 16


def test_gpudirect_is_recorded_in_the_graph() -> None:
    assert build("hgx-h100").graph["gpudirect"] is True
    assert build("hgx-h100", nodes=2, nic="ndr400", gpudirect=False).graph["gpudirect"] is False


def test_large_clusters_are_complete() -> None:
    graph = build("hgx-h100", nodes=512, nic="ndr400")
    assert len(graph.graph["ranks"]) == 4096
    check_fabric(graph)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 2}, "need NICs"),
        ({"nodes": 0, "nic": "ndr400"}, "nodes is 0"),
        ({"nodes": -3, "nic": "ndr400"}, "nodes is -3"),
        ({"nodes": 10**9, "nic": "ndr400"}, "nodes is 1000000000"),
        ({"nodes": True, "nic": "ndr400"}, "nodes is True"),
        ({"nodes": 2, "nic": "ndr"}, "unknown NIC kind 'ndr'"),
        ({"nodes": 2, "nic": "pcie5"}, "family 'pcie', not a NIC"),
        ({"nodes": 2, "nic": "ndr400", "fabric": "torus"}, "unknown fabric 'torus'; accepted are one-switch"),
    ],
)
def test_a_bad_wish_is_refused_in_one_sentence(options: dict[str, object], words: str) -> None:
    with pytest.raises(FabricError, match=words):
        build("hgx-h100", **options)  # type: ignore[arg-type]
