"""Public questions about schedules and their numbers, each built the way a user would; figures from the threads named."""

import csv
import io
import json
import shlex

import pytest

yaml = pytest.importorskip("yaml")

from netsim.cli.app import answer  # noqa: E402  # after the check for what the front door needs
from netsim.metrics.links import link_loads  # noqa: E402
from scenarios.machine import Machine  # noqa: E402
from scenarios.run import Spec, run_recorded  # noqa: E402

MIB = 2**20
CHUNKS = (1, 2, 3, 4, 7, 16, 33, 64)


@pytest.fixture
def ask(capsys):
    """Return a function that runs `netsim perf` and returns its rows."""

    def asked(line):
        assert answer([*shlex.split(f"perf {line}"), "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    return asked


@pytest.fixture
def torus(tmp_path):
    """Return a function that writes a two-dimensional torus of GPUs with 1 GB/s a link and no latency."""

    def write(first, second):
        names = {(x, y): f"gpu{x + first * y}" for y in range(second) for x in range(first)}
        pairs = {
            tuple(sorted((names[x, y], other)))
            for x, y in names
            for other in (names[(x + 1) % first, y], names[x, (y + 1) % second])
        }
        links = [{"between": list(pair), "bandwidth": "1 GB/s", "latency": "0 s"} for pair in sorted(pairs)]
        path = tmp_path / f"torus{first}x{second}.yaml"
        nodes = {name: {"kind": "gpu"} for name in names.values()}
        path.write_text(yaml.safe_dump({"nodes": nodes, "links": links}, sort_keys=False))
        return path

    return write


def test_14_nvls_reduce_scatter_takes_n_over_n_minus_1_of_the_ring(ask):
    # NVIDIA/nccl #1083, #1047: NVLS sends S and receives S/N, the ring (N - 1)S/N each way: 8/7 = 1.143.
    line = "reduce_scatter --topology hgx-h100 -b 8G -e 8G --proto ideal --algo"
    (nvls,), (ring,) = ask(f"{line} nvls"), ask(f"{line} ring")
    assert nvls["time_us"] / ring["time_us"] == pytest.approx(8 / 7, rel=0.002)


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
def test_14_nvls_is_never_chosen_for_its_bandwidth(ask, collective):
    (row,) = ask(f"{collective} --topology hgx-h100 --proto ideal -b 1G -e 1G")
    assert row["algorithm"] != "nvls"


def loads(topology, algorithm):
    row, record = run_recorded(Spec(Machine(topology), "all_reduce", 64 * MIB, algorithm))
    return row.time_us, {load.name: load.bytes for load in link_loads(record)}


def test_26_a_ring_is_the_same_on_ring_mesh_and_switch_and_its_bytes_are_told_link_by_link():
    # astra-sim #207. 14 us and 14 blocks of 8 MiB at 450 GB/s, one link a hop or two.
    for topology, links in (("ideal-ring", 8), ("ideal-mesh", 8), ("ideal-switch", 16)):
        time_us, sent = loads(f"{topology}:8@450GB/s,1us", "ring")
        assert time_us == pytest.approx(14 + 1.75 * 64 * MIB / 450e3)
        assert set(sent.values()) == {14 * 8 * MIB}
        assert len(sent) == links


def test_26_direct_messages_tell_the_topologies_apart():
    times = {
        topology: loads(f"{topology}:8@450GB/s,1us", "two_shot") for topology in ("ideal-ring", "ideal-mesh", "ideal-switch")
    }
    # Mesh: a link a pair carries one block each way, twice; switch: 2 us and 14 blocks; ring: blocks pass through others.
    assert times["ideal-mesh"][0] == pytest.approx(2 + 2 * 8 * MIB / 450e3)
    assert times["ideal-switch"][0] == pytest.approx(2 + 14 * 8 * MIB / 450e3)
    assert times["ideal-ring"][0] > times["ideal-switch"][0]
    assert set(times["ideal-mesh"][1].values()) == {2 * 8 * MIB}
    # Mean distance 16/7 on a ring of eight: 56 messages of two phases over 128 links in all, each 8 MiB.
    assert sum(times["ideal-ring"][1].values()) == 2 * 8 * 16 * 8 * MIB


def test_26_a_schedule_that_moves_nothing_is_an_error(tmp_path, capsys):
    path = tmp_path / "nothing.py"
    path.write_text(
        "from netsim import ScheduleBuilder\n\n\ndef schedule(ranks, size_bytes):\n"
        "    return ScheduleBuilder('all_reduce', 'nothing', ranks, size_bytes).build()\n"
    )
    line = f"perf all_reduce --topology ideal-switch:8@450GB/s,1us -b 64M -e 64M --algo {path}"
    assert answer(shlex.split(line)) == 1
    assert "breaks its promise at rank 0" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "second", "piped"), [(2, 8, 1.0), (8, 2, 1.75)])
def test_27_the_order_of_dimensions_matters_once_chunks_are_pipelined(ask, torus, first, second, piped):
    # astra-sim #150. One chunk: 2(d - 1)/d of what reaches a dimension, 1 + 0.875 or 1.75 + 0.125 S/B; many: the larger.
    size_us = 64 * MIB / 1e3
    line = f"all_reduce --topology {torus(first, second)} -b 64M -e 64M --algo hierarchical:{first}x{second} --chunks"
    (one,), (many,) = ask(f"{line} 1"), ask(f"{line} 64")
    assert one["time_us"] / size_us == pytest.approx(1.875, rel=1e-9)
    assert many["time_us"] / size_us == pytest.approx(piped, rel=0.02)


def rings(topology, latency):
    times = {}
    for chunks in CHUNKS:
        row, record = run_recorded(
            Spec(Machine(f"{topology}@1GB/s,{latency}"), "all_reduce", 153_600, "ring", chunks=chunks)
        )
        times[chunks] = row.time_us
        assert int(record.link_bytes.sum()) == 14 * 153_600
    return times


def test_28_without_latency_the_number_of_chunks_changes_nothing():
    # astra-sim #155. 1.75 N/B; pieces that do not divide a block of 19,200 bytes end in a shorter one.
    for time_us in rings("ideal-ring:8", "0us").values():
        assert time_us == pytest.approx(1.75 * 153.6, rel=2e-3)


def test_28_with_latency_the_time_falls_once_and_never_jumps():
    times = rings("ideal-ring:8", "1us")
    assert times[1] == pytest.approx(1.75 * 153.6 + 14)
    # From two pieces on a rank sends one while the other travels: only one latency shows.
    assert times[2] == pytest.approx(1.75 * 153.6 + 1)
    assert all(abs(times[chunks] - times[2]) < 1 for chunks in CHUNKS[1:])


def test_28_chunks_over_dimensions_save_time_at_first_and_then_cost_a_latency_a_step():
    machine = Machine("ideal-switch:8@1GB/s,1us")
    times = [
        run_recorded(Spec(machine, "all_reduce", 8 * 7680, "hierarchical:2x4", chunks=chunks))[0].time_us
        for chunks in (1, 2, 4, 8, 16, 32)
    ]
    # Each of the 8 steps of a chunk can add its latency, no more; two chunks pay, one dimension works beside the other.
    assert times[1] < times[0]
    for fewer, more, chunks in zip(times[:-1], times[1:], (1, 2, 4, 8, 16), strict=True):
        assert more - fewer <= 8 * chunks + 1e-6


@pytest.mark.parametrize(
    ("size", "seconds"), [("1GiB", 1.073741824), ("1G", 1.073741824), ("1GB", 1.0), ("1GIB", None), ("1Gb", None)]
)
def test_29_a_gibibyte_at_a_gigabyte_a_second_takes_seven_per_cent_longer(capsys, size, seconds):
    line = f"perf sendrecv --topology ideal-switch:2@1GB/s,0us -b {size} -e {size} --algo direct --format json"
    if seconds is None:
        assert answer(shlex.split(line)) == 2
        assert "GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)" in capsys.readouterr().err
        return
    assert answer(shlex.split(line)) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["time_us"] == pytest.approx(seconds * 1e6, rel=1e-9)


def test_30_one_rank_has_time_and_bandwidth_zero_with_a_note(ask):
    # NVIDIA/nccl-tests #249, #71, #294: 2(n - 1)/n is 0.
    for collective in ("all_reduce", "all_gather", "alltoall", "broadcast"):
        (row,) = ask(f"{collective} --topology ideal-switch:1@450GB/s,1us -b 1M -e 1M")
        assert (row["time_us"], row["busbw_GBps"], row["algbw_GBps"], row["messages"]) == (0, 0, 0, 0)
        assert "one rank: nothing moves" in row["note"]


def test_31_size_zero_takes_the_latency_only(ask):
    # NVIDIA/nccl-tests #128.
    (row,) = ask("all_gather --topology ideal-switch:8@450GB/s,1us -b 0 -e 0 --algo ring")
    assert row["time_us"] == pytest.approx(7)
    assert (row["algbw_GBps"], row["busbw_GBps"]) == (0, 0)


def test_31_four_bytes_over_eight_ranks_are_rounded_down_to_none_as_nccl_tests_does(capsys):
    line = "perf all_gather --topology ideal-switch:8@450GB/s,1us -b 4 -e 4 --algo ring --format nccl-tests"
    assert answer(shlex.split(line)) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert [row[:2] for row in rows] == [["0", "0"]]


def test_32_uneven_chunks_sum_to_the_size_and_cost_next_to_nothing():
    # NVIDIA/nccl-tests #97: 10,660,224 elements leave 4 over for 5 ranks and 1 for 7. Alignment is outside this model.
    size = 4 * 10_660_224
    busbw = {}
    for ranks in (5, 6, 7, 8):
        row, record = run_recorded(Spec(Machine(f"ideal-switch:{ranks}@450GB/s,0us"), "all_reduce", size, "ring"))
        busbw[ranks] = row.busbw_GBps
        # Up and down: everything crosses the switch p - 1 times in each of the two phases.
        assert int(record.link_bytes.sum()) == 2 * 2 * (ranks - 1) * size
    assert max(busbw.values()) == pytest.approx(min(busbw.values()), rel=1e-3)


@pytest.mark.parametrize(
    "algorithm", ["ring", "halving_doubling", "two_shot", "nvls", "double_binary_tree", "hierarchical:2x4"]
)
def test_33_beyond_four_gigabytes_times_stay_linear(algorithm):
    # merthidayetoglu/CommBench #2, openucx/ucx PR #10295, aliyun/SimAI #182.
    # Where the data is cut by default, by size, the same count for all.
    chunks = 8 if algorithm in ("nvls", "double_binary_tree", "hierarchical:2x4") else None
    per_byte = []
    for size in (2**20, 2**31, 2**32, 7_011_827_712, 2**40):
        spec = Spec(Machine("ideal-switch:8@450GB/s,0us"), "all_reduce", size, algorithm, chunks=chunks)
        row, record = run_recorded(spec)
        assert record.link_bytes.min() > 0
        per_byte.append(row.time_us / size)
    assert per_byte == pytest.approx([per_byte[0]] * 5, rel=1e-9)


def test_33_rows_of_large_sizes_are_whole_numbers(capsys):
    line = "perf all_reduce --topology ideal-switch:8@450GB/s,1us -b 7011827712B -e 7011827712B --algo ring --csv -"
    assert answer(shlex.split(line)) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["size_bytes"] == "7011827712"
    assert float(row["time_us"]) == pytest.approx(14 + 1.75 * 7_011_827_712 / 450e3, rel=1e-9)
