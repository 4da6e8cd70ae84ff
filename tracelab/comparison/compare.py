"""Comparison of recordings of a program: pure functions of their reports.

What is compared is the steady step: the median of a figure over the steady steps of each side, and
how far they lie apart. Where a side has none, it is the whole trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike

import numpy as np

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult, analyze_file, merge_results
from tracelab.base.errors import UsageError
from tracelab.base.options import DEFAULTS, Options
from tracelab.base.version import __version__
from tracelab.comparison.diff import (
    CANNOT_TELL,
    DIFFERENT_PROGRAMS,
    LONGER,
    SCHEMA,
    SHORTER,
    Diff,
    PredictionDiff,
    RankDiff,
    Side,
)
from tracelab.comparison.judge import is_same_program, judge
from tracelab.comparison.recordings import Pair, Recording, pair, recordings_of
from tracelab.comparison.tables import (
    call_diffs,
    device_diffs,
    finding_diffs,
    functions_tell_apart,
    kernel_diffs,
    table_diffs,
)
from tracelab.measures.kernel_times import NameTimes, kernel_times
from tracelab.measures.steady import PROFILED
from tracelab.model.trace import Category
from tracelab.read.sources import find_sources, path_names
from tracelab.report.schema import Report, WhatIf

# One recording as it may be given: a file or a folder, the files of its ranks, what it became.
Given = Side | Report | str | PathLike[str] | Sequence[str | PathLike[str]]


def compare(
    before: Given | Sequence[Given], after: Given | Sequence[Given], options: Options = DEFAULTS
) -> Diff:
    """Compare two sides rank by rank.

    One rank is compared with one rank whatever their numbers; of several, those with the same.
    Of a list, files of different ranks are one job. Several of the same rank, or of none, are
    several recordings of one program: then the noise is how much the recordings differ.

    Args:
        before: a trace, a saved report, a folder of traces, or a `Report`; or a list of them. A
            list in that list is one recording of several ranks.
        after: likewise.
        options: how traces are analyzed.

    Example:
        >>> before = "traces/prefetch_copy_stream_synchronize.pt.trace.json.gz"
        >>> after = "traces/prefetch_copy_stream_pinned.pt.trace.json.gz"
        >>> tracelab.compare(before, after).verdict
        'shorter'

    Raises:
        UsageError: no rank is on both sides, or a saved report stands among other files.
        TracelabError: a side cannot be analyzed.
    """
    return compare_sides(_sides(before, options), _sides(after, options))


def _sides(given: Given | Sequence[Given], options: Options) -> list[Side]:
    if isinstance(given, Side | Report | str | PathLike):
        return [_side(given, options)]
    if not given:
        raise UsageError("no file, folder or URL to compare is given")
    return [_side(one, options) for one in given]


def _side(given: Given, options: Options) -> Side:
    if isinstance(given, Side):
        return given
    if isinstance(given, Report):
        return Side(given, None)
    names = path_names(given)
    read = partial(analyze_file, options=options, then=launches_of, may_be_saved=True)
    return merge_side([read(source) for source in find_sources(names)], names, options)


# What a file launched: the times of its kernels, and how often it called each operator.
Launches = tuple[tuple[NameTimes, ...], Mapping[str, int]]


def launches_of(analysis: Analysis) -> Launches:
    """Return the launches of a file, which the report does not hold."""
    trace = analysis.graph.host.timeline.trace
    names, counts = np.unique(
        trace.name_index[trace.of_category(Category.OPERATOR)], return_counts=True
    )
    operators = {
        trace.strings[name_index]: count
        for name_index, count in zip(names.tolist(), counts.tolist(), strict=True)
    }
    return kernel_times(analysis.graph), operators


def merge_side(results: Sequence[FileResult], names: Sequence[str], options: Options) -> Side:
    """Merge the files of one recording; `FileResult.more` holds their launches.

    Raises:
        UsageError: a saved report stands among other files.
        TracelabError: no file could be analyzed.
    """
    for result in results:
        if result.is_saved and result.report is not None:
            if len(results) > 1:
                raise UsageError(
                    f"{result.source.path}: a saved report cannot stand among other files"
                )
            return Side(result.report, None)
    launches: dict[str, Launches] = {
        result.report.traces[0].path: result.more for result in results if result.report is not None
    }
    report = merge_results(results, names, options)
    return Side(
        report,
        tuple(launches[trace.path][0] for trace in report.traces),
        tuple(launches[trace.path][1] for trace in report.traces),
    )


def compare_sides(before: Side | Sequence[Side], after: Side | Sequence[Side]) -> Diff:
    """Compare two sides that were read; see `compare`.

    Args:
        before: what was measured, or that of several recordings.
        after: likewise.

    Raises:
        UsageError: no rank is on both sides.
    """
    sides_before = [before] if isinstance(before, Side) else list(before)
    sides_after = [after] if isinstance(after, Side) else list(after)
    ranks_before, ranks_after = _group_by_rank(sides_before), _group_by_rank(sides_after)
    if len(ranks_before) == len(ranks_after) == 1:
        both = [(*ranks_before.values(), *ranks_after.values())]
        only_before: list[int] = []
        only_after: list[int] = []
    else:
        common = [rank for rank in ranks_before if rank in ranks_after]
        both = [(ranks_before[rank], ranks_after[rank]) for rank in common]
        only_before = sorted(ranks_before.keys() - common)
        only_after = sorted(ranks_after.keys() - common)
    if not both:
        raise UsageError(
            f"nothing to compare: one side has rank {_listed(only_before)}, the other one "
            f"rank {_listed(only_after)}"
        )
    pairs = [pair(*sides) for sides in both]
    # One rank may idle where another works: the job's programs differ if all ranks' do.
    same = [is_same_program(x) for x in pairs]
    same_program = None if None in same else any(same)
    ranks = tuple(_compare_rank(both, same_program=same_program) for both in pairs)
    sides = [*sides_before, *sides_after]
    found = Diff(
        schema=SCHEMA,
        version=__version__,
        different=any(rank.different for rank in ranks),
        saved_before=any(side.kernels is None for side in sides_before),
        saved_after=any(side.kernels is None for side in sides_after),
        same_options=len({_options(side.report) for side in sides}) == 1,
        only_before=tuple(only_before),
        only_after=tuple(only_after),
        ranks=ranks,
        verdict=_verdict(ranks),
        same_program=same_program,
    )
    whatifs = [side.report.whatif for side in sides_before if side.report.whatif is not None]
    rank = found.slowest
    predictions = prediction_diffs(
        whatifs[0] if len(whatifs) == 1 else None,
        (rank.length.before_ns, rank.length.after_ns),
        (rank.unprofiled_before_ns, rank.unprofiled_after_ns),
    )
    return replace(found, predictions=predictions)


def prediction_diffs(
    whatif: WhatIf | None,
    profiled_ns: tuple[int, int],
    unprofiled_ns: tuple[int | None, int | None],
) -> tuple[PredictionDiff, ...]:
    """Compare each saved prediction with what was measured, in their order.

    Args:
        whatif: the predictions; None for none.
        profiled_ns: the step before and after, with the profiler, ns.
        unprofiled_ns: the same without it, if a side knows it.
    """
    if whatif is None:
        return ()
    before_ns, after_ns = profiled_ns if whatif.basis == PROFILED else unprofiled_ns
    return tuple(
        PredictionDiff(
            name=prediction.name,
            edits=prediction.edits,
            basis=whatif.basis,
            saves_ns=prediction.step_ns - prediction.predicted_ns,
            saves_low_ns=prediction.step_ns - prediction.high_ns,
            saves_high_ns=prediction.step_ns - prediction.low_ns,
            measured_ns=None if before_ns is None or after_ns is None else before_ns - after_ns,
        )
        for prediction in whatif.predictions
    )


def _group_by_rank(sides: Iterable[Side]) -> dict[int, list[Recording]]:
    """The recordings of each rank."""
    ranks: dict[int, list[Recording]] = {}
    for side in sides:
        for recording in recordings_of(side):
            ranks.setdefault(recording.rank.trace.rank, []).append(recording)
    return ranks


def _verdict(ranks: Sequence[RankDiff]) -> str:
    """Return the verdict of the slowest rank, unless ranks contradict each other."""
    if {SHORTER, LONGER} <= {rank.verdict for rank in ranks}:
        return CANNOT_TELL
    return max(ranks, key=lambda rank: rank.length.after_ns).verdict


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _options(report: Report) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(report.provenance.comm_patterns), frozenset(report.step_patterns)


def _compare_rank(both: Pair, *, same_program: bool | None) -> RankDiff:
    judgment = judge(both)
    places = functions_tell_apart(both)
    differs = same_program is False
    before, after = (side.shown for side in both.sides)
    return RankDiff(
        before=before[0],
        after=after[0],
        basis="step" if both.per_step else "trace",
        length=judgment.length,
        devices=device_diffs(both),
        findings=finding_diffs(both, places=places),
        kernels=kernel_diffs(both),
        calls=call_diffs(both, places=places),
        places=places,
        tables=table_diffs(both),
        verdict=DIFFERENT_PROGRAMS if differs else judgment.verdict,
        doubts=() if differs else judgment.doubts,
        speed_percent=judgment.speed_percent,
        unprofiled_before_ns=both.before.unprofiled_step_ns,
        unprofiled_after_ns=both.after.unprofiled_step_ns,
        before_recordings=both.before.files,
        after_recordings=both.after.files,
        before_scope=before[1].rank.main.scope.name,
        after_scope=after[1].rank.main.scope.name,
    )
