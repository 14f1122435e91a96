"""Which release of NCCL is imitated; its rules and constants change with it.

The facts are those of the public sources from 2.17 to 2.30. Patches of these that came later are taken as they are numbered;
releases outside that range are refused, because nothing is known of their rules.
"""

import re
from dataclasses import dataclass

from netsim.errors import NetsimError

_FORM = re.compile(r"v?([0-9]{1,2})\.([0-9]{1,3})(?:\.([0-9]{1,3}))?(?:[-+].*)?", re.ASCII)


@dataclass(frozen=True, order=True)
class Version:
    """A release, compared like (2, 28, 9).

    Examples
    --------
    >>> Version.parse("2.28.9+cuda12.9") >= Version(2, 28), str(Version(2, 27, 3))
    (True, '2.27.3')
    """

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str, where: str = "--nccl-version") -> "Version":
        """Read ``2.28``, ``2.28.9`` or a package's name for it, or say what is accepted.

        A minor without a patch is its newest patch that is known here.
        """
        found = _FORM.fullmatch(text.strip())
        if not found:
            raise NetsimError(f"{where}: {text[:40]!r} is no release of NCCL; accepted are releases such as 2.28 or 2.28.9")
        major, minor = int(found[1]), int(found[2])
        patch = int(found[3]) if found[3] else _NEWEST_PATCH.get(minor, 0)
        version = cls(major, minor, patch)
        if version < OLDEST or (major, minor) > (NEWEST.major, NEWEST.minor):
            written = f"{major}.{minor}.{found[3]}" if found[3] else f"{major}.{minor}"
            raise NetsimError(f"{where}: NCCL {written} is not covered; accepted are {OLDEST} to {NEWEST}")
        return version

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


OLDEST = Version(2, 17, 1)
NEWEST = Version(2, 30, 7)
# Minor of release 2 -> its last patch among the public tags up to 2.30.7.
_NEWEST_PATCH = {
    **{17: 1, 18: 6, 19: 4, 20: 5, 21: 5, 22: 3, 23: 4},
    **{24: 3, 25: 1, 26: 6, 27: 7, 28: 9, 29: 7, 30: 7},
}
DEFAULT = Version(2, 28, 9)
"""The release that is imitated unless another is asked for."""
