"""Paths between the devices of a node as NCCL finds them: type, bandwidth, and what they load.

Breadth-first from every GPU, network port, root complex and NVSwitch; among as many hops the wider path wins, a path's
type is the worst of its links. GPUs do not forward, but for one NVLink to the next (NVB). Then what cannot be reached
directly goes over the CPU (peer-to-peer and GPUDirect by level), and what sends to a far NIC goes over a peer beside it
(PXN). Facts of NCCL 2.30 (graph/paths.cc), restated. P2C is new in 2.27; before, such a path is PHB.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from netsim.fabric import GPU, PCIE_SWITCH, ROOT_COMPLEX
from netsim.nccl.speeds import INTEL, LOCAL_GBPS
from netsim.nccl.system import LINK_C2C, LINK_LOCAL, LINK_NET, LINK_NVLINK, LINK_PCIE, NodeSystem, Wire
from netsim.reach import LEVELS

TYPES = (*LEVELS, "NET", "DIS")
"""Path types from the nearest to the farthest, with the network and no path at all."""
LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, NETWORK, DIS = range(len(TYPES))
_LOCAL = round(1000 * LOCAL_GBPS)
_TYPE_OF_LINK = {LINK_LOCAL: LOC, LINK_NET: LOC, LINK_NVLINK: NVL, LINK_C2C: C2C, LINK_PCIE: PIX}


@dataclass(frozen=True)
class Reach:
    """How far peers and NICs reach, and which relays are allowed."""

    p2p: int = PXB
    """Farthest path type at which GPUs reach each other's memory."""
    gdr: int = PXB
    """Farthest path type at which a NIC reaches a GPU's memory; below LOC nowhere."""
    gdr_c2c: bool = True
    """Whether a NIC reaches a GPU's memory over the chip-to-chip link as well (2.27 and later)."""
    pxn: bool = True
    pxn_c2c: bool = True
    nvb: bool = True


@dataclass(slots=True)
class Path:
    """The wires from one device to another; none where they are the same, type DIS where there is no way."""

    wires: tuple[int, ...] = ()
    """Positions in the system's wires."""
    type: int = DIS
    bandwidth: int = 0
    """MB/s."""
    factors: tuple[tuple[int, float], ...] = ()
    """What a channel takes from which wire, as a share of its speed."""
    _loads: dict[int, tuple[tuple[int, int], ...]] | None = None

    def loads(self, speed: int) -> tuple[tuple[int, int], ...]:
        """Return what a channel of so many MB/s takes from which wire."""
        if self._loads is None:
            self._loads = {}
        found = self._loads.get(speed)
        if found is None:
            found = self._loads[speed] = tuple((wire, round(speed * factor)) for wire, factor in self.factors)
        return found

    def first_load(self, speed: int) -> tuple[int, int]:
        """Return the first wire and what a channel takes from it."""
        wire, factor = self.factors[0]
        return wire, round(speed * factor)


class Paths:
    """All paths of one node that the search asks for.

    Attributes
    ----------
    gpu_gpu, gpu_net, net_gpu : list of list of Path
        By position among the system's GPUs and network ports.
    gpu_switch, switch_gpu : list of Path
        To and from the NVSwitch; empty where there is none.
    """

    def __init__(self, system: NodeSystem, reach: Reach) -> None:
        self.system = system
        self.reach = reach
        self._into: list[list[int]] = [[] for _ in system.devices]
        order = sorted(range(len(system.wires)), key=lambda wire: -system.wires[wire].capacity)
        for wire in order:
            self._into[system.wires[wire].target].append(wire)
        self._reverse = {(wire.source, wire.target): place for place, wire in enumerate(system.wires)}
        self._to: dict[int, list[Path]] = {}
        switch = system.nvswitch
        for base in (*system.gpus, *system.nets, *system.cpus, *([] if switch is None else [switch])):
            self._to[base] = self._towards(base)
        gpus, nets = system.gpus, system.nets
        self.gpu_gpu = [[self._to[b][a] for b in gpus] for a in gpus]
        self.net_gpu = [[self._to[gpu][net] for gpu in gpus] for net in nets]
        self.gpu_net = [[self._to[net][gpu] for net in nets] for gpu in gpus]
        self.gpu_switch = [] if switch is None else [self._to[switch][gpu] for gpu in gpus]
        self.switch_gpu = [] if switch is None else [self._to[gpu][switch] for gpu in gpus]
        self._local_cpu = [self._nearest_cpu(gpu) for gpu in gpus]
        self.p2p = self._divert_peers()
        self.local_gpus = [self._locals(self._to_gpus(net)) for net in range(len(nets))]
        self.local_nets = [self._locals(self.gpu_net[gpu]) for gpu in range(len(gpus))]
        self.local_gpu = [self._gpu_of_net(net) for net in range(len(nets))]
        self.staged: set[tuple[int, int]] = set()
        """GPUs and ports, by position, between which data is staged in host memory."""
        self._peers: dict[tuple[int, int], int] = {}
        self._divert_nets()
        # What is reached through relays counts when NICs are chosen, so the nearest are looked up once more.
        self.local_gpus = [self._locals(self._to_gpus(net)) for net in range(len(nets))]
        self.local_nets = [self._locals(self.gpu_net[gpu]) for gpu in range(len(gpus))]
        self.local_gpu = [self._gpu_of_net(net) for net in range(len(nets))]
        for path in self._all():
            self._weigh(path)

    def total(self) -> int:
        """Return the most that one GPU sends by all of its NVLinks, or by its link to the host, MB/s."""
        if len(self.system.gpus) == 1 and not self.system.nets:
            return _LOCAL
        best = 0
        for gpu in self.system.gpus:
            by_type: dict[str, int] = {}
            for wire in self.system.wires:
                if wire.source == gpu:
                    several = by_type.get(wire.type, 0) if wire.type == LINK_NVLINK else 0
                    by_type[wire.type] = several + wire.capacity
            best = max(best, *by_type.values(), 0)
        return best

    def widest(self) -> int:
        """Return the widest path from a GPU to a network port, or to another GPU where there is no port, MB/s."""
        paths = [path for row in (self.gpu_net if self.system.nets else self.gpu_gpu) for path in row if path.wires]
        return max((path.bandwidth for path in paths), default=_LOCAL)

    def nets_of(self, gpu: int) -> list[int]:
        """Return the ports that a GPU prefers, by channel, until they repeat."""
        found: list[int] = []
        for channel in range(len(self.local_nets[gpu])):
            net = self._net_of(gpu, channel)
            if net in found:
                break
            found.append(net)
        return found

    def relay(self, gpu: int, net: int) -> int:
        """Return the GPU through which another one sends to a port (PXN), -1 where it goes by itself."""
        return self._peers.get((gpu, net), -1)

    def _net_of(self, gpu: int, channel: int) -> int:
        """Return the port that a GPU takes for a channel: by its number, spread over the nearest ports."""
        nets = self.local_nets[gpu]
        sharing = max(1, len(self.local_gpus[nets[0]]))
        start = gpu % sharing
        if len(nets) & (len(nets) - 1) == 0:
            start = _mirrored(start, len(nets))
        return nets[(start + channel % -(-len(nets) // sharing)) % len(nets)]

    def _gpu_of_net(self, net: int) -> int | None:
        """Return the GPU that a port belongs to, None where all near ones prefer others."""
        for channel in range(max((len(nets) for nets in self.local_nets), default=0)):
            for gpu in self.local_gpus[net]:
                if self.local_nets[gpu] and self._net_of(gpu, channel) == net:
                    return gpu
        return None

    @staticmethod
    def _locals(paths: list[Path]) -> list[int]:
        """Return the positions of the widest and, among them, nearest paths."""
        near = [(-path.bandwidth, path.type) for path in paths if path.type < DIS]
        return [place for place, path in enumerate(paths) if near and (-path.bandwidth, path.type) == min(near)]

    def _to_gpus(self, net: int) -> list[Path]:
        return self.net_gpu[net]

    def _all(self) -> Iterable[Path]:
        for rows in (self.gpu_gpu, self.gpu_net, self.net_gpu, [self.gpu_switch, self.switch_gpu]):
            for row in rows:
                yield from row

    # Breadth-first search

    def _towards(self, base: int) -> list[Path]:
        """Return the paths of all devices to one."""
        devices, wires = self.system.devices, self.system.wires
        found = [Path() for _ in devices]
        found[base] = Path((), LOC, _LOCAL)
        front = [base]
        while front:
            following: dict[int, None] = {}
            for node in front:
                path = found[node]
                for place in self._into[node]:
                    wire = wires[place]
                    other = wire.source
                    if node != base and devices[node].kind == GPU and not self._bridges(wire, path):
                        continue
                    width = min(path.bandwidth, wire.capacity)
                    theirs = found[other]
                    unknown_or_longer = theirs.type == DIS or len(theirs.wires) > len(path.wires)
                    if other == base or not unknown_or_longer or theirs.bandwidth >= width:
                        continue
                    found[other] = Path((place, *path.wires), self._type(path, node, wire), width)
                    following[other] = None
            front = list(following)
        return found

    def _bridges(self, wire: Wire, path: Path) -> bool:
        """Say whether a path to a GPU may be continued by a wire: one NVLink to the next, between GPUs."""
        between = wire.type == LINK_NVLINK and self.system.devices[wire.source].kind == GPU
        return self.reach.nvb and between and len(path.wires) == 1

    def _type(self, path: Path, node: int, wire: Wire) -> int:
        """Return the type of a path that begins with a wire and goes on at `node`."""
        kinds = {self.system.devices[node].kind, self.system.devices[wire.source].kind}
        kind = _TYPE_OF_LINK.get(wire.type, SYS)
        if kinds == {PCIE_SWITCH} and wire.type == LINK_PCIE:
            kind = PXB
        if wire.type == LINK_PCIE and ROOT_COMPLEX in kinds:
            kind = PHB
        if wire.type == LINK_NVLINK and path.type == NVL and self.system.devices[node].kind == GPU and path.wires:
            kind = NVB
        return max(path.type, kind)

    def _nearest_cpu(self, gpu: int) -> int | None:
        """Return the root complex with the fewest hops to a GPU."""
        near = [(len(self._to[cpu][gpu].wires), cpu) for cpu in self.system.cpus if self._to[cpu][gpu].type < DIS]
        return min(near)[1] if near else None

    # What cannot be reached directly

    def _divert_peers(self) -> bool:
        """Send what GPUs cannot copy directly over the CPU; say whether all of them can."""
        all_reach = True
        for a, row in enumerate(self.gpu_gpu):
            for b, path in enumerate(row):
                if a == b or path.type == DIS or path.type <= self.reach.p2p:
                    continue
                all_reach = False
                cpu = self._local_cpu[b]
                if cpu is not None:
                    row[b] = _chained(self._to[cpu][self.system.gpus[a]], self._to[self.system.gpus[b]][cpu])
        return all_reach

    def _divert_nets(self) -> None:
        """Let GPUs send over a peer beside a NIC, and send what NICs cannot reach over the CPU."""
        direct = [list(row) for row in self.gpu_net]
        for net, place in enumerate(self.system.nets):
            peer = self.local_gpu[net]
            for gpu, own in enumerate(self.system.gpus):
                mine = self._seen_from(gpu, direct[gpu][net])
                back = self._seen_from(gpu, self.net_gpu[net][gpu])
                self.gpu_net[gpu][net], self.net_gpu[net][gpu] = mine, back
                if mine.type == DIS:
                    continue
                relayed = peer is not None and peer != gpu and self._relays(peer, gpu, net, mine, direct)
                if relayed and peer is not None:
                    over = self._to[self.system.gpus[peer]][own]
                    mine = self.gpu_net[gpu][net] = _chained(over, direct[peer][net], PXN)
                    self._peers[gpu, net] = peer
                    distance = self._seen_from(peer, direct[peer][net]).type
                else:
                    distance = mine.type
                if self._reaches(distance):
                    continue
                self.staged.add((gpu, net))
                cpu = self._local_cpu[gpu]
                if cpu is not None:
                    self.gpu_net[gpu][net] = _chained(self._to[cpu][own], self._to[place][cpu])
                    self.net_gpu[net][gpu] = _chained(self._to[cpu][place], self._to[own][cpu])

    def _seen_from(self, gpu: int, path: Path) -> Path:
        """Return a path between a GPU and a port as P2C where the GPU's own link is the chip-to-chip one."""
        first = {self.system.wires[wire].type for wire in path.wires}
        if path.type == PHB and LINK_C2C in first and self.reach.gdr_c2c:
            return Path(path.wires, P2C, path.bandwidth)
        return path

    def _relays(self, peer: int, gpu: int, net: int, mine: Path, direct: list[list[Path]]) -> bool:
        theirs = self._seen_from(peer, direct[peer][net])
        between = self._to[self.system.gpus[gpu]][self.system.gpus[peer]]
        near = theirs.type <= (P2C if self.reach.pxn_c2c else PXB)
        gains = theirs.bandwidth > mine.bandwidth or mine.type > PXN
        return self.reach.pxn and near and between.type <= NVL and gains

    def _reaches(self, distance: int) -> bool:
        return distance <= self.reach.gdr or (distance == P2C and self.reach.gdr_c2c and self.reach.gdr >= PXB)

    def _weigh(self, path: Path) -> None:
        """Note what a path takes from each wire: more through an Intel host bridge, and something back from old GPUs."""
        devices, wires = self.system.devices, self.system.wires
        factors: list[tuple[int, float]] = []
        from_gpu = bool(path.wires) and devices[wires[path.wires[0]].source].kind == GPU
        crossed = [devices[wires[wire].target] for wire in path.wires]
        intel = path.type == PHB and from_gpu and any(one.kind == ROOT_COMPLEX and one.cpu[1] == INTEL for one in crossed)
        for place in path.wires:
            wire = wires[place]
            forward = 1.2 if intel and wire.type == LINK_PCIE else 1.0
            factors.append((place, forward))
            target = devices[wire.target]
            back = 0.0
            if target.kind == GPU and target.sm < 80 and not from_gpu:
                back += forward / 8
            if target.kind == ROOT_COMPLEX and target.cpu[0] == "ppc64" and wire.type == LINK_NVLINK:
                back += forward
            reverse = self._reverse.get((wire.target, wire.source))
            if back and reverse is not None:
                factors.append((reverse, back))
        path.factors = tuple(factors)


def _chained(first: Path, second: Path, kind: int | None = None) -> Path:
    """Return one path after the other; its type is the worse of both unless given."""
    if DIS in (first.type, second.type):
        return Path()
    worst = max(first.type, second.type)
    return Path(first.wires + second.wires, worst if kind is None else kind, min(first.bandwidth, second.bandwidth))


def _mirrored(value: int, power_of_two: int) -> int:
    """Return a number below a power of two with its bits in reverse order."""
    bits = power_of_two.bit_length() - 1
    return int(f"{value % power_of_two:0{bits}b}"[::-1], 2) if bits else 0
