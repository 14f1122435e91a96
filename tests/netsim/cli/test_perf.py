import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

IDEAL = "--topology ideal-switch:8@450GB/s,1us"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_ideal_ring_takes_what_the_formula_says(ask: Callable) -> None:
    answer = ask(f"perf all_reduce {IDEAL} --algo ring --proto ideal -b 64M -e 64M --csv -")
    (row,) = rows(answer.out)
    # 14 steps of 1 us, and 1.75 x 64 MiB / 450 GB/s = 260.979 us
    expected = 14 + 1.75 * 2**26 / 450e9 * 1e6
    assert float(row["time_us"]) == pytest.approx(expected, rel=1e-9)
    assert float(row["closed_form_us"]) == pytest.approx(expected, rel=1e-12)
    assert float(row["busbw_GBps"]) == pytest.approx(1.75 * 2**26 / expected / 1e3, rel=1e-9)
    assert (row["ranks"], row["messages"], row["algorithm"]) == ("8", "112", "ring")


def test_csv_on_stdout_stands_alone(ask: Callable) -> None:
    answer = ask(f"perf all_reduce {IDEAL} --algo ring --csv -")
    assert answer.out.startswith("collective,")
    assert answer.err == ""


def test_a_csv_file_holds_the_same_rows_and_the_table_is_still_printed(ask: Callable, tmp_path: Path) -> None:
    line = f"perf all_reduce {IDEAL} --algo ring -b 1K -e 4K -f 2 --csv"
    table = ask(line, str(tmp_path / "rows.csv"))
    assert (tmp_path / "rows.csv").read_text() == ask(line, "-").out
    assert "ideal: textbook alpha-beta, not NCCL" in table.out


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ("", [2**25]),
        ("-b 8 -e 64 -f 2", [8, 16, 32, 64]),
        ("-b 1M -e 3M", [2**20, 2 * 2**20, 3 * 2**20]),
        ("-b 1K -e 2K -i 512", [1024, 1536, 2048]),
        ("-b 0 -e 0", [0]),
        ("-b 1MB -e 1MB", [10**6]),
    ],
)
def test_sizes_step_as_in_nccl_tests(options: str, sizes: list[int], ask: Callable) -> None:
    answer = ask(f"perf all_reduce {IDEAL} --algo ring {options} --csv -")
    assert [int(row["size_bytes"]) for row in rows(answer.out)] == sizes


def test_size_zero_has_no_bandwidth(ask: Callable) -> None:
    (row,) = rows(ask(f"perf all_reduce {IDEAL} --algo ring -b 0 -e 0 --csv -").out)
    assert float(row["algbw_GBps"]) == float(row["busbw_GBps"]) == 0.0


def test_one_rank_takes_no_time_and_says_why(ask: Callable) -> None:
    (row,) = rows(ask("perf all_reduce --topology ideal-switch:1@450GB/s,1us --csv -").out)
    assert float(row["time_us"]) == float(row["busbw_GBps"]) == 0.0
    assert row["note"].startswith("one rank")


def test_auto_takes_the_fastest_and_names_it(ask: Callable) -> None:
    line = f"perf all_reduce {IDEAL} -b 8 -e 8 --csv -"
    (taken,) = rows(ask(line).out)
    times = {
        name: float(rows(ask(f"{line} --algo {name}").out)[0]["time_us"]) for name in ("ring", "tree", "one_shot", "nvls")
    }
    assert taken["algorithm"] == "one_shot"
    assert float(taken["time_us"]) == min(times.values())


def test_auto_leaves_the_switch_alone_where_it_cannot_add(ask: Callable) -> None:
    (row,) = rows(ask("perf all_reduce --topology hgx-a100 -b 1G -e 1G --csv -").out)
    assert row["algorithm"] != "nvls"
    assert ask("perf all_reduce --topology hgx-a100 -b 1G -e 1G --algo nvls").code == 2


def test_auto_says_which_algorithms_were_too_large(ask: Callable) -> None:
    # 8 ranks: the ring needs 2 x 7 x 8 = 112 messages, one-shot 8 x 7 = 56.
    (row,) = rows(ask(f"perf all_reduce {IDEAL} -b 8 -e 8 --max-messages 60 --csv -").out)
    assert row["algorithm"] == "one_shot"
    assert "ring" in row["note"]


def test_nccl_tests_layout_rounds_sizes_and_shows_the_rounded_ones(ask: Callable) -> None:
    answer = ask(f"perf all_gather {IDEAL} --algo ring -b 1000 -e 1000 --format nccl-tests")
    (line,) = (line for line in answer.out.splitlines() if not line.startswith("#"))
    # 250 elements over 8 ranks: 31 each, cut to 28 (16 bytes): 28 x 8 x 4 = 896
    assert line.split()[:2] == ["896", "28"]
    assert len(line.split()) == 13


def test_json_holds_the_columns(ask: Callable) -> None:
    (row,) = json.loads(ask(f"perf all_reduce {IDEAL} --algo ring --format json").out)
    assert row["algorithm"] == "ring"
    assert row["closed_form_us"] == pytest.approx(14 + 1.75 * 2**25 / 450e9 * 1e6)


def test_repetitions_are_accepted_and_ignored_with_a_note(ask: Callable) -> None:
    plain = ask(f"perf all_reduce {IDEAL} --algo ring --csv -")
    noted = ask(f"perf all_reduce {IDEAL} --algo ring --csv - -n 20 -w 5 -c 1 -z 0")
    assert noted.out == plain.out
    assert noted.err.startswith("netsim: -n, -w, -c, -z ignored")


def test_a_cluster_names_a_nic_as_its_bottleneck(ask: Callable) -> None:
    (row,) = rows(
        ask(
            "perf all_reduce --topology hgx-h100 --nodes 2 --nic ndr400 -b 256M -e 256M --algo ring --proto simple --csv -"
        ).out
    )
    assert "nic" in row["bottleneck"]
    assert (row["ranks"], row["nodes"]) == ("16", "2")
    assert float(row["bottleneck_utilisation"]) > 0.9


def test_the_same_question_gets_the_same_bytes(ask: Callable) -> None:
    line = f"perf all_reduce {IDEAL} -b 1K -e 1M -f 32 --csv -"
    assert ask(line).out == ask(line).out


def test_the_rate_in_use_is_visible(ask: Callable) -> None:
    line = "perf all_reduce --topology hgx-h100 --algo ring -b 1M -e 1M --rate line"
    (row,) = rows(ask(f"{line} --csv -").out)
    assert row["rate"] == "line"
    assert "line rates" in ask(line).out


def test_staging_without_gpudirect_is_visible_and_slower(ask: Callable) -> None:
    line = "perf all_reduce --topology hgx-h100 --nodes 2 --nic ndr400 -g 1 -b 64M -e 64M --algo ring --csv -"
    (direct,) = rows(ask(line).out)
    (staged,) = rows(ask(f"{line} --no-gpudirect").out)
    assert (direct["gpudirect"], staged["gpudirect"]) == ("true", "false")
    # With one GPU a server each NIC's uplink carries the data once more on its way to and from host memory.
    assert float(staged["time_us"]) > 1.05 * float(direct["time_us"])


def test_a_line_of_nccl_tests_can_be_pasted(ask: Callable) -> None:
    plain = ask(f"perf all_reduce {IDEAL} --algo ring -b 1K -e 1M -f 32 -g 8 --csv -")
    pasted = "-b 1k -e 1m -f 32 -g 8 -t 1 -d half -o avg -m 1 -a 1 -G 10 -R 1 -n 20 -w 5 -c 0 -p 1 -C 1 -x 2 --timeout 60"
    answer = ask(f"perf all_reduce {IDEAL} --algo ring --csv - {pasted}")
    assert answer.out == plain.out
    assert answer.err.startswith("netsim: -n, -w, -c, -t, -m, -a, -G, -p, -C, -x, --timeout ignored: ")
    assert "-R ignored: what runs is textbook" in answer.err


@pytest.mark.parametrize(
    ("text", "size"), [("1k", 2**10), ("1.5m", 3 * 2**19), ("1g", 2**30), ("2 m", 2**21), ("1kB", 1000)]
)
def test_a_bare_suffix_is_binary_in_either_case(text: str, size: int, ask: Callable) -> None:
    answer = ask(f"perf all_reduce {IDEAL} --algo ring --csv -", "-b", text, "-e", text)
    assert [int(row["size_bytes"]) for row in rows(answer.out)] == [size]


def test_auto_refuses_two_ways_to_say_one_thing(ask: Callable) -> None:
    answer = ask(f"perf all_reduce {IDEAL} --chunk 1K --chunks 4")
    assert answer.code == 2
    assert "not both" in answer.sentence()


def test_a_quantum_of_a_byte_is_refused_at_once(ask: Callable) -> None:
    answer = ask(f"perf all_reduce {IDEAL} -b 1M -e 1M --quantum 1")
    assert answer.code == 2
    assert "14680064 pieces with --quantum 1" in answer.sentence()


def test_groups_name_the_protocol_that_ran(ask: Callable) -> None:
    line = "perf all_reduce --topology hgx-h100 --groups div:4 --proto ll -b 4K -e 4K"
    (row,) = rows(ask(f"{line} --csv -").out)
    assert (row["protocol"], row["algorithm"]) == ("ll", "ring")
    assert " ring ll x" in ask(line).out
    # Two groups on one switch do not meet, so each takes what four ranks take alone.
    (alone,) = rows(ask("perf all_reduce --topology hgx-h100 -g 4 --proto ll -b 4K -e 4K --csv -").out)
    assert float(row["time_us"]) == pytest.approx(float(alone["time_us"]))


def test_a_minor_is_its_newest_patch_and_the_table_says_which(ask: Callable) -> None:
    line = "perf all_reduce --topology hgx-h100 -b 8 -e 8 --nccl-version"
    assert "# NCCL 2.17.1: " in ask(line, "2.17").out
    assert "# NCCL 2.27.7: " in ask(line, "2.27").out
    assert "NCCL 2.31 is not covered; accepted are 2.17.1 to 2.30.7" in ask(line, "2.31").sentence()
    assert "--nccl-version: '' is no release of NCCL" in ask(line, "").sentence()


NCCL = "perf all_reduce --topology hgx-h100 -b 1M -e 1M"


@pytest.mark.parametrize(
    ("more", "ran"),
    [
        ("--algo RING,tree", "ring ll x24"),
        ("--algo ^NVLS,Ring,nvls_tree", "tree ll128 x"),
        ("--algo allreduce:tree;broadcast:ring --proto ^LL128", "tree ll x24"),
        ("--algo Tree --proto SIMPLE,ll128", "tree ll128 x"),
        ("--algo Symmetric:AGxLLMC_R", "symmetric:agxllmc_r ll "),
        ("--proto LL", "ring ll x24"),
    ],
)
def test_algorithms_and_protocols_are_named_as_nccl_names_them(more: str, ran: str, ask: Callable) -> None:
    answer = ask(f"{NCCL} {more}")
    assert (answer.code, answer.err) == (0, "")
    assert f"  {ran}" in answer.out


def test_lists_of_protocols_bound_sends_and_receives_too(ask: Callable) -> None:
    line = "perf alltoall --topology hgx-h100 -b 64K -e 64K --algo P2P --proto"
    assert "p2p simple" in ask(line, "^LL").out
    assert "p2p ll" in ask(line, "LL").out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "--algo rng",
            "'rng' (did you mean ring?); accepted for all_reduce are NCCL's ring, tree, nvls, nvls_tree, collnet_",
        ),
        ("--algo rng", "symmetric, auto, and the textbook's double_binary_tree, "),
        ("--algo one_shot --proto ll", "'one_shot'; accepted for all_reduce are NCCL's "),
        ("--algo ring,one_shot", "'one_shot' is no algorithm of NCCL; accepted are Tree, Ring"),
        ("--algo ring:ll", "'ring:ll' names a protocol, too; give algorithm ring and protocol ll apart"),
        ("--proto ll,lll", "'lll' is no protocol of NCCL (did you mean LL?)"),
    ],
)
def test_names_that_nccl_lacks_are_refused_with_those_it_has(more: str, words: str, ask: Callable) -> None:
    answer = ask(f"{NCCL} {more}")
    assert answer.code == 2
    assert words in answer.sentence()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("--algo one_shot", "NCCL has no one_shot"),
        ("--algo ring --chunk 64K", "--chunk cuts data, which NCCL does by rules of its own"),
        ("--algo tree --chunks 4", "--chunks cuts data, which NCCL does by rules of its own"),
    ],
)
def test_a_textbook_run_in_place_of_nccls_is_said_once_with_its_reason(more: str, why: str, ask: Callable) -> None:
    words = f"netsim: textbook schedules (protocol ideal), not NCCL's, because {why}\n"
    assert ask(f"{NCCL} -f 2 -e 4M {more}").err == words
    assert ask(f"{NCCL} --proto auto {more}").err == words
    assert ask(f"{NCCL} --proto ideal {more}").err == ""
    assert ask(f"explain all_reduce --topology hgx-h100 --size 1M {more}").err == words


@pytest.mark.parametrize(
    "option",
    ["--launch graph", "--registered", "--nccl-version 2.28.9", "--nccl-env NCCL_ALGO=ring", "--gpus-per-process 1"],
)
def test_options_for_nccls_schedules_are_refused_with_textbook_ones(option: str, ask: Callable) -> None:
    name = option.split()[0]
    for line, why in (
        (f"{NCCL} --proto ideal", "the protocol is ideal"),
        (f"{NCCL} --algo one_shot", "NCCL has no one_shot"),
        (f"perf all_reduce {IDEAL}", "the GPUs of ideal-switch:8@450GB/s,1us are not known"),
    ):
        answer = ask(f"{line} {option}")
        assert answer.code == 2
        sentence = f"{name}: only for what NCCL would run, and this run is textbook, because {why}"
        assert sentence in answer.sentence()
    assert ask(f"{NCCL} {option}").code == 0


def test_channels_that_nccl_does_not_have_are_said(ask: Callable) -> None:
    # Twelve searched channels, doubled; eight bytes are worth one.
    assert "# note: 99 channels were asked for, and 24 are used" in ask(f"{NCCL} --algo ring --channels 99").out
    assert "asked for" not in ask(f"{NCCL} --algo ring --channels 3").out
    p2p = ask("perf alltoall --topology hgx-h100 -b 1M -e 1M --channels 3").out
    assert "# note: 3 channels were asked for, and 4 are used" in p2p  # a power of two


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--launch stream --gpus-per-process 9", "9 GPUs a process: a server of hgx-h100 has 8"),
        ("--nccl-env NCCL_ALGO=^", "NCCL_ALGO='^' excludes no algorithm; accepted after a ^ are Tree, Ring"),
        ("--proto ^", "--proto='^' excludes no protocol; accepted after a ^ are LL, LL128, Simple"),
    ],
)
def test_what_no_machine_could_do_is_refused(more: str, words: str, ask: Callable) -> None:
    answer = ask(f"{NCCL} {more}")
    assert answer.code == 2
    assert words in answer.sentence()


def test_a_file_without_a_variable_of_nccl_is_refused(ask: Callable, tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("# nothing\nPATH=/bin\n")
    answer = ask(f"{NCCL} --nccl-env {path}")
    assert f"{path}: no line of it gives a variable of NCCL; a file of lines NAME=VALUE is wanted" in answer.sentence()


@pytest.mark.parametrize(("given", "taken"), [(48, 512), (1024, 512), (32, 64)])
def test_threads_outside_nccls_range_are_said(given: int, taken: int, ask: Callable) -> None:
    answer = ask(f"{NCCL} --nccl-env NCCL_NTHREADS={given}")
    assert (
        answer.err == f"netsim: NCCL_NTHREADS={given} is no multiple of 32 from 64 to 512, so NCCL warns and takes {taken}\n"
    )
    # What is said is what is run.
    assert ask(f"{NCCL} --nccl-env NCCL_NTHREADS={taken}").out == answer.out
    assert ask(f"{NCCL} --nccl-env NCCL_LL128_NTHREADS=320").err == ""


@pytest.mark.parametrize("done", [0, 1, 2])
def test_ctrl_c_keeps_the_sizes_that_are_done(done: int, ask: Callable, monkeypatch, tmp_path: Path) -> None:
    from netsim.cli import perf

    line = f"perf all_reduce {IDEAL} --algo ring -b 1K -f 2"
    whole = ask(f"{line} -e {max(done, 1)}K").out
    run, calls = perf.run_spec, []

    def interrupted(spec):
        calls.append(spec)
        if len(calls) > done:
            raise KeyboardInterrupt
        return run(spec)

    monkeypatch.setattr(perf, "run_spec", interrupted)
    target = tmp_path / "rows.csv"
    answer = ask(f"{line} -e 8K --csv {target}")
    assert answer.code == 130
    assert answer.err == f"netsim: stopped after {done} of 4 sizes\n"
    assert answer.out == (whole if done else "")
    assert len(rows(target.read_text()) if done else []) == done
    assert target.exists() == bool(done)


def test_r_registers_buffers_as_in_nccl_tests(ask: Callable) -> None:
    line = f"{NCCL} --algo ring --proto simple"
    registered, plain = ask(f"{line} --registered"), ask(line)
    assert registered.out != plain.out
    assert ask(f"{line} -R 1") == registered
    assert ask(f"{line} -R 0") == plain
    # With an algorithm that needs no windows they are but registered.
    assert ask(f"{line} -R 2").out == registered.out.replace("registered buffers", "symmetric windows")
    windows = ask(f"{NCCL} -b 4K -e 4K -R 2")
    assert "symmetric:" in windows.out
    assert ask(f"{NCCL} -b 4K -e 4K --windows") == windows
    assert "-R 3: accepted are 0 (none), 1 (registered buffers)" in ask(f"{line} -R 3").sentence()
    assert ask(f"perf all_reduce {IDEAL} -R 1").err == "netsim: -R ignored: what runs is textbook, which knows no buffers\n"


def test_types_and_operators_are_those_of_nccl_tests(ask: Callable) -> None:
    line = f"{NCCL} -b 8M -e 8M"
    assert " nvls simple " in ask(line).out
    assert " nvls simple " in ask(f"{line} -d half -o max").out
    assert " ring " in ask(f"{line} -d float -o max").out  # which the switch does not compare
    assert " ring " in ask(f"{line} -d int8").out
    assert " ring " in ask(f"{line} -o prod").out
    # A size is whole elements: 1003 bytes are 1000 of floats, and 1003 of int8.
    sizes = [rows(ask(f"{NCCL} -b 1003 -e 1003 -d {name} --csv -").out)[0]["size_bytes"] for name in ("float", "int8")]
    assert sizes == ["1000", "1003"]
    assert "'all' is no type that NCCL reduces; accepted are int8" in ask(f"{line} -d all").sentence()
    assert "'add' is no operator that NCCL reduces; accepted are sum" in ask(f"{line} -o add").sentence()


def test_tables_name_elements_buffers_and_calls_that_are_not_the_default(ask: Callable) -> None:
    answer = ask(f"{NCCL} -b 4K -e 4K -d half -o max -R 1 --launch stream")
    assert "effective rates, max of half, registered buffers, stream of calls, 1 GPU a thread" in answer.out
    assert "registered" not in ask(f"{NCCL} -b 4K -e 4K").out


def test_nccl_tests_layout_counts_elements_of_their_type(ask: Callable) -> None:
    line = ask(f"{NCCL} -b 4K -e 4K -d half -o max --format nccl-tests").out.splitlines()[-4]
    assert line.split()[:4] == ["4096", "2048", "half", "max"]


@pytest.mark.parametrize(
    ("more", "why"), [("--nccl-version 2.26.5", "from 2.27.0 on"), ("-N 2 --nic ndr400", "one NVLink domain")]
)
def test_windows_that_change_nothing_are_said_to(more: str, why: str, ask: Callable) -> None:
    assert why in ask(f"{NCCL} -b 4K -e 4K --windows {more}").out


@pytest.mark.parametrize("words", ["-R 0 --registered", "-R 0 --windows", "-R 1 --windows", "-R 2 --registered"])
def test_two_words_on_buffers_must_agree(ask: Callable, words: str) -> None:
    told = ask(f"{NCCL} {words}")
    assert told.code == 2
    assert "contradict each other" in told.sentence()


def test_what_is_copied_out_of_place_alone_takes_longer(ask: Callable) -> None:
    # On all channels links hide the copy; on four the lanes set the time.
    gather = "perf all_gather --topology hgx-h100 -b 64M -e 64M --algo ring --proto simple --channels 4 --csv -"
    (out_of_place,), (in_place,) = (rows(ask(f"{gather}{more}").out) for more in ("", " --in-place"))
    assert float(in_place["time_us"]) < float(out_of_place["time_us"])


def test_kernel_costs_come_from_a_file(ask: Callable, repository: Path, tmp_path: Path) -> None:
    text = (repository / "netsim" / "nccl" / "gpus_data" / "hopper.toml").read_text(encoding="utf-8")
    costs = tmp_path / "costs.toml"
    costs.write_text(text)
    small = "perf all_reduce --topology hgx-h100 -b 8 -e 8 --algo ring --proto ll --csv -"
    (plain,), (same,) = (rows(ask(f"{small}{more}").out) for more in ("", f" --kernel-costs {costs}"))
    assert same["time_us"] == plain["time_us"]
    costs.write_text(text.replace("[ll]\nstart = ", '[ll]\nstart = "20 us" # '))
    (later,) = rows(ask(f"{small} --kernel-costs {costs}").out)
    assert float(later["time_us"]) > float(plain["time_us"]) + 15
    costs.write_text("[ll]\n")
    told = ask(f"{small} --kernel-costs {costs}")
    assert told.code == 2
    assert "[simple] lacks start, send, recv" in told.sentence()


def test_lists_that_leave_no_protocol_are_refused(ask: Callable) -> None:
    told = ask(f"{NCCL} --proto ^LL,LL128,Simple")
    assert told.code == 2
    assert "leaves no algorithm and protocol at all; accepted are tree ll" in told.sentence()
