from collections.abc import Callable
from pathlib import Path

import pytest

EXPORT = "schedule export all_reduce --topology hgx-h100"


def test_the_fastest_at_each_size_become_rules_that_perf_runs_by(ask: Callable, tmp_path: Path) -> None:
    target = tmp_path / "rules.conf"
    answer = ask(f"{EXPORT} -b 1K -e 16M -f 128 --algos ring:ll,ring:simple -o {target}")
    assert answer.code == 0
    assert answer.err == f"netsim: wrote 2 rules to {target}\n"
    table = [line.split() for line in answer.out.splitlines()[2:]]
    # Whatever is simulated, the fastest is the least of its row.
    for row in table:
        times = dict(zip(("ring ll", "ring simple"), map(float, row[1:3]), strict=True))
        assert " ".join(row[3:5]) == min(times, key=lambda pair: times[pair])
    assert [" ".join(row[3:5]) for row in table] == ["ring ll", "ring ll", "ring simple"]
    rules = [line for line in target.read_text().splitlines() if not line.startswith("#")]
    # 1 KiB, 128 KiB, 16 MiB: what is best at a size holds up to the next one.
    assert rules == ["allreduce,0,16777215,ring,ll,0,1,8,-1,-1", "allreduce,16777216,16777216,ring,simple,0,1,8,-1,-1"]
    ran = ask(f"perf all_reduce --topology hgx-h100 -b 1K -e 16M -f 128 --tuner {target}").out
    times = [float(line.split()[1]) for line in ran.splitlines() if not line.startswith("#")]
    assert times == pytest.approx([min(map(float, row[1:3])) for row in table], abs=0.0051)


def test_without_a_file_the_rules_go_to_stdout_alone(ask: Callable) -> None:
    answer = ask(f"{EXPORT} -b 64K -e 64K --algos ring:ll --channels 4 --nodes 1")
    assert answer.err == ""
    lines = answer.out.splitlines()
    assert lines[0].startswith("# netsim ")
    assert "# holds up to 65536 bytes, the largest size that was simulated; above it nothing is known" in lines
    assert lines[-1] == "allreduce,0,65536,ring,ll,4,1,8,-1,-1"


def test_a_protocol_bounds_what_is_tried(ask: Callable) -> None:
    out = ask("schedule export all_gather --topology hgx-h100 -b 1M -e 1M --proto ll --algos ring").out
    assert out.splitlines()[-1] == "allgather,0,1048576,ring,ll,0,1,8,-1,-1"


def test_nccls_own_names_and_exclusions_say_what_is_tried(ask: Callable) -> None:
    line = f"{EXPORT} -b 1M -e 1M"
    assert ask(f"{line} --algos Ring:LL").out.splitlines()[-1] == "allreduce,0,1048576,ring,ll,0,1,8,-1,-1"
    assert ask(f"{line} --algos ^Ring,NVLS,PAT --proto LL").out.splitlines()[-1].startswith("allreduce,0,1048576,tree,ll,")
    assert "leaves nothing that could run here" in ask(f"{line} --algos ^tree,ring,nvls").sentence()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            f"{EXPORT} --algos pat",
            "'pat' is nothing that NCCL can run here; accepted are tree:ll, tree:ll128, tree:simple, ",
        ),
        (f"{EXPORT} --algos ring:ideal", "'ring:ideal' is nothing that NCCL can run here"),
        (f"{EXPORT} --algos ring,,tree", "has an empty name"),
        (f"{EXPORT} --format goal", "unknown format 'goal'; accepted is nccl-tuner"),
        (f"{EXPORT} --proto ideal", "NCCL's tuner knows nothing of textbook algorithms"),
        (f"{EXPORT} --groups div:4", "a tuner plugin knows one communicator"),
        (f"{EXPORT} --tuner x.conf", "a tuner file is what comes of this"),
        (f"{EXPORT} -o no/such/folder/x.conf", "--output: cannot write"),
        (f"{EXPORT} -b 2 -e 2", "all sizes are too small"),
        (f"{EXPORT} -b 2M -e 1M", "the largest size, 1048576 bytes, is below the smallest"),
        ("schedule export alltoall --topology hgx-h100", "NCCL chooses no algorithm for alltoall here"),
        ("schedule export all_reduce --topology hgx-h100 -g 1", "NCCL chooses no algorithm for all_reduce here"),
        ("schedule export all_reduce --topology ideal-switch:8@450GB/s,1us", "accepted are NCCL's protocols on a machine"),
        ("schedule import no_such.conf", "no_such.conf: does not exist; rules of the tuner plugin are wanted"),
        ("schedule import scenarios/nccl_tuner.conf --format x", "unknown format 'x'; accepted is nccl-tuner"),
    ],
)
def test_what_makes_no_rules_is_refused_in_a_sentence(line: str, words: str, ask: Callable) -> None:
    answer = ask(line)
    assert answer.code == 2
    assert words in answer.sentence()


def test_rules_are_told_in_words(ask: Callable, repository: Path) -> None:
    path = repository / "scenarios" / "nccl_tuner.conf"
    assert ask(f"schedule import {path}").out.splitlines() == [
        f"{path}: 4 rules, of which the first that serves counts",
        "all_reduce of 0 to 65535 bytes on 1 node with 8 ranks: tree ll on 2 channels",
        "all_reduce of 65536 to 1048575 bytes on 1 node with 8 ranks: ring ll128 on NCCL's own number of channels",
        "all_reduce of 1048576 to 4294967295 bytes on 1 node with 8 ranks: nvls simple on NCCL's own number of channels",
        "all_reduce of 0 to 4294967295 bytes: ring simple on NCCL's own number of channels",
    ]


def test_a_file_that_is_no_rules_is_refused_at_its_line(ask: Callable, tmp_path: Path) -> None:
    path = tmp_path / "rules.conf"
    path.write_text("# a comment\nallreduce,0,8,ring\n")
    answer = ask(f"schedule import {path}")
    assert answer.code == 2
    assert "4 fields; accepted are 8 to 10" in answer.sentence()


def test_the_example_of_the_plugin_is_read(ask: Callable, shared: Path) -> None:
    out = ask(f"schedule import {shared / 'samples' / 'nccl_tuner' / 'nccl_tuner.conf'}").out
    assert ": 9 rules, " in out
    assert "all_gather of 0 to 4294967295 bytes on 2 nodes: ring simple on 4 channels\n" in out


def test_a_file_without_rules_and_rules_beyond_nccl_are_said(ask: Callable, tmp_path: Path) -> None:
    path = tmp_path / "rules.conf"
    path.write_text("# nothing\n")
    answer = ask(f"schedule import {path}")
    assert (answer.code, answer.out) == (0, f"{path}: 0 rules, of which the first that serves counts\n")
    assert answer.err == f"netsim: no line of {path} is a rule, so the plugin leaves NCCL one channel for everything\n"
    path.write_text("allreduce,0,8,ring,ll,99,-1,-1\n")
    assert (
        "ring ll on 99 channels (NCCL has 64 at most, and uses those that there are)\n" in ask(f"schedule import {path}").out
    )


def test_the_optimisers_measurements_are_no_rules(ask: Callable, tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    columns = (
        "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,cost_metric,bandwidth_gbps,latency_us"
    )
    path.write_text(f"{columns}\nallreduce,1024,tree,ll,2,1,8,-1,-1,1,2,3\n")
    answer = ask(f"schedule import {path}")
    assert (
        f"{path}, line 1: this is a table of measurements, from which the plugin's optimiser makes rules"
        in answer.sentence()
    )
    assert (
        "cannot read /dev/null: it is a device or a pipe, not a file; rules" in ask("schedule import /dev/null").sentence()
    )
