"""Sections 1 and 4 of the article: one link, what it reaches, and the links of machines side by side."""

from collections.abc import Iterator

import networkx as nx

import topologies
from netsim.errors import FabricError
from netsim.fabric import GPU, PCIE_SWITCH, Link, check_fabric
from netsim.runs import time
from netsim.units import parse_rate
from scenarios.article import LARGE_BYTES, NDR, NVLINK4, NVLINK5, PCIE5, Line, copy_s, least_size, rate_of, ring_s, switch
from scenarios.packets import payload_rate
from topologies.profiles import load_profile

COPY_BYTES = 128 << 20
WIDE = Link(0.0, 1e15)
_RACK = "alltoall_nvl72.yaml"


def link_lines() -> Iterator[Line]:
    """Yield section 1: the laptop's link, the H200's, and what no link model says."""
    yield from _laptop()
    yield from _one_engine()
    yield from _h200()
    section = "1 link"
    name = "two ranks on one GPU"
    yield Line(section, name, "", "refused", _two_ranks_on_one_gpu(), "NCCL: 'Duplicate GPU detected'")


def _laptop() -> Iterator[Line]:
    section, scenario, at_line = "1 link", "laptop_copies.yaml", "laptop_line_rate.yaml"
    profile = load_profile("laptop_pcie4_x8")
    link, line = profile.link(), profile.link(rate="line")
    yield Line(section, "laptop, alpha: an empty copy", "us", "8.25", copy_s(0, link) * 1e6, scenario=scenario)
    rate = rate_of(link)
    yield Line(section, "laptop, B: a large copy", "GB/s", "13.45", rate / 1e9, scenario=scenario)
    yield Line(
        section,
        "laptop, behind the fit: warm-up copies; trials x copies; at 256 MiB",
        "",
        "3; 15 x 200; 7 x 2",
        None,
        "how often a noisy link is measured; a simulated one gives the same time every time",
    )
    half = least_size(lambda size: size / copy_s(size, link) >= rate / 2, 1, 1 << 30)
    note = "alpha B = 8.25 us x 13.45 GB/s"
    yield Line(section, "laptop, half of B is reached at n_half", "KB", "111", half / 1e3, note, scenario=scenario)
    note = "9 is the measured time of both; the line fitted through all sizes gives alpha + n/B"
    for size in (4, 4096):
        seconds = copy_s(size, link)
        yield Line(section, f"laptop, a copy of {size} bytes", "us", "9", seconds * 1e6, note, size == 4, scenario)
    yield Line(
        section,
        "laptop, one synchronous 4-byte copy seen from the CPU",
        "us",
        "21 to 24",
        None,
        "launch and wait are the CPU's and the driver's, not the link's",
    )
    yield Line(section, "laptop, line rate of PCIe Gen4 x8", "GB/s", "15.754", rate_of(line) / 1e9, scenario=at_line)
    yield Line(section, "laptop, share of the line rate", "%", "85", 100 * rate / rate_of(line), scenario=scenario)
    share = 100 * payload_rate(128) / rate_of(line)
    note = "20 bytes beside every 128 (framing 4, header 12, checksum 4): suggestive of the 85 %, not a proof"
    what = "packets of 128 bytes, payload's share of the line rate"
    yield Line(section, what, "%", "86", share, note, scenario="packets.py")
    size = 256 << 20
    note = "13.3 is the measured point; the line fitted through all sizes passes 1 % above it"
    seconds = copy_s(size, link)
    what = "laptop, 256 MiB from pinned memory"
    yield Line(section, what, "GB/s", "13.3", size / seconds / 1e9, note, True, scenario)
    yield Line(
        section,
        "laptop, large copies from pageable memory",
        "GB/s",
        "12.0",
        None,
        "the driver stages pageable memory through a buffer of its own, whose cost no profile states",
    )


def _one_engine() -> Iterator[Line]:
    section, scenario = "1 link", "copy_engine.yaml"
    both = time("sendrecv", COPY_BYTES, _engines(shared=True), algorithm="direct")
    note = "both directions queue at the one engine, at the 13.3 GB/s of large copies"
    yield Line(section, "128 MiB each way at once, one copy engine", "ms", "20.2", both * 1e3, note, scenario=scenario)
    rate = 2 * COPY_BYTES / both
    yield Line(section, "128 MiB each way at once, both together", "GB/s", "13.3", rate / 1e9, scenario=scenario)
    both = time("sendrecv", COPY_BYTES, _engines(shared=False), algorithm="direct")
    yield Line(section, "128 MiB each way at once, two copy engines", "ms", "", both * 1e3, "the directions overlap")


def _engines(*, shared: bool) -> "nx.DiGraph[str]":
    """Return host and GPU with one copy engine, a link that both directions take, or with one engine each way."""
    graph: nx.DiGraph[str] = nx.DiGraph(name="copy engine")
    for node in ("host", "gpu"):
        graph.add_node(node, kind=GPU)
    engine = Link(0.0, parse_rate("13.3GB/s"), gap_s=8.25e-6)
    if not shared:
        graph.add_edge("host", "gpu", link=engine)
        graph.add_edge("gpu", "host", link=engine)
        return graph
    for node in ("queue", "engine"):
        graph.add_node(node, kind=PCIE_SWITCH)
    graph.add_edge("queue", "engine", link=engine)
    for node in ("host", "gpu"):
        graph.add_edge(node, "queue", link=WIDE)
        graph.add_edge("engine", node, link=WIDE)
    return graph


def _h200() -> Iterator[Line]:
    section, scenario = "1 link", "h200_copies.yaml"
    profile = load_profile("pcie5_h200_copy")
    link, line = profile.link(), profile.link(rate="line")
    yield Line(section, "H200, line rate of PCIe Gen5 x16", "GB/s", "63.0", rate_of(line) / 1e9, scenario="link_rates.yaml")
    yield Line(section, "H200, a large copy", "GB/s", "55.4", rate_of(link) / 1e9, scenario=scenario)
    share = 100 * rate_of(link) / rate_of(line)
    yield Line(section, "H200, share of the line rate", "%", "88", share, scenario=scenario)
    for size, words in ((4, "4 bytes"), (32 << 10, "32 KiB")):
        note = "the link's floor: a least time that a message occupies it"
        yield Line(section, f"H200, a copy of {words}", "us", "3.6", copy_s(size, link) * 1e6, note, scenario=scenario)
    note = "measured 3.83: the fitted line 3 us + n/B leaves the floor at 33 KB, the real link only near 64 KiB"
    seconds = copy_s(64 << 10, link)
    yield Line(section, "H200, a copy of 64 KiB", "us", "3.6", seconds * 1e6, note, True, scenario)


def _two_ranks_on_one_gpu() -> str:
    graph = topologies.build("rtx4060-laptop")
    graph.graph["ranks"] = ("gpu0", "gpu0")
    try:
        check_fabric(graph)
    except FabricError:
        return "refused"
    return "accepted"


def machine_lines() -> Iterator[Line]:
    """Yield section 4's links: each at its line rate, their ratios, and whole machines."""
    section, scenario = "4 links", "link_rates.yaml"
    elsewhere = {"NVLink 4, one link": "", "PCIe Gen4 x8": "laptop_line_rate.yaml"}
    for name, profile, count, lanes, stated in (
        ("NVLink 4, 18 links", "nvlink4", 18, None, "450"),
        ("NVLink 4, one link", "nvlink4", 1, None, "25"),
        ("NVLink 5, 18 links", "nvlink5", 18, None, "900"),
        ("PCIe Gen4 x8", "laptop_pcie4_x8", 1, None, "15.754"),
        ("PCIe Gen4 x16", "pcie4", 1, 16, "31.5"),
        ("PCIe Gen5 x16", "pcie5", 1, 16, "63.0"),
        ("400 Gb/s port", "ndr400", 1, None, "50"),
    ):
        rate = rate_of(load_profile(profile).link(rate="line", count=count, lanes=lanes))
        where = elsewhere.get(name, scenario)
        yield Line(section, f"{name}, a large copy at the line rate", "GB/s", stated, rate / 1e9, scenario=where)
    one_way = {
        rate: time("sendrecv", LARGE_BYTES, switch(2, rate, "0s"), algorithm="direct")
        for rate in (NVLINK4, NVLINK5, PCIE5, "160GB/s", NDR)
    }
    for name, slow, fast, stated in (
        ("NVLink 4 against PCIe Gen5 x16", PCIE5, NVLINK4, "7"),
        ("H800 NVLink (160 GB/s) against its InfiniBand port", NDR, "160GB/s", "3.2"),
        ("B200 NVLink against its 400 Gb/s port", NDR, NVLINK5, "18"),
    ):
        ratio = one_way[slow] / one_way[fast]
        yield Line(section, name, "times", stated, ratio, "by the time of a large message", scenario=scenario)
    h800 = topologies.build("hgx-h800", gpus_per_node=2)
    rate = LARGE_BYTES / time("sendrecv", LARGE_BYTES, h800, algorithm="direct")
    note = "eight links at the 20.6 GB/s of the profile (25 at line rate) carry a little more than the article says"
    yield Line(section, "H800 NVLink, a large message", "GB/s", "160", rate / 1e9, note, True)
    rack = topologies.build("gb200-nvl72", rate="line")
    note = "added up over the machine's links, both directions"
    yield Line(section, "NVL72, GPUs in one NVLink domain", "", "72", len(rack.graph["ranks"]), scenario=_RACK)
    yield Line(section, "NVL72, all NVLinks", "TB/s", "130", _nvlinks(rack) / 1e12, note)
    box = topologies.build("hgx-b200", rate="line")
    yield Line(section, "8 B200, all NVLinks", "TB/s", "14.4", _nvlinks(box) / 1e12, note)
    yield Line(
        section,
        "NVLink Switch System of H100, GPUs",
        "",
        "256",
        None,
        "a limit of the product; no preset describes that machine",
    )
    yield from _islands(rack)
    yield from _gpudirect()


def _nvlinks(graph: "nx.DiGraph[str]") -> float:
    """Return the bytes per second of all NVLinks of a machine, both directions."""
    links = (graph.edges[edge]["link"] for edge in graph.edges)
    return float(sum(link.bandwidth_bytes_per_s for link in links if link.kind.startswith("nvlink")))


def _islands(rack: "nx.DiGraph[str]") -> Iterator[Line]:
    section, size = "4 all-to-all", 72 << 24
    whole = time("alltoall", size, rack, algorithm="direct")
    islands = topologies.build("hgx-b200", nodes=9, nic="ndr400", rate="line")
    split = time("alltoall", size, islands, algorithm="direct")
    what = "72 GPUs, 16 MiB a pair"
    yield Line(section, f"NVL72, {what}", "ms", "", whole * 1e3, scenario=_RACK)
    yield Line(section, f"nine 8-GPU islands, {what}", "ms", "", split * 1e3, scenario="alltoall_islands.yaml")
    note = "of 71 blocks 64 cross the 400 Gb/s port, so 18 x 64/71"
    yield Line(
        section,
        "NVL72 against nine 8-GPU islands",
        "times faster",
        "",
        split / whole,
        note,
        scenario="alltoall_islands.yaml",
    )


def _gpudirect() -> Iterator[Line]:
    times = {}
    for direct, name in ((True, "with"), (False, "without")):
        graph = topologies.build("hgx-a100", nodes=4, nic="hdr200", gpus_per_node=1, gpudirect=direct)
        times[direct] = ring_s(1 << 30, graph)
        scenario = "gpudirect_on.yaml" if direct else "gpudirect_off.yaml"
        what = f"hgx-a100 x 4, one GPU each, 1 GiB ring, {name} GPUDirect"
        yield Line("4 GPUDirect", what, "ms", "", times[direct] * 1e3, scenario=scenario)
    note = "staged in host memory the data crosses the uplink of the PCIe switch twice each way"
    yield Line(
        "4 GPUDirect",
        "without against with GPUDirect",
        "times slower",
        "",
        times[False] / times[True],
        note,
        scenario="gpudirect_off.yaml",
    )
