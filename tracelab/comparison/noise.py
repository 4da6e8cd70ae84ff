"""Differences and noise: medians, spreads, changes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tracelab.base.arrays import OneLine, dataclass

# Of the step: a smaller change is always noise.
MIN_PERCENT = 1
# A single step on a side says nothing about noise: only a larger change counts.
MIN_PERCENT_OF_ONE_STEP = 25
_MIN_VALUES_FOR_QUARTILES = 5

# Student's t for 95 %, two-sided, by degrees of freedom from 1 on.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
_STUDENT_OF_MORE = 2.2


@dataclass(frozen=True, slots=True, repr=False)
class Change(OneLine):
    """A length of time on both sides, ns: medians over steps or recordings, or of the whole trace.

    Example row: ``Change(before_ns=100, after_ns=130, difference_ns=30, before_spread_ns=4,
    after_spread_ns=6, noise_ns=6, beyond_noise=True)``

    Attributes:
        before_spread_ns, after_spread_ns: how far the steps (or the medians of the recordings) lie
            apart, see `spread`; None of a single one.
        noise_ns: how much it may differ for no reason.
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
    """The interquartile range; of fewer than five values the full range, of one None.

    >>> spread([10, 20, 30, 40, 500]), spread([10, 20, 60]), spread([10])
    (20, 50, None)
    """
    if len(values) < 2:
        return None
    if len(values) < _MIN_VALUES_FOR_QUARTILES:
        return max(values) - min(values)
    return round(interquartile(values))


def interquartile(values: Sequence[int]) -> float:
    """Third quartile minus first, interpolated linearly between the values, at least two.

    >>> interquartile([1, 2])
    0.5
    """
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first


def change(before: Sequence[int], after: Sequence[int], length_ns: int) -> Change:
    """Compare the steps of one recording with those of another.

    Where all steps of one side lie beyond all of the other, at least two on each, the steps
    decide: only 1 % of a step is noise. Else it is the larger spread. Where a side has a single
    step, it is a quarter of the time itself.

    >>> change([100, 101], [130, 150], length_ns=1000).noise_ns
    10
    >>> change([100, 140], [130, 150], length_ns=1000).noise_ns
    40
    >>> change([100], [130], length_ns=400).noise_ns
    32

    Args:
        before: the time in each step of one side, ns; at least one.
        after: the same of the other side.
        length_ns: the step's length before: nothing below 1 % of it is more than noise.
    """
    return _change(before, after, length_ns, _noise_between_steps_ns(before, after))


def change_between(before: Sequence[int], after: Sequence[int], length_ns: int) -> Change:
    """Compare several recordings with several others.

    The noise is how much recordings of one side differ: half the width of Student's interval
    (95 %) of the difference.

    >>> change_between([100, 104], [130, 134], length_ns=1000).noise_ns
    12

    Args:
        before: the median of each recording of one side, ns; at least one.
        after: the same of the other side; more than two in all.
        length_ns: as of `change`.
    """
    freedom = len(before) + len(after) - 2
    squares = sum((x - statistics.fmean(side)) ** 2 for side in (before, after) for x in side)
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _STUDENT_OF_MORE
    weight = 1 / len(before) + 1 / len(after)
    noise_ns = math.floor(student * math.sqrt(squares / freedom * weight))
    return _change(before, after, length_ns, noise_ns)


def _change(
    before: Sequence[int], after: Sequence[int], length_ns: int, least_noise_ns: int
) -> Change:
    before_ns, after_ns = median(before), median(after)
    noise_ns = max(length_ns * MIN_PERCENT // 100, least_noise_ns)
    difference_ns = after_ns - before_ns
    return Change(
        before_ns,
        after_ns,
        difference_ns,
        spread(before),
        spread(after),
        noise_ns,
        abs(difference_ns) > noise_ns,
    )


def _noise_between_steps_ns(before: Sequence[int], after: Sequence[int]) -> int:
    if min(len(before), len(after)) == 1:
        return max(median(before), median(after)) * MIN_PERCENT_OF_ONE_STEP // 100
    if max(before) < min(after) or max(after) < min(before):
        return 0
    return max(spread(before) or 0, spread(after) or 0)
