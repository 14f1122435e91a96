"""How functions are translated by numba where it is there: the one place that decides on cache and flags.

Numba's cache notices a change of the file that holds a function, not of one that the function calls: kernels that call each
other belong into one file.
"""

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def translated(function: _F, **flags: bool) -> _F:
    """Translate a function if numba is there; without it the function stays as it is.

    Parameters
    ----------
    function : callable
        Of arrays and numbers.
    **flags
        Further ones of ``numba.njit``.
    """
    try:
        import numba
    except ImportError:
        return function
    translate: Any = numba.njit  # typed or not, as the release has it
    # No fastmath: an engine must not round otherwise than the others do.
    try:
        made: _F = translate(cache=True, nogil=True, **flags)(function)
    except RuntimeError:  # no folder to keep translations in: as fast, but translated again in every process
        made = translate(nogil=True, **flags)(function)
    return made
