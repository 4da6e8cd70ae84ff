"""A finding in two or three lines: up to how much, what, where, and the fix below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from tracelab.findings.finding import (
    ASIDE,
    CRITICAL,
    INFO,
    REST,
    WARNING,
    WARNING_SHARE,
    Finding,
)
from tracelab.findings.places import sentence_of
from tracelab.render.text.cells import percent_text
from tracelab.render.text.savings import REASONS, interval, of_what, saving
from tracelab.render.text.sections import Line, Span, Tone
from tracelab.render.text.verdict import is_large
from tracelab.render.text.wrapping import first_clause, paragraph, shorten_names, wrap
from tracelab.report.views import Scope
from tracelab.safe_text import clean

TONES = {CRITICAL: Tone.CRITICAL, WARNING: Tone.WARNING, INFO: Tone.DIM}
_LABEL_WIDTH = 18
_TITLE_LINES = 2
_LONGEST_NAMES = (44, 28, 20)  # where the title has no room for longer ones
_SMALL = 0.005  # of a step: less is not worth a place on the first screen


def worth_showing(finding: Finding, scope: Scope) -> bool:
    """Tell whether the first screen has a place for a finding.

    It has none for what may save nothing, unless that is much or is the rest behind others; nor for
    what is of no typical step, of which a line speaks.
    """
    if finding.about == "trace" or finding.role == ASIDE:
        return False
    least = WARNING_SHARE if finding.saves_low_ns == 0 and finding.role != REST else 0
    return is_large(finding, scope) or scope.share_of(finding) >= max(least, _SMALL)


def amount(finding: Finding, scope: Scope) -> str:
    """What its fix saves, the share that is attributed to it, or that it takes without a remedy.

    For example "saves 2.20 ms", "up to 5.9 %", or "takes 40.7 %".
    """
    if finding.saves_ns is not None:
        return saving(finding, scope)
    if finding.saves_high_ns is not None and scope.savings is not None:
        return f"at most {percent_text(finding.saves_high_ns, scope.savings.step_ns or 0)}"
    if finding.bound_ns:
        return f"up to {percent_text(min(finding.bound_ns, scope.base_ns), scope.base_ns)}"
    return f"takes {percent_text(min(finding.cost_ns, scope.length_ns), scope.length_ns)}"


def seen_in(finding: Finding, scope: Scope) -> list[str]:
    """In how many of the steady steps a finding was seen, where that is not all: "2 of 5 steps"."""
    if finding.steps_seen is None or finding.steps_seen >= scope.steps:
        return []
    return [f"{finding.steps_seen} of {scope.steps} steps"]


def caption(shown: Sequence[tuple[Finding, Scope]], shares_of: str, of_all: str = "") -> Line:
    """The line above the findings, which says what their savings and shares are of.

    Args:
        shown: the findings, each with what it is about.
        shares_of: what shares are of.
        of_all: what all fixes save together, where the line is to say that.
    """
    priced = [scope for finding, scope in shown if finding.saves_ns is not None]
    if not priced:
        text = f"Findings, each with its share of {shares_of}:"
    else:
        others = "" if len(priced) == len(shown) else ", or its share"
        together = f" (all together {of_all})" if of_all else ""
        text = f"Findings, each with what its fix saves of {of_what(priced[0])}{together}{others}:"
    return Line((Span(text, Tone.DIM),))


def finding_lines(
    number: int,
    finding: Finding,
    scope: Scope,
    share: str,
    *,
    width: int,
    where: Sequence[str] = (),
    fix_lines: int = 1,
) -> list[Line]:
    """The lines of one finding, with the beginning of its fix.

    Args:
        number: its number in the list.
        finding: the finding.
        scope: what it is about.
        share: what it saves or its share of that, in words.
        width: columns of the terminal.
        where: what else stands at the left: on which ranks it was found.
        fix_lines: how many lines the fix may take.
    """
    tone = TONES[finding.severity]
    room = width - _LABEL_WIDTH
    title = _title(finding, room)
    before = "Fix: " if finding.bound_ns else ""
    fix = clean(finding.fix)
    if finding.saves_reason in REASONS and fix_lines > 1:
        before, fix = "", f"{REASONS[finding.saves_reason]} {before}{fix}"
    if fix_lines == 1:
        fixes = [before + first_clause(fix, room - len(before))]
    else:
        fixes = paragraph(before + fix, room, fix_lines)
    below = [interval(finding, scope), clean(finding.rule), *where, *seen_in(finding, scope)]
    labels = [f"{number}. {share}", *(f"   {text}" for text in _packed(list(filter(None, below))))]
    is_dim = tone is Tone.DIM
    texts = [Span(text, Tone.DIM if is_dim else Tone.STRONG) for text in title]
    texts += [Span(text, Tone.DIM if is_dim else Tone.PLAIN) for text in fixes]
    label_spans = [
        Span(f"{label:{_LABEL_WIDTH - 1}} ", Tone.DIM if i else tone)
        for i, label in enumerate(labels)
    ]
    return [
        Line((label, text))
        for label, text in zip_longest(label_spans, texts, fillvalue=Span(" " * _LABEL_WIDTH))
    ]


def _packed(labels: Sequence[str]) -> list[str]:
    """Labels in as few lines as their place allows."""
    lines: list[str] = []
    for label in labels:
        if lines and len(f"{lines[-1]}, {label}") <= _LABEL_WIDTH - 4:
            lines[-1] += f", {label}"
        else:
            lines.append(label)
    return lines


def _title(finding: Finding, room: int) -> list[str]:
    """The title in two lines at most; names are shortened before anything is left out."""
    text = f"{clean(sentence_of(finding.shown_title, finding.where))}."
    for most in _LONGEST_NAMES:
        lines = wrap(text, room)
        if len(lines) <= _TITLE_LINES:
            return lines
        text = shorten_names(text, most)
    return paragraph(text, room, _TITLE_LINES)
