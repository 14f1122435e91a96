"""Completion time as bandwidth: algorithm bandwidth and nccl-tests' bus bandwidth.

The factors are nccl-tests' (nccl.md 1.1): they turn algorithm bandwidth into the rate of the busiest link of a
point-to-point algorithm. Where a switch adds or copies (NVLS) or a tree is used, bus bandwidth is no wire rate.
"""

import math
from numbers import Real

from netsim.errors import ScheduleError
from netsim.schedule.collective import check_collective, read_size

_SHARE = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")


def bus_factor(collective: str, ranks: int) -> float:
    """Return what nccl-tests multiplies algorithm bandwidth by.

    Examples
    --------
    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8), bus_factor("all_reduce", 1)
    (1.75, 0.875, 1.0, 0.0)
    """
    check_collective(collective, ranks, 0)
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in _SHARE else 1.0


def algorithm_bandwidth(size_bytes: int | str, time_s: float) -> float:
    """Return size / time in bytes per second; 0 where nothing moved in no time (one rank, or size zero).

    Parameters
    ----------
    size_bytes : int or str, bytes
        A whole number, or text with a unit.
    time_s : float, seconds
        Zero or more.

    Raises
    ------
    ScheduleError
        If the size is no whole number or negative, or the time is no number or negative.

    Examples
    --------
    >>> algorithm_bandwidth(900_000_000, 3.5e-3) / 1e9
    257.142857142857...
    """
    size, seconds = read_size(size_bytes), _seconds(time_s)
    return size / seconds if seconds > 0 else 0.0


def _seconds(time_s: object) -> float:
    if isinstance(time_s, bool) or not isinstance(time_s, Real) or not 0 <= float(time_s) < math.inf:
        raise ScheduleError(f"time_s is {time_s!r}; it must be zero or more seconds, and finite")
    return float(time_s)


def bus_bandwidth(collective: str, ranks: int, size_bytes: int | str, time_s: float) -> float:
    """Return nccl-tests' bus bandwidth in bytes per second: the algorithm bandwidth times `bus_factor`.

    Examples
    --------
    >>> bus_bandwidth("all_reduce", 8, "900 MB", 3.5e-3) / 1e9
    450.0
    """
    return algorithm_bandwidth(size_bytes, time_s) * bus_factor(collective, ranks)


def bus_bandwidth_note(algorithm: str, ranks: int) -> str:
    """Say when bus bandwidth is not the rate of any wire, or return an empty text."""
    if ranks == 1:
        return "one rank: nothing moves, so there is no bus bandwidth"
    if algorithm == "nvls":
        return "busbw is no wire rate: the switch adds and copies, so less crosses the links than the factor assumes"
    if "tree" in algorithm:
        return "busbw is no wire rate: a tree loads its links unevenly"
    return ""
