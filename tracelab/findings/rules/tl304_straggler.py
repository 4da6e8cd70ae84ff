"""TL304: the other ranks wait for one in their collectives."""

from __future__ import annotations

from collections.abc import Iterable

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
from tracelab.job.lateness import UNEVEN_WORK
from tracelab.job.stragglers import Straggler

_MAX_LISTED_RANKS = 4
FIXES = {
    "more_work": "Give all ranks the same work: batches of one size, sequences of similar length "
    "in one step (sort or bucket them by length), equal shares of a layer; and take out what only "
    "this rank does.",
    "uneven_work": "Give all ranks the same work in each step: sort the samples by length and let "
    "the ranks take neighbors, bucket or pack them, or limit a batch by its tokens and not by its "
    "sequences.",
    "slower_gpu": "Compare clocks, power and temperature of its GPU with the others' while the job "
    "runs (`nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE`), and look for other "
    "programs on it (`nvidia-smi`). A GPU that stays slow should be replaced, or get less work.",
    "late_launch": "Move this work to another thread, or do it where the GPU has launched work "
    "queued: after the last launch of the step and without reading results. A CUDA graph or "
    "`torch.compile` makes the launches themselves cheaper.",
    "data_loading": "Load in worker processes: `DataLoader(..., num_workers=8, pin_memory=True, "
    "persistent_workers=True, prefetch_factor=4)`. If it is only this rank, look at its storage, "
    "its share of the CPU's cores and what its samples need.",
    "blocked": "Remove the blocking call, or make it every N steps, on all ranks in one step.",
    "other_collective": "Look at the collectives of its other process groups: they take longer "
    "than those of the other ranks.",
    "copies": "Overlap its copies with compute: pinned memory, `non_blocking=True` and a copy "
    "stream.",
}
_UNKNOWN_FIX = "Look at the findings of that rank, and compare its timeline with the others'."
SHORT = {  # by cause, where the fix is long
    "more_work": "Give all ranks the same work: equal batches, sequences of similar length in one "
    "step, equal shares of a layer.",
    "uneven_work": "Sort the samples by length and let the ranks take neighbors, or limit a batch "
    "by its tokens instead of its sequences.",
    "slower_gpu": "Compare its GPU with the others while the job runs: `nvidia-smi -q -d "
    "CLOCK,POWER,TEMPERATURE,PERFORMANCE`.",
    "late_launch": "Move this work to another thread, or after the last launch of the step.",
    "data_loading": "Load in worker processes: `DataLoader(..., num_workers=8, pin_memory=True, "
    "persistent_workers=True)`. Check the storage and CPU cores of this rank.",
}
# What explains the same time on the rank itself.
_OWN_RULES = {
    "late_launch": ("TL301",),
    "data_loading": ("TL302",),
    "blocked": ("TL101", "TL102", "TL103"),
    "copies": ("TL201",),
}


def find(context: Context) -> list[Candidate]:  # noqa: ARG001
    """Nothing: one rank's file does not tell; see `straggler_finding`."""
    return []


def straggler_finding(
    straggler: Straggler, device: int, own: tuple[Finding, ...], *, is_replayed: bool = False
) -> Finding:
    """The finding of a straggler, on the rank where the cure is.

    Args:
        straggler: the rank, and what it costs the job.
        device: the GPU on which it computes.
        own: the findings of its own file.
        is_replayed: whether a replay of all ranks says what the job would gain.
    """
    fix = FIXES.get(straggler.cause, _UNKNOWN_FIX)
    total_ns = straggler.cost_ns * max(1, straggler.steps)
    return Finding(
        rule=RULE.id,
        title=_title(straggler),
        severity=_severity(straggler),
        rank=straggler.rank,
        step=None,
        cause=straggler.cause,
        cost_ns=total_ns,
        bound_ns=total_ns,
        where=Where(
            count=len(straggler.evidence),
            device=device,
            operator=straggler.operator,
            function=straggler.function,
            file=straggler.file,
            line=straggler.line,
            call=straggler.call,
            code=_code(straggler, own),
        ),
        evidence=straggler.evidence,
        fix=f"{fix} {_figures(straggler, is_replayed)}{_same_time(straggler, own)}",
        fix_short=SHORT.get(straggler.cause, fix),
        steps_seen=straggler.steps_seen if straggler.steps else None,
        spread_ns=straggler.spread_ns,
        edit="balance" if straggler.cause == UNEVEN_WORK else f"level:rank:{straggler.rank}",
    )


def _code(straggler: Straggler, own: Iterable[Finding]) -> str | None:
    """The text of its line, where a finding of its own file is at that line and quotes it."""
    if straggler.line is None:
        return None
    place = straggler.file, straggler.line
    return next((x.where.code for x in own if (x.where.file, x.where.line) == place), None)


def same_work(finding: Finding, own: Iterable[Finding]) -> Finding:
    """The finding of a rank's own file about the work for which the others wait, else itself.

    Args:
        finding: any; only one of this rule has another.
        own: those of all ranks.
    """
    rules = _OWN_RULES.get(finding.cause, ()) if finding.rule == RULE.id else ()
    where = finding.where
    return next(
        (
            x
            for x in own
            if x.rule in rules
            and (x.rank, x.where.file, x.where.function)
            == (finding.rank, where.file, where.function)
            and where.file is not None
            and not x.is_generic
            and (where.line in (None, x.where.line) or x.where.line is None)
        ),
        finding,
    )


def _title(straggler: Straggler) -> str:
    if straggler.cause == UNEVEN_WORK:
        return "The ranks take turns waiting: the one with the most work changes"
    waiting = _ranks(straggler.waiting_ranks)
    wait = "wait" if len(straggler.waiting_ranks) > 1 else "waits"
    return f"{waiting} {wait} for rank {straggler.rank}, which {straggler.what}"


def _figures(straggler: Straggler, is_replayed: bool) -> str:
    """Describe its work and its cost, in a sentence."""
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
    """Name the findings of the rank's own file about the same time."""
    rules = _OWN_RULES.get(straggler.cause, ())
    named = sorted({finding.rule for finding in own if finding.rule in rules})
    if not named:
        return ""
    verb = "is" if len(named) == 1 else "are"
    return f" {' and '.join(named)} of this rank {verb} about the same time."


def _severity(straggler: Straggler) -> str:
    if straggler.share >= CRITICAL_SHARE:
        return CRITICAL
    is_beyond_spread = straggler.cost_ns > straggler.spread_ns
    return WARNING if straggler.share >= WARNING_SHARE and is_beyond_spread else INFO


def _ranks(ranks: tuple[int, ...]) -> str:
    """Name some ranks as the subject of a sentence.

    >>> _ranks((1,)), _ranks((1, 2, 3)), _ranks((0, *range(2, 8)))
    ('Rank 1', 'Ranks 1, 2 and 3', '7 ranks')
    """
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > _MAX_LISTED_RANKS:
        return f"{len(ranks)} ranks"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


RULE = Rule(
    id="TL304",
    name="a straggler: other ranks wait for one in collectives",
    matters="A collective moves data once all ranks have come. The one that comes last decides how "
    "long a step takes on all of them; on the others the collective only looks slow.",
    decides="It needs the files of several ranks of one job. For each matched collective it finds "
    "the rank that arrived last, by more than the error of the clocks, and what that rank spent "
    "more time on since the collective before: compute, communication, copies, or idle time with "
    "its cause. The cost is the exposed part of the waits, less the waits in which another rank "
    "was missing, too: the median over the steady steps, of the rank that waits least. A rank is "
    "not reported if compute hides its lateness, if its cost varies by more than its size, or if "
    "the cost is less than 2 % of a step (4 % for compute: GPUs of one model differ). Messages of "
    "a pipeline, or from one rank to another, are not reported either. The bound is time of the "
    "ranks that wait, and does not add up with the bounds of the late rank. On the ranks that "
    "wait, TL202 keeps only the transfers. If the recording made steps more than 1.2 times as "
    "long, the profiler's overhead is subtracted from the lateness. If nothing is left, a replay "
    "without the profiler says which rank is late, else the GPU work and data loading of each "
    "rank, compared with the timed step; otherwise no rank is reported.",
    before="for batch in loader:  # as long as its longest sequence\n    train(model(batch))",
    after="sampler = LengthBucketSampler(lengths)  # similar lengths on all ranks in one step\n"
    "for batch in DataLoader(data, batch_sampler=sampler):\n    train(model(batch))",
    find=find,
)
