"""Read files that others wrote: bounded, regular where asked, XML and YAML without their traps; refused in one sentence.

What the contents mean is the affair of the modules that ask; they give the class of the error and, where it helps, what
they wanted. A file's size on disk says nothing about a device or a pipe, so the limit is held while reading.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from netsim.errors import NetsimError

if TYPE_CHECKING:
    import yaml

_MIB = 1 << 20


def read_limited(path: str | Path, most_bytes: int, error: type[NetsimError] = NetsimError, wanted: str = "") -> bytes:
    """Return the contents of a file, or of anything else that can be opened, that has at most `most_bytes`.

    Parameters
    ----------
    path : str or Path
    most_bytes : int, bytes
    error : type of NetsimError
        What is raised.
    wanted : str
        What the file should be, for messages: ``"a log of NCCL is wanted"``.

    Raises
    ------
    NetsimError
        Of the class `error`, if the file cannot be read or is larger.
    """
    after = f"; {wanted}" if wanted else ""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except FileNotFoundError:
        raise error(f"cannot read {path}: does not exist{after}") from None
    except (OSError, ValueError) as failure:
        # A name that holds a zero byte is a ValueError.
        words = getattr(failure, "strerror", None) or failure
        raise error(f"cannot read {str(path)!r}: {words}{after}") from failure
    if len(data) > most_bytes:
        most = f"{most_bytes} bytes" if most_bytes % _MIB else f"{most_bytes // _MIB} MiB"
        raise error(f"{path}: larger than {most}, the most that such a file may have{after}")
    return data


def read_regular(path: str | Path, most_bytes: int, error: type[NetsimError] = NetsimError, wanted: str = "") -> bytes:
    """Return the contents of a regular file of at most `most_bytes`; parameters and errors as in `read_limited`.

    A pipe would be empty when it is asked for a second time, and one that nobody fills would block.
    """
    try:
        strange = Path(path).exists() and not Path(path).is_file()
    except OSError:
        strange = False  # opening it will say why
    if strange:
        after = f"; {wanted}" if wanted else ""
        kind = "a folder" if Path(path).is_dir() else "a device or a pipe"
        raise error(f"cannot read {path}: it is {kind}, not a file{after}")
    return read_limited(path, most_bytes, error, wanted)


def read_text(path: str | Path, most_bytes: int, error: type[NetsimError] = NetsimError, wanted: str = "") -> str:
    """Return the text of a regular file as `read_regular`; bytes that are no UTF-8 become replacement characters."""
    return read_regular(path, most_bytes, error, wanted).decode("utf-8", errors="replace").removeprefix("\ufeff")


def parse_xml(
    data: bytes,
    where: str,
    what: str,
    start: Callable[[str, dict[str, str], int], None],
    end: Callable[[], None],
    error: type[NetsimError] = NetsimError,
) -> None:
    """Parse XML element by element, without document types and entities, which can blow a small file up or open others.

    Parameters
    ----------
    data : bytes
    where, what : str
        Names the data in messages, and files of its kind: ``"topology files"``.
    start : callable
        Takes the tag, the attributes and the line at which an element begins.
    end : callable
        Called where an element ends.
    error : type of NetsimError
        What is raised.

    Raises
    ------
    NetsimError
        Of the class `error`, if it is no XML or declares a document type or an entity.
    """
    from xml.parsers import expat

    parser = expat.ParserCreate()

    def refuse(*_details: object) -> NoReturn:
        raise error(
            f"{where}: line {parser.CurrentLineNumber}: declares a document type or an entity, which {what} do not need and "
            "which can be used to attack the reader; remove it"
        )

    parser.StartElementHandler = lambda tag, attributes: start(tag, attributes, parser.CurrentLineNumber)
    parser.EndElementHandler = lambda _tag: end()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as failure:
        raise error(f"{where}: not XML: {failure}") from failure
    except (LookupError, ValueError) as failure:
        raise error(f"{where}: not XML that can be read: {failure}") from failure


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
