"""Latency and bandwidth that NCCL expects of an algorithm and a protocol: its tuning model before any size is known.

The rules of graph/tuning.cc, 2.17 to 2.30, on the constants of `netsim.nccl.tuner_constants`. They are NCCL's prediction,
used to choose; what an operation takes is simulated elsewhere. Which pairs may run at all says `netsim.nccl.availability`.
NCCL computes in single precision, this module in double: the printed table agrees, a tie within 1e-7 may not.
"""

from dataclasses import dataclass

from netsim.nccl.communicator import Communicator
from netsim.nccl.graphs import PLAIN_TREE, ChannelGraph
from netsim.nccl.tuner_constants import (
    AMPERE,
    BLACKWELL,
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    HOPPER,
    LL,
    LL128,
    NVLS,
    NVLS_TREE,
    PAT,
    PROTOCOLS,
    RING,
    SIMPLE,
    TREE,
    VOLTA,
    Constants,
    constants,
)
from netsim.nccl.version import Version

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
)
TUNED = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE)
"""Collectives that NCCL chooses an algorithm for; all others are sends and receives."""
GATHERS = (ALL_GATHER, REDUCE_SCATTER)
COLLNETS = (COLLNET_DIRECT, COLLNET_CHAIN)
NVLS_KINDS = (NVLS, NVLS_TREE)

_GRAPH_OF = {NVLS_TREE: NVLS, PAT: TREE}
# 2.17 never lets a graph promise more than this to a generation of GPUs.
_NODE_CAP_2_17 = {AMPERE: 235.0, HOPPER: 370.0, BLACKWELL: 370.0}


@dataclass(frozen=True)
class Cost:
    """What NCCL expects of one algorithm and protocol: time = latency + size / bandwidth, before corrections by size."""

    latency_us: float
    bandwidth_GBps: float  # noqa: N815 - NCCL's unit
    """Algorithm bandwidth, 1e9 bytes/s; 0 where the pair cannot run."""


def steps(collective: str, ranks: int) -> int:
    """Count the steps of a ring, which NCCL also uses to turn bus into algorithm bandwidth."""
    if collective == ALL_REDUCE:
        return 2 * (ranks - 1)
    return ranks - 1 if collective in GATHERS else ranks


def graph_of(communicator: Communicator, algorithm: str) -> ChannelGraph | None:
    """Return the graph that an algorithm runs on, None where none was found."""
    name = _GRAPH_OF.get(algorithm, algorithm)
    if communicator.version < Version(2, 18) and algorithm == NVLS:
        name = RING  # 2.17 searches none for NVLS
    graph = communicator.graphs.get(name)
    return graph if graph is not None and graph.channels else None


def generation(compute_capability: int) -> int:
    """Return the row of NCCL's tables for a compute capability times ten."""
    for least, row in ((100, BLACKWELL), (90, HOPPER), (80, AMPERE)):
        if compute_capability >= least:
            return row
    return VOLTA


def cost(communicator: Communicator, collective: str, algorithm: str, protocol: str, net_overhead_us: float | None) -> Cost:
    """Return what NCCL expects of a pair that serves the collective, whether or not it may run here.

    Parameters
    ----------
    net_overhead_us : float or None, us
        NCCL_NET_OVERHEAD; None is NCCL's default by CPU.
    """
    graph = graph_of(communicator, algorithm)
    if graph is None:
        return Cost(0.0, 0.0)
    model = _Model(communicator, collective, algorithm, protocol, graph, constants(communicator.version))
    return Cost(model.latency_us(net_overhead_us), model.bandwidth_GBps())


@dataclass(frozen=True)
class _Model:
    """One entry of the table, with what its formulas share."""

    communicator: Communicator
    collective: str
    algorithm: str
    protocol: str
    graph: ChannelGraph
    constants: Constants

    @property
    def version(self) -> Version:
        return self.communicator.version

    @property
    def nodes(self) -> int:
        return len(self.communicator.nodes)

    @property
    def ranks_per_node(self) -> float:
        """The mean, as NCCL has it."""
        return self.communicator.ranks / self.nodes

    @property
    def generation(self) -> int:
        return generation(self.communicator.compute_capability)

    @property
    def scale(self) -> int:
        """Column of the caps."""
        return min(self.nodes, 3) - 1

    def bandwidth_GBps(self) -> float:  # noqa: N802 - NCCL's unit
        bus = self._capped_by_protocol(self.graph.channels * self._channel())
        ranks = self.communicator.ranks
        if self.algorithm == RING:
            return bus * ranks / steps(self.collective, ranks)
        if self.collective in GATHERS:
            # Until 2.22 NVLS was converted like an all-reduce; CollnetDirect never was.
            return bus * 5 / 6 if self.algorithm == NVLS and self.version < Version(2, 23) else bus
        return bus * self._share()

    def _share(self) -> float:
        """Algorithm bandwidth over bus bandwidth of an all-reduce that is no ring."""
        if self.algorithm not in NVLS_KINDS:
            return 0.5
        if self.version >= Version(2, 28):
            return self.communicator.ranks / steps(self.collective, self.communicator.ranks)
        if self.version >= Version(2, 19):
            return 5 / 6
        if self.algorithm == NVLS_TREE:
            return 0.7 * self.nodes / (2 * (self.nodes - 1))
        return 5 / 6 if self.version >= Version(2, 18) else 0.75

    def _channel(self) -> float:
        """Return what a channel is worth, GB/s."""
        graph, version = self.graph, self.version
        inside, between = graph.intra_GBps, graph.inter_GBps
        if self.algorithm in NVLS_KINDS and version >= Version(2, 19):
            return self._nvls_channel(inside, between)
        worth = inside if self.nodes <= 2 or self.algorithm in COLLNETS else between
        if version < Version(2, 18):
            cap = _NODE_CAP_2_17.get(self.generation)
            worth = worth if cap is None else min(worth, cap / graph.channels)
        return worth

    def _nvls_channel(self, inside: float, between: float) -> float:
        graph, per_node = self.graph, self.ranks_per_node
        if self.version >= Version(2, 28):
            # An all-reduce does two operations at a time; the others lack the rank's own part.
            worth = inside * self.constants.nvls_efficiency[self.generation] * (graph.channels - 1) / graph.channels
            worth *= 2 if self.collective == ALL_REDUCE else (per_node - 1) / per_node
            if self.algorithm == NVLS:
                return min(worth, between)
            cap = self.constants.nvls_tree_GBps[self.generation][self.scale]
            return min(worth, 2 * between if self.nodes <= 2 else between, cap)
        if self.algorithm == NVLS_TREE:
            return min(inside, between if self.nodes <= 2 else between / 2)
        if self.collective in GATHERS and self.version >= Version(2, 27):
            return min(inside * (per_node - 1) / per_node, 0.9 * between)
        return min(inside, between)

    def _capped_by_protocol(self, bus: float) -> float:
        if self.algorithm == RING:
            return self._ring(bus)
        if self.algorithm == TREE:
            return self._tree(bus)
        if self.algorithm == PAT:
            return bus * (0.75 if self.version >= Version(2, 24) else 0.85)
        if self.algorithm == COLLNET_CHAIN and self.version < Version(2, 18):
            return bus * 0.75
        return self._collnet_direct(bus) if self.algorithm == COLLNET_DIRECT else bus

    def _ring(self, bus: float) -> float:
        if self.protocol == LL:
            share = 0.5
            if self.version < Version(2, 21):
                share = 1 / 4 if self.nodes > 1 or self.collective in (ALL_REDUCE, REDUCE) else 1 / 3
            return min(self._ll_max(), bus * share)
        if self.protocol == LL128:
            share = 0.7 if self.ranks_per_node < 2 and self.version < Version(2, 23) else 0.92
            return min(bus * share, self.graph.channels * self.constants.ring_ll128_GBps[self.generation][self.scale])
        return bus

    def _ll_max(self) -> float:
        row = self.generation
        if self.nodes > 1:
            row = AMPERE if self.communicator.cpu_vendor in ("AuthenticAMD", "mixed") else VOLTA
        return self.constants.ll_max_GBps[row][self.scale]

    def _tree(self, bus: float) -> float:
        channels = self.graph.channels
        bus = min(bus * 0.92, channels * self.constants.tree_GBps[self.generation][self.scale])
        if self.protocol == LL:
            bus = min(bus / 3.8, self._ll_max())
        if self.protocol == LL128:
            cap = channels * self.constants.tree_ll128_GBps[self.generation][self.scale]
            bus = min(bus * (7 / 9 if self.nodes == 1 else 120 / 128), cap)
        plain = self.graph.pattern == PLAIN_TREE and self.version >= Version(2, 18)
        return bus * 0.85 if plain else bus

    def _collnet_direct(self, bus: float) -> float:
        per_node, graph = self.ranks_per_node, self.graph
        if self.collective in GATHERS:
            if self.version >= Version(2, 27):
                return per_node * min(graph.intra_GBps, 0.9 * graph.inter_GBps)
            # 0.95 measured with one rank a node, 0.85 with eight; linear in between.
            weight = (per_node - 1) / 7
            return per_node * graph.intra_GBps * (weight * 0.85 + (1 - weight) * 0.95)
        gpus_per_nic = per_node / graph.channels
        bus /= gpus_per_nic - (gpus_per_nic - 1) / 2
        return bus * 0.85 if self.generation >= HOPPER and self.version >= Version(2, 18) else bus

    def latency_us(self, net_overhead_us: float | None) -> float:
        column = PROTOCOLS.index(self.protocol)
        base = self.constants.base[self.algorithm][column]
        inside, between = self._hop(self.algorithm, column), self._net_hop(column)
        local = self.communicator.ranks // self.nodes - 1
        rounds = self.nodes.bit_length() - 1  # floor of log2
        if self.algorithm == RING:
            return base + self._ring_latency(column, inside, between, net_overhead_us)
        if self.algorithm == TREE:
            return base + 2 * (local * inside + rounds * between)
        if self.algorithm == COLLNET_DIRECT:
            peer = 0.4 if self.version >= Version(2, 19) else 0.5  # us, a peer served after another
            return base + 2 * (min(1, local) * inside + local * peer) + between
        if self.algorithm == COLLNET_CHAIN:
            return base + 2 * local * inside + (between if self.version >= Version(2, 18) else 0)
        if self.algorithm == PAT:
            return base + rounds * between / 3.5 + 2.8 * self.communicator.ranks
        return self._nvls_latency(column, base + inside, between, rounds)

    def _nvls_latency(self, column: int, start: float, between: float, rounds: int) -> float:
        if self.version < Version(2, 19):
            hop = self.constants.net[self.algorithm][column]
            hops = 2 * (self.nodes - 1) if self.algorithm == NVLS_TREE else min(1, self.nodes - 1)
            return start + hops * hop
        if self.algorithm == NVLS:
            return start + (between if self.nodes > 1 else 0)
        return start + 2 * rounds * between

    def _hop(self, algorithm: str, column: int) -> float:
        """Latency of a hop inside a node; LL over several nodes counted it 1.8 times in 2.17."""
        nvlink = self.graph.type_intra == "NVL"
        if not nvlink and (algorithm, PROTOCOLS[column]) == (TREE, SIMPLE) and self.communicator.cpu_arch == "ppc64":
            algorithm = RING  # on POWER the tree is not to lose against the ring
        hop = (self.constants.nvlink if nvlink else self.constants.pci)[algorithm][column]
        return hop * 1.8 if self.version < Version(2, 18) and self.nodes > 1 and self.protocol == LL else hop

    def _net_hop(self, column: int) -> float:
        # One rank a node exposes the whole latency, which the tree's figure stands for.
        alone = self.ranks_per_node == 1 and self.version >= Version(2, 23)
        hop = self.constants.net[TREE if alone else self.algorithm][column]
        if self.version < Version(2, 18):
            return self.graph.latency_inter_us or hop
        return hop + self.graph.latency_inter_us * (2 if self.protocol == SIMPLE else 1)  # Simple flushes

    def _ring_latency(self, column: int, inside: float, between: float, net_overhead_us: float | None) -> float:
        ranks, nodes, version = self.communicator.ranks, self.nodes, self.version
        if self.collective in (BROADCAST, REDUCE):
            same = self.graph.same_channels
            algorithm = TREE if self.protocol == SIMPLE and not same else RING
            hop = self.constants.net[algorithm][column]
            if nodes == 1:
                hop = self._hop(algorithm, column)
            return hop if same else ranks * hop
        between_steps = 0 if nodes == 1 else nodes - 1
        if self.collective == ALL_REDUCE and nodes > 1:
            between_steps = 2 * (nodes - 1 if version >= Version(2, 23) else nodes)
        if nodes > 1 and version >= Version(2, 18):
            # A ring through the network starts every step on the CPU, those inside a node included.
            inside = max(inside, self._net_overhead(net_overhead_us) * (3 if self.protocol == SIMPLE else 1))
        return (steps(self.collective, ranks) - between_steps) * inside + between_steps * between

    def _net_overhead(self, given_us: float | None) -> float:
        if given_us is not None:
            return given_us
        amd = self.communicator.cpu_arch == "x86_64" and self.communicator.cpu_vendor == "AuthenticAMD"
        return 2.0 if amd else 1.0
