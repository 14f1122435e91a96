import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from netsim.errors import NetsimError
from netsim.nccl.connect import channels_of
from netsim.nccl.dump import format_dump
from netsim.nccl.from_topology import as_told, communicator
from netsim.nccl.graphs import NVLS, RING, ChannelOrder
from netsim.nccl.tuner import cost_table
from netsim.nccl.version import Version
from netsim.routing import Router
from topologies import build
from topologies.custom import custom_topology


def test_a_server_is_one_node_and_its_hardware_is_told() -> None:
    found = communicator(build("hgx-h100"))
    assert found.nodes == (tuple(range(8)),)
    assert (found.compute_capability, found.compute_capability_max, found.cpu_arch, found.cpu_vendor) == (
        *(90, 90),
        *("x86_64", "GenuineIntel"),
    )
    assert (found.nvswitch, found.multicast, found.collnet, found.gdr, found.p2p) == (True, True, False, True, True)
    assert (found.nics_per_node, found.net_GBps) == (0, 0.0)


def test_machines_of_a_cluster_are_nodes_and_their_nics_have_line_rate() -> None:
    # 400 Gb/s are 50 GB/s.
    found = communicator(build("hgx-h100", nodes=3, nic="ndr400"))
    assert found.nodes == (tuple(range(8)), tuple(range(8, 16)), tuple(range(16, 24)))
    assert (found.nics_per_node, found.net_GBps, found.gdr) == (8, 50.0, True)


def test_ranks_that_take_part_are_numbered_anew() -> None:
    found = communicator(build("hgx-h100", nodes=2, nic="ndr400"), ranks=[0, 1, 8, 9])
    assert found.nodes == ((0, 1), (2, 3))
    assert all(sorted(order.gpus) == [0, 1] for order in found.graphs[RING].orders)


@pytest.mark.parametrize("ranks", [[0, 0], [8], [-1], []])
def test_ranks_that_are_not_there_are_refused(ranks: list[int]) -> None:
    with pytest.raises(NetsimError, match="accepted are different ranks from 0 to 7"):
        communicator(build("hgx-h100"), ranks=ranks)


def test_nodes_with_unlike_numbers_of_ranks_are_refused() -> None:
    with pytest.raises(NetsimError, match="nodes have from 1 to 8 ranks"):
        communicator(build("hgx-h100", nodes=2, nic="ndr400"), ranks=range(9))


def test_hosts_that_share_an_nvswitch_are_one_node() -> None:
    nodes: dict[str, Any] = {f"gpu{rank}": {"kind": "gpu", "host": f"tray{rank // 2}", "sm": 100} for rank in range(4)}
    nodes["switch"] = {"kind": "nvswitch", "host": "rack", "multicast": True, "reduce": True}
    links = [{"between": [f"gpu{rank}", "switch"], "profile": "nvlink5", "count": 18} for rank in range(4)]
    found = communicator(custom_topology({"nodes": nodes, "links": links}))
    assert found.nodes == ((0, 1, 2, 3),)
    assert found.multicast


def test_staging_is_told_where_a_ring_ends_at_a_far_nic() -> None:
    near = build("hgx-a100", nodes=2, nic="hdr200")
    assert communicator(near).gdr
    assert not communicator(near, environment={"NCCL_NET_GDR_LEVEL": "LOC"}).gdr
    # One NIC below the first switch: the last GPU of a ring is at another one, beyond the host bridge.
    assert not communicator(build("pcie-gen4-8", nodes=2, nic="hdr200:nics=1")).gdr
    assert not communicator(build("hgx-h100", nodes=2, nic="ndr400", gpudirect=False)).gdr


def test_peers_reach_each_other_as_far_as_the_topology_or_a_variable_says() -> None:
    assert communicator(build("pcie-gen4-8")).p2p
    assert not communicator(build("pcie-gen4-8"), environment={"NCCL_P2P_LEVEL": "PXB"}).p2p
    assert not communicator(build("hgx-h100"), environment={"NCCL_P2P_DISABLE": "1"}).p2p
    assert not communicator(build("l40s-8")).p2p
    assert communicator(build("l40s-8"), environment={"NCCL_P2P_LEVEL": "4"}).p2p


def test_two_gpus_on_amd_reach_each_other_whatever_lies_between() -> None:
    graph = build("l40s-8")
    assert communicator(graph, ranks=[0, 7]).p2p
    assert not communicator(graph, ranks=[0, 1, 7]).p2p


def test_without_relays_rings_stay_on_their_rail_by_host_memory_only() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400:nics=1")
    assert communicator(graph).graphs[RING].type_inter == "PXN"
    assert communicator(graph, environment={"NCCL_PXN_DISABLE": "1"}).graphs[RING].type_inter in ("PHB", "SYS")


def test_nvls_can_be_switched_off() -> None:
    assert communicator(build("hgx-h100"), environment={"NCCL_NVLS_ENABLE": "0"}).graphs[NVLS].channels == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_CROSS_NIC", "3"), ("NCCL_P2P_LEVEL", "FAR"), ("NCCL_NVLS_ENABLE", "yes"), ("NCCL_PXN_DISABLE", "-1")],
)
def test_a_value_that_nccl_does_not_know_is_refused_in_one_sentence(name: str, value: str) -> None:
    with pytest.raises(NetsimError, match=f"{name}='{value}'.*(accepted|whole number)"):
        communicator(build("hgx-h100"), environment={name: value})


def test_processors_of_two_makers_are_mixed() -> None:
    nodes: dict[str, Any] = {}
    links: list[dict[str, Any]] = []
    for host, vendor in enumerate(("GenuineIntel", "AuthenticAMD")):
        nodes[f"gpu{host}"] = {"kind": "gpu", "host": f"h{host}", "sm": 80 + 10 * host}
        nodes[f"cpu{host}"] = {"kind": "root_complex", "host": f"h{host}", "cpu_vendor": vendor}
        nodes[f"nic{host}"] = {"kind": "nic", "host": f"h{host}", "port": {"profile": "ndr400"}}
        links += [{"between": [f"{device}{host}", f"cpu{host}"], "profile": "pcie4"} for device in ("gpu", "nic")]
        links.append({"between": [f"nic{host}", "network"], "profile": "ndr400"})
    nodes["network"] = {"kind": "network_switch"}
    found = communicator(custom_topology({"nodes": nodes, "links": links}))
    assert (found.cpu_vendor, found.compute_capability, found.compute_capability_max) == ("mixed", 80, 90)
    assert (found.nics_per_node, found.net_GBps, found.nodes) == (1, 50.0, ((0,), (1,)))


def test_a_graph_is_not_changed_by_looking_at_it() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400")
    before: nx.DiGraph[str] = graph.copy()
    communicator(graph, Version(2, 20))
    assert dict(graph.nodes(data=True)) == dict(before.nodes(data=True))
    assert list(graph.edges(data=True)) == list(before.edges(data=True))


def test_the_tuner_table_of_two_h200s_follows_from_their_topology(shared: Path) -> None:
    graph = build(str(shared / "samples" / "h200x2" / "nccl_topo_h200x2_vm.xml"))
    found = communicator(graph, Version(2, 28, 9), environment={"NCCL_NVLS_ENABLE": "0"})
    with (shared / "measurements" / "h200x2" / "nccl_tuner_model_h200x2.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 18
    for row in rows:
        collective = re.sub("(?<=[a-z])(?=[A-Z])", "_", row["collective"]).lower()
        cost = cost_table(found, collective)[row["algo"].lower(), row["proto"].lower()]
        assert f"{cost.latency_us:.1f} {cost.bandwidth_GBps:.1f}" == f"{row['latency_us']} {row['bandwidth_GBps']}"


@pytest.mark.parametrize(
    ("name", "value", "rule", "said"),
    [
        ("NCCL_P2P_DISABLE", "1", "p2p", "LOC"),
        ("NCCL_P2P_LEVEL", "pxb", "p2p", "PXB"),
        ("NCCL_NET_GDR_LEVEL", "5", "gdr_level", "SYS"),
        ("NCCL_PXN_DISABLE", "1", "pxn", False),
        ("NCCL_NVB_DISABLE", "1", "nvb", False),
    ],
)
def test_variables_reach_the_routes_as_rules_of_the_topology(name: str, value: str, rule: str, said: object) -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400")
    told = as_told(graph, {name: value})
    assert told.graph == {**graph.graph, rule: said}
    assert communicator(told) == replace(communicator(graph, environment={name: value}), environment={})


def test_without_peer_to_peer_messages_pass_host_memory() -> None:
    def stops(graph: "nx.DiGraph[str]") -> set[str]:
        router = Router(graph)
        return {graph.nodes[router.edges[link][1]]["kind"] for link in router.path(0, 7)}

    graph = build("hgx-h100")
    assert stops(graph) == {"nvswitch", "gpu"}
    assert "host_memory" in stops(as_told(graph, {"NCCL_P2P_DISABLE": "1"}))


def test_a_topology_of_which_nothing_is_told_stays_what_it_is() -> None:
    graph = build("hgx-h100")
    assert as_told(graph, {"NCCL_NVLS_ENABLE": "0", "NCCL_P2P_DISABLE": "0"}) is graph
    with pytest.raises(NetsimError, match="NCCL_P2P_LEVEL='FAR' is no path type"):
        as_told(graph, {"NCCL_P2P_LEVEL": "FAR"})


def test_graphs_of_a_file_are_taken_in_place_of_a_search(tmp_path: Path) -> None:
    graph = build("hgx-h100")
    searched = communicator(graph)
    ring = replace(searched.graphs["ring"], orders=(ChannelOrder((0, 2, 4, 6, 1, 3, 5, 7)),) * 3)
    path = tmp_path / "graphs.xml"
    path.write_text(format_dump({"ring": ring}))
    told = communicator(graph, environment={"NCCL_GRAPH_FILE": str(path)})
    assert told.graphs["ring"].orders == ring.orders
    # What the file lacks is searched.
    assert told.graphs["nvls"] == searched.graphs["nvls"]
    with pytest.raises(NetsimError, match=r"none.xml"):
        communicator(graph, environment={"NCCL_GRAPH_FILE": str(tmp_path / "none.xml")})


def test_a_graph_file_of_another_machine_is_refused_with_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "graphs.xml"
    path.write_text(format_dump({RING: communicator(build("hgx-h100")).graphs[RING]}))
    with pytest.raises(NetsimError, match=r"channel 0 of the ring graph names GPU [4-7]; accepted are 0 to 3"):
        communicator(build("hgx-h100", gpus_per_node=4), environment={"NCCL_GRAPH_FILE": str(path)})


@pytest.mark.parametrize(
    ("name", "nic", "relayed"),
    [("pcie-gen4-8", "hdr200", False), ("hgx-a100", "hdr200", False), ("hgx-h100", "ndr400:nics=1", True)],
)
def test_data_leaves_through_a_peer_only_over_nvlink_and_where_it_gains(name: str, nic: str, relayed: bool) -> None:
    found = communicator(build(name, nodes=2, nic=nic))
    assert any(peer >= 0 for peers in found.relays for peer in peers) is (relayed or name == "hgx-a100")
    ways = {relay for channel in channels_of(found, RING, found.graphs[RING].channels) for relay in channel.relays}
    assert (ways != {-1}) is relayed


def test_a_gpu_without_a_card_leaves_no_rails() -> None:
    found = communicator(build("gb200-nvl72", nodes=2, nic="ndr400:nics=4"))
    assert (found.rails, found.cards) == ((), ())


def test_a_graph_file_holds_all_gpus_of_a_node_and_the_nets_of_several(tmp_path: Path) -> None:
    path = tmp_path / "graphs.xml"
    path.write_text(format_dump({RING: communicator(build("hgx-h100", gpus_per_node=2)).graphs[RING]}))
    told = {"NCCL_GRAPH_FILE": str(path)}
    with pytest.raises(
        NetsimError, match=r"graphs.xml: channel 0 of the ring graph has 2 GPUs; accepted are all 8 of a node"
    ):
        communicator(build("hgx-h100"), environment=told)
    with pytest.raises(NetsimError, match=r"channel 0 of the ring graph has no net; with several nodes"):
        communicator(build("hgx-h100", nodes=2, nic="ndr400", gpus_per_node=2), environment=told)


def test_two_gpus_on_an_amd_host_reach_each_other_over_any_path_and_four_do_not() -> None:
    # NCCL stops at PXB but for two GPUs on AMD; the routes that are simulated follow.
    pair, four = (build("rtxpro6000-8", gpus_per_node=count) for count in (2, 4))
    assert (communicator(pair).p2p, communicator(four).p2p) == (True, False)
    assert as_told(pair, {}).graph["p2p"] == "SYS"
    assert as_told(four, {}) is four
    ways = [
        {
            "memory0" in edge
            for edge in (Router(as_told(graph, {})).edges[at] for at in Router(as_told(graph, {})).path(0, 1))
        }
        for graph in (pair, four)
    ]
    assert [True in way for way in ways] == [False, True]
