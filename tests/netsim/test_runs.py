"""`simulate`, `time` and `result_row` as users call them: what is refused, what is kept, and what a row holds."""

from dataclasses import replace

import networkx as nx
import pytest

import netsim
import topologies
from netsim import runs
from netsim.errors import FabricError, NetsimError, ScheduleError
from netsim.fabric import Link, hosts_of
from netsim.routing import Router
from netsim.testing import star
from scenarios.machine import Machine, graph_of
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec

RING = netsim.build_schedule("all_reduce", "ring", 4, 4000)


@pytest.mark.parametrize("topology", [None, "hgx-h100", 8, {}])
def test_what_is_no_topology_is_refused(topology):
    with pytest.raises(FabricError, match="topology is .*; pass a graph"):
        netsim.simulate(topology, RING)
    with pytest.raises(FabricError, match="topology is .*; pass a graph"):
        netsim.time("all_reduce", 1000, topology)


@pytest.mark.parametrize("schedule", [None, "ring", [1, 2]])
def test_what_is_no_schedule_is_refused(schedule):
    with pytest.raises(ScheduleError, match="schedule is .*; pass a Schedule"):
        netsim.simulate(star(4), schedule)


def test_a_builder_that_was_not_ended_is_refused():
    with pytest.raises(ScheduleError, match="pass what its build\\(\\) returns"):
        netsim.simulate(star(4), netsim.ScheduleBuilder("all_reduce", "mine", ranks=4, size_bytes=100))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantum_bytes": -1}, "quantum_bytes is -1"),
        ({"quantum_bytes": 1.5}, "quantum_bytes is 1.5"),
        ({"max_messages": None}, "max_messages is None"),
        ({"max_messages": float("nan")}, "max_messages is nan"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ScheduleError, match=words):
        netsim.simulate(star(4), RING, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 1e6}, "size is 1000000.0; give a whole number of bytes"),
        ({"size": -1}, "size is -1"),
        ({"size": True}, "size is True"),
        ({"root": []}, "root must be a rank from 0 to 3"),
        ({"chunks": 2.0, "algorithm": "tree"}, "number of chunks is 2.0"),
        ({"collective": ["all_reduce"]}, "unknown collective"),
        ({"algorithm": None}, "algorithm is None"),
        ({"protocol": "LL8"}, "'LL8' is no protocol; accepted is ideal"),
        ({"protocol": "ll", "chunks": 2}, "NCCL cuts data by its own rules"),
        ({"nccl_version": "2.28.9"}, "nccl_version is for NCCL's protocols"),
    ],
)
def test_time_refuses_what_makes_no_sense(options, words):
    asked = {"collective": "all_reduce", "size": 4000} | options
    with pytest.raises(ScheduleError, match=words):
        netsim.time(topology=star(4), **asked)


def test_sizes_may_be_text():
    whole = netsim.simulate(star(4), RING)
    pieces = netsim.simulate(star(4), netsim.build_schedule("all_reduce", "ring", 4, "4 kB"), quantum_bytes="1 kB")
    assert pieces.time_s == whole.time_s  # a step's 1,000 bytes are one piece
    assert netsim.time("all_reduce", "4 kB", star(4), algorithm="ring") == whole.time_s


@pytest.mark.parametrize(
    ("name", "collective", "options"),
    [
        ("hgx-h100", "all_reduce", {"protocol": "auto"}),
        ("hgx-h100", "all_reduce", {"protocol": "ll128", "algorithm": "tree"}),
        ("hgx-h100", "alltoall", {"protocol": "auto"}),
        ("hgx-a100", "reduce", {"protocol": "simple", "root": 3}),
    ],
)
def test_time_by_nccls_protocols_is_what_a_scenario_says(name, collective, options):
    spec = Spec(Machine(name), collective, 2**20 + 5, **({"algorithm": "auto"} | options))
    seconds = netsim.time(collective, 2**20 + 5, topologies.build(name), **options)
    assert seconds == pytest.approx(run_spec(spec).time_us * 1e-6, rel=1e-12)


def test_time_between_nodes_counts_the_way_back_and_the_release():
    graph = graph_of(Machine("hgx-h100", nodes=2, nic="ndr400"))
    spec = Spec(Machine("hgx-h100", nodes=2, nic="ndr400"), "all_reduce", 2**22, protocol="auto")
    old = NcclOptions(version="2.27.3")
    for version, told in ((None, spec), ("2.27.3", replace(spec, nccl=old))):
        seconds = netsim.time("all_reduce", "4 MiB", graph, protocol="auto", nccl_version=version)
        assert seconds == pytest.approx(run_spec(told).time_us * 1e-6, rel=1e-12)
    with pytest.raises(netsim.NetsimError, match="is not covered"):
        netsim.time("all_reduce", "4 MiB", graph, protocol="auto", nccl_version="2.9.1")


def test_time_keeps_the_routes_of_a_graph(monkeypatch):
    made = []

    class Noted(Router):
        def __init__(self, *given):
            made.append(given)
            super().__init__(*given)

    monkeypatch.setattr(runs, "Router", Noted)
    graph = nx.freeze(star(4))
    for size in (1000, 2000, 4000):
        netsim.time("all_reduce", size, graph, algorithm="ring")
    assert len(made) == 1


def test_time_sees_that_a_graph_was_changed():
    graph = nx.freeze(star(4))
    before = netsim.time("all_reduce", "4 MB", graph, algorithm="ring")
    for edge in graph.edges:  # a frozen graph keeps its nodes and edges, not what they hold
        graph.edges[edge]["link"] = replace(graph.edges[edge]["link"], bandwidth_bytes_per_s=5e8)
    # 6 steps of 1 MB and 1 us at 1 GB/s, then at half of that.
    assert before == pytest.approx(6 * 1.001e-3)
    assert netsim.time("all_reduce", "4 MB", graph, algorithm="ring") == pytest.approx(6 * 2.001e-3)


def test_no_more_graphs_are_kept_than_a_few():
    for _ in range(10):
        netsim.time("all_reduce", 1000, star(2), algorithm="ring")
    assert len(runs._ROUTERS) == runs._MOST_ROUTERS == 4


def test_a_row_has_what_the_run_was_and_how_long_it_took():
    graph = star(4)
    row = netsim.result_row(graph, RING, netsim.simulate(graph, RING), scenario="mine")
    # 6 steps of 1,000 bytes at 1 GB/s and 1 us: 12 us, 4,000 B / 12 us, and 2 x 3/4 of that.
    assert (row.time_us, row.closed_form_us) == (pytest.approx(12.0), pytest.approx(12.0))
    assert (row.algbw_GBps, row.busbw_GBps) == (pytest.approx(1 / 3), pytest.approx(0.5))
    assert (row.topology, row.ranks, row.nodes, row.algorithm, row.channels) == ("star", 4, 1, "ring", 1)
    assert (row.bottleneck, row.messages, row.scenario) == ("gpu0->switch", 24, "mine")
    # Nobody can send 1.5 x 4,000 bytes over 1 GB/s faster than in 6 us.
    assert row.collective_bound_us == pytest.approx(6.0)


def test_a_row_counts_the_channels_and_knows_the_routing():
    schedule = netsim.build_schedule("all_reduce", "ring", 4, 4000, channels=3)
    record = netsim.simulate(star(4), schedule, routing="ecmp:5")
    row = netsim.result_row(star(4), schedule, record)
    assert (row.channels, row.routing, row.seed) == (3, "ecmp:5", 5)


def test_a_record_of_something_else_makes_no_row():
    record = netsim.simulate(star(4), RING)
    with pytest.raises(NetsimError, match="of another topology"):
        netsim.result_row(star(4, bandwidth_bytes_per_s=2e9), RING, record)
    with pytest.raises(NetsimError, match="of another schedule"):
        netsim.result_row(star(4), netsim.build_schedule("all_reduce", "ring", 4, 4004), record)
    with pytest.raises(NetsimError, match="no column 'speed'; the columns are collective, topology"):
        netsim.result_row(star(4), RING, record, speed=1)


def test_a_router_never_mixes_what_it_took_with_what_the_graph_has_become():
    graph = star(4)
    router = Router(graph)
    whole = netsim.simulate(router, RING)
    graph.edges["gpu0", "switch"]["link"] = Link(1e-3, 1e3)
    graph.nodes["switch"]["reduce"] = False
    assert netsim.simulate(router, RING).time_s == whole.time_s
    assert router.switch(range(4), "reduce") == router.index["switch"]


@pytest.mark.parametrize(
    ("machine", "collective", "algorithm"),
    [
        (Machine("hgx-h100"), "all_reduce", "double_binary_tree"),
        (Machine("hgx-h100", rate="line", profile="nvlink5"), "all_gather", "nvls"),
        (Machine("hgx-h100", nodes=2, nic="ndr400"), "alltoall", "direct"),
        (Machine("dgx-1v"), "all_reduce", "ring"),
        (Machine("ideal-mesh:4@1GB/s,1us"), "alltoall", "direct"),
    ],
)
def test_a_row_is_the_one_that_the_command_line_writes(machine, collective, algorithm):
    written = run_spec(Spec(machine, collective, 2**20, algorithm))
    graph = graph_of(machine)
    schedule = netsim.build_schedule(collective, algorithm, written.ranks, "1 MiB", groups=hosts_of(graph))
    assert netsim.result_row(graph, schedule, netsim.simulate(graph, schedule), topology=machine.label) == written


def test_time_takes_names_as_nccl_spells_them():
    graph = topologies.build("hgx-h100")
    whole = {"topology": graph, "protocol": "auto"}
    assert netsim.time("all_reduce", "1 MiB", algorithm="Tree", **whole) == netsim.time(
        "all_reduce", "1 MiB", algorithm="tree", **whole
    )
    with pytest.raises(
        netsim.NetsimError, match=r"unknown algorithm 'rng' \(did you mean ring\?\); accepted for all_reduce"
    ):
        netsim.time("all_reduce", "1 MiB", algorithm="rng", **whole)
