import os
from pathlib import Path

import pytest

from netsim.errors import FabricError, NetsimError, ScenarioError
from netsim.reading import parse_xml, read_limited, read_regular, read_text


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
    with pytest.raises(FabricError, match="it is a folder, not a file; a topology is wanted"):
        read_regular(tmp_path, 5, FabricError, "a topology is wanted")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_that_nobody_fills_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.xml")
    with pytest.raises(FabricError, match="it is a device or a pipe, not a file"):
        read_regular(tmp_path / "pipe.xml", 5, FabricError)


def test_text_is_read_whatever_bytes_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes(b"\xef\xbb\xbfa\xffb")
    assert read_text(path, 6, wanted="text is wanted") == "a\ufffdb"


def test_the_most_is_said_in_units_that_people_use(tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(bytes(1 << 20))
    assert len(read_regular(path, 1 << 20)) == 1 << 20
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(NetsimError, match="some.bin: larger than 1 MiB, .*; less is wanted"):
        read_regular(path, 1 << 20, wanted="less is wanted")


@pytest.mark.parametrize("name", ["none", "a\0b", "a" * 5000])
def test_what_is_no_file_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(NetsimError, match="a file is wanted") as caught:
        read_regular(tmp_path / name, 9, wanted="a file is wanted")
    assert "\n" not in str(caught.value)


def test_xml_is_told_element_by_element_with_its_lines() -> None:
    seen: list[tuple[str, dict[str, str], int] | None] = []
    parse_xml(b"<a>\n<b c='1'/></a>", "it", "files", lambda *element: seen.append(element), lambda: seen.append(None))
    assert seen == [("a", {}, 1), ("b", {"c": "1"}, 2), None, None]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<a>", "it: not XML: no element found"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "it: not XML"),
        (
            b'<!DOCTYPE g [<!ENTITY a "b">]><a/>',
            "it: line 1: declares a document type or an entity, which files do not need",
        ),
    ],
)
def test_xml_that_is_none_or_declares_entities_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(FabricError, match=words):
        parse_xml(data, "it", "files", lambda *_: None, lambda: None, FabricError)
