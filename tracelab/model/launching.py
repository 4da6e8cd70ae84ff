"""Tell launching from other work of the program, where nothing is launched for a while."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.frames import is_of_torch, is_source_function
from tracelab.model.lookup import groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, Trace


class Doing(IntEnum):
    """Work of a host thread at a moment."""

    UNKNOWN = ABSENT
    LAUNCHING = 0
    OTHER = 1


def work_at(
    timeline: Timeline, thread_index: NDArray[np.integer], moments_ns: Int64Array
) -> NDArray[np.int8]:
    """Say whether threads were launching at some moments, or did other work.

    A thread launches in an operator that launches something and in PyTorch's own functions, though
    these look through all parameters first. It does other work in any other function.

    Args:
        timeline: the trace.
        thread_index: int[k], index into `Trace.threads`.
        moments_ns: int64[k], ns.

    Returns:
        int8[k], of `Doing`.
    """
    trace, work = timeline.trace, np.full(len(moments_ns), Doing.UNKNOWN, dtype=np.int8)
    calls = Nesting(trace, _running_at(trace, moments_ns))
    of_operator = trace.category[calls.event_id] == Category.OPERATOR
    is_function = ~of_operator & calls.have_name(is_source_function)
    launches = of_operator & _launch(calls, timeline)
    launches |= is_function & calls.have_name(is_of_torch)
    doing = np.append(np.where(launches, Doing.LAUNCHING, Doing.OTHER), Doing.UNKNOWN)
    for thread, of_thread in groups_of(thread_index):
        by_time = of_thread[np.argsort(moments_ns[of_thread], kind="stable")]
        innermost = calls.innermost_at(thread, moments_ns[by_time])
        work[by_time] = doing[calls.around(innermost, is_function | launches)]
    return work


def _running_at(trace: Trace, moments_ns: Int64Array) -> NDArray[np.intp]:
    """The operators and functions of any thread that run at any of some moments: event ids."""
    events, moments_ns = trace.of_category(Category.OPERATOR, Category.PYTHON), np.sort(moments_ns)
    first = np.searchsorted(moments_ns, trace.start_ns[events])
    return events[np.searchsorted(moments_ns, trace.end_ns[events]) > first]


def _launch(calls: Nesting, timeline: Timeline) -> NDArray[np.bool_]:
    """bool[n], during which calls their thread launched something."""
    trace, launch = timeline.trace, np.zeros(len(calls.event_id), dtype=np.bool_)
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    for thread, of_thread in groups_of(trace.thread_index[launch_id]):
        launch_ns, own = np.sort(trace.start_ns[launch_id[of_thread]]), calls.entries_of(thread)
        first = np.searchsorted(launch_ns, calls.start_ns[own])
        launch[own] = np.searchsorted(launch_ns, calls.end_ns[own]) > first
    return launch
