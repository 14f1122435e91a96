"""The options that builders share: names and types for type checkers, and what each means, said once.

A builder takes ``**options: Unpack[Pieces]`` and says itself only what is its own. Defaults stand in
`netsim.schedule.pieces`, whose `Given` and `GivenPieces` hold the values and refuse a name that the builder does not take.
"""

from typing import TypedDict

from netsim.schedule.pieces import Groups


class Common(TypedDict, total=False):
    """Options of every builder.

    Parameters
    ----------
    align_bytes : int
        Boundaries are multiples of this from where what is cut begins; by default 1.
    limit : int or None
        The most operations accepted; by default any number.
    """

    align_bytes: int
    limit: int | None


class Pieces(Common, total=False):
    """Options of a builder that cuts data into pieces, which follow one another.

    Parameters
    ----------
    chunk_bytes, chunks : int or None
        Size or number of the pieces, not both. Each builder says what it cuts and into how many by default.
    """

    chunk_bytes: int | None
    chunks: int | None


class Servers(Common, total=False):
    """Options of a builder that knows servers.

    Parameters
    ----------
    groups : sequence of sequence of int or None
        The ranks of each server; by default all are in one.
    """

    groups: Groups | None


class ServerPieces(Pieces, Servers, total=False):
    """Options of a builder that cuts data and knows servers."""


class RingPieces(ServerPieces, total=False):
    """Options of rings.

    Parameters
    ----------
    channels : int
        That many rings share the data; with several servers each enters them at another GPU. By default 1.
    """

    channels: int
