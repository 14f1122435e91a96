"""The JSON that nccl-tests writes with ``-J`` as the log that the same run would have printed.

So whatever reads logs reads this too (`scenarios.measured`, `scenarios.logged`), and there is one place that knows a row.
A file that ends in the middle, as a stopped run leaves it, keeps the rows that are whole. Left out: what no log says, such
as the time of day.
"""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

_MOST_CUTS = 64
"""How many ends are tried before a torn file is given up; a row has three objects that could be the last whole one."""


def as_log(text: str) -> str:
    """Return a log with what a JSON file of nccl-tests says; any other text comes back as it is.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> row = '{"size": 8, "count": 2, "type": "float", "redop": "sum", "root": "-1", "out_of_place": '
    >>> print(as_log('{"results": [' + row + '{"time": 9.5, "alg_bw": 0.0008, "bus_bw": 0.0008, "nwrong": null}}]}'))
    8 2 float sum -1 9.5 0.0008 0.0008 N/A
    """
    if not text.lstrip().startswith("{"):
        return text
    report = _parsed(text.strip())
    if report is None or not isinstance(report.get("results", report.get("config")), list | dict):
        return text
    return "\n".join(_lines(report))


def _parsed(text: str) -> dict[str, Any] | None:
    """Return the object of a file; of a torn one, what comes before the last place from which it can be closed."""
    ends = [text, text + "]}", text + "}"]
    cut = len(text)
    for _ in range(_MOST_CUTS):
        cut = text.rfind("}", 0, cut)
        if cut < 0:
            break
        ends += [text[: cut + 1] + "]}", text[: cut + 1] + "}"]
    for end in ends:
        try:
            found = json.loads(end)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a log; what is missing or of another kind than nccl-tests writes is passed over."""
    library, arguments = report.get("nccl_version"), _texts(report.get("args"))
    if isinstance(library, int):
        yield f"# nccl-tests nccl-library={library}"
    if arguments:
        yield f"# Collective test starting: {PurePosixPath(arguments[0]).name}"
        yield f"# {' '.join([PurePosixPath(arguments[0]).name, *arguments[1:]])}"
    config = report.get("config")
    if isinstance(config, dict):
        yield (
            f"# nThread {config.get('nthreads')} nGpus {config.get('ngpus')} minBytes {config.get('minimum_bytes')} "
            f"maxBytes {config.get('maximum_bytes')} iters: {config.get('iterations')} graph: {config.get('graph', 0)}"
        )
        for device in _objects(config.get("devices")):
            yield (
                f"#  Rank {device.get('rank')} Group {device.get('group')} Pid {device.get('pid')} on "
                f"{device.get('hostname')} device {device.get('device')} [{device.get('device_hex')}] "
                f"{device.get('device_info')}"
            )
    for assignment in _texts(report.get("env")):
        name, equals, value = assignment.partition("=")
        if name.startswith("NCCL_") and equals:
            yield f"json:0:0 [0] NCCL INFO {name} set by environment to {value}."
    for row in _objects(report.get("results")):
        place = row.get("out_of_place")
        if isinstance(place, dict):
            wrong = "N/A" if place.get("nwrong") is None else place["nwrong"]
            head = " ".join(str(row.get(key)).strip() for key in ("size", "count", "type", "redop", "root"))
            time_us = place.get("time", place.get("cpu_time"))
            yield f"{head} {time_us} {place.get('alg_bw')} {place.get('bus_bw')} {wrong}"
    bounds = report.get("out_of_bounds")
    if isinstance(bounds, dict):
        yield f"# Out of bounds values : {bounds.get('count')} {'OK' if bounds.get('okay') == 'true' else 'FAILED'}"


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
