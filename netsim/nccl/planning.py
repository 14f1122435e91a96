"""From a communicator and a choice to a plan: what `netsim.schedule.nccl` needs to build the operations of a collective.

Puts `netsim.nccl.channels` (how much, in which portions) and `netsim.nccl.connect` (through which ranks) together. Sends
and receives, and so alltoall, sendrecv, gather and scatter, are planned elsewhere.
"""

from dataclasses import replace

from netsim.errors import NetsimError
from netsim.nccl.channels import operation
from netsim.nccl.communicator import Communicator
from netsim.nccl.connect import channels_of, heads
from netsim.nccl.settings import DEFAULT_SETTINGS, Settings
from netsim.nccl.tuner_constants import NVLS_TREE
from netsim.nccl.tuner_costs import COLLNETS, NVLS_KINDS
from netsim.schedule.nccl.costs import FREE, Costs
from netsim.schedule.nccl.plan import Channel, Plan

_MOST_COLLNET_RANKS = 8


def plan(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    algorithm: str,
    protocol: str,
    *,
    costs: Costs = FREE,
    root: int = 0,
    align_bytes: int = 4,
    channels: int | None = None,
    registered: bool = False,
    in_place: bool = False,
    settings: Settings = DEFAULT_SETTINGS,
) -> Plan:
    """Return what NCCL would run.

    Parameters
    ----------
    communicator : Communicator
        Whose nodes have as many GPUs as its graphs.
    collective : str
        all_reduce, all_gather, reduce_scatter, broadcast or reduce.
    size_bytes : int, bytes
        As nccl-tests counts it: a multiple of the ranks for all-gather and reduce-scatter.
    algorithm, protocol : str
        Such as `netsim.nccl.tuner.choose` returns; nothing is looked up that it checks beyond graphs and releases.
    costs : Costs
        What the GPUs' copy loops cost.
    root : int
        For broadcast and reduce.
    align_bytes : int
        Bytes of an element.
    channels : int, optional
        What a tuner plugin asks for in place of NCCL's rule by size.
    registered, in_place : bool
        Whether user buffers are registered, and whether input and output are one.
    settings : Settings, optional
        What the environment asks for.

    Raises
    ------
    NetsimError
        If NCCL has no such operation here, or a number makes no sense.

    Examples
    --------
    >>> from netsim.nccl.graphs import ChannelGraph, ChannelOrder
    >>> ring = ChannelGraph("ring", 4, (ChannelOrder((0, 1)),) * 12, 30.0, 30.0, "NVL")
    >>> made = plan(Communicator(((0, 1),), {"ring": ring}), "all_reduce", 65536, "ring", "ll")
    >>> [channel.ring for channel in made.channels], made.shares[-1], made.chunk_bytes
    ([(0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)], (57344, 8192), 32768)
    """
    _check(communicator, algorithm)
    found = operation(
        communicator,
        collective,
        algorithm,
        protocol,
        size_bytes,
        channels=channels,
        registered=registered,
        settings=settings,
    )
    shares = found.shares
    if communicator.ranks == 1:
        # One rank copies in place of everything else, on no channel; its plan has one that connects nobody.
        laid: tuple[Channel, ...] = (Channel(0, ring=communicator.nodes[0]),)
        shares = ((0, size_bytes),)
    else:
        laid = channels_of(communicator, algorithm, found.channels, settings)
    chunk_bytes = found.chunk_bytes[0]
    used = tuple(
        replace(channel, chunk_bytes=0 if chunk == chunk_bytes else chunk)
        for channel, chunk in zip(laid, found.chunk_bytes[: len(laid)], strict=True)
    )
    return Plan(
        collective,
        algorithm,
        protocol,
        communicator.ranks,
        size_bytes,
        used,
        shares,
        chunk_bytes,
        slices=found.slices,
        slots=found.slots,
        least_slice_bytes=found.least_slice_bytes,
        threads=found.threads,
        nodes=communicator.nodes,
        root=root,
        align_bytes=align_bytes,
        registered=registered,
        in_place=in_place,
        queue_pairs=settings.queue_pairs,
        heads=heads(communicator, algorithm) if algorithm in (*NVLS_KINDS, *COLLNETS) else (),
        costs=costs,
    )


def _check(communicator: Communicator, algorithm: str) -> None:
    """Refuse what cannot be laid out at all; whether NCCL would choose it is the tuner's business."""
    nodes = len(communicator.nodes)
    if algorithm == NVLS_TREE and nodes < 2:
        raise NetsimError("nvls_tree is a tree over nodes; accepted are 2 nodes or more, and nvls on one")
    if algorithm in COLLNETS and not communicator.collnet:
        raise NetsimError(f"{algorithm}: the network does not reduce, or NCCL was not told so; accepted are ring and tree")
    if algorithm in COLLNETS and communicator.ranks_per_node > _MOST_COLLNET_RANKS:
        raise NetsimError(
            f"{algorithm}: {communicator.ranks_per_node} ranks on a node; accepted are {_MOST_COLLNET_RANKS} at most"
        )
