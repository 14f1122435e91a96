from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import NetsimError
from netsim.nccl.dump import MOST_BYTES, format_dump, parse_dump, read_dump
from netsim.nccl.graphs import GRAPH_IDS, ChannelGraph, ChannelOrder
from netsim.nccl.paths import TYPES

HEAD = 'id="0" pattern="4" crossnic="0" nchannels="1" speedintra="20" speedinter="20" typeintra="NVL" typeinter="PIX"'


def dump(inside: str = '<channel><gpu dev="0"/><gpu dev="1"/></channel>', head: str = HEAD) -> bytes:
    return f'<graphs version="1"><graph {head} samechannels="1">{inside}</graph></graphs>'.encode()


def test_a_ring_is_read_with_its_ports() -> None:
    inside = '<channel><net dev="2"/><gpu dev="0x1"/><gpu dev="0"/><net dev="0x3"/></channel>'
    assert parse_dump(dump(inside)) == {
        "ring": ChannelGraph("ring", 4, (ChannelOrder((1, 0), 2, 3),), 20.0, 20.0, "NVL", "PIX"),
    }


def test_gpus_are_numbered_by_rank_where_it_is_told_else_by_device() -> None:
    by_device = parse_dump(dump('<channel><gpu dev="7"/><gpu dev="4"/></channel>'))["ring"]
    assert by_device.orders[0].gpus == (1, 0)
    by_rank = parse_dump(dump('<channel><gpu dev="7" rank="8"/><gpu dev="4" rank="9"/></channel>'))["ring"]
    assert by_rank.orders[0].gpus == (0, 1)


@st.composite
def graphs(draw: st.DrawFn) -> ChannelGraph:
    name = draw(st.sampled_from(sorted(GRAPH_IDS)))
    size = draw(st.integers(1, 5))
    several = draw(st.booleans())
    ports = st.integers(0, 40) if several else st.none()
    order = st.builds(ChannelOrder, st.permutations(range(size)).map(tuple), ports, ports)
    speeds = st.sampled_from((0.0, 0.1, 2.4, 17.5, 45.1, 96.0))
    types = st.sampled_from(TYPES)
    return ChannelGraph(
        name,
        draw(st.integers(1, 6)),
        tuple(draw(st.lists(order, max_size=4))),
        *(draw(speeds), draw(speeds), draw(types), draw(types), draw(speeds), draw(st.integers(0, 2)), draw(st.booleans())),
    )


@given(graphs())
def test_what_is_written_is_read_back(graph: ChannelGraph) -> None:
    assert parse_dump(format_dump({graph.name: graph}).encode()) == {graph.name: graph}


def test_graphs_are_written_in_nccls_order() -> None:
    empty = {name: ChannelGraph(name, 3, (), 0.0, 0.0) for name in GRAPH_IDS}
    assert list(parse_dump(format_dump(empty).encode())) == ["ring", "tree", "collnet_direct", "collnet_chain", "nvls"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not XML"),
        (b"<graphs", "not XML"),
        (b'<system version="1"/>', "this is a topology"),
        (b"<graphs><gpu/></graphs>", "<gpu> stands in <graphs>"),
        (b'<!DOCTYPE g [<!ENTITY a "b">]><graphs/>', "declares a document type"),
        (b'<?xml version="1.0" encoding="nonsense"?><graphs/>', "not XML"),
        (dump(head=HEAD.replace('id="0"', 'id="9"')), "id='9'; a whole number from 0 to 4"),
        (dump(head=HEAD.replace('nchannels="1"', 'nchannels="2"')), "nchannels=2 but 1 channel"),
        (dump(head=HEAD.replace('"NVL"', '"FAR"')), "typeintra='FAR'; accepted are LOC, NVL"),
        (dump(head=HEAD.replace('speedintra="20"', 'speedintra="nan"')), "speedintra='nan'; a number"),
        (dump(head=HEAD.replace('speedintra="20"', 'speedintra="-1"')), "speedintra='-1'; a number"),
        (dump("<channel/>"), "found nothing"),
        (dump('<channel><gpu dev="0"/><net dev="0"/></channel>'), "found gpu net"),
        (dump('<channel><gpu dev="0"/><gpu dev="0"/></channel>'), "a GPU twice"),
        (dump('<channel><gpu dev="x"/></channel>'), "line 1: <gpu> has dev='x'"),
        (dump('<channel><gpu dev="0" rank="1"/><gpu dev="0" rank="2"/></channel>'), "device 0 has rank 2 here and 1 before"),
        (b"<graphs><graph><graph/></graph></graphs>", "<graph> stands in <graph>"),
        (b" " * (MOST_BYTES + 1), "larger than 8 MiB"),
    ],
)
def test_what_is_no_dump_is_refused_in_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(NetsimError) as caught:
        parse_dump(data, "mine.xml")
    assert str(caught.value).startswith("mine.xml: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_channels_with_other_gpus_and_two_graphs_of_one_id_are_refused() -> None:
    two = '<channel><gpu dev="0"/></channel><channel><gpu dev="1"/></channel>'
    with pytest.raises(NetsimError, match="have different GPUs"):
        parse_dump(dump(two, HEAD.replace('nchannels="1"', 'nchannels="2"')))
    graph = dump().removeprefix(b'<graphs version="1">').removesuffix(b"</graphs>")
    with pytest.raises(NetsimError, match="two graphs with id 0"):
        parse_dump(b"<graphs>" + graph + graph + b"</graphs>")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NetsimError, match="none.xml: does not exist"):
        read_dump(tmp_path / "none.xml")
    with pytest.raises(NetsimError, match="it is a folder, not a file"):
        read_dump(tmp_path)


@given(st.binary(max_size=200))
def test_nothing_but_a_dump_is_read(data: bytes) -> None:
    with pytest.raises(NetsimError, match="graph dump: "):
        parse_dump(b"<graphs>" + data)


@pytest.mark.parametrize(
    ("sample", "ring", "tree"),
    [
        ("azure_ncv4_graph", (2, 12.0, "SYS"), (4, 12.0, "SYS")),
        ("one_gpu_loc", (1, 24.0, "LOC"), (1, 48.0, "LOC")),
        ("ring_net_in_out_sys", (2, 12.0, "SYS"), (2, 6.0, "SYS")),
    ],
)
def test_dumps_of_real_machines_are_read(
    shared: Path, sample: str, ring: tuple[int, float, str], tree: tuple[int, float, str]
) -> None:
    path = shared / "samples" / "nccl_graph_xml" / f"{sample}.xml"
    if not path.is_file():
        pytest.skip("the folder of samples has no graph dumps")
    found = read_dump(path)
    for name, expected in (("ring", ring), ("tree", tree)):
        assert (found[name].channels, found[name].intra_GBps, found[name].type_intra) == expected
