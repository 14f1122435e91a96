"""NCCL's environment variables by name, what each does here, and how the plain ones among them are read.

The table that `netsim.nccl.environment` accepts names by. Numbers are read as NCCL reads them: decimal, or hexadecimal
after 0x, or octal after 0, and without any suffix. Deliberately stricter than NCCL, which takes the default, or the
digits it found, in silence.
"""

import difflib
import re
from collections.abc import Mapping

from netsim.errors import NetsimError
from netsim.nccl.paths import DIS, SYS, TYPES

# Numbers that NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL may hold instead of names.
_OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
_NUMBER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]{1,16})|(0[0-7]{0,20})|([1-9][0-9]{0,18}))")
_DIGITS = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)")

USED: Mapping[str, str] = {
    "NCCL_ALGO": "algorithms that may run",
    "NCCL_PROTO": "protocols that may run",
    "NCCL_NET_OVERHEAD": "what the cost model adds for the host at every hop over the network, ns",
    "NCCL_PAT_ENABLE": "whether PAT may run",
    "NCCL_LL128_C2C": "whether LL128 may pass another GPU to its NIC",
    "NCCL_MIN_NCHANNELS": "least channels",
    "NCCL_MAX_NCHANNELS": "most channels",
    "NCCL_MIN_NRINGS": "least channels; the older name of NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NRINGS": "most channels; the older name of NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS": "least channels, NVLS included",
    "NCCL_MAX_CTAS": "most channels, NVLS included",
    "NCCL_NVLS_NCHANNELS": "channels of NVLS",
    "NCCL_NTHREADS": "threads of a channel with LL and Simple",
    "NCCL_LL128_NTHREADS": "threads of a channel with LL128",
    "NCCL_BUFFSIZE": "bytes of a connection's buffer with Simple",
    "NCCL_LL_BUFFSIZE": "bytes of a connection's buffer with LL",
    "NCCL_LL128_BUFFSIZE": "bytes of a connection's buffer with LL128",
    "NCCL_NVLS_CHUNKSIZE": "bytes of a chunk of NVLS",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE": "most bytes of a chunk of NVLSTree",
    "NCCL_CROSS_NIC": "whether rings and trees may leave their rail",
    "NCCL_NVLS_ENABLE": "whether NVLS may run",
    "NCCL_COLLNET_ENABLE": "whether the network may reduce",
    "NCCL_P2P_LEVEL": "how far apart GPUs may be that reach each other's memory",
    "NCCL_P2P_DISABLE": "whether GPUs share host memory instead",
    "NCCL_NET_GDR_LEVEL": "how far a NIC may be from a GPU whose memory it reaches",
    "NCCL_NET_GDR_C2C": "whether a NIC reaches GPU memory over the link between GPU and CPU",
    "NCCL_PXN_DISABLE": "whether GPUs use NICs of other GPUs",
    "NCCL_PXN_C2C": "whether they do so over the link between GPU and CPU",
    "NCCL_NVB_DISABLE": "whether GPUs reach each other through a third one",
    "NCCL_MAX_P2P_NCHANNELS": "most channels of sends and receives",
    "NCCL_MIN_P2P_NCHANNELS": "least channels of sends and receives",
    "NCCL_NCHANNELS_PER_NET_PEER": "channels of sends to each peer over the network",
    "NCCL_NCHANNELS_PER_PEER": "channels of sends to each peer of the same node",
    "NCCL_P2P_LL_THRESHOLD": "up to which size parts of sends use LL",
    "NCCL_P2P_NET_CHUNKSIZE": "bytes of a chunk of sends over the network",
    "NCCL_P2P_NVL_CHUNKSIZE": "bytes of a chunk of sends over NVLink",
    "NCCL_P2P_PCI_CHUNKSIZE": "bytes of a chunk of sends over PCIe",
    "NCCL_P2P_PER_CHANNEL_NET_CHUNKSIZE": "bytes of a chunk of sends over the network",
    "NCCL_P2P_PXN_LEVEL": "when sends use NICs of other GPUs",
    "NCCL_P2P_SCHEDULE_GROUP_SIZE": "the order of rounds of an all-to-all",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS": "whether sends over the network may use LL",
    "NCCL_COLLNET_NODE_THRESHOLD": "from how many nodes on the network reduces",
    "NCCL_SYM_CTAS": "blocks of symmetric kernels",
    "NCCL_SYM_CE_THRESHOLD": "from how many elements on copy engines gather, on symmetric windows",
    "NCCL_CTA_POLICY": "whether copy engines are preferred (2), on symmetric windows",
    "NCCL_GRAPH_FILE": "rings and trees, read from a file",
    "NCCL_IB_QPS_PER_CONNECTION": "queue pairs of a connection, which its messages use in turn",
}
"""Name -> what is taken from it."""

MISSING: Mapping[str, str] = {
    "NCCL_TOPO_FILE": "the machine read from a file; here --topology does that",
    "NCCL_HOSTID": "which processes are on one host",
    "NCCL_IB_ADAPTIVE_ROUTING": "how large messages are signalled",
    "NCCL_IB_AR_THRESHOLD": "from which size on messages are signalled apart",
    "NCCL_IB_DISABLE": "whether InfiniBand is left alone; here --nic says what carries the data",
    "NCCL_IB_HCA": "which NICs are used; here the topology says which there are",
    "NCCL_IB_MERGE_NICS": "whether ports of a NIC are one",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "whether messages are split over queue pairs",
    "NCCL_LAUNCH_MODE": "how kernels of one process are launched",
    "NCCL_LOCAL_REGISTER": "whether user buffers are registered",
    "NCCL_GRAPH_REGISTER": "whether buffers of a CUDA graph are registered",
    "NCCL_MNNVL_ENABLE": "whether hosts with a common NVSwitch are one node; here the topology says so",
    "NCCL_MNNVL_SCATTER_NETS_ENABLE": "which NICs a node of several hosts uses",
    "NCCL_NET": "which network carries the data; here --nic says that",
    "NCCL_NETDEVS_POLICY": "which NICs a GPU uses",
    "NCCL_NET_FORCE_MERGE": "which NICs are one",
    "NCCL_NET_MERGE_LEVEL": "how near NICs are that are one",
    "NCCL_NET_GDR_READ": "whether NICs read GPU memory when they send",
    "NCCL_NET_SHARED_BUFFERS": "whether connections share buffers",
    "NCCL_NET_SHARED_COMMS": "whether connections are shared",
    "NCCL_NSOCKS_PERTHREAD": "sockets of a connection",
    "NCCL_SOCKET_NTHREADS": "threads that serve sockets",
    "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE": "in which order NVLink and network are served",
    "NCCL_P2P_DIRECT_DISABLE": "whether GPUs write to user buffers of others",
    "NCCL_P2P_READ_ENABLE": "whether receivers fetch the data",
    "NCCL_P2P_USE_CUDA_MEMCPY": "whether copy engines carry data between GPUs",
    "NCCL_SHM_DISABLE": "whether GPUs of a host use the network instead of host memory",
    "NCCL_SHM_LOCALITY": "whose host memory is shared",
    "NCCL_SHM_USE_CUDA_MEMCPY": "whether copy engines fill host memory",
    "NCCL_SINGLE_PROC_MEM_REG_ENABLE": "whether user buffers are registered",
    "NCCL_SINGLE_RING_THRESHOLD": "nothing since NCCL 2.3",
    "NCCL_SOCKET_IFNAME": "which interfaces are used; here the topology says which there are",
    "NCCL_SYM_KERNEL": "which symmetric kernels may run",
    "NCCL_SYM_TMA_ENABLE": "whether symmetric kernels use bulk copies",
    "NCCL_THREAD_THRESHOLDS": "bytes that a thread must have to be worth it",
    "NCCL_TUNER_CONFIG_FILE": "rules of the example tuner plugin",
    "NCCL_TUNER_PLUGIN": "who else chooses algorithm and protocol",
    "NCCL_UNPACK_DOUBLE_NCHANNELS": "channels with networks that unpack",
    "NCCL_WIN_ENABLE": "whether buffers may be symmetric",
    "NCCL_WORK_ARGS_BYTES": "how many operations a launch takes",
}
"""Name -> what it changes on a real machine, and not here."""

_IB = (
    "ADDR_FAMILY ADDR_RANGE ASYNC_EVENTS CUDA_SUPPORT DATA_DIRECT ECE_ENABLE FIFO_TC GDR_FLUSH_DISABLE GID_INDEX "
    "GRAPH_ORDERING MAX_RD_ATOMIC MERGE_VFS MQP_RETRY_ALL MQP_RETRY_CNT MQP_RETRY_SLEEP_MSEC OOO_RQ PCI_RELAXED_ORDERING "
    "PKEY PREPOST_RECEIVE_WORK_REQUESTS RECEIVER_SIDE_MATCHING_SCHEME RETRY_CNT RETURN_ASYNC_EVENTS ROCE_VERSION_NUM SL TC "
    "TIMEOUT USE_INLINE WARN_RAIL_LOCAL"
)
_OTHER = (
    "ASYNC_ERROR_HANDLING BLOCKING_WAIT BOOTSTRAP_NET_ENABLE BUILDDIR CGA_CLUSTER_SIZE CHECKS_DISABLE CHECK_MODE "
    "CHECK_POINTERS COLLTRACE COMM_BLOCKING COMM_ID COMM_SHRINK_SHARE_RESOURCES COMM_SPLIT_SHARE_RESOURCES CONF_FILE "
    "CONNECT_ROUND_MAX_PEERS CREATE_THREAD_CONTEXT CROSS_CLIQUE CUDA_PATH CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG "
    "DEBUG_FILE DEBUG_NO_WARN DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS DESYNC_DEBUG DMABUF_ENABLE "
    "ENABLE_VERSION_CHECK ENV_PLUGIN ETH_OVERRIDE GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE "
    "GDRCOPY_SYNC_ENABLE GDR_FLUSH_DISABLE GRAPH_DUMP_FILE GRAPH_DUMP_FILE_RANK GRAPH_HELPER_DISABLE "
    "GRAPH_MIXING_SUPPORT GRAPH_STREAM_ORDERING HOME IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P INCLUDE_DIR INCLUDE_DIRS "
    "INCLUDE_PATH L1_SHARED_MEMORY_CARVEOUT LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER LIB "
    "LIBRARIES LIBRARY LIBRARY_PATH LIB_DIR LINK_STATIC MEM_SYNC_DOMAIN MNNVL_CLIQUE_ID MNNVL_CLIQUE_SIZE MNNVL_UUID "
    "NET_DISABLE_INTRA NET_OPTIONAL_RECV_COMPLETION NET_PLUGIN NET_PLUGIN_REF_COUNT NO_CACHE NVTX NVTX_DISABLE "
    "OOB_NET_ENABLE OOB_NET_IFNAME PARAM_DUMP_ALL PATH PREFIX PROFILER_PLUGIN PROFILE_PRIMS_ENABLE "
    "PROGRESS_APPENDOP_FREQ PROXY_APPEND_BATCH_SIZE PROXY_CPUSET PROXY_DUMP_SIGNAL PROXY_PROFILE "
    "REPORT_CONNECT_PROGRESS ROOT ROOT_DIR RUNTIME_CONNECT SET_CPU_STACK_SIZE SET_STACK_SIZE SET_THREAD_NAME "
    "SHARED_CREDIT SOCKET_FAMILY SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_POLL_TIMEOUT_MSEC SOCKET_RCVBUF "
    "SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SOCKET_SNDBUF STACK_SIZE STATIC STRONG_STREAM_RELEASE SYM_WARMUP "
    "TOPO_DUMP_FILE TOPO_DUMP_FILE_RANK TRACE UID_STAGGER_RATE UID_STAGGER_THRESHOLD USE_MONITORED_BARRIER VERSION "
    "VERSION_CODE VERSION_STRING WIN_STRIDE WORK_FIFO_BYTES WORK_FIFO_DEPTH"
)
HARMLESS = frozenset(f"NCCL_IB_{name}" for name in _IB.split()) | frozenset(f"NCCL_{name}" for name in _OTHER.split())
"""Names that change how a job is set up, logged or built, not what is sent when."""
_FAMILIES = tuple(
    f"NCCL_{name}_"
    for name in (
        "TESTS",
        "OFI",
        "RAS",
        "GIN",
        "RMA",
        "PROFILER",
        "UCX",
        "SHARP",
        "GPUDIRECTTCPX",
        "FASTRAK",
        "CTRAN",
        "INSPECTOR",
    )
)
"""Beginnings of names that belong to tests, plugins and tools."""


def check_name(name: str, where: str) -> None:
    """Refuse a name that is no variable of NCCL, and tell which one may have been meant."""
    if name in USED or name in MISSING or name in HARMLESS or name.startswith(_FAMILIES):
        return
    known = [*USED, *MISSING, *sorted(HARMLESS)]
    close = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.75)
    hint = f" (did you mean {close[0]}?)" if close else "; accepted are NCCL's own names, such as NCCL_ALGO"
    raise NetsimError(f"{where}: {name[:60]!r} is no variable of NCCL{hint}")


def number(environment: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Read a whole number within bounds; a variable that is absent or empty has its default.

    Examples
    --------
    >>> number({"NCCL_BUFFSIZE": "0x400000"}, "NCCL_BUFFSIZE", 0, 1, 2**31), number({}, "NCCL_BUFFSIZE", 7, 1, 9)
    (4194304, 7)
    """
    text = environment.get(name, "").strip()
    if not text:
        return default
    written = _NUMBER.fullmatch(text)
    if written:
        sign, sixteens, eights, tens = written.groups()
        value = int(sixteens, 16) if sixteens else int(eights, 8) if eights else int(tens)
        value = -value if sign == "-" else value
        if least <= value <= most:
            return value
    begun = None if written else _DIGITS.match(text)
    hint = f" (NCCL knows no suffixes and would read {begun[0]})" if begun and begun[0] != text else ""
    raise NetsimError(f"{name}={text[:40]!r} is not accepted; it is a whole number from {least} to {most}{hint}")


def flag(environment: Mapping[str, str], name: str, default: bool) -> bool:
    """Read 0 or 1."""
    return bool(number(environment, name, int(default), 0, 1))


def level(environment: Mapping[str, str], name: str, default: int) -> int:
    """Read a path type, by name or by its old number, as an index of `netsim.nccl.paths.TYPES`."""
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.upper() in TYPES[:DIS]:
        return TYPES.index(text.upper())
    if text.isascii() and text.isdecimal():
        return TYPES.index(_OLD_LEVELS[min(int(text[:9]), len(_OLD_LEVELS) - 1)])
    known = ", ".join(TYPES[: SYS + 1])
    raise NetsimError(f"{name}={text[:40]!r} is no path type; accepted are {known}, or 0 to {len(_OLD_LEVELS) - 1}")
