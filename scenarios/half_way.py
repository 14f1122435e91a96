"""At which size does a ring all-reduce spend as long on latency as on bandwidth?

Answer: at N = p alpha B: 3.6 MB for 8 ranks at 450 GB/s and 1 us, 0.4 MB at 50 GB/s, 0.89 MB on the laptop's PCIe link
(8.25 us, 13.45 GB/s). There the simulated time is twice the 2 (p - 1) alpha of an empty message.
"""

from collections.abc import Iterator

import topologies
from netsim.runs import time
from netsim.units import parse_rate, parse_time
from scenarios.study import run_study

COLUMNS = ("ranks", "bandwidth_GBps", "latency_us", "size_bytes", "latency_only_us", "time_us", "time_per_latency")
LINKS = (("450GB/s", "1us"), ("50GB/s", "1us"), ("13.45GB/s", "8.25us"))


def rows() -> Iterator[tuple[object, ...]]:
    """Yield one row a link and number of ranks."""
    for rate, latency in LINKS:
        for ranks in (2, 4, 8, 16, 64):
            topology = topologies.build(f"ideal-switch:{ranks}@{rate},{latency}")
            alpha, bandwidth = parse_time(latency), parse_rate(rate)
            size = round(ranks * alpha * bandwidth)
            empty, full = (time("all_reduce", bytes_, topology, algorithm="ring") for bytes_ in (0, size))
            yield ranks, bandwidth / 1e9, alpha * 1e6, size, empty * 1e6, full * 1e6, full / empty


if __name__ == "__main__":
    run_study(__doc__, COLUMNS, rows)
