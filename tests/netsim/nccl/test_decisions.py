"""Who decides what NCCL runs: its cost model, rules of a tuner plugin, or nobody."""

import pytest

import topologies
from netsim.errors import NetsimError
from netsim.nccl.from_topology import communicator
from netsim.nccl.schedules import build, decide
from netsim.nccl.tuner_file import Rule


@pytest.fixture(scope="module")
def eight():
    return communicator(topologies.build("hgx-h100"))


def test_without_rules_the_model_decides(eight):
    made = decide(eight, "all_reduce", 1024)
    assert (made.choice.algorithm, made.choice.protocol, made.channels, made.ruled) == ("ring", "ll", None, None)


def test_the_first_rule_that_serves_decides_and_its_prediction_is_the_models(eight):
    rules = [Rule("all_reduce", 0, 512, "tree", "ll"), Rule("all_reduce", 513, 4096, "nvls", "simple", 8)]
    made = decide(eight, "all_reduce", 1024, rules=rules)
    assert (made.choice.algorithm, made.choice.protocol, made.channels, made.ruled) == ("nvls", "simple", 8, True)
    assert made.choice.predicted_us == made.choice.table["nvls", "simple"] > made.choice.table["ring", "ll"]


def test_no_rule_leaves_the_model_one_channel(eight):
    # The example plugin sets one channel before it looks for a rule.
    made = decide(eight, "all_reduce", 2**20, rules=[Rule("all_gather", 0, 2**32, "ring", "ll", 8)])
    assert (made.choice.algorithm, made.channels, made.ruled) == ("ring", 1, False)
    assert build(eight, "all_reduce", 2**20, rules=[]).channels == 1
    assert build(eight, "all_reduce", 2**20).channels == 24


def test_what_was_excluded_no_rule_brings_back(eight):
    rules = [Rule("all_reduce", 0, 2**32, "nvls", "simple", 0)]
    made = decide(eight, "all_reduce", 2**20, "ring", rules=rules)
    assert (made.choice.algorithm, made.ruled) == ("ring", False)
    assert decide(eight, "all_reduce", 2**20, rules=rules).choice.algorithm == "nvls"


def test_rules_may_ask_whether_buffers_are_registered(eight):
    rules = [Rule("all_reduce", 0, 2**32, "tree", "simple", 0, registered=1)]
    assert decide(eight, "all_reduce", 1024, rules=rules, registered=True).choice.algorithm == "tree"
    assert decide(eight, "all_reduce", 1024, rules=rules).ruled is False


def test_rules_of_other_machines_do_not_serve(eight):
    rules = [
        Rule("all_reduce", 0, 2**32, "tree", "simple", 4, nodes=2),
        Rule("all_reduce", 0, 2**32, "tree", "ll", 4, ranks=8),
    ]
    made = decide(eight, "all_reduce", 1024, rules=rules)
    assert (made.choice.protocol, made.channels) == ("ll", 4)


def test_channels_of_a_rule_are_used_and_given_ones_go_before(eight):
    rules = [Rule("all_reduce", 0, 2**32, "ring", "simple", 6)]
    assert build(eight, "all_reduce", 2**24, rules=rules).channels == 6
    assert build(eight, "all_reduce", 2**24, rules=rules, channels=3).channels == 3


@pytest.mark.parametrize(("collective", "algorithm"), [("alltoall", "auto"), ("all_reduce", "symmetric")])
def test_where_the_model_is_not_asked_there_is_no_decision(eight, collective, algorithm):
    assert decide(eight, collective, 1024, algorithm, rules=[]) is None
    assert build(eight, collective, 1024, algorithm=algorithm, rules=[]).ruled is None


def test_one_rank_only_copies():
    assert decide(communicator(topologies.build("hgx-h100"), ranks=(0,)), "all_reduce", 1024) is None


def test_nothing_left_is_an_error_and_no_decision(eight):
    with pytest.raises(NetsimError, match="cannot run pat"):
        decide(eight, "all_reduce", 1024, "pat", rules=[])
