"""From a communicator to the plan of an all-to-all, a send/recv, a gather or a scatter: grouped sends and receives.

What `netsim.nccl.planning` is for the collectives that NCCL knows by name. The numbers of rounds, channels, parts and
chunks are those of `netsim.schedule.nccl.rounds`; which GPUs and network cards there are, and what the environment asks
for, is put together here. NCCL_ALGO and NCCL_PROTO do not bear on sends.
"""

from typing import Any

from netsim.nccl.communicator import Communicator
from netsim.nccl.settings import DEFAULT_SETTINGS, Settings
from netsim.schedule.nccl import peers, rounds
from netsim.schedule.nccl.costs import FREE, Costs
from netsim.schedule.nccl.peers import PeerPlan

_BLACKWELL = 100
_PXN_ALWAYS = 2


def plan_peers(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    *,
    protocol: str = "auto",
    collective_channels: int,
    channels: int | None = None,
    costs: Costs = FREE,
    ll_costs: Costs = FREE,
    root: int = 0,
    align_bytes: int = 4,
    registered: bool = False,
    in_place: bool = False,
    settings: Settings = DEFAULT_SETTINGS,
) -> PeerPlan:
    """Return what NCCL would run.

    Parameters
    ----------
    communicator : Communicator
    collective : str
        One of `netsim.schedule.nccl.peers.COLLECTIVES`.
    size_bytes : int, bytes
        As nccl-tests counts it.
    protocol : {"auto", "ll", "simple"}
        ``auto`` is NCCL's rule: LL for short parts within a node, and over the network where it has buffers for it.
    collective_channels : int
        Channels of the communicator for collectives, from which those for sends follow.
    channels : int, optional
        In place of that number.
    costs, ll_costs : Costs
        By Simple and by LL.
    root, align_bytes, registered, in_place
        As in `netsim.nccl.schedules.build`.
    settings : Settings, optional
        What the environment asks for.

    Examples
    --------
    >>> made = plan_peers(Communicator((tuple(range(8)),), {}, peer_links=18), "alltoall", 1 << 20, collective_channels=24)
    >>> made.channels, made.per_peer, made.least_channels
    (32, 32, 4)
    """
    version = (communicator.version.major, communicator.version.minor)
    asked = {"least": settings.min_p2p_channels, "most": settings.max_p2p_channels}
    count = rounds.p2p_channels(collective_channels if channels is None else channels, **asked)
    numbers: dict[str, Any] = {"per_peer": _per_peer(communicator, count, settings)}
    if settings.ll_threshold_bytes is not None:
        numbers["ll_part_bytes"] = settings.ll_threshold_bytes
    if settings.rounds_group is not None:
        numbers["group"] = settings.rounds_group
    over_network = "auto" if settings.net_ll_buffers else "simple"
    return peers.plan_of(
        collective,
        communicator.nodes,
        size_bytes,
        channels=count,
        version=version,
        chunk_bytes=_chunk_bytes(communicator, settings),
        ll_chunk_bytes=settings.step_bytes("ll") // 2,
        protocol=protocol,
        network_protocol=over_network if protocol == "auto" else protocol,
        # A peer takes data on only over NVLink.
        pxn=communicator.pxn and communicator.peer_links > 0 and settings.pxn_level > 0,
        # "Only if needed" is where a rank has no card within reach of GPUDirect, which routes see to.
        pxn_always=settings.pxn_level >= _PXN_ALWAYS,
        rails=communicator.rails,
        queue_pairs=settings.queue_pairs,
        costs=costs,
        ll_costs=ll_costs,
        root=root,
        align_bytes=align_bytes,
        registered=registered,
        in_place=in_place,
        **numbers,
    )


def _per_peer(communicator: Communicator, channels: int, settings: Settings) -> int:
    """Return on how many channels a rank talks to a peer: the least of what its kinds of peers allow."""
    nodes, ranks = communicator.nodes, communicator.ranks
    counts = []
    if communicator.ranks_per_node > 1:
        links = communicator.peer_links
        counts.append(settings.channels_per_peer or (rounds.nvlink_channels(links, 1) if links else 2))
    if len(nodes) > 1:
        version = (communicator.version.major, communicator.version.minor)
        nics = max(1, communicator.nics_per_node // communicator.ranks_per_node)
        own = rounds.network_channels(ranks, channels, version, nics=nics, nic_GBps=nics * communicator.net_GBps)
        counts.append(settings.channels_per_net_peer or own)
    return rounds.channels_per_peer(counts, channels, ranks, len(nodes))


def _chunk_bytes(communicator: Communicator, settings: Settings) -> int:
    """Return the payload of a chunk of Simple; no chunk is larger than a step of the buffer."""
    nodes, nvlink = len(communicator.nodes), communicator.peer_links > 0
    wide = communicator.cpu_arch == "arm64" and communicator.compute_capability >= _BLACKWELL
    given = settings.net_chunk_bytes if nodes > 1 else settings.nvl_chunk_bytes if nvlink else settings.pci_chunk_bytes
    chunk = given or rounds.chunk_bytes(nodes, all_nvlink=nvlink, wide_network=wide)
    return min(chunk, settings.step_bytes("simple"))
