"""Sends and receives on machines: on which channels a message goes, by whose network card, and over which relay."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pytest

import topologies
from netsim.nccl.communicator import Communicator
from netsim.nccl.from_topology import communicator
from netsim.nccl.schedules import Built, build
from netsim.nccl.version import Version
from netsim.schedule.dag import TRANSFER

KIB, MIB = 2**10, 2**20


@lru_cache(maxsize=8)
def machine(name: str, nic: str | None = None, version: str = "2.28.9") -> Communicator:
    """Return a server, or two of them where there is a network."""
    return communicator(topologies.build(name, nodes=2 if nic else 1, nic=nic), Version.parse(version))


def channels_between(built: Built, src: int, dst: int) -> list[int]:
    """Return the channels on which what one rank has for another leaves it."""
    schedule = built.schedule
    chosen = (schedule.kind == TRANSFER) & (schedule.offset // schedule.size_bytes == src) & (schedule.chunk == dst)
    return sorted({int(schedule.lane_names[lane][1].split()[1]) for lane in schedule.lane[chosen].tolist()})


@pytest.mark.parametrize(
    ("name", "nic", "version", "near", "far"),
    [
        # 24 channels: 32. NVLinks to a peer 18: 36, 64, at most 32; for eight ranks on 32 channels four at first. The base
        # of the first round is 1 with its five bits reversed.
        ("hgx-h100", None, "2.28.9", [16, 17, 18, 19], []),
        # Before 2.28 a base is its round, and parts are spread by reversed bits: 1, and 16, 8 and 24 further.
        ("hgx-h100", None, "2.27.7", [1, 9, 17, 25], []),
        # 12 channels: 16. One NVLink, straight or over a third GPU: two, which is 2 x 8 = 16 for eight ranks.
        ("dgx-1v", None, "2.28.9", [8, 9], []),
        # Two channels and PCI Express: two, and for eight ranks one.
        ("pcie-gen4-8", None, "2.28.9", [1], []),
        # 16 channels. A NIC a GPU: two; 2 x 16 ranks leave one at first, but 1 MiB is above 128 KiB a part: two. Rounds of
        # the own node have the base 0, those of the other 1 with its four bits reversed.
        ("hgx-h100", "ndr400", "2.28.9", [0, 1], [8, 9]),
        # 50 GB/s at 14 a channel: four.
        ("hgx-h100", "ndr400", "2.29.2", [0, 1, 2, 3], [8, 9, 10, 11]),
        # Two NICs a GPU, 100 GB/s at 14 a channel: eight.
        ("hgx-h100", "ndr400:nics=16", "2.29.2", list(range(8)), list(range(8, 16))),
        # Half a NIC a GPU counts as one.
        ("hgx-h100", "ndr400:nics=4", "2.28.9", [0, 1], [8, 9]),
        # 32 searched channels twice: 64. Four NICs a GPU: four, which is 4 x 16 = 64 for sixteen ranks.
        ("hgx-h100", "efa100:nics=32", "2.28.9", [0, 1, 2, 3], [32, 33, 34, 35]),
        # Four NICs of 12.5 GB/s: 50 at 14 a channel are four again.
        ("hgx-h100", "efa100:nics=32", "2.29.2", [0, 1, 2, 3], [32, 33, 34, 35]),
    ],
)
def test_a_message_of_a_mebibyte_has_channels_by_the_links_of_its_pair(
    name: str, nic: str | None, version: str, near: list[int], far: list[int]
) -> None:
    group = machine(name, nic, version)
    built = build(group, "alltoall", group.ranks * MIB, protocol="simple", free=True, in_place=True)
    assert channels_between(built, 0, 1) == near
    if nic:
        assert channels_between(built, 0, 9) == far


def network_pairs(group: Communicator) -> set[tuple[int, int]]:
    """Return between which GPUs, numbered within two nodes of eight, messages of an all-to-all cross the network."""
    schedule = build(group, "alltoall", 16 * 4 * KIB, protocol="simple", free=True, in_place=True).schedule
    between = (schedule.kind == TRANSFER) & (schedule.src // 8 != schedule.dst // 8)
    assert np.array_equal(schedule.dst[between], schedule.chunk[between])  # none is relayed over there
    return set(zip((schedule.src[between] % 8).tolist(), (schedule.dst[between] % 8).tolist(), strict=True))


ALL = {(a, b) for a in range(8) for b in range(8)}


def test_with_a_nic_a_gpu_relays_keep_every_message_on_its_rail() -> None:
    assert network_pairs(machine("hgx-h100", "ndr400")) == {(gpu, gpu) for gpu in range(8)}


def test_with_fewer_nics_gpus_of_one_nic_send_themselves_and_others_over_one_of_them() -> None:
    group = machine("hgx-h100", "ndr400:nics=4")
    # The NICs sit with GPUs 0, 2, 4 and 6; the others reach all four over those equally well and take the first.
    assert group.rails == (0, 0, 1, 0, 2, 0, 3, 0) * 2
    first = {0, 1, 3, 5, 7}
    assert network_pairs(group) == {(a, b) for a in first for b in first} | {(gpu, gpu) for gpu in (2, 4, 6)}


@pytest.mark.parametrize("environment", [{"NCCL_PXN_DISABLE": "1"}, {"NCCL_P2P_PXN_LEVEL": "0"}])
def test_without_relays_everyone_sends_to_everyone(environment: Mapping[str, str]) -> None:
    graph = topologies.build("hgx-h100", nodes=2, nic="ndr400")
    assert network_pairs(communicator(graph, environment=environment)) == ALL
