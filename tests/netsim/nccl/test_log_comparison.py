from dataclasses import replace
from pathlib import Path

import pytest

from netsim.nccl.availability import Options
from netsim.nccl.channels import operation, total_channels
from netsim.nccl.communicator import Communicator
from netsim.nccl.connect import ring, tree
from netsim.nccl.from_topology import communicator as communicator_of
from netsim.nccl.graphs import ChannelGraph, ChannelOrder
from netsim.nccl.log import parse_log, read_log
from netsim.nccl.log_comparison import Comparison, compare
from netsim.nccl.tuner import choose, cost_table
from netsim.nccl.tuner_costs import TUNED
from netsim.nccl.version import Version
from tests.netsim.nccl.tuner_machines import h100x8
from topologies import build

WHO = "a:1:2 [0] NCCL INFO "
ORDERS = (ChannelOrder((0, 1), 0, 1), ChannelOrder((1, 0), 1, 0))
TWO_NODES = Communicator(
    ((0, 1), (2, 3)),
    {
        "ring": ChannelGraph("ring", 4, ORDERS, 40.0, 40.0, "NVL", "PIX", cross_nic=2, same_channels=False),
        "tree": ChannelGraph("tree", 3, ORDERS, 80.0, 40.0, "NVL", "PIX", cross_nic=2, same_channels=False),
    },
    nics_per_node=2,
    net_GBps=50.0,
    version=Version(2, 28, 9),
)
FUNCTIONS = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"} | {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}


def said_of(machine: Communicator, sizes: tuple[int, ...] = (8, 65536, 1 << 24)) -> str:
    """Return what NCCL would print if the prediction were true."""
    channels = total_channels(machine)
    lines = [
        f"NCCL version {machine.version}+cuda12",
        f"{WHO}comm 0x1 rank 0 nRanks {machine.ranks} nNodes {len(machine.nodes)} localRanks 2 localRank 0 MNNVL 0",
    ]
    lines += [
        f"{WHO}Pattern {graph.pattern}, crossNic {graph.cross_nic}, nChannels {graph.channels}, bw {graph.intra_GBps:f}/"
        f"{graph.inter_GBps:f}, type {graph.type_intra}/{graph.type_inter}, sameChannels {int(graph.same_channels)}"
        for graph in machine.graphs.values()
    ]
    searched = machine.graphs["ring"].channels
    for channel in range(channels):
        ranks = ring(machine, channel % searched)
        lines.append(f"{WHO}Channel {channel:02}/{channels:02} : " + " ".join(map(str, ranks)))
        whole = tree(machine, channel % searched, second=channel >= searched)
        for rank in range(machine.ranks):
            below = "/".join(map(str, (*whole.children[rank], -1, -1, -1)[:3]))
            lines.append(f"{WHO}Trees [{channel}] {below}->{rank}->{whole.parent[rank]}")
    for collective in TUNED:
        for (algorithm, protocol), cost in cost_table(machine, collective).items():
            lines.append(f"{WHO}Latency/AlgBw | {algorithm.replace('_', '')}/{protocol} |")
            lines.append(f"{WHO}{FUNCTIONS[collective]} | {cost.latency_us:.1f}/ {cost.bandwidth_GBps:.1f} |")
        for size in sizes:
            whole_size = -(-size // machine.ranks) * machine.ranks
            choice = choose(machine, collective, whole_size)
            ran = operation(machine, collective, choice.algorithm, choice.protocol, whole_size)
            printed = whole_size // (machine.ranks if collective in ("all_gather", "reduce_scatter") else 1)
            lines.append(
                f"{WHO}{FUNCTIONS[collective]}: {printed} Bytes -> Algo {choice.algorithm.upper()} proto "
                f"{choice.protocol.upper()} channel{{Lo..Hi}}={{0..{ran.channels - 1}}}"
            )
    return "\n".join(lines) + "\n"


# Rings are 0 1 | 3 2 and 0 2 | 3 1: on node 1 the two channels change places, so that data stays on its rail.
WIRES = (
    f"{WHO}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    f"{WHO}Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/1/GDRDMA\n"
    f"{WHO}Channel 00/0 : 1[1] -> 3[1] [receive] via NET/IB/1/GDRDMA\n"
    f"{WHO}Channel 00/0 : 2[0] -> 0[0] [send] via NET/IB/0/GDRDMA\n"
    f"{WHO}Channel 00/0 : 2[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    f"{WHO}Channel 01/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA\n"
)


def held(text: str, machine: Communicator = TWO_NODES) -> Comparison:
    return compare(parse_log(text), machine)


def test_what_is_predicted_and_printed_agrees_and_is_counted() -> None:
    found = held(said_of(TWO_NODES) + WIRES)
    assert (found.differences, found.skipped) == ([], [])
    # Two searched channels are four. Of each of two graphs eight values; five collectives at three sizes; five ends of
    # connections over the network have a NIC.
    kept = ("release", "ranks", "nodes", "graphs", "channel counts", "rings", "trees", "choices", "channels of choices")
    assert [found.agreed[kind] for kind in kept] == [1, 1, 1, 16, 1, 4, 4, 15, 15]
    assert [found.agreed[kind] for kind in ("connections", "NICs", "GPUDirect RDMA")] == [6, 5, 5]
    assert found.agreed["tuner table"] == sum(len(cost_table(TWO_NODES, collective)) for collective in TUNED)


def test_nvls_agrees_with_itself() -> None:
    machine = h100x8()
    found = held(said_of(machine), machine)
    assert found.differences == []
    assert found.agreed["rings"] == 24


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("NCCL version 2.28.9", "NCCL version 2.27.3", "release: 2.27.3 in the log, 2.28.9 predicted"),
        ("nNodes 2", "nNodes 4", "nodes: 4 in the log, 2 predicted"),
        ("bw 40.0", "bw 48.0", "ring graph, GB/s inside nodes: 48.0 in the log, 40.0 predicted"),
        ("Pattern 3", "Pattern 1", "tree graph, pattern: 1 in the log, 3 predicted"),
        ("Channel 00/04 : 0 1 3 2", "Channel 00/04 : 0 1 2 3", "ring of channel 0: 0 1 2 3 in the log, 0 1 3 2 predicted"),
        ("/04 :", "/08 :", "coll channels: 8 in the log, 4 predicted"),
        ("via P2P/CUMEM", "via SHM/direct", "connections inside nodes: 1 are shm in the log, p2p predicted"),
        (
            "0[0] -> 2[0] [send] via NET/IB/0",
            "0[0] -> 2[0] [send] via NET/IB/1",
            "NIC of 1 ring ends on node 0: 1 in the log, 0",
        ),
        (
            "[send] via NET/IB/1/GDRDMA",
            "[send] via NET/IB/1",
            "connections over the network: 1 are without GPUDirect RDMA in the log, with GPUDirect RDMA predicted",
        ),
        (
            # Tree: 6.8 + 2 (0.6 + 5.0) = 18.0 us; ring: 6.6 + 4 x 1.0 + 2 x 2.7 = 16.0 us.
            "AllReduce: 8 Bytes -> Algo RING proto LL ",
            "AllReduce: 8 Bytes -> Algo TREE proto LL128 ",
            "all_reduce of 8 bytes: tree ll128 in the log, ring ll predicted",
        ),
        (
            "AllGather: 2 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
            "AllGather: 2 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}",
            "all_gather of 8 bytes by ring ll, channels: 4 in the log, 1 predicted",
        ),
    ],
)
def test_what_differs_is_said_with_both_values(before: str, after: str, words: str) -> None:
    text = said_of(TWO_NODES) + WIRES
    assert before in text
    differences = held(text.replace(before, after)).differences
    assert any(said.startswith(words) for said in differences), differences
    assert all("\n" not in said for said in differences)


def test_alike_differences_of_several_channels_are_said_once() -> None:
    text = said_of(TWO_NODES).replace("/04 : 0 1 3 2", "/04 : 0 1 2 3")
    assert held(text).differences == ["ring of channels 0, 2: 0 1 2 3 in the log, 0 1 3 2 predicted"]


def test_only_the_ranks_of_a_tree_that_differ_are_said() -> None:
    # Chains 0 1 and 2 3, rank 2 below rank 0 in the first tree.
    text = said_of(TWO_NODES)
    assert f"{WHO}Trees [0] " in text
    one = "Trees [0] -1/-1/-1->1->0"
    assert one in text
    assert held(text.replace(one, "Trees [0] 2/-1/-1->1->0")).differences == [
        "tree of channel 0: rank 1 below 0 above 2 in the log, rank 1 below 0 above none predicted"
    ]


def test_the_table_is_compared_to_the_printed_digit() -> None:
    cost = cost_table(TWO_NODES, "all_reduce")["ring", "simple"]
    head = f"NCCL version 2.28.9\n{WHO}Latency/AlgBw | Ring/Simple | NVLS/Simple |\n{WHO}AllReduce | "
    shown = f"{cost.latency_us:.1f}/ {cost.bandwidth_GBps:.1f}"
    assert held(f"{head}{shown} | 1.0/ 0.0 |\n").agreed["tuner table"] == 2
    more = f"{cost.latency_us + 0.1:.1f}/ {cost.bandwidth_GBps:.1f}"
    assert "tuner table, all_reduce by ring simple: " in held(f"{head}{more} | 1.0/ 0.0 |\n").differences[0]
    assert held(f"{head}{shown} | 25.0/ 100.0 |\n").differences == [
        "tuner table, all_reduce by nvls simple: 25.0 us and 100.0 GB/s in the log, cannot run predicted"
    ]


def test_variables_of_the_log_and_of_the_prediction_are_compared_first() -> None:
    text = f"{WHO}NCCL_ALGO set by environment to Ring\n{WHO}NCCL_SHM_DISABLE set by environment to 1.\n"
    found = held(text)
    assert found.differences == ["environment: NCCL_ALGO=Ring in the log, not given in the prediction"]
    assert found.skipped[0].startswith("NCCL_SHM_DISABLE=1 of the log is not modelled")
    assert held(text, replace(TWO_NODES, environment={"NCCL_ALGO": "ring"})).agreed["environment"] == 1


def test_the_prediction_heeds_the_variables() -> None:
    ran = f"{WHO}AllReduce: 8 Bytes -> Algo TREE proto LL channel{{Lo..Hi}}={{0..0}}\n"
    assert held(ran).differences == ["all_reduce of 8 bytes: tree ll in the log, ring ll predicted"]
    assert held(ran, replace(TWO_NODES, environment={"NCCL_ALGO": "tree"})).differences == []
    one = f"{WHO}AllReduce: 16777216 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..0}}\n"
    few = replace(TWO_NODES, environment={"NCCL_ALGO": "ring", "NCCL_PROTO": "simple", "NCCL_MAX_NCHANNELS": "1"})
    assert held(one, few).differences == []


def test_what_cannot_run_by_the_variables_is_a_difference_in_words() -> None:
    none = replace(TWO_NODES, environment={"NCCL_ALGO": "pat"})
    ran = f"{WHO}AllReduce: 8 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}\n"
    said = held(ran, none).differences
    assert len(said) == 1
    assert said[0].startswith("all_reduce of 8 bytes: ring ll in the log, but all_reduce: NCCL 2.28.9 cannot run")


def test_guesses_of_nccl_are_compared_where_they_are_printed() -> None:
    guess = choose(TWO_NODES, "all_reduce", 8).predicted_us
    assert held(f"{WHO}AllReduce: 8 Bytes -> Algo 1 proto 0 time {guess:f}\n").agreed["guessed times"] == 1
    said = held(f"{WHO}AllReduce: 8 Bytes -> Algo 1 proto 0 time {2 * guess:f}\n").differences
    assert "NCCL's own guess" in said[0]


def test_nics_that_are_only_counted_otherwise_are_no_difference() -> None:
    turned = WIRES.replace("IB/0", "IB/7").replace("IB/1", "IB/0").replace("IB/7", "IB/1")
    found = held(said_of(TWO_NODES) + turned)
    assert found.differences == []
    assert found.agreed["NICs"] == 5
    assert found.skipped == ["the numbers of NICs, which the log counts otherwise: 0 there is 1 here, 1 there is 0 here"]


def test_another_number_of_ranks_ends_the_comparison() -> None:
    found = held(said_of(TWO_NODES), h100x8(Version(2, 28, 9)))
    assert found.differences == ["ranks: 4 in the log, 8 predicted", "nodes: 2 in the log, 1 predicted"]
    assert found.skipped == ["everything else, because the numbers of ranks differ"]


def test_what_the_log_leaves_open_is_said() -> None:
    two = f"{WHO}comm 0x1 rank 0 nranks 4 commId 0xa - Init START\n{WHO}comm 0x2 rank 0 nranks 2 commId 0xb - Init START\n"
    ran = f"{WHO}AllReduce: 8 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}\n"
    assert held(two + ran).skipped == ["what ran, because the log does not say on which of 2 communicators"]
    unnamed = f"{WHO}8 Bytes -> Algo 1 proto 0 time 9.0\n"
    assert held(unnamed).skipped == ["1 operations of which the log does not say the collective"]
    symmetric = f"{WHO}AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1\n"
    assert held(symmetric + ran).skipped == ["operations that did not go by algorithm and protocol: 1 by Symmetric"]
    assert "the log is of RCCL" in held("RCCL version 2.22.3\n").skipped[0]
    assert "the release: NCCL 2.9.6 is not covered" in held("NCCL version 2.9.6\n").skipped[0]


def test_options_of_the_operations_are_heeded() -> None:
    # The switch does not add int8, so NVLS cannot run.
    machine = h100x8(Version(2, 28, 9))
    text = f"{WHO}AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..23}}\n"
    assert compare(parse_log(text), machine).differences == [
        "all_reduce of 1073741824 bytes: ring simple in the log, nvls simple predicted"
    ]
    assert compare(parse_log(text), machine, options=Options(datatype="int8")).differences == []


def test_two_measured_h200s_did_what_is_predicted_from_their_topology(shared: Path) -> None:
    folder = shared / "samples" / "h200x2"
    graph = build(str(folder / "nccl_topo_h200x2_vm.xml"))
    machine = communicator_of(graph, Version(2, 28, 9), environment={"NCCL_NVLS_ENABLE": "0"})
    found = compare(read_log(folder / "nccl_tests_all_reduce_debug_info.log"), machine)
    assert (found.differences, found.skipped) == ([], [])
    # 24 channels, each with a ring, a tree and a connection each way; 5 collectives by 7 algorithms by 3 protocols; two
    # graphs by five values; 8 B to 1 MiB by factors of two.
    assert found.agreed == {
        **{
            "release": 1,
            "environment": 1,
            "ranks": 1,
            "nodes": 1,
            "graphs": 10,
            "channel counts": 1,
            "rings": 24,
            "trees": 24,
        },
        **{"connections": 48, "tuner table": 105, "choices": 18, "channels of choices": 18},
    }
