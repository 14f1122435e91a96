"""Which of NCCL's algorithms and protocols is the fastest at each size, by simulation: rows for a tuner file.

NCCL's cost model is asked only for what can run at all. Channels are NCCL's own number unless the spec gives one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from netsim.errors import NetsimError, ScheduleError
from netsim.nccl.names import algorithm_named, is_list, pair_named
from netsim.nccl.tuner_constants import ALGORITHMS as TUNED_ALGORITHMS
from netsim.nccl.tuner_file import Row, Rule, rules_of
from scenarios.choices import choices
from scenarios.nccl import communicator_of
from scenarios.run import Spec, run_spec

Pair = tuple[str, str]
"""Algorithm and protocol."""


@dataclass(frozen=True)
class Fastest:
    """What simulation says of one size."""

    size_bytes: int
    times_us: dict[Pair, float]
    """Simulated time of every pair, in NCCL's order."""
    model: Pair
    """What NCCL's cost model takes among them."""

    @property
    def pair(self) -> Pair:
        """The fastest; the first of equals in NCCL's order."""
        return min(self.times_us, key=lambda pair: self.times_us[pair])


def fastest(
    spec: Spec, sizes: Iterable[int], wanted: Sequence[str] = (), told: Callable[[int], None] = lambda size: None
) -> list[Fastest]:
    """Simulate NCCL's algorithms and protocols at each size.

    Parameters
    ----------
    spec : Spec
        Machine, collective and NCCL's options; its protocol bounds what is tried, ``auto`` tries all.
    sizes : iterable of int, bytes
        Rounded as nccl-tests does; what is rounded to nothing is left out.
    wanted : sequence of str, optional
        Algorithms, or algorithm and protocol as in ``ring:ll128``; everything that can run by default. A ``^`` in front of
        the first excludes all of them instead.
    told : callable, optional
        Called with each size before its runs.

    Raises
    ------
    NetsimError
        If something wanted cannot run here, or NCCL chooses nothing for the collective.
    """
    if spec.nccl.tuner is not None:
        raise NetsimError("a tuner file is what comes of this, so none can be given; leave --tuner out")
    if spec.groups is not None:
        raise NetsimError("a tuner plugin knows one communicator, not several at once; leave --groups out")
    found = choices(spec, sizes)
    if not found.decisions:
        raise ScheduleError(
            f"NCCL chooses no algorithm for {spec.collective} here, so a tuner file has nothing to say of it"
        )
    decisions = [(size, made.choice) for size, made in found.decisions if size > 0]
    if not decisions:
        raise NetsimError(f"all sizes are too small: nothing is left of them over the ranks of a {spec.collective}")
    pairs = _wanted(wanted, spec.collective, tuple(decisions[0][1].table))
    rows = []
    for size, choice in decisions:
        told(size)
        times = {
            pair: run_spec(replace(spec, size_bytes=size, algorithm=pair[0], protocol=pair[1])).time_us for pair in pairs
        }
        rows.append(Fastest(size, times, min(pairs, key=lambda pair: choice.table[pair])))
    return rows


def rules(spec: Spec, found: Iterable[Fastest]) -> list[Rule]:
    """Return the rules of a tuner file for the machine of a spec."""
    whole = communicator_of(spec.machine, spec.nccl)
    rows = [Row(one.size_bytes, *one.pair, spec.channels or 0) for one in found]
    return rules_of(rows, spec.collective, nodes=len(whole.nodes), ranks=whole.ranks)


def _wanted(names: Sequence[str], collective: str, able: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """Return the pairs that names stand for, or that they leave if the first begins with ^, in NCCL's order."""
    taken: set[Pair] = set()
    excluded = bool(names) and names[0].startswith("^")
    for name in names:
        algorithm, protocol = pair_named(name.removeprefix("^") if name is names[0] else name)
        named = None if is_list(algorithm) else algorithm_named(algorithm, collective)
        meant = [pair for pair in able if pair[0] == named and protocol in (None, pair[1])]
        # What cannot run here is left out already.
        if not meant and not (excluded and named in TUNED_ALGORITHMS):
            words = ", ".join(":".join(pair) for pair in able)
            raise NetsimError(f"--algos: {name!r} is nothing that NCCL can run here; accepted are {words}")
        taken.update(meant)
    left = tuple(pair for pair in able if not names or (pair in taken) != excluded)
    if not left:
        raise NetsimError(f"--algos: {','.join(names)!r} leaves nothing that could run here; exclude less")
    return left
