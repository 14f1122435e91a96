"""A long cable between two nodes: what is in flight is limited by slots, and so is the rate (case 20, from the front)."""

import json
from pathlib import Path

import pytest

from scenarios.machine import Machine
from scenarios.nccl import NcclOptions
from scenarios.run import Spec, run_spec

pytest.importorskip("yaml", reason="PyYAML belongs to the command line, not to the core")


def two_sites(tmp_path: Path, latency: str) -> Machine:
    nodes = {}
    links = []
    for site in "ab":
        nodes |= {f"gpu_{site}": {"kind": "gpu", "host": site, "sm": 90}, f"nic_{site}": {"kind": "nic", "host": site}}
        links.append({"between": [f"gpu_{site}", f"nic_{site}"], "bandwidth": "50 GB/s", "latency": "0 s"})
        links.append({"between": [f"nic_{site}", "network"], "bandwidth": "50 GB/s", "latency": latency})
    nodes["network"] = {"kind": "network_switch"}
    path = tmp_path / "sites.yaml"
    path.write_text(json.dumps({"nodes": nodes, "links": links, "ranks": ["gpu_a", "gpu_b"]}))
    return Machine(str(path))


@pytest.mark.parametrize(("latency", "rtt_s"), [("125 us", 0.5e-3), ("250 us", 1e-3)])
def test_the_rate_is_the_window_over_the_round_trip(tmp_path, latency, rtt_s):
    # One channel has eight steps of 512 KiB: 4 MiB under way in each direction, whatever the size.
    one = NcclOptions(launch="none", environment=("NCCL_MAX_NCHANNELS=1",))
    spec = Spec(two_sites(tmp_path, latency), "broadcast", 2**28, algorithm="ring", protocol="simple", nccl=one)
    rate = 2**28 / (run_spec(spec).time_us * 1e-6)
    # A slot's turn over there: the round trip, 10.5 us for its 512 KiB on the wire, 11.7 us to receive them, 1.5 us for the
    # slice; what the sender's lane does meanwhile goes into slots at home.
    assert rate == pytest.approx(4 * 2**20 / (rtt_s + 10.5e-6 + 11.7e-6 + 1.5e-6), rel=0.01)
