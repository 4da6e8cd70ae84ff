"""TL908: events whose length cannot be."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_of_losses
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """Events that the reader left out for their times."""
    return candidates_of_losses("impossible_times", "times", context)


RULE = Rule(
    id="TL908",
    name="impossible times",
    matters="Events with a negative or an absurd length are in no number. Where a clock jumped, "
    "what lies on both sides is right, but not the time between them.",
    decides="It counts what the reader left out for its times, and the jumps behind which it moved "
    "what follows.",
    fix="Record again; a clock of the machine may have wrapped or been set.",
    find=find,
    about="trace",
)
