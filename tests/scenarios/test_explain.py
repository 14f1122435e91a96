import pytest

from netsim.errors import ScheduleError
from scenarios.explain import explain
from scenarios.machine import Machine, graph_of
from scenarios.run import Spec, run_spec

IDEAL = Machine("ideal-switch:8@450GB/s,1us")


def test_auto_is_explained_as_the_algorithm_that_it_takes() -> None:
    found = explain(Spec(IDEAL, "all_reduce", 2**20))
    assert found.row.algorithm == run_spec(Spec(IDEAL, "all_reduce", 2**20)).algorithm
    assert all(not item.gains for item in found.what_ifs if item.what == "algorithm")


def test_the_topology_is_left_as_it_was() -> None:
    before = graph_of(IDEAL).edges["gpu0", "switch"]["link"]
    explain(Spec(IDEAL, "all_reduce", 2**20, "ring"))
    assert graph_of(IDEAL).edges["gpu0", "switch"]["link"] == before


def test_changes_stand_in_order_of_their_gain() -> None:
    changes = [item.change for item in explain(Spec(IDEAL, "all_reduce", 2**20, "ring")).what_ifs]
    assert changes == sorted(changes)


def test_the_kind_that_the_chain_spends_its_time_on_is_doubled_too() -> None:
    words = [item.words for item in explain(Spec(Machine("pcie-gen4-8"), "all_reduce", 2**20, "ring")).what_ifs]
    assert "twice the bandwidth of socket_amd links" in words
    assert "twice the bandwidth of pcie4 links" in words
    assert "twice the bandwidth of socket_amd and pcie4 links" in words


def test_pieces_are_given_to_those_algorithms_that_take_them() -> None:
    found = explain(Spec(IDEAL, "all_reduce", 2**20, "tree", chunks=4))
    assert "one_shot instead of tree" in [item.words for item in found.what_ifs]
    assert "one_shot" not in dict(found.refused)


def test_a_spec_that_cannot_run_is_refused() -> None:
    with pytest.raises(ScheduleError, match="nonsense"):
        explain(Spec(IDEAL, "all_reduce", 2**20, "nonsense"))


def test_every_run_is_told_beforehand() -> None:
    told: list[str] = []
    explain(Spec(IDEAL, "alltoall", 2**20, "pairwise"), told=told.append)
    assert told[0] == "alltoall by pairwise"
    assert {"half the latency of every link", "alltoall by direct"} <= set(told)


def test_what_lanes_cost_is_a_change_to_try_under_nccls_protocols():
    spec = Spec(Machine("hgx-h100"), "all_reduce", 2**16, "ring", protocol="ll")
    gains = {item.what: item.change for item in explain(spec).what_ifs}
    # 18 us are lanes and hops; the links themselves hardly count.
    assert gains["lanes"] < -0.2
    assert gains["bandwidth"] > -0.05
