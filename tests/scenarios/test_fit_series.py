"""What a log says of its run is taken from it; what contradicts the machine is refused in a sentence."""

from dataclasses import replace
from pathlib import Path

import pytest

from netsim.errors import NetsimError, ScenarioError
from scenarios.fit_series import Wanted, read_series
from scenarios.machine import Machine

HEAD = "# nThread 1 nGpus {gpus} minBytes 8 maxBytes 128 step: 2(factor) graph: 0\n"
RANK = "#  Rank {rank:2} Group  0 Pid 10 on node-a device {rank} [0x00] NVIDIA H200\n"
# 8 MiB in 100 us are 83.89 GB/s, of all_reduce over 4 GPUs 1.5 times that on the bus.
ROW = " {size} {count} float sum -1 {time:.2f} {algbw:.2f} {busbw:.2f} 0\n"


def log_of(folder: Path, ranks: int, rows: dict[int, float], *, ratio: float | None = None, test: str = "all_reduce") -> str:
    ratio = 2 * (ranks - 1) / ranks if ratio is None else ratio
    text = f"# Collective test starting: {test}_perf\n" + HEAD.format(gpus=ranks)
    text += "".join(RANK.format(rank=rank) for rank in range(ranks))
    for size, time in rows.items():
        algbw = size / time / 1e3
        text += ROW.format(size=size, count=size // 4, time=time, algbw=algbw, busbw=algbw * ratio)
    path = folder / f"p{ranks}.log"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def h200() -> Wanted:
    return Wanted(Machine("hgx-h200"))


def test_gpus_process_and_launch_are_those_of_the_log(tmp_path: Path, h200: Wanted) -> None:
    (one,) = read_series([log_of(tmp_path, 4, {2**23: 100.0})], h200)
    assert (one.name, one.ranks, one.rows) == ("p4.log", 4, ((2**23, 100.0),))
    spec = one.spec
    assert (spec.machine.gpus_per_node, spec.collective, spec.protocol) == (4, "all_reduce", "auto")
    assert (spec.nccl.launch, spec.nccl.gpus_per_process, spec.nccl.datatype) == ("stream", 4, "float")
    assert one.remarks[0] == "4 GPUs took part, so 4 a server are taken"


def test_logs_of_several_numbers_of_gpus_go_together(tmp_path: Path, h200: Wanted) -> None:
    names = [log_of(tmp_path, ranks, {2**23: 100.0}) for ranks in (2, 4, 8)]
    assert [one.ranks for one in read_series(names, h200)] == [2, 4, 8]


def test_what_is_said_of_a_file_stands_behind_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("size_bytes,time_us\n8,9.5\n", encoding="utf-8")
    (one,) = read_series([f"{path}:gpus=3,algo=one_shot,collective=all_reduce"], Wanted(Machine("ideal-switch:8@1GB/s,1us")))
    assert (one.ranks, one.spec.algorithm, one.spec.collective, one.spec.protocol) == (3, "one_shot", "all_reduce", "ideal")


def test_rows_of_a_log_are_thinned_and_those_of_a_textbook_run_are_not(tmp_path: Path, h200: Wanted) -> None:
    name = log_of(tmp_path, 2, {2**k: 10 + 2**k / 1e5 for k in range(10, 30)})
    (one,) = read_series([name], h200)
    assert len(one.rows) == 12
    assert len(read_series([name], replace(h200, every_row=True))[0].rows) == 20
    assert len(read_series([name], replace(h200, protocol="ideal", algorithm="ring"))[0].rows) == 20
    (some,) = read_series([name], replace(h200, sizes=(2**20, 2**22), every_row=True))
    assert [size for size, _ in some.rows] == [2**20, 2**21, 2**22]


def test_a_warm_up_takes_no_part(tmp_path: Path, h200: Wanted) -> None:
    (one,) = read_series([log_of(tmp_path, 2, {8: 60.0, 16: 12.0, 32: 12.0, 64: 12.0})], h200)
    assert [size for size, _ in one.rows] == [16, 32, 64]
    assert "left out: the first 1 row, a warm-up" in one.remarks


@pytest.mark.parametrize(
    ("ranks", "more", "words"),
    [
        (4, "", "is of 4 ranks, and hgx-h200 with 1 server has 2"),
        (4, ":gpus=3", "gpus=3, and the log is of 4 ranks"),
        (4, ":gpu=4", "unknown key 'gpu'; accepted are gpus, algo, proto, collective"),
        (4, ":collective=all_sum", "collective is 'all_sum'; accepted are"),
        (4, ":collective=broadcast", "is of all_reduce; leave it out"),
    ],
)
def test_what_contradicts_is_one_sentence(ranks: int, more: str, words: str, tmp_path: Path) -> None:
    name = log_of(tmp_path, ranks, {2**23: 100.0})
    with pytest.raises(NetsimError, match=words):
        read_series([name + more], Wanted(Machine("hgx-h200", gpus_per_node=2)))


def test_what_is_missing_is_one_sentence(tmp_path: Path, h200: Wanted) -> None:
    name = log_of(tmp_path, 4, {2**23: 100.0})
    with pytest.raises(ScenarioError, match="a log does not say on which machine it ran; --topology says it"):
        read_series([name], Wanted())
    with pytest.raises(ScenarioError, match="no row is of 1 GiB to 2 GiB; -b and -e say which take part"):
        read_series([name], replace(h200, sizes=(2**30, 2**31)))
    (tmp_path / "none.log").write_text(HEAD.format(gpus=8), encoding="utf-8")
    with pytest.raises(NetsimError, match="neither NCCL nor nccl-tests says anything in it"):
        read_series([str(tmp_path / "none.log")], h200)
    with pytest.raises(ScenarioError, match=r"is a folder without index\.csv"):
        read_series([str(tmp_path)], h200)
    with pytest.raises(ScenarioError, match="is of one rank, which sends nothing"):
        read_series([log_of(tmp_path, 1, {2**23: 100.0}, ratio=0.0)], h200)


def test_bandwidths_of_another_number_of_gpus_are_said(tmp_path: Path, h200: Wanted) -> None:
    # Of sixteen GPUs the bus has 1.875 times the algorithm's bandwidth.
    (one,) = read_series([log_of(tmp_path, 8, {2**23: 100.0}, ratio=1.875)], h200)
    assert one.remarks[-1].startswith(
        "bus over algorithm bandwidth is 1.875 in it, and of all_reduce over 8 ranks it is 1.75"
    )


def test_wrong_values_are_said(tmp_path: Path, h200: Wanted) -> None:
    path = Path(log_of(tmp_path, 8, {2**23: 100.0}))
    path.write_text(path.read_text(encoding="utf-8") + "# Out of bounds values : 50 FAILED\n", encoding="utf-8")
    (one,) = read_series([str(path)], h200)
    assert one.remarks[-1].startswith("nccl-tests found wrong values in this run")


def test_a_folder_of_tables_brings_its_machines_along(repository: Path) -> None:
    folder = str(repository / "tests" / "data" / "tables")
    series = read_series([folder], Wanted())
    assert len(series) == 6
    assert {one.spec.machine.topology for one in series} == {"hgx-h200"}
    others = read_series([folder], Wanted(Machine("hgx-h100")))
    assert {(one.spec.machine.topology, one.spec.machine.gpus_per_node) for one in others} == {("hgx-h100", 2)}


def test_a_table_of_a_folder_that_no_rule_maps_is_said(tmp_path: Path) -> None:
    header = "file,collective,gpu,n_gpus,n_nodes,hw_class,score\n"
    (tmp_path / "index.csv").write_text(header + "a.csv,all_reduce,Abacus,8,1,mine,yes\n", encoding="utf-8")
    said: list[str] = []
    with pytest.raises(ScenarioError, match="is scored and mapped to a machine; nothing to fit to"):
        read_series([str(tmp_path)], Wanted(), said)
    assert said == ["left out: a.csv: no rule of hardware.toml has a topology for 'Abacus' of class 'mine'"]


LOGS = {
    "alltoall_old_blank_redop.txt": (Machine("hgx-h100", nodes=8, nic="edr100"), "alltoall", 2),
    "aws_p4de_2node_allreduce_srun_prefix.txt": (Machine("hgx-a100", nodes=2, nic="efa100"), "all_reduce", 12),
    "aws_p5_mpirun_tag_prefix_gap.txt": (Machine("hgx-h100", nodes=2, nic="efa100"), "all_reduce", 6),
    "broadcast_root_no_redop.txt": (Machine("pcie-gen4-8", nodes=2, nic="edr100"), "broadcast", 4),
    "failed_out_of_bounds.txt": (Machine("pcie-pair"), "all_reduce", 2),
    "gb200_nvl72_one_rack.txt": (Machine("gb200-nvl72"), "all_reduce", 5),
    "h100_2node_lost_hash.txt": (Machine("hgx-h100", nodes=2, nic="tcpxo200"), "all_reduce", 12),
    "h100_64gpu_sharp_dots.txt": (Machine("hgx-h100", nodes=12, nic="ndr400"), "all_reduce", 5),
    "h100_pcie_pair_with_info.txt": (Machine("pcie-pair"), "all_reduce", 3),
    "h100_reduce_scatter_ring.txt": (Machine("hgx-h100"), "reduce_scatter", 7),
    "nccl_tests_all_gather.log": (Machine("hgx-h200"), "all_gather", 12),
    "nccl_tests_all_reduce_debug_info.log": (Machine("hgx-h200"), "all_reduce", 6),
    "old_layout_NA_no_inplace.txt": (Machine("pcie-gen4-8"), "all_reduce", 12),
    "v2_18_version_header_stderr.txt": (Machine("pcie-pair"), "all_reduce", 8),
}
"""On what each sample could have run, and how many rows take part."""


def test_every_log_of_the_samples_is_read_or_refused_in_one_sentence(shared: Path) -> None:
    folders = [shared / "samples" / "nccl_tests_logs", shared / "samples" / "h200x2"]
    logs = sorted(path for folder in folders for path in folder.iterdir() if path.suffix in (".txt", ".log"))
    logs = [path for path in logs if path.name != "nvidia_smi_topo_m.txt"]
    refused = set()
    for path in logs:
        machine, collective, rows = LOGS.get(path.name, (Machine("hgx-h100", nodes=2, nic="ndr400"), "alltoall", 0))
        try:
            (one,) = read_series([f"{path}:collective={collective}"], Wanted(machine))
        except NetsimError as error:
            refused.add(str(error))
        else:
            assert (path.name, len(one.rows)) == (path.name, rows)
            assert not any(words.startswith("bus over") for words in one.remarks)
    # Two servers of sixteen MI250X are none of these machines.
    (words,) = refused
    assert "rccl_32rank_torn_rows.txt: is of 32 ranks, and hgx-h100 ndr400 with 2 servers has 16" in words
    assert "\n" not in words
