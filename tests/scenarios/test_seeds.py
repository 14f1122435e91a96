"""Many seeds of hashed routes: a row of the median, a note of the spread."""

import pytest

from netsim.errors import FabricError
from scenarios.machine import Machine
from scenarios.run import Spec, run_spec
from scenarios.seeds import over_seeds, policies

MACHINE = Machine("hgx-h100", nodes=8, nic="ndr400:nics=1", fabric="leaf-spine:leaves=2,spines=4", gpus_per_node=1)


def spec(routing):
    return Spec(MACHINE, "alltoall", 8 * 10**6, "direct", routing=routing)


def test_a_range_stands_for_its_seeds():
    assert policies("ecmp:8..10") == ("ecmp:8", "ecmp:9", "ecmp:10")
    assert policies("ecmp:8") is policies("static") is None


@pytest.mark.parametrize("routing", ["ecmp:5..4", "ecmp:0..10000"])
def test_an_empty_or_endless_range_is_refused(routing):
    with pytest.raises(FabricError, match="go upwards and be at most 10000"):
        policies(routing)


def test_a_row_of_many_seeds_is_their_median_and_tells_their_spread():
    row, spread = over_seeds(spec("ecmp:0..8"), run_spec)
    singles = sorted(run_spec(spec(f"ecmp:{seed}")).time_us for seed in range(9))
    assert row.time_us == singles[4]
    assert (spread.least_s, spread.most_s) == (singles[0] / 1e6, singles[-1] / 1e6)
    assert spread.least_s < spread.most_s
    assert row.note.startswith("9 ECMP seeds: ")
    assert run_spec(spec("ecmp:0..8")) == row


def test_more_flows_a_pair_narrow_the_spread():
    # 64 KiB messages over 8 routes a pair meet less often than all of a pair's on one.
    ring = Spec(MACHINE, "all_gather", 8 * 10**6, "ring", chunks=16, routing="ecmp:0..8")
    one = over_seeds(ring, run_spec)[1]
    many = over_seeds(Spec(**{**vars(ring), "routing": "ecmp:0..8,flows=8"}), run_spec)[1]
    assert many.most_s <= one.most_s
