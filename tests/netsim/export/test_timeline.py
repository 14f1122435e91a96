"""The timeline holds to the trace-event format's rules, and its numbers are microseconds."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from netsim.errors import NetsimError
from netsim.export.timeline import timeline_text
from netsim.runs import simulate
from netsim.schedule.catalogue import build_schedule
from netsim.testing import runs, star

GOLDEN = Path(__file__).parent / "data" / "ring_of_three.json"
"""Three ranks, 3,000 bytes, 1 GB/s, 1 us. Written by this program; the numbers are checked by hand below."""


def text_of(graph, schedule, **options):
    return timeline_text(schedule, simulate(graph, schedule, record="links", **options), list(graph))


def ring_of_three():
    return text_of(star(3), build_schedule("all_reduce", "ring", 3, 3000))


def events(text, phase):
    return [event for event in json.loads(text)["traceEvents"] if event["ph"] == phase]


def check_format(text):
    """Check what Perfetto asks of a file: keys, names, arrows in pairs, slices that do not overlap on their thread."""
    document = json.loads(text)
    assert isinstance(document, dict)
    named = defaultdict(set)
    tracks = defaultdict(list)
    arrows = defaultdict(list)
    for event in document["traceEvents"]:
        assert {"ph", "pid", "tid", "ts", "name"} <= set(event)
        assert event["ph"] in "MXsf"
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        assert event["ts"] >= 0
        if event["ph"] == "M":
            named[event["name"]].add((event["pid"], event["tid"]))
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        else:
            arrows[event["id"]].append(event)
    assert set(tracks) == named["thread_name"] == named["thread_sort_index"]
    assert {pid for pid, _ in tracks} <= {pid for pid, _ in named["process_name"]}
    assert len({tid for _, tid in tracks}) == len(tracks)
    for slices in tracks.values():
        slices.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(slices))
    for ends in arrows.values():
        assert [event["ph"] for event in ends] == ["s", "f"]
        assert ends[0]["ts"] <= ends[1]["ts"]
        for event in ends:
            assert any(begin <= event["ts"] < end for begin, end in tracks[event["pid"], event["tid"]])
    return document, tracks, arrows


def test_the_golden_file():
    assert ring_of_three() == GOLDEN.read_text()


def test_times_are_microseconds():
    # A step takes 1 us for 1,000 bytes at 1 GB/s and 1 us of latency: sends begin at 0, 2, 4 and 6 us.
    sends = [(slice_["ts"], slice_["dur"]) for slice_ in events(GOLDEN.read_text(), "X") if slice_["cat"] == "lane"]
    assert sends == [(0.0, 1.0), (2.0, 1.0), (4.0, 1.0), (6.0, 1.0)] * 3
    # The last link has no latency here, so what arrives is under way for 1 us, 1 us after it was sent.
    came = [(slice_["ts"], slice_["dur"]) for slice_ in events(GOLDEN.read_text(), "X") if slice_["cat"] == "arriving"]
    assert came == [(1.0, 1.0), (3.0, 1.0), (5.0, 1.0), (7.0, 1.0)] * 3


def test_the_golden_file_holds_to_the_format():
    document, tracks, arrows = check_format(GOLDEN.read_text())
    # 3 ranks with a lane and what arrives, 6 links; 12 messages
    assert (len(tracks), len(arrows)) == (12, 12)
    assert document["otherData"]["time_us"] == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("collective", "algorithm"), [("all_reduce", "nvls"), ("alltoall", "direct"), ("all_reduce", "tree")]
)
def test_other_algorithms_hold_to_the_format(collective, algorithm):
    _, _, arrows = check_format(text_of(star(4), build_schedule(collective, algorithm, 4, 100_000)))
    assert arrows


@given(run=runs())
def test_random_runs_hold_to_the_format(run):
    for quantum in (0, 1000):
        check_format(text_of(*run, quantum_bytes=quantum))


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_what_a_switch_copies_or_adds_arrives_and_the_last_slice_ends_with_the_run(collective):
    schedule = build_schedule(collective, "nvls", 4, 100_000)
    document, _, _ = check_format(text_of(star(4), schedule))
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    came = [event for event in slices if event["cat"] == "arriving"]
    assert [event["args"]["op"] for event in came].count(len(schedule) - 1) == 1
    assert len(came) == int((schedule.dst >= 0).sum())
    last = max(event["ts"] + event["dur"] for event in slices)
    # Both are rounded, to 2^-20 us or to a double.
    assert last == pytest.approx(document["otherData"]["time_us"], abs=2**-20)


def test_a_multicast_arrives_when_it_is_delivered():
    # One kilobyte at 1 GB/s behind 1 us: the root's trunk is on its link from 0 to 1 us and its head is at the switch at
    # 1 us, so every branch comes in from 1 to 2 us.
    text = text_of(star(3), build_schedule("broadcast", "nvls", 3, 1000))
    came = [event for event in events(text, "X") if event["cat"] == "arriving"]
    assert [(event["pid"], event["ts"], event["dur"], event["name"]) for event in came] == [
        (1, 1.0, 1.0, "from switch, chunk 0"),
        (2, 1.0, 1.0, "from switch, chunk 0"),
    ]
    # Trunk to branch and branch to what arrives, for both receivers.
    assert len(events(text, "s")) == len(events(text, "f")) == 4


def test_the_same_run_gives_the_same_bytes():
    assert ring_of_three() == ring_of_three()


def test_links_are_a_process_of_their_own_and_tell_who_waited():
    text = text_of(star(4), build_schedule("gather", "flat", 4, 4000))
    waits = [item["args"]["waited_us"] for item in events(text, "X") if item["pid"] == 4 and item["args"]["waited_us"]]
    # Three messages of 1 us meet at the root's port: the second waits 1 us, the third 2.
    assert waits == [pytest.approx(1.0, abs=1e-6), pytest.approx(2.0, abs=1e-6)]


def test_a_record_of_another_schedule_is_refused():
    record = simulate(star(2), build_schedule("all_reduce", "ring", 2, 1000), record="links")
    with pytest.raises(NetsimError, match="of 4 operations, the schedule has 2"):
        timeline_text(build_schedule("alltoall", "direct", 2, 1000), record)


def test_a_record_without_services_is_refused():
    schedule = build_schedule("all_reduce", "ring", 2, 1000)
    with pytest.raises(NetsimError, match="record='links'"):
        timeline_text(schedule, simulate(star(2), schedule))
