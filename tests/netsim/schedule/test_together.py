"""Several collectives at once: apart they do not disturb each other, on one link they share it."""

from dataclasses import replace

import numpy as np
import pytest

import topologies
from netsim.engine.run import simulate
from netsim.errors import ScheduleError
from netsim.fabric import LinkProtocols
from netsim.schedule.catalogue import algorithms_for, build_schedule
from netsim.schedule.dag import ScheduleBuilder
from netsim.schedule.together import together
from netsim.testing import star

MIB = 1 << 20


@pytest.mark.parametrize("algorithm", algorithms_for("all_reduce"))
def test_groups_that_share_no_link_take_what_one_takes_alone(algorithm):
    alone = build_schedule("all_reduce", algorithm, 4, MIB)
    time_s = simulate(star(4), alone).time_s
    # Two stars joined by nothing else: ranks 0 to 3 on one, 4 to 7 on the other, and a wire that nobody uses.
    graph = star(4)
    other = star(4)
    for node, attributes in other.nodes(data=True):
        graph.add_node(f"other {node}", **attributes)
    for a, b, attributes in other.edges(data=True):
        graph.add_edge(f"other {a}", f"other {b}", **attributes)
    wire = other.edges["gpu0", "switch"]["link"]
    graph.add_edge("switch", "other switch", link=wire)
    graph.add_edge("other switch", "switch", link=wire)
    graph.graph["ranks"] = tuple(f"{prefix}gpu{rank}" for prefix in ("", "other ") for rank in range(4))
    both = together([(alone, range(4)), (alone, (7, 6, 5, 4))], ranks=8)
    assert both.finish_s(simulate(graph, both.schedule).end_s).tolist() == [time_s, time_s]


def test_two_collectives_of_the_same_two_ranks_share_their_links():
    # Both exchanges leave rank 0 by one link of 1 GB/s: twice the bytes, one latency of 1 us.
    graph = star(4, bandwidth_bytes_per_s=1e9)
    both = together([(build_schedule("sendrecv", "direct", 2, MIB), pair) for pair in ((0, 1), (0, 1))], ranks=4)
    alone = simulate(graph, build_schedule("sendrecv", "direct", 2, MIB)).time_s - 1e-6
    assert simulate(graph, both.schedule).time_s == pytest.approx(2 * alone + 1e-6)


def test_tensor_parallel_groups_in_one_server_do_not_slow_each_other_on_a_switch():
    topology = topologies.build("hgx-h100")
    alone = build_schedule("all_reduce", "ring", 4, 64 * MIB)
    both = together([(alone, (0, 1, 2, 3)), (alone, (4, 5, 6, 7))], ranks=8)
    record = simulate(topology, both.schedule)
    expected = simulate(topology, together([(alone, (0, 1, 2, 3))], ranks=8).schedule).time_s
    assert both.finish_s(record.end_s) == pytest.approx([expected, expected])


def test_data_parallel_rings_of_all_rails_share_nothing_and_of_one_rail_share_its_cards():
    topology = topologies.build("hgx-h100", nodes=2, nic="ndr400")
    ring = build_schedule("all_reduce", "ring", 2, 64 * MIB)
    rails = together([(ring, (gpu, 8 + gpu)) for gpu in range(8)], ranks=16)
    one = together([(ring, (0, 8))] * 2, ranks=16)
    single = simulate(topology, together([(ring, (0, 8))], ranks=16).schedule).time_s
    assert simulate(topology, rails.schedule).time_s == pytest.approx(single)
    assert simulate(topology, one.schedule).time_s > 1.9 * single - 1e-4


def test_ids_are_dealt_out_in_turn():
    ring = build_schedule("all_reduce", "ring", 2, MIB)
    both = together([(ring, (0, 1)), (ring, (2, 3))], ranks=4)
    assert both.part.tolist() == [0, 1] * len(ring)
    assert np.array_equal(both.schedule.bytes_sent(), np.repeat(MIB, 4))


@pytest.mark.parametrize("members", [(0,), (0, 0), (0, 9), (-1, 0)])
def test_a_group_that_does_not_fit_is_refused(members):
    ring = build_schedule("all_reduce", "ring", 2, MIB)
    with pytest.raises(ScheduleError, match="group"):
        together([(ring, members)], ranks=4)


def test_nothing_at_all_is_refused():
    with pytest.raises(ScheduleError, match="nothing to run"):
        together([], ranks=4)


def test_the_whole_keeps_what_its_parts_have_in_common():
    part = replace(build_schedule("all_reduce", "ring", 2, MIB), protocol="ll", buffered=True)
    both = together([(part, (0, 1)), (part, (2, 3))], ranks=4).schedule
    assert (both.protocol, both.buffered, both.phases) == ("ll", True, part.phases)


def test_parts_of_different_protocols_meet_links_as_they_are():
    # Two links, each 1 us, and 0.25 us for LL; one protocol for all takes its figures, two take the links' own.
    latency = LinkProtocols(latency_s=(("ll", 2.5e-7),))
    graph = star(4, bandwidth_bytes_per_s=1e9)
    for _, _, attributes in graph.edges(data=True):
        attributes["link"] = replace(attributes["link"], latency_s=1e-6, protocols=latency)
    parts = [
        (replace(build_schedule("sendrecv", "direct", 2, 0), protocol=kind), pair)
        for kind, pair in (("ll", (0, 1)), ("simple", (2, 3)))
    ]
    alike, mixed = together([parts[0], (parts[0][0], (2, 3))], ranks=4), together(parts, ranks=4)
    assert (alike.schedule.protocol, mixed.schedule.protocol) == ("ll", "ll+simple")
    assert simulate(graph, alike.schedule).time_s == pytest.approx(5e-7)
    assert simulate(graph, mixed.schedule).time_s == pytest.approx(2e-6)


def test_messages_that_leave_by_anothers_card_do_so_in_their_own_group():
    topology = topologies.build("hgx-h100", nodes=4, nic="ndr400:nics=1")
    builder = ScheduleBuilder("sendrecv", "relayed", ranks=16, size_bytes=MIB)
    builder.send(3, 8, size=MIB, via=0)
    one = builder.build()
    both = together([(one, range(16)), (one, range(16, 32))], ranks=32)
    assert sorted(both.schedule.via.tolist()) == [0, 16]
    finish_s = both.finish_s(simulate(topology, both.schedule).end_s)
    assert finish_s[0] == finish_s[1] == simulate(topologies.build("hgx-h100", nodes=2, nic="ndr400:nics=1"), one).time_s
