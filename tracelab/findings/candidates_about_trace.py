"""Candidates about the trace itself: what it lacks, at the cost of no time."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO, WARNING, Where
from tracelab.model.losses import LOSSES


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


def candidates_of_losses(cause: str, group: str, context: Context) -> list[Candidate]:
    """One candidate of what was lost of a group; what is a warning comes first and makes it one.

    Args:
        cause: in one word.
        group: of the table of losses.
        context: whose losses these are.
    """
    losses = [loss for loss in LOSSES if loss.group == group and context.losses.get(loss.name)]
    losses.sort(key=lambda loss: loss.severity != WARNING)
    return candidates_about_trace(
        cause,
        sum(context.losses[loss.name] for loss in losses),
        "; ".join(loss.text for loss in losses),
        severity=losses[0].severity if losses else INFO,
    )
