"""TL906: one stream that runs two activities at a time."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """Activities that begin before the one before them in their stream has ended."""
    count = context.timeline.overlapping_count
    return candidates_about_trace(
        "overlapping_activities",
        count,
        f"{count} activities begin before the one before them in their stream has ended",
    )


RULE = Rule(
    id="TL906",
    name="overlapping activities",
    matters="One stream runs one activity at a time, except where the launch lets the next one "
    "begin early. These overlap without that: their common time is counted once.",
    decides="It counts the activities that begin before the one before them in their stream ends, "
    "without those under programmatic dependent launch or within one CUDA graph.",
    fix="Look whether two processes share the file; record each into its own.",
    find=find,
    about="trace",
)
