"""What is a difference and what is noise: medians, spreads, changes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_STEPS = 3  # fewer have no spread to speak of


NEVER_LESS = 100  # a change of less than this part of the step is never told


@dataclass(frozen=True, slots=True)
class Change:
    """A length of time on both sides, ns: per-step medians, or of the whole trace.

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
        """The difference in per cent of what was before; 0 where that was nothing."""
        return 100 * self.difference_ns / self.before_ns if self.before_ns else 0.0


def median(values: Sequence[int]) -> int:
    """The middle one, or the mean of the middle two, rounded down; 0 of none."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def spread(values: Sequence[int]) -> int | None:
    """The interquartile range, quartiles interpolated linearly; None of too few values."""
    if len(values) < FEWEST_STEPS:
        return None
    return round(interquartile(values))


def interquartile(values: Sequence[int]) -> float:
    """Third quartile minus first, interpolated between the values, of which there are two."""
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first


def change(before: Sequence[int], after: Sequence[int], length_ns: int) -> Change:
    """Two samples of one figure, ns; nothing below 1 % of `length_ns` is more than noise."""
    first, second = median(before), median(after)
    spreads = spread(before), spread(after)
    noise = max(length_ns // NEVER_LESS, *(x or 0 for x in spreads))
    return Change(first, second, second - first, *spreads, noise, abs(second - first) > noise)
