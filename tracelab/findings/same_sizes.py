"""Sizes that only the data decide: are they the same in every step, as far as launches show it?

How many places a mask has, no trace says. But what is computed on them is launched with dimensions
that follow from it: where these are alike in all steps, the positions most likely are, too, as
those of splits, of relations, of padding that never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.context import Context
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT

_STEPS, _CALLS, _LAUNCHES = 3, 8, 6  # are compared: of steps, of calls in each, of launches behind


def have_same_sizes(context: Context, call_id: Int64Array) -> bool:
    """Tell whether the launches behind some calls have the same dimensions in every steady step.

    Args:
        context: the window.
        call_id: int64[k], event ids of calls that wait for a size, or of what computes it.

    Returns:
        False, too, where a single step or launches of single blocks say nothing.
    """
    steady = context.timeline.steady
    if steady is None:
        return False
    trace, timeline = context.trace, context.timeline
    begins_ns = trace.start_ns[[step.event_id for step in timeline.steps]]
    call_id = call_id[np.argsort(trace.start_ns[call_id], kind="stable")]
    step = np.searchsorted(begins_ns, trace.start_ns[call_id], side="right") - 1
    in_step = [np.flatnonzero(step == index) for index in steady.indices]
    if len(in_step) < 2 or len({len(calls) for calls in in_step}) > 1 or not len(in_step[0]):
        return False
    steps = np.unique(np.linspace(0, len(in_step) - 1, _STEPS).astype(np.intp))
    calls = np.unique(np.linspace(0, len(in_step[0]) - 1, _CALLS).astype(np.intp))
    chosen = np.stack([in_step[index][calls] for index in steps.tolist()])
    rows = _behind(context, call_id[chosen.ravel()], step[chosen.ravel()]).reshape(len(steps), -1)
    if (rows == ABSENT).all():
        return False
    known = rows[rows != ABSENT]
    arguments = context.arguments(np.unique(timeline.event_id[known]).tolist())
    of_row = {row: _launched(context, row, arguments) for row in np.unique(known).tolist()}
    first, *others = ([of_row.get(row) for row in of_step] for of_step in rows.tolist())
    has_blocks = any(launch and any(size != 1 for size in launch[1]) for launch in first)
    return has_blocks and all(other == first for other in others)


def _launched(
    context: Context, row: int, arguments: Mapping[int, Mapping[str, Any]]
) -> tuple[str, list[int], list[int]]:
    """The name of a kernel, its grid and its block."""
    event_id = int(context.timeline.event_id[row])
    of_event = arguments[event_id]
    return context.kernel_name(row), of_event.get("grid") or [], of_event.get("block") or []


def _behind(context: Context, call_id: Int64Array, step: NDArray[np.intp]) -> NDArray[np.intp]:
    """intp[k, `_LAUNCHES`], timeline rows of the kernels launched behind calls of steps (intp[k]).

    They are those of the same thread and step; ABSENT where there are fewer.
    """
    timeline, trace = context.timeline, context.trace
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT))
    start_ns, thread = (x[timeline.launch_id[rows]] for x in (trace.start_ns, trace.thread_index))
    behind = np.full((len(call_id), _LAUNCHES), ABSENT, dtype=np.intp)
    for number, index in groups_of(trace.thread_index[call_id]):
        own = rows[thread == number]
        own = own[np.argsort(trace.start_ns[timeline.launch_id[own]], kind="stable")]
        first = np.searchsorted(np.sort(start_ns[thread == number]), trace.end_ns[call_id[index]])
        at = np.minimum(first[:, None] + np.arange(_LAUNCHES), len(own))
        followed = np.append(own, ABSENT)[at]
        is_same_step = timeline.step_index[followed] == step[index, None]
        behind[index] = np.where(is_same_step, followed, ABSENT)
    return behind
