"""Collectives inside the switch (textbook NVLS): the switch adds what its members send and copies one message to all.

Every rank is the head of one block. For an all-reduce each member sends a leg of every block up, the switch hands the sum
down to the block's head, and the head sends it up once more for the switch to copy to everybody, itself included. Legs,
outputs, trunks and branches have lanes of their own, legs and branches one for each head, so that none waits behind
another's: all heads work at once and meet only at the links.
All ranks must sit on one switch that multicasts and reduces.
"""

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from netsim.schedule.collective import block_bounds
from netsim.schedule.dag import BRANCH, HEAD, LEG, OUTPUT, TRUNK, Schedule
from netsim.schedule.options import Pieces
from netsim.schedule.pieces import GivenPieces


def all_reduce(ranks: int, size_bytes: int, **options: Unpack[Pieces]) -> Schedule:
    """Build an all-reduce in the switch.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    **options
        See `netsim.schedule.options.Pieces`: each head's block is cut, by default into at most 64 pieces, none below
        4 KiB. Whole blocks take max(2 alpha + N (1 + 1/p)/B, alpha + 2 N/B) on an ideal switch, pieces tend to
        N (1 + 1/p)/B.
    """
    return _build("all_reduce", ranks, size_bytes, 0, GivenPieces(**options))


def reduce_scatter(ranks: int, size_bytes: int, **options: Unpack[Pieces]) -> Schedule:
    """Build a reduce-scatter in the switch: legs and outputs only; parameters as in `all_reduce`.

    By default blocks are sent whole.
    """
    return _build("reduce_scatter", ranks, size_bytes, 0, GivenPieces(**options))


def all_gather(ranks: int, size_bytes: int, **options: Unpack[Pieces]) -> Schedule:
    """Build an all-gather in the switch: trunks and branches only; parameters as in `all_reduce`.

    By default blocks are sent whole.
    """
    return _build("all_gather", ranks, size_bytes, 0, GivenPieces(**options))


def broadcast(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[Pieces]) -> Schedule:
    """Build a broadcast in the switch: the root's data goes up once and down to all others.

    By default it is sent whole; parameters as in `all_reduce`.
    """
    return _build("broadcast", ranks, size_bytes, root, GivenPieces(**options))


def reduce(ranks: int, size_bytes: int, *, root: int = 0, **options: Unpack[Pieces]) -> Schedule:
    """Build a reduce in the switch: everybody's data goes up once and the sum down to the root.

    By default it is sent whole; parameters as in `all_reduce`.
    """
    return _build("reduce", ranks, size_bytes, root, GivenPieces(**options))


def _build(collective: str, ranks: int, size_bytes: int, root: int, given: GivenPieces) -> Schedule:
    """Lay out the operations of one piece of one head and repeat them: piece by piece, head by head."""
    adds, copies = collective not in ("all_gather", "broadcast"), collective not in ("reduce_scatter", "reduce")
    whole = collective in ("broadcast", "reduce")
    heads = [root] if whole else list(range(ranks))
    blocks = [0, size_bytes] if whole else block_bounds(size_bytes, ranks, given.align_bytes)
    count = given.count(blocks[1], default=None if adds and copies else 1)
    members = list(range(ranks))
    receivers = [rank for rank in members if not whole or rank != root]
    kinds = (([LEG] * ranks + [OUTPUT]) if adds else []) + (([TRUNK] + [BRANCH] * len(receivers)) if copies else [])
    expected = count * len(heads) * len(kinds) if ranks > 1 else 0
    phases = ((0, "reduce in the switch"), (1, "multicast")) if adds and copies else ()
    builder = given.builder(collective, "nvls", ranks, size_bytes, root, expected=expected, pieces=count, phases=phases)
    if not expected:
        return builder.build()
    kind = np.array(kinds)
    src, dst, lane = (np.full((len(heads), len(kinds)), -1) for _ in range(3))
    for place, head in enumerate(heads):
        up, down = (kind == LEG, kind == OUTPUT), (kind == TRUNK, kind == BRANCH)
        if adds:
            src[place, up[0]], dst[place, up[1]] = members, head
            lane[place, up[0]] = builder.lanes(members, f"leg {head}")
            lane[place, up[1]] = builder.lane(head, "output")
        if copies:
            src[place, down[0]], dst[place, down[1]] = head, receivers
            lane[place, down[0]] = builder.lane(head, "trunk")
            lane[place, down[1]] = builder.lanes(receivers, f"branch {head}")
    bounds = given.cut(blocks[:-1], blocks[1:], count)
    shape = (count, len(heads), len(kinds))
    start, stop = bounds[:, :-1].T[..., None], bounds[:, 1:].T[..., None]
    first = np.isin(kind, (LEG, OUTPUT)) if adds else kind >= 0
    columns: dict[str, npt.NDArray[Any]] = {
        "kind": kind,
        "src": src,
        "dst": dst,
        "lane": lane,
        "offset": start,
        "size": stop - start,
        "chunk": np.arange(len(heads))[:, None] * count + np.arange(count)[:, None, None],
        "step": np.where(first, 0, 1),
        "from_input": (kind == LEG) | ((kind == TRUNK) & (not adds)),
        "group": np.array(builder.group(members)),
    }
    ids = builder.add(expected, **_spread(columns, shape))
    ids = ids.reshape(-1, len(kinds))
    if adds:
        builder.require(ids[:, kind == OUTPUT], ids[:, kind == LEG], HEAD)
    if adds and copies:
        builder.require(ids[:, kind == TRUNK], ids[:, kind == OUTPUT])
    if copies:
        builder.require(ids[:, kind == BRANCH], ids[:, kind == TRUNK], HEAD)
    return builder.build()


def _spread(columns: dict[str, npt.NDArray[Any]], shape: tuple[int, ...]) -> dict[str, Any]:
    """Repeat columns over all pieces and heads."""
    return {name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()}
