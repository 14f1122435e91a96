"""Take a log apart into what NCCL said, and who said it, whatever mpirun, Slurm or torn lines made of it.

Under `netsim.nccl.log`. NCCL begins a line with ``host:pid:tid [device] NCCL INFO``; in front of that may stand tags and
times of launchers, or the rest of a line of another process that was printed without its end.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

# Bounded, so that a long line without spaces costs no more than its length times that.
_HEAD = re.compile(
    r"(?:(?P<host>[^\s:]{0,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[(?P<device>-?\d{1,9})\] (?:[^\s\[]+ ){0,2}?)?"
    r"NCCL (?P<level>INFO|WARN|TRACE|ABORT) ?",
    re.ASCII,
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 16_384
_ABSURD = re.compile(r"\d{100}")
"""No number of NCCL's or its tests' is so long, and neither Python's reader of whole numbers nor floats have room for it."""


class Thread(NamedTuple):
    """Who spoke; empty and -1 where the log does not say."""

    host: str = ""
    process: int = -1
    thread: int = -1
    device: int = -1


class Line(NamedTuple):
    """One thing said."""

    thread: Thread
    text: str


def lines_of(text: str) -> Iterator[Line]:
    """Yield what NCCL said in order; text of others comes with an empty `Thread`."""
    raw = [line[:_LONGEST] for line in _COLOURS.sub("", text).splitlines() if not _ABSURD.search(line, 0, _LONGEST)]
    heads = [list(_HEAD.finditer(line)) if "NCCL " in line else [] for line in raw]
    said = Counter(head["host"] for found in heads for head in found if head["host"])
    hosts = {host: _host(host, said) for host in said}
    for line, found in zip(raw, heads, strict=True):
        starts = [_start(head, hosts) for head in found]
        before = line[: starts[0]] if starts else line
        if before.strip():
            yield Line(Thread(), before)
        for head, end in zip(found, [*starts, len(line)][1:], strict=True):
            yield Line(_thread(head, hosts), line[head.end() : end].strip())


def _host(name: str, said: Counter[str]) -> str:
    """Return the host that a name ends with if that one speaks more often: its line began behind another's text."""
    shorter = [other for other in said if name != other and name.endswith(other) and said[other] > said[name]]
    return min(shorter, key=len, default=name)


def _start(head: re.Match[str], hosts: dict[str, str]) -> int:
    return head.end("host") - len(hosts[head["host"]]) if head["host"] else head.start()


def _thread(head: re.Match[str], hosts: dict[str, str]) -> Thread:
    if not head["pid"]:
        return Thread()
    return Thread(hosts.get(head["host"], ""), int(head["pid"]), int(head["tid"]), int(head["device"]))
