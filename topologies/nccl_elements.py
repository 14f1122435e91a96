"""Read an NCCL XML file into plain elements, safely: no document type, no entities, bounded size, depth and count.

First half of the NCCL importer; what the elements mean is `topologies.nccl_xml`'s affair. Text between tags is ignored,
as NCCL itself does.
"""

from dataclasses import dataclass, field
from pathlib import Path

from netsim.errors import FabricError
from netsim.reading import parse_xml, read_regular

MOST_BYTES = 16 << 20
MOST_DEPTH = 64
MOST_ELEMENTS = 200_000
_MOST_ATTRIBUTE_CHARACTERS = 4096


@dataclass
class Element:
    """One XML element: its tag, its attributes, its children, and the line it begins on."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def each(self, tag: str) -> list["Element"]:
        """Return the children with a tag, in the order of the file."""
        return [child for child in self.children if child.tag == tag]

    def holds(self, tag: str) -> bool:
        """Say whether an element with a tag stands anywhere below."""
        return any(child.tag == tag or child.holds(tag) for child in self.children)


def read_elements(path: Path) -> Element:
    """Parse a file and return its root element.

    Raises
    ------
    FabricError
        If the file cannot be read, is too large or too deep, is not XML, or declares a document type or an entity.
    """
    return parse_elements(
        read_regular(path, MOST_BYTES, FabricError, "a topology as NCCL writes it (NCCL_TOPO_DUMP_FILE) is wanted"),
        str(path),
    )


def parse_elements(data: bytes, where: str) -> Element:
    """Parse XML that has been read already; `where` names it in error messages."""
    stack: list[Element] = []
    roots: list[Element] = []
    count = 0

    def start(tag: str, attributes: dict[str, str], line: int) -> None:
        nonlocal count
        count += 1
        if len(stack) >= MOST_DEPTH:
            raise FabricError(f"{where}: line {line}: elements are nested more than {MOST_DEPTH} deep; a topology is not")
        if count > MOST_ELEMENTS:
            raise FabricError(f"{where}: line {line}: more than {MOST_ELEMENTS} elements; one machine has fewer")
        if any(len(value) > _MOST_ATTRIBUTE_CHARACTERS for value in attributes.values()):
            raise FabricError(f"{where}: line {line}: an attribute has more than {_MOST_ATTRIBUTE_CHARACTERS} characters")
        for name, value in attributes.items():
            if not value.isprintable():
                words = f"{name}={value!r} holds a line break or another character that cannot be printed"
                raise FabricError(f"{where}: line {line}: <{tag}> has {words}")
        element = Element(tag, attributes, line)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def end() -> None:
        stack.pop()

    parse_xml(data, where, "topology files", start, end, FabricError)
    return roots[0]
