from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError
from netsim.nccl.tuner_constants import ALGORITHMS, PROTOCOLS
from netsim.nccl.tuner_costs import TUNED
from netsim.nccl.tuner_file import Applied, Row, Rule, apply, format_rules, parse_rules, read_rules, rules_of

HEAD = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n"


def test_equal_neighbours_are_one_range_and_ranges_meet() -> None:
    rows = [
        (8, "ring", "ll", 1),
        (16, "ring", "ll", 1),
        (32, "ring", "ll", 2),
        (64, "tree", "ll", 2),
        (128, "tree", "ll", 2),
    ]
    assert rules_of(rows, "all_reduce", nodes=2, ranks=16) == [
        Rule("all_reduce", 0, 31, "ring", "ll", 1, 2, 16),
        Rule("all_reduce", 32, 63, "ring", "ll", 2, 2, 16),
        Rule("all_reduce", 64, 128, "tree", "ll", 2, 2, 16),
    ]


def test_rows_may_come_in_any_order_and_twice() -> None:
    rows = [Row(64, "nvls", "simple", 16), Row(8, "ring", "ll", 0), Row(64, "nvls", "simple", 16)]
    assert [rule.algorithm for rule in rules_of(rows, "all_reduce")] == ["ring", "nvls"]
    assert rules_of([], "all_reduce") == []


def test_the_last_range_ends_at_the_largest_size_unless_it_is_given() -> None:
    assert rules_of([(8, "ring", "ll", 24)], "all_gather")[0].most_bytes == 8
    assert rules_of([(2**33, "ring", "simple", 24)], "all_gather")[0].most_bytes == 2**33
    assert rules_of([(8, "ring", "simple", 24)], "all_gather", last_byte=100)[0].most_bytes == 100


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(8, "ring", "ll", 1), (8, "tree", "ll", 1)], "two choices for 8 bytes of all_reduce"),
        ([(8, "ring", "ll", -1)], "8 bytes on -1 channels; accepted are 1 or more, or 0"),
        ([(8, "rings", "ll", 1)], "'rings' is no algorithm"),
        ([(8, "ring", "ideal", 1)], "'ideal' is no protocol"),
    ],
)
def test_rows_that_are_no_choice_are_refused(rows: list[tuple[int, str, str, int]], words: str) -> None:
    with pytest.raises(NetsimError, match=words):
        rules_of(rows, "all_reduce")


def test_rules_that_nothing_can_match_are_refused() -> None:
    with pytest.raises(NetsimError, match="'alltoall' is no collective"):
        rules_of([(8, "ring", "ll", 1)], "alltoall")
    with pytest.raises(NetsimError, match="from 0 to -1 bytes is no range"):
        rules_of([(8, "ring", "ll", 1)], "reduce", last_byte=-1)


def test_the_first_rule_that_serves_is_applied() -> None:
    rules = parse_rules(
        "allreduce,0,1000,tree,ll,2,1,-1\n"
        "allreduce,0,1000,ring,ll,3,-1,16\n"
        "allreduce,1001,2000,nvls,simple,16,-1,-1,4\n"
        "allreduce,1001,2000,ring,simple,8,-1,-1,-1,1\n"
        "broadcast,0,5000,ring,simple,4,-1,-1\n"
    )
    assert apply(rules, "all_reduce", 1000, 1, 16) == Applied("tree", "ll", 2)
    assert apply(rules, "all_reduce", 1000, 2, 16) == Applied("ring", "ll", 3)
    assert apply(rules, "all_reduce", 1000, 2, 8) is None
    assert apply(rules, "all_reduce", 1001, 2, 8) is None
    assert apply(rules, "all_reduce", 1001, 2, 8, operations=4) == Applied("nvls", "simple", 16)
    assert apply(rules, "all_reduce", 2000, 2, 8, registered=True) == Applied("ring", "simple", 8)
    assert apply(rules, "broadcast", 1001, 2, 8) == Applied("ring", "simple", 4)
    assert apply(rules, "reduce", 1001, 2, 8) is None


def test_a_rule_for_what_cannot_run_is_passed_over() -> None:
    rules = parse_rules("allreduce,0,9,nvls,simple,16,-1,-1\nallreduce,0,9,ring,ll,1,-1,-1\n")
    assert apply(rules, "all_reduce", 8, 1, 8, available={("ring", "ll")}) == Applied("ring", "ll", 1)
    assert apply(rules, "all_reduce", 8, 1, 8, available=set()) is None


def test_minus_one_channels_are_one_and_zero_are_nccls_own_count() -> None:
    # The plugin stores 1 before it looks for a rule, leaves that for -1, and NCCL takes its own count for 0.
    assert apply(parse_rules("allreduce,0,9,ring,ll,-1,-1,-1"), "all_reduce", 8, 1, 8) == Applied("ring", "ll", 1)
    assert apply(parse_rules("allreduce,0,9,ring,ll,0,-1,-1"), "all_reduce", 8, 1, 8) == Applied("ring", "ll", None)


def test_comments_blank_lines_and_spaces_are_passed_over() -> None:
    text = "# x\r\n\r\n  # y\n allreduce , 0, 9 ,ring,\tll,1,-1,-1 \r\n"
    assert parse_rules(text) == [Rule("all_reduce", 0, 9, "ring", "ll", 1)]
    assert parse_rules("") == []


def test_what_is_written_says_what_it_is() -> None:
    text = format_rules([Rule("reduce_scatter", 0, 7, "ring", "ll128", 4, 2, 16, 1, 0)], comments=["made by\nhand"])
    assert text == "# made by hand\n" + HEAD + "reducescatter,0,7,ring,ll128,4,2,16,1,0\n"


COUNTS = st.one_of(st.just(-1), st.integers(1, 2**31 - 1))
RULES = st.builds(
    Rule,
    st.sampled_from(sorted(TUNED)),
    st.integers(0, 2**32),
    st.integers(2**32, 2**64 - 1),
    st.sampled_from(ALGORITHMS),
    st.sampled_from(PROTOCOLS),
    st.integers(-1, 64),
    COUNTS,
    COUNTS,
    COUNTS,
    st.integers(-1, 1),
)


@given(st.lists(RULES, max_size=5))
def test_what_is_written_is_read_back(rules: list[Rule]) -> None:
    assert parse_rules(format_rules(rules)) == rules


CHOICES = st.dictionaries(
    st.integers(0, 2**34),
    st.tuples(st.sampled_from(("ring", "tree")), st.sampled_from(PROTOCOLS), st.integers(1, 3)),
    min_size=1,
)


@given(CHOICES)
def test_every_size_gets_its_own_choice_back(choices: dict[int, tuple[str, str, int]]) -> None:
    rules = rules_of([(size, *choice) for size, choice in choices.items()], "all_reduce", nodes=1, ranks=8)
    for size, choice in choices.items():
        assert apply(rules, "all_reduce", size, 1, 8) == choice
    assert rules[0].least_bytes == 0
    assert all(before.most_bytes + 1 == after.least_bytes for before, after in pairwise(rules))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("allreduce,0,9,ring,ll,1,-1", "7 fields; accepted are 8 to 10: collective_type, min_bytes"),
        ("allreduce,0,9,ring,ll,1,-1,-1,-1,-1,-1", "11 fields"),
        ("all_reduce,0,9,ring,ll,1,-1,-1", "'all_reduce' is no collective_type; accepted are allreduce, allgather"),
        ("allreduce,0,9,RING,ll,1,-1,-1", "'RING' is no algorithm"),
        ("allreduce,0,9,ring,LL,1,-1,-1", "'LL' is no protocol"),
        ("allreduce,-1,9,ring,ll,1,-1,-1", "min_bytes is '-1'; accepted is a whole number from 0"),
        ("allreduce,0,9K,ring,ll,1,-1,-1", "max_bytes is '9K'"),
        ("allreduce,9,0,ring,ll,1,-1,-1", "from 9 to 0 bytes is no range"),
        ("allreduce,0,9,ring,ll,,-1,-1", "channels is ''; accepted is a whole number from -1"),
        ("allreduce,0,9,ring,ll,1,0,-1", "nNodes is 0; accepted are 1 or more"),
        ("allreduce,0,9,ring,ll,1,-1,-1,-1,2", "regBuff is '2'; accepted is a whole number from -1 to 1"),
        ("allreduce,0,99999999999999999999,ring,ll,1,-1,-1", "max_bytes is"),
        ("allreduce,0,9,ring,ll,1,-1,-1" + " " * 300, "longer than 255 characters"),
    ],
)
def test_a_line_that_is_no_rule_is_refused_with_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "rules.conf"
    path.write_text(f"# a comment\n{line}\n", encoding="utf-8")
    with pytest.raises(NetsimError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NetsimError, match="none.conf: does not exist; rules of the tuner plugin are wanted"):
        read_rules(tmp_path / "none.conf")


def test_nccls_own_example_is_read(shared: Path) -> None:
    path = shared / "samples" / "nccl_tuner" / "nccl_tuner.conf"
    if not path.is_file():
        pytest.skip("the folder of samples has no tuner rules")
    rules = read_rules(path)
    assert len(rules) == 9
    assert rules[1] == Rule("all_reduce", 65537, 1048576, "ring", "simple", 4, 4, 32, 1, 0)
    assert apply(rules, "all_gather", 1 << 20, 2, 16) == Applied("ring", "simple", 4)
