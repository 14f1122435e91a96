"""NCCL's view of each node of a topology: devices, links with NCCL's own bandwidths, processors, network ports.

First step from a topology graph to a plan. A node is what is joined by NVLink or sits in one host: an NVL72 rack is one.
All NVSwitches of a node are one device; host memory is none; every port of a NIC is a device of its own (NET) behind
the NIC, as in NCCL. What the graph does not state (compute capability on GPUs as ``sm``, ``cpu_arch``, ``cpu_vendor``
and ``cpu_model`` on root complexes) is inferred from the kinds of links, and `NodeSystem.assumptions` says what was
merely assumed. Paths between devices are `netsim.nccl.paths`' affair. Deliberately left out: MIG, GPUs of a file that
carry no rank, bus ids (GPUs come in rank order, NICs in the order of the graph).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from netsim.fabric import (
    GPU,
    HOST_MEMORY,
    NETWORK_SWITCH,
    NIC,
    NVSWITCH,
    PCIE_SWITCH,
    ROOT_COMPLEX,
    Link,
    links_of,
    ranks_of,
)
from netsim.nccl.speeds import (
    INTEL,
    LOCAL_GBPS,
    capability_of_nvlink,
    cpu_of_socket_link,
    nvlink_GBps,
    pcie_GBps,
    socket_GBps,
)
from netsim.nccl.version import DEFAULT, Version

if TYPE_CHECKING:
    import networkx as nx

NET = "net"
"""Kind of a network port; the other devices have the kinds of `netsim.fabric`."""

LINK_LOCAL, LINK_NVLINK, LINK_C2C, LINK_PCIE, LINK_SOCKET, LINK_NET = "LOC", "NVL", "C2C", "PCI", "SYS", "NET"
_DEFAULT_CAPABILITY = 80


@dataclass(frozen=True)
class Device:
    """One device of a node."""

    kind: str
    name: str
    """The topology's name of it."""
    sm: int = 0
    """Compute capability times ten, of a GPU."""
    cpu: tuple[str, str, int] = ("", "", 0)
    """Architecture, vendor and model, of a root complex."""
    multicast: bool = False
    """Whether an NVSwitch multicasts and reduces."""


@dataclass(frozen=True)
class Wire:
    """One direction of a link between two devices, given by their positions."""

    source: int
    target: int
    type: str
    """LOC, NVL, C2C, PCI, SYS or NET."""
    capacity: int
    """MB/s of 1e6 bytes, whole, because NCCL rounds to thousandths of a GB/s."""


@dataclass(frozen=True)
class NodeSystem:
    """One node as NCCL sees it. Nodes that are alike compare equal but for the names of their devices."""

    devices: tuple[Device, ...]
    wires: tuple[Wire, ...]
    gpus: tuple[int, ...]
    """Positions of the GPUs that take part, in rank order."""
    nets: tuple[int, ...]
    """Positions of the network ports."""
    assumptions: tuple[str, ...] = ()

    @property
    def nvswitch(self) -> int | None:
        """Position of the one NVSwitch device, if there is one."""
        return next((place for place, device in enumerate(self.devices) if device.kind == NVSWITCH), None)

    @property
    def cpus(self) -> tuple[int, ...]:
        """Positions of the root complexes."""
        return tuple(place for place, device in enumerate(self.devices) if device.kind == ROOT_COMPLEX)

    @property
    def capability(self) -> int:
        """Least compute capability times ten of the GPUs that take part."""
        return min(self.devices[place].sm for place in self.gpus)

    @property
    def cpu(self) -> tuple[str, str, int]:
        """Architecture, vendor and model of the first socket, by which NCCL judges the node."""
        return self.devices[self.cpus[0]].cpu if self.cpus else ("x86_64", INTEL, 0)

    def net_GBps(self, net: int) -> float:  # noqa: N802 - NCCL's unit
        """Speed of the network port at a position."""
        return next(wire.capacity for wire in self.wires if wire.target == net) / 1000


@dataclass(frozen=True)
class Layout:
    """The nodes of a topology."""

    nodes: tuple[tuple[int, ...], ...]
    """Ranks of each node, numbered within the communicator, nodes in order of their first rank."""
    systems: tuple[NodeSystem, ...]
    """One for each node; nodes that are alike share one."""


def node_systems(
    graph: "nx.DiGraph[str]",
    *,
    version: Version = DEFAULT,
    ranks: Sequence[int] | None = None,
    networked: bool | None = None,
) -> Layout:
    """Cut a topology into nodes and look at each the way NCCL does.

    Parameters
    ----------
    graph : networkx.DiGraph
        A topology that passes `netsim.fabric.check_fabric`.
    version : Version
        Release whose bandwidth figures are used.
    ranks : sequence of int, optional
        The topology's ranks that take part, in the communicator's order; all of them by default.
    networked : bool, optional
        Whether network ports are looked at; by default where there are several nodes, as NCCL leaves them out on one.
    """
    chosen = ranks_of(graph) if ranks is None else tuple(ranks_of(graph)[rank] for rank in ranks)
    domain = _domains(graph)
    groups: dict[object, list[int]] = {}
    for rank, name in enumerate(chosen):
        groups.setdefault(domain[name], []).append(rank)
    with_nets = len(groups) > 1 if networked is None else networked
    members: dict[object, dict[str, int]] = {key: {} for key in groups}
    for name in graph:
        place = members.get(domain[name])
        if place is not None:
            place[name] = len(place)
    edges: dict[object, list[tuple[int, int, Link]]] = {key: [] for key in groups}
    outward: dict[str, Link] = {}
    for source, target, link in links_of(graph):
        key = domain[source]
        if key in edges and domain[target] == key:
            edges[key].append((members[key][source], members[key][target], link))
        elif graph.nodes[source]["kind"] == NIC:
            outward.setdefault(source, link)
    systems: list[NodeSystem] = []
    known: dict[tuple[object, ...], NodeSystem] = {}
    same_link: dict[Link, int] = {}
    numbers: dict[int, int] = {}
    for key, group in groups.items():
        names = list(members[key])
        data = [_described(graph.nodes[name], outward.get(name) if with_nets else None, with_nets) for name in names]
        taking_part = tuple(members[key][chosen[rank]] for rank in group)
        for *_, link in edges[key]:
            if id(link) not in numbers:
                numbers[id(link)] = same_link.setdefault(link, len(same_link))
        signature = (
            taking_part,
            tuple(tuple(one.items()) for one in data),
            tuple((a, b, numbers[id(link)]) for a, b, link in edges[key]),
        )
        if signature not in known:
            known[signature] = _Builder(names, data, edges[key], taking_part, version).build()
        systems.append(known[signature])
    return Layout(tuple(tuple(group) for group in groups.values()), tuple(systems))


def _described(attributes: Mapping[str, Any], outward: Link | None, with_nets: bool) -> dict[str, Any]:
    """Return what NCCL's view depends on of a node's attributes, hashable."""
    kept = {key: attributes[key] for key in ("kind", "sm", "cpu_arch", "cpu_vendor", "cpu_model") if key in attributes}
    if kept["kind"] == NVSWITCH:
        kept["multicast"] = bool(attributes.get("multicast", False) and attributes.get("reduce", False))
    if kept["kind"] == NIC and with_nets:
        kept["port"] = attributes.get("port") or outward
    return kept


def _domains(graph: "nx.DiGraph[str]") -> dict[str, object]:
    """Return for each node of the graph what identifies its NVLink domain or host; None for switches of the network."""
    hosts = {name: data.get("host") for name, data in graph.nodes(data=True)}
    leader: dict[object, object] = {host: host for host in hosts.values()}

    def find(host: object) -> object:
        while leader[host] != host:
            host = leader[host]
        return host

    kinds = {name: data["kind"] for name, data in graph.nodes(data=True)}
    for source, target in graph.edges:
        if hosts[source] != hosts[target] and {kinds[source], kinds[target]} <= {GPU, NVSWITCH}:
            leader[find(hosts[target])] = find(hosts[source])
    # A topology that names no host is one machine; only its network switches are not part of it.
    return {name: object() if kinds[name] == NETWORK_SWITCH else find(host) for name, host in hosts.items()}


class _Builder:
    """Builds the system of one node from its part of the graph."""

    def __init__(
        self,
        names: list[str],
        data: list[dict[str, Any]],
        edges: list[tuple[int, int, Link]],
        taking_part: tuple[int, ...],
        version: Version,
    ) -> None:
        self.names = names
        self.data = data
        self.edges = edges
        self.taking_part = taking_part
        self.version = version
        self.kinds = [one["kind"] for one in data]
        self.devices: list[Device] = []
        self.wires: dict[tuple[int, int], Wire] = {}
        self.assumptions: list[str] = []

    def build(self) -> NodeSystem:
        place = self._add_devices()
        for source, target, link in self.edges:
            a, b = place[source], place[target]
            if a is None or b is None or a == b:
                continue
            found = self._wire_type(source, target, link)
            if found is not None:
                self._add_wire(a, b, *found)
        nets = self._add_nets(place)
        gpus = tuple(position for number in self.taking_part if (position := place[number]) is not None)
        return NodeSystem(
            tuple(self.devices), tuple(self.wires.values()), gpus, nets, tuple(dict.fromkeys(self.assumptions))
        )

    def _add_devices(self) -> list[int | None]:
        """Add a device for each node of the graph; return their positions, None for what NCCL does not see."""
        place: list[int | None] = []
        switch = None
        for number, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True)):
            unseen = kind == HOST_MEMORY or (kind == GPU and number not in self.taking_part)
            if unseen or (kind == NIC and "port" not in self.data[number]):
                place.append(None)
                continue
            if kind == NVSWITCH and switch is not None:
                place.append(switch)
                continue
            place.append(len(self.devices))
            if kind == NVSWITCH:
                switch = len(self.devices)
                able = all(one["multicast"] for one in self.data if one["kind"] == NVSWITCH)
                self.devices.append(Device(kind, name, multicast=able))
            elif kind == GPU:
                self.devices.append(Device(kind, name, sm=self._capability(number)))
            elif kind == ROOT_COMPLEX:
                self.devices.append(Device(kind, name, cpu=self._cpu(number)))
            else:
                self.devices.append(Device(kind, name))
        return place

    def _capability(self, number: int) -> int:
        """Return a GPU's compute capability times ten: stated, or that of its NVLinks, or assumed."""
        stated = self.data[number].get("sm")
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
            return stated
        for source, target, link in self.edges:
            if number in (source, target):
                known = capability_of_nvlink(link.kind)
                if known is not None:
                    return known
        self.assumptions.append(
            f"the topology states no compute capability for its GPUs; {_DEFAULT_CAPABILITY / 10} is assumed (sm: 80)"
        )
        return _DEFAULT_CAPABILITY

    def _cpu(self, number: int) -> tuple[str, str, int]:
        """Return a root complex's architecture, vendor and model: stated, or by its link to other sockets, or assumed."""
        data = self.data[number]
        mine = [link.kind for source, target, link in self.edges if number in (source, target)]
        guess = next((known for kind in mine if (known := cpu_of_socket_link(kind)) is not None), None)
        if guess is None and any(kind.startswith("c2c") for kind in mine):
            guess = ("arm64", "", 0)
        if guess is None and "cpu_arch" not in data and "cpu_vendor" not in data:
            self.assumptions.append("the topology states no CPU; an Intel Skylake is assumed (cpu_vendor: GenuineIntel)")
        arch, vendor, model = guess or ("x86_64", INTEL, 0x55)
        return str(data.get("cpu_arch", arch)), str(data.get("cpu_vendor", vendor)), int(data.get("cpu_model", model))

    def _wire_type(self, source: int, target: int, link: Link) -> tuple[str, float] | None:
        """Return the type of a link and its GB/s, None for one that NCCL does not know."""
        ends = {self.kinds[source], self.kinds[target]}
        gpu = source if self.kinds[source] == GPU else target
        if ends <= {GPU, NVSWITCH}:
            return LINK_NVLINK, nvlink_GBps(link, self._capability(gpu) if GPU in ends else 0, self.version)
        if ends == {GPU, ROOT_COMPLEX} and link.kind.startswith("c2c"):
            return LINK_C2C, link.bandwidth_bytes_per_s / 1e9
        if ends == {GPU, ROOT_COMPLEX} and link.kind.startswith("nvlink"):
            return LINK_NVLINK, nvlink_GBps(link, self._capability(gpu), self.version)
        if ends == {ROOT_COMPLEX}:
            return LINK_SOCKET, socket_GBps(*self._cpu(source), self.version)
        if ends == {PCIE_SWITCH} and link.kind == "local":
            return LINK_LOCAL, LOCAL_GBPS
        if ends <= {GPU, NIC, PCIE_SWITCH, ROOT_COMPLEX}:
            return LINK_PCIE, pcie_GBps(link)
        return None

    def _add_wire(self, source: int, target: int, kind: str, rate: float) -> None:
        """Add a wire; what leads to a collapsed switch twice adds up."""
        before = self.wires.get((source, target))
        capacity = round(rate * 1000) + (before.capacity if before is not None else 0)
        self.wires[source, target] = Wire(source, target, kind, capacity)

    def _add_nets(self, place: list[int | None]) -> tuple[int, ...]:
        """Add the network ports behind each NIC whose speed is known, and return their positions."""
        nets: list[int] = []
        for number, kind in enumerate(self.kinds):
            port, card = self.data[number].get("port"), place[number]
            if kind != NIC or card is None or port is None:
                continue
            rate = (port.line_rate_bytes_per_s or port.bandwidth_bytes_per_s) / port.count / 1e9
            for _ in range(port.count):
                net = len(self.devices)
                self.devices.append(Device(NET, self.names[number]))
                self._add_wire(card, net, LINK_NET, rate)
                self._add_wire(net, card, LINK_NET, rate)
                nets.append(net)
        return tuple(nets)
