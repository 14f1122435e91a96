"""Symmetric-memory kernels: proved, with the bytes per link and the barriers of nccl.md 2.10, and NCCL's own estimate."""

import numpy as np
import pytest

from netsim.errors import ScheduleError
from netsim.nccl.symmetric_model import pick_kernel, query_model
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.nccl.costs import Costs, Rates
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.schedule.nccl.symmetric import KERNELS, build, protocol_of
from netsim.schedule.proof import prove
from netsim.schedule.replay import replay
from netsim.testing import star

ALL = [(collective, kernel) for collective, kernels in KERNELS.items() for kernel in kernels]
MIB = 1024**2


def plan_of(collective, kernel, ranks, size, *, blocks=2, chunk=1 << 20, **more):
    total = size if collective == "all_reduce" else size // ranks
    each = -(-total // blocks)
    shares = tuple((min(b * each, total), min(each, total - min(b * each, total))) for b in range(blocks))
    numbered = tuple(Channel(number) for number in range(blocks))
    return Plan(collective, "symmetric", protocol_of(kernel), ranks, size, numbered, shares, chunk, **more)


@pytest.mark.parametrize(("collective", "kernel"), ALL)
@pytest.mark.parametrize("ranks", range(1, 18))
def test_every_kernel_is_proved(ranks, collective, kernel):
    sizes = (0, ranks - 1, 1009) if collective == "all_reduce" else (0, ranks, 100 * ranks)
    for size in sizes:
        schedule = build(plan_of(collective, kernel, ranks, size, chunk=150), kernel)
        prove(schedule)
        assert ranks > 1 or not len(schedule)


@pytest.mark.parametrize("kernel", KERNELS["all_reduce"])
def test_data_goes_through_it(kernel):
    given = [np.arange(210) * rank for rank in range(5)]
    plan = plan_of("all_reduce", kernel, 5, 210 * 8, blocks=3, chunk=80, align_bytes=8)
    for got in replay(build(plan, kernel), given):
        assert np.array_equal(got, sum(given))


# Bytes out of and into each GPU, of eight, in units of a rank's block (all-reduce: an eighth of the data).
BYTES = {
    ("all_reduce", "agxll_r"): (2 * 7 * 8, 2 * 7 * 8),  # (n - 1) S, LL doubles
    ("all_reduce", "agxllmc_r"): (2 * 8, 2 * 7 * 8),  # once up, the others' down
    ("all_reduce", "rsxld_agxst"): (2 * 7, 2 * 7),  # S (n - 1)/n read from it and S (n - 1)/n written by it
    ("all_reduce", "rsxldmc_agxstmc"): (8 + 1, 1 + 8),  # S (1 + 1/n)
    ("all_gather", "ll"): (2 * 7, 2 * 7),
    ("all_gather", "llmc"): (2, 2 * 8),
    ("all_gather", "st"): (7, 7),
    ("all_gather", "stmc"): (1, 8),
    ("reduce_scatter", "ll"): (2 * 7, 2 * 7),
    ("reduce_scatter", "ld"): (7, 7),
    ("reduce_scatter", "ldmc"): (8, 1),
}


@pytest.mark.parametrize(("collective", "kernel"), ALL)
def test_bytes_of_every_gpu_link(collective, kernel):
    graph = star(8)
    schedule = build(plan_of(collective, kernel, 8, 8 * 16_000, blocks=2), kernel)
    record = simulate(graph, schedule)
    out, back = (16_000 * count for count in BYTES[collective, kernel])
    for (source, _), carried in zip(Router(graph).edges, record.link_bytes.tolist(), strict=True):
        assert carried == (back if source == "switch" else out)


def finish_us(kernel, collective="all_gather", *, ranks=4, size=64, **costs):
    plan = plan_of(collective, kernel, ranks, size, blocks=1, costs=Costs(feed_bytes=0, **costs))
    return simulate(star(ranks, latency_s=1e-6, bandwidth_bytes_per_s=1e15), build(plan, kernel)).end_s.max() * 1e6


def test_a_barrier_before_and_one_after_but_none_by_ll():
    given = {"start_s": 2e-6, "flag_s": 0.5e-6}
    # Start, flag, the stores' latency, flag.
    assert finish_us("st", **given) == pytest.approx(2 + 0.5 + 1 + 0.5, rel=1e-6)
    assert finish_us("ll", **given) == pytest.approx(2 + 1, rel=1e-6)
    # Two shots: loads, then stores.
    assert finish_us("rsxld_agxst", "all_reduce", **given) == pytest.approx(2 + 0.5 + 1 + 1 + 0.5, rel=1e-6)


def test_stores_cost_the_block_their_rate_peer_after_peer():
    # Three peers at 1000 B / 1 GB/s each, then one latency.
    assert finish_us("st", size=4000, rates=Rates(send=1e9)) == pytest.approx(3 + 1, rel=1e-6)


@pytest.mark.parametrize(("kernel", "share"), [("rsxld_agxst", 2 * 7 / 8), ("rsxldmc_agxstmc", 1 + 1 / 8)])
def test_loads_and_stores_of_two_shots_share_the_links_all_the_time(kernel, share):
    # 8 MiB at 1 GB/s a direction: within 5 % of what a link carries, with two chunks of 16 KiB of each block at a time.
    schedule = build(plan_of("all_reduce", kernel, 8, 8 * MIB, chunk=16 * 1024), kernel)
    took_s = simulate(star(8, latency_s=1e-6, bandwidth_bytes_per_s=1e9), schedule).end_s.max()
    assert share * 8 * MIB / 1e9 <= took_s <= 1.05 * share * 8 * MIB / 1e9


def test_sums_in_the_switch_cost_one_way_up_and_down():
    # All latency is on the way up: one for the reduction, one for the multicast.
    assert finish_us("rsxldmc_agxstmc", "all_reduce") == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize(
    ("collective", "kernel", "protocol", "words"),
    [
        (
            "broadcast",
            "st",
            "simple",
            "symmetric kernels do no broadcast; accepted are all_reduce, all_gather, reduce_scatter",
        ),
        ("all_gather", "ldmc", "simple", "all_gather has no symmetric kernel 'ldmc'; accepted are ll, llmc, st, stmc"),
        ("all_gather", "st", "ll", "symmetric kernel st by protocol ll; it goes by simple"),
    ],
)
def test_what_nccl_has_not_is_refused(collective, kernel, protocol, words):
    plan = Plan(collective, "symmetric", protocol, 2, 8, (Channel(0),), ((0, 4),), 64)
    with pytest.raises(ScheduleError, match=words):
        build(plan, kernel)


def test_the_estimate_of_one_block_by_hand():
    # softmin(65, 320; 65) = 320 - 65 ln(1 + (e^(320/65) - 1)/e) = 64.2 GB/s of 2^30; 9 x 8 x 1 MiB take 1095 us, less 1,
    # and the base of 4.5.
    time_us, blocks = query_model("all_reduce", "agxll_r", 8, MIB, most_blocks=1)
    assert blocks == 1
    assert time_us == pytest.approx(1098.7, rel=1e-3)


def test_large_estimates_are_bytes_over_the_peak():
    # Two blocks (16/8) of 65 x 8: at the peak of 480 GB/s within 1 %: S (1 + 1/8) for 1 GiB is 1.125/480 s.
    time_us, blocks = query_model("all_reduce", "rsxldmc_agxstmc", 8, 2**30)
    assert blocks <= 2
    assert time_us == pytest.approx(1.125 / 480 * 1e6 + 6.8, rel=0.03)
    slower, _ = query_model("all_gather", "st", 8, 2**27, blackwell=False)
    assert slower == pytest.approx(7 / 8 / 320 * 1e6 + 6.8, rel=0.03)
    faster, _ = query_model("all_gather", "st", 8, 2**27, blackwell=True)
    assert faster == pytest.approx(7 / 8 / 600 * 1e6 + 12, rel=0.03)


def test_fewer_blocks_are_taken_while_they_cost_at_most_a_fortieth():
    time_us, blocks = query_model("all_reduce", "rsxld_agxst", 8, 2**24)
    most, _ = query_model("all_reduce", "rsxld_agxst", 8, 2**24, least_blocks=64)
    fewer, _ = query_model("all_reduce", "rsxld_agxst", 8, 2**24, most_blocks=blocks - 1, least_blocks=blocks - 1)
    assert time_us <= 1.025 * most < fewer


def test_small_data_go_by_ll_and_large_ones_by_the_switch():
    assert pick_kernel("all_reduce", 8, 1024)[0] == "agxllmc_r"
    assert pick_kernel("all_reduce", 8, 1024, multicast=False)[0] == "agxll_r"
    assert pick_kernel("all_reduce", 8, 64 * MIB)[0] == "rsxldmc_agxstmc"
    assert pick_kernel("all_reduce", 8, 64 * MIB, multicast=False)[0] == "rsxld_agxst"
    assert pick_kernel("all_gather", 8, 64 * MIB)[0] == "stmc"
    assert pick_kernel("reduce_scatter", 8, 64 * MIB, multicast=False)[0] == "ld"


def test_a_model_of_no_kernel_is_refused():
    with pytest.raises(ScheduleError, match="all_gather has no symmetric kernel 'ld'; accepted are all_reduce agxll_r"):
        query_model("all_gather", "ld", 8, 8)
    with pytest.raises(ScheduleError, match="symmetric kernels do no reduce"):
        pick_kernel("reduce", 8, 8)
