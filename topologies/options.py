"""Reading ``NAME:KEY=VALUE,KEY=VALUE``, the form in which the command line describes fabrics and NICs.

Strict: every key must be known, stand once and have a value; messages name the text and what is accepted.
"""

from collections.abc import Sequence

from netsim.errors import FabricError

MOST = 1_000_000
"""Counts above this are refused."""


def split_options(text: str, what: str) -> tuple[str, dict[str, str]]:
    """Split a text into its name and its options.

    Examples
    --------
    >>> split_options("leaf-spine:leaves=2,spines=4", "fabric")
    ('leaf-spine', {'leaves': '2', 'spines': '4'})
    """
    name, colon, rest = text.partition(":")
    options: dict[str, str] = {}
    for part in rest.split(",") if colon else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise FabricError(f"{what} {text!r}: {part!r} is no option; write KEY=VALUE, several with commas between")
        if key in options:
            raise FabricError(f"{what} {text!r}: {key} stands there twice")
        options[key] = value
    return name.strip(), options


def check_keys(options: dict[str, str], accepted: Sequence[str], where: str) -> None:
    """Refuse a key that means nothing here."""
    for key in options:
        if key not in accepted:
            raise FabricError(f"{where}: unknown key {key!r}; accepted are {', '.join(accepted) or 'none'}")


def whole(value: str, where: str, most: int = MOST) -> int:
    """Read a whole number from 1 up."""
    if not (value.isascii() and value.isdigit() and 1 <= len(value) <= 9 and 1 <= int(value) <= most):
        raise FabricError(f"{where} is {value!r}; it must be a whole number from 1 to {most}")
    return int(value)


def choice(value: str, accepted: Sequence[str], where: str) -> str:
    """Accept one of a few words."""
    if value not in accepted:
        raise FabricError(f"{where} is {value!r}; accepted are {', '.join(accepted)}")
    return value
