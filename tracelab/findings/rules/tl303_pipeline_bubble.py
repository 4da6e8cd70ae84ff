"""TL303: a pipeline whose stages compute nothing for longer than its schedule has to cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracelab.findings.candidates import Candidate
from tracelab.findings.context import Context
from tracelab.findings.finding import (
    CRITICAL,
    CRITICAL_SHARE,
    INFO,
    WARNING,
    WARNING_SHARE,
    Finding,
    Where,
)
from tracelab.findings.rule import Rule
from tracelab.job.part import RankPart
from tracelab.job.pipeline import Pipeline, StageMetrics, theory_bubble

# Of the schedule: smaller parts of a bubble are not reported.
_MIN_PART_SHARE = 0.02
# Of the schedule: a smaller bubble needs no more microbatches.
_MIN_THEORY_SHARE = 0.1
# To the other stages: GPUs of one model differ by less.
_MIN_UNEVEN = 1.05

TITLES = {  # by cause
    "imbalance": "Pipeline stage {stage} computes longer than the others, and they wait for it",
    "uneven_microbatches": "Pipeline stages wait for the slowest microbatches",
    "transfer": "Pipeline stages wait for messages",
    "launch_bound": "Pipeline stages wait for stage {stage}: its CPU launches late",
    "few_microbatches": "The pipeline has few microbatches for its number of stages",
    "unknown": "Pipeline stages are idle for longer than their schedule needs",
}

SHORT = {  # by cause
    "imbalance": "Move layers from stage {stage} to the other stages, until all compute equally "
    "long.",
    "uneven_microbatches": "Give all microbatches the same size and length: sort or pack the "
    "sequences.",
    "transfer": "Launch receives ahead of the compute that needs them (Megatron-LM: "
    "`overlap_p2p_comm=True`), and send activations in bf16.",
    "launch_bound": "Launch less on rank {rank}, for example with `torch.compile(model, "
    'mode="reduce-overhead")`, or use fewer and larger microbatches.',
    "few_microbatches": "Split the same batch into {more} microbatches.",
    "unknown": "Look at the copies and other communication between the kernels of stage {stage}.",
}


def find(context: Context) -> list[Candidate]:  # noqa: ARG001
    """Nothing: one rank's file does not tell; see `pipeline_finding`."""
    return []


def pipeline_finding(pipeline: Pipeline, parts: Sequence[RankPart]) -> Finding | None:
    """Find what makes the bubble of a job's pipeline much larger than it has to be.

    Args:
        pipeline: the job's.
        parts: its ranks.
    """
    if pipeline.parts is None:
        return None
    cause, share = _cause(pipeline)
    if share < _MIN_PART_SHARE:
        return _few_microbatches(pipeline, parts)
    stage = _stage_to_change(pipeline, cause)
    beyond = (pipeline.measured_bubble or 0.0) - pipeline.parts.theory
    fix = f"{_fix(pipeline, cause, stage)} {_figures(pipeline)} {_describe_microbatches(pipeline)}"
    bound = 0.0 if cause == "unknown" else share
    return _finding(pipeline, parts, cause, stage, (beyond, bound), fix.strip())


def _cause(pipeline: Pipeline) -> tuple[str, float]:
    """Find the cause of most of the bubble beyond the schedule's own, and its share of it.

    What cannot be changed by name counts only where nothing else does.
    """
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
    def weight(stage: StageMetrics) -> int:
        if cause == "launch_bound":
            return stage.critical_host_ns
        if cause == "transfer":
            return stage.critical_transfer_ns
        return stage.critical_other_ns if cause == "unknown" else stage.microbatch_ns

    return max(pipeline.per_stage, key=weight)


def _times_the_others(pipeline: Pipeline, stage: StageMetrics) -> float:
    """Divide the compute of a stage by that of the other stages of its pipeline."""
    others = [
        other.compute_ns
        for other in pipeline.per_stage
        if other.pipeline == stage.pipeline and other.stage != stage.stage
    ]
    return stage.compute_ns * len(others) / sum(others) if sum(others) else 1.0


def _finding(
    pipeline: Pipeline,
    parts: Sequence[RankPart],
    cause: str,
    stage: StageMetrics,
    shares: tuple[float, float],
    fix: str,
) -> Finding:
    """A finding that costs one share of the schedule, and saves up to another."""
    schedule_ns = pipeline.schedule_ns // pipeline.pipelines
    cost_ns, bound_ns = (round(share * schedule_ns) for share in shares)
    [part] = [part for part in parts if part.rank == stage.rank]
    steps = part.steps
    steps_ns = pipeline.steps * float(np.median((steps.end_ns - steps.start_ns)[steps.is_steady]))
    severity = INFO
    if bound_ns >= WARNING_SHARE * steps_ns:
        severity = CRITICAL if bound_ns >= CRITICAL_SHARE * steps_ns else WARNING
    return Finding(
        rule=RULE.id,
        title=TITLES[cause].format(stage=stage.stage),
        severity=severity,
        rank=stage.rank,
        step=None,
        cause=cause,
        cost_ns=cost_ns,
        bound_ns=bound_ns,
        where=Where(count=len(stage.evidence), device=part.device),
        evidence=stage.evidence,
        fix=fix,
        fix_short=SHORT[cause].format(
            stage=stage.stage, rank=stage.rank, more=_more_microbatches(pipeline)
        ),
        steps_seen=pipeline.steps,
    )


def _few_microbatches(pipeline: Pipeline, parts: Sequence[RankPart]) -> Finding | None:
    """The finding of a pipeline that does what its schedule says, and loses much by that."""
    assert pipeline.parts is not None
    more = _more_microbatches(pipeline)
    if pipeline.parts.theory < _MIN_THEORY_SHARE or more is None:
        return None
    # The same compute, with the smaller bubble of more microbatches.
    compute = 1 - (pipeline.measured_bubble or 0.0)
    least = theory_bubble(pipeline.stages, more, pipeline.chunks) or 0.0
    saved = max(0.0, pipeline.parts.theory - compute * least / (1 - least))
    stage = max(pipeline.per_stage, key=lambda stage: stage.bubble)
    fix = f"{_describe_microbatches(pipeline)} {_figures(pipeline)}"
    shares = pipeline.parts.theory, saved
    return _finding(pipeline, parts, "few_microbatches", stage, shares, fix)


def _figures(pipeline: Pipeline) -> str:
    """The bubble, in a sentence."""
    return (
        f"Each of the {pipeline.stages} stages computes nothing in "
        f"{_percent(pipeline.measured_bubble)} of the schedule ({pipeline.schedule}, "
        f"{pipeline.microbatches} microbatches) on average; with even stages and nothing but "
        f"compute it would be {_percent(pipeline.theory_bubble)}."
    )


def _percent(share: float | None) -> str:
    """A share in words.

    >>> _percent(0.4286)
    '42.9 %'
    """
    return f"{100 * (share or 0.0):.1f} %"


def _more_microbatches(pipeline: Pipeline) -> int | None:
    """Twice as many microbatches, where no stage is launch bound then; else None."""
    microbatches, smallest = pipeline.microbatches, pipeline.smallest_microbatch
    if microbatches is None or smallest is None or 2 * smallest > 1:
        return None
    return 2 * microbatches


def _describe_microbatches(pipeline: Pipeline) -> str:
    """Describe the effect of more microbatches if the schedule's own bubble is large."""
    smallest, theory = pipeline.smallest_microbatch, pipeline.theory_bubble
    if theory is None or theory < _MIN_THEORY_SHARE:
        return ""
    if smallest is None:
        return (
            "More microbatches make the schedule's own share smaller, as long as each keeps the "
            "GPU busy for longer than the CPU takes to launch it; the files do not say when."
        )
    more = _more_microbatches(pipeline)
    if more is None:
        return (
            "Twice as many microbatches of half the size would wait for the CPU: on rank "
            f"{pipeline.smallest_microbatch_rank} it takes {smallest:.2f} times as long to launch "
            "one (with the profiler) as the GPU to compute it. Launch less first "
            '(`torch.compile(model, mode="reduce-overhead")`), or add microbatches of the present '
            "size."
        )
    less = theory_bubble(pipeline.stages, more, pipeline.chunks)
    return (
        f"The same batch in {more} microbatches would make the schedule's own share "
        f"{_percent(less)}. No stage is CPU-bound as long as a microbatch has at least "
        f"{_percent(smallest)} of its present size."
    )


def _fix(pipeline: Pipeline, cause: str, stage: StageMetrics) -> str:
    """Describe the change for a cause."""
    if cause == "imbalance":
        more = _times_the_others(pipeline, stage) - 1
        return (
            f"Stage {stage.stage} computes {_percent(more)} longer than the others on average, and "
            "every microbatch waits for it: move layers from it to the other stages. The last one "
            "also computes the loss, the first one the embedding: give them fewer layers."
        )
    if cause == "uneven_microbatches":
        return (
            "A microbatch that takes long on one stage delays all stages: give all microbatches "
            "the same size and length (sort or pack sequences)."
        )
    if cause == "transfer":
        return (
            "Launch receives ahead of the compute that needs their result, and send while the next "
            "microbatch computes (Megatron-LM with interleaved schedules: `overlap_p2p_comm`); "
            "send activations in bf16; place neighboring stages where their link is fast."
        )
    if cause == "launch_bound":
        return (
            f"Rank {stage.rank} is idle until its CPU launches: its own findings say where. Fewer "
            "and larger microbatches or cheaper launches (`torch.compile(model, "
            'mode="reduce-overhead")`) let the CPU run ahead.'
        )
    return "The time is in copies, in other communication and between kernels."


RULE = Rule(
    id="TL303",
    name="a pipeline bubble beyond the schedule's own",
    matters="A stage of a pipeline has nothing to compute until the first microbatch reaches it, "
    "and after the last one has left it. That much every schedule costs; stages that are uneven, "
    "late or waiting for messages cost more, and all others wait with them.",
    decides="It needs the files of all stages. The order of sends and receives tells the stages, "
    "the microbatches and the schedule (GPipe, 1F1B, interleaved); a ring exchange "
    "or a single message is no pipeline. The bubble is the share of the schedule in which a stage "
    "computes nothing, from the first compute of a step to the last of any stage, without the "
    "optimizer. A bubble beyond the schedule's own, (p-1)/(m+p-1) or the like, has two parts: "
    "time on the path through the schedule that is not compute (messages, a late CPU), and the "
    "extra compute of slow stages. More microbatches are advised only if each would keep the GPU "
    "of every stage busy for longer than the CPU takes to launch it. The bound is time of all "
    "stages, and does not add up with the bounds of a single rank.",
    before="stage = PipelineStage(layers[:16], ...)  # the other ranks: 8 layers each",
    after="stage = PipelineStage(layers[:10], ...)  # each stage takes as long",
    find=find,
)
