from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError
from netsim.nccl.log import Connection, Log, Operation, Searched, parse_log, read_log
from netsim.nccl.version import Version

WHO = "a:1:2 [0] NCCL INFO "


@pytest.fixture(scope="module")
def two_nodes(repository: Path) -> Log:
    return read_log(repository / "tests" / "data" / "nccl_debug_two_nodes.log")


def test_release_ranks_and_nodes_are_read(two_nodes: Log) -> None:
    assert (two_nodes.maker, two_nodes.release, two_nodes.version) == ("NCCL", "2.28.9", Version(2, 28, 9))
    assert (two_nodes.communicators, two_nodes.ranks, two_nodes.nodes, two_nodes.ranks_per_node) == (1, 4, 2, 2)


def test_variables_are_read(two_nodes: Log) -> None:
    assert two_nodes.environment == {"NCCL_IB_HCA": "mlx5", "NCCL_CROSS_NIC": "2"}


def test_heads_of_graphs_are_read(two_nodes: Log) -> None:
    assert two_nodes.graphs == {
        "ring": Searched(4, 2, 2, 48.0, 48.0, "NVL", "PIX", False),
        "tree": Searched(3, 2, 2, 96.0, 48.0, "NVL", "PIX", False),
    }


def test_a_torn_ring_is_put_together_from_what_the_ranks_say(two_nodes: Log) -> None:
    assert two_nodes.rings == {0: (0, 1, 3, 2), 1: (0, 2, 3, 1), 2: (0, 1, 3, 2)}


def test_trees_are_read_in_both_forms(two_nodes: Log) -> None:
    nothing: frozenset[int] = frozenset()
    assert two_nodes.trees == {
        0: {0: (-1, frozenset({1, 2})), 1: (0, nothing), 2: (0, frozenset({3}))},
        1: {0: (1, nothing), 1: (-1, frozenset({0, 3}))},
    }


def test_channels_are_counted_by_kind(two_nodes: Log) -> None:
    assert two_nodes.channels == 4
    assert two_nodes.channel_counts == {"coll": 4, "collnet": 4, "nvls": 0, "p2p": 4, "p2p per peer": 2}


def test_connections_of_rings_and_trees_are_read_with_nic_and_gdr(two_nodes: Log) -> None:
    assert two_nodes.connections == (
        Connection(0, 0, 1, "p2p"),
        Connection(0, 1, 3, "net", "send", "IB", 1, True),
        Connection(0, 1, 3, "net", "receive", "IBext_v8", 1, True, through=2),
        Connection(0, 3, 2, "shm"),
    )
    assert (two_nodes.pxn, two_nodes.gdr) == (False, True)


def test_the_tuners_table_is_read(two_nodes: Log) -> None:
    assert two_nodes.table == {
        ("all_reduce", "tree", "ll"): (9.5, 10.1),
        ("all_reduce", "tree", "ll128"): (20.5, 0.0),
        ("all_reduce", "tree", "simple"): (30.5, 40.1),
        ("all_reduce", "ring", "ll"): (7.5, 20.0),
        ("all_reduce", "ring", "ll128"): (11.5, 0.0),
        ("all_reduce", "ring", "simple"): (12.5, 96.0),
    }


def test_what_ran_is_counted_also_where_rows_are_torn(two_nodes: Log) -> None:
    assert two_nodes.operations == {
        Operation("all_reduce", 8, "tree", "ll", 1): 2,
        Operation("all_gather", 4096, "ring", "simple", 4): 1,
    }
    assert two_nodes.special == {"Symmetric": 1}


def test_torn_lines_are_counted(two_nodes: Log) -> None:
    # A ring cut after three ranks, a NIC without number, an algorithm without its end.
    assert two_nodes.unread == 3


def test_sizes_are_those_of_nccl_tests() -> None:
    # Lines with channels print the block of one rank, lines with a time what a rank sends or receives in all.
    assert Operation("all_gather", 4096, "ring", "simple", 4).size_bytes(4) == 16384
    assert Operation("all_gather", 4096, "ring", "simple", predicted_us=5.0).size_bytes(4) == 4096
    assert Operation("all_reduce", 4096, "ring", "simple", 4).size_bytes(4) == 4096


def test_operations_of_older_releases_have_numbers_and_a_time() -> None:
    log = parse_log(
        f"{WHO}AllReduce: 8 Bytes -> Algo 1 proto 0 time 8.500000\n"
        "# Collective test starting: reduce_scatter_perf\n"
        f"{WHO}8589934592 Bytes -> Algo 4 proto 2 time 86069.968750\n"
    )
    assert list(log.operations) == [
        Operation("all_reduce", 8, "ring", "ll", predicted_us=8.5),
        Operation("reduce_scatter", 8589934592, "nvls", "simple", predicted_us=86069.96875),
    ]
    unnamed = parse_log(f"{WHO}16 Bytes -> Algo 0 proto 1 time 3.5")
    assert list(unnamed.operations) == [Operation(None, 16, "tree", "ll128", predicted_us=3.5)]


def test_names_with_underscores_and_without_are_the_same() -> None:
    said = "AllReduce: 8 Bytes -> Algo {} proto SIMPLE channel{{Lo..Hi}}={{2..5}}\n"
    log = parse_log("".join(WHO + said.format(name) for name in ("COLLNET_DIRECT", "NVLSTree")))
    assert [(ran.algorithm, ran.channels) for ran in log.operations] == [("collnet_direct", 4), ("nvls_tree", 4)]


def test_the_table_of_older_releases_stands_in_one_line() -> None:
    log = parse_log(
        f"{WHO}Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Ring/Simple | CollNet/    LL |\n"
        f"{WHO}     Max NThreads |            512 |            640 |            512 |            512 |\n"
        f"{WHO}    AllGather |     0.0/   0.0 |     0.0/   0.0 |    18.0/   9.0 |     4.5/   1.5 |\n"
    )
    assert log.table == {
        ("all_gather", "tree", "ll"): (0.0, 0.0),
        ("all_gather", "tree", "ll128"): (0.0, 0.0),
        ("all_gather", "ring", "simple"): (18.0, 9.0),
        ("all_gather", "collnet_direct", "ll"): (4.5, 1.5),
    }


@pytest.mark.parametrize(
    "before",
    ["", "[1,0]<stdout>:", "0: ", "[0] ", "\x1b[32m", "2026-01-02T03:04:05Z stdout F ", "(Worker pid=7) ", "23.31  N/A"],
)
def test_what_launchers_and_other_processes_put_in_front_does_not_matter(before: str) -> None:
    clean = f"{WHO}ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 commId 0x2 - Init START\n" * 3
    log = parse_log(clean + f"{before}{WHO}Channel 00/02 :    0   1\n")
    assert log.rings == {0: (0, 1)}


def test_a_line_behind_another_one_without_its_end_is_read() -> None:
    begin = f"{WHO}comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
    log = parse_log(
        f"{begin}{begin}{WHO}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC{WHO}Channel 01/0 : 1[1] -> 0[0] via P2P/IPC\n"
    )
    assert log.connections == (Connection(0, 0, 1, "p2p"), Connection(1, 1, 0, "p2p"))


def test_lines_without_any_host_are_read() -> None:
    assert parse_log("NCCL INFO Channel 00/01 : 0 2 1\n").rings == {0: (0, 2, 1)}


def test_of_several_communicators_the_largest_is_told() -> None:
    log = parse_log(
        "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 commId 0xa - Init START\n"
        "a:1:2 [0] NCCL INFO Channel 00/02 : 0 1\n"
        "a:1:3 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 0 nranks 3 commId 0xb - Init START\n"
        "a:1:3 [0] NCCL INFO Channel 00/04 : 0 2 1\n"
        "a:1:2 [0] NCCL INFO Channel 01/02 : 0 1\n"
        "a:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    )
    assert (log.communicators, log.ranks, log.channels, log.rings) == (2, 3, 4, {0: (0, 2, 1)})
    # Which one the late connection belongs to cannot be told.
    assert log.connections == ()


def test_connections_made_late_belong_to_the_only_communicator() -> None:
    begin = "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 commId 0xa - Init START\n"
    late = "a:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    assert parse_log(begin + late).connections == (Connection(0, 0, 1, "p2p"),)


def test_a_connection_that_names_its_communicator_belongs_to_that() -> None:
    begin = "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x{0} rank 0 nranks {0} commId 0x{0} - Init START\n"
    late = "a:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0x{0} nRanks {0}\n"
    log = parse_log(begin.format(2) + begin.format(3) + late.format(2) + late.format(3).replace("0[0] -> 1", "1[0] -> 2"))
    assert log.connections == (Connection(0, 1, 2, "p2p"),)


def test_a_ring_of_many_ranks_may_be_cut() -> None:
    begin = f"{WHO}comm 0x1 rank 0 nRanks 400 nNodes 50 localRanks 8 localRank 0\n"
    told = " ".join(map(str, range(200)))
    assert parse_log(f"{begin}{WHO}Channel 00/02 : {told}\n").rings == {0: tuple(range(200))}


def test_a_circle_that_leaves_ranks_out_is_no_ring() -> None:
    said = "".join(f"{WHO}Ring 00 : 0 -> {rank} -> {after}\n" for rank, after in ((0, 1), (1, 1), (2, 0)))
    assert parse_log(f"{WHO}comm 0x1 rank 0 nRanks 3 nNodes 1 localRanks 3\n{said}").rings == {}


def test_a_number_that_is_none_is_torn() -> None:
    log = parse_log(f"{WHO}Latency/AlgBw | Ring/ LL |\n{WHO} AllReduce | 1..2/ 3.0 |\n")
    assert (log.table, log.unread) == ({}, 1)


@pytest.mark.parametrize("ring", ["0 1 1", "0 1 5", "0 1"])
def test_a_ring_that_none_can_be_is_counted_as_torn(ring: str) -> None:
    log = parse_log(f"{WHO}comm 0x1 rank 0 nRanks 3 nNodes 1 localRanks 3\n{WHO}Channel 00/02 : {ring}\n")
    assert (log.rings, log.unread) == ({}, 1)


def test_the_release_may_be_one_that_is_not_covered_or_another_library() -> None:
    old = parse_log("NCCL version 2.9.6+cuda11.2\n")
    assert (old.release, old.version) == ("2.9.6", None)
    assert parse_log("[0] RCCL version : 2.22.3-HEAD:abc\n").maker == "RCCL"
    assert parse_log("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=23007\n").version == Version(2, 30, 7)


def test_a_file_in_which_nccl_says_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quiet.log"
    path.write_text("# size count\n 8 2 float sum\n", encoding="utf-8")
    with pytest.raises(NetsimError, match="quiet.log: NCCL says nothing in it; a log printed with NCCL_DEBUG=INFO"):
        read_log(path)
    with pytest.raises(NetsimError, match="does not exist"):
        read_log(tmp_path / "none.log")


PIECES = st.sampled_from(
    (
        *(
            WHO,
            "Channel 00/02 : ",
            "0 1",
            "Trees [0] ",
            "1/-1/-1->0->-1",
            " | ",
            "AllReduce",
            " 8 Bytes -> Algo ",
            "9" * 5000,
        ),
        *(
            "comm 0x1 rank 0 nranks ",
            "Algorithm",
            "Latency/AlgBw | Ring/ LL |",
            "1..2/ 3",
            "/",
            "\n",
            "Ring 00 : 0 -> 0 -> 0",
        ),
        "Pattern 4, crossNic 0, nChannels 1, bw 1..2/3, type A/B, sameChannels 1",
    )
)


@given(st.lists(PIECES, max_size=12), st.text(max_size=20))
def test_no_text_is_too_broken_to_be_read(pieces: list[str], rest: str) -> None:
    text = "".join(pieces) + rest
    assert isinstance(parse_log(text), Log)
    assert parse_log(text) == parse_log(text)
