"""The compiled engine gives every time and every service of the SimPy engines, bit for bit."""

import importlib.util
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from netsim.engine import run as engine_run
from netsim.engine.prepare import Prepared, prepare
from netsim.engine.run import simulate
from netsim.errors import NetsimError, StuckError
from netsim.fabric import HOST_MEMORY, Link
from netsim.nccl.availability import serves
from netsim.nccl.from_topology import communicator
from netsim.nccl.schedules import COLLECTIVES, PEERS, build
from netsim.nccl.tuner_constants import ALGORITHMS, PROTOCOLS
from netsim.nccl.tuner_costs import TUNED
from netsim.routing import Router
from netsim.schedule.catalogue import algorithms_for, build_schedule
from netsim.schedule.collective import COLLECTIVES as PROMISES
from netsim.schedule.dag import END, HEAD, LEFT, ScheduleBuilder
from netsim.testing import line, runs, star

pytest.importorskip("numba", reason="the compiled engine needs numba, the extra 'fast'")

US = 1e-6
SERVICES = ("op", "piece", "hop", "link", "ask_s", "start_s", "free_s")


def assert_equal(topology, schedule, quantum=0):
    """Run both engines and compare every start, end and service."""
    router = topology if isinstance(topology, Router) else Router(topology)
    records = {
        (engine, kept): simulate(router, schedule, engine=engine, quantum_bytes=quantum, record=kept)
        for engine in ("simpy", "compiled")
        for kept in ("all", "links")
    }
    for kept in ("all", "links"):
        mine, reference = records["compiled", kept], records["simpy", kept]
        assert np.array_equal(mine.start_s, reference.start_s)
        assert np.array_equal(mine.end_s, reference.end_s)
    for name in SERVICES:
        mine, reference = (getattr(records[engine, "links"].services, name) for engine in ("compiled", "simpy"))
        assert np.array_equal(mine, reference), name
        assert mine.dtype == reference.dtype


@given(run=runs())
def test_random_operations_take_the_same_times(run):
    assert_equal(*run)


@given(run=runs(), quantum=st.sampled_from([300, 1000, 50_000]))
def test_random_operations_in_pieces_take_the_same_times(run, quantum):
    assert_equal(*run, quantum)


@given(run=runs(max_ranks=3), piece=st.sampled_from([500, 1000, 30_000]), quantum=st.sampled_from([0, 700]))
def test_nodes_that_store_and_forward_take_the_same_times(run, piece, quantum):
    graph, schedule = run
    for node in graph:
        if node.startswith("chain"):
            graph.nodes[node].update(kind=HOST_MEMORY, transit=True, store_and_forward=True, piece_bytes=piece)
    assert_equal(graph, schedule, quantum)


@given(seed=st.integers(0, 2**32), ranks=st.integers(2, 6), latency=st.sampled_from([0.0, US]))
def test_skewed_sizes_and_many_ties_take_the_same_times(seed, ranks, latency):
    random = np.random.default_rng(seed)
    plan = ScheduleBuilder("broadcast", "random", ranks, 10**9)
    for number in range(300):
        after = [(int(random.integers(number)), int(random.choice([END, LEFT])))] if number and random.integers(2) else []
        src, further = number % ranks, int(random.integers(1, ranks))
        size = int(random.choice([0, 1, 1000, 1000, 10**9]))
        plan.send(src, (src + further) % ranks, size=size, posted=bool(random.integers(2)), after=after)
    assert_equal(star(ranks, latency_s=latency), plan.build())


def test_more_requests_than_the_first_heap_holds_are_served_in_order():
    # 3,000 posted messages at once, to one port, with 1 KB and 1 GB side by side: rungs and growth of the queue.
    plan = ScheduleBuilder("gather", "by hand", 31, 10**9)
    for number in range(3000):
        size = 10**9 if number % 17 == 0 else 1000 + number % 7
        plan.send(1 + number % 30, number % 30 // 29, size=size, posted=True, duration=(number * 37 % 11) * US)
    assert_equal(star(31), plan.build())


@pytest.mark.parametrize("collective", PROMISES)
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_every_textbook_algorithm_takes_the_same_time(collective, ranks):
    for algorithm in algorithms_for(collective):
        try:
            schedule = build_schedule(collective, algorithm, ranks, 100_003)
        except NetsimError:  # an algorithm that wants a power of two
            continue
        for quantum in (0, 4096):
            assert_equal(star(ranks, floor_s=0.3 * US if ranks == 5 else 0.0), schedule, quantum)


@lru_cache(maxsize=1)
def machine(name, nodes):
    return topologies.build(name, **({"nodes": nodes, "nic": "ndr400", "fabric": "one-switch"} if nodes > 1 else {}))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("name", "nodes", "size"),
    [("hgx-h100", 1, 3_000_037), ("hgx-h100", 2, 100_003), ("pcie-gen4-8", 1, 300_007), ("dgx-1v", 1, 300_007)],
)
def test_what_nccl_runs_takes_the_same_time(name, nodes, size, protocol):
    graph = machine(name, nodes)
    router, group = Router(graph), communicator(graph)
    for collective in COLLECTIVES:
        for algorithm in ALGORITHMS if collective in TUNED else (PEERS,):
            if collective in TUNED and not serves(group.version, collective, algorithm, protocol):
                continue
            try:
                built = build(group, collective, size // 800 * 800, algorithm=algorithm, protocol=protocol)
            except NetsimError:  # not on this machine
                continue
            assert_equal(router, built.schedule)


@pytest.mark.parametrize("collective", ["all_reduce", pytest.param("alltoall", marks=pytest.mark.slow)])
def test_what_nccl_runs_in_a_rack_takes_the_same_time(collective):
    graph = machine("gb200-nvl72", 1)
    assert_equal(Router(graph), build(communicator(graph), collective, 72 * 1024).schedule)


def test_a_follower_in_pieces_waits_for_the_same_pieces():
    plan = ScheduleBuilder("broadcast", "by hand", 3, 1_000_000)
    first = plan.send(0, 1, size=10_000, work=30 * US)
    second = plan.send(1, 2, size=10_000, after=[(first, HEAD, 2 * US)])
    plan.send(2, 0, size=1000, after=[(second, LEFT)])
    for quantum in (0, 700, 3000):
        assert_equal(star(3), plan.build(), quantum)


def test_no_operations_take_no_time():
    for quantum in (0, 1000):
        assert_equal(star(1), ScheduleBuilder("all_reduce", "ring", 1, 100).build(), quantum)


@pytest.mark.parametrize("quantum", [0, 1000])
def test_what_cannot_finish_is_the_same_error(quantum):
    plan = ScheduleBuilder("broadcast", "by hand", 4, 1000)
    plan.send(2, 3, size=1000)
    plan.send(0, 1, size=1, after=[2])
    plan.send(1, 2, size=1, after=[1])
    words = {}
    for engine in ("simpy", "compiled"):
        with pytest.raises(StuckError) as told:
            simulate(star(4), plan.build(), engine=engine, quantum_bytes=quantum)
        words[engine] = str(told.value)
    assert words["simpy"] == words["compiled"]
    assert "2 operations never ran" in words["compiled"]


def test_the_record_says_which_engine_ran(monkeypatch):
    schedule = build_schedule("all_reduce", "ring", 4, 1000)
    assert simulate(star(4), schedule, engine="compiled").engine == "compiled"
    assert simulate(star(4), schedule, engine="simpy").engine == "simpy"
    assert simulate(star(4), schedule).engine == "simpy"
    monkeypatch.setattr(engine_run, "_COMPILED_FROM", 24)  # 2 (p - 1) p messages
    assert simulate(star(4), schedule).engine == "compiled"


def test_without_numba_the_compiled_engine_is_refused_and_auto_is_simpy(monkeypatch):
    schedule = build_schedule("all_reduce", "ring", 4, 1000)
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(NetsimError, match=r"pip install 'netsim-collectives\[fast\]'"):
        simulate(star(4), schedule, engine="compiled")
    monkeypatch.setattr(engine_run, "_COMPILED_FROM", 24)
    monkeypatch.setattr(engine_run, "find_spec", lambda name: None if name == "numba" else importlib.util.find_spec(name))
    assert simulate(star(4), schedule).engine == "simpy"


def test_a_schedule_that_the_records_cannot_number_is_refused(monkeypatch):
    from netsim.engine import compiled

    monkeypatch.setattr(compiled, "_MOST", 3)
    with pytest.raises(NetsimError, match="more than the compiled engine can number; use --engine simpy"):
        simulate(star(4), build_schedule("all_reduce", "ring", 4, 1000), engine="compiled")


def test_columns_that_are_read_only_need_no_translation_of_their_own():
    from netsim.engine.compiled import run_compiled

    prepared: Prepared = prepare(Router(line(Link(US, 1e9))), build_schedule("sendrecv", "direct", 2, 1000))
    prepared.op_class.flags.writeable = False
    assert run_compiled(prepared)[1].max() == pytest.approx(2 * US)
