"""Jobs: files that are the ranks of one job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from tracelab.base.names import rank_in_path, remove_rank, short_names
from tracelab.base.safe_text import counted
from tracelab.report.schema import STATED, JobDecision, TraceInfo

_MAX_NAMES = 3

_Files = tuple[int, ...]  # the places of files among all


def decide_job(
    traces: Sequence[TraceInfo], ranks: Sequence[int], *, is_stated: bool
) -> JobDecision:
    """Decide if files are the ranks of one job, and which were recorded together."""
    recordings = (tuple(range(len(traces))),) if is_stated else find_recordings(traces)
    is_job = len(recordings) == 1 < len(traces)
    as_they_say = _why_one_job if is_job else _why_not_one_job
    why = STATED if is_stated else as_they_say(traces)
    together = (tuple(sorted(ranks[i] for i in files)) for files in recordings)
    return JobDecision(is_job, why, tuple(sorted(together)))


def find_recordings(traces: Sequence[TraceInfo]) -> tuple[_Files, ...]:
    """Group the places of files that were recorded together, as the ranks of one job.

    Those have the same number of ranks and of process groups of all ranks, different ranks, and
    steps that all ran at one moment. Without known other ranks, names differ only in the rank. If a
    rank is there twice at one time, folders and names separate recordings.

    There is no slow reference model: ``tests/unit/report/test_jobs.py`` has jobs made by hand.
    """
    recordings: list[_Files] = []
    for files in _grouped(range(len(traces)), lambda i: _claim(traces[i], i)):
        for together in _group_by_time(traces, files):
            if _has_each_rank_once(traces, together):
                recordings.append(together)
                continue
            for named_alike in _grouped(together, lambda i: remove_rank(traces[i].path)):
                whole = _has_each_rank_once(traces, named_alike)
                recordings += [named_alike] if whole else [(i,) for i in named_alike]
    return tuple(sorted(recordings))


def choose_ranks(traces: Sequence[TraceInfo], *, is_stated: bool) -> tuple[tuple[int, str], ...]:
    """The unique number of each file in the report's tables, and its source.

    A file without a rank gets the first free one; if two are equal, numbers are the files' places.
    In
    a stated job, folders may give ranks as well.
    """
    given = [None if x.rank_source == "position" else x.rank for x in traces]
    if is_stated and (None in given or _repeats(given)):
        named = [rank_in_path(x.path) for x in traces]
        if None not in named and not _repeats(named):
            return tuple((rank, "filename") for rank in named if rank is not None)
    if _repeats(given):
        return tuple((place, "position") for place in range(len(traces)))
    free = iter(sorted(set(range(len(traces))).difference(given)))
    return tuple(
        (next(free), "position") if rank is None else (rank, x.rank_source)
        for rank, x in zip(given, traces, strict=True)
    )


def _why_one_job(traces: Sequence[TraceInfo]) -> str:
    size = traces[0].world_size
    if size is None:
        return "their names differ only in the rank, and they were recorded at the same time"
    return f"{len(traces)} of {size} ranks, recorded at the same time"


def _why_not_one_job(traces: Sequence[TraceInfo]) -> str:
    sizes = Counter(x.world_size for x in traces)
    if len(sizes) > 1:
        by_size = sorted(sizes.items(), key=lambda item: (item[0] is None, item[0]))
        sized = [
            f"{size or 'not given'} in {counted(count, 'file', 'files')}" for size, count in by_size
        ]
        return f"the number of ranks differs: {_listed(sized)}"
    if set(sizes) == {1}:
        return "each is a job of one rank"
    names = short_names([x.path for x in traces])
    if unnamed := [names[i] for i, x in enumerate(traces) if x.rank_source == "position"]:
        return f"nothing says which rank {_listed(unnamed)} {'is' if len(unnamed) == 1 else 'are'}"
    if len({x.world_groups for x in traces}) > 1:
        return "their process groups differ"
    return _why_apart(traces, names)


def _why_apart(traces: Sequence[TraceInfo], names: Sequence[str]) -> str:
    files = range(len(traces))
    for of_rank in _grouped(files, lambda i: traces[i].rank):
        if len(of_rank) > 1:
            listed = _listed([names[i] for i in of_rank])
            return f"rank {traces[of_rank[0]].rank} is in several files: {listed}"
    by_time = _group_by_time(traces, files)
    if len(by_time) > 1:
        first, second = by_time[0][0], by_time[1][0]
        pause_s = (_span_ns(traces[second])[0] - _span_ns(traces[first])[1]) / 1e9
        apart = f"{names[second]} began {pause_s:.3g} s after {names[first]} had ended"
        return f"they were not recorded at the same time: {apart}"
    return "their names differ in more than the rank"


def _claim(trace: TraceInfo, place: int) -> Hashable:
    if trace.recorded is None or trace.rank_source == "position" or trace.world_size == 1:
        return place
    alike = remove_rank(trace.path) if trace.world_size is None else ""
    return trace.world_size, trace.world_groups, alike


def _group_by_time(traces: Sequence[TraceInfo], files: Iterable[int]) -> list[_Files]:
    """Divide files by time: at some moment all of a group recorded."""
    groups: list[list[int]] = []
    first_end_ns = 0
    for i in sorted(files, key=lambda i: _span_ns(traces[i])):
        start_ns, end_ns = _span_ns(traces[i])
        if groups and start_ns < first_end_ns:
            groups[-1].append(i)
            first_end_ns = min(first_end_ns, end_ns)
        else:
            groups.append([i])
            first_end_ns = end_ns
    return [tuple(sorted(group)) for group in groups]


def _span_ns(trace: TraceInfo) -> tuple[int, int]:
    recorded = trace.recorded
    if recorded is None:
        return 0, 0
    return recorded.origin_ns + recorded.start_ns, recorded.origin_ns + recorded.end_ns


def _has_each_rank_once(traces: Sequence[TraceInfo], files: Sequence[int]) -> bool:
    return not _repeats([traces[i].rank for i in files])


def _repeats(ranks: Sequence[int | None]) -> bool:
    known = [rank for rank in ranks if rank is not None]
    return len(set(known)) < len(known)


def _grouped(files: Iterable[int], key: Callable[[int], Hashable]) -> list[_Files]:
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for i in files:
        groups[key(i)].append(i)
    return [tuple(group) for group in groups.values()]


def _listed(items: Sequence[str]) -> str:
    if len(items) <= _MAX_NAMES:
        *rest, last = items
    else:
        rest, last = list(items[:_MAX_NAMES]), f"{len(items) - _MAX_NAMES:,} more"
    return f"{', '.join(rest)} and {last}" if rest else last
