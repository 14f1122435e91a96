"""Numbers in files of components are found, scaled and put in the place of a run's own."""

import math
from dataclasses import replace

import pytest

from netsim.errors import ScenarioError
from scenarios.fit_parameters import CALL, TOPOLOGY, Parameter, Point, component_file, keys_of, scaled, stated, write_point
from scenarios.machine import Machine
from scenarios.run import Spec


def test_an_unknown_component_is_named():
    with pytest.raises(ScenarioError, match="'kepler' is neither a generation of GPU nor a link profile"):
        component_file("kepler")


def test_a_key_that_is_no_number_is_named():
    with pytest.raises(ScenarioError, match=r"hopper\.toml: has no ll\.speed"):
        scaled('[ll]\nstart = "4 us"\n', "ll.speed", 2, "hopper.toml")
    with pytest.raises(ScenarioError, match="name is 'x', which is no number"):
        scaled('name = "x"\n', "name", 2)
    with pytest.raises(ScenarioError, match="date is '2026-06', which is no number"):
        scaled('date = "2026-06"\n', "date", 2)


def test_only_the_number_asked_for_changes():
    text = 'start = "1 us"\n[ll]\nstart = "4 us"  # 3 to 5\nstarted = 1\n[simple]\nstart = "9 us"\nint8 = 0.5 # part\n'
    assert scaled(text, "ll.start", 0.5) == text.replace('"4 us"', '"2 us"')
    assert scaled(text, "simple.int8", 1.5) == text.replace("0.5", "0.75")
    assert scaled(text, "start", 3) == text.replace('"1 us"', '"3 us"')
    assert scaled(text, "ll.start", 1, comment="new") == text.replace("# 3 to 5", "# new")


def test_text_with_quotes_in_it_is_replaced_whole():
    text = 'source = "a \\"b\\" # c"  # kept\nnext = 1\n'
    assert stated(text, "source", '"d"') == 'source = "d"  # kept\nnext = 1\n'


def test_a_rate_goes_no_higher_than_the_line_and_a_share_no_higher_than_all():
    share = float(Parameter("nvlink4", ("share_ll128",)).before())
    assert Parameter("nvlink4", ("effective_rate",)).most() == pytest.approx(25 / 20.6)
    assert Parameter("nvlink4", ("share_ll", "share_ll128")).most() == pytest.approx(1 / share)
    assert Parameter("nvlink4", ("latency_ll",)).most() == math.inf
    assert Parameter("hopper", ("simple.send",)).most() == math.inf


def test_a_point_takes_the_place_of_what_a_run_has(tmp_path):
    parameters = [
        Parameter("hopper", ("ll.start",)),
        Parameter("nvlink4", ("latency_ll",)),
        Parameter("pcie5", ("latency",)),
    ]
    point = write_point(parameters, [0.0, math.log(2), 0.0], tmp_path)
    assert [kind for kind, _ in point.links] == ["nvlink4", "pcie5"]
    spec = Spec(Machine("hgx-h100", profile="nvlink4,pcie5"), "all_reduce", 8, protocol="auto")
    # A run without links of a kind takes no profile of it, and one on another generation of GPU no costs.
    found = point.applied(spec, frozenset({"nvlink4"}), "hopper")
    assert found.machine.profile == f"pcie5,{tmp_path / 'nvlink4.toml'}"
    assert found.nccl.kernel_costs == str(tmp_path / "hopper.toml")
    assert 'latency_ll = "818 ns"' in (tmp_path / "nvlink4.toml").read_text(encoding="utf-8")
    assert point.applied(spec, frozenset(), "ampere").nccl.kernel_costs is None
    assert point.applied(replace(spec, protocol="ideal"), frozenset(), "hopper").nccl.kernel_costs is None


def test_a_nic_keeps_its_options_and_takes_the_file_of_its_kind(tmp_path):
    parameters = [Parameter("efa100", ("latency_ll",)), Parameter("ndr400", ("latency_ll",))]
    point = write_point(parameters, [0.0, 0.0], tmp_path)
    spec = Spec(Machine("hgx-h100", nodes=2, nic="efa100:nics=8,ports=4"), "all_reduce", 8, protocol="auto")
    assert point.applied(spec, frozenset({"efa100"})).machine.nic == f"{tmp_path / 'efa100.toml'}:nics=8,ports=4"
    # A profile that the user lays over them is what stands there.
    laid = replace(spec, machine=replace(spec.machine, profile="ndr400"))
    found = point.applied(laid, frozenset({"ndr400"})).machine
    assert found.profile == str(tmp_path / "ndr400.toml")


def test_figures_of_a_study_graph_and_the_constant_of_a_call(tmp_path):
    parameters = [
        Parameter(TOPOLOGY, ("latency",)),
        Parameter(TOPOLOGY, ("rate",)),
        Parameter(CALL, ("constant",), start_s=5e-6),
    ]
    point = write_point(parameters, [math.log(2), math.log(0.5), math.log(3)], tmp_path)
    assert point.constant_s == pytest.approx(15e-6)
    spec = Spec(Machine("ideal-switch:4@10GB/s,1us"), "all_reduce", 8)
    assert point.applied(spec, frozenset()).machine.topology == "ideal-switch:4@5000000000.0B/s,2e-06s"
    with pytest.raises(ScenarioError, match="'hgx-h100' has no latency and rate of its own"):
        point.applied(replace(spec, machine=Machine("hgx-h100")), frozenset())
    assert Point().applied(spec, frozenset()) == spec


def test_several_generations_and_several_profiles_of_a_family_are_fitted_at_once(tmp_path):
    names = ("hopper", "ampere", "nvlink3", "nvlink4")
    keys = ("ll.start", "ll.start", "latency", "latency")
    point = write_point([Parameter(name, (key,)) for name, key in zip(names, keys, strict=True)], [0.0] * 4, tmp_path)
    assert [name for name, _ in (*point.kernel_costs, *point.links)] == list(names)


def test_dates_are_no_numbers_of_a_file():
    keys = list(keys_of(component_file("nvlink4")))
    assert "latency_ll" in keys
    assert "date" not in keys


def test_a_nic_of_a_file_takes_the_file_of_its_kind_and_own_ones_stay(tmp_path):
    own = tmp_path / "card.toml"
    own.write_text(stated(component_file("ndr400").read_text(encoding="utf-8"), "name", '"mine"'), encoding="utf-8")
    point = write_point([Parameter("mine", ("latency_ll",), source=own)], [0.0], tmp_path / "out")
    spec = Spec(Machine("hgx-h100", nodes=2, nic=f"{own}:nics=4"), "all_reduce", 8, protocol="auto")
    assert point.applied(spec, frozenset({"mine"})).machine.nic == f"{tmp_path / 'out' / 'mine.toml'}:nics=4"
    brought = replace(spec, machine=replace(spec.machine, nic="own"))
    assert point.applied(brought, frozenset()).machine == brought.machine
