"""A record of every service of every link agrees with the same run's times and counters."""

import numpy as np
from hypothesis import given

from netsim.engine.run import simulate
from netsim.testing import runs


@given(run=runs())
def test_noting_services_changes_no_time(run):
    graph, schedule = run
    for quantum in (0, 1000):
        noted = simulate(graph, schedule, record="links", quantum_bytes=quantum)
        plain = simulate(graph, schedule, quantum_bytes=quantum)
        assert np.array_equal(noted.start_s, plain.start_s)
        assert np.array_equal(noted.end_s, plain.end_s)
        assert plain.services is None


@given(run=runs())
def test_services_are_the_messages_of_the_counters_and_first_ones_are_the_starts(run):
    graph, schedule = run
    record = simulate(graph, schedule, record="links")
    rows = record.services
    assert np.array_equal(np.bincount(rows.link, minlength=len(record.edges)), record.link_messages)
    first = (rows.hop == 0) & (rows.piece == 0)
    assert np.array_equal(rows.start_s[first], record.start_s[rows.op[first]])
    assert (rows.ask_s <= rows.start_s).all()


@given(run=runs())
def test_a_link_serves_one_message_at_a_time(run):
    graph, schedule = run
    rows = simulate(graph, schedule, record="links").services
    for link in np.unique(rows.link):
        mine = rows.link == link
        order = np.lexsort((rows.free_s[mine], rows.start_s[mine]))
        start, free = rows.start_s[mine][order], rows.free_s[mine][order]
        assert (free[:-1] <= start[1:]).all()
