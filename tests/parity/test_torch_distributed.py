"""Replayed schedules give what torch.distributed gives: four CPU processes with the gloo backend, random data.

Skips where torch is not installed; with NETSIM_REQUIRE_TORCH=1 in the environment its absence is a failure.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from netsim.schedule.catalogue import algorithms_for, build_schedule
from netsim.schedule.replay import replay

RANKS = 4
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


@pytest.fixture(scope="module")
def gloo(tmp_path_factory):
    """Return what each rank put in and got out: a list of four dictionaries of arrays."""
    if importlib.util.find_spec("torch") is None:
        assert os.environ.get("NETSIM_REQUIRE_TORCH") != "1", "torch is required here but not installed"
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("gloo")
    script = Path(__file__).with_name("gloo_ranks.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)], env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [dict(np.load(folder / f"rank{rank}.npz")) for rank in range(RANKS)]


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [(collective, algorithm) for collective in COLLECTIVES for algorithm in algorithms_for(collective)],
)
def test_a_replayed_schedule_equals_gloo(gloo, collective, algorithm):
    inputs = [rank["block" if collective == "all_gather" else "data"] for rank in gloo]
    size_bytes = 4 * len(gloo[0]["data"])
    schedule = build_schedule(collective, algorithm, RANKS, size_bytes, align_bytes=4)
    results = replay(schedule, inputs)
    for rank in range(RANKS):
        np.testing.assert_array_equal(results[rank], gloo[rank][collective])
