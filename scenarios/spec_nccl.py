"""The keys of a scenario file that are for NCCL's protocols: read into `scenarios.nccl.NcclOptions`, and checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netsim.errors import NetsimError, ScenarioError
from netsim.nccl.elements import Elements
from netsim.nccl.environment import allowed, read_assignments
from netsim.nccl.gpus import read_costs
from netsim.nccl.names import AUTO, accepted, algorithm_named
from netsim.nccl.schedules import ALGORITHMS
from netsim.nccl.tuner_file import read_rules
from netsim.nccl.version import Version
from netsim.schedule.protocols import IDEAL
from scenarios.nccl import NcclOptions

KEYS = (
    *("nccl_version", "nccl_env", "registered", "launch", "gpus_per_process"),
    *("tuner", "windows", "in_place", "datatype", "operator", "kernel_costs"),
)


@dataclass(frozen=True)
class Places:
    """How a scenario file names its places, and where files stand that it names."""

    where: Callable[..., str]
    """Key -> ``file:line: key``."""
    beside: Callable[[str], str]
    """Name -> path."""


def nccl_options(
    places: Places,
    *,
    version: str | None,
    environment: Sequence[str],
    registered: bool,
    launch: str,
    gpus_per_process: int,
    tuner: str | None,
    windows: bool,
    in_place: bool,
    kernel_costs: str | None,
    datatype: str,
    operator: str,
    given: Sequence[str] = (),
) -> NcclOptions:
    """Return the options, with files looked for beside the scenario.

    Raises
    ------
    ScenarioError
        With file and line, for a release, a variable or a file that is not accepted.
    """
    where = places.where
    assigned = tuple(text if "=" in text else places.beside(text) for text in environment)
    rules = None if tuner is None else places.beside(tuner)
    costs = None if kernel_costs is None else places.beside(kernel_costs)
    try:
        if version is not None:
            Version.parse(version, where("nccl_version"))
        read_assignments(assigned, where("nccl_env"))
    except NetsimError as error:
        raise ScenarioError(str(error)) from None
    try:
        if rules is not None:
            read_rules(rules)
    except NetsimError as error:
        raise ScenarioError(f"{where('tuner')}: {error}") from None
    try:
        if costs is not None:
            read_costs(costs)
    except NetsimError as error:
        raise ScenarioError(f"{where('kernel_costs')}: {error}") from None
    release = NcclOptions.version if version is None else version
    said = tuple(key for key in KEYS if key in given)
    for key, elements in (("datatype", (datatype, "sum")), ("operator", ("float", operator))):
        try:
            Elements(*elements)
        except NetsimError as error:
            raise ScenarioError(f"{where(key)}: {error}") from None
    return NcclOptions(
        release,
        assigned,
        registered,
        launch,
        gpus_per_process,
        rules,
        windows=windows,
        in_place=in_place,
        kernel_costs=costs,
        datatype=datatype,
        operator=operator,
        given=said,
    )


def check_keys(places: Places, given: Sequence[str], protocols: Sequence[str]) -> None:
    """Refuse keys that no protocol of the file has a use for."""
    if all(protocol == IDEAL for protocol in protocols):
        for key in KEYS:
            if key in given:
                raise ScenarioError(
                    f"{places.where(key)} is for NCCL's protocols, and the protocol is ideal; give protocol: auto, "
                    "or leave it out"
                )
    elif IDEAL not in protocols:
        for key in ("chunk", "chunks"):
            if key in given:
                raise ScenarioError(f"{places.where(key)} is for the protocol ideal; NCCL cuts data by its own rules")


def serves(collective: str, algorithm: str) -> bool:
    """Say whether NCCL has an algorithm for a collective; lists and exclusions are as in NCCL_ALGO."""
    try:
        named = algorithm_named(algorithm, collective)
    except NetsimError:
        return False
    return named is not None and (named not in ALGORITHMS or named in accepted(collective))


def is_nccls(collective: str, algorithm: str, protocol: str) -> bool:
    """Say whether a run is NCCL's where GPUs are known: auto is the textbook for algorithms that only that has."""
    return protocol not in (IDEAL, "auto") or (protocol == "auto" and serves(collective, algorithm))


def check_nccl_algorithm(places: Places, collective: str, algorithm: str) -> None:
    """Refuse what names no algorithm of NCCL's for a collective."""
    if not serves(collective, algorithm):
        raise ScenarioError(
            f"{places.where('algorithm')} is {algorithm!r}; accepted for {collective} with NCCL's protocols are "
            f"{', '.join((*accepted(collective), AUTO))}"
        )


def check_nccl_protocol(places: Places, collective: str, protocol: str) -> None:
    """Refuse a list in which something is no protocol of NCCL's."""
    try:
        allowed({}, collective, protocols=None if protocol == IDEAL else protocol)
    except NetsimError as error:
        raise ScenarioError(f"{places.where('protocol')}: {str(error).removeprefix('--proto=')}") from None
