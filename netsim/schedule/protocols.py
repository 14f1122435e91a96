"""The protocols that a run may ask for, said once for the command line, scenario files and runs."""

from netsim.errors import ScheduleError

IDEAL = "ideal"
"""Textbook alpha-beta."""
PROTOCOLS = (IDEAL, "auto", "ll", "ll128", "simple")
"""What is accepted: the textbook's, and NCCL's with its schedules; ``auto`` is NCCL's choice."""
ACCEPTED = "ideal (textbook), or NCCL's: auto (its choice), ll, ll128 or simple"


def protocol_named(name: str, where: str = "protocol") -> str:
    """Return the protocol of a name.

    Raises
    ------
    ScheduleError
        If there is none of that name.

    Examples
    --------
    >>> protocol_named("auto")
    'auto'
    """
    if name in PROTOCOLS:
        return name
    raise ScheduleError(f"{where}: {name!r} is no protocol; accepted is {ACCEPTED}")
