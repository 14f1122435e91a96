"""Many specs -> rows, through an Executor, kept as they come so that a stopped sweep goes on where it was.

A work item is (spec) -> (row): small, picklable, no graph or engine inside; an executor of any kind runs it. Every row
that is done is appended at once to a file of JSON lines beside the result, under the digest of its spec, and a later
sweep takes it from there. The digest covers the contents of the files that a spec names and the version, so a changed
topology is simulated again. Rows come back in the order of the specs, whatever order they were done in. A point that
fails is a row with its error in the note; it is not kept, so that the next sweep tries it again.
"""

import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import netsim
from netsim.errors import InternalError, NetsimError
from netsim.export.table import Row
from netsim.schedule.protocols import IDEAL
from scenarios.run import Spec, run_spec

_AHEAD = 2
"""Points handed to the executor for each worker: one under way and one waiting, so that no worker idles."""


@dataclass(frozen=True)
class Outcome:
    """What came of one point."""

    row: Row
    failed: bool = False
    broken: bool = False
    """Whether the simulator contradicted itself or had a fault, which is never the question's."""


class SerialExecutor(Executor):
    """Runs each call at once in this process: for one worker, and for debugging."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run a call and return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def local_executor(workers: int) -> Iterator[Executor]:
    """Open an executor on this machine: this process for one worker, else as many processes.

    The processes end with this one, however it ends: they watch it, and an interruption stops them at once.
    """
    if workers == 1:
        yield SerialExecutor()
        return
    # Fresh processes: a fork would copy the thread that shows progress in whatever state it is.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_follow_parent)
    before = {child.pid for child in multiprocessing.active_children()}
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child.pid not in before:
                child.terminate()
        raise
    pool.shutdown()


def _follow_parent() -> None:
    """Make a worker end without words when it is interrupted, and when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_point(spec: Spec) -> Outcome:
    """Run one spec; whatever goes wrong is a row that says so."""
    try:
        return Outcome(run_spec(spec))
    except NetsimError as error:
        return Outcome(_failed_row(spec, str(error)), failed=True, broken=isinstance(error, InternalError))
    except MemoryError:
        return Outcome(_failed_row(spec, "not enough memory for this run"), failed=True)
    except Exception as error:
        words = f"INTERNAL ERROR: {type(error).__name__}: {error}"
        return Outcome(_failed_row(spec, words), failed=True, broken=True)


def sweep(
    specs: Sequence[Spec],
    *,
    kept: Path | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    told: Callable[[int, int], None] = lambda done, resumed: None,
) -> list[Outcome]:
    """Run all specs and return their outcomes in the order of the specs.

    Parameters
    ----------
    specs : sequence of Spec
        The points; equal ones are run once.
    kept : Path, optional
        File of rows that are done; those in it are not run again, and new ones are appended to it. Not removed.
    workers : int
        Processes of this machine; 1 runs everything in this one.
    executor : Executor, optional
        Runs the points instead; `workers` then says how many it can run at once.
    told : callable
        Called with the number of points done, and how many of those were kept from before, at each change.

    Returns
    -------
    list of Outcome
    """
    keys = [spec_digest(spec) for spec in specs]
    done = {key: Outcome(row) for key, row in (read_kept(kept).items() if kept else ())}
    times = Counter(keys)
    resumed = count = sum(times[key] for key in done if key in times)
    told(count, resumed)
    todo = {key: spec for key, spec in zip(keys, specs, strict=True) if key not in done}
    with _appending(kept) as keep:

        def finish(key: str, outcome: Outcome) -> None:
            nonlocal count
            if not outcome.failed:
                keep(key, outcome.row)
            done[key] = outcome
            count += times[key]
            told(count, resumed)

        if todo:
            given = contextlib.nullcontext(executor) if executor is not None else local_executor(min(workers, len(todo)))
            try:
                with given as pool:
                    _run_all(pool, todo, _AHEAD * workers if workers > 1 else 1, finish)
            except BrokenExecutor:
                _run_one_by_one({key: spec for key, spec in todo.items() if key not in done}, finish)
    return [done[key] for key in keys]


def _run_all(pool: Executor, todo: dict[str, Spec], ahead: int, finish: Callable[[str, Outcome], None]) -> None:
    """Hand points to an executor, a few at a time, and take their outcomes as they come."""
    waiting = iter(todo.items())
    running: dict[Future[Outcome], str] = {}
    while True:
        for key, spec in waiting:
            running[pool.submit(run_point, spec)] = key
            if len(running) >= ahead:
                break
        if not running:
            return
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        # In the order of submission: what is told and kept does not hang on the order within a set.
        for future in [future for future in running if future in ended]:
            finish(running.pop(future), future.result())


def _run_one_by_one(todo: dict[str, Spec], finish: Callable[[str, Outcome], None]) -> None:
    """Run the rest in a process each, after a worker died: only the point that kills its process is lost."""
    for key, spec in todo.items():
        try:
            pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_follow_parent)
            with pool:
                outcome = pool.submit(run_point, spec).result()
        except BrokenExecutor:
            words = "the process of this run was ended from outside, most likely for want of memory"
            outcome = Outcome(_failed_row(spec, words), failed=True)
        finish(key, outcome)


def spec_digest(spec: Spec) -> str:
    """Return the key of a spec: it changes with the spec, the files that it names, and the version.

    Examples
    --------
    >>> from scenarios.machine import Machine
    >>> spec = Spec(Machine("hgx-h100"), "all_reduce", 1024)
    >>> len(spec_digest(spec)), spec_digest(spec) == spec_digest(Spec(Machine("hgx-h100"), "all_reduce", 1024))
    (24, True)
    """
    digest = hashlib.sha256(json.dumps([netsim.__version__, asdict(spec)], sort_keys=True).encode())
    for name in _texts(asdict(spec)):
        with contextlib.suppress(OSError, ValueError):
            path = Path(name)
            if path.is_file():
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:24]


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a spec: any of them may name a file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def read_kept(path: Path) -> dict[str, Row]:
    """Read the rows of an interrupted sweep; a line that was cut off, or is of another layout, counts for nothing."""
    rows: dict[str, Row] = {}
    names = {field.name for field in fields(Row)}
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return rows
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("row"), dict) and set(entry["row"]) == names:
            rows[str(entry.get("key"))] = Row(**entry["row"])
    return rows


@contextlib.contextmanager
def _appending(path: Path | None) -> Iterator[Callable[[str, Row], None]]:
    """Open the file of rows that are done; each is on its way to the disk before the next is begun."""
    if path is None:
        yield lambda key, row: None
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as stream:
            _end_line(stream)

            def keep(key: str, row: Row) -> None:
                line = json.dumps({"key": key, "row": asdict(row)}) + "\n"
                stream.write(line.encode())
                stream.flush()

            yield keep
    except OSError as error:
        raise NetsimError(f"cannot keep rows in {str(path)!r}: {error.strerror or error}") from error


def _end_line(stream: Any) -> None:
    """End a line that an interruption cut off, so that the next one stands alone."""
    size = stream.seek(0, os.SEEK_END)
    if size:
        stream.seek(size - 1)
        if stream.read(1) != b"\n":
            stream.write(b"\n")


def _failed_row(spec: Spec, words: str) -> Row:
    """Return the row of a point that failed: what was asked, and why there is no answer."""
    nothing = math.nan
    # These columns hold whole numbers; of a run that failed nobody knows them, and 0 would be a claim.
    unknown: Any = None
    return Row(
        collective=spec.collective,
        topology=spec.machine.label,
        ranks=unknown,
        nodes=spec.machine.nodes,
        algorithm=spec.algorithm,
        protocol=spec.protocol,
        channels=spec.channels or 1,
        size_bytes=spec.size_bytes,
        time_us=nothing,
        algbw_GBps=nothing,
        busbw_GBps=nothing,
        lower_bound_us=nothing,
        closed_form_us=None,
        bottleneck="",
        engine=spec.engine,
        messages=unknown,
        version=netsim.__version__,
        scenario=spec.scenario,
        seed=None,
        topology_digest="",
        chunk_bytes=spec.chunk_bytes,
        chunks=spec.chunks,
        quantum_bytes=spec.quantum_bytes,
        root=spec.root,
        rate=spec.machine.rate,
        profile=spec.machine.profile,
        gpudirect=spec.machine.gpudirect,
        routing=spec.routing,
        groups=spec.groups,
        nccl_version=None if spec.protocol == IDEAL else spec.nccl.version,
        note=f"failed: {' '.join(words.split())}",
    )


def count_kept(specs: Iterable[Spec], kept: Path) -> int:
    """Return how many of the specs have their row in a file of rows that are done."""
    rows = read_kept(kept)
    return sum(spec_digest(spec) in rows for spec in specs)


def count_failed(outcomes: Iterable[Outcome]) -> int:
    """Return how many points failed."""
    return sum(outcome.failed for outcome in outcomes)
