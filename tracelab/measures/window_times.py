"""Times of each device in each window: busy, idle by cause, exposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import field

from tracelab.base.arrays import Record
from tracelab.base.intervals import measure_within, union
from tracelab.measures.blocking_calls import BlockingCallCosts
from tracelab.measures.exposed import Exposed
from tracelab.measures.idle_causes import Bubbles, Cause
from tracelab.measures.measure import Measure, keyed_by
from tracelab.measures.overlap import GraphStreamsTime, StreamTime, device_times
from tracelab.measures.unprofiled_windows import StartUp, unprofiled_ns
from tracelab.model.constraints import REASONS
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window, bounds_of


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


MEASURE = Measure("windows", WindowMetrics, window_times)
