"""A schedule of one's own: a Python file with a function ``schedule(ranks, size_bytes)`` that builds it.

The file is run anew for every schedule, as any script of its user would be; nothing is cached beside it. What goes wrong
in it becomes one sentence with its file and line. Whether the schedule does what its collective promises is for
`netsim.schedule.proof` to say.
"""

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from inspect import iscoroutine
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from types import ModuleType
from typing import Any

import numpy as np

from netsim.errors import NetsimError, ScheduleError
from netsim.schedule.checks import check_schedule
from netsim.schedule.collective import ROOTED
from netsim.schedule.dag import COLUMNS, Schedule, ScheduleBuilder

MOST_BYTES = 1 << 20
"""A larger file is refused: it is not a schedule's recipe."""
_FUNCTION = "schedule"
_MODULE = "netsim_own_schedule"


def is_file(algorithm: str) -> bool:
    """Say whether an algorithm is named by a file, not by its name.

    Examples
    --------
    >>> is_file("mine.py"), is_file("plans/mine"), is_file("ring"), is_file("hierarchical:2x8")
    (True, True, False, False)
    """
    return algorithm.endswith((".py", ".xml")) or "/" in algorithm or os.sep in algorithm


def build_own(
    file: str,
    collective: str,
    ranks: int,
    size_bytes: int,
    *,
    root: int = 0,
    align_bytes: int = 1,
    limit: int | None = None,
) -> Schedule:
    """Run a file and return the schedule that its function builds, unproved, named after the file.

    Parameters
    ----------
    file : str
        Path of a Python file with a function ``schedule(ranks, size_bytes)`` that returns a `Schedule`.
    collective, ranks, size_bytes, root
        What the schedule must be for.
    align_bytes, limit
        Taken as by every builder; the file decides its cuts, and the engine counts its messages.

    Raises
    ------
    ScheduleError
        If the file cannot be read or run, or makes something else than was asked for.
    """
    path = Path(file)
    function = _function(path, file)
    try:
        # What the file prints is words for its user, not data.
        with redirect_stdout(sys.stderr):
            made: Any = function(ranks, size_bytes)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _told(error, file) from error
    code = getattr(function, "__code__", None)
    place = f"{file}:{code.co_firstlineno}" if code is not None and code.co_filename == file else file
    if isinstance(made, ScheduleBuilder):
        raise ScheduleError(f"{place}: {_FUNCTION}() returns a ScheduleBuilder; end it with return plan.build()")
    if iscoroutine(made):
        made.close()  # else Python warns that nobody awaited it
    if not isinstance(made, Schedule):
        raise ScheduleError(f"{place}: {_FUNCTION}() returns {type(made).__name__}; it must return a Schedule")
    _check_columns(made, place)
    asked: dict[str, Any] = {"collective": collective, "ranks": ranks, "size_bytes": size_bytes}
    if collective in ROOTED:
        asked["root"] = root
    for name, wanted in asked.items():
        found = getattr(made, name)
        if found != wanted:
            words = name.replace("_", " in ")
            raise ScheduleError(f"{place}: {_FUNCTION}() made a schedule whose {words} is {found}; asked for was {wanted}")
    return replace(made, algorithm=path.name, **asked)


def _check_columns(made: Schedule, place: str) -> None:
    """Check what the builder has checked once more: a file may have put other columns in their place."""
    count = len(made.kind) if isinstance(getattr(made, "kind", None), np.ndarray) else 0
    shapes = {name: (dtype, (count,)) for name, dtype, _ in COLUMNS} | {"requires_start": (np.int64, (count + 1,))}
    for name, (dtype, shape) in shapes.items():
        column = getattr(made, name, None)
        if not isinstance(column, np.ndarray) or column.dtype != dtype or column.shape != shape:
            kind = np.dtype(dtype).name
            raise ScheduleError(f"{place}: the schedule's column {name!r} must be an array of {kind}, shape {shape}")
    try:
        check_schedule(made, np.repeat(np.arange(count), np.diff(made.requires_start)))
    except ScheduleError as error:
        raise ScheduleError(f"{place}: {error}") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ScheduleError(f"{place}: the schedule's columns do not fit each other: {error}") from error


def _function(path: Path, file: str) -> Callable[[int, int], object]:
    """Run the file and return its function."""
    if path.suffix == ".xml":
        raise ScheduleError(f"{file}: schedules from XML files are not yet available; give a Python file (.py)")
    if path.suffix != ".py":
        raise ScheduleError(f"{file}: not the name of an algorithm nor of a Python file (.py)")
    try:
        status = path.stat()
        if not (S_ISREG(status.st_mode) or S_ISDIR(status.st_mode)):
            raise ScheduleError(f"{file}: a device or a pipe; give a Python file with {_FUNCTION}()")
        if status.st_size > MOST_BYTES:
            raise ScheduleError(f"{file}: larger than {MOST_BYTES} bytes, so no recipe of a schedule")
        source = path.read_bytes()
    except OSError as error:
        raise ScheduleError(f"{file}: cannot be read: {error.strerror}; give a Python file with {_FUNCTION}()") from None
    module = ModuleType(_MODULE)
    module.__file__ = file
    # Dataclasses look their module up while the file runs and when its function does.
    sys.modules[_MODULE] = module
    try:
        with redirect_stdout(sys.stderr):
            exec(compile(source, file, "exec"), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _told(error, file) from error
    function: object = getattr(module, _FUNCTION, None)
    if not callable(function):
        raise ScheduleError(f"{file}: has no function {_FUNCTION}(ranks, size_bytes) that returns a Schedule")
    return function


def _told(error: BaseException, file: str) -> NetsimError:
    """Turn what happened in a file into one sentence with the last place in that file."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == file:
        return ScheduleError(f"{file}:{error.lineno}: {error.msg}")
    place = file if line is None else f"{file}:{line}"
    if isinstance(error, NetsimError):
        return type(error)(f"{place}: {error}")
    if isinstance(error, SystemExit):
        return ScheduleError(f"{place}: ends the program instead of returning a Schedule")
    try:
        words = str(error)
    except Exception:
        words = "it has no words for itself"
    return ScheduleError(f"{place}: {type(error).__name__}: {words}")
