"""The sizes at which another algorithm becomes the fastest, found by simulation and refined by bisection.

A grid of sizes is simulated first; wherever the winner differs between two neighbours of the grid, the place is
narrowed to one per cent and read off the two times by a straight line between them. Changes of the winner that come and
go between two sizes of the grid are not seen; a finer grid finds them.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from netsim.errors import ScenarioError
from netsim.metrics.closed_forms import closed_form, uniform_network, unpipelined_tree
from netsim.schedule.protocols import IDEAL
from scenarios.machine import router_of
from scenarios.run import Spec, fitting, run_spec
from scenarios.sizes import MOST_SIZES

TIE = 1e-9
"""Relative difference of two times below which neither algorithm is the faster one."""
_FARTHEST_DOUBLINGS = 12
"""A formula that crosses more than 2^12 times away from the simulated crossing says nothing about it."""
REFINED_TO = 1.01
"""Ratio of the two sizes that enclose a crossing."""


@dataclass(frozen=True)
class Crossing:
    """One change of the fastest algorithm."""

    below: str
    """The fastest at smaller sizes."""
    above: str
    """The fastest at larger sizes."""
    size_bytes: float
    """Where both take the same time, between the two simulated sizes."""
    low_bytes: int
    """The largest simulated size before the change."""
    high_bytes: int
    """The smallest simulated size after it, at most one per cent larger (or one byte)."""
    formula_bytes: float | None
    """Where the two formulas cross, if both algorithms have one and the ranks are joined alike."""


@dataclass(frozen=True)
class Survey:
    """What a search for crossings found."""

    crossings: tuple[Crossing, ...]
    first_winner: str
    """The fastest at the smallest size."""
    ranks: int
    topology_digest: str
    version: str
    grid: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """Every size of the grid with the time of each algorithm in microseconds, for plots."""


def size_grid(first: int, last: int, per_doubling: int) -> list[int]:
    """Return sizes from `first` to `last` bytes, evenly spaced on a logarithmic scale.

    Examples
    --------
    >>> size_grid(8, 32, 1)
    [8, 16, 32]
    """
    if not 1 <= first < last:
        raise ScenarioError(
            f"the sizes run from {first} to {last} bytes; the smallest must be 1 byte or more and below the largest"
        )
    steps = max(1, math.ceil(math.log2(last / first) * per_doubling))
    if steps >= MOST_SIZES:
        raise ScenarioError(
            f"{per_doubling} sizes in each doubling make a grid of {steps + 1} sizes, more than {MOST_SIZES}"
        )
    inner = {_round_size(first * (last / first) ** (step / steps)) for step in range(1, steps)}
    return sorted({first, *(size for size in inner if first < size < last), last})


def _round_size(size: float) -> int:
    """Round to ten significant bits, at most 0.1 % away.

    Sizes that divide by the ranks and the chunks are what people run. A last chunk that is a few bytes short leaves its
    queue earlier than its equals and can turn a tie of a pipelined tree the other way, which moves its time by a chunk.
    """
    unit = 1 << max(0, int(size).bit_length() - 10)
    return round(size / unit) * unit


def find_crossings(
    spec: Spec, algorithms: Sequence[str], sizes: Sequence[int], *, told: Callable[[int], None] = lambda size: None
) -> Survey:
    """Find every change of the fastest algorithm over a grid of sizes.

    Parameters
    ----------
    spec : Spec
        Machine, collective and everything but algorithm and size.
    algorithms : sequence of str
        At least two; of NCCL's also two protocols of one, as in ``ring:ll`` and ``ring:simple``.
    sizes : sequence of int, bytes
        The grid, ascending.
    told : callable
        Called with each size before it is simulated.

    Returns
    -------
    Survey
        Crossings in order of size.
    """
    if len(set(algorithms)) < 2 or len(set(algorithms)) < len(algorithms):
        raise ScenarioError(f"a crossing needs two or more different algorithms; got {', '.join(algorithms) or 'none'}")
    for algorithm in algorithms:
        if algorithm.startswith("^"):
            raise ScenarioError(f"{algorithm!r} leaves NCCL a choice; a crossing needs the algorithms by their names")
    last_row = None

    def times(size: int) -> tuple[float, ...]:
        nonlocal last_row
        told(size)
        found = []
        for algorithm in algorithms:
            last_row = run_spec(_told(spec, algorithm, size))
            found.append(last_row.time_us)
        return tuple(found)

    points = [(size, times(size)) for size in sizes]
    crossings: list[Crossing] = []
    for low, high in itertools.pairwise(points):
        crossings += _refine(low, high, times, algorithms, spec)
    assert last_row is not None
    first = algorithms[_winner(points[0][1])]
    digest, version = last_row.topology_digest, last_row.version
    return Survey(tuple(crossings), first, last_row.ranks, digest, version, tuple(points))


def survey_one(spec: Spec, algorithm: str, sizes: Sequence[int], told: Callable[[int], None] = lambda size: None) -> Survey:
    """Simulate one algorithm over a grid of sizes, in the form of a survey: without crossings."""
    rows = []
    for size in sizes:
        told(size)
        rows.append(run_spec(_told(spec, algorithm, size) if algorithm != "auto" else replace(spec, size_bytes=size)))
    grid = tuple((row.size_bytes, (row.time_us,)) for row in rows)
    return Survey((), algorithm, rows[0].ranks, rows[0].topology_digest, rows[0].version, grid)


def _told(spec: Spec, algorithm: str, size: int) -> Spec:
    """Give the pieces to the algorithms that live by them; the ring's own unit is a block of N / p."""
    if spec.protocol != IDEAL or ":" in algorithm:
        # Only here, so that textbook runs start without it.
        from netsim.nccl.names import pair_named

        name, protocol = pair_named(algorithm)
        if spec.protocol != IDEAL:
            return replace(spec, algorithm=name, protocol=protocol or spec.protocol, size_bytes=size)
        if protocol is not None:
            raise ScenarioError(
                f"{algorithm!r} names a protocol of NCCL's, and these runs are textbook (protocol ideal); give --proto "
                "auto on a machine whose GPUs are known, or algorithms alone"
            )
    spec = replace(fitting(spec, algorithm), algorithm=algorithm, size_bytes=size)
    return spec if algorithm != "ring" else replace(spec, chunks=None, chunk_bytes=None)


_Point = tuple[int, tuple[float, ...]]


def _refine(
    low: _Point, high: _Point, times: Callable[[int], tuple[float, ...]], algorithms: Sequence[str], spec: Spec
) -> Iterator[Crossing]:
    """Yield the changes of winner between two sizes; a third algorithm that wins in between splits the interval."""
    before, after = _winner(low[1]), _winner(high[1])
    if before == after:
        return
    if high[0] <= max(low[0] * REFINED_TO, low[0] + 1):
        gap_low, gap_high = (point[1][before] - point[1][after] for point in (low, high))
        share = gap_low / (gap_low - gap_high) if gap_low != gap_high else 0.0
        size = low[0] + share * (high[0] - low[0])
        names = algorithms[before], algorithms[after]
        yield Crossing(*names, size, low[0], high[0], formula_crossing(spec, *names, near_bytes=size))
        return
    size = min(max(_round_size(math.sqrt(low[0] * high[0])), low[0] + 1), high[0] - 1)
    middle = (size, times(size))
    yield from _refine(low, middle, times, algorithms, spec)
    yield from _refine(middle, high, times, algorithms, spec)


def _winner(times: Sequence[float]) -> int:
    """Return the index of the least time; the first of those that tie with it."""
    least = min(times)
    return next(index for index, time in enumerate(times) if time <= least * (1 + TIE))


def formula(spec: Spec, algorithm: str) -> Callable[[int], float | None] | None:
    """Return the alpha-beta time in seconds by size in bytes, or None where ranks are not joined alike.

    The double binary tree has no closed form once it is pipelined; what is commonly set against the ring is the
    unpipelined one, so that is what stands beside its simulation.
    """
    router = router_of(spec.machine, spec.routing)
    uniform = uniform_network(router)
    if spec.protocol != IDEAL or uniform is None or not uniform.serves(algorithm):
        return None
    ranks, alpha_beta = len(router.ranks), (uniform.latency_s, uniform.bandwidth_bytes_per_s)
    if (spec.collective, algorithm) == ("all_reduce", "double_binary_tree"):
        return lambda size: unpipelined_tree(ranks, size, *alpha_beta)
    return lambda size: closed_form(spec.collective, algorithm, ranks, size, *alpha_beta)


def formula_crossing(spec: Spec, below: str, above: str, *, near_bytes: float) -> float | None:
    """Return the size nearest to another one at which the formulas of two algorithms cross, or None where they do not.

    Formulas are straight lines in the size only in part (NVLS is the larger of two), so the place is searched for:
    outwards by doubling, then by bisection.
    """
    one, other = formula(spec, below), formula(spec, above)
    if one is None or other is None:
        return None
    if one(1) is None or other(1) is None:
        return None

    def lead(size: int) -> float:
        return (one(size) or 0.0) - (other(size) or 0.0)

    start = max(1, round(near_bytes))
    for doublings in range(1, _FARTHEST_DOUBLINGS + 1):
        for low, high in (
            (start << (doublings - 1), start << doublings),
            (max(1, start >> doublings), max(1, start >> (doublings - 1))),
        ):
            if lead(low) * lead(high) < 0:
                return _root(lead, low, high)
    return None


def _root(lead: Callable[[int], float], low: int, high: int) -> float:
    """Return where a function that changes its sign between two sizes is zero."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if lead(low) * lead(middle) <= 0 else (middle, high)
    return low + lead(low) / (lead(low) - lead(high))
