"""Context of a rule: the measures of one window, and the places of its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, IntArray, read_only
from tracelab.base.intervals import Intervals, clip, intersect, measure_within, union
from tracelab.base.names import short_kernel_name
from tracelab.findings.advice.needs import host_needs
from tracelab.findings.candidates import most_expensive
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import FirstUse, Recognized, Remedy, find_first_use, recognize
from tracelab.measures.exposed import Exposed
from tracelab.measures.idle_causes import Cause, Selection, mark_beginnings_as_edges
from tracelab.measures.independent_work import launched_in_backward
from tracelab.measures.measured import Measured
from tracelab.measures.overlap_blockers import SerializedStreams
from tracelab.measures.unprofiled_windows import (
    active_devices,
    profiler_overhead_ns,
    unprofiled_idle_ns,
    unprofiled_ns,
)
from tracelab.model.frames import event_as_shown
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory
from tracelab.model.lookup import match_names, rows_of
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT
from tracelab.model.wording import origin_texts

# Operators that read one number.
_READS_SCALAR = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")


class Context(Measured):
    """One file and the window of it that the rules explain.

    ``context.exposed.row[i]`` is the timeline row of exposed piece *i*: see the measures' columns.
    """

    remedies: Sequence[Remedy] = REMEDIES

    @cached_property
    def window(self) -> Window:
        """The steady window, the step of a report of one step, or the whole trace without both."""
        [window, *_] = self.windows
        steady = self.timeline.steady
        return window if window.step is not None or steady is None else steady.window

    @cached_property
    def recognized(self) -> Recognized:
        """The pitfalls that remedies are recognized by in the file."""
        return recognize(self.graph, self.remedies, self.arguments)

    @cached_property
    def first_use(self) -> FirstUse:
        """The work of the host that a program does once."""
        return find_first_use(self.graph, self.recognized, self.bubbles)

    @cached_property
    def idle_cause(self) -> NDArray[np.int8]:
        """int8[pieces], the `Cause` of each; a recording begins and ends with edges."""
        return mark_beginnings_as_edges(self.timeline, self.bubbles).cause

    @cached_property
    def next_row(self) -> IndexArray:
        """intp[bubbles], timeline row of the activity that each bubble ends with, else ABSENT."""
        return read_only(rows_of(self.timeline.event_id, self.bubbles.next_id))

    @cached_property
    def pageable_copy_row(self) -> IndexArray:
        """intp[k], timeline rows of the launched copies between the GPU and pageable memory."""
        is_pageable = match_names(self.trace, self.timeline.event_id, copies_pageable_memory)
        is_pageable &= (self.timeline.kind == Kind.COPY) & (self.timeline.launch_id != ABSENT)
        return read_only(np.flatnonzero(is_pageable))

    @cached_property
    def is_of_backward(self) -> BoolArray:
        """bool[m], which timeline rows autograd's threads launched."""
        return read_only(launched_in_backward(self.timeline))

    @cached_property
    def host_needs(self) -> NDArray[np.int8]:
        """int8[blocking calls], the `Need` for the value that each call waits for."""
        return read_only(host_needs(self.graph))

    @cached_property
    def is_of_first_use(self) -> BoolArray:
        """bool[pieces], in most of which the host did what a program does once."""
        start_ns, end_ns = self.bubbles.start_ns, self.bubbles.end_ns
        once_ns = measure_within(self.first_use.time, start_ns, end_ns)
        return read_only(2 * once_ns > end_ns - start_ns)

    @property
    def torch(self) -> str | None:
        """The version of PyTorch that recorded the file; None where it does not say."""
        return self.trace.info.software.get("torch")

    @cached_property
    def profiler_overhead_ns(self) -> Mapping[int, int]:
        """Time by which the recording made this window longer, by device, ns; 0 if unknown."""
        overhead_ns = profiler_overhead_ns(self.graph, [self.window], self.bubbles, self.start_up)
        return {device: int(ns[0]) for device, ns in overhead_ns.items()}

    @cached_property
    def window_without_profiler_ns(self) -> int | None:
        """Length of this window without the profiler, ns; None if unknown, or hardly less."""
        return unprofiled_ns(self.graph, [self.window], self.bubbles, self.start_up)[0]

    @property
    def length_ns(self) -> int:
        """Length of this window, without the profiler where that is known, ns."""
        return self.window_without_profiler_ns or self.window.length_ns

    @cached_property
    def unprofiled_idle_ns(self) -> Mapping[int, int]:
        """Idle time of each device in this window's steps without the profiler, ns, if known."""
        return unprofiled_idle_ns(self.timeline, self.window)

    @cached_property
    def recording_idle(self) -> Mapping[int, Intervals]:
        """Device to its idle in the profiler's own code, or before the host first ran ahead."""
        by_profiler = self.bubbles.select(self.is_idle_by(Cause.PROFILER))
        return self.idle_by_device((*by_profiler, (self.start_up.not_ahead, self.start_up.by_host)))

    @cached_property
    def active_devices(self) -> tuple[int, ...]:
        """The devices that do at least a hundredth of what the busiest does in this window."""
        is_active = active_devices(self.graph, [self.window])
        return tuple(device for device, in_window in is_active.items() if in_window[0])

    @cached_property
    def deciding_device(self) -> int:
        """The device that decides how long the window takes: the busiest in it."""
        return self.timeline.busiest_device(self.window)

    @cached_property
    def steady_steps(self) -> tuple[Window, ...]:
        """The steady steps of the file, whichever window this is of."""
        steady = self.timeline.steady
        return tuple(self.timeline.windows[1 + i] for i in steady.indices) if steady else ()

    @property
    def typical_steps(self) -> tuple[Window, ...]:
        """The steady steps where this is their window; the step itself where it is one."""
        if self.window.step is not None:
            return (self.window,)
        steady = self.timeline.steady
        return self.steady_steps if steady and self.window == steady.window else ()

    def is_inside(self, start_ns: Int64Array, end_ns: Int64Array) -> BoolArray:
        """bool[k], which stretches of time are at least partly in the window."""
        return (start_ns < self.window.end_ns) & (end_ns > self.window.start_ns)

    def inside(self, start_ns: Int64Array, end_ns: Int64Array) -> Intervals:
        """Clip these stretches of time to the window."""
        return self._clip(union(start_ns, end_ns))

    def group_by_device(
        self, device_number: IntArray, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
    ) -> dict[int, Intervals]:
        """Device to the part of its stretches of time that is in the window, where there is any."""
        inside = {
            device: self.inside(start_ns[device_number == device], end_ns[device_number == device])
            for device in np.unique(device_number).tolist()
        }
        return {device: time for device, time in inside.items() if len(time)}

    @cached_property
    def has_caused_idle(self) -> BoolArray:
        """bool[blocking calls], those that caused idle time in the window."""
        idle = self.blocking_calls.attributed_idle
        is_inside = self.is_inside(idle.start_ns, idle.end_ns)
        has_caused = np.zeros(len(self.blocking_calls.calls), dtype=np.bool_)
        has_caused[idle.call_index[is_inside]] = True
        return read_only(has_caused)

    def idle_after(self, call_index: IntArray) -> dict[int, Intervals]:
        """Device to the idle time in the window that these blocking calls caused."""
        idle = self.blocking_calls.attributed_idle
        is_caused = np.isin(idle.call_index, call_index)
        return self.group_by_device(
            idle.device_number[is_caused], idle.start_ns[is_caused], idle.end_ns[is_caused]
        )

    def copies_pageable_memory(
        self, call_id: IntArray, call_sites: Sequence[CallSite]
    ) -> BoolArray:
        """bool[k], host calls (event ids) that copy between the GPU and pageable memory."""
        launch_id = self.timeline.launch_id[self.pageable_copy_row]
        is_scalar = [site.operator in _READS_SCALAR for site in call_sites]
        return np.isin(call_id, launch_id) & ~np.array(is_scalar, dtype=np.bool_)

    def time_of(self, rows: IntArray) -> dict[int, Intervals]:
        """Device to the time of these timeline rows that is in the window, where there is any."""
        timeline = self.timeline
        return self.group_by_device(
            timeline.device_number[rows], timeline.start_ns[rows], timeline.end_ns[rows]
        )

    def evidence(self, rows: IntArray, cost_ns: Int64Array | None = None) -> tuple[int, ...]:
        """Event ids of timeline rows, the most expensive first: the longest, without a cost."""
        if cost_ns is None:
            cost_ns = self.timeline.end_ns[rows] - self.timeline.start_ns[rows]
        return most_expensive(self.timeline.event_id[rows].tolist(), cost_ns.tolist())

    def time_of_pieces(
        self, pieces: Exposed | SerializedStreams, index: IntArray
    ) -> dict[int, Intervals]:
        """Device to the time of some of these pieces that is in the window, where there is any."""
        device, row = self.timeline.device_number, pieces.row[index]
        return self.group_by_device(device[row], pieces.start_ns[index], pieces.end_ns[index])

    def idle(self, device: int) -> Intervals:
        """The idle time of a device within the window."""
        return self._clip(self.bubbles.all_idle.intervals(device))

    def idle_within(self, times: Mapping[int, Intervals]) -> dict[int, Intervals]:
        """Device to its idle during its own of these times, where there is any."""
        idle = {device: intersect(time, self.idle(device)) for device, time in times.items()}
        return {device: time for device, time in idle.items() if len(time)}

    def idle_by_device(self, selection: Selection) -> dict[int, Intervals]:
        """Device to its selected idle time within the window, where there is any."""
        selected = self.bubbles.idle(selection)
        idle = {x: self._clip(selected.intervals(x)) for x in self.timeline.device_numbers}
        return {device: time for device, time in idle.items() if len(time)}

    def _clip(self, time: Intervals) -> Intervals:
        return clip(time, self.window.start_ns, self.window.end_ns)

    def is_idle_by(self, *causes: Cause) -> BoolArray:
        """bool[pieces], those of these causes."""
        return np.isin(self.idle_cause, causes)

    def kernel_name(self, row: int) -> str:
        """The name of a timeline row, without its arguments."""
        return short_kernel_name(self.trace.name_of(int(self.timeline.event_id[row])))

    def call_name(self, event_id: int) -> str:
        """The name of a host call; "a launch" for ABSENT."""
        return "a launch" if event_id == ABSENT else event_as_shown(self.trace.name_of(event_id))

    def origins_of(self, rows: IntArray) -> tuple[str, ...]:
        """Texts such as "captured at `Linear` in forward (model.py:7)" of timeline rows, or ""."""
        return origin_texts(self.timeline, self.origins, rows, self.lines)

    def call_sites(self, event_id: IntArray) -> tuple[CallSite, ...]:
        """Call sites of host events, int[k]; `NO_CALL_SITE` for ABSENT."""
        known_id = np.unique(event_id[event_id != ABSENT])
        if not len(known_id):
            return (NO_CALL_SITE,) * len(event_id)
        sites = call_sites(self.timeline, known_id, self.lines)
        site_of_event = dict(zip(known_id.tolist(), sites, strict=True))
        return tuple(site_of_event.get(event, NO_CALL_SITE) for event in event_id.tolist())
