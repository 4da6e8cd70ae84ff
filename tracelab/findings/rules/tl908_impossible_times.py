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
    matters="Events with a negative or absurd duration are left out of all figures. If a clock "
    "jumped, the times on both sides are right, but not the time between them.",
    decides="It counts the events that the reader left out because of their times, and the jumps "
    "after which it moved events.",
    fix="Record again; a clock of the machine may have wrapped or been set.",
    find=find,
    about="trace",
)
