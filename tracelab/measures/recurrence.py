"""Recurrence: does something go on in each step, or did it happen once?

Something recurs if two steps have it: one may have it by chance, or because it ran first. It is
rare, and says nothing about a usual step, if at most a quarter of the steps have it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MIN_STEPS = 2
_MAX_RARE_SHARE = 0.25


def is_regular(steps_seen: int, steps: int) -> bool:
    """Return True if `steps_seen` of some steps show that something recurs; of one step, that one.

    >>> is_regular(2, 40), is_regular(1, 40), is_regular(1, 1)
    (True, False, True)
    """
    return steps_seen >= min(_MIN_STEPS, steps)


def are_rare(steps_seen: NDArray[np.integer[Any]], steps: int) -> NDArray[np.bool_]:
    """bool[k], things that `steps_seen` of some steps have (int[k]) and a usual step has not.

    >>> are_rare(np.array([1, 2, 3]), 8).tolist(), are_rare(np.array([1, 2]), 3).tolist()
    ([True, True, False], [True, False])
    """
    rare: NDArray[np.bool_] = steps_seen <= max(1, int(_MAX_RARE_SHARE * steps))
    return rare
