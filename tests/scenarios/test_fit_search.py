"""Parameters come back from times that the simulator made with them; the textbook's from closed forms."""

import math
from dataclasses import replace

import numpy as np
import pytest

from netsim.errors import ScenarioError
from scenarios import fit_search
from scenarios.fit_choice import chosen
from scenarios.fit_parameters import CALL, TOPOLOGY, Parameter, component_file, scaled, write_point
from scenarios.fit_predict import Task, predict
from scenarios.fit_search import fit, separable
from scenarios.fit_series import Series, series_of
from scenarios.machine import Machine
from scenarios.run import Spec
from scenarios.tables import read_index

TABLE = "h200x2_nv18_all_reduce_graph_Ring_LL.csv"
LATENCY, RATE = Parameter(TOPOLOGY, ("latency",), 3.0), Parameter(TOPOLOGY, ("rate",), 3.0)
CONSTANT = Parameter(CALL, ("constant",), 3.0, start_s=5e-6)


@pytest.fixture
def table(repository):
    """A table of two H200, all-reduces by ring and LL."""
    folder = repository / "tests" / "data" / "tables"
    series = series_of(next(entry for entry in read_index(folder) if entry.path.name == TABLE))
    return replace(series, rows=series.rows[::3])


def made_with(series, folder, **factors):
    """Return the times of a series as they would be if numbers of the kernels' costs were other ones."""
    text = component_file("hopper").read_text(encoding="utf-8")
    for key, factor in factors.items():
        text = scaled(text, key.replace("__", "."), factor)
    costs = folder / "true.toml"
    costs.write_text(text, encoding="utf-8")
    other = replace(series, spec=replace(series.spec, nccl=replace(series.spec.nccl, kernel_costs=str(costs))))
    (rows,) = predict(Task((other,)))
    return replace(series, rows=tuple((size, row.time_us) for (size, _), row in zip(series.rows, rows, strict=True)))


def textbook(collective, algorithm, ranks, rows, most=8):
    machine = Machine(f"ideal-switch:{most}@10GB/s,1us", gpus_per_node=ranks)
    return Series(f"p{ranks}", Spec(machine, collective, 0, algorithm=algorithm), ranks, tuple(rows))


def test_a_parameter_comes_back(table, tmp_path):
    series = made_with(table, tmp_path, ll__start=1.25)
    (found,) = fit([Parameter("hopper", ("ll.start",), width=5.0)], [series], tmp_path).fitted
    assert found.factor == pytest.approx(1.25, rel=0.005)
    assert found.interval[0] < 1.25 < found.interval[1]
    assert found.held < 0.1
    best = (tmp_path / "best" / "hopper.toml").read_text(encoding="utf-8")
    before = float(found.parameter.before().split()[0])
    assert f'start = "{before * found.factor:.6g} us"' in best


def test_several_come_back_together_with_narrow_intervals(table, tmp_path):
    series = made_with(table, tmp_path, ll__start=1.3, ll__send=0.8, ll__reduce=0.8, ll__recv=0.8)
    parameters = [Parameter("hopper", ("ll.start",)), Parameter("hopper", ("ll.send", "ll.reduce", "ll.recv"))]
    outcome = fit(parameters, [series], tmp_path, rounds=8, noise=None)
    assert [one.factor for one in outcome.fitted] == pytest.approx([1.3, 0.8], rel=0.02)
    assert all(one.interval[0] < value < one.interval[1] for one, value in zip(outcome.fitted, (1.3, 0.8), strict=True))
    # Exact times leave no more than nccl-tests' own scatter of one per cent; small sizes are little else than the start.
    assert outcome.fitted[0].interval[1] / outcome.fitted[0].interval[0] < 1.1


def test_what_tables_do_not_show_stays_where_it_was(table, tmp_path):
    series = made_with(table, tmp_path, ll__start=1.25)
    parameters = [Parameter("hopper", ("ll.start",), width=5.0), Parameter("hopper", ("simple.start",), width=0.2)]
    start, unseen = fit(parameters, [series], tmp_path).fitted
    assert start.factor == pytest.approx(1.25, rel=0.01)
    assert unseen.factor == pytest.approx(1.0, rel=1e-6)
    assert unseen.held == pytest.approx(1.0)
    assert unseen.interval == pytest.approx((math.exp(-0.4), math.exp(0.4)))
    assert (start.seen, unseen.seen) == (True, False)


def test_a_link_is_fitted_likewise(table, tmp_path):
    parameter = Parameter("nvlink4", ("latency_ll",), width=5.0)
    (rows,) = predict(Task((table,), write_point([parameter], [math.log(1.5)], tmp_path / "true")))
    series = replace(table, rows=tuple((size, row.time_us) for (size, _), row in zip(table.rows, rows, strict=True)))
    (found,) = fit([parameter], [series], tmp_path).fitted
    assert found.factor == pytest.approx(1.5, rel=0.01)


def test_a_ring_of_one_size_gives_latency_and_constant(tmp_path):
    # NVIDIA/nccl-tests #123, 2 to 8 GPUs. Least squares on 2 (p - 1) a + c is the oracle: 1.98 us, 5.56 us, off by 0.61.
    times = [10, 13.76, 16.88, 20.8, 25.2, 29.5, 33.7]
    series = [textbook("all_reduce", "ring", ranks, [(8, time)]) for ranks, time in zip(range(2, 9), times, strict=True)]
    oracle = np.linalg.lstsq(np.array([[2 * (p - 1), 1] for p in range(2, 9)]), np.array(times), rcond=None)[0]
    kept, words = separable([LATENCY, CONSTANT], series)
    assert (len(kept), words) == (2, None)
    outcome = fit(kept, series, tmp_path, rounds=30, noise=None, absolute=True)
    latency, constant = outcome.fitted
    assert latency.factor == pytest.approx(oracle[0], rel=0.01)
    assert constant.factor * 5 == pytest.approx(oracle[1], rel=0.02)
    off = [rows[0].time_us - time for rows, time in zip(outcome.after, times, strict=True)]
    assert max(map(abs, off)) == pytest.approx(0.61, abs=0.03)


def test_a_log_of_one_number_of_gpus_cannot_tell_constant_from_latency(tmp_path):
    # NVIDIA/nccl #445: 40 us and 3.277 GB/s over four GPUs, six steps of 6.7 us, 4.915 GB/s a link.
    rows = [(size, 40 + size / 3.277e3) for size in (2**18, 2**20, 2**22, 2**24, 2**27, 2**30)]
    series = [textbook("all_reduce", "ring", 4, rows)]
    kept, words = separable([LATENCY, RATE, CONSTANT], series)
    assert [one.name for one in kept] == ["topology:latency", "topology:rate"]
    assert "cannot be told from topology:latency" in words
    latency, rate = fit(kept, series, tmp_path, rounds=30, noise=None).fitted
    assert latency.factor == pytest.approx(40 / 6, rel=0.01)
    assert rate.factor * 10 == pytest.approx(4.9155, rel=0.001)


def test_slopes_of_two_sizes_give_the_rates_of_ring_and_one_shot_and_where_they_cross(tmp_path):
    # vllm-project/vllm #56128: us at 128 and 384 KiB on four GPUs of one PCIe switch.
    measured = {"ring": (51.8, 83.5), "one_shot": (44.5, 120.3)}
    rates, runs = {}, {}
    for algorithm, times in measured.items():
        series = textbook("all_reduce", algorithm, 4, zip((131072, 393216), times, strict=True))
        found = fit([LATENCY, RATE], [series], tmp_path, rounds=30, noise=None).fitted
        rates[algorithm] = found[1].factor * 10
        point = write_point([LATENCY, RATE], [math.log(one.factor) for one in found], tmp_path)
        runs[algorithm] = Task((series,), point)
    # 2 * 3/4 * 256 KiB in 31.7 us, and 3 * 256 KiB in 75.8 us.
    assert rates == {"ring": pytest.approx(12.4, rel=0.005), "one_shot": pytest.approx(10.37, rel=0.005)}
    low, high = 131072, 393216
    while high - low > 16:
        middle = (low + high) // 2
        ring, one_shot = (simulated_us(runs[name], middle) for name in ("ring", "one_shot"))
        low, high = (middle, high) if one_shot < ring else (low, middle)
    # Between the measured sizes, 7.3 us of a difference of 44.1 us less: 128 KiB and 256 KiB * 7.3 / 44.1.
    assert low == pytest.approx(131072 + 262144 * 7.3 / 44.1, rel=0.01)


def simulated_us(task, size_bytes):
    ((row,),) = predict(replace(task, series=(replace(task.series[0], rows=((size_bytes, 1.0),)),)))
    return row.time_us


def test_what_begins_to_matter_on_the_way_is_fitted_too(tmp_path):
    spec = Spec(Machine("pcie-pair"), "all_reduce", 0, protocol="simple", algorithm="ring", engine="compiled")
    link = Parameter("pcie4", ("effective_rate",), 1.0)
    kernels = Parameter(
        "pcie", ("simple.send", "simple.recv_reduce_copy_send", "simple.recv_reduce_copy", "simple.recv"), 1.0
    )
    sizes = [(size, 1.0) for size in (2**22, 2**24, 2**26)]
    point = write_point([link, kernels], [math.log(1.25), math.log(0.5)], tmp_path)
    (rows,) = predict(Task((Series("slow.csv", spec, 2, tuple(sizes)),), point))
    series = Series("slow.csv", spec, 2, tuple((size, row.time_us) for (size, _), row in zip(sizes, rows, strict=True)))
    outcome = fit([link, kernels], [series], tmp_path, rounds=12, noise=None)
    off = [row.time_us / time for row, (_, time) in zip(outcome.after[0], series.rows, strict=True)]
    assert off == pytest.approx([1.0] * 3, abs=0.02)


def test_a_rate_above_the_line_is_refused(tmp_path):
    spec = Spec(Machine("hgx-h200", gpus_per_node=2), "all_reduce", 0, algorithm="ring")
    # 450 GB/s is the line, and these come to 700.
    series = Series("fast.csv", spec, 2, tuple((size, 2 + size / 700e3) for size in (2**22, 2**25, 2**28)))
    parameters, _ = chosen([series])
    with pytest.raises(ScenarioError, match=r"nvlink4:effective_rate: these times need some 1\.\d times the line rate"):
        fit(parameters[:2], [series], tmp_path, rounds=30, noise=None)


def test_a_rate_at_the_line_within_the_scatter_is_held_there(tmp_path):
    spec = Spec(Machine("hgx-h200", gpus_per_node=2), "all_reduce", 0, algorithm="ring")
    series = Series("near.csv", spec, 2, tuple((size, 2 + size / 453e3) for size in (2**22, 2**25, 2**28)))
    parameters, _ = chosen([series])
    rate = fit(parameters[:2], [series], tmp_path, rounds=30, noise=None).fitted[1]
    assert (rate.parameter.keys, rate.at_limit) == (("effective_rate",), True)
    assert rate.factor == pytest.approx(25 / 20.6)


def test_an_interruption_keeps_the_best_so_far(monkeypatch, tmp_path):
    series = [textbook("all_reduce", "ring", 4, [(2**18, 120), (2**20, 360), (2**24, 5160)])]

    def stops(number, error):
        if number == 1:
            raise KeyboardInterrupt

    outcome = fit([LATENCY, RATE], series, tmp_path, rounds=30, noise=None, told=stops)
    assert (outcome.stopped, outcome.rounds) == (True, 1)
    monkeypatch.setattr(fit_search, "predict", interrupted := Interrupted())
    with pytest.raises(KeyboardInterrupt):
        fit([LATENCY, RATE], series, tmp_path)
    assert interrupted.calls == 1


class Interrupted:
    calls = 0

    def __call__(self, task):
        self.calls += 1
        raise KeyboardInterrupt


def test_rows_that_cannot_be_simulated_say_why(tmp_path):
    series = [textbook("all_reduce", "nvls_tree", 4, [(8, 10.0)])]
    with pytest.raises(ScenarioError, match="no row of the tables could be simulated: not simulated: "):
        fit([LATENCY], series, tmp_path)
