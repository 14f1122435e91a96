import pickle
from pathlib import Path

import pytest

from netsim.errors import FabricError, InternalError, ScheduleError, TooManyMessagesError
from netsim.metrics import bounds
from scenarios.machine import Machine, graph_of
from scenarios.run import DEFAULT_MAX_PIECES, Spec, run_recorded, run_spec, run_traced

IDEAL = Machine("ideal-switch:8@450GB/s,1us")


def test_a_spec_survives_pickling() -> None:
    spec = Spec(IDEAL, "all_reduce", 2**20, "ring")
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_row_holds_time_bound_formula_and_bottleneck() -> None:
    row = run_spec(Spec(IDEAL, "all_reduce", 2**26, "ring"))
    # The ring's chain of 14 steps is its own lower bound: nothing waits.
    assert row.time_us == pytest.approx(14 + 1.75 * 2**26 / 450e9 * 1e6, rel=1e-9)
    assert row.lower_bound_us == pytest.approx(row.time_us, rel=1e-9)
    assert row.closed_form_us == pytest.approx(row.time_us, rel=1e-9)
    # The switch adds, so no algorithm needs less than N/B: 64 MiB / 450 GB/s = 149.13 us.
    assert row.collective_bound_us == pytest.approx(1.75 * 2**26 / 450e9 * 1e6)
    assert row.bottleneck == "gpu0->switch"


@pytest.mark.parametrize(
    "collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv", "gather"]
)
@pytest.mark.parametrize("size", [0, 1, 1003, 2**20])
def test_no_run_is_below_any_of_its_bounds(collective: str, size: int) -> None:
    row = run_spec(Spec(IDEAL, collective, size))
    assert row.time_us >= row.lower_bound_us * (1 - 1e-9)
    assert size == 0 or row.time_us >= row.collective_bound_us * (1 - 1e-9)


def test_a_run_below_its_bound_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "run_lower_bound", lambda schedule, record: 1.0)
    with pytest.raises(InternalError, match="below its own lower bound"):
        run_spec(Spec(IDEAL, "all_reduce", 2**20, "ring"))


def test_no_formula_where_ranks_are_not_joined_alike() -> None:
    row = run_spec(Spec(Machine("hgx-h100", nodes=2, nic="ndr400"), "all_reduce", 2**20, "ring"))
    assert row.closed_form_us is None


def test_the_ring_has_its_formula_on_ideal_rings_and_meshes_too() -> None:
    for form in ("ideal-ring", "ideal-mesh"):
        row = run_spec(Spec(Machine(f"{form}:5@10GB/s,2us"), "all_reduce", 10**6, "ring"))
        # 8 steps of 2 us and a fifth of 1 MB at 10 GB/s each: 8 x (2 + 20) us
        assert row.time_us == pytest.approx(176)
        assert row.closed_form_us == pytest.approx(176)


def test_auto_gives_pieces_only_to_algorithms_that_take_them() -> None:
    whole = run_spec(Spec(IDEAL, "all_reduce", 2**20, "one_shot"))
    row = run_spec(Spec(IDEAL, "all_reduce", 2**20, "auto", chunks=4))
    assert row.time_us <= whole.time_us
    with pytest.raises(ScheduleError, match="whole"):
        run_spec(Spec(IDEAL, "all_reduce", 2**20, "one_shot", chunks=4))


def test_the_record_behind_a_row_is_handed_out() -> None:
    row, record = run_recorded(Spec(IDEAL, "all_reduce", 2**20, "ring"))
    assert record.time_s * 1e6 == row.time_us
    assert record.messages == row.messages == 112


def test_a_topology_is_built_once() -> None:
    assert graph_of(IDEAL) is graph_of(Machine("ideal-switch:8@450GB/s,1us"))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "pair.yaml"
    text = "nodes: {a: {kind: gpu}, b: {kind: gpu}}\nlinks: [{between: [a, b], latency: 1 us, bandwidth: 1 GB/s}]\n"
    path.write_text(text)
    slow = run_spec(Spec(Machine(str(path)), "all_reduce", 10**6, "ring")).time_us
    path.write_text(text.replace("1 GB/s", "10 GB/s"))
    assert run_spec(Spec(Machine(str(path)), "all_reduce", 10**6, "ring")).time_us < slow


def test_a_skipped_algorithm_is_noted() -> None:
    row = run_spec(Spec(IDEAL, "all_reduce", 8, max_messages=60))
    assert "ring" in row.note


@pytest.mark.parametrize(
    ("collective", "options", "words"),
    [
        ("all_reduce", {"chunk_bytes": 1024, "chunks": 4}, "not both"),
        ("all_reduce", {"chunks": 0}, "number of chunks is 0"),
        ("all_reduce", {"channels": 0}, "0 channels"),
        ("all_reduce", {"root": 8}, "from 0 to 7"),
        ("all_reduce", {"protocol": "udp"}, "no protocol"),
        ("alltoall", {"chunks": 4}, "no algorithm for alltoall takes a chunk size"),
        ("alltoall", {"channels": 2}, "no algorithm for alltoall has channels"),
    ],
)
def test_auto_refuses_options_that_suit_no_algorithm(collective: str, options: dict, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        run_spec(Spec(IDEAL, collective, 2**20, **options))


@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_a_quantum_that_makes_too_many_pieces_is_refused_before_the_run(algorithm: str, monkeypatch) -> None:
    import scenarios.run

    monkeypatch.setattr(scenarios.run, "simulate", lambda *_, **__: pytest.fail("it ran"))
    # 112 messages of 128 KiB, a piece a byte: 14,680,064
    with pytest.raises(TooManyMessagesError, match="in 14680064 pieces with --quantum 1, more than the limit of 5000000"):
        run_spec(Spec(IDEAL, "all_reduce", 2**20, algorithm, quantum_bytes=1, max_messages=DEFAULT_MAX_PIECES))


def test_a_fabric_without_servers_to_join_is_refused() -> None:
    with pytest.raises(FabricError, match="give two nodes or more, or no fabric"):
        graph_of(Machine("hgx-h100", fabric="rails"))
    with pytest.raises(FabricError, match="unknown fabric 'nonsense'"):
        graph_of(Machine("hgx-h100", fabric="nonsense"))


def test_a_range_of_seeds_is_no_single_run_to_look_at() -> None:
    with pytest.raises(FabricError, match=r"'ecmp:0\.\.3' is a range of seeds"):
        run_traced(Spec(IDEAL, "all_reduce", 2**20, "ring", routing="ecmp:0..3"))
