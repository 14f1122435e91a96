"""How finely the lanes of a whole schedule feed their links: in fewer, larger pieces where a run would have too many."""

from dataclasses import replace

from netsim.schedule.dag import Schedule

MOST_PIECES = 400_000
"""Pieces in which the lanes of a run feed links; beyond, they are made larger, which moves times by some per cent."""


def fed_in_few_pieces(schedule: Schedule, most: int = MOST_PIECES) -> tuple[Schedule, int]:
    """Return a schedule whose lanes feed links in so large pieces that all are at most so many, and the factor.

    Larger pieces let lanes take turns on a link less finely; a time may move by some per cent where lanes share one.
    """
    fed = schedule.feed > 0
    if not fed.any():
        return schedule, 1
    wire, feed, factor = schedule.wire[fed], schedule.feed[fed], 1
    while int((-(-wire // (feed * factor))).sum()) > most and bool((feed * factor < wire).any()):
        factor *= 2
    return (schedule, 1) if factor == 1 else (replace(schedule, feed=schedule.feed * factor), factor)
