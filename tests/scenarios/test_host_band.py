"""The band of machines that stage in host memory of unknown rate."""

from dataclasses import replace

import pytest

from scenarios.host_band import slower, stages_unmeasured
from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec

STAGED = Spec(Machine("l40s-8"), "all_reduce", 0, protocol="auto", nccl=NcclOptions("2.27.3"))


@pytest.mark.parametrize(
    ("machine", "staged"),
    [
        (Machine("l40s-8"), True),
        (Machine("rtx4090-4"), True),
        (Machine("l40s-8", gpus_per_node=4), False),  # all below one switch
        (Machine("hgx-h100"), False),
        (Machine("hgx-h100", gpus_per_node=1), False),
        (Machine("l40s-8", profile="host_memory_slow"), False),  # the user has said it
        (Machine("l40s-8", profile="host_memory"), False),
    ],
)
def test_a_machine_whose_neighbours_stage_at_the_presets_rate_has_a_band(machine: Machine, staged: bool) -> None:
    assert stages_unmeasured(machine, NcclOptions()) == staged


def test_without_peer_to_peer_every_pair_stages() -> None:
    assert not stages_unmeasured(Machine("pcie-gen4-8"), NcclOptions())
    assert stages_unmeasured(Machine("pcie-gen4-8"), NcclOptions(environment=("NCCL_P2P_DISABLE=1",)))


def test_the_first_and_the_last_size_that_differ_are_told_with_both_times() -> None:
    rows = [run_spec(replace(STAGED, size_bytes=size)) for size in (2**16, 2**20, 2**24)]
    first, last = slower(STAGED, rows)
    assert (first.shown, last.shown) == (rows[0], rows[-1])
    # Eight flows share 11.6 GB/s: a ring moves 2 x 7 / 8 of 16 MiB at 1.45 GB/s.
    assert last.slow_us == pytest.approx(2 * 7 / 8 * 2**24 / 1.45e9 * 1e6, rel=0.05)
    assert last.slow_us > 5 * last.shown.time_us


def test_without_rows_or_with_memory_that_is_known_there_is_nothing_to_tell() -> None:
    assert slower(STAGED, []) == []
    known = replace(STAGED, machine=Machine("l40s-8", profile="host_memory_slow"))
    assert slower(known, [run_spec(replace(known, size_bytes=2**20))]) == []


@pytest.mark.parametrize("more", [{"protocol": "ideal", "nccl": NcclOptions()}, {"machine": Machine("l40s-8", rate="line")}])
def test_textbook_runs_and_line_rates_have_no_band(more: dict[str, object]) -> None:
    spec = replace(STAGED, **more)  # type: ignore[arg-type]
    assert slower(spec, [run_spec(replace(spec, size_bytes=2**20))]) == []


def test_what_cannot_run_there_is_left_out_and_what_lies_between_is_not_run() -> None:
    sizes = (2**16, 2**18, 2**20, 2**24)
    rows = [run_spec(replace(STAGED, size_bytes=size)) for size in sizes]
    asked: list[int] = []
    assert len(slower(STAGED, rows, lambda row: asked.append(row.size_bytes))) == 2
    assert asked == [2**16, 2**24]
    assert slower(replace(STAGED, max_messages=1), rows) == []
