"""NCCL's graph search on one node: which speeds and rules are tried in which order, and what is kept of it.

From the paths of a node to its five graphs. The order of attempts, the conditions to stop and the limits on steps are
those of NCCL 2.30 (graph/search.cc), restated: all channels alike, then different ones, a plain tree from compute
capability 9.0 on, farther paths, other ports, slower channels; then channels are duplicated and speeds raised. Searches
that cannot find anything better (their GPUs are not joined, their wires are too narrow, or the same has been tried) are
left out, which changes nothing but the time it takes.
"""

from dataclasses import replace

from netsim.nccl.ceiling import Ceiling
from netsim.nccl.channel_search import OPTIMAL, ChannelSearch, Found, Rules
from netsim.nccl.graphs import (
    BALANCED_TREE,
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    COLLNET_DIRECT_PATTERN,
    LAST_RESORT_GBPS,
    NVLS,
    NVLS_PATTERN,
    PLAIN_TREE,
    RING,
    RING_PATTERN,
    TREE,
    ChannelGraph,
    ChannelOrder,
)
from netsim.nccl.paths import DIS, LOC, NVL, PIX, PXN, SYS, TYPES, Paths
from netsim.nccl.speeds import AMD, search_speeds
from netsim.nccl.version import DEFAULT, Version

PATTERNS = {
    RING: RING_PATTERN,
    TREE: BALANCED_TREE,
    COLLNET_CHAIN: PLAIN_TREE,
    NVLS: NVLS_PATTERN,
    COLLNET_DIRECT: COLLNET_DIRECT_PATTERN,
}
MOST_HEADS = 32
"""Heads of an NVLS graph at most."""
_MOST_DIRECT_HEADS = 8
_ALL_STEPS, _STEPS, _STEPS_ALIKE = 1 << 19, 1 << 14, 1 << 8
_DUPLICATED_FROM, _SM90_DUPLICATED_FROM = 25_000, 50_000


def empty_graph(name: str) -> ChannelGraph:
    """Return what stands in a dump for a graph that was not searched or not found."""
    return ChannelGraph(name, PATTERNS[name], (), 0.0, 0.0, same_channels=False)


def most_channels(version: Version) -> int:
    """Return how many channels a release can run (MAXCHANNELS)."""
    return 64 if version >= Version(2, 25) else 32


class GraphSearch:
    """The searches of one node.

    Parameters
    ----------
    paths : Paths
        The node.
    version : Version
        Release whose speeds are tried.
    cross_nic : int
        NCCL_CROSS_NIC: 0 rings stay on one rail, 1 they need not, 2 only where it brings something.
    """

    def __init__(self, paths: Paths, *, version: Version = DEFAULT, cross_nic: int = 2) -> None:
        self.paths = paths
        self.system = paths.system
        self.version = version
        self.cross_nic = cross_nic
        self._search = ChannelSearch(paths)
        self._gpus = len(self.system.gpus)
        self._nets = len(self.system.nets)
        self._total, self._widest = paths.total(), paths.widest()
        table = paths.gpu_gpu
        self._between = {table[a][b].type for a in range(self._gpus) for b in range(self._gpus) if a != b} - {DIS}
        self._to_nets = {path.type for row in paths.gpu_net for path in row} - {DIS}
        self._outward = {path.type for row in (*paths.gpu_net, *paths.net_gpu) for path in row} - {DIS}
        self.ceiling = Ceiling(paths)
        speeds = search_speeds(self.system.capability, self._nets > 0, version)
        self._speeds = [round(1000 * speed) for speed in speeds]

    def ring(self) -> ChannelGraph:
        """Search rings."""
        least = 2 if self._split_nvlink() and most_channels(self.version) >= 4 else 1
        return self.graph(RING, least, most_channels(self.version) // 2)

    def graph(self, name: str, min_channels: int, max_channels: int, *, collnet: bool = False) -> ChannelGraph:
        """Search one graph with at least and at most so many channels."""
        if name == NVLS and (self.system.nvswitch is None or self.system.capability < 90):
            return empty_graph(name)
        if name == NVLS:
            max_channels = min(MOST_HEADS, self._gpus)
            # On one node data must be pulled evenly from all GPUs.
            min_channels = min_channels if self._nets else max_channels
        if name == COLLNET_DIRECT:
            max_channels = min(_MOST_DIRECT_HEADS, self._gpus)
        pattern = PATTERNS[name]
        if self._gpus == 1 and pattern != RING_PATTERN:
            pattern = PLAIN_TREE
        crossing = self.cross_nic if self._nets > 1 and pattern in (RING_PATTERN, BALANCED_TREE) else 0
        rules = Rules(
            pattern,
            0,
            0,
            type_intra=min(self._between, default=SYS) if self._gpus > 1 else LOC,
            type_inter=min(self._to_nets, default=SYS) if self._nets else PIX,
            cross_nic=1 if crossing == 1 else 0,
            same_channels=pattern != NVLS_PATTERN,
            min_channels=min_channels,
            max_channels=max_channels,
            collnet=collnet,
        )
        attempt = _Attempts(self, rules, crossing)
        found = attempt.second_pass(self._duplicated(attempt.first_pass()))
        if not found.channels:
            if collnet or name == NVLS:
                return empty_graph(name)
            # As NCCL: one channel in plain order, at next to no speed.
            order = ChannelOrder(tuple(range(self._gpus)), *((0, 0) if self._nets else (None, None)))
            same, least = found.rules.same_channels, LAST_RESORT_GBPS
            return ChannelGraph(name, pattern, (order,), least, least, TYPES[SYS], TYPES[SYS], 0.0, 0, same)
        return self._as_graph(name, found)

    def starts_at(self, rules: Rules) -> int:
        """Return the position of the first speed that a node can carry for the channels asked for."""
        total = self._total * (self._gpus / (self._gpus - 1) if self._gpus > 1 and rules.pattern != RING_PATTERN else 1.0)
        last = len(self._speeds) - 1
        fits = (
            place
            for place, speed in enumerate(self._speeds)
            if speed <= self._widest and speed * rules.min_channels <= total + 1e-6
        )
        return next(fits, last)

    def at_most(self, speed: int) -> int:
        """Return the position of the first speed that is not above one."""
        return next((place for place, tried in enumerate(self._speeds) if tried <= speed), len(self._speeds) - 1)

    def _duplicated(self, found: Found) -> Found:
        """Run each channel twice at half the speed, where NCCL does."""
        rules, count = found.rules, found.channels
        modern = self.system.capability > 80 and rules.speed_intra < _SM90_DUPLICATED_FROM and count > 4
        if not count or rules.pattern == NVLS_PATTERN or rules.speed_intra < _DUPLICATED_FROM or modern:
            return found
        doubled = min(2 * count, rules.max_channels)
        parts = -(-doubled // count)
        gpus = (found.gpus + found.gpus)[:doubled]
        nets = (found.nets + found.nets)[:doubled]
        slower = replace(rules, speed_intra=rules.speed_intra // parts, speed_inter=rules.speed_inter // parts)
        return Found(slower, gpus, nets, found.hops)

    def _as_graph(self, name: str, found: Found) -> ChannelGraph:
        rules = found.rules
        heads = rules.pattern in (NVLS_PATTERN, COLLNET_DIRECT_PATTERN)
        orders = []
        for place, gpus in enumerate(found.gpus):
            ends = found.nets[place] if found.nets else (None, None)
            orders.append(ChannelOrder(gpus[:1] if heads else gpus, *ends))
        return ChannelGraph(
            name,
            rules.pattern,
            tuple(orders),
            rules.speed_intra / 1000,
            rules.speed_inter / 1000,
            TYPES[rules.type_intra],
            TYPES[rules.type_inter],
            0.0,
            rules.cross_nic,
            rules.same_channels,
        )

    def _split_nvlink(self) -> bool:
        """Say whether several groups of GPUs have NVLink inside but not between them."""
        table = self.paths.gpu_gpu
        groups = {frozenset(b for b in range(self._gpus) if a == b or row[b].type == NVL) for a, row in enumerate(table)}
        return sum(len(group) > 1 for group in groups) > 1 and sum(map(len, groups)) == self._gpus


class _Attempts:
    """The attempts at one graph."""

    def __init__(self, node: GraphSearch, rules: Rules, crossing: int) -> None:
        self.node = node
        self.start = rules
        self.crossing = crossing
        self.best = Found(rules)
        self.left = _ALL_STEPS
        self._tried: dict[Rules, int] = {}

    def first_pass(self) -> Found:
        """Try speeds from the fastest down, with rules from the strictest on, until nothing better can come."""
        node, start = self.node, self.start
        place = node.starts_at(start)
        rules = self._at(start, place)
        last_intra = max(node._between, default=LOC) if node._gpus > 1 else LOC
        last_inter = max(node._to_nets, default=SYS) if node._nets else SYS
        while True:
            time = self._search(rules)
            best = self.best
            if time == OPTIMAL or best.channels * best.rules.speed_inter >= node._total:
                return best
            if rules.same_channels and not self._through_amd(rules):
                rules = replace(rules, same_channels=False)
                continue
            rules = replace(rules, same_channels=start.same_channels)
            self.left += time
            if self.left < 0 and best.channels:
                return best
            if node.system.capability >= 90 and rules.pattern == BALANCED_TREE:
                rules = replace(rules, pattern=PLAIN_TREE)
                continue
            rules = replace(rules, pattern=start.pattern)
            farthest = rules.type_inter if node._nets else last_intra
            if rules.type_intra < farthest and (not best.channels or rules.type_intra < best.rules.type_intra):
                rules = replace(rules, type_intra=rules.type_intra + 1)
                continue
            rules = replace(rules, type_intra=start.type_intra)
            nearer = not best.channels or rules.type_inter < best.rules.type_inter or rules.type_inter < PXN
            if node._nets and rules.type_inter < last_inter and nearer:
                rules = replace(rules, type_inter=rules.type_inter + 1)
                continue
            rules = replace(rules, type_inter=start.type_inter)
            if self.crossing == 2 and rules.cross_nic == 0 and start.pattern in (RING_PATTERN, BALANCED_TREE):
                rules = replace(rules, cross_nic=2)
                continue
            rules = replace(rules, cross_nic=start.cross_nic)
            if place == len(node._speeds) - 1:
                return best
            if best.channels and node._speeds[place + 1] / best.rules.speed_inter <= 0.49:
                return best
            place += 1
            rules = self._at(rules, place)

    def second_pass(self, found: Found) -> Found:
        """Raise the speed of what was found while it still fits."""
        self.best = found
        if not found.channels:
            return found
        node = self.node
        place = node.at_most(found.rules.speed_inter)
        rules = replace(self._at(found.rules, place), min_channels=found.channels)
        while place > 0:
            best = self.best
            if best.rules.pattern == RING_PATTERN:
                place -= 1
                rules = self._at(rules, place)
            elif (
                best.rules.pattern == NVLS_PATTERN
                and rules.speed_inter == best.rules.speed_inter
                and rules.speed_inter < 2 * rules.speed_intra
            ):
                place -= 1
                speed = node._speeds[place]
                rules = replace(rules, min_channels=best.channels, max_channels=best.channels, speed_inter=speed)
            elif (
                best.rules.pattern != NVLS_PATTERN
                and rules.speed_intra == best.rules.speed_intra
                and rules.speed_intra < 2 * rules.speed_inter
            ):
                place -= 1
                rules = replace(rules, speed_intra=node._speeds[place])
            else:
                break
            if self._search(rules) == 0:
                break
        return self.best

    def _at(self, rules: Rules, place: int) -> Rules:
        return replace(rules, speed_intra=self.node._speeds[place], speed_inter=self.node._speeds[place])

    def _through_amd(self, rules: Rules) -> bool:
        arch, vendor, _ = self.node.system.cpu
        return arch == "x86_64" and vendor == AMD and rules.type_intra == SYS

    def _search(self, rules: Rules) -> int:
        """Search under some rules unless that is in vain; return the steps left over."""
        steps = _STEPS_ALIKE if rules.same_channels else _STEPS
        self.left -= steps
        # Path types that nothing on the node has allow nothing new.
        seen = replace(
            rules,
            type_intra=max((kind for kind in self.node._between if kind <= rules.type_intra), default=LOC),
            type_inter=max((kind for kind in self.node._outward if kind <= rules.type_inter), default=LOC),
        )
        if seen not in self._tried:
            most, hops = self.node.ceiling.of(rules)
            if self.node.ceiling.in_vain(rules, most, hops, self.best):
                self._tried[seen] = steps
            else:
                ceiling = None if most is None else (most, most * hops)
                self.best, self._tried[seen] = self.node._search.run(rules, self.best, steps, ceiling)
        return self._tried[seen]
