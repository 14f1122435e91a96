"""Lists of message sizes, as nccl-tests steps through them."""

from netsim.errors import ScenarioError

MOST_SIZES = 100_000
"""More rows than this are a slip in the step, not a table (8 B to 8 GiB in steps of 1 MiB are 8,192)."""


def size_list(first: int, last: int, factor: int = 1, step: int = 2**20) -> list[int]:
    """Return the sizes from `first` to `last` bytes, multiplied by `factor`, or where that is 1, increased by `step`.

    Raises
    ------
    ScenarioError
        If the range is empty, never ends or has more than `MOST_SIZES` sizes.

    Examples
    --------
    >>> size_list(8, 100, factor=2), size_list(0, 3, step=1), size_list(5, 5)
    ([8, 16, 32, 64], [0, 1, 2, 3], [5])
    """
    if last < first:
        raise ScenarioError(f"the largest size, {last} bytes, is below the smallest, {first} bytes")
    if last == first:
        return [first]
    if factor > 1:
        if first == 0:
            raise ScenarioError(
                f"sizes from 0 multiplied by {factor} never grow; begin at 1 byte or more, or add a step instead"
            )
        sizes = [first]
        while sizes[-1] * factor <= last:
            sizes.append(sizes[-1] * factor)
        return sizes
    if step < 1:
        raise ScenarioError(
            f"sizes from {first} to {last} bytes in steps of {step} bytes never grow; the step must be 1 byte or more"
        )
    count = (last - first) // step + 1
    if count > MOST_SIZES:
        raise ScenarioError(
            f"sizes from {first} to {last} bytes in steps of {step} bytes are {count} rows, more than {MOST_SIZES}"
        )
    return list(range(first, last + 1, step))
