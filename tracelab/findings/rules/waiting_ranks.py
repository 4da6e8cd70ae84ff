"""TL303 and TL304: ranks of a job that wait for another one, which only the files of all tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import numpy as np

from tracelab.findings.finding import Finding, Where, severity_of
from tracelab.findings.rule import load_rule
from tracelab.job.lateness import UNEVEN_WORK
from tracelab.job.part import SITE_FIELDS, RankPart
from tracelab.job.pipeline import Pipeline, StageMetrics, theory_bubble
from tracelab.job.stragglers import Straggler

# Of the schedule: smaller parts of a bubble are not reported.
_MIN_PART_SHARE = 0.02
# Of the schedule: a smaller bubble needs no more microbatches.
_MIN_THEORY_SHARE = 0.1
# To the other stages: GPUs of one model differ by less.
_MIN_UNEVEN = 1.05
_MAX_LISTED_RANKS = 4
# What explains the same time on the late rank itself.
_OWN_RULES = {
    "late_launch": ("TL301",),
    "data_loading": ("TL302",),
    "blocked": ("TL101", "TL102", "TL103"),
    "copies": ("TL201",),
}

# Cause -> the column of a stage that tells where to begin.
_COST_OF_STAGE = {
    "launch_bound": "critical_host_ns",
    "transfer": "critical_transfer_ns",
    "unknown": "critical_other_ns",
}

# One rank's file does not tell; see `pipeline_finding` and `straggler_finding`.
PIPELINE = load_rule("TL303", lambda _context: [])
STRAGGLER = load_rule("TL304", lambda _context: [])


def pipeline_finding(pipeline: Pipeline, parts: Sequence[RankPart]) -> Finding | None:
    """Find the main cause of a bubble that is larger than the schedule's own, or of a large one."""
    if pipeline.parts is None:
        return None
    (cause, share), theory = _cause(pipeline), pipeline.parts.theory
    bubble, more = pipeline.measured_bubble or 0.0, _more_microbatches(pipeline)
    if share >= _MIN_PART_SHARE:
        stage = _stage_to_change(pipeline, cause)
        cost, bound = bubble - theory, 0.0 if cause == "unknown" else share
    elif theory >= _MIN_THEORY_SHARE and more is not None:
        least = theory_bubble(pipeline.stages, more) or 0.0
        cause, stage = "few_microbatches", max(pipeline.per_stage, key=lambda x: x.bubble)
        cost, bound = theory, max(0.0, theory - (1 - bubble) * least / (1 - least))
    else:
        return None
    schedule_ns = pipeline.schedule_ns // pipeline.pipelines
    bound_ns = round(bound * schedule_ns)
    [part] = [part for part in parts if part.rank == stage.rank]
    steps = part.steps
    step_ns = float(np.median((steps.end_ns - steps.start_ns)[steps.is_steady]))
    case = PIPELINE.cases[cause].filled(
        stage=stage.stage,
        rank=stage.rank,
        longer=_percent(_times_the_others(pipeline, stage) - 1),
        more=more,
        figures=_figures_of_pipeline(pipeline),
        microbatches=_describe_microbatches(pipeline),
    )
    return Finding(
        rule=PIPELINE.id,
        title=case.title,
        severity=severity_of(bound_ns, pipeline.steps * step_ns),
        rank=stage.rank,
        step=None,
        cause=cause,
        cost_ns=round(cost * schedule_ns),
        bound_ns=bound_ns,
        where=Where(count=len(stage.evidence), device=part.device),
        evidence=stage.evidence,
        fix=case.fix.strip(),
        fix_short=case.short,
        steps_seen=pipeline.steps,
    )


def _cause(pipeline: Pipeline) -> tuple[str, float]:
    parts = pipeline.parts
    assert parts is not None
    uneven = _times_the_others(pipeline, _stage_to_change(pipeline, "imbalance")) >= _MIN_UNEVEN
    shares = {
        "imbalance" if uneven else "uneven_microbatches": parts.imbalance,
        "transfer": parts.transfer,
        "launch_bound": parts.host,
    }
    cause = max(shares, key=lambda cause: shares[cause])
    if shares[cause] < _MIN_PART_SHARE:
        return "unknown", parts.rest
    return cause, shares[cause]


def _stage_to_change(pipeline: Pipeline, cause: str) -> StageMetrics:
    return max(pipeline.per_stage, key=attrgetter(_COST_OF_STAGE.get(cause, "microbatch_ns")))


def _times_the_others(pipeline: Pipeline, stage: StageMetrics) -> float:
    others = [
        other.compute_ns
        for other in pipeline.per_stage
        if other.pipeline == stage.pipeline and other.stage != stage.stage
    ]
    return stage.compute_ns * len(others) / sum(others) if sum(others) else 1.0


def _figures_of_pipeline(pipeline: Pipeline) -> str:
    return (
        f"Each of the {pipeline.stages} stages computes nothing in "
        f"{_percent(pipeline.measured_bubble)} of the schedule ({pipeline.schedule}, "
        f"{pipeline.microbatches} microbatches) on average; with even stages and nothing but "
        f"compute it would be {_percent(pipeline.theory_bubble)}."
    )


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.1f} %"


def _more_microbatches(pipeline: Pipeline) -> int | None:
    microbatches, smallest = pipeline.microbatches, pipeline.smallest_microbatch
    if microbatches is None or smallest is None or 2 * smallest > 1:
        return None
    return 2 * microbatches


def _describe_microbatches(pipeline: Pipeline) -> str:
    smallest, theory = pipeline.smallest_microbatch, pipeline.theory_bubble
    if smallest is None or theory is None or theory < _MIN_THEORY_SHARE:
        return ""
    more = _more_microbatches(pipeline)
    if more is None:
        return (
            "Twice as many microbatches of half the size would wait for the CPU: on rank "
            f"{pipeline.smallest_microbatch_rank} it takes {smallest:.2f} times as long to launch "
            "one (with the profiler) as the GPU to compute it. Launch less first "
            '(`torch.compile(model, mode="reduce-overhead")`), or add microbatches of the present '
            "size."
        )
    less = theory_bubble(pipeline.stages, more)
    return (
        f"The same batch in {more} microbatches would make the schedule's own share "
        f"{_percent(less)}. No stage is CPU-bound as long as a microbatch has at least "
        f"{_percent(smallest)} of its present size."
    )


def straggler_finding(
    straggler: Straggler, device: int, own: tuple[Finding, ...], *, is_replayed: bool = False
) -> Finding:
    """Make the finding of a straggler on a device, with findings of its own file."""
    case = (STRAGGLER.cases.get(straggler.cause) or STRAGGLER.cases["unknown"]).filled()
    total_ns = straggler.cost_ns * max(1, straggler.steps)
    spread = straggler.share * straggler.spread_ns / max(1, straggler.cost_ns)
    return Finding(
        rule=STRAGGLER.id,
        title=_title(straggler),
        severity=severity_of(straggler.share, 1, spread),
        rank=straggler.rank,
        step=None,
        cause=straggler.cause,
        cost_ns=total_ns,
        bound_ns=total_ns,
        where=Where(
            count=len(straggler.evidence),
            device=device,
            **{name: getattr(straggler, name) for name in SITE_FIELDS},
            code=_code(straggler, own),
        ),
        evidence=straggler.evidence,
        fix=f"{case.fix} {_figures(straggler, is_replayed)}{_same_time(straggler, own)}",
        fix_short=case.short,
        steps_seen=straggler.steps_seen if straggler.steps else None,
        spread_ns=straggler.spread_ns,
        edit="balance" if straggler.cause == UNEVEN_WORK else f"level:rank:{straggler.rank}",
    )


def _code(straggler: Straggler, own: Iterable[Finding]) -> str | None:
    if straggler.line is None:
        return None
    place = straggler.file, straggler.line
    return next((x.where.code for x in own if (x.where.file, x.where.line) == place), None)


def same_work(finding: Finding, own: Iterable[Finding]) -> Finding:
    """Return the finding of a straggler's own file about the same work, else itself."""
    rules = _OWN_RULES.get(finding.cause, ()) if finding.rule == STRAGGLER.id else ()
    where = finding.where
    place = finding.rank, where.file, where.function
    for x in own:
        is_line = where.line in (None, x.where.line) or x.where.line is None
        is_there = (x.rank, x.where.file, x.where.function) == place and where.file and is_line
        if x.rule in rules and is_there and not x.is_generic:
            return x
    return finding


def _title(straggler: Straggler) -> str:
    if straggler.cause == UNEVEN_WORK:
        return "The ranks take turns waiting: the one with the most work changes"
    waiting = _ranks(straggler.waiting_ranks)
    wait = "wait" if len(straggler.waiting_ranks) > 1 else "waits"
    return f"{waiting} {wait} for rank {straggler.rank}, which {straggler.what}"


def _figures(straggler: Straggler, is_replayed: bool) -> str:
    least, most = (f"{f(straggler.wait_ns) / 1e6:,.1f}" for f in (min, max))
    each = least if least == most else f"{least} to {most}"
    period = "per step" if straggler.steps else "in the recording"
    waits = f"wait {each} ms {period} with no overlapping compute."
    if is_replayed:
        return f"Rank {straggler.rank} {straggler.why}. The others {waits}"
    gain = f"up to {straggler.cost_ns / 1e6:,.1f} ms {period} ({100 * straggler.share:.1f} %)"
    if straggler.shared_out_ns == straggler.cost_ns:
        gain += " if all ranks did the same work in each step"
    else:
        gain += " if it kept up with the next rank"
        if straggler.shared_out_ns is not None:
            gain += f", {straggler.shared_out_ns / 1e6:,.1f} ms if its surplus were shared out"
    return f"Rank {straggler.rank} {straggler.why}. The job would gain {gain}; the others {waits}"


def _same_time(straggler: Straggler, own: tuple[Finding, ...]) -> str:
    rules = _OWN_RULES.get(straggler.cause, ())
    named = sorted({finding.rule for finding in own if finding.rule in rules})
    if not named:
        return ""
    verb = "is" if len(named) == 1 else "are"
    return f" {' and '.join(named)} of this rank {verb} about the same time."


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > _MAX_LISTED_RANKS:
        return f"{len(ranks)} ranks"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
