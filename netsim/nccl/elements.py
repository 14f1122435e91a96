"""What is reduced: the data types and operators of nccl-tests, and how many bytes an element has."""

from dataclasses import dataclass

from netsim.errors import NetsimError

ELEMENT_BYTES = {
    **{"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8},
    **{"half": 2, "bfloat16": 2, "float": 4, "double": 8, "f8e4m3": 1, "f8e5m2": 1},
}
"""Bytes of an element of each type."""
DATATYPES = tuple(ELEMENT_BYTES)
FLOAT8 = ("f8e4m3", "f8e5m2")
OPERATORS = ("sum", "prod", "min", "max", "avg", "mulsum")
"""Names of nccl-tests."""


@dataclass(frozen=True)
class Elements:
    """What a collective moves and how it adds it up.

    Raises
    ------
    NetsimError
        For names that nccl-tests does not know.
    """

    datatype: str = "float"
    operator: str = "sum"

    def __post_init__(self) -> None:
        for what, value, accepted in (("type", self.datatype, DATATYPES), ("operator", self.operator, OPERATORS)):
            if value not in accepted:
                raise NetsimError(f"{value!r} is no {what} that NCCL reduces; accepted are {', '.join(accepted)}")


FLOATS = Elements()
"""Sums of floats, nccl-tests' default."""
