"""Notes about a trace: missing parts and wrong figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.base.arrays import Record
from tracelab.base.safe_text import counted
from tracelab.findings.finding import ASIDE, WARNING, Finding
from tracelab.findings.places import place_text
from tracelab.findings.rules.trace_quality import INFLATED, UNKNOWN_EVENTS
from tracelab.render.text.hints import SOURCE
from tracelab.render.text.savings import lowered, percent, price_of
from tracelab.report.schema import Provenance, TraceInfo
from tracelab.report.views import RankView, losses_of

_OTHER_PLATFORM = (
    "{}: times are exact, but rules and fixes were made with CUDA and ROCm and are hints here"
)
# Visible in the shares of idle time.
MIN_NOTABLE_SHARE = 0.1
_INFLATED = (
    "Python stacks were recorded, which inflates CPU times: idle time that waits for the CPU is an "
    "upper bound"
)


class Note(Record):
    """A sentence about a trace, without its end.

    Attributes:
        rule: its explanation, or None.
        is_warning: True if figures are wrong or misleading.
    """

    text: str
    rule: str | None
    is_warning: bool

    @property
    def full(self) -> str:
        """The sentence with its rule."""
        return f"{self.text} ({self.rule})" if self.rule else self.text


def notes_of(findings: Sequence[Finding], traces: Sequence[TraceInfo]) -> list[Note]:
    """List notes about traces, each once, warnings first."""
    about_traces = [
        finding
        for finding in findings
        # Profiler overhead stands beside the step.
        if finding.about == "trace" and finding.cause != "profiler_overhead"
    ]
    notes = [
        Note(
            _INFLATED if finding.cause == INFLATED else f"{finding.title}{others}{_hint(finding)}",
            finding.rule,
            is_warning=finding.severity == WARNING or finding.cause == INFLATED,
        )
        for finding, others in _each_unknown_once(about_traces)
    ]
    platforms = dict.fromkeys(trace.platform for trace in traces if trace.platform)
    notes += [Note(_OTHER_PLATFORM.format(name), None, is_warning=True) for name in platforms]
    notes += [
        Note(f"{x.count:,} {x.loss.text.partition(':')[0]}", None, x.loss.severity == WARNING)
        for x in losses_of(traces)
        if not x.has_rule
    ]
    return sorted(dict.fromkeys(notes), key=lambda note: not note.is_warning)


def asides(ranks: Sequence[RankView]) -> list[Note]:
    """Return notes on some of the steps; warnings if they take much of the time."""
    return [
        _aside(finding, price_of(finding, rank.main.scope).share)
        for rank in ranks
        for finding in rank.main.findings
        if finding.role == ASIDE
    ]


def _aside(finding: Finding, share: float) -> Note:
    title, place = finding.title, place_text(finding.where)
    text = f"Not in every step: {lowered(title)}"
    if share < MIN_NOTABLE_SHARE:
        return Note(text, finding.rule, is_warning=False)
    at = "" if not place or place.removeprefix("in ") in title else f", {place}"
    fix = f"; {lowered(finding.fix_short).rstrip('.')}" if finding.remedy else ""
    return Note(f"{text}{at}: {percent(share)} of the time{fix}", finding.rule, is_warning=True)


def unread(provenance: Provenance) -> list[Note]:
    """Note what could not be analyzed: the first reason, and the number of others."""
    if not provenance.unread:
        return []
    first, *others = provenance.unread
    more = f" (and {counted(len(others), 'more file', 'more files')})" if others else ""
    return [Note(f"Not used{more}: {first.text.rstrip('.')}", None, is_warning=True)]


def _each_unknown_once(findings: Sequence[Finding]) -> Iterator[tuple[Finding, str]]:
    """Yield findings; a loss of several files once, the worst, with the number of the others."""
    unknown: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.rule == UNKNOWN_EVENTS:
            unknown.setdefault(finding.cause, []).append(finding)
        else:
            yield finding, ""
    for of_cause in unknown.values():
        worst = max(of_cause, key=lambda x: (x.severity == WARNING, x.where.count))
        others = len({x.rank for x in of_cause}) - 1
        yield worst, f", also in {counted(others, 'other file', 'other files')}" if others else ""


def _hint(finding: Finding) -> str:
    return f" ({SOURCE})" if finding.cause == "no_source" else ""
