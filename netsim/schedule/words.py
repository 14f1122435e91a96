"""A schedule in words, step by step, the way a person would tell it: ``r0->r1 chunk 0``."""

from collections.abc import Iterator

import numpy as np

from netsim.schedule.dag import BRANCH, COMPUTE, LEG, OUTPUT, TRUNK, Schedule


def steps_in_words(schedule: Schedule, *, most: int | None = None) -> Iterator[str]:
    """Yield one line a step: the phase, the step's number in it, and what moves.

    Steps tell the order of the algorithm; what may really start when is said by the requirements.

    Parameters
    ----------
    schedule : Schedule
        What to tell.
    most : int or None
        Name at most this many operations a line, and count the rest.

    Examples
    --------
    >>> from netsim.schedule.ring import all_reduce
    >>> next(steps_in_words(all_reduce(4, 4_000_000)))
    'reduce-scatter step 1: r0->r1 chunk 0, r1->r2 chunk 1, r2->r3 chunk 2, r3->r0 chunk 3'
    """
    if not len(schedule):
        yield "nothing moves"
        return
    # An operation that moves nothing and takes no time only joins requirements.
    told = np.flatnonzero((schedule.kind != COMPUTE) | (schedule.duration > 0))
    order = told[np.argsort(schedule.step[told], kind="stable")]
    steps, starts = np.unique(schedule.step[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    for step, start, end in zip(steps.tolist(), starts.tolist(), ends, strict=True):
        shown = order[start:end][:most].tolist()
        words = ", ".join(move_in_words(schedule, op) for op in shown)
        rest = end - start - len(shown)
        yield f"{_step_name(schedule, step)}: {words}{f' and {rest} more' if rest else ''}"


def move_in_words(schedule: Schedule, op: int) -> str:
    """Tell one operation in a few words."""
    kind = schedule.kind[op]
    if kind == COMPUTE:
        return f"r{schedule.lane_names[schedule.lane[op]][0]} computes"
    source = "switch" if kind in (BRANCH, OUTPUT) else f"r{schedule.src[op]}"
    target = "switch" if kind in (TRUNK, LEG) else f"r{schedule.dst[op]}"
    ranges = len(schedule.ranges(op))
    return f"{source}->{target} chunk {schedule.chunk[op]}{f' ({ranges} ranges)' if ranges > 1 else ''}"


def _step_name(schedule: Schedule, step: int) -> str:
    """Return the phase of a step and its number from 1 inside that phase."""
    before = [(first, name) for first, name in schedule.phases if first <= step]
    if not before:
        return f"step {step + 1}"
    first, name = before[-1]
    return f"{name} step {step - first + 1}"
