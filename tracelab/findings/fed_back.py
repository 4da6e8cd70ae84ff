"""Reads that the host needs to compute what it copies to the GPU next, or that it copies back.

A read feeds an input if the same thread's next launch is a copy to the GPU, no data loader runs in
between, and no training step lies between the copy before and the read. After a training step the
host reads a loss and continues with the next batch, as it does if the copy is in the next step.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.measures.independent_work import launched_by_optimizer, launched_in_backward
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.trace import ABSENT

# The host computes between a read and the next copy to the GPU if that takes so many times as long
# as it usually takes from launch to launch.
_MIN_COMPUTE_RATIO = 3
# What comes of an action is small: a batch of data is not computed from the loss that was read.
_MAX_INPUT_BYTES_PER_READ_BYTE = 4096
# Of the reads of a thread: fewer are by chance.
_MIN_FED_SHARE_OF_READS = 0.1


class FedBack(NamedTuple):
    """Reads and the copies that follow them.

    Attributes:
        is_input: bool[k], the blocking calls for a value from which the host computes what it
            copies to the GPU next.
        is_returned: bool[k], those right after which as many bytes are copied back.
        copy_id: int64[c], event ids of the calls that copy what was computed.
    """

    is_input: NDArray[np.bool_]
    is_returned: NDArray[np.bool_]
    copy_id: Int64Array


class _Launches(NamedTuple):
    """The launches of a thread, in order: when, and what copy (its direction, else "") they are."""

    event_id: Int64Array
    start_ns: Int64Array
    step_index: NDArray[np.int32]
    direction: NDArray[np.str_]
    copied_bytes: Int64Array


def fed_back(graph: Graph) -> FedBack:
    """Find the reads of a file that its next copies to the GPU are made of."""
    calls, training_ns = graph.host.blocking_calls, _training_ns(graph)
    is_input, is_returned = np.zeros((2, len(calls)), dtype=np.bool_)
    copy_id = [np.zeros(0, dtype=np.int64)]
    is_wait = calls.kind != Blocking.ALLOCATION
    for thread, index in groups_of(np.where(is_wait, calls.thread_index, ABSENT)):
        launches = _launches_of(graph, thread)
        before = np.searchsorted(launches.start_ns, calls.start_ns[index], side="right") - 1
        is_between = (before >= 0) & (before + 1 < len(launches.start_ns))
        reads, before_read = index[is_between], before[is_between]
        if not len(reads):
            continue
        after = before_read + 1
        is_fed = _are_fed(graph, launches, reads, before_read, training_ns)
        read_bytes, written_bytes = launches.copied_bytes[before_read], launches.copied_bytes[after]
        gap_ns = launches.start_ns[after] - calls.end_ns[reads]
        computes = gap_ns >= _MIN_COMPUTE_RATIO * np.median(np.diff(launches.start_ns))
        goes_back = (written_bytes == read_bytes) & (read_bytes > 0)
        is_small = written_bytes <= _MAX_INPUT_BYTES_PER_READ_BYTE * read_bytes
        is_next_step = launches.step_index[before_read] != launches.step_index[after]
        least = _MIN_FED_SHARE_OF_READS * (launches.direction[before_read] == "d2h").sum()
        is_input[reads] = _usual(is_fed & computes & is_small, is_next_step, least)
        is_returned[reads] = _usual(is_fed & ~computes & goes_back, is_next_step, least)
        copy_id.append(launches.event_id[after[is_input[reads]]])
        if is_input[reads].any():  # so are the last read and the first copy of the file
            is_last = before == len(launches.start_ns) - 1
            is_input[index[is_last & (launches.direction[before] == "d2h")]] = True
            copy_id.append(launches.event_id[:1][launches.direction[:1] == "h2d"])
    return FedBack(is_input, is_returned, np.unique(np.concatenate(copy_id)))


def _usual(
    is_chosen: NDArray[np.bool_], is_next_step: NDArray[np.bool_], least: float
) -> NDArray[np.bool_]:
    """bool[k], reads that feed a copy: those into the next step only if most are within one.

    Args:
        is_chosen: bool[k], those that may.
        is_next_step: bool[k], those whose copy is in the next step.
        least: the smallest number that counts.
    """
    within = is_chosen & ~is_next_step
    is_usual = within.sum() > (is_chosen & is_next_step).sum()
    usual = is_chosen if is_usual else within
    return usual if usual.sum() >= least else np.zeros_like(usual)


def _are_fed(
    graph: Graph,
    launches: _Launches,
    reads: NDArray[np.intp],
    before: NDArray[np.intp],
    training_ns: Int64Array,
) -> NDArray[np.bool_]:
    """bool[k], blocking calls of a thread between a read and a copy that it may feed.

    Args:
        graph: the file's dependencies.
        launches: those of the thread.
        reads: intp[k], index of blocking calls.
        before: intp[k], index of the launch before each; there is one after it as well.
        training_ns: int64[t], when training steps launched.
    """
    calls, trace = graph.host.blocking_calls, graph.host.timeline.trace
    start_ns, end_ns = calls.start_ns[reads], calls.end_ns[reads]
    into_gpu = launches.direction == "h2d"
    is_fed: NDArray[np.bool_] = (launches.direction[before] == "d2h") & into_gpu[before + 1]
    loading_id = graph.host.loading_id
    loading = union(trace.start_ns[loading_id], trace.end_ns[loading_id])
    is_fed &= measure_within(loading, end_ns, launches.start_ns[before + 1]) == 0
    copied_ns = np.append(0, launches.start_ns[into_gpu])
    since_ns = copied_ns[np.searchsorted(copied_ns, start_ns) - 1]
    trained = np.searchsorted(training_ns, start_ns) - np.searchsorted(training_ns, since_ns)
    is_fed &= trained == 0
    return is_fed


def _launches_of(graph: Graph, thread: int) -> _Launches:
    timeline = graph.host.timeline
    trace = timeline.trace
    rows = np.flatnonzero(timeline.launch_id != ABSENT)
    rows = rows[trace.thread_index[timeline.launch_id[rows]] == thread]
    start_ns, first = np.unique(trace.start_ns[timeline.launch_id[rows]], return_index=True)
    rows = rows[first]
    event_id = timeline.event_id[rows]
    is_copy = timeline.kind[rows] == Kind.COPY
    direction = np.full(len(rows), "", dtype="<U3")
    for to in ("h2d", "d2h"):
        direction[is_copy & match_names(trace, event_id, partial(_is_copy, to))] = to
    launch_id, copied_bytes = timeline.launch_id[rows], trace.copied_bytes[event_id]
    return _Launches(launch_id, start_ns, timeline.step_index[rows], direction, copied_bytes)


def _is_copy(direction: str, name: str) -> bool:
    return copy_direction(name) == direction


def _training_ns(graph: Graph) -> Int64Array:
    """int64[k], ns, ascending: when backward passes and optimizers launched."""
    timeline = graph.host.timeline
    is_training = launched_in_backward(timeline) | launched_by_optimizer(timeline)
    return np.sort(timeline.trace.start_ns[timeline.launch_id[is_training]])
