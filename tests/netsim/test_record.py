"""A record answers which link was busiest and which one messages waited for."""

import inspect

import pytest

from netsim.engine.run import simulate
from netsim.errors import NetsimError
from netsim.metrics.links import bottleneck, link_loads
from netsim.record import Record
from netsim.schedule.catalogue import build_schedule
from netsim.testing import star


def gathered(**options):
    return simulate(star(4), build_schedule("gather", "flat", 4, 12_000), **options)


def test_the_bottleneck_is_an_edge_of_the_topology_and_the_one_that_tables_name():
    record = gathered()
    # Three messages of 3,000 bytes at 1 GB/s share the root's port; every other link carries one.
    assert record.bottleneck == ("switch", "gpu0")
    assert bottleneck(record).name == "switch->gpu0"
    assert bottleneck(record).busy_s == pytest.approx(9e-6)


def test_messages_wait_for_the_link_that_serves_others():
    record = gathered(record="links")
    # All three ask the root's port at 1 us: the second waits 3 us and the third 6.
    assert dict(zip(record.edges, record.waiting_s.round(12).tolist(), strict=True))["switch", "gpu0"] == 9e-6
    assert record.waiting_s.sum() == pytest.approx(9e-6)
    assert record.longest_waiting == ("switch", "gpu0")
    assert link_loads(record)[0].waiting_s == pytest.approx(9e-6)


def test_where_nothing_waits_no_link_waited_longest():
    record = simulate(star(2), build_schedule("broadcast", "chain", 2, 1000, chunks=1), record="links")
    assert record.longest_waiting is None
    assert record.waiting_s.tolist() == [0.0] * 4


def test_where_nothing_is_sent_there_is_no_bottleneck():
    assert simulate(star(1), build_schedule("all_reduce", "ring", 1, 4000)).bottleneck is None


@pytest.mark.parametrize("kept", ["all", "summary"])
def test_a_record_without_services_says_how_to_learn_who_waited(kept):
    record = gathered(record=kept)
    with pytest.raises(NetsimError, match="simulate with record='links'"):
        record.longest_waiting  # noqa: B018 - the access is the test
    assert link_loads(record)[0].waiting_s is None


def test_help_describes_every_field():
    told = inspect.getdoc(Record).partition("Attributes")[2]
    assert [name for name in Record.__dataclass_fields__ if name not in told] == []
