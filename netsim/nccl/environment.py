"""NCCL's environment variables as users write them: assignments read, lists of algorithms and protocols understood.

Between the front door and `netsim.nccl.tuner`, `netsim.nccl.channels` and `netsim.nccl.from_topology`, which take plain
values or the mapping itself. Names and what each does here stand in `netsim.nccl.variables`. Stricter than NCCL where NCCL
would ignore a mistake: releases before 2.24 skip names that they do not know.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from netsim.errors import NetsimError
from netsim.nccl.availability import Options
from netsim.nccl.settings import Settings
from netsim.nccl.tuner_constants import ALGORITHMS, LL128, PROTOCOLS
from netsim.nccl.tuner_costs import ALL_REDUCE, TUNED
from netsim.nccl.variables import MISSING, USED, check_name, flag, number
from netsim.nccl.version import DEFAULT, Version
from netsim.reading import read_text

Pair = tuple[str, str]
"""Algorithm and protocol."""

_BY_FUNCTION = Version(2, 24)
_ALGORITHM_NAMES = dict(
    zip(("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"), ALGORITHMS, strict=True)
)
_PROTOCOL_NAMES = dict(zip(("LL", "LL128", "Simple"), PROTOCOLS, strict=True))
_FUNCTION_NAMES = {
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllReduce": "all_reduce",
}
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.ASCII | re.DOTALL)
_EXPORT = re.compile(r"(export|declare -x)\s+")
_MOST_FILE_BYTES = 1 << 20
_WANTED = "a file of lines NAME=VALUE is wanted, such as nccl.conf or what `env` prints"
_UNSET = -2
"""What NCCL takes as not given."""
_MOST = 2**31 - 1
_MOST_OVERHEAD_NS = 10**9


def read_assignments(texts: Iterable[str], where: str = "--nccl-env") -> dict[str, str]:
    """Read variables from the command line, and from files of them.

    Parameters
    ----------
    texts : iterable of str
        Each ``NAME=VALUE``, or the path of a file of such lines: an nccl.conf, or the output of ``env`` or ``export -p``,
        of which only names that begin with NCCL_ are read. Of two values for one name the later one counts.
    where : str
        Where the texts come from, for messages.

    Returns
    -------
    dict of str to str
        Name -> value, the value unread.

    Raises
    ------
    NetsimError
        For a name that is none of NCCL's, and a file that cannot be read.

    Examples
    --------
    >>> read_assignments(["NCCL_ALGO=ring,tree", "NCCL_NVLS_ENABLE=0"])
    {'NCCL_ALGO': 'ring,tree', 'NCCL_NVLS_ENABLE': '0'}
    """
    found: dict[str, str] = {}
    for text in texts:
        assignment = _ASSIGNMENT.fullmatch(text.strip())
        if assignment:
            check_name(assignment[1], where)
            found[assignment[1]] = assignment[2]
        elif text.strip() in USED or text.strip() in MISSING:
            raise NetsimError(f"{where}: {text.strip()} has no value; accepted is {text.strip()}=VALUE")
        elif not _exists(text):
            raise NetsimError(f"{where}: {text[:60]!r} is neither NAME=VALUE nor a file of such lines")
        else:
            found |= _from_file(text)
    return found


def _exists(path: str) -> bool:
    try:
        return bool(path.strip()) and Path(path).exists()
    except (OSError, ValueError):  # no name that a file could have
        return False


def _from_file(path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line_number, line in enumerate(read_text(path, _MOST_FILE_BYTES, wanted=_WANTED).splitlines(), 1):
        exported = _EXPORT.match(line.strip())
        text = line.strip()[exported.end() :] if exported else line.strip()
        if not text.upper().startswith("NCCL_"):
            continue  # comments, and what else an environment holds
        assignment = _ASSIGNMENT.fullmatch(text)
        if not assignment:
            raise NetsimError(f"{path}, line {line_number}: {text[:60]!r} has no value; accepted is NAME=VALUE")
        check_name(assignment[1], f"{path}, line {line_number}")
        value = assignment[2]
        # A shell takes quotes away; NCCL, which reads its own file, does not.
        if exported and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[assignment[1]] = value
    if not found:
        raise NetsimError(f"{path}: no line of it gives a variable of NCCL; {_WANTED}")
    return found


def notes(environment: Mapping[str, str]) -> list[str]:
    """Say in words which of the given variables do not bear on the result as they are given, and why.

    Examples
    --------
    >>> notes({"NCCL_DEBUG": "INFO", "NCCL_ALGO": "ring"})
    ['NCCL_DEBUG does not change what is sent when, so it is ignored']
    >>> notes({"NCCL_NTHREADS": "48"})
    ['NCCL_NTHREADS=48 is no multiple of 32 from 64 to 512, so NCCL warns and takes 512']
    """
    missing = [name for name in environment if name in MISSING]
    harmless = [name for name in environment if name not in MISSING and name not in USED]
    said = [
        f"{name}={environment[name]} is not modelled and is ignored; NCCL takes from it: {MISSING[name]}" for name in missing
    ]
    if harmless:
        verb, rest = ("does", "it is") if len(harmless) == 1 else ("do", "they are")
        said.append(f"{', '.join(harmless)} {verb} not change what is sent when, so {rest} ignored")
    if environment.get("NCCL_CTA_POLICY", "").strip() == "1":
        said.append("NCCL_CTA_POLICY=1 is not modelled: NCCL may then prefer NVLS for gathers on registered buffers")
    said += [words for name, bounds in _THREAD_BOUNDS.items() if (words := _threads_words(environment, name, bounds))]
    return said


# Least and most threads of a channel (NCCL_SIMPLE_MAX_NTHREADS, NCCL_LL128_MAX_NTHREADS; two warps, and a quarter).
_THREAD_BOUNDS = {"NCCL_NTHREADS": (64, 512), "NCCL_LL128_NTHREADS": (160, 640)}
_WARP = 32


def _threads_words(environment: Mapping[str, str], name: str, bounds: tuple[int, int]) -> str:
    """Say what NCCL makes of a number of threads that it does not take; nothing where it takes it."""
    asked = _optional(environment, name, 0, _MOST) or 0
    least, most = bounds
    if not asked or (least <= asked <= most and asked % _WARP == 0):
        return ""
    taken = most if asked % _WARP or asked > most else least
    return f"{name}={asked} is no multiple of {_WARP} from {least} to {most}, so NCCL warns and takes {taken}"


def allowed(
    environment: Mapping[str, str],
    collective: str,
    version: Version = DEFAULT,
    *,
    algorithms: str | None = None,
    protocols: str | None = None,
) -> set[Pair] | None:
    """Return the pairs that NCCL_ALGO and NCCL_PROTO leave for a collective.

    Parameters
    ----------
    environment : mapping of str to str
        NCCL's variables.
    collective : str
        Whose lists count; None is returned for those that NCCL chooses nothing for, such as alltoall.
    version : Version
        Lists for each function are known from 2.24 on.
    algorithms, protocols : str, optional
        What the command line asks for in the same form (``"ring"``, ``"^ll128"``, ``"allreduce:tree;broadcast:ring"``),
        with this project's names as well as NCCL's; has precedence over the variable. ``auto`` is no wish.

    Returns
    -------
    set of (algorithm, protocol), or None
        For `netsim.nccl.tuner.choose`; None if nothing is restricted.

    Raises
    ------
    NetsimError
        For a name that NCCL does not know, in words.

    Examples
    --------
    >>> sorted(allowed({"NCCL_ALGO": "^nvls,pat,collnetdirect,collnetchain,nvlstree", "NCCL_PROTO": "LL"}, "all_reduce"))
    [('ring', 'll'), ('tree', 'll')]
    """
    left = _left(environment, "NCCL_ALGO", "--algo", algorithms, _ALGORITHM_NAMES, collective, version)
    kept = _left(environment, "NCCL_PROTO", "--proto", protocols, _PROTOCOL_NAMES, collective, version)
    if (left is None and kept is None) or collective not in TUNED:
        return None
    return {
        (algorithm, protocol)
        for algorithm in (ALGORITHMS if left is None else left)
        for protocol in (PROTOCOLS if kept is None else kept)
    }


def tuner_options(
    environment: Mapping[str, str],
    collective: str = ALL_REDUCE,
    version: Version = DEFAULT,
    *,
    protocols: str | None = None,
    datatype: str = "float",
    operator: str = "sum",
    collnet_gathers: bool = False,
) -> Options:
    """Return what the cost model takes from the environment.

    Parameters
    ----------
    environment : mapping of str to str
    collective : str
        NCCL_PROTO can name protocols for each.
    version : Version
    protocols : str, optional
        As in `allowed`.
    datatype, operator, collnet_gathers
        Passed on, see `Options`.

    Notes
    -----
    LL128 counts as forced where a list leaves it, also one that only excludes others: NCCL_PROTO=^LL takes LL128 even
    where 128-byte stores may arrive out of order.
    """
    kept = _left(environment, "NCCL_PROTO", "--proto", protocols, _PROTOCOL_NAMES, collective, version)
    overhead = _optional(environment, "NCCL_NET_OVERHEAD", 0, _MOST_OVERHEAD_NS)
    return Options(
        datatype=datatype,
        operator=operator,
        net_overhead_us=None if overhead is None else overhead / 1000,
        pat_enable=number(environment, "NCCL_PAT_ENABLE", 2, 0, 2),
        ll128_c2c=flag(environment, "NCCL_LL128_C2C", True),
        ll128_forced=kept is not None and LL128 in kept,
        collnet_gathers=collnet_gathers,
    )


def settings(environment: Mapping[str, str]) -> Settings:
    """Return what channels, threads and buffers take from the environment.

    Examples
    --------
    >>> settings({"NCCL_MIN_NCHANNELS": "4", "NCCL_BUFFSIZE": "8388608"}).buffer_bytes
    8388608
    """
    given: dict[str, Any] = {}
    for field, (names, least) in _FIELDS.items():
        value = _first(environment, names, least)
        if value is not None and (value > 0 or field not in _THREADS):  # threads of zero are NCCL's default
            given[field] = value
    if given.get("min_ctas", 0) > given.get("max_ctas", _MOST):
        given["min_ctas"] = given["max_ctas"]  # as NCCL does, with a word in its log
    for name, (least, most) in _BOUNDS.items():
        number(environment, name, least, least, most)
    # As in NCCL, 128 at most.
    given["queue_pairs"] = number(environment, "NCCL_IB_QPS_PER_CONNECTION", 1, 1, 128)
    given["net_ll_buffers"] = flag(environment, "NCCL_ALLOC_P2P_NET_LL_BUFFERS", False)
    given["pxn_level"] = number(environment, "NCCL_P2P_PXN_LEVEL", 2, 0, 2)
    return Settings(**given)


_THREADS = ("threads", "ll128_threads")
_BOUNDS = {
    "NCCL_PAT_ENABLE": (0, 2),
    "NCCL_LL128_C2C": (0, 1),
    "NCCL_COLLNET_NODE_THRESHOLD": (0, _MOST),
    "NCCL_CTA_POLICY": (0, 2),
    "NCCL_SYM_CTAS": (0, 64),
    "NCCL_SYM_CE_THRESHOLD": (0, 2**62),
}
"""What is read elsewhere and only where it bears on a run, checked in any case: a slip should not pass."""
# Field of Settings -> variables, the first that is given counts, and the least value; Settings knows the sharper bounds.
_FIELDS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "min_channels": (("NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS"), 0),
    "max_channels": (("NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS"), 1),
    "min_ctas": (("NCCL_MIN_CTAS",), 1),
    "max_ctas": (("NCCL_MAX_CTAS",), 1),
    "nvls_channels": (("NCCL_NVLS_NCHANNELS",), 1),
    "threads": (("NCCL_NTHREADS",), 0),
    "ll128_threads": (("NCCL_LL128_NTHREADS",), 0),
    "buffer_bytes": (("NCCL_BUFFSIZE",), 1),
    "ll_buffer_bytes": (("NCCL_LL_BUFFSIZE",), 1),
    "ll128_buffer_bytes": (("NCCL_LL128_BUFFSIZE",), 1),
    "nvls_chunk_bytes": (("NCCL_NVLS_CHUNKSIZE",), 1),
    "nvls_tree_chunk_bytes": (("NCCL_NVLSTREE_MAX_CHUNKSIZE",), 1),
    "min_p2p_channels": (("NCCL_MIN_P2P_NCHANNELS",), 1),
    "max_p2p_channels": (("NCCL_MAX_P2P_NCHANNELS",), 1),
    "channels_per_peer": (("NCCL_NCHANNELS_PER_PEER",), 1),
    "channels_per_net_peer": (("NCCL_NCHANNELS_PER_NET_PEER",), 1),
    "nvl_chunk_bytes": (("NCCL_P2P_NVL_CHUNKSIZE",), 1),
    "pci_chunk_bytes": (("NCCL_P2P_PCI_CHUNKSIZE",), 1),
    "net_chunk_bytes": (("NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PER_CHANNEL_NET_CHUNKSIZE"), 1),
    "ll_threshold_bytes": (("NCCL_P2P_LL_THRESHOLD",), 0),
    "rounds_group": (("NCCL_P2P_SCHEDULE_GROUP_SIZE",), 1),
}


def _first(environment: Mapping[str, str], names: tuple[str, ...], least: int) -> int | None:
    values = [_optional(environment, name, least, _MOST) for name in names]
    return next((value for value in values if value is not None), None)


def _optional(environment: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """Read a number that need not be given."""
    text = environment.get(name, "").strip()
    return None if not text or text == str(_UNSET) else number(environment, name, 0, least, most)


def _left(
    environment: Mapping[str, str],
    variable: str,
    option: str,
    asked: str | None,
    names: Mapping[str, str],
    collective: str,
    version: Version,
) -> frozenset[str] | None:
    """Return what a list leaves for a collective, None if no list speaks of it."""
    if asked is not None and asked.strip().lower() not in ("", "auto"):
        return _listed(
            asked.strip(), option, _folded(names, ours=True), _folded(_FUNCTION_NAMES, ours=True), collective, None
        )
    text = environment.get(variable, "").strip()
    return _listed(text, variable, _folded(names), _folded(_FUNCTION_NAMES), collective, version) if text else None


def _folded(names: Mapping[str, str], *, ours: bool = False) -> dict[str, str]:
    folded = {name.lower(): own for name, own in names.items()}
    return folded | {own: own for own in names.values()} if ours else folded


def _listed(
    text: str,
    where: str,
    names: Mapping[str, str],
    functions: Mapping[str, str],
    collective: str,
    version: Version | None,
) -> frozenset[str] | None:
    """Read lists separated by semicolons, each for one function or, the first only, for all."""
    left: frozenset[str] | None = None
    by_function = version is None or version >= _BY_FUNCTION
    if not by_function and (";" in text or ":" in text):
        raise NetsimError(f"{where}={text[:60]!r} has lists for functions, which NCCL knows from 2.24 on, not {version}")
    for position, entry in enumerate(part for part in text.split(";") if part):
        function, colon, elements = entry.partition(":")
        if not colon:
            if position:
                raise NetsimError(
                    f"{where}={text[:60]!r}: only the first list may be without a function, not {entry[:40]!r}"
                )
            elements = entry
        elif function.lower() not in functions:
            raise _unknown(where, text, "function", function, functions, _FUNCTION_NAMES)
        chosen = _elements(elements, where, text, names)
        if not colon or functions[function.lower()] == collective:
            left = chosen
    return left


def _elements(text: str, where: str, whole: str, names: Mapping[str, str]) -> frozenset[str]:
    excluded = text.startswith("^")
    written = [element for element in text.removeprefix("^").split(",") if element]
    every = frozenset(names.values())
    what = "algorithm" if every == frozenset(ALGORITHMS) else "protocol"
    spelled = _ALGORITHM_NAMES if what == "algorithm" else _PROTOCOL_NAMES
    for element in written:
        if element.lower() not in names:
            raise _unknown(where, whole, what, element, names, spelled)
    if not written and excluded:
        raise NetsimError(f"{where}={whole[:60]!r} excludes no {what}; accepted after a ^ are {', '.join(spelled)}")
    if not written:
        raise NetsimError(f"{where}={whole[:60]!r} names no {what}; accepted are {', '.join(spelled)}")
    meant = frozenset(names[element.lower()] for element in written)
    return every - meant if excluded else meant


def _unknown(
    where: str, whole: str, what: str, name: str, names: Mapping[str, str], spelled: Mapping[str, str]
) -> NetsimError:
    close = difflib.get_close_matches(name.strip().lower(), names, n=1)
    proper = [theirs for theirs, own in spelled.items() if close and own == names[close[0]]]
    hint = f" (did you mean {proper[0]}?)" if proper else ""
    if ":" in name:
        hint = " (lists for functions are separated by semicolons)"
    if name.startswith("^"):
        hint = " (a ^ stands once, before all names of a list)"
    return NetsimError(
        f"{where}={whole[:60]!r}: {name[:40]!r} is no {what} of NCCL{hint}; accepted are {', '.join(spelled)}"
    )
