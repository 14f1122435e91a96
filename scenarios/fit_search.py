"""Parameters of components out of measured times, by running the simulator: what kernels cost, what links carry.

A parameter is a number in a file of a component (`scenarios.fit_parameters`), the same wherever that component appears, so
nothing can be fitted to one table. The fit is Gauss and Newton's on logarithms of times and of parameters, with weights
after Huber so that single rows off do not steer it, and with a pull to where each parameter starts, as wide as what was
known of it: what times do not decide stays there, and its interval says so. It serves two doors: recipes for the project's
own files (`scenarios.fit_model`), and a user's logs (`netsim calibrate from-nccl-tests`).
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from netsim.errors import ScenarioError
from netsim.export.table import Row
from netsim.schedule.protocols import IDEAL
from scenarios.fit_parameters import CALL, Parameter, write_point
from scenarios.fit_predict import Predicted, Task, predict
from scenarios.fit_series import Series
from scenarios.run import Spec
from scenarios.validate import MOST_MESSAGES

Floats = npt.NDArray[np.float64]

MODEL_NOISE = 0.08
"""Error (of a logarithm) that is expected where one set of numbers has to explain tables of many machines."""
LEAST_NOISE = 0.01
"""Scatter of nccl-tests' times between runs, below which residuals mean nothing."""
_STEP = 0.1
"""Relative step of the finite differences; small ones meet the steps that schedules have."""
_DAMPINGS = (0.0, 0.3, 1.0, 3.0, 10.0)
"""On the diagonal of the normal equations, after Levenberg and Marquardt: where times have steps, straight lines mislead."""
_FINE_STEP = 0.005
"""Relative step of the finite differences where all runs are the textbook's, whose times are smooth."""
_MOST_MOVE = 0.7
"""Most that a logarithm moves at once."""
_UNSEEN = 1e-9
"""Slope below which times do not depend on a parameter."""
_ALIKE = 1e-6
"""One less the cosine of two columns of slopes below which they are one."""
_HELD = 0.9
"""Part of what is known of a parameter that comes from its start, even if times scattered no more than nccl-tests' do, from
which they are taken not to decide it."""
_TOO_FAR = 0.02
"""What a rate may be beyond the line's by scatter, as a logarithm."""


@dataclass(frozen=True)
class Fitted:
    """What came of a parameter."""

    parameter: Parameter
    factor: float
    """On its first value."""
    interval: tuple[float, float]
    """Two standard errors either way, as factors on the first value."""
    held: float
    """Share of what is known of it that came from its start and not from times, 0 to 1."""
    seen: bool = True
    """Whether times decide it; otherwise it stays where it was."""
    at_limit: bool = False
    """Whether it would be beyond the most that makes sense."""


@dataclass(frozen=True)
class Outcome:
    """A fit, and what is simulated with it."""

    fitted: tuple[Fitted, ...]
    before: Predicted
    after: Predicted
    rounds: int
    """Steps that were taken."""
    stopped: bool = False
    """Whether it was interrupted before its end."""

    @property
    def values(self) -> list[float]:
        """Logarithms of the factors."""
        return [math.log(one.factor) for one in self.fitted]


def fit(
    parameters: Sequence[Parameter],
    series: Sequence[Series],
    folder: str | Path,
    *,
    rounds: int = 6,
    max_messages: int = MOST_MESSAGES,
    noise: float | None = MODEL_NOISE,
    absolute: bool = False,
    executor: Executor | None = None,
    told: Callable[[int, float], None] = lambda number, error: None,
) -> Outcome:
    """Fit parameters to measured times.

    Parameters
    ----------
    parameters : sequence of Parameter
    series : sequence of Series
        Each weighs the same.
    folder : str or Path
        Where files of components are written while it goes on; at the end they are in ``best``.
    rounds : int
        At most so many steps.
    max_messages : int
        Rows that need more do not take part, so that an evaluation stays quick.
    noise : float or None
        Error of a logarithm that is expected of a whole series; None: each row is an observation, and the error is what
        the fit leaves, but not below `LEAST_NOISE`.
    absolute : bool
        Whether errors count in microseconds, so that long times count more, and not as parts of each time.
    executor : Executor, optional
        Where evaluations run, one for each parameter and step.
    told : callable, optional
        Called with the number of a step and the median error after it; before the first step with 0.

    Returns
    -------
    Outcome
        An interruption from the keyboard ends it with the best so far, once there is a step.

    Raises
    ------
    ScenarioError
        If a parameter is in no file, no row is left, or times ask for what a link cannot do.
    """
    search = _Search(parameters, series, Path(folder), max_messages, noise, executor, absolute=absolute)
    search.begin()
    told(0, search.median_error)
    stopped = False
    try:
        for number in range(1, rounds + 1):
            if not search.step():
                break
            told(number, search.median_error)
    except KeyboardInterrupt:
        if not search.rounds:
            raise
        stopped = True
    return search.outcome(stopped=stopped)


class _Search:
    """Where a fit stands: the point, what is simulated there, and how times depend on every parameter."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        series: Sequence[Series],
        folder: Path,
        max_messages: int,
        noise: float | None,
        executor: Executor | None,
        *,
        absolute: bool = False,
    ) -> None:
        self.parameters = tuple(parameters)
        self.series = tuple(series)
        self.folder = folder
        self.max_messages = max_messages
        self.noise = noise
        self.executor = executor
        self.width = np.array([one.width for one in parameters])
        self.most = np.log([one.most() for one in parameters])
        self.measured = np.array([time_us for one in series for _, time_us in one.rows])
        # What an error of a logarithm counts: for small ones times the time, that is one in microseconds.
        self.unit = self.measured / self.measured.mean() if absolute else np.ones(len(self.measured))
        self.rounds = 0
        self.covariance: Floats = np.diag(self.width**2)
        self.looked, self.again = -1, False
        self.latest: tuple[Floats, Floats] | None = None
        self.asked: Floats = np.zeros(len(parameters))
        self.surely: Floats = np.array(self.width)
        self.seen = np.ones(len(parameters), dtype=bool)
        smooth = all(one.spec.protocol == IDEAL for one in series)
        self.stride = _FINE_STEP if smooth else _STEP

    def begin(self) -> None:
        """Simulate everything at the start."""
        self.at = np.zeros(len(self.parameters))
        (self.before,) = self._evaluate([self.at])
        self.after = self.before
        self.here = self._errors(self.before)
        self.counts = np.isfinite(self.here)
        if not self.counts.any():
            raise ScenarioError(f"no row of the tables could be simulated: {self._why()}")
        places, start = [], 0
        for one in self.series:
            part = self.counts[start : start + len(one.rows)]
            places.append(part / max(1, part.sum()))
            start += len(one.rows)
        self.weights = np.concatenate(places)
        if self.noise is None:
            self.weights = self.weights * (self.counts.sum() / self.weights.sum())
        self.here = np.where(self.counts, self.here, 0.0)

    @property
    def median_error(self) -> float:
        return float(np.median(np.abs(self.here[self.counts])))

    def step(self) -> bool:
        """Take one step; say whether it led anywhere."""
        # Rows far off are no reason to hold on to the start: they are what the fit is for.
        scale = min(self._scatter(), MODEL_NOISE)
        looks = self.looked < 0 or self.again
        slopes = self._slopes(every=looks) * self.unit[:, None]
        robust = self.weights * np.minimum(1.0, scale / np.maximum(np.abs(self.here * self.unit), 1e-9))
        if looks and not self._look(slopes, robust):
            return False
        slopes *= self.seen
        moves = [self._move(slopes, robust, scale, damping) for damping in _DAMPINGS]
        self._learn()
        tried = [np.minimum(self.at + np.clip(move, -_MOST_MOVE, _MOST_MOVE), self.most) for move in moves]
        simulated = self._evaluate(tried)
        results = [np.where(self.counts, np.nan_to_num(self._errors(one)), 0.0) for one in simulated]
        costs = [self._cost(result, point, scale) for result, point in zip(results, tried, strict=True)]
        best = int(np.argmin(costs))
        cost = self._cost(self.here, self.at, scale)
        if costs[best] >= cost * (1 - 1e-3) or cost - costs[best] < 1e-6:
            # What did not matter at the start may do so here: kernels, once links are faster.
            self.again = self.noise is None and self.looked < self.rounds
            return self.again
        self.at, self.here, self.after = tried[best], results[best], simulated[best]
        self.rounds += 1
        return True

    def _look(self, slopes: Floats, robust: Floats) -> bool:
        """Find out which parameters times decide; the others stay and cost no more time. Say whether that is news."""
        before = self.seen
        again, self.again, self.looked = self.again, False, self.rounds
        self.seen = np.abs(slopes).max(axis=0) > _UNSEEN
        if self.noise is not None:
            return True
        normal, _ = self._equations(slopes, robust, LEAST_NOISE)
        self.seen &= np.diag(np.linalg.inv(normal)) < _HELD * self.width**2
        if again:
            self.seen |= before
            return bool((self.seen & ~before).any())
        if not self.seen.any():
            names = ", ".join(one.name for one in self.parameters[:3]) + ", ..." * (len(self.parameters) > 3)
            raise ScenarioError(f"these times decide none of the parameters ({names}); other sizes or collectives would")
        return True

    def outcome(self, *, stopped: bool) -> Outcome:
        """Return what was found; its files are in the folder ``best``."""
        self._refuse_beyond()
        self._learn()
        write_point(self.parameters, list(self.at), self.folder / "best")
        deviation = np.sqrt(np.diag(self.covariance))
        found = []
        for number, parameter in enumerate(self.parameters):
            value, error, most = float(self.at[number]), float(deviation[number]), float(self.most[number])
            interval = math.exp(value - 2 * error), math.exp(min(value + 2 * error, most))
            held = float(min(1.0, (error / self.width[number]) ** 2))
            seen = bool(self.seen[number])
            found.append(Fitted(parameter, math.exp(value), interval, held, seen, seen and value >= most - 1e-9))
        return Outcome(tuple(found), self.before, self.after, self.rounds, stopped)

    def _learn(self) -> None:
        """Take what is known of the parameters from the latest slopes and the scatter that is left."""
        if self.latest is not None:
            self.covariance = np.asarray(np.linalg.inv(self._equations(*self.latest, self._scatter())[0]))

    def _evaluate(self, values: Sequence[Floats]) -> list[Predicted]:
        tasks = [
            Task(self.series, write_point(self.parameters, list(one), self.folder / f"point{number}"), self.max_messages)
            for number, one in enumerate(values)
        ]
        return list(map(predict, tasks) if self.executor is None else self.executor.map(predict, tasks))

    def _errors(self, simulated: Predicted) -> Floats:
        """Return the logarithm of simulated over measured time of every row, NaN where there is none."""
        times = np.array([math.nan if one is None else one.time_us for rows in simulated for one in rows])
        errors: Floats = np.log(times / self.measured)
        return errors

    def _slopes(self, *, every: bool = True) -> Floats:
        """Return how the errors move with each parameter, or with those alone that times decide."""
        live = np.flatnonzero(self.seen | every)
        # Away from a limit: beyond it there is no file.
        signs = np.where(self.at + self.stride > self.most, -1.0, 1.0)
        points = [self.at + self.stride * signs[one] * (np.arange(len(self.at)) == one) for one in live]
        slopes = np.zeros((len(self.here), len(self.at)))
        for one, simulated in zip(live, self._evaluate(points), strict=True):
            moved = np.nan_to_num(self._errors(simulated) - self.here) / (self.stride * signs[one])
            slopes[:, one] = np.where(self.counts, moved, 0.0)
        return slopes

    def _move(self, slopes: Floats, robust: Floats, scale: float, damping: float) -> Floats:
        """Return a step towards the nearest optimum; a parameter at its limit that would go beyond stays there."""
        normal, pull = self._equations(slopes, robust, scale)
        normal = normal + damping * np.diag(np.diag(normal))
        self.latest = slopes, robust
        # As it would be if only nccl-tests' own scatter were left: what is asked for, not what is sure.
        sharp, pull_there = self._equations(slopes, robust, LEAST_NOISE if self.noise is None else self.noise)
        self.asked = np.asarray(np.linalg.solve(sharp, pull_there))
        self.surely = np.asarray(np.sqrt(np.diag(np.linalg.inv(sharp))))
        free = np.ones(len(self.at), dtype=bool)
        move: Floats = np.asarray(np.linalg.solve(normal, pull))
        for _ in self.at:
            beyond = free & (self.at >= self.most - 1e-9) & (move > 0)
            if not beyond.any():
                break
            free &= ~beyond
            move = np.zeros(len(self.at))
            move[free] = np.linalg.solve(normal[np.ix_(free, free)], pull[free])
        return move

    def _equations(self, slopes: Floats, robust: Floats, scale: float) -> tuple[Floats, Floats]:
        """Return the normal equations of a step: of the rows by their scatter, and of the pull to the start."""
        normal = slopes.T @ (slopes * robust[:, None]) / scale**2 + np.diag(self.width**-2.0)
        pull = -(slopes.T @ (robust * self.here * self.unit)) / scale**2 - self.at / self.width**2
        return normal, pull

    def _refuse_beyond(self) -> None:
        """Refuse if times ask for a rate that is clearly above what the line carries.

        Held there, it would leave files that look like a machine and explain nothing: the machine, the number of GPUs or
        the collective is another one. What scatter can explain is held, and said.
        """
        for number, parameter in enumerate(self.parameters):
            excess = float(self.asked[number])
            held = self.at[number] >= self.most[number] - 1e-9 and parameter.keys[0] == "effective_rate"
            if held and excess > max(_TOO_FAR, 2 * float(self.surely[number])):
                raise ScenarioError(
                    f"{parameter.name}: these times need some {math.exp(excess):.2g} times the line rate of "
                    f"{parameter.file}, and payload is no faster than the line; the machine, the number of GPUs or the "
                    "collective is another"
                )

    def _scatter(self) -> float:
        """Return the error that rows have beyond what parameters explain."""
        if self.noise is not None:
            return self.noise
        size = np.abs((self.here * self.unit)[self.counts])
        # Of a parameter counts as taken from the rows what did not come from its start.
        taken = float((1 - np.minimum(1.0, np.diag(self.covariance) / self.width**2)).sum())
        spare = max(1.0, len(size) - taken)
        # The median of a normal distribution's size is 0.6745 standard deviations.
        return max(LEAST_NOISE, float(np.median(size)) / 0.6745 * math.sqrt(len(size) / spare))

    def _cost(self, here: Floats, at: Floats, scale: float) -> float:
        size = np.abs(here * self.unit)
        huber = np.where(size < scale, size**2 / 2, scale * (size - scale / 2))
        return float((self.weights * huber).sum() / scale**2 + (at**2 / self.width**2).sum() / 2)

    def _why(self) -> str:
        known: dict[Spec, Row | str] = {}
        point = write_point(self.parameters, list(self.at), self.folder / "point0")
        predict(Task(self.series, point, self.max_messages), known)
        return ", ".join(sorted({reason for reason in known.values() if isinstance(reason, str)})[:3])


def separable(parameters: Sequence[Parameter], series: Sequence[Series]) -> tuple[list[Parameter], str | None]:
    """Return the parameters without the constant of a call if times cannot tell it from a latency, and the reason.

    Where every series has the same number of steps, latency and constant are one number.
    """
    constants = [one for one in parameters if one.file == CALL]
    latencies = [one for one in parameters if one.keys == ("latency",)]
    if not constants or not latencies:
        return list(parameters), None
    with tempfile.TemporaryDirectory() as folder:
        search = _Search(parameters, series, Path(folder), MOST_MESSAGES, None, None)
        search.begin()
        slopes = search._slopes() * np.sqrt(search.weights)[:, None]
    columns = {one.name: slopes[:, number] for number, one in enumerate(parameters)}
    call = columns[constants[0].name]
    for latency in latencies:
        other = columns[latency.name]
        size = float(np.linalg.norm(call) * np.linalg.norm(other))
        if size and float(call @ other) > (1 - _ALIKE) * size:
            words = (
                f"{constants[0].name} is not fitted: in these logs it cannot be told from {latency.name}, as all have the "
                "same number of steps; logs of several numbers of GPUs, or of several algorithms, could tell"
            )
            return [one for one in parameters if one.file != CALL], words
    return list(parameters), None
