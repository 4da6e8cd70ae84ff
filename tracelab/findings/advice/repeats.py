"""Launches that repeat: the same kernels with the same dimensions and shapes.

Masks with the same number of places in all steps most likely have the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import IndexArray, Int64Array, Record
from tracelab.findings.candidates import grouped
from tracelab.findings.context import Context
from tracelab.model.kernel_kinds import Kind, blocks_of
from tracelab.model.lookup import groups_of, sample
from tracelab.model.trace import ABSENT

# Samples, as arguments are read from the file: of steps, of calls in each, of launches after each.
_STEPS, _CALLS, _LAUNCHES = 3, 8, 6
_MIN_KERNELS_OF_REPETITION = 64
_REPETITIONS = 3
_MIN_ALIKE_SHARE_OF_REPETITIONS = 0.75


class Change(Record):
    """The first difference between repetitions of the same work.

    Attributes:
        kernel: one that differs, in name, dimensions or shapes; None if all are the same.
        has_shapes: True if shapes were compared.
    """

    kernel: str | None
    has_shapes: bool


def find_change(context: Context, repetitions: Iterable[IndexArray]) -> Change | None:
    """Compare repetitions (timeline rows) of the same work; None if there is only one."""
    timeline = context.timeline
    kernels = [rows[timeline.kind[rows] == Kind.COMPUTE] for rows in repetitions]
    names = [context.trace.name_index[timeline.event_id[rows]] for rows in kernels]
    groups = grouped(name.tobytes() for name in names)
    usual = max(groups.values(), key=len)
    if len(kernels) < 2 or (len(usual) < 2 and len(groups) < 2):
        return None
    if len(usual) < _MIN_ALIKE_SHARE_OF_REPETITIONS * len(names):
        other = next(group for group in groups.values() if group is not usual)
        row = _first_difference(kernels, names, usual[0], other[0])
        return Change(context.kernel_name(row), has_shapes=False)
    rows = np.stack([kernels[i] for i in usual[:_REPETITIONS]])
    rows = rows[:, sample(rows.shape[1], _MIN_KERNELS_OF_REPETITION)]
    operators = timeline.operators
    operator = operators.innermost(timeline.launch_id[rows.ravel()])
    operator_id = np.append(operators.event_id, ABSENT)[operator].reshape(rows.shape)
    kernel_id = timeline.event_id[rows]
    known_id = np.union1d(kernel_id, operator_id[operator_id != ABSENT])
    arguments = context.arguments(known_id.tolist())
    shapes = [[_shapes(arguments.get(i, {})) for i in column] for column in operator_id.T.tolist()]
    grids = [[_dimensions(arguments[i]) for i in column] for column in kernel_id.T.tolist()]
    differs = [len({*x}) > 1 or len({*y}) > 1 for x, y in zip(grids, shapes, strict=True)]
    kernel = context.kernel_name(int(rows[0, differs.index(True)])) if any(differs) else None
    return Change(kernel, has_shapes=any(map(any, shapes)))


def have_same_sizes(context: Context, call_id: Int64Array) -> bool:
    """Tell whether the launches after some calls have the same dimensions in every steady step.

    False, too, for a single step or launches of single blocks.
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
    calls = sample(len(in_step[0]), _CALLS)
    chosen = np.stack([in_step[i][calls] for i in sample(len(in_step), _STEPS).tolist()])
    rows = _rows_after(context, call_id[chosen.ravel()], step[chosen.ravel()])
    known = np.unique(rows[rows != ABSENT])
    arguments = context.arguments(timeline.event_id[known].tolist())
    launches = {
        row: (context.kernel_name(row), _dimensions(arguments[int(timeline.event_id[row])]))
        for row in known.tolist()
    }
    in_steps = rows.reshape(len(chosen), -1).tolist()
    first, *others = ([launches.get(row) for row in of_step] for of_step in in_steps)
    has_blocks = any(blocks_of(arguments[x]) > 1 for x in timeline.event_id[known].tolist())
    return has_blocks and all(other == first for other in others)


def _dimensions(arguments: Mapping[str, Any]) -> str:
    return repr([arguments.get(key) for key in ("grid", "block", "blocks per SM")])


def _shapes(arguments: Mapping[str, Any]) -> str:
    shapes = arguments.get("Input Dims", arguments.get("Input dims"))
    return "" if shapes is None else repr(shapes)


def _first_difference(
    kernels: Sequence[IndexArray], names: Sequence[NDArray[Any]], one: int, other: int
) -> int:
    length = min(len(kernels[one]), len(kernels[other]))
    differs = names[one][:length] != names[other][:length]
    longer = kernels[one if len(kernels[one]) > length else other]
    return int(kernels[one][np.argmax(differs)] if differs.any() else longer[length])


def _rows_after(context: Context, call_id: Int64Array, step: IndexArray) -> IndexArray:
    timeline, trace = context.timeline, context.trace
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT))
    start_ns, thread = (x[timeline.launch_id[rows]] for x in (trace.start_ns, trace.thread_index))
    after = np.full((len(call_id), _LAUNCHES), ABSENT, dtype=np.intp)
    for number, index in groups_of(trace.thread_index[call_id]):
        own = rows[thread == number]
        own = own[np.argsort(start_ns[thread == number], kind="stable")]
        first = np.searchsorted(np.sort(start_ns[thread == number]), trace.end_ns[call_id[index]])
        at = np.minimum(first[:, None] + np.arange(_LAUNCHES), len(own))
        followed = np.append(own, ABSENT)[at]
        is_same_step = timeline.step_index[followed] == step[index, None]
        after[index] = np.where(is_same_step, followed, ABSENT)
    return after
