"""Samples of one series -> floor, gap and rate with confidence: the figures of a link in netsim's model.

The model is ``t(n) = max(floor, alpha + n / B)``, where alpha is what `netsim.fabric.Link` calls a gap if copies followed
each other back to back. Fitted is the logarithm of the times, so that 4 B count as much as 256 MiB, by least squares with
Huber's weights, so that a disturbed point counts little. A floor is fitted only where it explains far more than a line
alone. Intervals of 95 % come from the linearised covariance of that estimate and Student's t; they cover the noise of the
medians, not what a link does beside the model. NumPy only, so that all of it runs without a GPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrate.samples import Sample, SeriesKey
from netsim.errors import NetsimError

Array = npt.NDArray[np.float64]

TOLERANCE = 0.05
"""How far a fitted time may be from a measured one before it is said."""
LEAST_SIZES = 5
"""Sizes that a fit of three parameters needs."""

_HUBER = 1.5
_FINEST = 1e-4  # relative; no clock is better, and data without noise must not divide by nothing
_PLATEAU = 3  # sizes on a floor that make it one
_EVIDENCE = 12.0  # twice the gain in log-likelihood that a floor must bring; by chance one reaches it once in a thousand
_FLAT = 1.5  # a series whose times grow by less shows no rate
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120)
"""Student's t for 95 %, by degrees of freedom from 1."""


@dataclass(frozen=True)
class Estimate:
    """A fitted figure with the ends of its 95 % interval, in the unit of its name."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """Parameters of ``max(floor, gap + n / B)``."""

    floor_s: float
    """Zero where there is none."""
    gap_s: float
    bandwidth_bytes_per_s: float

    def time_s(self, size_bytes: float) -> float:
        """Return the time of a size."""
        return max(self.floor_s, self.gap_s + size_bytes / self.bandwidth_bytes_per_s)


@dataclass(frozen=True)
class Break:
    """Two lines in place of one."""

    from_bytes: int
    """The first size of the upper line."""
    below: Line
    above: Line
    worst: float
    """Largest deviation of the two from a measured time."""


@dataclass(frozen=True)
class Fit:
    """What one series says about a link."""

    key: SeriesKey
    sizes: tuple[int, ...]
    """Bytes, ascending."""
    measured_s: tuple[float, ...]
    line: Line
    """By least squares."""
    gap: Estimate
    bandwidth: Estimate
    floor: Estimate | None
    """None where a line alone does as well."""
    even: Line | None
    """Where `line` is off by more than `TOLERANCE`: the one whose largest deviation is smallest."""
    broken: Break | None
    """Where `line` is off by more than `TOLERANCE`: the best two lines, if there are sizes enough."""

    @property
    def deviations(self) -> tuple[float, ...]:
        """Fitted over measured time, less one, by size."""
        return deviations(self.line, self.sizes, self.measured_s)

    @property
    def worst(self) -> tuple[float, int]:
        """The largest deviation and its size."""
        return max(zip(self.deviations, self.sizes, strict=True), key=lambda pair: abs(pair[0]))

    @property
    def half_bytes(self) -> float:
        """Size at which half of B is reached, alpha times B (where no floor is above twice alpha)."""
        return self.line.gap_s * self.line.bandwidth_bytes_per_s

    @property
    def best(self) -> Line:
        """The line to publish: least squares, unless only the other is within `TOLERANCE` at every size."""
        if self.even is None or largest(self.even, self.sizes, self.measured_s) > TOLERANCE:
            return self.line
        return self.even


def deviations(line: Line, sizes: Sequence[int], measured_s: Sequence[float]) -> tuple[float, ...]:
    """Return fitted over measured time, less one, of each size."""
    return tuple(line.time_s(size) / time - 1 for size, time in zip(sizes, measured_s, strict=True))


def largest(line: Line, sizes: Sequence[int], measured_s: Sequence[float]) -> float:
    """Return the largest deviation of a line, without its sign."""
    return max(map(abs, deviations(line, sizes, measured_s)))


def fit(key: SeriesKey, samples: Sequence[Sample]) -> Fit:
    """Fit one series.

    Parameters
    ----------
    key : SeriesKey
    samples : sequence of Sample
        Of that series, by size.

    Returns
    -------
    Fit

    Raises
    ------
    NetsimError
        If there are fewer than `LEAST_SIZES` sizes, or times that hardly grow with the size.

    Examples
    --------
    >>> key = SeriesKey("copy", "h2d", True)
    >>> found = fit(key, [Sample(key, 4**k, 8.25e-6 + 4**k / 13.45e9) for k in range(1, 15)])
    >>> f"{found.line.gap_s * 1e6:.2f} us, {found.line.bandwidth_bytes_per_s / 1e9:.2f} GB/s"
    '8.25 us, 13.45 GB/s'
    """
    rows = sorted(samples, key=lambda row: row.size_bytes)
    n = np.array([row.size_bytes for row in rows], dtype=np.float64)
    t = np.array([row.median_s for row in rows], dtype=np.float64)
    if len(set(n)) < LEAST_SIZES:
        raise NetsimError(f"{key}: {len(set(n))} sizes; a fit needs {LEAST_SIZES} or more")
    if not t[-1] > _FLAT * np.median(t[: max(_PLATEAU, len(t) // 4)]):
        raise NetsimError(
            f"{key}: times hardly grow up to {rows[-1].size_bytes} bytes, so they show no rate; add larger sizes"
        )
    plain = _robust(n, t, _start(n, t, 0))
    floored = min((_robust(n, t, start) for start in _floored_starts(n, t)), key=lambda p: _loss(n, t, p), default=plain)
    parameters = floored if _floor_needed(n, t, plain, floored) else plain
    found = _line(parameters)
    sizes, times = tuple(row.size_bytes for row in rows), tuple(row.median_s for row in rows)
    off = largest(found, sizes, times) > TOLERANCE
    floor, gap, bandwidth = _estimates(n, t, parameters)
    even = _line(_evened(n, t, parameters)) if off else None
    broken = _broken(n, t, _noise(rows)) if off else None
    return Fit(key, sizes, times, found, gap, bandwidth, floor, even, broken)


def _line(parameters: Array) -> Line:
    return Line(float(parameters[0]), float(parameters[1]), float(1 / parameters[2]))


def _model(n: Array, parameters: Array) -> Array:
    """Return the times of floor, gap and seconds a byte; without a floor it is zero, and below every time."""
    floor, gap, per_byte = parameters
    return np.asarray(np.maximum(floor, gap + n * per_byte))


def _residuals(n: Array, t: Array, parameters: Array) -> Array:
    return np.asarray(np.log(t / _model(n, parameters)))


def _jacobian(n: Array, parameters: Array) -> Array:
    """Return the derivatives of the logarithm of the model, one column a parameter."""
    times = _model(n, parameters)
    low = parameters[0] >= times
    return np.stack([low / times, ~low / times, ~low * n / times], axis=1)


def _free(parameters: Array) -> npt.NDArray[np.bool_]:
    """Say which parameters are fitted: a floor of zero is none."""
    return np.array([parameters[0] > 0, True, True])


def _step(n: Array, t: Array, parameters: Array, weights: Array) -> Array:
    """Return the parameters after one Gauss-Newton step, halved until the weighted squares fall."""
    free = _free(parameters)
    root = np.sqrt(weights)
    r = _residuals(n, t, parameters)
    columns = _jacobian(n, parameters)[:, free] * root[:, None]
    # Columns of equal length: seconds and seconds a byte are ten powers of ten apart.
    scale = np.sqrt((columns**2).sum(axis=0))
    scale[scale == 0] = 1
    move = np.zeros(3)
    move[free] = np.linalg.lstsq(columns / scale, root * r, rcond=None)[0] / scale
    now = float((weights * r**2).sum())
    for _ in range(12):
        tried = np.maximum(parameters + move, [0.0, 0.0, parameters[2] / 10])
        if free[0]:
            tried[0] = max(tried[0], parameters[0] / 10)
        if _model(n, tried).min() > 0 and float((weights * _residuals(n, t, tried) ** 2).sum()) < now:
            return np.asarray(tried)
        move /= 2
    return parameters


def _spread(r: Array, fitted: int) -> float:
    """Return the standard deviation of residuals by their median, those that the fit made small left out."""
    return max(1.4826 * float(np.median(np.sort(np.abs(r))[min(fitted, len(r) - 1) :])), _FINEST)


def _weights(r: Array, spread: float) -> Array:
    return np.asarray(np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(r), 1e-300)))


def _robust(n: Array, t: Array, parameters: Array) -> Array:
    """Return the parameters by least squares with Huber's weights."""
    for _ in range(30):
        r = _residuals(n, t, parameters)
        moved = _step(n, t, parameters, _weights(r, _spread(r, int(_free(parameters).sum()))))
        still = bool((np.abs(moved - parameters) <= 1e-9 * np.abs(parameters)).all())
        parameters = moved
        if still:
            break
    return parameters


def _start(n: Array, t: Array, plateau: int) -> Array:
    """Return a first guess: the sizes of a plateau give the floor, the others a line by relative least squares."""
    x, y = n[plateau:], t[plateau:]
    (gap, per_byte), *_ = np.linalg.lstsq(np.stack([1 / y, x / y], axis=1), np.ones(len(y)), rcond=None)
    if per_byte <= 0:
        per_byte = t[-1] / n[-1]
    floor = float(np.median(t[:plateau])) if plateau else 0.0
    return np.array([floor, max(gap, 0.0 if plateau else t.min() / 10), per_byte])


def _floored_starts(n: Array, t: Array) -> list[Array]:
    """Return the most promising guesses with a floor."""
    starts = [_start(n, t, plateau) for plateau in range(_PLATEAU, len(n) - 1)]
    return sorted(starts, key=lambda p: float(np.abs(_residuals(n, t, p)).sum()))[:2]


def _loss(n: Array, t: Array, parameters: Array, spread: float | None = None) -> float:
    """Return Huber's loss in units of the spread, or without one the sum of the deviations."""
    r = np.abs(_residuals(n, t, parameters))
    if spread is None:
        return float(r.sum())
    bent = np.where(r <= _HUBER * spread, r**2 / 2, _HUBER * spread * (r - _HUBER * spread / 2))
    return float(bent.sum()) / spread**2


def _floor_needed(n: Array, t: Array, plain: Array, floored: Array) -> bool:
    """Say whether a floor explains far more than a line alone, and stands on several sizes."""
    floor, gap, per_byte = floored
    on_it = int((floor >= gap + n * per_byte).sum())
    if floor <= 0 or not _PLATEAU <= on_it <= len(n) - 2:
        return False
    spread = _spread(_residuals(n, t, floored), 3)
    return 2 * (_loss(n, t, plain, spread) - _loss(n, t, floored, spread)) > _EVIDENCE


def _estimates(n: Array, t: Array, parameters: Array) -> tuple[Estimate | None, Estimate, Estimate]:
    """Return floor, gap and rate with their intervals (Huber's covariance of an M-estimator, linearised)."""
    free = _free(parameters)
    count, fitted = len(n), int(free.sum())
    r = _residuals(n, t, parameters)
    spread = _spread(r, fitted)
    pulls = _weights(r, spread) * r
    inside = float((np.abs(r) <= _HUBER * spread).mean())
    correction = 1 + fitted / count * (1 - inside) / inside
    variance = max(float((pulls**2).sum()) / (count - fitted) / inside**2 * correction**2, (_FINEST / 10) ** 2)
    columns = _jacobian(n, parameters)[:, free]
    scale = np.sqrt((columns**2).sum(axis=0))
    scale[scale == 0] = 1
    covariance = variance * np.linalg.pinv((columns / scale).T @ (columns / scale)) / np.outer(scale, scale)
    reach = np.zeros(3)
    degrees = count - fitted
    t_975 = _T_975[degrees - 1] if degrees <= len(_T_975) else 1.96 + 2.5 / degrees
    reach[free] = t_975 * np.sqrt(np.diag(covariance))
    floor, gap, per_byte = map(float, parameters)
    # A rate is above zero: its interval is one of its logarithm.
    factor = math.exp(min(float(reach[2]) / per_byte, 50.0))
    return (
        Estimate(floor, max(floor - float(reach[0]), 0.0), floor + float(reach[0])) if free[0] else None,
        Estimate(gap, max(gap - float(reach[1]), 0.0), gap + float(reach[1])),
        Estimate(1 / per_byte, 1 / per_byte / factor, factor / per_byte),
    )


def _evened(n: Array, t: Array, parameters: Array) -> Array:
    """Return the parameters whose largest deviation is smallest (Lawson: what is far off gains weight, again and again)."""
    weights = np.full(len(n), 1.0 / len(n))
    best, least = parameters, float(np.abs(_residuals(n, t, parameters)).max())
    for _ in range(300):
        r = np.abs(_residuals(n, t, parameters))
        if r.max() < least:
            best, least = parameters, float(r.max())
        weights = weights * (r + r.max() * 1e-3)
        weights /= weights.sum()
        parameters = _step(n, t, parameters, weights)
    return best


def _noise(rows: Sequence[Sample]) -> Array:
    """Return how unsure each time is, relative: a quarter of what its trials span, and two in a hundred."""
    spans = [math.log(row.most_s / row.least_s) if row.most_s and row.least_s else 0.0 for row in rows]
    return np.asarray(np.hypot(0.02, np.array(spans) / 4))


def _broken(n: Array, t: Array, noise: Array) -> Break | None:
    """Return the best pair of lines, one up to a size and one from the next on; unsure times count little."""
    found: list[tuple[float, int, Array, Array]] = []
    for first in range(_PLATEAU, len(n) - _PLATEAU + 1):
        below, above = (
            _robust(n[part], t[part], _start(n[part], t[part], 0)) for part in (slice(first), slice(first, None))
        )
        r = np.concatenate([_residuals(n[:first], t[:first], below), _residuals(n[first:], t[first:], above)])
        found.append((float(np.minimum((r / noise) ** 2, 400.0).sum()), first, below, above))
    if not found:
        return None
    _, first, below, above = min(found, key=lambda pair: pair[0])
    lines = _line(below), _line(above)
    sizes, times = [int(size) for size in n], [float(time) for time in t]
    worst = max(largest(lines[0], sizes[:first], times[:first]), largest(lines[1], sizes[first:], times[first:]))
    return Break(sizes[first], *lines, worst)
