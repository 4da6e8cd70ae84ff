"""Building and merging of reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracelab.base import __version__
from tracelab.base.options import Options
from tracelab.findings.finding import Finding, Savings
from tracelab.findings.job_findings import (
    deciding_ranks,
    find_in_job,
    limit_to_job,
    predict_in_job,
    price_in_job,
)
from tracelab.findings.rules.trace_quality import OTHER_RANKS
from tracelab.job.merge import Job, merge
from tracelab.job.part import RankPart
from tracelab.job.replay import JobReplay
from tracelab.measures.overlap import compared_streams, graph_streams
from tracelab.measures.work import unrecognised_kernels
from tracelab.model.arithmetic import peak_of
from tracelab.model.graph import Graph
from tracelab.model.losses import (
    FAILED,
    LOSSES,
    LossName,
    attempt,
    find_loss_names,
    merged_loss_names,
)
from tracelab.model.steps import find_repeated
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.read.streams import shown_path
from tracelab.report.finding_groups import put_groups_first
from tracelab.report.job_files import choose_ranks, decide_job
from tracelab.report.schema import (
    SCHEMA,
    JobDecision,
    LaunchedOnly,
    Note,
    Provenance,
    RecordedTime,
    Report,
    Table,
    TraceInfo,
    UnreadFile,
    WhatIf,
    set_rank,
)
from tracelab.simulate.causal_profile import CausalMetrics


def build_report(
    trace_info: TraceInfo,
    tables: dict[str, tuple[Any, ...]],
    findings: tuple[Finding, ...],
    notes: tuple[Note, ...],
    savings: tuple[Savings, ...],
    whatif: WhatIf | None,
    causal: tuple[CausalMetrics, ...],
    options: Options,
    failures: Sequence[LossName],
) -> Report:
    """The report of one file."""
    rank = trace_info.rank
    return Report(
        schema=SCHEMA,
        version=__version__,
        provenance=_provenance((trace_info.path,), options, ()),
        traces=Table((_add_failures(trace_info, failures),)),
        tables={key: set_rank(rows, rank) for key, rows in tables.items()},
        findings=Table(findings),
        notes=Table(notes),
        savings=set_rank(savings, rank),
        whatif=whatif,
        causal=set_rank(causal, rank),
    )


def _add_failures(trace_info: TraceInfo, failures: Sequence[LossName]) -> TraceInfo:
    if not failures:
        return trace_info
    return replace(
        trace_info,
        losses={**trace_info.losses, FAILED: trace_info.losses.get(FAILED, 0) + len(failures)},
        loss_names=(*trace_info.loss_names, *merged_loss_names(failures)),
    )


def build_trace_info(
    graph: Graph, rank: int, launched_only: LaunchedOnly | None, options: Options
) -> TraceInfo:
    """Describe a file: origin, contents, losses."""
    timeline, links = graph.host.timeline, graph.links
    trace = timeline.trace
    compared = len(compared_streams(timeline, all_pairs=options.all_pairs))
    as_one = 0 if options.all_pairs else sum(len(x.stream_index) for x in graph_streams(timeline))
    unused = Counter[str]()
    for x in timeline.unused_steps:
        unused[x.loss] += x.count
    losses = {
        **trace.losses,
        "activities_without_launch": int((timeline.launch_id == ABSENT).sum()),
        **timeline.lost_work.counts(),
        "overlapping_activities": timeline.overlapping_count,
        **unused,
        "streams_not_compared": len(timeline.streams) - compared - as_one,
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
        losses={name: losses[name] for name in LOSSES if losses.get(name)},
        event_links=links,
        unrecognised=unrecognised_kernels(graph),
        launched_only=launched_only,
        platform=trace.info.platform,
        world_size=trace.info.world_size,
        world_groups=trace.info.world_groups,
        recorded=_recorded_time(timeline),
        loss_names=find_loss_names(trace),
        unused_steps=timeline.unused_steps,
        peaks={name: peak for name in _gpus(timeline).values() if (peak := peak_of(name))},
        collector=trace.info.collector,
        step_pattern=(timeline.step_pattern or "") if timeline.steps else "",
        repeated_annotations=()
        if timeline.steps
        else find_repeated(trace, timeline.launch_id, timeline.end_ns - timeline.start_ns),
    )


def merge_reports(
    reports: Sequence[Report],
    parts: Sequence[RankPart | None],
    paths: Sequence[str],
    options: Options,
    unread: Sequence[UnreadFile] = (),
) -> Report:
    """Merge reports of files, which get numbers in the tables."""
    traces = [report.traces[0] for report in reports]
    numbers = choose_ranks(traces, is_stated=options.job)
    numbered = sorted(
        (report.assign_rank(*number) for report, number in zip(reports, numbers, strict=True)),
        key=lambda report: report.traces[0].rank,
    )
    decision = decide_job(traces, [rank for rank, _ in numbers], is_stated=options.job)
    keys = dict.fromkeys(key for report in numbered for key in report.tables)
    tables = {
        key: Table(row for report in numbered for row in report.tables.get(key, ())) for key in keys
    }
    findings = _merge_findings(numbered, decision)
    savings = tuple(row for report in numbered for row in report.savings)
    known = [
        replace(part, rank=rank, is_rank_known=rank_source != "position")
        for part, (rank, rank_source) in zip(parts, numbers, strict=True)
        if part is not None
    ]
    # It is of one file's step, with the numbers of that file's findings.
    whatif = numbered[0].whatif if len(traces) == 1 else None
    failures: list[LossName] = []
    job = None
    if decision.is_job:
        joined = None
        if len(known) == len(traces):
            known.sort(key=lambda part: part.rank)
            # Without a rank's table the others would seem to do more work.
            is_whole = not any(report.has_failed_parts for report in reports)
            compared = tables if is_whole else {"windows": tables["windows"]}
            joined = attempt(
                failures, "job", lambda: _join(known, compared, findings, savings, options)
            )
        if joined is None:
            steady = tables.get("steady", ())
            joined = Job(decision.recordings[0]), limit_to_job(findings, (), steady), (), None
        job, findings, savings, changed = joined
        whatif = changed or whatif
    merged_report = replace(
        numbered[0],
        provenance=_provenance(paths, options, unread, decision if len(traces) > 1 else None),
        traces=Table(
            _add_failures(trace, () if i else failures)
            for i, report in enumerate(numbered)
            for trace in report.traces
        ),
        tables=tables,
        findings=Table(findings),
        notes=Table(note for report in numbered for note in report.notes),
        savings=Table(savings),
        whatif=whatif,
        job=job,
        causal=Table(row for report in numbered for row in report.causal),
    )
    return put_groups_first(merged_report) if job else merged_report


def _join(
    parts: list[RankPart],
    tables: Mapping[str, Table[Any]],
    findings: tuple[Finding, ...],
    savings: tuple[Savings, ...],
    options: Options,
) -> tuple[Job, tuple[Finding, ...], tuple[Savings, ...], WhatIf | None]:
    merged = merge(parts, tables)
    job, whatif, steady = merged.job, None, tables.get("steady", ())
    replayed = merged.replay
    if replayed is not None and replayed.baseline.not_replayed is not None:
        replayed = None
    findings = find_in_job(
        findings,
        merged.parts,
        merged.wait_ns,
        job.stragglers,
        job.pipeline,
        options.step,
        is_replayed=replayed is not None,
    )
    if options.edits and merged.replay is not None:
        whatif = _whatif_in_job(options, job, merged.replay)
    if replayed is not None:
        findings = limit_to_job(findings, (), steady)
        return job, *price_in_job(findings, savings, job.ranks, replayed), whatif
    deciding = (
        deciding_ranks(merged.parts, merged.wait_ns)
        if merged.is_by_recording
        else frozenset(straggler.rank for straggler in job.stragglers)
    )
    findings = limit_to_job(findings, deciding, steady)
    return job, findings, tuple(row for row in savings if row.rank in deciding), whatif


def _whatif_in_job(options: Options, job: Job, replay: JobReplay) -> WhatIf:
    baseline, is_replayed = replay.baseline, replay.baseline.not_replayed is None
    return WhatIf(
        basis=baseline.printed.name if baseline.printed else baseline.basis,
        baseline_error=baseline.error,
        predictions=Table(predict_in_job(options.edits, job.ranks, replay) if is_replayed else ()),
        not_replayed=baseline.not_replayed,
    )


def _merge_findings(reports: Sequence[Report], decision: JobDecision) -> tuple[Finding, ...]:
    """Missing ranks count only for recordings that lack them."""
    ranks_there = {rank: len(ranks) for ranks in decision.recordings for rank in ranks}
    return tuple(
        finding
        for report in reports
        for finding in report.findings
        if finding.rule != OTHER_RANKS or finding.where.count > ranks_there[finding.rank]
    )


def _provenance(
    paths: Sequence[str],
    options: Options,
    unread: Sequence[UnreadFile],
    job: JobDecision | None = None,
) -> Provenance:
    shown = tuple(map(shown_path, paths))
    return Provenance(shown, options.comm_pattern, options.step_on, tuple(unread), job)


def _recorded_time(timeline: Timeline) -> RecordedTime:
    info, steps = timeline.trace.info, timeline.steps
    whole = timeline.windows[0]
    return RecordedTime(
        origin_ns=info.clock_base_ns + timeline.trace.origin_ns,
        start_ns=steps[0].start_ns if steps else whole.start_ns,
        end_ns=steps[-1].end_ns if steps else whole.end_ns,
    )


def _gpus(timeline: Timeline) -> dict[str, str]:
    names = timeline.trace.info.device_names
    return {str(device): names[device] for device in timeline.device_numbers if device in names}
