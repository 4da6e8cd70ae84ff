"""Length of a steady step, and busy time of the devices in the steady window."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Annotated, Any

import numpy as np

from tracelab.base.arrays import Record
from tracelab.base.intervals import measure_within
from tracelab.measures.blocking_calls import BlockingCallCosts
from tracelab.measures.exposed import Exposed
from tracelab.measures.idle_causes import Bubbles
from tracelab.measures.measure import Measure, constrained, per_step, share_of
from tracelab.measures.unprofiled_windows import StartUp, unprofiled_ns
from tracelab.measures.what_ran import WhatRan
from tracelab.measures.window_times import DeviceMetrics, device_metrics
from tracelab.model.graph import Graph
from tracelab.model.steady import LeftOut
from tracelab.model.steps import bounds_of

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


MEASURE = Measure("steady", SteadyMetrics, steady_steps)
