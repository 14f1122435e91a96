"""Loops that are alike are copied instead of written, and nothing tells the difference but the time it takes."""

import numpy as np
import pytest

from netsim.errors import TooManyMessagesError
from netsim.nccl import schedules
from netsim.nccl.from_topology import communicator
from netsim.schedule.dag import COLUMNS
from netsim.schedule.nccl import loops
from netsim.schedule.nccl.loops import loops_of
from netsim.schedule.nccl.rows import NAMES, Rows
from topologies import build

MIB = 1 << 20
ARRAYS = [name for name, _, _ in COLUMNS] + ["requires_start", "requires_op", "requires_milestone", "requires_lag"]
RUNS = [
    ("all_reduce", "ring", "ll", 1, 16 * MIB + 4 * 777, {"channels": 3}),
    ("all_reduce", "ring", "simple", 2, 512 * MIB + 4, {"channels": 1}),
    ("all_gather", "ring", "simple", 1, 512 * MIB + 64, {"channels": 2}),
    ("reduce_scatter", "ring", "ll128", 1, 64 * MIB, {"channels": 2}),
    ("broadcast", "ring", "simple", 2, 32 * MIB, {"channels": 3}),
    ("reduce", "ring", "ll128", 1, 32 * MIB + 4, {"channels": 3}),
    ("all_reduce", "tree", "ll128", 3, 16 * MIB + 44, {"channels": 2}),
    ("all_reduce", "tree", "simple", 2, 32 * MIB + 44, {"channels": 2}),
    ("all_reduce", "nvls", "simple", 1, 96 * MIB + 400, {"channels": 4}),
    ("all_reduce", "nvls", "simple", 1, 96 * MIB, {"channels": 4, "registered": True}),
    ("all_gather", "nvls", "simple", 1, 64 * MIB, {"channels": 4}),
    ("reduce_scatter", "nvls", "simple", 1, 64 * MIB, {"channels": 4}),
    ("all_reduce", "nvls_tree", "simple", 2, 64 * MIB + 4, {"channels": 2}),
    ("alltoall", "auto", "simple", 1, 512 * MIB, {"channels": 4}),
    ("alltoall", "auto", "simple", 2, 512 * MIB + 1024, {"channels": 4}),
    ("sendrecv", "auto", "ll", 1, 4 * MIB + 44, {"channels": 2}),
]


@pytest.mark.parametrize(("collective", "algorithm", "protocol", "nodes", "size", "more"), RUNS)
def test_what_is_copied_is_what_would_have_been_written(
    monkeypatch: pytest.MonkeyPatch, collective, algorithm, protocol, nodes, size, more
) -> None:
    found = communicator(build("hgx-h100", nodes=nodes, **({"nic": "ndr400"} if nodes > 1 else {})))
    copied = []
    repeat = Rows.repeat
    monkeypatch.setattr(Rows, "repeat", lambda self, period, times: copied.append(times) or repeat(self, period, times))
    asked = {"algorithm": algorithm, "protocol": protocol} | more
    fast = schedules.build(found, collective, size, **asked).schedule
    assert copied, "nothing was copied, so that this shows nothing"
    monkeypatch.setattr(loops, "_MOST_TRIES", 0)
    slow = schedules.build(found, collective, size, **asked).schedule
    for name in ARRAYS:
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    assert fast.lane_names == slow.lane_names


def test_too_many_operations_are_refused_before_they_are_copied() -> None:
    found = communicator(build("hgx-h100"))
    with pytest.raises(TooManyMessagesError, match="more than the limit of 20000 messages"):
        schedules.build(found, "all_reduce", 1 << 40, algorithm="nvls", protocol="simple", limit=20_000)


def rows_of(*stretches: list[tuple[int, int, list[tuple[int, int, float]]]]) -> Rows:
    """Write (offset, size, needs) of operations."""
    rows = Rows()
    for offset, size, needs in (row for stretch in stretches for row in stretch):
        values = dict.fromkeys(NAMES, 0) | {"offset": offset, "size": size}
        rows.add(tuple(values[name] for name in NAMES), needs)
    return rows


def test_only_stretches_that_are_alike_are_repeated() -> None:
    alike = rows_of([(0, 8, []), (8, 8, [(0, 0, 0.0)])], [(16, 8, []), (24, 8, [(2, 0, 0.0)])])
    assert alike.repeat(2, 3)
    assert len(alike) == 10
    other_size = rows_of([(0, 8, []), (8, 8, [])], [(16, 8, []), (24, 9, [])])
    other_need = rows_of([(0, 8, []), (8, 8, [(0, 0, 0.0)])], [(16, 8, []), (24, 8, [(1, 0, 0.0)])])
    other_lag = rows_of([(0, 8, []), (8, 8, [(0, 0, 0.0)])], [(16, 8, []), (24, 8, [(2, 0, 1.0)])])
    for rows in (other_size, other_need, other_lag, rows_of([(0, 8, [])])):
        before = len(rows)
        assert not rows.repeat(2, 3)
        assert len(rows) == before


def test_loops_are_counted_by_the_longest_channel_and_alike_by_the_shortest() -> None:
    assert loops_of([(100, 10), (95, 10)]) == (10, 9)
    assert loops_of([(5, 10)]) == (1, 0)
