"""Times of each device in each window: busy, idle by cause, exposed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated, Any

import numpy as np
from msgspec import field

from tracelab.base.arrays import Record
from tracelab.base.intervals import measure_within, union
from tracelab.measures.blocking_calls import BlockingCallCosts
from tracelab.measures.exposed import Exposed
from tracelab.measures.idle_causes import Bubbles, Cause
from tracelab.measures.measure import Measure, constrained, keyed_by, per_step, share_of
from tracelab.measures.overlap import GraphStreamsTime, StreamTime, device_times
from tracelab.measures.unprofiled_windows import StartUp, unprofiled_ns
from tracelab.measures.what_ran import WhatRan
from tracelab.model.binding import REASONS
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window, bounds_of, find_steps, known_steps
from tracelab.model.timeline import LeftOut


class DeviceMetrics(Record):
    """One device in one window, ns.

    ``busy_ns + idle_ns`` is the window's length, and the bubbles add up to ``idle_ns``.

    Attributes:
        blocking_comm_ns, blocking_copy_ns: the exposed time that the next compute waited for.
        bubbles: idle by cause.
        idle_by_calls_ns: the idle that blocking calls caused, while they blocked or after them.
        bubbles_by_calls: the same by cause, causes without any left out.
        unknown_reasons: the idle of cause "unknown", by why it is.
        graph_streams: those of the streams that only carry a few nodes of CUDA graphs each, where
            they are shown as one; else None.
    """

    device: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int
    memset_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    blocking_comm_ns: int
    blocking_copy_ns: int
    comm_compute_overlap_ns: int
    copy_compute_overlap_ns: int
    streams: tuple[StreamTime, ...]
    bubbles: Annotated[Mapping[str, int], keyed_by(Cause, complete=True, added=[Cause.PROFILER])]
    unknown_reasons: Annotated[Mapping[str, int], keyed_by(REASONS, complete=False)]
    idle_by_calls_ns: Annotated[int, {"added": True}] = 0
    bubbles_by_calls: Annotated[
        Mapping[str, int], {"added": True}, keyed_by(Cause, complete=False)
    ] = field(default_factory=dict)
    graph_streams: Annotated[GraphStreamsTime | None, {"added": True}] = None

    @property
    def alone_memset_ns(self) -> int:
        """Memsets that run beside nothing else, ns."""
        return self.busy_ns - self.compute_ns - self.exposed_comm_ns - self.exposed_copy_ns


class WindowMetrics(Record):
    """One step, or the whole trace where `step` is None.

    Attributes:
        unprofiled_ns: what it would take without the profiler, as the capture measured, where that
            is at least a tenth less; else None.
    """

    rank: int
    step: int | None
    start_ns: int
    end_ns: int
    devices: tuple[DeviceMetrics, ...]
    unprofiled_ns: int | None = None

    @property
    def length_ns(self) -> int:
        """Length, ns."""
        return self.end_ns - self.start_ns


def window_times(
    graph: Graph,
    windows: Sequence[Window] | None,
    bubbles: Bubbles,
    start_up: StartUp,
    exposed: Exposed,
    blocking_calls: BlockingCallCosts,
) -> tuple[WindowMetrics, ...]:
    """The metrics of each window, with all of its devices."""
    windows = graph.host.timeline.windows if windows is None else windows
    devices = device_metrics(graph, windows, bubbles, exposed, blocking_calls)
    unprofiled = unprofiled_ns(graph, windows, bubbles, start_up)
    return tuple(
        WindowMetrics(0, window.step, window.start_ns, window.end_ns, of_window, without_profiler)
        for window, of_window, without_profiler in zip(windows, devices, unprofiled, strict=True)
    )


def device_metrics(
    graph: Graph,
    windows: Sequence[Window],
    bubbles: Bubbles,
    exposed: Exposed,
    blocking_calls: BlockingCallCosts,
) -> list[tuple[DeviceMetrics, ...]]:
    """The metrics of every device, per window."""
    timeline, idle = graph.host.timeline, blocking_calls.attributed_idle
    times = device_times(graph, windows)

    def measured(index: int, number: int) -> Iterator[DeviceMetrics]:
        comm_ns, copy_ns = (
            measure_within(exposed.blocking(timeline, number, kind), *bounds_of(windows)).tolist()
            for kind in (Kind.COMM, Kind.COPY)
        )
        on_device = idle.device_number == number
        called = union(idle.start_ns[on_device], idle.end_ns[on_device])
        causes, reasons = bubbles.by_cause(number, windows), bubbles.by_reason(number, windows)
        by_calls = bubbles.by_cause(number, windows, called) if len(called) else [{}] * len(windows)
        for i in range(len(windows)):
            by_call = {cause: time_ns for cause, time_ns in by_calls[i].items() if time_ns}
            own = times[i][index]
            yield DeviceMetrics(
                **{name: getattr(own, name) for name in own.__struct_fields__},
                blocking_comm_ns=comm_ns[i],
                blocking_copy_ns=copy_ns[i],
                bubbles=causes[i],
                unknown_reasons=reasons[i],
                idle_by_calls_ns=sum(by_call.values()),
                bubbles_by_calls=by_call,
            )

    return list(zip(*(measured(i, x) for i, x in enumerate(timeline.device_numbers)), strict=True))


WINDOWS = Measure("windows", WindowMetrics, window_times)


PROFILED, UNPROFILED = "profiled", "unprofiled"
# Of the time of products; below it, what they could take says little of a step.
_MIN_KNOWN_SHARE = 0.9


class SteadyMetrics(Record):
    """The steady steps of one file, ns.

    Attributes:
        step: None, as of the whole trace.
        steps: their numbers.
        start_ns, end_ns: the steady window, from the start of the first to the end of the last.
        step_ns: the median length of a steady step.
        lengths_ns: the length of each.
        unprofiled_step_ns: what a step takes without the profiler, as the capture measured: of one
            that follows another where the replay says that; None if it was not measured.
        gpu_floor_ns: the median time per steady step in which the device that decides was busy: no
            step takes less unless its GPU work changes.
        device: the device that decides, the busiest of the steady window.
        left_out: the steps that are not steady, and why.
        basis: whether predictions are of a step with the profiler or without it.
        baseline_error: by how much a replay of unchanged steps is off, as a share of their measured
            mean length; null without a replay.
        not_replayed: why nothing is predicted by a replay; null where predictions are.
        devices: the metrics of the steady window.
        unprofiled_ns: what the steady window would take without the profiler, where that is at
            least a tenth less; else None. Shares are of that, then.
        not_calibrated: why predictions are not of a step without the profiler; null where they are.
        replayed_steps: the numbers of the steps that are replayed; one alone is repeated.
        flops: additions and multiplications of its products, per step, rounded, of those whose
            shapes the file has; recomputed ones count again. None without any, or where one step
            was requested.
        mfu: model FLOPs utilization: how long these would take at the peak of the GPUs for their
            number formats, as a share of what a step takes; None where no peak is known, or of more
            than a tenth of the time of products no shape.
        flops_known_share: of the time of products, that of those whose shapes the file has.
    """

    rank: int
    step: int | None
    steps: tuple[int, ...]
    start_ns: int
    end_ns: int
    step_ns: int
    lengths_ns: tuple[int, ...]
    unprofiled_step_ns: int | None
    gpu_floor_ns: int
    device: int
    left_out: tuple[LeftOut, ...]
    basis: Annotated[str, constrained(enum=[PROFILED, UNPROFILED])]
    baseline_error: float | None
    not_replayed: str | None
    devices: tuple[DeviceMetrics, ...]
    unprofiled_ns: int | None
    not_calibrated: Annotated[str | None, {"added": True}] = None
    replayed_steps: Annotated[tuple[int, ...], {"added": True}] = ()
    flops: Annotated[int | None, {"added": True}] = None
    mfu: Annotated[float | None, {"added": True}, constrained(minimum=0)] = None
    flops_known_share: Annotated[
        float | None, {"added": True}, constrained(minimum=0, maximum=1)
    ] = None

    @property
    def length_ns(self) -> int:
        """Length of the steady window, ns."""
        return self.end_ns - self.start_ns


def steady_steps(
    graph: Graph,
    bubbles: Bubbles,
    start_up: StartUp,
    exposed: Exposed,
    blocking_calls: BlockingCallCosts,
    baseline: Any,
    what_ran: WhatRan,
) -> Iterator[SteadyMetrics]:
    """The steady steps of a file with its `Baseline`, in one row; none without a steady step."""
    timeline = graph.host.timeline
    steady = timeline.steady
    if steady is None:
        return
    [devices] = device_metrics(graph, [steady.window], bubbles, exposed, blocking_calls)
    decides = timeline.busiest_device(steady.window)
    steps = [timeline.steps[index] for index in steady.indices]
    busy = timeline.busy(timeline.select(device=decides))
    busy_ns = measure_within(busy, *bounds_of(steps))
    lengths_ns = timeline.typical_lengths_ns
    yield SteadyMetrics(
        rank=0,
        step=None,
        steps=tuple(step.number for step in steps),
        start_ns=steady.window.start_ns,
        end_ns=steady.window.end_ns,
        step_ns=int(median(lengths_ns)),
        lengths_ns=lengths_ns,
        unprofiled_step_ns=baseline.unprofiled_step_ns,
        gpu_floor_ns=int(median(busy_ns.tolist())),
        device=decides,
        left_out=steady.left_out,
        basis=baseline.basis,
        baseline_error=baseline.error,
        not_replayed=baseline.not_replayed,
        devices=devices,
        unprofiled_ns=unprofiled_ns(graph, [steady.window], bubbles, start_up)[0],
        not_calibrated=baseline.not_calibrated,
        replayed_steps=baseline.steps,
        **_utilization(
            what_ran,
            baseline.unprofiled_step_ns or median(lengths_ns),
            len(timeline.device_numbers),
        ),
    )


def _utilization(what_ran: WhatRan, step_ns: float, devices: int) -> dict[str, Any]:
    products, length_ns = what_ran.products, what_ran.length_ns
    is_known = ~np.isnan(products.flops)
    if what_ran.step is not None or not what_ran.steps or not is_known.any():
        return {}
    peak_ns = products.peak_ns[~np.isnan(products.peak_ns)]
    available_ns = step_ns * what_ran.steps * devices
    known_ns, all_ns = (int(length_ns[x].sum()) for x in (is_known, products.is_product))
    known_share = share_of(known_ns, all_ns)
    has_mfu = len(peak_ns) and known_share >= _MIN_KNOWN_SHARE
    return {
        "flops": per_step(round(products.flops[is_known].sum()), what_ran.steps),
        "mfu": float(peak_ns.sum() / available_ns) if has_mfu else None,
        "flops_known_share": known_share,
    }


STEADY = Measure("steady", SteadyMetrics, steady_steps)


class ServedSteps(Record):
    """The steps of one phase that serve equally many requests.

    Attributes:
        phase: "decode", "prefill" or "mixed", as their names say; "" where they do not.
        sequences: how many requests each of them serves.
        count: how many such steps there are.
        length_ns: the median of their windows, ns.
        longest_ns: the longest of them, ns.
        busy_ns: the median of the time in which the GPU that is the busiest in them works, ns.
    """

    rank: int
    step: int | None
    phase: str
    sequences: int
    count: int
    length_ns: int
    longest_ns: int
    busy_ns: int


def served_steps(graph: Graph, windows: Sequence[Window]) -> Iterator[ServedSteps]:
    """Measure the steps of vLLM or SGLang, all of the file, whatever the windows and the steps."""
    timeline = graph.host.timeline
    known, _ = known_steps(timeline.step_pattern)
    if known is None or not known.phases:
        return
    steps, *_ = find_steps(timeline.trace, known.pattern, timeline.launch_id, timeline.end_ns)
    start_ns, end_ns = bounds_of(steps)
    busy_ns = np.max(
        [
            measure_within(timeline.busy(timeline.select(device=device)), start_ns, end_ns)
            for device in timeline.device_numbers
        ],
        axis=0,
    )
    kinds: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        name = timeline.trace.name_of(step.event_id)
        kinds[known.phase_of(name), known.sequences_of(name)].append(index)
    for (phase, sequences), alike in sorted(kinds.items()):
        length_ns = (end_ns - start_ns)[alike]
        yield ServedSteps(
            rank=0,
            step=windows[0].step,
            phase=phase,
            sequences=sequences,
            count=len(alike),
            length_ns=int(np.median(length_ns)),
            longest_ns=int(length_ns.max()),
            busy_ns=int(np.median(busy_ns[alike])),
        )


SERVED_STEPS = Measure("served_steps", ServedSteps, served_steps)
