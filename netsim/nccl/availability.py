"""Which algorithms and protocols NCCL may run at all: by collective, machine, data type and release.

Between the costs (`netsim.nccl.tuner_costs`) and the choice (`netsim.nccl.tuner`). What the user allows beyond that, with
NCCL_ALGO and NCCL_PROTO, is no part of it.
"""

from dataclasses import dataclass

from netsim.errors import NetsimError
from netsim.nccl.communicator import Communicator
from netsim.nccl.elements import Elements
from netsim.nccl.paths import TYPES
from netsim.nccl.tuner_constants import COLLNET_DIRECT, LL128, NVLS, NVLS_TREE, PAT, RING, SIMPLE, TREE
from netsim.nccl.tuner_costs import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLNETS,
    GATHERS,
    NVLS_KINDS,
    REDUCE_SCATTER,
    graph_of,
)
from netsim.nccl.version import Version

_MOST_NVLS_RANKS = 32
_MOST_COLLNET_RANKS = 8
# What a switch adds and compares; int8 and the eight-bit floats it does neither.
_SUM_ONLY = ("float", "double")
_SUM_AND_ORDER = ("int32", "uint32", "int64", "uint64", "half", "bfloat16")


@dataclass(frozen=True)
class Options:
    """What of the user's call and environment bears on the choice, with NCCL's defaults."""

    datatype: str = "float"
    operator: str = "sum"
    net_overhead_us: float | None = None
    """NCCL_NET_OVERHEAD; None goes by the CPU."""
    pat_enable: int = 2
    """NCCL_PAT_ENABLE: 0 never, 1 always, 2 where every node has one rank."""
    ll128_c2c: bool = True
    """NCCL_LL128_C2C: whether LL128 may pass another GPU to its NIC."""
    ll128_forced: bool = False
    """Whether NCCL_PROTO names LL128, so that NCCL does not ask whether the machine keeps the order of 128-byte stores."""
    collnet_gathers: bool = False
    """Whether the network plugin offers all-gather and reduce-scatter."""

    def __post_init__(self) -> None:
        """Refuse names that nccl-tests does not know."""
        Elements(self.datatype, self.operator)
        if self.pat_enable not in (0, 1, 2):
            raise NetsimError(f"NCCL_PAT_ENABLE: {self.pat_enable} is none of 0, 1 and 2")
        if self.net_overhead_us is not None and not 0 <= self.net_overhead_us < float("inf"):
            raise NetsimError(f"NCCL_NET_OVERHEAD: {self.net_overhead_us} us is no time; accepted are numbers from 0 up")


DEFAULTS = Options()


def serves(version: Version, collective: str, algorithm: str, protocol: str) -> bool:
    """Return whether a release has such a kernel at all."""
    if algorithm not in (RING, TREE) and protocol != SIMPLE:
        return False
    if algorithm == RING:
        return True
    if algorithm == PAT:
        return collective in GATHERS and version >= Version(2, 23)
    if collective == ALL_REDUCE:
        return algorithm != NVLS_TREE or version >= Version(2, 18)
    if collective not in GATHERS:
        return False
    if algorithm == NVLS:
        return version >= Version(2, 19)
    return algorithm == COLLNET_DIRECT and version >= Version(2, 20)


def available(
    communicator: Communicator, collective: str, algorithm: str, protocol: str, options: Options = DEFAULTS
) -> bool:
    """Return whether NCCL would consider a pair on this machine if the user allows everything."""
    if not serves(communicator.version, collective, algorithm, protocol) or graph_of(communicator, algorithm) is None:
        return False
    if protocol == LL128:
        return options.ll128_forced or _ll128(communicator, algorithm, options)
    if algorithm in NVLS_KINDS:
        return _nvls(communicator, collective, algorithm, options)
    if algorithm in COLLNETS:
        return _collnet(communicator, collective, algorithm, options)
    return algorithm != PAT or _pat(communicator, collective, options)


def _worse(found: str, limit: str) -> bool:
    if found not in TYPES:
        raise NetsimError(f"{found!r} is no path type of a graph; accepted are {', '.join(TYPES)}")
    return TYPES.index(found) > TYPES.index(limit)


def _ll128(communicator: Communicator, algorithm: str, options: Options) -> bool:
    """Return whether 128-byte stores are known to arrive in order on every path of the graph."""
    version, least, most = communicator.version, communicator.compute_capability, communicator.compute_capability_max
    graph = graph_of(communicator, algorithm)
    if graph is None or _worse(graph.type_intra, "NVB" if version >= Version(2, 18) else "NVL"):
        return False
    through_peer = least >= 90 and (options.ll128_c2c or version < Version(2, 27))
    if len(communicator.nodes) > 1 and _worse(graph.type_inter, "PXN" if through_peer else "PXB"):
        return False
    if least != most and not (version >= Version(2, 30) and least >= 90):
        return False
    if version >= Version(2, 27):
        return least >= 70
    return least in ((70, 80, 90, 100, 120) if version >= Version(2, 25) else (70, 80, 90))


def _nvls(communicator: Communicator, collective: str, algorithm: str, options: Options) -> bool:
    version, nodes = communicator.version, communicator.nodes
    graph = graph_of(communicator, algorithm)
    if not communicator.multicast or graph is None:
        return False
    if min(map(len, nodes)) < (2 if version >= Version(2, 28, 7) else 3):
        return False
    if graph.channels < 2 and version >= Version(2, 28):
        return False
    if collective != ALL_GATHER and not _switch_adds(options):
        return False
    if algorithm == NVLS_TREE:
        return len(nodes) > 1
    if collective in GATHERS:
        if communicator.ranks_per_node > _MOST_NVLS_RANKS:
            return False
        return len(nodes) == 1 or (version >= Version(2, 27) and _every_rank_a_head(communicator, options))
    return len(nodes) == 1 or communicator.collnet


def _switch_adds(options: Options) -> bool:
    if options.datatype in _SUM_ONLY:
        return options.operator == "sum"
    return options.datatype in _SUM_AND_ORDER and options.operator in ("sum", "min", "max")


def _collnet(communicator: Communicator, collective: str, algorithm: str, options: Options) -> bool:
    if not communicator.collnet or len(communicator.nodes) < 2 or communicator.ranks_per_node > _MOST_COLLNET_RANKS:
        return False
    if algorithm == COLLNET_DIRECT and not communicator.nvswitch:
        return False
    return collective not in GATHERS or _every_rank_a_head(communicator, options)


def _every_rank_a_head(communicator: Communicator, options: Options) -> bool:
    """Return whether the network gathers and every rank of a node has a NIC to do so."""
    graph = graph_of(communicator, COLLNET_DIRECT)
    if not communicator.collnet or not options.collnet_gathers or graph is None:
        return False
    return len({order.gpus[0] for order in graph.orders}) >= communicator.ranks_per_node


def _pat(communicator: Communicator, collective: str, options: Options) -> bool:
    if collective == REDUCE_SCATTER and options.operator in ("avg", "mulsum"):
        return False
    return options.pat_enable == 1 or (options.pat_enable == 2 and len(communicator.nodes) == communicator.ranks)
