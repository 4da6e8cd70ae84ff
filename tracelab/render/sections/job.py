"""Sections about a job: its ranks, collectives, clocks and pipeline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TypeVar

from tracelab.base.names import short_kernel_name
from tracelab.base.safe_text import counted
from tracelab.findings.places import segment_text
from tracelab.render.ranks import RankShares, is_unmatched, rank_shares
from tracelab.render.section import LABEL, PROSE, Cell, Section, table
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.words import (
    bytes_text,
    exact_percent,
    largest,
    percent_text,
    signed_time,
    time_text,
)
from tracelab.report.glossary import LATENESS, PATH_KINDS
from tracelab.report.schema import (
    Alignment,
    CollectiveMetrics,
    Job,
    JobPath,
    Pipeline,
    Report,
    StageMetrics,
)

_MAX_ROWS = 24
_MAX_PATH_SEGMENTS, _MIN_SEGMENT_SHARE_OF_PATH = 12, 0.001
_MAX_NAMED_RANKS = 4
_IN_PAIRS = "send_recv"
_HOST = "CPU is the time to launch a microbatch, with the profiler."
_PARTS = {  # of the schedule of a stage, by title
    "compute": "compute_ns",
    "wait": "wait_ns",
    "transfer": "transfer_ns",
    "CPU": "host_idle_ns",
    "other": "other_ns",
    "before": "before_ns",
    "after": "after_ns",
}

_Row = TypeVar("_Row")


def job_sections(report: Report) -> list[Section]:
    """Show ranks, pipeline, collectives, critical path and clocks of a job."""
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


def cause_text(cause: str) -> str:
    """Say why a rank came last, as the report calls it.

    >>> cause_text("more_work")
    'more work'
    """
    return LATENESS.name_of(cause).replace("_", " ")


def _kept(
    rows: Sequence[_Row], weight: Callable[[_Row], float], what: str
) -> tuple[list[_Row], tuple[str, ...]]:
    """Keep the rows with the most weight, in their order; note how many are left out."""
    order = sorted(range(len(rows)), key=lambda i: -weight(rows[i]))[:_MAX_ROWS]
    left = len(rows) - len(order)
    note = (f"… and {left:,} more {what} {ALL_IN_JSON}.",) if left else ()
    return [rows[i] for i in sorted(order)], note


def _ranks(job: Job, shares: Sequence[RankShares]) -> Section:
    """Show how each rank spends a step; of very many the stragglers and the longest waits."""
    stragglers = {x.rank for x in job.stragglers}
    rows, notes = _kept(shares, lambda x: (x.rank in stragglers) + x.wait_ns / x.length_ns, "ranks")
    unmatched = is_unmatched(shares)
    note = "Wait and transfer count only time without overlapping compute."
    if unmatched:
        note += " Unmatched is communication without a counterpart in these files."
    return table(
        "How the ranks spend a steady step",
        rows,
        ("rank", lambda x: str(x.rank)),
        ("step", lambda x: time_text(x.step_ns)),
        ("compute", lambda x: x.share(x.compute_ns)),
        ("wait", lambda x: x.share(x.wait_ns)),
        ("transfer", lambda x: x.share(x.transfer_ns)),
        unmatched and ("unmatched", lambda x: x.share(x.unmatched_ns)),
        ("copies", lambda x: x.share(x.copy_ns)),
        ("idle", lambda x: x.share(x.idle_ns)),
        ("waits for", lambda x: x.waits_for_text),
        notes=(*notes, note),
    )


def _critical_path(path: JobPath) -> Section:
    """Show the work on the ranks that the steps took so long for, the largest first."""
    steps = len(path.steps)

    def a_step(total_ns: int) -> str:
        count = max(1, steps)
        return time_text((2 * total_ns + count) // (2 * count))

    if steps:
        count = counted(steps, "steady step", "steady steps")
        length = f"{count} of all ranks, {a_step(path.total_ns)} a step"
    else:
        length = f"the {time_text(path.total_ns)} in which all ranks were recorded"
    by_rank = sorted((x for x in path.by_rank if x.total_ns), key=lambda x: -x.total_ns)
    on_ranks = [f"{percent_text(x.total_ns, path.total_ns)} on rank {x.rank}" for x in by_rank]
    by_kind = [
        f"{PATH_KINDS.name_of(kind)} {percent_text(kind_ns, path.total_ns)}"
        for kind, kind_ns in largest(path.by_kind)
    ]
    large = [x for x in path.segments if x.total_ns >= _MIN_SEGMENT_SHARE_OF_PATH * path.total_ns]
    shown = large[:_MAX_PATH_SEGMENTS]
    left = len(path.segments) - len(shown)
    return table(
        "Critical path of the job",
        shown,
        ("rank", lambda x: str(x.rank)),
        ("kind", lambda x: PATH_KINDS.name_of(x.kind)),
        ("share", lambda x: percent_text(x.total_ns, path.total_ns)),
        ("a step" if steps else "time", lambda x: a_step(x.total_ns)),
        ("what", lambda x: short_kernel_name(x.name), LABEL),
        ("where", segment_text, PROSE),
        lines=(
            f"The work that decided the length of {length}: {_first(on_ranks)}.",
            f"By kind: {', '.join(by_kind)}.",
        ),
        notes=(f"… and {counted(left, 'more row', 'more rows')} {ALL_IN_JSON}.",) if left else (),
    )


def _first(texts: Sequence[str]) -> str:
    """List the first of some texts, and say how many there are besides."""
    left = len(texts) - _MAX_NAMED_RANKS
    more = [f"the rest on {left:,} others"] if left > 0 else []
    return ", ".join([*texts[:_MAX_NAMED_RANKS], *more])


def _collectives(job: Job) -> Section:
    """Show the collectives by process group, operation and size, the longest waits first."""
    groups: dict[tuple[str, str, int], list[CollectiveMetrics]] = defaultdict(list)
    for x in job.collectives:
        size_class = (x.message_bytes or 0).bit_length()
        groups[x.group, x.operation, size_class].append(x)
    by_wait = sorted(groups.values(), key=lambda group: -sum(_longest_wait(x) for x in group))
    notes = ["Wait is that of the rank that waited longest, transfer that of the last to arrive."]
    if len(by_wait) > _MAX_ROWS:
        notes.append(f"… and {len(by_wait) - _MAX_ROWS:,} more rows {ALL_IN_JSON}.")
    unmatched = _unmatched(job)
    if unmatched:
        notes.append(unmatched)
    return table(
        "Collectives",
        by_wait[:_MAX_ROWS],
        ("group", lambda x: x[0].group or "-", LABEL),
        ("operation", lambda x: x[0].operation, LABEL),
        ("size", _size),
        ("count", lambda x: f"{len(x):,}"),
        ("wait,\nmedian", lambda x: time_text(int(median(map(_longest_wait, x))))),
        ("longest", lambda x: time_text(max(map(_longest_wait, x)))),
        ("transfer", lambda x: time_text(int(median(map(_transfer_ns, x))))),
        ("algbw\nGB/s", lambda x: _gbps(one.algorithm_gbps for one in x)),
        ("busbw\nGB/s", lambda x: _gbps(one.bus_gbps for one in x)),
        ("which rank came last, and why", _last, PROSE),
        notes=notes,
    )


def _size(group: Sequence[CollectiveMetrics]) -> str:
    sizes = [x.message_bytes for x in group if x.message_bytes is not None]
    return bytes_text(int(median(sizes))) if sizes else "-"


def _transfer_ns(collective: CollectiveMetrics) -> float:
    """Return the time that the bandwidths are of, if they are known, ns."""
    if collective.message_bytes is not None and collective.algorithm_gbps:
        return collective.message_bytes / collective.algorithm_gbps
    return min(collective.transfer_ns)


def _longest_wait(collective: CollectiveMetrics) -> int:
    return max(collective.wait_ns, default=0)


def _gbps(figures: Iterable[float | None]) -> str:
    known = [x for x in figures if x is not None]
    return f"{median(known):.1f}" if known else "-"


def _last(group: Sequence[CollectiveMetrics]) -> str:
    """Name the rank that came last most often, and why; stages of a pipeline take turns."""
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
    """Say how much communication has no counterpart in other ranks' files, and why."""
    parts = [f"{x.count:,} of rank {x.rank} ({x.why})" for x in job.unmatched if x.count]
    return f"Not matched: {'; '.join(parts)}." if parts else ""


def _clocks(alignment: Alignment) -> Section:
    """Show how the ranks' clocks differ, and how well they agree once they are aligned."""
    rows, notes = _kept(alignment.per_rank, lambda x: x.residual_ns or 0, "ranks")
    residual_ns = alignment.residual_ns
    agree = "" if residual_ns is None else f"; the ranks agree within {time_text(residual_ns)}"
    return table(
        "Clocks",
        rows,
        ("rank", lambda x: str(x.rank)),
        ("offset", lambda x: signed_time(x.offset_ns)),
        ("drift", lambda x: f"{x.drift_ppm:+.2f} ppm" if x.drift_ppm else "0"),
        ("matched", lambda x: f"{x.matched:,}"),
        ("residual", lambda x: "-" if x.residual_ns is None else time_text(x.residual_ns)),
        ("aligned by", lambda x: x.basis, PROSE),
        lines=(f"Times are on the clock of rank {alignment.reference_rank}{agree}.",),
        notes=notes,
    )


def _pipeline(pipeline: Pipeline) -> list[Section]:
    """Show what each stage does in the schedule, and where its bubble is."""
    if not pipeline.per_stage:
        return []
    rows, notes = _kept(pipeline.per_stage, lambda x: x.bubble, "stages")
    steps = max(1, pipeline.steps)
    first: list[Cell[StageMetrics] | bool] = [
        pipeline.pipelines > 1 and ("pipeline", lambda x: str(x.pipeline)),
        ("stage", lambda x: str(x.stage)),
        ("rank", lambda x: str(x.rank)),
    ]

    def share(title: str, key: str) -> Cell[StageMetrics]:
        return title, lambda x: percent_text(getattr(x, key), _schedule_ns(x))

    def a_step(title: str, key: str) -> Cell[StageMetrics]:
        return title, lambda x: time_text(getattr(x, key) // steps)

    return [
        table(
            "Pipeline, shares of the schedule",
            rows,
            *first,
            *(share(title, key) for title, key in _PARTS.items()),
            ("bubble", lambda x: exact_percent(x.bubble)),
            notes=notes,
        ),
        table(
            "Pipeline, per step",
            rows,
            *first,
            a_step("warm-up", "warm_up_ns"),
            a_step("bubble", "warm_up_bubble_ns"),
            a_step("steady", "steady_ns"),
            a_step("bubble", "steady_bubble_ns"),
            a_step("drain", "drain_ns"),
            a_step("bubble", "drain_bubble_ns"),
            ("micro-\nbatch", lambda x: time_text(x.microbatch_ns)),
            (
                "CPU",
                lambda x: "-" if x.host_microbatch_ns is None else time_text(x.host_microbatch_ns),
            ),
            notes=(*notes, _HOST),
        ),
    ]


def _schedule_ns(stage: StageMetrics) -> int:
    return sum(getattr(stage, key) for key in _PARTS.values())
