"""The numbers of NCCL's tuning model by release: latencies in us, caps in GB/s.

Facts of the public sources 2.17 to 2.30 (graph/tuning.cc), arranged as one newest set and what earlier releases differ in.
What is computed from them stands in `netsim.nccl.tuner_costs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from netsim.nccl.version import Version

RING, TREE, NVLS, NVLS_TREE = "ring", "tree", "nvls", "nvls_tree"
COLLNET_DIRECT, COLLNET_CHAIN, PAT = "collnet_direct", "collnet_chain", "pat"
ALGORITHMS = (TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT)
"""In NCCL's own order; the first of equally fast ones is taken."""
LL, LL128, SIMPLE = "ll", "ll128", "simple"
PROTOCOLS = (LL, LL128, SIMPLE)

Triple = tuple[float, float, float]
Latencies = Mapping[str, Triple]
"""Algorithm -> latency in us for LL, LL128 and Simple."""
Caps = tuple[Triple, Triple, Triple, Triple]
"""GB/s; rows Volta, Ampere, Hopper, Blackwell, columns one node, two nodes, more."""

VOLTA, AMPERE, HOPPER, BLACKWELL = range(4)

# LL, LL128, Simple; one entry a power of two, from 64 B (2.30; entries 0 to 22 are those of 2.17 on).
TREE_CORRECTION: Mapping[str, tuple[float, ...]] = {
    LL: (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    LL128: (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    SIMPLE: (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
TREE_CORRECTION_ENTRIES = 23
"""How many entries the tree uses; NVLSTree, which took the table over in 2.29, uses one more."""


@dataclass(frozen=True)
class Constants:
    """What one release computes its cost table from."""

    base: Latencies
    nvlink: Latencies
    """A hop inside a node whose GPUs are all joined by NVLink."""
    pci: Latencies
    """A hop inside any other node."""
    net: Latencies
    ll_max_GBps: Caps  # noqa: N815 - NCCL's unit
    """All channels together; over several nodes the row goes by the CPU: 1 AMD, 0 others."""
    ring_ll128_GBps: Caps  # noqa: N815
    """A channel, as the following."""
    tree_ll128_GBps: Caps  # noqa: N815
    tree_GBps: Caps  # noqa: N815
    nvls_tree_GBps: Caps  # noqa: N815
    nvls_efficiency: tuple[float, float, float, float] = (0.0, 0.0, 0.85, 0.74)
    """By GPU generation; used from 2.28 on."""


def _simple(us: float) -> Triple:
    return 0.0, 0.0, us


def _row(caps: Caps, row: int, values: Triple) -> Caps:
    """Return `caps` with one row replaced."""
    first, second, third, fourth = (values if number == row else old for number, old in enumerate(caps))
    return first, second, third, fourth


_NEWEST = Constants(
    base={
        TREE: (6.8, 14.0, 8.4),
        RING: (6.6, 14.0, 8.4),
        COLLNET_DIRECT: _simple(0),
        COLLNET_CHAIN: _simple(0),
        NVLS: _simple(0),
        NVLS_TREE: _simple(0),
        PAT: (8.0, 8.0, 8.0),
    },
    nvlink={
        TREE: (0.6, 1.25, 4.0),
        RING: (0.6, 1.9, 3.4),
        COLLNET_DIRECT: _simple(3.7),
        COLLNET_CHAIN: _simple(2.8),
        NVLS: _simple(25),
        NVLS_TREE: _simple(25),
        PAT: _simple(4.0),
    },
    pci={
        TREE: (1.0, 1.9, 4.0),
        RING: (1.0, 2.5, 5.7),
        COLLNET_DIRECT: _simple(3.7),
        COLLNET_CHAIN: _simple(2.8),
        NVLS: _simple(0),
        NVLS_TREE: _simple(0),
        PAT: _simple(4.0),
    },
    net={
        TREE: (5.0, 8.5, 14.0),
        RING: (2.7, 4.0, 14.0),
        COLLNET_DIRECT: _simple(31),
        COLLNET_CHAIN: _simple(30),
        NVLS: _simple(18),
        NVLS_TREE: _simple(20.9),
        PAT: _simple(14),
    },
    ll_max_GBps=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
    ring_ll128_GBps=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0)),
    tree_ll128_GBps=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    tree_GBps=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
    nvls_tree_GBps=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
)


def _with(latencies: Latencies, **changes: Triple) -> Latencies:
    return {**latencies, **changes}


@cache
def constants(version: Version) -> Constants:
    """Return the constants of a release: the newest ones, taken back step by step."""
    values = _NEWEST
    if version < Version(2, 29):
        ring = (73.4, 34.6, 73.4) if version >= Version(2, 28, 7) else (73.4, 73.4, 73.4)
        values = replace(
            values,
            net=_with(values.net, nvls_tree=_simple(14)),
            ring_ll128_GBps=_row(values.ring_ll128_GBps, BLACKWELL, ring),
            nvls_tree_GBps=_row(values.nvls_tree_GBps, BLACKWELL, (0.0, 96.0, 43.8)),
        )
    if version < Version(2, 28):  # first Blackwell values: twice Hopper's
        values = replace(
            values,
            tree_ll128_GBps=_row(values.tree_ll128_GBps, BLACKWELL, (73.4, 73.4, 58.0)),
            tree_GBps=_row(values.tree_GBps, BLACKWELL, (77.4, 82.8, 72.0)),
        )
    if version < Version(2, 25):  # Blackwell is taken for Hopper
        values = replace(
            values,
            ll_max_GBps=_row(values.ll_max_GBps, BLACKWELL, values.ll_max_GBps[HOPPER]),
            ring_ll128_GBps=_row(values.ring_ll128_GBps, BLACKWELL, values.ring_ll128_GBps[HOPPER]),
            tree_ll128_GBps=_row(values.tree_ll128_GBps, BLACKWELL, values.tree_ll128_GBps[HOPPER]),
            tree_GBps=_row(values.tree_GBps, BLACKWELL, values.tree_GBps[HOPPER]),
        )
    if version < Version(2, 23):
        values = replace(
            values,
            base=_with(values.base, tree=(6.8, 14.0, 0.0)),
            nvlink=_with(values.nvlink, tree=(0.6, 1.25, 28.0)),
            pci=_with(values.pci, tree=(1.0, 1.9, 28.0)),
            net=_with(values.net, tree=(5.0, 8.5, 28.0)),
        )
    if version < Version(2, 21):
        ampere = values.ll_max_GBps[AMPERE]
        values = replace(
            values,
            nvlink=_with(values.nvlink, nvls=_simple(23), nvls_tree=_simple(23)),
            ll_max_GBps=_row(_row(values.ll_max_GBps, HOPPER, ampere), BLACKWELL, ampere),
        )
    if version < Version(2, 19):
        values = replace(
            values,
            base=_with(
                values.base,
                nvls=_simple(23),
                nvls_tree=_simple(23),
                collnet_direct=(6.8, 14.0, 0.0),
                collnet_chain=(6.8, 14.0, 0.0),
            ),
            nvlink=_with(
                values.nvlink,
                tree=(0.6, 1.25, 4.0),
                nvls=_simple(0),
                nvls_tree=_simple(0),
                collnet_direct=_simple(8),
                collnet_chain=_simple(4.75),
            ),
            pci=_with(values.pci, tree=(1.0, 1.9, 6.0), collnet_direct=_simple(8), collnet_chain=_simple(8)),
            net=_with(
                values.net,
                tree=(5.0, 8.5, 14.0),
                nvls_tree=_simple(19),
                collnet_direct=_simple(10.7),
                collnet_chain=_simple(14),
            ),
        )
    return _before_2_18(values) if version < Version(2, 18) else values


def _before_2_18(values: Constants) -> Constants:
    """Take back the refit of 2.18: 2.17 still has the constants of 2.12, made for Ampere."""
    ll128 = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (36.7,) * 3)
    tree = (38.7, 41.4, 33.0)
    return replace(
        values,
        base=_with(
            values.base,
            tree=(4.4, 4.4, 0.0),
            ring=(3.6, 10.0, 8.4),
            collnet_direct=(4.4, 4.4, 0.0),
            collnet_chain=(4.4, 4.4, 0.0),
            nvls=_simple(40),
        ),
        nvlink=_with(values.nvlink, tree=(0.52, 1.25, 28.0), ring=(0.47, 1.9, 3.4), collnet_chain=_simple(8)),
        pci=_with(values.pci, tree=(1.0, 1.9, 28.0)),
        net=_with(values.net, tree=(5.0, 8.5, 28.0), ring=(2.7, 4.0, 9.6), nvls=_simple(0), collnet_chain=_simple(10.7)),
        ring_ll128_GBps=ll128,
        tree_ll128_GBps=ll128,
        tree_GBps=_row(_row(values.tree_GBps, HOPPER, tree), BLACKWELL, tree),
    )
