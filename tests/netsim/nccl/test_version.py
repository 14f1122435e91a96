"""Which releases are accepted, and which one a number without its patch is."""

import pytest

from netsim.errors import NetsimError
from netsim.nccl.version import NEWEST, OLDEST, Version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.17", OLDEST),
        ("2.28", Version(2, 28, 9)),
        ("2.30", NEWEST),
        ("2.28.3", Version(2, 28, 3)),
        ("v2.27.5-1", Version(2, 27, 5)),
        # Patches that are not out yet, or were never public, have the rules of their number.
        ("2.30.99", Version(2, 30, 99)),
        ("2.18.9", Version(2, 18, 9)),
    ],
)
def test_a_release_is_read_and_a_bare_minor_is_its_newest_patch(text: str, version: Version) -> None:
    assert Version.parse(text) == version


@pytest.mark.parametrize("text", ["2.31", "2.99", "2.99.9", "3.0", "2.16", "2.16.5", "2.17.0"])
def test_releases_outside_the_range_are_refused_with_it(text: str) -> None:
    with pytest.raises(NetsimError, match=f"--nccl-version: NCCL {text} is not covered; accepted are {OLDEST} to {NEWEST}"):
        Version.parse(text)


@pytest.mark.parametrize("text", ["", " ", "2", "2.x", "latest"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(NetsimError, match="is no release of NCCL; accepted are releases such as 2.28 or 2.28.9"):
        Version.parse(text)


def test_every_minor_of_the_range_has_a_newest_patch() -> None:
    parsed = [Version.parse(f"2.{minor}") for minor in range(OLDEST.minor, NEWEST.minor + 1)]
    assert all(version.patch for version in parsed)
    assert (parsed[0], parsed[-1]) == (OLDEST, NEWEST)
