"""The host's time without the profiler, at the moments that were recorded with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HostClock(Frozen):
    """How far the host has come without the profiler when it has come so far with it.

    Between two rows of the table it runs evenly; before the first and after the last it stands
    still.

    Attributes:
        recorded_ns: int64[k], ns, ascending: moments of the recording, those of whichever thread of
            the host counts then.
        unprofiled_ns: int64[k], ns, ascending: the same moments in the replay without the profiler.
        steps: how many steps it runs through.

    Example row: ``(recorded_ns=12_000, unprofiled_ns=7_000)``: of the first 12 us the profiler took
    5.
    """

    recorded_ns: Int64Array
    unprofiled_ns: Int64Array
    steps: int

    def lengths_ns(self, starts_ns: Int64Array, ends_ns: Int64Array) -> Int64Array:
        """int64[k], ns, how long each of some intervals is without the profiler.

        Lengths of intervals that touch add up to that of all of them.

        >>> clock = HostClock(np.array([0, 10, 20]), np.array([0, 4, 14]), steps=1)
        >>> clock.lengths_ns(np.array([0, 5, 15]), np.array([5, 15, 40])).tolist()
        [2, 7, 5]
        """
        return self._at(ends_ns) - self._at(starts_ns)

    def _at(self, moments_ns: Int64Array) -> Int64Array:
        read: NDArray[np.float64] = np.interp(moments_ns, self.recorded_ns, self.unprofiled_ns)
        return np.rint(read).astype(np.int64)
