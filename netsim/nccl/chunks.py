"""In what portions NCCL moves a channel's share: chunks by algorithm and size, slices, and the slots of a connection.

Rules of NCCL 2.17 to 2.30 (enqueue.cc, include/collectives.h). The last chunks of a share are shrunk on the GPU, which
is the business of `netsim.schedule.nccl`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from netsim.nccl.communicator import Communicator
from netsim.nccl.paths import PXB, TYPES
from netsim.nccl.settings import DEFAULT_SETTINGS, Settings
from netsim.nccl.tuner_constants import COLLNET_CHAIN, COLLNET_DIRECT, LL, LL128, NVLS, NVLS_TREE, PAT, RING, SIMPLE, TREE
from netsim.nccl.tuner_costs import ALL_GATHER, ALL_REDUCE, GATHERS, cost, graph_of
from netsim.nccl.version import Version
from netsim.schedule.nccl.protocols import PROTOCOLS, SLOTS

KIB = 1024
# A multi-node NVLS that NCCL expects to be slower than that, in GB/s, gets small chunks.
_SLOW_NVLS_GBPS = 150
# A slice is at least this part of a full one.
_LEAST_SLICE = 32


@dataclass(frozen=True)
class Steps:
    """How a chunk goes through the eight steps of a connection's buffer."""

    chunk: int
    """Steps of a chunk."""
    slice: int
    """Steps of a slice."""

    @property
    def slices(self) -> int:
        """Slices of a chunk."""
        return self.chunk // self.slice

    @property
    def slots(self) -> int:
        """Slices of a connection that may be under way or unread."""
        return SLOTS // self.slice


def steps_of(collective: str, algorithm: str, protocol: str) -> Steps:
    """Return the steps of a chunk and of a slice.

    Examples
    --------
    >>> steps_of("all_reduce", "ring", "simple"), steps_of("all_reduce", "ring", "simple").slots
    (Steps(chunk=4, slice=2), 4)
    """
    pipelined = algorithm == RING and protocol == SIMPLE and collective in (ALL_REDUCE, *GATHERS)
    return Steps(4, 2) if pipelined else Steps(1, 1)


def least_slice_bytes(collective: str, algorithm: str, protocol: str, settings: Settings) -> int:
    """Return the shortest slice with Simple, one 32nd of a full one; 0 with the protocols that send lines."""
    if protocol != SIMPLE:
        return 0
    return settings.step_bytes(SIMPLE) * steps_of(collective, algorithm, protocol).slice // _LEAST_SLICE


@dataclass(frozen=True)
class Chunking:
    """Chunks of one operation."""

    communicator: Communicator
    collective: str
    algorithm: str
    protocol: str
    heads: int = 1
    """Heads of a node, for NVLS and CollnetDirect."""
    registered: bool = False
    settings: Settings = DEFAULT_SETTINGS

    def bytes(self, moved: int, channels: int = 1) -> int:
        """Return the payload of a chunk, in bytes.

        Parameters
        ----------
        moved : int, bytes
            What a channel moves, as the larger of what a rank sends and receives in all; with more than one channel
            what they move together.
        channels : int
            More than one where all channels run the same interleaved loop.
        """
        rules = {
            TREE: self._tree,
            NVLS: self._nvls,
            NVLS_TREE: self._nvls_tree,
            COLLNET_DIRECT: self._collnet_direct,
            COLLNET_CHAIN: self._collnet_chain,
            PAT: self._pat,
        }
        rule = rules.get(self.algorithm)
        chunk = rule(moved, channels) if rule else self._start
        grain = PROTOCOLS[self.protocol].grain_bytes
        return max(chunk // grain, 1) * grain

    @property
    def _start(self) -> int:
        step = self.settings.step_bytes(self.protocol)
        chunk = step * steps_of(self.collective, self.algorithm, self.protocol).chunk
        return chunk // 2 if self.protocol == LL else chunk // 16 * 15 if self.protocol == LL128 else chunk

    @property
    def _nodes(self) -> int:
        return len(self.communicator.nodes)

    def _tree(self, moved: int, channels: int) -> int:
        ranks_per_node = self.communicator.ranks / self._nodes
        levels = self._nodes.bit_length() - 1
        if self.protocol == LL128:
            hops = 1 + levels + 0.1 * ranks_per_node
            limits = ((hops * 64 / ranks_per_node, 128 * KIB), (hops * 16 / ranks_per_node, 32 * KIB))
            return _halved(self._start, moved, channels, limits)
        if self.protocol == SIMPLE and self.communicator.version < Version(2, 20):
            depth = self.communicator.ranks // self._nodes - 1 + levels
            halvings = ((8 * depth, 128 * KIB), (4 * depth, 64 * KIB), (depth, 32 * KIB))
            return _halved(self._start, moved, channels, halvings)
        return self._start

    def _nvls(self, moved: int, channels: int) -> int:
        if self.registered and self.collective in GATHERS:
            return self._start
        most = nvls_chunk_bytes(self.communicator, self.settings)
        if self._nodes > 1 and cost(self.communicator, ALL_REDUCE, NVLS, SIMPLE, None).bandwidth_GBps < _SLOW_NVLS_GBPS:
            most = 32 * KIB
        return self._lowered(min(self._start, most), moved, channels, ((64, 64), (8, 32), (2, 16)))

    def _nvls_tree(self, moved: int, channels: int) -> int:
        chunk = nvls_chunk_bytes(self.communicator, self.settings)
        most = self.settings.nvls_tree_chunk_bytes or _nvls_tree_table(self.communicator)
        chunk = min(chunk, most or (64 * KIB if self._nodes >= 4 else chunk))
        return self._lowered(chunk, moved, channels, ((32, 256), (16, 128), (4, 64), (1, 32)))

    def _lowered(self, chunk: int, moved: int, channels: int, limits: tuple[tuple[int, int], ...]) -> int:
        """Lower a chunk to some KiB where the channels have less than so many loops over all heads to do."""
        for loops, kib in limits:
            if moved < loops * channels * self.heads * chunk:
                chunk = min(chunk, kib * KIB)
        return chunk

    def _collnet_direct(self, moved: int, channels: int) -> int:
        depth = 1 if self.communicator.ranks_per_node == 1 else 2
        limits = ((64 * depth, 128 * KIB), (8 * depth, 64 * KIB), (8 * depth, 32 * KIB))
        return _halved(self._start, moved, channels * self.heads, limits)

    def _collnet_chain(self, moved: int, channels: int) -> int:
        depth = self.communicator.ranks // self._nodes
        limits = ((64 * depth, 128 * KIB), (8 * depth, 64 * KIB), (depth, 32 * KIB))
        return _halved(min(256 * KIB, self._start), moved, channels, limits)

    def _pat(self, moved: int, channels: int) -> int:
        chunk, times = self._start, 32 if self.collective == ALL_GATHER else 16
        while chunk * channels * times > moved and chunk > 64 * KIB:
            chunk //= 2
        return chunk


def _halved(chunk: int, moved: int, parallel: int, limits: Sequence[tuple[float, int]]) -> int:
    """Halve a chunk while there are fewer of them than so many and it is longer than so much."""
    for fewest, longest in limits:
        while moved // (parallel * chunk) < fewest and chunk > longest:
            chunk //= 2
    return chunk


def nvls_chunk_bytes(communicator: Communicator, settings: Settings) -> int:
    """Return the longest chunk of NVLS, which is also the step of its buffers."""
    if settings.nvls_chunk_bytes:
        return settings.nvls_chunk_bytes
    few = len(communicator.nodes) == 2 and min(map(len, communicator.nodes)) <= 4
    fast = len(communicator.nodes) > 2 and communicator.net_GBps >= 96 and min(map(len, communicator.nodes)) <= 8
    tuned = blackwell_nodes(communicator) and communicator.net_GBps >= 48
    return 256 * KIB if tuned and (few or fast) else 128 * KIB


def blackwell_nodes(communicator: Communicator) -> bool:
    """Say whether 2.30's own table for several Blackwell nodes holds."""
    least = communicator.compute_capability >= 100
    return least and len(communicator.nodes) > 1 and communicator.version >= Version(2, 30)


def _nvls_tree_table(communicator: Communicator) -> int:
    """Return the longest chunk of NVLSTree on Blackwell nodes by NIC (NCCL 2.30, transport/nvls.cc); 0 without an entry."""
    if not blackwell_nodes(communicator) or communicator.net_GBps < 48:
        return 0
    ranks, speed = min(map(len, communicator.nodes)), communicator.net_GBps
    graph = graph_of(communicator, NVLS)
    near = graph is not None and TYPES.index(graph.type_inter) <= PXB
    if len(communicator.nodes) == 2:
        if ranks <= 4:
            return 256 * KIB
        return 64 * KIB if ranks >= 16 or (ranks <= 8 and near and speed < 96) else 128 * KIB
    if speed >= 96:
        return 256 * KIB if ranks <= 8 else 128 * KIB if ranks < 32 else 64 * KIB
    return 64 * KIB if near else 128 * KIB
