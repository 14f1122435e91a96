"""NCCL's three protocols: what they put on the wire, and in which portions data moves through a connection.

Facts of NCCL 2.30 (include/device.h, include/collectives.h); buffers are those of NCCL_BUFFSIZE and its like unless a plan
says otherwise.
"""

from dataclasses import dataclass

SLOTS = 8
"""Steps of a connection's buffer (NCCL_STEPS)."""


@dataclass(frozen=True)
class Protocol:
    """One protocol."""

    name: str
    step_bytes: int
    """Payload of one step of a connection's buffer."""
    line_bytes: int
    """Payload of one line; lines go whole."""
    line_wire_bytes: int
    """Bytes on the wire for one line."""
    grain_bytes: int
    """Chunks and pieces are multiples of this many bytes."""
    follows: bool
    """Whether data is passed on line by line as it comes, instead of slice by slice."""
    round_bytes: int = 0
    """Lanes work in rounds of this many bytes for 512 threads; 0 where it does not show."""
    max_threads: int = 512

    def wire(self, size_bytes: int) -> int:
        """Return the bytes on the wire for a payload.

        Examples
        --------
        >>> PROTOCOLS["ll"].wire(1000), PROTOCOLS["ll128"].wire(1000), PROTOCOLS["simple"].wire(1000)
        (2000, 1152, 1000)
        """
        return -(-size_bytes // self.line_bytes) * self.line_wire_bytes if self.line_bytes > 1 else size_bytes


PROTOCOLS: dict[str, Protocol] = {
    # 8 bytes of data with 8 of flags; 512 threads move 8 bytes of data each in a round.
    "ll": Protocol("ll", 32_768, 8, 16, 16, True, round_bytes=4096),
    # Lines of 128 bytes of which 8 are a flag.
    "ll128": Protocol("ll128", 576_000, 120, 128, 1920, True, max_threads=640),
    "simple": Protocol("simple", 524_288, 1, 1, 512, False),
}
"""Name -> protocol."""
