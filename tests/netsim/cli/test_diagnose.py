from collections.abc import Callable
from pathlib import Path

import pytest

MACHINE = "--topology hgx-h200 -g 2"


@pytest.fixture
def log(repository: Path) -> str:
    return (repository / "scenarios" / "two_h200.log").read_text(encoding="utf-8")


@pytest.fixture
def diagnose(ask: Callable, tmp_path: Path) -> Callable:
    def run(text: str, more: str = MACHINE, name: str = "run.log"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return ask(f"diagnose {path} {more}")

    return run


def test_a_log_that_is_as_predicted_is_a_yes_with_its_times_beside(diagnose: Callable, log: str) -> None:
    answer = diagnose(log)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[1] == "# NCCL 2.28.9 with NCCL_NVLS_ENABLE=0"
    # A ring of 12 channels, doubled to 24; three sizes with their channels.
    counted = "release 1, environment 1, ranks 1, graphs 5, channel counts 1, rings 1, choices 3, channels of choices 3"
    assert lines[2] == f"agrees: {counted}"
    assert "# all_reduce: a stream of calls, 2 GPUs a host thread, unregistered buffers" in lines
    # One host thread drives both GPUs and needs 9.5 us a call and GPU: 19 us; 19.35 us were measured, 1.8 % more.
    assert "       32768     19.35      19.00        -1.8  ring ll x4" in lines
    assert lines[-1].startswith("# largest: ")
    assert lines[-1].count(" us measured, ") == 3


def test_a_choice_that_differs_is_a_no_with_both_values(diagnose: Callable, log: str) -> None:
    answer = diagnose(log.replace("{Lo..Hi}={0..3}", "{Lo..Hi}={0..7}"))
    assert answer.code == 1
    assert "differs: all_reduce of 32768 bytes by ring ll, channels: 8 in the log, 4 predicted\n" in answer.out
    answer = diagnose(log, f"{MACHINE} --nccl-env NCCL_PROTO=Simple")
    assert answer.code == 1
    assert "differs: all_reduce of 4096 bytes: ring ll in the log, ring simple predicted\n" in answer.out


def test_times_far_apart_are_no_difference_of_choices(diagnose: Callable, log: str) -> None:
    answer = diagnose(log.replace("21.19    0.19    0.19", "2119.00    0.00    0.00"))
    assert answer.code == 0
    # 19 us simulated for 2119 us.
    assert "# largest: -99.1% at 4 KiB (2119 us measured, 19 us simulated), " in answer.out


def test_another_number_of_ranks_leaves_times_out(diagnose: Callable, log: str) -> None:
    answer = diagnose(log, "--topology hgx-h200")
    assert answer.code == 1
    assert "differs: ranks: 2 in the log, 8 predicted\n" in answer.out
    assert answer.out.endswith("no times: the log is of 2 ranks, and the machine has 8; -g and -N say how many\n")


def test_how_calls_were_launched_is_the_logs_word_unless_it_is_given(diagnose: Callable, log: str) -> None:
    captured = log.replace("graph: 0", "graph: 8")
    assert "# all_reduce: replayed CUDA graphs, registered buffers\n" in diagnose(captured).out
    told = "h200:1:2 [0] NCCL INFO NCCL_GRAPH_REGISTER set by environment to 0.\n"
    assert "# all_reduce: replayed CUDA graphs, unregistered buffers\n" in diagnose(captured + told).out
    # Four GPUs a thread take twice as long to launch: 38 us.
    answer = diagnose(log, f"{MACHINE} --gpus-per-process 4")
    assert "  38.00  " in answer.out
    assert "4 GPUs a host thread" in answer.out


def test_buffers_may_be_said_as_nccl_tests_does(diagnose: Callable, log: str) -> None:
    for flag, words in (("0", "unregistered"), ("1", "registered")):
        assert (
            f"# all_reduce: a stream of calls, 2 GPUs a host thread, {words} buffers\n"
            in diagnose(log, f"{MACHINE} -R {flag}").out
        )
    assert "-R 3: accepted are 0 (none), 1" in diagnose(log, f"{MACHINE} -R 3").sentence()
    assert "-R 2 and --registered contradict each other" in diagnose(log, f"{MACHINE} -R 2 --registered").sentence()


def test_json_of_nccl_tests_is_a_log(ask: Callable, repository: Path) -> None:
    answer = ask(f"diagnose {repository / 'tests' / 'data' / 'nccl_tests_all_gather.json'} {MACHINE}")
    assert answer.code == 0
    assert "# all_gather: a stream of calls, 2 GPUs a host thread, unregistered buffers\n" in answer.out
    assert "agrees: release 1, environment 1, ranks 1\n" in answer.out


def test_a_table_of_times_needs_the_name_of_its_collective(diagnose: Callable) -> None:
    table = "size_bytes,time_us\n1048576,20\n2097152,\n"
    words = diagnose(table, MACHINE, "times.csv").sentence()
    assert "does not say which collective its times are of; --collective says it: one of all_reduce, " in words
    answer = diagnose(table, f"{MACHINE} --collective all_reduce", "times.csv")
    assert answer.code == 0
    assert "assumed: NCCL 2.28.9, because the file says no release\n" in answer.out
    assert "assumed: replayed CUDA graphs, because no head of nccl-tests' says how calls were launched\n" in answer.out
    assert answer.out.count("1048576") == 1
    assert "2097152" not in answer.out


def test_a_machine_of_unknown_gpus_has_no_times_to_compare(diagnose: Callable, log: str) -> None:
    answer = diagnose(log, "--topology ideal-switch:2@370GB/s,1us")
    assert answer.out.endswith("no times: the machine's GPUs are not known, and so not what NCCL's kernels cost on them\n")


def test_variables_that_are_not_known_are_left_out_and_said(diagnose: Callable, log: str) -> None:
    answer = diagnose(log + "h200:1:2 [0] NCCL INFO NCCL_FROM_TOMORROW set by environment to 1.\n")
    assert answer.code == 0
    assert "left out: NCCL_FROM_TOMORROW of the log, which is no variable known here\n" in answer.out


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("nothing of that kind\n", MACHINE, "a log of NCCL_DEBUG=INFO or of nccl-tests is wanted"),
        ("", MACHINE, "a log of NCCL_DEBUG=INFO or of nccl-tests is wanted"),
        ("size_bytes,time_us\n8,x\n", MACHINE, "run.log:2: time_us is 'x'; it must be a number"),
        ("size_bytes,time_us\n8,1\n", f"{MACHINE} --collective allreduce", "did you mean all_reduce?"),
        ("size_bytes,time_us\n8,1\n", f"{MACHINE} --launch later", "launch is 'later'; accepted are graph, stream, none"),
        ("size_bytes,time_us\n8,1\n", f"{MACHINE} --nccl-version 1", "'1' is no release of NCCL"),
        ("size_bytes,time_us\n8,1\n", f"{MACHINE} --nccl-env X=1", "'X' is no variable of NCCL"),
        (
            "# all_reduce_perf and all_gather_perf\nsize_bytes,time_us\n8,1\n",
            MACHINE,
            "several collectives (all_reduce, all_g",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(text: str, more: str, words: str, diagnose: Callable) -> None:
    answer = diagnose(text, more)
    assert answer.code == 2
    assert words in answer.sentence()


def test_a_file_that_is_not_there_is_refused(ask: Callable) -> None:
    assert "no_such.log: does not exist" in ask(f"diagnose no_such.log {MACHINE}").sentence()


def test_the_logs_of_two_measured_h200_agree_in_everything(ask: Callable, shared: Path) -> None:
    folder = shared / "samples" / "h200x2"
    machine = f"--topology {folder / 'nccl_topo_h200x2_vm.xml'}"
    said = ask(f"diagnose {folder / 'nccl_tests_all_reduce_debug_info.log'} {machine}")
    assert said.code == 0
    # 24 channels; five collectives of 21 pairs in the tuner's table.
    assert "rings 24, trees 24, connections 48, tuner table 105, choices 18, channels of choices 18\n" in said.out
    timed = ask(f"diagnose {folder / 'nccl_tests_all_gather.log'} {machine}")
    assert timed.code == 0
    # 32 B to 1 GiB in powers of two: 26 sizes, and two heads of columns.
    assert sum(line.endswith(("x1", "x2", "x4", "x8", "x16", "x22", "x24")) for line in timed.out.splitlines()) == 26


def test_a_release_that_is_not_covered_does_not_agree(diagnose: Callable, log: str) -> None:
    out = diagnose(log.replace("NCCL version 2.28.9", "NCCL version 2.99.9")).out
    assert (
        "not compared: the release: NCCL 2.99.9 is not covered; accepted are 2.17.1 to 2.30.7, and 2.28.9 is predicted"
        in out
    )
    assert "assumed: NCCL 2.28.9, because NCCL 2.99.9 is not covered" in out
    assert "release 1" not in out


RANKS = "".join(
    f"#  Rank  {rank} Group  0 Pid  7 on  host device  {rank} [0000:0{rank}:00] NVIDIA H200\n" for rank in range(4)
)
ROWS = "# Collective test starting: all_reduce_perf\n{ranks}  4096  1024  float  sum  -1  21.19  0.19  0.19  0\n"


def test_the_ranks_of_nccl_tests_are_held_against_the_machine(diagnose: Callable) -> None:
    answer = diagnose(ROWS.format(ranks=RANKS))
    assert answer.code == 1
    assert "differs: ranks: 4 in the log, 2 predicted\n" in answer.out
    # Launchers put something in front; a rank whose line is torn is still below the highest.
    lines = "".join(f"[1,0]<stdout>:{line}\n" for number, line in enumerate(RANKS.splitlines()) if number != 1)
    answer = diagnose(ROWS.format(ranks=lines), "--topology hgx-h200 -g 4")
    assert answer.code == 0
    assert "agrees: ranks 1\n" in answer.out
    assert "  4096     21.19" in answer.out


def test_a_log_in_which_nothing_can_be_compared_is_no_yes(diagnose: Callable) -> None:
    answer = diagnose("h200:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n")
    assert answer.code == 1
    assert "nothing could be compared: the file shows no decision of NCCL's, and no time" in answer.out
    # Times of another number of ranks are a difference; of unknown GPUs they say nothing.
    answer = diagnose(ROWS.format(ranks=""), "--topology ideal-switch:2@370GB/s,1us")
    assert answer.code == 1
    assert "no times: the machine's GPUs are not known" in answer.out


def test_values_that_are_not_accepted_are_left_out_and_said(diagnose: Callable, log: str) -> None:
    said = "h200:1:2 [0] NCCL INFO {} set by environment to {}.\n"
    answer = diagnose(log + said.format("NCCL_BUFFSIZE", "4M") + said.format("NCCL_ALGO", "Rnig"))
    assert answer.code == 0
    assert "left out: NCCL_BUFFSIZE of the log, because NCCL_BUFFSIZE='4M' is not accepted" in answer.out
    assert "left out: NCCL_ALGO of the log, because NCCL_ALGO='Rnig': 'Rnig' is no algorithm of NCCL" in answer.out
    # What the user says must be right.
    assert "NCCL_BUFFSIZE='4M'" in diagnose(log, f"{MACHINE} --nccl-env NCCL_BUFFSIZE=4M").sentence()


def test_a_collective_that_contradicts_the_file_is_refused(diagnose: Callable, log: str) -> None:
    answer = diagnose(log.replace("all_reduce_perf", "all_gather_perf"), f"{MACHINE} --collective reduce")
    assert answer.code == 2
    assert "--collective reduce: " in answer.sentence()
    assert "run.log is of all_gather; leave it out, or give that" in answer.sentence()


def test_a_stray_file_is_one_plain_sentence(diagnose: Callable, tmp_path: Path) -> None:
    wanted = "a log of NCCL_DEBUG=INFO or of nccl-tests is wanted, or a CSV of size_bytes and time_us"
    sentence = diagnose("hello\n").sentence()
    assert sentence == f"netsim: {tmp_path / 'run.log'}: neither NCCL nor nccl-tests says anything in it; {wanted}"


def test_the_type_is_that_of_the_rows(diagnose: Callable, log: str) -> None:
    halves = log.replace("   float ", "    half ")
    assert halves != log
    assert diagnose(halves).out.splitlines()[1:] == diagnose(halves, f"{MACHINE} -d half").out.splitlines()[1:]
    answer = diagnose(halves, f"{MACHINE} -d int8")
    assert answer.code == 2
    assert "-d int8: the rows are of half" in answer.err
