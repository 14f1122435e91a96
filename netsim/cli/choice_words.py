"""Lines about NCCL's choice: its cost table, and for each size what it predicts for every pair and which it takes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from netsim.export.table import aligned

if TYPE_CHECKING:
    from scenarios.choices import Choices


def choice_lines(found: "Choices", collective: str) -> Iterator[str]:
    """Yield a table of costs and one of predictions, without the mark of a comment."""
    if not found.decisions:
        yield f"NCCL's cost model is not asked for this {collective}"
        return
    pairs = list(found.decisions[0][1].choice.table)
    names = [f"{algorithm} {protocol}" for algorithm, protocol in pairs]
    yield f"NCCL's cost table for {collective}: time = latency + size / bandwidth, before corrections by size"
    costs = [found.costs.get(pair) for pair in pairs]
    table = [
        ("", *names),
        ("latency (us)", *("-" if cost is None else f"{cost.latency_us:.1f}" for cost in costs)),
        ("bandwidth (GB/s)", *("-" if cost is None else f"{cost.bandwidth_GBps:.1f}" for cost in costs)),
    ]
    yield from aligned(table)
    yield "NCCL's predicted time in us for each size; it takes the least, or what a rule of a tuner file asks for"
    rows = [("size (B)", *names, "takes")]
    for size, made in found.decisions:
        taken = f"{made.choice.algorithm} {made.choice.protocol}"
        if made.ruled:
            taken += ", by rule" + (f" x{made.channels}" if made.channels else "")
        elif made.ruled is False:
            taken += " x1, no rule serves"
        rows.append((str(size), *(_digits(made.choice.table[pair]) for pair in pairs), taken))
    yield from aligned(rows)


def _digits(time_us: float) -> str:
    return f"{time_us:.2f}" if time_us < 1e4 else f"{time_us:.0f}"
