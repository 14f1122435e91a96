"""NCCL's path types and what they let pass."""

import pytest

from netsim.errors import FabricError
from netsim.reach import LEVELS, Rules, check_level, path_type


@pytest.mark.parametrize(
    ("kinds", "chip_link", "expected"),
    [
        ([], False, "NVL"),
        (["nvswitch"], False, "NVL"),
        (["gpu"], False, "NVB"),
        (["pcie_switch"], False, "PIX"),
        (["pcie_switch", "pcie_switch"], False, "PXB"),
        (["root_complex"], False, "PHB"),
        (["root_complex"], True, "P2C"),
        (["pcie_switch", "root_complex", "root_complex"], False, "SYS"),
        (["root_complex", "root_complex"], True, "SYS"),
        (["pcie_switch", "nic", "network_switch", "nic"], False, "NET"),
    ],
)
def test_the_worst_thing_on_a_path_is_its_type(kinds, chip_link, expected):
    assert path_type(kinds, chip_link) == expected


def test_peers_reach_each_other_up_to_their_level_and_never_less_far():
    for level in LEVELS:
        reached = [rules for rules in LEVELS if Rules(p2p=level).peers_reach(rules)]
        assert reached == list(LEVELS[: LEVELS.index(level) + 1])
    assert Rules().peers_reach("SYS")


def test_the_default_level_of_gpudirect_counts_a_chip_to_chip_link_as_near():
    rules = Rules(gdr_level="PXB")
    assert [level for level in LEVELS if not rules.nic_reaches(level)] == ["PXN", "PHB", "SYS"]
    assert not Rules(gdr_level="PIX").nic_reaches("P2C")


def test_without_gpudirect_no_nic_reaches_a_gpu():
    assert not Rules(gpudirect=False).nic_reaches("PIX")
    assert Rules().nic_reaches("SYS")


def test_rules_are_read_from_a_graphs_attributes():
    assert Rules.of({}) == Rules()
    assert Rules.of({"p2p": "NVL", "pxn": True, "gdr_level": "SYS"}) == Rules(p2p="NVL", pxn=True, gdr_level="SYS")


def test_a_level_that_nccl_does_not_know_is_refused():
    with pytest.raises(FabricError, match="here: unknown level 'NODE'; accepted are LOC, NVL"):
        check_level("NODE", "here")
