"""Shortest ways over integer adjacency: breadth-first searches from both ends, and all next hops towards one node.

The part of routing that knows nothing of ranks, hosts or policies: nodes are integers, an adjacency lists (node, edge)
for each, and a list of flags says through which nodes a way may pass. Ends may always be reached.
"""

Adjacency = list[list[tuple[int, int]]]


class Ways:
    """Shortest ways to one node: for each node its next hops as (node, edge), and the greatest width from there."""

    def __init__(self) -> None:
        self.hops: dict[int, list[tuple[int, int]]] = {}
        self.width: dict[int, float] = {}


def ways_between(
    out: Adjacency, into: Adjacency, transit: list[bool], widths: list[float], a: int, b: int, length: int | None
) -> Ways:
    """Return the shortest ways between two nodes, searched from both ends; `length` is what `distance` returned."""
    if length is None:
        return Ways()
    middle = length // 2
    left = _levels(out, transit, a, b, middle)
    right = _levels(into, transit, b, a, length - middle)
    # A node at forward distance d is on a shortest way if its backward distance is length - d. Near the start only
    # forward distances are known, so prune backwards from the meeting level.
    levels = [set[int]()] * middle + [left[middle] & right[length - middle]]
    for level in range(middle - 1, -1, -1):
        levels[level] = {node for node in left[level] if any(hop[0] in levels[level + 1] for hop in out[node])}
    return _ways(out, transit, widths, levels + [right[length - level] for level in range(middle + 1, length + 1)], b)


def ways_to(out: Adjacency, into: Adjacency, transit: list[bool], widths: list[float], b: int) -> Ways:
    """Return the shortest ways from every node to one."""
    levels = [{b}]
    seen = {b}
    while levels[-1]:
        following = set()
        for node in levels[-1]:
            if node == b or transit[node]:
                for other, _ in into[node]:
                    if other not in seen:
                        seen.add(other)
                        following.add(other)
        levels.append(following)
    return _ways(out, transit, widths, levels[::-1], b)


def distance(out: Adjacency, into: Adjacency, transit: list[bool], a: int, b: int) -> int | None:
    """Return the number of links of a shortest way, None where there is none.

    Grows the side whose next level is cheaper to look at, so that a way between neighbours in a large cluster never
    walks over all ports of a network switch.
    """
    if a == b:
        return 0
    seen_a, seen_b = {a}, {b}
    front_a, front_b = {a}, {b}
    length = 0
    while front_a and front_b:
        length += 1
        if sum(len(out[node]) for node in front_a) <= sum(len(into[node]) for node in front_b):
            front_a = _grow(out, transit, front_a, seen_a, b)
            met = front_a & seen_b
        else:
            front_b = _grow(into, transit, front_b, seen_b, a)
            met = front_b & seen_a
        if met:
            return length
    return None


def _ways(out: Adjacency, transit: list[bool], widths: list[float], levels: list[set[int]], b: int) -> Ways:
    """Return next hops and greatest widths of the nodes of levels that end at `b`, next hops in order of creation."""
    ways = Ways()
    ways.width[b] = float("inf")
    for here, ahead in zip(levels[-2::-1], levels[:0:-1], strict=True):
        for node in here:
            hops = [hop for hop in out[node] if hop[0] in ahead and (hop[0] == b or transit[hop[0]])]
            if hops:
                ways.hops[node] = hops
                ways.width[node] = max(min(widths[edge], ways.width[other]) for other, edge in hops)
    return ways


def _levels(adjacency: Adjacency, transit: list[bool], start: int, goal: int, depth: int) -> list[set[int]]:
    """Breadth-first levels 0 to `depth` from a node, of nodes that forward and the goal."""
    levels = [{start}]
    seen = {start}
    for _ in range(depth):
        levels.append(_grow(adjacency, transit, levels[-1], seen, goal))
    return levels


def _grow(adjacency: Adjacency, transit: list[bool], front: set[int], seen: set[int], goal: int) -> set[int]:
    """Return the unseen neighbours of a level that forward, or are the goal, and mark all neighbours as seen."""
    following = set()
    for node in front:
        for other, _ in adjacency[node]:
            if other not in seen:
                seen.add(other)
                if transit[other] or other == goal:
                    following.add(other)
    return following
