from pathlib import Path
from typing import Any

from netsim.fabric import NIC, NVSWITCH
from netsim.nccl.system import NET, NodeSystem, node_systems
from topologies import build
from topologies.custom import custom_topology


def wire(system: NodeSystem, source: str, target: str) -> tuple[str, int]:
    names = [device.name for device in system.devices]
    a, b = names.index(source), names.index(target)
    return next((one.type, one.capacity) for one in system.wires if (one.source, one.target) == (a, b))


def test_wires_carry_nccls_own_figures() -> None:
    # 18 x 20.6 = 370.8; Gen5 x16 48; Sapphire Rapids 22 GB/s.
    system = node_systems(build("hgx-h100")).systems[0]
    assert wire(system, "gpu3", "nvswitch") == ("NVL", 370_800)
    assert wire(system, "gpu3", "pcie_switch3") == ("PCI", 48_000)
    assert wire(system, "cpu0", "cpu1") == ("SYS", 22_000)
    assert (system.capability, system.cpu) == (90, ("x86_64", "GenuineIntel", 0x8F))
    assert system.assumptions == ()


def test_line_rates_and_profiles_do_not_change_what_nccl_sees() -> None:
    assert node_systems(build("hgx-h100", rate="line")).systems == node_systems(build("hgx-h100")).systems


def test_host_memory_is_no_device_and_ports_only_matter_between_nodes() -> None:
    graph = build("hgx-h100", nodes=2, nic="ndr400")
    kinds = [device.kind for device in node_systems(graph).systems[0].devices]
    # 8 GPUs, switch, 2 CPUs, 8 PCIe switches, 8 NICs with a port each.
    assert (len(kinds), kinds.count(NIC), kinds.count(NET), kinds.count(NVSWITCH)) == (35, 8, 8, 1)
    alone = node_systems(graph, ranks=range(8))
    assert (alone.nodes, alone.systems[0].nets) == ((tuple(range(8)),), ())


def test_machines_that_are_alike_share_a_system() -> None:
    layout = node_systems(build("hgx-h100", nodes=4, nic="ndr400"))
    assert len({id(system) for system in layout.systems}) == 1
    graph = build("hgx-h100", nodes=4, nic="ndr400").copy()
    graph.nodes["node2/gpu0"]["sm"] = 89
    assert len({id(system) for system in node_systems(graph).systems}) == 2


def test_several_ports_of_a_nic_share_its_rate() -> None:
    nodes: dict[str, Any] = {"net": {"kind": "network_switch"}}
    links = []
    for host in ("a", "b"):
        nodes[f"gpu_{host}"] = {"kind": "gpu", "host": host, "sm": 90}
        nodes[f"cpu_{host}"] = {"kind": "root_complex", "host": host, "cpu_vendor": "AuthenticAMD"}
        nodes[f"nic_{host}"] = {"kind": "nic", "host": host, "port": {"profile": "hdr200", "count": 2}}
        links += [{"between": [f"{device}_{host}", f"cpu_{host}"], "profile": "pcie5"} for device in ("gpu", "nic")]
        links.append({"between": [f"nic_{host}", "net"], "profile": "hdr200", "count": 2})
    system = node_systems(custom_topology({"nodes": nodes, "links": links})).systems[0]
    assert [system.net_GBps(net) for net in system.nets] == [25.0, 25.0]


def test_what_the_topology_leaves_open_is_inferred_from_links_or_assumed_aloud() -> None:
    def described(link: dict[str, Any]) -> NodeSystem:
        nodes = {"a": {"kind": "gpu"}, "b": {"kind": "gpu"}, "cpu": {"kind": "root_complex"}}
        links = [{"between": [gpu, "cpu"], "profile": "pcie4"} for gpu in "ab"]
        return node_systems(custom_topology({"nodes": nodes, "links": [*links, {"between": ["a", "b"], **link}]})).systems[0]

    for kind, capability in (("nvlink2", 70), ("nvlink3", 80), ("nvlink4", 90), ("nvlink5", 100)):
        assert described({"profile": kind}).capability == capability
    unknown = described({"latency": "1us", "bandwidth": "50 GB/s"})
    assert (unknown.capability, unknown.cpu) == (80, ("x86_64", "GenuineIntel", 0x55))
    assert len(unknown.assumptions) == 2
    assert "sm: 80" in unknown.assumptions[1] + unknown.assumptions[0]


def test_a_socket_is_told_by_its_link_to_another_one() -> None:
    graph = build("hgx-a100").copy()
    for node in ("cpu0", "cpu1"):
        for key in ("cpu_arch", "cpu_vendor", "cpu_model"):
            del graph.nodes[node][key]
    system = node_systems(graph).systems[0]
    assert (system.cpu[:2], wire(system, "cpu0", "cpu1")) == (("x86_64", "AuthenticAMD"), ("SYS", 16_000))


def test_the_two_h200_are_seen_as_their_dump_says(shared: Path) -> None:
    graph = build(str(shared / "samples" / "h200x2" / "nccl_topo_h200x2_vm.xml"))
    system = node_systems(graph).systems[0]
    # Width 0 stands for 16 lanes; model 207 is Emerald Rapids.
    assert (system.capability, system.cpu) == (90, ("x86_64", "GenuineIntel", 207))
    assert [wire(system, "gpu0", other.name) for other in system.devices if other.kind in (NVSWITCH, "root_complex")] == [
        ("PCI", 48_000),
        ("NVL", 370_800),
    ]
