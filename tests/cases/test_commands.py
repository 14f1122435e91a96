"""Public questions that the commands answer, each asked the way a user would; figures from the threads named."""

import json
import shlex
from pathlib import Path

import pytest

import netsim
import topologies
from netsim.cli.app import answer


@pytest.fixture
def ask(capsys):
    """Return a function that runs a command line and returns its JSON."""

    def asked(line):
        assert answer(shlex.split(line)) == 0
        return json.loads(capsys.readouterr().out)

    return asked


def perf(ask, topology, more=""):
    return ask(f"perf all_reduce --topology {topology} --algo ring --format json {more}")[0]


def two_nodes(folder: Path, nic_us: int) -> Path:
    """Write a machine of two nodes of eight: 2 us between GPUs of a node, `nic_us` between nodes, rates without end."""
    lines = ["nodes:"]
    lines += [f"  n{node}s: {{kind: nvswitch, host: n{node}}}" for node in range(2)]
    lines += [f"  n{node}w: {{kind: nic, host: n{node}}}" for node in range(2)]
    lines += [f"  n{node}g{gpu}: {{kind: gpu, host: n{node}}}" for node in range(2) for gpu in range(8)]
    lines += ["links:"]
    for node in range(2):
        lines += [f"  - {{between: [n{node}g{gpu}, n{node}s], latency: 1 us, bandwidth: 1000 TB/s}}" for gpu in range(8)]
        # From GPU to GPU of the other node: 1 us to the switch, the network, 1 us from the other switch.
        lines += [f"  - {{between: [n{node}s, n{node}w], latency: 0 s, bandwidth: 1000 TB/s}}"]
    lines += [f"  - {{between: [n0w, n1w], latency: {nic_us - 2} us, bandwidth: 1000 TB/s}}"]
    path = folder / f"two_nodes_{nic_us}us.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("nic_us", "expected_us"), [(10, 92), (60, 292)])
def test_a_small_all_reduce_over_two_nodes_pays_the_network_four_times(ask, tmp_path, nic_us, expected_us):
    # vllm-project/vllm #17006: TP 16 over two nodes, 16 KiB. In 30 steps a chunk crosses the network 4 times.
    row = perf(ask, two_nodes(tmp_path, nic_us), "-b 16K -e 16K")
    assert row["ranks"] == 16
    assert row["time_us"] == pytest.approx(26 * 2 + 4 * nic_us, abs=1e-3)
    assert row["time_us"] == pytest.approx(expected_us, abs=1e-3)


@pytest.mark.parametrize("nic_us", [10, 60])
def test_inside_a_node_the_network_is_irrelevant(ask, nic_us):
    # The same thread: TP 8 takes 14 steps of 2 us whatever the network costs.
    assert perf(ask, "ideal-switch:8@1000TB/s,2us", "-b 16K -e 16K")["time_us"] == pytest.approx(28, abs=1e-3)


def test_explain_says_that_the_small_all_reduce_is_all_latency(ask, tmp_path):
    found = ask(f"explain all_reduce --topology {two_nodes(tmp_path, 60)} --size 16K --algo ring --json")
    assert found["split_us"]["latency"] == pytest.approx(292)
    assert found["time_us"] - found["split_us"]["latency"] < 1e-3


def test_a_group_of_eight_takes_the_same_however_many_gpus_are_present(ask):
    # aliyun/SimAI #208: the collective belongs to a group of 8; whether 32 or 64 GPUs are there is irrelevant.
    line = "-b 64M -e 64M"
    times = {gpus: perf(ask, f"ideal-switch:{gpus}@450GB/s,1us", f"{line} -g 8") for gpus in (8, 32, 64)}
    assert {row["ranks"] for row in times.values()} == {8}
    assert len({row["time_us"] for row in times.values()}) == 1
    # All 64 together are another question: 126 steps instead of 14.
    assert perf(ask, "ideal-switch:64@450GB/s,1us", line)["time_us"] > times[64]["time_us"]


def test_a_group_of_eight_in_a_cluster_does_not_see_the_other_servers():
    # The same thread, on servers: ranks 0 to 7 of 4 and of 8 servers.
    schedule = netsim.build_schedule("all_reduce", "ring", 8, 2**26)
    clusters = [topologies.build("hgx-h100", nodes=nodes, nic="ndr400") for nodes in (4, 8)]
    assert [len(graph.graph["ranks"]) for graph in clusters] == [32, 64]
    few, many = (netsim.simulate(graph, schedule).time_s for graph in clusters)
    assert few == many
    everybody = netsim.build_schedule("all_reduce", "ring", 64, 2**26)
    assert netsim.simulate(clusters[1], everybody).time_s != many
