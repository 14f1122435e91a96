"""An engine of its own for tests: one heap, no SimPy, no shortcut, every link asked by an event.

Written from the definition of time on a link alone, in another style than the engines that it checks: dependency
counters instead of processes, a request event even where an engine may ask inline.
"""

import heapq
import math
from collections import defaultdict

from netsim.routing import Router
from netsim.schedule.dag import END, HEAD, LEFT


def grid(seconds):
    """Nearest multiple of 2^-55 s."""
    return math.ldexp(round(math.ldexp(seconds, 55)), -55) if seconds < 0.5 else seconds


def run(graph, schedule):
    """Return the list of (start, end) of all transfers of a schedule."""
    router = Router(graph)
    links = [graph.edges[edge]["link"] for edge in router.edges]
    paths = [router.path(int(s), int(d)) for s, d in zip(schedule.src, schedule.dst, strict=True)]
    count = len(schedule)
    waiting = [len(schedule.requirements(op)) for op in range(count)]
    dependents = defaultdict(list)
    for op in range(count):
        for need, milestone, lag in schedule.requirements(op):
            dependents[need, milestone].append((op, grid(lag)))
    lanes = defaultdict(list)
    for op in range(count):
        lanes[int(schedule.lane[op])].append(op)
    position = dict.fromkeys(lanes, 0)
    lane_free = dict.fromkeys(lanes, 0.0)
    ready = [0.0] * count
    free = [0.0] * len(links)
    tails = [0.0] * count
    start, end = [None] * count, [None] * count
    queue = []

    def post(lane, now):
        """Let the operation at the head of a lane ask, if nothing holds it back."""
        while position[lane] < len(lanes[lane]):
            op = lanes[lane][position[lane]]
            if waiting[op]:
                return
            ask = max(now, ready[op], lane_free[lane]) + grid(float(schedule.duration[op]))
            heapq.heappush(queue, (ask, 1, op, 0))
            position[lane] += 1
            if not schedule.posted[op]:
                lane_free[lane] = math.inf  # known when the request has been served
                return
            lane_free[lane] = ask

    def serve(op, hop, now):
        path = paths[op]
        link = links[path[hop]]
        begin = max(now, free[path[hop]])
        lead = begin + grid(link.gap_s)
        done = max(lead + grid(int(schedule.wire[op]) / link.bandwidth_bytes_per_s), begin + grid(link.floor_s))
        free[path[hop]] = done
        tails[op] = max(tails[op], done) + grid(link.latency_s)
        head = lead + grid(link.latency_s)
        if hop == 0:
            start[op] = begin
            heapq.heappush(queue, (done, 0, op, LEFT))
            if not schedule.posted[op]:
                lane_free[int(schedule.lane[op])] = done
                post(int(schedule.lane[op]), now)
        if hop + 1 < len(path):
            heapq.heappush(queue, (head, 1, op, hop + 1))
        else:
            end[op] = tails[op]
            heapq.heappush(queue, (tails[op], 0, op, END))
            heapq.heappush(queue, (head, 0, op, HEAD))

    for lane in lanes:
        post(lane, 0.0)
    while queue:
        now, stage, op, what = heapq.heappop(queue)
        if stage == 1:
            serve(op, what, now)
            continue
        for other, lag in dependents.pop((op, what), ()):
            waiting[other] -= 1
            ready[other] = max(ready[other], now + lag)
            lane = int(schedule.lane[other])
            if not waiting[other] and lanes[lane][position[lane] :][:1] == [other] and lane_free[lane] < math.inf:
                post(lane, now)
    return start, end
