"""What a GPU's copy loops cost its lanes: a fixed part for each slice, and bytes over a rate that depends on what is done.

A property of a GPU generation and a protocol, never of one measurement. The default costs nothing, so that a schedule
can be run for its links alone.
"""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rates:
    """Bytes of payload per second that one lane moves with all its threads, by primitive; infinite by default."""

    send: float = math.inf
    """Read local memory, write to the peer."""
    copy_send: float = math.inf
    """Copy locally and write to the peer."""
    recv_copy_send: float = math.inf
    """Take from the buffer, store, and write to the next peer."""
    recv_reduce_send: float = math.inf
    """Take from the buffer, add the own input, write to the next peer."""
    recv_reduce_copy_send: float = math.inf
    """The same, and store."""
    recv_reduce_copy: float = math.inf
    """Take from the buffer, add the own input, and store."""
    recv: float = math.inf
    """Take from the buffer and store."""


@dataclass(frozen=True)
class Network:
    """What a message between nodes meets beside its links: properties of the way, not of GPUs."""

    credit_s: float = 0.0
    """Seconds until a node sees that a slot at another is free: the latency of the way back."""
    eager_bytes: int = 0
    """Bytes on the wire that a NIC sends at once; larger messages are announced first. 0 where it makes no difference."""
    rendezvous_s: float = 0.0
    """Seconds that the announcement takes."""
    spread_s: float = 0.0
    """Seconds by which a hop is longer with each doubling of the channels, as the slowest of their messages counts."""
    proxy_rate: float = math.inf
    """Bytes on the wire that the proxy of a channel passes on in a second."""

    def handshake_s(self, wire: int, channels: int = 1) -> float:
        """Return the seconds between a message being posted and its first byte, beyond the links' latency.

        `channels` are those whose next step waits for all of them; sends and receives wait for their own message only.
        """
        announced_s = self.rendezvous_s if self.eager_bytes and wire > self.eager_bytes else 0.0
        return announced_s + self.spread_s * math.log2(channels)

    def proxy_s(self, wire: int) -> float:
        """Return the seconds of a proxy for a message, before it is posted."""
        return wire / self.proxy_rate


@dataclass(frozen=True)
class Costs:
    """What one protocol costs on one generation of GPU."""

    start_s: float = 0.0
    """Seconds from the start of the kernel until lanes work (with the end of the kernel)."""
    slice_s: float = 0.0
    """Seconds a slice costs its lane whatever its size."""
    threads_s: float = 0.0
    """Seconds more with all threads; it grows with the logarithm of the threads from 96 up, for LL128 in proportion."""
    feed_bytes: int = 65_536
    """Portions in which lanes that share a GPU's link feed it; 0 feeds slices whole."""
    credit_s: float = 0.0
    """Seconds until a freed slot is seen by the sender."""
    network: Network = field(default_factory=Network)
    """What is more between nodes."""
    rates: Rates = field(default_factory=Rates)
    nvls_loop_s: float = 0.0
    """Seconds that a loop of NVLS costs each of its stages, whatever its bytes."""
    nvls_rate: float = math.inf
    """Bytes of a loop, of all heads together, that a rank copies in or out of the buffers of NVLS in a second."""
    nvls_reduce_rate: float = math.inf
    """Bytes of its own chunk that a head of NVLS has added up, or copied to all, in a second."""

    halves: float = 1.0
    """On the rates of send/recv, where half of the threads send and half receive: what each does above half."""
    flag_s: float = 0.0
    """Seconds until a flag that one GPU sets is seen by another, in barriers."""

    def slice_cost_s(self, protocol: str, threads: int) -> float:
        """Return the fixed cost of a slice with some number of threads, in seconds.

        Examples
        --------
        >>> costs = Costs(slice_s=0.6e-6, threads_s=0.9e-6)
        >>> round(costs.slice_cost_s("simple", 512) * 1e6, 9), round(costs.slice_cost_s("simple", 96) * 1e6, 9)
        (1.5, 0.6)
        """
        if protocol == "ll128":
            return self.slice_s + self.threads_s * threads / 640
        return self.slice_s + self.threads_s * math.log2(max(threads, 96) / 96) / math.log2(512 / 96)

    def nvls_copy_s(self, size_bytes: int) -> float:
        """Return the seconds in which a rank copies the bytes of a loop, the fixed part included."""
        return self.nvls_loop_s + size_bytes / self.nvls_rate

    def nvls_reduce_s(self, size_bytes: int) -> float:
        """Return the seconds of a head for its chunk of a loop, beside the fixed part."""
        return size_bytes / self.nvls_reduce_rate


FREE = Costs(feed_bytes=0)
"""No cost at all: links alone decide."""
