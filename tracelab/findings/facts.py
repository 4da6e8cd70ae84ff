"""What the rules look at: the measures of one window, and where in the program things are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.wording import short_name
from tracelab.intervals import Int64Array, Intervals, clip, union
from tracelab.measures.blocking_calls import BlockingCallCosts
from tracelab.measures.bubbles import Bubbles, Cause
from tracelab.measures.exposed import Exposed, launched_in_backward
from tracelab.measures.idle_culprits import idle_culprits
from tracelab.measures.profiler_overhead import (
    active_devices,
    profiler_overhead_ns,
    unprofiled_ns,
)
from tracelab.measures.serialized_streams import SerializedStreams, serialized_streams
from tracelab.model.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory
from tracelab.model.lookup import match_names
from tracelab.model.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Trace


@dataclass(frozen=True)
class Context:
    """One window of one file.

    Attributes:
        graph: the file's dependencies.
        window: the window to explain.
        rank: the file's rank.
        bubbles: the idle time, at least of this window.
        exposed: what ran unhidden, in the whole file.
        syncs: the blocking calls of the file.
        losses: what was lost of the file, by the names in `LOSSES`.
        lines: where source files are looked for.
        blocks_per_sm: how many blocks of a kernel each multiprocessor gets, by event id; without
            the events of which the file does not say.
    """

    graph: Graph
    window: Window
    rank: int
    bubbles: Bubbles
    exposed: Exposed
    blocking_calls: BlockingCallCosts
    losses: Mapping[str, int]
    lines: SourceLines
    blocks_per_sm: Callable[[Iterable[int]], Mapping[int, float]]
    _places: dict[int, CallSite] = field(default_factory=dict)

    @property
    def timeline(self) -> Timeline:
        """The GPU activities in order."""
        return self.graph.host.timeline

    @property
    def trace(self) -> Trace:
        """The file's events."""
        return self.timeline.trace

    @cached_property
    def pageable_copies(self) -> NDArray[np.intp]:
        """Timeline rows of the launched copies between the GPU and pageable memory."""
        copies = match_names(self.trace, self.timeline.event_id, copies_pageable_memory)
        copies &= (self.timeline.kind == Kind.COPY) & (self.timeline.launch_id != ABSENT)
        return np.flatnonzero(copies)

    @cached_property
    def pageable_launches(self) -> frozenset[int]:
        """Event ids of the calls that launched these copies."""
        return frozenset(self.timeline.launch_id[self.pageable_copies].tolist())

    @cached_property
    def in_backward(self) -> NDArray[np.bool_]:
        """bool[m], which timeline rows autograd's threads launched."""
        return launched_in_backward(self.timeline)

    @property
    def unprofiled_step_ns(self) -> float | None:
        """How long the capture measured a step to take without the profiler; None if it did not."""
        return self.trace.info.unprofiled_step_ns

    @cached_property
    def profiler_overhead_ns(self) -> Mapping[int, int]:
        """By how much the profiler made this window longer, by device, ns; 0 where unknown."""
        slowed = profiler_overhead_ns(self.timeline, self.bubbles, [self.window])
        return {device: int(ns[0]) for device, ns in slowed.items()}

    @cached_property
    def unprofiled_ns(self) -> int | None:
        """What this window would take without the profiler; None if unknown, or hardly less."""
        return unprofiled_ns(self.timeline, self.bubbles, [self.window])[0]

    @cached_property
    def active_devices(self) -> tuple[int, ...]:
        """The devices that do at least a hundredth of what the busiest does in this window."""
        return tuple(
            x for x, working in active_devices(self.timeline, [self.window]).items() if working[0]
        )

    @cached_property
    def idle_culprits(self) -> Int64Array:
        """int64[bubbles], the event that held each one, else ABSENT."""
        return idle_culprits(self.graph, self.bubbles)

    @cached_property
    def serialized_streams(self) -> SerializedStreams:
        """Which streams took turns, in the whole file."""
        return serialized_streams(self.graph)

    def inside(self, start_ns: Int64Array, end_ns: Int64Array) -> Intervals:
        """The part of these stretches that is in the window."""
        return clip(union(start_ns, end_ns), self.window.start_ns, self.window.end_ns)

    def by_device(
        self,
        device: NDArray[np.integer[Any]],
        start_ns: NDArray[np.int64],
        end_ns: NDArray[np.int64],
    ) -> dict[int, Intervals]:
        """Device to the part of its stretches that is in the window, where there is any."""
        found = {
            x: self.inside(start_ns[device == x], end_ns[device == x])
            for x in np.unique(device).tolist()
        }
        return {x: time for x, time in found.items() if len(time)}

    def idle(self, device: int, chosen: NDArray[np.bool_] | None = None) -> Intervals:
        """The chosen bubbles of a device, or all of them, within the window."""
        rows = self.bubbles.device_number == device
        if chosen is not None:
            rows &= chosen
        return self.inside(self.bubbles.start_ns[rows], self.bubbles.end_ns[rows])

    def idle_by(self, *causes: Cause) -> NDArray[np.bool_]:
        """bool[bubbles], those of these causes."""
        return np.isin(self.bubbles.cause, causes)

    def launch_of(self, row: int) -> int:
        """Event id of the call that launched a timeline row, else ABSENT."""
        return int(self.timeline.launch_id[row])

    def name(self, row: int) -> str:
        """The name of a timeline row, without its arguments."""
        return short_name(self.trace.name_of(int(self.timeline.event_id[row])))

    def call_name(self, event: int) -> str:
        """The name of a host call; "a launch" for ABSENT."""
        return "a launch" if event == ABSENT else self.trace.name_of(event)

    def call_sites(self, events: Iterable[int]) -> list[CallSite]:
        """Where host events are in the program; nowhere for ABSENT."""
        wanted = list(events)
        new = sorted({x for x in wanted if x != ABSENT and x not in self._places})
        if new:
            found = call_sites(self.timeline, np.array(new, dtype=np.int64), self.lines)
            self._places.update(zip(new, found, strict=True))
        return [NO_CALL_SITE if x == ABSENT else self._places[x] for x in wanted]
