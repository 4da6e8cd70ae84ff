"""The findings of a job: what only the files of all ranks tell, and what they take back."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.base.names import short_kernel_name
from tracelab.findings.finding import (
    CRITICAL_SHARE,
    INFO,
    MIN_REPORTED_SHARE,
    MIN_REPORTED_SHARE_WITHOUT_FIX,
    WARNING,
    WARNING_SHARE,
    Finding,
    call_site_of,
    severity_of,
    sort_findings,
)
from tracelab.findings.rules.exposed_time import (
    COLLECTIVES,
    PEER_WAIT,
    WITHOUT_CHANGE,
    case_of_collective,
    collective_text,
    drop_comparison,
)
from tracelab.findings.rules.waiting_ranks import pipeline_finding, straggler_finding
from tracelab.job.part import RankPart
from tracelab.job.pipeline import Pipeline
from tracelab.job.stragglers import Straggler
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.measures.steady import SteadyMetrics
from tracelab.model.trace import ABSENT


def find_in_job(
    findings: Sequence[Finding],
    parts: Sequence[RankPart],
    wait_ns: Sequence[Int64Array],
    stragglers: Sequence[Straggler],
    pipeline: Pipeline | None,
    step: int | None,
    *,
    is_replayed: bool = False,
) -> tuple[Finding, ...]:
    """All findings of a job: those of its ranks without the time that they waited, and its own.

    A rank that waited for another is not advised to communicate less: of a TL202 on it only the
    exposed time of transfers remains.

    Args:
        findings: those of the files.
        parts: the job's ranks.
        wait_ns: int64[c] of each part, ns, how long the kernel of each operation waited, ABSENT
            where that is not known.
        stragglers: the ranks that the others wait for.
        pipeline: what they are stages of, if they are.
        step: the only one that is reported, None for the steady steps.
        is_replayed: whether a replay of all ranks says what the job would gain.

    Returns:
        the findings; ranks one after another, what saves most first.
    """
    of_pipeline = pipeline_finding(pipeline, parts) if pipeline is not None else None
    found: list[Finding] = []
    for part, waited_ns in zip(parts, wait_ns, strict=True):
        own = tuple(finding for finding in findings if finding.rank == part.rank)
        kept = [_subtract_waits(finding, part, waited_ns) for finding in own]
        remaining = tuple(finding for finding in kept if finding is not None)
        of_job = [
            straggler_finding(straggler, part.device, remaining, is_replayed=is_replayed)
            for straggler in stragglers
            if straggler.rank == part.rank
        ]
        if of_pipeline is not None and of_pipeline.rank == part.rank:
            of_job.append(of_pipeline)
        is_steady = part.steps.is_steady
        steps = max(1, int(is_steady.sum()))
        length_ns = int((part.steps.end_ns - part.steps.start_ns)[is_steady].sum())
        of_job = [replace(finding, step=step) for finding in of_job]
        found += sort_findings((*of_job, *remaining), steps, length_ns / steps)
    return tuple(found)


def deciding_ranks(parts: Sequence[RankPart], wait_ns: Sequence[Int64Array]) -> frozenset[int]:
    """The ranks that decide how long the job's step takes: they hardly ever wait for another.

    Args:
        parts: the job's ranks.
        wait_ns: as of `find_in_job`; what is not known counts as a wait.
    """
    return frozenset(
        part.rank
        for part, waited_ns in zip(parts, wait_ns, strict=True)
        if part.steps.is_steady.any() and _waits_little(part, waited_ns)
    )


def _waits_little(part: RankPart, wait_ns: Int64Array) -> bool:
    steady = part.steps.is_steady
    start_ns, end_ns = part.steps.start_ns[steady], part.steps.end_ns[steady]
    until_ns = np.where(wait_ns == ABSENT, part.end_ns, part.start_ns + wait_ns)
    waited_ns = measure_within(union(part.start_ns, until_ns), start_ns, end_ns)
    return int(waited_ns.sum()) < WARNING_SHARE * int((end_ns - start_ns).sum())


def limit_to_job(
    findings: Iterable[Finding], deciding: Container[int], steady: Iterable[SteadyMetrics]
) -> tuple[Finding, ...]:
    """The findings of ranks, with what they save only where that is of the job's step, too.

    A replay of one file knows when the other ranks arrived, and not when they would: on a rank that
    waits for others a fix makes the wait longer, and no rank faster.

    Args:
        findings: those of the files.
        deciding: the ranks that decide how long the job's step takes.
        steady: the steady steps of the files.
    """
    by_rank = {row.rank: row for row in steady}
    ordered: list[Finding] = []
    for rank, own in itertools.groupby(findings, key=lambda finding: finding.rank):
        row = by_rank.get(rank)
        kept = (
            x if x.saves_high_ns is None or rank in deciding else _judge_share(x, row) for x in own
        )
        steps = max(1, len(row.steps)) if row else 1
        step_ns = (row.unprofiled_ns or row.length_ns) / steps if row else 0
        ordered += sort_findings(kept, steps, step_ns)
    return tuple(ordered)


def _judge_share(finding: Finding, steady: SteadyMetrics | None) -> Finding:
    """A finding as it is without a replay: judged by the share that is attributed to it."""
    severity = INFO
    if steady is not None:
        length_ns = steady.unprofiled_ns or steady.length_ns
        spread_ns = (finding.spread_ns or 0) * len(steady.steps)
        severity = severity_of(finding.bound_ns, length_ns, spread_ns)
    return replace(finding, severity=severity, saves_ns=None, saves_low_ns=None, saves_high_ns=None)


def _subtract_waits(finding: Finding, part: RankPart, wait_ns: Int64Array) -> Finding | None:
    """Reduce a rank's finding by the time for which its collectives waited."""
    if finding.rule != COLLECTIVES.id:
        return finding
    start_ns, end_ns = _window(finding, part)
    piece_index = _pieces(finding, part)
    is_inside = part.exposed_start_ns[piece_index] < end_ns
    is_inside &= part.exposed_end_ns[piece_index] > start_ns
    piece_index = piece_index[is_inside]
    if (wait_ns[part.exposed_index[piece_index]] == ABSENT).all():
        return finding
    piece_start_ns = np.clip(part.exposed_start_ns[piece_index], start_ns, end_ns)
    piece_end_ns = np.clip(part.exposed_end_ns[piece_index], start_ns, end_ns)
    # Another kernel that waits meanwhile is what the rank waits for.
    waiting = union(part.start_ns, part.start_ns + np.maximum(wait_ns, 0))
    waited_ns = measure_within(waiting, piece_start_ns, piece_end_ns)
    transfer_ns = piece_end_ns - piece_start_ns - waited_ns
    if finding.cause == PEER_WAIT:
        finding = _reduce_to_transfer(finding, part, piece_index, transfer_ns)
        cost_ns = max(0, finding.cost_ns - int(waited_ns.sum()))
    else:
        cost_ns = min(finding.cost_ns, int(transfer_ns.sum()))
    bound_ns = min(finding.bound_ns, cost_ns)
    least = MIN_REPORTED_SHARE if bound_ns else MIN_REPORTED_SHARE_WITHOUT_FIX
    if cost_ns < finding.cost_ns and cost_ns < least * (end_ns - start_ns):
        return None
    return replace(
        finding,
        severity=_limit_severity(finding.severity, bound_ns / (end_ns - start_ns)),
        cost_ns=cost_ns,
        bound_ns=bound_ns,
        fix=drop_comparison(finding.fix),
    )


def _reduce_to_transfer(
    finding: Finding, part: RankPart, piece_index: NDArray[np.intp], transfer_ns: Int64Array
) -> Finding:
    """A wait for a peer, or a slow link, as what is left of it: exposed transfers."""
    by_blocker_ns = np.bincount(part.exposed_blocker[piece_index], weights=transfer_ns)
    if not by_blocker_ns.any():
        return finding
    blocker, activity = OverlapBlocker(int(by_blocker_ns.argmax())), finding.where.activity or ""
    what = collective_text(call_site_of(finding.where), activity)
    case = case_of_collective(activity, blocker).filled(what=what, reason="")
    return replace(finding, title=case.title, cause=case.cause, fix=case.fix, fix_short=case.short)


def _window(finding: Finding, part: RankPart) -> tuple[int, int]:
    """The window that a finding is about: a step, the steady window, or all."""
    steps = part.steps
    chosen = steps.is_steady if finding.step is None else steps.number == finding.step
    if chosen.any():
        return int(steps.start_ns[chosen].min()), int(steps.end_ns[chosen].max())
    return int(part.start_ns.min(initial=0)), int(part.end_ns.max(initial=1))


def _pieces(finding: Finding, part: RankPart) -> NDArray[np.intp]:
    """The pieces of exposed communication that a finding is about."""
    site, activity = call_site_of(finding.where), finding.where.activity
    is_site = np.array([of_part == site for of_part in part.sites], dtype=np.bool_)
    is_name = np.array(
        [short_kernel_name(name) == activity for name in part.kernel_names], dtype=np.bool_
    )
    operation = part.exposed_index
    is_chosen = is_site[part.site_index[operation]] & is_name[part.kernel_name_index[operation]]
    if finding.cause != PEER_WAIT:
        is_cause = part.exposed_blocker == OverlapBlocker[finding.cause.upper()]
        length_ns = (part.exposed_end_ns - part.exposed_start_ns)[is_chosen & is_cause].sum()
        # What costs more than its own cause has is also about others that no change is known for.
        is_joint = finding.edit is None and finding.cost_ns > length_ns
        no_change = is_joint & np.isin(part.exposed_blocker, WITHOUT_CHANGE)
        is_chosen &= is_cause | no_change
    return np.flatnonzero(is_chosen)


def _limit_severity(severity: str, share: float) -> str:
    """A severity, or a lower one where the share no longer is that high."""
    if share >= CRITICAL_SHARE or severity == INFO:
        return severity
    return WARNING if share >= WARNING_SHARE else INFO
