"""Waits for the GPU, copies and memory: what the host reads, moves and gives back."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.advice.needs import Awaited, awaited_results, fed_back, own_waits
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_inside,
    blocks,
    called_directly,
    calls_of_copies,
    chosen,
    functions_around,
    named,
    operators_named,
    step_indices,
)
from tracelab.model.driver_api import is_allocation
from tracelab.model.frames import is_built_in
from tracelab.model.graph import Graph
from tracelab.model.lookup import calls_of_name, groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT, Category

_TIMES = re.compile(
    r"^<built-in (?:function|method) (?:time|time_ns|perf_counter|perf_counter_ns|monotonic"
    r"|monotonic_ns|elapsed_time)\b|: elapsed_time$"
)
_INDEXES = re.compile(r"^aten::(?:select|slice|narrow|index_select|arange|view|reshape|expand)$")
# From the read of an index to the operator that takes it.
_MAX_INDEXING_NS = 5_000
_READS = re.compile(r"^<built-in method (?:item|tolist|__\w+__) of ")
_MAKES = re.compile(
    r"^<built-in method (?:tensor|as_tensor|from_numpy|scalar_tensor|full|zeros|ones|empty|arange"
    r"|linspace|eye|rand|randn|randint|randperm) of "
)
# The read's own copy is one of them.
_MAX_LAUNCHES_BETWEEN_READS = 5
_MAX_BYTES = 65_536
# Small copies that directly follow another one.
_MIN_COPIES_OF_STEP = 10
# DataLoader's thread that copies batches into pinned memory, as PyTorch names it and its function.
_PINNING_THREAD = re.compile(r"pt_data_pin|pin_memory")
_PINNING = re.compile(r"torch/utils/data/_utils/pin_memory\.py\(\d+\): ")


def synchronizes(graph: Graph, _events: Int64Array, *, awaited: str) -> Int64Array:
    """The calls that do nothing but wait, that no operator made, and that let the host read this.

    Args:
        graph: the file's dependencies.
        awaited: "result" or "nothing", what the host may read behind them.
    """
    waits = own_waits(graph)
    return chosen(waits, awaited_results(graph, waits) == Awaited[awaited.upper()])


def reads_of_results(graph: Graph, events: Int64Array) -> Int64Array:
    """The reads that block, and the waits for a copy to the host with no replay behind it."""
    operators = operators_named(graph.host.timeline, r"^aten::(?:item|to|_to_copy|copy_)$")
    reads = blocks(graph, called_directly(graph, operators))
    return np.concatenate((reads, synchronizes(graph, events, awaited="result")))


def fed_back_calls(graph: Graph, _events: Int64Array, *, kind: str) -> Int64Array:
    """The reads that block for what is copied to the GPU next, or these copies.

    Args:
        graph: the file's dependencies.
        kind: "input" for reads from which the host computes it, "returned" for those of the same
            value, "copy" for copies of what was computed.
    """
    found, calls = fed_back(graph), graph.host.blocking_calls.event_id
    reads = {"input": found.is_input, "returned": found.is_returned}
    return found.copy_id if kind == "copy" else calls[reads[kind]]


def copy_calls(
    graph: Graph, _events: Int64Array, *, direction: str, min_bytes: int = 0
) -> Int64Array:
    """The calls that copy pageable memory in a direction, "h2d" or "d2h".

    Args:
        graph: the file's dependencies.
        direction: of the copies.
        min_bytes: of each, where the file says its size.
    """
    timeline = graph.host.timeline
    size_bytes = timeline.trace.copied_bytes[timeline.event_id]
    is_small = (size_bytes != ABSENT) & (size_bytes < min_bytes)
    calls = calls_of_copies(timeline, direction, is_pageable=True)
    return np.setdiff1d(calls, timeline.launch_id[is_small])


def allocations(graph: Graph, _events: Int64Array) -> Int64Array:
    """The allocator's calls."""
    return calls_of_name(graph.host.timeline.trace, is_allocation).astype(np.int64)


def called_in_pinning_thread(graph: Graph, events: Int64Array) -> Int64Array:
    """The calls of DataLoader's thread that pins, by its name or its functions."""
    trace = graph.host.timeline.trace
    is_named = np.array([bool(_PINNING_THREAD.search(x.name)) for x in trace.threads], dtype=bool)
    pins = is_named[trace.thread_index[events]]
    pins |= are_inside(trace, events, named(trace, _PINNING.search, Category.PYTHON))
    return chosen(events, pins)


def before_reading_clock(graph: Graph, events: Int64Array) -> Int64Array:
    """The functions (frames) after which the function around them reads a clock next."""
    frames = python_frames(graph.host.timeline)
    index = np.flatnonzero(np.isin(frames.event_id, events))
    following = _first_after(frames, index)
    is_clock = np.append(frames.have_name(_TIMES.search), False)
    is_next = is_clock[following] & (frames.parent_index[following] == frames.parent_index[index])
    return chosen(frames.event_id, index[is_next])


def used_as_index(graph: Graph, events: Int64Array) -> Int64Array:
    """The reads (`aten::item`) that the program did not ask for by name: an index, a size, a range.

    The operator that takes the number follows directly, and Python calls nothing in between.
    """
    timeline = graph.host.timeline
    operators, frames = timeline.operators, python_frames(timeline)
    index = np.flatnonzero(np.isin(operators.event_id, events))
    following = _first_after(operators, index)
    soon = operators.start_ns[following] - operators.end_ns[index] <= _MAX_INDEXING_NS
    soon &= operators.parent_index[following] == operators.parent_index[index]
    takes = np.append(operators.have_name(_INDEXES.match), False)[following] & soon
    read_frame = frames.innermost(operators.event_id[index])
    is_asked = np.append(frames.have_name(_READS.match), False)[read_frame]
    calls_nothing = np.zeros(len(index), dtype=np.bool_)
    for thread, own in groups_of(np.where(takes, operators.thread_index[index], ABSENT)):
        starts_ns = frames.start_ns[frames.entries_of(thread)]
        first = np.searchsorted(starts_ns, operators.end_ns[index[own]])
        end = np.searchsorted(starts_ns, operators.start_ns[following[own]])
        calls_nothing[own] = first == end
    return chosen(operators.event_id, index[takes & ~is_asked & calls_nothing])


def reads_in_a_row(graph: Graph, events: Int64Array, *, least: int) -> Int64Array:
    """At least `least` reads of one function, one after another with few launches in between."""
    timeline = graph.host.timeline
    trace, frames = timeline.trace, python_frames(timeline)
    events = events[np.lexsort((trace.start_ns[events], trace.thread_index[events]))]
    launched = np.zeros(len(events), dtype=np.int64)
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    for thread, own in groups_of(trace.thread_index[events]):
        starts_ns = np.sort(trace.start_ns[launch_id[trace.thread_index[launch_id] == thread]])
        launched[own] = np.searchsorted(starts_ns, trace.start_ns[events[own]])
    goes_on = np.diff(launched, prepend=0) <= _MAX_LAUNCHES_BETWEEN_READS
    function = frames.names(functions_around(graph, events))
    for same in (trace.thread_index[events], function, step_indices(graph, events)):
        goes_on &= np.diff(same, prepend=ABSENT) == 0
    run = np.cumsum(~goes_on)
    return chosen(events, np.bincount(run, minlength=1)[run] >= least)


def made_of_values(graph: Graph, events: Int64Array) -> Int64Array:
    """The moves to a device (`aten::to`) of a tensor that the program has just made on the host.

    PyTorch lifts one of Python's values next (`aten::lift_fresh`); any other was made by the
    built-in function before the one that moves it, as in ``torch.from_numpy(x).to(device)``.
    """
    operators, frames = graph.host.timeline.operators, python_frames(graph.host.timeline)
    index = np.flatnonzero(np.isin(operators.event_id, events))
    following = _first_after(operators, index)
    is_lift = np.append(operators.have_name(lambda name: name == "aten::lift_fresh"), False)
    is_made = operators.parent_index[following] == operators.parent_index[index]
    is_made &= is_lift[following]
    maker = np.flatnonzero(frames.have_name(_MAKES.match))
    mover = _first_after(frames, maker)
    mover = mover[frames.parent_index[mover] == frames.parent_index[maker]]
    is_made |= np.isin(frames.innermost(operators.event_id[index]), mover[mover != ABSENT])
    return chosen(operators.event_id, index[is_made])


def _first_after(nesting: Nesting, index: Int64Array) -> Int64Array:
    """int64[k], the first entry of the thread that begins when each one has ended, else ABSENT."""
    following = np.full(len(index), ABSENT, dtype=np.int64)
    for thread, of_thread in groups_of(nesting.thread_index[index]):
        own = nesting.entries_of(thread)
        next_ = np.searchsorted(nesting.start_ns[own], nesting.end_ns[index[of_thread]])
        following[of_thread] = np.where(next_ < own.stop - own.start, next_ + own.start, ABSENT)
    return following


def small_copies_in_a_row(graph: Graph, _events: Int64Array) -> Int64Array:
    """Small copies that directly follow another one on their thread, in steps that have many.

    The first of a row stays: it stands for the copy that replaces them. Copies with other launches
    between them are needed at different times.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    call_id = timeline.launch_id[launched]
    order = np.lexsort((trace.start_ns[call_id], trace.thread_index[call_id]))
    launched, call_id = launched[order], call_id[order]
    is_small = timeline.copies("h2d")[launched]
    size_bytes = trace.copied_bytes[timeline.event_id[launched]]
    is_small &= (size_bytes != ABSENT) & (size_bytes <= _MAX_BYTES)
    follows = is_small[1:] & is_small[:-1]
    follows &= trace.thread_index[call_id[1:]] == trace.thread_index[call_id[:-1]]
    following = call_id[1:][follows].astype(np.int64)
    if not len(following) or timeline.steady is None:
        return NO_EVENTS
    step, of_step, count = np.unique(
        step_indices(graph, following), return_inverse=True, return_counts=True
    )
    many = following[(count[of_step] >= _MIN_COPIES_OF_STEP) & (step[of_step] >= 0)]
    # Without a copy all that was called for it goes: its memory, and the wait for it.
    operators, frames = timeline.operators, python_frames(timeline)
    around = operators.around(operators.innermost(many), operators.parent_index == ABSENT)
    called = frames.innermost(many)
    called = called[np.append(frames.have_name(is_built_in), False)[called]]
    for_them = (operators.event_id[around[around != ABSENT]], frames.event_id[called])
    return np.unique(np.concatenate((many, *for_them)))
