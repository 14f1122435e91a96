import pytest

from netsim.nccl.gpus import costs, generation, source


@pytest.mark.parametrize(
    ("capability", "name"), [(70, "ampere"), (80, "ampere"), (90, "hopper"), (100, "blackwell"), (103, "blackwell")]
)
def test_a_compute_capability_has_a_generation(capability, name):
    assert generation(capability) == name


def test_cards_without_nvlink_have_costs_of_their_own():
    assert generation(90, nvlink=False) == "pcie"


@pytest.mark.parametrize("name", ["ampere", "blackwell", "hopper", "pcie"])
def test_every_generation_has_figures_with_a_source_for_all_uses(name):
    assert source(name).startswith(("published", "measured", "assumed"))
    for protocol in ("ll", "ll128", "simple"):
        ring, peers, nvls = costs(name, protocol), costs(name, protocol, peers=True), costs(name, protocol, nvls=True)
        assert 0 < ring.rates.recv_reduce_send < 100e9
        assert ring.start_s > 0
        assert peers.start_s > 0
        assert nvls.start_s >= 0


def test_figures_of_hopper_are_those_of_the_file():
    simple = costs("hopper", "simple")
    # 0.63 us and 0.87 us more with all threads; own copy kernels of 512 threads moved 41.5 to 42.2 GB/s, 0.93 of it here.
    assert simple.slice_cost_s("simple", 512) == pytest.approx(1.5e-6)
    assert simple.rates.send == 39e9
    assert simple.nvls_loop_s == pytest.approx(5.1e-6)
    # 6.4 us less 0.82 us of a hop and two slices of 0.23 us.
    assert costs("hopper", "ll", peers=True).start_s == pytest.approx(5.1e-6)


def test_half_a_block_of_ll_moves_what_was_measured_between_peers():
    # 6.2 GB/s of a part; half of the threads at twice that of all.
    ll = costs("hopper", "ll", peers=True)
    assert ll.rates.send * ll.halves / 2 == 6.2e9
