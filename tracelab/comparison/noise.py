"""What is a difference and what is noise: medians, spreads, changes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tracelab.arrays import OneLine

FEWEST_STEPS = 3  # fewer have no spread to speak of
LEAST_PERCENT = 1  # of the step: a smaller change is always noise


@dataclass(frozen=True, slots=True, repr=False)
class Change(OneLine):
    """A length of time on both sides, ns: per-step medians, or of the whole trace.

    Example row: ``Change(before_ns=100, after_ns=130, difference_ns=30, before_spread_ns=4,
    after_spread_ns=6, noise_ns=6, beyond_noise=True)``

    Attributes:
        before_spread_ns, after_spread_ns: the interquartile range over the steps; None of a whole
            trace.
        noise_ns: the larger spread, but at least 1 % of the step before.
        beyond_noise: the difference is more than that, whichever its sign.
    """

    before_ns: int
    after_ns: int
    difference_ns: int
    before_spread_ns: int | None
    after_spread_ns: int | None
    noise_ns: int
    beyond_noise: bool

    @property
    def percent(self) -> float:
        """The difference in percent of the time before; 0 where that was 0."""
        return 100 * self.difference_ns / self.before_ns if self.before_ns else 0.0


def median(values: Sequence[int]) -> int:
    """The middle value, or the mean of the middle two, rounded down; 0 of none.

    >>> median([9, 1, 4]), median([1, 4]), median([])
    (4, 2, 0)
    """
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def spread(values: Sequence[int]) -> int | None:
    """The interquartile range, quartiles interpolated linearly; None of too few values.

    >>> spread([10, 20, 30, 40, 50]), spread([10, 20])
    (20, None)
    """
    if len(values) < FEWEST_STEPS:
        return None
    return round(interquartile(values))


def interquartile(values: Sequence[int]) -> float:
    """Third quartile minus first, interpolated linearly between the values, at least two.

    >>> interquartile([1, 2])
    0.5
    """
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first


def change(before: Sequence[int], after: Sequence[int], length_ns: int) -> Change:
    """What changed between two samples of one time.

    >>> change([100, 100, 104], [130, 130, 130], length_ns=1000).beyond_noise
    True
    >>> change([100], [130], length_ns=4000).noise_ns
    40

    Args:
        before: the time in each step of one side, ns.
        after: the same of the other side.
        length_ns: the step's length before: nothing below 1 % of it is more than noise.
    """
    before_ns, after_ns = median(before), median(after)
    spreads_ns = spread(before), spread(after)
    noise_ns = max(length_ns * LEAST_PERCENT // 100, *(spread_ns or 0 for spread_ns in spreads_ns))
    difference_ns = after_ns - before_ns
    beyond_noise = abs(difference_ns) > noise_ns
    return Change(before_ns, after_ns, difference_ns, *spreads_ns, noise_ns, beyond_noise)
