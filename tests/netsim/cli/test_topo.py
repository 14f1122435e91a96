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
