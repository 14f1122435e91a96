"""Read a file that a user names, whole or not at all: bounded, and refused in one sentence."""

from pathlib import Path

from netsim.errors import NetsimError


def read_text(path: str | Path, wanted: str, most_bytes: int) -> str:
    """Return the text of a file; bytes that are no UTF-8 become replacement characters. As `read_bytes`."""
    return read_bytes(path, wanted, most_bytes).decode("utf-8", errors="replace").removeprefix("\ufeff")


def read_bytes(path: str | Path, wanted: str, most_bytes: int) -> bytes:
    """Return what a file holds.

    Parameters
    ----------
    path : str or Path
    wanted : str
        What the file should be, for messages: ``"a log of NCCL is wanted"``.
    most_bytes : int, bytes
        Larger files are refused.

    Raises
    ------
    NetsimError
        If it cannot be read, is no regular file or is too large.
    """
    source = Path(path)
    try:
        if not source.is_file():
            words = "is no regular file" if source.exists() else "does not exist"
            raise NetsimError(f"{source}: {words}; {wanted}")
        with source.open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        words = (error.strerror or str(error)) if isinstance(error, OSError) else "its name holds a zero byte"
        raise NetsimError(f"{str(source)!r}: cannot be read: {words}; {wanted}") from error
    if len(data) > most_bytes:
        raise NetsimError(f"{source}: larger than {most_bytes >> 20} MiB; {wanted}")
    return data
