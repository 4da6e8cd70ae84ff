"""From what was measured of files to one report: a file's own report, and many of them merged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tracelab.findings.finding import Finding
from tracelab.findings.rules import tl909_other_ranks
from tracelab.measures.compared_streams import compared_streams
from tracelab.measures.kernel_times import unrecognised_kernels
from tracelab.model.graph import Graph
from tracelab.model.losses import LOSSES
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.options import Options
from tracelab.report.schema import (
    SCHEMA,
    LaunchedOnly,
    Note,
    Provenance,
    Report,
    TraceInfo,
    UnreadFile,
    with_rank,
)
from tracelab.version import __version__


def build_report(
    trace_info: TraceInfo,
    tables: dict[str, tuple[Any, ...]],
    findings: tuple[Finding, ...],
    notes: tuple[Note, ...],
    options: Options,
) -> Report:
    """The report of one file."""
    rank = trace_info.rank
    return Report(
        schema=SCHEMA,
        version=__version__,
        provenance=_provenance((trace_info.path,), options, ()),
        traces=(trace_info,),
        tables={key: with_rank(rows, rank) for key, rows in tables.items()},
        findings=findings,
        notes=notes,
    )


def build_trace_info(
    graph: Graph, rank: int, launched_only: LaunchedOnly | None, options: Options
) -> TraceInfo:
    """What a report says of its file: where it is from, how much is in it, what was lost."""
    timeline, links = graph.host.timeline, graph.links
    trace = timeline.trace
    compared = len(compared_streams(timeline, all_pairs=options.all_pairs))
    losses = {
        **trace.losses,
        "activities_without_launch": int((timeline.launch_id == ABSENT).sum()),
        "launches_without_activity": len(timeline.lost_launches),
        "overlapping_activities": timeline.overlapping_count,
        "repeated_steps": timeline.repeated_steps,
        "streams_not_compared": len(timeline.streams) - compared,
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
        unrecognised=unrecognised_kernels(graph),
        launched_only=launched_only,
        platform=trace.info.platform,
    )


def merge_reports(
    reports: Sequence[Report],
    paths: Sequence[str],
    options: Options,
    unread: Sequence[UnreadFile] = (),
) -> Report:
    """One report of many files, each with a rank of its own; at least one is needed.

    A file that names no rank, or one that a file before it names, gets the first that is free.

    Args:
        reports: those of the files.
        paths: what was asked for.
        options: how the files were analyzed.
        unread: the files that could not be analyzed.
    """
    by_name: dict[int, Report] = {}
    for report in reports:
        if report.traces[0].rank_source != "position":
            by_name.setdefault(report.traces[0].rank, report)
    unnamed = sum(report.traces[0].rank_source == "position" for report in reports)
    free = (rank for rank in itertools.count() if rank not in by_name)
    ranked = [
        report
        if by_name.get(report.traces[0].rank) is report
        else report.of_rank(next(free), "position")
        for report in reports
    ]
    ranked.sort(key=lambda report: report.traces[0].rank)
    keys = dict.fromkeys(key for report in ranked for key in report.tables)
    return replace(
        ranked[0],
        provenance=_provenance(paths, options, unread),
        traces=tuple(trace for report in ranked for trace in report.traces),
        tables={
            key: tuple(row for report in ranked for row in report.tables.get(key, ()))
            for key in keys
        },
        findings=_merge_findings(ranked, len(by_name) + unnamed),
        notes=tuple(note for report in ranked for note in report.notes),
    )


def _merge_findings(reports: Sequence[Report], ranks: int) -> tuple[Finding, ...]:
    """All findings; that ranks are missing only if they are: two files may be of one rank."""
    return tuple(
        finding
        for report in reports
        for finding in report.findings
        if finding.rule != tl909_other_ranks.RULE.id or finding.where.count > ranks
    )


def _provenance(paths: Sequence[str], options: Options, unread: Sequence[UnreadFile]) -> Provenance:
    return Provenance(tuple(paths), options.comm_patterns, options.step_pattern, tuple(unread))


def _gpus(timeline: Timeline) -> dict[str, str]:
    """The names of the devices that worked, as far as the file gives them."""
    names = timeline.trace.info.device_names
    return {str(device): names[device] for device in timeline.device_numbers if device in names}
