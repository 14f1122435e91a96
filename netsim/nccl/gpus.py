"""What NCCL's kernels cost on a generation of GPU: one TOML file a generation, each with its source.

The costs belong to the GPU and the protocol, and where GPUs reach each other over PCI Express only, to that. How long a
hop takes is a property of the links (`netsim.fabric.LinkProtocols`).
"""

import math
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from netsim.errors import NetsimError
from netsim.schedule.nccl.costs import Costs, Rates
from netsim.units import parse_rate, parse_time

FOLDER = Path(__file__).parent / "gpus_data"
"""Where the files of the generations are."""
_PCIE = "pcie"
_MOST_SHARE = 4.0
"""On half of a block's rates: more than any block that was measured does."""
_OLDEST = "ampere"
_SMALL_INTEGERS = ("int8", "uint8")
# Where a file gives three rates, what each primitive does decides which is its own.
_KIND_OF = {
    "send": "send",
    "copy_send": "send",
    "recv_copy_send": "recv",
    "recv_reduce_send": "reduce",
    "recv_reduce_copy_send": "reduce",
    "recv_reduce_copy": "reduce",
    "recv": "recv",
}


def generation(compute_capability: int, *, nvlink: bool = True) -> str:
    """Return the name of the generation whose costs apply.

    Parameters
    ----------
    compute_capability : int
        Times ten: 90 is Hopper.
    nvlink : bool
        Whether the GPUs of a node reach each other over NVLink.

    Examples
    --------
    >>> generation(90), generation(100), generation(70), generation(89, nvlink=False), generation(86, nvlink=False)
    ('hopper', 'blackwell', 'ampere', 'pcie_ada', 'pcie')
    """
    for path in sorted(FOLDER.glob("*.toml")):
        span = _read(path.stem)["compute_capability"]
        if span and span[0] <= compute_capability <= span[1] and path.stem.startswith(_PCIE) != nvlink:
            return path.stem
    # Nothing measured: the nearest generation that is.
    if not nvlink:
        return _PCIE
    return _OLDEST if compute_capability < 90 else "blackwell"


def costs(
    name: str, protocol: str, *, peers: bool = False, nvls: bool = False, trees: bool = False, datatype: str = "float"
) -> Costs:
    """Return what a protocol costs on a generation of GPU.

    Parameters
    ----------
    name : str
        As `generation` returns it, or the path of a TOML file of the same form.
    protocol : {"ll", "ll128", "simple"}
        By which protocol; a generation that has no figures for one takes those of Simple.
    peers : bool
        Whether it is for send and receive, which start otherwise and halve the threads.
    nvls : bool
        Whether it is for NVLS, which starts otherwise.
    trees : bool
        Whether trees join the nodes of NVLS: four groups of threads then share what three have within a node.
    datatype : str
        Integers of one byte are added up at a part of the rates, where that was measured.

    Examples
    --------
    >>> costs("hopper", "ll").start_s, costs("hopper", "simple").rates.send
    (4.15e-06, 38100000000.0)
    """
    file = _read(name)
    table = file.get(protocol) or file["simple"]
    given = {
        key: parse_rate(table.get(key) or table.get(kind) or table["send"], where=key) for key, kind in _KIND_OF.items()
    }
    if datatype in _SMALL_INTEGERS:
        given |= {key: given[key] * table.get("int8", 1.0) for key, kind in _KIND_OF.items() if kind == "reduce"}
    in_switch, between = file.get("nvls", {}), file["p2p"]
    start_s = _time(table, "start")
    if nvls and in_switch:
        start_s = _time(in_switch, "start")
    elif peers:
        start_s = _time(between, "start_ll" if protocol == "ll" else "start")
        if protocol == "ll":
            given = dict.fromkeys(given, parse_rate(between["rate_ll"], where="rate_ll"))
    nvls_rate = parse_rate(in_switch["rate"], where="rate") if in_switch else math.inf
    return Costs(
        start_s=start_s,
        slice_s=_time(table, "slice"),
        threads_s=_time(table, "threads"),
        rates=Rates(**given),
        nvls_loop_s=_time(in_switch, "loop"),
        nvls_rate=nvls_rate * float(in_switch.get("tree", 1.0)) if trees else nvls_rate,
        nvls_reduce_rate=parse_rate(in_switch["reduce"], where="reduce") if in_switch else math.inf,
        # The rate of LL between peers is that of half a block, as it was measured.
        halves=float(between["share"]) if protocol != "ll" else 2.0,
    )


def window_costs(name: str, protocol: str, collective: str) -> Costs:
    """Return what kernels on symmetric memory and copy engines cost on a generation of GPU."""
    file = _read(name)
    table = file.get("symmetric")
    if table is None:
        return costs(name, protocol)
    kind = collective if collective in table else "others"
    kind = {"all_reduce": "ll", "others": "ll_others"}[kind] if protocol == "ll" else kind
    rate = parse_rate(table[kind], where=kind)
    started = _time(table, "start_ll" if protocol == "ll" else "start")
    rates = Rates(**dict.fromkeys(_KIND_OF, rate))
    return Costs(start_s=started, flag_s=_time(table, "flag"), rates=rates)


def copy_costs(name: str) -> Costs:
    """Return what copy engines cost on a generation of GPU: their start, flags, each copy, and what they copy locally."""
    file = _read(name)
    started, table = file.get("symmetric"), file.get("copy_engine")
    if started is None or table is None:
        return costs(name, "simple")
    rates = Rates(recv=parse_rate(table["local"], where="local"))
    return Costs(start_s=_time(started, "start"), slice_s=_time(table, "copy"), flag_s=_time(started, "flag"), rates=rates)


def launch_s(name: str) -> float:
    """Return the seconds of a host thread for each call and GPU that it drives."""
    return _time(_read(name)["launch"], "call")


def source(name: str) -> str:
    """Return where a generation's figures come from."""
    return str(_read(name)["source"])


def _time(table: dict[str, Any], key: str) -> float:
    return parse_time(table.get(key, "0"), where=key)


def _read(name: str) -> dict[str, Any]:
    return read_costs(name) if name.endswith(".toml") else _shipped(name)


@lru_cache(maxsize=16)
def _shipped(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def read_costs(path: str | Path) -> dict[str, Any]:
    """Read a file of what kernels cost, of the form of those in ``gpus_data``.

    Raises
    ------
    NetsimError
        If it cannot be read, or lacks a table or a key that every such file has.
    """
    try:
        file = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NetsimError(
            f"{path}: no file of kernel costs can be read there ({error}); see netsim/nccl/gpus_data"
        ) from None
    needed = {"simple": ("start", "send", "recv"), "p2p": ("start", "start_ll", "rate_ll", "share"), "launch": ("call",)}
    for table, keys in needed.items():
        given = file.get(table)
        missing = [key for key in keys if not isinstance(given, dict) or key not in given]
        if missing:
            raise NetsimError(
                f"{path}: [{table}] lacks {', '.join(missing)}; a file of kernel costs has {', '.join(keys)} there"
            )
    _check_share(file, path, "p2p", "share", _MOST_SHARE)
    if "tree" in file.get("nvls", {}):
        _check_share(file, path, "nvls", "tree", 1.0)
    return file


def _check_share(file: dict[str, Any], path: str | Path, table: str, key: str, most: float) -> None:
    """Refuse a share that is no number above zero, or more than makes sense."""
    value = file[table][key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise NetsimError(f"{path}: [{table}] {key} is {value!r}; accepted are numbers above 0, at most {most:g}")
