"""Which release of NCCL is imitated; its rules and constants change with it.

The facts are those of the public sources from 2.17 to 2.30; releases outside that range are taken as the nearest one.
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
        """Read ``2.28``, ``2.28.9`` or a package's name for it, or say what is accepted."""
        found = _FORM.fullmatch(text.strip())
        if not found:
            raise NetsimError(f"{where}: {text!r} is no release of NCCL; accepted are releases such as 2.28 or 2.28.9")
        version = cls(int(found[1]), int(found[2]), int(found[3] or 0))
        if version < OLDEST or version.major > NEWEST.major:
            raise NetsimError(f"{where}: NCCL {version} is not covered; accepted are {OLDEST} to {NEWEST}")
        return version

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


OLDEST = Version(2, 17, 1)
NEWEST = Version(2, 30, 7)
DEFAULT = Version(2, 28, 9)
"""The release that is imitated unless another is asked for."""
