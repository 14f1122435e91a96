from collections.abc import Callable

import pytest


def test_list_has_a_line_a_collective(ask: Callable) -> None:
    lines = ask("schedule list").out.splitlines()
    assert lines[0].split()[:2] == ["all_reduce", "ring"]
    assert lines[9].startswith("NCCL's own, whose schedules depend on the machine (show and prove take --topology")
    assert lines[10].split()[1:] == ["ring", "tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain", "symmetric"]
    assert lines[15].split() == ["alltoall", "p2p", "copy_engine"]
    assert len(lines) == 19


def test_the_ring_is_told_as_in_the_textbook(ask: Callable) -> None:
    lines = ask("schedule show all_reduce --algo ring --ranks 4").out.splitlines()
    # In step s, rank r sends chunk (r - s) mod p while scattering and (r + 1 - s) mod p while gathering.
    assert lines[1] == "reduce-scatter step 1: r0->r1 chunk 0, r1->r2 chunk 1, r2->r3 chunk 2, r3->r0 chunk 3"
    assert lines[6] == "all-gather step 3: r0->r1 chunk 3, r1->r2 chunk 0, r2->r3 chunk 1, r3->r0 chunk 2"


def test_what_is_left_out_is_counted(ask: Callable) -> None:
    out = ask("schedule show all_reduce --algo ring --ranks 4 --steps 2").out
    assert out.endswith("and 4 more steps; --steps shows more\n")


def test_a_proof_says_what_was_proved(ask: Callable) -> None:
    answer = ask("schedule prove all_reduce --algo ring --ranks 5 --size 1003B")
    assert answer.code == 0
    assert answer.out.startswith("proved: all_reduce by ring over 5 ranks, 1003 bytes")


def test_a_failed_proof_is_a_no(ask: Callable, monkeypatch) -> None:
    import netsim.schedule.proof
    from netsim.errors import ProofError

    def fail(schedule: object) -> None:
        raise ProofError("rank 1 ends without rank 0's input")

    monkeypatch.setattr(netsim.schedule.proof, "prove", fail)
    answer = ask("schedule prove all_reduce")
    assert answer.code == 1
    assert "rank 1 ends without" in answer.sentence()


OWN = """from netsim import ScheduleBuilder


def schedule(ranks, size_bytes):
    plan = ScheduleBuilder("broadcast", "mine", ranks, size_bytes)
    for rank in range(1, LAST):
        plan.send(0, rank, size=size_bytes)
    return plan.build()
"""


def test_a_file_is_shown_and_proved_like_any_algorithm(ask: Callable, tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN.replace("LAST", "ranks"))
    lines = ask(f"schedule show broadcast --ranks 3 --algo {path}").out.splitlines()
    assert lines[1] == "step 1: r0->r1 chunk 0, r0->r2 chunk 0"
    assert ask(f"schedule prove broadcast --ranks 3 --algo {path}").out.startswith("proved: broadcast by")


def test_a_file_that_does_not_do_it_can_be_looked_at_but_is_neither_proved_nor_run(ask: Callable, tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN.replace("LAST", "2"))
    assert ask(f"schedule show broadcast --ranks 3 --algo {path}").code == 0
    run = f"perf broadcast --topology ideal-switch:3@450GB/s,1us -b 3 -e 3 --algo {path} --csv {tmp_path / 'out.csv'}"
    for line in (f"schedule prove broadcast --ranks 3 --size 3B --algo {path}", run):
        answer = ask(line)
        assert answer.code == 1
        assert answer.sentence().endswith(
            "mine.py breaks its promise at rank 2, bytes 0 to 3: the input of rank 0 is missing"
        )
    assert not (tmp_path / "out.csv").exists()


def test_dimensions_are_given_with_the_name(ask: Callable) -> None:
    lines = ask("schedule show all_reduce --ranks 4 --algo hierarchical:2x2 --chunks 1").out.splitlines()
    assert lines[1] == "dimension 1 reduce-scatter step 1: r0->r1 chunk 2, r1->r0 chunk 0, r2->r3 chunk 2, r3->r2 chunk 0"
    assert [line.partition(":")[0] for line in lines[2:]] == [
        "dimension 2 reduce-scatter step 1",
        "dimension 2 all-gather step 1",
        "dimension 1 all-gather step 1",
    ]


def test_without_a_name_the_first_algorithm_that_serves_is_told(ask: Callable) -> None:
    assert ask("schedule show sendrecv").out.startswith("sendrecv by direct: 4 ranks")
    assert ask("schedule prove alltoall").out.startswith("proved: alltoall by pairwise")


def test_more_ranks_than_the_limit_are_refused_before_anything_is_built(ask: Callable) -> None:
    answer = ask("schedule show all_reduce -p 100000000")
    assert answer.code == 2
    assert "at least 99999999 messages, more than the limit of 1000000" in answer.sentence()


NCCL = "all_reduce --topology hgx-h100 -g 4 --size 64K"


def test_what_nccl_would_run_on_a_machine_is_told(ask: Callable) -> None:
    answer = ask(f"schedule show {NCCL} --algo Ring --proto LL --channels 1 --steps 3")
    lines = answer.out.splitlines()
    assert lines[0].startswith("all_reduce by ring ll x1, as NCCL 2.28.9 would run it on hgx-h100: 4 ranks, 65536 bytes, ")
    # A ring of four: in its first step every rank sends to the next one.
    assert lines[1].count("->") == 4
    assert lines[-1].endswith("more steps; --steps shows more")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "proved: all_reduce by ring ll x"),
        ("--nccl-version 2.17 --nccl-env NCCL_ALGO=Tree", "proved: all_reduce by tree ll"),
        ("--algo nvls", "proved: all_reduce by nvls simple x"),
        ("--proto ideal --algo one_shot", "proved: all_reduce by one_shot over 4 ranks"),
    ],
)
def test_what_nccl_would_run_is_proved(more: str, words: str, ask: Callable) -> None:
    answer = ask(f"schedule prove {NCCL} {more}")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(words)


def test_several_servers_are_shown_with_their_network_cards(ask: Callable) -> None:
    line = "schedule prove all_reduce --topology hgx-h100 --nodes 2 --nic ndr400 -g 2 --algo nvls_tree --size 256K"
    assert "by nvls_tree simple x" in ask(line).out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("all_reduce --proto ll", "--proto ll: NCCL's schedules depend on the machine; give --topology with it"),
        ("all_reduce --nccl-version 2.28", "--nccl-version: only for a machine"),
        ("all_reduce --nodes 2", "--nodes: only for a machine"),
        (f"{NCCL} -p 4", "-p 4: --topology says how many ranks there are"),
        (f"{NCCL} --proto ll --chunks 4", "NCCL cuts data by its own rules"),
        (f"{NCCL} --algo pat", "cannot run pat"),
        (
            "all_reduce --topology ideal-switch:4@1GB/s,1us --nccl-version 2.28",
            "--nccl-version: only for what NCCL would run",
        ),
    ],
)
def test_what_fits_no_schedule_is_refused(line: str, words: str, ask: Callable) -> None:
    answer = ask(f"schedule show {line}")
    assert answer.code == 2
    assert words in answer.sentence()


def test_what_perf_takes_of_buffers_and_elements_is_proved_too(ask: Callable) -> None:
    eight = "schedule prove all_reduce --topology hgx-h100 --size 1M --algo nvls"
    plain, registered = (ask(f"{eight}{more}") for more in ("", " --registered -d half"))
    assert registered.code == 0
    # Nothing is copied in or out: fewer operations.
    counts = [int(said.out.rpartition("(")[2].split()[0]) for said in (plain, registered)]
    assert counts[1] < counts[0]
    told = ask("schedule show all_reduce -p 4 --registered")
    assert (told.code, "--registered: only for a machine" in told.sentence()) == (2, True)
