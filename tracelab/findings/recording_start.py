"""Idle time that no finding is about, because the recording had just begun."""

from __future__ import annotations

from tracelab.base.intervals import measure
from tracelab.findings.context import Context
from tracelab.findings.finding import WARNING_SHARE


def recording_start(context: Context) -> str:
    """A sentence about a window of which at least 2 % are such idle time, or ""."""
    device, length_ns = context.deciding_device, context.window.length_ns
    idle_ns = measure(context.idle(device, context.start_up.not_ahead))
    if idle_ns == 0 or idle_ns < WARNING_SHARE * length_ns:
        return ""
    return (
        f"For {100 * idle_ns / length_ns:.1f} % of the time GPU {device} is idle because the "
        "recording had just begun and the CPU had not run ahead yet: no finding is about that."
    )
