"""Read files that others wrote: never more bytes than a limit, and YAML into plain values with only yaml's own errors.

What the contents mean is the affair of the modules that ask. A file's size on disk says nothing about a device or a
pipe, so the limit is held while reading.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsim.errors import FabricError, NetsimError

if TYPE_CHECKING:
    import yaml


def read_limited(path: Path, most_bytes: int, error: type[NetsimError]) -> bytes:
    """Return the contents of a file that has at most `most_bytes`.

    Raises
    ------
    NetsimError
        Of the class `error`, if the file cannot be read or is larger.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as failure:
        # A name that holds a zero byte is a ValueError.
        raise error(f"cannot read {path}: {getattr(failure, 'strerror', None) or failure}") from failure
    if len(data) > most_bytes:
        raise error(f"{path}: larger than {most_bytes} bytes, the most that such a file may have")
    return data


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return the contents of a topology file, which is a regular file of at most `most_bytes`.

    A pipe would be empty when the topology is asked for a second time, and one that nobody fills would block.

    Raises
    ------
    FabricError
        If there is no such file, or it is no regular file, cannot be read or is larger.
    """
    if path.exists() and not path.is_file():
        raise FabricError(f"cannot read {path}: it is a directory or a device; a topology is a regular file")
    return read_limited(path, most_bytes, FabricError)


def safe_yaml() -> "type[yaml.SafeLoader]":
    """Return yaml's safe loader: the compiled one where it is installed, which is about ten times as fast."""
    import yaml

    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return loader


UNREADABLE: tuple[type[Exception], ...] = (ValueError, LookupError, AttributeError, TypeError)
"""What yaml's constructors raise, beside YAMLError, for a value that is not what its tag says (``!!bool "abc"``)."""


def first_problem(error: Any) -> tuple[int | None, str]:
    """Return the line, counted from 1, and the words of an error that yaml raised."""
    mark = getattr(error, "problem_mark", None)
    words = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return None if mark is None else mark.line + 1, " ".join(str(words).split())
