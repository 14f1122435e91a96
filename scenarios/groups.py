"""Several collectives at once on one machine: which ranks form which group, in the words of the command line.

``div:8`` puts eight ranks that follow each other into a group and ``mod:8`` every eighth (nccl-tests splits so with
NCCL_TESTS_SPLIT); ``0-3/4,5,6,7`` lists them. Groups may share ranks, a tensor-parallel and a data-parallel group say;
all have as many ranks, because a row has one number of ranks and one bus bandwidth.
"""

import re
from collections.abc import Sequence

from netsim.errors import ScenarioError

Members = tuple[int, ...]

_SPLIT = re.compile(r"(div|mod):([0-9]{1,9})", re.ASCII)
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def read_groups(text: str | None, ranks: int) -> tuple[Members, ...]:
    """Read which ranks form a group.

    Parameters
    ----------
    text : str or None
        ``div:N``, ``mod:N`` or lists of ranks and ranges, separated by slashes; None is one group of all ranks.
    ranks : int
        Ranks of the machine.

    Returns
    -------
    tuple of tuple of int
        The ranks of each group; its rank i is the i-th of them.

    Raises
    ------
    ScenarioError
        If the text is not of that form, names a rank that is not there or one twice in a group, or if the groups differ
        in size.

    Examples
    --------
    >>> read_groups("div:2", 4), read_groups("mod:2", 4), read_groups("0-1/3,2", 4)
    (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1), (3, 2)))
    """
    if text is None:
        return (tuple(range(ranks)),)
    split = _SPLIT.fullmatch(text.strip())
    if split:
        count = int(split[2])
        if not 1 <= count <= ranks or ranks % count:
            raise ScenarioError(f"groups {text!r}: {ranks} ranks do not fall into equal groups by {count}; give a divisor")
        everyone = range(ranks)
        if split[1] == "div":
            return tuple(tuple(everyone[first : first + count]) for first in range(0, ranks, count))
        return tuple(tuple(everyone[first::count]) for first in range(count))
    groups = tuple(_members(text, part, ranks) for part in text.split("/"))
    sizes = {len(group) for group in groups}
    if len(sizes) > 1:
        raise ScenarioError(f"groups {text!r}: they have {min(sizes)} to {max(sizes)} ranks; give all the same number")
    return groups


def _members(text: str, part: str, ranks: int) -> Members:
    members: list[int] = []
    for piece in part.split(","):
        found = _PART.fullmatch(piece.strip())
        if not found:
            raise ScenarioError(
                f"groups {text!r}: {piece.strip()!r} is no rank or range; accepted are div:8, mod:8 or 0-3/4,5,6,7"
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last >= ranks:
            raise ScenarioError(f"groups {text!r}: {piece.strip()!r} is not within the ranks 0 to {ranks - 1}, upwards")
        members += range(first, last + 1)
    if len(set(members)) < len(members):
        raise ScenarioError(f"groups {text!r}: a rank stands twice in {part.strip()!r}")
    return tuple(members)


def servers_within(group: Members, hosts: Sequence[Sequence[int]]) -> tuple[Members, ...]:
    """Return which ranks of a group, counted within it, share a server.

    Examples
    --------
    >>> servers_within((1, 5, 4), [(0, 1, 2, 3), (4, 5, 6, 7)])
    ((0,), (1, 2))
    """
    place = {rank: number for number, rank in enumerate(group)}
    inside = [tuple(sorted(place[rank] for rank in host if rank in place)) for host in hosts]
    return tuple(host for host in inside if host)
