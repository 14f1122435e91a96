"""The text of a scenario file as plain data, with the line of every entry; what the schema cannot see is checked here.

Beside `scenarios.spec`, which says what the data may be.
"""

import re
import reprlib
from pathlib import Path
from typing import Any

import yaml

from netsim.errors import ScenarioError
from netsim.reading import UNREADABLE, first_problem, read_limited, safe_yaml

MOST_BYTES = 8 << 20
"""A larger scenario file is refused; topologies of that size are built in Python."""
MOST_RUNS = 100_000
"""Entries of a file, and runs of a scenario, beyond which either is refused."""

_PLAIN_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_INTEGER_TAG = "tag:yaml.org,2002:int"

Lines = dict[tuple[str | int, ...], int]
"""Path of keys and positions -> line in the file."""


def read_scenario(path: Path) -> tuple[dict[str, Any], Lines]:
    """Parse a file into plain data and the line of every entry; only what the schema cannot see is checked here."""
    data = read_limited(path, MOST_BYTES, ScenarioError)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    try:
        loader = safe_yaml()(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ScenarioError(f"{path}:1: a scenario is a mapping of keys such as topology, collective and sizes")
        lines: Lines = {(): 1}
        return _plain(loader, root, (), path, lines), lines
    except yaml.YAMLError as error:
        line, words = first_problem(error)
        raise ScenarioError(f"{path}{f':{line}' if line else ''}: not YAML: {words}") from None
    except RecursionError:
        raise ScenarioError(f"{path}: not readable as YAML: nested too deeply for a scenario, or within itself") from None


def _plain(loader: yaml.SafeLoader, node: yaml.Node, place: tuple[str | int, ...], path: Path, lines: Lines) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(place, line)
    if len(lines) > MOST_RUNS:
        # An alias is one line of the file and may stand for a list of lists of lists.
        raise ScenarioError(f"{path}:{line}: more than {MOST_RUNS} entries")
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ScenarioError(f"{path}:{line}: a key must be a word")
            key = key_node.value
            if key in values:
                raise ScenarioError(f"{path}:{line}: the key {key!r} stands there twice")
            lines[(*place, key)] = line
            # A topology written into the file is read, and checked, by the topologies package.
            opaque = (*place, key) == ("topology",) and isinstance(value_node, yaml.MappingNode)
            values[key] = {"nodes": "in this file"} if opaque else _plain(loader, value_node, (*place, key), path, lines)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, item, (*place, index), path, lines) for index, item in enumerate(node.value)]
    if node.tag == _INTEGER_TAG and not _PLAIN_INTEGER.fullmatch(node.value):
        raise ScenarioError(
            f"{path}:{line}: YAML reads {node.value!r} as the number {_value(loader, node, path)}; "
            "write the number itself, or quotes"
        )
    return _value(loader, node, path)


def _value(loader: yaml.SafeLoader, node: yaml.Node, path: Path) -> Any:
    """Return the plain value of a scalar; a tag that it does not suit has many ways to fail."""
    try:
        return loader.construct_object(node)
    except UNREADABLE:
        kind = node.tag.rpartition(":")[2]
        raise ScenarioError(
            f"{path}:{node.start_mark.line + 1}: not readable as YAML: {reprlib.repr(node.value)} is no {kind}"
        ) from None


def line_of(lines: Lines, place: tuple[str | int, ...]) -> int:
    """Return the line of the deepest part of a place that stands in the file."""
    while place not in lines:
        place = place[:-1]
    return lines[place]
