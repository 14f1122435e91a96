"""Nothing that moves data in trees and switches could do without what it waits for."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.errors import ProofError
from netsim.schedule.dag import COMPUTE, LEFT
from netsim.schedule.nccl import collnet, nvls, nvls_tree, tree
from netsim.schedule.proof import prove
from tests.netsim.schedule.nccl.over_nodes import chained_tree, head_trees, node_chains, plan_of

SCHEDULES = {
    "tree": tree.build(plan_of("tree", 2, 2, 200, [chained_tree(2, 2, 0)], chunk=100)),
    "tree by ll": tree.build(plan_of("tree", 2, 2, 200, [chained_tree(2, 2, 0)], chunk=100, protocol="ll")),
    "nvls": nvls.build(plan_of("nvls", 1, 3, 200, [None], chunk=50)),
    "nvls all-gather": nvls.build(plan_of("nvls", 1, 3, 300, [None], chunk=50, collective="all_gather")),
    "nvls reduce-scatter": nvls.build(plan_of("nvls", 1, 3, 300, [None], chunk=50, collective="reduce_scatter")),
    "nvls_tree": nvls_tree.build(plan_of("nvls_tree", 3, 2, 200, [head_trees(3, 2, 0)], chunk=50)),
    "collnet_direct": collnet.build_direct(plan_of("collnet_direct", 2, 2, 200, [None], chunk=50)),
    "collnet_chain": collnet.build_chain(plan_of("collnet_chain", 2, 3, 200, [node_chains(2, 3)], chunk=100)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_requirement_for_data_can_be_dropped(name):
    schedule = SCHEDULES[name]
    ops = np.repeat(np.arange(len(schedule)), np.diff(schedule.requires_start))
    moves = (schedule.kind[ops] != COMPUTE) & (schedule.kind[schedule.requires_op] != COMPUTE)
    places = np.flatnonzero(moves & (schedule.requires_milestone != LEFT)).tolist()
    assert len(places) >= len(schedule) // 4
    for place in places:
        keep = np.arange(len(ops)) != place
        start = np.searchsorted(ops[keep], np.arange(len(schedule) + 1)).astype(np.int64)
        columns = {
            column: getattr(schedule, column)[keep] for column in ("requires_op", "requires_milestone", "requires_lag")
        }
        with pytest.raises(ProofError):
            prove(replace(schedule, requires_start=start, **columns))
