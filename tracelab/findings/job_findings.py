"""The findings of a job: what only the files of all ranks tell, what they take back, and prices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracelab.base.arrays import IndexArray, Int64Array
from tracelab.base.intervals import measure_within, union
from tracelab.base.names import short_kernel_name
from tracelab.findings.finding import (
    CRITICAL,
    INFO,
    MIN_REPORTED_SHARE,
    MIN_REPORTED_SHARE_WITHOUT_FIX,
    REST,
    WARNING,
    WARNING_SHARE,
    Finding,
    Savings,
    add_saving,
    call_site_of,
    mark_rest,
    severity_of,
    sort_findings,
)
from tracelab.findings.places import ALL_SPECIFIC, JOINT, TOGETHER
from tracelab.findings.prices import changes_in, joint_changes, saved_ns
from tracelab.findings.rules.exposed_time import (
    COLLECTIVES,
    PEER_WAIT,
    WITHOUT_CHANGE,
    case_of_collective,
    collective_text,
    drop_comparison,
)
from tracelab.findings.rules.waiting_ranks import pipeline_finding, straggler_finding
from tracelab.job.lateness import MORE_WORK
from tracelab.job.part import RankPart
from tracelab.job.pipeline import Pipeline
from tracelab.job.replay import Change, JobReplay, balanced, leveled, predict_job
from tracelab.job.stragglers import Straggler
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.measures.window_times import SteadyMetrics
from tracelab.model.trace import ABSENT
from tracelab.simulate.edits import Edit
from tracelab.simulate.predict import Prediction, describe, margin_of
from tracelab.simulate.program import Program

_SEVERITIES = (INFO, WARNING, CRITICAL)
_LEVEL, _BALANCE = "level", "balance"
_RANK = "rank:"


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
    """Find all of a job: the findings of its ranks without the time that they waited, and its own.

    Of a TL202 on a rank that waited only exposed transfers remain. Waits are as of
    `Members.wait_of_operations`. If `is_replayed`, a replay of all ranks prices the findings. Ranks
    come in order, each by saving.
    """
    of_pipeline = pipeline_finding(pipeline, parts) if pipeline is not None else None
    by_rank = {rank: tuple(own) for rank, own in itertools.groupby(findings, key=lambda x: x.rank)}
    found: list[Finding] = []
    for part, waited_ns in zip(parts, wait_ns, strict=True):
        kept = (_subtract_waits(x, part, waited_ns) for x in by_rank.get(part.rank, ()))
        remaining = tuple(finding for finding in kept if finding is not None)
        own = (straggler for straggler in stragglers if straggler.rank == part.rank)
        of_job = [
            straggler_finding(x, part.device, remaining, is_replayed=is_replayed) for x in own
        ]
        if of_pipeline is not None and of_pipeline.rank == part.rank:
            of_job.append(of_pipeline)
        is_steady = part.steps.is_steady
        steps = max(1, int(is_steady.sum()))
        length_ns = int((part.steps.end_ns - part.steps.start_ns)[is_steady].sum())
        of_step = (replace(finding, step=step) for finding in of_job)
        found += sort_findings((*of_step, *remaining), steps, length_ns / steps)
    return tuple(found)


def deciding_ranks(parts: Sequence[RankPart], wait_ns: Sequence[Int64Array]) -> frozenset[int]:
    """Find the ranks that decide how long the job's step takes: they hardly ever wait for another.

    Waits are those of `find_in_job`; an unknown one counts.
    """
    deciding = set()
    for part, waits_ns in zip(parts, wait_ns, strict=True):
        steady = part.steps.is_steady
        start_ns, end_ns = part.steps.start_ns[steady], part.steps.end_ns[steady]
        until_ns = np.where(waits_ns == ABSENT, part.end_ns, part.start_ns + waits_ns)
        waited_ns = measure_within(union(part.start_ns, until_ns), start_ns, end_ns)
        if int(waited_ns.sum()) < WARNING_SHARE * int((end_ns - start_ns).sum()):
            deciding.add(part.rank)
    return frozenset(deciding)


def limit_to_job(
    findings: Iterable[Finding], deciding: Container[int], steady: Iterable[SteadyMetrics]
) -> tuple[Finding, ...]:
    """Keep what findings of ranks save only where that is of the job's step, too."""
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
    severity = INFO
    if steady is not None:
        length_ns = steady.unprofiled_ns or steady.length_ns
        spread_ns = (finding.spread_ns or 0) * len(steady.steps)
        severity = severity_of(finding.bound_ns, length_ns, spread_ns)
    return replace(finding, severity=severity, saves_ns=None, saves_low_ns=None, saves_high_ns=None)


def _subtract_waits(finding: Finding, part: RankPart, wait_ns: Int64Array) -> Finding | None:
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
    waiting = union(part.start_ns, part.start_ns + np.maximum(wait_ns, 0))
    waited_ns = measure_within(waiting, piece_start_ns, piece_end_ns)
    transfer_ns = piece_end_ns - piece_start_ns - waited_ns
    if finding.cause == PEER_WAIT:
        finding = _reduce_to_transfer(finding, part, piece_index, transfer_ns)
        cost_ns = max(0, finding.cost_ns - int(waited_ns.sum()))
    else:
        cost_ns = min(finding.cost_ns, int(transfer_ns.sum()))
    bound_ns, length_ns = min(finding.bound_ns, cost_ns), end_ns - start_ns
    least = MIN_REPORTED_SHARE if bound_ns else MIN_REPORTED_SHARE_WITHOUT_FIX
    if cost_ns < finding.cost_ns and cost_ns < least * length_ns:
        return None
    return replace(
        finding,
        severity=min(finding.severity, severity_of(bound_ns, length_ns), key=_SEVERITIES.index),
        cost_ns=cost_ns,
        bound_ns=bound_ns,
        fix=drop_comparison(finding.fix),
    )


def _reduce_to_transfer(
    finding: Finding, part: RankPart, piece_index: IndexArray, transfer_ns: Int64Array
) -> Finding:
    """Reduce a wait for a peer, or a slow link, to what is left of it: exposed transfers."""
    by_blocker_ns = np.bincount(part.exposed_blocker[piece_index], weights=transfer_ns)
    if not by_blocker_ns.any():
        return finding
    blocker, activity = OverlapBlocker(int(by_blocker_ns.argmax())), finding.where.activity or ""
    what = collective_text(call_site_of(finding.where), activity)
    case = case_of_collective(activity, blocker).filled(what=what, reason="")
    return replace(finding, title=case.title, cause=case.cause, fix=case.fix, fix_short=case.short)


def _window(finding: Finding, part: RankPart) -> tuple[int, int]:
    steps = part.steps
    chosen = steps.is_steady if finding.step is None else steps.number == finding.step
    if chosen.any():
        return int(steps.start_ns[chosen].min()), int(steps.end_ns[chosen].max())
    return int(part.start_ns.min(initial=0)), int(part.end_ns.max(initial=1))


def _pieces(finding: Finding, part: RankPart) -> IndexArray:
    site, activity = call_site_of(finding.where), finding.where.activity
    is_site = np.array([of_part == site for of_part in part.sites], dtype=np.bool_)
    names = map(short_kernel_name, part.kernel_names)
    is_name = np.array([name == activity for name in names], dtype=np.bool_)
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


# --- prices by a replay of all ranks together ---


def price_in_job(
    findings: Sequence[Finding], savings: Sequence[Savings], ranks: Sequence[int], job: JobReplay
) -> tuple[tuple[Finding, ...], tuple[Savings, ...]]:
    """Price findings by the job's step, and what all of them save together.

    A change is made on all ranks that have it; a rank where it hardly matters saves what it adds to
    the others. Ranks are in the order of the replay.
    """
    basis = job.baseline.printed
    assert basis is not None  # it is replayed
    step_ns = basis.step_ns
    by_edit = {x.edit: x for x in findings if x.edit is not None and x.saves_reason is None}
    edits = {text: changes_in(text) for text in by_edit}
    main = {text: _main_ranks(text, findings) for text in by_edit}
    specific = joint_changes(edits[text] for text, x in by_edit.items() if not x.is_generic)
    together = joint_changes(edits.values())
    changes = [_change(text, edits[text], ranks, job, x.cause) for text, x in by_edit.items()]
    changes += [
        _change(text, edits[text], ranks, job, x.cause, main[text]) for text, x in by_edit.items()
    ]
    joint = ((ALL_SPECIFIC, specific), (TOGETHER, together))
    changes += [_change(name, joined, ranks, job) for name, joined in joint]
    predicted = predict_job(job, changes)
    *alone, of_specific, of_all = (saved_ns(x, step_ns) for x in predicted)
    on_all = dict(zip(by_edit, alone, strict=False))
    on_main = dict(zip(by_edit, alone[len(by_edit) :], strict=True))
    priced = []
    for finding in findings:
        text, saved = finding.edit, None
        if text in by_edit and finding.saves_reason is None:
            is_main = finding.rank in main[text]
            saved = on_all[text] if is_main else _added_ns(on_all[text], on_main[text])
        priced.append(add_saving(finding, step_ns, saved) if saved else finding)
    if any(x.is_generic and x.saves_ns is not None for x in priced):
        priced = list(mark_rest(priced, of_specific[0], of_all[0]))
    rest = _added_ns(of_all, of_specific)
    priced = [add_saving(x, step_ns, rest) if x.role == REST and x.saves_ns else x for x in priced]
    saves_ns, low_ns, high_ns = of_all if by_edit else (None, None, None)
    of_job: dict[str, Any] = {"step_ns": step_ns, "basis": basis.name, "is_of_job": True}
    of_job |= {"saves_ns": saves_ns, "saves_low_ns": low_ns, "saves_high_ns": high_ns}
    rows = tuple(replace(x, edits=tuple(map(describe, together)), **of_job) for x in savings)
    steps = len(job.baseline.steps)
    return tuple(
        finding
        for rank in sorted({x.rank for x in priced})
        for finding in sort_findings((x for x in priced if x.rank == rank), steps, step_ns)
    ), rows


def predict_in_job(
    edits: Sequence[str | Callable[[Any], Any]], ranks: Sequence[int], job: JobReplay
) -> tuple[Prediction, ...]:
    """Predict the job's step with each edit, made on all ranks, and with all of them last."""
    basis = job.baseline.printed
    assert basis is not None  # it is replayed
    step_ns = basis.step_ns
    by_text = {JOINT.join(map(describe, changes)): changes for changes in map(changes_in, edits)}
    if len(by_text) > 1:
        by_text[TOGETHER] = joint_changes(by_text.values())
    changes = [_change(text, some, ranks, job) for text, some in by_text.items()]
    predicted = zip(by_text.items(), predict_job(job, changes), strict=True)
    return tuple(
        Prediction(text, tuple(map(describe, x)), (), step_ns, *bounds, _reason(text, x, job))
        for (text, x), bounds in predicted
    )


def _reason(
    name: str, edits: Sequence[Edit | Callable[[Program], Program]], job: JobReplay
) -> str | None:
    if any(isinstance(edit, Edit) and edit.kind in (_LEVEL, _BALANCE) for edit in edits):
        return None
    of_ranks = [rank.changes[name] for rank in job.ranks if name in rank.changes]
    changed = [edited for edited in of_ranks if edited.count] or of_ranks
    return next((edited.reason for edited in changed if edited.reason is not None), None)


def _change(
    name: str,
    changes: Sequence[Edit | Callable[[Program], Program]],
    ranks: Sequence[int],
    job: JobReplay,
    cause: str = "",
    at: Container[int] | None = None,
) -> Change:
    edits = [edit for edit in changes if isinstance(edit, Edit)]
    of_ranks = {
        index: rank.changes[name]
        for index, rank in enumerate(job.ranks)
        if name in rank.changes and (at is None or ranks[index] in at)
    }
    middle, low, high = (
        _compared({i: getattr(of, bound) for i, of in of_ranks.items()}, edits, ranks, job)
        for bound in ("program", "low", "high")
    )
    if cause == MORE_WORK and _is_larger(edits, ranks, job):
        high = balanced(job, {})  # larger work, not more of it, may have to be done by another rank
    return Change(middle, low, high, margin_of(changes))


def _is_larger(edits: Sequence[Edit], ranks: Sequence[int], job: JobReplay) -> bool:
    """Return True if a rank that is made level launches as much as the others, and takes longer."""
    places = (edit.place for edit in edits if edit.kind == _LEVEL and edit.place is not None)
    leveled_ranks = (ranks.index(int(place.removeprefix(_RANK))) for place in places)
    return all(job.surplus_ns[index] is None for index in leveled_ranks)


def _compared(
    programs: dict[int, Program], edits: Iterable[Edit], ranks: Sequence[int], job: JobReplay
) -> dict[int, Program]:
    for edit in edits:
        if edit.kind == _BALANCE:
            programs = balanced(job, programs)
        elif edit.kind == _LEVEL and edit.place is not None:
            programs = leveled(job, programs, ranks.index(int(edit.place.removeprefix(_RANK))))
    return programs


def _main_ranks(edit: str, findings: Iterable[Finding]) -> frozenset[int]:
    costs_ns = {x.rank: x.cost_ns for x in findings if x.edit == edit and x.saves_reason is None}
    most_ns = max(costs_ns.values())
    return frozenset(rank for rank, cost_ns in costs_ns.items() if 2 * cost_ns >= most_ns)


def _added_ns(on_all: tuple[int, int, int], on_main: tuple[int, int, int]) -> tuple[int, int, int]:
    low_ns, saves_ns, high_ns = sorted(
        max(0, of_all - of_main) for of_all, of_main in zip(on_all, on_main, strict=True)
    )
    return saves_ns, low_ns, high_ns
