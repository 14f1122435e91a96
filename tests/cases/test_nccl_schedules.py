"""Public questions about NCCL's algorithms, answered with its own schedules: the thread's links, and GPUs that cost nothing.

Machines are presets whose links are given the rates of the thread; every other link is so fast that it never counts.
NCCL decides by the preset, so that its channels, rings and trees are those of such a machine. Where a pipeline has to fill
first, the rate is that of further bytes: the difference of two sizes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import topologies
from netsim.errors import FabricError
from netsim.fabric import NETWORK_SWITCH, NIC, Link, links_of
from netsim.nccl.communicator import Communicator
from netsim.nccl.from_topology import communicator
from netsim.nccl.graphs import RING, RING_PATTERN, ChannelGraph, ChannelOrder
from netsim.nccl.planning import plan
from netsim.nccl.schedules import build
from netsim.nccl.tuner import choose
from netsim.record import Record
from netsim.runs import simulate
from netsim.schedule.nccl import ring
from netsim.schedule.nccl.costs import FREE
from topologies.custom import custom_topology

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[str]

KIB, MIB, GIB = 2**10, 2**20, 2**30
FAST = 1e15


def machine(
    nodes: int = 1, *, nvlink: float = FAST, cable: float = FAST, nic: str = "ndr400", gpus: int | None = None
) -> "Graph":
    """Return HGX H100 servers, with the rate of a GPU's NVLinks and of a NIC's cable."""
    graph = topologies.build("hgx-h100", nodes=nodes, nic=nic if nodes > 1 else None, gpus_per_node=gpus).copy()
    for source, target, link in list(links_of(graph)):
        kinds = {graph.nodes[source]["kind"], graph.nodes[target]["kind"]}
        rate = nvlink if link.kind.startswith("nvlink") else cable if kinds == {NIC, NETWORK_SWITCH} else FAST
        graph.edges[source, target]["link"] = Link(0.0, rate, count=link.count, kind=link.kind)
    return graph


def run(
    graph: "Graph",
    algorithm: str,
    size: int,
    collective: str = "all_reduce",
    *,
    protocol: str = "simple",
    environment: Mapping[str, str] | None = None,
    group: Communicator | None = None,
) -> Record:
    """Run a collective as NCCL would, at no cost of the GPUs."""
    group = group or communicator(graph, environment=environment)
    built = build(group, collective, size, algorithm=algorithm, protocol=protocol, free=True)
    assert (built.algorithm, built.protocol) == (algorithm, protocol)
    return simulate(graph, built.schedule, record="summary")


def algbw(graph: "Graph", algorithm: str, size: int, collective: str = "all_reduce", **more: Any) -> float:
    """Return bytes per second."""
    return size / run(graph, algorithm, size, collective, **more).time_s


def further(graph: "Graph", algorithm: str, sizes: tuple[int, int], **more: Any) -> float:
    """Return the bytes per second at which the second size's additional bytes go."""
    first, second = (run(graph, algorithm, size, **more).time_s for size in sizes)
    return (sizes[1] - sizes[0]) / (second - first)


def test_10_a_tree_puts_half_of_a_rings_bytes_on_the_network_of_two_nodes() -> None:
    # NVIDIA/nccl #946, #812: 100 GB/s a node. Ring: 2S 15/16 out of each node, tree: S, so algbw 100 and busbw 187.5.
    two = machine(2, nvlink=240e9, cable=12.5e9)
    assert algbw(two, "ring", 32 * MIB) * 15 / 8 == pytest.approx(100e9, rel=1e-6)
    assert further(two, "tree", (128 * MIB, 256 * MIB)) * 15 / 8 == pytest.approx(187.5e9, rel=0.005)


def test_10_a_slow_nvlink_binds_a_tree_first() -> None:
    # Seven links of a chain of eight carry S up and S down: 14/8 S out of a GPU. 50 / 1.75 = 28.57, busbw 53.6; the
    # thread's bound of 93.75 supposes S only.
    assert algbw(machine(2, nvlink=50e9, cable=12.5e9), "tree", 32 * MIB) == pytest.approx(50e9 / 1.75, rel=1e-6)


def test_10_on_sixteen_nodes_the_gain_is_gone() -> None:
    # A node inside both trees sends S/2 to each of four neighbours: algbw 50, where the ring of 16 has 100 x 16/30 = 53.3.
    many = machine(16, nvlink=240e9, cable=100e9, gpus=1)
    assert further(many, "tree", (32 * MIB, 64 * MIB)) == pytest.approx(50e9, rel=1e-6)
    assert algbw(many, "ring", 32 * MIB) == pytest.approx(100e9 * 16 / 30, rel=1e-6)


@pytest.mark.parametrize(("gpus", "mib"), [(2, 64), pytest.param(4, 128, marks=pytest.mark.slow)])
def test_10_on_sixteen_nodes_of_several_gpus_the_gain_is_gone_too(gpus: int, mib: int) -> None:
    # Four channels and a NIC for each GPU, 100 GB/s in all: a node inside both trees still sends 2 S.
    many = machine(16, cable=100e9 / gpus, gpus=gpus)
    assert further(many, "tree", (mib * MIB, 2 * mib * MIB)) == pytest.approx(50e9, rel=1e-6)


@pytest.mark.slow
def test_10_on_sixteen_full_nodes_the_gain_is_gone() -> None:
    # With eight GPUs a NIC has two channels, one of either tree: three chunks of 512 KiB and one in every turn, 168 us at
    # 12.5 GB/s. 32 turns are S at 50 GB/s. A chunk goes up four edges and down four, and on none waits for more than a turn,
    # so that all is over after 40; NVLink, with 14/8 S at 240 GB/s, does not count.
    turn_s = 4 * 512 * KIB / 12.5e9
    seconds = run(machine(16, nvlink=240e9, cable=12.5e9), "tree", 256 * MIB).time_s
    assert 256 * MIB / (32 * turn_s) == pytest.approx(50e9)
    assert 32 * turn_s < seconds < 40 * turn_s


def test_11_a_gigabyte_takes_268_ms_by_a_ring_and_143_by_a_tree() -> None:
    # NVIDIA/nccl-tests #22: 7.0 GB/s a node. Ring 1.875 S, tree S out of each node: 267.9 and 142.9 ms for 1e9 bytes,
    # and 1/8 of that for 1/8 of the bytes.
    two = machine(2, cable=7e9, nic="ndr400:nics=1")
    times = [run(two, algorithm, 125_000_000).time_s for algorithm in ("ring", "tree")]
    assert times == pytest.approx([0.267857 / 8, 0.142857 / 8], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "seconds"), [("ring", 0.267857), ("tree", 0.142857)])
def test_11_the_whole_gigabyte_takes_268_and_143_ms(algorithm: str, seconds: float) -> None:
    two = machine(2, cable=7e9, nic="ndr400:nics=1")
    assert run(two, algorithm, 10**9).time_s == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize(
    ("nic", "cable", "size"),
    [("ndr400:nics=4", 50e9, 128 * MIB), pytest.param("ndr400", 25e9, 512 * MIB, marks=pytest.mark.slow)],
)
def test_12_on_five_nodes_a_tree_is_no_half_of_a_ring(nic: str, cable: float, size: int) -> None:
    # NVIDIA/nccl #1368: 200 GB/s a node, 40 ranks. Tree: 2S out of a node, algbw 100, busbw 1.95 x 100.
    five = machine(5, cable=cable, nic=nic)
    assert algbw(five, "tree", size) * 1.95 == pytest.approx(195e9, rel=1e-3)


@pytest.mark.slow
def test_12_a_ring_has_the_whole_network_on_five_nodes() -> None:
    assert algbw(machine(5, cable=50e9, nic="ndr400:nics=4"), "ring", 16 * MIB) * 1.95 == pytest.approx(200e9, rel=1e-3)


NVLS_RATE = 309.4e9


def test_13_nvls_has_n_over_n_plus_1_of_the_wire() -> None:
    # NVIDIA/nccl #2140: S(1 + 1/8) each way. 309.4 x 8/9 = 275.0, busbw 481.3; two channels of NCCL's 16 are enough.
    few = {"NCCL_NVLS_NCHANNELS": "2"}
    wire = machine(nvlink=NVLS_RATE)
    assert further(wire, "nvls", (16 * MIB, 32 * MIB), environment=few) * 1.75 == pytest.approx(481.3e9, rel=1e-4)


@pytest.mark.slow
def test_13_a_gibibyte_by_nvls_has_481_but_for_filling() -> None:
    # All 16 channels pull their first pieces, 8 x 128 KiB each, with 7/8 of the way in idle: (9/8 S + 7/8 x 16 MiB) / B.
    seconds = run(machine(nvlink=NVLS_RATE), "nvls", GIB).time_s
    assert seconds == pytest.approx((9 / 8 * GIB + 7 / 8 * 16 * MIB) / NVLS_RATE, rel=1e-4)
    assert GIB / seconds * 1.75 == pytest.approx(481e9, rel=0.02)


def test_13_a_ring_has_the_wire() -> None:
    assert algbw(machine(nvlink=370e9), "ring", 48 * MIB) * 1.75 == pytest.approx(370e9, rel=1e-6)


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
def test_14_nvls_takes_n_over_n_minus_1_of_the_ring_where_blocks_stay_apart(collective: str) -> None:
    # NVIDIA/nccl #1083, #1047: S one way and S/8 the other, beside 7/8 S each way: 8/7 = 1.143.
    wire = machine(nvlink=370e9)
    few = {"NCCL_NVLS_NCHANNELS": "2"}
    nvls_s = run(wire, "nvls", 32 * MIB, collective, environment=few).time_s
    ring_s = run(wire, "ring", 32 * MIB, collective).time_s
    assert nvls_s / ring_s == pytest.approx(8 / 7, rel=1e-4)


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
@pytest.mark.parametrize("size", [32 * MIB, 8 * GIB])
def test_14_on_one_node_nvls_is_chosen_for_all_reduce_only(collective: str, size: int) -> None:
    group = communicator(topologies.build("hgx-h100"))
    assert choose(group, "all_reduce", size).algorithm == "nvls"
    assert choose(group, collective, size).algorithm == "ring"


FEW = {"NCCL_NVLS_NCHANNELS": "2"}
"""As fast as sixteen where GPUs cost nothing, and sooner at the rate of the links."""


def test_15_trees_of_nvls_gain_on_two_nodes_only() -> None:
    # NVIDIA/nccl #1221: 330 GB/s a node, NVLink 370. Two nodes: S out of a node, so that 330 x 15/8 = 618.75 is what the
    # network allows. Four: 2S out of a node inside both trees, 330/2 x 31/16 = 319.6875, below the ring's 330.
    cable = 330e9 / 8
    two, four = machine(2, cable=cable), machine(4, nvlink=370e9, cable=cable)
    assert further(two, "nvls_tree", (8 * MIB, 16 * MIB), environment=FEW) * 15 / 8 == pytest.approx(618.75e9, rel=1e-6)
    assert further(four, "nvls_tree", (8 * MIB, 16 * MIB), environment=FEW) * 31 / 16 == pytest.approx(319.6875e9, rel=1e-4)


@pytest.mark.slow
def test_15_on_two_nodes_nvlink_binds_a_little_more_than_the_network() -> None:
    # NVLink carries S (1 + 1/8): 370 x 8/9 x 15/8 = 616.7 beside the network's 618.75.
    two = machine(2, nvlink=370e9, cable=330e9 / 8)
    found = further(two, "nvls_tree", (128 * MIB, 256 * MIB), environment=FEW)
    assert found * 15 / 8 == pytest.approx(370e9 * 8 / 9 * 15 / 8, rel=1e-6)


@pytest.mark.slow
def test_15_on_four_nodes_the_ring_is_a_little_better() -> None:
    assert algbw(machine(4, nvlink=370e9, cable=330e9 / 8), "ring", 16 * MIB) * 31 / 16 == pytest.approx(330e9, rel=1e-6)


def hosts(count: int, *, late: float = 0.0, rate: float = FAST) -> "Graph":
    """Return hosts of one GPU and one NIC; the cables that leave them have the latency and the rate."""
    nodes: dict[str, Any] = {"network": {"kind": "network_switch"}}
    links: list[dict[str, Any]] = []
    near = {"latency": "0 s", "bandwidth": f"{FAST / 1e9} GB/s"}
    for number in range(count):
        host = {"host": f"host{number}"}
        gpu, nic, cpu = (f"{kind}{number}" for kind in ("gpu", "nic", "cpu"))
        nodes |= {
            gpu: {"kind": "gpu", "sm": 90, **host},
            cpu: {"kind": "root_complex", "cpu_vendor": "GenuineIntel", **host},
        }
        nodes[nic] = {"kind": "nic", "port": {"profile": "ndr400"}, **host}
        links += [{"between": [one, cpu], "kind": "pcie5", **near} for one in (gpu, nic)]
        links.append({"from": "network", "to": nic, **near})
        links.append({"from": nic, "to": "network", "latency": f"{late * 1e6} us", "bandwidth": f"{rate / 1e9} GB/s"})
    return custom_topology({"nodes": nodes, "links": links})


@pytest.mark.parametrize("protocol", ["simple", "ll", "ll128"])
def test_17_a_ring_has_2_n_minus_1_latencies_and_a_tree_2_log2_n(protocol: str) -> None:
    # NVIDIA/nccl #1049: 32 hosts, half a microsecond between any two: 62 and 2 x 5 of them. One element is four bytes.
    for count, levels in ((2, 1), (8, 3), (32, 5)):
        group = hosts(count, late=0.5e-6)
        assert run(group, "ring", 4, protocol=protocol).time_s == pytest.approx((count - 1) * 1e-6)
        assert run(group, "tree", 4, protocol=protocol).time_s == pytest.approx(levels * 1e-6)


@pytest.mark.parametrize(("late_us", "GBps"), [(250, 8.216), (10, 50), (0, 50)])
def test_20_a_long_cable_is_limited_by_what_may_be_outstanding(late_us: float, GBps: float) -> None:  # noqa: N803
    # NVIDIA/nccl-tests #241: eight slots of 512 KiB are 4 MiB a channel. There and back takes 500 us, a slot's own bytes
    # 10.5 us at 50 GB/s: 4 MiB / 510.5 us = 8.216 GB/s, whatever the size; 10 us each way fit into 4 MiB / 50 GB/s = 84 us.
    late = late_us * 1e-6
    far = hosts(2, late=late, rate=50e9)
    times = []
    for size in (64 * MIB, 128 * MIB):
        made = plan(communicator(far), "broadcast", size, "ring", "simple", channels=1, costs=replace(FREE, credit_s=late))
        times.append(simulate(far, ring.build(made), record="summary").time_s)
    assert 64 * MIB / (times[1] - times[0]) == pytest.approx(GBps * 1e9, rel=1e-3)


@pytest.mark.parametrize("nodes", [2, 4, *(pytest.param(nodes, marks=pytest.mark.slow) for nodes in (6, 8, 16))])
def test_21_all_to_all_has_the_rate_of_a_nic_times_n_over_n_minus_1(nodes: int) -> None:
    # NVIDIA/nccl-tests #130, #267: a GPU sends (N - 1)/N of its bytes through its NIC: 100, 66.7, 60, 57.1, 53.3 GB/s.
    found = algbw(machine(nodes, cable=50e9), "p2p", nodes * 8 * 64 * KIB, "alltoall")
    assert found == pytest.approx(50e9 * nodes / (nodes - 1), rel=1e-3)


def railed(nodes: int, *, spine: bool) -> "Graph":
    """Return servers of two PCI Express switches with four GPUs and a NIC of 20 GB/s each, on a network of their own."""
    parts: dict[str, Any] = {f"rail{side}": {"kind": "network_switch"} for side in (0, 1)}
    cables = [("rail0", "rail1", FAST, "network")] if spine else []
    for node in range(nodes):
        host = f"node{node}"
        parts |= {f"{host}/gpu{gpu}": {"kind": "gpu", "host": host, "sm": 89} for gpu in range(8)}
        for side in (0, 1):
            parts[f"{host}/cpu{side}"] = {"kind": "root_complex", "host": host, "cpu_vendor": "AuthenticAMD"}
            parts[f"{host}/pcie{side}"] = {"kind": "pcie_switch", "host": host}
            parts[f"{host}/nic{side}"] = {"kind": "nic", "host": host, "port": {"profile": "ndr400"}}
            below = [f"{host}/cpu{side}", f"{host}/nic{side}", *(f"{host}/gpu{side * 4 + place}" for place in range(4))]
            cables += [(f"{host}/pcie{side}", other, 48e9, "pcie5") for other in below]
            cables.append((f"{host}/nic{side}", f"rail{side}", 20e9, "ndr400"))
        cables.append((f"{host}/cpu0", f"{host}/cpu1", 48e9, "socket_amd"))
    links = [
        {"between": [one, other], "latency": "0 s", "bandwidth": f"{rate / 1e9} GB/s", "kind": kind}
        for one, other, rate, kind in cables
    ]
    return custom_topology({"nodes": parts, "links": links})


def alternating(graph: "Graph") -> Communicator:
    """Return the servers with two rings that enter at one NIC and leave at the other, each the other way round."""
    up = tuple(range(8))
    orders = (ChannelOrder(up, nic_in=0, nic_out=1), ChannelOrder(up[::-1], nic_in=1, nic_out=0))
    rings = ChannelGraph(RING, RING_PATTERN, orders, 20.0, 20.0, "SYS", "PXB", cross_nic=2)
    found = communicator(graph)
    return replace(found, graphs={RING: rings})


@pytest.mark.parametrize("nodes", [2, 4])
def test_22_rings_that_alternate_rails_use_both_nics_of_an_even_number_of_nodes(nodes: int) -> None:
    # NVIDIA/nccl #1856: two rings of 20 GB/s, each in by one NIC and out by the other; busbw 40.
    graph = railed(nodes, spine=False)
    ranks = 8 * nodes
    found = algbw(graph, "ring", ranks * MIB, "all_gather", group=alternating(graph))
    assert found * (ranks - 1) / ranks == pytest.approx(40e9, rel=0.01)


def test_22_an_odd_number_does_not_close_and_the_nodes_are_named() -> None:
    graph = railed(3, spine=False)
    with pytest.raises(FabricError, match="no route from 'node2/gpu0' to 'node0/gpu7': no network joins .* by a spine"):
        run(graph, "ring", 24 * MIB, "all_gather", group=alternating(graph))


def test_22_where_rails_are_joined_an_odd_number_is_as_fast() -> None:
    graph = railed(3, spine=True)
    found = algbw(graph, "ring", 24 * MIB, "all_gather", group=alternating(graph))
    assert found * 23 / 24 == pytest.approx(40e9, rel=0.01)
