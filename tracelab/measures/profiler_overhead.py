"""What windows would take without the profiler, which slows the host and nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import read_only
from tracelab.intervals import Int64Array, measure_within
from tracelab.measures.bubbles import Bubbles, Cause
from tracelab.model.graph import Graph
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline

_SLOWER = 1.1  # times as long as without the profiler: less is no reason to speak of it

# What the GPU waited for otherwise has other reasons than the profiler.
_SLOW_HOST = (Cause.HOST_BUSY, Cause.LAUNCH, Cause.HOST_BLOCKED, Cause.PROFILER)


def active_devices(
    graph: Graph, windows: Sequence[Window] | None = None
) -> dict[int, NDArray[np.bool_]]:
    """Which devices do at least a hundredth of what the busiest does, per window.

    There is no slow reference model: it compares what `device_times` measures, which has one.

    Args:
        graph: the file's dependencies.
        windows: what to measure; None for the whole trace and every step.

    Returns:
        device to bool[windows]: ``{0: [True, True], 1: [True, False]}``.
    """
    timeline = graph.host.timeline
    windows = timeline.windows if windows is None else windows
    start_ns = [window.start_ns for window in windows]
    end_ns = [window.end_ns for window in windows]
    busy_ns = {
        device: measure_within(timeline.busy(timeline.select(device=device)), start_ns, end_ns)
        for device in timeline.device_numbers
    }
    most_ns = np.max(list(busy_ns.values()), axis=0, initial=0)
    return {device: read_only(100 * ns >= most_ns) for device, ns in busy_ns.items()}


def profiler_overhead_ns(
    graph: Graph, windows: Sequence[Window] | None, bubbles: Bubbles
) -> dict[int, Int64Array]:
    """By how much the profiler made windows longer.

    There is no slow reference model: it is a difference of two lengths, at most the idle time that
    a slow host causes.

    Args:
        graph: the file's dependencies.
        windows: what to measure; None for the whole trace and every step.
        bubbles: the idle time, at least of these windows.

    Returns:
        device to int64[windows], ns, 0 where it is not known: ``{0: [4_000, 1_000]}``.
    """
    timeline = graph.host.timeline
    windows = timeline.windows if windows is None else windows
    longer_ns = read_only(np.array(_longer_ns(timeline, windows), dtype=np.int64))
    if not longer_ns.any():
        return dict.fromkeys(timeline.device_numbers, longer_ns)
    is_slow_host = np.isin(bubbles.cause, _SLOW_HOST)
    return {
        device: read_only(np.minimum(longer_ns, bubbles.within(device, is_slow_host, windows)))
        for device in timeline.device_numbers
    }


def unprofiled_ns(
    graph: Graph, windows: Sequence[Window] | None, bubbles: Bubbles
) -> tuple[int | None, ...]:
    """What each window would take without the profiler, ns; None if unknown, or hardly less.

    The active device that the profiler slowed most decides.

    Args:
        graph: the file's dependencies.
        windows: what to measure; None for the whole trace and every step.
        bubbles: the idle time, at least of these windows.
    """
    windows = graph.host.timeline.windows if windows is None else windows
    overhead_ns = profiler_overhead_ns(graph, windows, bubbles)
    is_active = active_devices(graph, windows)
    of_active = [np.where(is_active[device], ns, 0) for device, ns in overhead_ns.items()]
    most_ns = np.max(of_active, axis=0, initial=0)
    return tuple(
        left_ns if _SLOWER * (left_ns := window.length_ns - ns) <= window.length_ns else None
        for window, ns in zip(windows, most_ns.tolist(), strict=True)
    )


def _longer_ns(timeline: Timeline, windows: Sequence[Window]) -> list[int]:
    """How much longer each window is than its steps were without the profiler."""
    unprofiled_length_ns = timeline.trace.info.unprofiled_step_ns
    if unprofiled_length_ns is None or not timeline.steps:
        return [0] * len(windows)
    # A step that is slow for reasons of its own is not the profiler's: the median counts.
    median_ns = statistics.median(timeline.typical_lengths_ns)
    # Windows of steps do not overlap, and are in order.
    starts_ns = [step.start_ns for step in timeline.steps]
    ends_ns = [step.end_ns for step in timeline.steps]
    first = np.searchsorted(ends_ns, [window.start_ns for window in windows], side="right")
    end = np.searchsorted(starts_ns, [window.end_ns for window in windows])
    longer_ns = []
    for window, count in zip(windows, (end - first).tolist(), strict=True):
        step_count = max(1, count)
        step_ns = min(median_ns, window.length_ns / step_count)
        longer_ns.append(max(0, round(step_ns - unprofiled_length_ns) * step_count))
    return longer_ns
