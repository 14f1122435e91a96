import pytest

from netsim.errors import NetsimError
from netsim.nccl.communicator import Communicator
from netsim.nccl.tuner import Cost, Options, choose, predicted_us, total_channels
from netsim.nccl.version import Version
from tests.netsim.nccl.tuner_machines import h100_nodes, h100x8, machine, two_h200

MIB = 2**20
EVERY_TREE = [("tree", protocol) for protocol in ("ll", "ll128", "simple")]


def tree_us(communicator: Communicator, size: int, protocol: str = "simple", algorithm: str = "tree") -> float:
    """Return what a cost of no latency and 1 GB/s predicts, so bytes / 1000 over the correction."""
    return predicted_us(Cost(0, 1), communicator, "all_reduce", algorithm, protocol, size)


@pytest.mark.parametrize(
    ("size", "protocol", "factor"),
    [
        (63, "simple", 1),  # below the table
        (64, "simple", 0.9),  # entry 0
        (127, "simple", 0.9),
        (512 * 1024, "ll", 0.4),  # entry 13
        (MIB, "ll128", 0.6),  # entry 14
        (512 * MIB - 1, "simple", 0.9),  # entry 22
        (512 * MIB, "simple", 1),  # past it
    ],
)
def test_a_tree_is_corrected_by_powers_of_two_from_64_b_to_512_mib(size: int, protocol: str, factor: float) -> None:
    assert tree_us(h100x8(), size, protocol) == pytest.approx(size / 1000 / factor)


def test_an_nvls_tree_is_corrected_on_blackwell_with_intel_or_amd_hosts_from_2_29_on() -> None:
    def factor(capability: int, version: Version, arch: str) -> float:
        nodes = machine(2, 8, (8, 48), nvls=(8, 40, 48), capability=capability, version=version, cpu_arch=arch)
        return MIB / 1000 / tree_us(nodes, MIB, algorithm="nvls_tree")

    newer, older = Version(2, 29, 2), Version(2, 28, 9)
    assert factor(100, newer, "x86_64") == pytest.approx(0.5)  # entry 14
    assert factor(100, newer, "arm64") == factor(90, newer, "x86_64") == factor(100, older, "x86_64") == 1


def test_a_ring_over_nodes_counts_its_latency_more_once_its_pieces_reach_64_b() -> None:
    # 16 channels x 16 ranks x 64 B = 16 KiB.
    def latency(communicator: Communicator, size: int, protocol: str = "simple") -> float:
        return predicted_us(Cost(100, 1e9), communicator, "all_reduce", "ring", protocol, size)

    hopper, volta = h100_nodes(2), machine(2, 8, (4, 12), capability=70)
    assert total_channels(hopper) == 16
    assert latency(hopper, 16 * 1024 - 1) == pytest.approx(100)
    assert latency(hopper, 16 * 1024) == pytest.approx(140)
    assert latency(volta, MIB) == pytest.approx(190)
    assert latency(hopper, MIB, "ll") == latency(h100x8(), MIB) == pytest.approx(100)
    given = predicted_us(Cost(100, 1e9), hopper, "all_reduce", "ring", "simple", 16 * 1024, channels=32)
    assert given == pytest.approx(100)  # 32 channels: 32 B
    # 2.17 asked for 4 KiB a rank and took 1.5 on Hopper.
    oldest = h100_nodes(2, Version(2, 17, 1))
    assert [latency(oldest, size) for size in (65535, 65536)] == pytest.approx([100, 150])


def test_channels_are_doubled_and_over_a_fast_network_doubled_again() -> None:
    assert total_channels(h100x8()) == 24
    assert total_channels(machine(2, 8, (4, 90))) == 16  # 8 are fewer than 16
    assert total_channels(machine(1, 8, (4, 90))) == 8
    assert total_channels(machine(1, 8, (20, 20), version=Version(2, 24))) == 32
    assert total_channels(machine(1, 8, (20, 20), version=Version(2, 25))) == 40


def test_operations_tuned_together_pay_a_rings_latency_each_and_a_trees_by_the_batch() -> None:
    def latency(algorithm: str, operations: int, version: Version) -> float:
        return predicted_us(Cost(10, 1), h100x8(version), "all_reduce", algorithm, "ll", 0, operations)

    newer, older = Version(2, 28, 9), Version(2, 20, 5)
    assert [latency("ring", count, newer) for count in (1, 3, 11)] == [10, 30, 110]
    assert [latency("tree", count, newer) for count in (1, 10, 11)] == [10, 10, 20]
    assert [latency("nvls", count, older) for count in (9, 10)] == [10, 20]


def test_the_choice_lists_the_time_of_every_candidate_in_nccls_order() -> None:
    choice = choose(two_h200(), "all_reduce", 4 * MIB)
    assert [" ".join(pair) for pair in choice.table] == [
        *("tree ll", "tree ll128", "tree simple"),
        *("ring ll", "ring ll128", "ring simple"),
    ]
    # 15.2 + 4194304 / 360000 and 7.8 + 4194304 / 141000
    assert choice.predicted_us == choice.table["ring", "simple"] == pytest.approx(15.2 + 4194.304 / 360)
    assert choice.table["ring", "ll"] == pytest.approx(7.8 + 4194.304 / 141)


def test_of_equally_fast_ones_the_tree_is_taken_before_the_ring() -> None:
    # One rank on each of two nodes: both need 8.4 + 2 x 14 us for nothing.
    nodes = machine(2, 1, (1, 2.4), types=("LOC", "PHB"))
    choice = choose(nodes, "all_reduce", 0, allowed=[("ring", "simple"), ("tree", "simple")])
    assert choice.table == {("tree", "simple"): 36.4, ("ring", "simple"): 36.4}
    assert choice.algorithm == "tree"


def test_what_is_allowed_limits_the_choice() -> None:
    choice = choose(h100x8(), "all_reduce", 1024 * MIB, allowed=EVERY_TREE)
    assert (choice.algorithm, choice.protocol) == ("tree", "simple")
    assert set(choice.table) == set(EVERY_TREE)


def test_from_2_24_on_nothing_left_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(
        NetsimError, match="broadcast: NCCL 2.24.3 cannot run tree ll, .* accepted is ring ll, ring ll128, ring s"
    ):
        choose(h100x8(Version(2, 24, 3)), "broadcast", MIB, allowed=EVERY_TREE)


def test_from_2_19_to_2_23_nothing_left_means_any_ring() -> None:
    # LL128 too, although it is not allowed and by itself off where GPUs meet over PCIe.
    pcie = machine(1, 8, (2, 12), capability=80, types=("PHB", "PIX"), version=Version(2, 23, 4))
    choice = choose(pcie, "broadcast", MIB, allowed=[("tree", "ll")])
    assert set(choice.table) == {("ring", "ll"), ("ring", "ll128"), ("ring", "simple")}
    assert choice.algorithm == "ring"
    assert ("ring", "ll128") not in choose(pcie, "broadcast", MIB).table


def test_before_2_19_only_all_reduce_can_be_left_with_nothing() -> None:
    old = h100x8(Version(2, 18, 5))
    choice = choose(old, "broadcast", MIB, allowed=[("tree", "ll")])
    assert (choice.algorithm, choice.protocol) == ("ring", "ll")
    with pytest.raises(NetsimError, match="all_reduce: NCCL 2.18.5 cannot run nvls_tree simple on this machine"):
        choose(old, "all_reduce", MIB, allowed=[("nvls_tree", "simple")])


def test_before_2_24_a_wish_for_collnet_without_collnet_is_ignored() -> None:
    collnet = [("collnet_direct", "simple"), ("collnet_chain", "simple")]
    choice = choose(h100_nodes(2, Version(2, 22, 3)), "all_reduce", MIB, allowed=collnet)
    assert set(choice.table) == {("tree", "simple"), ("ring", "simple")}
    with pytest.raises(NetsimError, match="cannot run collnet_chain simple, collnet_direct simple"):
        choose(h100_nodes(2), "all_reduce", MIB, allowed=collnet)


def test_rings_that_round_eight_bit_floats_too_often_come_last() -> None:
    fp8 = Options(datatype="f8e4m3")
    many, eight = h100_nodes(2), machine(1, 8, (12, 30))
    assert choose(many, "all_reduce", 1024 * MIB, options=fp8).algorithm == "tree"
    assert choose(many, "all_gather", 1024 * MIB, options=fp8).algorithm == "ring"
    plain = choose(many, "all_reduce", MIB).table["ring", "ll"]
    assert choose(many, "all_reduce", MIB, options=fp8).table["ring", "ll"] == pytest.approx(1024 * plain)
    assert choose(eight, "all_reduce", 1024 * MIB, options=fp8).algorithm == "ring"


def test_questions_that_nccl_does_not_ask_itself_are_refused() -> None:
    with pytest.raises(NetsimError, match="alltoall: NCCL chooses no algorithm for it; it does for all_reduce"):
        choose(h100x8(), "alltoall", MIB)
    with pytest.raises(NetsimError, match="one rank only copies"):
        choose(machine(1, 1, (1, 1)), "all_reduce", MIB)
    with pytest.raises(NetsimError, match=r"\('star', 'll'\) is no algorithm and protocol of NCCL; accepted are tree, ring"):
        choose(h100x8(), "all_reduce", MIB, allowed=[("star", "ll")])
    with pytest.raises(NetsimError, match="-1 bytes in 1 operations; accepted are 0 bytes and 1 operation up"):
        choose(h100x8(), "all_reduce", -1)
    with pytest.raises(NetsimError, match="0 bytes in 0 operations"):
        choose(h100x8(), "all_reduce", 0, operations=0)


def test_a_machine_without_any_ring_is_refused() -> None:
    with pytest.raises(
        NetsimError, match="cannot run any algorithm on this machine; accepted is nothing: no ring was found"
    ):
        choose(Communicator(((0, 1),), {}), "all_reduce", MIB)
