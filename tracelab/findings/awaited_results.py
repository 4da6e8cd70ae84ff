"""Awaited results: a synchronize waits for a copy to the host, or for none.

A copy into pinned memory returns immediately, and what it writes may be read after the first wait
that covers it. Without that wait the host would read what was there before.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.candidates import grouped
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.cuda_graphs.graph_replays import mostly_replays, replayed
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.kernel_kinds import copy_direction
from tracelab.model.lookup import groups_of, match_names, rows_of
from tracelab.model.program.call_sites import call_sites
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_MIN_SHARE_OF_WAITS_OF_PLACE = 0.5
_NEVER = np.iinfo(np.int64).min


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
    is_operator = operators.have_name(lambda name: name.startswith("aten::"))
    own: Int64Array = waits[operators.around(operators.innermost(waits), is_operator) == ABSENT]
    return own


def awaited_results(graph: Graph, waits: Int64Array) -> NDArray[np.int8]:
    """int8[k], the `Awaited` of each of these waits; it is the same for all of one place.

    Args:
        graph: the file's dependencies.
        waits: int64[k], event ids, as of `own_waits`.
    """
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    awaited = np.full(len(waits), Awaited.NOTHING, dtype=np.int8)
    copy_row = _copies_to_host(graph)
    if not len(copy_row) or not len(waits):
        return awaited
    call_index, row = _awaited_rows(graph)
    index = np.flatnonzero(np.isin(calls.event_id, waits))
    guards = _ends_since_last_wait(graph, copy_row) | _covers(graph, copy_row, call_index, row)
    is_resolved = np.isin(np.arange(len(calls)), call_index)
    ended_index, ended_row = _copies_ended_by(graph, copy_row, np.flatnonzero(~is_resolved))
    launched_ns = _last_launches_ns(
        timeline, len(calls), np.append(call_index, ended_index), np.append(row, ended_row)
    )
    is_behind = _has_work_behind(timeline, launched_ns, calls.start_ns)
    # What a call waited for was over by its end: of others only that is certain.
    is_known = is_resolved | (is_behind & np.isin(np.arange(len(calls)), ended_index))
    names = timeline.trace.name_index[calls.event_id[index]].tolist()
    sites = call_sites(timeline, calls.event_id[index])
    of_call = np.full(len(calls), Awaited.NOTHING, dtype=np.int8)
    for group in grouped(zip(sites, names, strict=True)).values():
        place = index[group]
        known = place[guards[place] & is_known[place]]
        if not guards[place].any():
            continue
        of_call[place] = Awaited.UNKNOWN
        if len(known):
            is_earlier = is_behind[known].mean() > _MIN_SHARE_OF_WAITS_OF_PLACE
            of_call[place] = Awaited.EARLIER_RESULT if is_earlier else Awaited.RESULT
    awaited[:] = of_call[rows_of(calls.event_id, waits)]
    return awaited


def _copies_to_host(graph: Graph) -> NDArray[np.intp]:
    """intp[k], timeline rows of the copies to the host whose call did not wait for them."""
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    is_copy = match_names(
        timeline.trace, timeline.event_id, lambda name: copy_direction(name) == "d2h"
    )
    waited = calls.event_id[calls.kind == Blocking.COPY]
    return np.flatnonzero(is_copy & ~np.isin(timeline.launch_id, waited))


def _awaited_rows(graph: Graph) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs: index of a blocking call, and the last row of a stream that it waited for."""
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    is_wait = calls.event_id[np.isin(calls.kind, RETURNS_WHEN_DONE)]
    edges = np.flatnonzero((graph.kind == EdgeKind.SYNC) & np.isin(graph.target_id, is_wait))
    by_copy = np.flatnonzero(np.isin(timeline.launch_id, calls.event_id))
    by_copy = by_copy[
        timeline.end_ns[by_copy] <= timeline.trace.end_ns[timeline.launch_id[by_copy]]
    ]
    call_id = np.concatenate((graph.target_id[edges], timeline.launch_id[by_copy]))
    row = np.concatenate((rows_of(timeline.event_id, graph.source_id[edges]), by_copy))
    return rows_of(calls.event_id, call_id), row


def _covers(
    graph: Graph,
    copy_row: NDArray[np.intp],
    call_index: NDArray[np.intp],
    row: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """bool[blocking calls], which are the first of their thread to wait for a copy.

    Args:
        graph: the file's dependencies.
        copy_row: intp[c], timeline rows of copies, ascending.
        call_index: intp[p], index of blocking calls.
        row: intp[p], the last row of a stream that each of them waited for.
    """
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    covers = np.zeros(len(calls), dtype=np.bool_)
    queue = timeline.stream_index[row] * (1 + calls.thread_index.max(initial=0))
    by_start = np.argsort(call_index, kind="stable")
    for _, index in groups_of((queue + calls.thread_index[call_index])[by_start]):
        pairs = by_start[index]
        stream = timeline.streams[timeline.stream_index[row[pairs[0]]]]
        reached = np.maximum.accumulate(np.append(stream.first_row - 1, row[pairs]))
        copies = np.searchsorted(copy_row, reached, side="right")
        covers[call_index[pairs[copies[1:] > copies[:-1]]]] = True
    return covers


def _ends_since_last_wait(graph: Graph, copy_row: NDArray[np.intp]) -> NDArray[np.bool_]:
    """bool[blocking calls], which return first of their thread after a copy has ended.

    So may a wait for a stream that itself waited for the copy, or one of which the file does not
    say what it waited for.
    """
    calls = graph.host.blocking_calls
    end_ns, guards = np.sort(graph.host.timeline.end_ns[copy_row]), np.zeros(len(calls), np.bool_)
    waits = np.where(calls.kind == Blocking.ALLOCATION, ABSENT, calls.thread_index)
    for _, index in groups_of(waits):
        returned_ns = np.maximum.accumulate(np.append(_NEVER, calls.end_ns[index]))
        ended = np.searchsorted(end_ns, returned_ns, side="right")
        guards[index] = ended[1:] > ended[:-1]
    return guards


def _copies_ended_by(
    graph: Graph, copy_row: NDArray[np.intp], call_index: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs: index of a blocking call, and the copy that was launched last of those ended by then.

    Args:
        graph: the file's dependencies.
        copy_row: intp[c], timeline rows of copies.
        call_index: intp[k], index of blocking calls.
    """
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    by_end = copy_row[np.argsort(timeline.end_ns[copy_row], kind="stable")]
    ended = np.searchsorted(timeline.end_ns[by_end], calls.end_ns[call_index], side="right")
    launch_ns = timeline.trace.start_ns[timeline.launch_id[by_end]]
    launch_ns = np.where(timeline.launch_id[by_end] == ABSENT, _NEVER, launch_ns)
    newest_ns = np.maximum.accumulate(launch_ns)
    newest = np.searchsorted(newest_ns, newest_ns)  # the first with that launch
    has_ended = ended > 0
    return call_index[has_ended], by_end[newest[ended[has_ended] - 1]]


def _last_launches_ns(
    timeline: Timeline, count: int, index: NDArray[np.intp], row: NDArray[np.intp]
) -> Int64Array:
    """int64[count], ns, when the last row of each index was launched (index and row: intp[p])."""
    launched_ns, launch_id = np.full(count, _NEVER), timeline.launch_id[row]
    is_launched = launch_id != ABSENT
    start_ns = timeline.trace.start_ns[launch_id[is_launched]]
    np.maximum.at(launched_ns, index[is_launched], start_ns)
    return launched_ns


def _has_work_behind(
    timeline: Timeline, launched_ns: Int64Array, waits_ns: Int64Array
) -> NDArray[np.bool_]:
    """bool[k], whether work was launched between these times; in a program of replays, a replay."""
    is_work = replayed(timeline) if mostly_replays(timeline) else timeline.launch_id != ABSENT
    start_ns = np.unique(timeline.trace.start_ns[timeline.launch_id[is_work]])
    behind: NDArray[np.bool_] = np.searchsorted(start_ns, waits_ns) > np.searchsorted(
        start_ns, launched_ns, side="right"
    )
    return behind
