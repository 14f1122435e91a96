"""netsim: how long a collective takes on a GPU machine, by simulating a proved schedule on a described topology.

The front page, in the order of the flow: quantities, topology, schedule, simulation, record, metrics, output. Names are
resolved when first used, so that importing one room does not load the house. Topologies are built by the sibling
package `topologies`, which netsim itself never imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netsim.errors import NetsimError
    from netsim.export.files import write_whole
    from netsim.export.frames import to_frame
    from netsim.export.table import csv_text
    from netsim.export.timeline import timeline_text
    from netsim.fabric import Link, check_fabric
    from netsim.metrics.closed_forms import closed_form
    from netsim.metrics.links import link_loads
    from netsim.metrics.timing import algorithm_bandwidth, bus_bandwidth
    from netsim.record import Record
    from netsim.runs import result_row, simulate, time
    from netsim.schedule.catalogue import build_schedule
    from netsim.schedule.dag import Schedule, ScheduleBuilder
    from netsim.schedule.proof import prove
    from netsim.schedule.replay import replay
    from netsim.units import parse_bytes

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - the order of the flow, not of the alphabet
    "parse_bytes",
    "Link",
    "check_fabric",
    "Schedule",
    "ScheduleBuilder",
    "build_schedule",
    "prove",
    "replay",
    "simulate",
    "time",
    "Record",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "closed_form",
    "link_loads",
    "result_row",
    "csv_text",
    "to_frame",
    "timeline_text",
    "write_whole",
    "NetsimError",
    "__version__",
]

# Where each public name lives.
_HOMES = {
    "parse_bytes": "netsim.units",
    "Link": "netsim.fabric",
    "check_fabric": "netsim.fabric",
    "Schedule": "netsim.schedule.dag",
    "ScheduleBuilder": "netsim.schedule.dag",
    "build_schedule": "netsim.schedule.catalogue",
    "prove": "netsim.schedule.proof",
    "replay": "netsim.schedule.replay",
    "simulate": "netsim.runs",
    "time": "netsim.runs",
    "Record": "netsim.record",
    "algorithm_bandwidth": "netsim.metrics.timing",
    "bus_bandwidth": "netsim.metrics.timing",
    "closed_form": "netsim.metrics.closed_forms",
    "link_loads": "netsim.metrics.links",
    "result_row": "netsim.runs",
    "csv_text": "netsim.export.table",
    "to_frame": "netsim.export.frames",
    "timeline_text": "netsim.export.timeline",
    "write_whole": "netsim.export.files",
    "NetsimError": "netsim.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'netsim' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
