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
from pathlib import Path
from types import ModuleType
from typing import Any

from netsim.errors import NetsimError, ScheduleError
from netsim.schedule.collective import ROOTED
from netsim.schedule.dag import Schedule, ScheduleBuilder

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
    except (Exception, SystemExit) as error:
        raise _told(error, file) from error
    code = getattr(function, "__code__", None)
    place = f"{file}:{code.co_firstlineno}" if code is not None and code.co_filename == file else file
    if isinstance(made, ScheduleBuilder):
        raise ScheduleError(f"{place}: {_FUNCTION}() returns a ScheduleBuilder; end it with return plan.build()")
    if not isinstance(made, Schedule):
        raise ScheduleError(f"{place}: {_FUNCTION}() returns {type(made).__name__}; it must return a Schedule")
    asked = {"collective": collective, "ranks": ranks, "size_bytes": size_bytes}
    if collective in ROOTED:
        asked["root"] = root
    for name, wanted in asked.items():
        found = getattr(made, name)
        if found != wanted:
            words = name.replace("_", " in ")
            raise ScheduleError(f"{place}: {_FUNCTION}() made a schedule whose {words} is {found}; asked for was {wanted}")
    return replace(made, algorithm=path.name)


def _function(path: Path, file: str) -> Callable[[int, int], object]:
    """Run the file and return its function."""
    if path.suffix == ".xml":
        raise ScheduleError(f"{file}: schedules from XML files are not yet available; give a Python file (.py)")
    if path.suffix != ".py":
        raise ScheduleError(f"{file}: not the name of an algorithm nor of a Python file (.py)")
    try:
        if path.stat().st_size > MOST_BYTES:
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
    except (Exception, SystemExit) as error:
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
    return ScheduleError(f"{place}: {type(error).__name__}: {error}")
