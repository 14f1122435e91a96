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

    def __init__(self, graph, schedule, quantum=0):
        self.quantum = quantum
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
        self.tails, self.first = {}, {}
        self.made, self.left = [0.0] * count, [(0.0, 0.0)] * count
        self.start, self.end = [None] * count, [None] * count
        self.queue = []

    def run(self):
        """Run until nothing is left to happen."""
        for lane in list(self.lanes):
            self.post(lane, 0.0)
        while self.queue:
            now, stage, op, what, piece = heapq.heappop(self.queue)
            if stage == 1:
                self.serve(op, what, piece, now)
                continue
            for other, lag in self.dependents.pop((op, what), ()):
                self.waiting[other] -= 1
                self.ready[other] = max(self.ready[other], now + lag)
                if what == HEAD:
                    self.followed_tail[other] = max(self.followed_tail[other], self.tails.get((op, 0), now))
                self.post(int(self.schedule.lane[other]), now)
        return self.start, self.end

    def post(self, lane, now):
        """Let the operations at the head of a lane ask, as far as nothing holds them back."""
        while self.lane_free[lane] < math.inf and self.position[lane] < len(self.lanes[lane]):
            op = self.lanes[lane][self.position[lane]]
            if self.waiting[op]:
                return
            ready = max(now, self.ready[op])
            begin = self.lane_free[lane] if self.schedule.early[op] else max(ready, self.lane_free[lane])
            self.made[op] = begin + grid(float(self.schedule.duration[op]))
            ask = max(ready, self.made[op])
            self.position[lane] += 1
            self.lane_free[lane] = ask
            if not self.paths[op]:
                self.start[op], self.end[op] = begin, ask
                for milestone in (END, LEFT, HEAD):
                    self.push(ask, 0, op, milestone)
                continue
            self.ready[op] = ask
            self.ask(op, 0)
            if not self.schedule.posted[op]:
                self.lane_free[lane] = math.inf  # known when the request has been served

    def pieces(self, op):
        """Return the number of pieces, and the bytes of each."""
        wire, feed = int(self.schedule.wire[op]), int(self.schedule.feed[op])
        feed = min(feed or self.quantum, self.quantum or feed)
        count = max(1, math.ceil(wire / feed)) if feed else 1
        return count, (feed if count > 1 else wire)

    def ask(self, op, piece):
        """Make a piece, which begins when the one before is made and the one before that has left, and ask as it begins."""
        count, size = self.pieces(op)
        wire, work = int(self.schedule.wire[op]), grid(float(self.schedule.work[op]))
        fed = self.schedule.feed[op] > 0
        begin = max(self.made[op], self.left[op][0]) if fed else self.made[op]
        share = work
        if count > 1:
            done, upto = (grid(work * min(size * place, wire) / wire) for place in (piece, piece + 1))
            share = upto - done
        self.made[op] = begin + share
        self.ready[op] = max(self.ready[op], begin)
        self.push(self.ready[op], 1, op, 0, piece)

    def serve(self, op, hop, piece, now):
        """Serve a piece of an operation at one link of its path."""
        edge = self.paths[op][hop]
        link = self.links[edge]
        count, size = self.pieces(op)
        wire = int(self.schedule.wire[op])
        sent, upto = min(size * piece, wire), min(size * (piece + 1), wire)
        begin = max(now, self.free[edge])
        lead = begin + (grid(link.gap_s) if piece == 0 else 0.0)
        done = lead + grid(upto / link.bandwidth_bytes_per_s) - grid(sent / link.bandwidth_bytes_per_s)
        if piece == 0:
            self.first[op, hop] = begin
        if piece == count - 1:
            done = max(done, self.first[op, hop] + grid(link.floor_s))
        self.free[edge] = done
        if hop == 0:
            self.tails[op, piece] = max(self.followed_tail[op], self.made[op] if self.schedule.work[op] else 0.0)
            if piece == 0:
                self.start[op] = begin
        last_byte = max(self.tails[op, piece], done)
        self.tails[op, piece] = last_byte + grid(link.latency_s)
        head = lead + grid(link.latency_s)
        if hop + 1 < len(self.paths[op]):
            self.push(head, 1, op, hop + 1, piece)
        elif piece == count - 1:
            self.end[op] = self.tails[op, piece]
            self.push(self.end[op], 0, op, END)
            self.push(head, 0, op, HEAD)
        if hop == 0:
            self.left[op] = (self.left[op][1], last_byte)
            if not self.schedule.feed[op]:
                self.ready[op] = done  # a quantum: the next piece asks when this one has been served
            if piece < count - 1:
                self.ask(op, piece + 1)
                return
            self.push(last_byte, 0, op, LEFT)
            if not self.schedule.posted[op]:
                lane = int(self.schedule.lane[op])
                self.lane_free[lane] = last_byte
                self.post(lane, now)

    def push(self, at, stage, op, what, piece=0):
        heapq.heappush(self.queue, (at, stage, op, what, piece))


def run(graph, schedule, quantum=0):
    """Return the lists of start and end of all operations; with a quantum none may follow another's head."""
    return Oracle(graph, schedule, quantum).run()
