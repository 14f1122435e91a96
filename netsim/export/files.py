"""Write a result file so that it is either the whole new one or the untouched old one.

What can be known beforehand about a file that cannot be written is said before a long run, not after it.
"""

import os
import stat
from pathlib import Path

from netsim.errors import NetsimError


def check_target(name: str | Path, option: str = "--csv") -> Path:
    """Return the path that a result will be written to, after a look at whether that can work.

    Parameters
    ----------
    name : str or Path
        File name; its folder need not exist yet.
    option : str
        Where the name was given, for the error message.

    Returns
    -------
    Path

    Raises
    ------
    NetsimError
        If the name is empty or a folder's, or its folder cannot be made or written to.
    """
    path = Path(name)
    if not str(name):
        raise NetsimError(f"{option}: the file name is empty; give a name such as rows.csv")
    try:
        if path.is_dir():
            raise NetsimError(f"{option}: {str(name)!r} is a folder; give the name of a file")
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise NetsimError(f"{option}: cannot write {str(name)!r}: {str(folder)!r} is not a folder")
        _look_up(path)
    except OSError as error:
        raise NetsimError(f"{option}: cannot write {str(name)!r}: {error.strerror or error}") from error
    place = path if _is_device(path) else folder
    if not os.access(place, os.W_OK):
        raise NetsimError(f"{option}: cannot write {str(name)!r}: no permission to write {str(place)!r}")
    return path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file of text or bytes; it appears complete or not at all.

    The content goes to a temporary name in the same folder first; the folder is made if it is missing. A link is followed
    and a device or pipe is written to, as by a shell: neither is ever replaced.

    Raises
    ------
    NetsimError
        If the file cannot be written.
    """
    import tempfile  # only where used: a run that writes no file starts without it

    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_device(path):
            with path.open("wb") as stream:
                stream.write(data)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        before = _look_up(target)
        mode = 0o666 & ~_umask() if before is None else stat.S_IMODE(before.st_mode)
        handle, temporary = tempfile.mkstemp(prefix=".netsim-", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise NetsimError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _look_up(path: Path) -> os.stat_result | None:
    """Return what stands under a name, links followed; None if nothing does."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _is_device(path: Path) -> bool:
    """Say whether a name stands for something to write into rather than a file to replace (also /dev/stdout > file)."""
    found = _look_up(path)
    return found is not None and (not stat.S_ISREG(found.st_mode) or str(path).startswith(("/dev/", "/proc/")))


def _umask() -> int:
    """Read the process's file mask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
