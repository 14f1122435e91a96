"""Bytes on every directed link of H100 servers, from 1 to 8 GPUs on 1 to 16 nodes, to the byte (nccl.md 2.2 to 2.9).

A server has eight GPUs and a NIC below the PCI Express switch of each; a smaller group leaves the last ones idle. Sizes are
such that every channel has the same whole number of chunks, so that nothing is rounded. Everything is also proved.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING, Any

import pytest

import topologies
from netsim.nccl.communicator import Communicator
from netsim.nccl.connect import node_trees
from netsim.nccl.from_topology import communicator
from netsim.nccl.planning import plan
from netsim.nccl.schedules import build
from netsim.runs import simulate
from netsim.schedule.dag import TRANSFER, Schedule
from netsim.schedule.nccl import ring
from netsim.schedule.proof import prove

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[str]

KIB = 2**10
SLOW = pytest.mark.slow
CELL = 8 * KIB
"""NCCL cuts an all-reduce over channels in multiples of 16 KiB of traffic, two bytes for one."""

Bytes = Callable[[int, int], int]
"""Bytes of a GPU of a node, each way."""


@lru_cache(maxsize=2)
def machine(nodes: int, gpus: int, fabric: str = "one-switch") -> "Graph":
    more: dict[str, Any] = {} if nodes == 1 else {"nodes": nodes, "nic": "ndr400", "fabric": fabric}
    return topologies.build("hgx-h100", gpus_per_node=gpus, **more)


@lru_cache(maxsize=2)
def group_of(nodes: int, gpus: int) -> Communicator:
    return communicator(machine(nodes, gpus))


def carried(graph: "Graph", schedule: Schedule) -> dict[tuple[str, str], int]:
    """Return the bytes of every directed link that has any."""
    record = simulate(graph, schedule, record="summary")
    return {edge: size for edge, size in zip(record.edges, record.link_bytes.tolist(), strict=True) if size}


def expected(nodes: int, gpus: int, near: Bytes, far: Bytes, *, rails: bool = False) -> dict[tuple[str, str], int]:
    """Return the same from what each GPU sends over NVLink and over its NIC, if it receives as much of either."""
    found: dict[tuple[str, str], int] = {}
    for node in range(nodes):
        host = f"node{node}/" if nodes > 1 else ""
        for gpu in range(gpus):
            ways = [
                ([f"{host}gpu{gpu}", f"{host}nvswitch"], near(node, gpu)),
                (
                    [f"{host}gpu{gpu}", f"{host}pcie_switch{gpu}", f"{host}nic{gpu}", f"rail{gpu}" if rails else "network"],
                    far(node, gpu),
                ),
            ]
            for way, size in ways:
                for one, other in pairwise(way):
                    found |= {(one, other): size, (other, one): size} if size else {}
    return found


def run(
    nodes: int,
    gpus: int,
    collective: str,
    size: int,
    algorithm: str,
    protocol: str = "simple",
    *,
    rails: bool = False,
    **more: Any,
) -> dict[tuple[str, str], int]:
    """Return the bytes of every link that has any; prove what runs unless that takes long."""
    group = group_of(nodes, gpus)
    built = build(group, collective, size, algorithm=algorithm, protocol=protocol, free=True, align_bytes=1, **more)
    if len(built.schedule) < 50_000:
        prove(built.schedule)
    return carried(machine(nodes, gpus, "rails" if rails else "one-switch"), built.schedule)


def shapes(*fast: tuple[int, int], gpus: Sequence[int] = (1, 2, 3, 4, 8), least: int = 1) -> list[Any]:
    """Return all (nodes, GPUs of a node), slow but for some."""
    every = [(nodes, count) for nodes in (1, 2, 3, 4, 5, 7, 8, 16) for count in gpus if nodes >= least and nodes * count > 1]
    assert set(fast) <= set(every)
    return [shape if shape in fast else pytest.param(*shape, marks=SLOW) for shape in every]


def searched(nodes: int, gpus: int) -> int:
    """Return the channels of a graph: each GPU is first and last of as many as any other, where there are nodes."""
    return group_of(nodes, gpus).graphs["ring"].channels


ON_ONE = [(1, 2), (1, 3), (1, 4), (1, 8)]
FACTORS = {"simple": (1, 1), "ll": (2, 1), "ll128": (16, 15)}


def ring_bytes(
    nodes: int, gpus: int, size: int, protocol: str = "simple", *, rails: bool = False
) -> dict[tuple[str, str], int]:
    """Return what rings carry that leave a node by each of its NICs in turns: of g hops one is to the next node.

    Eight GPUs have channels that leave by the NIC of their last GPU. Channels of fewer leave by the one that they came
    in by, their first GPU's, so that the last GPU sends over NVLink to the first one.
    """
    ranks, (times, parts) = nodes * gpus, FACTORS[protocol]
    total = 2 * size * (ranks - 1) * times // (ranks * parts)
    if nodes == 1:
        return expected(nodes, gpus, lambda *_: total, lambda *_: 0)
    near = 0 if gpus == 1 else total if gpus < 8 else total * (gpus - 1) // gpus
    return expected(nodes, gpus, lambda *_: near, lambda *_: total // gpus, rails=rails)


def ring_size(nodes: int, gpus: int) -> int:
    """Return a size of which every channel has whole cells, and every rank whole lines of LL128 and steps of 16 bytes."""
    return searched(nodes, gpus) * lcm(CELL, 240 * nodes * gpus)


def on_rails(nodes: int, gpus: int) -> bool:
    """Say whether rings are run on rails: there the first GPU's NIC is the only one that reaches the next node."""
    return nodes > 1 and gpus < 8


@pytest.mark.parametrize(
    ("nodes", "gpus"),
    shapes(*ON_ONE, (2, 1), (2, 2), (2, 3), (2, 4), (2, 8), (3, 1), (3, 2), (3, 3), (4, 2), (5, 1), (8, 1), (16, 1)),
)
def test_a_ring_carries_2s_n_minus_1_over_n_out_of_every_gpu_and_a_gth_of_it_out_of_every_nic(nodes: int, gpus: int) -> None:
    size, rails = ring_size(nodes, gpus), on_rails(nodes, gpus)
    found = run(nodes, gpus, "all_reduce", size, "ring", channels=searched(nodes, gpus), rails=rails)
    assert found == ring_bytes(nodes, gpus, size, rails=rails)


def test_on_one_switch_too_a_ring_leaves_by_the_nic_that_its_graph_names() -> None:
    # Four GPUs: channel 0 is 0 3 2 1, in and out by NIC 0, so that GPU 1 sends over NVLink to GPU 0 first.
    order = group_of(2, 4).graphs["ring"].orders[0]
    assert (order.gpus, order.nic_in, order.nic_out) == ((0, 3, 2, 1), 0, 0)
    size = ring_size(2, 4)
    assert run(2, 4, "all_reduce", size, "ring", channels=searched(2, 4)) == ring_bytes(2, 4, size)


@pytest.mark.parametrize("protocol", ["ll", "ll128"])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 4), (2, 2), (3, 1), pytest.param(2, 8, marks=SLOW)])
def test_by_ll_a_ring_carries_twice_and_by_ll128_16_fifteenths(nodes: int, gpus: int, protocol: str) -> None:
    size, rails = ring_size(nodes, gpus), on_rails(nodes, gpus)
    found = run(nodes, gpus, "all_reduce", size, "ring", protocol, channels=searched(nodes, gpus), rails=rails)
    assert found == ring_bytes(nodes, gpus, size, protocol, rails=rails)


def test_if_all_channels_had_the_ring_of_channel_0_one_nic_a_node_would_carry_all_and_be_seen() -> None:
    size, count = ring_size(2, 8), searched(2, 8)
    made = plan(group_of(2, 8), "all_reduce", size, "ring", "simple", channels=count, align_bytes=1)
    alike = [replace(made.channels[0], number=number) for number in range(count)]
    found = carried(machine(2, 8), ring.build(replace(made, channels=tuple(alike))))
    assert found != ring_bytes(2, 8, size)
    # 0 7 6 5 4 3 2 1 | 9 10 11 12 13 14 15 8: NIC 1 of the first node and NIC 0 of the second one have 2S x 15/16.
    sent = {edge: count for edge, count in found.items() if edge[1] == "network"}
    assert sent == dict.fromkeys([("node0/nic1", "network"), ("node1/nic0", "network")], size * 15 // 8)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (2, 4), (3, 2), (2, 8)])
def test_with_blocks_a_ring_carries_half_of_that(nodes: int, gpus: int, collective: str) -> None:
    # A byte of a block is n bytes of traffic, so that cells are 16 KiB / n, up to 16 bytes more.
    ranks, rails = nodes * gpus, on_rails(nodes, gpus)
    cell = 16 * -(-CELL // (8 * ranks))
    size = ranks * searched(nodes, gpus) * 3 * cell
    found = run(nodes, gpus, collective, size, "ring", channels=searched(nodes, gpus), rails=rails)
    assert found == ring_bytes(nodes, gpus, size // 2, rails=rails)


DEGREES = {
    # Neighbours of each node in both trees together (nccl.md 2.4). Five nodes: 0-4 4-2 2-1 2-3, and one further on 1-0 0-3
    # 3-2 3-4; sixteen: the root and odd labels have one in the first tree, the others three, and the second mirrors it.
    1: [0],
    2: [2, 2],
    3: [3, 2, 3],
    4: [2, 4, 4, 2],
    5: [3, 2, 4, 4, 3],
    7: [3, 2, 4, 4, 4, 4, 3],
    8: [2, 4, 4, 4, 4, 4, 4, 2],
    16: [2, *[4] * 14, 2],
}


@pytest.mark.parametrize("nodes", DEGREES)
def test_trees_over_nodes_have_those_neighbours(nodes: int) -> None:
    joined = [sum((own.parent[v] >= 0) + len(own.children[v]) for own in node_trees(nodes)) for v in range(nodes)]
    assert joined == DEGREES[nodes]


def tree_bytes(nodes: int, gpus: int, size: int) -> dict[tuple[str, str], int]:
    """Return what trees carry: S/2 each way for a neighbour in either tree, S for the next GPU in a node's chain."""
    if nodes == 1:
        # The same chain 0, 1, 2, ... on all channels: its ends have one neighbour. On three GPUs the search finds a faster
        # graph: six channels 0 1 2, three 1 2 0 and three 2 0 1, so that 0 and 2 are ends of nine and 1 of six.
        ends = {0: 9, 1: 6, 2: 9} if gpus == 3 else {0: 12, gpus - 1: 12}
        return expected(1, gpus, lambda _, gpu: size * (24 - ends.get(gpu, 0)) // 12, lambda *_: 0)
    # Each GPU is first, and at the network, in a gth of the channels, and last in as many.
    return expected(
        nodes, gpus, lambda *_: 2 * size * (gpus - 1) // gpus, lambda node, _: DEGREES[nodes][node] * size // 2 // gpus
    )


@pytest.mark.parametrize(
    ("nodes", "gpus"),
    shapes(
        *ON_ONE,
        (2, 1),
        (2, 2),
        (2, 3),
        (2, 8),
        (3, 1),
        (3, 4),
        (3, 8),
        (4, 2),
        (5, 3),
        (7, 2),
        (8, 1),
        (8, 4),
        (16, 1),
        (16, 2),
    ),
)
def test_a_tree_carries_half_of_s_each_way_on_every_edge_of_either_tree_and_s_on_every_link_of_a_chain(
    nodes: int, gpus: int
) -> None:
    channels = 2 * searched(nodes, gpus)
    size = channels * CELL * gpus
    assert run(nodes, gpus, "all_reduce", size, "tree", channels=channels) == tree_bytes(nodes, gpus, size)


@pytest.mark.parametrize(("protocol", "times", "parts"), [("ll", 2, 1), ("ll128", 16, 15)])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 4), (3, 2), (4, 1)])
def test_a_tree_carries_what_its_protocol_adds(nodes: int, gpus: int, protocol: str, times: int, parts: int) -> None:
    # 120 KiB a channel are whole lines of 120 bytes in every chunk.
    channels = 2 * searched(nodes, gpus)
    size = channels * 15 * CELL * gpus
    found = run(nodes, gpus, "all_reduce", size, "tree", protocol, channels=channels)
    assert found == tree_bytes(nodes, gpus, size * times // parts)


NVLS_CHUNK = 16 * KIB


@pytest.mark.parametrize("gpus", range(2, 9))
def test_nvls_carries_s_and_s_over_h_each_way(gpus: int) -> None:
    size = gpus * 16 * NVLS_CHUNK  # every head of every channel has a chunk
    found = run(1, gpus, "all_reduce", size, "nvls", channels=16)
    assert found == expected(1, gpus, lambda *_: size + size // gpus, lambda *_: 0)


@pytest.mark.parametrize("gpus", range(2, 9))
def test_nvls_gathers_and_scatters_s_one_way_and_s_over_n_the_other(gpus: int) -> None:
    size = gpus * 64 * KIB
    for collective, outwards in (("all_gather", size // gpus), ("reduce_scatter", size)):
        found = run(1, gpus, collective, size, "nvls")
        out = {(f"gpu{gpu}", "nvswitch"): outwards for gpu in range(gpus)}
        into = {("nvswitch", f"gpu{gpu}"): size + size // gpus - outwards for gpu in range(gpus)}
        assert found == out | into


@pytest.mark.parametrize(
    ("nodes", "gpus"),
    shapes((2, 2), (2, 3), (2, 4), (2, 8), (3, 2), (3, 3), (4, 2), (5, 2), (7, 2), (8, 2), gpus=(2, 3, 4, 8), least=2),
)
def test_trees_of_nvls_carry_that_on_nvlink_and_half_of_a_heads_part_on_every_edge_of_either_tree(
    nodes: int, gpus: int
) -> None:
    size = gpus * 16 * NVLS_CHUNK
    found = run(nodes, gpus, "all_reduce", size, "nvls_tree", channels=16)
    assert found == expected(
        nodes, gpus, lambda *_: size + size // gpus, lambda node, _: DEGREES[nodes][node] * size // (2 * gpus)
    )


@pytest.mark.parametrize(
    ("algorithm", "protocol", "eighths"),
    # Of S: one shot writes it to seven others by LL; two shots load 7/8 and store 7/8; in the switch S and an eighth.
    [
        ("symmetric:agxll_r", "ll", 2 * 7 * 8),
        ("symmetric:rsxld_agxst", "simple", 7 + 7),
        ("symmetric:rsxldmc_agxstmc", "simple", 9),
    ],
)
def test_kernels_on_windows_carry_what_their_shots_need(algorithm: str, protocol: str, eighths: int) -> None:
    size = 5040 * 8 * 16  # whole for all ranks in as many blocks as there may be
    built = build(group_of(1, 8), "all_reduce", size, algorithm=algorithm, free=True)
    assert (built.protocol, 5040 % built.channels) == (protocol, 0)
    assert carried(machine(1, 8), built.schedule) == expected(1, 8, lambda *_: eighths * size // 8, lambda *_: 0)


def test_copy_engines_carry_each_block_once() -> None:
    size = 256 * KIB
    built = build(group_of(1, 8), "alltoall", size, algorithm="copy_engine", free=True)
    assert carried(machine(1, 8), built.schedule) == expected(1, 8, lambda *_: 7 * size // 8, lambda *_: 0)


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize(
    ("algorithm", "eighths"),
    # Of S: with eight heads an eighth to each of seven others and back; on a chain, at whose ends each GPU is in turns, S up
    # and S down on seven links of eight; NVLS S and an eighth.
    [("collnet_direct", 14), ("collnet_chain", 14), ("nvls", 9)],
)
def test_a_network_that_adds_gets_and_gives_an_eighth_of_s_at_every_nic(nodes: int, algorithm: str, eighths: int) -> None:
    graph = machine(nodes, 8).copy()
    graph.nodes["network"]["reduce"] = True
    size = 4096 * KIB  # 16 channels and 8 heads with 32 KiB each
    group = communicator(graph, environment={"NCCL_COLLNET_ENABLE": "1"})
    built = build(group, "all_reduce", size, algorithm=algorithm, protocol="simple", free=True, channels=16)
    prove(built.schedule)
    assert built.channels == 16
    assert carried(graph, built.schedule) == expected(nodes, 8, lambda *_: eighths * size // 8, lambda *_: size // 8)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 13, 16])
def test_pat_carries_every_other_ranks_block_once(collective: str, nodes: int) -> None:
    block = 12 * KIB
    found = run(nodes, 1, collective, nodes * block, "pat")
    assert found == expected(nodes, 1, lambda *_: 0, lambda *_: (nodes - 1) * block)


@pytest.mark.parametrize(
    ("nodes", "gpus"),
    shapes(*ON_ONE, (2, 1), (2, 2), (2, 3), (2, 4), (2, 8), (3, 1), (3, 3), (3, 8), (4, 4), (5, 2), (8, 1), (8, 2), (16, 1)),
)
def test_all_to_all_goes_by_nvlink_to_the_rail_of_its_receiver(nodes: int, gpus: int) -> None:
    # NVLink: to g - 1 peers and, for each other node, to the g - 1 GPUs on other rails; a NIC has the blocks of its node's
    # g GPUs for one GPU of each other node.
    block = 8 * KIB
    found = run(nodes, gpus, "alltoall", nodes * gpus * block, "p2p")
    near, far = nodes * (gpus - 1) * block, (nodes - 1) * gpus * block
    assert found == expected(nodes, gpus, lambda *_: near, lambda *_: far)


@pytest.mark.parametrize(("nodes", "gpus"), [(2, 8), (3, 4), (5, 2)])
def test_by_relays_all_to_all_crosses_the_network_on_rails_only_and_no_spine(nodes: int, gpus: int) -> None:
    graph, block = machine(nodes, gpus, "rails"), 8 * KIB
    built = build(communicator(graph), "alltoall", nodes * gpus * block, protocol="simple", free=True)
    schedule = built.schedule
    between = (schedule.kind == TRANSFER) & (schedule.src // gpus != schedule.dst // gpus)
    assert (schedule.src[between] % gpus == schedule.dst[between] % gpus).all()
    kinds = {name: data["kind"] for name, data in graph.nodes(data=True)}
    network = {edge: size for edge, size in carried(graph, schedule).items() if "network_switch" in map(kinds.get, edge)}
    cables = {(f"node{node}/nic{gpu}", f"rail{gpu}") for node in range(nodes) for gpu in range(gpus)}
    both = cables | {(rail, nic) for nic, rail in cables}
    assert network == dict.fromkeys(both, (nodes - 1) * gpus * block)
