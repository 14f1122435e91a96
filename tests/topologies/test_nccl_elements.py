from pathlib import Path

import pytest

from netsim.errors import FabricError
from topologies.nccl_elements import MOST_BYTES, MOST_DEPTH, parse_elements, read_elements

BOMB = (
    '<!DOCTYPE system [<!ENTITY a0 "x">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    + "]><system>&a11;</system>"
)


def test_elements_keep_attributes_order_and_line() -> None:
    root = parse_elements(b'<system version="1">\n<cpu numaid="1"/>\n<cpu numaid="0"/></system>', "x.xml")
    assert root.attributes == {"version": "1"}
    assert [(cpu.attributes["numaid"], cpu.line) for cpu in root.each("cpu")] == [("1", 2), ("0", 3)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "document type or an entity"),
        ('<!DOCTYPE s [<!ENTITY e SYSTEM "file:///etc/passwd">]><system a="1">&e;</system>', "document type"),
        ('<!DOCTYPE system SYSTEM "http://example.invalid/x.dtd"><system/>', "document type"),
        ("<system><cpu></system>", "not XML: mismatched tag"),
        ('<system version="1"><cpu', "not XML: unclosed token"),
        ("", "not XML: no element found"),
        ("GPU0 GPU1", "not XML: syntax error"),
        ("<system/><system/>", "not XML: junk after document"),
        ('<?xml version="1.0" encoding="klingon"?><system/>', "not XML"),
        ('<system a="1" a="2"/>', "duplicate attribute"),
        ("<system>\x00</system>", "not XML"),
        ("<system>&undefined;</system>", "undefined entity"),
        (f'<system a="{"x" * 5000}"/>', "4096 characters"),
        ('<system a="x&#10;y"/>', "line break"),
        ("<system>" + "<a/>" * 200_001 + "</system>", "200000 elements"),
    ],
)
def test_hostile_and_broken_files_are_refused(text: str, words: str) -> None:
    with pytest.raises(FabricError, match=words) as caught:
        parse_elements(text.encode(), "x.xml")
    assert "x.xml" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_million_nested_elements_stop_at_the_limit() -> None:
    with pytest.raises(FabricError, match=f"more than {MOST_DEPTH} deep"):
        parse_elements(b"<system>" + b"<pci>" * 10**6, "x.xml")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(FabricError, match="not XML"):
        parse_elements(bytes(range(256)) * 10, "x.xml")


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.xml"
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(FabricError, match="may have"):
        read_elements(path)


def test_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.xml"):
        with pytest.raises(FabricError, match="cannot read"):
            read_elements(path)
