"""Values that the host waits for: what it may read behind a wait, and what it needs at once.

A read for a log can be left out; one that decides what the program does next only moves. A pure
wait can go if no copy into pinned memory was under way: its data may be read after it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array
from tracelab.base.intervals import measure_within, union
from tracelab.findings.candidates import grouped
from tracelab.findings.remedy import Instead
from tracelab.measures.independent_work import launched_by_optimizer, launched_in_backward
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.cuda_graphs import mostly_replays, replayed
from tracelab.model.frames import is_tensor_operator
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.lookup import groups_of, rows_of
from tracelab.model.program.call_sites import call_sites
from tracelab.model.trace import ABSENT
from tracelab.simulate.waits import DECIDES, SIZED_BY_DATA

SENTENCES: Mapping[str, Any] = MappingProxyType(
    tomllib.loads(Path(__file__).parents[1].joinpath("advice.toml").read_text(encoding="utf-8"))
)
_NEVER = np.iinfo(np.int64).min
# The host computes between a read and the next copy if that takes this many usual launch intervals.
_MIN_COMPUTE_RATIO = 3
# A batch of data is not computed from the loss that was read.
_MAX_INPUT_BYTES_PER_READ_BYTE = 4096
# Of a thread: fewer are by chance.
_MIN_FED_SHARE_OF_READS = 0.1
_MIN_SHARE_OF_WAITS_OF_PLACE = 0.5
# Shares of the calls of a place from which a need holds for the place, or rules it out.
_MIN_SHARE, _MIN_SHARE_TO_KEEP = 0.75, 0.1

# --- what it may read behind a wait ---


class Awaited(IntEnum):
    """Results that the host may read once a wait is over."""

    NOTHING = 0  # no copy to the host was under way
    RESULT = 1  # a copy, and the GPU has nothing to do behind it
    EARLIER_RESULT = 2  # a copy behind which work is queued already: of replays, the next one
    UNKNOWN = 3  # a copy, and the file does not say what is queued behind it


def own_waits(graph: Graph) -> Int64Array:
    """int64[k], event ids of the calls that do nothing but wait, and that no operator made."""
    calls, operators = graph.host.blocking_calls, graph.host.timeline.operators
    waits = calls.event_id[np.isin(calls.kind, RETURNS_WHEN_DONE)]
    around = operators.around(operators.innermost(waits), operators.have_name(is_tensor_operator))
    return np.asarray(waits[around == ABSENT])


def awaited_results(graph: Graph, waits: Int64Array) -> NDArray[np.int8]:
    """int8[k], the `Awaited` of each of these waits (event ids), the same for all of one place."""
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    awaited = np.full(len(waits), Awaited.NOTHING, dtype=np.int8)
    waited = calls.event_id[calls.kind == Blocking.COPY]
    copy_row = np.flatnonzero(timeline.copies("d2h") & ~np.isin(timeline.launch_id, waited))
    if not len(copy_row) or not len(waits):
        return awaited
    index = rows_of(calls.event_id, waits)
    call_index, row = _awaited_rows(graph)
    is_resolved = np.isin(np.arange(len(calls)), call_index)
    guards = _ends_since_last_wait(graph, copy_row)
    ended_index, ended_row = _copies_ended_by(graph, copy_row, np.flatnonzero(~is_resolved))
    call_index, row = np.append(call_index, ended_index), np.append(row, ended_row)
    is_behind = _has_work_behind(graph, call_index, row)
    is_known = is_resolved | (is_behind & np.isin(np.arange(len(calls)), ended_index))
    names = timeline.trace.name_index[waits].tolist()
    places = grouped(zip(call_sites(timeline, waits), names, strict=True))
    for group in places.values():
        guarding = index[group][guards[index[group]]]
        known = guarding[is_known[guarding]]
        if len(known):
            is_earlier = is_behind[known].mean() > _MIN_SHARE_OF_WAITS_OF_PLACE
            awaited[group] = Awaited.EARLIER_RESULT if is_earlier else Awaited.RESULT
        elif len(guarding):
            awaited[group] = Awaited.UNKNOWN
    return awaited


def _awaited_rows(graph: Graph) -> tuple[IndexArray, IndexArray]:
    """Pairs: index of a blocking call, and the last row of a stream that it waited for."""
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    is_wait = calls.event_id[np.isin(calls.kind, RETURNS_WHEN_DONE)]
    edges = np.flatnonzero((graph.kind == EdgeKind.SYNC) & np.isin(graph.target_id, is_wait))
    by_copy = np.flatnonzero(np.isin(timeline.launch_id, calls.event_id))
    ends_ns = timeline.trace.end_ns[timeline.launch_id[by_copy]]
    by_copy = by_copy[timeline.end_ns[by_copy] <= ends_ns]
    call_id = np.concatenate((graph.target_id[edges], timeline.launch_id[by_copy]))
    row = np.concatenate((rows_of(timeline.event_id, graph.source_id[edges]), by_copy))
    return rows_of(calls.event_id, call_id), row


def _ends_since_last_wait(graph: Graph, copy_row: IndexArray) -> BoolArray:
    """bool[blocking calls], which return first of their thread after a copy has ended."""
    calls = graph.host.blocking_calls
    end_ns, guards = np.sort(graph.host.timeline.end_ns[copy_row]), np.zeros(len(calls), np.bool_)
    waits = np.where(calls.kind == Blocking.ALLOCATION, ABSENT, calls.thread_index)
    for _, index in groups_of(waits):
        returned_ns = np.maximum.accumulate(np.append(_NEVER, calls.end_ns[index]))
        ended = np.searchsorted(end_ns, returned_ns, side="right")
        guards[index] = ended[1:] > ended[:-1]
    return guards


def _copies_ended_by(
    graph: Graph, copy_row: IndexArray, call_index: IndexArray
) -> tuple[IndexArray, IndexArray]:
    """Pairs: index of a blocking call, and of the copies ended by then the one launched last."""
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    by_end = copy_row[np.argsort(timeline.end_ns[copy_row], kind="stable")]
    ended = np.searchsorted(timeline.end_ns[by_end], calls.end_ns[call_index], side="right")
    launch_ns = timeline.trace.start_ns[timeline.launch_id[by_end]]
    launch_ns = np.where(timeline.launch_id[by_end] == ABSENT, _NEVER, launch_ns)
    newest_ns = np.maximum.accumulate(launch_ns)
    newest = np.searchsorted(newest_ns, newest_ns)  # the first with that launch
    has_ended = ended > 0
    return call_index[has_ended], by_end[newest[ended[has_ended] - 1]]


def _has_work_behind(graph: Graph, index: IndexArray, row: IndexArray) -> BoolArray:
    """bool[blocking calls], which begin when more was launched than the rows that they wait for."""
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    start_ns, launched_ns = timeline.trace.start_ns, np.full(len(calls), _NEVER)
    is_launched = timeline.launch_id[row] != ABSENT
    own_ns = start_ns[timeline.launch_id[row[is_launched]]]
    np.maximum.at(launched_ns, index[is_launched], own_ns)
    is_work = replayed(timeline) if mostly_replays(timeline) else timeline.launch_id != ABSENT
    work_ns = np.unique(start_ns[timeline.launch_id[is_work]])
    first_behind = np.searchsorted(work_ns, launched_ns, side="right")
    return np.asarray(np.searchsorted(work_ns, calls.start_ns) > first_behind)


# --- what it copies to the GPU next ---


class FedBack(NamedTuple):
    """Reads from whose value the host computes its next copy, or after which it is copied back.

    Both are bool[k] of blocking calls; `copy_id` are the calls of the copies.
    """

    is_input: BoolArray
    is_returned: BoolArray
    copy_id: Int64Array


def fed_back(graph: Graph) -> FedBack:
    """Find the reads of a file that its next copies to the GPU are made of.

    The same thread's next launch is a copy to the GPU, with no data loader in between and no
    training step before the read: after one it is a loss.
    """
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    trace, loading_id = timeline.trace, graph.host.loading_id
    loading = union(trace.start_ns[loading_id], trace.end_ns[loading_id])
    is_training = launched_in_backward(timeline) | launched_by_optimizer(timeline)
    training_ns = np.sort(trace.start_ns[timeline.launch_id[is_training]])
    rows = np.flatnonzero(timeline.launch_id != ABSENT)
    thread_index = trace.thread_index[timeline.launch_id[rows]]
    copies_out, copies_in = timeline.copies("d2h"), timeline.copies("h2d")
    is_input, is_returned = np.zeros((2, len(calls)), dtype=np.bool_)
    copy_id = [np.zeros(0, dtype=np.int64)]
    is_wait = calls.kind != Blocking.ALLOCATION
    rows_of_thread = dict(groups_of(thread_index))
    for thread, index in groups_of(np.where(is_wait, calls.thread_index, ABSENT)):
        own = rows[rows_of_thread.get(thread, [])]
        if not copies_in[own].any():
            continue
        start_ns, first = np.unique(trace.start_ns[timeline.launch_id[own]], return_index=True)
        own = own[first]
        before = np.searchsorted(start_ns, calls.start_ns[index], side="right") - 1
        is_between = (before >= 0) & (before + 1 < len(own))
        reads, read = index[is_between], before[is_between]
        if not len(reads):
            continue
        returned_ns, copied_ns = calls.end_ns[reads], start_ns[read + 1]
        is_fed = copies_out[own[read]] & copies_in[own[read + 1]]
        is_fed &= measure_within(loading, returned_ns, copied_ns) == 0
        last_copy_ns = np.append(0, start_ns[copies_in[own]])
        since_ns = last_copy_ns[np.searchsorted(last_copy_ns, calls.start_ns[reads]) - 1]
        trained = np.searchsorted(training_ns, calls.start_ns[reads])
        is_fed &= trained == np.searchsorted(training_ns, since_ns)

        computes = copied_ns - returned_ns >= _MIN_COMPUTE_RATIO * np.median(np.diff(start_ns))
        read_bytes, copied_bytes = (
            trace.copied_bytes[timeline.event_id[own[x]]] for x in (read, read + 1)
        )
        goes_back = (copied_bytes == read_bytes) & (read_bytes > 0)
        is_small = copied_bytes <= _MAX_INPUT_BYTES_PER_READ_BYTE * read_bytes
        is_next_step = timeline.step_index[own[read]] != timeline.step_index[own[read + 1]]
        least = _MIN_FED_SHARE_OF_READS * copies_out[own[read]].sum()
        is_input[reads] = _usual(is_fed & computes & is_small, is_next_step, least)
        is_returned[reads] = _usual(is_fed & ~computes & goes_back, is_next_step, least)
        launch_id = timeline.launch_id[own]
        copy_id.append(launch_id[read + 1][is_input[reads]])
        if is_input[reads].any():  # so are the last read and the first copy of the file
            is_last = (before == len(own) - 1) & copies_out[own[before]]
            is_input[index[is_last]] = True
            copy_id.append(launch_id[:1][copies_in[own[:1]]])
    return FedBack(is_input, is_returned, np.unique(np.concatenate(copy_id)))


def _usual(is_chosen: BoolArray, is_next_step: BoolArray, least: float) -> BoolArray:
    """bool[k], reads that feed a copy: those into the next step only if most are within one."""
    within = is_chosen & ~is_next_step
    is_usual = within.sum() > (is_chosen & is_next_step).sum()
    usual = is_chosen if is_usual else within
    return usual if usual.sum() >= least else np.zeros_like(usual)


# --- what it needs at once ---


class Need(IntEnum):
    """Uses of a value by the host, as far as the file shows them."""

    NONE = 0  # nothing that the file shows
    BRANCH = 1  # it decides what the program does next: `if x`, `while x`
    SIZE = 2  # it is the size of an operator's result
    INPUT = 3  # the host computes the GPU's next input from it
    RETURNED = 4  # as many bytes are copied back at once


# What can be moved if no remedy knows the library that reads.
_MOVES = {Need[name]: Instead(**move) for name, move in SENTENCES["moves"].items()}


def host_needs(graph: Graph) -> NDArray[np.int8]:
    """int8[k], the `Need` for the value that each blocking call of a file waits for."""
    calls, operators = graph.host.blocking_calls, graph.host.timeline.operators
    need = np.full(len(calls), Need.NONE, dtype=np.int8)
    fed = fed_back(graph)
    need[fed.is_input], need[fed.is_returned] = Need.INPUT, Need.RETURNED
    inside = operators.innermost(calls.event_id)
    for names, what in ((SIZED_BY_DATA, Need.SIZE), (DECIDES, Need.BRANCH)):
        is_named = operators.have_name(names.__contains__)
        need[operators.around(inside, is_named) != ABSENT] = what
    return need


def choose_fix(fix: Instead, needs: NDArray[np.int8]) -> Instead:
    """Choose the fix for blocking calls of one place; if the host needs their values, what to move.

    >>> choose_fix(Instead("Remove it."), np.array([Need.NONE, Need.NONE])).text
    'Remove it.'
    """
    return next((text for need, text in _MOVES.items() if _are(needs, _MIN_SHARE, need)), fix)


def cannot_go(needs: NDArray[np.int8]) -> bool:
    """Tell whether the host needs some values of a place (int8[k], `Need`), other than as sizes."""
    return _are(needs, _MIN_SHARE_TO_KEEP, Need.BRANCH, Need.INPUT)


def is_size(needs: NDArray[np.int8]) -> bool:
    """Tell whether the host needs most values of a place (int8[k], `Need`) as sizes."""
    return _are(needs, _MIN_SHARE, Need.SIZE)


def _are(needs: NDArray[np.int8], share: float, *which: Need) -> bool:
    return bool(len(needs)) and bool(np.isin(needs, which).mean() >= share)
