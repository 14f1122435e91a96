"""How many channels can fit on a node at most: bounds that tell without searching that a search would be in vain.

Counts wires, not orders of GPUs: what GPUs send by, what leads into the parts of a node, what leads from ports to GPUs
and through root complexes. A bound may be too high, never too low, so leaving out what it excludes changes no result of
`netsim.nccl.search`.
"""

from collections.abc import Iterable
from functools import cached_property

from netsim.fabric import ROOT_COMPLEX
from netsim.nccl.channel_search import Found, Rules
from netsim.nccl.graphs import BALANCED_TREE, COLLNET_DIRECT_PATTERN, NVLS_PATTERN, RING_PATTERN
from netsim.nccl.paths import DIS, Path, Paths
from netsim.nccl.system import LINK_NVLINK, LINK_PCIE, LINK_SOCKET, Wire


class Ceiling:
    """The bounds of one node."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.wires = paths.system.wires
        self.gpus = len(paths.system.gpus)
        self.nets = len(paths.system.nets)
        self._sending: dict[tuple[int, int], list[int]] = {}
        self._passing: dict[int, list[tuple[int, float]]] = {}
        between = [len(path.wires) for a, row in enumerate(paths.gpu_gpu) for b, path in enumerate(row) if a != b]
        self._hops = min(between, default=0)
        outward = [len(path.wires) for row in (*paths.gpu_net, *paths.net_gpu) for path in row if path.type < DIS]
        self._hops_to_nets = min(outward, default=0)
        self._ports = [round(1000 * paths.system.net_GBps(net)) for net in paths.system.nets]

    def of(self, rules: Rules) -> tuple[int | None, int]:
        """Return how many channels of a speed can fit at most, None if not known, and the fewest hops of one."""
        if rules.pattern in (NVLS_PATTERN, COLLNET_DIRECT_PATTERN):
            return None, 0
        speed = rules.speed_intra
        closed = rules.pattern == RING_PATTERN and not self.nets
        sends = self.gpus if closed and self.gpus > 1 else self.gpus - 1
        most = rules.max_channels
        for out, into in self._cuts:
            # Every channel comes through all parts of a node; a closed one leaves each of them again.
            most = min(most, sum(capacity // speed for capacity in (out if closed else out + into)))
        if sends:
            # A channel sends once from each GPU, but for the last one of a tree or before a port.
            sent = self._sent(rules.type_intra, speed)
            most = min(most, min(sent) if closed else sum(sent) // sends)
        hops = sends * self._hops
        if self.nets:
            most = min(most, self._entering(rules), sum(port // rules.speed_inter for port in self._ports))
            hops += self._hops_to_nets * (3 if rules.pattern == BALANCED_TREE else 2)
        return most, hops

    def in_vain(self, rules: Rules, most: int | None, hops: int, best: Found) -> bool:
        """Say whether no channels can come of some rules that would be better than what is there."""
        if most is None:
            return False
        if most < rules.min_channels or not self._joined(rules):
            return True
        mine, kept = most * rules.speed_intra, best.channels * best.rules.speed_intra
        if mine != kept:
            return mine < kept
        alike = (rules.pattern, rules.cross_nic) == (best.rules.pattern, best.rules.cross_nic)
        return not alike or most * hops >= best.hops

    def _joined(self, rules: Rules) -> bool:
        """Say whether paths that the rules allow lead from the first GPU to all others."""
        table = self.paths.gpu_gpu
        seen, todo = {0}, [0]
        while todo:
            for other, path in enumerate(table[todo.pop()]):
                if other not in seen and path.type <= rules.type_intra and path.bandwidth >= rules.speed_intra:
                    seen.add(other)
                    todo.append(other)
        return len(seen) == len(table)

    def _sent(self, type_intra: int, speed: int) -> list[int]:
        """Return how often each GPU can send to others at a speed, if paths reach as far as a type."""
        found = self._sending.get((type_intra, speed))
        if found is None:
            found = []
            for row in self.paths.gpu_gpu:
                least: dict[int, int] = {}
                for path in row:
                    if path.wires and path.type <= type_intra:
                        wire, load = path.first_load(speed)
                        least[wire] = min(load, least.get(wire, load))
                found.append(sum(self.wires[wire].capacity // load for wire, load in least.items()))
            self._sending[type_intra, speed] = found
        return found

    @cached_property
    def _cuts(self) -> list[tuple[list[int], list[int]]]:
        """What wires carry out of and into each part of the node that hangs together without NVLink and sockets."""
        part = list(range(len(self.paths.system.devices)))
        for wire in self.wires:
            if wire.type not in (LINK_NVLINK, LINK_SOCKET) and part[wire.source] != part[wire.target]:
                old, new = part[wire.source], part[wire.target]
                part = [new if one == old else one for one in part]
        parts = {part[gpu] for gpu in self.paths.system.gpus}
        cuts = []
        for one in sorted(parts) if len(parts) > 1 else []:
            crossing = [w for w in self.wires if (part[w.source] == one) != (part[w.target] == one)]
            out = [wire.capacity for wire in crossing if part[wire.source] == one]
            cuts.append((out, [wire.capacity for wire in crossing if part[wire.target] == one]))
        return cuts

    def _entering(self, rules: Rules) -> int:
        """Return how many channels can come from ports to GPUs and back."""
        speed = rules.speed_inter
        allowed = [path for row in self.paths.net_gpu for path in row if path.type <= rules.type_inter]
        last = {path.wires[-1] for path in allowed}
        most = sum(self.wires[wire].capacity // speed for wire in last)
        if rules.type_inter not in self._passing:
            back = [path for row in self.paths.gpu_net for path in row if path.type <= rules.type_inter]
            self._passing[rules.type_inter] = self._least_shares(allowed, back)
        for capacity, share in self._passing[rules.type_inter]:
            if share:
                most = min(most, int(capacity / (share * speed) + 1e-9))
        return most

    def _least_shares(self, there: list[Path], back: list[Path]) -> list[tuple[int, float]]:
        """Return what all wires up to, down from and between root complexes carry, and the least a channel takes of it."""
        shares = []
        for kind in range(3):
            wires = {place for place, wire in enumerate(self.wires) if self._kind(wire) == kind}
            capacity = sum(self.wires[wire].capacity for wire in wires)
            shares.append((capacity, _least(there, wires) + _least(back, wires)))
        return shares

    def _kind(self, wire: Wire) -> int | None:
        """Return 0 for a wire up to a root complex, 1 for one down from it, 2 between two, None for any other."""
        if wire.type == LINK_SOCKET:
            return 2
        if wire.type != LINK_PCIE:
            return None
        kinds = [self.paths.system.devices[end].kind for end in (wire.target, wire.source)]
        return kinds.index(ROOT_COMPLEX) if ROOT_COMPLEX in kinds else None


def _least(paths: Iterable[Path], wires: set[int]) -> float:
    """Return the least share of its speed that any of some paths takes from some wires."""
    return min((sum(factor for wire, factor in path.factors if wire in wires) for path in paths), default=0.0)
