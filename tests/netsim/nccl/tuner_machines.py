"""Machines as the tests of the tuner need them: communicators written by hand from channel counts and speeds."""

from netsim.nccl.communicator import Communicator
from netsim.nccl.graphs import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_PATTERN,
    PLAIN_TREE,
    RING,
    RING_PATTERN,
    TREE,
    ChannelGraph,
    ChannelOrder,
)
from netsim.nccl.version import Version

NEWEST = Version(2, 30, 7)
MEASURED = Version(2, 28, 9)
PATTERNS = {RING: RING_PATTERN, NVLS: NVLS_PATTERN}
Speed = tuple[int, float] | tuple[int, float, float]


def graph(
    name: str, speed: Speed, *, gpus: int = 8, types: tuple[str, str] = ("NVL", "PIX"), **more: object
) -> ChannelGraph:
    """Return a graph of (channels, GB/s inside, GB/s between nodes); channel c starts at GPU c."""
    channels, inside, *between = speed
    orders = tuple(ChannelOrder(tuple((first + step) % gpus for step in range(gpus))) for first in range(channels))
    pattern = more.pop("pattern", PATTERNS.get(name, 1))
    assert isinstance(pattern, int)
    return ChannelGraph(name, pattern, orders, inside, between[0] if between else inside, *types, **more)  # type: ignore[arg-type]


def machine(
    nodes: int,
    gpus: int,
    ring: Speed,
    tree: Speed | None = None,
    *,
    nvls: Speed | None = None,
    collnet: Speed | None = None,
    capability: int = 90,
    types: tuple[str, str] = ("NVL", "PIX"),
    version: Version = NEWEST,
    tree_pattern: int = 1,
    **more: object,
) -> Communicator:
    """Return `nodes` times `gpus` ranks whose tree graph is as fast as the ring's unless told otherwise."""
    graphs = {
        RING: graph(RING, ring, gpus=gpus, types=types),
        TREE: graph(TREE, tree or ring, gpus=gpus, types=types, pattern=tree_pattern),
    }
    if nvls:
        graphs[NVLS] = graph(NVLS, nvls, gpus=gpus)
    if collnet:
        graphs |= {name: graph(name, collnet, gpus=gpus) for name in (COLLNET_DIRECT, COLLNET_CHAIN)}
    return Communicator(
        tuple(tuple(range(node * gpus, node * gpus + gpus)) for node in range(nodes)),
        graphs,
        capability,
        capability,
        multicast=nvls is not None,
        collnet=collnet is not None,
        version=version,
        **more,  # type: ignore[arg-type]
    )


def h100x8(version: Version = NEWEST) -> Communicator:
    return machine(1, 8, (12, 30), nvls=(8, 40, 60), version=version)


def h100_nodes(nodes: int, version: Version = NEWEST, **more: object) -> Communicator:
    """Return nodes of eight H100s and eight NICs of 400 Gb/s."""
    return machine(nodes, 8, (8, 48), nvls=(8, 40, 48), version=version, **more)  # type: ignore[arg-type]


def two_h200(version: Version = MEASURED) -> Communicator:
    """Return the measured pair: NVLS off, so neither multicast nor a graph for it."""
    return machine(1, 2, (12, 30), (12, 60), version=version)


__all__ = ["NEWEST", "PLAIN_TREE", "graph", "h100_nodes", "h100x8", "machine", "two_h200"]
