"""What windows would take without the profiler, which slows the host and nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array, measure_within
from tracelab.measures.bubbles import Bubbles, Cause
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline

_SLOWER = 1.1  # times as long as without the profiler: less is no reason to speak of it

# What the GPU waited for otherwise has other reasons than the profiler.
_SLOW_HOST = (Cause.HOST_BUSY, Cause.LAUNCH, Cause.HOST_BLOCKED)


def active_devices(timeline: Timeline, windows: Sequence[Window]) -> dict[int, NDArray[np.bool_]]:
    """Device to whether it does at least a hundredth of what the busiest does: bool[windows]."""
    starts = [window.start_ns for window in windows]
    ends = [window.end_ns for window in windows]
    busy = {
        x: measure_within(timeline.busy(timeline.select(device=x)), starts, ends)
        for x in timeline.device_numbers
    }
    most = np.max(list(busy.values()), axis=0, initial=0)
    return {device: 100 * ns >= most for device, ns in busy.items()}


def profiler_overhead_ns(
    timeline: Timeline, bubbles: Bubbles, windows: Sequence[Window]
) -> dict[int, Int64Array]:
    """By how much the profiler made windows longer: device to int64[windows], ns; 0 if unknown."""
    longer_ns = np.array(_longer_ns(timeline, windows), dtype=np.int64)
    if not longer_ns.any():
        return dict.fromkeys(timeline.device_numbers, longer_ns)
    slow_host = np.isin(bubbles.cause, _SLOW_HOST)
    return {
        x: np.minimum(longer_ns, bubbles.within(x, slow_host, windows))
        for x in timeline.device_numbers
    }


def unprofiled_ns(
    timeline: Timeline, bubbles: Bubbles, windows: Sequence[Window]
) -> list[int | None]:
    """What each window would take without the profiler, ns; None if unknown, or hardly less."""
    slowed, working = (
        profiler_overhead_ns(timeline, bubbles, windows),
        active_devices(timeline, windows),
    )
    most = np.max([np.where(working[x], slowed[x], 0) for x in slowed], axis=0, initial=0)
    return [
        left if _SLOWER * (left := window.length_ns - slower) <= window.length_ns else None
        for window, slower in zip(windows, most.tolist(), strict=True)
    ]


def _longer_ns(timeline: Timeline, windows: Sequence[Window]) -> list[int]:
    """How much longer each window is than its steps were without the profiler."""
    unprofiled = timeline.trace.info.unprofiled_step_ns
    if unprofiled is None or not timeline.steps:
        return [0] * len(windows)
    # A step that is slow for reasons of its own is not the profiler's: the median counts.
    median_ns = statistics.median(x.end_ns - x.start_ns for x in timeline.steps)
    longer = []
    for window in windows:
        steps = 1 if window.step is not None else len(timeline.steps)
        step_ns = min(median_ns, window.length_ns / steps)
        longer.append(max(0, round(step_ns - unprofiled) * steps))
    return longer
