"""Public questions about machines, each built the way a user would; figures from the threads named in each test."""

import json
import shlex

import pytest

yaml = pytest.importorskip("yaml")

from netsim.cli.app import answer  # noqa: E402  # after the check for what the front door needs


@pytest.fixture
def ask(capsys):
    """Return a function that runs `netsim perf` and returns its one row."""

    def asked(line):
        # The cases are about links and textbook algorithms; NCCL's own schedules have theirs in test_nccl_schedules.
        assert answer([*shlex.split(f"perf {line}"), "--proto", "ideal", "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        return row

    return asked


@pytest.fixture
def described(tmp_path):
    """Return a function that writes a topology file from nodes, cables (a, b, GB/s) and rules, and returns its path."""

    def write(nodes, cables, name="box", **rules):
        links = [{"between": [a, b], "bandwidth": f"{rate} GB/s", "latency": "250 ns"} for a, b, rate in cables]
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"nodes": nodes, "links": links, **rules}, sort_keys=False))
        return path

    return write


@pytest.fixture
def profiles(tmp_path):
    """Return a function that writes link profiles of stated rates and returns what --profile takes."""

    def write(**rates):
        paths = []
        for family, rate in rates.items():
            lanes = "lanes = 16\n" if family == "pcie" else ""
            path = tmp_path / f"my_{family}.toml"
            path.write_text(
                f'name = "my_{family}"\nfamily = "{family}"\nline_rate = "{rate}"\neffective_rate = "{rate}"\n'
                f'latency = "500 ns"\n{lanes}date = "2026"\nsource = "assumed: as the thread tells"\n'
            )
            paths.append(str(path))
        return ",".join(paths)

    return write


def kinds(**counts):
    """Name nodes of some kinds: kinds(gpu=2, root_complex=1) gives gpu0, gpu1, root_complex0."""
    return {f"{kind}{number}": {"kind": kind, "host": "box"} for kind, count in counts.items() for number in range(count)}


# 1. NVIDIA/nccl-tests #178: NVLink bridges inside pairs only. A ring of three or more must use PCIe, twice.


@pytest.mark.parametrize(("gpus", "busbw"), [(2, 208), (3, 20), (4, 20), (8, 20)])
def test_a_third_gpu_takes_the_ring_off_the_nvlink_bridge(shared, ask, profiles, gpus, busbw):
    matrix = shared / "smi_topo_matrix" / "a100_pcie_nvlink_pairs.txt"
    if not matrix.exists():
        matrix = shared / "samples" / "smi_topo_matrix" / "a100_pcie_nvlink_pairs.txt"
    # NV12 is 208 GB/s in all, so 17.3333 a link; a socket link that does not limit.
    figures = profiles(nvlink="17.3333334 GB/s", pcie="20 GB/s", socket="40 GB/s")
    row = ask(f"all_reduce --topology {matrix} -g {gpus} --profile {figures} --algo ring -b 1GB -e 1GB")
    assert row["busbw_GBps"] == pytest.approx(busbw, rel=0.02)
    assert ("cpu" in row["bottleneck"]) is (gpus > 2)  # the limiting link is named, and it is a PCIe one


# 2. NVIDIA/nccl #439: two 200 Gb/s NICs behind one Gen4 x16 uplink bring no more than one.


@pytest.mark.parametrize(("uplinks", "busbw"), [(1, 24), (2, 48)])
def test_two_nics_behind_one_uplink_are_one(ask, described, uplinks, busbw):
    nodes = kinds(gpu=2, nvswitch=1, root_complex=1, pcie_switch=uplinks, nic=2)
    cables = [(f"gpu{gpu}", other, 1000) for gpu in (0, 1) for other in ("nvswitch0", "root_complex0")]
    cables += [(f"pcie_switch{switch}", "root_complex0", 24) for switch in range(uplinks)]
    cables += [(f"nic{nic}", f"pcie_switch{nic % uplinks}", 32) for nic in (0, 1)]
    machine = described(nodes, cables)
    row = ask(f"all_reduce -T {machine} -N 2 --nic hdr200 --rate line --algo ring --channels 2 -b 1GB -e 1GB")
    assert row["busbw_GBps"] == pytest.approx(busbw, rel=0.02)
    assert "root_complex0" in row["bottleneck"]


# 3. NVIDIA/nccl #1168: each GPU drives its own NIC, so idle GPUs leave NICs idle.


@pytest.mark.parametrize("gpus", [8, 4])
def test_half_the_gpus_are_half_the_nics(ask, gpus):
    # A NIC moves 47.9 GB/s; NVLink 5 (721.8) does not limit.
    row = ask(f"all_reduce -T hgx-b200 -N 4 --nic ndr400 -g {gpus} --algo ring --channels {gpus} -b 4GB -e 4GB")
    assert row["busbw_GBps"] == pytest.approx(gpus * 47.9, rel=0.02)
    assert "nic" in row["bottleneck"]


# 4. NVIDIA/nccl #465 and #489: without GPUDirect the data crosses the switch's uplink once up and once down, both for what
# is sent and for what is received.


@pytest.mark.parametrize(("option", "busbw"), [("--gpudirect", 12), ("--no-gpudirect", 6)])
def test_without_gpudirect_the_uplink_carries_everything_twice(ask, option, busbw):
    # PCIe Gen3 x16 moves 12 GB/s, the 100 Gb/s NIC 12.5.
    row = ask(f"all_reduce -T dgx-1v -N 4 --nic edr100 -g 1 {option} --algo ring -b 1GB -e 1GB")
    assert row["busbw_GBps"] == pytest.approx(busbw, rel=0.02)
    assert ("cpu" in row["bottleneck"]) is (busbw == 6)


# 5. NVIDIA/nccl #1639: eight PCIe 5 consumer cards on two sockets are slower than four on one.


@pytest.mark.parametrize(("gpus", "busbw"), [(4, 35), (8, 28)])
def test_the_socket_link_limits_eight_consumer_cards(ask, described, gpus, busbw):
    cables = [(f"gpu{gpu}", f"root_complex{gpu // 4}", 35) for gpu in range(8)]
    machine = described(kinds(gpu=8, root_complex=2), [*cables, ("root_complex0", "root_complex1", 28)])
    row = ask(f"all_reduce -T {machine} -g {gpus} --algo ring -b 1GB -e 1GB")
    assert row["busbw_GBps"] == pytest.approx(busbw, rel=0.02)
    if gpus == 8:
        assert row["bottleneck"] in ("root_complex0->root_complex1", "root_complex1->root_complex0")


# 6. NVIDIA/nccl #1130 and #1086: without peer-to-peer one socket's memory carries all staged copies; two sockets double it.


@pytest.mark.parametrize(("ranks", "busbw"), [((0, 1, 2, 3), 24), ((0, 1, 4, 5), 35)])
def test_staging_on_two_sockets_is_faster_than_on_one(ask, described, ranks, busbw):
    nodes = kinds(gpu=8, root_complex=2, host_memory=2)
    cables = [(f"gpu{gpu}", f"root_complex{gpu // 4}", 35) for gpu in range(8)]
    cables += [(f"root_complex{socket}", f"host_memory{socket}", 96) for socket in (0, 1)]
    cables.append(("root_complex0", "root_complex1", 100))
    machine = described(nodes, cables, p2p="LOC", ranks=[f"gpu{gpu}" for gpu in ranks])
    row = ask(f"all_reduce -T {machine} --algo ring -b 1GB -e 1GB")
    # Four hops through one memory: 96 / 4. Two through each: 96 / 2, capped by PCIe.
    assert row["busbw_GBps"] == pytest.approx(busbw, rel=0.02)
    assert ("memory" in row["bottleneck"]) is (busbw == 24)


# 7. NVIDIA/nccl #319: two leaves of four nodes, half as much up as down. A ring in the order of the racks crosses once each
# way; one that alternates between the leaves crosses with four flows each way.


@pytest.mark.parametrize(("order", "share"), [("block", 1.0), ("stripe", 0.5)])
def test_the_order_of_ranks_over_leaves_matters(ask, order, share):
    fabric = f"leaf-spine:leaves=2,spines=1,oversubscription=2,order={order}"
    row = ask(f"all_reduce -T hgx-h100 -N 8 -g 1 --nic ndr400:nics=1 --fabric {fabric} --algo ring -b 4GB -e 4GB")
    # A leaf's uplink is 4 x 47.9 / 2; a quarter of it is half a NIC.
    assert row["busbw_GBps"] == pytest.approx(47.9 * share, rel=0.02)
    assert ("spine" in row["bottleneck"]) is (order == "stripe")


# 8. NVIDIA/nccl #349, horovod #2026: one slow member slows the whole ring; which one?


def test_the_slow_link_of_a_ring_is_named(described):
    from netsim.metrics.links import link_loads
    from scenarios.machine import Machine
    from scenarios.run import Spec, run_recorded

    ring = [(f"gpu{rank}", f"gpu{(rank + 1) % 16}") for rank in range(16)]
    nodes = {f"gpu{rank}": {"kind": "gpu"} for rank in range(16)}
    machine = described(nodes, [])
    text = yaml.safe_load(machine.read_text())
    text["links"] = [
        {"from": a, "to": b, "latency": "1 us", "bandwidth": "12.5 GB/s" if a == "gpu5" else "50 GB/s"} for a, b in ring
    ]
    machine.write_text(yaml.safe_dump(text, sort_keys=False))
    row, record = run_recorded(Spec(Machine(str(machine)), "all_reduce", 16 * 10**8, "ring"))
    assert row.busbw_GBps == pytest.approx(12.5, rel=0.02)
    assert row.bottleneck == "gpu5->gpu6"
    loads = {load.name: load.utilisation for load in link_loads(record)}
    assert loads.pop("gpu5->gpu6") == pytest.approx(1.0, abs=0.01)
    assert list(loads.values()) == pytest.approx([0.25] * 15, abs=0.01)


# 9. deepseek-ai/DeepEP #336 and #60: every rank on the first NIC.


def test_all_to_all_grows_with_the_nics_that_are_used(ask, described):
    nodes = kinds(gpu=8, nvswitch=1, pcie_switch=4, root_complex=1)
    cables = [(f"gpu{gpu}", "nvswitch0", 900) for gpu in range(8)]
    cables += [(f"gpu{gpu}", f"pcie_switch{gpu // 2}", 63) for gpu in range(8)]
    cables += [(f"pcie_switch{switch}", "root_complex0", 63) for switch in range(4)]
    machine = described(nodes, cables)
    rates = []
    for nics in (1, 4, 8):
        row = ask(f"alltoall -T {machine} -N 2 --nic ndr400:nics={nics} --rate line --algo direct -b 1GB -e 1GB")
        rates.append(row["algbw_GBps"] / 2)  # half of what a rank holds goes to the other server
    # A NIC moves 50 GB/s: 50 x NICs / 8 a GPU.
    assert rates == pytest.approx([6.25, 25, 50], rel=0.02)


# 21. NVIDIA/nccl-tests #130 and #267: all-to-all across N nodes shows the NIC's rate times N / (N - 1).


@pytest.mark.parametrize(
    ("nodes", "algbw", "busbw"), [(2, 100, 93.75), (4, 66.7, 64.6), (6, 60, 58.75), (8, 57.1, 56.25), (16, 53.3, 52.9)]
)
def test_all_to_all_over_nodes_looks_faster_than_the_nic(ask, nodes, algbw, busbw):
    row = ask(f"alltoall -T hgx-b200 -N {nodes} --nic ndr400 --rate line --algo direct -b 1GB -e 1GB")
    assert row["algbw_GBps"] == pytest.approx(algbw, rel=0.02)
    assert row["busbw_GBps"] == pytest.approx(busbw, rel=0.02)
