import json
from collections.abc import Callable
from pathlib import Path

import pytest


def test_list_names_presets_and_profiles(ask: Callable) -> None:
    out = ask("topo list").out
    assert "hgx-h100 " in out
    assert "ndr400" in out


def test_show_counts_equal_links_together(ask: Callable) -> None:
    out = ask("topo show ideal-switch:8@450GB/s,1us").out
    assert "8 ranks on 1 server" in out
    assert "8 x gpu -> nvswitch: 450 GB/s, 1 us" in out


def test_show_names_the_rate_in_use(ask: Callable) -> None:
    assert "370.8 GB/s" in ask("topo show hgx-h100").out
    line = ask("topo show hgx-h100 --rate line").out
    assert "450 GB/s" in line
    assert "line rates" in line


def test_a_sound_machine_passes_its_check(ask: Callable) -> None:
    answer = ask("topo check ideal-switch:8@450GB/s,1us")
    assert answer.code == 0
    assert "nothing looks wrong" in answer.out


def test_a_doubtful_machine_is_a_no(ask: Callable, monkeypatch) -> None:
    import topologies

    monkeypatch.setattr(topologies, "remarks", lambda graph: ["gpu0 has half the links of its neighbours"], raising=False)
    answer = ask("topo check hgx-h100")
    assert answer.code == 1
    assert answer.out == "remark: gpu0 has half the links of its neighbours\n"


MATRIX = """        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      NV12    NODE    SYS     0-31            0
GPU1    NV12     X      NODE    SYS     0-31            0
GPU2    NODE    NODE     X      SYS     0-31            0
GPU3    SYS     SYS     SYS      X      32-63           1
"""


def test_import_writes_a_file_that_is_the_same_machine(ask: Callable, tmp_path: Path) -> None:
    matrix, target = tmp_path / "box.txt", tmp_path / "box.yaml"
    matrix.write_text(MATRIX)
    answer = ask(f"topo import {matrix} -o {target}")
    assert answer.code == 0
    assert answer.out == ""
    assert "remark: the text does not tell the generation of the NVLinks" in answer.err
    digests = [ask(f"topo show {path}").out.split("digest: ")[1].split()[0] for path in (matrix, target)]
    assert digests[0] == digests[1]


def test_an_imported_machine_can_be_edited_and_run(ask: Callable, tmp_path: Path) -> None:
    # Two GPUs on a bridge of 208 GB/s are fast; the third one makes the ring cross PCI Express at 20 GB/s, twice.
    matrix = tmp_path / "box.txt"
    matrix.write_text(MATRIX)
    text = ask(f"topo import {matrix}").out
    bridge, pcie = "profile: nvlink3, count: 12", "profile: pcie4"
    assert text.count(bridge) == 1
    text = text.replace(bridge, "latency: 1 us, bandwidth: 208 GB/s").replace(pcie, "latency: 1 us, bandwidth: 20 GB/s")
    edited = tmp_path / "edited.yaml"
    edited.write_text(text)

    def perf(gpus: int) -> dict[str, object]:
        line = f"perf all_reduce -T {edited} -g {gpus} --algo ring -b 1G -e 1G --format json"
        return json.loads(ask(line).out)[0]

    assert perf(2)["busbw_GBps"] == pytest.approx(208, rel=1e-3)
    three = perf(3)
    assert three["busbw_GBps"] == pytest.approx(20, rel=1e-3)
    assert three["bottleneck"] == "gpu1->cpu0"


def test_import_without_a_file_prints(ask: Callable) -> None:
    assert "- {between: [gpu0, gpu1], profile: nvlink2}" not in ask("topo import pcie-pair").out
    assert "- {between: [gpu0, gpu3], profile: nvlink2, count: 2}" in ask("topo import dgx-1v").out


def test_import_takes_the_profiles_that_the_user_states(ask: Callable, tmp_path: Path) -> None:
    matrix = tmp_path / "box.txt"
    matrix.write_text(MATRIX)
    out = ask(f"topo import {matrix} --profile nvlink4,pcie5").out
    assert "profile: nvlink4, count: 12" in out
    assert "profile: pcie5}" in out
    assert "generation" not in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("topo import pcie-pair -o {}/box.txt", "must end in .yaml or .yml"),
        ("topo import nothing.txt -o {}/box.yaml", "there is no such file"),
        ("topo import pcie-pair -o {}", "is a folder"),
    ],
)
def test_a_bad_import_is_refused_and_writes_nothing(ask: Callable, tmp_path: Path, line: str, words: str) -> None:
    answer = ask(line.format(tmp_path))
    assert answer.code == 2
    assert words in answer.sentence()
    assert list(tmp_path.iterdir()) == []


def test_a_topology_in_parts_is_a_no(ask: Callable, tmp_path: Path) -> None:
    path = tmp_path / "parts.yaml"
    path.write_text("nodes: {a: {kind: gpu}, b: {kind: gpu}}\nlinks: []\n")
    answer = ask(f"topo check {path}")
    assert answer.code == 1
    assert "the topology is disconnected: GPU 'a' cannot reach GPU 'b'" in answer.out
    assert ask(f"topo show {path}").code == 2


def test_remarks_are_mentioned_when_a_machine_is_run(ask: Callable, tmp_path: Path) -> None:
    matrix = tmp_path / "box.txt"
    matrix.write_text(MATRIX)
    answer = ask(f"perf all_reduce -T {matrix} --algo ring --csv -")
    assert answer.code == 0
    assert f"remarks on {matrix}: see netsim topo check {matrix}" in answer.err
    assert ask("perf all_reduce -T hgx-h100 --algo ring --csv -").err == ""


def test_the_graphs_of_nccl_are_told_in_words(ask: Callable) -> None:
    lines = ask("topo show hgx-h100 --graph").out.splitlines()
    assert lines[0] == "hgx-h100, 8 ranks, effective rates, as NCCL 2.28.9 sees it"
    # 12 channels of 30 GB/s fill 18 links of 20.6 GB/s (370.8 GB/s), and are used twice.
    assert "graph ring: 12 channels x 30 GB/s, pattern 4 (ring), type NVL, sameChannels 1" in lines
    assert "channels: 24 of rings and trees, 16 of nvls" in lines
    assert "ring of channels 0-23: 0 1 2 3 4 5 6 7" in lines
    assert "heads of nvls: node 0: 0 1 2 3 4 5 6 7" in lines


def test_release_and_variables_change_what_nccl_finds(ask: Callable) -> None:
    answer = ask("topo show hgx-h100 --graph --nccl-version 2.27.3 --nccl-env NCCL_NVLS_ENABLE=0 --nccl-env NCCL_DEBUG=INFO")
    assert "as NCCL 2.27.3 sees it" in answer.out
    assert "graph nvls: nothing found" in answer.out
    assert "channels: 24 of rings and trees\n" in answer.out
    assert answer.err == "netsim: NCCL_DEBUG does not change what is sent when, so it is ignored\n"


def test_trees_over_nodes_say_where_they_hang(ask: Callable) -> None:
    out = ask("topo show hgx-h100 --nodes 2 --nic ndr400 --graph").out
    assert "node 1: ranks 8-15\n" in out
    assert "8 network ports of 50 GB/s a node, GPUDirect RDMA\n" in out
    assert "tree of channel 0: 0 1 2 3 4 5 6 7; 8 9 10 11 12 13 14 15 below 0\n" in out
    assert "tree of channel 8: 8 9 10 11 12 13 14 15; 0 1 2 3 4 5 6 7 below 8\n" in out


def test_what_nccl_sees_by_assumption_is_a_remark(ask: Callable) -> None:
    out = ask("topo show ideal-switch:4@450GB/s,1us --graph").out
    assert "remark: the topology states no compute capability for its GPUs; 8.0 is assumed" in out
    assert "remark" not in ask("topo show hgx-h100 --graph").out


def test_a_dump_of_graphs_reads_back(ask: Callable, tmp_path: Path) -> None:
    from netsim.nccl.dump import read_dump

    target = tmp_path / "graph.xml"
    answer = ask(f"topo show hgx-h100 --dump-graph {target}")
    assert answer.out == ask("topo show hgx-h100 --graph").out
    graphs = read_dump(target)
    assert {name: graph.channels for name, graph in graphs.items()} == {
        "ring": 12,
        "tree": 12,
        "collnet_direct": 0,
        "collnet_chain": 0,
        "nvls": 8,
    }


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--nccl-version 2.28", "change only what NCCL finds; give --graph with them"),
        ("--nccl-env NCCL_ALGO=ring", "give --graph with them"),
        ("--graph --nccl-version 3", "'3' is no release of NCCL"),
        ("--graph --nccl-env NCCL_CROSS_NIC=5", "NCCL_CROSS_NIC='5' is not accepted"),
        ("--dump-graph no/such/folder/x.xml", "--dump-graph: cannot write"),
        ("--dump-graph=", "--dump-graph: the file name is empty"),
    ],
)
def test_what_asks_for_no_graph_of_nccls_is_refused(more: str, words: str, ask: Callable) -> None:
    answer = ask(f"topo show hgx-h100 {more}")
    assert answer.code == 2
    assert words in answer.sentence()


def test_the_graphs_of_a_measured_machine_are_those_that_it_dumped(ask: Callable, shared: Path, tmp_path: Path) -> None:
    from netsim.nccl.dump import read_dump

    folder, target = shared / "samples" / "h200x2", tmp_path / "graph.xml"
    machine = folder / "nccl_topo_h200x2_vm.xml"
    ask(f"topo show {machine} --dump-graph {target} --nccl-env NCCL_NVLS_ENABLE=0")
    ours, theirs = read_dump(target), read_dump(folder / "nccl_graph_h200x2_vm.xml")
    for name in ("ring", "tree"):
        assert [order.gpus for order in ours[name].orders] == [order.gpus for order in theirs[name].orders]
