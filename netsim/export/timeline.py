"""A record as trace-event JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process a rank with one thread a lane: a slice is an operation from its first byte entering its first link until the
lane is free of it, that is until its last byte has left that link. A further thread of each rank shows what arrives: a
slice that ends with the delivery and is as long as the last link's service; what a switch copies or adds arrives there
too, so that the last slice of a trace ends when the run does. One more process holds the links, one thread each, a slice
a service. Message arrows lead from the sending slice to the arriving one, and from trunk to branch and leg to output.

Slices of one thread never overlap: where a lane has two operations under way at once (posted to different links), the
second goes to a further thread of the same name. Times are microseconds, rounded to 2^-20 of one (a picosecond), so that
the sum of a slice's begin and duration is exact in a double. The same record gives the same bytes.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from netsim.errors import NetsimError
from netsim.fabric import link_name
from netsim.record import Record
from netsim.schedule.dag import COMPUTE, HEAD, KIND_NAMES, Schedule

_GRID = 2**20
_LANE, _ARRIVING, _LINK = "lane", "arriving", "link"


@dataclass
class _Slice:
    """One operation on one track; times in units of the grid."""

    begin: int
    end: int
    op: int
    name: str
    args: dict[str, Any]


@dataclass
class _Track:
    """A thread of the trace: slices that do not overlap."""

    pid: int
    name: str
    slices: list[_Slice]
    what: str
    """``lane``, ``arriving`` or ``link``."""


def timeline_text(schedule: Schedule, record: Record, ranks: Sequence[str] = ()) -> str:
    """Write a run as a JSON object in trace-event format.

    Parameters
    ----------
    schedule : Schedule
        What ran.
    record : Record
        The run, with the services of its links (``record="links"``).
    ranks : sequence of str
        Names of the ranks' nodes, shown beside their numbers.

    Returns
    -------
    str
        A JSON object with one event a line; ``ts`` and ``dur`` in microseconds.

    Raises
    ------
    NetsimError
        If the record was kept without the services of its links, or is of another schedule.
    """
    if record.services is None:
        raise NetsimError("this record has no services of links; simulate with record='links'")
    if len(schedule) != len(record.end_s):
        raise NetsimError(
            f"this record is of {len(record.end_s)} operations, the schedule has {len(schedule)}: it is another one"
        )
    tracks = list(_rank_tracks(schedule, record)) + list(_link_tracks(schedule, record))
    events: list[dict[str, Any]] = []
    for rank in range(schedule.ranks):
        name = f"rank {rank}" + (f" ({ranks[rank]})" if rank < len(ranks) else "")
        events += _named("process", rank, 0, name, rank)
    events += _named("process", schedule.ranks, 0, "links", schedule.ranks)
    places: dict[tuple[str, int], tuple[_Track, int, _Slice]] = {}
    slices: list[dict[str, Any]] = []
    for tid, track in enumerate(tracks, start=1):
        events += _named("thread", track.pid, tid, track.name, tid)
        for item in track.slices:
            slices.append(
                {
                    "ph": "X",
                    "pid": track.pid,
                    "tid": tid,
                    "ts": item.begin / _GRID,
                    "dur": (item.end - item.begin) / _GRID,
                    "name": item.name,
                    "cat": track.what,
                    "args": item.args,
                }
            )
            if track.what != _LINK:
                places[track.what, item.op] = (track, tid, item)
    events += slices
    events += _arrows(schedule, places)
    head = {
        "displayTimeUnit": "ns",
        "otherData": {
            "netsim": record.version,
            "collective": schedule.collective,
            "algorithm": schedule.algorithm,
            "ranks": schedule.ranks,
            "size_bytes": schedule.size_bytes,
            "time_us": record.time_s * 1e6,
            "engine": record.engine,
            "topology_digest": record.topology_digest,
            "schedule_digest": record.schedule_digest,
        },
    }
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    return json.dumps(head)[:-1] + ', "traceEvents": [\n' + lines + "\n]}\n"


def _grid(seconds: float) -> int:
    return round(seconds * 1e6 * _GRID)


def _named(what: str, pid: int, tid: int, name: str, order: int) -> list[dict[str, Any]]:
    """Return the metadata events that name a process or a thread and put it in its place."""
    place = {"ph": "M", "pid": pid, "tid": tid, "ts": 0}
    return [
        place | {"name": f"{what}_name", "args": {"name": name}},
        place | {"name": f"{what}_sort_index", "args": {"sort_index": order}},
    ]


def _rank_tracks(schedule: Schedule, record: Record) -> Iterator[_Track]:
    """Yield the lanes of every rank, then what arrives there."""
    services = record.services
    assert services is not None
    last_free: dict[int, float] = {}
    last_link: dict[int, tuple[float, float]] = {}
    columns = (services.op, services.piece, services.hop, services.start_s, services.free_s)
    for op, piece, hop, start, free in zip(*(column.tolist() for column in columns), strict=True):
        if hop == 0:
            last_free[op] = free
        # The rows of an operation stand in order, so what stays is the last link's: from its first piece to its last.
        last_link[op] = (start if piece == 0 else last_link[op][0], free)
    lanes: list[list[_Slice]] = [[] for _ in schedule.lane_names]
    arriving: list[list[_Slice]] = [[] for _ in range(schedule.ranks)]
    followers = _followed_end(schedule, record)
    for op in range(len(schedule)):
        begin, end = float(record.start_s[op]), float(record.end_s[op])
        # What follows another's bytes keeps its lane until the last of them has come.
        left = max(last_free[op], followers.get(op, 0.0)) if op in last_free else end
        words = _words(schedule, op)
        args = _args(schedule, op)
        lanes[schedule.lane[op]].append(_Slice(_grid(begin), _grid(left), op, words, args))
        if schedule.dst[op] >= 0:
            sender = f"r{schedule.src[op]}" if schedule.src[op] >= 0 else "switch"
            came = f"from {sender}, chunk {schedule.chunk[op]}"
            served = last_link[op][1] - last_link[op][0]
            arriving[schedule.dst[op]].append(_Slice(_grid(end - served), _grid(end), op, came, {"op": op}))
    for rank in range(schedule.ranks):
        for (owner, role), items in zip(schedule.lane_names, lanes, strict=True):
            if owner == rank:
                yield from _without_overlap(rank, role or "lane", items, _LANE)
        yield from _without_overlap(rank, "arriving", arriving[rank], _ARRIVING)


def _followed_end(schedule: Schedule, record: Record) -> dict[int, float]:
    """Return when the last byte of what it follows was there, for every operation that follows another's head."""
    found: dict[int, float] = {}
    for op in range(len(schedule)):
        for need, milestone, _ in schedule.requirements(op):
            if milestone == HEAD:
                found[op] = max(found.get(op, 0.0), float(record.end_s[need]))
    return found


def _link_tracks(schedule: Schedule, record: Record) -> Iterator[_Track]:
    """Yield one track for every link that served something."""
    services = record.services
    assert services is not None
    by_link: dict[int, list[_Slice]] = {}
    columns = (services.link, services.op, services.piece, services.ask_s, services.start_s, services.free_s)
    for link, op, piece, ask, start, free in zip(*(column.tolist() for column in columns), strict=True):
        args = {"op": op, "bytes": int(schedule.wire[op]), "waited_us": (_grid(start) - _grid(ask)) / _GRID}
        if record.quantum_bytes or piece:
            args["piece"] = piece
        by_link.setdefault(link, []).append(_Slice(_grid(start), _grid(free), op, _words(schedule, op), args))
    for link in sorted(by_link):
        yield from _without_overlap(schedule.ranks, link_name(record.edges[link]), by_link[link], _LINK)


def _without_overlap(pid: int, name: str, items: list[_Slice], what: str) -> list[_Track]:
    """Lay slices on as few tracks as it takes, the first free one each."""
    tracks: list[_Track] = []
    for item in sorted(items, key=lambda item: (item.begin, item.end, item.op)):
        track = next((track for track in tracks if track.slices[-1].end <= item.begin), None)
        if track is None:
            track = _Track(pid, name if not tracks else f"{name} ({len(tracks) + 1})", [], what)
            tracks.append(track)
        track.slices.append(item)
    return tracks


def _arrows(schedule: Schedule, places: dict[tuple[str, int], tuple[_Track, int, _Slice]]) -> Iterator[dict[str, Any]]:
    """Yield the two ends of every message's arrow; a slice of no length cannot hold one."""
    number = 0
    for op in range(len(schedule)):
        pairs = [((_LANE, op), (_ARRIVING, op))] if schedule.dst[op] >= 0 else []
        if schedule.src[op] < 0 and schedule.kind[op] != COMPUTE:
            heads = [need for need, milestone, _ in schedule.requirements(op) if milestone == HEAD]
            pairs += [((_LANE, need), (_LANE, op)) for need in heads]
        for source, target in pairs:
            (here, from_tid, sent), (there, to_tid, came) = places[source], places[target]
            if sent.end <= sent.begin or came.end <= came.begin:
                continue
            number += 1
            common = {"name": "message", "cat": "message", "id": number}
            yield {"ph": "s", "pid": here.pid, "tid": from_tid, "ts": sent.begin / _GRID} | common
            yield {"ph": "f", "bp": "e", "pid": there.pid, "tid": to_tid, "ts": came.begin / _GRID} | common


def _words(schedule: Schedule, op: int) -> str:
    """Name an operation on its slice."""
    kind = schedule.kind[op]
    if kind == COMPUTE:
        return "compute"
    source = f"r{schedule.src[op]}" if schedule.src[op] >= 0 else "switch"
    target = f"r{schedule.dst[op]}" if schedule.dst[op] >= 0 else "switch"
    return f"{source}->{target} chunk {schedule.chunk[op]}"


def _args(schedule: Schedule, op: int) -> dict[str, Any]:
    return {
        "op": op,
        "kind": KIND_NAMES[schedule.kind[op]],
        "bytes": int(schedule.wire[op]),
        "step": int(schedule.step[op]),
        "adds": bool(schedule.reduce[op]),
    }
