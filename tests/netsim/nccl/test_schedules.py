"""Every collective, algorithm and protocol of NCCL on machines of all kinds: built, proved, run, held against bounds."""

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import topologies
from netsim.errors import NetsimError
from netsim.metrics.bounds import collective_bound
from netsim.nccl.availability import serves
from netsim.nccl.communicator import Communicator
from netsim.nccl.from_topology import communicator
from netsim.nccl.schedules import COLLECTIVES, PEERS, Built, build
from netsim.nccl.tuner_constants import ALGORITHMS, PROTOCOLS
from netsim.nccl.tuner_costs import TUNED
from netsim.nccl.version import Version
from netsim.record import Record
from netsim.routing import Router
from netsim.runs import simulate
from netsim.schedule.proof import prove

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[str]

KIB, MIB = 2**10, 2**20
SLOW = pytest.mark.slow
IN_SWITCH = ("nvls", "nvls_tree")
BLOCKS = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
"""Collectives in which each rank has a block, so that nccl-tests rounds the size."""


@lru_cache(maxsize=2)
def machine(name: str, nodes: int = 1, gpus: int | None = None, fabric: str = "one-switch") -> "Graph":
    more: dict[str, Any] = {} if nodes == 1 else {"nodes": nodes, "nic": "ndr400", "fabric": fabric}
    return topologies.build(name, gpus_per_node=gpus, **more)


def whole(collective: str, size: int, ranks: int, align: int = 1) -> int:
    """Return the size as nccl-tests would round it."""
    return size // (ranks * align) * ranks * align if collective in BLOCKS else size


def run(router: Router, group: Communicator, collective: str, size: int, **more: Any) -> tuple[Built, Record]:
    """Build and simulate a collective, and prove it where it is small; no result may be below what its bytes need."""
    align = more.pop("align_bytes", 1)
    built = build(group, collective, whole(collective, size, group.ranks, align), align_bytes=align, **more)
    if len(built.schedule) < 20_000:
        prove(built.schedule)
    record = simulate(router, built.schedule, record="summary")
    least = collective_bound(
        collective,
        built.schedule.size_bytes,
        router,
        in_network=built.algorithm in IN_SWITCH,
        protocol=built.schedule.protocol,
    )
    assert record.time_s >= least * (1 - 1e-9)
    return built, record


def served(group: Communicator) -> list[tuple[str, str, str]]:
    """Return every collective with each algorithm and protocol that NCCL would run on a machine if it was told to."""
    found = [
        (collective, PEERS, protocol) for collective in COLLECTIVES if collective not in TUNED for protocol in PROTOCOLS
    ]
    found = [pair for pair in found if pair[2] != "ll128"]
    refused: list[str] = []
    for collective in TUNED:
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                if not serves(group.version, collective, algorithm, protocol):
                    continue
                try:
                    build(group, collective, 0, algorithm=algorithm, protocol=protocol)
                except NetsimError as error:
                    refused.append(str(error))
                else:
                    found.append((collective, algorithm, protocol))
    assert all("on this machine" in words for words in refused)
    return found


def every(graph: "Graph", *sizes: int) -> set[str]:
    """Run all that a machine serves and return the algorithms that were met."""
    router, group = Router(graph), communicator(graph)
    for collective, algorithm, protocol in served(group):
        for size in sizes:
            built, record = run(router, group, collective, size, algorithm=algorithm, protocol=protocol)
            assert built.algorithm == algorithm
            assert record.time_s > 0 or group.ranks == 1 or not whole(collective, size, group.ranks)
    return {algorithm for _, algorithm, _ in served(group)}


@pytest.mark.parametrize(
    ("name", "algorithms"),
    [
        ("hgx-h100", {"ring", "tree", "nvls"}),
        ("pcie-gen4-8", {"ring", "tree"}),
        pytest.param("hgx-a100", {"ring", "tree"}, marks=SLOW),
        pytest.param("hgx-b200", {"ring", "tree", "nvls"}, marks=SLOW),
        pytest.param("dgx-1v", {"ring", "tree"}, marks=SLOW),
        pytest.param("l40s-8", {"ring", "tree"}, marks=SLOW),
        pytest.param("rtx5090-8", {"ring", "tree"}, marks=SLOW),
        pytest.param("gh200-4", {"ring", "tree"}, marks=SLOW),
    ],
)
def test_all_that_a_server_has_is_right_and_not_too_fast(name: str, algorithms: set[str]) -> None:
    assert every(machine(name), 0, 1, 100_003) == {*algorithms, PEERS}


@SLOW
@pytest.mark.parametrize("name", ["hgx-h100", "hgx-b200", "dgx-1v", "rtx5090-8"])
def test_larger_sizes_on_a_server_too(name: str) -> None:
    every(machine(name), 4_000_037)


@SLOW
def test_all_that_a_rack_has_is_right_and_not_too_fast() -> None:
    assert every(machine("gb200-nvl72"), 300_001) == {"ring", "tree", "nvls", PEERS}


def over_nodes(*, slow: bool) -> list[Any]:
    marks = SLOW if slow else ()
    return [
        pytest.param(nodes, gpus, fabric, marks=marks)
        for nodes in (2, 3, 4)
        for gpus in range(1, 9)
        for fabric in ("one-switch", "rails")
        if slow != ((nodes, gpus, fabric) in FEW)
    ]


FEW = [(2, 8, "one-switch"), (3, 1, "rails"), (3, 2, "rails")]


@pytest.mark.parametrize(("nodes", "gpus", "fabric"), [*over_nodes(slow=False), *over_nodes(slow=True)])
def test_all_that_nodes_have_is_right_and_not_too_fast(nodes: int, gpus: int, fabric: str) -> None:
    algorithms = {"ring", "tree", PEERS, "pat" if gpus == 1 else "nvls_tree"}
    assert every(machine("hgx-h100", nodes, gpus, fabric), 100_003) == algorithms


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_and_no_bytes_move_nothing(collective: str) -> None:
    for graph, size in ((machine("hgx-h100", gpus=1), 1000), (machine("hgx-h100", gpus=4), 0)):
        _, record = run(Router(graph), communicator(graph), collective, size)
        assert not record.link_bytes.any()


RELEASES = ("2.17.1", "2.28.9", "2.30.7")
BETWEEN = "2.18.5 2.19.4 2.20.5 2.21.5 2.22.3 2.23.4 2.24.3 2.25.1 2.26.5 2.27.7 2.29.2"


@pytest.mark.parametrize("release", [*RELEASES, *(pytest.param(release, marks=SLOW) for release in BETWEEN.split())])
def test_every_release_runs_every_collective(release: str) -> None:
    for graph in (machine("hgx-h100", gpus=4), machine("hgx-h100", 2, 2)):
        router, group = Router(graph), communicator(graph, Version.parse(release))
        for collective in COLLECTIVES:
            for size in (4_004, 400_004):
                built, _ = run(router, group, collective, size, align_bytes=4)
                assert (built.choice is None) == (collective not in TUNED)


def asked(environment: Mapping[str, str], size: int = 64 * MIB, **more: Any) -> Built:
    """Return what an H100 server runs for an all-reduce if NCCL is told so."""
    return build(communicator(machine("hgx-h100"), environment=environment), "all_reduce", size, **more)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("nvls", "simple", 16)),
        ({"NCCL_NVLS_ENABLE": "0"}, ("ring", "ll128", 24)),
        ({"NCCL_NVLS_NCHANNELS": "4"}, ("nvls", "simple", 4)),
        ({"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_NCHANNELS": "5"}, ("ring", "ll128", 5)),
        ({"NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "40"}, ("ring", "simple", 40)),
        ({"NCCL_ALGO": "Tree"}, ("tree", "ll128", 24)),
        ({"NCCL_PROTO": "LL128"}, ("ring", "ll128", 24)),
        ({"NCCL_ALGO": "^NVLS,Ring", "NCCL_PROTO": "LL"}, ("tree", "ll", 24)),
    ],
)
def test_a_variable_has_its_effect(environment: dict[str, str], expected: tuple[str, str, int]) -> None:
    found = asked(environment, 16 * MIB)
    assert (found.algorithm, found.protocol, found.channels) == expected


def test_a_smaller_buffer_means_smaller_slices() -> None:
    # A channel's 2 MiB of 48: slices of half a chunk, 2 MiB / 8 / 2 = 128 KiB each, or of a quarter of the buffer's 128 KiB.
    large, small = (
        asked({"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", **buffer}, 48 * MIB, free=True).schedule
        for buffer in ({}, {"NCCL_BUFFSIZE": str(128 * KIB)})
    )
    assert (int(large.size.max()), int(small.size.max())) == (128 * KIB, 32 * KIB)


def crossed(graph: "Graph", record: Record) -> dict[str, list[int]]:
    """Return the bytes of every link by the kinds of its ends, links of GPUs and NICs without traffic left out."""
    found: dict[str, list[int]] = {}
    for (source, target), size in zip(record.edges, record.link_bytes.tolist(), strict=True):
        kinds = f"{graph.nodes[source]['kind']}->{graph.nodes[target]['kind']}"
        if size:
            found.setdefault(kinds, []).append(size)
    return found


def test_without_relays_a_rail_is_reached_by_the_network_only() -> None:
    # Two nodes of eight: 8 of 16 blocks stay on the node or go to oneself, 7 of the other 8 go by NVLink first.
    graph = machine("hgx-h100", 2, 8, "one-switch")
    for environment, share in (({}, 14), ({"NCCL_PXN_DISABLE": "1"}, 7)):
        group = communicator(graph, environment=environment)
        _, record = run(Router(graph), group, "alltoall", MIB, align_bytes=4, protocol="simple")
        assert crossed(graph, record)["gpu->nvswitch"] == [MIB * share // 16] * 16
        assert crossed(graph, record)["nic->network_switch"] == [MIB // 2] * 16


def test_cross_nic_decides_where_rings_leave_a_node() -> None:
    def ends(value: str) -> list[tuple[int | None, int | None]]:
        group = communicator(machine("hgx-h100", 2, 8), environment={"NCCL_CROSS_NIC": value})
        return [(order.nic_in, order.nic_out) for order in group.graphs["ring"].orders]

    assert all(into == out for into, out in ends("0"))
    assert all(into != out for into, out in ends("1"))
    assert ends("2")[:2] == [(0, 1), (1, 0)]  # in pairs that run against each other


# A measured pair


OUR_NAMES = {"AllReduce": "all_reduce", "AllGather": "all_gather"}


def test_two_h200s_run_what_nccl_logged(shared: Path) -> None:
    pair = communicator(
        topologies.build(str(shared / "samples" / "h200x2" / "nccl_topo_h200x2_vm.xml")),
        Version(2, 28, 9),
        environment={"NCCL_NVLS_ENABLE": "0"},
    )
    with open(shared / "measurements" / "h200x2" / "nccl_choices_h200x2.csv", encoding="utf-8") as file:
        logged = [row for row in csv.DictReader(file) if row["forced"] == "default"]
    for row in logged:
        found = build(pair, OUR_NAMES[row["collective"]], int(row["size_bytes"]), free=True)
        assert (found.algorithm, found.protocol, found.channels) == (
            row["algo"].lower(),
            row["proto"].lower(),
            int(row["channels"]),
        ), row
    assert len(logged) == 54
