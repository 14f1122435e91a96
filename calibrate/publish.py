"""A fit -> a link profile, with where its figures come from, for `topologies.profiles` to check and write.

What back-to-back copies cost beside their bytes is a gap: it occupies the link, and latency is hidden behind it, so none
is stated. A synchronous copy or a collective has no such pipeline, and its alpha is a latency. The figures are rounded to
five digits. They are of the whole way between two ends, as one link: a topology whose way crosses two such links pays the
gap on each.
"""

from collections.abc import Mapping

from calibrate.findings import line_words, meaning
from calibrate.fit import TOLERANCE, Fit, largest
from calibrate.samples import SeriesKey
from netsim.errors import NetsimError
from netsim.units import format_bytes
from topologies.profiles import Profile

_DIRECTIONS = {"h2d": "host to device", "d2h": "device to host", "both": "both directions at once"}
_VERSIONS = ("driver", "cuda", "torch", "nccl")


def profile_of(
    fit: Fit,
    facts: Mapping[str, str],
    *,
    name: str,
    line_rate_bytes_per_s: float,
    family: str = "pcie",
    lanes: int | None = None,
    samples: str = "",
) -> Profile:
    """Return the profile that a fit amounts to.

    Parameters
    ----------
    fit : Fit
    facts : mapping of str to str
        Of the samples; ``date`` is needed.
    name : str
        Name of the kind of link.
    line_rate_bytes_per_s : float, bytes per second
    family : str
        One of `topologies.profiles.FAMILIES`.
    lanes : int, optional
        PCI Express lanes that were measured; profiles of that family need them.
    samples : str
        Names the samples, for the source.

    Returns
    -------
    topologies.profiles.Profile

    Raises
    ------
    NetsimError
        If the date or the lanes are missing.
    ProfileError
        If the profile would be impossible.
    """
    if "date" not in facts:
        raise NetsimError(
            f"{samples or 'the samples'}: no date; a profile needs one: write a line such as '# date: 2026-11-29'"
        )
    if family == "pcie" and lanes is None:
        raise NetsimError(
            f"{samples or 'the samples'}: no width of the link, which a profile of family pcie needs: "
            "give --lanes, or a --profile that has them"
        )
    line = fit.best
    alpha_s, rate = _rounded(line.gap_s), _rounded(line.bandwidth_bytes_per_s)
    pipelined = "latency" not in meaning(fit.key)
    if pipelined:
        why = "measured: back-to-back copies hide latency, so all of the fixed time is in the gap"
    else:
        why = f"measured: the fixed time of {fit.key} is {meaning(fit.key)}"
    return Profile(
        name=name,
        family=family,
        line_rate_bytes_per_s=line_rate_bytes_per_s,
        effective_rate_bytes_per_s=rate,
        latency_s=0.0 if pipelined else alpha_s,
        gap_s=alpha_s if pipelined else 0.0,
        floor_s=_rounded(line.floor_s),
        lanes=lanes,
        date=facts["date"],
        source=_source(fit, facts, samples),
        latency_source=why,
        note=_note(fit),
    )


def _source(fit: Fit, facts: Mapping[str, str], samples: str) -> str:
    """Say what was measured, on what, and how it was fitted."""
    machine = [facts[name] for name in ("gpu",) if name in facts]
    machine += [f"{name} {facts[name]}" for name in _VERSIONS if name in facts]
    words = [f"measured: {_series_words(fit.key)} of {format_bytes(fit.sizes[0])} to {format_bytes(fit.sizes[-1])}"]
    words += [", ".join(machine)] if machine else []
    words += [f"samples {samples}"] if samples else []
    how = (
        "least squares on the logarithm of the times" if fit.best == fit.line else "the line whose largest error is smallest"
    )
    return "; ".join([*words, how])


def _series_words(key: SeriesKey) -> str:
    memory = {True: "pinned ", False: "pageable ", None: ""}[key.pinned]
    return f"{key.kind} {memory}{_DIRECTIONS.get(key.direction, key.direction)}"


def _note(fit: Fit) -> str:
    """Say how sure the figures are, and how far they are off."""
    gap, rate = fit.gap, fit.bandwidth
    alpha = "gap" if "latency" not in meaning(fit.key) else "latency"
    words = f"Least squares, 95 % intervals: {alpha} {gap.low * 1e6:.3g} to {gap.high * 1e6:.3g} us, "
    words += f"rate {rate.low / 1e9:.4g} to {rate.high / 1e9:.4g} GB/s"
    if fit.floor is not None:
        words += f", floor {fit.floor.low * 1e6:.3g} to {fit.floor.high * 1e6:.3g} us"
    off = largest(fit.best, fit.sizes, fit.measured_s)
    words += f". Measured times are met within {off:.1%} at every size."
    if fit.best != fit.line:
        words += (
            f" ({line_words(fit.line)} by least squares is {abs(fit.worst[0]):.1%} off at {format_bytes(fit.worst[1])}.)"
        )
    elif off > TOLERANCE:
        words += f" The largest error is at {format_bytes(fit.worst[1])}: one line does not fit these times."
    return words


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
