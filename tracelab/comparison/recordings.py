"""Recordings of one rank on either side, and changes of their figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from tracelab.base.arrays import Record
from tracelab.comparison.diff import Change, ComparedFile, Side
from tracelab.findings.finding import Finding
from tracelab.measures.work import NameTimes
from tracelab.report.views import RankView, View, ranks_of

# Of the step.
MIN_PERCENT = 1
# A single step says nothing about noise.
MIN_PERCENT_OF_ONE_STEP = 25
_MIN_VALUES_FOR_QUARTILES = 5

# Student's t for 95 %, two-sided, by degrees of freedom from 1 on.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
_STUDENT_OF_MORE = 2.2

_Key = TypeVar("_Key", bound=Hashable)
# Figures of a window by key, by default 0.
Cells = Mapping[_Key, int]


# --- recordings ---


class Stretch(Record):
    """A compared window, and count and time, ns, of its GPU activities by name."""

    view: View
    launched: Mapping[str, tuple[int, int]]


class Recording(Record):
    """One file of one side, and its steady steps; of an old saved report all."""

    rank: RankView
    steps: tuple[View, ...]
    kernels: tuple[NameTimes, ...] | None
    operators: Mapping[str, int] | None
    comm_patterns: tuple[str, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the whole trace."""
        return self.rank.main.findings

    @property
    def unprofiled_step_ns(self) -> int | None:
        """Length of a step without the profiler, as measured by the capture, ns."""
        return None if self.rank.steady is None else self.rank.steady.unprofiled_step_ns

    def stretches(self, *, per_step: bool) -> tuple[Stretch, ...]:
        """The steady steps, or the whole trace."""
        kernels = self.kernels or ()
        if not per_step:
            return (Stretch(self.rank.main, {x.name: (x.count, x.total_ns) for x in kernels}),)
        numbers = {view.step for view in self.steps}
        return tuple(
            Stretch(view, {x.name: (x.step_counts[i], x.steps_ns[i]) for x in kernels})
            for i, view in enumerate(self.rank.steps)
            if view.step in numbers
        )


def recordings_of(side: Side) -> list[Recording]:
    """Return a recording for each file of a side."""
    ranks, report = ranks_of(side.report), side.report
    unknown = (None,) * len(ranks)
    return [
        Recording(
            rank,
            rank.steady_steps if "steady" in report.tables else rank.steps,
            kernels,
            operators,
            report.provenance.comm_patterns,
        )
        for rank, kernels, operators in zip(
            ranks, side.kernels or unknown, side.operators or unknown, strict=True
        )
    ]


# --- samples ---


class Compared(Record):
    """The recordings of one rank on one side, each with its windows.

    With repeats a figure is one per recording, the median of its windows.
    """

    recordings: tuple[Recording, ...]
    stretches: tuple[tuple[Stretch, ...], ...]
    has_repeats: bool

    @property
    def views(self) -> list[View]:
        """The windows of all recordings."""
        return [x.view for of_recording in self.stretches for x in of_recording]

    @property
    def files(self) -> tuple[ComparedFile, ...]:
        """Every recording, with its step of median length."""
        return tuple(map(self._file, self.recordings, self.stretches))

    def _file(self, recording: Recording, stretches: Sequence[Stretch]) -> ComparedFile:
        views = sorted((x.view for x in stretches), key=lambda view: view.length_ns)
        window = views[(len(views) - 1) // 2].window
        return ComparedFile(
            path=recording.rank.trace.path,
            rank=recording.rank.trace.rank,
            steps=len(recording.rank.steps),
            shown=window.step,
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            steady_steps=len(recording.steps),
            length_ns=median([view.length_ns for view in views]),
        )

    @property
    def shown(self) -> tuple[ComparedFile, Recording]:
        """The recording of median length stands for the others."""
        pairs = zip(self.files, self.recordings, strict=True)
        return sorted(pairs, key=lambda pair: pair[0].length_ns)[(len(self.recordings) - 1) // 2]

    @property
    def fewest_steps(self) -> int:
        """Size of a sample: recordings, or windows of the only one."""
        return len(self.recordings if self.has_repeats else self.views)

    @property
    def unprofiled_step_ns(self) -> int | None:
        """Median length of a step without the profiler, if all recordings know it."""
        known = [x.unprofiled_step_ns for x in self.recordings if x.unprofiled_step_ns is not None]
        return median(known) if len(known) == len(self.recordings) else None

    def sample(self, value_of: Callable[[Stretch], int]) -> list[int]:
        """Sample a figure of each window, or the medians of the recordings."""
        return self.table(lambda x: {"": value_of(x)})[""]

    def table(self, cells_of: Callable[[Stretch], Cells[_Key]]) -> dict[_Key, list[int]]:
        """Sample every figure of a table by its key."""
        cells = [[cells_of(x) for x in of_recording] for of_recording in self.stretches]
        keys = dict.fromkeys(key for of_recording in cells for x in of_recording for key in x)
        samples = {
            key: [[x.get(key, 0) for x in of_recording] for of_recording in cells] for key in keys
        }
        return {
            key: [median(x) for x in values] if self.has_repeats else values[0]
            for key, values in samples.items()
        }


class Pair(Record):
    """One rank on both sides; steady steps are compared, else whole traces."""

    before: Compared
    after: Compared
    per_step: bool
    length_ns: int

    @property
    def sides(self) -> tuple[Compared, Compared]:
        """Both."""
        return self.before, self.after

    @property
    def has_repeats(self) -> bool:
        """True for several recordings."""
        return self.before.has_repeats

    def change(self, before: Sequence[int], after: Sequence[int]) -> Change:
        """Compare two samples of a figure; an empty one stands for 0."""
        compare = change_between if self.has_repeats else change
        return compare(
            before or [0] * self.before.fewest_steps,
            after or [0] * self.after.fewest_steps,
            self.length_ns,
        )

    def change_of(self, value_of: Callable[[Stretch], int]) -> Change:
        """Compare a figure that each window has."""
        return self.change(*(side.sample(value_of) for side in self.sides))

    def samples(
        self, cells_of: Callable[[Stretch], Cells[_Key]]
    ) -> dict[_Key, tuple[Sequence[int], Sequence[int]]]:
        """Sample every figure of a table on both sides, empty if absent."""
        before, after = (side.table(cells_of) for side in self.sides)
        return {key: (before.get(key, ()), after.get(key, ())) for key in {**before, **after}}

    def changes(self, cells_of: Callable[[Stretch], Cells[_Key]]) -> dict[_Key, Change]:
        """Compare every figure of a table."""
        return {key: self.change(*sides) for key, sides in self.samples(cells_of).items()}


def pair(before: Iterable[Recording], after: Iterable[Recording]) -> Pair:
    """Pair the recordings of one rank: by steady step if all have one."""
    both = tuple(before), tuple(after)
    per_step = all(recording.steps for side in both for recording in side)
    own, others = (
        Compared(
            side,
            tuple(x.stretches(per_step=per_step) for x in side),
            has_repeats=sum(map(len, both)) > 2,
        )
        for side in both
    )
    return Pair(own, others, per_step, median(own.sample(lambda x: x.view.length_ns)))


# --- changes and noise ---


def median(values: Sequence[int]) -> int:
    """The middle value, or the mean of the middle two, rounded down; 0 of none."""
    return int(statistics.median(values or [0]))


def spread(values: Sequence[int]) -> int | None:
    """The interquartile range; of fewer than five values the full range, of one None."""
    if len(values) < 2:
        return None
    if len(values) < _MIN_VALUES_FOR_QUARTILES:
        return max(values) - min(values)
    return round(interquartile(values))


def interquartile(values: Sequence[int]) -> float:
    """Third quartile minus first, interpolated linearly between the values, at least two."""
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first


def change(before: Sequence[int], after: Sequence[int], length_ns: int) -> Change:
    """Compare the steps of two recordings, each with at least one time, ns.

    If all steps of one side lie beyond all of the other, at least two on each, only 1 % of a step
    is
    noise. Else it is the larger spread; with a single step, a quarter of the time.
    """
    return _change(before, after, length_ns, _noise_between_steps_ns(before, after))


def change_between(before: Sequence[int], after: Sequence[int], length_ns: int) -> Change:
    """Compare the medians of several recordings, more than two in all.

    The noise is half the width of Student's interval (95 %) of the difference.
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
