from pathlib import Path

import pytest

from netsim.errors import NetsimError
from netsim.nccl.gpus import FOLDER, costs, generation, read_costs, source
from scenarios.fit_parameters import stated


@pytest.mark.parametrize(
    ("capability", "name"), [(70, "ampere"), (80, "ampere"), (90, "hopper"), (100, "blackwell"), (103, "blackwell")]
)
def test_a_compute_capability_has_a_generation(capability, name):
    assert generation(capability) == name


def test_cards_without_nvlink_have_costs_of_their_own():
    assert [generation(sm, nvlink=False) for sm in (70, 80, 86, 89, 90, 120)] == [
        "pcie", "pcie_ampere", "pcie", "pcie_ada", "pcie", "pcie_blackwell",
    ]  # fmt: skip


PCIE = ("pcie", "pcie_ada", "pcie_ampere", "pcie_blackwell")


@pytest.mark.parametrize("name", ["ampere", "blackwell", "hopper", *PCIE])
def test_every_generation_has_figures_with_a_source_for_all_uses(name):
    assert source(name).startswith(("published", "measured", "assumed"))
    for protocol in ("ll", "ll128", "simple"):
        ring, peers, nvls = costs(name, protocol), costs(name, protocol, peers=True), costs(name, protocol, nvls=True)
        assert 0 < ring.rates.recv_reduce_send < 100e9
        assert ring.start_s > 0
        assert peers.start_s > 0
        assert nvls.start_s >= 0


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [("nvls", "tree", "0"), ("nvls", "tree", "1.5"), ("nvls", "tree", '"fast"'), ("nvls", "tree", "true"),
     ("p2p", "share", "0"), ("p2p", "share", '"x"'), ("p2p", "share", "inf")],
)  # fmt: skip
def test_a_share_that_makes_no_sense_is_refused_with_its_place(tmp_path: Path, table: str, key: str, value: str) -> None:
    path = tmp_path / "costs.toml"
    text = (FOLDER / "hopper.toml").read_text(encoding="utf-8")
    path.write_text(stated(text, f"{table}.{key}", value), encoding="utf-8")
    with pytest.raises(NetsimError, match=rf"costs.toml: \[{table}\] {key} is .*; accepted are numbers above 0, at most"):
        read_costs(path)


def test_where_trees_join_nodes_nvls_copies_at_a_part_of_its_rate():
    alone, joined = (costs("hopper", "simple", nvls=True, trees=trees) for trees in (False, True))
    assert 0.8 < joined.nvls_rate / alone.nvls_rate < 1
    assert joined.nvls_reduce_rate == alone.nvls_reduce_rate


GENERATIONS = ("ampere", "hopper", "blackwell")
FASTEST_FIRST = ("recv", "send", "recv_reduce_send", "recv_reduce_copy", "copy_send", "recv_reduce_copy_send")


@pytest.mark.parametrize("name", GENERATIONS)
def test_primitives_are_the_slower_the_more_memory_they_touch(name):
    # The order of own copy kernels on two H200s: 48, 42, 36, 29, 25 and 21 GB/s; storing while sending costs the same
    # whether the bytes come from the buffer or the input.
    rates = costs(name, "simple").rates
    found = [getattr(rates, primitive) for primitive in FASTEST_FIRST]
    assert found == sorted(found, reverse=True)
    assert rates.copy_send == rates.recv_copy_send


def test_rates_of_simple_grow_from_generation_to_generation_by_one_factor_for_all_primitives():
    # 0.52, 0.93 and 1.08 of those kernels, all of a generation moved by the one factor of its fit.
    ampere, hopper, blackwell = 0.52 * 0.960, 0.93 * 0.977, 1.08 * 0.954
    for before, after, factor in (("ampere", "hopper", hopper / ampere), ("hopper", "blackwell", blackwell / hopper)):
        old, new = (costs(name, "simple").rates for name in (before, after))
        grown = {primitive: getattr(new, primitive) / getattr(old, primitive) for primitive in FASTEST_FIRST}
        assert grown["send"] == pytest.approx(factor, rel=0.01)
        for primitive in FASTEST_FIRST:
            assert grown[primitive] == pytest.approx(grown["send"], rel=0.01)


@pytest.mark.parametrize("name", [*GENERATIONS, *PCIE])
def test_ll_moves_less_than_simple_and_starts_sooner_but_on_blackwell(name):
    ll, simple = costs(name, "ll"), costs(name, "simple")
    assert (ll.start_s < simple.start_s) == (name != "blackwell")
    assert ll.rates.send < simple.rates.send / 2
    cheaper = ll.slice_cost_s("ll", 512) < simple.slice_cost_s("simple", 512)
    # Of cards in general no cost of a slice is known.
    assert cheaper == (name != "pcie")


def test_ll_starts_soonest_on_hopper_and_latest_on_ampere():
    starts = [costs(name, "ll").start_s for name in ("hopper", "blackwell", "ampere")]
    assert starts == sorted(starts)


@pytest.mark.parametrize("name", ["hopper", "blackwell"])
def test_nvls_starts_sooner_than_a_ring_by_simple_and_a_head_reduces_slower_than_it_copies(name):
    nvls = costs(name, "simple", nvls=True)
    assert nvls.start_s < costs(name, "simple").start_s
    # A head's own chunk is an eighth of what eight ranks copy, and takes no longer.
    assert nvls.nvls_rate / 8 < nvls.nvls_reduce_rate < nvls.nvls_rate


@pytest.mark.parametrize("name", GENERATIONS)
def test_half_a_block_that_sends_moves_a_little_more_than_half(name):
    # Halves of a block of own kernels: 21.4 to 22.7 of 41.5 to 42.2 GB/s; by fit 1.11 to 1.2 of half.
    assert 0.5 < costs(name, "simple", peers=True).halves / 2 <= 0.6


@pytest.mark.parametrize("name", [*GENERATIONS, *PCIE])
def test_by_ll_half_a_block_has_one_rate_for_what_it_sends_and_receives(name):
    # It was measured for a part of a message, so that halving the threads and `halves` cancel.
    found = costs(name, "ll", peers=True)
    assert found.halves == 2
    assert found.rates.send == found.rates.recv
