"""The rows of a table by size: the largest, and one for all others, so that nothing is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array

# Without the row of others.
MAX_ROWS = 200
OTHERS = "others"


def ranked(size: Int64Array, names: Sequence[str], most: int) -> tuple[list[int], list[int]]:
    """The indices of the largest, and of the others; both by size, then name.

    Two or more are left to the others, never one.

    >>> ranked(np.array([5, 9, 9, 1]), ["d", "c", "b", "a"], most=2)
    ([2, 1], [0, 3])
    """
    sizes = size.tolist()
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], names[i]))
    most = most if len(order) > most + 1 else len(order)
    return order[:most], order[most:]


def summed(label: NDArray[np.integer[Any]], values: Int64Array, count: int) -> Int64Array:
    """The sum of the values of each label: int64[count]; sums below 2**53 are exact.

    >>> summed(np.array([0, 2, 0]), np.array([5, 7, 1]), 3).tolist()
    [6, 0, 7]
    """
    return np.bincount(label, weights=values, minlength=count).astype(np.int64)


def per_step(total: int, steps: int | None) -> int:
    """A total by the number of steps, rounded half up; the total itself without steps.

    >>> per_step(7, 2), per_step(7, None)
    (4, 7)
    """
    return (2 * total + steps) // (2 * steps) if steps else total


def share_of(part: int, whole: int) -> float:
    """A share, 0 of nothing.

    >>> share_of(1, 4), share_of(0, 0)
    (0.25, 0.0)
    """
    return part / whole if whole else 0.0
