"""TL901: events that the reader could not use."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_of_losses
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """What the reader left out or repaired; repairs alone are harmless."""
    return candidates_of_losses("damaged_file", "damage", context)


RULE = Rule(
    id="TL901",
    name="damaged file",
    matters="What could not be read is missing from all figures: times and counts are those of "
    "the rest.",
    decides="It counts what the reader had to leave out or repair; the report's losses list it.",
    fix="Record again, with fewer steps; check for a full disk or a killed process.",
    find=find,
    about="trace",
)
