"""Builders hand options on without a list of their own, and still refuse a name that is not theirs."""

import pytest

from netsim.schedule import alltoall, bruck, chain, direct, halving, hierarchical, nvls, pat, ring, tree
from netsim.schedule.pieces import GivenPieces

PLAIN = [direct.all_gather, direct.flat_reduce, halving.all_reduce, bruck.all_gather, alltoall.sendrecv]
CUT = [nvls.all_reduce, pat.all_gather, hierarchical.all_reduce, chain.all_reduce, tree.double_all_reduce, ring.all_reduce]
WITH_SERVERS = [alltoall.pairwise, hierarchical.all_to_all, chain.all_reduce, tree.all_reduce, ring.reduce]


@pytest.mark.parametrize("build", [*PLAIN, *CUT, *WITH_SERVERS, ring.broadcast])
@pytest.mark.parametrize("name", ["pieces", "phases", "expected", "algorithm", "size"])
def test_a_name_that_no_builder_takes_is_refused(build, name):
    with pytest.raises(TypeError, match=rf"argument '{name}'"):
        build(4, 64, **{name: 1})


@pytest.mark.parametrize(
    ("build", "name"),
    [
        *((build, "chunks") for build in (*PLAIN, alltoall.pairwise)),
        *((build, "groups") for build in (*PLAIN, nvls.all_reduce, pat.all_gather)),
        *((build, "channels") for build in (*PLAIN, *CUT[:-1])),
        *((build, "root") for build in (*CUT, direct.all_gather, tree.all_reduce, alltoall.pairwise)),
    ],
)
def test_an_option_of_other_builders_is_refused(build, name):
    with pytest.raises(TypeError, match=rf"argument '{name}'"):
        build(4, 64, **{name: 1})


@pytest.mark.parametrize("build", CUT)
def test_a_builder_that_cuts_takes_a_number_or_a_size_of_pieces(build):
    assert build(4, 64).align_bytes == 1
    # What is cut is all 64 bytes, a half of them or a quarter: 2 bytes a piece make 32, 16 or 8 pieces.
    whole = {hierarchical.all_reduce: 64, chain.all_reduce: 64, tree.double_all_reduce: 32}.get(build, 16)
    assert build(4, 64, chunks=4).pieces == 4
    assert build(4, 64, chunk_bytes=2, align_bytes=2).pieces == whole // 2


def test_by_default_pieces_are_at_most_64_and_none_is_below_4_kib():
    # 40000 / 4096 = 9.8; 300000 / 4096 = 73.2; 100 bytes are one piece.
    assert [GivenPieces().count(largest) for largest in (100, 40_000, 300_000)] == [1, 9, 64]
    # 100 bytes in pieces of 30: three and a rest.
    assert GivenPieces(chunk_bytes=30).count(100) == 4
    assert GivenPieces().count(300_000, default=1) == 1
