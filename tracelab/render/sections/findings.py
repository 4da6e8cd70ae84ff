"""Sections about findings and replays: predictions, the causal profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tracelab.base.errors import UsageError
from tracelab.base.safe_text import counted
from tracelab.findings.finding import INFO, Finding, Savings
from tracelab.findings.fixes import NO_EDIT, NO_FINDING
from tracelab.findings.places import TOGETHER, sentence_of
from tracelab.render.section import LABEL, PART, PROSE, TONES, Section, Text, Tone, table
from tracelab.render.text.hints import MORE_IN_JSON
from tracelab.render.text.savings import REASONS, amount, interval, lowered, price
from tracelab.render.words import (
    bare_name,
    interval_text,
    listed,
    percent_text,
    signed_percent,
    signed_time,
    time_text,
)
from tracelab.report.finding_groups import FindingGroup
from tracelab.report.glossary import FINDING_CAUSES
from tracelab.report.schema import (
    OUTSIDE_FUNCTIONS,
    UNPROFILED,
    CausalMetrics,
    Prediction,
    Report,
    WhatIf,
)
from tracelab.report.views import Scope, View, views_of
from tracelab.simulate.causal_profile import ALL, FINDING, KERNEL, LINE, OPERATOR

_MAX_IN_FULL, _MAX_BRIEF, _MAX_EVENTS = 5, 6, 20
_WHY_NOT = {
    NO_FINDING: "there is no such finding",
    NO_EDIT: "its fix is not a change that can be replayed",
    **REASONS,
}
_MAX_NAMED_EDITS = 3
_MAX_PROFILE_ROWS, _MAX_WITHOUT_SAVING = 20, 5
_MIN_SAVED_STEP_SHARE = 0.001
_ONE_AND_MANY = {
    FINDING: ("finding", "findings"),
    LINE: ("line", "lines"),
    OPERATOR: ("operator", "operators"),
    KERNEL: ("kernel", "kernels"),
}


def findings(view: View) -> Iterator[Section]:
    """List the findings about time: the largest in full, others in a table."""
    about_time = [finding for finding in view.findings if finding.about != "trace"]
    full = [finding for finding in about_time if view.scope.is_worth_showing(finding)]
    brief = [finding for finding in about_time if not view.scope.is_worth_showing(finding)]
    for finding in full[:_MAX_IN_FULL]:
        yield _finding_section(view.findings.index(finding) + 1, finding, view.scope)
    brief = [*full[_MAX_IN_FULL:], *brief]
    if brief:
        yield _brief(brief, view.scope)


def about_the_trace(view: View) -> Iterator[Section]:
    """Describe what the trace lacks."""
    of_trace = [finding for finding in view.findings if finding.about == "trace"]
    if of_trace:
        lines = tuple(f"{finding.rule}  {finding.title}." for finding in of_trace)
        note = "Their effect on the numbers: tracelab explain " + of_trace[0].rule
        yield Section("About the trace", lines, notes=(note,))


def numbered_finding(report: Report, number: int) -> Section:
    """Return one finding in full, with its edit and evidence.

    Raises:
        UsageError: the report has no finding of this number.
    """
    if not 1 <= number <= len(report.findings):
        raise UsageError(f"there is no finding {number}; there are {len(report.findings)}")
    finding = report.findings[number - 1]
    scope = next(x.scope for x in views_of(report) if any(one is finding for one in x.findings))
    section = _finding_section(number, finding, scope)
    lines = (
        f"Edit: {finding.edit}" if finding.edit else "",
        f"Code: {finding.where.code}" if finding.where.code else "",
        f"Events: {', '.join(map(str, finding.evidence[:_MAX_EVENTS]))}",
    )
    return replace(section, lines=(*section.lines, *filter(None, lines)))


def _finding_section(number: int, finding: Finding, scope: Scope) -> Section:
    return _section(finding, f"{number}. {finding.severity}", price(finding, scope))


def finding_section(finding: Finding) -> Section:
    """Show one finding without its report: its saving is a time."""
    saves_ns, low_ns, high_ns = finding.saves_ns, finding.saves_low_ns, finding.saves_high_ns
    saves = []
    if saves_ns is not None and low_ns is not None and high_ns is not None:
        saves = [f"saves {interval_text(saves_ns, low_ns, high_ns)}"]
    elif high_ns is not None:
        saves = [f"saves at most {time_text(high_ns)}"]
    return _section(finding, finding.severity, *saves)


def _section(finding: Finding, *title: str) -> Section:
    names = (finding.rule, *filter(None, [finding.remedy]))
    reason = REASONS.get(finding.saves_reason or "")
    lines = (
        f"{sentence_of(finding.shown_title, finding.where)}. ({circumstances(finding)})",
        *filter(None, [reason]),
        f"Fix: {finding.fix}",
        *([f"Source: {finding.source}."] if finding.source else []),
    )
    return Section(PART.join((*title, *names)), lines, tone=TONES[finding.severity])


def circumstances(finding: Finding) -> str:
    """Describe cause, frequency, place and cost of a finding."""
    where = finding.where
    parts = [
        f"cause {FINDING_CAUSES.name_of(finding.cause)}",
        counted(where.count, "time", "times"),
    ]
    if where.activity and where.activity not in finding.title:
        parts.append(where.activity)
    if where.annotation:
        parts.append(f"in {where.annotation}")
    parts.append(time_text(finding.cost_ns))
    if finding.bound_ns != finding.cost_ns:
        parts[-1] += f", {time_text(finding.bound_ns)} of it attributed"
    return ", ".join(parts)


def _brief(findings: Sequence[Finding], scope: Scope) -> Section:
    is_priced = any(finding.saves_ns is not None for finding in findings)
    of_a_step = ", and how much of a step its fix saves" if is_priced else ""
    return table(
        "Minor or not actionable",
        findings,
        ("rule", "rule"),
        ("takes", lambda x: percent_text(x.cost_ns, scope.length_ns)),
        ("up to", lambda x: percent_text(x.bound_ns, scope.base_ns)),
        is_priced and ("saves", lambda x: _saves(x, scope)),
        ("cause", lambda x: FINDING_CAUSES.name_of(x.cause), LABEL),
        ("what", lambda x: sentence_of(x.shown_title, x.where), PROSE),
        most=_MAX_BRIEF,
        noun="finding",
        notes=(
            f"Shares are of {scope.name}: how much a finding takes, how much of that is attributed "
            f"to it{of_a_step}. `tracelab explain RULE` says what to do.",
        ),
    )


def _saves(finding: Finding, scope: Scope) -> str:
    if finding.saves_ns is None:
        return "-"
    saves = amount(finding, scope).removeprefix("saves ")
    return " ".join(filter(None, [saves, interval(finding, scope)]))


def findings_of_all_ranks(groups: Iterable[FindingGroup]) -> Iterator[Section]:
    """List the findings of many ranks, each place once."""
    shown = [group for group in groups if group.finding.severity != INFO][:_MAX_BRIEF]
    if shown:
        yield table(
            "Findings of all ranks",
            shown,
            ("rule", lambda x: x.finding.rule),
            ("ranks", lambda x: str(len(x.ranks))),
            ("of a\nsteady step", lambda x: amount(x.finding, x.scope)),
            ("on\nrank", lambda x: str(x.finding.rank)),
            ("what", lambda x: sentence_of(x.finding.title, x.finding.where), PROSE),
        )


def causal_section(rows: Sequence[CausalMetrics], savings: Savings | None) -> Section:
    """Say whether the CPU or a GPU decides, and the saving of each part."""
    items = [row for row in rows if row.by != ALL]
    if not items:
        why = "Nothing in these steps has a change that can be replayed."
        if savings is not None and savings.not_replayed is not None:
            why = savings.not_replayed
        return Section("", (f"No causal profile: {lowered(why)}",), tone=Tone.WARNING)
    by, unit = items[0].by, "the trace" if savings is not None and savings.is_of_trace else "a step"
    useful = [row for row in items if _has_saving(row)]
    useless = [row for row in items if not _has_saving(row)]
    shown = [*useful, *useless[:_MAX_WITHOUT_SAVING]][:_MAX_PROFILE_ROWS]
    columns: list[tuple[str, Text[CausalMetrics]]] = [
        ("CPU", lambda x: _time(None if x.by == KERNEL else x.host_ns)),
        ("GPU", lambda x: _time(x.gpu_ns)),
        (f"{unit}\nwithout it", lambda x: _time(x.free_ns)),
        ("saves", lambda x: _time(x.saves_ns)),
        (f"of\n{unit}", lambda x: signed_percent(x.saves_ns, x.step_ns)),
        ("saves\nif half", lambda x: _saved(x, x.half_ns)),
        ("saves if it\ndid not wait", lambda x: _saved(x, x.no_wait_ns)),
    ]
    return table(
        f"Causal profile by {by}",
        shown,
        (_ONE_AND_MANY[by][0], _row_name, LABEL),
        *(column for column in columns if any(map(column[1], shown))),
        lines=_summary(rows, unit, savings),
        notes=_notes(items, useless, len(items) - len(shown)),
    )


def _has_saving(row: CausalMetrics) -> bool:
    return abs(row.saves_ns) >= _MIN_SAVED_STEP_SHARE * row.step_ns


def _summary(rows: Sequence[CausalMetrics], unit: str, savings: Savings | None) -> Iterator[str]:
    step_ns = rows[0].step_ns
    is_unprofiled = savings is not None and savings.basis == UNPROFILED
    step = f"{unit} of {time_text(step_ns)}{' without the profiler' if is_unprofiled else ''}"
    whole = [row for row in rows if row.by == ALL]
    if len(whole) != 2:
        yield f"Of {step}."
        return
    on_host, on_gpu = whole
    host_ns, gpu_ns = on_host.critical_ns or 0, on_gpu.critical_ns or 0
    parts = [f"the CPU decides {time_text(host_ns)}", f"the GPU {time_text(gpu_ns)}"]
    if host_ns < gpu_ns:
        parts = [f"the GPU decides {time_text(gpu_ns)}", f"the CPU {time_text(host_ns)}"]
    between_ns = step_ns - host_ns - gpu_ns
    if between_ns > 0.01 * step_ns:
        parts.append(f"launches and waking up take {time_text(between_ns)}")
    yield (
        f"Of {step}, {', '.join(parts)}. It would take {time_text(on_gpu.free_ns)} if GPU "
        f"activities took no time, and {time_text(on_host.free_ns)} if the CPU's work took none."
    )


def _row_name(row: CausalMetrics) -> str:
    names = [bare_name(row.name) if row.by == KERNEL else row.name, row.where]
    if row.names > 1:
        names[0] = f"{row.names:,} {row.name}"
    if row.by == LINE:
        names.reverse()
    return PART.join(name for name in names if name)


def _time(time_ns: int | None) -> str:
    return "" if time_ns is None else signed_time(time_ns)


def _saved(row: CausalMetrics, time_ns: int | None) -> str:
    return "" if time_ns is None else signed_time(row.step_ns - time_ns)


def _notes(
    items: Sequence[CausalMetrics], useless: Sequence[CausalMetrics], left: int
) -> Iterator[str]:
    by = items[0].by
    one, many = _ONE_AND_MANY[by]
    if left:
        yield f"… and {counted(left, 'row', 'rows')} more ({MORE_IN_JSON})."
    if useless and by != FINDING:
        count = sum(row.names for row in useless)
        of = counted(sum(row.names for row in items), one, many)
        yield f"{count:,} of {of} could take no time without making the step shorter."
    if by == LINE and all(row.name == OUTSIDE_FUNCTIONS for row in items):
        yield "The trace has no Python functions: record with_stack=True, or profile by operator."
    yield "Savings do not add up: each is that of a replay in which nothing else changes."


def prediction_sections(whatif: WhatIf) -> list[Section]:
    """List predictions and their basis."""
    if whatif.not_replayed is not None:
        text = f"No predictions: {lowered(whatif.not_replayed)}"
        return [Section("", (text,), tone=Tone.WARNING)]
    if not whatif.predictions:
        return [Section("", ("No finding has a change whose effect a replay can predict.",))]
    opening = Section("", (_basis(whatif),), tone=Tone.STRONG)
    return [opening, _table(whatif)]


def _basis(whatif: WhatIf) -> str:
    first = whatif.predictions[0]
    length = time_text(first.step_ns)
    if whatif.is_of_trace:
        what = f"The trace has no steps: all of it, {length}, is replayed once"
    elif whatif.basis == UNPROFILED:
        what = f"A step takes {length} without the profiler; predictions are of that"
    else:
        what = f"A step takes {length} with the profiler; predictions are of that"
    error = whatif.baseline_error
    if error is None:
        return f"{what}."
    if abs(error) < 0.0005:
        return f"{what}. Replayed without a change, it takes as long."
    longer = "longer" if error > 0 else "shorter"
    return f"{what}. Replayed without a change, it is {abs(error):.1%} {longer}.".replace("%", " %")


def _table(whatif: WhatIf) -> Section:
    unit = "the trace" if whatif.is_of_trace else "a step"
    step_ns = whatif.predictions[0].step_ns
    return table(
        "",
        [None, *whatif.predictions],
        ("change", lambda x: _change(x) if x else "as it is", LABEL),
        (f"{unit}\ntakes", lambda x: time_text(x.predicted_ns if x else step_ns)),
        ("saves (interval)", lambda x: interval_text(*x.saving_ns) if x else ""),
        (f"of\n{unit}", lambda x: signed_percent(x.saving_ns[0], x.step_ns) if x else ""),
        notes=_reasons(whatif.predictions),
    )


def _reasons(predictions: Sequence[Prediction]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for prediction in predictions:
        parts = prediction.reason.split("; ") if prediction.reason else []
        # Those of single changes are not repeated.
        for part in parts if prediction.name != TOGETHER else [x for x in parts if x not in names]:
            names.setdefault(part, []).append(prediction.name)
    for reason, of_reason in names.items():
        clause = _WHY_NOT.get(reason, reason)
        yield f"{listed(of_reason)}: {lowered(clause).rstrip('.')}."


def _change(prediction: Prediction) -> str:
    is_named_alike = prediction.edits == (prediction.name,)
    is_long = len(prediction.edits) > _MAX_NAMED_EDITS
    edits = () if is_named_alike or is_long else prediction.edits
    number = f"{prediction.findings[0] + 1}. " if len(prediction.findings) == 1 else ""
    is_together = prediction.name == TOGETHER
    return PART.join((prediction.name if is_together else number + prediction.name, *edits))


def picture_titles(name: str, prediction: Prediction) -> tuple[str, str]:
    """Return the headlines of a step without and with a change."""
    saves = interval_text(*prediction.saving_ns)
    return (
        f"{name}{PART}a step as it is: {time_text(prediction.step_ns)}",
        f"{prediction.name}{PART}predicted: {time_text(prediction.predicted_ns)}, saves {saves}",
    )
