"""Errors that a user can cause, one class for each stage of the flow.

Every message is one sentence: what was wrong, the value, where it came from and what would be accepted. The command
line turns any `NetsimError` into that sentence and its exit code; nothing here prints.
"""


class NetsimError(Exception):
    """Base of all errors that netsim raises on purpose; ``exit_code`` is what the command line returns."""

    exit_code = 2


class UnitError(NetsimError):
    """A quantity could not be read: unknown or ambiguous unit, negative, not finite, or of the wrong dimension."""


class FabricError(NetsimError):
    """A topology graph lacks something that it must carry, or two ranks have no path between them."""


class DisconnectedError(FabricError):
    """The GPUs of a topology are not all joined; `netsim topo check` answers with it, everything else refuses."""


class ProfileError(NetsimError):
    """A link profile is missing, incomplete or physically impossible."""


class ScheduleError(NetsimError):
    """A schedule cannot be built or is malformed: unknown algorithm, bad rank count, dangling requirement."""


class ProofError(ScheduleError):
    """A schedule does not do what its collective promises, or two of its operations race for the same data."""

    exit_code = 1


class StuckError(ScheduleError):
    """A schedule can never finish: a cycle of requirements, or an operation that waits for one that never starts."""

    exit_code = 1


class TooManyMessagesError(ScheduleError):
    """A run would need more messages than the limit allows; the message names the count and the flag."""


class ScenarioError(NetsimError):
    """A scenario file does not fit its schema; the message points at the line."""


class InternalError(NetsimError):
    """The simulator contradicts itself, for example a time below its own lower bound: never the user's fault."""

    exit_code = 70
