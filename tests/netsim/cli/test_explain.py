import json
from collections.abc import Callable

import pytest

RING = "explain all_reduce --topology ideal-switch:8@450GB/s,1us --size 64M --algo ring"


def changes(found: dict) -> dict[str, float]:
    return {item["change"]: item["time_us"] for item in found["what_if"]}


def test_three_sentences_tell_how_long_where_and_what_helps(ask: Callable) -> None:
    answer = ask(RING)
    assert answer.code == 0
    how_long, where, helps = answer.out.splitlines()
    # 14 us of latency and 1.75 x 64 MiB / 450 GB/s = 260.979 us
    assert "takes 274.979 us" in how_long
    assert "gpu0->switch (ideal), like 15 more, limits it: it serves during 94.9% of that time" in how_long
    assert "14 operations" in where
    assert "5.1% is latency (14.000 us), 94.9% is serialisation (260.979 us" in where
    assert "0.0% is waiting (0.000 us); launch and compute take nothing" in where
    # Twice the rate halves the serialisation: 14 + 130.489
    assert "twice the bandwidth of ideal links helps most: 144.489 us, -47.5%" in helps
    assert "nvls instead of ring" in helps
    assert "half the latency of every link 267.979 us, -2.5%" in helps


def test_the_json_holds_the_same_as_numbers(ask: Callable) -> None:
    found = json.loads(ask(f"{RING} --json").out)
    serialisation = 1.75 * 2**26 / 450e9 * 1e6
    assert found["time_us"] == pytest.approx(14 + serialisation)
    assert found["split_us"] == pytest.approx(
        {"latency": 14, "serialisation": serialisation, "waiting": 0, "compute": 0, "launch": 0}
    )
    assert sum(found["split_us"].values()) == pytest.approx(found["time_us"], rel=1e-12)
    assert found["bottleneck"]["utilisation"] == pytest.approx(serialisation / (14 + serialisation))
    assert changes(found)["half the latency of every link"] == pytest.approx(7 + serialisation)
    assert len(found["sentences"]) == 3


def test_a_small_message_gains_from_latency_alone(ask: Callable) -> None:
    helps = ask("explain all_reduce --topology ideal-switch:8@450GB/s,1us --size 8 --algo ring").out.splitlines()[2]
    # One shot takes one latency, the ring fourteen.
    assert "one_shot instead of ring helps most: 1.000 us" in helps
    assert "half the latency of every link 7.000 us, -50.0%" in helps
    assert "no gain from twice the bandwidth of ideal links" in helps


def test_the_fastest_has_no_faster_neighbour(ask: Callable) -> None:
    answer = ask("explain all_reduce --topology ideal-switch:8@450GB/s,1us --size 8")
    assert "by one_shot takes 1.000 us" in answer.out
    assert "no other algorithm is faster" in answer.out


def test_an_incast_is_told_as_waiting(ask: Callable) -> None:
    found = json.loads(ask("explain gather --topology ideal-switch:5@1GB/s,1us --size 5000 --algo flat --json").out)
    # Four blocks of 1,000 bytes: each takes 1 us at the root's port, the last waits for three.
    assert found["split_us"] == pytest.approx({"latency": 1, "serialisation": 1, "waiting": 3, "compute": 0, "launch": 0})
    assert found["critical_chain"]["waiting_us_by_link"] == pytest.approx({"switch->gpu0": 3})


def test_a_cluster_is_limited_by_its_network(ask: Callable) -> None:
    found = json.loads(
        ask("explain all_reduce --topology hgx-h100 --nodes 2 --nic ndr400 --proto ideal --size 64M --algo ring --json").out
    )
    assert found["bottleneck"]["kind"] == "ndr400"
    assert found["bottleneck"]["utilisation"] > 0.9


def test_an_algorithm_that_cannot_run_is_listed_with_its_reason(ask: Callable) -> None:
    found = json.loads(ask("explain all_reduce --topology hgx-a100 --proto ideal --size 1M --algo ring --json").out)
    assert "multicast=True" in {item["algorithm"]: item["why"] for item in found["not_run"]}["nvls"]


def test_one_rank_takes_no_time(ask: Callable) -> None:
    answer = ask("explain all_reduce --topology ideal-switch:1@450GB/s,1us --size 1M")
    assert answer.code == 0
    assert "takes no time" in answer.out


def test_the_same_question_gets_the_same_bytes(ask: Callable) -> None:
    assert ask(f"{RING} --json").out == ask(f"{RING} --json").out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("explain all_reduce --topology ideal-switch:8@450GB/s,1us", "--size"),
        ("explain all_reduce --topology ideal-switch:8@450GB/s,1us --size 1Mb", "bits"),
        ("explain all_reduce --topology ideal-switch:8@450GB/s,1us --size 1M --algo nonsense", "nonsense"),
    ],
)
def test_a_wrong_question_gets_one_sentence(line: str, words: str, ask: Callable) -> None:
    answer = ask(line)
    assert answer.code == 2
    assert words in answer.sentence()


def test_a_run_at_its_own_bound_says_how_far_it_is_from_any_algorithms(ask: Callable) -> None:
    how_long = ask(RING).out.splitlines()[0]
    # 274.979 us; ranks alone must send 1.75 x 64 MiB at 450 GB/s: 260.979 us, 1.05 times less
    assert (
        "which is its own lower bound and 1.05 times the 260.979 us that no algorithm without help of switches" in how_long
    )


def test_lanes_that_queue_at_a_link_in_full_use_are_no_delay(ask: Callable) -> None:
    how_long, where, helps = ask(
        "explain all_reduce --topology hgx-h100 --proto ideal --size 1G --algo nvls"
    ).out.splitlines()
    # The busiest link serves during 98.4 % of the time, so nothing but 1.6 % can be gained by another order.
    assert "it serves during 98.4% of that time" in how_long
    assert "is waiting while links serve other messages" in where
    assert "no other order of these messages could save more than 1.6%" in where
    # Half the latency saves 0.5 us of 3309.6.
    assert "-0.02%" in helps
    assert "-0.0%" not in helps


def test_waiting_that_another_order_might_spare_is_not_excused(ask: Callable) -> None:
    where = ask("explain gather --topology ideal-switch:5@1GB/s,1us --size 5000 --algo flat").out.splitlines()[1]
    # The root's port is busy for 4 of 5 us.
    assert "60.0% is waiting while links serve other messages" in where
    assert "no other order" not in where
