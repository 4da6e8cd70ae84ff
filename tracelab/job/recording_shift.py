"""Alignment of two ranks' operation sequences that carry no sequence numbers.

Ranks of a job carry out the operations of a process group in one order. Their recordings may begin
and end at different ones, and training repeats itself: several shifts look alike. The numbers of
the steps tell them apart, and so do the clocks, since the ends of one collective are a few
microseconds apart on all ranks, or on different clocks always equally far.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.model.trace import ABSENT

_PROBE_OPERATIONS = 16
# Only the most likely shifts are compared in full.
_MAX_SHIFTS = 32
# Fewer operations say nothing about clocks.
_MIN_OVERLAP_OPERATIONS = 4
_SAMPLES = 256
# By how much the best shift is better than the next best one.
_MIN_CLEAR_FACTOR = 4
# Synchronized clocks of hosts are at least as close.
_MAX_CLOCK_DIFFERENCE_NS = 1_000_000
# Of bundled jobs the ends of one collective are at most 70 us apart on two ranks of one host.
_ENDS_APART_NS = 100_000
# Or a tenth of a long collective.
_ENDS_APART_DIVISOR = 10
_MAX_OUTLIERS = 0.2
# Neighboring operations show how far the clocks are apart.
_MAX_NEIGHBORS = 3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recorded(Frozen):
    """Operations of one rank that others may have recorded too, in order.

    Attributes:
        operation: int8[n], an `Operation`.
        size_bytes: int64[n], what must agree between ranks, ABSENT where it need not.
        step_number: int64[n], the step that launched it, ABSENT outside all.
        start_ns, end_ns: int64[n], by the rank's own clock, since 1970 or since it started.
        ends_together: bool[n], whether no rank can end before all have begun.

    Example row: ``(operation=Operation.ALL_REDUCE, size_bytes=4_000_000, step_number=3,
    start_ns=120_000, end_ns=190_000, ends_together=True)``.
    """

    operation: NDArray[np.int8]
    size_bytes: Int64Array
    step_number: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    ends_together: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.operation)


def find_shift(one: Recorded, other: Recorded) -> int | None:
    """The shift at which ``other[i]`` is the same operation as ``one[i + shift]``; None if unclear.

    All operations that both recorded agree at it, in kind and in size. Of several such shifts the
    clocks decide where they are clear, then the numbers of the steps; two recordings without
    steps that are alike from end to end begin with the same operation.

    Example, a rank that began to record one all-reduce later:
        >>> size, zeros = np.array([8, 4, 4, 2, 6, 4]), np.zeros(6, dtype=np.int64)
        >>> end_ns, together = np.array([20, 40, 70, 90, 120, 150]), zeros == 0
        >>> one = Recorded(zeros, size, zeros - 1, end_ns - 9, end_ns, together)
        >>> other = Recorded(*(getattr(one, name)[1:] for name in Recorded.__slots__))
        >>> find_shift(one, other)
        1
    """
    numbers = one.step_number[one.step_number != ABSENT]
    other_numbers = other.step_number[other.step_number != ABSENT]
    has_steps = len(numbers) > 0 and len(other_numbers) > 0
    if has_steps and not np.isin(numbers, other_numbers).any():
        return None  # no step that both recorded
    by_step = _shift_by_step(one, other)
    if by_step == 0 and np.array_equal(one.step_number, other.step_number):
        shifts = [0]
    else:
        shifts = _candidates(one, other, by_step)
    shifts = [shift for shift in shifts if _agree(one, other, shift)]
    shift = _choose(one, other, shifts, by_step, has_steps=has_steps)
    return shift if shift is not None and _end_together(one, other, shift) else None


def _overlap(one: Recorded, other: Recorded, shift: int) -> tuple[slice, slice]:
    """Select the operations of each that both recorded."""
    first, end = max(0, shift), min(len(one), len(other) + shift)
    return slice(first, max(first, end)), slice(first - shift, max(first, end) - shift)


def _agree(one: Recorded, other: Recorded, shift: int) -> bool:
    """Return true if all that both recorded is of the same kind and size."""
    here, there = _overlap(one, other, shift)
    return here.stop > here.start and bool(
        np.all(one.operation[here] == other.operation[there])
        and np.all(_are_same_size(one.size_bytes[here], other.size_bytes[there]))
    )


def _are_same_size(one: Int64Array, other: Int64Array) -> NDArray[np.bool_]:
    return np.asarray((one == other) | (one == ABSENT) | (other == ABSENT))


def _shift_by_step(one: Recorded, other: Recorded) -> int | None:
    """The shift at which most steps that both recorded begin together, if any.

    The first step of a recording may lack operations: it counts where both have equally many of it.
    """
    tables = []
    for recorded in (one, other):
        index = np.flatnonzero(recorded.step_number != ABSENT)
        number, first, count = np.unique(
            recorded.step_number[index], return_index=True, return_counts=True
        )
        tables.append((number, index[first], count))
    (number, first, count), (other_number, other_first, other_count) = tables
    _, here, there = np.intersect1d(number, other_number, return_indices=True)
    is_known = (first[here] > 0) & (other_first[there] > 0) | (count[here] == other_count[there])
    shifts, votes = np.unique((first[here] - other_first[there])[is_known], return_counts=True)
    return int(shifts[votes.argmax()]) if 2 * votes.max(initial=0) > votes.sum() else None


def _candidates(one: Recorded, other: Recorded, by_step: int | None) -> list[int]:
    """Shifts at which a few operations of each recording agree, the most likely ones."""
    width = min(_PROBE_OPERATIONS, (1 + min(len(one), len(other))) // 2)
    likely = {0} if by_step is None else {by_step}
    found: set[int] = set()
    for first in {0, (len(other) - width) // 2, len(other) - width}:
        probe = slice(first, first + width)
        is_hit = _windows_equal(one.operation, other.operation[probe]) & _windows_same_size(
            one.size_bytes, other.size_bytes[probe]
        )
        found.update((np.flatnonzero(is_hit) - first).tolist())
    nearest = np.searchsorted(one.end_ns, other.end_ns[len(other) // 2]) - len(other) // 2
    near = np.array([*likely, int(nearest)])
    ordered = sorted(found, key=lambda shift: int(np.abs(near - shift).min()))
    return sorted({*ordered[:_MAX_SHIFTS], *likely})


def _windows_equal(values: NDArray[Any], probe: NDArray[Any]) -> NDArray[np.bool_]:
    windows = np.lib.stride_tricks.sliding_window_view(values, len(probe))
    return np.asarray((windows == probe).all(axis=1))


def _windows_same_size(values: Int64Array, probe: Int64Array) -> NDArray[np.bool_]:
    windows = np.lib.stride_tricks.sliding_window_view(values, len(probe))
    return np.asarray(_are_same_size(windows, probe).all(axis=1))


def _choose(
    one: Recorded, other: Recorded, shifts: list[int], by_step: int | None, *, has_steps: bool
) -> int | None:
    """Choose the right one of the shifts that agree; None if nothing tells."""
    by_clock = _shifts_by_clock(one, other, shifts)
    if by_step is not None and by_step in shifts:
        return by_step if by_clock <= {by_step} else None
    if by_clock:
        return min(by_clock) if len(by_clock) == 1 else None
    is_alike = len(one) == len(other) and 0 in shifts
    if len(shifts) == 1 and (is_alike or min(len(one), len(other)) >= _MIN_OVERLAP_OPERATIONS):
        return shifts[0]
    return 0 if is_alike and not has_steps else None


def _shifts_by_clock(one: Recorded, other: Recorded, shifts: list[int]) -> set[int]:
    """The shift at which ends are clearly closest, and the one at which they are most evenly apart.

    None where nothing is clear or a rank may end long before the others.
    """
    if not (one.ends_together.all() and other.ends_together.all()):
        return set()
    apart_ns = [_ends_apart(one, other, shift) for shift in shifts]
    nearest = _clearly_least(
        [abs(float(np.median(apart))) for apart in apart_ns], _MAX_CLOCK_DIFFERENCE_NS
    )
    evenest = _clearly_least([_spread(apart) for apart in apart_ns], _ENDS_APART_NS)
    return {shifts[index] for index in (nearest, evenest) if index is not None}


def _ends_apart(one: Recorded, other: Recorded, shift: int) -> Int64Array:
    """int64[samples], ns, how much later each operation ended on one rank."""
    here, there = _overlap(one, other, shift)
    apart_ns: Int64Array = one.end_ns[here] - other.end_ns[there]
    return apart_ns[:: 1 + len(apart_ns) // _SAMPLES]


def _spread(apart_ns: Int64Array) -> float:
    """Measure how unevenly ends are apart, ns, however the two clocks differ and drift."""
    if len(apart_ns) < _MIN_OVERLAP_OPERATIONS:
        return np.inf
    position = np.linspace(-1, 1, len(apart_ns))
    moved = (apart_ns - apart_ns[0]).astype(np.float64)
    slope = (position @ moved) / (position @ position)
    ordered = np.sort(moved - slope * position)
    tenth = len(ordered) // 10
    return float(ordered[-1 - tenth] - ordered[tenth])


def _clearly_least(values: list[float], most: float) -> int | None:
    """The index of the value that is far less than all others, None without any."""
    if len(values) < 2:
        return None
    least, second = sorted(range(len(values)), key=values.__getitem__)[:2]
    is_clear = values[least] <= most and _MIN_CLEAR_FACTOR * values[least] < values[second] < np.inf
    return least if is_clear else None


def _end_together(one: Recorded, other: Recorded, shift: int) -> bool:
    """Return true if the ends are apart as those of one operation on two ranks can be.

    They differ by what the clocks differ, which changes slowly, and otherwise by little.
    """
    here, there = _overlap(one, other, shift)
    length_ns = np.minimum(
        one.end_ns[here] - one.start_ns[here], other.end_ns[there] - other.start_ns[there]
    )
    chosen = np.flatnonzero(one.ends_together[here] & other.ends_together[there])
    if not len(chosen):
        return True
    apart_ns = (one.end_ns[here] - other.end_ns[there])[chosen]
    width = min(len(chosen), _MAX_NEIGHBORS)
    typical_ns = np.median(np.lib.stride_tricks.sliding_window_view(apart_ns, width), axis=1)
    typical_ns = np.pad(typical_ns, (width // 2, (width - 1) // 2), mode="edge")
    allowed_ns = _ENDS_APART_NS + np.maximum(length_ns[chosen], 0) // _ENDS_APART_DIVISOR
    is_outlier = np.abs(apart_ns - typical_ns) > allowed_ns
    return bool(is_outlier.mean() <= _MAX_OUTLIERS)
