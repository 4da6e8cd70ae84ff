"""The one list of what happens between a file and its report, in order."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tracelab.errors import TracelabError, UnreadableInputError, UsageError
from tracelab.findings.attribution import find_all
from tracelab.findings.facts import Context
from tracelab.findings.finding import Finding
from tracelab.findings.registry import RULES
from tracelab.findings.rules.trace_quality import OTHER_RANKS
from tracelab.intervals import measure_within
from tracelab.measures.blocking_calls import BlockingCallCosts, blocking_calls
from tracelab.measures.bubbles import Bubbles, Cause, bubbles
from tracelab.measures.critical_path import critical_paths
from tracelab.measures.exposed import Exposed, exposed
from tracelab.measures.overlap import device_times, overlaps
from tracelab.measures.profiler_overhead import unprofiled_ns
from tracelab.model.call_sites import CallSite
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import Blocking, observe_host
from tracelab.model.kernel_kinds import Kind, is_recognised
from tracelab.model.losses import LOSSES, count_losses
from tracelab.model.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline, build_timeline, only_launched
from tracelab.model.trace import ABSENT, Category, Trace
from tracelab.options import DEFAULTS, Options
from tracelab.read.cache import load_trace
from tracelab.read.parallel import read_trace_in_chunks
from tracelab.read.reader import read_blocks_per_sm
from tracelab.read.sources import find_sources
from tracelab.read.streams import Source
from tracelab.report.schema import (
    SCHEMA,
    BlockingCallMetrics,
    CriticalPathMetrics,
    CulpritMetrics,
    DeviceMetrics,
    KernelTotal,
    LaunchedOnly,
    OverlapMetrics,
    Provenance,
    Report,
    TraceInfo,
    UnreadFile,
    WindowMetrics,
)
from tracelab.version import __version__

# A kernel that no rule knows is worth a question from this share of the GPU's busy time on.
_WORTH_ASKING = 0.01
_MOST_NAMED = 20_000  # bubbles, the longest: what held the rest is in no row

_Mapped = TypeVar("_Mapped")


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """One file, analysed, with what a picture or a closer look needs beside the report."""

    graph: Graph
    blocking_calls: BlockingCallCosts
    windows: tuple[Window, ...]
    report: Report

    @property
    def timeline(self) -> Timeline:
        """The GPU activities in order."""
        return self.graph.host.timeline


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be analysed."""

    source: Source
    error: TracelabError


def analyze(
    paths: Sequence[str] | str,
    options: Options = DEFAULTS,
    run: Callable[..., Iterable[Any]] = map,
) -> Report:
    """Analyse files, or folders of them, into one report.

    Args:
        paths: files, folders or URLs.
        options: what to measure.
        run: maps a function over the files, as `map` or a pool's `map` does.

    Raises:
        UsageError: no path is given, or an option makes no sense.
        TracelabError: nothing could be analysed; what could not while other files could stands in
            the report's provenance.
    """
    chosen = [paths] if isinstance(paths, str) else list(paths)
    if not chosen:
        raise UsageError("no file, folder or URL to analyse is given")
    sources = find_sources(chosen)
    results = run(partial(report_source, options=options), sources)
    return merge_reports(results, chosen, options)


def report_source(source: Source, options: Options) -> Report | Failure:
    """The report of one file; an expected error is returned, so that other files go on."""
    try:
        return analyze_source(source, options).report
    except TracelabError as error:
        return Failure(source, error)


def analyze_source(source: Source, options: Options = DEFAULTS) -> Analysis:
    """Analyse one file.

    Raises:
        UnreadableInputError: it is no trace, or it holds no GPU activity.
        UsageError: a pattern is wrong, or the step asked for is not in the file.
    """
    read = load_trace if options.cache else read_trace_in_chunks
    trace = read(source, options.processes)
    timeline = build_timeline(
        trace, comm_patterns=options.comm_patterns, step_pattern=options.step_pattern
    )
    if not len(timeline.event_id):
        # What was cut off may have held them; a whole file was recorded without the GPU.
        why = "" if trace.losses.get("truncated") else "; was ProfilerActivity.CUDA on?"
        raise UnreadableInputError(
            f"{source.path}: {len(trace):,} host events and no GPU activity: nothing to analyse"
            f"{count_losses(trace.losses)}{why}"
        )
    graph = build_graph(observe_host(timeline))
    windows = _choose_windows(timeline, options.step)
    lines = SourceLines((*options.source_folders, *trace.info.source_folders))
    measured_syncs = blocking_calls(graph, lines)
    idle = bubbles(graph, windows)
    unhidden = exposed(graph)
    rank = trace.info.rank if trace.info.rank is not None else 0
    facts = Context(
        graph=graph,
        window=windows[0],
        rank=rank,
        bubbles=idle,
        exposed=unhidden,
        blocking_calls=measured_syncs,
        losses=trace.losses,
        lines=lines,
        blocks_per_sm=partial(_blocks_per_sm, source, trace),
    )
    report = Report(
        schema=SCHEMA,
        version=__version__,
        provenance=Provenance((source.path,), options.comm_patterns, options.step_pattern, ()),
        traces=(_trace_facts(graph, rank, options),),
        windows=tuple(
            WindowMetrics(
                rank,
                window.step,
                window.start_ns,
                window.end_ns,
                devices,
                unprofiled,
            )
            for window, devices, unprofiled in zip(
                windows,
                _device_figures(graph, idle, unhidden, windows),
                unprofiled_ns(timeline, idle, windows),
                strict=True,
            )
        ),
        overlaps=tuple(
            OverlapMetrics(rank, window.step, x.a, x.b, x.a_ns, x.b_ns, x.overlap_ns)
            for window, found in zip(windows, overlaps(timeline, windows), strict=True)
            for x in found
        ),
        syncs=tuple(_sync_figures(timeline, measured_syncs, rank, windows)),
        holders=_holder_figures(facts),
        critical_path=tuple(
            CriticalPathMetrics(rank, window.step, window.length_ns, path.by_kind())
            for window, path in zip(windows, critical_paths(graph, windows), strict=True)
        ),
        findings=find_all(facts, RULES),
    )
    return Analysis(graph, measured_syncs, windows, report)


def merge_reports(
    results: Iterable[Report | Failure], paths: Sequence[str], options: Options
) -> Report:
    """One report of many files, each with a rank of its own.

    A file that names no rank, or one that a file before it names, gets the first that is free.

    Raises:
        TracelabError: no file could be analysed; the first error.
    """
    reports: list[Report] = []
    failures: list[Failure] = []
    for result in results:
        if isinstance(result, Failure):
            failures.append(result)
        else:
            reports.append(result)
    if not reports:
        raise failures[0].error
    named: dict[int, Report] = {}
    for report in reports:
        if report.traces[0].rank_source != "position":
            named.setdefault(report.traces[0].rank, report)
    unnamed = sum(x.traces[0].rank_source == "position" for x in reports)
    free = (rank for rank in itertools.count() if rank not in named)
    ranked = [
        x if named.get(x.traces[0].rank) is x else _by_position(x, next(free)) for x in reports
    ]
    ranked.sort(key=lambda x: x.traces[0].rank)
    return replace(
        ranked[0],
        provenance=Provenance(
            tuple(paths),
            options.comm_patterns,
            options.step_pattern,
            tuple(UnreadFile(x.source.path, str(x.error)) for x in failures),
        ),
        traces=tuple(part for x in ranked for part in x.traces),
        windows=tuple(part for x in ranked for part in x.windows),
        overlaps=tuple(part for x in ranked for part in x.overlaps),
        syncs=tuple(part for x in ranked for part in x.syncs),
        holders=tuple(part for x in ranked for part in x.holders),
        critical_path=tuple(part for x in ranked for part in x.critical_path),
        findings=_merge_findings(ranked, len(named) + unnamed),
    )


def _merge_findings(reports: Sequence[Report], ranks: int) -> tuple[Finding, ...]:
    """All findings; that ranks are missing only if they are: two files may be of one rank."""
    return tuple(
        finding
        for report in reports
        for finding in report.findings
        if finding.rule != OTHER_RANKS or finding.where.count > ranks
    )


def _by_position(report: Report, rank: int) -> Report:
    def renumber(parts: tuple[_Mapped, ...]) -> tuple[_Mapped, ...]:
        return tuple(replace(part, rank=rank) for part in parts)  # type: ignore[type-var]

    return replace(
        report,
        traces=tuple(replace(x, rank=rank, rank_source="position") for x in report.traces),
        windows=renumber(report.windows),
        overlaps=renumber(report.overlaps),
        syncs=renumber(report.syncs),
        holders=renumber(report.holders),
        critical_path=renumber(report.critical_path),
        findings=renumber(report.findings),
    )


def _choose_windows(timeline: Timeline, step: int | None) -> tuple[Window, ...]:
    if step is None:
        return timeline.windows
    chosen = tuple(window for window in timeline.windows if window.step == step)
    if not chosen:
        numbers = [x.number for x in timeline.steps]
        known = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
        raise UsageError(
            f"{timeline.trace.path}: there is no step {step}; the file's steps are: {known}"
        )
    return chosen


def _blocks_per_sm(source: Source, trace: Trace, event_ids: Iterable[int]) -> dict[int, float]:
    """How many blocks of each kernel a multiprocessor gets, by event id, where the file says."""
    file_indices = {event_id: int(trace.file_index[event_id]) for event_id in event_ids}
    blocks = read_blocks_per_sm(source, file_indices.values())
    return {
        event_id: blocks[file_index]
        for event_id, file_index in file_indices.items()
        if file_index in blocks
    }


def _device_figures(
    graph: Graph, idle: Bubbles, unhidden: Exposed, windows: Sequence[Window]
) -> list[tuple[DeviceMetrics, ...]]:
    """The figures of every device, per window."""
    timeline = graph.host.timeline
    times, devices = device_times(timeline, windows), timeline.device_numbers
    starts = [window.start_ns for window in windows]
    ends = [window.end_ns for window in windows]
    causes = {device: idle.by_cause(device, windows) for device in devices}
    reasons = {device: idle.by_reason(device, windows) for device in devices}
    comm, copies = (
        {x: measure_within(unhidden.blocking(timeline, x, kind), starts, ends) for x in devices}
        for kind in (Kind.COMM, Kind.COPY)
    )
    return [
        tuple(
            DeviceMetrics(
                **{name: getattr(x, name) for name in x.__slots__},
                blocking_comm_ns=int(comm[x.device][i]),
                blocking_copy_ns=int(copies[x.device][i]),
                bubbles=causes[x.device][i],
                unknown_reasons=reasons[x.device][i],
            )
            for x in row
        )
        for i, row in enumerate(times)
    ]


def _trace_facts(graph: Graph, rank: int, options: Options) -> TraceInfo:
    timeline = graph.host.timeline
    trace = timeline.trace
    links = graph.links
    losses = {
        **trace.losses,
        "activities_without_launch": int((timeline.launch_id == ABSENT).sum()),
        "overlapping_activities": timeline.overlapping_count,
        "waits_without_record": links.unresolved,
        "edges_against_time": graph.against_time,
    }
    return TraceInfo(
        path=trace.path,
        rank=rank,
        rank_source=trace.info.rank_source if trace.info.rank is not None else "position",
        objects=trace.objects,
        events=len(trace),
        gpu_activities=len(timeline.event_id),
        software=dict(trace.info.software),
        gpus=_gpus(timeline),
        losses={loss.name: losses[loss.name] for loss in LOSSES if losses.get(loss.name)},
        event_links=links,
        unrecognised=_unrecognised(timeline),
        launched_only=_launched_only(timeline, options),
    )


def _launched_only(timeline: Timeline, options: Options) -> LaunchedOnly | None:
    left_out = int((timeline.launch_id == ABSENT).sum())
    if not 0 < left_out < len(timeline.event_id):
        return None
    launched = only_launched(timeline, options.comm_patterns)
    whole = launched.windows[:1]
    graph = build_graph(observe_host(launched))
    figures = _device_figures(graph, bubbles(graph, whole), exposed(graph), whole)[0]
    return LaunchedOnly(whole[0].start_ns, whole[0].end_ns, left_out, figures)


def _sync_figures(
    timeline: Timeline, measured: BlockingCallCosts, rank: int, windows: Sequence[Window]
) -> list[BlockingCallMetrics]:
    """The blocking calls of each window by API and place, the dearest first."""
    trace, calls = timeline.trace, measured.calls
    numbers = [step.number for step in timeline.steps]
    groups: dict[int | None, dict[tuple[str, Blocking, CallSite], list[int]]] = defaultdict(dict)
    for i, call in enumerate(calls.event_id.tolist()):
        step = int(measured.step_index[i])
        key = (trace.name_of(call), Blocking(int(calls.kind[i])), measured.call_sites[i])
        for window in (None, numbers[step]) if step != ABSENT else (None,):
            groups[window].setdefault(key, []).append(i)
    return [
        figures
        for window in windows
        for figures in sorted(
            (
                BlockingCallMetrics(
                    rank=rank,
                    step=window.step,
                    api=api,
                    kind=kind.name.lower(),
                    count=len(group),
                    blocked_ns=int(measured.blocked_ns[group].sum()),
                    caused_idle_ns=int(measured.caused_idle_ns[group].sum()),
                    idle_after_ns=int(measured.idle_after_ns[group].sum()),
                    waited_for=_longest_wait(trace, measured, group),
                    operator=place.operator,
                    annotation=place.annotation,
                    function=place.function,
                    file=place.file,
                    line=place.line,
                )
                for (api, kind, place), group in groups[window.step].items()
            ),
            key=lambda x: (-x.caused_idle_ns, -x.blocked_ns, x.api),
        )
    ]


def _longest_wait(trace: Trace, measured: BlockingCallCosts, group: list[int]) -> str | None:
    """The name of the activity for which these calls blocked longest; None if none is known."""
    waits: Counter[int] = Counter()
    for i in group:
        if measured.awaited_id[i] != ABSENT:
            waits[int(trace.name_index[measured.awaited_id[i]])] += int(measured.blocked_ns[i])
    return trace.strings[max(waits, key=lambda x: waits[x])] if waits else None


def _holder_figures(facts: Context) -> tuple[CulpritMetrics, ...]:
    """What held the idle of one window, by device, cause, thing and place, the dearest first."""
    idle, held, window, trace = facts.bubbles, facts.idle_culprits, facts.window, facts.trace
    start = np.maximum(idle.start_ns, window.start_ns)
    length = np.minimum(idle.end_ns, window.end_ns) - start
    inside = np.flatnonzero((length > 0) & (held != ABSENT))
    longest = inside[np.argsort(-length[inside], kind="stable")][:_MOST_NAMED]
    on_gpu = np.isin(held[longest], facts.timeline.event_id)
    places = facts.call_sites(np.where(on_gpu, ABSENT, held[longest]).tolist())
    groups: dict[tuple[int, int, str, CallSite], list[int]] = defaultdict(list)
    for i, place in zip(longest.tolist(), places, strict=True):
        name = trace.name_of(int(held[i]))
        groups[int(idle.device_number[i]), int(idle.cause[i]), name, place].append(i)
    found = [
        CulpritMetrics(
            rank=facts.rank,
            step=window.step,
            device=device,
            cause=Cause(cause).name.lower(),
            name=name,
            operator=place.operator,
            function=place.function,
            file=place.file,
            line=place.line,
            count=len(group),
            idle_ns=int(length[group].sum()),
            longest_start_ns=int(start[group[0]]),
            longest_ns=int(length[group[0]]),
            event=int(held[group[0]]),
        )
        for (device, cause, name, place), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda x: (x.device, -x.idle_ns, x.longest_start_ns)))


def _unrecognised(timeline: Timeline) -> tuple[KernelTotal, ...]:
    """Long kernels that no rule knows, the longest first."""
    trace = timeline.trace
    rows = (timeline.kind == Kind.COMPUTE) & (trace.category[timeline.event_id] == Category.KERNEL)
    names, inverse = np.unique(trace.name_index[timeline.event_id[rows]], return_inverse=True)
    length = (timeline.end_ns - timeline.start_ns)[rows]
    totals = np.bincount(inverse, weights=length, minlength=len(names)).astype(np.int64)
    counts = np.bincount(inverse, minlength=len(names))
    enough = _WORTH_ASKING * float((timeline.end_ns - timeline.start_ns).sum())
    found = [
        KernelTotal(trace.strings[name], int(counts[i]), int(totals[i]))
        for i, name in enumerate(names.tolist())
        if totals[i] >= enough and not is_recognised(trace.strings[name])
    ]
    return tuple(sorted(found, key=lambda x: (-x.total_ns, x.name)))


def _gpus(timeline: Timeline) -> dict[str, str]:
    """The names of the devices that worked, as far as the file gives them."""
    names = timeline.trace.info.device_names
    return {str(device): names[device] for device in timeline.device_numbers if device in names}
