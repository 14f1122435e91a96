import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.errors import FabricError
from netsim.fabric import ranks_of
from netsim.routing import Router
from topologies import build
from topologies.distances import NODE, PIX, SYS
from topologies.rocm_text import holds_rocm_topology, parse_rocm


def section(title: str, rows: list[str]) -> str:
    gpus = [f"GPU{gpu}" for gpu in range(len(rows))]
    lines = [f"=================== {title} ====================", "       " + "         ".join(gpus)]
    return "\n".join(lines + [f"{gpu}   {row}" for gpu, row in zip(gpus, rows, strict=True)]) + "\n\n"


def numa(*nodes: int) -> str:
    lines = ["============ Numa Nodes ============"]
    for gpu, node in enumerate(nodes):
        lines += [f"GPU[{gpu}]\t\t: (Topology) Numa Node: {node}", f"GPU[{gpu}]\t\t: (Topology) Numa Affinity: {node}"]
    return "\n".join(lines) + "\n===== End of ROCm SMI Log =====\n"


TYPES = section("Link Type between two GPUs", ["0 XGMI PCIE", "XGMI 0 PCIE", "PCIE PCIE 0"])
HOPS = section("Hops between two GPUs", ["0 1 3", "1 0 2", "3 2 0"])
WEIGHTS = section("Weight between two GPUs", ["0 15 72", "15 0 40", "72 40 0"])


def test_links_and_distances_are_read() -> None:
    table = parse_rocm(WEIGHTS + HOPS + TYPES + numa(0, 0, 1), "here")
    assert table.gpus == ["GPU0", "GPU1", "GPU2"]
    assert table.bonds == {("GPU0", "GPU1"): 1}
    assert table.distances == {("GPU0", "GPU2"): SYS, ("GPU1", "GPU2"): NODE}
    assert table.numa == {"GPU0": 0, "GPU1": 0, "GPU2": 1}
    assert any("how many xgmi links" in remark for remark in table.remarks)


def test_weights_stand_in_for_hops() -> None:
    table = parse_rocm(WEIGHTS + TYPES, "here")
    assert table.distances == {("GPU0", "GPU2"): SYS, ("GPU1", "GPU2"): NODE}
    assert any("no table of hops" in remark for remark in table.remarks)


def test_one_hop_over_pci_express_is_a_switch() -> None:
    assert parse_rocm(HOPS.replace("0 2", "0 1").replace("3 2", "3 1") + TYPES, "here").distances["GPU1", "GPU2"] == PIX


def test_xgmi_over_several_hops_is_no_link() -> None:
    table = parse_rocm(HOPS.replace("0 1 3", "0 2 3").replace("1 0 2", "2 0 2") + TYPES, "here")
    assert table.bonds == {}
    assert any("GPU0 - GPU1 is XGMI over several hops" in remark for remark in table.remarks)


def test_weights_tell_which_xgmi_gpus_have_a_link_where_every_hop_count_is_one(tmp_path: Path) -> None:
    # 15 a hop: GPU0 - GPU1 - GPU2 - GPU3 in a ring, so that 0 - 2 and 1 - 3 are two hops apart.
    rows = ["0 15 30 15", "15 0 15 30", "30 15 0 15", "15 30 15 0"]
    ring = section("Weight between two GPUs", rows)
    ones, xgmi = (
        section(title, [" ".join(word if a != b else "0" for b in range(4)) for a in range(4)])
        for title, word in (("Hops between two GPUs", "1"), ("Link Type between two GPUs", "XGMI"))
    )
    table = parse_rocm(ring + ones + xgmi, "here")
    assert list(table.bonds) == [("GPU0", "GPU1"), ("GPU0", "GPU3"), ("GPU1", "GPU2"), ("GPU2", "GPU3")]
    assert any("GPU0 - GPU2 is XGMI over several hops (and 1 more pairs)" in remark for remark in table.remarks)
    assert table.forwards
    path = tmp_path / "ring.txt"
    path.write_text(ring + ones + xgmi, encoding="utf-8")
    router = Router(build(str(path)))
    assert [router.edges[index] for index in router.path(0, 2)] == [("gpu0", "gpu1"), ("gpu1", "gpu2")]
    # What a single hop weighs elsewhere stays a link.
    assert len(parse_rocm(ring.replace("30", "41") + ones + xgmi, "here").bonds) == 6


def test_seven_xgmi_links_are_the_newest_generation(tmp_path: Path) -> None:
    path = tmp_path / "box.txt"
    for gpus, kinds in ((8, {"xgmi4", "pcie5"}), (4, {"xgmi3", "pcie4"})):
        rows = [" ".join("XGMI" if a != b else "0" for b in range(gpus)) for a in range(gpus)]
        path.write_text(section("Link Type between two GPUs", rows), encoding="utf-8")
        assert {link.kind for _, _, link in build(str(path)).edges(data="link")} == kinds | {"host_memory"}


@pytest.mark.parametrize("prefix", ["> ", "# ", "node7: ", "\x1b[1m", "2026-02-03T04:05:06Z "])
def test_the_way_it_was_pasted_changes_nothing(prefix: str) -> None:
    whole = WEIGHTS + HOPS + TYPES + numa(0, 0, 1)
    pasted = "".join(f"{prefix}{line}\n" for line in whole.splitlines())
    assert holds_rocm_topology(pasted)
    assert parse_rocm(pasted, "here") == parse_rocm(whole, "here")
    assert parse_rocm(whole.replace("GPU[1]", "GPU 1"), "here") == parse_rocm(whole, "here")


def test_no_access_is_remarked_upon() -> None:
    table = parse_rocm(HOPS + TYPES.replace("PCIE", "N/A") + numa(0, 0, 1), "here")
    assert any("GPU0 - GPU2 has the link type N/A" in remark for remark in table.remarks)


def test_a_file_becomes_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "box.txt"
    path.write_text(WEIGHTS + HOPS + TYPES + numa(0, 0, 1), encoding="utf-8")
    graph = build(str(path), profile="xgmi4")
    assert graph.edges["gpu0", "gpu1"]["link"].kind == "xgmi4"
    router = Router(graph)
    assert [router.edges[index] for index in router.path(0, 1)] == [("gpu0", "gpu1")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WEIGHTS, "no table 'Link Type between two GPUs'"),
        (TYPES.replace("0 XGMI PCIE", "0 XGMI"), "line 3: the row of GPU0 has 2 cells where the head names 3 GPUs"),
        (TYPES.replace("XGMI", "NVLINK"), "the link type between GPU0 and GPU1 is 'NVLINK'"),
        (TYPES.replace("XGMI 0 PCIE", "PCIE 0 PCIE"), "GPU0 - GPU1 has the link types PCIE and XGMI"),
        (TYPES + HOPS.replace("3", "far"), "the hops between GPU0 and GPU2 is 'FAR'"),
        (TYPES.replace("GPU2\n", "GPU0\n"), "names a GPU twice"),
        (TYPES + TYPES.replace("XGMI", "PCIE"), "line 9: a second, different row of GPU0"),
        (TYPES + numa(0, 0, 1) + numa(0, 1, 1), "a second NUMA node of GPU1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(FabricError, match=re.escape(words)):
        parse_rocm(text, "here.txt")


def test_other_text_is_not_taken_for_it() -> None:
    assert holds_rocm_topology(TYPES)
    assert not holds_rocm_topology("GPU0 GPU1\n=====\n== something ==\n")


@given(cut=st.integers(0, 900), junk=st.text(max_size=6))
def test_a_damaged_text_is_read_or_refused(cut: int, junk: str) -> None:
    whole = WEIGHTS + HOPS + TYPES + numa(0, 0, 1)
    with contextlib.suppress(FabricError):
        assert parse_rocm(whole[:cut] + junk + whole[cut + len(junk) :], "here").gpus


def test_the_sample_has_four_gpus_on_four_numa_nodes(shared: Path) -> None:
    graph = build(str(shared / "samples" / "rocm_smi_topo" / "mi_4gpu_pcie.txt"))
    assert len(ranks_of(graph)) == 4
    assert [list(graph.successors(f"gpu{gpu}")) for gpu in range(4)] == [["cpu3"], ["cpu1"], ["cpu7"], ["cpu5"]]
    assert {link.kind for _, _, link in graph.edges(data="link")} == {"pcie4", "host_memory", "socket_amd"}
