"""Sections about the findings: the share attributed to each, what it is, and its fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tracelab.base.errors import UsageError
from tracelab.base.safe_text import counted
from tracelab.findings.finding import INFO, Finding
from tracelab.findings.places import sentence_of
from tracelab.render.section import LABEL, PART, PROSE, TONES, Section, table
from tracelab.render.text.savings import REASONS, amount, interval, price
from tracelab.render.words import interval_text as time_interval, percent_text, time_text
from tracelab.report.finding_groups import FindingGroup
from tracelab.report.glossary import FINDING_CAUSES
from tracelab.report.schema import Report
from tracelab.report.views import Scope, View, views_of

_MAX_IN_FULL, _MAX_BRIEF, _MAX_EVENTS = 5, 6, 20


def findings(view: View) -> Iterator[Section]:
    """List the findings about time: the largest in full, the others in a table."""
    about_time = [finding for finding in view.findings if finding.about != "trace"]
    full = [finding for finding in about_time if view.scope.is_worth_showing(finding)]
    brief = [finding for finding in about_time if not view.scope.is_worth_showing(finding)]
    for finding in full[:_MAX_IN_FULL]:
        yield _finding_section(view.findings.index(finding) + 1, finding, view.scope)
    brief = [*full[_MAX_IN_FULL:], *brief]
    if brief:
        yield _brief(brief, view.scope)


def about_the_trace(view: View) -> Iterator[Section]:
    """Say what the trace lacks, and what that does to the numbers."""
    of_trace = [finding for finding in view.findings if finding.about == "trace"]
    if of_trace:
        lines = tuple(f"{finding.rule}  {finding.title}." for finding in of_trace)
        note = "Their effect on the numbers: tracelab explain " + of_trace[0].rule
        yield Section("About the trace", lines, notes=(note,))


def numbered_finding(report: Report, number: int) -> Section:
    """Return one finding in full, with its edit and its evidence.

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
    """Show one finding without its report: it says what its fix saves as a time."""
    saves_ns, low_ns, high_ns = finding.saves_ns, finding.saves_low_ns, finding.saves_high_ns
    saves = []
    if saves_ns is not None and low_ns is not None and high_ns is not None:
        saves = [f"saves {time_interval(saves_ns, low_ns, high_ns)}"]
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
    """Say the cause of a finding, how often and where it happened, and its cost."""
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
        ("rule", lambda x: x.rule),
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
