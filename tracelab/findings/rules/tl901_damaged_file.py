"""TL901: events that the reader could not use."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO, WARNING
from tracelab.findings.rule import Rule
from tracelab.model.trace import LOSSES

_DAMAGE = (
    "truncated",
    "unparsable_events",
    "incomplete_events",
    "unmatched_begin_end",
    "unknown_phases",
    "unreadable_metadata",
    "activities_without_lane",
    "repairs",
)


def find(context: Context) -> list[Candidate]:
    """What the reader left out or repaired; repairs alone are harmless."""
    losses = {name: context.losses[name] for name in _DAMAGE if context.losses.get(name)}
    is_harmless = losses.keys() <= {"repairs"}
    return candidates_about_trace(
        "damaged_file",
        sum(losses.values()),
        "; ".join(LOSSES[name] for name in losses),
        severity=INFO if is_harmless else WARNING,
    )


RULE = Rule(
    id="TL901",
    name="damaged file",
    matters="What could not be read is in no number: times and counts are those of the rest.",
    decides="It counts what the reader had to leave out or mend; the report's losses list it.",
    fix="Record again, fewer steps; look for a full disk or a killed process.",
    find=find,
    about="trace",
)
