"""The kernel behind `netsim.metrics.critical_path` for large runs, translated by numba: one pass in the order of ids.

The same expressions as there, so the same time to the last bit. Loaded where a compiled run has loaded numba already.
"""

import math

import numpy as np
import numpy.typing as npt

from netsim.schedule.dag import HEAD, LEFT
from netsim.translate import translated

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@translated
def longest(
    requires_start: Ints,
    requires_op: Ints,
    requires_milestone: npt.NDArray[np.uint8],
    lags: Floats,
    op_class: Ints,
    idle_s: Floats,
    hold_s: Floats,
    work_s: Floats,
    early: npt.NDArray[np.bool_],
) -> float:
    """Return the latest end with every link idle, in seconds; nan if an operation requires one of a higher number."""
    count = len(op_class)
    asked = np.empty(count)
    gone = np.empty(count)
    end = np.empty(count)
    latest = 0.0
    for op in range(count):
        ready = 0.0
        tail = 0.0
        for edge in range(requires_start[op], requires_start[op + 1]):
            producer = requires_op[edge]
            if producer >= op:
                return math.nan
            milestone = requires_milestone[edge]
            if milestone == LEFT:
                at = gone[producer]
            elif milestone == HEAD:
                at = asked[producer] + idle_s[op_class[producer], 2]
                tail = max(tail, end[producer])
            else:
                at = end[producer]
            ready = max(ready, at + lags[edge])
        hold = hold_s[op]
        ask = max(ready, hold) if early[op] else ready + hold
        made = (hold if early[op] else ask) + work_s[op]
        kind = op_class[op]
        asked[op] = ask
        gone[op] = max(max(ask + idle_s[kind, 1], made), tail)
        end[op] = max(max(ask + idle_s[kind, 0], made + idle_s[kind, 3]), tail)
        latest = max(latest, end[op])
    return latest
