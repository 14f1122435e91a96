"""The grid of simulated time: durations are multiples of 2^-55 s, the same in every engine and in every bound.

Sums of them are exact below 0.25 s, so ties between messages do not hang on rounding.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_GRID = 2.0**55


def on_grid(seconds: float) -> float:
    """Round a duration to the nearest multiple of 2^-55 s.

    Examples
    --------
    >>> on_grid(1e-6) == 1e-6, abs(on_grid(1e-6) - 1e-6) < 2**-56
    (False, True)
    """
    # Above 2^-2 s a double has no finer bits than the grid, so nothing is lost; far above, scaling could overflow.
    return round(seconds * _GRID) / _GRID if seconds < 0.5 else seconds


def array_on_grid(seconds: npt.ArrayLike) -> Floats:
    """Round durations to multiples of 2^-55 s, element by element as `on_grid` does.

    One value spread over a length without memory stays that.
    """
    values = np.asarray(seconds, np.float64)
    if values.ndim == 1 and values.strides == (0,) and values.size:
        return np.broadcast_to(array_on_grid(values[0]), values.shape)
    return np.where(values < 0.5, np.rint(values * _GRID) / _GRID, values)
