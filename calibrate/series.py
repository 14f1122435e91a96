"""What is measured, and how often: series of sizes, repeated on hardware that is known by its methods alone.

The loop around the hardware: warm-up, trials, medians, what is kept after each point, what is skipped because an earlier
run has it, what happens if one series fails. Nothing here knows torch, so all of it is tested with a made-up clock.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from calibrate.samples import Sample, Samples, SeriesKey
from netsim.errors import NetsimError

TRIALS = 15
"""How often a point is repeated; the median of 15 is steady where one in five is disturbed."""

_WARM_UP = 3
_PILOT = 4
_TRIAL_S = 5e-3
_MOST_REPS = 200
_LEAST_REPS = 2
_MIB = 1 << 20
_SIZES = tuple(4 << shift for shift in (0, 2, 4, 6, 8, 10, 12, *range(13, 27)))
"""4 B to 256 MiB: by four as long as a copy costs the same, by two where the line begins."""
_COLLECTIVE_SIZES = tuple(8 << shift for shift in range(0, 26, 2))
"""8 B to 128 MiB."""
_SAME_MACHINE = ("gpu", "gpus", "driver", "cuda", "torch")
"""Facts in which two runs must agree to share a file."""


@dataclass(frozen=True)
class Series:
    """One kind of work at several sizes."""

    key: SeriesKey
    sizes: tuple[int, ...]
    """Bytes of each point, ascending."""
    most_reps: int = _MOST_REPS
    """Most pieces back to back."""


class Hardware(Protocol):
    """What a machine must offer to be measured."""

    gpus: int
    """How many GPUs there are."""

    def facts(self) -> dict[str, str]:
        """Return names and versions, for the head of the samples."""

    def prepare(self, key: SeriesKey, size_bytes: int) -> Callable[[int], float]:
        """Return a function that does so many pieces back to back and returns the seconds of all of them."""

    def collective(self, key: SeriesKey, sizes: Sequence[int], trials: int) -> Iterator[tuple[int, int, list[float]]]:
        """Yield, for each size, bytes, pieces in a trial, and the seconds a piece of each trial."""

    def remarks(self) -> list[str]:
        """Return what should be known about the measurement so far."""


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "sendrecv")


def all_series(gpus: int, *, collectives: bool = False) -> list[Series]:
    """Return what a machine of so many GPUs is measured by, in order.

    Examples
    --------
    >>> [str(series.key) for series in all_series(1)][:3]
    ['copy h2d pinned', 'copy d2h pinned', 'copy both pinned']
    """
    found = [Series(SeriesKey("copy", direction, True), _SIZES) for direction in ("h2d", "d2h", "both")]
    found += [Series(SeriesKey("copy_streamed", direction, True), _SIZES) for direction in ("h2d", "d2h")]
    found += [Series(SeriesKey("copy_sync", direction, True), _SIZES) for direction in ("h2d", "d2h")]
    found += [Series(SeriesKey("copy", direction, False), _SIZES) for direction in ("h2d", "d2h")]
    found.append(Series(SeriesKey("copy", "local"), _SIZES))
    for kind, size in (("kernel_empty", 0), ("kernel_small", 4)):
        found += [Series(SeriesKey(kind, launched), (size,)) for launched in ("streamed", "queued", "graph")]
    if gpus > 1:
        # A copy between GPUs hands events over on both; more of them would fill the queue of the driver.
        found += [Series(SeriesKey("peer", direction), _SIZES, most_reps=40) for direction in ("0->1", "1->0", "both")]
    if gpus > 1 and collectives:
        ways = [(launched, name) for launched in ("graph", "streamed") for name in COLLECTIVES]
        found += [Series(SeriesKey(name, launched), _COLLECTIVE_SIZES) for launched, name in ways]
    return found


def measure(
    hardware: Hardware,
    asked: Sequence[Series],
    had: Samples | None = None,
    *,
    keep: Callable[[Samples], None] = lambda _: None,
    told: Callable[[int, str], None] = lambda _place, _words: None,
    facts: Mapping[str, str] | None = None,
    trials: int = TRIALS,
) -> Samples:
    """Measure what an earlier run does not have yet.

    Parameters
    ----------
    hardware : Hardware
    asked : sequence of Series
    had : Samples, optional
        What an earlier run left behind.
    keep : callable
        Takes all samples so far after each point, so that an interrupted run loses none.
    told : callable
        Takes the number of the series that begins, from 1, and its words.
    facts : mapping of str to str, optional
        Facts beside those of the hardware, such as the version of netsim and the date.
    trials : int
        How often each point is repeated.

    Returns
    -------
    Samples
        The earlier samples first; a series that fails is a note.

    Raises
    ------
    NetsimError
        If the earlier samples are of another machine.
    """
    now = {**(facts or {}), **hardware.facts()}
    before = had or Samples()
    for name in _SAME_MACHINE:
        if before.rows and name in now and before.facts.get(name, now[name]) != now[name]:
            raise NetsimError(
                f"the samples that are there have {name} {before.facts[name]!r}, and here it is {now[name]!r}; "
                "give another file, or remove it to measure afresh"
            )
    samples = Samples(before.rows, {**now, **before.facts} if before.rows else now)
    done = {(row.key, row.size_bytes) for row in samples.rows}
    for place, series in enumerate(asked, 1):
        sizes = [size for size in series.sizes if (series.key, size) not in done]
        if not sizes:
            continue
        told(place, str(series.key))
        try:
            for sample in _points(hardware, series, sizes, trials):
                samples = replace(samples, rows=(*samples.rows, sample))
                keep(samples)
        except Exception as failure:
            # Whatever a driver, a library or a missing function raises, the other series are still worth having.
            words = " ".join(str(failure).split())[:300]
            samples = replace(samples, notes=(*samples.notes, f"{series.key}: {type(failure).__name__}: {words}"))
            keep(samples)
    remarks = [remark for remark in hardware.remarks() if remark not in samples.notes]
    samples = replace(samples, notes=(*samples.notes, *remarks))
    keep(samples)
    return samples


def _points(hardware: Hardware, series: Series, sizes: Sequence[int], trials: int) -> Iterator[Sample]:
    """Yield the sample of each size."""
    if series.key.kind in COLLECTIVES:
        for size, reps, times in hardware.collective(series.key, sizes, trials):
            yield _sample(series.key, size, reps, times)
        return
    for size in sizes:
        run = hardware.prepare(series.key, size)
        run(_WARM_UP)
        one_s = max(run(_PILOT) / _PILOT, 1e-9)
        reps = min(max(round(_TRIAL_S / one_s), _LEAST_REPS), series.most_reps)
        yield _sample(series.key, size, reps, [run(reps) / reps for _ in range(trials)])


def _sample(key: SeriesKey, size_bytes: int, reps: int, times: list[float]) -> Sample:
    return Sample(key, size_bytes, statistics.median(times), min(times), max(times), reps, len(times))
