"""What of NCCL's environment bears on channels, threads and buffers, with NCCL's defaults.

Plain values, so that channels and chunks can be computed without any environment; who reads variables fills them in.
"""

from dataclasses import dataclass

from netsim.errors import NetsimError

_STEPS = 8


@dataclass(frozen=True)
class Settings:
    """Values of NCCL's variables; None is NCCL's own default, which goes by machine and release."""

    min_channels: int | None = None
    """NCCL_MIN_NCHANNELS; missing channels repeat the first ones."""
    max_channels: int | None = None
    """NCCL_MAX_NCHANNELS."""
    min_ctas: int | None = None
    """NCCL_MIN_CTAS, for NVLS too."""
    max_ctas: int | None = None
    """NCCL_MAX_CTAS, for NVLS too."""
    nvls_channels: int | None = None
    """NCCL_NVLS_NCHANNELS."""
    threads: int | None = None
    """NCCL_NTHREADS, of rings and trees with LL and Simple."""
    ll128_threads: int | None = None
    """NCCL_LL128_NTHREADS."""
    buffer_bytes: int = 4_194_304
    """NCCL_BUFFSIZE: a connection's buffer with Simple."""
    ll_buffer_bytes: int = 524_288
    """NCCL_LL_BUFFSIZE."""
    ll128_buffer_bytes: int = 4_915_200
    """NCCL_LL128_BUFFSIZE."""
    nvls_chunk_bytes: int | None = None
    """NCCL_NVLS_CHUNKSIZE."""
    nvls_tree_chunk_bytes: int | None = None
    """NCCL_NVLSTREE_MAX_CHUNKSIZE."""
    min_p2p_channels: int | None = None
    """NCCL_MIN_P2P_NCHANNELS, of sends and receives."""
    max_p2p_channels: int | None = None
    """NCCL_MAX_P2P_NCHANNELS."""
    channels_per_peer: int | None = None
    """NCCL_NCHANNELS_PER_PEER: channels of sends to a peer of the same node."""
    channels_per_net_peer: int | None = None
    """NCCL_NCHANNELS_PER_NET_PEER: channels of sends to a peer of another node."""
    nvl_chunk_bytes: int | None = None
    """NCCL_P2P_NVL_CHUNKSIZE: a chunk of sends within a node of NVLinks."""
    pci_chunk_bytes: int | None = None
    """NCCL_P2P_PCI_CHUNKSIZE: a chunk of sends within any other node."""
    net_chunk_bytes: int | None = None
    """NCCL_P2P_NET_CHUNKSIZE: a chunk of sends where there are several nodes."""
    ll_threshold_bytes: int | None = None
    """NCCL_P2P_LL_THRESHOLD: the most bytes of a part that goes by LL."""
    net_ll_buffers: bool = False
    """NCCL_ALLOC_P2P_NET_LL_BUFFERS: whether sends over the network may go by LL."""
    rounds_group: int | None = None
    """NCCL_P2P_SCHEDULE_GROUP_SIZE: ranks of a group in the order of rounds over several nodes."""
    queue_pairs: int = 1
    """NCCL_IB_QPS_PER_CONNECTION: queue pairs that the messages of a connection between nodes use in turn."""
    pxn_level: int = 2
    """NCCL_P2P_PXN_LEVEL: whether sends go by the card on the receiver's rail never (0), where needed (1) or always (2)."""

    def __post_init__(self) -> None:
        """Refuse what leaves no channel, or no whole chunk in a step of a buffer."""
        for field, (name, least) in _LEAST.items():
            value = getattr(self, field)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise NetsimError(f"{name}: {value!r} is too little; accepted are whole numbers from {least} up")

    def step_bytes(self, protocol: str) -> int:
        """Return the bytes of one of the eight steps of a connection's buffer, flags included."""
        sizes = {"ll": self.ll_buffer_bytes, "ll128": self.ll128_buffer_bytes}
        return sizes.get(protocol, self.buffer_bytes) // _STEPS


# A step holds at least one grain: 512 B; 16 B of data with as much of flags; 1920 B of data in lines of 128 B.
_LEAST = {
    "min_channels": ("NCCL_MIN_NCHANNELS", 0),
    "max_channels": ("NCCL_MAX_NCHANNELS", 1),
    "min_ctas": ("NCCL_MIN_CTAS", 1),
    "max_ctas": ("NCCL_MAX_CTAS", 1),
    "nvls_channels": ("NCCL_NVLS_NCHANNELS", 1),
    "threads": ("NCCL_NTHREADS", 1),
    "ll128_threads": ("NCCL_LL128_NTHREADS", 1),
    "buffer_bytes": ("NCCL_BUFFSIZE", 512 * _STEPS),
    "ll_buffer_bytes": ("NCCL_LL_BUFFSIZE", 32 * _STEPS),
    "ll128_buffer_bytes": ("NCCL_LL128_BUFFSIZE", 2048 * _STEPS),
    "nvls_chunk_bytes": ("NCCL_NVLS_CHUNKSIZE", 512),
    "nvls_tree_chunk_bytes": ("NCCL_NVLSTREE_MAX_CHUNKSIZE", 512),
    "min_p2p_channels": ("NCCL_MIN_P2P_NCHANNELS", 1),
    "max_p2p_channels": ("NCCL_MAX_P2P_NCHANNELS", 1),
    "channels_per_peer": ("NCCL_NCHANNELS_PER_PEER", 1),
    "channels_per_net_peer": ("NCCL_NCHANNELS_PER_NET_PEER", 1),
    "nvl_chunk_bytes": ("NCCL_P2P_NVL_CHUNKSIZE", 512),
    "pci_chunk_bytes": ("NCCL_P2P_PCI_CHUNKSIZE", 512),
    "net_chunk_bytes": ("NCCL_P2P_NET_CHUNKSIZE", 512),
    "ll_threshold_bytes": ("NCCL_P2P_LL_THRESHOLD", 0),
    "rounds_group": ("NCCL_P2P_SCHEDULE_GROUP_SIZE", 1),
    "queue_pairs": ("NCCL_IB_QPS_PER_CONNECTION", 1),
}

DEFAULT_SETTINGS = Settings()
