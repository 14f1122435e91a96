"""What the front of NCCL's room makes of types, operators, channels, windows and copy engines."""

import pytest

from netsim.errors import NetsimError
from netsim.nccl import schedules
from netsim.nccl.from_topology import communicator
from netsim.nccl.version import Version
from netsim.runs import simulate
from topologies import build


@pytest.mark.parametrize(
    ("datatype", "expected"), [("float", "nvls"), ("half", "nvls"), ("int8", "ring"), ("f8e4m3", "ring")]
)
def test_switches_add_no_integers_and_floats_of_one_byte(datatype, expected):
    found = communicator(build("hgx-h100"))
    assert schedules.build(found, "all_reduce", 8 << 20, datatype=datatype, free=True).algorithm == expected


def test_integers_of_one_byte_are_added_more_slowly():
    found, graph = communicator(build("hgx-h100")), build("hgx-h100")
    asked = {"algorithm": "ring", "protocol": "ll"}
    times = {
        name: simulate(graph, schedules.build(found, "all_reduce", 1 << 20, datatype=name, **asked).schedule).time_s
        for name in ("float", "int8")
    }
    assert times["int8"] > 1.1 * times["float"]
    # What adds nothing costs the same.
    gathered = [
        simulate(graph, schedules.build(found, "all_gather", 1 << 20, datatype=name, **asked).schedule).time_s
        for name in ("float", "int8")
    ]
    assert gathered[0] == gathered[1]


def test_data_is_cut_between_elements_of_the_type():
    found = communicator(build("hgx-h100"))
    for name, size in (("double", 8), ("half", 2), ("uint8", 1)):
        assert schedules.build(found, "all_reduce", 4096, datatype=name, free=True).schedule.align_bytes == size


def test_a_type_or_an_operator_that_nccl_lacks_is_refused():
    found = communicator(build("hgx-h100"))
    with pytest.raises(NetsimError, match="'float16' is no type that NCCL reduces; accepted are int8"):
        schedules.build(found, "all_reduce", 4096, datatype="float16")
    with pytest.raises(NetsimError, match="'add' is no operator that NCCL reduces; accepted are sum"):
        schedules.build(found, "all_reduce", 4096, operator="add")


def test_what_the_switch_does_costs_the_same_however_peers_reach_each_other():
    graph = build("hgx-h100")
    times = []
    for environment in ({}, {"NCCL_P2P_DISABLE": "1"}):
        found = communicator(graph, environment=environment)
        times.append(simulate(graph, schedules.build(found, "all_reduce", 16 << 20, algorithm="nvls").schedule).time_s)
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("environment", "channels", "blocks"),
    [({"NCCL_MAX_CTAS": "1"}, None, 1), ({"NCCL_SYM_CTAS": "3"}, None, 3), ({"NCCL_MIN_CTAS": "20"}, None, 20), ({}, 5, 5)],
)
def test_blocks_of_symmetric_kernels_are_bounded(environment, channels, blocks):
    found = communicator(build("hgx-h100"), environment=environment)
    built = schedules.build(found, "all_gather", 64 << 20, algorithm="symmetric:st", channels=channels, free=True)
    assert built.channels == blocks


def test_without_nvls_symmetric_kernels_do_not_multicast():
    plain, off = (communicator(build("hgx-h100"), environment=given) for given in ({}, {"NCCL_NVLS_ENABLE": "0"}))
    assert "mc" in schedules.build(plain, "all_gather", 64 << 20, algorithm="symmetric", free=True).algorithm
    assert "mc" not in schedules.build(off, "all_gather", 64 << 20, algorithm="symmetric", free=True).algorithm
    with pytest.raises(NetsimError, match="or NCCL_NVLS_ENABLE=0; accepted are kernels without mc"):
        schedules.build(off, "all_gather", 64 << 20, algorithm="symmetric:stmc")


def test_copy_engines_fill_the_link_for_the_own_block_takes_next_to_no_time():
    # 7 of 8 blocks of 128 MiB over 370.8 GB/s take 2534 us; the own one 63 us within the GPU at 2120 GB/s.
    graph = build("hgx-h100")
    schedule = schedules.build(communicator(graph), "all_gather", 1 << 30, algorithm="copy_engine").schedule
    assert 2534e-6 < simulate(graph, schedule).time_s < 2534e-6 + 63e-6 + 50e-6


def test_collnet_runs_where_the_network_reduces_and_nccl_is_told_to():
    sharp = build("hgx-h100", nodes=2, nic="ndr400", fabric="one-switch:sharp=on")
    told = {"NCCL_COLLNET_ENABLE": "1"}
    asked = {"algorithm": "collnet_direct", "protocol": "simple", "free": True}
    built = schedules.build(communicator(sharp, environment=told), "all_reduce", 1 << 20, **asked)
    assert built.algorithm == "collnet_direct"
    # Not without being told, not on a network that does not reduce, not on fewer nodes than the threshold.
    high = told | {"NCCL_COLLNET_NODE_THRESHOLD": "3"}
    plain = build("hgx-h100", nodes=2, nic="ndr400")
    for graph, environment in ((sharp, {}), (plain, told), (sharp, high)):
        with pytest.raises(NetsimError, match="CollNet needs NCCL_COLLNET_ENABLE=1 and a network that reduces"):
            schedules.build(communicator(graph, environment=environment), "all_reduce", 1 << 20, **asked)


def taken(collective, size, *, version="2.28.9", machine="hgx-h100", **more):
    environment = more.pop("environment", {})
    found = communicator(build(machine), Version.parse(version), environment=environment)
    return schedules.build(found, collective, size, symmetric=True, free=True, **more).algorithm


def test_on_symmetric_windows_nccl_takes_what_it_thinks_quicker():
    # One-shot by LL at 4 KiB: an estimate of 4.7 us against 15.0 of the cost model's ring.
    assert taken("all_reduce", 4096) == "symmetric:agxllmc_r"
    assert taken("all_reduce", 4096, version="2.26.2") == "ring"
    assert taken("broadcast", 4096) == "ring"
    # Who names an algorithm or a protocol has it.
    assert taken("all_reduce", 4096, algorithm="ring") == "ring"
    assert taken("all_reduce", 4096, protocol="ll") == "ring"


def test_kernels_on_windows_add_no_integers_and_no_doubles():
    for datatype in ("int32", "double", "int8"):
        assert taken("all_reduce", 4096, datatype=datatype) == "ring"
    assert taken("all_reduce", 4096, operator="max") == "ring"
    assert taken("all_gather", 8 * 4096, datatype="int32").startswith("symmetric")


def test_copy_engines_are_taken_where_the_policy_or_the_size_asks_for_them():
    zero = {"NCCL_CTA_POLICY": "2"}
    for collective in ("all_gather", "alltoall", "gather", "scatter"):
        assert taken(collective, 1 << 20, environment=zero) == "copy_engine"
    assert taken("all_reduce", 1 << 20, environment=zero) != "copy_engine"
    assert taken("alltoall", 1 << 20, environment=zero, version="2.27.3") == "p2p"
    # 2.30 on Blackwell: more than 8 Mi elements of each rank.
    limit = 8 * (8 << 20) * 4
    asked = {"version": "2.30.7", "machine": "hgx-b200"}
    assert taken("all_gather", limit, **asked) != "copy_engine"
    assert taken("all_gather", limit + 8 * 16, **asked) == "copy_engine"
    assert taken("all_gather", 1 << 20, environment={"NCCL_SYM_CE_THRESHOLD": "1000"}, **asked) == "copy_engine"


@pytest.mark.parametrize(("datatype", "operator"), [("int8", "sum"), ("double", "avg"), ("float", "max")])
def test_a_kernel_on_windows_that_is_asked_for_refuses_what_it_does_not_reduce(datatype: str, operator: str):
    found = communicator(build("hgx-h100"))
    elements = {"datatype": datatype, "operator": operator}
    with pytest.raises(NetsimError, match=f"no kernel reduces {datatype} by {operator}; accepted are sum and avg of"):
        schedules.build(found, "all_reduce", 1 << 20, algorithm="symmetric", **elements)
    assert schedules.build(found, "all_gather", 1 << 20, algorithm="symmetric", **elements).algorithm.startswith("symmetric")
