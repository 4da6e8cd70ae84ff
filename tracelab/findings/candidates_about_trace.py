"""Candidates about the trace itself: what it lacks, at the cost of no time."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.finding import INFO, Where


def candidates_about_trace(
    cause: str, count: int, sentence: str, *, severity: str = INFO
) -> list[Candidate]:
    """One candidate of what a trace lacks; none where the count is 0.

    Args:
        cause: in one word.
        count: how often it is.
        sentence: what it is.
        severity: how bad that is for the other numbers.

    >>> [lack] = candidates_about_trace("no_stacks", 1, "no Python functions were recorded")
    >>> lack.title, lack.severity_override
    ('No Python functions were recorded', 'info')
    >>> candidates_about_trace("unresolved_waits", 0, "0 waits")
    []
    """
    if not count:
        return []
    title = sentence[0].upper() + sentence[1:]
    return [Candidate(title, cause, Where(count), severity_override=severity)]
