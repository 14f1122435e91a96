from typing import Any

import pytest

from netsim.nccl.paths import DIS, LOC, NVB, NVL, P2C, PHB, PIX, PXB, PXN, SYS, Path, Paths, Reach
from netsim.nccl.system import node_systems
from topologies import build


def paths_of(topology: str, reach: Reach | None = None, **options: Any) -> Paths:
    return Paths(node_systems(build(topology, **options)).systems[0], reach or Reach(p2p=SYS))


def told(path: Path) -> tuple[int, int, int]:
    """Hops, type, MB/s."""
    return len(path.wires), path.type, path.bandwidth


def test_gpus_behind_a_switch_are_two_nvlinks_apart() -> None:
    paths = paths_of("hgx-h100")
    assert told(paths.gpu_gpu[0][7]) == (2, NVL, 370_800)
    assert told(paths.gpu_gpu[3][3])[:2] == (0, LOC)
    assert told(paths.gpu_switch[0]) == told(paths.switch_gpu[0]) == (1, NVL, 370_800)


def test_pcie_paths_are_typed_by_the_worst_on_them() -> None:
    # Two GPUs a switch, two switches a socket; 24 GB/s of Gen4, 16 between AMD sockets.
    paths = paths_of("pcie-gen4-8")
    assert told(paths.gpu_gpu[0][1]) == (2, PIX, 24_000)
    assert told(paths.gpu_gpu[0][2]) == (4, PHB, 24_000)
    assert told(paths.gpu_gpu[0][4]) == (5, SYS, 16_000)


def test_a_gpu_forwards_one_nvlink_to_the_next_and_no_further() -> None:
    paths = paths_of("dgx-1v")
    table = paths.gpu_gpu
    # 0 has links to 1, 2, 3 and 4; the others are one GPU further, at the rate of the narrower link.
    assert [table[0][other].type for other in range(1, 8)] == [NVL, NVL, NVL, NVL, NVB, NVB, NVB]
    assert told(table[0][3]) == (1, NVL, 40_000)
    assert told(table[0][7]) == (2, NVB, 40_000)
    without = paths_of("dgx-1v", Reach(p2p=SYS, nvb=False)).gpu_gpu
    assert without[0][7].type == SYS


def test_peers_beyond_their_reach_go_over_the_cpu() -> None:
    # Below one switch: up to the root complex and down again instead of two hops.
    paths = paths_of("pcie-gen4-8", Reach(p2p=LOC))
    assert told(paths.gpu_gpu[0][1]) == (4, PHB, 24_000)
    assert not paths.p2p
    assert paths_of("pcie-gen4-8").p2p


def test_every_gpu_has_its_nic_and_sends_to_others_over_their_gpus() -> None:
    paths = paths_of("hgx-h100", nodes=2, nic="ndr400")
    # NIC, its port: GPU -> switch -> NIC -> port.
    assert told(paths.gpu_net[2][2]) == (3, PIX, 48_000)
    # Two NVLinks to the peer first; only sending, receiving goes through the root complex.
    assert told(paths.gpu_net[2][5]) == (5, PXN, 48_000)
    assert paths.net_gpu[5][2].type > PXN
    assert paths.local_gpu == list(range(8))
    assert [paths.nets_of(gpu) for gpu in range(8)] == [[gpu] for gpu in range(8)]


def test_without_relays_a_far_nic_is_reached_over_the_cpu() -> None:
    paths = paths_of("hgx-h100", Reach(p2p=SYS, pxn=False), nodes=2, nic="ndr400")
    assert paths.gpu_net[2][5].type == SYS
    assert (2, 5) in paths.staged
    assert (2, 2) not in paths.staged


def test_a_nic_behind_a_chip_link_is_p2c_and_gpudirect_since_2_27() -> None:
    # GPU -> Grace -> NIC -> port; 400 GB/s and more to the Grace, 25 to the port.
    options: dict[str, Any] = {"nodes": 2, "nic": "slingshot200"}
    now = paths_of("gh200", **options)
    assert (told(now.gpu_net[0][0]), now.staged) == ((3, P2C, 25_000), set())
    before = paths_of("gh200", Reach(p2p=SYS, gdr_c2c=False), **options)
    assert (told(before.gpu_net[0][0]), before.staged) == ((3, PHB, 25_000), {(0, 0)})


def test_two_nics_below_a_switch_are_dealt_to_its_two_gpus() -> None:
    # Bits of the GPU's number in reverse among two: 0 takes the first, 1 the second.
    paths = paths_of("hgx-a100", nodes=2, nic="hdr200")
    assert [paths.nets_of(gpu) for gpu in range(4)] == [[0], [1], [2], [3]]
    sixteen = paths_of("hgx-a100", nodes=2, nic="hdr200:nics=16")
    # Four near ports for two GPUs: two each.
    assert all(len(sixteen.nets_of(gpu)) == 2 for gpu in range(8))


def test_an_intel_host_bridge_is_loaded_by_a_fifth_more() -> None:
    # 10 GB/s between GPUs below two switches of an Intel socket take 12; between sockets and below a switch 10.
    paths = paths_of("hgx-h100", Reach(p2p=LOC))
    assert {load for _, load in paths.gpu_gpu[0][1].loads(10_000)} == {12_000}
    amd = paths_of("pcie-gen4-8")
    assert {load for _, load in amd.gpu_gpu[0][2].loads(10_000)} == {10_000}


def test_old_gpus_take_an_eighth_back_of_what_nics_send_them() -> None:
    volta = paths_of("dgx-1v", nodes=2, nic="edr100:nics=4")
    loads = [load for _, load in volta.net_gpu[0][0].loads(8000)]
    assert sorted(loads) == [1000, 8000, 8000, 8000]
    ampere = paths_of("hgx-a100", nodes=2, nic="hdr200")
    assert [load for _, load in ampere.net_gpu[0][0].loads(8000)] == [8000] * 3


def test_devices_that_nothing_joins_have_no_path() -> None:
    graph = build("pcie-pair").copy()
    graph.remove_edges_from([("gpu1", "cpu0"), ("cpu0", "gpu1")])
    paths = Paths(node_systems(graph).systems[0], Reach(p2p=SYS))
    assert told(paths.gpu_gpu[0][1]) == (0, DIS, 0)


@pytest.mark.parametrize("topology", ["hgx-a100", "dgx-1v", "gh200-4", "pcie-gen5-8"])
def test_paths_are_as_long_and_wide_both_ways(topology: str) -> None:
    table = paths_of(topology).gpu_gpu
    for a, row in enumerate(table):
        for b, path in enumerate(row):
            assert told(path) == told(table[b][a])


def test_the_reach_of_gpudirect_is_pxb_unless_a_chip_link_leads_there() -> None:
    assert Reach().gdr == PXB
    paths = paths_of("hgx-h100", Reach(p2p=SYS, gdr=LOC - 1), nodes=2, nic="ndr400")
    assert len(paths.staged) == 64
