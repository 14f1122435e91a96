import pytest

from netsim.errors import NetsimError
from netsim.nccl.availability import Options, available
from netsim.nccl.communicator import Communicator
from netsim.nccl.tuner import cost_table
from netsim.nccl.version import Version
from tests.netsim.nccl.tuner_machines import h100_nodes, h100x8, machine

LL128 = ("all_reduce", "ring", "ll128")
NEWEST = Version(2, 30, 7)


def ll128(capability: int, types: tuple[str, str], version: Version = NEWEST, *, nodes: int = 2, **options: bool) -> bool:
    communicator = machine(nodes, 8, (4, 20), capability=capability, types=types, version=version)
    return available(communicator, *LL128, Options(**options))  # type: ignore[arg-type]


def test_ll128_needs_nvlink_inside_a_node() -> None:
    assert [ll128(80, (kind, "PIX")) for kind in ("NVL", "NVB", "C2C", "PIX", "SYS")] == [True, True, False, False, False]
    assert not ll128(70, ("NVB", "PIX"), Version(2, 17, 1))


def test_ll128_reaches_as_far_to_the_nic_as_the_gpus_allow() -> None:
    far = ("PIX", "PXB", "P2C", "PXN", "PHB")
    assert [ll128(80, ("NVL", kind)) for kind in far] == [True, True, False, False, False]
    assert [ll128(90, ("NVL", kind)) for kind in far] == [True, True, True, True, False]
    assert [ll128(90, ("NVL", kind), ll128_c2c=False) for kind in far] == [True, True, False, False, False]
    assert ll128(80, ("NVL", "SYS"), nodes=1)  # no NIC is used


def test_ll128_was_known_to_work_on_some_gpus_only_before_2_27() -> None:
    capabilities = (60, 70, 75, 80, 89, 90, 100, 103)
    by_release = {
        release: [number for number in capabilities if ll128(number, ("NVL", "PIX"), Version(*release))]
        for release in ((2, 24), (2, 26), (2, 27))
    }
    assert by_release == {(2, 24): [70, 80, 90], (2, 26): [70, 80, 90, 100], (2, 27): [70, 75, 80, 89, 90, 100, 103]}


@pytest.mark.parametrize(
    ("version", "least", "expected"), [(NEWEST, 90, True), (NEWEST, 80, False), (Version(2, 28, 9), 90, False)]
)
def test_gpus_of_two_kinds_use_ll128_from_hopper_on(version: Version, least: int, expected: bool) -> None:
    same = machine(2, 8, (4, 20), capability=least, version=version)
    mixed = Communicator(**{**vars(same), "compute_capability_max": 100})
    assert available(same, *LL128)
    assert available(mixed, *LL128) is expected


def test_ll128_that_the_user_names_runs_anywhere() -> None:
    assert ll128(60, ("SYS", "SYS"), ll128_forced=True)


def test_nvls_needs_a_switch_that_multicasts_and_by_release_two_or_three_gpus() -> None:
    def nvls(gpus: int, version: Version = NEWEST) -> bool:
        return available(machine(1, gpus, (12, 30), nvls=(gpus, 60), version=version), "all_reduce", "nvls", "simple")

    assert [nvls(gpus) for gpus in (2, 3)] == [True, True]
    assert [nvls(gpus, Version(2, 28, 3)) for gpus in (2, 3)] == [False, True]
    without = Communicator(**{**vars(h100x8()), "multicast": False})
    assert not available(without, "all_reduce", "nvls", "simple")


def test_nvls_of_one_channel_is_not_considered_from_2_28_on() -> None:
    def nvls(version: Version) -> bool:
        return available(machine(1, 8, (12, 30), nvls=(1, 40), version=version), "all_reduce", "nvls", "simple")

    assert [nvls(Version(*release)) for release in ((2, 27, 3), (2, 28, 3))] == [True, False]


@pytest.mark.parametrize(
    ("datatype", "operator", "expected"),
    [
        *(("float", "sum", True), ("float", "max", False), ("half", "max", True), ("half", "avg", False)),
        *(("int32", "min", True), ("int8", "sum", False), ("f8e4m3", "sum", False), ("double", "prod", False)),
    ],
)
def test_the_switch_reduces_some_types_and_operators(datatype: str, operator: str, expected: bool) -> None:
    options = Options(datatype, operator)
    assert available(h100x8(), "all_reduce", "nvls", "simple", options) is expected
    assert available(h100_nodes(2), "all_reduce", "nvls_tree", "simple", options) is expected
    assert available(h100x8(), "all_gather", "nvls", "simple", options)  # it only copies


def test_over_nodes_nvls_is_a_tree_unless_the_network_reduces() -> None:
    def algorithms(communicator: Communicator, collective: str) -> set[str]:
        return {algorithm for algorithm, _ in cost_table(communicator, collective)}

    assert algorithms(h100x8(), "all_reduce") == {"tree", "ring", "nvls"}
    assert algorithms(h100_nodes(2), "all_reduce") == {"tree", "ring", "nvls_tree"}
    assert algorithms(h100_nodes(2), "reduce_scatter") == {"ring"}
    sharp = h100_nodes(2, collnet=(8, 40, 48))
    assert algorithms(sharp, "all_reduce") == {"tree", "ring", "nvls", "nvls_tree", "collnet_direct", "collnet_chain"}
    assert algorithms(sharp, "broadcast") == algorithms(sharp, "reduce") == {"ring"}


def test_collnet_needs_two_nodes_of_at_most_eight_ranks_and_direct_an_nvswitch() -> None:
    def collnet(nodes: int, gpus: int, *, nvswitch: bool = True) -> list[str]:
        communicator = machine(nodes, gpus, (8, 48), collnet=(8, 40), nvswitch=nvswitch)
        return [algorithm for algorithm, _ in cost_table(communicator, "all_reduce") if algorithm.startswith("collnet")]

    assert collnet(2, 8) == ["collnet_direct", "collnet_chain"]
    assert collnet(2, 8, nvswitch=False) == ["collnet_chain"]
    assert collnet(1, 8) == collnet(2, 9) == []


def test_nvls_gathers_on_at_most_32_ranks_and_from_2_19_on() -> None:
    def gathers(gpus: int, version: Version) -> bool:
        communicator = machine(1, gpus, (16, 45), nvls=(32, 20, 40), capability=100, version=version)
        return available(communicator, "all_gather", "nvls", "simple")

    assert [gathers(gpus, NEWEST) for gpus in (32, 33)] == [True, False]
    assert [gathers(8, Version(*release)) for release in ((2, 18, 5), (2, 19, 4))] == [False, True]


def test_pat_runs_where_every_node_has_one_rank() -> None:
    alone, many = machine(16, 1, (2, 24), types=("LOC", "PIX")), h100_nodes(2)
    # 8 + 4 x 14 / 3.5 + 2.8 x 16 us; 0.75 x 48 GB/s
    cost = cost_table(alone, "all_gather")["pat", "simple"]
    assert (round(cost.latency_us, 1), cost.bandwidth_GBps) == (68.8, 36)
    for communicator, options, expected in (
        (alone, Options(operator="avg"), False),
        (alone, Options(pat_enable=0), False),
        (many, Options(), False),
        (many, Options(pat_enable=1), True),
    ):
        assert available(communicator, "reduce_scatter", "pat", "simple", options) is expected
    assert not available(alone, "all_reduce", "pat", "simple")
    older = Communicator(**{**vars(alone), "version": Version(2, 22, 3)})
    assert not available(older, "all_gather", "pat", "simple")


def test_a_graph_that_was_not_found_leaves_its_algorithms_out() -> None:
    rings = machine(1, 8, (12, 30), (0, 0))
    assert {algorithm for algorithm, _ in cost_table(rings, "all_reduce")} == {"ring"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"datatype": "fp16"}, "'fp16' is no type that NCCL reduces; accepted are int8, uint8"),
        ({"operator": "xor"}, "'xor' is no operator that NCCL reduces; accepted are sum, prod"),
        ({"pat_enable": 3}, "NCCL_PAT_ENABLE: 3 is none of 0, 1 and 2"),
        ({"net_overhead_us": -1.0}, "NCCL_NET_OVERHEAD: -1.0 us is no time"),
    ],
)
def test_options_that_nccl_does_not_know_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(NetsimError, match=sentence):
        Options(**options)  # type: ignore[arg-type]


def test_a_path_type_that_nccl_does_not_know_is_refused() -> None:
    with pytest.raises(NetsimError, match="'NVX' is no path type of a graph; accepted are LOC, NVL"):
        ll128(90, ("NVX", "PIX"))
