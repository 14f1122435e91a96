import pytest

from netsim.errors import ScheduleError
from scenarios.choices import choices
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec

EIGHT = Spec(Machine("hgx-h100"), "all_reduce", 0, protocol="auto")


def test_sizes_are_rounded_and_equal_ones_asked_once():
    # Blocks of all-gather are multiples of 16 bytes a rank: 1000 and 1020 bytes are both 8 x 112 = 896.
    found = choices(Spec(Machine("hgx-h100"), "all_gather", 0, protocol="auto"), [1000, 1020, 4096])
    assert [size for size, _ in found.decisions] == [896, 4096]


def test_costs_are_of_what_is_left_to_choose_from():
    found = choices(Spec(Machine("hgx-h100"), "all_reduce", 0, "ring", "simple"), [1024])
    assert list(found.costs) == [("ring", "simple")]
    off = NcclOptions(environment=("NCCL_ALGO=^nvls,tree",))
    assert list(choices(Spec(EIGHT.machine, "all_reduce", 0, protocol="auto", nccl=off), [1024]).costs) == [
        ("ring", "ll"),
        ("ring", "ll128"),
        ("ring", "simple"),
    ]


def test_of_groups_the_first_is_asked():
    alone = choices(Spec(Machine("hgx-h100", gpus_per_node=4), "all_reduce", 0, protocol="auto"), [1024])
    assert choices(Spec(EIGHT.machine, "all_reduce", 0, protocol="auto", groups="div:4"), [1024]) == alone
    assert choices(EIGHT, [1024]) != alone


def test_textbook_runs_are_refused():
    with pytest.raises(ScheduleError, match="is textbook"):
        choices(Spec(EIGHT.machine, "all_reduce", 0, protocol="ideal"), [1024])


@pytest.mark.parametrize("algorithm", ["ring,tree", "^nvls"])
def test_lists_of_algorithms_are_nccls(algorithm):
    spec = Spec(EIGHT.machine, "all_reduce", 0, algorithm, protocol="auto")
    assert {name for name, _ in choices(spec, [1024]).costs} == {"ring", "tree"}
