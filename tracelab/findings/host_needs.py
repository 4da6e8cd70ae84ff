"""Which values the host truly needs when it reads them, and what can be moved instead.

A blocking call that reads a value for a log can be left out. One whose value decides what the
program does next is a dependency: leaving it out is no advice. What can change is when the value is
asked for, where it is used, and how much work one read serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.context import Context
from tracelab.intervals import Int64Array, measure_within, union
from tracelab.measures.independent_work import launched_by_optimizer
from tracelab.model.blocking_calls import Blocking
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.trace import ABSENT
from tracelab.simulate.waits import DECIDES, SIZED_BY_DATA


class Need(IntEnum):
    """What the host needs a value for, as far as the file shows it."""

    NONE = 0  # nothing that the file shows
    BRANCH = 1  # it decides what the program does next: `if x`, `while x`
    SIZE = 2  # it is the size of an operator's result
    INPUT = 3  # the host computes the GPU's next input from it
    RETURNED = 4  # as many bytes are copied back at once


# The host computes between a read and the next copy to the GPU if that takes so many times as long
# as the host usually takes from launch to launch.
_COMPUTES = 4
# What comes of an action is small: a batch of data is not computed from the loss that was read.
_MOST_INPUT_BYTES = 4096  # for each byte that was read
# Of the calls of a place: what is true of so many is true of the place; fewer say nothing of it.
_MOST, _SOME = 0.75, 0.1

_MOVES: Mapping[Need, str] = MappingProxyType(
    {
        Need.SIZE: "The host needs the size of the result. Compute with the mask instead: "
        "`torch.where(mask, x, 0)`, or a loss with `ignore_index` or weights.",
        Need.BRANCH: "The host needs this value: it decides what the program does next. Decide "
        "on the GPU (`torch.where(condition, a, b)`), decide one step late, by a copy that has "
        "arrived by then, or ask only every N steps. A check in a library may have a switch "
        "(`validate_args=False`).",
        Need.INPUT: "The host needs this value at once: it computes the next input of the GPU from "
        "it. Let one read serve more: more environments or sequences at a time, and all that is "
        "read in one copy. Or work on two groups in turn, so that the GPU computes for one while "
        "the host works on the other, or do on the GPU what the host does in between.",
        Need.RETURNED: "As many bytes are copied to the GPU right after it: a value that goes back "
        "can stay on the GPU, and the host can read it one step late.",
    }
)


def host_needs(context: Context) -> NDArray[np.int8]:
    """int8[k], the `Need` for the value that each blocking call of the file waits for.

    Example: ``[Need.BRANCH, Need.NONE]``: `if loss > 3:`, and `log.append(loss.item())`.
    """
    calls, operators = context.blocking_calls.calls, context.timeline.operators
    need, _ = _fed_back(context)
    inside = operators.innermost(calls.event_id)
    for names, what in ((SIZED_BY_DATA, Need.SIZE), (DECIDES, Need.BRANCH)):
        is_named = operators.have_name(names.__contains__)
        need[operators.around(inside, is_named) != ABSENT] = what
    return need


def with_moves(fix: str, needs: NDArray[np.int8]) -> str:
    """A fix for blocking calls of one place; where the host needs their values, what to move.

    Args:
        fix: what to do about calls whose values nothing needs.
        needs: int8[k], a `Need` for each of the calls, as of `host_needs`.

    >>> with_moves("Leave it out.", np.array([Need.NONE, Need.NONE]))
    'Leave it out.'
    """
    for need, text in _MOVES.items():
        if _are(needs, _MOST, need):
            return text
    for need, text in _MOVES.items():
        if _are(needs, _SOME, need):
            return f"{fix} But of these calls, {(needs == need).mean():.0%} are different. {text}"
    return fix


def cannot_go(needs: NDArray[np.int8]) -> bool:
    """Whether the host needs the values of the blocking calls of a place, at least of some.

    Without the size of a result another operator can do, and what is copied back can stay.

    Args:
        needs: int8[k], as of `with_moves`.
    """
    return _are(needs, _SOME, Need.BRANCH, Need.INPUT)


def feeds_gpu(needs: NDArray[np.int8]) -> bool:
    """Whether the blocking calls of a place cannot be left out: the host computes inputs by them.

    Args:
        needs: int8[k], as of `with_moves`.
    """
    return _are(needs, _MOST, Need.INPUT)


def _are(needs: NDArray[np.int8], share: float, *which: Need) -> bool:
    """Whether at least such a share of the needs are some of these."""
    return bool(len(needs)) and bool(np.isin(needs, which).mean() >= share)


class _Launches(NamedTuple):
    """The launches of a thread, in order: when, and what copy (its direction, else "") they are."""

    event_id: Int64Array
    start_ns: Int64Array
    step_index: NDArray[np.int32]
    direction: NDArray[np.str_]
    copied_bytes: Int64Array


def is_computed_from_read(context: Context, launch_id: Int64Array) -> NDArray[np.bool_]:
    """bool[k], which copies to the GPU (event ids of their calls) take what the host just computed.

    They cannot be made ahead: what they copy is computed from a value that is read right before.
    """
    _, fed_launch_id = _fed_back(context)
    return np.isin(launch_id, fed_launch_id)


def _fed_back(context: Context) -> tuple[NDArray[np.int8], Int64Array]:
    """The calls that read what the next copy to the GPU is made of, and the calls of these copies.

    A read is such a one where the next launch of its thread, in the same step, is a copy to the
    GPU, with no data loader in between, and where no training step lies between the copy before and
    the read: there the host reads a loss, and goes on with the next batch.
    """
    calls = context.blocking_calls.calls
    need = np.full(len(calls), Need.NONE, dtype=np.int8)
    fed = [np.zeros(0, dtype=np.int64)]
    training_ns = _training_ns(context)
    is_wait = calls.kind != Blocking.ALLOCATION
    for thread, index in groups_of(np.where(is_wait, calls.thread_index, ABSENT)):
        launches = _launches_of(context, thread)
        before = np.searchsorted(launches.start_ns, calls.start_ns[index], side="right") - 1
        is_between = (before >= 0) & (before + 1 < len(launches.start_ns))
        reads, before = index[is_between], before[is_between]
        if not len(reads):
            continue
        is_fed = _are_fed(context, launches, reads, before, training_ns)
        after = before + 1
        read_bytes, written_bytes = launches.copied_bytes[before], launches.copied_bytes[after]
        gap_ns = launches.start_ns[after] - calls.end_ns[reads]
        computes = gap_ns >= _COMPUTES * np.median(np.diff(launches.start_ns))
        is_input = is_fed & computes & (written_bytes <= _MOST_INPUT_BYTES * read_bytes)
        need[reads[is_fed & (written_bytes == read_bytes) & (read_bytes > 0)]] = Need.RETURNED
        need[reads[is_input]] = Need.INPUT
        fed.append(launches.event_id[after[is_input]])
    return need, np.concatenate(fed)


def _are_fed(
    context: Context,
    launches: _Launches,
    reads: NDArray[np.intp],
    before: NDArray[np.intp],
    training_ns: Int64Array,
) -> NDArray[np.bool_]:
    """bool[k], which blocking calls of a thread are between a read and a copy that it may feed.

    Args:
        context: the window.
        launches: those of the thread.
        reads: intp[k], index of blocking calls.
        before: intp[k], index of the launch before each; there is one after it as well.
        training_ns: int64[t], when training steps launched.
    """
    costs, trace = context.blocking_calls, context.trace
    start_ns, end_ns = costs.calls.start_ns[reads], costs.calls.end_ns[reads]
    into_gpu = launches.direction == "h2d"
    is_fed: NDArray[np.bool_] = (launches.direction[before] == "d2h") & into_gpu[before + 1]
    is_fed &= costs.step_index[reads] == launches.step_index[before + 1]
    loading_id = context.graph.host.loading_id
    loading = union(trace.start_ns[loading_id], trace.end_ns[loading_id])
    is_fed &= measure_within(loading, end_ns, launches.start_ns[before + 1]) == 0
    copied_ns = np.append(0, launches.start_ns[into_gpu])
    since_ns = copied_ns[np.searchsorted(copied_ns, start_ns) - 1]
    trained = np.searchsorted(training_ns, start_ns) - np.searchsorted(training_ns, since_ns)
    is_fed &= trained == 0
    return is_fed


def _launches_of(context: Context, thread: int) -> _Launches:
    timeline, trace = context.timeline, context.trace
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


def _training_ns(context: Context) -> Int64Array:
    """int64[k], ns, ascending: when backward passes and optimizers launched."""
    launch_id = context.timeline.launch_id
    is_training = context.in_backward | launched_by_optimizer(context.timeline)
    return np.sort(context.trace.start_ns[launch_id[is_training]])
