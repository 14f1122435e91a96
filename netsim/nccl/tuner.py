"""What NCCL would choose: its table of costs, its prediction for a size, and the algorithm and protocol that win.

Takes a `Communicator` (hardware and graphs) and answers as NCCL of that release does without a tuner plugin. Leaves out:
what NCCL_ALGO and NCCL_PROTO say (the caller hands over the pairs that they allow), channels and chunks of the chosen one,
symmetric kernels, and that a communicator of one rank only copies.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from netsim.errors import NetsimError
from netsim.nccl.availability import DEFAULTS, Options, available, serves
from netsim.nccl.channels import total_channels
from netsim.nccl.communicator import Communicator
from netsim.nccl.elements import FLOAT8
from netsim.nccl.tuner_constants import (
    ALGORITHMS,
    NVLS_TREE,
    PROTOCOLS,
    RING,
    SIMPLE,
    TREE,
    TREE_CORRECTION,
    TREE_CORRECTION_ENTRIES,
)
from netsim.nccl.tuner_costs import ALL_REDUCE, COLLNETS, REDUCE_SCATTER, TUNED, Cost, cost
from netsim.nccl.version import Version

__all__ = ["DEFAULTS", "Choice", "Cost", "Options", "choose", "cost_table", "predicted_us", "total_channels"]

Pair = tuple[str, str]
"""Algorithm and protocol."""

# How many collectives share the work records of one launch: 1024 B of 96 B each, or 9 in the 512 B of releases before.
_OPERATIONS_PER_BATCH, _OPERATIONS_PER_BATCH_BEFORE_2_22 = 10, 9
# Any factor does that puts rings, which round at every hop, behind everything else.
_FLOAT8_RING_PENALTY = 1024


@dataclass(frozen=True)
class Choice:
    """What runs, and what NCCL thinks of the others."""

    algorithm: str
    protocol: str
    predicted_us: float
    table: Mapping[Pair, float]
    """Predicted time in us of every pair that could have run, in NCCL's order."""


def cost_table(communicator: Communicator, collective: str, options: Options = DEFAULTS) -> dict[Pair, Cost]:
    """Return NCCL's table of latencies and bandwidths, as it logs it at start.

    Parameters
    ----------
    communicator : Communicator
    collective : str
        One of all_reduce, all_gather, reduce_scatter, broadcast, reduce.
    options : Options, optional
        Data type, operator and switches; NCCL's defaults if not given.

    Returns
    -------
    dict
        (algorithm, protocol) -> `Cost` for what can run here, in NCCL's order; empty for one rank.

    Raises
    ------
    NetsimError
        If NCCL makes no choice for that collective.
    """
    _check(collective)
    if communicator.ranks < 2:
        return {}
    table = {}
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            if available(communicator, collective, algorithm, protocol, options):
                entry = cost(communicator, collective, algorithm, protocol, options.net_overhead_us)
                if entry.bandwidth_GBps > 0:
                    table[algorithm, protocol] = entry
    return table


def predicted_us(
    entry: Cost,
    communicator: Communicator,
    collective: str,
    algorithm: str,
    protocol: str,
    size_bytes: int,
    operations: int = 1,
    *,
    channels: int | None = None,
) -> float:
    """Return the time that NCCL predicts for operations tuned together, in us.

    Parameters
    ----------
    entry : Cost
        The pair's entry of `cost_table`.
    size_bytes : int, bytes
        The larger of what a rank sends and receives in all, nccl-tests' size; summed over the operations.
    operations : int, optional
        NCCL's numPipeOps: operations of one group that follow each other on a channel.
    channels : int, optional
        Channels of the communicator; `total_channels` if not given.

    Notes
    -----
    latency * q + size / (1000 * bandwidth * f): q counts operations for rings and batches for others, f is the tree's
    correction by size. A ring over several nodes counts its latency 1.4 times once its pieces are worth it.
    """
    version = communicator.version
    latency, bandwidth = entry.latency_us, entry.bandwidth_GBps * _correction(communicator, algorithm, protocol, size_bytes)
    ring = algorithm == RING
    if ring and protocol == SIMPLE and collective == ALL_REDUCE and len(communicator.nodes) > 1:
        latency *= _plateau(communicator, size_bytes, channels or total_channels(communicator))
    batch = _OPERATIONS_PER_BATCH if version >= Version(2, 22) else _OPERATIONS_PER_BATCH_BEFORE_2_22
    return latency * (operations if ring else -(-operations // batch)) + size_bytes / (1000 * bandwidth)


def _correction(communicator: Communicator, algorithm: str, protocol: str, size_bytes: int) -> float:
    entries = TREE_CORRECTION_ENTRIES if algorithm == TREE else 0
    blackwell = communicator.compute_capability >= 100 and communicator.cpu_arch == "x86_64"
    if algorithm == NVLS_TREE and blackwell and communicator.version >= Version(2, 29):
        entries = TREE_CORRECTION_ENTRIES + 1
    index = (size_bytes // 64).bit_length() - 1  # floor of log2; below 64 B nothing is corrected
    return TREE_CORRECTION[protocol][index] if 0 <= index < entries else 1.0


def _plateau(communicator: Communicator, size_bytes: int, channels: int) -> float:
    """Return how much longer the latency of a ring over nodes is from a size on."""
    ranks, capability = communicator.ranks, communicator.compute_capability
    if communicator.version < Version(2, 18):
        return 1.0 if size_bytes < ranks * 4096 else 1.9 if capability < 90 else 1.5
    if size_bytes // (channels * ranks) < 64:
        return 1.0
    return 1.9 if capability < 80 else 1.4


def choose(
    communicator: Communicator,
    collective: str,
    size_bytes: int,
    *,
    allowed: Collection[Pair] | None = None,
    operations: int = 1,
    channels: int | None = None,
    options: Options = DEFAULTS,
) -> Choice:
    """Return the algorithm and protocol that NCCL takes.

    Parameters
    ----------
    communicator : Communicator
        Of at least two ranks.
    collective : str
        One of all_reduce, all_gather, reduce_scatter, broadcast, reduce.
    size_bytes : int, bytes
        nccl-tests' size, see `predicted_us`.
    allowed : collection of (algorithm, protocol), optional
        What NCCL_ALGO and NCCL_PROTO leave; everything if not given. Where LL128 is left because NCCL_PROTO names it,
        `Options.ll128_forced` says so.
    operations, channels : int, optional
        As in `predicted_us`.
    options : Options, optional

    Raises
    ------
    NetsimError
        If NCCL would refuse: from 2.24 on where nothing of what is allowed can run, before 2.19 likewise for all-reduce.
        In between it falls back to rings.
    """
    _check(collective)
    if communicator.ranks < 2:
        raise NetsimError(f"{collective}: one rank only copies, so NCCL chooses nothing; accepted are 2 ranks or more")
    if size_bytes < 0 or operations < 1:
        raise NetsimError(
            f"{collective}: {size_bytes} bytes in {operations} operations; accepted are 0 bytes and 1 operation up"
        )
    costs = cost_table(communicator, collective, options)
    permitted = _permitted(communicator, collective, allowed)
    running = {pair: entry for pair, entry in costs.items() if permitted is None or pair in permitted}
    if not running:
        running = _fallback(communicator, collective, allowed, costs, options)
    table = {
        (algorithm, protocol): predicted_us(
            entry, communicator, collective, algorithm, protocol, size_bytes, operations, channels=channels
        )
        * _penalty(communicator, collective, algorithm, options)
        for (algorithm, protocol), entry in running.items()
    }
    algorithm, protocol = min(table, key=lambda pair: table[pair])  # the first of equals, in NCCL's order
    return Choice(algorithm, protocol, table[algorithm, protocol], table)


def _penalty(communicator: Communicator, collective: str, algorithm: str, options: Options) -> int:
    lossy = options.datatype in FLOAT8 and collective in (ALL_REDUCE, REDUCE_SCATTER) and algorithm == RING
    many = communicator.ranks > 8 and communicator.version >= Version(2, 24)
    return _FLOAT8_RING_PENALTY if lossy and many else 1


def _check(collective: str) -> None:
    if collective not in TUNED:
        raise NetsimError(f"{collective}: NCCL chooses no algorithm for it; it does for {', '.join(TUNED)}")


def _permitted(communicator: Communicator, collective: str, allowed: Collection[Pair] | None) -> set[Pair] | None:
    """Return what a release makes of the user's restriction; None is no restriction."""
    if allowed is None:
        return None
    for algorithm, protocol in allowed:
        if algorithm not in ALGORITHMS or protocol not in PROTOCOLS:
            raise NetsimError(
                f"({algorithm!r}, {protocol!r}) is no algorithm and protocol of NCCL; accepted are {', '.join(ALGORITHMS)} "
                f"with {', '.join(PROTOCOLS)}"
            )
    permitted, protocols = set(allowed), {protocol for _, protocol in allowed}
    algorithms = {algorithm for algorithm, _ in allowed}
    added: tuple[str, ...] = ()
    if communicator.version < Version(2, 19) and collective != ALL_REDUCE:
        added = (RING,)  # so that programs run with NCCL_ALGO=Tree
    if communicator.version < Version(2, 24) and not communicator.collnet and algorithms <= set(COLLNETS):
        added = (RING, TREE)  # a network that does not reduce: the wish is ignored
    return permitted | {(algorithm, protocol) for algorithm in added for protocol in protocols}


def _fallback(
    communicator: Communicator,
    collective: str,
    allowed: Collection[Pair] | None,
    costs: Mapping[Pair, Cost],
    options: Options,
) -> dict[Pair, Cost]:
    """Return what runs although nothing of what is allowed can."""
    version = communicator.version
    if Version(2, 19) <= version < Version(2, 24):
        # The rings as they were before any switch was looked at, LL128 included.
        rings = {
            (RING, protocol): cost(communicator, collective, RING, protocol, options.net_overhead_us)
            for protocol in PROTOCOLS
            if serves(version, collective, RING, protocol)
        }
        rings = {pair: entry for pair, entry in rings.items() if entry.bandwidth_GBps > 0}
        if rings:
            return rings
    if allowed is not None and not allowed:
        raise NetsimError(
            "what is asked for leaves no algorithm and protocol at all; accepted are "
            + ", ".join(f"{a} {p}" for a, p in costs)
        )
    wish = "any algorithm" if allowed is None else ", ".join(f"{a} {p}" for a, p in sorted(allowed)) or "no algorithm"
    rest = ", ".join(f"{a} {p}" for a, p in costs) or "nothing: no ring was found"
    wanted = {a for a, _ in allowed or ()}
    hint = ""
    if wanted and wanted <= set(COLLNETS) and not communicator.collnet:
        hint = " (CollNet needs NCCL_COLLNET_ENABLE=1 and a network that reduces, such as --fabric one-switch:sharp=on)"
    raise NetsimError(f"{collective}: NCCL {version} cannot run {wish} on this machine{hint}; accepted is {rest}")
