"""TL904: stream waits for nobody knows what."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """Stream waits for what is neither named nor inferred."""
    count = context.graph.links.unresolved
    return candidates_about_trace(
        "unresolved_waits",
        count,
        "the trace does not say what "
        f"{'1 stream wait waits' if count == 1 else f'{count} stream waits wait'} for",
    )


RULE = Rule(
    id="TL904",
    name="unresolved waits",
    matters="The trace does not say what those streams waited for: their idle time may be "
    "`unknown`, and the critical path may be different.",
    decides="It counts the stream waits whose event record, or the stream of that record, the "
    "file does not name and tracelab could not infer. Most of them delayed nothing.",
    fix='Record with `tracelab.capture(collector="kineto")`, which keeps the event records.',
    find=find,
    about="trace",
)
