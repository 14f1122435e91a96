"""The backtracking part of NCCL's graph search: at one speed and one set of rules, how many channels fit on a node.

Tries orders of GPUs (and the network ports at their ends) channel by channel and takes a channel's speed from every wire
on its way; the best set seen so far is kept. It stops when all channels asked for fit or a number of steps is used up,
both as in NCCL (2.30, graph/search.cc, restated), so that where NCCL gives up early this does, too. Written with
generators on a stack of its own instead of recursion: 72 GPUs times 32 channels are deeper than Python calls may nest.
`netsim.nccl.search` decides which speeds and rules are tried.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from netsim.nccl.graphs import (
    BALANCED_TREE,
    COLLNET_DIRECT_PATTERN,
    NVLS_PATTERN,
    PLAIN_TREE,
    RING_PATTERN,
    SPLIT_TREE,
)
from netsim.nccl.paths import DIS, Path, Paths

Steps = Generator["Steps", None, None]
OPTIMAL = -1
"""Steps left over when all channels that were asked for fit."""

_TREES = (BALANCED_TREE, SPLIT_TREE, PLAIN_TREE)
_HEADS = (NVLS_PATTERN, COLLNET_DIRECT_PATTERN)
_FREE, _PCI_ORDER, _REPLAY = range(3)
_PCI_ORDER_STEPS = 1 << 10


@dataclass(frozen=True)
class Rules:
    """One set of rules for a search, and the speeds of a channel in MB/s."""

    pattern: int
    speed_intra: int
    speed_inter: int
    type_intra: int
    type_inter: int
    cross_nic: int
    same_channels: bool
    min_channels: int
    max_channels: int
    collnet: bool = False


@dataclass(frozen=True)
class Found:
    """A set of channels that fits under its rules."""

    rules: Rules
    gpus: tuple[tuple[int, ...], ...] = ()
    nets: tuple[tuple[int, int], ...] = ()
    """First and last port of each channel; empty on a single node."""
    hops: int = 0

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.gpus)


class ChannelSearch:
    """Searches one node; keeps what does not change between searches."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.gpus = len(paths.system.gpus)
        self.nets = len(paths.system.nets)
        self._has_switch = bool(paths.gpu_switch)
        self._capacity = [wire.capacity for wire in paths.system.wires]
        self._net_speed = [round(1000 * paths.system.net_GBps(net)) for net in paths.system.nets]
        self._sorted: dict[tuple[int, int | None], list[tuple[int, int]]] = {}
        self._offered: dict[tuple[int, int | None], list[int]] = {}
        self._pcie = [self._pcie_width(gpu) for gpu in paths.system.gpus]
        self._time = 0

    def run(self, rules: Rules, best: Found, steps: int, ceiling: tuple[int, int] | None = None) -> tuple[Found, int]:
        """Search under some rules; return the better of what was found and of `best`, and the steps left over.

        `ceiling`, if given, is the most channels that can fit and the fewest hops that so many take: once reached, nothing
        better can come, and the rest of the steps counts as used.
        """
        self._rules = rules
        self._ceiling = ceiling
        self._best = best
        self._free = list(self._capacity)
        self._net_free = list(self._net_speed)
        self._used = [0] * (rules.max_channels + 1)
        self._order = [[0] * self.gpus for _ in range(rules.max_channels + 1)]
        self._ends = [[0, 0] for _ in range(rules.max_channels + 1)]
        self._count = 0
        self._hops = 0
        self._drive(self._next_channel(), steps)
        return self._best, self._time

    def _drive(self, root: Steps, steps: int) -> None:
        """Walk the tree of choices until it is exhausted or the steps are; every yielded generator is one level deeper."""
        self._time = steps
        stack = [root]
        while stack and self._time != OPTIMAL:
            child = next(stack[-1], None)
            if child is None:
                stack.pop()
            elif self._time <= 0:
                break
            else:
                self._time -= 1
                stack.append(child)

    # Wires

    def _take(self, path: Path, speed: int, hops: int = 1) -> bool:
        """Take a speed from all wires of a path, or from none and say so."""
        free = self._free
        loads = path.loads(speed)
        for place, (wire, amount) in enumerate(loads):
            if free[wire] < amount:
                for before, taken in loads[:place]:
                    free[before] += taken
                return False
            free[wire] -= amount
        self._hops += hops * len(path.wires)
        return True

    def _give(self, path: Path, speed: int, hops: int = 1) -> None:
        free = self._free
        for wire, amount in path.loads(speed):
            free[wire] += amount
        self._hops -= hops * len(path.wires)

    def _allowed(self, path: Path, back: Path, limit: int) -> bool:
        """Say whether a path is near enough; trees need both directions."""
        return path.type <= limit and (self._rules.pattern not in _TREES or back.type <= limit)

    # Channels

    def _next_channel(self) -> Steps:
        """Begin one more channel."""
        rules = self._rules
        if self.nets:
            back = self.gpus - 1 if rules.pattern == RING_PATTERN else 1 if rules.pattern == SPLIT_TREE else 0
            return self._from_net(back)
        return self._from_gpu(self.gpus - 1 if rules.pattern == RING_PATTERN else -1)

    def _from_gpu(self, home: int) -> Steps:
        """Begin a channel on a single node: in PCI order, as the channel before, then at every GPU."""
        if self._rules.pattern == NVLS_PATTERN:
            yield from self._visit(self._count % self.gpus, 0, -1, home, _FREE)
            return
        if self._count == 0:
            yield from self._visit(0, 0, -1, home, _PCI_ORDER)
        else:
            yield from self._visit(self._order[self._count - 1][0], 0, -1, home, _REPLAY)
        if self._count == 0 or not self._rules.same_channels:
            for gpu in range(self.gpus):
                yield from self._visit(gpu, 0, -1, home, _FREE)

    def _from_net(self, back: int) -> Steps:
        """Begin a channel at each port in turn."""
        rules, count = self._rules, self._count
        speed = rules.speed_inter
        offered = self._ports(rules.type_inter, None)
        for turn in range(len(offered)):
            net = offered[(count + turn) % len(offered)]
            if self._net_free[net] < speed:
                continue
            if rules.pattern == RING_PATTERN and rules.cross_nic == 2 and count & 1 and net != self._ends[count - 1][1]:
                continue
            self._ends[count][0] = net
            self._net_free[net] -= speed
            found = False
            for child in self._starts(net, back, len(offered)):
                found = True
                yield child
            self._net_free[net] += speed
            if found and rules.pattern in _HEADS:
                break

    def _starts(self, net: int, back: int, offered: int) -> Iterator[Steps]:
        """Yield the ways in which a channel that enters by a port may begin."""
        rules, count, paths = self._rules, self._count, self.paths
        nearest = paths.local_gpu[net]
        if rules.pattern in _HEADS:
            taken = [self._order[channel][0] for channel in range(count)]
            if count < offered and nearest is not None and nearest not in taken:
                yield from self._enter(net, nearest, back, _FREE)
            return
        if count > 0 and rules.same_channels:
            yield from self._enter(net, self._order[count - 1][0], back, _REPLAY)
            return
        if count == 0 and not self._has_switch:
            self._try_pci_order(net, back)
        if nearest is not None:
            yield from self._enter(net, nearest, back, _FREE)
        for gpu in paths.local_gpus[net]:
            if gpu != nearest:
                yield from self._enter(net, gpu, back, _FREE)

    def _try_pci_order(self, net: int, back: int) -> None:
        """Try PCI order first, within steps of its own, as a reference for the rest."""
        steps, free, net_free = self._time, list(self._free), list(self._net_free)
        used, hops = list(self._used), self._hops
        for child in self._enter(net, 0, back, _PCI_ORDER):
            self._drive(child, _PCI_ORDER_STEPS - 1)
            break
        if self._time != OPTIMAL:
            self._time = steps
        self._free, self._net_free, self._used, self._hops, self._count = free, net_free, used, hops, 0

    def _enter(self, net: int, gpu: int, back: int, order: int) -> Iterator[Steps]:
        """Go from a port to a channel's first GPU."""
        path, speed = self.paths.net_gpu[net][gpu], self._rules.speed_inter
        if self._allowed(path, self.paths.gpu_net[gpu][net], self._rules.type_inter) and self._take(path, speed):
            yield from self._visit(gpu, 0, back, -1, order)
            self._give(path, speed)

    # GPUs

    def _visit(self, gpu: int, step: int, back: int, home: int, order: int) -> Iterator[Steps]:
        """Mark a GPU as part of the channel while what follows it is tried."""
        count, bit = self._count, 1 << gpu
        self._used[count] ^= bit
        yield self._go_on(gpu, step, back, home, order)
        self._used[count] ^= bit

    def _go_on(self, gpu: int, step: int, back: int, home: int, order: int) -> Steps:
        """Continue a channel from a GPU: leave by a port, go to another GPU, close the ring, or end."""
        rules, count = self._rules, self._count
        if step == self.gpus:
            yield from self._complete()
            return
        self._order[count][step] = gpu
        if step == back:
            yield from self._leave(gpu, step, home, order)
        elif rules.pattern in _HEADS:
            yield from self._join_head(gpu)
        elif step < self.gpus - 1:
            row = self.paths.gpu_gpu
            speed = rules.speed_intra
            for other in self._candidates(gpu, step, back, order):
                path = row[gpu][other]
                if self._allowed(path, row[other][gpu], rules.type_intra) and self._take(path, speed):
                    bit = 1 << other
                    self._used[count] ^= bit
                    yield self._go_on(other, step + 1, back, home, order)
                    self._used[count] ^= bit
                    self._give(path, speed)
        elif step == home:
            first = self._order[count][0]
            path = self.paths.gpu_gpu[gpu][first]
            if path.type <= rules.type_intra and self._take(path, rules.speed_intra):
                yield self._go_on(first, step + 1, back, -1, order)
                self._give(path, rules.speed_intra)
        else:
            yield self._go_on(gpu, self.gpus, -1, -1, order)

    def _complete(self) -> Steps:
        """Count a finished channel, keep the set if it is the best, and begin the next one."""
        self._count += 1
        if self._is_better():
            self._best = Found(
                self._rules,
                tuple(tuple(order) for order in self._order[: self._count]),
                tuple((ends[0], ends[1]) for ends in self._ends[: self._count]) if self.nets else (),
                self._hops,
            )
            if self._count == self._rules.max_channels:
                self._time = OPTIMAL
            elif self._ceiling == (self._count, self._hops):
                self._time = 0
        if self._count < self._rules.max_channels and self._time > 0:
            self._time += 1  # beginning a channel is no step of its own
            yield self._next_channel()
        self._count -= 1

    def _is_better(self) -> bool:
        rules, best, count = self._rules, self._best, self._count
        if count < rules.min_channels:
            return False
        if rules.pattern == NVLS_PATTERN:
            more = best.channels < count <= self.gpus
            return more or count * rules.speed_inter > best.channels * best.rules.speed_inter
        mine, theirs = count * rules.speed_intra, best.channels * best.rules.speed_intra
        if mine != theirs:
            return mine > theirs
        alike = (rules.pattern, rules.cross_nic) == (best.rules.pattern, best.rules.cross_nic)
        return alike and self._hops < best.hops

    def _leave(self, gpu: int, step: int, home: int, order: int) -> Steps:
        """Leave by each port that the rules allow, then go on from the same GPU."""
        rules, count = self._rules, self._count
        entry = self._ends[count][0]
        balanced = rules.pattern == BALANCED_TREE
        speed = rules.speed_inter // 2 if balanced else rules.speed_inter
        for net in self._ports(rules.type_inter, gpu):
            if rules.pattern == PLAIN_TREE and net != entry:
                continue
            if rules.pattern == RING_PATTERN and rules.cross_nic == 2:
                if count & 1 and net != self._ends[count - 1][0]:
                    continue
            elif rules.cross_nic == 0 and net != entry:
                continue
            if balanced and step == 1 and net != self._ends[count][1]:
                continue
            path = self.paths.gpu_net[gpu][net]
            if self._allowed(path, self.paths.net_gpu[net][gpu], rules.type_inter) and self._take(path, speed):
                self._ends[count][1] = net
                yield self._go_on(gpu, step, 1 if balanced and step == 0 else -1, home, order)
                self._give(path, speed)

    def _join_head(self, head: int) -> Steps:
        """Load what a head's channel loads: with NVLS every GPU's links to the switch, with CollnetDirect those to peers."""
        speed, gpus = self._rules.speed_intra, range(self.gpus)
        parts: list[tuple[Path, int, int]] = []
        if self._rules.pattern == NVLS_PATTERN:
            for row in (self.paths.switch_gpu, self.paths.gpu_switch):
                parts += [(row[gpu], speed * (2 if gpu == head else 1), 2 if gpu == head else 1) for gpu in gpus]
        elif self.gpus > 1:
            share = speed // (self.gpus - 1)
            table = self.paths.gpu_gpu
            parts += [(table[head][gpu], share, 1) for gpu in gpus if gpu != head]
            parts += [(table[gpu][head], share, 1) for gpu in gpus if gpu != head]
        taken: list[tuple[Path, int, int]] = []
        for part in parts:
            if part[0].type == DIS or not self._take(*part):
                break
            taken.append(part)
        if len(taken) == len(parts):
            yield self._go_on(head, self.gpus, -1, -1, _FREE)
        for part in taken:
            self._give(*part)

    # Orders in which things are tried

    def _candidates(self, gpu: int, step: int, back: int, order: int) -> list[int]:
        """Return the GPUs that may follow, in the order in which NCCL tries them."""
        count = self._count
        if order == _PCI_ORDER:
            return [step + 1]
        if order == _REPLAY:
            return [self._order[count - 1][step + 1]]
        used = self._used[count]
        if self._has_switch:
            # Behind NVSwitches only the neighbours are tried.
            before, after = (gpu - 1) % self.gpus, (gpu + 1) % self.gpus
            first = [after]
            if self._rules.pattern == RING_PATTERN:
                first = [before, after]
            elif self._rules.pattern in (BALANCED_TREE, SPLIT_TREE):
                first = [after, before]
            row = self.paths.gpu_gpu[gpu]
            return [other for other in dict.fromkeys(first) if not used >> other & 1 and row[other].type < DIS]
        sort_net = 0 if back == -1 else 1 if back == step + 1 else -1
        scored = self._scored(gpu, self._ends[count][0] if sort_net else None)
        following = [other for other, _ in scored if not used >> other & 1]
        if sort_net == -1 and len({score for other, score in scored if not used >> other & 1}) == 1:
            following.reverse()
        return following

    def _scored(self, gpu: int, net: int | None) -> list[tuple[int, int]]:
        """Return the GPUs that can be reached, best first, each with what only paths inside the node give it."""
        found = self._sorted.get((gpu, net))
        if found is None:
            rows = []
            for turn in range(1, self.gpus):
                other = (gpu + turn) % self.gpus
                path = self.paths.gpu_gpu[gpu][other]
                if path.type == DIS:
                    continue
                key: tuple[int, ...] = (-(path.bandwidth // 1000), len(path.wires), turn)
                if net is not None:
                    way = self.paths.net_gpu[net][other]
                    key = (-(way.bandwidth // 1000), -(self._pcie[other] // 1000), len(way.wires), *key)
                rows.append((key, other, path.bandwidth // 1000 * 64 + len(path.wires)))
            found = self._sorted[gpu, net] = [(other, inside) for _, other, inside in sorted(rows)]
        return found

    def _ports(self, type_inter: int, gpu: int | None) -> list[int]:
        """Return the ports to try: those that each GPU (or one) prefers, then the others by distance."""
        found = self._offered.get((type_inter, gpu))
        if found is None:
            gpus = range(self.gpus) if gpu is None else [gpu]
            preferred = [net for one in gpus for net in self.paths.nets_of(one)]
            others = [
                net
                for distance in range(type_inter + 1)
                for one in gpus
                for net in range(self.nets)
                if self.paths.gpu_net[one][net].type == distance
            ]
            found = self._offered[type_inter, gpu] = list(dict.fromkeys(preferred + others))
        return found

    def _pcie_width(self, gpu: int) -> int:
        """Return what a GPU's PCI Express link carries, -1 where it has none."""
        return max((w.capacity for w in self.paths.system.wires if w.source == gpu and w.type == "PCI"), default=-1)
