"""The constants of links are taken from the router, once."""

from netsim.clock import on_grid
from netsim.engine.links import link_table
from netsim.fabric import Link
from netsim.routing import Router
from netsim.testing import line


def stored(piece_bytes):
    kinds = ({"kind": "network_switch", "store_and_forward": True, "piece_bytes": piece_bytes},)
    return line(Link(1e-6, 1e9, gap_s=2e-6), Link(3e-6, 2e9, floor_s=4e-6), kinds=kinds)


def test_a_table_holds_what_the_router_took_from_the_graph():
    graph = stored(512)
    router = Router(graph)
    graph.edges["gpu0", "switch0"]["link"] = Link(9e-6, 9e9)
    graph.nodes["switch0"]["piece_bytes"] = 9
    table, first = link_table(router), router.edges.index(("gpu0", "switch0"))
    assert (table.latency[first], table.gap[first], table.floor[first]) == (on_grid(1e-6), on_grid(2e-6), 0.0)
    assert (table.bandwidth[first], table.piece_bytes[first]) == (1e9, 512)
    assert table.piece_bytes[router.edges.index(("switch0", "gpu1"))] == 0


def test_a_node_that_stores_waits_for_one_byte_at_least():
    router = Router(stored(0))
    assert link_table(router).piece_bytes[router.edges.index(("gpu0", "switch0"))] == 1


def test_a_router_has_one_table():
    router = Router(stored(512))
    assert link_table(router) is link_table(router)
    assert link_table(router) is not link_table(Router(stored(512)))
