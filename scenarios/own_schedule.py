"""Which all-reduce sums through two relays, and when is it faster than a ring on eight GPUs?

The file is a schedule of one's own: ``netsim perf all_reduce --topology ideal-switch:8@450GB/s,1us --algo FILE`` proves it
and runs it, ``netsim schedule show`` and ``prove`` take it too. Answer: up to 0.94 MB. It takes two latencies where the ring
takes 14, but 7.5 N/B instead of 1.75 N/B: each relay receives seven halves of the data and then sends seven, and the second
one starts half an N/B late, because everybody sends to the first one first.
"""

from netsim import Schedule, ScheduleBuilder


def schedule(ranks: int, size_bytes: int) -> Schedule:
    """Let ranks 0 and 1 add one half of the data each, and send the sum to everybody."""
    plan = ScheduleBuilder("all_reduce", "two relays", ranks, size_bytes)
    half = size_bytes // 2
    halves = {0: (0, half), 1: (half, size_bytes - half)} if ranks > 1 else {}
    others = {relay: [rank for rank in range(ranks) if rank != relay] for relay in halves}
    parts = {
        relay: [plan.send(rank, relay, offset=at, size=size, reduce=True, from_input=True) for rank in others[relay]]
        for relay, (at, size) in halves.items()
    }
    for relay, (at, size) in halves.items():
        for rank in others[relay]:
            plan.send(relay, rank, offset=at, size=size, after=parts[relay], step=1)
    return plan.build()
