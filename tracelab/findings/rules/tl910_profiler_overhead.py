"""TL910: steps that the profiler made longer."""

from __future__ import annotations

import statistics

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """The median step, and what the capture measured it to take without the profiler."""
    without_profiler_ns = context.step_without_profiler_ns
    if context.window_without_profiler_ns is None or without_profiler_ns is None:
        return []
    step_ns = statistics.median(step.end_ns - step.start_ns for step in context.timeline.steps)
    return candidates_about_trace(
        "profiler_overhead",
        1,
        f"a step takes {step_ns / 1e6:.2f} ms here and {without_profiler_ns / 1e6:.2f} ms without "
        "the profiler",
    )


RULE = Rule(
    id="TL910",
    name="profiler overhead",
    matters="The profiler slows the host, so idle that waits for the host is longer here than in "
    "the real step. TL301's bound leaves that out.",
    decides="It compares the median step with the time of a step that the capture measured without "
    "the profiler, and speaks from 10 % on.",
    fix="Record without stacks and shapes to come closer to the real step.",
    find=find,
    about="trace",
)
