"""NCCL's own estimate of its symmetric-memory kernels, by which it chooses one and its number of blocks.

Facts of NCCL 2.27 to 2.30 (sym_kernels.cc), for ranks of one NVLink domain. The estimate is a rule of NCCL, not a time of
this project.
"""

import math
from typing import Any

from netsim.errors import ScheduleError
from netsim.schedule.nccl.symmetric import KERNELS, protocol_of

MOST_BLOCKS = 64
"""Most blocks of a kernel (ncclSymkMaxBlocks)."""
_GBPS = 2**30 / 1e6  # bytes in a microsecond: NCCL counts 2^30 here
_LL_FACTOR = 9  # twice the bytes, and what it costs to take them apart
_TOLERANCE = 1.025
_BLOCK_PENALTY = 0.025
_IN_SWITCH = ("rsxldmc_agxstmc", "stmc", "ldmc")


def query_model(
    collective: str,
    kernel: str,
    ranks: int,
    size_bytes: int,
    *,
    blackwell: bool = False,
    least_blocks: int = 1,
    most_blocks: int = MOST_BLOCKS,
) -> tuple[float, int]:
    """Return NCCL's estimate of a kernel in microseconds, and the blocks that it would use.

    Parameters
    ----------
    collective, kernel : str
        See `netsim.schedule.nccl.symmetric.KERNELS`.
    ranks : int
        How many.
    size_bytes : int
        NCCL's count times the element: all of the data for all-reduce, one rank's block else.
    blackwell : bool
        Compute capability 10.0 and more.
    least_blocks, most_blocks : int
        NCCL_MIN_CTAS and NCCL_MAX_CTAS.

    Notes
    -----
    ``base + softplus(bytes/bw - 1)`` with ``bw = softmin(blocks x block rate x multiplier, peak)``; the fewest blocks that
    come within 2.5 % of the most.

    Examples
    --------
    >>> query_model("all_reduce", "agxll_r", 8, 8)
    (4.8155..., 1)
    """
    if kernel not in KERNELS.get(collective, ()):
        known = ", ".join(f"{name} {kernel}" for name, kernels in KERNELS.items() for kernel in kernels)
        raise ScheduleError(f"{collective} has no symmetric kernel {kernel!r}; accepted are {known}")
    most = min(most_blocks, MOST_BLOCKS)
    if kernel in _IN_SWITCH:
        most = min(most, -(-(32 if blackwell else 16) // ranks))

    def estimate(blocks: int) -> float:
        return _estimate(collective, kernel, ranks, size_bytes, blocks, blackwell)

    least_blocks = min(least_blocks, most)
    best = estimate(most)
    for blocks in range(least_blocks, most):
        if estimate(blocks) <= _TOLERANCE * best:
            return estimate(blocks), blocks
    return best, most


def pick_kernel(
    collective: str, ranks: int, size_bytes: int, *, multicast: bool = True, **limits: Any
) -> tuple[str, float, int]:
    """Return the kernel that NCCL would take, its estimate in microseconds and its blocks; parameters as `query_model`.

    Without `multicast` the kernels that need it are left out; LL needs less than 2 GiB on its way. `limits` are the others.
    """
    if collective not in KERNELS:
        raise ScheduleError(f"symmetric kernels do no {collective}; accepted are {', '.join(KERNELS)}")
    on_bus = size_bytes * (1 if collective == "all_reduce" else ranks)
    found = []
    for kernel in KERNELS[collective]:
        if (not multicast and "mc" in kernel) or (protocol_of(kernel) == "ll" and on_bus >= 2**31):
            continue
        time_us, blocks = query_model(collective, kernel, ranks, size_bytes, **limits)
        found.append((time_us * (1 + _BLOCK_PENALTY * blocks), kernel, time_us, blocks))
    _, kernel, time_us, blocks = min(found, key=lambda row: row[0])
    return kernel, time_us, blocks


def _estimate(collective: str, kernel: str, ranks: int, size: int, blocks: int, blackwell: bool) -> float:
    by_ll = protocol_of(kernel) == "ll"
    multiplier = 1.0
    if by_ll:
        on_bus = ranks * size * _LL_FACTOR
        multiplier = 1.1 if "mc" in kernel else 1.0
    elif kernel == "rsxld_agxst":
        on_bus = 2 * size * (ranks - 1) // ranks
    elif kernel == "rsxldmc_agxstmc":
        on_bus, multiplier = size // ranks + size, float(ranks)
    else:
        on_bus = (ranks - 1) * size
        multiplier = 0.55 * ranks if kernel in _IN_SWITCH else 1.0
    reduces = collective == "all_reduce"
    if blackwell:
        base = (8.5 if collective == "all_gather" else 11.0) if by_ll else 19.5 if reduces else 13.0
        rate, peak = 55.0, 1000.0 if kernel == "rsxldmc_agxstmc" else 600.0
    else:
        base = 4.5 if by_ll else 7.8
        rate, peak = 65.0 if reduces else 44.0, 480.0 if kernel == "rsxldmc_agxstmc" else 320.0
    speed = _GBPS * _softmin(blocks * rate * multiplier, peak, rate)
    return base + _softplus(on_bus / speed - 1)


def _softmin(value: float, ceiling: float, softness: float) -> float:
    """Return a smooth lesser of two."""
    return ceiling - softness * math.log1p(math.expm1(ceiling / softness) * math.exp(-value / softness))


def _softplus(value: float) -> float:
    """Return a smooth greater of a value and zero."""
    return value if value >= 100 else math.log1p(math.exp(value))
