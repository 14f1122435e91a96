"""Collectives inside the switch (textbook NVLS): the switch adds what its members send and copies one message to all.

Every rank is the head of one block. For an all-reduce each member sends a leg of every block up, the switch hands the sum
down to the block's head, and the head sends it up once more for the switch to copy to everybody, itself included. Legs,
outputs, trunks and branches have lanes of their own, a branch one for each head, so that none waits behind another's.
All ranks must sit on one switch that multicasts and reduces.
"""

import numpy as np

from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import BRANCH, HEAD, LEG, OUTPUT, TRUNK, Schedule, ScheduleBuilder
from netsim.schedule.pieces import cut, piece_count


def all_reduce(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build an all-reduce in the switch.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    chunk_bytes, chunks : int or None
        Cut each head's block into pieces of this size, or into this many; by default so that all blocks together have at
        least 64 pieces, none below 4 KiB.
    align_bytes : int
        Boundaries are multiples of this.
    limit : int or None
        The most operations accepted.
    """
    return _build("all_reduce", ranks, size_bytes, 0, chunk_bytes, chunks, align_bytes, limit)


def reduce_scatter(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a reduce-scatter in the switch: legs and outputs only, blocks whole by default; parameters as in `all_reduce`."""
    return _build("reduce_scatter", ranks, size_bytes, 0, chunk_bytes, chunks, align_bytes, limit)


def all_gather(
    ranks: int,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build an all-gather in the switch: trunks and branches only, blocks whole by default; parameters as in `all_reduce`."""
    return _build("all_gather", ranks, size_bytes, 0, chunk_bytes, chunks, align_bytes, limit)


def broadcast(
    ranks: int,
    size_bytes: int,
    *,
    root: int = 0,
    chunk_bytes: int | None = None,
    chunks: int | None = None,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Build a broadcast in the switch: the root's data goes up once and down to all others; parameters as in `all_reduce`."""
    return _build("broadcast", ranks, size_bytes, root, chunk_bytes, chunks, align_bytes, limit)


def _build(
    collective: str,
    ranks: int,
    size_bytes: int,
    root: int,
    chunk_bytes: int | None,
    chunks: int | None,
    align_bytes: int,
    limit: int | None,
) -> Schedule:
    """Lay out the operations of one piece of one head and repeat them: piece by piece, head by head."""
    adds, copies = collective in ("all_reduce", "reduce_scatter"), collective != "reduce_scatter"
    whole = collective == "broadcast"
    heads = [root] if whole else list(range(ranks))
    blocks = [0, size_bytes] if whole else block_bounds(size_bytes, ranks, align_bytes)
    count = piece_count(blocks[1], chunk_bytes, chunks, default=None if adds and copies else 1)
    bounds = cut(blocks[:-1], blocks[1:], count, chunk_bytes, align_bytes)
    members = list(range(ranks))
    receivers = [rank for rank in members if rank != root] if whole else members
    kinds = (([LEG] * ranks + [OUTPUT]) if adds else []) + (([TRUNK] + [BRANCH] * len(receivers)) if copies else [])
    expected = count * len(heads) * len(kinds) if ranks > 1 else 0
    phases = ((0, "reduce in the switch"), (1, "multicast")) if adds and copies else ()
    builder = ScheduleBuilder(
        collective, "nvls", ranks, size_bytes, root, expected=expected, limit=limit, align_bytes=align_bytes, phases=phases
    )
    if not expected:
        return builder.build()
    kind = np.array(kinds)
    src, dst, lane = (np.full((len(heads), len(kinds)), -1) for _ in range(3))
    for place, head in enumerate(heads):
        up, down = (kind == LEG, kind == OUTPUT), (kind == TRUNK, kind == BRANCH)
        if adds:
            src[place, up[0]], dst[place, up[1]] = members, head
            lane[place, up[0]], lane[place, up[1]] = builder.lanes(members, f"leg {head}"), builder.lane(head, "output")
        if copies:
            src[place, down[0]], dst[place, down[1]] = head, receivers
            lane[place, down[0]], lane[place, down[1]] = builder.lane(head, "trunk"), builder.lanes(receivers, f"branch {head}")
    shape = (count, len(heads), len(kinds))
    start, stop = bounds[:, :-1].T[..., None], bounds[:, 1:].T[..., None]
    first = np.isin(kind, (LEG, OUTPUT)) if adds else kind >= 0
    columns = {
        "kind": kind,
        "src": src,
        "dst": dst,
        "lane": lane,
        "offset": start,
        "size": stop - start,
        "chunk": np.arange(len(heads))[:, None] * count + np.arange(count)[:, None, None],
        "step": np.where(first, 0, 1),
        "from_input": (kind == LEG) | ((kind == TRUNK) & (not adds)),
        "group": builder.group(members),
    }
    ids = builder.add(expected, **{name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()})
    ids = ids.reshape(-1, len(kinds))
    if adds:
        builder.require(ids[:, kind == OUTPUT], ids[:, kind == LEG], HEAD)
    if adds and copies:
        builder.require(ids[:, kind == TRUNK], ids[:, kind == OUTPUT])
    if copies:
        builder.require(ids[:, kind == BRANCH], ids[:, kind == TRUNK], HEAD)
    return builder.build()
