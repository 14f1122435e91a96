"""Plans of sends and receives: what the machine and NCCL's variables make of channels, chunks, parts and relays."""

import pytest

from netsim.nccl import schedules
from netsim.nccl.channels import total_channels
from netsim.nccl.communicator import Communicator
from netsim.nccl.environment import settings
from netsim.nccl.from_topology import communicator
from netsim.nccl.peer_planning import plan_peers
from netsim.schedule.dag import TRANSFER
from netsim.schedule.nccl.peers import PeerPlan
from topologies import build

MIB = 1 << 20


def planned(size: int = 64 * MIB, *, nodes: int = 1, **asked) -> PeerPlan:
    """Plan an all-to-all on hgx-h100, with variables of NCCL as keywords in capitals."""
    environment = {name: str(value) for name, value in asked.items() if name.isupper()}
    more = {name: value for name, value in asked.items() if not name.isupper()}
    graph = build("hgx-h100", nodes=nodes, **({"nic": "ndr400"} if nodes > 1 else {}))
    found = communicator(graph, environment=environment)
    given = settings(environment)
    return plan_peers(found, "alltoall", size, collective_channels=total_channels(found, given), settings=given, **more)


def test_an_h100_server_has_the_channels_that_are_worked_out() -> None:
    # nccl.md 2.9: 24 channels make 32; 36 channels a peer make 64, capped at 32; eight messages side by side: 4 each.
    made = planned()
    assert (made.channels, made.per_peer, made.least_channels) == (32, 32, 4)


@pytest.mark.parametrize(
    ("asked", "channels"),
    # A power of two is made of what the bounds leave of 24.
    [({"NCCL_MAX_P2P_NCHANNELS": 4}, 4), ({"NCCL_MAX_P2P_NCHANNELS": 5}, 8), ({"NCCL_MIN_P2P_NCHANNELS": 33}, 64)],
)
def test_channels_of_sends_are_bounded(asked: dict[str, int], channels: int) -> None:
    assert planned(**asked).channels == channels


@pytest.mark.parametrize("most", [1, 4, 16])
def test_two_ranks_send_in_half_as_many_parts_as_there_are_channels(most: int) -> None:
    # As measured on two H200s with forced channels of sends: m/2 parts (one with m = 1) until a part exceeds 16 MiB.
    found = communicator(build("hgx-h200"), ranks=(0, 1))
    given = settings({"NCCL_MAX_P2P_NCHANNELS": str(most)})
    made = plan_peers(found, "sendrecv", 4 * MIB, collective_channels=24, settings=given)
    assert made.parts(4 * MIB) == max(1, most // 2)
    assert made.parts(1 << 30) == most


def test_channels_to_a_peer_are_as_told() -> None:
    assert planned(NCCL_NCHANNELS_PER_PEER=8).per_peer == 8
    # Over two nodes 16 channels; the least of both kinds of peers counts, as a power of two.
    assert planned(nodes=2, NCCL_NCHANNELS_PER_NET_PEER=3).per_peer == 4
    assert planned(nodes=2, NCCL_NCHANNELS_PER_PEER=1, NCCL_NCHANNELS_PER_NET_PEER=3).per_peer == 1


@pytest.mark.parametrize(
    ("nodes", "asked", "chunk"),
    [
        (1, {}, 524_288),
        (1, {"NCCL_P2P_NVL_CHUNKSIZE": 65_536}, 65_536),
        (1, {"NCCL_P2P_NET_CHUNKSIZE": 65_536}, 524_288),
        (2, {}, 131_072),
        (2, {"NCCL_P2P_NET_CHUNKSIZE": 65_536}, 65_536),
        # Never more than a step of the buffer, an eighth of it.
        (1, {"NCCL_BUFFSIZE": 1 << 20}, 1 << 17),
        (1, {"NCCL_P2P_NVL_CHUNKSIZE": 8 * MIB}, 524_288),
    ],
)
def test_chunks_of_sends_are_as_told_and_no_larger_than_a_step(nodes: int, asked: dict[str, int], chunk: int) -> None:
    assert planned(nodes=nodes, **asked).chunk_bytes == chunk


def test_blackwell_on_arm_sends_larger_chunks_over_the_network() -> None:
    racks = communicator(build("gb200-nvl72", nodes=2, nic="ndr400"), ranks=(*range(8), *range(72, 80)))
    assert plan_peers(racks, "alltoall", MIB, collective_channels=32).chunk_bytes == 262_144


def test_pcie_cards_have_chunks_of_their_own() -> None:
    cards = communicator(build("pcie-gen4-8"))
    given = settings({"NCCL_P2P_PCI_CHUNKSIZE": "32768"})
    assert plan_peers(cards, "alltoall", MIB, collective_channels=2).chunk_bytes == 131_072
    assert plan_peers(cards, "alltoall", MIB, collective_channels=2, settings=given).chunk_bytes == 32_768


def test_parts_go_by_ll_up_to_the_threshold() -> None:
    # Eight blocks of 32 KiB in two parts of 16 KiB each: at most the threshold's default.
    assert planned(size=8 * 32_768).protocol_of(32_768, network=False) == "ll"
    assert planned(size=8 * 32_768, NCCL_P2P_LL_THRESHOLD=16_000).protocol_of(32_768, network=False) == "simple"
    assert planned(size=8 * 65_536, NCCL_P2P_LL_THRESHOLD=0).protocol_of(16, network=False) == "simple"


def test_over_the_network_sends_use_ll_only_where_there_are_buffers_for_it() -> None:
    assert planned(nodes=2).protocol_of(16, network=True) == "simple"
    assert planned(nodes=2, NCCL_ALLOC_P2P_NET_LL_BUFFERS=1).protocol_of(16, network=True) == "ll"
    # Who asks for a protocol has it everywhere.
    assert planned(nodes=2, protocol="ll").protocol_of(1 << 20, network=True) == "ll"


def test_chunks_of_ll_are_half_a_step_of_its_buffer() -> None:
    assert planned().chunk_of(1000, "ll", network=False) == 32_768
    assert planned(NCCL_LL_BUFFSIZE=65_536).chunk_of(1000, "ll", network=False) == 4096


def test_groups_of_rounds_are_as_large_as_told() -> None:
    # Two nodes of eight in groups of four: rank 0 meets its own group first, then groups at distances 1, 3 and 2.
    firsts = [peers[0] for peers in planned(nodes=2, NCCL_P2P_SCHEDULE_GROUP_SIZE=4).rounds]
    assert firsts == [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11]


@pytest.mark.parametrize(("level", "relayed"), [(0, False), (1, False), (2, True)])
def test_sends_go_by_the_card_on_the_receivers_rail_at_level_two(level: int, relayed: bool) -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400")
    found = communicator(graph, environment={"NCCL_P2P_PXN_LEVEL": str(level)})
    schedule = schedules.build(found, "alltoall", 16 * 4096, free=True).schedule
    moves = schedule.kind == TRANSFER
    between = schedule.src[moves] // 8 != schedule.dst[moves] // 8
    ends = zip(schedule.src[moves][between].tolist(), schedule.dst[moves][between].tolist(), strict=True)
    rails = {(src % 8, dst % 8) for src, dst in ends}
    assert all(src == dst for src, dst in rails) is relayed


def test_channels_may_be_asked_for() -> None:
    found = communicator(build("hgx-h100"))
    built = schedules.build(found, "alltoall", 64 * MIB, channels=4, free=True)
    assert built.channels == 4


def test_channels_that_carry_something_are_counted() -> None:
    # One part of eight bytes on the channel of each round: eight rounds, of which one is for oneself and one sends.
    found = communicator(build("hgx-h100"))
    assert schedules.build(found, "sendrecv", 8, free=True).channels == 1
    assert schedules.build(found, "alltoall", 64 * MIB, free=True).channels == 32


def test_one_rank_has_nobody_to_talk_to() -> None:
    alone = Communicator(((0,),), {})
    assert plan_peers(alone, "alltoall", 1000, collective_channels=2).ranks == 1


def test_without_nvlink_no_peer_takes_data_on() -> None:
    found = communicator(build("pcie-gen4-8", nodes=2, nic="hdr200"))
    assert found.pxn
    assert not plan_peers(found, "alltoall", 16 * 4096, collective_channels=2).pxn
