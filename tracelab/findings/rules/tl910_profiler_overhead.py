"""TL910: steps that the profiler made longer."""

from __future__ import annotations

import statistics

from tracelab.base.intervals import measure
from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.measures.bubbles import Cause
from tracelab.model.trace import Category

INFLATED = "inflated_host_times"  # the cause where nobody knows by how much
_LEAST_SHARE = 0.02  # of the window, that the GPU waits for the host: less makes no warning


def find(context: Context) -> list[Candidate]:
    """The median step, and what the capture measured it to take without the profiler.

    Where nobody measured that, Python's stacks in the file say that the profiler slowed the host.
    """
    without_profiler_ns = context.step_without_profiler_ns
    if without_profiler_ns is None:
        return _inflated_host_times(context)
    if context.window_without_profiler_ns is None:
        return []
    step_ns = statistics.median(context.timeline.typical_lengths_ns)
    return candidates_about_trace(
        "profiler_overhead",
        1,
        f"a step takes {step_ns / 1e6:.2f} ms here and {without_profiler_ns / 1e6:.2f} ms without "
        "the profiler",
    )


def _inflated_host_times(context: Context) -> list[Candidate]:
    has_stacks = len(context.trace.of_category(Category.PYTHON)) > 0
    waits = context.idle_by_device(context.is_idle_by(Cause.HOST_BUSY, Cause.LAUNCH))
    matters = _LEAST_SHARE * context.window.length_ns <= max(
        map(measure, waits.values()), default=0
    )
    return candidates_about_trace(
        INFLATED,
        int(has_stacks and matters),
        "Python stacks were recorded: CPU times are inflated, typically 1.5 to 3 times, and idle "
        "time before late launches is an upper bound",
    )


RULE = Rule(
    id="TL910",
    name="profiler overhead",
    matters="The profiler slows down the CPU, so idle time that waits for the CPU is longer "
    "here than in the real step. TL301's bound leaves that out if the real step is known.",
    decides="It compares the median step with the length of a step that the capture measured "
    "without the profiler, and reports a difference of 10 % or more. If no such length is known, "
    "it reports that Python stacks were recorded and a GPU waits for the CPU for at least 2 % of "
    "the window.",
    fix="Record without stacks and shapes to come closer to the real step; `tracelab run` also "
    "measures a step without the profiler.",
    find=find,
    about="trace",
)
