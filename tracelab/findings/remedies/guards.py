"""What keeps remedies from false alarms: does it go on, what does it hold, what is it called in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import read_only
from tracelab.intervals import Int64Array
from tracelab.model.graph import Graph
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.trace import ABSENT, Category, Trace

NO_EVENTS: Int64Array = read_only(np.zeros(0, dtype=np.int64))

Events = NDArray[np.integer[Any]]


def recurring(graph: Graph, events: Events, *, least: int = 2) -> Int64Array:
    """These host events, if they go on: none unless several steady steps have any.

    The first recorded step counts for nothing, as what comes once comes there. So does a file
    without steps, which does not say what a step repeats.

    Args:
        graph: the file's dependencies.
        events: int[k], event ids.
        least: how many steps.
    """
    timeline = graph.host.timeline
    if timeline.steady is None or not len(events):
        return NO_EVENTS
    step_index = step_indices(graph, events)
    later = [index for index in timeline.steady.indices if index > 0]
    is_often = len(np.intersect1d(step_index, later)) >= least
    return events.astype(np.int64) if is_often else NO_EVENTS


def step_indices(graph: Graph, events: Events) -> NDArray[np.intp]:
    """intp[k], index into `Timeline.steps` of the step in which the host was; ABSENT before."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    begins_ns = trace.start_ns[[step.event_id for step in timeline.steps]]
    return np.searchsorted(begins_ns, trace.start_ns[events], side="right") - 1


def are_inside(trace: Trace, events: Events, regions: Events) -> NDArray[np.bool_]:
    """bool[k], which host events are inside, or one of, some others of their thread."""
    if not len(regions):
        return np.zeros(len(events), dtype=np.bool_)
    inside: NDArray[np.bool_] = Nesting(trace, regions).innermost(events.astype(np.int64)) != ABSENT
    return inside


def counts_inside(trace: Trace, regions: Events, events: Events) -> NDArray[np.intp]:
    """intp[regions], how many of some host events begin in each region, on its thread."""
    counts = np.zeros(len(regions), dtype=np.intp)
    for thread, index in groups_of(trace.thread_index[regions]):
        starts_ns = np.sort(trace.start_ns[events[trace.thread_index[events] == thread]])
        first = np.searchsorted(starts_ns, trace.start_ns[regions[index]])
        counts[index] = np.searchsorted(starts_ns, trace.end_ns[regions[index]]) - first
    return counts


def are_in_launching_thread(graph: Graph, events: Events) -> NDArray[np.bool_]:
    """bool[k], which host events are of a thread that launches work."""
    threads = sorted(graph.host.launching_threads)
    return np.isin(graph.host.timeline.trace.thread_index[events], threads)


def parents_match(graph: Graph, operators: Events, test: Callable[[str], object]) -> Int64Array:
    """Those of some operators whose next operator around them has a name that passes a test."""
    nesting = graph.host.timeline.operators
    is_chosen = np.isin(nesting.event_id, operators) & (nesting.parent_index != ABSENT)
    index = np.flatnonzero(is_chosen)
    passes = match_names(
        graph.host.timeline.trace, nesting.event_id[nesting.parent_index[index]], test
    )
    return nesting.event_id[index[passes]]


def named(trace: Trace, test: Callable[[str], object], *categories: Category) -> Int64Array:
    """Event ids of some categories whose name passes a test."""
    events = trace.of_category(*categories)
    return events[match_names(trace, events, test)].astype(np.int64)
