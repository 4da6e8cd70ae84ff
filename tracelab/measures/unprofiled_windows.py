"""Effects of the recording: windows without the profiler, idle time that it begins with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, FloatArray, Int32Array, Int64Array, read_only
from tracelab.base.intervals import measure_within
from tracelab.measures.idle_causes import Bubbles, Cause
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, rows_of
from tracelab.model.steps import Window, bounds_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# The host needs some steps to get ahead of an idle GPU, and the profiler is slow at first: in 40
# captures of H200s whose first step idled longer, the host took up to 3.2 times as long since the
# launch before as in other steps, 4.2 to 43 times at the first use of a data loader or autograd.
_BY_HOST = (Cause.HOST_BUSY, Cause.LAUNCH, Cause.EDGE)  # a call that waits is the program's own
# Share of a typical step: a GPU that waits less has a host that runs ahead.
_MAX_WAIT_SHARE_AHEAD = 0.02
_MIN_STEPS_AHEAD = 2
# A program whose host runs ahead later than that is slow by itself.
_MAX_START_STEPS = 3
_MIN_USUAL_STEPS = 3
_MAX_USUAL_FACTOR = 4


class StartUp(Arrays):
    """Idle time because the recording had just begun, except where the host stalled.

    The host is ahead in a step for whose launches the GPU hardly waits. It runs ahead if it is in
    one of the first four steps, and in most from there on, at least two.

    Attributes:
        not_ahead: bool[bubbles], with such time in steps before that one: the program has none.
        slow: bool[bubbles], with such time in the first step, or before the first launch of the
            second, where the host never runs ahead: the program has less of it.
        by_host: bool[pieces], such time where bubbles have it.
    """

    not_ahead: BoolArray
    slow: BoolArray
    by_host: BoolArray


def start_up(graph: Graph, bubbles: Bubbles) -> StartUp:
    """Find the idle time that comes from the start of the recording."""
    timeline = graph.host.timeline
    row = rows_of(timeline.event_id, bubbles.next_id)
    step_index = np.where(row == ABSENT, ABSENT, timeline.step_index[row])
    not_ahead, slow = np.zeros((2, len(row)), dtype=np.bool_)
    by_host = np.isin(bubbles.cause, _BY_HOST)
    if len(timeline.steps) <= _MIN_STEPS_AHEAD:
        return StartUp(not_ahead, slow, by_host)
    is_launched = step_index != ABSENT
    start_ns, end_ns = bubbles.lasts_ns
    touches = start_ns[1:] == end_ns[:-1]
    touches &= bubbles.device_number[1:] == bubbles.device_number[:-1]
    begins = np.concatenate(([True], ~touches))[: len(row)]
    idle_since_ns = start_ns[begins][np.cumsum(begins) - 1]
    is_late = is_launched & (graph.binding.launch_ns[row] > idle_since_ns)
    length_ns = end_ns - start_ns
    most_ns = _MAX_WAIT_SHARE_AHEAD * float(np.median(timeline.typical_lengths_ns))
    launch_id, step_of_launch = _launches(timeline)
    until_second = launch_id[: np.searchsorted(step_of_launch, 1) + 1]
    for device in timeline.device_numbers:
        rows = bubbles.rows_of(device)
        late = rows.start + np.flatnonzero(is_late[rows])
        waited_ns = np.bincount(step_index[late], length_ns[late], minlength=len(timeline.steps))
        first = _first_ahead(waited_ns < most_ns)
        if first is None:
            slow[rows] = np.isin(timeline.launch_id[row[rows]], until_second)
        else:
            not_ahead[rows] = step_index[rows] < first
    is_chosen = is_launched & (bubbles.sums(by_host) > 0)
    is_chosen &= ~_is_stalled(timeline, launch_id, step_of_launch)[row]
    return StartUp(not_ahead & is_chosen, slow & is_chosen, by_host)


def _is_stalled(timeline: Timeline, launch_id: Int64Array, step_index: Int32Array) -> BoolArray:
    # Since the launch before. Usual is the median at this position in all steps that launch as
    # often.
    took_ns = np.diff(timeline.trace.end_ns[launch_id].astype(np.float64), prepend=np.nan)
    count = np.bincount(step_index, minlength=1)[step_index]  # of the launches of its step
    is_usual = np.zeros(len(launch_id), dtype=np.bool_)
    is_usual[:1] = True
    for launches, index in groups_of(count):
        of_step = index.reshape(-1, launches)
        if len(of_step) >= _MIN_USUAL_STEPS:
            usual_ns = np.nanmedian(took_ns[of_step], axis=0)
            is_usual[of_step] |= took_ns[of_step] <= _MAX_USUAL_FACTOR * usual_ns
    return ~np.isin(timeline.launch_id, launch_id[is_usual])


def _launches(timeline: Timeline) -> tuple[Int64Array, Int32Array]:
    """The calls of all threads that launched in steps, and the index of the step of each."""
    rows = np.flatnonzero(timeline.step_index != ABSENT)
    launch_id, first = np.unique(timeline.launch_id[rows], return_index=True)
    step_index = timeline.step_index[rows[first]]
    order = np.lexsort((timeline.trace.start_ns[launch_id], step_index))
    return launch_id[order], step_index[order]


def _first_ahead(is_ahead: BoolArray) -> int | None:
    """The first step in which the host is ahead; None where it is not one of the first, or rare."""
    first = int(np.argmax(is_ahead))
    ahead = int(is_ahead.sum())
    is_usual = ahead >= _MIN_STEPS_AHEAD and 2 * ahead > len(is_ahead) - first
    return first if is_usual and first <= _MAX_START_STEPS else None


# A smaller slowdown by the profiler is no reason to mention it.
_MIN_SLOWDOWN = 1.1

# What the GPU waited for otherwise has other reasons than the profiler.
_SLOW_HOST = (Cause.HOST_BUSY, Cause.LAUNCH, Cause.HOST_BLOCKED, Cause.PROFILER)


def active_devices(graph: Graph, windows: Sequence[Window]) -> dict[int, BoolArray]:
    """Per device, in which windows it does at least 1 % of the busiest one's work."""
    timeline, bounds_ns = graph.host.timeline, bounds_of(windows)
    busy_ns = {
        device: measure_within(timeline.busy(timeline.rows_of(device)), *bounds_ns)
        for device in timeline.device_numbers
    }
    most_ns = np.max(list(busy_ns.values()), axis=0, initial=0)
    return {device: read_only(100 * ns >= most_ns) for device, ns in busy_ns.items()}


def profiler_overhead_ns(
    graph: Graph, windows: Sequence[Window], bubbles: Bubbles, start_up: StartUp
) -> dict[int, Int64Array]:
    """Measure by device how much longer the recording made windows, ns.

    0 where the profiler did not slow the host, or that is not known.
    """
    overhead = _overhead_ns(graph.host.timeline, windows, bubbles, start_up)
    return {device: read_only(of_all) for device, (_, of_all) in overhead.items()}


def unprofiled_ns(
    graph: Graph, windows: Sequence[Window], bubbles: Bubbles, start_up: StartUp
) -> tuple[int | None, ...]:
    """Return each window's length without the profiler, ns; None if unknown, or hardly less.

    The active device that the profiler slowed most decides.
    """
    is_active = active_devices(graph, windows)
    overhead = _overhead_ns(graph.host.timeline, windows, bubbles, start_up)
    host_ns, all_ns = np.max([np.where(is_active[x], ns, 0) for x, ns in overhead.items()], axis=0)
    return tuple(
        window.length_ns - of_all
        if _MIN_SLOWDOWN * (window.length_ns - of_host) <= window.length_ns
        else None
        for window, of_host, of_all in zip(windows, host_ns.tolist(), all_ns.tolist(), strict=True)
    )


def unprofiled_idle_ns(timeline: Timeline, window: Window) -> dict[int, int]:
    """The most that each device would idle in a window without the profiler, ns.

    That is the measured length of its steps, less the time for which the device works in a typical
    one.
    """
    step_ns, steady = timeline.trace.info.unprofiled_step_ns, timeline.steady
    if step_ns is None or steady is None:
        return {}
    [count] = _step_counts(timeline, [window])
    bounds_ns = bounds_of([timeline.steps[index] for index in steady.indices])
    is_work, idle_ns = timeline.kind != Kind.COMM, {}
    for device in timeline.device_numbers:
        works = timeline.busy(timeline.select(device=device) & is_work)
        works_ns = float(np.median(measure_within(works, *bounds_ns)))
        idle_ns[device] = count * max(0, round(step_ns - works_ns))
    return idle_ns


def _overhead_ns(
    timeline: Timeline, windows: Sequence[Window], bubbles: Bubbles, start_up: StartUp
) -> dict[int, Int64Array]:
    """int64[2, windows], ns, by device: what a slower host took, and with the recording's start."""
    # A step that is slow for reasons of its own is not the profiler's: the median counts.
    median_ns = statistics.median(timeline.typical_lengths_ns) if timeline.steps else 0
    typical_ns = _longer_ns(timeline, windows, median_ns)
    if not typical_ns.any():
        return dict.fromkeys(timeline.device_numbers, np.stack((typical_ns, typical_ns)))
    longer_ns, slow_host = _longer_ns(timeline, windows), np.isin(bubbles.cause, _SLOW_HOST)
    slow, at_start = bubbles.select(slow_host), ((start_up.not_ahead, start_up.by_host),)
    idle = [bubbles.idle(x) for x in (slow, at_start, (*slow, *at_start))]
    overhead_ns = {}
    for device in timeline.device_numbers:
        idle_ns, start_ns, either_ns = (x.within(device, windows) for x in idle)
        host_ns = np.minimum(typical_ns, idle_ns)
        all_ns = np.minimum(host_ns + start_ns, np.minimum(longer_ns, either_ns))
        overhead_ns[device] = np.stack((host_ns, np.where(host_ns > 0, all_ns, 0)))
    return overhead_ns


def _longer_ns(
    timeline: Timeline, windows: Sequence[Window], most_ns: float = math.inf
) -> Int64Array:
    unprofiled_step_ns = timeline.trace.info.unprofiled_step_ns
    if unprofiled_step_ns is None or not timeline.steps:
        return np.zeros(len(windows), dtype=np.int64)
    longer_ns = [
        count * max(0, round(min(most_ns, window.length_ns / count) - unprofiled_step_ns))
        for window, count in zip(windows, _step_counts(timeline, windows), strict=True)
    ]
    return np.array(longer_ns, dtype=np.int64)


def _step_counts(timeline: Timeline, windows: Sequence[Window]) -> list[int]:
    starts_ns, ends_ns = bounds_of(timeline.steps)
    since_ns, until_ns = bounds_of(windows)
    first = np.searchsorted(ends_ns, since_ns, side="right")
    end = np.searchsorted(starts_ns, until_ns)
    counts: list[int] = np.maximum(1, end - first).tolist()
    return counts


class HostClock(Arrays):
    """Progress of the host without the profiler, as a function of its progress with it.

    Between two moments (ascending) it runs evenly; before the first and after the last it stands
    still.
    """

    recorded_ns: Int64Array
    unprofiled_ns: Int64Array
    steps: int

    def lengths_ns(self, starts_ns: Int64Array, ends_ns: Int64Array) -> Int64Array:
        """Length of each of some intervals without the profiler; lengths add up."""
        return self._measure_until(ends_ns) - self._measure_until(starts_ns)

    def _measure_until(self, moments_ns: Int64Array) -> Int64Array:
        read: FloatArray = np.interp(moments_ns, self.recorded_ns, self.unprofiled_ns)
        return np.rint(read).astype(np.int64)
