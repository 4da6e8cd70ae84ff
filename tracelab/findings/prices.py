"""Prices of findings: the step as it is, minus the step that a replay predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from tracelab.base.arrays import BoolArray, IndexArray, Record
from tracelab.base.options import Options
from tracelab.findings.attribution import merge_group, step_ns_of, steps_of
from tracelab.findings.context import Context
from tracelab.findings.finding import (
    COVERED_SHARE,
    INFO,
    REST,
    UNMET,
    WARNING_SHARE,
    Finding,
    Savings,
    add_bound,
    add_saving,
    call_site_of,
    mark_rest,
    sort_findings,
)
from tracelab.findings.places import ALL_SPECIFIC, JOINT, TOGETHER, places_of
from tracelab.model.cuda_graphs import mostly_replays
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Baseline, Bounds, StepBasis
from tracelab.simulate.edits import Edit, apply_edit, parse_edit
from tracelab.simulate.predict import Change, Fix, Prediction, apply_changes, describe, predict
from tracelab.simulate.program import TRUE_DEPENDENCY, Edited, NodeKind, Program, Via
from tracelab.simulate.sites import REMEDY, Selection, Sites

# Edits that make many launches one, or all ranks alike: of what is left once all else is changed.
_LAST = ("fuse", "graph", "balance")
# Of the host work that an edit takes away.
_MIN_COST_SHARE = 0.1
_BY_ACTIVITY = ("TL201", "TL202")  # their findings are of one kernel or kind of copy at a call site


class NoPlace(StrEnum):
    """Reasons why a replay predicts nothing for the edit of a finding."""

    NOT_IN_STEPS = "not_in_steps"
    NO_PLACE = "no_place"
    LAUNCHES = "launches"


class Priced(Record):
    """Findings of a file in their order, and what they save together: one row if replayed."""

    findings: tuple[Finding, ...]
    savings: tuple[Savings, ...]


def price_findings(
    found: tuple[Finding, ...], baseline: Baseline, sites: Sites | None, context: Context
) -> Priced:
    """Predict by replay what each finding's edit saves, and judge the findings by that."""
    if baseline.not_replayed is None and baseline.program is None:  # not requested
        return Priced(_merged(found, context), ())
    if sites is None or baseline.step_ns is None:
        return Priced(_merged(found, context), (_savings(context, baseline, None),))
    edited = (_edited(finding, sites, context) for finding in found)
    found = _merged((_scaled(finding, baseline.printed) for finding in edited), context)
    fixes = {
        i: Fix(finding.rule, edits_of(finding), (i,))
        for i, finding in enumerate(found)
        if finding.edit and finding.saves_reason is None
    }
    specific = _joint(fix for i, fix in fixes.items() if not found[i].is_generic)
    bounds = {
        i: Fix(finding.rule, edits_of(finding), (i,), specific.edits if finding.is_generic else ())
        for i, finding in enumerate(found)
        if finding.edit and finding.saves_reason == UNMET
    }
    rests = {
        i: replace(
            fix, edits=tuple(x for x in fix.edits if x not in specific.edits), after=specific.edits
        )
        for i, fix in fixes.items()
        if found[i].is_generic and specific.edits
    }
    together = _joint([specific, *fixes.values()])
    groups = (fixes, rests, bounds)
    wanted = [*(fix for group in groups for fix in group.values()), specific, together]
    *others, of_specific, of_all = predict(baseline, sites, wanted)
    savings_ns = (saved_ns(prediction, prediction.step_ns) for prediction in others)
    alone, added, at_most = ({i: next(savings_ns) for i in group} for group in groups)
    step_ns = baseline.printed.step_ns
    slowed = baseline.printed.profiled_step_ns / step_ns
    findings = list(found)
    for i, saved in alone.items():
        findings[i] = add_saving(findings[i], step_ns, saved, slowed)
    for i, (*_, high_ns) in at_most.items():
        findings[i] = add_bound(findings[i], step_ns, high_ns)
    savings = _savings(context, baseline, of_all if fixes else None)
    specific_ns, *_ = saved_ns(of_specific, of_specific.step_ns)
    at_most_ns = [x.saves_high_ns or 0 for x in findings if x.is_generic and x.saves_reason]
    all_ns = (savings.saves_ns or 0) + max(at_most_ns, default=0)
    least_ns = WARNING_SHARE * step_ns
    if _needs_others(findings, least_ns) or _cover_late_time(findings, least_ns):
        specific_ns = all_ns
    findings = list(mark_rest(findings, specific_ns, all_ns))
    for i, saved in added.items():
        if findings[i].role == REST:
            findings[i] = add_saving(findings[i], step_ns, saved, slowed)
    return Priced(sort_findings(findings, steps_of(context), step_ns), (savings,))


def _scaled(finding: Finding, basis: StepBasis) -> Finding:
    if finding.spread_ns is None:
        return finding
    share = basis.step_ns / basis.profiled_step_ns
    return replace(finding, spread_ns=round(finding.spread_ns * share))


def _needs_others(findings: Iterable[Finding], least_ns: float) -> bool:
    """Tell whether a rebuilding has to make a change first that saves this by itself."""
    findings = tuple(findings)
    large = (x for x in findings if not x.is_generic and (x.saves_ns or 0) >= least_ns)
    changes = {edit for finding in large for edit in edits_of(finding)}
    return any(changes & {*edits_of(finding)} for finding in findings if finding.is_generic)


def _cover_late_time(findings: Iterable[Finding], least_ns: float) -> bool:
    """Tell whether changes of one place that save this much are about enough of late launches."""
    # A rebuilding saves most of what these cost as well: beside it, their own saving looks small.
    findings = tuple(findings)
    rules = {finding.rule for finding in findings if finding.is_generic}
    late = [finding for finding in findings if finding.rule in rules]
    large = (x for x in late if not x.is_generic and (x.saves_ns or 0) >= least_ns)
    covered_ns = sum(finding.cost_ns for finding in large)
    return covered_ns > 0 and covered_ns >= COVERED_SHARE * sum(x.cost_ns for x in late)


def _merged(found: Iterable[Finding], context: Context) -> tuple[Finding, ...]:
    merged = tuple(found)
    for cause in (_change, _cause_in_function):
        groups: dict[object, list[Finding]] = {}
        for i, finding in enumerate(merged):
            groups.setdefault(cause(finding) or i, []).append(finding)
        merged = tuple(
            merge_group(context, group, sum(x.cost_ns for x in group)) for group in groups.values()
        )
    return sort_findings(merged, steps_of(context), step_ns_of(context))


def _change(finding: Finding) -> tuple[object, ...] | None:
    where = finding.where
    if not finding.edit:
        return None
    return finding.edit, finding.saves_reason, where.function, where.file


def _cause_in_function(finding: Finding) -> tuple[object, ...] | None:
    where, kinds = finding.where, {edit.kind for edit in edits_of(finding)}
    if not where.function or len(kinds) != 1 or REMEDY in (finding.edit or ""):
        return None
    return finding.rule, finding.cause, *kinds, where.function, where.file, finding.saves_reason


def _joint(fixes: Iterable[Fix]) -> Fix:
    return Fix(TOGETHER, joint_changes(fix.edits for fix in fixes))


def joint_changes(groups: Iterable[Sequence[Change]]) -> tuple[Change, ...]:
    """All changes of some fixes, each once, in the order in which they are made."""
    changes = dict.fromkeys(change for of_fix in groups for change in of_fix)
    return tuple(sorted(changes, key=lambda x: (getattr(x, "kind", "") in _LAST, describe(x))))


def changed_programs(
    findings: tuple[Finding, ...], baseline: Baseline, sites: Sites | None, options: Options
) -> dict[str, Edited]:
    """Change the steady steps by the edit of each finding, by its text, and by all of them."""
    if sites is None or baseline.program is None:
        return {}
    by_text: dict[str, tuple[Change, ...]] = {
        finding.edit: edits_of(finding)
        for finding in findings
        if finding.edit is not None and finding.saves_reason is None
    }
    if options.edits:
        by_text = {
            JOINT.join(map(describe, changes)): changes
            for changes in map(changes_in, options.edits)
        }
    generic = {finding.edit for finding in findings if finding.is_generic}
    specific = joint_changes(edits for text, edits in by_text.items() if text not in generic)
    by_text |= {ALL_SPECIFIC: specific, TOGETHER: joint_changes([specific, *by_text.values()])}
    return {text: apply_changes(edits, baseline.program, sites) for text, edits in by_text.items()}


def changes_in(edit: str | Callable[[Any], Any]) -> tuple[Change, ...]:
    """Parse the edits in a text, such as one of a finding; or take a function of the user's own.

    >>> list(map(str, changes_in("unblock:train.py:40 + load=0")))
    ['unblock:train.py:40', 'load=0']
    """
    return tuple(map(parse_edit, edit.split(JOINT))) if isinstance(edit, str) else (edit,)


def edits_of(finding: Finding) -> tuple[Edit, ...]:
    """Parse the edits of a finding; none where nothing can be done about it."""
    return tuple(map(parse_edit, finding.edit.split(JOINT))) if finding.edit else ()


def saved_ns(prediction: Prediction | Bounds, step_ns: int) -> tuple[int, int, int]:
    """Return the saving of a step, its least and its most, ns; 0 if the step becomes longer."""
    saves_ns, low_ns, high_ns = (
        max(0, step_ns - ns)
        for ns in (prediction.predicted_ns, prediction.high_ns, prediction.low_ns)
    )
    return saves_ns, low_ns, high_ns


def _savings(context: Context, baseline: Baseline, together: Prediction | None) -> Savings:
    saves_ns, low_ns, high_ns = saved_ns(together, together.step_ns) if together else (None,) * 3
    basis = baseline.printed
    return Savings(
        rank=context.rank,
        step=None,
        step_ns=None if baseline.step_ns is None else basis.step_ns,
        basis=basis.name,
        is_of_trace=baseline.is_share,
        saves_ns=saves_ns,
        saves_low_ns=low_ns,
        saves_high_ns=high_ns,
        edits=() if together is None else together.edits,
        not_replayed=baseline.not_replayed,
    )


# --- the edits of a finding ---


def _edited(finding: Finding, sites: Sites, context: Context) -> Finding:
    edits = edits_of(finding)
    if not edits:
        return finding
    if len(edits) == 1 and edits[0].place in places_of(finding.where):
        place = _own_place(finding, edits[0], sites, context)
        if isinstance(place, NoPlace):
            return replace(finding, saves_reason=place.value)
        edits = (replace(edits[0], place=place),)
        finding = replace(finding, edit=str(edits[0]))
    applied = [apply_edit(edit, sites.program, sites) for edit in edits]
    if not all(one.count for one in applied):
        return replace(finding, saves_reason=NoPlace.NOT_IN_STEPS.value)
    if any(one.reason == TRUE_DEPENDENCY for one in applied):
        return replace(finding, saves_reason=TRUE_DEPENDENCY, severity=INFO)
    return finding


def _own_place(finding: Finding, edit: Edit, sites: Sites, context: Context) -> str | NoPlace:
    """Name what is a finding's own, by the most exact place that is nothing else."""
    if edit.kind == "python":
        return _place_on_host(finding, sites, context)
    first, *others = places_of(finding.where)
    program = sites.program
    there = _changed(edit.kind, sites.select(first), sites)
    if not there.any():
        return NoPlace.NOT_IN_STEPS
    own = there.copy()
    own[there] = _are_own(finding, program, np.flatnonzero(there), context)
    if not own.any():
        return NoPlace.NO_PLACE
    for place in (first, *others):  # where each holds more, the finding's gets a name of its own
        if np.array_equal(_changed(edit.kind, sites.select(place), sites), own):
            return place
    return sites.name_events(first, finding.remedy or finding.rule, program.event_id[own])


def _are_own(finding: Finding, program: Program, nodes: IndexArray, context: Context) -> BoolArray:
    where, row = finding.where, program.row[nodes]
    call_id = program.event_id[np.where(row == ABSENT, nodes, program.launch_node[nodes])]
    sites = context.call_sites(call_id)
    if where.api and not (where.function or where.operator):
        at_site = [not (site.function or site.operator) for site in sites]
    else:
        at_site = [site == call_site_of(where) for site in sites]
    own = np.array(at_site, dtype=np.bool_)
    if finding.rule in _BY_ACTIVITY:
        own &= np.array([context.kernel_name(x) == where.activity for x in row.tolist()])
    remedies = context.recognized.remedies(call_id, finding.rule)
    of_remedy = own & [(remedy and remedy.id) == finding.remedy for remedy in remedies]
    return of_remedy if of_remedy.any() else own


def _changed(kind: str, selection: Selection, sites: Sites) -> BoolArray:
    program = sites.program
    changed: BoolArray = selection.activities & (program.launch_node != ABSENT)
    if kind == "unblock":
        changed = selection.calls & (sites.blocking != ABSENT)
    elif kind == "remove":
        changed = selection.calls & (program.kind == NodeKind.CALL)
    elif kind in ("prefetch", "pin"):
        changed &= program.activity_kind == Kind.COPY
    elif kind == "no-wait":
        changed &= np.isin(np.arange(len(changed)), program.target[program.via == Via.EVENT])
    return changed


def _place_on_host(finding: Finding, sites: Sites, context: Context) -> str | NoPlace:
    """Name work of the program's own on the host: launching stays where it is.

    Of a place that mostly launches only pauses go; between replays all goes.
    """
    cost_ns = finding.cost_ns / max(1, len(context.typical_steps))
    can_go = sites.other_work | mostly_replays(context.timeline)
    first, *others = places_of(finding.where)
    pauses = sites.name_pauses(first)
    host_work = [place for place in (first, *others) if sites.select(place).host_share.any()][:1]
    for place in (*host_work, pauses):
        share = sites.select(place).python_share
        work = share * sites.program.latency_ns[: len(share)] / sites.program.steps
        work_ns = float(work[share > 0].sum())
        is_launching = 2 * float(work[(share > 0) & can_go[: len(share)]].sum()) < work_ns
        # Barely awaited work belongs to another finding; where it is little of the wait, the rest
        # is PyTorch's.
        is_awaited = _MIN_COST_SHARE * work_ns <= cost_ns <= work_ns / _MIN_COST_SHARE
        if work_ns and is_awaited and not is_launching:
            return place
    return NoPlace.LAUNCHES if host_work else NoPlace.NOT_IN_STEPS
