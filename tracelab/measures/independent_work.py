"""Work that a copy or a collective could have overlapped, and its amount.

The work *before* a copy to the GPU or an all-gather, whose data are there early, is independent;
the work *after* an all-reduce, a reduce-scatter or a copy from the GPU, which is needed late. What
a stage of a pipeline receives is needed immediately.
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from tracelab.base.arrays import BoolArray, IndexArray, Int8Array, Int64Array, read_only
from tracelab.base.intervals import Intervals, measure_within, union
from tracelab.measures.overlap_blockers import OverlapBlockers
from tracelab.model.frames import is_autograd_node
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, match_names, reach_in_group
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

_END_OF_TIME = np.iinfo(np.int64).max
_NEEDS_NOTHING_BEFORE = re.compile(r"all_?gather", re.IGNORECASE)
_NEEDED_AT_ONCE = re.compile(
    r"send_?recv|send|recv|dispatch|combine|all_?to_?all|a2a", re.IGNORECASE
)
# What changes parameters, or scales or clips gradients; `zero_grad` reads none.
_OPTIMIZER = re.compile(
    r"Optimizer\.step#|torch/optim/(?!.*: zero_grad$)|clip_grad_|torch/(cuda/)?amp/grad_scaler"
)
_TINY_COPY_NS = 10_000


class Side(IntEnum):
    """Side of the work that does not depend on a copy or a collective."""

    NONE = 0
    BEFORE = 1
    AFTER = 2


_SIDES_OF_COPIES = {"h2d": Side.BEFORE, "d2h": Side.AFTER, "p2p": Side.AFTER}


def side_of_independent_work(timeline: Timeline, rows: IndexArray) -> Int8Array:
    """The `Side` of the work that rows of copies or collectives could have overlapped: int8[k]."""
    trace, event_id = timeline.trace, timeline.event_id[rows]
    side = np.full(len(rows), Side.AFTER, dtype=np.int8)
    side[match_names(trace, event_id, needed_at_once)] = Side.NONE
    side[match_names(trace, event_id, _NEEDS_NOTHING_BEFORE.search)] = Side.BEFORE
    copies = timeline.kind[rows] == Kind.COPY
    side[copies] = Side.NONE
    # For a tiny copy another stream would cost more.
    copies &= timeline.end_ns[rows] - timeline.start_ns[rows] >= _TINY_COPY_NS
    for direction, side_of_copy in _SIDES_OF_COPIES.items():
        side[copies & timeline.copies(direction)[rows]] = side_of_copy
    return read_only(side)


def needed_at_once(name: str) -> bool:
    """Return True if the next kernel needs the result of a collective of this name."""
    return _NEEDED_AT_ONCE.search(name) is not None


def launched_in_backward(timeline: Timeline) -> BoolArray:
    """bool[m], which rows of a timeline one of autograd's threads launched."""
    trace = timeline.trace
    operator_id = trace.of_category(Category.OPERATOR)
    is_autograd = match_names(trace, operator_id, is_autograd_node)
    thread_indices = np.unique(trace.thread_index[operator_id[is_autograd]])
    is_in_backward = np.isin(trace.thread_index[timeline.launch_id], thread_indices)
    return read_only(is_in_backward & (timeline.launch_id != ABSENT))


def launched_by_optimizer(timeline: Timeline) -> BoolArray:
    """bool[m], which rows an optimizer, or the preparation of its gradients, launched.

    One that runs inside the backward pass, layer by layer, does not need all gradients.
    """
    trace = timeline.trace
    event_id = trace.of_category(Category.ANNOTATION, Category.PYTHON)
    event_id = event_id[match_names(trace, event_id, _OPTIMIZER.search)]
    is_launched = np.zeros(len(timeline.event_id), dtype=np.bool_)
    launch_id = timeline.launch_id
    for thread, indices in groups_of(trace.thread_index[event_id]):
        running = union(trace.start_ns[event_id[indices]], trace.end_ns[event_id[indices]])
        of_thread = np.flatnonzero(
            (launch_id != ABSENT) & (trace.thread_index[launch_id] == thread)
        )
        launch_ns = trace.start_ns[launch_id[of_thread]]
        is_launched[of_thread] = measure_within(running, launch_ns, launch_ns + 1) > 0
    return read_only(is_launched & ~launched_in_backward(timeline))


def independent_work_ns(
    blockers: OverlapBlockers,
    is_in_backward: BoolArray,
    rows: IndexArray,
    other_rows: IndexArray,
    free: Intervals,
    exposed_ns: Int64Array,
) -> Int64Array:
    """int64[k], the independent work that each copy or collective could have overlapped.

    The same work is given to only one. Rows are by start; work is `free` when none of them ran.
    """
    timeline = blockers.timeline
    side = side_of_independent_work(timeline, rows)
    before, after = (np.flatnonzero(side == value) for value in (Side.BEFORE, Side.AFTER))
    work_ns = np.zeros(len(rows), dtype=np.int64)
    start_ns = timeline.start_ns[rows[before]]
    reach_ns = np.maximum.accumulate(timeline.end_ns[rows[before]])
    since_ns = np.minimum(np.concatenate(([ABSENT], reach_ns))[: len(before)], start_ns)
    work_ns[before] = np.minimum(exposed_ns[before], measure_within(free, since_ns, start_ns))
    gradients = np.flatnonzero(is_in_backward[rows[after]])
    backward_end_ns = np.full(len(after), ABSENT, dtype=np.int64)
    backward_end_ns[gradients] = _backward_end_ns(blockers, rows[after[gradients]], other_rows)
    work_ns[after] = _work_after_ns(timeline, rows[after], free, exposed_ns[after], backward_end_ns)
    return read_only(work_ns)


def _work_after_ns(
    timeline: Timeline,
    rows: IndexArray,
    free: Intervals,
    exposed_ns: Int64Array,
    backward_end_ns: Int64Array,
) -> list[int]:
    # Gradients are needed when the backward pass is over: all that is left of it can overlap them.
    start_ns, end_ns = timeline.start_ns[rows], timeline.end_ns[rows]
    until_ns = np.append(start_ns, _END_OF_TIME)[1:]
    until_ns = np.where(backward_end_ns == ABSENT, until_ns, np.minimum(until_ns, backward_end_ns))
    free_ns = measure_within(free, end_ns, np.maximum(end_ns, until_ns))
    work_ns: list[int] = []
    left_ns, later_backward_end_ns = 0, ABSENT
    # From the last one on: what it leaves is there for the ones before it.
    columns = (column[::-1].tolist() for column in (exposed_ns, free_ns, backward_end_ns))
    for row_exposed_ns, row_free_ns, row_backward_end_ns in zip(*columns, strict=True):
        is_same_pass = row_backward_end_ns == later_backward_end_ns
        available_ns = row_free_ns + (left_ns if is_same_pass else 0)
        work_ns.append(min(row_exposed_ns, available_ns))
        is_in_backward = row_backward_end_ns != ABSENT
        left_ns = available_ns - work_ns[-1] if is_in_backward else 0
        later_backward_end_ns = row_backward_end_ns
    return work_ns[::-1]


def _backward_end_ns(
    blockers: OverlapBlockers, rows: IndexArray, other_rows: IndexArray
) -> Int64Array:
    # That is when the last work ended that the row's thread launched before another thread did.
    timeline, launched_ns = blockers.timeline, blockers.launched_ns
    ordered_rows = other_rows[np.argsort(launched_ns[other_rows], kind="stable")]
    thread_index = blockers.thread_index[ordered_rows]
    next_index = np.searchsorted(launched_ns[ordered_rows], launched_ns[rows])
    has_next = np.flatnonzero(next_index < len(ordered_rows))
    is_same_thread = thread_index[next_index[has_next]] == blockers.thread_index[rows[has_next]]
    followed = has_next[is_same_thread]
    end_ns = timeline.end_ns[rows]
    # From the back, so that the last end of a run is the latest so far.
    run = np.cumsum(np.diff(thread_index[::-1], prepend=thread_index[-1:]) != 0)
    run_end_ns = reach_in_group(run, timeline.end_ns[ordered_rows[::-1]])[::-1]
    end_ns[followed] = run_end_ns[next_index[followed]]
    return end_ns
