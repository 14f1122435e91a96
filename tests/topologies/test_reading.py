import os
from pathlib import Path

import pytest

from netsim.errors import FabricError, ScenarioError
from topologies.reading import read_limited, read_regular


def test_a_file_of_the_limit_is_read_and_one_byte_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_limited(path, 5, ScenarioError) == b"12345"
    with pytest.raises(ScenarioError, match="larger than 4 bytes"):
        read_limited(path, 4, ScenarioError)


def test_a_name_with_a_zero_byte_is_refused_in_words() -> None:
    with pytest.raises(ScenarioError, match="cannot read"):
        read_limited(Path("a\0b"), 5, ScenarioError)


def test_a_folder_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="it is a directory or a device"):
        read_regular(tmp_path, 5)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_that_nobody_fills_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.xml")
    with pytest.raises(FabricError, match="regular file"):
        read_regular(tmp_path / "pipe.xml", 5)
