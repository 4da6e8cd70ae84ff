"""What each finding is worth: the step as it is, minus the step that a replay predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import OneLine
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO, Finding, call_site_of, severity_of
from tracelab.findings.places import JOINT, places_of
from tracelab.findings.savings import Savings
from tracelab.intervals import Int64Array
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Baseline
from tracelab.simulate.edits import Edit, apply_edit, parse_edit
from tracelab.simulate.predict import Fix, Prediction, predict
from tracelab.simulate.program import Via
from tracelab.simulate.sites import Selection, Sites

# Why a replay says nothing about the edit of a finding.
TRUE_DEPENDENCY, NOT_IN_STEPS, NO_PLACE = "true_dependency", "not_in_steps", "no_place"
_TOGETHER = "all together"
_MOST_LOOKED_UP = 5_000  # calls: a place with more of them is no call site


@dataclass(frozen=True, slots=True, repr=False)
class Priced(OneLine):
    """The findings of a file with what they save, and what they save together.

    Attributes:
        findings: those that save most first; those that a replay says nothing about by the share
            that is attributed to them.
        savings: one row; none where nothing was to be replayed.
    """

    findings: tuple[Finding, ...]
    savings: tuple[Savings, ...]


def price_findings(
    found: tuple[Finding, ...], baseline: Baseline, sites: Sites | None, context: Context
) -> Priced:
    """Predict by replay what each finding's edit saves, and judge the findings by that.

    Args:
        found: the findings by the share that is attributed to them.
        baseline: the steady steps, replayed unchanged.
        sites: the places of its program; None without a program.
        context: the window that the findings are of.
    """
    if baseline.not_replayed is None and baseline.program is None:  # nobody wanted it
        return Priced(found, ())
    if sites is None or baseline.step_ns is None:
        return Priced(found, (_savings(context, baseline, None),))
    edited = [_edited(finding, sites, context) for finding in found]
    fixes = {
        i: Fix(finding.rule, edits, (i,))
        for i, (finding, edits) in enumerate(edited)
        if edits and finding.saves_reason is None
    }
    together = Fix(_TOGETHER, tuple(dict.fromkeys(x for fix in fixes.values() for x in fix.edits)))
    *alone, of_all = predict(baseline, sites, [*fixes.values(), together])
    by_index = dict(zip(fixes, alone, strict=True))
    findings = [
        _with_price(finding, by_index[i]) if i in by_index else finding
        for i, (finding, _) in enumerate(edited)
    ]
    steps = max(1, len(context.typical_steps))
    return Priced(
        tuple(sorted(findings, key=lambda finding: _order(finding, steps))),
        (_savings(context, baseline, of_all if fixes else None),),
    )


def edits_of(finding: Finding) -> tuple[Edit, ...]:
    """The edits of a finding; none where nothing can be done about it.

    Raises:
        UsageError: what a rule wrote is not an edit.
    """
    return tuple(map(parse_edit, finding.edit.split(JOINT))) if finding.edit else ()


def _with_price(finding: Finding, prediction: Prediction) -> Finding:
    saves_ns = max(0, prediction.step_ns - prediction.predicted_ns)
    return replace(
        finding,
        severity=severity_of(saves_ns, prediction.step_ns, finding.spread_ns or 0),
        saves_ns=saves_ns,
        saves_low_ns=max(0, prediction.step_ns - prediction.high_ns),
        saves_high_ns=max(0, prediction.step_ns - prediction.low_ns),
    )


def _order(finding: Finding, steps: int) -> tuple[float, int, int, str]:
    """What is saved of a step first, or attributed to a finding without a prediction."""
    value_ns = finding.bound_ns / steps if finding.saves_ns is None else finding.saves_ns
    if finding.saves_reason == TRUE_DEPENDENCY:
        value_ns = 0
    return -value_ns, -finding.bound_ns, -finding.cost_ns, finding.rule


def _savings(context: Context, baseline: Baseline, together: Prediction | None) -> Savings:
    saves_ns, low_ns, high_ns = (
        (None, None, None)
        if together is None
        else (
            max(0, together.step_ns - ns)
            for ns in (together.predicted_ns, together.high_ns, together.low_ns)
        )
    )
    return Savings(
        rank=context.rank,
        step=None,
        step_ns=baseline.step_ns,
        basis=baseline.basis,
        is_of_trace=baseline.is_share,
        saves_ns=saves_ns,
        saves_low_ns=low_ns,
        saves_high_ns=high_ns,
        edits=() if together is None else together.edits,
        not_replayed=baseline.not_replayed,
    )


# --- the edits of a finding ---


def _edited(finding: Finding, sites: Sites, context: Context) -> tuple[Finding, tuple[Edit, ...]]:
    """A finding with an edit whose place is its own alone, and its edits; or with the reason."""
    edits = edits_of(finding)
    if not edits:
        return finding, ()
    if len(edits) == 1 and edits[0].place in places_of(finding.where):
        exact = _exact(finding, edits[0], sites, context)
        if exact is None:
            return replace(finding, saves_reason=NO_PLACE), ()
        edits = (exact,)
        finding = replace(finding, edit=str(exact))
    applied = [apply_edit(edit, sites.program, sites) for edit in edits]
    if not all(one.count for one in applied):
        return replace(finding, saves_reason=NOT_IN_STEPS), ()
    if any(one.reason == TRUE_DEPENDENCY for one in applied):
        return replace(finding, saves_reason=TRUE_DEPENDENCY, severity=INFO), ()
    return finding, edits


def _exact(finding: Finding, edit: Edit, sites: Sites, context: Context) -> Edit | None:
    """The edit with the first place of the finding that is no other call site's; None without."""
    for place in places_of(finding.where):
        selection = sites.select(place)
        call_id = _changed_calls(edit.kind, selection, sites)
        if _is_only_of(finding, call_id, place, context):
            return replace(edit, place=place)
    return None


def _changed_calls(kind: str, selection: Selection, sites: Sites) -> Int64Array:
    """Event ids of the calls that an edit of a place changes, or that launched what it changes."""
    program = sites.program
    if kind == "unblock":
        return program.event_id[selection.calls & (sites.blocking != ABSENT)]
    if kind in ("remove", "host"):
        return program.event_id[selection.calls]
    activities = selection.activities & _is_changed(kind, sites)
    launch = program.launch_node[activities]
    return program.event_id[launch[launch != ABSENT]]


def _is_changed(kind: str, sites: Sites) -> NDArray[np.bool_]:
    """bool[n], the activities that an edit of a kind can change."""
    program = sites.program
    if kind in ("prefetch", "pin"):
        return program.activity_kind == Kind.COPY
    if kind == "no-wait":
        waits = np.zeros(len(program.kind), dtype=np.bool_)
        waits[program.target[program.via == Via.EVENT]] = True
        return waits
    return np.ones(len(program.kind), dtype=np.bool_)


def _is_only_of(finding: Finding, call_id: Int64Array, place: str, context: Context) -> bool:
    """Whether all of some calls are made at the call site of a finding."""
    call_id = np.unique(call_id)
    if not 0 < len(call_id) <= _MOST_LOOKED_UP:
        return False
    own = call_site_of(finding.where)
    if place == finding.where.api:  # of what no function and no operator makes
        return not any(x.function or x.operator for x in context.call_sites(call_id))
    return set(context.call_sites(call_id)) == {own}
