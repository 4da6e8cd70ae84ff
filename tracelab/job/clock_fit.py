"""The line, with its jumps, that leads from one rank's recorded clock to that of others.

Operations say what has to be added to the recorded times: exactly, but for some microseconds, where
their ends come together, or at least and at most where messages pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array

_Floats = NDArray[np.float64]

# Less than ends of one operation move by themselves; in bundled jobs of one host by up to 20 us.
_LEAST_CHANGE_NS = 30_000
# Single ones are up to 70 us off. A clock that is set (NTP: by 128 ms and more) moves further.
_LEAST_JUMP_NS = 100_000
_MOST_DRIFT = 200e-6  # crystals are within 100 ppm
_NARROWINGS = 40  # of the interval that holds the drift, to two thirds each
# Of many operations five neighbors say where the clock is, of fewer three; with what remains of
# outliers then, so many between two jumps would still be outliers.
_MANY = 16
_LEAST_OF_MANY, _LEAST_OF_FEW = 3, 2
_LEAST_FOR_DRIFT = 4
_OPERATIONS_PER_JUMP = 4  # at least; a clock that jumps more often is not known to jump
_LATE_NS = 10_000_000  # by how much the least delayed message of one direction may seem to be late


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Correction(Frozen):
    """What has to be added to recorded times, in pieces between jumps.

    Times are ns since the reference's origin, by the recorded clock. One that was set back shows
    some times twice: these count as after that.

    Attributes:
        from_ns: int64[pieces], where each piece begins; the first one holds for all before it too.
        add_ns: int64[pieces], what to add in each piece, but for the drift.
        drift: what to add to that for each ns since the first piece began.

    Example row: ``(from_ns=0, add_ns=1_204_000)``.
    """

    from_ns: Int64Array
    add_ns: Int64Array
    drift: float = 0.0

    def at(self, recorded_ns: Int64Array) -> Int64Array:
        """int64[times], what to add to each."""
        piece = np.maximum(np.searchsorted(self.from_ns, recorded_ns, "right") - 1, 0)
        drifted_ns = np.rint(self.drift * (recorded_ns - self.from_ns[0]))
        return np.asarray(self.add_ns[piece] + drifted_ns.astype(np.int64))


UNCHANGED = Correction(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bounds(Frozen):
    """What has to be added to the recorded times of one rank, between which bounds; o operations.

    Attributes:
        at_ns: float64[o], ns, ascending, the recorded end.
        low_ns, high_ns: float64[o], ns, equal for operations that end together; infinite for a
            side of which nothing is known.
        apart_ns: how far apart the ends of one operation may be by nature.

    Example row: ``(at_ns=190_000.0, low_ns=-1_204_000.0, high_ns=-1_204_000.0)``.
    """

    at_ns: _Floats
    low_ns: _Floats
    high_ns: _Floats
    apart_ns: float

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def is_together(self) -> bool:
        """Whether all operations end together."""
        return bool(np.array_equal(self.low_ns, self.high_ns))

    def part(self, chosen: slice | NDArray[np.bool_]) -> Bounds:
        """Some of the operations."""
        at_ns, low_ns, high_ns = (
            column[chosen] for column in (self.at_ns, self.low_ns, self.high_ns)
        )
        return Bounds(at_ns, low_ns, high_ns, self.apart_ns)

    def without(self, done_ns: Int64Array | _Floats) -> Bounds:
        """What is left to add once that has been added to each."""
        return replace(self, low_ns=self.low_ns - done_ns, high_ns=self.high_ns - done_ns)

    def without_drift(self, drift: float, since_ns: float) -> Bounds:
        """What is left to add once the drift since some moment has been added."""
        return self.without(drift * (self.at_ns - since_ns))

    def reversed(self) -> Bounds:
        """The same operations in the opposite order of time."""
        at_ns, low_ns, high_ns = (
            -column[::-1] for column in (self.at_ns, self.high_ns, self.low_ns)
        )
        return Bounds(at_ns, low_ns, high_ns, self.apart_ns)

    def least_delays(self, add_ns: float) -> _Floats:
        """float64[o], ns, how far each operation is from its nearer bound."""
        return np.minimum(np.abs(add_ns - self.low_ns), np.abs(self.high_ns - add_ns))

    def widened(self) -> Bounds:
        """The bounds with room for what ends of one operation are apart; without lone outliers."""
        low_ns, high_ns = self.low_ns, self.high_ns
        if self.is_together:
            low_ns = high_ns = _running_median(low_ns)
        room_ns = max(_LEAST_JUMP_NS, self.apart_ns)
        return replace(self, low_ns=low_ns - room_ns, high_ns=high_ns + room_ns)


def fit_clock(bounds: Bounds, known: Iterable[Correction]) -> Correction:
    """The correction that fits the bounds: one that is known already, or a new one."""
    if not len(bounds):
        return UNCHANGED
    for correction in dict.fromkeys(known):
        if _is_believable(bounds.without(correction.at(bounds.at_ns.astype(np.int64)))):
            return correction
    pieces = _pieces(bounds)
    drift = _drift(pieces)
    first_ns = bounds.at_ns[0]
    begin_ns = [
        first_ns,
        *((one.at_ns[-1] + next_one.at_ns[0]) / 2 for one, next_one in pairwise(pieces)),
    ]
    add_ns = [_middle(piece.without_drift(drift, first_ns)) for piece in pieces]
    return Correction(np.array(begin_ns).astype(np.int64), np.rint(add_ns).astype(np.int64), drift)


def _is_believable(left: Bounds) -> bool:
    """Whether the ends of operations contradict a correction nowhere in the recording.

    They do where they differ from it by more than the ends of one operation may be apart, and by
    more than most of them differ among themselves; where the clock would drift or jump; and where
    a message would have arrived before it was sent.

    Args:
        left: what would still have to be added.
    """
    low_ns, high_ns = float(left.low_ns.max()), float(left.high_ns.min())
    if not left.is_together:
        is_possible = low_ns <= _LEAST_CHANGE_NS and high_ns >= -_LEAST_CHANGE_NS
        return is_possible and (
            np.isfinite(high_ns - low_ns) or -_LATE_NS <= _middle(left) <= _LATE_NS
        )
    if max(high_ns, -low_ns) > max(left.apart_ns, low_ns - high_ns):
        return False  # the usual case, decided at once: all are farther off than they differ
    middle_ns = _middle(left)
    spread_ns = float(np.percentile(np.abs(left.low_ns - middle_ns), 90))
    if abs(middle_ns) > max(left.apart_ns, spread_ns):
        return False
    pieces = _pieces(left)
    return len(pieces) == 1 and _drift(pieces) == 0


def _middle(bounds: Bounds) -> float:
    """What has to be added, ns, if it is always the same."""
    if bounds.is_together:
        return float(np.median(bounds.low_ns))
    low_ns, high_ns = float(bounds.low_ns.max()), float(bounds.high_ns.min())
    if np.isfinite(low_ns) and np.isfinite(high_ns):
        return (low_ns + high_ns) / 2
    return low_ns if np.isfinite(low_ns) else high_ns


def _pieces(bounds: Bounds) -> list[Bounds]:
    """The bounds between the jumps of the clock, each piece within reach of one straight line.

    Each is as long as it can be. What no line reaches with its neighbors is an outlier and left
    out; where there would be jumps all the time, there is none.
    """
    least = _LEAST_OF_MANY if len(bounds) >= _MANY else _LEAST_OF_FEW
    wide = bounds.widened()
    pieces = _straight(wide)
    if len(pieces) > 1 and any(end - begin < least for begin, end in pieces):
        is_kept = np.zeros(len(bounds), dtype=np.bool_)
        for begin, end in pieces:
            is_kept[begin:end] = end - begin >= least
        if not is_kept.any():
            return [bounds]
        bounds, wide = bounds.part(is_kept), wide.part(is_kept)
        pieces = _straight(wide)
    if len(pieces) == 1 or (len(pieces) - 1) * _OPERATIONS_PER_JUMP > len(bounds):
        return [bounds]
    drift = _drift([bounds.part(slice(begin, end)) for begin, end in pieces])
    ends = _jump_indices(bounds.without_drift(drift, bounds.at_ns[0]), pieces, wide)
    return [bounds.part(slice(*ends_of)) for ends_of in pairwise((0, *ends, len(bounds)))]


def _jump_indices(bounds: Bounds, pieces: Sequence[tuple[int, int]], wide: Bounds) -> list[int]:
    """The operations before which the clock jumps, where it does not drift otherwise.

    Of messages only those of one direction contradict the clock before at once, so the pieces may
    be too long. Cut from the end they are too short: between the two it is where the messages, by
    the clocks before and after, are least delayed in all.
    """
    backward = _straight(wide.reversed())
    if len(backward) != len(pieces):
        return [end for _, end in pieces[:-1]]
    earliest = [0, *(len(bounds) - begin for begin, _ in backward[::-1])]
    indices = []
    for (begin, latest), (_, end), first in zip(pieces, pieces[1:], earliest[1:], strict=False):
        early = max(first, begin + 1)
        late = max(latest, early)
        before_ns = _middle(bounds.part(slice(begin, early)))
        after_ns = _middle(bounds.part(slice(late, end)))
        open_bounds = bounds.part(slice(early, late))
        delay_ns = [open_bounds.least_delays(add_ns) for add_ns in (before_ns, after_ns)]
        total_ns = np.append(0, np.cumsum(delay_ns[0] - delay_ns[1]))
        indices.append(early + int(total_ns.argmin()))
    return indices


def _running_median(values: _Floats) -> _Floats:
    """float64[o], the median of each value and its neighbors.

    >>> _running_median(np.array([0.0, 0.0, 70.0, 0.0, 9.0, 9.0])).tolist()
    [0.0, 0.0, 0.0, 9.0, 9.0, 9.0]
    """
    width = 3 if len(values) < _MANY else 5
    padded = np.pad(values, width // 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    return np.asarray(np.median(windows, axis=1))


def _straight(wide: Bounds) -> list[tuple[int, int]]:
    """Ranges of operations, each the longest through whose bounds a straight line fits."""
    ranges, begin = [], 0
    while begin < len(wide):
        least, most = begin + 1, len(wide)
        if _steepness(wide.part(slice(begin, most)))[1] >= 0:
            least = most
        while least < most:
            middle = (least + most) // 2 + (least + most) % 2
            if _steepness(wide.part(slice(begin, middle)))[1] >= 0:
                least = middle
            else:
                most = middle - 1
        ranges.append((begin, least))
        begin = least
    return ranges


def _steepness(bounds: Bounds) -> tuple[float, float]:
    """The drift of the line that is farthest from all bounds, and that distance (twice), ns.

    The distance is a concave function of the drift: the interval around its maximum is narrowed.
    """
    at_ns = bounds.at_ns - bounds.at_ns[0]

    def room(drift: float) -> float:
        line_ns = drift * at_ns
        return float((bounds.high_ns - line_ns).min() - (bounds.low_ns - line_ns).max())

    if room(0.0) >= 0:
        return 0.0, room(0.0)
    low, high = -_MOST_DRIFT, _MOST_DRIFT
    for _ in range(_NARROWINGS):
        third = (high - low) / 3
        if room(low + third) < room(high - third):
            low += third
        else:
            high -= third
    return (low + high) / 2, room((low + high) / 2)


def _drift(pieces: Sequence[Bounds]) -> float:
    """How much has to be added for each ns that passes; 0 where the ends do not show any.

    That is where it would not move the clock by more than the ends move by themselves.
    """
    if pieces[0].is_together:
        slopes, lengths_ns = zip(*(_slopes(piece) for piece in pieces), strict=True)
        drift = _weighted_median(np.concatenate(slopes), np.concatenate(lengths_ns))
        off_ns = np.concatenate([_off(piece, drift) for piece in pieces])
        apart_ns = 2 * float(np.percentile(np.abs(off_ns), 90))
    else:
        longest = max(pieces, key=len)
        drift, room_ns = _steepness(longest)
        apart_ns = room_ns if np.isfinite(room_ns) else np.inf
    if sum(map(len, pieces)) < _LEAST_FOR_DRIFT:
        return 0.0
    span_ns = max(float(np.ptp(piece.at_ns)) for piece in pieces)
    drift = float(np.clip(drift, -_MOST_DRIFT, _MOST_DRIFT))
    return drift if abs(drift) * span_ns > max(_LEAST_CHANGE_NS, apart_ns) else 0.0


def _off(piece: Bounds, drift: float) -> _Floats:
    """float64[o], ns, how far operations that end together are from the line through them."""
    flat = piece.without_drift(drift, piece.at_ns[0])
    return flat.low_ns - _middle(flat)


def _slopes(piece: Bounds) -> tuple[_Floats, _Floats]:
    """The slopes between operations half a recording apart, and how long that is, ns."""
    half = len(piece) // 2
    length_ns = piece.at_ns[half:] - piece.at_ns[: len(piece) - half]
    rise_ns = piece.low_ns[half:] - piece.low_ns[: len(piece) - half]
    is_apart = length_ns > 0
    return rise_ns[is_apart] / length_ns[is_apart], length_ns[is_apart]


def _weighted_median(values: _Floats, weights: _Floats) -> float:
    """The value with half of the weight on either side; 0 without any.

    >>> _weighted_median(np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 1.0]))
    3.0
    """
    if not len(values):
        return 0.0
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])
