"""NCCL's schedules as scenarios run them: what a spec can ask for, and what its row says."""

from dataclasses import replace

import pytest

from netsim.errors import NetsimError
from netsim.export.table import human_text, model_words
from netsim.nccl import schedules
from netsim.nccl.dump import format_dump
from netsim.nccl.gpus import costs
from scenarios.machine import Machine, graph_of
from scenarios.nccl import NcclOptions, communicator_of, is_known, least_call_s, pairs_of
from scenarios.run import Spec, run_spec, run_traced

EIGHT = Spec(Machine("hgx-h100"), "all_reduce", 2**20, protocol="auto")
UNSTARTED = NcclOptions(launch="none")


def test_a_row_says_what_ran_and_what_nccl_thinks_of_it():
    row = run_spec(EIGHT)
    assert (row.algorithm, row.protocol, row.channels, row.nccl_version) == ("ring", "ll", 24, "2.28.9")
    # The cost model of ring LL on 8 H100: 15.0 us and 80.6 GB/s.
    assert row.nccl_model_us == pytest.approx(15.0 + 2**20 / 80.6e3, rel=0.01)
    assert row.lower_bound_us <= row.time_us
    assert "ring ll x24" in human_text([row])
    assert model_words([row, run_spec(replace(EIGHT, protocol="ideal"))])[1].startswith("ideal")


def test_variables_and_names_choose_what_runs():
    large = replace(EIGHT, size_bytes=2**24)
    off = NcclOptions(environment=("NCCL_NVLS_ENABLE=0",))
    assert run_spec(large).algorithm == "nvls"
    assert run_spec(replace(large, nccl=off)).algorithm == "ring"
    forced = run_spec(replace(large, algorithm="tree", protocol="ll128"))
    assert (forced.algorithm, forced.protocol) == ("tree", "ll128")
    few = NcclOptions(environment=("NCCL_MAX_NCHANNELS=4", "NCCL_ALGO=Ring"))
    assert run_spec(replace(large, nccl=few)).channels == 4
    assert run_spec(replace(large, algorithm="ring", channels=3)).channels == 3


def test_a_release_is_imitated():
    two = Spec(Machine("hgx-h100", gpus_per_node=2), "all_reduce", 2**28, protocol="auto")
    old = replace(two, nccl=NcclOptions(version="2.27.3"))
    assert run_spec(two).nccl_version == "2.28.9"
    assert run_spec(old).algorithm == "ring"
    with pytest.raises(NetsimError, match=r"NCCL 2\.9\.1 is not covered"):
        run_spec(replace(two, nccl=NcclOptions(version="2.9.1")))


def test_registered_buffers_save_the_last_copy():
    large = replace(EIGHT, algorithm="ring", protocol="simple", size_bytes=2**25)
    assert run_spec(replace(large, nccl=NcclOptions(registered=True))).time_us < run_spec(large).time_us


def test_launches_cost_what_the_host_needs():
    small = replace(EIGHT, size_bytes=8)
    graph = run_spec(small)
    stream = run_spec(replace(small, nccl=NcclOptions(launch="stream", gpus_per_process=8)))
    free = run_spec(replace(small, nccl=NcclOptions(launch="none")))
    # One thread for eight GPUs needs 8 x 9.5 us a call; LL starts when its file says.
    assert stream.time_us == pytest.approx(76.0)
    assert stream.algbw_GBps == pytest.approx(8 / 76e-6 / 1e9)
    assert graph.time_us - free.time_us == pytest.approx(costs("hopper", "ll").start_s * 1e6, rel=1e-3)
    alone = run_spec(replace(small, nccl=NcclOptions(launch="stream")))
    assert alone.time_us == pytest.approx(graph.time_us)
    with pytest.raises(NetsimError, match="accepted are graph, stream, none"):
        NcclOptions(launch="quick")


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv", "gather"])
def test_sizes_are_rounded_as_nccl_tests_rounds_them(collective):
    row = run_spec(replace(EIGHT, collective=collective, size_bytes=100_003))
    rounded = 100_000 if collective in ("broadcast", "sendrecv") else 99_968
    assert row.size_bytes == rounded
    assert row.time_us > 0


def test_groups_have_communicators_of_their_own():
    row = run_spec(replace(EIGHT, groups="div:4"))
    assert row.ranks == 4
    assert row.time_us >= run_spec(replace(EIGHT, machine=Machine("hgx-h100", gpus_per_node=4))).time_us


def test_groups_that_are_alike_are_built_once_and_others_each(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def noted(found, *given, **asked):
        built.append(found.ranks)
        return build(found, *given, **asked)

    build = schedules.build
    monkeypatch.setattr(schedules, "build", noted)
    run_spec(replace(EIGHT, groups="div:4"))
    assert built == [4]
    # Two pairs on one server and one across two.
    run_spec(replace(EIGHT, machine=Machine("hgx-h100", nodes=2, nic="ndr400"), groups="0,1/2,8/3,4"))
    assert built == [4, 2, 2]


KERNELS = ("agxll_r", "agxllmc_r", "rsxld_agxst", "rsxldmc_agxstmc")
"""Of an all-reduce: one shot by LL, without and with multicast; two shots, without and in the switch."""


def on_windows_us(kernel, size, nccl=UNSTARTED):
    return run_spec(replace(EIGHT, algorithm=f"symmetric:{kernel}", size_bytes=size, nccl=nccl)).time_us


@pytest.mark.parametrize(("size", "kernel", "protocol"), [(8, "agxllmc_r", "ll"), (2**26, "rsxldmc_agxstmc", "simple")])
def test_windows_have_kernels_one_shot_for_a_few_bytes_and_sums_in_the_switch_for_many(size, kernel, protocol):
    row = run_spec(replace(EIGHT, algorithm="symmetric", size_bytes=size))
    assert (row.algorithm, row.protocol) == (f"symmetric:{kernel}", protocol)


@pytest.mark.parametrize("size", [8, 2**16, 2**20, 2**24])
def test_the_kernel_that_nccl_takes_is_within_a_tenth_of_the_quickest(size):
    taken = run_spec(replace(EIGHT, algorithm="symmetric", size_bytes=size, nccl=UNSTARTED))
    assert taken.time_us <= 1.1 * min(on_windows_us(kernel, size) for kernel in KERNELS)


def test_one_shot_is_quicker_for_a_few_bytes_and_two_shots_for_many():
    # One way by LL beside two ways and barriers; 2 x 7 S out of each GPU, LL's flags included, beside 14/8 S: eight times.
    assert on_windows_us("agxll_r", 8) < on_windows_us("rsxld_agxst", 8) / 2
    assert on_windows_us("agxll_r", 2**24) > 8 * on_windows_us("rsxld_agxst", 2**24)


def test_a_ring_of_eight_takes_the_fourteen_hops_of_which_one_shot_takes_one():
    ring = run_spec(replace(EIGHT, algorithm="ring", protocol="ll", size_bytes=8, nccl=UNSTARTED))
    assert ring.time_us == pytest.approx(14 * on_windows_us("agxll_r", 8), rel=0.03)


def test_a_kernel_on_windows_starts_as_late_whatever_its_bytes():
    late = [on_windows_us("agxll_r", size, NcclOptions()) - on_windows_us("agxll_r", size) for size in (8, 2**20)]
    assert late[0] == pytest.approx(late[1], rel=1e-6)
    assert late[0] > 1


def test_windows_have_copy_engines():
    copies = run_spec(replace(EIGHT, collective="alltoall", algorithm="copy_engine", size_bytes=2**26))
    assert copies.algorithm == "copy_engine"
    assert copies.time_us > 7 / 8 * 2**26 / 370.8e9 * 1e6  # what leaves each GPU, at the rate of its NVLinks


def test_windows_need_one_nvlink_domain_and_a_release_that_has_them():
    with pytest.raises(NetsimError, match="one NVLink domain"):
        run_spec(replace(EIGHT, machine=Machine("hgx-h100", nodes=2, nic="ndr400"), algorithm="symmetric"))
    with pytest.raises(NetsimError, match=r"NCCL 2\.26\.2 has none"):
        run_spec(replace(EIGHT, algorithm="symmetric", nccl=NcclOptions(version="2.26.2")))


def test_pieces_of_the_textbook_are_refused():
    with pytest.raises(NetsimError, match="by its own rules"):
        run_spec(replace(EIGHT, protocol="simple", chunks=4))


def test_a_run_can_be_looked_into():
    row, schedule, record = run_traced(replace(EIGHT, size_bytes=2**16))
    assert schedule.protocol == row.protocol == "ll"
    assert record.services is not None


def test_amd_gpus_are_not_known_to_nccl(tmp_path):
    dump = tmp_path / "rccl.xml"
    dump.write_text(
        '<system version="2"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="1">'
        + "".join(
            f'<pci busid="0000:0{bus}:00.0" class="0x038000" link_speed="16.0 GT/s PCIe" link_width="16">'
            f'<gpu dev="{bus - 1}" sm="104" gcn="910" rank="{bus - 1}" gdr="1"/></pci>'
            for bus in (1, 2)
        )
        + "</cpu></system>"
    )
    machine = Machine(str(dump))
    assert not is_known(machine)
    remarks = graph_of(machine).graph["remarks"]
    assert any("AMD's: RCCL runs there" in remark for remark in remarks)
    assert run_spec(Spec(machine, "all_reduce", 1 << 20, protocol="auto")).protocol == "ideal"


def test_a_gpu_alone_on_its_node_is_launched_like_any_of_its_generation():
    options = NcclOptions(launch="stream")
    alone = Machine("hgx-h100", nodes=2, nic="ndr400", gpus_per_node=1)
    assert least_call_s(alone, options, (0, 1)) == least_call_s(Machine("hgx-h100"), options, tuple(range(8)))


def test_pairs_are_those_that_the_environment_leaves():
    one_a_node = Machine("hgx-h100", nodes=4, nic="ndr400", gpus_per_node=1)
    assert ("pat", "simple") in pairs_of(one_a_node, NcclOptions(), "all_gather")
    assert ("pat", "simple") not in pairs_of(one_a_node, NcclOptions(environment=("NCCL_PAT_ENABLE=0",)), "all_gather")


def test_a_graph_file_is_read_again_when_it_has_changed(tmp_path):
    path = tmp_path / "graphs.xml"
    options = NcclOptions(environment=(f"NCCL_GRAPH_FILE={path}",))
    found = []
    for nodes in ("hgx-h100", "hgx-a100"):
        graphs = communicator_of(Machine(nodes), NcclOptions()).graphs
        path.write_text(format_dump({"ring": graphs["ring"]}))
        found.append(communicator_of(Machine("hgx-h100"), options).graphs["ring"].intra_GBps)
    # 12 x 30 GB/s of Hopper, 12 x 20 of Ampere.
    assert found == [30, 20]
