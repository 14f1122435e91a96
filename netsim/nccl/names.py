"""Algorithms as users name them for a run: this project's names or NCCL's spelling, alone, in lists, excluded, by function.

Between the front doors and `netsim.nccl.schedules`, which takes what comes out. Lists mean what they mean in NCCL_ALGO and
are read by `netsim.nccl.environment`; what NCCL knows by no such name (symmetric kernels, copy engines, sends and receives)
stands alone.
"""

import difflib
from collections.abc import Sequence

from netsim.errors import NetsimError, ScheduleError
from netsim.nccl.availability import serves
from netsim.nccl.environment import allowed
from netsim.nccl.schedules import ALGORITHMS, PEERS
from netsim.nccl.tuner_constants import ALGORITHMS as TUNED_ALGORITHMS
from netsim.nccl.tuner_constants import LL, LL128, PROTOCOLS, SIMPLE
from netsim.nccl.tuner_costs import ALL_REDUCE, TUNED
from netsim.nccl.version import NEWEST
from netsim.nccl.windows import COPY_ENGINE, SYMMETRIC
from netsim.schedule.nccl import copy_engine, peers
from netsim.schedule.nccl.symmetric import KERNELS

AUTO = "auto"
_ALONE = tuple(name for name in ALGORITHMS if name not in TUNED_ALGORITHMS)
_LISTS = ",;^"
# NCCL's spelling without its underscores -> this project's.
_FOLDED = {name.replace("_", ""): name for name in ALGORITHMS}


def accepted(collective: str) -> tuple[str, ...]:
    """Return the names of NCCL's algorithms for a collective, this project's spelling.

    Examples
    --------
    >>> accepted("alltoall")
    ('p2p', 'copy_engine')
    """
    alone = {PEERS: peers.COLLECTIVES, SYMMETRIC: tuple(KERNELS), COPY_ENGINE: copy_engine.COLLECTIVES}
    return tuple(name for name in ALGORITHMS if collective in alone.get(name, TUNED))


def served(collective: str) -> tuple[str, ...]:
    """Return which of NCCL's algorithms have a kernel for a collective in the newest release.

    Examples
    --------
    >>> served("broadcast"), served("all_gather")
    (('ring',), ('ring', 'nvls', 'collnet_direct', 'pat', 'symmetric', 'copy_engine'))
    """
    return tuple(name for name in accepted(collective) if name in _ALONE or serves(NEWEST, collective, name, SIMPLE))


def is_list(text: str) -> bool:
    """Say whether a text is written as lists and exclusions are, which only NCCL knows."""
    return any(mark in text for mark in _LISTS)


def algorithm_named(text: str, collective: str) -> str | None:
    """Return what a run takes for the algorithms that a user names, or None if NCCL has none of that name.

    Parameters
    ----------
    text : str
        Such as ``Tree``, ``ring,tree``, ``^NVLS`` or ``allreduce:tree;broadcast:ring``.
    collective : str

    Raises
    ------
    NetsimError
        For a list in which something is no algorithm.

    Examples
    --------
    >>> algorithm_named("NVLSTree", "all_reduce"), algorithm_named("Symmetric:AGxLL_R", "all_reduce")
    ('nvls_tree', 'symmetric:agxll_r')
    >>> algorithm_named("^NVLS", "all_reduce"), algorithm_named("one_shot", "all_reduce")
    ('^NVLS', None)
    """
    text = text.strip()
    folded = text.lower()
    if folded == AUTO or folded.partition(":")[0] in _ALONE:
        return folded
    if text and not is_list(text) and ":" not in text:
        return _FOLDED.get(folded.replace("_", ""))
    try:
        allowed({}, collective, algorithms=text)
    except NetsimError:
        if is_list(text):
            raise
        return None
    return text or None


def unknown(name: str, collective: str, textbook: Sequence[str] = ()) -> str:
    """Say that a name is no algorithm, and which there are: NCCL's, and the textbook's where those would do, too."""
    algorithm, protocol = pair_named(name)
    if protocol is not None:
        return f"{name!r} names a protocol, too; give algorithm {algorithm} and protocol {protocol} apart"
    ours = accepted(collective)
    close = difflib.get_close_matches(name.lower(), (*ours, *textbook), n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    words = f"unknown algorithm {name[:60]!r}{meant}; accepted for {collective} are NCCL's {', '.join((*ours, AUTO))}"
    others = [other for other in textbook if other not in ours]
    return f"{words}, and the textbook's {', '.join(others)}" if others else words


def resolved(collective: str, algorithm: str, protocol: str) -> tuple[str, str]:
    """Return algorithm and protocol of a run as `netsim.nccl.schedules` takes them.

    Raises
    ------
    ScheduleError
        If NCCL has no such algorithm or protocol.
    """
    try:
        named = algorithm_named(algorithm, collective)
        if is_list(protocol) and collective not in TUNED:
            protocol = protocol_of_peers(protocol)
    except NetsimError as error:
        raise ScheduleError(str(error)) from None
    if named is None:
        raise ScheduleError(unknown(algorithm, collective))
    return named, protocol


def protocol_of_peers(text: str) -> str:
    """Return which protocol sends and receives take of a list; one for functions does not speak of them.

    Examples
    --------
    >>> protocol_of_peers("^LL"), protocol_of_peers("LL,Simple"), protocol_of_peers("allreduce:ll")
    ('simple', 'auto', 'auto')
    """
    left = {protocol for _, protocol in allowed({}, ALL_REDUCE, protocols=text) or ()}
    named = [protocol for protocol in (LL, SIMPLE) if protocol in left]
    if ":" in text or len(named) == 2:
        return AUTO
    return named[0] if named else LL128


def pair_named(text: str) -> tuple[str, str | None]:
    """Split an algorithm and its protocol, where both are named; ``symmetric:KERNEL`` and lists stay whole.

    Examples
    --------
    >>> pair_named("Ring:LL128"), pair_named("ring"), pair_named("hierarchical:2x8")
    (('ring', 'll128'), ('ring', None), ('hierarchical:2x8', None))
    """
    head, _, protocol = text.strip().partition(":")
    algorithm = _FOLDED.get(head.lower().replace("_", ""))
    if algorithm in TUNED_ALGORITHMS and protocol.lower() in PROTOCOLS:
        return algorithm, protocol.lower()
    return text, None
