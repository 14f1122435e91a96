from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError, ScheduleError
from netsim.nccl.channels import operation
from netsim.nccl.communicator import Communicator
from netsim.nccl.connect import chains, head_trees, ring, tree
from netsim.nccl.planning import plan
from netsim.nccl.settings import Settings
from netsim.nccl.version import Version
from netsim.schedule.dag import Schedule
from netsim.schedule.nccl import collnet as collnet_builder
from netsim.schedule.nccl import nvls as nvls_builder
from netsim.schedule.nccl import nvls_tree as nvls_tree_builder
from netsim.schedule.nccl import pat as pat_builder
from netsim.schedule.nccl import ring as ring_builder
from netsim.schedule.nccl import tree as tree_builder
from netsim.schedule.nccl.costs import Costs
from netsim.schedule.nccl.plan import Plan
from netsim.schedule.proof import prove
from tests.netsim.nccl.tuner_machines import h100_nodes, h100x8, machine, two_h200

KIB, MIB = 2**10, 2**20


def test_a_ring_has_its_channels_shares_and_portions() -> None:
    made = plan(two_h200(), "all_reduce", 64 * KIB, "ring", "simple")
    assert [(channel.number, channel.ring) for channel in made.channels] == [(0, (0, 1)), (1, (0, 1))]
    assert made.shares == ((0, 32 * KIB), (32 * KIB, 32 * KIB))
    assert (made.chunk_bytes, made.slices, made.slots, made.least_slice_bytes, made.threads) == (
        2 * MIB,
        2,
        4,
        32 * KIB,
        512,
    )
    assert (made.nodes, made.ranks, made.heads, made.align_bytes) == (((0, 1),), 2, (), 4)


def test_a_tree_over_nodes_has_both_trees() -> None:
    nodes = h100_nodes(4)
    made = plan(nodes, "all_reduce", 64 * MIB, "tree", "simple")
    assert [channel.tree for channel in made.channels] == [
        *(tree(nodes, number) for number in range(8)),
        *(tree(nodes, number, second=True) for number in range(8)),
    ]
    assert (made.chunk_bytes, made.slices, made.slots, made.threads) == (512 * KIB, 1, 8, 640)


def test_nvls_and_its_trees_have_heads() -> None:
    one = plan(h100x8(), "all_reduce", 64 * MIB, "nvls", "simple")
    assert (len(one.channels), one.heads) == (16, (tuple(range(8)),))
    four = plan(h100_nodes(4), "all_reduce", 64 * MIB, "nvls_tree", "simple")
    assert [channel.tree for channel in four.channels] == [*head_trees(h100_nodes(4))] * 8
    assert four.heads[3] == tuple(range(24, 32))


def test_collnet_has_heads_and_chains() -> None:
    nodes = machine(2, 4, (4, 48), collnet=(4, 48))
    direct = plan(nodes, "all_reduce", 64 * MIB, "collnet_direct", "simple")
    assert direct.heads == ((0, 1, 2, 3), (4, 5, 6, 7))
    chain = plan(nodes, "all_reduce", 64 * MIB, "collnet_chain", "simple")
    assert chains(nodes, 1) == ((1, 2, 3, 0), (5, 6, 7, 4))
    assert chain.channels[1].tree is not None
    assert chain.channels[1].tree.parent == (3, -1, 1, 2, 7, -1, 5, 6)
    assert sum(size for _, size in chain.shares) == 64 * MIB


def test_pat_needs_no_connections() -> None:
    made = plan(machine(8, 1, (2, 24)), "all_gather", 8 * MIB, "pat", "simple")
    assert [(channel.number, channel.ring, channel.tree) for channel in made.channels] == [(n, (), None) for n in range(4)]
    assert made.shares == tuple((256 * KIB * n, 256 * KIB) for n in range(4))  # 1 MiB a block


def test_a_channel_with_other_chunks_says_so() -> None:
    # As in test_chunks: fifteen channels with chunks of 32 KiB, the last with 16.
    made = plan(h100x8(), "all_reduce", 505 * 16 * KIB, "nvls", "simple")
    assert made.chunk_bytes == 32 * KIB
    assert [channel.chunk_bytes for channel in made.channels] == [0] * 15 + [16 * KIB]


def test_what_the_caller_says_is_handed_on() -> None:
    costs = Costs(start_s=1e-6)
    made = plan(
        two_h200(),
        "broadcast",
        MIB,
        "ring",
        "ll",
        root=1,
        costs=costs,
        align_bytes=2,
        channels=3,
        registered=True,
        in_place=True,
        settings=Settings(ll_buffer_bytes=64 * KIB),
    )
    assert (made.root, made.costs, made.align_bytes, made.registered, made.in_place) == (1, costs, 2, True, True)
    assert (len(made.channels), made.chunk_bytes) == (3, 4 * KIB)


def test_one_rank_and_no_bytes_have_a_plan_too() -> None:
    alone = plan(Communicator(((0,),), {}), "all_reduce", 100, "ring", "ll")
    assert ([channel.ring for channel in alone.channels], alone.shares) == ([(0,)], ((0, 100),))
    assert plan(two_h200(), "all_reduce", 0, "ring", "ll").shares == ((0, 0),)


@pytest.mark.parametrize(
    ("made", "algorithm", "message"),
    [
        (h100x8(), "nvls_tree", "nvls_tree is a tree over nodes; accepted are 2 nodes or more, and nvls on one"),
        (h100_nodes(2), "collnet_chain", "collnet_chain: the network does not reduce, or NCCL was not told so"),
        (
            machine(2, 9, (8, 48), collnet=(8, 48)),
            "collnet_direct",
            "collnet_direct: 9 ranks on a node; accepted are 8 at most",
        ),
        (machine(1, 8, (8, 48)), "nvls", "nvls: no graph for it was found on this machine"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(made: Communicator, algorithm: str, message: str) -> None:
    with pytest.raises(NetsimError, match=message):
        plan(made, "all_reduce", MIB, algorithm, "simple")


def test_a_root_that_is_no_rank_is_refused() -> None:
    with pytest.raises(ScheduleError, match="broadcast with root 2: the root must be a rank from 0 to 1"):
        plan(two_h200(), "broadcast", MIB, "ring", "ll", root=2)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
@pytest.mark.parametrize("protocol", ["ll", "simple"])
def test_rings_over_nodes_keep_the_promise_of_their_collective(collective: str, protocol: str) -> None:
    made = plan(machine(3, 2, (2, 20)), collective, 3 * MIB, "ring", protocol)
    assert [channel.ring for channel in made.channels[:2]] == [(0, 1, 2, 3, 4, 5), (0, 3, 2, 5, 4, 1)]
    prove(ring_builder.build(made))


NODES = machine(3, 4, (2, 20), nvls=(4, 40), collnet=(2, 20))


@pytest.mark.parametrize(
    ("build", "made"),
    [
        (tree_builder.build, plan(NODES, "all_reduce", 8 * MIB, "tree", "simple")),
        (nvls_builder.build, plan(machine(1, 4, (2, 20), nvls=(4, 40)), "all_reduce", 8 * MIB, "nvls", "simple")),
        (nvls_tree_builder.build, plan(NODES, "all_reduce", 8 * MIB, "nvls_tree", "simple")),
        (collnet_builder.build_direct, plan(NODES, "all_reduce", 8 * MIB, "collnet_direct", "simple")),
        (collnet_builder.build_chain, plan(NODES, "all_reduce", 8 * MIB, "collnet_chain", "simple")),
        (pat_builder.build, plan(machine(5, 1, (2, 20)), "all_gather", 10 * MIB, "pat", "simple")),
    ],
    ids=["tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain", "pat"],
)
def test_what_is_built_of_a_plan_keeps_the_promise_of_its_collective(build: Callable[[Plan], Schedule], made: Plan) -> None:
    prove(build(made))


RELEASES = [Version(2, 19, 4), Version(2, 21, 5), Version(2, 28, 9), Version(2, 30, 7)]


@given(
    st.integers(1, 16),
    st.integers(1, 8),
    st.integers(0, 2**30),
    st.sampled_from(["ll", "ll128", "simple"]),
    st.sampled_from(RELEASES),
)
def test_a_plan_is_its_operation_on_its_channels(nodes: int, gpus: int, size: int, protocol: str, version: Version) -> None:
    made = machine(nodes, gpus, (gpus, 24), version=version)
    found = operation(made, "all_reduce", "ring", protocol, size)
    planned = plan(made, "all_reduce", size, "ring", protocol)
    assert sum(share for _, share in planned.shares) == size
    if made.ranks > 1:
        assert planned.shares == found.shares
        # 2 x gpus channels, the second half with the rings of the first.
        assert [channel.ring for channel in planned.channels] == [ring(made, n % gpus) for n in range(found.channels)]
