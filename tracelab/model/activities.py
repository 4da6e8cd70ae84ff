"""GPU activities in order, with their launches and steps."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from tracelab.base.arrays import (
    Arrays,
    BoolArray,
    IndexArray,
    Int8Array,
    Int32Array,
    Int64Array,
    Record,
    read_only,
)
from tracelab.base.intervals import Intervals, clip, measure, union
from tracelab.base.options import PROFILER_STEP
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.lookup import Nesting, match_names, range_of
from tracelab.model.steps import Step, UnusedSteps, Window
from tracelab.model.trace import ABSENT, Category, Trace


class Stream(Record):
    """One stream of one device; its activities are the timeline's rows [first_row, end_row)."""

    device_number: int
    stream_number: int
    first_row: int
    end_row: int


class Activities(Arrays, dict=True):
    """A trace's GPU activities, ordered by device, stream, start, end and event id.

    Attributes:
        event_id, kind: [m], and a `Kind`.
        streams: by device and stream; each one a slice of the rows.
        launch_id: the host call that launched each activity, else ABSENT.
        step_index: the one of `steps`, by start, that launched each, else ABSENT.
        overlaps_previous: whether it starts before the one before it in its stream ends, as its
            launch allows; `overlapping_count` do so though their launch does not allow it.
        unused_steps: annotations that match `step_pattern` and are not in `steps`.
    """

    trace: Trace
    event_id: Int64Array
    kind: Int8Array
    streams: tuple[Stream, ...]
    launch_id: Int64Array
    step_index: Int32Array
    steps: tuple[Step, ...]
    overlaps_previous: BoolArray
    overlapping_count: int
    unused_steps: tuple[UnusedSteps, ...]
    step_pattern: str | None

    @cached_property
    def start_ns(self) -> Int64Array:
        """int64[m], ns."""
        return read_only(self.trace.start_ns[self.event_id])

    @cached_property
    def end_ns(self) -> Int64Array:
        """int64[m], ns."""
        return read_only(self.trace.end_ns[self.event_id])

    @cached_property
    def device_number(self) -> Int32Array:
        """int32[m]."""
        device: Int32Array = self.trace.device_number[self.event_id]
        return read_only(device)

    @cached_property
    def stream_index(self) -> IndexArray:
        """intp[m], index into `streams`."""
        lengths = [stream.end_row - stream.first_row for stream in self.streams]
        return read_only(np.repeat(np.arange(len(self.streams)), lengths))

    @cached_property
    def first_start_of_launch_ns(self) -> Int64Array:
        """[m], when the first of all activities of each one's launch started."""
        launch_ids, launch_index = np.unique(self.launch_id, return_inverse=True)
        first_start_ns = np.full(len(launch_ids), np.iinfo(np.int64).max)
        np.minimum.at(first_start_ns, launch_index, self.start_ns)
        is_launched = self.launch_id != ABSENT
        return read_only(np.where(is_launched, first_start_ns[launch_index], self.start_ns))

    @property
    def device_numbers(self) -> tuple[int, ...]:
        """Every device that worked, ascending."""
        return tuple(dict.fromkeys(stream.device_number for stream in self.streams))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The whole trace, then each step."""
        whole = Window(None, int(self.start_ns.min()), int(self.end_ns.max()))
        return (whole, *(Window(step.number, step.start_ns, step.end_ns) for step in self.steps))

    @cached_property
    def operators(self) -> Nesting:
        """The operators of every thread as trees, without the steps."""
        return Nesting(self.trace, self.ids_except_steps(Category.OPERATOR))

    def ids_except_steps(self, category: Category) -> IndexArray:
        """Event ids of operators or annotations but the steps, which old files write as both."""
        return self._regions[category]

    @cached_property
    def _regions(self) -> dict[Category, IndexArray]:
        is_step = np.zeros(len(self.trace), dtype=np.bool_)
        is_step[[step.event_id for step in self.steps]] = True
        found = {}
        for category in (Category.OPERATOR, Category.ANNOTATION):
            events = self.trace.of_category(category)
            has_name = match_names(self.trace, events, re.compile(PROFILER_STEP).search)
            found[category] = read_only(events[~is_step[events] & ~has_name])
        return found

    def busy(self, rows: BoolArray | slice = slice(None)) -> Intervals:
        """Intervals in which at least one of these activities ran; by default any."""
        return union(self.start_ns[rows], self.end_ns[rows])

    def select(self, *, device: int | None = None, kind: Kind | None = None) -> BoolArray:
        """[m], which activities are of this device and kind."""
        chosen = np.zeros(len(self.event_id), dtype=np.bool_)
        chosen[slice(None) if device is None else self.rows_of(device)] = True
        if kind is not None:
            chosen &= self.kind == kind
        return chosen

    def rows_of(self, device: int) -> slice:
        """The activities of one device."""
        return range_of(self.device_number, device)

    def copies(self, direction: str) -> BoolArray:
        """[m], which activities copy in a direction, as of `copy_direction`."""
        return match_names(
            self.trace, self.event_id, lambda name: copy_direction(name) == direction
        )

    def busiest_device(self, window: Window) -> int:
        """The device that works longest in a window, and so decides its length."""
        busy_ns = {
            device: measure(clip(self.busy(self.rows_of(device)), window.start_ns, window.end_ns))
            for device in self.device_numbers
        }
        return max(busy_ns, key=lambda device: busy_ns[device])
