"""Ways back through one rank, for the job's critical path: what its work waited for.

Each file gives its recorded program as a tree, in which each call and activity leads back to the
last that it waited for: the path is walked when the events are gone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, Record
from tracelab.measures.critical_path import PathKind
from tracelab.measures.idle_culprits import busy_with, outermost_around
from tracelab.model.binding import Constraint
from tracelab.model.frames import event_as_shown
from tracelab.model.graph import Graph
from tracelab.model.lookup import expand_ranges
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import Program
from tracelab.simulate.recorded import record_program

# The host is sampled every 10 us, in long recordings at about so many moments.
_SAMPLE_NS, _MAX_SAMPLES = 10_000, 1 << 16


class PathPlace(Record):
    """Something that a path can be spent on; its site is of several the longest."""

    name: str
    site: CallSite


class PathPart(Arrays):
    """Ways back through one rank; k stretches, each followed by what came before it.

    Times are ns since the file's first event. A stretch ends where the one that led to it begins.

    Attributes:
        places: what stretches are spent on; the last is None, unknown.
        place_index, kind: int32[k], int8[k], the place and `PathKind`.
        since_ns: int64[k], ns, begins.
        following: int32[k], the stretch to go on with, ABSENT at the recording's beginning.
        operation_stretch: int32[c], the stretch of each operation's kernel.
        end_stretch, end_ns: int32[s + 1], int64[s + 1], the ends of steps and of the trace.
        first_ns: ns, when the recording began.
    """

    places: tuple[PathPlace | None, ...]
    place_index: NDArray[np.int32]
    kind: NDArray[np.int8]
    since_ns: Int64Array
    following: NDArray[np.int32]
    operation_stretch: NDArray[np.int32]
    end_stretch: NDArray[np.int32]
    end_ns: Int64Array
    first_ns: int


def path_part(graph: Graph, row: IndexArray, lines: SourceLines) -> PathPart | None:
    """Gather what the job's critical path needs of a file, by the rows of its communication.

    None if no other rank waits for it, or it has no calls that launch its work.
    """
    timeline = graph.host.timeline
    if not len(row) or not (timeline.launch_id != ABSENT).any():
        return None
    program = record_program(graph).program
    threads = [timeline.trace.thread_index[step.event_id] for step in timeline.steps]
    end_thread = np.array([*threads, ABSENT], dtype=np.int32)
    end_ns = np.array([window.end_ns for window in (*timeline.windows[1:], timeline.windows[0])])
    first_ns = min(window.start_ns for window in timeline.windows)
    order = np.lexsort((program.source, program.moment_ns[program.source]))
    before = np.full(len(program), ABSENT, dtype=np.intp)
    before[program.target[order]] = program.source[order]  # the last one stays
    before = np.append(before, _before_ends(program, end_ns, end_thread))
    reached_ns = np.append(program.moment_ns, end_ns)
    activity = np.flatnonzero(program.row != ABSENT)
    began_ns = reached_ns.copy()
    began_ns[activity] -= program.cost_ns[activity]
    since_ns = np.where(before == ABSENT, first_ns, reached_ns[before])
    since_ns = np.clip(since_ns, first_ns, np.maximum(began_ns, first_ns))
    kind = _kinds_before(graph, program, before)
    host, other = np.flatnonzero(kind == PathKind.HOST), np.flatnonzero(kind != PathKind.HOST)
    thread = np.append(program.thread_index, end_thread)[host]
    of_host, piece_ns, busy_id = _sample_host(graph, since_ns[host], began_ns[host], thread)
    event_id = np.append(program.event_id, np.full(len(end_ns), ABSENT))
    known_id = np.where(kind == PathKind.UNKNOWN, ABSENT, event_id)
    stretches = np.concatenate(
        [
            (activity, began_ns[activity], program.activity_kind[activity], event_id[activity]),
            (other, since_ns[other], kind[other], known_id[other]),
            (host[of_host], piece_ns, kind[host[of_host]], busy_id),
        ],
        axis=1,
    )
    order = np.lexsort((-stretches[1], stretches[0]))
    node, stretch_ns, stretch_kind, stretch_id = stretches[:, order]
    first_of_node = np.searchsorted(node, np.arange(len(before)))
    is_last = np.diff(node, append=len(before)) > 0
    following = np.arange(1, len(node) + 1)
    leads_on = before[node[is_last]]
    following[is_last] = np.where(leads_on == ABSENT, ABSENT, first_of_node[leads_on])
    until_ns = np.append(0, stretch_ns[:-1])
    until_ns[first_of_node] = reached_ns
    places, place_index = _places(timeline, stretch_id, until_ns - stretch_ns, lines)
    node_of_row = np.empty(len(timeline.event_id), dtype=np.intp)
    node_of_row[program.row[activity]] = activity
    operation_stretch = first_of_node[node_of_row[row]]
    end_stretch = first_of_node[len(program) :]
    leads_up = _leading_up(following, np.append(operation_stretch, end_stretch))
    number = np.append(np.cumsum(leads_up) - 1, ABSENT).astype(np.int32)  # the last one of ABSENT
    places, place_index = _used(places, place_index[leads_up])
    return PathPart(
        places=places,
        place_index=place_index,
        kind=stretch_kind[leads_up].astype(np.int8),
        since_ns=stretch_ns[leads_up],
        following=number[following[leads_up]],
        operation_stretch=number[operation_stretch],
        end_stretch=number[end_stretch],
        end_ns=end_ns,
        first_ns=first_ns,
    )


def _leading_up(following: IndexArray, ends: IndexArray) -> BoolArray:
    """bool[k], these stretches and those that they lead back to.

    >>> _leading_up(np.array([ABSENT, 0, 0, 1]), np.array([3])).tolist()
    [True, True, False, True]
    """
    leads_up = np.zeros(len(following) + 1, dtype=np.bool_)  # the last one of ABSENT
    leads_up[ends] = True
    jump = np.append(following, ABSENT)
    while (jump != ABSENT).any():
        leads_up[jump[leads_up]] = True
        jump = jump[jump]  # twice as far
    return leads_up[:-1]


def _used(
    places: tuple[PathPlace | None, ...], place_index: NDArray[np.int32]
) -> tuple[tuple[PathPlace | None, ...], NDArray[np.int32]]:
    used = np.unique(place_index[place_index != ABSENT])
    number = np.full(len(places), ABSENT, dtype=np.int32)
    number[used] = np.arange(len(used))
    return (*(places[index] for index in used.tolist()), None), number[place_index]


def _before_ends(
    program: Program, end_ns: Int64Array, thread_index: NDArray[np.int32]
) -> IndexArray:
    """intp[s], what led up to ends: an activity that ends there, else a call of the thread."""
    before, is_host = [], program.row == ABSENT
    for now_ns, thread in zip(end_ns.tolist(), thread_index.tolist(), strict=True):
        leads_up = is_host & ((program.thread_index == thread) | (thread == ABSENT))
        leads_up &= program.moment_ns <= now_ns
        leads_up |= ~is_host & (program.moment_ns == now_ns)
        last = int(np.where(leads_up, program.moment_ns, ABSENT).argmax())
        before.append(last if leads_up[last] else ABSENT)
    return np.array(before, dtype=np.intp)


def _kinds_before(graph: Graph, program: Program, before: IndexArray) -> NDArray[np.int8]:
    row = np.append(program.row, np.full(len(before) - len(program), ABSENT))
    is_activity, follows_activity = row != ABSENT, (before != ABSENT) & (row[before] != ABSENT)
    is_unknown = graph.binding.constraint[row] == Constraint.UNKNOWN
    is_unknown = is_activity & (is_unknown | (before == ABSENT))
    conditions = [is_unknown, is_activity & follows_activity, is_activity, follows_activity]
    kinds = [PathKind.UNKNOWN, PathKind.QUEUE, PathKind.LAUNCH, PathKind.SYNC]
    return np.select(conditions, kinds, PathKind.HOST).astype(np.int8)


def _sample_host(
    graph: Graph, since_ns: Int64Array, until_ns: Int64Array, thread_index: NDArray[np.int32]
) -> tuple[IndexArray, Int64Array, Int64Array]:
    """Find what threads were in: intp[p], the stretch of each piece, its begin, and its event."""
    trace, length_ns = graph.host.timeline.trace, np.maximum(until_ns - since_ns, 0)
    count = 1 + length_ns // max(_SAMPLE_NS, int(length_ns.sum()) // _MAX_SAMPLES)
    stretch, number = expand_ranges(np.zeros_like(count), count)
    begin_ns, middle_ns = (
        since_ns[stretch] + length_ns[stretch] * half // (2 * count[stretch])
        for half in (2 * number, 2 * number + 1)
    )
    thread = thread_index[stretch]
    loading_id = outermost_around(trace, graph.host.loading_id, middle_ns, thread)
    is_loading = (loading_id != ABSENT) & (trace.thread_index[loading_id] == thread)
    busy_id = busy_with(graph.host.timeline, middle_ns, thread)
    busy_id = np.where(is_loading, loading_id, busy_id)
    changes = (np.diff(stretch, prepend=ABSENT) != 0) | (np.diff(busy_id, prepend=ABSENT) != 0)
    return stretch[changes], begin_ns[changes], busy_id[changes]


def _places(
    timeline: Timeline, event_id: Int64Array, length_ns: Int64Array, lines: SourceLines
) -> tuple[tuple[PathPlace | None, ...], NDArray[np.int32]]:
    trace = timeline.trace
    index = np.full(len(event_id), ABSENT, dtype=np.int32)
    known = event_id != ABSENT
    event_id, of_event = np.unique(event_id[known], return_inverse=True)
    name, of_name = np.unique(trace.name_index[event_id], return_inverse=True)
    shown = [event_as_shown(trace.strings[one]) for one in name.tolist()]
    names, of_shown = np.unique(np.array(shown, dtype=np.str_), return_inverse=True)
    number = of_shown[of_name]
    index[known] = number[of_event]
    by_length = np.argsort(np.bincount(of_event, length_ns[known]), kind="stable")
    longest = np.empty(len(names), dtype=np.int64)
    longest[number[by_length]] = event_id[by_length]
    launch_of = np.arange(len(trace))
    launch_of[timeline.event_id] = timeline.launch_id
    launch_id = launch_of[longest]
    sites = np.full(len(names), NO_CALL_SITE, dtype=object)
    sites[launch_id != ABSENT] = call_sites(timeline, launch_id[launch_id != ABSENT], lines)
    return (*map(PathPlace, names.tolist(), sites.tolist()), None), index
