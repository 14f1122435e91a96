import pickle
from pathlib import Path

import pytest

from netsim.errors import InternalError, ScheduleError
from netsim.metrics import bounds
from scenarios.machine import Machine, graph_of
from scenarios.run import Spec, run_recorded, run_spec

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
