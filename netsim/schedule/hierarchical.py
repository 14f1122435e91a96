"""Hierarchical algorithms (textbook): one dimension of the machine after the other.

All-reduce: a ring reduce-scatter along each dimension in turn, each on the share that the one before left, then
all-gathers in the opposite order. The first dimension carries the most, so the order matters: it should be the fastest.
Cut into chunks, one works in one dimension while the next works in another. All-to-all: inside the server to the GPU on
the destination's rail, which sends what all its neighbours have for that destination as one message over the network.

Dimensions are given (the first one counts neighbouring ranks) or follow from servers of equal size: inside, then across.

A limit on how many servers a token visits, as mixtures of experts have it, is no option here: it saves bytes because one
token goes to several GPUs of a server, whereas each byte of an all-to-all has exactly one receiver, so that no copy can
be shared. It would need a collective of its own, with a table of which token goes where.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from netsim.errors import ScheduleError
from netsim.schedule.dag import Schedule, ScheduleBuilder
from netsim.schedule.options import Common, Pieces
from netsim.schedule.pieces import Given, GivenPieces, Groups, check_ranges, checked_groups, cut

Numbers = npt.NDArray[np.int64]

MOST_PIECES = 16
"""Default chunks: with two dimensions that are equally busy the fill costs a sixteenth, and there are not yet too many."""
LEAST_SHARE_BYTES = 256 * 1024
"""No default chunk has smaller shares a rank: each step of each chunk pays its latency. Simulated on two and on eight
servers of eight GPUs (450 and 50 GB/s), this is within a few per cent of the best number of chunks from 1 MiB to 1 GiB."""


def all_reduce(
    ranks: int,
    size_bytes: int,
    *,
    dims: Sequence[int] | None = None,
    groups: Groups | None = None,
    **options: Unpack[Pieces],
) -> Schedule:
    """Build a hierarchical ring all-reduce.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes.
    dims : sequence of int or None
        Sizes of the dimensions in the order in which they reduce; neighbouring ranks differ in the first.
    groups : sequence of sequence of int
        The ranks of each server, in whose order dimensions count; without `dims`, ranks a server and servers.
    **options
        See `netsim.schedule.options.Pieces`: the whole data is cut; by default into one piece in a single dimension, else
        at most 16, in none of which a rank's last share is below 256 KiB.

    Notes
    -----
    On links of B in each dimension, all the same, one chunk takes ``2 (p - 1)/p N/B`` whatever the order; many take what
    the busiest dimension needs: N/B for (2, 8) and 1.75 N/B for (8, 2).

    Examples
    --------
    >>> all_reduce(4, 400, dims=(2, 2), chunks=1)
    <Schedule all_reduce hierarchical:2x2: 4 ranks, 400 bytes, 16 operations, 24 requirements, 16 lanes>
    """
    given = GivenPieces(**options)
    order, lengths = _layout("all_reduce", ranks, dims, groups)
    lengths = [length for length in lengths if length > 1]
    default = max(1, min(MOST_PIECES, size_bytes // (ranks * LEAST_SHARE_BYTES))) if len(lengths) > 1 else 1
    pieces = given.count(size_bytes, default)
    a_chunk = 2 * ranks * sum(length - 1 for length in lengths)
    builder = given.builder("all_reduce", _name(dims), ranks, size_bytes, expected=pieces * a_chunk, pieces=pieces)
    if not lengths:
        return builder.build()
    one = _OneChunk(lengths, order, builder)
    if pieces == 1:
        # Chunks that overlap are in different phases at the same step.
        builder.phases = tuple(one.phases)
    chunk_bounds = given.cut([0], [size_bytes], pieces)[0]
    blocks = cut(chunk_bounds[:-1], chunk_bounds[1:], ranks, None, given.align_bytes)
    piece = np.arange(pieces)[:, None]
    start = blocks[piece, one.column("block")]

    def every(name: str) -> Numbers:
        return np.tile(one.column(name), pieces)

    ids = builder.add(
        pieces * a_chunk,
        src=every("src"),
        dst=every("dst"),
        lane=every("lane"),
        reduce=every("adds"),
        offset=start.ravel(),
        size=(blocks[piece, one.column("block") + one.column("blocks")] - start).ravel(),
        chunk=(piece * ranks + one.column("block")).ravel(),
        step=(one.column("step") + piece).ravel(),
    ).reshape(pieces, a_chunk)
    for consumers, producers in one.needs:
        builder.require(ids[:, consumers], ids[:, producers])
    return builder.build()


def all_to_all(
    ranks: int,
    size_bytes: int,
    *,
    dims: Sequence[int] | None = None,
    groups: Groups | None = None,
    **options: Unpack[Common],
) -> Schedule:
    """Build a node-aware all-to-all: inside the server to the GPU on the destination's rail, then over the network.

    With one server it is the direct all-to-all. A network message leaves when all GPUs of its server have handed in.

    Parameters
    ----------
    ranks, size_bytes : int
        How many ranks, and bytes that each holds for all of them together.
    dims : sequence of int or None
        Ranks a server, and servers.
    groups : sequence of sequence of int
        The ranks of each server; place i of each is on rail i.
    **options
        See `netsim.schedule.options.Common`.

    Examples
    --------
    >>> plan = all_to_all(8, 800, dims=(4, 2))
    >>> [int((plan.lane == plan.lane[op]).sum()) for op in (0, -1)]  # messages of a rank inside, and over the network
    [3, 1]
    """
    given = Given(**options)
    order, lengths = _layout("alltoall", ranks, dims, groups)
    if len(lengths) > 2:
        raise ScheduleError(f"hierarchical alltoall has two dimensions, ranks a server and servers; got {len(lengths)}")
    local, nodes = lengths[0], prod(lengths[1:])
    phases = ((0, "inside"), (local - 1, "network")) if local > 1 else ()
    expected = ranks * (local + nodes - 2)
    builder = given.builder("alltoall", _name(dims), ranks, size_bytes, expected=expected, phases=phases)
    check_ranges("alltoall", "hierarchical", ranks, ranks * ((local - 1) * nodes + (nodes - 1) * local))
    grid = np.array(order, np.int64).reshape(nodes, local)
    bounds = given.blocks(size_bytes, ranks)
    node, place = (index.ravel() for index in np.indices((nodes, local)))
    source = grid.ravel()

    def send(target: Numbers, sender: Numbers, receiver: Numbers, role: str, step: int) -> Numbers:
        """Every rank sends the blocks of some senders for some receivers, shape (ranks, blocks), as one message."""
        offsets = sender * size_bytes + bounds[receiver]
        sizes = np.broadcast_to(np.diff(bounds)[receiver], offsets.shape)
        counts = np.full(ranks, offsets.shape[1])
        lanes = builder.lanes(source.tolist(), role)
        return builder.add(
            ranks,
            src=source,
            dst=target,
            ranges=(counts, offsets.ravel(), sizes.ravel()),
            chunk=target,
            step=step,
            lane=lanes,
            posted=True,
        ).reshape(nodes, local)

    inside = []
    for hop in range(1, local):
        rail = (place + hop) % local
        inside.append(send(grid[node, rail], source[:, None], grid[:, rail].T, "inside", hop - 1))
    for hop in range(1, nodes):
        target = grid[(node + hop) % nodes, place]
        ids = send(target, grid[node], target[:, None], "network", local - 2 + hop)
        for away, handed in enumerate(inside, start=1):
            builder.require(ids, np.roll(handed, away, axis=1))
    return builder.build()


def read_dims(text: str) -> tuple[int, ...]:
    """Read dimensions as in ``hierarchical:2x8``.

    Examples
    --------
    >>> read_dims("2x8")
    (2, 8)
    """
    parts = text.split("x")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ScheduleError(f"the dimensions {text!r} of hierarchical cannot be read; write for example hierarchical:2x8")
    return tuple(map(int, parts))


def _name(dims: Sequence[int] | None) -> str:
    return "hierarchical" if dims is None else f"hierarchical:{'x'.join(map(str, dims))}"


def _layout(collective: str, ranks: int, dims: Sequence[int] | None, groups: Groups | None) -> tuple[list[int], list[int]]:
    """Return the ranks, those that differ in the first dimension next to each other, and the sizes of the dimensions."""
    servers = checked_groups(ranks, groups)
    order = [rank for server in servers for rank in server] if len(servers) > 1 else list(range(ranks))
    if dims is not None:
        if not dims or min(dims) < 1 or prod(dims) != ranks:
            words = "x".join(map(str, dims)) or "none"
            raise ScheduleError(
                f"hierarchical {collective} over {ranks} ranks: the dimensions {words} must be 1 or more each and multiply "
                f"to {ranks}"
            )
        return order, list(dims)
    sizes = {len(server) for server in servers}
    if len(sizes) > 1:
        raise ScheduleError(
            f"hierarchical {collective} needs servers of equal size, not of {', '.join(map(str, sorted(sizes)))} ranks; "
            "give the dimensions, for example hierarchical:2x3"
        )
    return order, [len(servers[0]), len(servers)]


class _Phase(NamedTuple):
    """The messages of one ring phase as places in a chunk, shape (steps, ranks), column i sent by the i-th rank."""

    ids: Numbers
    source: Numbers
    """For each rank the place in the order of the one that it receives from."""

    def received(self, step: int) -> Numbers:
        """Return what each rank receives in a step."""
        ids: Numbers = self.ids[step, self.source]
        return ids


class _OneChunk:
    """The messages of one chunk and what they require; every chunk is alike."""

    def __init__(self, lengths: list[int], order: list[int], builder: ScheduleBuilder) -> None:
        self.needs: list[tuple[Numbers, Numbers]] = []
        self.phases: list[tuple[int, str]] = []
        self._rank = np.array(order, np.int64)
        self._builder = builder
        self._columns: dict[str, list[Numbers]] = {}
        self._count = self._step = 0
        place = np.arange(len(order))
        strides = [prod(lengths[:at]) for at in range(len(lengths))]
        self._digit = [place // stride % length for stride, length in zip(strides, lengths, strict=True)]
        # The share of dimension i is a run of blocks: the first dimension divides all of them, the next one its share.
        self._share = [prod(lengths[at + 1 :]) for at in range(len(lengths))]
        self._strides, self._lengths = strides, lengths
        ready: list[Numbers] = []
        for dim in range(len(lengths)):
            phase = self._ring(dim, True, ready)
            # The last message of a dimension brings the last contribution to the share that the rank keeps.
            ready = [*ready, phase.received(-1)]
        for dim in reversed(range(len(lengths))):
            phase = self._ring(dim, False, ready)
            ready = [*ready, *(phase.received(step) for step in range(len(phase.ids)))]

    def column(self, name: str) -> Numbers:
        """Return one column, a value a message."""
        return np.concatenate(self._columns[name])

    def _ring(self, dim: int, adds: bool, ready: list[Numbers]) -> _Phase:
        """Add one phase: every rank sends a share to the next one in a dimension, step after step."""
        digit, stride, length, share = self._digit[dim], self._strides[dim], self._lengths[dim], self._share[dim]
        place = np.arange(len(self._rank))
        target = place + ((digit + 1) % length - digit) * stride
        source = place + ((digit - 1) % length - digit) * stride
        # Where the share of the dimensions before begins.
        base = sum((self._digit[at] * self._share[at] for at in range(dim)), np.zeros(len(place), np.int64))
        role = f"dimension {dim + 1} {'reduce-scatter' if adds else 'all-gather'}"
        self.phases.append((self._step, role))
        lanes = self._builder.lanes(self._rank.tolist(), role)
        phase = _Phase(self._count + np.arange((length - 1) * len(place)).reshape(length - 1, -1), source)
        for step in range(length - 1):
            sent = (digit - step - adds) % length
            row: dict[str, Numbers] = {
                "src": self._rank,
                "dst": self._rank[target],
                "lane": lanes.astype(np.int64),
                "block": base + sent * share,
            }
            constants = {"adds": int(adds), "blocks": share, "step": self._step + step}
            row |= {name: np.full(len(place), value) for name, value in constants.items()}
            for name, values in row.items():
                self._columns.setdefault(name, []).append(values)
            if step:
                self.needs.append((phase.ids[step], phase.received(step - 1)))
            # A message that adds carries the sender's own part, whole when the dimension before is done.
            if adds or not step:
                self.needs += [(phase.ids[step], needed) for needed in ready]
        self._count += phase.ids.size
        self._step += length - 1
        return phase
