from dataclasses import replace

import pytest

from netsim.errors import ScenarioError
from scenarios.groups import read_groups, servers_within
from scenarios.machine import Machine
from scenarios.run import Spec, run_spec

PAIR = Spec(Machine("hgx-h100", nodes=2, nic="ndr400"), "all_reduce", 2**20, "ring")


def test_groups_by_division_by_remainder_and_by_lists():
    assert read_groups("div:4", 8) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert read_groups("mod:4", 8) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert read_groups(" 0-2/5,3,4 ", 8) == ((0, 1, 2), (5, 3, 4))
    assert read_groups(None, 3) == ((0, 1, 2),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("div:3", "do not fall into equal groups"),
        ("mod:0", "do not fall into equal groups"),
        ("0-2/3", "1 to 3 ranks"),
        ("0-9", "not within the ranks 0 to 7"),
        ("3-1", "not within the ranks 0 to 7"),
        ("1,1", "stands twice"),
        ("a", "is no rank or range"),
        ("", "is no rank or range"),
        ("0-3//4-7", "is no rank or range"),
    ],
)
def test_a_wrong_list_is_one_sentence(text, words):
    with pytest.raises(ScenarioError, match=words):
        read_groups(text, 8)


def test_servers_are_counted_within_the_group():
    assert servers_within((9, 1, 8), [range(8), range(8, 16)]) == ((1,), (0, 2))


def test_groups_on_servers_of_their_own_do_not_slow_each_other_down():
    alone = run_spec(replace(PAIR, machine=Machine("hgx-h100")))
    both = run_spec(replace(PAIR, groups="div:8"))
    assert (both.ranks, both.time_us, both.busbw_GBps) == (8, alone.time_us, alone.busbw_GBps)
    assert both.messages == 2 * alone.messages
    assert both.groups == "div:8"
    assert "2 groups at once" in both.note


def test_groups_of_pairs_share_what_they_must():
    # Four pairs over one 1 GB/s link each way: each pair sends N in all (a ring of two), so 4 N cross it.
    pairs = Spec(Machine("ideal-ring:2@1GB/s,0us"), "all_reduce", 10**6, "ring", groups="0-1/1,0/0-1/1,0")
    one = run_spec(replace(pairs, groups=None))
    assert run_spec(pairs).time_us == pytest.approx(4 * one.time_us, rel=1e-9)


def test_auto_takes_the_algorithm_that_is_fastest_for_all_groups():
    row = run_spec(replace(PAIR, algorithm="auto", groups="mod:8", size_bytes=2**26))
    forced = [
        run_spec(replace(PAIR, algorithm=name, groups="mod:8", size_bytes=2**26)).time_us for name in ("ring", "one_shot")
    ]
    assert row.time_us <= min(forced)


def test_a_root_is_a_rank_of_each_group():
    row = run_spec(replace(PAIR, collective="broadcast", algorithm="flat", root=7, groups="div:8"))
    assert row.messages == 14
    with pytest.raises(Exception, match="root"):
        run_spec(replace(PAIR, collective="broadcast", algorithm="flat", root=8, groups="div:8"))
