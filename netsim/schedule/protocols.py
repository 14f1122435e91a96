"""The protocols that a run may ask for, said once for the command line, scenario files and runs."""

from netsim.errors import ScheduleError

IDEAL = "ideal"
"""Textbook alpha-beta."""
PROTOCOLS = (IDEAL, "auto", "ll", "ll128", "simple")
"""What is accepted: the textbook's, and NCCL's with its schedules; ``auto`` is NCCL's choice."""
ACCEPTED = "ideal (textbook), or NCCL's: auto (its choice), ll, ll128 or simple, or a list of these as in NCCL_PROTO"
_LISTS = ",;^"
"""What only lists hold, exclusions and lists for functions among them."""


def protocol_named(name: str, where: str = "protocol") -> str:
    """Return the protocol of a name, in any case of letters; what is written as NCCL_PROTO may be comes back as it is.

    Raises
    ------
    ScheduleError
        If there is none of that name. Lists are read where NCCL chooses (`netsim.nccl.environment.allowed`).

    Examples
    --------
    >>> protocol_named("auto"), protocol_named("LL128"), protocol_named("^LL,LL128")
    ('auto', 'll128', '^LL,LL128')
    """
    folded = name.strip().lower()
    if folded in PROTOCOLS:
        return folded
    if any(mark in name for mark in _LISTS):
        return name.strip()
    raise ScheduleError(f"{where}: {name!r} is no protocol; accepted is {ACCEPTED}")
