"""Collectives on symmetric windows: which kernel NCCL would take, how many blocks, and copy engines.

Buffers that all ranks have registered as one window need no slots: kernels read and write each other's memory (2.27 and
later), or copy engines do without any kernel (2.28 and later). Only within one NVLink domain here.
"""

from itertools import pairwise

from netsim.errors import NetsimError
from netsim.nccl.communicator import Communicator
from netsim.nccl.version import Version
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule
from netsim.schedule.nccl import copy_engine, symmetric
from netsim.schedule.nccl.costs import Costs
from netsim.schedule.nccl.plan import Channel, Plan
from netsim.schedule.nccl.symmetric_model import pick_kernel, query_model

SYMMETRIC = "symmetric"
COPY_ENGINE = "copy_engine"
_SINCE = {SYMMETRIC: Version(2, 27), COPY_ENGINE: Version(2, 28)}
_CHUNK_BYTES = 16_384
_BLACKWELL = 100


def kernel_of(communicator: Communicator, algorithm: str, collective: str, size_bytes: int) -> tuple[str, int]:
    """Return the symmetric kernel of a collective and its blocks: the one that is named, or the one NCCL would take.

    Parameters
    ----------
    communicator : Communicator
    algorithm : str
        ``symmetric``, or ``symmetric:KERNEL`` with one of `netsim.schedule.nccl.symmetric.KERNELS`.
    collective : str
        all_reduce, all_gather or reduce_scatter.
    size_bytes : int
        As nccl-tests counts it.

    Raises
    ------
    NetsimError
        If there is no such kernel, or the ranks are not of one NVLink domain, or the release has none.
    """
    _check(communicator, SYMMETRIC)
    ranks = communicator.ranks
    count = size_bytes if collective == "all_reduce" else size_bytes // ranks
    blackwell = communicator.compute_capability >= _BLACKWELL
    named = algorithm.partition(":")[2]
    if not named:
        kernel, _, blocks = pick_kernel(collective, ranks, count, multicast=communicator.multicast, blackwell=blackwell)
        return kernel, blocks
    if "mc" in named and not communicator.multicast:
        raise NetsimError(f"{algorithm}: the switch neither multicasts nor reduces here; accepted are kernels without mc")
    return named, query_model(collective, named, ranks, count, blackwell=blackwell)[1]


def by_kernel(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    kernel: str,
    blocks: int,
    costs: Costs,
    *,
    align_bytes: int = 4,
    limit: int | None = None,
) -> Schedule:
    """Build what a symmetric kernel does."""
    ranks = communicator.ranks
    part = size_bytes if collective == "all_reduce" else size_bytes // ranks
    bounds = block_bounds(part, blocks, 16)
    shares = tuple((first, last - first) for first, last in pairwise(bounds))
    made = Plan(
        collective,
        f"{SYMMETRIC}:{kernel}",
        symmetric.protocol_of(kernel),
        ranks,
        size_bytes,
        tuple(Channel(number) for number in range(blocks)),
        shares,
        _CHUNK_BYTES,
        align_bytes=align_bytes,
        costs=costs,
    )
    return symmetric.build(made, kernel, limit=limit)


def by_copies(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    costs: Costs,
    *,
    root: int = 0,
    align_bytes: int = 4,
    in_place: bool = False,
    limit: int | None = None,
) -> Schedule:
    """Build what copy engines do."""
    _check(communicator, COPY_ENGINE)
    made = copy_engine.CopyPlan(
        collective,
        communicator.ranks,
        size_bytes,
        root=root,
        align_bytes=align_bytes,
        in_place=in_place,
        costs=costs,
    )
    return copy_engine.build(made, limit=limit)


def _check(communicator: Communicator, algorithm: str) -> None:
    if communicator.version < _SINCE[algorithm]:
        since = _SINCE[algorithm]
        raise NetsimError(f"{algorithm}: NCCL {communicator.version} has none; accepted are releases from {since} on")
    if len(communicator.nodes) > 1 or not (communicator.peer_links or communicator.ranks == 1):
        raise NetsimError(f"{algorithm} needs all ranks in one NVLink domain; accepted here are the other algorithms")
