"""Every builder is proved and replayed on numbers, for all small rank counts and awkward sizes."""

from itertools import pairwise

import numpy as np
import pytest

from netsim.errors import ScheduleError
from netsim.schedule.catalogue import algorithms_for, build_schedule, options_for
from netsim.schedule.collective import COLLECTIVES, block_bounds
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay

RANKS = range(1, 18)
PAIRS = [(collective, algorithm) for collective in COLLECTIVES for algorithm in algorithms_for(collective)]


def sizes(ranks):
    return sorted({0, ranks - 1, 1009} | ({1, 1000} if ranks < 9 else set()))


def expected(collective, ranks, size, root, inputs):
    """What a collective promises, by plain NumPy."""
    bounds = block_bounds(size, ranks)
    spans = list(pairwise(bounds))
    if collective == "all_reduce":
        return [sum(inputs)] * ranks
    if collective == "reduce":
        return [sum(inputs) if rank == root else None for rank in range(ranks)]
    if collective == "broadcast":
        return [inputs[root]] * ranks
    if collective == "reduce_scatter":
        return [sum(inputs)[start:stop] for start, stop in spans]
    if collective == "scatter":
        return [inputs[root][start:stop] for start, stop in spans]
    if collective == "all_gather":
        return [np.concatenate(inputs)] * ranks
    if collective == "gather":
        return [np.concatenate(inputs) if rank == root else None for rank in range(ranks)]
    if collective == "sendrecv":
        return [inputs[rank - 1] for rank in range(ranks)]
    return [np.concatenate([sent[start:stop] for sent in inputs]) for start, stop in spans]


def random_inputs(collective, ranks, size, root):
    rng = np.random.default_rng(ranks * 1_000_003 + size)
    if collective in ("all_gather", "gather"):
        bounds = block_bounds(size, ranks)
        return [rng.integers(0, 1000, stop - start) for start, stop in pairwise(bounds)]
    if collective in ("broadcast", "scatter"):
        return [rng.integers(0, 1000, size) if rank == root else None for rank in range(ranks)]
    return [rng.integers(0, 1000, size) for _ in range(ranks)]


def check(schedule):
    prove(schedule)
    collective, ranks, size, root = schedule.collective, schedule.ranks, schedule.size_bytes, schedule.root
    inputs = random_inputs(collective, ranks, size, root)
    wanted = expected(collective, ranks, size, root, inputs)
    for result, right in zip(replay(schedule, inputs), wanted, strict=True):
        assert (result is None) == (right is None)
        if right is not None:
            assert np.array_equal(result, right)


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_every_algorithm_keeps_its_promise_for_1_to_17_ranks(collective, algorithm):
    for ranks in RANKS:
        for size in sizes(ranks):
            check(build_schedule(collective, algorithm, ranks, size, root=ranks // 2))


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
@pytest.mark.parametrize("ranks", [32, 64])
def test_every_algorithm_keeps_its_promise_for_many_ranks(collective, algorithm, ranks):
    check(build_schedule(collective, algorithm, ranks, 1009, root=5))


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_every_algorithm_keeps_its_promise_for_a_larger_size(collective, algorithm):
    check(build_schedule(collective, algorithm, 16, 65536, root=5))


@pytest.mark.parametrize(("collective", "algorithm"), [pair for pair in PAIRS if "chunks" in options_for(*pair)])
@pytest.mark.parametrize("option", [{"chunks": 3}, {"chunk_bytes": 70}, {"chunks": 2, "align_bytes": 8}])
def test_pipelined_algorithms_keep_their_promise_in_pieces(collective, algorithm, option):
    for ranks in (2, 3, 5, 8):
        for size in (0, 7, 1009):
            prove(build_schedule(collective, algorithm, ranks, size, **option))


@pytest.mark.parametrize(("collective", "algorithm"), [pair for pair in PAIRS if "groups" in options_for(*pair)])
@pytest.mark.parametrize(
    "groups", [((0, 1, 2), (3, 4, 5)), ((0, 3), (1, 4), (2, 5)), ((0,), (1, 2, 3, 4, 5)), ((5, 4, 3, 2, 1, 0),)]
)
def test_algorithms_that_know_servers_keep_their_promise(collective, algorithm, groups):
    options = options_for(collective, algorithm)
    if algorithm == "hierarchical" and len({len(server) for server in groups}) > 1:
        with pytest.raises(ScheduleError, match="needs servers of equal size, not of 1, 5 ranks"):
            build_schedule(collective, algorithm, 6, 1009, groups=groups)
        return
    option = {"channels": 3} if "channels" in options else {}
    check(build_schedule(collective, algorithm, 6, 1009, groups=groups, root=4 if "root" in options else 0, **option))


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_one_rank_moves_nothing(collective, algorithm):
    assert len(build_schedule(collective, algorithm, 1, 1000)) == 0


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_a_size_of_zero_still_sends_empty_messages(collective, algorithm):
    empty, full = (build_schedule(collective, algorithm, 4, size) for size in (0, 4))
    assert len(empty) == len(full) > 0
    assert empty.bytes_sent().sum() == 0
