"""The recordings of one rank on either side, and samples of their figures."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from tracelab.base.arrays import OneLine, dataclass
from tracelab.comparison.diff import ComparedFile, Side
from tracelab.comparison.noise import Change, change, change_between, median
from tracelab.findings.finding import Finding
from tracelab.measures.kernel_times import NameTimes
from tracelab.report.views import RankView, View, ranks_of

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True, repr=False)
class Recording(OneLine):
    """One file of one side.

    Attributes:
        rank: what its report says.
        steps: the windows of its steady steps; of an old saved report all steps.
        kernels, operators: what it launched, None of a saved report.
        comm_patterns: what counts as communication beside what is known.
    """

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
        """Length of a step without the profiler, as the capture measured it, ns."""
        return None if self.rank.steady is None else self.rank.steady.unprofiled_step_ns

    def views(self, *, per_step: bool) -> tuple[View, ...]:
        """The windows that are compared: the steady steps, or the whole trace."""
        return self.steps if per_step else (self.rank.main,)

    def launches(self, *, per_step: bool) -> list[dict[str, tuple[int, int]]]:
        """Count and time, ns, of the GPU activities of each name, in each of these windows."""
        kernels = self.kernels or ()
        if not per_step:
            return [{x.name: (x.count, x.total_ns) for x in kernels}]
        numbers = {view.step for view in self.steps}
        indices = [i for i, view in enumerate(self.rank.steps) if view.step in numbers]
        return [{x.name: (x.step_counts[i], x.steps_ns[i]) for x in kernels} for i in indices]

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
    """Return the recordings of a side: one for each file."""
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


@dataclass(frozen=True, slots=True, repr=False)
class Compared(OneLine):
    """The recordings of one rank on one side, each with the windows that are compared.

    Attributes:
        recordings: at least one.
        per_step: whether the windows are steady steps, else whole traces.
        has_repeats: whether a figure is one per recording, the median of its windows.
    """

    recordings: tuple[Recording, ...]
    per_step: bool
    has_repeats: bool

    @property
    def views(self) -> list[View]:
        """The windows of all recordings."""
        return [view for x in self.recordings for view in x.views(per_step=self.per_step)]

    @property
    def files(self) -> tuple[ComparedFile, ...]:
        """Every recording."""
        return tuple(x.compared(per_step=self.per_step) for x in self.recordings)

    @property
    def shown(self) -> tuple[ComparedFile, Recording]:
        """The recording of median length stands for the others."""
        pairs = zip(self.files, self.recordings, strict=True)
        return sorted(pairs, key=lambda pair: pair[0].length_ns)[(len(self.recordings) - 1) // 2]

    @property
    def fewest_steps(self) -> int:
        """Number of values in a sample: recordings, or windows of the only one."""
        return len(self.recordings if self.has_repeats else self.views)

    @property
    def unprofiled_step_ns(self) -> int | None:
        """Length of a step without the profiler: the median, if all recordings know it."""
        known = [x.unprofiled_step_ns for x in self.recordings if x.unprofiled_step_ns is not None]
        return median(known) if len(known) == len(self.recordings) else None

    def sample(self, values_of: Callable[[Recording], Sequence[int]]) -> list[int]:
        """Sample a figure: of each window, or the medians of the recordings."""
        values = [values_of(recording) for recording in self.recordings]
        return [median(x) for x in values] if self.has_repeats else list(values[0])

    def sample_of_views(self, value_of: Callable[[View], int]) -> list[int]:
        """Sample a figure that each window has."""
        return self.sample(lambda x: [value_of(view) for view in x.views(per_step=self.per_step)])

    def table(
        self, windows_of: Callable[[Recording], Sequence[Mapping[_Key, int]]]
    ) -> dict[_Key, list[int]]:
        """Sample every figure of a table by its key; one that a window lacks is 0 there."""
        windows = {id(recording): windows_of(recording) for recording in self.recordings}
        keys = dict.fromkeys(key for x in windows.values() for cells in x for key in cells)

        def sample(key: _Key) -> list[int]:
            return self.sample(lambda x: [cells.get(key, 0) for cells in windows[id(x)]])

        return {key: sample(key) for key in keys}

    def table_of_views(
        self, cells_of: Callable[[View], Mapping[_Key, int]]
    ) -> dict[_Key, list[int]]:
        """Sample every figure of a table that each window has."""
        return self.table(lambda x: [cells_of(view) for view in x.views(per_step=self.per_step)])


@dataclass(frozen=True, slots=True, repr=False)
class Pair(OneLine):
    """One rank on both sides.

    Attributes:
        before, after: each side.
        length_ns: how long a step takes before.
    """

    before: Compared
    after: Compared
    length_ns: int

    @property
    def sides(self) -> tuple[Compared, Compared]:
        """Both."""
        return self.before, self.after

    @property
    def per_step(self) -> bool:
        """True if steady steps are compared, else whole traces."""
        return self.before.per_step

    @property
    def has_repeats(self) -> bool:
        """True for several recordings, which say how much recordings differ."""
        return self.before.has_repeats

    def change(self, before: Sequence[int], after: Sequence[int]) -> Change:
        """Compare two samples of a figure; an empty one was 0 all the time."""
        compare = change_between if self.has_repeats else change
        return compare(
            before or [0] * self.before.fewest_steps,
            after or [0] * self.after.fewest_steps,
            self.length_ns,
        )

    def change_of_views(self, value_of: Callable[[View], int]) -> Change:
        """Compare a figure that each window has."""
        return self.change(*(side.sample_of_views(value_of) for side in self.sides))

    def changes(self, cells_of: Callable[[View], Mapping[_Key, int]]) -> dict[_Key, Change]:
        """Compare every figure of a table that each window has."""
        before, after = (side.table_of_views(cells_of) for side in self.sides)
        return {
            key: self.change(before.get(key, ()), after.get(key, ())) for key in {**before, **after}
        }


def pair(before: Sequence[Recording], after: Sequence[Recording]) -> Pair:
    """Pair the recordings of one rank: by steady step if all have one, else as whole traces."""
    per_step = all(recording.steps for recording in (*before, *after))
    has_repeats = len(before) + len(after) > 2
    own = Compared(tuple(before), per_step, has_repeats)
    length_ns = median(own.sample_of_views(lambda view: view.length_ns))
    return Pair(own, Compared(tuple(after), per_step, has_repeats), length_ns)
