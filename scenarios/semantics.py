"""What does each of four ranks hold after a collective, when rank r began with 10r, 10r + 1, 10r + 2, 10r + 3?

Answer: after an all-reduce 60, 64, 68, 72 everywhere; after a reduce-scatter one of them each, in rank order; an
all-to-all is the transpose (rank 1 gets 1, 11, 21, 31); an all-gather puts the blocks in rank order. Replayed on data by
every algorithm that serves four ranks, and all agree; torch.distributed with gloo on four processes does too
(tests/parity).
"""

from collections.abc import Iterator

import numpy as np

from netsim.errors import ProofError
from netsim.schedule.catalogue import algorithms_for, build_schedule
from netsim.schedule.replay import replay
from scenarios.study import run_study

COLUMNS = ("collective", "rank", "began_with", "ends_with")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "alltoall")
RANKS = 4


def inputs(collective: str) -> list[list[int]]:
    """Return what each rank begins with; to an all-gather a rank contributes its first element."""
    own = 1 if collective == "all_gather" else RANKS
    return [[10 * rank + place for place in range(own)] for rank in range(RANKS)]


def results(collective: str) -> list[list[int]]:
    """Return what each rank holds afterwards, after all algorithms have been tried and found to agree."""
    found = None
    for algorithm in algorithms_for(collective):
        arrays = [np.array(one) for one in inputs(collective)]
        held = replay(build_schedule(collective, algorithm, RANKS, RANKS), arrays)
        plain = [[] if one is None else one.tolist() for one in held]
        if found is not None and plain != found:
            raise ProofError(f"{collective} by {algorithm} ends with {plain}, by others with {found}")
        found = plain
    return found or []


def rows() -> Iterator[tuple[object, ...]]:
    """Yield one row a collective and rank."""
    for collective in COLLECTIVES:
        for rank, (begun, held) in enumerate(zip(inputs(collective), results(collective), strict=True)):
            yield collective, rank, " ".join(map(str, begun)), " ".join(map(str, held))


if __name__ == "__main__":
    run_study(__doc__, COLUMNS, rows)
