"""Collectives on symmetric windows: which kernel NCCL would take, how many blocks, and copy engines.

Buffers that all ranks have registered as one window need no slots: kernels read and write each other's memory (2.27 and
later), or copy engines do without any kernel (2.28 and later). Only within one NVLink domain here.
"""

from itertools import pairwise
from typing import Any

from netsim.errors import NetsimError
from netsim.nccl.communicator import Communicator
from netsim.nccl.elements import DATATYPES, ELEMENT_BYTES, FLOATS, Elements
from netsim.nccl.environment import settings
from netsim.nccl.symmetric_model import MOST_BLOCKS, pick_kernel, query_model
from netsim.nccl.variables import number
from netsim.nccl.version import Version
from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import Schedule
from netsim.schedule.nccl import copy_engine, symmetric
from netsim.schedule.nccl.costs import Costs
from netsim.schedule.nccl.plan import Channel, Plan

SYMMETRIC = "symmetric"
COPY_ENGINE = "copy_engine"
_SINCE = {SYMMETRIC: Version(2, 27), COPY_ENGINE: Version(2, 28)}
# Ours: a block reads and writes in turns of so many bytes; NCCL's kernels work through them element by element.
_CHUNK_BYTES = 16_384
_BLACKWELL = 100
_ZERO_POLICY = 2
_GATHERS = Version(2, 30)
_LARGE_GATHER = 8 * 2**20
_NOT_ADDED = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "double")
_ADDING = ("sum", "avg")


def kernel_of(
    communicator: Communicator,
    algorithm: str,
    collective: str,
    size_bytes: int,
    blocks: int | None = None,
    *,
    elements: Elements = FLOATS,
) -> tuple[str, int]:
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
    blocks : int, optional
        In place of NCCL's number; NCCL_SYM_CTAS, NCCL_MIN_CTAS and NCCL_MAX_CTAS bound that otherwise.
    elements : Elements
        What is reduced.

    Raises
    ------
    NetsimError
        If there is no such kernel, or the ranks are not of one NVLink domain, or the release has none, or kernels do not
        reduce these elements so.
    """
    _check(communicator, SYMMETRIC)
    if not _adds(collective, elements):
        raise NetsimError(
            f"{algorithm}: no kernel reduces {elements.datatype} by {elements.operator}; accepted are sum and avg of "
            f"{', '.join(name for name in DATATYPES if name not in _NOT_ADDED)}"
        )
    ranks = communicator.ranks
    count = size_bytes if collective == "all_reduce" else size_bytes // ranks
    limits = _limits(communicator, blocks)
    named = algorithm.partition(":")[2]
    if not named:
        kernel, _, used = pick_kernel(collective, ranks, count, **limits)
        return kernel, used
    if "mc" in named and not limits.pop("multicast"):
        raise NetsimError(
            f"{algorithm}: the switch neither multicasts nor reduces here, or NCCL_NVLS_ENABLE=0; accepted are kernels "
            "without mc"
        )
    limits.pop("multicast", None)
    return named, query_model(collective, named, ranks, count, **limits)[1]


def _limits(communicator: Communicator, blocks: int | None) -> dict[str, Any]:
    """Return what bounds NCCL's choice of a kernel: blocks, generation, whether the switch may be used."""
    least, most = _bounds(communicator, blocks)
    return {
        "least_blocks": least,
        "most_blocks": most,
        "blackwell": communicator.compute_capability >= _BLACKWELL,
        "multicast": communicator.multicast and number(communicator.environment, "NCCL_NVLS_ENABLE", 2, 0, 2) > 0,
    }


def _bounds(communicator: Communicator, blocks: int | None) -> tuple[int, int]:
    """Return the least and the most blocks of a kernel."""
    given = settings(communicator.environment)
    fixed = blocks or number(communicator.environment, "NCCL_SYM_CTAS", 0, 0, MOST_BLOCKS)
    if fixed:
        return min(fixed, MOST_BLOCKS), min(fixed, MOST_BLOCKS)
    most = min(given.max_ctas or MOST_BLOCKS, MOST_BLOCKS)
    return min(given.min_ctas or 1, most), most


def taken(
    communicator: Communicator, collective: str, size_bytes: int, predicted_us: float | None, elements: Elements
) -> str | None:
    """Return the algorithm that NCCL takes on symmetric windows in place of those that need none, or None.

    Copy engines where NCCL_CTA_POLICY is 2 (zero), and in 2.30 for large all-gathers of Blackwell; else a symmetric kernel
    where its own estimate is below the cost model's.

    Parameters
    ----------
    communicator : Communicator
    collective : str
    size_bytes : int
        As nccl-tests counts it.
    predicted_us : float or None
        Of the cost model's choice; None where it is not asked.
    elements : Elements
        What is reduced: kernels add neither integers nor doubles.
    """
    version, ranks = communicator.version, communicator.ranks
    if ranks == 1 or len(communicator.nodes) > 1 or not communicator.peer_links:
        return None
    zero = number(communicator.environment, "NCCL_CTA_POLICY", 0, 0, 2) == _ZERO_POLICY
    large = size_bytes // ranks // ELEMENT_BYTES[elements.datatype] > number(
        communicator.environment, "NCCL_SYM_CE_THRESHOLD", _LARGE_GATHER, 0, 2**62
    )
    gathers = collective == "all_gather" and version >= _GATHERS and communicator.compute_capability >= _BLACKWELL and large
    if version >= _SINCE[COPY_ENGINE] and collective in copy_engine.COLLECTIVES and (zero or gathers):
        return COPY_ENGINE
    if version < _SINCE[SYMMETRIC] or collective not in symmetric.KERNELS or predicted_us is None:
        return None
    if not _adds(collective, elements):
        return None
    count = size_bytes if collective == "all_reduce" else size_bytes // ranks
    estimate_us = pick_kernel(collective, ranks, count, **_limits(communicator, None))[1]
    return SYMMETRIC if estimate_us < predicted_us else None


def hindrance(communicator: Communicator) -> str | None:
    """Say why symmetric windows change nothing for a communicator; None where they may."""
    if communicator.version < _SINCE[SYMMETRIC]:
        return f"NCCL uses them from {_SINCE[SYMMETRIC]} on"
    if len(communicator.nodes) > 1:
        return "here they serve within one NVLink domain only"
    if communicator.ranks > 1 and not communicator.peer_links:
        return "NCCL uses them over NVLink only"
    return None


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


def _adds(collective: str, elements: Elements) -> bool:
    """Say whether symmetric kernels do a collective with such elements: they add some types, and gather all."""
    return collective == "all_gather" or (elements.datatype not in _NOT_ADDED and elements.operator in _ADDING)


def _check(communicator: Communicator, algorithm: str) -> None:
    if communicator.version < _SINCE[algorithm]:
        since = _SINCE[algorithm]
        raise NetsimError(f"{algorithm}: NCCL {communicator.version} has none; accepted are releases from {since} on")
    if len(communicator.nodes) > 1 or not (communicator.peer_links or communicator.ranks == 1):
        raise NetsimError(f"{algorithm} needs all ranks in one NVLink domain; accepted here are the other algorithms")
