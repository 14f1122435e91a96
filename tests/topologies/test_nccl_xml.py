import contextlib
import csv
import re
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netsim.errors import FabricError
from netsim.fabric import Link, check_fabric, ranks_of
from netsim.routing import Router
from topologies import build, remarks
from topologies.nccl_xml import load_nccl_xml

DATA = Path(__file__).parent / "data" / "two_gpus.xml"
GPU = (
    '<pci busid="0000:0{n}:00.0" class="0x030200" link_speed="{speed}" link_width="{width}">'
    '<gpu dev="{n}" sm="90" {more}</gpu></pci>'
)

# What cannot be told from a file alone: no class, no gpu element, so neither a GPU nor a NIC.
REFUSED = {"aws_g5_48xl.xml": "9 PCI entries carry no class", "aws_p5_h100_v1.xml": "40 PCI entries carry no class"}
SAMPLES = [
    "aws_g5_48xl",
    "aws_p4d_a100",
    "aws_p5_h100_v1",
    "azure_ncv4_a100",
    "azure_ndv2_v100",
    "azure_ndv4_a100",
    "azure_ndv5_h100",
    "oci_flattened",
    "oci_h100_dump",
    "rccl_topo_16p1h",
    "rccl_topo_3p_pcie",
    "rccl_topo_4p2h",
    "rccl_topo_4p4h",
    "rccl_topo_8p1h_2",
    "rccl_topo_8p6l",
    "rccl_topo_8p_90a",
    "rccl_topo_8p_pcie_2nic",
    "rccl_topo_8p_rome_n4",
    "rccl_topo_8p_ts1_n4_2",
    "rccl_topo_collnet_n4",
    "v100_8gpu_blank_link_speed",
]


def machine(tmp_path: Path, inside: str, cpu: str = 'numaid="0" arch="x86_64" vendor="GenuineIntel" modelid="143"') -> Path:
    path = tmp_path / "machine.xml"
    path.write_text(f'<system version="1"><cpu {cpu}>{inside}</cpu></system>', encoding="utf-8")
    return path


def gpu(n: int, more: str = ">", speed: str = "32.0 GT/s PCIe", width: str = "16") -> str:
    return GPU.format(n=n, more=more, speed=speed, width=width)


def bandwidth(graph: "nx.DiGraph[str]", a: str, b: str) -> float:
    return float(graph.edges[a, b]["link"].bandwidth_bytes_per_s)


def links_from(graph: "nx.DiGraph[str]", node: str) -> list[Link]:
    return [data["link"] for _, _, data in graph.out_edges(node, data=True)]


# The file that travels with the tests


def test_a_cpu_states_its_architecture_vendor_and_model(tmp_path: Path) -> None:
    stated = 'numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"'
    node = load_nccl_xml(machine(tmp_path, gpu(1), stated)).nodes["cpu0"]
    assert (node["cpu_arch"], node["cpu_vendor"], node["cpu_model"]) == ("x86_64", "GenuineIntel", 207)
    bare = load_nccl_xml(machine(tmp_path, gpu(1), 'numaid="0" arch="arm64"')).nodes["cpu0"]
    assert (bare["cpu_arch"], "cpu_vendor" in bare, "cpu_model" in bare) == ("arm64", False, False)


def test_ranks_follow_the_file_and_not_its_order() -> None:
    graph = load_nccl_xml(DATA)
    assert [graph.nodes[gpu]["busid"] for gpu in ranks_of(graph)] == ["0000:02:00.0", "0000:03:00.0"]


def test_all_nvswitches_are_one_node_and_counts_add_up() -> None:
    graph = load_nccl_xml(DATA)
    assert [graph.edges[gpu, "nvswitch"]["link"].count for gpu in ranks_of(graph)] == [18, 18]
    assert graph.nodes["nvswitch"]["multicast"] is graph.nodes["nvswitch"]["reduce"] is True


def test_traffic_between_gpus_takes_the_nvswitch_and_not_the_pcie_switch() -> None:
    router = Router(load_nccl_xml(DATA))
    assert [router.edges[index] for index in router.path(0, 1)] == [("gpu0", "nvswitch"), ("nvswitch", "gpu1")]


def test_pcie_links_have_the_reported_width() -> None:
    graph = load_nccl_xml(DATA)
    assert bandwidth(graph, "gpu0", "pcie-0000:01:00.0") == 24e9  # Gen5 x8: 48 x 8 / 16
    assert bandwidth(graph, "gpu1", "pcie-0000:01:00.0") == 48e9


def test_several_copies_use_the_nics_of_the_file() -> None:
    graph = build(str(DATA), nodes=2)
    assert graph.edges["node1/nic-0000:04:00.0", "network"]["link"].bandwidth_bytes_per_s == 50e9  # 400,000 Mbit/s
    assert len(graph.graph["ranks"]) == 4


def test_a_nic_kind_replaces_the_nics_of_the_file() -> None:
    graph = build(str(DATA), nodes=2, nic="xdr800")
    assert sorted(graph.predecessors("network")) == ["node0/nic0", "node0/nic1", "node1/nic0", "node1/nic1"]


def test_the_file_has_nothing_remarkable_but_its_narrow_slot() -> None:
    (remark,) = remarks(build(str(DATA)))
    assert remark == (
        "link pcie-0000:01:00.0<->gpu0 moves 24 GB/s where pcie links between gpu and pcie_switch usually move 48 GB/s"
    )


# Rules


@pytest.mark.parametrize(
    ("speed", "width", "rate"),
    [
        ("2.5 GT/s PCIe", "16", 3e9),
        ("5.0 GT/s PCIe", "16", 6e9),
        ("8 GT/s", "16", 12e9),
        ("16.0 GT/s PCIe", "8", 12e9),
        ("32 GT/s PCIe/s", "16", 48e9),
        ("64.0 GT/s PCIe", "4", 24e9),
        ("", "16", 12e9),  # unknown speed: Gen3
        ("Unknown", "0", 12e9),  # and unknown width: 16 lanes
        ("32.0 GT/s PCIe", "0", 48e9),
    ],
)
def test_pcie_bandwidth_is_lanes_times_generation(tmp_path: Path, speed: str, width: str, rate: float) -> None:
    graph = load_nccl_xml(machine(tmp_path, gpu(0, speed=speed, width=width)))
    assert bandwidth(graph, "gpu0", "cpu0") == rate


def test_unknown_speed_and_width_are_remarked_upon(tmp_path: Path) -> None:
    found = load_nccl_xml(machine(tmp_path, gpu(0, speed="", width="0"))).graph["remarks"]
    assert any("link_speed ''" in remark for remark in found)
    assert any("16 lanes" in remark for remark in found)


@pytest.mark.parametrize(("speed", "words"), [(1000, "management port"), (10**8, "fastest standard"), (400_000, None)])
def test_speeds_of_network_ports_that_look_wrong_are_remarked_upon(tmp_path: Path, speed: int, words: str | None) -> None:
    graph = load_nccl_xml(machine(tmp_path, gpu(0) + f'<nic><net name="x" speed="{speed}"/></nic>'))
    found = [remark for remark in graph.graph["remarks"] if f"states {speed} Mbit/s" in remark]
    assert [words in remark for remark in found if words] == ([True] if words else [])


def test_a_speed_that_the_user_states_is_no_remark(tmp_path: Path) -> None:
    path = str(machine(tmp_path, gpu(0, speed="")))
    assert any("link_speed" in remark for remark in build(path).graph["remarks"])
    graph = build(path, profile="pcie5")
    assert not any("link_speed" in remark for remark in graph.graph["remarks"])
    assert bandwidth(graph, "gpu0", "cpu0") == 48e9


def test_a_file_without_classes_says_how_to_get_one_with_them(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="1 PCI entries carry no class.*NCCL_TOPO_DUMP_FILE"):
        load_nccl_xml(machine(tmp_path, '<pci busid="0000:00:16.0"/>'))


@pytest.mark.parametrize(
    ("cpu", "rate"),
    [
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79"', 6e9),  # Broadwell
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"', 10e9),  # Skylake, 0x55
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="142"', 10e9),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"', 22e9),  # Sapphire Rapids, 0x8f
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"', 40e9),  # Emerald Rapids, 0xcf
        ('arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1"', 16e9),
        ('arch="x86_64" vendor="CentaurHauls" familyid="7" modelid="59"', 6e9),
        ('arch="arm64"', 6e9),
        ('arch="ppc64"', 32e9),
        ("", 10e9),
    ],
)
def test_socket_links_follow_the_kind_of_cpu(tmp_path: Path, cpu: str, rate: float) -> None:
    path = tmp_path / "two.xml"
    path.write_text(f'<system><cpu numaid="0" {cpu}>{gpu(0)}</cpu><cpu numaid="3" {cpu}>{gpu(1)}</cpu></system>')
    assert bandwidth(load_nccl_xml(path), "cpu0", "cpu3") == rate


@pytest.mark.parametrize(
    ("sm", "rate"), [(60, 36e9), (70, 40e9), (80, 40e9), (86, 24e9), (90, 41.2e9), (100, 80.2e9), (103, 80.2e9)]
)
def test_nvlink_rate_follows_the_sm_version(tmp_path: Path, sm: int, rate: float) -> None:
    peers = [gpu(n, f'><nvlink target="0000:0{1 - n}:00.0" count="2" tclass="0x030200"/>') for n in (0, 1)]
    graph = load_nccl_xml(machine(tmp_path, "".join(peers).replace('sm="90"', f'sm="{sm}"')))
    assert bandwidth(graph, "gpu0", "gpu1") == pytest.approx(rate)


def test_switches_before_hopper_neither_multicast_nor_reduce(tmp_path: Path) -> None:
    switched = gpu(0, '><nvlink target="0000:aa:00.0" count="12" tclass="0x068000"/>').replace('sm="90"', 'sm="80"')
    assert load_nccl_xml(machine(tmp_path, switched)).nodes["nvswitch"]["multicast"] is False


def test_a_link_that_only_one_gpu_lists_goes_both_ways_with_a_remark(tmp_path: Path) -> None:
    text = gpu(0, '><nvlink target="0000:01:00.0" count="2" tclass="0x030200"/>') + gpu(1)
    graph = load_nccl_xml(machine(tmp_path, text))
    assert graph.edges["gpu1", "gpu0"]["link"].count == 2
    assert any("does not list" in remark for remark in graph.graph["remarks"])


def test_a_power_nvlink_leads_to_the_cpu(tmp_path: Path) -> None:
    text = gpu(0, '><nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>')
    assert load_nccl_xml(machine(tmp_path, text)).edges["gpu0", "cpu0"]["link"].count == 3


def test_chip_to_chip_links_replace_the_pcie_link_to_the_same_cpu(tmp_path: Path) -> None:
    graph = load_nccl_xml(machine(tmp_path, gpu(0, '><c2c bw="44712" count="5"/>'), 'arch="arm64" numaid="0"'))
    assert bandwidth(graph, "gpu0", "cpu0") == 223.56e9  # 5 x 44.712


def test_hosts_of_several_machines_are_not_joined_by_a_socket_link(tmp_path: Path) -> None:
    switched = [gpu(n, '><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>') for n in (0, 1)]
    path = tmp_path / "rack.xml"
    cpus = "".join(f'<cpu host_hash="0x{n}" numaid="0" arch="arm64">{text}</cpu>' for n, text in enumerate(switched))
    path.write_text(f"<system>{cpus}</system>")
    graph = load_nccl_xml(path)
    assert not graph.has_edge("cpu0", "cpu1")
    assert len(ranks_of(graph)) == 2


def test_trays_of_one_domain_may_repeat_their_bus_ids(tmp_path: Path) -> None:
    link = '<nvlink target="FFFFFFF:FF:FF.0" count="18" tclass="0x068000"/>'
    pair = '<nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>'
    trays = [gpu(1, f'rank="{2 * n}">{link}{pair}') + gpu(2, f'rank="{2 * n + 1}">{link}') for n in (0, 1)]
    path = tmp_path / "rack.xml"
    cpus = "".join(f'<cpu host_hash="0x{n}" numaid="0" arch="arm64">{text}</cpu>' for n, text in enumerate(trays))
    path.write_text(f"<system>{cpus}</system>")
    graph = load_nccl_xml(path)
    assert ranks_of(graph) == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert {end: graph.edges["gpu2", end]["link"].count for end in graph.successors("gpu2")} == {
        "cpu1": 1,
        "nvswitch": 18,
        "gpu3": 4,
    }


def test_a_bus_id_is_a_number_however_it_is_written(tmp_path: Path) -> None:
    target = '><nvlink target="00000000:0A:00.0" count="4" tclass="0x030200"/>'
    text = gpu(0, target) + gpu(1).replace("0000:01:00.0", "0000:0a:00.0")
    assert load_nccl_xml(machine(tmp_path, text)).edges["gpu0", "gpu1"]["link"].count == 4


def test_whole_numbers_may_be_hexadecimal(tmp_path: Path) -> None:
    text = gpu(0, 'rank="0x1">') + gpu(1, 'rank="0x0">', width="0x8")
    graph = load_nccl_xml(machine(tmp_path, text, 'numaid="0x3" arch="x86_64" vendor="GenuineIntel" modelid="0x8f"'))
    assert bandwidth(graph, "gpu0", "cpu3") == 24e9  # 8 lanes of Gen5, 3 GB/s each; the other GPU has 48


def test_several_ranks_on_one_gpu_are_remarked_upon(tmp_path: Path) -> None:
    text = gpu(0).replace("</gpu>", '</gpu><gpu dev="0" sm="90"/>')
    graph = load_nccl_xml(machine(tmp_path, text))
    assert len(ranks_of(graph)) == 2
    assert any("stands for several ranks" in remark for remark in graph.graph["remarks"])


def test_gpus_without_a_rank_take_no_part(tmp_path: Path) -> None:
    graph = load_nccl_xml(machine(tmp_path, gpu(0) + gpu(1, 'rank="1">') + gpu(2, 'rank="0">') + gpu(3, 'rank="-1">')))
    assert [graph.nodes[name]["busid"][6] for name in ranks_of(graph)] == ["2", "1"]
    assert any("2 GPU(s) carry no rank" in remark for remark in graph.graph["remarks"])


def test_devices_of_other_classes_are_left_out_with_a_remark(tmp_path: Path) -> None:
    graph = load_nccl_xml(machine(tmp_path, gpu(0) + '<pci busid="0000:0e:00.0" class="0x010802"/>'))
    assert any("class 0x010802" in remark for remark in graph.graph["remarks"])


def test_direct_links_between_switches_limit_nothing(tmp_path: Path) -> None:
    bridge = '<pci busid="0000:{n}0:00.0" class="0x060400" link_speed="32 GT/s" link_width="16">{inside}</pci>'
    linked = gpu(0) + '<pcilink target="0000:20:00.0"/>'
    graph = load_nccl_xml(machine(tmp_path, bridge.format(n=1, inside=linked) + bridge.format(n=2, inside=gpu(1))))
    assert bandwidth(graph, "pcie-0000:20:00.0", "pcie-0000:10:00.0") == 5000e9


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("", "no GPU can be recognised"),
        ('<pci busid="0000:01:00.0" class="0x020000"/>', "no GPU can be recognised"),
        (gpu(0) + gpu(0), "two devices have the bus id '0000:00:00.0'"),
        (gpu(0).replace('busid="0000:00:00.0"', ""), "has no busid"),
        (gpu(0, 'rank="0">') + gpu(1, 'rank="0">'), "same rank"),
        (gpu(0, 'rank="minus">'), "rank='minus'"),
        (gpu(0, 'rank="-2">'), "rank='-2'"),
        (gpu(0, width="64"), "link_width='64'"),
        (gpu(0, width="-1"), "link_width='-1'"),
        (gpu(0, '><nvlink target="fffffff:ff:ff.0" count="1000000000" tclass="0x068000"/>'), "count='1000000000'"),
        (gpu(0, '><nvlink target="fffffff:ff:ff.0" count="0" tclass="0x068000"/>'), "count='0'"),
        (gpu(0, '><nvlink target="fffffff:ff:ff.0" count="18" tclass="switch"/>'), "tclass='switch'"),
        (gpu(0) + '<nic><net name="x" speed="9e99"/></nic>', "speed='9e99'"),
        (gpu(0).replace('sm="90"', 'sm="ninety"'), "sm='ninety'"),
        (gpu(0).replace("0x030200", "GPU"), "class='GPU'"),
    ],
)
def test_impossible_values_are_refused_with_their_line(tmp_path: Path, inside: str, words: str) -> None:
    with pytest.raises(FabricError, match=re.escape(words)):
        load_nccl_xml(machine(tmp_path, inside))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<graphs version="1"/>', "graph dump"),
        ("<html/>", "begins with <system>"),
        ("<system/>", "has no <cpu>"),
    ],
)
def test_other_xml_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "other.xml"
    path.write_text(text)
    with pytest.raises(FabricError, match=words):
        load_nccl_xml(path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 1500), junk=st.binary(max_size=6))
def test_a_damaged_file_loads_or_is_refused_and_never_crashes(tmp_path: Path, cut: int, junk: bytes) -> None:
    data = DATA.read_bytes()
    path = tmp_path / "damaged.xml"
    path.write_bytes(data[:cut] + junk + data[cut + len(junk) :])
    with contextlib.suppress(FabricError):
        check_fabric(load_nccl_xml(path))


# Real files


@pytest.fixture(scope="module")
def facts(shared: Path) -> Callable[[str, str], int]:
    with (shared / "samples" / "index.csv").open(encoding="utf-8") as stream:
        rows = {row["file"].removeprefix("nccl_topo_xml/"): row["expected_facts"] for row in csv.DictReader(stream)}

    def fact(name: str, pattern: str) -> int:
        match = re.search(pattern, rows[name])
        return int(match[1]) if match else 0

    return fact


@pytest.mark.parametrize("sample", [f"{name}.xml" for name in SAMPLES])
def test_every_sample_loads_with_the_devices_it_lists_or_is_refused_for_its_reason(
    shared: Path, facts: Callable[[str, str], int], sample: str
) -> None:
    path = shared / "samples" / "nccl_topo_xml" / sample
    if sample in REFUSED:
        with pytest.raises(FabricError, match=REFUSED[sample]):
            load_nccl_xml(path)
        return
    graph = load_nccl_xml(path)
    nics = [node for node, data in graph.nodes(data=True) if data["kind"] == "nic"]
    on_pci = [nic for nic in nics if any(link.kind.startswith("pcie") for link in links_from(graph, nic))]
    if sample == "v100_8gpu_blank_link_speed.xml":  # its row says it in words: 8 GPUs, one NIC with one port
        expected: tuple[int, ...] = (8, 1, 1)
    else:
        patterns = (r"gpu pci devices=(\d+)", r"nic pci devices=(\d+)", r"net ports=(\d+)")
        expected = tuple(facts(sample, pattern) for pattern in patterns)
    assert (len(ranks_of(graph)), len(on_pci), sum(len(graph.nodes[nic]["ports"]) for nic in nics)) == expected


@pytest.mark.parametrize("sample", [f"{name}.xml" for name in SAMPLES if name.startswith(("rccl", "oci_h100"))])
def test_gpu_links_are_as_many_as_the_sample_lists(shared: Path, facts: Callable[[str, str], int], sample: str) -> None:
    graph = load_nccl_xml(shared / "samples" / "nccl_topo_xml" / sample)
    links = [link for gpu in ranks_of(graph) for link in links_from(graph, gpu)]
    count = sum(link.count for link in links if link.kind.startswith(("nvlink", "xgmi")))
    assert count == facts(sample, r"lanes=(\d+)") + facts(sample, r"count sum=(\d+)")


def test_no_sample_is_forgotten(shared: Path) -> None:
    assert sorted(SAMPLES) == sorted(path.stem for path in (shared / "samples" / "nccl_topo_xml").glob("*.xml"))


def test_the_h200_dump_is_two_gpus_over_nvswitch_at_the_effective_rate(shared: Path) -> None:
    graph = build(str(shared / "samples" / "h200x2" / "nccl_topo_h200x2_vm.xml"))
    router = Router(graph)
    edges = [router.edges[index] for index in router.path(0, 1)]
    assert edges == [("gpu0", "nvswitch"), ("nvswitch", "gpu1")]
    assert [bandwidth(graph, *edge) for edge in edges] == [pytest.approx(370.8e9)] * 2
    assert graph.edges["gpu0", "nvswitch"]["link"].line_rate_bytes_per_s == 450e9
    assert graph.nodes["nvswitch"]["multicast"] is True


def test_the_misreported_bridges_of_a_dump_are_remarked_upon_once(shared: Path) -> None:
    found = load_nccl_xml(shared / "samples" / "nccl_topo_xml" / "oci_h100_dump.xml").graph["remarks"]
    assert [remark for remark in found if remark.startswith("8 bridge(s) report 5.0 GT/s")]


def test_two_levels_of_a_broadcom_switch_are_one(shared: Path) -> None:
    router = Router(load_nccl_xml(shared / "samples" / "nccl_topo_xml" / "oci_h100_dump.xml"))
    graph = router.graph
    assert set(graph.successors("gpu0")) == {"nvswitch", "pcie-0000:08:00.0"}
    assert "pcie-0000:08:00.0" in graph.successors("nic-0000:0c:00.0")


def test_gpus_recognised_by_class_say_that_nvlink_is_missing(shared: Path) -> None:
    found = build(str(shared / "samples" / "nccl_topo_xml" / "azure_ndv5_h100.xml")).graph["remarks"]
    assert any("lists no NVLink" in remark for remark in found)


def test_nics_of_unknown_speed_become_the_kind_asked_for(shared: Path) -> None:
    path = str(shared / "samples" / "nccl_topo_xml" / "azure_ndv5_h100.xml")
    graph = build(path, nodes=2, nic="ndr400")
    assert graph.in_degree("network") == 16
    with pytest.raises(FabricError, match="known speed"):
        build(path, nodes=2)
