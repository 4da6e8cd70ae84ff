"""Sections about a job: its ranks, collectives, clocks and pipeline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from tracelab.base.names import short_kernel_name
from tracelab.base.safe_text import counted
from tracelab.findings.places import segment_text
from tracelab.render.ranks import Ranks, ranks_of_job
from tracelab.render.section import LABEL, PROSE, Cell, Column, Section, table
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
_PARTS = {  # by title
    "compute": "compute_ns",
    "wait": "wait_ns",
    "transfer": "transfer_ns",
    "CPU": "host_idle_ns",
    "other": "other_ns",
    "before": "before_ns",
    "after": "after_ns",
}


def job_sections(report: Report) -> Iterator[Section]:
    """Show ranks, pipeline, collectives, critical path and clocks."""
    job = report.job
    if job is None:
        return
    if job.per_rank:
        yield _ranks(ranks_of_job(report))
    if job.pipeline is not None and job.pipeline.per_stage:
        yield from _pipeline(job.pipeline)
    if job.collectives or job.unmatched:
        yield _collectives(job)
    if job.critical_path is not None and job.critical_path.total_ns:
        yield _critical_path(job.critical_path)
    if job.alignment is not None:
        yield _clocks(job.alignment)


def _ranks(ranks: Ranks) -> Section:
    titles, columns = zip(*ranks.columns(_MAX_ROWS), strict=True)
    note = "Wait and transfer count only time without overlapping compute."
    if "unmatched" in titles:
        note += " Unmatched is communication without a counterpart in these files."
    return Section(
        "How the ranks spend a steady step",
        columns=tuple(map(Column, titles)),
        rows=tuple(zip(*columns, strict=True)),
        notes=(*filter(None, [ranks.more(_MAX_ROWS)]), note),
    )


def _critical_path(path: JobPath) -> Section:
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
    min_ns = _MIN_SEGMENT_SHARE_OF_PATH * path.total_ns
    shown = sum(x.total_ns >= min_ns for x in path.segments[:_MAX_PATH_SEGMENTS])
    return table(
        "Critical path of the job",
        path.segments,
        ("rank", lambda x: str(x.rank)),
        ("kind", lambda x: PATH_KINDS.name_of(x.kind)),
        ("share", lambda x: percent_text(x.total_ns, path.total_ns)),
        ("a step" if steps else "time", lambda x: a_step(x.total_ns)),
        ("what", lambda x: short_kernel_name(x.name), LABEL),
        ("where", segment_text, PROSE),
        most=shown,
        lines=(
            f"The work that decided the length of {length}: {_first(on_ranks)}.",
            f"By kind: {', '.join(by_kind)}.",
        ),
    )


def _first(texts: Sequence[str]) -> str:
    left = len(texts) - _MAX_NAMED_RANKS
    more = [f"the rest on {left:,} others"] if left > 0 else []
    return ", ".join([*texts[:_MAX_NAMED_RANKS], *more])


def _collectives(job: Job) -> Section:
    groups: dict[tuple[object, ...], list[CollectiveMetrics]] = defaultdict(list)
    for x in job.collectives:
        size_class = (x.message_bytes or 0).bit_length()
        groups[x.group, x.operation, size_class, x.kernel, x.batch].append(x)
    by_wait = sorted(groups.values(), key=lambda group: -sum(_longest_wait(x) for x in group))
    notes = ["Wait is that of the rank that waited longest, transfer that of the last to arrive."]
    if any(x.kernel for x in job.collectives):
        notes.append("Where no file has a size, those of one kernel and batch count as equal.")
    unmatched = [f"{x.count:,} of rank {x.rank} ({x.why})" for x in job.unmatched if x.count]
    if unmatched:
        notes.append(f"Not matched: {'; '.join(unmatched)}.")
    return table(
        "Collectives",
        by_wait,
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
        most=_MAX_ROWS,
        notes=notes,
    )


def _size(group: Sequence[CollectiveMetrics]) -> str:
    sizes = [x.message_bytes for x in group if x.message_bytes is not None]
    return bytes_text(int(median(sizes))) if sizes else group[0].batch or "-"


def _transfer_ns(collective: CollectiveMetrics) -> float:
    """Return the time of the bandwidths, ns; 0 if unknown."""
    if collective.message_bytes is not None and collective.algorithm_gbps:
        return collective.message_bytes / collective.algorithm_gbps
    return min(collective.transfer_ns)


def _longest_wait(collective: CollectiveMetrics) -> int:
    return max(collective.wait_ns, default=0)


def _gbps(figures: Iterable[float | None]) -> str:
    known = [x for x in figures if x is not None]
    return f"{median(known):.1f}" if known else "-"


def _last(group: Sequence[CollectiveMetrics]) -> str:
    """Name the rank most often last, and why; pipeline stages take turns."""
    if group[0].operation == _IN_PAIRS:
        return ""
    counts = Counter(x.last_rank for x in group if x.last_rank is not None)
    if not counts:
        return "all within the error of the clocks"
    [(rank, count)] = counts.most_common(1)
    causes = Counter(x.cause for x in group if x.last_rank == rank and x.cause)
    times = f" in {count:,} of {len(group):,}" if count < len(group) else ""
    why = "".join(
        f": {LATENESS.name_of(cause).replace('_', ' ')}" for cause, _ in causes.most_common(1)
    )
    return f"rank {rank}{times}{why}"


def _clocks(alignment: Alignment) -> Section:
    residual_ns = alignment.residual_ns
    agree = "" if residual_ns is None else f"; the ranks agree within {time_text(residual_ns)}"
    return table(
        "Clocks",
        alignment.per_rank,
        ("rank", lambda x: str(x.rank)),
        ("offset", lambda x: signed_time(x.offset_ns)),
        ("drift", lambda x: f"{x.drift_ppm:+.2f} ppm" if x.drift_ppm else "0"),
        ("matched", "matched"),
        ("residual", "residual_ns"),
        ("aligned by", "basis", PROSE),
        most=_MAX_ROWS,
        noun="rank",
        lines=(f"Times are on the clock of rank {alignment.reference_rank}{agree}.",),
    )


def _pipeline(pipeline: Pipeline) -> Iterator[Section]:
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

    yield table(
        "Pipeline, shares of the schedule",
        pipeline.per_stage,
        *first,
        *(share(title, key) for title, key in _PARTS.items()),
        ("bubble", lambda x: exact_percent(x.bubble)),
        most=_MAX_ROWS,
        noun="stage",
    )
    yield table(
        "Pipeline, per step",
        pipeline.per_stage,
        *first,
        a_step("warm-up", "warm_up_ns"),
        a_step("bubble", "warm_up_bubble_ns"),
        a_step("steady", "steady_ns"),
        a_step("bubble", "steady_bubble_ns"),
        a_step("drain", "drain_ns"),
        a_step("bubble", "drain_bubble_ns"),
        ("micro-\nbatch", "microbatch_ns"),
        ("CPU", "host_microbatch_ns"),
        most=_MAX_ROWS,
        noun="stage",
        notes=[_HOST],
    )


def _schedule_ns(stage: StageMetrics) -> int:
    return sum(getattr(stage, key) for key in _PARTS.values())
