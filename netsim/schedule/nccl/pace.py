"""What primitives cost a group of threads of a channel that work together: the one place where costs become seconds."""

from dataclasses import dataclass
from functools import cached_property

from netsim.schedule.nccl.costs import Costs
from netsim.schedule.nccl.protocols import PROTOCOLS, Protocol


@dataclass(frozen=True)
class Pace:
    """What primitives cost some threads of a channel that work together."""

    protocol: str
    costs: Costs
    threads: int
    factor: float = 1.0
    """On all rates: threads that share a block with others at another task may do better than their share."""

    @property
    def kind(self) -> Protocol:
        """The facts of its protocol."""
        return PROTOCOLS[self.protocol]

    @cached_property
    def fixed_s(self) -> float:
        """Seconds that a slice costs, whatever its size."""
        return self.costs.slice_cost_s(self.protocol, self.threads)

    def work_s(self, primitive: str, size: int) -> float:
        """Return the seconds for the bytes of a slice, by the rate of a primitive (a field of `Rates`)."""
        scale = min(1.0, self.threads / self.kind.max_threads)
        rate = getattr(self.costs.rates, primitive) * scale * self.factor
        each = int(self.kind.round_bytes * scale)
        if each and size > each:
            size = -(-size // each) * each
        return float(size / rate)

    def feed(self, wire: int) -> int:
        """Return the bytes of the pieces in which a message of so many wire bytes goes into the GPU's link; 0 whole."""
        feed = self.costs.feed_bytes
        return feed if feed and wire > feed and not self.kind.follows else 0
