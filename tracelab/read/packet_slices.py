"""Join the begins and ends of slices in a trace of Perfetto.

PyTorch's collector writes slices in groups: the begins of all slices of a group, and then their
ends in the same order. There the first end belongs to the first begin, whatever their times are.
Sorted by time, as Perfetto reads them, slices that touch or that overlap without being nested
would get each other's ends. Programs that write while they run write in order of time instead, and
an end closes the latest open begin of its track. Both kinds of files are known by themselves: a
run of begins and the run of ends after it are in order of time only in the second.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_DAMAGED = 2**64 - 1  # the track of a packet that nobody can read
_AT_ONCE = 1 << 13
_MOST_MOVED = 64  # damaged packets at the border of two runs; more of them are no accident

_Times = NDArray[np.uint64]


class Slice(NamedTuple):
    """A slice as its begin describes it.

    Example: ``Slice(track=7, start_ns=1_740_000_000_000_000_120, end_ns=1_740_000_000_000_004_620,
    name="aten::mm", category="cpu_op", arguments=None)``.

    Attributes:
        track: its track's uuid.
        start_ns, end_ns: as the file writes them.
        name, category: None where the file does not say.
        arguments: its annotations.
    """

    track: int
    start_ns: int
    end_ns: int
    name: str | None
    category: str | None
    arguments: dict[str, Any] | None


class SliceJoiner:
    """Takes begins and ends in the order of the file, and gives whole slices.

    >>> joiner = SliceJoiner()
    >>> for start_ns in (0, 5, 9):
    ...     joiner.begin(1, start_ns, "call", "cuda_runtime", None)
    >>> for end_ns in (5, 9, 11):
    ...     joiner.end(1, end_ns)
    >>> [[(slice.start_ns, slice.end_ns) for slice in piece] for piece in joiner.whole()]
    [[(0, 5), (5, 9), (9, 11)]]

    Attributes:
        unmatched: begins or ends without their partner, so far.
    """

    def __init__(self) -> None:
        self.unmatched = 0
        self._begin_ns, self._begin_track = array("Q"), array("Q")
        self._texts: list[tuple[str | None, str | None]] = []
        self._arguments: list[dict[str, Any] | None] = []
        self._end_ns, self._end_track = array("Q"), array("Q")
        self._open: defaultdict[int, list[Slice]] = defaultdict(list)  # by track

    @property
    def has_ends(self) -> bool:
        """Whether a begin that comes now begins another run."""
        return bool(self._end_ns)

    def begin(
        self,
        track: int,
        time_ns: int,
        name: str | None,
        category: str | None,
        arguments: dict[str, Any] | None,
    ) -> None:
        """Take a begin; where there are ends before it, `whole` has to be asked first."""
        self._begin_ns.append(time_ns)
        self._begin_track.append(track)
        self._texts.append((name, category))
        self._arguments.append(arguments)

    def end(self, track: int, time_ns: int) -> None:
        """Take an end."""
        self._end_ns.append(time_ns)
        self._end_track.append(track)

    def damaged(self) -> None:
        """Take a packet that cannot be read: what comes after it keeps its place in its run."""
        if self._end_ns:
            self.end(_DAMAGED, 0)
        else:
            self.begin(_DAMAGED, 0, None, None, None)

    def whole(self) -> Iterator[list[Slice]]:
        """The slices that the run of begins and ends so far makes whole, in pieces."""
        of_next_run = self._move_damage()
        if _is_in_time_order(*self._times()):
            slices = self._nested()
        elif _is_group(*self._times()):
            slices = self._by_place()
        else:
            self._drop_damage_around()
            is_group = _is_group(*self._times())
            slices = self._by_place() if is_group else self._by_time(_order_in_time(*self._times()))
        piece: list[Slice] = []
        for one in slices:
            piece.append(one)
            if len(piece) == _AT_ONCE:
                yield piece
                piece = []
        if piece:
            yield piece
        for column in (self._begin_ns, self._begin_track, self._end_ns, self._end_track):
            del column[:]
        self._texts.clear()
        self._arguments.clear()
        for _ in range(of_next_run):
            self.damaged()

    def finish(self) -> Iterator[list[Slice]]:
        """The last slices; afterward `unmatched` is complete."""
        yield from self.whole()
        self.unmatched += sum(map(len, self._open.values()))
        self._open.clear()

    def _move_damage(self) -> int:
        """Where the numbers of begins and ends differ, put damage at their borders elsewhere.

        Returns:
            how many damaged packets belong to the next run.
        """
        of_next_run = 0
        for _ in range(_MOST_MOVED):
            surplus = len(self._begin_ns) - len(self._end_ns)
            if surplus > 0 and self._end_ns and self._begin_track[-1] == _DAMAGED:
                self._drop_begin(-1)  # it was the first of the ends
                self._end_ns.insert(0, 0)
                self._end_track.insert(0, _DAMAGED)
            elif surplus > 0 and self._begin_track[0] == _DAMAGED:
                self._drop_begin(0)  # it was before them
            elif surplus < 0 and self._end_track[-1] == _DAMAGED:
                self._drop_last_end()
                of_next_run += 1
            else:
                break
        return of_next_run

    def _drop_damage_around(self) -> None:
        """Leave out damage before the first begin and after the last end."""
        for _ in range(_MOST_MOVED):
            if self._begin_track and self._begin_track[0] == _DAMAGED:
                self._drop_begin(0)
            if self._end_track and self._end_track[-1] == _DAMAGED:
                self._drop_last_end()

    def _drop_last_end(self) -> None:
        self._end_ns.pop()
        self._end_track.pop()

    def _drop_begin(self, index: int) -> None:
        for column in (self._begin_ns, self._begin_track, self._texts, self._arguments):
            column.pop(index)

    def _times(self) -> tuple[_Times, _Times, _Times, _Times]:
        """Times and tracks of the begins, and of the ends."""
        columns = (self._begin_ns, self._begin_track, self._end_ns, self._end_track)
        begin_ns, begin_track, end_ns, end_track = (np.array(x, dtype=np.uint64) for x in columns)
        return begin_ns, begin_track, end_ns, end_track

    def _slice(self, index: int, end_ns: int) -> Slice:
        name, category = self._texts[index]
        arguments, self._arguments[index] = self._arguments[index], None
        return Slice(
            self._begin_track[index], self._begin_ns[index], end_ns, name, category, arguments
        )

    def _by_place(self) -> Iterator[Slice]:
        """Each begin with the end in its place."""
        for index, end_ns in enumerate(self._end_ns):
            if _DAMAGED in (self._begin_track[index], self._end_track[index]):
                self.unmatched += self._begin_track[index] != self._end_track[index]
            else:
                yield self._slice(index, end_ns)
        self.unmatched += len(self._begin_ns) - len(self._end_ns)

    def _nested(self) -> Iterator[Slice]:
        """Each end with the latest open begin of its track, as they stand in the file."""
        for index, track in enumerate(self._begin_track):
            if track != _DAMAGED:
                self._open[track].append(self._slice(index, 0))
        for track, end_ns in zip(self._end_track, self._end_ns, strict=True):
            if open_slices := self._open.get(track):
                yield open_slices.pop()._replace(end_ns=end_ns)
            else:
                self.unmatched += track != _DAMAGED

    def _by_time(self, order: list[int]) -> Iterator[Slice]:
        """Each end with the latest begin of its track before it, as far as damage leaves them.

        Args:
            order: of the begins by number, and of the ends after them.
        """
        count = len(self._begin_ns)
        open_begins: defaultdict[int, list[int]] = defaultdict(list)
        early: Counter[tuple[int, int]] = Counter()  # ends, by track and time
        for number in order:
            is_begin = number < count
            index = number if is_begin else number - count
            track = (self._begin_track if is_begin else self._end_track)[index]
            time_ns = (self._begin_ns if is_begin else self._end_ns)[index]
            if is_begin and early[track, time_ns]:
                early[track, time_ns] -= 1
                yield self._slice(index, time_ns)
            elif is_begin:
                open_begins[track].append(index)
            elif open_begins[track]:
                yield self._slice(open_begins[track].pop(), time_ns)
            else:
                early[track, time_ns] += 1
        self.unmatched += early.total() + sum(map(len, open_begins.values()))


def _is_in_time_order(
    begin_ns: _Times, begin_track: _Times, end_ns: _Times, end_track: _Times
) -> bool:
    """Whether a run is as a program writes it while it runs.

    Where the last begin and the first end are at one time it could be both, two slices that touch
    or one in the other: slices without a length are rare.
    """
    begins, ends = begin_ns[begin_track != _DAMAGED], end_ns[end_track != _DAMAGED]
    if len(begins) and len(ends) and begins[-1] >= ends[0]:
        return False
    return all(bool((times[1:] >= times[:-1]).all()) for times in (begins, ends))


def _is_group(begin_ns: _Times, begin_track: _Times, end_ns: _Times, end_track: _Times) -> bool:
    """Whether each end has the place of its begin; the last ones may be missing."""
    count = len(end_ns)
    if count > len(begin_ns):
        return False
    is_damaged = (begin_track[:count] == _DAMAGED) | (end_track == _DAMAGED)
    fits = (begin_track[:count] == end_track) & (begin_ns[:count] <= end_ns)
    return bool((fits | is_damaged).all())


def _order_in_time(
    begin_ns: _Times, begin_track: _Times, end_ns: _Times, end_track: _Times
) -> list[int]:
    """The numbers of begins, and of ends after them, by time; ends first where it is the same."""
    times = np.concatenate((begin_ns, end_ns))
    is_damaged = np.concatenate((begin_track, end_track)) == _DAMAGED
    is_begin = np.arange(len(times)) < len(begin_ns)
    order = np.lexsort((is_begin, times))
    in_order: list[int] = order[~is_damaged[order]].tolist()
    return in_order
