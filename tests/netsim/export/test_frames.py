"""Rows and records become data frames, and pandas is loaded only then."""

import subprocess
import sys

import pytest

import netsim
from netsim.errors import NetsimError
from netsim.export.frames import to_frame
from netsim.export.table import COLUMNS
from netsim.testing import star

SCHEDULE = netsim.build_schedule("broadcast", "chain", 3, 1000, chunks=1)


def test_rows_keep_the_columns_of_the_csv():
    rows = [netsim.result_row(star(3), SCHEDULE, netsim.simulate(star(3), SCHEDULE), scenario=name) for name in "ab"]
    frame = to_frame(rows)
    assert tuple(frame.columns) == COLUMNS
    assert frame["scenario"].tolist() == ["a", "b"]
    assert frame["time_us"].tolist() == pytest.approx([4.0, 4.0])  # two messages of 1 us and 1 us of latency


def test_a_record_has_one_line_an_operation():
    record = netsim.simulate(star(3), SCHEDULE)
    frame = to_frame(record, SCHEDULE)
    assert frame[["kind", "src", "dst", "size", "lane"]].to_numpy().tolist() == [
        ["transfer", 0, 1, 1000, "0 down"],
        ["transfer", 1, 2, 1000, "1 down"],
    ]
    assert frame["end_s"].tolist() == record.end_s.tolist()
    assert list(to_frame(record).columns) == ["start_s", "end_s"]


def test_links_become_lines_busiest_first():
    frame = to_frame(netsim.link_loads(netsim.simulate(star(3), SCHEDULE, record="links")))
    assert frame["name"].tolist() == ["gpu0->switch", "gpu1->switch", "switch->gpu1", "switch->gpu2"]
    assert frame["waiting_s"].tolist() == [0.0] * 4


def test_what_has_no_lines_is_refused():
    with pytest.raises(NetsimError, match="summary without times of operations"):
        to_frame(netsim.simulate(star(3), SCHEDULE, record="summary"))
    with pytest.raises(NetsimError, match="of 2 operations, the schedule has 6"):
        to_frame(netsim.simulate(star(3), SCHEDULE), netsim.build_schedule("alltoall", "direct", 3, 3000))
    with pytest.raises(NetsimError, match="takes a Record, or rows"):
        to_frame([1, 2])
    with pytest.raises(NetsimError, match="takes a Record, or rows"):
        to_frame(None)


def test_naming_it_loads_no_pandas():
    code = "import sys, netsim; netsim.to_frame; print('pandas' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
