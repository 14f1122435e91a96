"""Quantities as text with a unit, and back: bytes, bytes per second, seconds.

The edge of the library: files and command lines hold text such as ``64 MiB``, ``400 Gb/s`` or ``1.5 us``; inside there
are only integers of bytes and floats of seconds and bytes per second. `B` is a byte and `b` a bit, `k M G T` are powers
of 1000 and `Ki Mi Gi Ti` powers of 1024; case matters, because Gb and GB differ by eight.
"""

import math
import re
from fractions import Fraction

from netsim.errors import UnitError

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf|infinity))\s*(\S*)\s*", re.I)
_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_BARE_BINARY = {"": 1, "K": 2**10, "k": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZES = {prefix + "B": Fraction(factor) for prefix, factor in _PREFIXES.items()}
_RATES = {
    prefix + letter + per: Fraction(factor, bits)
    for prefix, factor in _PREFIXES.items()
    for letter, bits in (("B", 1), ("b", 8))
    for per in ("/s", "ps")
}
_TIMES = {
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}

_SIZES_ACCEPTED = "B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)"
_RATES_ACCEPTED = "B/s, kB/s, MB/s, GB/s, TB/s, their Ki/Mi/Gi/Ti forms, or bits with a small b: kb/s, Mb/s, Gb/s, Tb/s"
_TIMES_ACCEPTED = "s, ms, us or ns"

# Beyond this a size no longer fits the 64-bit columns of a schedule.
MAX_BYTES = 2**62


def parse_bytes(value: int | str, *, where: str = "size", bare_suffix: bool = False) -> int:
    """Read a size.

    Parameters
    ----------
    value : int or str
        Text with a unit (``"64 MiB"``), a plain integer of bytes, or ``"0"``.
    where : str
        What is being read, for the error message.
    bare_suffix : bool
        Also accept nccl-tests' spelling: digits alone are bytes, and a lone K, M, G or T is binary (``"64M"``).

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    UnitError
        For an unknown unit, a bit unit, a negative or fractional number of bytes, or more than 2^62 bytes.

    Examples
    --------
    >>> parse_bytes("64 MiB"), parse_bytes("64M", bare_suffix=True), parse_bytes("1.5 kB")
    (67108864, 67108864, 1500)
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UnitError(f"{where}: {value!r} is not a size; give a whole number of bytes or text such as '64 MiB'")
    if isinstance(value, int):
        exact = Fraction(value)
    else:
        number, unit = _split(value, where, _SIZES_ACCEPTED)
        if bare_suffix and unit in _BARE_BINARY:
            exact = number * _BARE_BINARY[unit]
        elif unit in _SIZES:
            exact = number * _SIZES[unit]
        elif unit == "" and number == 0:
            exact = number
        elif unit.endswith("b") and unit[:-1] + "B" in _SIZES:
            raise UnitError(f"{where}: {value!r} is in bits (small b), but a size is in bytes: {_SIZES_ACCEPTED}")
        else:
            also = ", or a bare K, M, G, T (binary)" if bare_suffix else ""
            raise UnitError(f"{where}: {value!r} has {_unit_words(unit)}; accepted are {_SIZES_ACCEPTED}{also}")
    if exact < 0:
        raise UnitError(f"{where}: {value!r} is negative; a size is zero or more bytes")
    if exact.denominator != 1:
        raise UnitError(f"{where}: {value!r} is not a whole number of bytes")
    if exact > MAX_BYTES:
        raise UnitError(f"{where}: {value!r} is more than {MAX_BYTES} bytes (2^62), the largest size accepted")
    return int(exact)


def parse_rate(value: str, *, where: str = "bandwidth") -> float:
    """Read a bandwidth such as ``"450 GB/s"`` or ``"400 Gb/s"`` into bytes per second (above zero).

    Examples
    --------
    >>> parse_rate("400 Gb/s")
    50000000000.0
    """
    number, unit = _split(value, where, _RATES_ACCEPTED)
    if unit not in _RATES:
        hint = f"; did you mean '{unit}/s'?" if unit + "/s" in _RATES else ""
        raise UnitError(f"{where}: {value!r} has {_unit_words(unit)}; accepted are {_RATES_ACCEPTED}{hint}")
    rate = float(number * _RATES[unit])
    if not 0 < rate < math.inf:
        raise UnitError(f"{where}: {value!r} must be above zero and finite")
    return rate


def parse_time(value: str, *, where: str = "time") -> float:
    """Read a duration such as ``"1.5 us"`` into seconds (zero or more; a bare ``"0"`` needs no unit).

    Examples
    --------
    >>> parse_time("8.25us")
    8.25e-06
    """
    number, unit = _split(value, where, _TIMES_ACCEPTED)
    if unit == "" and number == 0:
        return 0.0
    if unit not in _TIMES:
        raise UnitError(f"{where}: {value!r} has {_unit_words(unit)}; accepted are {_TIMES_ACCEPTED}")
    seconds = float(number * _TIMES[unit])
    if not 0 <= seconds < math.inf:
        raise UnitError(f"{where}: {value!r} must be zero or more and finite")
    return seconds


def format_bytes(size_bytes: int) -> str:
    """Write a size so that `parse_bytes` reads the same number back.

    Examples
    --------
    >>> format_bytes(67108864), format_bytes(1500), format_bytes(1501)
    ('64 MiB', '1500 B', '1501 B')
    """
    for prefix in ("Ti", "Gi", "Mi", "Ki"):
        factor = _PREFIXES[prefix]
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor} {prefix}B"
    return f"{size_bytes} B"


def format_rate(bytes_per_s: float) -> str:
    """Write a bandwidth in GB/s so that `parse_rate` reads the same number back.

    Examples
    --------
    >>> format_rate(450e9)
    '450 GB/s'
    """
    return _shortest(bytes_per_s, (("GB/s", Fraction(10**9)), ("MB/s", Fraction(10**6)), ("B/s", Fraction(1))))


def format_time(seconds: float) -> str:
    """Write a duration so that `parse_time` reads the same number back.

    Examples
    --------
    >>> format_time(1e-6), format_time(0.0)
    ('1 us', '0 s')
    """
    if seconds == 0:
        return "0 s"
    units = (("us", Fraction(1, 10**6)), ("ns", Fraction(1, 10**9)), ("s", Fraction(1)))
    return _shortest(seconds, units)


def _split(value: object, where: str, accepted: str) -> tuple[Fraction, str]:
    if not isinstance(value, str):
        raise UnitError(f"{where}: {value!r} has no unit; write text such as a number followed by one of {accepted}")
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise UnitError(f"{where}: {value!r} is not a number followed by a unit; accepted are {accepted}")
    number, unit = match.groups()
    if number.lstrip("+-").lower().startswith(("nan", "inf")):
        raise UnitError(f"{where}: {value!r} is not a finite number")
    if len(number) > 60 or abs(_exponent(number)) > 60:
        raise UnitError(f"{where}: {value!r} is out of range")
    return Fraction(number), unit


def _exponent(number: str) -> int:
    _, mark, exponent = number.lower().partition("e")
    return int(exponent) if mark else 0


def _unit_words(unit: str) -> str:
    return f"the unknown unit {unit!r}" if unit else "no unit"


def _shortest(value: float, units: tuple[tuple[str, Fraction], ...]) -> str:
    for digits in (15, 16, 17):
        for unit, factor in units:
            text = f"{float(Fraction(value) / factor):.{digits}g}"
            if float(Fraction(text) * factor) == value:
                return f"{text} {unit}"
    return f"{value!r} {units[-1][0]}"
