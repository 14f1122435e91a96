import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import FabricError, NetsimError
from netsim.fabric import check_fabric, hosts_of
from netsim.routing import Router
from topologies.study import study_graph


def path_latency_s(text: str, a: int, b: int) -> float:
    graph = study_graph(text)
    router = Router(graph)
    return math.fsum(graph.edges[router.edges[index]]["link"].latency_s for index in router.path(a, b))


@given(ranks=st.integers(2, 40), data=st.data())
def test_a_switch_path_costs_the_latency_once(ranks: int, data: st.DataObject) -> None:
    a, b = data.draw(st.lists(st.integers(0, ranks - 1), min_size=2, max_size=2, unique=True))
    assert path_latency_s(f"ideal-switch:{ranks}@450GB/s,1us", a, b) == 1e-6


def test_every_rank_of_a_switch_sends_and_receives_at_the_rate() -> None:
    graph = study_graph("ideal-switch:8@450 GB/s, 1us")
    assert {data["link"].bandwidth_bytes_per_s for _, _, data in graph.edges(data=True)} == {450e9}
    assert graph.number_of_edges() == 16


def test_the_ideal_switch_multicasts_and_reduces() -> None:
    attributes = study_graph("ideal-switch:2@1GB/s,0").nodes["switch"]
    assert attributes == {"kind": "nvswitch", "multicast": True, "reduce": True}


@pytest.mark.parametrize(("ranks", "target", "hops"), [(2, 1, 1), (5, 4, 1), (5, 2, 2), (5, 3, 2), (8, 4, 4), (8, 5, 3)])
def test_a_ring_route_goes_the_shorter_way(ranks: int, target: int, hops: int) -> None:
    assert path_latency_s(f"ideal-ring:{ranks}@1GB/s,1us", 0, target) == pytest.approx(hops * 1e-6)


def test_all_ranks_of_a_ring_choose_alike_between_two_ways_of_equal_length() -> None:
    router = Router(study_graph("ideal-ring:6@1GB/s,1us"))
    # Half way around, to an even rank onward and to an odd one back: no link is on more than two of six such routes.
    onward = [router.edges[router.path(rank, (rank + 3) % 6)[0]][1] == f"gpu{(rank + 1) % 6}" for rank in range(6)]
    assert onward == [False, True] * 3


@pytest.mark.parametrize(
    ("form", "ranks", "edges"),
    [("ring", 1, 0), ("ring", 2, 2), ("ring", 3, 6), ("mesh", 1, 0), ("mesh", 5, 20), ("switch", 1, 2), ("switch", 7, 14)],
)
def test_study_graphs_have_exactly_the_links_they_promise(form: str, ranks: int, edges: int) -> None:
    graph = study_graph(f"ideal-{form}:{ranks}@1GB/s,1us")
    check_fabric(graph)
    assert graph.number_of_edges() == edges
    assert graph.graph["ranks"] == tuple(f"gpu{rank}" for rank in range(ranks))
    assert hosts_of(graph) == (tuple(range(ranks)),)


def test_mesh_routes_are_direct() -> None:
    assert path_latency_s("ideal-mesh:6@1GB/s,3us", 1, 5) == 3e-6


@pytest.mark.parametrize(
    "text",
    [
        "ideal-switch:0@450GB/s,1us",
        "ideal-switch:-1@450GB/s,1us",
        "ideal-switch:1.5@450GB/s,1us",
        "ideal-switch:@450GB/s,1us",
        "ideal-switch:8@450GB/s",
        "ideal-switch:8",
        "ideal-switch",
        "ideal-torus:8@450GB/s,1us",
        "ideal-mesh:1025@450GB/s,1us",
        "ideal-switch:99999999999@450GB/s,1us",
        "ideal-switch:٣@450GB/s,1us",
        "ideal-switch:8@450GB/s,1us,2us ",
    ],
)
def test_a_bad_text_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(NetsimError) as caught:
        study_graph(text)
    assert "accepted are" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ideal-switch:8@450Gb,1us", "did you mean 'Gb/s'"),
        ("ideal-switch:8@450GB,1us", "did you mean 'GB/s'"),
        ("ideal-switch:8@-450GB/s,1us", "above zero"),
        ("ideal-switch:8@nanGB/s,1us", "not a finite number"),
        ("ideal-switch:8@450GB/s,1", "no unit"),
        ("ideal-switch:8@450GB/s,-1us", "zero or more"),
    ],
)
def test_a_bad_quantity_is_named_with_its_unit(text: str, words: str) -> None:
    with pytest.raises(NetsimError, match=words) as caught:
        study_graph(text)
    assert text in str(caught.value)


def test_bits_and_bytes_differ_by_eight() -> None:
    graph = study_graph("ideal-mesh:2@400Gb/s,1us")
    assert graph.edges["gpu0", "gpu1"]["link"].bandwidth_bytes_per_s == 50e9


def test_zero_ranks_name_the_number() -> None:
    with pytest.raises(FabricError, match="number of ranks is '0'"):
        study_graph("ideal-ring:0@1GB/s,1us")
