"""Topology of a real machine from NCCL's XML (NCCL_TOPO_DUMP_FILE, or a file meant for NCCL_TOPO_FILE).

Reads what NCCL reads and with its bandwidth rules (NCCL 2.30's topology constants, through the link profiles): a cpu
becomes a root complex with host memory, a PCI bridge a PCIe switch, a device of GPU class a GPU, of network class a
NIC; all NVSwitches become one node. A link_speed and link_width describe the link above a device. What the file leaves
open is filled with NCCL's default and noted in the graph's ``remarks``. AMD's xgmi links are read as direct links.
Deliberately left out: NCCL's path types and search, the Intel rule that peer-to-peer through a host bridge loads a link
by 6/5, MIG, and any staging between GPUs.
"""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from netsim.errors import FabricError
from netsim.fabric import GPU, NIC, NVSWITCH, PCIE_SWITCH, Link, check_fabric
from topologies.nccl_elements import Element, read_elements
from topologies.nccl_rules import (
    bus_key,
    cpu_attributes,
    hexadecimal,
    model,
    number,
    nvlink_profile,
    pcie_generation,
    socket_profile,
    xgmi_profile,
)
from topologies.profiles import load_profile
from topologies.wiring import add_socket, join

if TYPE_CHECKING:
    import networkx as nx

_NVSWITCH_CLASS, _CPU_BRIDGE_CLASS, _BRIDGE_CLASS = 0x068000, 0x068001, 0x0604
_GPU_CLASSES, _NIC_CLASS = (0x03, 0x12), 0x02
_DEFAULT_GENERATION, _DEFAULT_LANES, _MOST_LANES = 3, 16, 32
_DEFAULT_NET_MBITS = 10_000
# Slower than what GPU servers are connected with; and the fastest Ethernet being standardised (IEEE 802.3dj, 1.6 Tb/s).
_SLOW_NET_MBITS, _MOST_NET_MBITS = 10_000, 1_600_000
_BYTES_PER_S_PER_MBITS = 125_000
# Two levels of one of these Broadcom switches are one switch to NCCL (Gen4 and Gen5 parts).
_BROADCOM = {("0x1000", "0xc010"), ("0x1000", "0xc030")}
# What NCCL gives to links that never limit, between parts of one switch or to a NIC that is no PCI device: 5000 GB/s.
_LOCAL = Link(0.0, 5000e9, kind="local")
_MOST_LINKS = 4096


def load_nccl_xml(path: str | Path, *, rate: str = "effective", stated: Collection[str] = ()) -> "nx.DiGraph[str]":
    """Load a machine from an NCCL topology file.

    Parameters
    ----------
    path : str or Path
        The XML file.
    rate : {"effective", "line"}
        Which rate of the link profiles to use.
    stated : collection of str
        Families of links (``pcie``, ``socket``) that the caller replaces, so that their defaults are no remark.

    Returns
    -------
    networkx.DiGraph
        Ranks by the file's ``rank`` (or ``dev``, or position); ``remarks`` lists every default that was filled in.

    Raises
    ------
    FabricError
        If the file is no NCCL topology, has no recognisable GPU, or holds impossible values; the message says where.
    """
    source = Path(path)
    root = read_elements(source)
    if root.tag != "system":
        hint = "; this is a graph dump (NCCL_GRAPH_DUMP_FILE), not a topology" if root.tag == "graphs" else ""
        raise FabricError(f"{source}: the root element is <{root.tag}>, but an NCCL topology begins with <system>{hint}")
    graph = _Loader(str(source), rate, stated).load(root)
    graph.graph["name"] = source.stem
    check_fabric(graph)
    return graph


class _Loader:
    """Builds the graph of one file; holds what must be remembered between elements."""

    def __init__(self, where: str, rate: str, stated: Collection[str]) -> None:
        import networkx as nx

        self.where = where
        self.rate = rate
        self.stated = stated
        self.graph: nx.DiGraph[str] = nx.DiGraph()
        self.defaults: Counter[str] = Counter()
        self.remarks: list[str] = []
        self.host = ""
        self.host_of: dict[str, str] = {}
        self.nodes_of_bus: dict[str, list[str]] = {}
        self.gpus: list[tuple[str, Element]] = []
        self.sockets: list[tuple[str, Element]] = []
        self.pcilinks: list[tuple[str, Element]] = []
        self.has_gpu_tags = False
        self.classless = 0
        self.slow_bridges: dict[tuple[str, int], list[str]] = {}

    def load(self, root: Element) -> "nx.DiGraph[str]":
        cpus = root.each("cpu")
        if not cpus:
            raise FabricError(f"{self.where}: <system> has no <cpu>; an NCCL topology has one for each NUMA domain")
        self.has_gpu_tags = root.holds("gpu")
        for index, (cpu, numa) in enumerate(zip(cpus, self._numa_numbers(cpus), strict=True)):
            name = f"cpu{numa}"
            # Trays of one NVLink domain are in one file and repeat each other's bus ids.
            self.host = cpu.attributes.get("host_hash", "")
            add_socket(self.graph, name, f"memory{numa}", "node0", load_profile("host_memory").link(self.rate))
            self.graph.nodes[name].update(cpu_attributes(self.where, cpu))
            self.sockets.append((name, cpu))
            for child in cpu.children:
                if child.tag == "pci":
                    self._pci(child, name, None, None)
                elif child.tag == "nic":
                    self._nic(child, f"nic-cpu{index}", name, None)
        self._rank_gpus()
        self._join_sockets()
        self._nvlinks()
        without = sum(gpu.attributes.get("gdr") == "0" for _, gpu in self.gpus)
        if without:
            self.remarks.append(f"{without} GPU(s) state gdr=0: GPUDirect was off on this machine")
        for switch, element in self.pcilinks:
            for other in self.nodes_of_bus.get(bus_key(self.host_of[switch], element.attributes.get("target", "")), []):
                if other != switch:
                    join(self.graph, switch, other, _LOCAL)
        for (speed, fastest), buses in self.slow_bridges.items():
            self.remarks.append(
                f"{len(buses)} bridge(s) report {speed} above devices of PCIe Gen{fastest} ({', '.join(buses[:3])}"
                f"{', ...' if len(buses) > 3 else ''}); taken as reported, as NCCL does, though some switches misreport it"
            )
        notes = [f"{text} ({count} times)" if count > 1 else text for text, count in self.defaults.items()]
        self.graph.graph["remarks"] = tuple(self.remarks + notes)
        return self.graph

    def _numa_numbers(self, cpus: list[Element]) -> list[int]:
        """Numbers that name the sockets: the file's where they are distinct and not negative, else positions."""
        numbers = [self._number(cpu, "numaid", default=-1, least=-1) for cpu in cpus]
        distinct = len(set(numbers)) == len(numbers) and min(numbers) >= 0
        return numbers if distinct else list(range(len(cpus)))

    # PCI devices

    def _pci(self, pci: Element, parent: str, above: Element | None, root: str | None) -> None:
        """Add a PCI device or bridge below `parent`, and everything under it; `root` is the socket it hangs off."""
        bus = pci.attributes.get("busid", "")
        if not bus:
            raise FabricError(f"{self.where}: line {pci.line}: <pci> has no busid")
        socket = parent if root is None else root
        code = self._hexadecimal(pci, "class")
        self.classless += code is None
        key = bus_key(self.host, bus)
        if key in self.nodes_of_bus:
            if not pci.each("pci"):
                raise FabricError(f"{self.where}: line {pci.line}: two devices have the bus id {bus!r}")
            self.defaults["a bridge has the bus id of another one; taken as a bridge of its own"] += 1
        self.nodes_of_bus.setdefault(key, [])
        if pci.each("gpu") or (not self.has_gpu_tags and code is not None and code >> 16 in _GPU_CLASSES):
            self._gpu_device(pci, bus, parent, socket)
        elif pci.each("nic") or (code is not None and code >> 16 == _NIC_CLASS):
            self._nic_device(pci, bus, parent)
        elif pci.each("pci") or (code is not None and code >> 8 == _BRIDGE_CLASS):
            self._bridge(pci, bus, parent, above, socket)
        elif code is None:
            self.defaults["a PCI device has no class and was left out: it may be a GPU, a NIC or neither"] += 1
        elif code != _NVSWITCH_CLASS:
            self.defaults[
                f"a PCI device of class {code:#08x} was left out: it is no GPU that NCCL sees, no NIC and no bridge"
            ] += 1

    def _gpu_device(self, pci: Element, bus: str, parent: str, socket: str) -> None:
        tags = pci.each("gpu") or [Element("gpu", {}, pci.line)]
        if not pci.each("gpu"):
            self.defaults["a GPU was recognised by its PCI class only: no gpu element, so no SM version and no NVLink"] += 1
        if len(tags) > 1:
            self.defaults["a GPU stands for several ranks (parts of it, or MIG); each is given all of its links"] += 1
        for gpu in tags:
            name = _free(self.graph, f"gpu-{bus}")
            self.graph.add_node(name, kind=GPU, host="node0", busid=bus)
            self.host_of[name] = self.host
            if "gcn" in gpu.attributes:
                # What stands under sm there counts compute units' generation, not CUDA's.
                self.graph.nodes[name]["vendor"] = "AMD"
                self.defaults["a GPU is AMD's: RCCL runs there, whose channels and choices are not NCCL's"] += 1
            elif "sm" in gpu.attributes:
                self.graph.nodes[name]["sm"] = self._number(gpu, "sm")
            self.gpus.append((name, gpu))
            self.nodes_of_bus[bus_key(self.host, bus)].append(name)
            for c2c in gpu.each("c2c"):
                megabytes = self._number(c2c, "bw") * self._number(c2c, "count", default=1, most=_MOST_LINKS)
                if megabytes < 1:
                    raise FabricError(f"{self.where}: line {c2c.line}: c2c has no bandwidth (bw times count is {megabytes})")
                latency_s = load_profile("c2c_gb200").latency_s
                join(self.graph, name, socket, Link(latency_s, megabytes * 1e6, kind="c2c"))
            if not (gpu.each("c2c") and parent == socket):
                join(self.graph, name, parent, self._pcie(pci))

    def _nic_device(self, pci: Element, bus: str, parent: str) -> None:
        tags = pci.each("nic") or [Element("nic", {}, pci.line)]
        for position, nic in enumerate(tags):
            self._nic(nic, f"nic-{bus}" if len(tags) == 1 else f"nic-{bus}-{position}", parent, pci)

    def _nic(self, nic: Element, name: str, parent: str, pci: Element | None) -> None:
        """Add a NIC with the ports the file lists; their rates add up."""
        nets = nic.each("net")
        ports = tuple(net.attributes.get("name", f"port{index}") for index, net in enumerate(nets))
        name = _free(self.graph, name)
        self.graph.add_node(name, kind=NIC, host="node0", ports=ports, port=self._port(nets, pci) if nets else None)
        if pci is not None:
            self.nodes_of_bus[bus_key(self.host, pci.attributes["busid"])].append(name)
            join(self.graph, name, parent, self._pcie(pci))
        else:
            self.defaults["a NIC is no PCI device; its link to the cpu limits nothing, as in NCCL"] += 1
            join(self.graph, name, parent, _LOCAL)
        if not nets:
            self.defaults["a NIC has no net element, so its speed is unknown until a NIC kind is given"] += 1

    def _port(self, nets: list[Element], pci: Element | None) -> Link:
        """Return the link from a NIC to a network: rates as the file says, latency by the kind of network."""
        total = 0
        for net in nets:
            speed = self._number(net, "speed", default=0, least=-1)
            if speed <= 0:
                self.defaults[f"a network port states no speed; NCCL takes {_DEFAULT_NET_MBITS} Mbit/s"] += 1
                speed = _DEFAULT_NET_MBITS
            elif not _SLOW_NET_MBITS < speed <= _MOST_NET_MBITS:
                doubt = "a management port?" if speed <= _SLOW_NET_MBITS else f"the fastest standard is {_MOST_NET_MBITS}"
                self.defaults[f"a network port states {speed} Mbit/s ({doubt}); taken as stated, as NCCL does"] += 1
            total += speed
        infiniband = pci is not None and (self._hexadecimal(pci, "class") or 0) >> 8 == 0x0207
        like = load_profile("ndr400" if infiniband else "roce400")
        bandwidth = float(total * _BYTES_PER_S_PER_MBITS)
        return Link(like.latency_s, bandwidth, count=len(nets), kind="net", line_rate_bytes_per_s=bandwidth)

    def _bridge(self, pci: Element, bus: str, parent: str, above: Element | None, socket: str) -> None:
        name = _free(self.graph, f"pcie-{bus}")
        if above is not None and model(pci) in _BROADCOM and model(pci) == model(above):
            name = parent
        else:
            self.graph.add_node(name, kind=PCIE_SWITCH, host="node0", busid=bus)
            join(self.graph, name, parent, self._pcie(pci))
            self._compare_with_children(pci)
        self.nodes_of_bus[bus_key(self.host, bus)].append(name)
        self.host_of[name] = self.host
        for child in pci.children:
            if child.tag == "pci":
                self._pci(child, name, pci, socket)
        self.pcilinks.extend((name, link) for link in pci.each("pcilink"))

    def _compare_with_children(self, pci: Element) -> None:
        """Note a bridge that reports a slower link generation than what sits below it."""
        own = pcie_generation(pci)
        below = [pcie_generation(child) for child in pci.each("pci")]
        fastest = max((generation for generation in below if generation is not None), default=None)
        if own is not None and fastest is not None and own < fastest:
            key = (pci.attributes["link_speed"], fastest)
            self.slow_bridges.setdefault(key, []).append(pci.attributes["busid"])

    def _pcie(self, pci: Element) -> Link:
        """Return the link above a device by NCCL's rule: lanes times the rate of the reported generation."""
        generation = pcie_generation(pci)
        if generation is None:
            generation = _DEFAULT_GENERATION
            reported = pci.attributes.get("link_speed", "")[:40]
            if "pcie" not in self.stated:
                words = f"link_speed {reported!r} is not known; NCCL takes PCIe Gen3 (--profile pcie5 states another)"
                self.defaults[words] += 1
        lanes = self._number(pci, "link_width", default=0, most=_MOST_LANES)
        if lanes == 0:
            lanes = _DEFAULT_LANES
            self.defaults[f"link_width is 0 or missing; NCCL takes {_DEFAULT_LANES} lanes"] += 1
        return load_profile(f"pcie{generation}").link(self.rate, lanes=lanes)

    # GPUs, sockets, NVLink

    def _rank_gpus(self) -> None:
        """Put GPUs into rank order and rename them to gpu0, gpu1, ... accordingly."""
        import networkx as nx

        if not self.gpus:
            raise FabricError(
                f"{self.where}: no GPU can be recognised: there is neither a <gpu> element nor a device of PCI class 0x03"
                + (
                    f"; {self.classless} PCI entries carry no class, as in files that only add to what the driver reports: "
                    "dump the whole topology on the machine itself (NCCL_TOPO_DUMP_FILE)"
                    if self.classless
                    else ""
                )
            )
        ranked = [pair for pair in self.gpus if self._number(pair[1], "rank", default=-1, least=-1) >= 0]
        chosen, key = (ranked, "rank") if ranked else (self.gpus, "dev")
        numbers = [self._number(gpu, key, default=-1, least=-1) for _, gpu in chosen]
        if len(set(numbers)) == len(numbers):
            chosen = [pair for _, pair in sorted(zip(numbers, chosen, strict=True), key=lambda item: item[0])]
        elif ranked:
            raise FabricError(f"{self.where}: two GPUs have the same rank; every rank needs a GPU of its own")
        elif self.has_gpu_tags:
            self.remarks.append("GPUs carry neither rank nor distinct dev; ranks follow the order of the file")
        rest = [pair for pair in self.gpus if pair not in chosen]
        if rest:
            self.remarks.append(f"{len(rest)} GPU(s) carry no rank and take no part, as in NCCL")
        self.gpus = chosen + rest
        new = {name: f"gpu{rank}" for rank, (name, _) in enumerate(self.gpus)}
        self.graph = nx.relabel_nodes(self.graph, new)
        self.gpus = [(new[name], gpu) for name, gpu in self.gpus]
        self.nodes_of_bus = {bus: [new.get(name, name) for name in names] for bus, names in self.nodes_of_bus.items()}
        self.host_of = {new.get(name, name): host for name, host in self.host_of.items()}
        self.graph.graph["ranks"] = tuple(name for name, _ in self.gpus[: len(chosen)])

    def _join_sockets(self) -> None:
        """Join every two sockets of one host, at the rate NCCL gives their kind."""
        for position, (a, cpu) in enumerate(self.sockets):
            for b, other in self.sockets[position + 1 :]:
                if cpu.attributes.get("host_hash") == other.attributes.get("host_hash"):
                    join(self.graph, a, b, load_profile(self._socket_kind(cpu)).link(self.rate))

    def _socket_kind(self, cpu: Element) -> str:
        kind = socket_profile(
            cpu.attributes.get("arch", ""),
            cpu.attributes.get("vendor", ""),
            *(self._number(cpu, key, default=0) for key in ("familyid", "modelid")),
        )
        if kind is None and "socket" not in self.stated:
            self.defaults["a cpu states no known arch and vendor; the link between sockets is taken as Intel Skylake's"] += 1
        return kind or "socket_intel_skylake"

    def _nvlinks(self) -> None:
        """Add NVLink and xgmi: to the one NVSwitch node, to other GPUs, or to a CPU's bridge."""
        counts: dict[tuple[str, str], tuple[int, str]] = {}
        for name, gpu in self.gpus:
            for element in gpu.each("nvlink") + gpu.each("xgmi"):
                target = self._target(name, element)
                if target is None:
                    continue
                count = self._number(element, "count", default=1, least=1, most=_MOST_LINKS)
                kind = self._nvlink_kind(gpu) if element.tag == "nvlink" else xgmi_profile(gpu.attributes.get("gcn", ""))
                counts[name, target] = (counts.get((name, target), (0, kind))[0] + count, kind)
        if any(target == NVSWITCH for _, target in counts):
            able = min(self.graph.nodes[name].get("sm", 0) for name, _ in self.gpus) >= 90
            self.graph.add_node(NVSWITCH, kind=NVSWITCH, host="node0", multicast=able, reduce=able)
        elif not counts and not any(gpu.each("nvlink") for _, gpu in self.gpus):
            self.remarks.append("the file lists no NVLink; traffic between its GPUs goes over PCI Express only")
        for (a, b), (count, kind) in counts.items():
            link = load_profile(kind).link(self.rate, count=count)
            self.graph.add_edge(a, b, link=link)
            if (b, a) not in counts:
                self.graph.add_edge(b, a, link=link)
                if self.graph.nodes[b]["kind"] == GPU:
                    self.remarks.append(f"{b} does not list the {count} links that {a} has to it; taken as going both ways")

    def _target(self, name: str, element: Element) -> str | None:
        """Return the node an nvlink or xgmi element leads to, or None with a remark."""
        target = element.attributes.get("target", "")
        known = self.nodes_of_bus.get(bus_key(self.host_of[name], target), [])
        code = self._hexadecimal(element, "tclass")
        unknown_id = target != "" and set(target.split(".")[0]) <= set("fF:")
        if element.tag == "nvlink" and not known and (code == _NVSWITCH_CLASS or unknown_id):
            return NVSWITCH
        if element.tag == "nvlink" and code == _CPU_BRIDGE_CLASS:
            return self._socket_of(name)
        if name in known:
            self.remarks.append(f"{name}: an {element.tag} element leads back to the GPU itself; left out")
            return None
        peers = [other for other in known if self.graph.nodes[other]["kind"] == GPU]
        if peers:
            return peers[0]
        self.remarks.append(f"{name}: an {element.tag} element leads to {target[:40]!r}, no GPU of the file; left out")
        return None

    def _socket_of(self, name: str) -> str:
        """Climb from a GPU to its root complex."""
        roots = {root for root, _ in self.sockets}
        seen, front = {name}, [name]
        while front:
            front = [other for node in front for other in self.graph.successors(node) if other not in seen]
            for node in front:
                if node in roots:
                    return node
            seen.update(front)
        raise FabricError(f"{self.where}: {name} is connected to no cpu")

    def _nvlink_kind(self, gpu: Element) -> str:
        kind = nvlink_profile(self._number(gpu, "sm", default=0))
        if kind is None:
            self.defaults["a GPU with NVLink states no SM version of 60 or more; its links are taken as NVLink 3"] += 1
        return kind or "nvlink3"

    def _number(self, element: Element, key: str, *, default: int | None = None, least: int = 0, most: int = 2**31) -> int:
        return number(self.where, element, key, default=default, least=least, most=most)

    def _hexadecimal(self, element: Element, key: str) -> int | None:
        return hexadecimal(self.where, element, key)


def _free(graph: "nx.DiGraph[str]", name: str) -> str:
    """Return the name, with a number behind it if it is taken."""
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, len(graph) + 2))
    return next(candidate for candidate in names if candidate not in graph)
