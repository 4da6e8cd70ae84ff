"""TL906: one stream that runs two activities at a time."""

from __future__ import annotations

from tracelab.base.text import counted
from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """Activities that start before the previous one in their stream has ended."""
    count = context.timeline.overlapping_count
    return candidates_about_trace(
        "overlapping_activities",
        count,
        f"{counted(count, 'activity starts', 'activities start')} before the previous one of "
        "the stream has ended",
    )


RULE = Rule(
    id="TL906",
    name="overlapping activities",
    matters="A stream runs one activity at a time, except where the launch allows the next one to "
    "start early. These overlap without that: the time in which both ran counts once.",
    decides="It counts the activities that start before the previous one in their stream ends, "
    "except those under programmatic dependent launch or within one CUDA graph.",
    fix="Check whether two processes write to the same file; record each into its own.",
    find=find,
    about="trace",
)
