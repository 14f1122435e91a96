"""Rows and records as pandas data frames, for those who go on in a notebook.

Pandas is imported here, inside the function, and nowhere else: nothing that netsim computes needs it.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.errors import NetsimError
from netsim.record import Record
from netsim.schedule.dag import KIND_NAMES, Schedule

if TYPE_CHECKING:
    import pandas as pd


def to_frame(data: Record | Iterable[Any], schedule: Schedule | None = None) -> "pd.DataFrame":
    """Return results as a data frame.

    Parameters
    ----------
    data : Record, or iterable of Row or LinkLoad
        A record becomes one line an operation, by id; rows and link loads become one line each.
    schedule : Schedule, optional
        What a record ran: adds what each operation is.

    Returns
    -------
    pandas.DataFrame
        The columns are named as the fields are: seconds and bytes for a record, nccl-tests' units for rows.

    Raises
    ------
    NetsimError
        If a record has no times of operations or is of another schedule, or what was given are no rows.

    Examples
    --------
    >>> import netsim, topologies
    >>> schedule = netsim.build_schedule("broadcast", "chain", 3, "1 kB", chunks=1)
    >>> record = netsim.simulate(topologies.build("ideal-switch:3@1GB/s,1us"), schedule)
    >>> to_frame(record, schedule)[["src", "dst", "size", "end_s"]].round(9)
       src  dst  size     end_s
    0    0    1  1000  0.000002
    1    1    2  1000  0.000004
    """
    import pandas as pd

    if isinstance(data, Record):
        return _operations(data, schedule)
    rows = list(data) if isinstance(data, Iterable) else [data]
    if not all(is_dataclass(row) and not isinstance(row, type) for row in rows):
        raise NetsimError("to_frame takes a Record, or rows such as those of netsim.result_row and netsim.link_loads")
    names = list(dict.fromkeys(field.name for row in rows for field in fields(row)))
    return pd.DataFrame([[getattr(row, name, None) for name in names] for row in rows], columns=names)


def _operations(record: Record, schedule: Schedule | None) -> "pd.DataFrame":
    import pandas as pd

    if not len(record.end_s) and len(record.op_class):
        raise NetsimError("this record is a summary without times of operations; simulate with record='all'")
    columns: dict[str, Any] = {}
    if schedule is not None:
        if len(schedule) != len(record.op_class):
            raise NetsimError(
                f"this record is of {len(record.op_class)} operations, the schedule has {len(schedule)}: it is another one"
            )
        columns = {name: getattr(schedule, name) for name in ("src", "dst", "size", "chunk", "step")}
        columns = {"kind": np.array(KIND_NAMES)[schedule.kind], **columns}
        columns["lane"] = [f"{rank} {role}" for rank, role in (schedule.lane_names[lane] for lane in schedule.lane)]
    columns |= {"start_s": record.start_s, "end_s": record.end_s}
    return pd.DataFrame(columns)
