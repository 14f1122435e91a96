"""Kernels of the compiled engine: lanes, links and pending requests in flat records, translated by numba.

The same times as `simpy_lanes` and `simpy_pieces`, bit for bit, from the same expressions. Two things differ from a walk
through SimPy's queue, and neither can move a time:

- A milestone needs no event. When a message is served at its last link its delivery is known, so those who wait are told at
  once. What they then ask lies no earlier than the milestone, and requests are served by their key alone.
- A message on its way is one record of 32 bytes, and so is every further thing in the inner loop: layout and unsigned
  indices make the difference of a factor of two to four.

Where numba is absent the functions stay plain Python, so that this module can be read, imported and checked without it.
All of them stand in one file on purpose: numba's cache notices a change of this file, not of one that it calls.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from netsim.engine.prepare import EARLY, POSTED
from netsim.schedule.dag import END, HEAD, LEFT
from netsim.translate import translated

_F = TypeVar("_F", bound=Callable[..., Any])
Records = npt.NDArray[Any]
"""An array of one of the record types below; its fields are beyond what a type checker sees."""
Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


def _compiled(function: _F) -> _F:
    return translated(function)


def _inlined(function: _F) -> _F:
    """Put a function into its callers: handing over a dozen arrays takes a fifth of the time of an inner loop.

    They go one by one all the same: taken from a named tuple their reference counts cost as much again as all the rest.
    """
    return translated(function, forceinline=True)


OPERATION = np.dtype(
    [
        ("ready", "f8"),  # when the latest requirement so far is met
        ("tail", "f8"),  # when the last byte of what it follows is there
        ("hold", "f8"),
        ("work", "f8"),
        ("told_left", "i4"),  # its edges: from here those who wait for LEFT, ...
        ("told_end", "i4"),  # ... from here those who wait for END and HEAD, ...
        ("told_stop", "i4"),  # ... up to here
        ("waiting", "i4"),  # requirements that are not met yet
        ("kind", "i4"),
        ("lane", "i4"),
        ("next", "i4"),  # what its lane does afterwards, -1 for nothing
        ("mode", "i4"),
    ]
)
EDGE = np.dtype([("lag", "f8"), ("op", "i4"), ("milestone", "i4")])
KIND = np.dtype(
    [
        ("wire", "f8"),
        ("piece", "f8"),
        ("route", "i4"),  # place of its first piece among the routes, -1 for a compute operation
        ("pieces", "i4"),
        ("hops", "i4"),
        ("shared", "i4"),  # whether others ask its first link
        ("fed", "i4"),
        ("unused", "i4"),
    ]
)
HOP = np.dtype([("gap", "f8"), ("serialisation", "f8"), ("floor", "f8"), ("latency", "f8"), ("link", "i4"), ("then", "i4")])
LANE = np.dtype(
    [
        ("free", "f8"),
        ("made", "f8"),
        ("last", "f8"),
        ("left", "f8"),
        ("sofar", "f8"),
        ("next", "i4"),  # the operation that it comes to next, -1 at the end
        ("stands", "i4"),  # the operation before which it stands, -1 while it has something to do
    ]
)
PROGRESS = np.dtype(  # of an operation in pieces
    [
        ("ask", "f8"),
        ("making", "f8"),
        ("before", "f8"),
        ("left", "f8"),
        ("sofar", "f8"),
        ("piece", "i4"),
        ("state", "i4"),
    ]
)
REQUEST = np.dtype([("at", "f8"), ("key", "i8"), ("tail", "f8"), ("route", "i4"), ("next", "i4")])
_PENDING = np.dtype([("at", "f8"), ("key", "i8"), ("slot", "i8")])

# What follows a hop.
DELIVERED, AT_ONCE, BY_HEAD, BY_TAIL = range(4)
# Where an operation in pieces stands with its next piece: not yet begun by its lane, behind the heads that it follows, or
# none of these.
_ASKED, _TO_BEGIN, _BEHIND, _TO_ASK = range(4)

# The pending requests. Those that come next are in a heap; the others in buckets of equal time, in rungs: a bucket that
# holds too many when its turn comes becomes a rung of finer buckets. The last bucket of a rung takes all that is later.
_HEAPED, _RUNGS, _FREE, _LIMIT = range(4)  # of the queue's numbers
_CROWD = 48  # more in a bucket than this are spread out
_HEAP_LIMIT = 128  # and more than this in the heap
_MOST_RUNGS = 8
_MOST_BUCKETS = 1024


@_compiled
def _empty_queue() -> tuple[Records, Records, Numbers, Numbers, Seconds, npt.NDArray[np.int32]]:
    """Return what holds the pending requests.

    Slots and heap (both grow), the queue's numbers, and of each rung: the bucket opened last and how many it has; its first
    time and buckets a second; the first slot of every bucket.
    """
    slots, heap = np.empty(256, REQUEST), np.empty(257, _PENDING)
    state, opened = np.zeros(4, np.int64), np.zeros((_MOST_RUNGS, 2), np.int64)
    rungs, buckets = np.zeros((_MOST_RUNGS, 2)), np.full((_MOST_RUNGS, _MOST_BUCKETS), -1, np.int32)
    for slot in range(256):
        slots[np.uint64(slot)]["next"] = slot + 1 if slot < 255 else -1
    state[_LIMIT] = _HEAP_LIMIT
    return slots, heap, state, opened, rungs, buckets


@_inlined
def _sift_in(heap: Records, size: int, at: float, key: int, slot: int) -> None:
    place = size
    while place > 0:
        above = (place - 1) >> 1
        other = heap[np.uint64(above)]
        if other["at"] < at or (other["at"] == at and other["key"] < key):
            break
        mine = heap[np.uint64(place)]
        mine["at"], mine["key"], mine["slot"] = other["at"], other["key"], other["slot"]
        place = above
    mine = heap[np.uint64(place)]
    mine["at"], mine["key"], mine["slot"] = at, key, slot


@_inlined
def _sift_out(heap: Records, size: int) -> int:
    """Take the least of `size` entries out and return its slot."""
    slot = heap[np.uint64(0)]["slot"]
    last = heap[np.uint64(size - 1)]
    at, key = last["at"], last["key"]
    moved = last["slot"]
    place, below, end = 0, 1, size - 1
    while below < end:
        child = heap[np.uint64(below)]
        if below + 1 < end:
            other = heap[np.uint64(below + 1)]
            if other["at"] < child["at"] or (other["at"] == child["at"] and other["key"] < child["key"]):
                below += 1
                child = other
        if at < child["at"] or (at == child["at"] and key < child["key"]):
            break
        mine = heap[np.uint64(place)]
        mine["at"], mine["key"], mine["slot"] = child["at"], child["key"], child["slot"]
        place, below = below, 2 * below + 1
    mine = heap[np.uint64(place)]
    mine["at"], mine["key"], mine["slot"] = at, key, moved
    return slot  # type: ignore[no-any-return]  # fields of records are beyond what a type checker sees


@_inlined
def _bucket(rungs: Seconds, rung: int, last: int, at: float) -> int:
    """Return the bucket of a time in a rung; never less for a later time."""
    place = (at - rungs[rung, 0]) * rungs[rung, 1]
    if place >= last:
        return last
    return int(place) if place > 0.0 else 0


@_compiled
def _spread(
    slots: Records, state: Numbers, opened: Numbers, rungs: Seconds, buckets: npt.NDArray[np.int32], first: int, many: int
) -> bool:
    """Deal a list of requests out to the buckets of a new rung; say whether that can be done."""
    rung = state[_RUNGS]
    if rung == _MOST_RUNGS:
        return False
    least = most = slots[np.uint64(first)]["at"]
    slot = first
    while slot >= 0:
        at = slots[np.uint64(slot)]["at"]
        least, most = min(least, at), max(most, at)
        slot = slots[np.uint64(slot)]["next"]
    if least == most:
        return False
    size = 64
    while size < many and size < _MOST_BUCKETS:
        size *= 2
    # The outermost rung leaves room for as much time again: what is served comes back a little later.
    rungs[rung, 0], rungs[rung, 1] = least, size / (most - least) * (0.5 if rung == 0 else 1.0)
    opened[rung, 0], opened[rung, 1] = -1, size
    state[_RUNGS] = rung + 1
    slot = first
    while slot >= 0:
        request = slots[np.uint64(slot)]
        following = request["next"]
        bucket = _bucket(rungs, rung, size - 1, request["at"])
        request["next"] = buckets[np.uint64(rung), np.uint64(bucket)]
        buckets[np.uint64(rung), np.uint64(bucket)] = slot
        slot = following
    return True


@_inlined
def _push(
    slots: Records,
    heap: Records,
    state: Numbers,
    opened: Numbers,
    rungs: Seconds,
    buckets: npt.NDArray[np.int32],
    at: float,
    key: int,
    tail: float,
    route: int,
) -> None:
    """Put a request into the queue; there must be a free slot."""
    slot = state[_FREE]
    request = slots[np.uint64(slot)]
    state[_FREE] = request["next"]
    request["at"], request["key"], request["tail"], request["route"] = at, key, tail, route
    for rung in range(state[_RUNGS]):
        bucket = _bucket(rungs, rung, opened[rung, 1] - 1, at)
        if bucket > opened[rung, 0]:
            request["next"] = buckets[np.uint64(rung), np.uint64(bucket)]
            buckets[np.uint64(rung), np.uint64(bucket)] = slot
            return
    size = state[_HEAPED]
    _sift_in(heap, size, at, key, slot)
    state[_HEAPED] = size + 1
    if size >= state[_LIMIT]:
        first = -1
        for place in range(size + 1):
            slot = heap[np.uint64(place)]["slot"]
            slots[np.uint64(slot)]["next"] = first
            first = slot
        if _spread(slots, state, opened, rungs, buckets, first, size + 1):
            state[_HEAPED], state[_LIMIT] = 0, _HEAP_LIMIT
        else:
            state[_LIMIT] = 2 * (size + 1)


@_compiled
def _open(
    slots: Records, heap: Records, state: Numbers, opened: Numbers, rungs: Seconds, buckets: npt.NDArray[np.int32]
) -> None:
    """Fill the empty heap from the next bucket that has something; leave it empty if there is none."""
    while state[_HEAPED] == 0 and state[_RUNGS] > 0:
        rung = state[_RUNGS] - 1
        bucket, size = opened[rung, 0] + 1, opened[rung, 1]
        while bucket < size and buckets[np.uint64(rung), np.uint64(bucket)] < 0:
            bucket += 1
        if bucket >= size - 1:  # nothing will be put here any more
            state[_RUNGS] = rung
        if bucket == size:
            continue
        opened[rung, 0] = bucket
        first = buckets[np.uint64(rung), np.uint64(bucket)]
        buckets[np.uint64(rung), np.uint64(bucket)] = -1
        many, slot = 0, first
        while slot >= 0:
            many += 1
            slot = slots[np.uint64(slot)]["next"]
        if many > _CROWD and _spread(slots, state, opened, rungs, buckets, first, many):
            continue
        slot = first
        many = 0
        while slot >= 0:
            request = slots[np.uint64(slot)]
            _sift_in(heap, many, request["at"], request["key"], slot)
            many += 1
            slot = request["next"]
        state[_HEAPED], state[_LIMIT] = many, max(_HEAP_LIMIT, 2 * many)


@_compiled
def _grown(slots: Records, heap: Records, state: Numbers) -> tuple[Records, Records]:
    """Return the slots and the heap with room for as many requests again, all of the old ones being in use."""
    size = len(slots)
    more, higher = np.empty(2 * size, REQUEST), np.empty(2 * size + 1, _PENDING)
    more[:size] = slots
    higher[: size + 1] = heap
    for slot in range(size, 2 * size):
        more[np.uint64(slot)]["next"] = slot + 1 if slot + 1 < 2 * size else -1
    state[_FREE] = size
    return more, higher


@_compiled
def _turns(lanes: int) -> Numbers:
    """Return a ring with room for every lane, of a power of two, with all of them in it.

    Lanes take turns so that operations are met about in the order of their numbers, which is how they lie in memory.
    """
    size = 1
    while size <= lanes:
        size *= 2
    turn = np.zeros(size, np.int64)
    turn[:lanes] = np.arange(lanes)
    return turn


@_inlined
def _tell(
    operations: Records,
    edges: Records,
    lanes: Records,
    turn: Numbers,
    back: int,
    first: int,
    stop: int,
    end: float,
    head: float,
    tail: float,
) -> int:
    """Tell those who wait when a milestone is; put lanes that can go on in the queue and return its new end."""
    for number in range(first, stop):
        edge = edges[np.uint64(number)]
        other = operations[np.uint64(edge["op"])]
        at = end
        if edge["milestone"] == HEAD:
            at = head
            if tail > other["tail"]:
                other["tail"] = tail
        at += edge["lag"]
        if at > other["ready"]:
            other["ready"] = at
        other["waiting"] -= 1
        if other["waiting"] == 0 and lanes[np.uint64(other["lane"])]["stands"] == edge["op"]:
            lanes[np.uint64(other["lane"])]["stands"] = -1
            turn[np.uint64(back & (len(turn) - 1))] = other["lane"]
            back += 1
    return back


@_inlined
def _part(work: float, stop: float, wire: float) -> float:
    """Return the share of a lane's work up to a byte, on the grid: as `netsim.clock.on_grid` rounds."""
    seconds = work * stop / wire
    return np.rint(seconds * 2.0**55) / 2.0**55 if seconds < 0.5 else seconds


@_compiled
def lay(
    operations: Records,
    edges: Records,
    lanes: Records,
    op_class: npt.NDArray[np.int32],
    mode: npt.NDArray[np.uint8],
    lane: npt.NDArray[np.int32],
    lane_step: int,
    hold: Seconds,
    hold_step: int,
    work: Seconds,
    work_step: int,
    order: Numbers,
    start: Numbers,
    needed: Numbers,
    milestone: npt.NDArray[np.uint8],
    milestone_step: int,
    lag: Seconds,
    lag_step: int,
) -> None:
    """Fill the records of operations, of who waits for whom, and of lanes from columns.

    A column comes with a step: 1, or 0 for one value that stands for all.
    """
    count = len(operations)
    for op in range(count):
        this = operations[np.uint64(op)]
        this["ready"] = this["tail"] = 0.0
        this["hold"], this["work"] = hold[np.uint64(op * hold_step)], work[np.uint64(op * work_step)]
        this["told_left"] = this["told_end"] = 0
        this["waiting"] = start[np.uint64(op + 1)] - start[np.uint64(op)]
        this["kind"], this["mode"] = op_class[np.uint64(op)], mode[np.uint64(op)]
        this["lane"], this["next"] = lane[np.uint64(op * lane_step)], -1
    for number in range(len(needed)):
        this = operations[np.uint64(needed[np.uint64(number)])]
        if milestone[np.uint64(number * milestone_step)] == LEFT:
            this["told_left"] += 1
        else:
            this["told_end"] += 1
    total = 0
    for op in range(count):
        this = operations[np.uint64(op)]
        # For now where the parts end; filling from the back leaves where they begin.
        total += this["told_left"]
        this["told_left"] = total
        total += this["told_end"]
        this["told_end"] = this["told_stop"] = total
    for op in range(count - 1, -1, -1):
        for number in range(start[np.uint64(op)], start[np.uint64(op + 1)]):
            what = milestone[np.uint64(number * milestone_step)]
            this = operations[np.uint64(needed[np.uint64(number)])]
            if what == LEFT:
                this["told_left"] -= 1
                edge = edges[np.uint64(this["told_left"])]
            else:
                this["told_end"] -= 1
                edge = edges[np.uint64(this["told_end"])]
            edge["op"], edge["milestone"], edge["lag"] = op, what, lag[np.uint64(number * lag_step)]
    for number in range(len(lanes)):
        mine = lanes[np.uint64(number)]
        mine["free"] = mine["made"] = mine["last"] = mine["left"] = mine["sofar"] = 0.0
        mine["next"] = mine["stands"] = -1
    for place in range(count - 1, -1, -1):
        op = order[np.uint64(place)]
        this = operations[np.uint64(op)]
        mine = lanes[np.uint64(this["lane"])]
        this["next"], mine["next"] = mine["next"], op


@_compiled
def run_whole(
    operations: Records,
    edges: Records,
    kinds: Records,
    routes: npt.NDArray[np.int32],
    hops: Records,
    lanes: Records,
    free: Seconds,
    hop_bits: int,
    piece_bits: int,
    starts: Seconds,
    ends: Seconds,
    rows: Numbers,
    services: Seconds,
) -> None:
    """Run whole messages and those that a lane feeds in pieces: the semantics of `simpy_lanes`.

    Fills `starts` and `ends`, which hold nan. A run that is to be noted gives in `rows` the place of each operation's first
    service; `services` is given when its link was asked, started and was free again.
    """
    slots, heap, state, opened, rungs, buckets = _empty_queue()
    noted = len(rows) > 0
    op_bits, next_hop = hop_bits + piece_bits, 1 << piece_bits
    hop_mask, piece_mask = ((1 << hop_bits) - 1) << piece_bits, (1 << piece_bits) - 1
    turn, front, back = _turns(len(lanes)), 0, len(lanes)
    while True:
        # Either the lane whose turn it is goes on, or the next request is served.
        if front < back:
            number = turn[np.uint64(front & (len(turn) - 1))]
            front += 1
            mine = lanes[np.uint64(number)]
            op = int(mine["next"])
            if op < 0:
                continue
            this = operations[np.uint64(op)]
            if this["waiting"] > 0:
                mine["stands"] = op
                continue
            mine["next"] = this["next"]
            kind = kinds[np.uint64(this["kind"])]
            posted = this["mode"] & POSTED
            ask, tail = this["ready"], this["tail"]
            made = mine["free"]
            if this["mode"] & EARLY:
                begun = made
                made += this["hold"]
                if made > ask:
                    ask = made
            else:
                if made > ask:
                    ask = made
                begun = ask
                ask += this["hold"]
                made = ask
            if kind["route"] < 0:
                # What follows another's bytes is not over before the last of them came.
                at = ask if ask > tail else tail
                starts[np.uint64(op)], ends[np.uint64(op)] = begun, at
                mine["free"] = ask if posted else at
                back = _tell(operations, edges, lanes, turn, back, this["told_left"], this["told_stop"], at, at, at)
                turn[np.uint64(back & (len(turn) - 1))] = number
                back += 1
                continue
            if kind["pieces"] == 1:
                if this["work"] and made + this["work"] > tail:
                    tail = made + this["work"]
            else:
                begun = made
                mine["last"] = mine["left"] = 0.0
                mine["sofar"] = _part(this["work"], kind["piece"], kind["wire"])
                mine["made"] = tail = begun + mine["sofar"]
                if begun > ask:
                    ask = begun
            route = routes[np.uint64(kind["route"])]
            key = op << op_bits
            if kind["shared"]:
                if state[_FREE] < 0:
                    slots, heap = _grown(slots, heap, state)
                _push(slots, heap, state, opened, rungs, buckets, ask, key, tail, route)
                if posted:
                    mine["free"] = ask
                    turn[np.uint64(back & (len(turn) - 1))] = number
                    back += 1
                continue
            mine["free"] = ask  # which stands if it is posted
            asked_by_lane = True
        else:
            if state[_HEAPED] == 0:
                _open(slots, heap, state, opened, rungs, buckets)
                if state[_HEAPED] == 0:
                    break
            slot = _sift_out(heap, state[_HEAPED])
            state[_HEAPED] -= 1
            request = slots[np.uint64(slot)]
            ask, key, tail, route = request["at"], request["key"], request["tail"], request["route"]
            request["next"] = state[_FREE]
            state[_FREE] = slot
            op = key >> op_bits
            this = operations[np.uint64(op)]
            kind = kinds[np.uint64(this["kind"])]
            asked_by_lane = False
        # Serve the message; several times where a lane feeds a link that it has for itself.
        again = True
        while again:
            again = False
            since, piece = ask, key & piece_mask
            first = key & hop_mask == 0
            then = AT_ONCE
            left = 0.0
            while then == AT_ONCE:
                link = hops[np.uint64(route)]
                start = free[np.uint64(link["link"])]
                if ask > start:
                    start = ask
                lead = start + link["gap"]
                done = lead + link["serialisation"]
                if start + link["floor"] > done:
                    done = start + link["floor"]
                free[np.uint64(link["link"])] = done
                if noted:
                    row = rows[np.uint64(op)] + piece * kind["hops"] + ((key & hop_mask) >> piece_bits)
                    services[np.uint64(row), 0], services[np.uint64(row), 1] = ask, start
                    services[np.uint64(row), 2] = done
                # What follows another's bytes cannot have left before the last of them came, nor before it is made.
                if done > tail:
                    tail = done
                if key & hop_mask == 0:
                    left = tail
                    if piece == 0:
                        starts[np.uint64(op)] = start
                tail += link["latency"]
                ask = lead + link["latency"]
                then = link["then"]
                key += next_hop
                route += 1
            if then == BY_HEAD:
                if state[_FREE] < 0:
                    slots, heap = _grown(slots, heap, state)
                _push(slots, heap, state, opened, rungs, buckets, ask, key, tail, route)
            elif piece == kind["pieces"] - 1:
                ends[np.uint64(op)] = tail
                back = _tell(operations, edges, lanes, turn, back, this["told_end"], this["told_stop"], tail, ask, tail)
            if not first:
                break
            # The lane goes on: with the next piece, or with what comes after.
            number = int(this["lane"])
            mine = lanes[np.uint64(number)]
            if piece < kind["pieces"] - 1:
                # It makes a piece when the one before is made and the one before that has left, and asks as it begins.
                mine["last"], mine["left"] = mine["left"], left
                piece += 1
                begun = mine["made"] if mine["made"] > mine["last"] else mine["last"]
                stop = kind["wire"] if piece == kind["pieces"] - 1 else kind["piece"] * (piece + 1)
                upto = _part(this["work"], stop, kind["wire"])
                mine["made"] = tail = begun + (upto - mine["sofar"])
                mine["sofar"] = upto
                ask = begun if begun > since else since
                route = routes[np.uint64(kind["route"] + piece)]
                key = (op << op_bits) + piece
                if asked_by_lane:
                    again = True
                else:
                    if state[_FREE] < 0:
                        slots, heap = _grown(slots, heap, state)
                    _push(slots, heap, state, opened, rungs, buckets, ask, key, tail, route)
                continue
            posted = this["mode"] & POSTED
            if not posted:
                mine["free"] = left
            if asked_by_lane or not posted:
                turn[np.uint64(back & (len(turn) - 1))] = number
                back += 1
            back = _tell(operations, edges, lanes, turn, back, this["told_left"], this["told_end"], left, left, left)


@_compiled
def _tell_head(
    operations: Records,
    edges: Records,
    kinds: Records,
    progress: Records,
    lanes: Records,
    turn: Numbers,
    back: int,
    again: Numbers,
    many: int,
    op: int,
    piece: int,
    head: float,
    tail: float,
) -> tuple[int, int]:
    """Tell those who follow an operation's pieces that one is there; return the ends of queue and stack."""
    this = operations[np.uint64(op)]
    pieces = kinds[np.uint64(this["kind"])]["pieces"]
    for number in range(this["told_end"], this["told_stop"]):
        edge = edges[np.uint64(number)]
        if edge["milestone"] != HEAD:
            continue
        other = operations[np.uint64(edge["op"])]
        # What travels in other pieces follows when the last of them is there.
        same = kinds[np.uint64(other["kind"])]["pieces"] == pieces
        if piece == (0 if same else pieces - 1):
            at = (head if same else tail) + edge["lag"]
            if at > other["ready"]:
                other["ready"] = at
            if tail > other["tail"]:
                other["tail"] = tail
            other["waiting"] -= 1
            if other["waiting"] == 0 and lanes[np.uint64(other["lane"])]["stands"] == edge["op"]:
                lanes[np.uint64(other["lane"])]["stands"] = -1
                turn[np.uint64(back & (len(turn) - 1))] = other["lane"]
                back += 1
        if progress[np.uint64(edge["op"])]["state"] == _BEHIND:
            progress[np.uint64(edge["op"])]["state"] = _TO_ASK
            again[np.uint64(many)] = edge["op"]
            many += 1
    return back, many


@_compiled
def _tell_one(
    operations: Records, edges: Records, lanes: Records, turn: Numbers, back: int, op: int, milestone: int, at: float
) -> int:
    """Tell those who wait for the end of an operation, or for its having left; return the queue's new end."""
    this = operations[np.uint64(op)]
    for number in range(this["told_left"], this["told_stop"]):
        if edges[np.uint64(number)]["milestone"] == milestone:
            back = _tell(operations, edges, lanes, turn, back, number, number + 1, at, at, 0.0)
    return back


@_compiled
def run_pieces(
    operations: Records,
    edges: Records,
    kinds: Records,
    routes: npt.NDArray[np.int32],
    hops: Records,
    lanes: Records,
    free: Seconds,
    hop_bits: int,
    piece_bits: int,
    starts: Seconds,
    ends: Seconds,
    rows: Numbers,
    services: Seconds,
    requires_start: Numbers,
    requires_op: Numbers,
    requires_head: npt.NDArray[np.bool_],
    lag: Seconds,
    lag_step: int,
    heads: Numbers,
    head_at: Seconds,
    head_tail: Seconds,
    floors: Numbers,
    first_start: Seconds,
) -> None:
    """Run messages that travel in pieces: the semantics of `simpy_pieces`; further parameters as in `run_whole`.

    `requires_head` marks requirements that are followed piece by piece; `heads` gives the place of the first piece of an
    operation that somebody follows in `head_at` (nan so far) and `head_tail`; `floors` gives the place of its first hop in
    `first_start`, and is empty where no link has a floor.
    """
    slots, heap, state, opened, rungs, buckets = _empty_queue()
    noted = len(rows) > 0
    op_bits, next_hop = hop_bits + piece_bits, 1 << piece_bits
    hop_mask, piece_mask = ((1 << hop_bits) - 1) << piece_bits, (1 << piece_bits) - 1
    progress = np.zeros(len(operations), PROGRESS)
    again, many = np.empty(len(operations), np.int64), 0  # operations that may ask with their next piece
    turn, front, back = _turns(len(lanes)), 0, len(lanes)
    while True:
        if many > 0:
            many -= 1
            op = again[np.uint64(many)]
            mine = progress[np.uint64(op)]
            this = operations[np.uint64(op)]
            kind = kinds[np.uint64(this["kind"])]
            if mine["state"] == _TO_BEGIN:
                begun = mine["making"]
                if kind["fed"] and mine["before"] > begun:
                    begun = mine["before"]
                stop = kind["wire"] if mine["piece"] == kind["pieces"] - 1 else kind["piece"] * (mine["piece"] + 1)
                upto = _part(this["work"], stop, kind["wire"]) if stop > 0.0 else this["work"]
                mine["making"] = begun + (upto - mine["sofar"])
                mine["sofar"] = upto
                if begun > mine["ask"]:
                    mine["ask"] = begun
            ask = mine["ask"]
            tail = mine["making"] if this["work"] else 0.0
            there = True
            for number in range(requires_start[np.uint64(op)], requires_start[np.uint64(op + 1)]):
                if not requires_head[np.uint64(number)]:
                    continue
                place = heads[np.uint64(requires_op[np.uint64(number)])] + mine["piece"]
                if np.isnan(head_at[np.uint64(place)]):
                    there = False
                    break
                ask = max(ask, head_at[np.uint64(place)] + lag[np.uint64(number * lag_step)])
                tail = max(tail, head_tail[np.uint64(place)])
            if not there:
                mine["state"] = _BEHIND
                continue
            mine["state"], mine["ask"] = _ASKED, ask
            if state[_FREE] < 0:
                slots, heap = _grown(slots, heap, state)
            route = int(routes[np.uint64(kind["route"] + mine["piece"])])
            _push(slots, heap, state, opened, rungs, buckets, ask, (op << op_bits) + mine["piece"], tail, route)
            continue
        if front < back:
            number = turn[np.uint64(front & (len(turn) - 1))]
            front += 1
            lane = lanes[np.uint64(number)]
            op = int(lane["next"])
            if op < 0:
                continue
            this = operations[np.uint64(op)]
            if this["waiting"] > 0:
                lane["stands"] = op
                continue
            lane["next"] = this["next"]
            kind = kinds[np.uint64(this["kind"])]
            ask, made = this["ready"], lane["free"]
            if not this["mode"] & EARLY and ask > made:
                made = ask
            begun = made
            made += this["hold"]
            if made > ask:
                ask = made
            if kind["route"] < 0:
                # What follows another's bytes is not over before the last of them came.
                at = ask if ask > this["tail"] else this["tail"]
                starts[np.uint64(op)], ends[np.uint64(op)] = begun, at
                lane["free"] = at
                back = _tell_one(operations, edges, lanes, turn, back, op, END, at)
                back = _tell_one(operations, edges, lanes, turn, back, op, LEFT, at)
                if heads[np.uint64(op)] >= 0:
                    head_at[np.uint64(heads[np.uint64(op)])] = head_tail[np.uint64(heads[np.uint64(op)])] = at
                    back, many = _tell_head(
                        operations, edges, kinds, progress, lanes, turn, back, again, many, op, 0, at, at
                    )
                turn[np.uint64(back & (len(turn) - 1))] = number
                back += 1
                continue
            mine = progress[np.uint64(op)]
            mine["ask"], mine["making"], mine["state"] = ask, made, _TO_BEGIN
            again[np.uint64(many)] = op
            many += 1
            if this["mode"] & POSTED:
                lane["free"] = ask
                turn[np.uint64(back & (len(turn) - 1))] = number
                back += 1
            continue
        if state[_HEAPED] == 0:
            _open(slots, heap, state, opened, rungs, buckets)
            if state[_HEAPED] == 0:
                break
        slot = _sift_out(heap, state[_HEAPED])
        state[_HEAPED] -= 1
        request = slots[np.uint64(slot)]
        ask, key, tail, route = request["at"], request["key"], request["tail"], int(request["route"])
        request["next"] = state[_FREE]
        state[_FREE] = slot
        op, piece = key >> op_bits, key & piece_mask
        hop = (key & hop_mask) >> piece_bits
        this = operations[np.uint64(op)]
        kind = kinds[np.uint64(this["kind"])]
        last = piece == kind["pieces"] - 1
        link = hops[np.uint64(route)]
        start = max(free[np.uint64(link["link"])], ask)
        lead = start + link["gap"]
        done = lead + link["serialisation"]
        if link["floor"]:
            place = floors[np.uint64(op)] + hop
            if piece == 0:
                first_start[np.uint64(place)] = start
            if last:
                done = max(done, first_start[np.uint64(place)] + link["floor"])
        free[np.uint64(link["link"])] = done
        if noted:
            row = rows[np.uint64(op)] + piece * kind["hops"] + hop
            services[np.uint64(row), 0], services[np.uint64(row), 1], services[np.uint64(row), 2] = ask, start, done
        left = max(done, tail)
        tail = left + link["latency"]
        head = lead + link["latency"]
        if link["then"] != DELIVERED:
            if state[_FREE] < 0:
                slots, heap = _grown(slots, heap, state)
            ask = tail if link["then"] == BY_TAIL else head
            _push(slots, heap, state, opened, rungs, buckets, ask, key + next_hop, tail, route + 1)
        else:
            if heads[np.uint64(op)] >= 0:
                place = heads[np.uint64(op)] + piece
                head_at[np.uint64(place)], head_tail[np.uint64(place)] = head, tail
                back, many = _tell_head(
                    operations, edges, kinds, progress, lanes, turn, back, again, many, op, piece, head, tail
                )
            if last:
                ends[np.uint64(op)] = tail
                back = _tell_one(operations, edges, lanes, turn, back, op, END, tail)
        if hop == 0:
            if piece == 0:
                starts[np.uint64(op)] = start
            mine = progress[np.uint64(op)]
            mine["before"] = mine["left"]
            mine["left"] = max(mine["left"], left)
            if not kind["fed"]:
                mine["ask"] = done
            if not last:
                mine["piece"] += 1
                mine["state"] = _TO_BEGIN
                again[np.uint64(many)] = op
                many += 1
                continue
            back = _tell_one(operations, edges, lanes, turn, back, op, LEFT, mine["left"])
            if not this["mode"] & POSTED:
                lanes[np.uint64(this["lane"])]["free"] = mine["left"]
                turn[np.uint64(back & (len(turn) - 1))] = this["lane"]
                back += 1
