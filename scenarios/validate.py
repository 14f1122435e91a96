"""Measured tables held against predictions: every row of every table that a rule maps, and what the errors are.

`scenarios.tables` reads what was measured, `scenarios.hardware` says on what; here each row is simulated, and beside it
stands what NCCL's own cost model says of the same call. `scenarios.scores` makes figures of the errors. Nothing is left out
silently: a table without a prediction keeps the reason.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from netsim.errors import NetsimError, ScenarioError
from netsim.export.table import Row, rounded_size
from scenarios.hardware import SetUp, set_up
from scenarios.run import Spec, run_spec
from scenarios.tables import Entry, Measured, read_index, read_table

MOST_MESSAGES = 20_000_000
"""Messages of a run beyond which a row is not simulated, unless asked for."""


@dataclass(frozen=True)
class Point:
    """One measured row and what is predicted for it."""

    size_bytes: int
    measured_us: float
    scored: bool
    """Whether it counts, as `scenarios.tables` says."""
    row: Row

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.row.time_us / self.measured_us - 1

    @property
    def model_error(self) -> float | None:
        """The same of NCCL's own cost model, where it has a figure."""
        model_us = self.row.nccl_model_us
        return None if model_us is None else model_us / self.measured_us - 1


@dataclass(frozen=True)
class Held:
    """One table beside its predictions."""

    entry: Entry
    set_up: SetUp | None = None
    points: tuple[Point, ...] = ()
    measured: tuple[Measured, ...] = field(default=(), repr=False)
    """All rows of the table, also those that were not simulated."""
    remarks: tuple[str, ...] = field(default=())
    """What was assumed, and what was left out and why."""


@dataclass(frozen=True)
class Task:
    """Tables that one process predicts, as they share a machine or its rows."""

    entries: tuple[Entry, ...]
    scored_only: bool = True
    """Whether rows that do not count are left out."""
    max_messages: int = MOST_MESSAGES
    max_ranks: int | None = None


def validate(
    folders: Sequence[str | Path],
    *,
    scored_only: bool = True,
    max_messages: int = MOST_MESSAGES,
    max_ranks: int | None = None,
    only: Callable[[Entry], bool] = lambda entry: True,
    executor: Executor | None = None,
    told: Callable[[int, int, str], None] = lambda done, total, words: None,
) -> list[Held]:
    """Hold the tables of folders against predictions, in the order of their indexes.

    Parameters
    ----------
    folders : sequence of str or Path
        Each with an ``index.csv``.
    scored_only : bool
        Whether only rows are simulated that count for a score.
    max_messages : int
        Rows that need more messages are left out, with a remark.
    max_ranks : int or None
        Tables of more GPUs are left out, with a remark.
    only : callable
        Which entries of the indexes are looked at.
    executor : Executor, optional
        Where the tables are worked on; here, one after the other, without one.
    told : callable, optional
        Called with how many tables are done, of how many, and the name of the latest.

    Raises
    ------
    ScenarioError
        If a folder has no index, an index makes no sense, or nothing is left of them. What is wrong with one row of an
        index, or with one table, is among the remarks on that table and loses no other.
    """
    entries = [entry for folder in folders for entry in read_index(folder) if only(entry)]
    if not entries:
        raise ScenarioError("no table is left to hold against a prediction; what --only keeps is in no index")
    tasks = [Task(group, scored_only, max_messages, max_ranks) for group in _alike(entries)]
    held: list[Held] = []
    try:
        for some in map(_hold, tasks) if executor is None else executor.map(_hold, tasks):
            held += some
            told(len(held), len(entries), some[-1].entry.path.name)
    except BrokenExecutor:
        raise ScenarioError(
            "a process was ended from outside, most likely for want of memory; try fewer --workers or --max-messages"
        ) from None
    return held


def _alike(entries: Iterable[Entry]) -> Iterable[tuple[Entry, ...]]:
    """Yield entries together that differ only in being in place or out of place, so that they share predictions."""

    def key(entry: Entry) -> str:
        return entry.path.stem.removesuffix("_ip").removesuffix("_oop")

    for _, group in groupby(entries, key):
        yield tuple(group)


def _hold(task: Task) -> list[Held]:
    """Predict the rows of some tables."""
    known: dict[Spec, Row | str] = {}
    return [_hold_one(entry, task, known) for entry in task.entries]


def _hold_one(entry: Entry, task: Task, known: dict[Spec, Row | str]) -> Held:
    try:
        if task.max_ranks is not None and entry.ranks > task.max_ranks:
            return Held(entry, remarks=(f"left out: {entry.ranks} GPUs, more than {task.max_ranks}",))
        found = set_up(entry)
        table = read_table(entry)
    except ScenarioError as error:
        return Held(entry, remarks=(str(error),))
    remarks = list(found.remarks)
    points = []
    for measured in table:
        if measured.scored or not task.scored_only:
            row = _predict(entry, found, measured, task.max_messages, known)
            if isinstance(row, str):
                remarks.append(row)
            elif row.time_us > 0:
                points.append(Point(measured.size_bytes, measured.time_us, measured.scored, row))
                if row.size_bytes > measured.size_bytes:
                    remarks.append(f"{measured.size_bytes} bytes are no block for every rank, {row.size_bytes} simulated")
            else:
                remarks.append("not simulated: nothing is sent, which takes no time here")
    return Held(entry, found, tuple(points), tuple(table), tuple(dict.fromkeys(remarks)))


def _predict(entry: Entry, found: SetUp, measured: Measured, max_messages: int, known: dict[Spec, Row | str]) -> Row | str:
    """Return the row for a size, or why there is none."""
    spec = sized(spec_of(entry, found, max_messages=max_messages), entry.ranks, measured.size_bytes)
    if spec not in known:
        try:
            known[spec] = run_spec(spec)
        except NetsimError as error:
            known[spec] = f"not simulated: {error}"
    return known[spec]


def spec_of(entry: Entry, found: SetUp, *, max_messages: int = MOST_MESSAGES) -> Spec:
    """Return what to run for a table, but for the size."""
    return Spec(
        found.machine,
        entry.collective,
        0,
        algorithm=found.algorithm,
        protocol=found.protocol,
        nccl=found.options,
        # Hundreds of runs: numba is loaded once for all.
        engine="compiled" if find_spec("numba") else "auto",
        max_messages=max_messages,
    )


def sized(spec: Spec, ranks: int, size_bytes: int) -> Spec:
    """Return the run of NCCL's for a measured size, rounded as nccl-tests rounds, and shared where that is right."""
    # Old tests sent less than the 16 bytes a rank to which blocks are rounded now; that takes what the least block takes.
    sizes = (size_bytes, 16 * ranks)
    element = spec.nccl.element_bytes
    whole = next(filter(None, (rounded_size(spec.collective, ranks, size, element) for size in sizes)))
    # Where it makes no difference, in place is what out of place is.
    in_place = spec.nccl.in_place and spec.collective not in _SAME_IN_PLACE
    return replace(spec, size_bytes=whole, nccl=replace(spec.nccl, in_place=in_place))


_SAME_IN_PLACE = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
"""Collectives whose schedules do not ask whether input and output are one buffer."""
