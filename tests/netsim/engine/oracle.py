"""An engine of its own for tests: one heap, no SimPy, no shortcut, every link asked by an event.

Written from the definition of time on a link alone, in another style than the engines that it checks: dependency
counters instead of processes, a request event even where an engine may ask inline, every milestone an event.
"""

import heapq
import math
from collections import defaultdict

from netsim.routing import Router
from netsim.schedule.dag import COMPUTE, END, HEAD, LEFT, LEG, OUTPUT, TRANSFER, TRUNK


def grid(seconds):
    """Nearest multiple of 2^-55 s."""
    return math.ldexp(round(math.ldexp(seconds, 55)), -55) if seconds < 0.5 else seconds


def path_of(router, schedule, op):
    """Return the links of one operation."""
    kind, src, dst = int(schedule.kind[op]), int(schedule.src[op]), int(schedule.dst[op])
    if kind == COMPUTE:
        return ()
    if kind == TRANSFER:
        return router.path(src, dst)
    ability = "reduce" if kind in (LEG, OUTPUT) else "multicast"
    switch = router.switch(schedule.groups[schedule.group[op]], ability)
    return router.path_up(src, switch) if kind in (TRUNK, LEG) else router.path_down(switch, dst)


class Oracle:
    """One run; `start` and `end` hold the times of all operations afterwards, None where one never ran."""

    def __init__(self, graph, schedule):
        router = Router(graph)
        self.schedule = schedule
        self.links = [graph.edges[edge]["link"] for edge in router.edges]
        count = len(schedule)
        self.paths = [path_of(router, schedule, op) for op in range(count)]
        self.waiting = [len(schedule.requirements(op)) for op in range(count)]
        self.dependents = defaultdict(list)
        self.lanes = defaultdict(list)
        for op in range(count):
            self.lanes[int(schedule.lane[op])].append(op)
            for need, milestone, lag in schedule.requirements(op):
                self.dependents[need, milestone].append((op, grid(lag)))
        self.position = defaultdict(int)
        self.lane_free = defaultdict(float)
        self.ready = [0.0] * count
        self.followed_tail = [0.0] * count
        self.free = [0.0] * len(self.links)
        self.tails = [0.0] * count
        self.start, self.end = [None] * count, [None] * count
        self.queue = []

    def run(self):
        """Run until nothing is left to happen."""
        for lane in list(self.lanes):
            self.post(lane, 0.0)
        while self.queue:
            now, stage, op, what = heapq.heappop(self.queue)
            if stage == 1:
                self.serve(op, what, now)
                continue
            for other, lag in self.dependents.pop((op, what), ()):
                self.waiting[other] -= 1
                self.ready[other] = max(self.ready[other], now + lag)
                if what == HEAD:
                    self.followed_tail[other] = max(self.followed_tail[other], self.tails[op])
                self.post(int(self.schedule.lane[other]), now)
        return self.start, self.end

    def post(self, lane, now):
        """Let the operations at the head of a lane ask, as far as nothing holds them back."""
        while self.lane_free[lane] < math.inf and self.position[lane] < len(self.lanes[lane]):
            op = self.lanes[lane][self.position[lane]]
            if self.waiting[op]:
                return
            begin = max(now, self.ready[op], self.lane_free[lane])
            ask = begin + grid(float(self.schedule.duration[op]))
            self.position[lane] += 1
            self.lane_free[lane] = ask
            if not self.paths[op]:
                self.start[op], self.end[op] = begin, ask
                for milestone in (END, LEFT, HEAD):
                    self.push(ask, 0, op, milestone)
                continue
            self.push(ask, 1, op, 0)
            if not self.schedule.posted[op]:
                self.lane_free[lane] = math.inf  # known when the request has been served

    def serve(self, op, hop, now):
        """Serve an operation at one link of its path."""
        edge = self.paths[op][hop]
        link = self.links[edge]
        begin = max(now, self.free[edge])
        lead = begin + grid(link.gap_s)
        done = max(lead + grid(int(self.schedule.wire[op]) / link.bandwidth_bytes_per_s), begin + grid(link.floor_s))
        self.free[edge] = done
        if hop == 0:
            self.start[op] = begin
            self.tails[op] = self.followed_tail[op]
        last_byte = max(self.tails[op], done)
        self.tails[op] = last_byte + grid(link.latency_s)
        head = lead + grid(link.latency_s)
        if hop + 1 < len(self.paths[op]):
            self.push(head, 1, op, hop + 1)
        else:
            self.end[op] = self.tails[op]
            self.push(self.tails[op], 0, op, END)
            self.push(head, 0, op, HEAD)
        if hop == 0:
            self.push(last_byte, 0, op, LEFT)
            if not self.schedule.posted[op]:
                lane = int(self.schedule.lane[op])
                self.lane_free[lane] = last_byte
                self.post(lane, now)

    def push(self, at, stage, op, what):
        heapq.heappush(self.queue, (at, stage, op, what))


def run(graph, schedule):
    """Return the lists of start and end of all operations."""
    return Oracle(graph, schedule).run()
