from pathlib import Path

import pytest

from netsim.errors import NetsimError
from netsim.nccl.text_file import read_bytes, read_text


def test_text_is_read_whatever_bytes_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes(b"\xef\xbb\xbfa\xffb")
    assert read_text(path, "text is wanted", 6) == "a\ufffdb"


def test_a_larger_file_is_refused_and_one_of_that_size_is_not(tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(bytes(1 << 20))
    assert len(read_bytes(path, "less is wanted", 1 << 20)) == 1 << 20
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(NetsimError, match="some.bin: larger than 1 MiB; less is wanted"):
        read_bytes(path, "less is wanted", 1 << 20)


@pytest.mark.parametrize("name", ["none", "a\0b", "a" * 5000])
def test_what_is_no_file_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(NetsimError, match="a file is wanted") as caught:
        read_bytes(tmp_path / name, "a file is wanted", 9)
    assert "\n" not in str(caught.value)
