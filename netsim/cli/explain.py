"""``netsim explain``: why a collective takes that long, which link limits it, and what would change it most."""

import json
import math
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from netsim.cli import options
from netsim.cli.progress import Progress
from scenarios.explain import Explanation, WhatIf, count_runs, explain
from scenarios.run import Spec

EXAMPLE = "netsim explain all_reduce --topology ideal-switch:8@450GB/s,1us --size 64M --algo ring"

_SAME = 1e-9
"""Relative difference below which two times are the same."""
_MUCH = 0.1
"""Part of the time from which waiting is worth a word, and within which a run is near its bound."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("explain", epilog=f"\b\nExample:\n  {EXAMPLE}")
@options.gathers(spec=options.spec, pieces=options.pieces)
def explain_command(
    spec: Spec,
    pieces: dict[str, Any],
    size: options.Size,
    algorithm: options.Algorithm = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Say in three sentences why a collective takes that long, what limits it, and what would change it most."""
    spec = replace(spec, size_bytes=options.size_of(size, "--size"), algorithm=algorithm, **pieces)
    options.mention_textbook(spec)
    with Progress(count_runs(spec)) as progress:
        found = explain(spec, told=progress.step)
    if as_json:
        sys.stdout.write(json.dumps(_plain(found), indent=2, allow_nan=False) + "\n")
    else:
        print("\n".join(sentences(found)))


def sentences(found: Explanation) -> list[str]:
    """Return the three sentences: how long and what limits, where the time goes, what would change it."""
    if not found.chain.segments:
        row = found.row
        return [f"{_what(found)} takes no time: {row.note or 'nothing has to move'}."]
    return [_how_long(found), _where(found), _what_helps(found)]


def _what(found: Explanation) -> str:
    row = found.row
    ranks = f"{row.ranks} rank{'s' * (row.ranks != 1)}"
    return f"{row.collective} of {options.size_words(row.size_bytes)} over {ranks} of {row.topology} by {row.algorithm}"


def _how_long(found: Explanation) -> str:
    row = found.row
    words = f"{_what(found)} takes {_us(row.time_us)}"
    if row.lower_bound_us:
        at = math.isclose(row.time_us, row.lower_bound_us, rel_tol=_SAME)
        words += (
            ", which is its own lower bound" if at else f", {_times(row.time_us / row.lower_bound_us)} its own lower bound"
        )
    if row.collective_bound_us:
        beaten = "no algorithm" if found.in_network else "no algorithm without help of switches"
        least = f"the {_us(row.collective_bound_us)} that {beaten} can beat here"
        at = math.isclose(row.time_us, row.collective_bound_us, rel_tol=_SAME)
        words += f" and equal to {least}" if at else f" and {_times(row.time_us / row.collective_bound_us)} {least}"
    if not row.bottleneck:
        return f"{words}; it uses no link."
    kind = "" if found.bottleneck_kind == row.bottleneck else f" ({found.bottleneck_kind})"
    among = "" if found.alike < 2 else f", like {found.alike - 1} more,"
    busy = row.bottleneck_utilisation or 0.0
    limits = "limits it" if busy >= 0.5 else "is the busiest link but no limit"
    return f"{words}; {row.bottleneck}{kind}{among} {limits}: it serves during {busy:.1%} of that time."


def _where(found: Explanation) -> str:
    split = found.chain.split_s()
    shares = []
    for part in ("latency", "serialisation", "waiting"):
        # Links do not rest while something waits for them: its time is the service of other messages.
        name = "waiting while links serve other messages" if part == "waiting" and split[part] else part
        words = f"{split[part] / found.chain.time_s:.1%} is {name} ({_us(split[part] * 1e6)}"
        places = found.by_kind_us(part)
        if part != "latency" and places:
            kind, spent = next(iter(places.items()))
            words += f", {'all' if len(places) == 1 else f'{spent / sum(places.values()):.0%}'} at {kind} links"
        shares.append(words + ")")
    rest = "launch and compute take nothing"
    if split["launch"] or split["compute"]:
        rest = f"launch takes {_us(split['launch'] * 1e6)} and compute {_us(split['compute'] * 1e6)}"
    count = len(found.chain.operations)
    chain = f"chain of {count} operations" if count > 1 else "one operation"
    queue = ""
    # The busiest link has its work to do in whatever order messages come.
    rest_share = 1 - (found.row.bottleneck_utilisation or 0.0)
    if split["waiting"] >= _MUCH * found.chain.time_s and rest_share < _MUCH:
        queue = f"; no other order of these messages could save more than {max(rest_share, 0.001):.1%}"
    return f"Of the {chain} that set this time, {', '.join(shares)}{queue}; {rest}."


def _what_helps(found: Explanation) -> str:
    gains = [item for item in found.what_ifs if item.gains]
    rest = [item for item in found.what_ifs if not item.gains and item.what != "algorithm"]
    others = [item for item in found.what_ifs if item.what == "algorithm"]
    if not gains:
        words = "Nothing that was tried makes it faster"
    else:
        best = gains[0]
        words = f"Run again, {best.words} helps most: {_told(best)}"
        # Of the other algorithms only the best is told; the rest stands in the JSON.
        more = [item for item in gains[1:] if item.what != "algorithm" or (item == others[0] and best.what != "algorithm")]
        words += "".join(f", {item.words} {_told(item)}" for item in more)
    words += "".join(f"; no gain from {item.words} ({_told(item)})" for item in rest)
    if others and not others[0].gains:
        name = others[0].words.partition(" instead")[0]
        words += f"; no other algorithm is faster (the next is {name}: {_us(others[0].time_us)})"
    return f"{words}."


def _told(item: WhatIf) -> str:
    change = f"{item.change:+.1%}"
    if change in ("+0.0%", "-0.0%"):
        change = "the same" if abs(item.change) < _SAME else f"{item.change * 100:+.1g}%"
    return f"{_us(item.time_us)}, {change}"


def _times(ratio: float) -> str:
    """Say how many times as long, in as many digits as tell it from once.

    Examples
    --------
    >>> _times(1.0164), _times(2.5), _times(1.0000123)
    ('1.02 times', '2.5 times', '1.00001 times')
    """
    digits = next((digits for digits in range(3, 12) if f"{ratio:.{digits}g}" != "1"), 12)
    return f"{ratio:.{digits}g} times"


def _us(time_us: float) -> str:
    return f"{time_us:.3f} us" if time_us < 1e4 else f"{time_us:.1f} us"


def _plain(found: Explanation) -> dict[str, Any]:
    """Return everything as plain data; times in microseconds, parts as fractions."""
    row = found.row
    return {
        "collective": row.collective,
        "topology": row.topology,
        "ranks": row.ranks,
        "algorithm": row.algorithm,
        "protocol": row.protocol,
        "size_bytes": row.size_bytes,
        "time_us": row.time_us,
        "algbw_GBps": row.algbw_GBps,
        "busbw_GBps": row.busbw_GBps,
        "lower_bound_us": row.lower_bound_us,
        "collective_bound_us": row.collective_bound_us,
        "bottleneck": {
            "link": row.bottleneck,
            "kind": found.bottleneck_kind,
            "utilisation": row.bottleneck_utilisation,
            "links_as_busy": found.alike,
        },
        "split_us": {part: seconds * 1e6 for part, seconds in found.chain.split_s().items()},
        "critical_chain": {
            "operations": len(found.chain.operations),
            "serialisation_us_by_kind": found.by_kind_us("serialisation"),
            "waiting_us_by_kind": found.by_kind_us("waiting"),
            "waiting_us_by_link": {
                found.edges[link]: seconds * 1e6 for link, seconds in found.chain.by_link_s("waiting").items()
            },
        },
        "what_if": [
            {"change": item.words, "what": item.what, "time_us": item.time_us, "relative": item.change, "gain": item.gains}
            for item in found.what_ifs
        ],
        "not_run": [{"algorithm": name, "why": why} for name, why in found.refused],
        "sentences": sentences(found),
        "engine": row.engine,
        "version": row.version,
        "topology_digest": row.topology_digest,
    }
