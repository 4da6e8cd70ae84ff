"""Changes to predict: fixes of findings, edits, and in the end all of them together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracelab.base.errors import UsageError
from tracelab.base.safe_text import brief
from tracelab.findings.finding import REST, Finding, call_site_of
from tracelab.findings.places import JOINT, TOGETHER
from tracelab.findings.prices import changes_in, edits_of, joint_changes
from tracelab.model.wording import describe
from tracelab.simulate.baseline import Baseline
from tracelab.simulate.edits import Edit
from tracelab.simulate.predict import Fix, Prediction, describe as describe_change, predict
from tracelab.simulate.sites import Sites

ALL = "all"
NO_FINDING, NO_EDIT = "no_finding", "no_edit"  # why there is nothing to replay

_NUMBER = re.compile(r"[1-9][0-9]*", re.ASCII)
_RULE = re.compile(r"[A-Z]+[0-9]+", re.ASCII)


def choose_fixes(
    findings: Sequence[Finding], fixes: Sequence[str], edits: Sequence[str | Callable[[Any], Any]]
) -> tuple[Fix, ...]:
    """Choose the changes to predict: each alone, and where there are several all together last.

    Args:
        findings: those of the report, in its order.
        fixes: numbers of findings from 1 on, ids of rules, or "all".
        edits: texts, or functions from a program to the changed one.

    Raises:
        UsageError: a text has none of these forms.
    """
    named = [fix for text in fixes for fix in _resolve_fixes(text, findings)]
    alone = [*dict.fromkeys([*named, *map(_resolve_edit, edits)])]
    return tuple(alone) if len(alone) < 2 else (*alone, _together(alone))


def predict_choices(
    baseline: Baseline, sites: Sites, fixes: Sequence[Fix], findings: Sequence[Finding]
) -> tuple[Prediction, ...]:
    """Predict the step with each; one that changes nothing has a reason."""
    step_ns = baseline.printed.step_ns
    return tuple(
        _relate_to_step(x, step_ns) if x.edits else _unchanged(x, findings)
        for x in predict(baseline, sites, fixes)
    )


def _relate_to_step(prediction: Prediction, step_ns: int) -> Prediction:
    before_ns = step_ns - prediction.step_ns
    return replace(
        prediction,
        step_ns=step_ns,
        predicted_ns=prediction.predicted_ns + before_ns,
        low_ns=prediction.low_ns + before_ns,
        high_ns=prediction.high_ns + before_ns,
    )


def predictions_of(
    fixes: Sequence[Fix], known: Mapping[str, Prediction], findings: Sequence[Finding], step_ns: int
) -> tuple[Prediction, ...]:
    """Find the predictions of fixes that were replayed, by the texts of their edits."""
    predictions = []
    for fix in fixes:
        texts = tuple(map(describe_change, fix.edits))
        found = known.get(TOGETHER if fix.name == TOGETHER else JOINT.join(texts))
        if found is None and fix.name == TOGETHER and len(known) == 1:
            [found] = known.values()  # all others change nothing
        if found is None:
            unchanged = Prediction(fix.name, (), fix.findings, step_ns, step_ns, step_ns, step_ns)
            predictions.append(_unchanged(unchanged, findings))
        else:
            predictions.append(replace(found, name=fix.name, edits=texts, findings=fix.findings))
    return tuple(predictions)


def _unchanged(prediction: Prediction, findings: Sequence[Finding]) -> Prediction:
    reasons = [findings[i].saves_reason or NO_EDIT for i in prediction.findings]
    return replace(prediction, reason=next(iter(reasons), NO_FINDING))


def require_choices(fixes: Iterable[str], edits: Iterable[str | Callable[[Any], Any]]) -> None:
    """Raise a `UsageError` for texts that are neither a fix nor an edit, before files are read."""
    for text in fixes:
        if not (text == ALL or _NUMBER.fullmatch(text) or _RULE.fullmatch(text.upper())):
            raise UsageError(
                "`fixes` takes the number of a finding (1 is the first), a rule such as TL101, or "
                f"{ALL}, not {brief(text)}",
                option="fixes",
            )
    for edit in edits:
        changes_in(edit)


def _resolve_fixes(text: str, findings: Sequence[Finding]) -> Iterator[Fix]:
    require_choices([text], [])
    if text == ALL:
        indices = [i for i, finding in enumerate(findings) if finding.edit is not None]
        yield from (_fix(_name(findings[i]), findings, [i]) for i in indices)
    elif _NUMBER.fullmatch(text):
        index = int(text) - 1
        known = [index] if index < len(findings) else []
        yield _fix(_name(findings[index]) if known else f"finding {text}", findings, known)
    else:
        rule = text.upper()
        indices = [i for i, finding in enumerate(findings) if finding.rule == rule]
        of_how_many = f" ({len(indices)} findings)" if len(indices) > 1 else ""
        name = _name(findings[indices[0]]) if len(indices) == 1 else f"{rule}{of_how_many}"
        yield _fix(name, findings, indices)


def _resolve_edit(edit: str | Callable[[Any], Any]) -> Fix:
    changes = changes_in(edit)
    return Fix(JOINT.join(map(describe_change, changes)), changes)


def _fix(name: str, findings: Sequence[Finding], indices: Sequence[int]) -> Fix:
    edits = _edits(findings[i] for i in indices)
    if not edits or all(findings[i].role != REST for i in indices):
        return Fix(name, edits, tuple(indices))
    after = joint_changes([_edits(finding for finding in findings if not finding.is_generic)])
    return Fix(name, tuple(x for x in edits if x not in after), tuple(indices), after)


def _edits(findings: Iterable[Finding]) -> tuple[Edit, ...]:
    priced = (finding for finding in findings if finding.saves_reason is None)
    return tuple(dict.fromkeys(edit for finding in priced for edit in edits_of(finding)))


def _name(finding: Finding) -> str:
    where = describe(call_site_of(finding.where), finding.where.api or "")
    return f"{finding.rule} {where}".rstrip()


def _together(fixes: Sequence[Fix]) -> Fix:
    return Fix(
        TOGETHER,
        joint_changes(fix.edits for fix in fixes),
        tuple(sorted({index for fix in fixes for index in fix.findings})),
    )
