"""The costs of a generation and what the caller says of buffers reach the operations of a schedule."""

from functools import lru_cache
from math import log2
from typing import Any

import pytest

import topologies
from netsim.nccl.communicator import Communicator
from netsim.nccl.from_topology import communicator
from netsim.nccl.gpus import costs
from netsim.nccl.schedules import build
from netsim.runs import simulate
from netsim.schedule.dag import COMPUTE, TRANSFER

KIB, MIB = 2**10, 2**20


@lru_cache(maxsize=1)
def pair() -> Communicator:
    """Return two H100s over NVSwitch."""
    return communicator(topologies.build("hgx-h100", gpus_per_node=2))


def duration(collective: str, size: int, **more: Any) -> float:
    """Return the seconds of a ring by Simple on one channel."""
    built = build(pair(), collective, size, algorithm="ring", protocol="simple", channels=1, **more)
    return simulate(topologies.build("hgx-h100", gpus_per_node=2), built.schedule, record="summary").time_s


OF_128 = log2(128 / 96) / log2(512 / 96)
"""Of the thread term of LL and Simple, what 128 threads cost: 0.17186."""


@pytest.mark.parametrize(
    ("protocol", "size", "share"),
    # Bytes a thread is worth on a ring of two: LL 16, Simple 64, LL128 8. LL and Simple halve 512 threads down to 128 where
    # 256 would have too little, LL128 640 to 320, which is no multiple of 128.
    [
        ("ll", 512 * 16, 1.0),
        ("ll", 128 * 16, OF_128),
        ("simple", 512 * 64, 1.0),
        ("simple", 128 * 64, OF_128),
        ("ll128", 640 * 8, 1.0),
        ("ll128", 320 * 8, 0.5),
    ],
)
def test_a_slice_costs_less_with_fewer_threads(protocol: str, size: int, share: float) -> None:
    built = build(pair(), "all_reduce", size, algorithm="ring", protocol=protocol, channels=1)
    moves = built.schedule.kind == TRANSFER
    figures = costs("hopper", protocol)
    assert figures.threads_s > 0
    assert built.schedule.duration[moves] == pytest.approx(figures.slice_s + share * figures.threads_s, rel=1e-9)


def test_a_quarter_of_the_bytes_with_a_quarter_of_the_threads_is_quicker_by_the_thread_term() -> None:
    # A broadcast: a copying send and a receive, 32 KiB with 512 threads or 8 KiB with 128 at a quarter of the rates.
    few, all_ = (duration("broadcast", threads * 64) for threads in (128, 512))
    assert all_ - few == pytest.approx(2 * costs("hopper", "simple").threads_s * (1 - OF_128), rel=1e-6)


@pytest.mark.parametrize("in_place", [False, True])
def test_out_of_place_an_all_gather_begins_at_the_rate_of_a_copying_send(in_place: bool) -> None:
    # One channel, a block of 512 KiB in two slices.
    built = build(pair(), "all_gather", MIB, algorithm="ring", protocol="simple", channels=1, in_place=in_place)
    first = (built.schedule.kind == TRANSFER) & (built.schedule.step == 0)
    rates = costs("hopper", "simple").rates
    rate = rates.send if in_place else rates.copy_send
    assert built.schedule.work[first].tolist() == pytest.approx([256 * KIB / rate] * 4, rel=1e-9)
    assert rates.copy_send < rates.send


def test_in_place_a_pipeline_begins_without_a_copy_too() -> None:
    # 512 KiB in one slice, sent at another rate; the receive is the same.
    times = [duration("broadcast", 512 * KIB, in_place=place) for place in (False, True)]
    rates = costs("hopper", "simple").rates
    assert times[0] - times[1] == pytest.approx(512 * KIB / rates.copy_send - 512 * KIB / rates.send, rel=1e-6)


def test_in_place_an_all_to_all_copies_no_block_of_its_own() -> None:
    # 512 KiB for each of two: 16 parts of 32 KiB for the peer, and as many for oneself, which stay where they are.
    own, place = (build(pair(), "alltoall", MIB, in_place=in_place, started=False) for in_place in (False, True))
    assert len(own.schedule) - len(place.schedule) == 2 * 16


def test_in_place_copy_engines_copy_no_block_of_their_own() -> None:
    own, place = (
        build(pair(), "alltoall", MIB, algorithm="copy_engine", in_place=in_place).schedule for in_place in (False, True)
    )
    assert len(own) - len(place) == 2


def test_in_place_copy_engines_have_the_whole_link() -> None:
    # Further 64 MiB of an all-to-all of two: half of them at 370.8 GB/s, whatever a copy costs.
    graph = topologies.build("hgx-h100", gpus_per_node=2)
    first, second = (
        simulate(graph, build(pair(), "alltoall", size, algorithm="copy_engine", in_place=True).schedule).time_s
        for size in (64 * MIB, 128 * MIB)
    )
    assert second - first == pytest.approx(32 * MIB / 370.8e9, rel=1e-6)


def test_registered_buffers_receive_for_nothing() -> None:
    # The last step of an all-gather on two ranks: two slices of 256 KiB a rank.
    figures = costs("hopper", "simple")
    for registered, worked in ((False, 256 * KIB / figures.rates.recv), (True, 0.0)):
        built = build(pair(), "all_gather", MIB, algorithm="ring", protocol="simple", channels=1, registered=registered)
        last = (built.schedule.kind == COMPUTE) & (built.schedule.step == 1)
        expected = figures.slice_s + figures.threads_s + worked
        assert built.schedule.duration[last].tolist() == pytest.approx([expected] * 4, rel=1e-9)
