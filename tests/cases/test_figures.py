"""Public questions about numbers, each asked the way a user would; figures from the threads named in each test."""

import json
import shlex

import pytest

from netsim.cli.app import answer
from netsim.units import parse_rate


@pytest.fixture
def ask(capsys):
    """Return a function that runs a command line and returns its rows."""

    def asked(line):
        assert answer([*shlex.split(line), "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    return asked


def perf(ask, topology, algorithm, size, **options):
    words = " ".join(f"--{key} {value}" for key, value in options.items())
    return ask(f"perf all_reduce --topology {topology} --algo {algorithm} -b {size} -e {size} {words}")[0]


def test_nvls_shows_more_bus_bandwidth_than_its_wire_carries(ask):
    # NVIDIA/nccl #2140, nccl-tests #212: 8 GPUs at 309.4 GB/s on the wire, algbw 275, busbw 481.
    row = perf(ask, "ideal-switch:8@309.4GB/s,1us", "nvls", "8G", chunks=256)
    # Each GPU sends and receives N (1 + 1/8): algbw = 309.4 x 8/9.
    assert row["algbw_GBps"] == pytest.approx(275, rel=0.02)
    assert row["busbw_GBps"] == pytest.approx(481, rel=0.02)
    assert "no wire rate" in row["note"]


def test_a_ring_shows_its_wire(ask):
    row = perf(ask, "ideal-switch:8@370GB/s,1us", "ring", "8G")
    assert row["busbw_GBps"] == pytest.approx(370, rel=0.02)


@pytest.mark.parametrize("size", [0, 1])
def test_a_ring_of_32_pays_62_latencies_and_a_tree_about_ten(ask, size):
    # NVIDIA/nccl #1049: 0.5 us everywhere; ring 2 x 31 x 0.5 us, tree about 2 x 5 x 0.5 us.
    ring = perf(ask, "ideal-switch:32@450GB/s,0.5us", "ring", size)
    assert ring["time_us"] == pytest.approx(31, rel=1e-3)
    tree = perf(ask, "ideal-switch:32@450GB/s,0.5us", "double_binary_tree", size)
    # The second tree may be one level deeper: ten to twelve latencies.
    assert 4.99 <= tree["time_us"] <= 6.01


def test_one_gibibyte_at_one_gigabyte_a_second_takes_1_0737_seconds(ask):
    # astra-sim PR #217, torchcomms #140: GB is 1e9 and GiB is 2^30, in and out.
    row = ask("perf sendrecv --topology ideal-switch:2@1GB/s,0s -b 1GiB -e 1GiB")[0]
    assert row["time_us"] == pytest.approx(1.0737e6, rel=1e-4)
    assert row["algbw_GBps"] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("text", "size"), [("1GB", 10**9), ("1GiB", 2**30), ("1G", 2**30)])
def test_each_spelling_of_a_size_is_its_own_number(ask, text, size):
    assert ask(f"perf sendrecv --topology ideal-switch:2@1GB/s,0s -b {text} -e {text}")[0]["size_bytes"] == size


def test_400_gigabits_are_50_gigabytes_and_a_rate_without_seconds_is_refused(capsys):
    assert parse_rate("400Gb/s") == 50e9
    assert answer(shlex.split("perf all_reduce --topology ideal-switch:8@400Gb,1us")) == 2
    assert "did you mean 'Gb/s'" in capsys.readouterr().err
