"""The band of machines that stage in host memory of unknown rate."""

from dataclasses import replace

import pytest

from scenarios.host_band import beside, stages_unmeasured
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
    ],
)
def test_a_machine_whose_neighbours_stage_at_the_presets_rate_has_a_band(machine: Machine, staged: bool) -> None:
    assert stages_unmeasured(machine) == staged


def test_the_first_and_the_last_size_that_differ_are_told_with_both_times() -> None:
    rows = [run_spec(replace(STAGED, size_bytes=size)) for size in (2**16, 2**20, 2**24)]
    first, last = beside(STAGED, rows)
    assert (first.row, last.row) == (rows[0], rows[-1])
    # Eight flows share 11.6 GB/s: a ring moves 2 x 7 / 8 of 16 MiB at 1.45 GB/s.
    assert last.slow_us == pytest.approx(2 * 7 / 8 * 2**24 / 1.45e9 * 1e6, rel=0.05)
    assert last.slow_us > 5 * last.row.time_us


def test_without_rows_or_with_memory_that_is_known_there_is_nothing_to_tell() -> None:
    assert beside(STAGED, []) == []
    known = replace(STAGED, machine=Machine("l40s-8", profile="host_memory_slow"))
    assert beside(known, [run_spec(replace(known, size_bytes=2**20))]) == []
