"""The recordings of one rank on either side, and which of their windows are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tracelab.base.arrays import OneLine
from tracelab.comparison.diff import ComparedFile, Side
from tracelab.comparison.noise import Change, change, change_between, median
from tracelab.findings.finding import Finding
from tracelab.measures.kernel_times import NameTimes
from tracelab.measures.steady import SteadyMetrics
from tracelab.report.views import RankView, Scope, View, ranks_of


@dataclass(frozen=True, slots=True, repr=False)
class Recording(OneLine):
    """One file of one side.

    Attributes:
        rank: what its report says.
        steady: its steady steps; None without any, and of an old saved report.
        steps: the windows of its steady steps; of an old saved report all steps.
        kernels, operators: what it launched, None of a saved report.
        comm_patterns: what counts as communication beside what is known.
    """

    rank: RankView
    steady: SteadyMetrics | None
    steps: tuple[View, ...]
    kernels: tuple[NameTimes, ...] | None
    operators: Mapping[str, int] | None
    comm_patterns: tuple[str, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the whole trace."""
        return self.rank.main.findings

    @property
    def scope(self) -> Scope:
        """What the findings are about, and of what shares are."""
        return self.rank.main.scope

    @property
    def unprofiled_step_ns(self) -> int | None:
        """What a step takes without the profiler, as the capture measured it."""
        return None if self.steady is None else self.steady.unprofiled_step_ns

    @property
    def step_indices(self) -> list[int]:
        """Which of the file's steps are compared."""
        numbers = {view.step for view in self.steps}
        return [index for index, view in enumerate(self.rank.steps) if view.step in numbers]

    def views(self, *, per_step: bool) -> tuple[View, ...]:
        """The windows that are compared: the steady steps, or the whole trace."""
        return self.steps if per_step else (self.rank.main,)

    def compared(self, *, per_step: bool) -> ComparedFile:
        """The file, with the window that stands for it: its step of median length."""
        views = sorted(self.views(per_step=per_step), key=lambda view: view.length_ns)
        window = views[(len(views) - 1) // 2].window
        return ComparedFile(
            path=self.rank.trace.path,
            rank=self.rank.trace.rank,
            steps=len(self.rank.steps),
            shown=window.step if per_step else None,
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            steady_steps=len(self.steps),
            length_ns=median([view.length_ns for view in views]),
        )


def recordings_of(side: Side) -> list[Recording]:
    """The files of a side."""
    ranks = ranks_of(side.report)
    unknown = (None,) * len(ranks)
    return [
        _recording(side, *one)
        for one in zip(ranks, side.kernels or unknown, side.operators or unknown, strict=True)
    ]


def _recording(
    side: Side,
    rank: RankView,
    kernels: tuple[NameTimes, ...] | None,
    operators: Mapping[str, int] | None,
) -> Recording:
    rows = [row for row in side.report.steady if row.rank == rank.trace.rank]
    steady = rows[0] if rows else None
    steps = rank.steps
    if "steady" in side.report.tables:
        numbers = set(steady.steps) if steady is not None else set()
        steps = tuple(view for view in steps if view.step in numbers)
    patterns = side.report.provenance.comm_patterns
    return Recording(rank, steady, steps, kernels, operators, patterns)


@dataclass(frozen=True, slots=True, repr=False)
class Compared(OneLine):
    """The recordings of one rank on one side, each with the windows that are compared.

    Attributes:
        recordings: at least one.
        per_step: whether the windows are steady steps, else whole traces.
        by_recording: whether a figure is one per recording, the median of its windows.
    """

    recordings: tuple[Recording, ...]
    per_step: bool
    by_recording: bool

    @property
    def windows(self) -> list[tuple[View, ...]]:
        """The windows of each recording."""
        return [recording.views(per_step=self.per_step) for recording in self.recordings]

    @property
    def views(self) -> list[View]:
        """The windows of all recordings."""
        return [view for views in self.windows for view in views]

    @property
    def shown(self) -> ComparedFile:
        """The recording of median length stands for the others."""
        files = sorted(self.files, key=lambda file: file.length_ns)
        return files[(len(files) - 1) // 2]

    @property
    def shown_recording(self) -> Recording:
        """The same, as a recording."""
        return self.recordings[self.files.index(self.shown)]

    @property
    def files(self) -> tuple[ComparedFile, ...]:
        """Every recording."""
        return tuple(x.compared(per_step=self.per_step) for x in self.recordings)

    @property
    def fewest_steps(self) -> int:
        """How many values say how far a figure spreads: recordings, or windows of the only one."""
        return len(self.recordings) if self.by_recording else len(self.windows[0])

    @property
    def unprofiled_step_ns(self) -> int | None:
        """What a step takes without the profiler: the median, if all recordings know it."""
        known = [x.unprofiled_step_ns for x in self.recordings if x.unprofiled_step_ns is not None]
        return median(known) if len(known) == len(self.recordings) else None

    def sample(self, values_of: Callable[[Recording], Sequence[int]]) -> list[int]:
        """A figure: of each window, or the medians of the recordings.

        Args:
            values_of: the figure in the windows of a recording.
        """
        values = [values_of(recording) for recording in self.recordings]
        if self.by_recording:
            return [median(of_recording) for of_recording in values]
        return list(values[0])

    def sample_of_views(self, value_of: Callable[[View], int]) -> list[int]:
        """Likewise, of a figure that each window has."""

        def values_of(recording: Recording) -> list[int]:
            return [value_of(view) for view in recording.views(per_step=self.per_step)]

        return self.sample(values_of)


@dataclass(frozen=True, slots=True, repr=False)
class Pair(OneLine):
    """One rank on both sides."""

    before: Compared
    after: Compared

    @property
    def per_step(self) -> bool:
        """Whether steady steps are compared, else whole traces."""
        return self.before.per_step

    @property
    def by_recording(self) -> bool:
        """Whether there are several recordings, which say how much recordings differ."""
        return self.before.by_recording

    @property
    def length_ns(self) -> int:
        """How long a step takes before."""
        return median(self.before.sample_of_views(lambda view: view.length_ns))

    def change(self, before: Sequence[int], after: Sequence[int]) -> Change:
        """What changed between two samples of a figure; an empty one was 0 all the time."""
        compare = change_between if self.by_recording else change
        return compare(
            before or self.before.sample_of_views(lambda _: 0),
            after or self.after.sample_of_views(lambda _: 0),
            self.length_ns,
        )

    def change_of_views(self, value_of: Callable[[View], int]) -> Change:
        """What changed in a figure that each window has."""
        return self.change(
            self.before.sample_of_views(value_of), self.after.sample_of_views(value_of)
        )


def pair(before: Sequence[Recording], after: Sequence[Recording]) -> Pair:
    """The recordings of one rank: by steady step where all have one, else the whole traces."""
    per_step = all(recording.steps for recording in (*before, *after))
    by_recording = len(before) + len(after) > 2
    return Pair(
        Compared(tuple(before), per_step, by_recording),
        Compared(tuple(after), per_step, by_recording),
    )
