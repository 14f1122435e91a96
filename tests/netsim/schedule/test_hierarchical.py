"""Hierarchical all-reduce and all-to-all: which dimension carries what, and in which order."""

import numpy as np
import pytest

from netsim.errors import ScheduleError
from netsim.schedule.catalogue import build_schedule
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay

SERVERS = ((0, 1, 2, 3), (4, 5, 6, 7))


def across(schedule, groups=SERVERS):
    server = {rank: number for number, ranks in enumerate(groups) for rank in ranks}
    return np.array([server[int(a)] != server[int(b)] for a, b in zip(schedule.src, schedule.dst, strict=True)])


@pytest.mark.parametrize("dims", ["1", "6", "2x3", "3x2", "6x1", "1x6", "2x2x3", "3x2x2", "4x1x3", "2x2x2x2"])
@pytest.mark.parametrize("chunks", [None, 1, 3])
def test_every_order_of_dimensions_keeps_the_promise(dims, chunks):
    ranks = int(np.prod([int(part) for part in dims.split("x")]))
    for size in (0, 1, ranks - 1, 1009):
        schedule = build_schedule("all_reduce", f"hierarchical:{dims}", ranks, size, chunks=chunks)
        prove(schedule)
        inputs = [np.arange(size) * (rank + 1) for rank in range(ranks)]
        assert all((result == sum(inputs)).all() for result in replay(schedule, inputs))


@pytest.mark.parametrize("dims", ["1", "6", "2x3", "3x2", "6x1", "1x6"])
def test_an_all_to_all_along_rails_keeps_the_promise(dims):
    ranks = int(np.prod([int(part) for part in dims.split("x")]))
    for size in (0, 1, ranks - 1, 1009):
        prove(build_schedule("alltoall", f"hierarchical:{dims}", ranks, size))


def test_the_first_dimension_carries_the_whole_and_the_next_one_its_share():
    for dims, shares in (("2x8", (0.5, 7 / 16)), ("8x2", (7 / 8, 1 / 16))):
        schedule = build_schedule("all_reduce", f"hierarchical:{dims}", 16, 16_000, chunks=1)
        first = int(dims[0])
        inside = schedule.src // first == schedule.dst // first
        sent = [int(schedule.size[mask & (schedule.src == 0)].sum()) for mask in (inside, ~inside)]
        # Reduce-scatter and all-gather: (d - 1)/d of the share each.
        assert sent == [2 * 16_000 * share for share in shares]


def test_with_servers_all_but_a_share_stays_inside():
    schedule = build_schedule("all_reduce", "hierarchical", 8, 8000, groups=SERVERS, chunks=1)
    # A quarter each over the network, half of it in the reduce-scatter and half in the all-gather.
    assert schedule.size[across(schedule) & (schedule.src == 0)].tolist() == [1000, 1000]
    assert build_schedule("all_reduce", "hierarchical:4x2", 8, 8000, chunks=1).dst.tolist() == schedule.dst.tolist()


def test_servers_decide_which_ranks_are_neighbours():
    groups = ((0, 2, 4, 6), (1, 3, 5, 7))
    for collective in ("all_reduce", "alltoall"):
        schedule = build_schedule(collective, "hierarchical", 8, 800, groups=groups)
        prove(schedule)
        outside = across(schedule, groups)
        # The network joins equal places: 0 with 1, 2 with 3.
        assert (schedule.src[outside] // 2 == schedule.dst[outside] // 2).all()


def test_one_server_is_a_ring_or_direct():
    one, ring = (build_schedule("all_reduce", name, 8, 8000) for name in ("hierarchical", "ring"))
    assert one.size.tolist() == ring.size.tolist()
    assert one.dst.tolist() == ring.dst.tolist()
    one, direct = (build_schedule("alltoall", name, 8, 8000) for name in ("hierarchical", "direct"))
    assert one.dst.tolist() == direct.dst.tolist()


def test_by_default_there_are_16_chunks_and_no_share_below_256_KiB():
    for size, pieces in ((0, 1), (2**22 - 1, 1), (2**22, 2), (2**25, 16), (2**30, 16)):
        assert build_schedule("all_reduce", "hierarchical:4x2", 8, size).pieces == pieces
    assert build_schedule("all_reduce", "hierarchical:8", 8, 2**30).pieces == 1


def test_an_all_to_all_hands_over_inside_and_sends_one_message_a_server_over_the_network():
    schedule = build_schedule("alltoall", "hierarchical", 8, 800, groups=SERVERS)
    outside = across(schedule)
    # Inside to three neighbours, the blocks for their place on both servers; then those of four GPUs for one.
    assert schedule.size[~outside].tolist() == [200] * 24
    assert schedule.size[outside].tolist() == [400] * 8
    assert (schedule.src[outside] % 4 == schedule.dst[outside] % 4).all()
    assert len(schedule.requirements(len(schedule) - 1)) == 3


def test_an_all_to_all_has_two_dimensions():
    with pytest.raises(ScheduleError, match="has two dimensions, ranks a server and servers; got 3"):
        build_schedule("alltoall", "hierarchical:2x2x2", 8, 800)
