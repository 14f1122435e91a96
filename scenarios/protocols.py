"""The protocols that a run may ask for, said once for the command line, for scenario files and for `scenarios.run`."""

from netsim.errors import ScheduleError

IDEAL = "ideal"
"""Textbook alpha-beta."""
PROTOCOLS = (IDEAL, "auto")
"""What is accepted; ``auto`` is ideal for now."""
_LATER = ("ll", "ll128", "simple")
ACCEPTED = f"{' or '.join(PROTOCOLS)}; NCCL's protocols come later"


def protocol_named(name: str, where: str = "protocol") -> str:
    """Return the protocol that a name stands for.

    Raises
    ------
    ScheduleError
        If it is not simulated (yet).

    Examples
    --------
    >>> protocol_named("auto")
    'ideal'
    """
    if name in PROTOCOLS:
        return IDEAL
    kind = "not simulated yet" if name in _LATER else "no protocol"
    raise ScheduleError(f"{where}: {name!r} is {kind}; accepted is {ACCEPTED}")
