"""The compiled engine: a prepared schedule laid out in flat records, run by the kernels of `compiled_numba`.

Every time is equal to that of the SimPy engines, bit for bit. Needs numba (the extra ``fast``), which is loaded by the first
run: 0.3 s with the kernels' stored translations, some seconds once when there are none yet.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from netsim.engine.links import Floats, array_on_grid
from netsim.engine.prepare import HEAD_SHARED, Prepared
from netsim.errors import NetsimError
from netsim.record import Services
from netsim.schedule.dag import HEAD

_MOST = 2**31 - 1  # operations, and requirements: they are numbered in 32 bits


def run_compiled(prepared: Prepared, noted: bool = False) -> tuple[Floats, Floats, Services | None]:
    """Run a prepared schedule.

    Parameters
    ----------
    prepared : Prepared
        The schedule on its topology.
    noted : bool
        Whether to return every service of every link.

    Returns
    -------
    start, end : ndarray of float, shape (operations,)
        Seconds; nan for an operation that never ran.
    services : Services or None
        By operation, piece and place on the route; None unless asked for.

    Raises
    ------
    NetsimError
        If numba is absent, or the schedule is larger than the records can number.
    """
    kernels = _kernels()
    table, schedule = prepared.table, prepared.schedule
    count = len(schedule)
    starts, ends = np.full(count, np.nan), np.full(count, np.nan)
    hop_bits = int(table.hops.max(initial=1)).bit_length()
    piece_bits = int(table.pieces.max(initial=2) - 1).bit_length()
    if max(count, len(schedule.requires_op)) > _MOST or count.bit_length() + hop_bits + piece_bits > 63:
        raise NetsimError(
            f"{count} operations with {len(schedule.requires_op)} requirements are more than the compiled engine "
            "can number; use --engine simpy"
        )
    operations, edges, lanes = _operations(kernels, prepared)
    kinds, routes, hops = _routes(kernels, prepared)
    rows, services = np.empty(0, np.int64), np.empty((0, 3))
    if noted:
        rows, services = _room(prepared)
    free = np.zeros(len(prepared.links))
    given = (operations, edges, kinds, routes, hops, lanes, free, hop_bits, piece_bits, starts, ends, rows, services)
    if prepared.pieced:
        kernels.run_pieces(*given, *_followed(prepared))
    else:
        kernels.run_whole(*given)
    return starts, ends, _services(prepared, services) if noted else None


def _kernels() -> Any:
    """Return the module of kernels, after making sure that numba will translate them."""
    try:
        import numba  # noqa: F401 - the import is the question
    except ImportError as error:
        raise NetsimError("the compiled engine needs numba: pip install 'netsim-collectives[fast]'") from error
    from netsim.engine import compiled_numba

    return compiled_numba


def _operations(kernels: Any, prepared: Prepared) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the records of operations, of who waits for whom, and of lanes."""
    schedule = prepared.schedule
    operations = np.empty(len(schedule), kernels.OPERATION)
    edges = np.empty(len(schedule.requires_op), kernels.EDGE)
    lanes = np.empty(len(schedule.lane_names), kernels.LANE)
    kernels.lay(
        operations,
        edges,
        lanes,
        _plain(prepared.op_class),
        _plain(prepared.mode),
        *_stepped(schedule.lane),
        *_stepped(prepared.hold),
        *_stepped(prepared.work),
        _plain(prepared.lane_order),
        _plain(schedule.requires_start),
        _plain(schedule.requires_op),
        *_stepped(schedule.requires_milestone),
        *_stepped(prepared.lag),
    )
    return operations, edges, lanes


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column as the kernels were translated for: in one piece, and not marked as read-only."""
    return np.require(values, requirements=["C", "W"])


def _stepped(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int]:
    """Return a column and its step: 0 where one value is spread over the length, which is then not copied out."""
    if values.size and values.strides == (0,):
        return values[:1].copy(), 0
    return _plain(values), 1


def _routes(kernels: Any, prepared: Prepared) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Return the records of classes, for each of their pieces the first hop, and the records of hops."""
    table, links = prepared.table, prepared.links
    class_of, hop, link = table.flat
    pieces, lengths = table.pieces, table.hops
    sends = lengths > 0
    first_link = np.zeros(len(table), np.int64)
    first_link[class_of[hop == 0]] = link[hop == 0]
    kinds = np.zeros(len(table), kernels.KIND)
    kinds["wire"], kinds["piece"], kinds["pieces"], kinds["hops"] = table.wire, table.piece, pieces, lengths
    kinds["fed"] = table.fed
    kinds["shared"] = sends & (prepared.pieced | ~prepared.exclusive[first_link])
    many = np.where(sends, pieces, 0)
    kinds["route"] = np.where(sends, np.cumsum(many) - many, -1)
    # First the hops of whole messages, then those of messages in pieces, piece after piece.
    routes = np.repeat(np.cumsum(lengths) - lengths, many)
    hops = np.zeros(len(link), kernels.HOP)
    columns = links.columns
    hops["gap"], hops["floor"], hops["latency"] = columns.gap[link], columns.floor[link], columns.latency[link]
    hops["serialisation"], hops["link"] = table.serialisation(links), link
    following = np.append(link[1:], 0)
    if prepared.pieced:
        then = np.where(columns.piece_bytes[link] > 0, kernels.BY_TAIL, kernels.BY_HEAD)
    else:
        then = np.where(prepared.tandem[following], kernels.AT_ONCE, kernels.BY_HEAD)
    hops["then"] = np.where(hop + 1 == lengths[class_of], kernels.DELIVERED, then)
    in_pieces = np.repeat(pieces > 1, many)
    if not in_pieces.any():
        return kinds, routes.astype(np.int32), hops
    of = np.repeat(np.arange(len(table)), many)[in_pieces]  # the class of each piece
    number = (np.arange(len(in_pieces)) - np.repeat(np.cumsum(many) - many, many))[in_pieces]
    ends = np.cumsum(lengths[of])
    first = ends - lengths[of]
    more = hops[np.arange(int(ends[-1])) + np.repeat(routes[in_pieces] - first, lengths[of])]
    rate = columns.bandwidth[more["link"]]
    of, number = np.repeat(of, lengths[of]), np.repeat(number, lengths[of])
    # n / B of the pieces adds up to n / B of the whole to the last bit; the gap is paid once, by the first piece.
    begin, stop = number * table.piece[of], np.minimum((number + 1) * table.piece[of], table.wire[of])
    more["serialisation"] = array_on_grid(stop / rate) - array_on_grid(begin / rate)
    more["gap"][number > 0] = 0.0
    routes[in_pieces] = len(hops) + first
    return kinds, routes.astype(np.int32), np.concatenate([hops, more])


def _followed(prepared: Prepared) -> tuple[Any, ...]:
    """Return what a run in pieces needs beside the rest: who follows whom piece by piece, and room to note it."""
    schedule, op_class = prepared.schedule, prepared.op_class
    pieces, hops = prepared.table.pieces, prepared.table.hops
    watched = prepared.table.watch & HEAD_SHARED > 0
    ops = np.repeat(np.arange(len(schedule)), np.diff(schedule.requires_start))
    head = schedule.requires_milestone == HEAD
    head &= (pieces[op_class[ops]] == pieces[op_class[schedule.requires_op]]) & (hops[op_class[ops]] > 0)
    counts = np.where(watched, pieces, 0)[op_class]
    heads = np.where(watched[op_class], np.cumsum(counts) - counts, -1)
    floors, first_start = np.empty(0, np.int64), np.empty(0)
    if any(prepared.links.floor):
        floors = np.cumsum(hops[op_class]) - hops[op_class]
        first_start = np.empty(int(hops[op_class].sum()))
    room = np.full(int(counts.sum()), np.nan), np.full(int(counts.sum()), np.nan)
    required = _plain(schedule.requires_start), _plain(schedule.requires_op), head
    return (*required, *_stepped(prepared.lag), heads, *room, floors, first_start)


def _room(prepared: Prepared) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the row of each operation's first service, and room for all services."""
    counts = (prepared.table.pieces * prepared.table.hops)[prepared.op_class]
    rows = np.cumsum(counts) - counts
    return rows, np.full((int(counts.sum()), 3), np.nan)


def _services(prepared: Prepared, times: Floats) -> Services:
    """Return the services as columns; they stand by operation, piece and place on the route already."""
    op_class = prepared.op_class
    counts = prepared.table.pieces * prepared.table.hops
    # One table of (piece, hop, link) for each class, all of them joined; `place` is a service's row there.
    table = [np.empty((3, 0), np.int64)]
    for kind in prepared.classes:
        hops = np.tile(np.arange(len(kind.path)), kind.pieces)
        pieces = np.repeat(np.arange(kind.pieces), len(kind.path))
        table.append(np.array([pieces, hops, np.array(kind.path, np.int64)[hops]]))
    many = counts[op_class]
    op = np.repeat(np.arange(len(op_class)), many)
    shift = (np.cumsum(counts) - counts)[op_class] - (np.cumsum(many) - many)
    place = np.arange(len(times)) + np.repeat(shift, many)
    piece, hop, link = np.concatenate(table, axis=1)[:, place]
    ask, start, free = np.ascontiguousarray(times.T)
    return Services(op, piece, hop, link, ask, start, free)
