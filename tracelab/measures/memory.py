"""Memory that PyTorch's allocator held on each GPU, and where it held most of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np

from tracelab.base.arrays import ABSENT, Int64Array, Record
from tracelab.measures.measure import Measure, constrained
from tracelab.measures.what_ran import line_name
from tracelab.model.graph import Graph
from tracelab.model.lookup import calls_of_name, match_names
from tracelab.model.program.call_sites import call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline

_ALLOCATING = ("cudaMalloc", "hipMalloc")
_FREEING = ("cudaFree", "hipFree")


class MemoryMetrics(Record):
    """Memory of one GPU in one window, of files recorded with ``profile_memory=True``.

    Attributes:
        device: the GPU's number.
        peak_allocated_bytes: the most that tensors held at a time.
        peak_reserved_bytes: the most that the allocator had taken from the GPU.
        grown_bytes: by how much more tensors held at its end than at its start, perhaps negative.
        retries: how often the allocator found no memory, gave back what it kept, and asked again.
        operator: the operator in which the peak was reached; None outside any, or if it was reached
            before the window.
        function: the program's function in which that was.
        where: its line: "train.py:40".
    """

    rank: int
    step: int | None
    device: int
    peak_allocated_bytes: Annotated[int, constrained(minimum=0)]
    peak_reserved_bytes: Annotated[int, constrained(minimum=0)]
    grown_bytes: int
    retries: Annotated[int, constrained(minimum=0)]
    operator: str | None
    function: str | None
    where: str | None


def memory(graph: Graph, windows: Sequence[Window], lines: SourceLines) -> Iterator[MemoryMetrics]:
    """Yield the memory of each GPU in each window in which something is known of it."""
    timeline = graph.host.timeline
    readings, retries = timeline.trace.memory, find_retries(timeline)
    for device in timeline.device_numbers:
        own = np.flatnonzero(readings.device_number == device)
        retried_ns = retries[device]
        for window in windows:
            bounds_ns = window.start_ns, window.end_ns
            if window.step is None:  # the whole trace begins before its first GPU activity
                bounds_ns = -(2**62), 2**62
            begin, end = np.searchsorted(readings.time_ns[own], bounds_ns).tolist()
            # The last reading before a window still holds when it begins.
            shown = own[max(0, begin - 1) : end]
            if not len(shown):
                continue
            allocated_bytes = readings.allocated_bytes[shown]
            peak = int(shown[np.argmax(allocated_bytes)])
            operator, function, where = None, None, None
            if readings.time_ns[peak] >= bounds_ns[0]:
                operator, function, where = _place(timeline, peak, lines)
            yield MemoryMetrics(
                rank=0,
                step=window.step,
                device=device,
                peak_allocated_bytes=max(0, int(allocated_bytes.max())),
                peak_reserved_bytes=max(0, int(readings.reserved_bytes[shown].max())),
                grown_bytes=int(allocated_bytes[-1] - allocated_bytes[0]),
                retries=int(np.diff(np.searchsorted(retried_ns, bounds_ns))[0]),
                operator=operator,
                function=function,
                where=where,
            )


def _place(
    timeline: Timeline, reading: int, lines: SourceLines
) -> tuple[str | None, str | None, str | None]:
    operators, memory = timeline.operators, timeline.trace.memory
    thread = int(memory.thread_index[reading])
    [entry] = operators.innermost_at(thread, memory.time_ns[reading : reading + 1])
    if entry == ABSENT:
        return None, None, None
    event_id = operators.event_id[[entry]]
    [site] = call_sites(timeline, event_id, lines)
    line = line_name(site)
    return timeline.trace.name_of(int(event_id[0])), site.function, line.where if line else None


def find_retries(timeline: Timeline) -> dict[int, Int64Array]:
    """Find, by GPU, when the allocator found no memory, gave back what it kept, and asked again.

    There `cudaMalloc` follows `cudaFree` in the same operator, and before any other such call the
    reading of what was allocated follows in it: the allocator's, not a library's.
    """
    trace, readings = timeline.trace, timeline.trace.memory
    calls = calls_of_name(trace, lambda name: name in (*_ALLOCATING, *_FREEING))
    calls = calls[np.argsort(trace.thread_index[calls], kind="stable")]
    frees = match_names(trace, calls, _FREEING.__contains__)
    operator, thread = timeline.operators.innermost(calls), trace.thread_index[calls]
    follows = (operator[1:] == operator[:-1]) & (thread[1:] == thread[:-1])
    again = 1 + np.flatnonzero(follows & frees[:-1] & ~frees[1:] & (operator[1:] != ABSENT))
    found: dict[int, list[int]] = {device: [] for device in timeline.device_numbers}
    for call in again.tolist():
        own = np.flatnonzero(readings.thread_index == thread[call])
        read_ns = readings.time_ns[own]
        following = int(np.searchsorted(read_ns, trace.end_ns[calls[call]]))
        until_ns = timeline.operators.end_ns[operator[call]]
        if (thread[call + 1 : call + 2] == thread[call]).any():
            until_ns = min(until_ns, trace.start_ns[calls[call + 1]])
        if following < len(own) and read_ns[following] < until_ns:
            device = int(readings.device_number[own[following]])
            found.setdefault(device, []).append(int(trace.start_ns[calls[call]]))
    return {device: np.array(sorted(x), dtype=np.int64) for device, x in found.items()}


MEASURE = Measure("memory", MemoryMetrics, memory)
