"""The first screen: what a report says in 25 lines, before anybody asks for more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracelab.findings.finding import ASIDE, WARNING, Finding
from tracelab.findings.rules import tl911_unknown_events
from tracelab.findings.rules.tl901_damaged_file import LOST_WORK
from tracelab.findings.rules.tl910_profiler_overhead import INFLATED
from tracelab.model.losses import LOSSES_BY_NAME
from tracelab.model.lost_work import KINDS
from tracelab.render.text.cells import PART, counted, listed
from tracelab.render.text.files import hardware, recorded
from tracelab.render.text.finding_lines import amount, caption, finding_lines, worth_showing
from tracelab.render.text.hints import SOURCE, for_more, of_steps
from tracelab.render.text.savings import not_predicted
from tracelab.render.text.sections import Line, Span, Tone
from tracelab.render.text.verdict import left_out_steps, verdict
from tracelab.render.text.wrapping import paragraph, shorten_middle
from tracelab.report.schema import Provenance, Report, TraceInfo
from tracelab.report.views import RankView
from tracelab.safe_text import clean

MOST_LINES = 25
MOST_FINDINGS = 5
_BLANK = Line()
_OTHER_PLATFORM = (
    "{}: times are exact, but rules and fixes were made with CUDA and ROCm and are hints here"
)
# Those of a group have a rule, too.
_LOSSES_OF_A_RULE = (
    *KINDS,
    "arrows_without_end",
    "activities_without_launch",
    "overlapping_activities",
    "waits_without_record",
)


def screen_of_file(report: Report, rank: RankView, width: int) -> list[Line]:
    """The first screen of one file."""
    known_rank = [f"rank {rank.trace.rank}"] if rank.trace.rank_source != "position" else []
    of_file = PART.join([*known_rank, *hardware(rank.trace, rank.views), recorded(rank.views)])
    head = [
        title_line(f"tracelab {report.version}{PART}", rank.trace.path, width),
        *text_lines(of_file, width, 2, Tone.DIM),
        *unread_lines(report.provenance, width),
        _BLANK,
        *verdict_lines(verdict(rank), width),
        *(
            line
            for finding in filter(_spoils_figures, rank.main.findings)
            for line in text_lines(f"{finding.title} ({finding.rule}).", width, 3, Tone.WARNING)
        ),
        _BLANK,
    ]
    scope = rank.main.scope
    about_time = [finding for finding in rank.main.findings if finding.about != "trace"]
    worth = [finding for finding in about_time if worth_showing(finding, scope)]
    notes = [
        line
        for note in report.notes
        if (note.rank, note.step) == (rank.trace.rank, rank.main.step)
        for line in text_lines(note.text, width, 2, Tone.DIM)
    ]
    unpredicted = [
        line
        for text in (not_predicted(scope) if worth else [])
        for line in text_lines(text, width, 2, Tone.DIM)
    ]
    aside = [finding for finding in about_time if finding.role == ASIDE]
    notes += [
        line for finding in aside[:1] for line in text_lines(_aside(finding), width, 1, Tone.DIM)
    ]
    notes += text_lines(of_steps(rank.trace), width, 2, Tone.DIM)
    # First fixes are shortened, then findings are left out.
    most = min(MOST_FINDINGS, len(worth))
    sizes = [(most, 3), (most, 2), *((count, 1) for count in range(most, -1, -1))]
    for count, fix_lines in sizes:
        shown = [caption([(x, scope) for x in worth[:count]], scope.name)] if count else []
        for finding in worth[:count]:
            number = rank.main.findings.index(finding) + 1
            share = amount(finding, scope)
            shown += finding_lines(number, finding, scope, share, width=width, fix_lines=fix_lines)
        left_out = [*left_out_steps(rank), *smaller(len(about_time) - count - len(aside))]
        others = [finding for finding in rank.main.findings if not _spoils_figures(finding)]
        lacks = lacking(others, [rank.trace])
        foot = [*notes, *unpredicted, *foot_lines(left_out, lacks, worth[:count], width)]
        lines = [*head, *shown, *([_BLANK] if shown else []), *foot]
        if len(lines) <= MOST_LINES:
            break
    return lines


def _aside(finding: Finding) -> str:
    """A line about what is of no typical step."""
    return f"Not in every step: {finding.title[:1].lower()}{finding.title[1:]} ({finding.rule})."


def _spoils_figures(finding: Finding) -> bool:
    """Whether it says that the figures of the verdict are wrong, and so stands below them."""
    return finding.cause == LOST_WORK and finding.severity == WARNING


def title_line(before: str, path: str, width: int) -> Line:
    """A line that names a file or folder."""
    return Line((Span(before), Span(shorten_middle(clean(path), width - len(before)), Tone.STRONG)))


def text_lines(text: str, width: int, most: int, tone: Tone = Tone.PLAIN) -> list[Line]:
    """A paragraph of at most so many lines."""
    return [Line((Span(line, tone),)) for line in paragraph(clean(text), width, most)]


def verdict_lines(sentences: Sequence[str], width: int) -> list[Line]:
    """A verdict, each sentence on lines of its own: the first is the most important."""
    return [
        line
        for i, text in enumerate(sentences)
        for line in text_lines(text, width, 3, Tone.STRONG if i < 2 else Tone.PLAIN)
    ]


def unread_lines(provenance: Provenance, width: int) -> list[Line]:
    """What could not be analyzed: the first reason, and how many more."""
    if not provenance.unread:
        return []
    first, *others = provenance.unread
    reason = first.reason if first.path in first.reason else f"{first.path}: {first.reason}"
    more = f" (and {counted(len(others), 'more file', 'more files')})" if others else ""
    return text_lines(f"Not used{more}: {reason}", width, 2, Tone.WARNING)


def smaller(count: int) -> list[str]:
    """That findings are left out."""
    return [counted(count, "minor finding", "minor findings")] if count else []


@dataclass(frozen=True, slots=True)
class Lack:
    """What a trace lacks, in a sentence without its end.

    Example: ``Lack("No Python functions were recorded (TL903)", "TL903", is_warning=False)``.
    """

    text: str
    rule: str | None
    is_warning: bool


def lacking(findings: Sequence[Finding], traces: Sequence[TraceInfo]) -> list[Lack]:
    """What the traces lack, each once, warnings first."""
    about_traces = [
        finding
        for finding in findings
        # What the profiler costs stands in the verdict.
        if finding.about == "trace" and finding.cause not in ("profiler_overhead", INFLATED)
    ]
    lacks = [
        Lack(f"{finding.title}{others}{_hint(finding)}", finding.rule, finding.severity == WARNING)
        for finding, others in _each_unknown_once(about_traces)
    ]
    platforms = dict.fromkeys(trace.platform for trace in traces if trace.platform)
    lacks += [Lack(_OTHER_PLATFORM.format(name), None, is_warning=True) for name in platforms]
    for name, loss in LOSSES_BY_NAME.items():
        count = sum(trace.losses.get(name, 0) for trace in traces)
        if count and loss.group is None and name not in _LOSSES_OF_A_RULE:
            text = loss.text.partition(":")[0]
            lacks.append(Lack(f"{count:,} {text}", None, loss.severity == WARNING))
    return sorted(dict.fromkeys(lacks), key=lambda lack: not lack.is_warning)


def _each_unknown_once(findings: Sequence[Finding]) -> Iterator[tuple[Finding, str]]:
    """Findings, but of what is not known in several files the worst, and in how many others it is.

    Each file has its own counts and names, so that their sentences differ.
    """
    unknown: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.rule == tl911_unknown_events.RULE.id:
            unknown.setdefault(finding.cause, []).append(finding)
        else:
            yield finding, ""
    for of_cause in unknown.values():
        worst = max(of_cause, key=lambda x: (x.severity == WARNING, x.where.count))
        others = len({x.rank for x in of_cause}) - 1
        yield worst, f", also in {counted(others, 'other file', 'other files')}" if others else ""


def _hint(finding: Finding) -> str:
    """The rule of what a trace lacks, and the flag that helps."""
    hint = f"; {SOURCE}" if finding.cause == "no_source" else ""
    return f" ({finding.rule}{hint})"


def foot_lines(
    left_out: Sequence[str],
    lacks: Sequence[Lack],
    shown: Sequence[Finding],
    width: int,
    most: int = 2,
) -> list[Line]:
    """What was left out and why, what the traces lack, and how to see more."""
    lines = text_lines(f"Left out: {listed(left_out)}.", width, most, Tone.DIM) if left_out else []
    if lacks:
        text = ". ".join(lack.text for lack in lacks)
        tone = Tone.WARNING if lacks[0].is_warning else Tone.DIM
        # What is not known has a name, and is to be read in full.
        unknown = sum(lack.rule == tl911_unknown_events.RULE.id for lack in lacks)
        lines += text_lines(f"The trace: {text}.", width, most + unknown, tone)
    rules = [*(finding.remedy or finding.rule for finding in shown), *(x.rule for x in lacks)]
    rule = next((rule for rule in rules if rule), None)
    return [*lines, *text_lines(for_more(rule), width, 1, Tone.DIM)]
