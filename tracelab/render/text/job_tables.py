"""The sections of the full report about a job: its ranks, collectives, clocks and pipeline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TypeVar

from tracelab.base.text import counted
from tracelab.job.clocks import Alignment
from tracelab.job.collective_metrics import CollectiveMetrics
from tracelab.job.critical_path import JobPath, PathSegment
from tracelab.job.merge import Job
from tracelab.job.pipeline import Pipeline, StageMetrics
from tracelab.measures.ranking import per_step
from tracelab.model.program.call_sites import CallSite
from tracelab.model.wording import describe, short_kernel_name
from tracelab.render.text.cells import PATH_NAMES, largest, meaning_of, percent_text, time_text
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.job import RankShares, is_unmatched, percent, rank_shares
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.report.glossary import LATENESS
from tracelab.report.schema import Report

_MOST_ROWS = 24
_MOST_SEGMENTS, _LEAST_SHARE = 12, 0.001  # of the critical path, and of its length
_MOST_RANKS_NAMED = 4
_IN_PAIRS = "send_recv"
_HOST = "CPU is the time to launch a microbatch, with the profiler."
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

_Row = TypeVar("_Row")


def job_sections(report: Report) -> list[Section]:
    """What the full report says of a job beside its facts, before it goes through its files."""
    job, shares = report.job, rank_shares(report)
    if job is None:
        return []
    sections = [_ranks(job, shares)] if shares else []
    if job.pipeline is not None:
        sections += _pipeline(job.pipeline)
    if job.collectives or job.unmatched:
        sections.append(_collectives(job))
    if job.critical_path is not None and job.critical_path.total_ns:
        sections.append(_critical_path(job.critical_path))
    if job.alignment is not None:
        sections.append(_clocks(job.alignment))
    return sections


def bytes_text(size_bytes: int) -> str:
    """A size in the unit that suits it.

    >>> bytes_text(134_217_728), bytes_text(1536), bytes_text(4)
    ('128 MiB', '1.5 KiB', '4 B')
    """
    for unit, unit_bytes in _UNITS:
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size_bytes:,} B"


def cause_text(cause: str) -> str:
    """Why a rank came last, as the report calls it.

    >>> cause_text("more_work")
    'more work'
    """
    return meaning_of(LATENESS.names, cause).replace("_", " ")


def _kept(
    rows: Sequence[_Row], weight: Callable[[_Row], float], what: str
) -> tuple[list[_Row], tuple[str, ...]]:
    """The rows with the most weight, in their order, and a note of how many are left out."""
    order = sorted(range(len(rows)), key=lambda i: -weight(rows[i]))[:_MOST_ROWS]
    left = len(rows) - len(order)
    note = (f"… and {left:,} more {what} {ALL_IN_JSON}.",) if left else ()
    return [rows[i] for i in sorted(order)], note


def _ranks(job: Job, shares: Sequence[RankShares]) -> Section:
    """How each rank spends a step; of very many the stragglers and those that wait longest."""
    stragglers = {x.rank for x in job.stragglers}
    rows, notes = _kept(shares, lambda x: (x.rank in stragglers) + x.wait_ns / x.length_ns, "ranks")
    unmatched = is_unmatched(shares)
    titles = ["rank", "step", "compute", "wait", "transfer", "copies", "idle", "waits for"]
    note = "Wait and transfer count only time without overlapping compute."
    if unmatched:
        titles.insert(5, "unmatched")
        note += " Unmatched is communication without a counterpart in these files."
    return Section(
        "How the ranks spend a steady step",
        columns=tuple(map(Column, titles)),
        rows=tuple(
            (
                str(x.rank),
                time_text(x.step_ns),
                x.share(x.compute_ns),
                x.share(x.wait_ns),
                x.share(x.transfer_ns),
                *([x.share(x.unmatched_ns)] if unmatched else []),
                x.share(x.copy_ns),
                x.share(x.idle_ns),
                x.waits_for_text,
            )
            for x in rows
        ),
        notes=(*notes, note),
    )


def _critical_path(path: JobPath) -> Section:
    """Which work on which rank the steps took so long for, the largest first."""
    steps = len(path.steps)
    if steps:
        a_step = time_text(per_step(path.total_ns, steps))
        length = f"{counted(steps, 'steady step', 'steady steps')} of all ranks, {a_step} a step"
    else:
        length = f"the {time_text(path.total_ns)} in which all ranks were recorded"
    by_rank = sorted((x for x in path.by_rank if x.total_ns), key=lambda x: -x.total_ns)
    on_ranks = [f"{percent_text(x.total_ns, path.total_ns)} on rank {x.rank}" for x in by_rank]
    by_kind = [
        f"{meaning_of(PATH_NAMES, kind)} {percent_text(kind_ns, path.total_ns)}"
        for kind, kind_ns in largest(path.by_kind)
    ]
    large = [x for x in path.segments if x.total_ns >= _LEAST_SHARE * path.total_ns]
    shown = large[:_MOST_SEGMENTS]
    left = len(path.segments) - len(shown)
    return Section(
        "Critical path of the job",
        (
            f"The work that decided the length of {length}: {_first(on_ranks)}.",
            f"By kind: {', '.join(by_kind)}.",
        ),
        columns=(
            *map(Column, ("rank", "kind", "share", "a step" if steps else "time")),
            Column("what", Fit.LABEL),
            Column("where", Fit.PROSE),
        ),
        rows=tuple(
            (
                str(x.rank),
                meaning_of(PATH_NAMES, x.kind),
                percent_text(x.total_ns, path.total_ns),
                time_text(per_step(x.total_ns, steps or None)),
                short_kernel_name(x.name),
                _where(x),
            )
            for x in shown
        ),
        notes=(f"… and {counted(left, 'more row', 'more rows')} {ALL_IN_JSON}.",) if left else (),
    )


def _first(texts: Sequence[str]) -> str:
    """The first of some texts, and how many there are besides."""
    left = len(texts) - _MOST_RANKS_NAMED
    more = [f"the rest on {left:,} others"] if left > 0 else []
    return ", ".join([*texts[:_MOST_RANKS_NAMED], *more])


def _where(segment: PathSegment) -> str:
    site = CallSite(
        operator=segment.operator,
        function=segment.function,
        file=segment.file,
        line=segment.line,
        call=segment.call,
    )
    # A function that called nothing is where the host itself was.
    return describe(site, "" if segment.file is None else segment.name)


def _collectives(job: Job) -> Section:
    """The collectives by process group, operation and size, the longest waits first."""
    groups: dict[tuple[str, str, int], list[CollectiveMetrics]] = defaultdict(list)
    for x in job.collectives:
        size_class = (x.message_bytes or 0).bit_length()
        groups[x.group, x.operation, size_class].append(x)
    by_wait = sorted(groups.values(), key=lambda group: -sum(_longest_wait(x) for x in group))
    notes = ["Wait is that of the rank that waited longest, transfer that of the last to arrive."]
    if len(by_wait) > _MOST_ROWS:
        notes.append(f"… and {len(by_wait) - _MOST_ROWS:,} more rows {ALL_IN_JSON}.")
    unmatched = _unmatched(job)
    if unmatched:
        notes.append(unmatched)
    titles = ("size", "count", "wait,\nmedian", "longest", "transfer", "algbw\nGB/s", "busbw\nGB/s")
    return Section(
        "Collectives",
        columns=(
            Column("group", Fit.LABEL),
            Column("operation", Fit.LABEL),
            *map(Column, titles),
            Column("which rank came last, and why", Fit.PROSE),
        ),
        rows=tuple(_collective_row(group) for group in by_wait[:_MOST_ROWS]),
        notes=tuple(notes),
    )


def _collective_row(group: Sequence[CollectiveMetrics]) -> tuple[str, ...]:
    waits_ns = [_longest_wait(x) for x in group]
    sizes = [x.message_bytes for x in group if x.message_bytes is not None]
    return (
        group[0].group or "-",
        group[0].operation,
        bytes_text(int(median(sizes))) if sizes else "-",
        f"{len(group):,}",
        time_text(int(median(waits_ns))),
        time_text(max(waits_ns)),
        time_text(int(median(map(_transfer_ns, group)))),
        _gbps(x.algorithm_gbps for x in group),
        _gbps(x.bus_gbps for x in group),
        _last(group),
    )


def _transfer_ns(collective: CollectiveMetrics) -> float:
    """That with which the bandwidths are given, where they are, ns."""
    if collective.message_bytes is not None and collective.algorithm_gbps:
        return collective.message_bytes / collective.algorithm_gbps
    return min(collective.transfer_ns)


def _longest_wait(collective: CollectiveMetrics) -> int:
    return max(collective.wait_ns, default=0)


def _gbps(figures: Iterable[float | None]) -> str:
    known = [x for x in figures if x is not None]
    return f"{median(known):.1f}" if known else "-"


def _last(group: Sequence[CollectiveMetrics]) -> str:
    """Which rank came last most often, and why; stages of a pipeline are awaited in turns."""
    if group[0].operation == _IN_PAIRS:
        return ""
    counts = Counter(x.last_rank for x in group if x.last_rank is not None)
    if not counts:
        return "all within the error of the clocks"
    [(rank, count)] = counts.most_common(1)
    causes = Counter(x.cause for x in group if x.last_rank == rank and x.cause)
    times = f" in {count:,} of {len(group):,}" if count < len(group) else ""
    why = "".join(f": {cause_text(cause)}" for cause, _ in causes.most_common(1))
    return f"rank {rank}{times}{why}"


def _unmatched(job: Job) -> str:
    """How much communication has no counterpart in other ranks' files, and why."""
    parts = [f"{x.count:,} of rank {x.rank} ({x.why})" for x in job.unmatched if x.count]
    return f"Not matched: {'; '.join(parts)}." if parts else ""


def _clocks(alignment: Alignment) -> Section:
    """How the ranks' clocks differ, and how well they agree once they are aligned."""
    rows, notes = _kept(alignment.per_rank, lambda x: x.residual_ns or 0, "ranks")
    residual_ns = alignment.residual_ns
    agree = "" if residual_ns is None else f"; the ranks agree within {time_text(residual_ns)}"
    return Section(
        "Clocks",
        (f"Times are on the clock of rank {alignment.reference_rank}{agree}.",),
        columns=(
            *map(Column, ("rank", "offset", "drift", "jumps", "matched", "residual")),
            Column("aligned by", Fit.PROSE),
        ),
        rows=tuple(
            (
                str(x.rank),
                _signed(x.offset_ns),
                f"{x.drift_ppm:+.2f} ppm" if x.drift_ppm else "0",
                str(len(x.jumps)),
                f"{x.matched:,}",
                "-" if x.residual_ns is None else time_text(x.residual_ns),
                x.basis,
            )
            for x in rows
        ),
        notes=notes,
    )


def _signed(time_ns: int) -> str:
    return f"-{time_text(-time_ns)}" if time_ns < 0 else time_text(time_ns)


def _pipeline(pipeline: Pipeline) -> list[Section]:
    """What each stage does in the schedule, and where its bubble is."""
    if not pipeline.per_stage:
        return []
    rows, notes = _kept(pipeline.per_stage, lambda x: x.bubble, "stages")
    names = [_stage_cells(x, pipeline) for x in rows]
    firsts = [
        Column(x) for x in (*(["pipeline"] if pipeline.pipelines > 1 else []), "stage", "rank")
    ]
    parts = ("compute", "wait", "transfer", "CPU", "other", "before", "after", "bubble")
    phases = (
        "warm-up",
        "bubble",
        "steady",
        "bubble",
        "drain",
        "bubble",
        "micro-\nbatch",
        "CPU",
    )
    return [
        Section(
            "Pipeline, shares of the schedule",
            columns=(*firsts, *map(Column, parts)),
            rows=tuple(
                (
                    *name,
                    *(percent_text(part_ns, _schedule_ns(x)) for part_ns in _parts(x)),
                    percent(x.bubble),
                )
                for name, x in zip(names, rows, strict=True)
            ),
            notes=notes,
        ),
        Section(
            "Pipeline, per step",
            columns=(*firsts, *map(Column, phases)),
            rows=tuple(
                (*name, *_phase_cells(x, max(1, pipeline.steps)))
                for name, x in zip(names, rows, strict=True)
            ),
            notes=(*notes, _HOST),
        ),
    ]


def _stage_cells(stage: StageMetrics, pipeline: Pipeline) -> tuple[str, ...]:
    first = (str(stage.pipeline),) if pipeline.pipelines > 1 else ()
    return (*first, str(stage.stage), str(stage.rank))


def _parts(stage: StageMetrics) -> tuple[int, ...]:
    """What the schedule of a stage consists of, ns."""
    return (
        stage.compute_ns,
        stage.wait_ns,
        stage.transfer_ns,
        stage.host_idle_ns,
        stage.other_ns,
        stage.before_ns,
        stage.after_ns,
    )


def _schedule_ns(stage: StageMetrics) -> int:
    return sum(_parts(stage))


def _phase_cells(stage: StageMetrics, steps: int) -> list[str]:
    """The phases of a stage's schedule, and how long a microbatch takes."""
    host_ns = stage.host_microbatch_ns
    return [
        *(
            time_text(phase_ns // steps)
            for phase_ns in (
                stage.warm_up_ns,
                stage.warm_up_bubble_ns,
                stage.steady_ns,
                stage.steady_bubble_ns,
                stage.drain_ns,
                stage.drain_bubble_ns,
            )
        ),
        time_text(stage.microbatch_ns),
        "-" if host_ns is None else time_text(host_ns),
    ]
