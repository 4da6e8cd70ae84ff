"""One rank's share of the job's critical path: the ways back from each communication operation.

Which of them the job's path takes is known only when all ranks are compared, and by then the events
are gone. So each file is walked back from the start of every communication kernel, and from the end
of every step, until the next communication kernel. Ways that meet go on as one: they make a tree,
of which the branching points are kept, and how the time in between was spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, OneLine
from tracelab.base.intervals import Int64Array
from tracelab.measures.critical_path import HostStretch, through_host
from tracelab.measures.critical_path_links import HOST, PathKind, PathLinks, path_links
from tracelab.measures.idle_culprits import busy_with, outermost_around
from tracelab.model.frames import event_as_shown
from tracelab.model.graph import Graph
from tracelab.model.lookup import expand_ranges
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_NOT_YET = -2  # in the place of a state: it is worked out when the walk comes there
_MAX_PLACES = 8  # of a way, the longest; the rest only by kind
_CHUNK_NS, _MAX_CHUNKS = 50_000, 16  # into which host work is cut, to ask what the host did


@dataclass(frozen=True, slots=True, repr=False)
class PathPlace(OneLine):
    """Something that a path can be spent on.

    Example: ``PathPlace(name="aten::mm", site=CallSite(function="train", file="train.py"))``.

    Attributes:
        name: of the activity or call that ran, or of what the host was in.
        site: where in the program that is, or was launched; of several the longest.
    """

    name: str
    site: CallSite


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PathPart(Frozen):
    """The ways back through one rank's timeline; n nodes with k pieces, ns since its first event.

    A node is a moment on a path: the start of a communication kernel, the end of a step, a moment
    at which ways meet, or at which one is cut so that a window may begin there. From each node one
    way leads back to the next.

    Attributes:
        places: what pieces were spent on.
        node: int32[c], the node of each operation; those that share a kernel share it.
        end_node: int32[s + 1], where each step ends, and the whole trace.
        at_ns: int64[n], ns.
        operation_index: int32[n], the first operation of a node's kernel, ABSENT of other nodes.
        next_node: int32[n], where the way leads to, ABSENT for the beginning of the trace.
        reached_ns: int64[n], ns, when it gets there: of an operation a moment in its kernel, of
            another node its `at_ns`.
        first: int64[n + 1]; the pieces of the way from node i are ``first[i]`` to ``first[i + 1]``;
            they add up to its length.
        kind: int8[k], a `PathKind`.
        place_index: int32[k], into `places`, ABSENT for all others of the kind.
        length_ns: int64[k], ns.

    Example row of a node: ``(at_ns=900_000, operation_index=4, next_node=3, reached_ns=500_000,
    first=12)``; of a piece: ``(kind=PathKind.COMPUTE, place_index=2, length_ns=380_000)``.
    """

    places: tuple[PathPlace, ...]
    node: NDArray[np.int32]
    end_node: NDArray[np.int32]
    at_ns: Int64Array
    operation_index: NDArray[np.int32]
    next_node: NDArray[np.int32]
    reached_ns: Int64Array
    first: Int64Array
    kind: NDArray[np.int8]
    place_index: NDArray[np.int32]
    length_ns: Int64Array

    def __len__(self) -> int:
        return len(self.at_ns)


_NONE = np.zeros(0, dtype=np.int64)
NO_PATH = PathPart(
    places=(),
    node=_NONE.astype(np.int32),
    end_node=_NONE.astype(np.int32),
    at_ns=_NONE,
    operation_index=_NONE.astype(np.int32),
    next_node=_NONE.astype(np.int32),
    reached_ns=_NONE,
    first=np.zeros(1, dtype=np.int64),
    kind=_NONE.astype(np.int8),
    place_index=_NONE.astype(np.int32),
    length_ns=_NONE,
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Tree(Frozen):
    """The nodes of a `PathPart`, before what lies between them is summed up.

    Attributes:
        at_ns: int64[n], ns.
        next_node: int64[n], ABSENT for the beginning of the trace.
        reached_ns: int64[n], ns.

    Example row: ``(at_ns=900_000, next_node=3, reached_ns=500_000)``.
    """

    at_ns: Int64Array
    next_node: Int64Array
    reached_ns: Int64Array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Pieces(Frozen):
    """Pieces of the ways; k of them.

    Attributes:
        node: int64[k], the node from which the way of each leads.
        start_ns, end_ns: int64[k], ns.
        kind: int8[k], a `PathKind`.
        event_id: int64[k], as of `CriticalPath`; ABSENT where there is none.
        thread_index: int64[k], where host work is followed, ABSENT for any thread.

    Example row: ``(node=3, start_ns=400, end_ns=900, kind=PathKind.COMPUTE, event_id=17,
    thread_index=ABSENT)``.
    """

    node: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    kind: NDArray[np.int8]
    event_id: Int64Array
    thread_index: Int64Array

    def taken(
        self,
        index: NDArray[np.intp],
        start_ns: Int64Array,
        end_ns: Int64Array,
        node: Int64Array | None = None,
    ) -> _Pieces:
        """Select pieces, which may repeat, with other times and of other nodes."""
        return _Pieces(
            self.node[index] if node is None else node,
            start_ns,
            end_ns,
            self.kind[index],
            self.event_id[index],
            self.thread_index[index],
        )


def path_part(
    graph: Graph, row: NDArray[np.intp], lines: SourceLines, cuts_ns: Int64Array
) -> PathPart:
    """Walk back from every communication kernel and from the end of every step of a file.

    The slow reference model is ``tests/reference/job_path.py``.

    Args:
        graph: the file's dependencies.
        row: intp[c], the timeline row of each communication operation.
        lines: where the file's source is looked for.
        cuts_ns: int64[x], ns, ascending, when a window may begin: every way is cut there.
    """
    if not len(row):
        return NO_PATH  # no other rank waits for it, and nobody asks
    own_rows, operation_index, node = np.unique(row, return_index=True, return_inverse=True)
    walk = _Walk(path_links(graph), own_rows)
    tree, pieces = _cut(*walk.tree(), cuts_ns)
    places, first, kind, place_index, length_ns = _totals(graph, pieces, len(tree.at_ns), lines)
    others = np.full(len(tree.at_ns) - len(own_rows), ABSENT)
    return PathPart(
        places=places,
        node=node.reshape(-1).astype(np.int32),
        end_node=np.arange(len(own_rows), len(walk.starts), dtype=np.int32),
        at_ns=tree.at_ns,
        operation_index=np.append(operation_index, others).astype(np.int32),
        next_node=tree.next_node.astype(np.int32),
        reached_ns=tree.reached_ns,
        first=first,
        kind=kind,
        place_index=place_index,
        length_ns=length_ns,
    )


class _Walk:
    """All ways back from communication kernels and ends of steps, as far as the beginning.

    A state is a row that was passed and the time then; the way from it does not depend on how it
    was reached, so that each is gone through once. The states of rows that are passed at their
    start, nearly all of them, have the row's number, and those that lead to another row have been
    worked out before the walk: it calls nothing for them.

    Attributes:
        starts: intp[x], the states that the walk begins with: those of kernels by row, then those
            of the ends of steps and of the trace.
    """

    def __init__(self, links: PathLinks, rows: NDArray[np.intp]) -> None:
        timeline = links.timeline
        self._links, self._rows = links, rows
        self._first_ns = min(window.start_ns for window in timeline.windows)
        self._operation_rows = frozenset(rows.tolist())
        self._upstream_ns = np.array(links.upstream_end_ns, dtype=np.int64)
        self._upstream_row = np.array(links.upstream_row, dtype=np.int64)
        next_state, reached_ns = self._worked_out()
        self._next_state: list[int] = next_state.tolist()
        self._reached_ns: list[int] = reached_ns.tolist()
        self._row = list(range(len(next_state)))
        self._time_ns: list[int] = timeline.start_ns.tolist()
        self._is_passed = [False] * len(next_state)
        self._state_of: dict[tuple[int, int], int] = {}
        self._pieces: list[tuple[int, int, int, int, int, int]] = []
        ends = [
            (step.end_ns, int(timeline.trace.thread_index[step.event_id]))
            for step in timeline.steps
        ]
        ends.append((timeline.windows[0].end_ns, ABSENT))
        from_end = [self._begin(end_ns, thread) for end_ns, thread in ends]
        self.starts = np.append(rows, from_end).astype(np.intp)
        for state in self.starts.tolist():
            self._follow(state)

    def tree(self) -> tuple[_Tree, _Pieces]:
        """The states that the walk began with and those in which ways meet, and what is between."""
        next_state, is_passed = np.array(self._next_state), np.array(self._is_passed)
        leads_on = is_passed & (next_state != ABSENT)
        is_node = np.bincount(next_state[leads_on], minlength=len(next_state)) > 1
        is_node[self.starts] = True
        meetings = np.setdiff1d(np.flatnonzero(is_node), self.starts)
        nodes = np.append(self.starts, meetings)
        node = self._of_states(nodes, is_node)
        ends = np.flatnonzero(is_passed & (~leads_on | is_node[next_state]))
        next_node, reached_ns = np.full((2, len(nodes)), ABSENT, dtype=np.int64)
        next_node[node[ends]] = np.where(leads_on[ends], node[next_state[ends]], ABSENT)
        reached_ns[node[ends]] = np.array(self._reached_ns)[ends]
        at_ns = np.array(self._time_ns)[nodes]
        state, start_ns, end_ns, kind, event_id, thread_index = self._all_pieces(is_passed)
        pieces = _Pieces(
            node[state], start_ns, end_ns, kind.astype(np.int8), event_id, thread_index
        )
        return _Tree(at_ns, next_node, reached_ns), pieces

    def _worked_out(self) -> tuple[Int64Array, Int64Array]:
        """Find the next state of each row that is passed at its start, and when it is reached.

        _NOT_YET where it waited for the host, for nothing known, or for a row that had not begun.
        """
        upstream_row, upstream_ns = self._upstream_row, self._upstream_ns
        start_ns = self._links.timeline.start_ns[np.maximum(upstream_row, 0)]
        is_known = (upstream_row >= 0) & (upstream_ns > self._first_ns) & (upstream_ns >= start_ns)
        reached_ns = np.where(np.isin(upstream_row, self._rows), upstream_ns, start_ns)
        return np.where(is_known, upstream_row, _NOT_YET), reached_ns

    def _all_pieces(self, is_passed: NDArray[np.bool_]) -> Int64Array:
        """int64[6, k], the state and the other columns of all pieces."""
        links, timeline = self._links, self._links.timeline
        was_worked_out = self._worked_out()[0] != _NOT_YET
        row = np.flatnonzero(is_passed[: len(was_worked_out)] & was_worked_out)
        upstream_row, upstream_ns = self._upstream_row[row], self._upstream_ns[row]
        between = links.kind_between[row]
        none = np.full(len(row), ABSENT)
        waits = (row, upstream_ns, timeline.start_ns[row], between, timeline.event_id[row], none)
        of_upstream = (
            timeline.start_ns[upstream_row],
            upstream_ns,
            timeline.kind[upstream_row],
            timeline.event_id[upstream_row],
        )
        runs = np.stack((row, *of_upstream, none))[:, ~np.isin(upstream_row, self._rows)]
        others = np.array(self._pieces, dtype=np.int64).reshape(-1, 6).T
        pieces = np.concatenate((np.stack(waits), runs, others), axis=1)
        return pieces[:, pieces[1] < pieces[2]]

    def _of_states(self, nodes: NDArray[np.intp], is_node: NDArray[np.bool_]) -> Int64Array:
        """int64[states], the node from which the way leads that passes each state."""
        node, is_end = [ABSENT] * len(is_node), is_node.tolist()
        next_state = self._next_state
        for number, state in enumerate(nodes.tolist()):
            node[state] = number
            following = next_state[state]
            while following != ABSENT and not is_end[following]:
                node[following] = number
                following = next_state[following]
        return np.array(node, dtype=np.int64)

    def _follow(self, state: int) -> None:
        """Go on from a state to one that the walk has been at before."""
        next_state, is_passed = self._next_state, self._is_passed
        while state != ABSENT and not is_passed[state]:
            is_passed[state] = True
            if next_state[state] == _NOT_YET:
                self._go_on(state)
            state = next_state[state]

    def _state(self, row: int, time_ns: int) -> int:
        """The state of having passed a row at a moment."""
        if self._time_ns[row] == time_ns:
            return row
        if (row, time_ns) not in self._state_of:
            self._state_of[row, time_ns] = self._add(row, time_ns)
        return self._state_of[row, time_ns]

    def _add(self, row: int, time_ns: int) -> int:
        self._row.append(row)
        self._time_ns.append(time_ns)
        self._next_state.append(_NOT_YET)
        self._reached_ns.append(ABSENT)
        self._is_passed.append(False)
        return len(self._row) - 1

    def _begin(self, end_ns: int, thread: int) -> int:
        """Go back from the end of a window, as the critical path of one file does; its state."""
        links, state = self._links, self._add(ABSENT, end_ns)
        row, stretches = links.last_ended(end_ns), list[HostStretch]()
        if row == ABSENT or links.timeline.end_ns[row] < end_ns:
            row, stretches = through_host(links, thread, ABSENT, end_ns, self._first_ns)
        self._arrive(state, row, stretches)
        return state

    def _go_on(self, state: int) -> None:
        """Find what the row of a state waited for."""
        links, row = self._links, self._row[state]
        event_id = int(links.timeline.event_id[row])
        upstream_row = links.upstream_row[row]
        upstream_ns = min(self._time_ns[state], links.upstream_end_ns[row])
        kind = PathKind(links.kind_between[row])
        stretches = [HostStretch(upstream_ns, kind, event_id, ABSENT)]
        if upstream_row == HOST:
            thread = int(links.launch_thread_index[row])
            upstream_row, on_host = through_host(
                links, thread, event_id, upstream_ns, self._first_ns
            )
            stretches += on_host
        self._arrive(state, upstream_row, stretches)

    def _arrive(self, state: int, row: int, stretches: Sequence[HostStretch]) -> None:
        """Add what lies between a state and a row, ABSENT for the beginning, and go to the row."""
        now_ns, first_ns = self._time_ns[state], self._first_ns
        if row == ABSENT:
            stretches = [*stretches, HostStretch(first_ns, PathKind.UNKNOWN, ABSENT, ABSENT)]
        for stretch in stretches:
            now_ns = self._spend(state, now_ns, *stretch)
        self._next_state[state] = ABSENT
        if row != ABSENT and now_ns > first_ns:
            timeline, start_ns = self._links.timeline, self._time_ns[row]
            if row not in self._operation_rows or now_ns < start_ns:
                kind, event_id = int(timeline.kind[row]), int(timeline.event_id[row])
                now_ns = self._spend(state, now_ns, start_ns, kind, event_id, ABSENT)
                start_ns = now_ns
            self._next_state[state] = self._state(row, start_ns)
        self._reached_ns[state] = now_ns

    def _spend(
        self, state: int, now_ns: int, since_ns: int, kind: int, event_id: int, thread_index: int
    ) -> int:
        """Add the time from then to now, if it is any, and go there."""
        since_ns = min(now_ns, max(since_ns, self._first_ns))
        self._pieces.append((state, since_ns, now_ns, kind, event_id, thread_index))
        return since_ns


def _cut(tree: _Tree, pieces: _Pieces, cuts_ns: Int64Array) -> tuple[_Tree, _Pieces]:
    """The same ways with nodes where they are cut: those of one way follow each other."""
    end = np.searchsorted(cuts_ns, tree.at_ns)
    way, cut = expand_ranges(np.searchsorted(cuts_ns, tree.reached_ns, "right"), end)
    way = np.append(np.arange(len(end)), way)
    at_ns = np.append(tree.at_ns, cuts_ns[cut])
    order = np.lexsort((-at_ns, way))  # along the ways, one after the other
    begins = np.searchsorted(way[order], np.arange(len(end)))
    is_last = np.diff(way[order], append=ABSENT) != 0
    following = np.roll(order, -1)
    next_node, reached_ns = np.empty((2, len(order)), dtype=np.int64)
    next_node[order] = np.where(is_last, tree.next_node[way[order]], following)
    reached_ns[order] = np.where(is_last, tree.reached_ns[way[order]], at_ns[following])

    first = np.searchsorted(cuts_ns, pieces.start_ns, "right")
    piece_end = np.searchsorted(cuts_ns, pieces.end_ns)
    index, ends_at = expand_ranges(first, piece_end + 1)  # the cut that each one ends at, if any
    bounds_ns = np.append(cuts_ns, 0)
    is_end, is_begin = ends_at == piece_end[index], ends_at == first[index]
    end_ns = np.where(is_end, pieces.end_ns[index], bounds_ns[ends_at])
    start_ns = np.where(is_begin, pieces.start_ns[index], bounds_ns[ends_at - 1])
    of_way = pieces.node[index]
    node = order[begins[of_way] + end[of_way] - ends_at]
    return _Tree(at_ns, next_node, reached_ns), pieces.taken(index, start_ns, end_ns, node)


def _totals(
    graph: Graph, pieces: _Pieces, nodes: int, lines: SourceLines
) -> tuple[tuple[PathPlace, ...], Int64Array, NDArray[np.int8], NDArray[np.int32], Int64Array]:
    """The pieces of each way by kind and place; as the last columns of `PathPart`."""
    pieces = _with_host_work(graph, pieces)
    timeline = graph.host.timeline
    trace = timeline.trace
    names: dict[str, int] = {}
    number_of = np.full(len(trace.strings) + 1, ABSENT)
    is_named = pieces.event_id != ABSENT
    name_index = np.where(is_named, trace.name_index[pieces.event_id], len(trace.strings))
    for name in np.unique(name_index[is_named]).tolist():
        shown = event_as_shown(trace.strings[name])
        number_of[name] = names.setdefault(shown, len(names))
    of_kind = pieces.kind.astype(np.int64)
    is_named &= of_kind != PathKind.UNKNOWN
    place = np.where(is_named, of_kind * len(names) + number_of[name_index], ABSENT)
    length_ns = pieces.end_ns - pieces.start_ns

    node, kind, of_place, total_ns = _summed(pieces.node, of_kind, place, length_ns)
    # Of each way the longest come first; those without a place are the rest.
    by_length = np.lexsort((-total_ns, of_place == ABSENT, node))
    rank = np.empty(len(node), dtype=np.int64)
    rank[by_length] = np.arange(len(node)) - np.searchsorted(node, node[by_length])
    is_kept = (of_place != ABSENT) & (rank < _MAX_PLACES)
    node, kind, of_place, total_ns = _summed(
        node, kind, np.where(is_kept, of_place, ABSENT), total_ns
    )

    kept, place_index = np.unique(of_place[of_place != ABSENT], return_inverse=True)
    index = np.full(len(of_place), ABSENT, dtype=np.int32)
    index[of_place != ABSENT] = place_index
    by_length = np.argsort(length_ns, kind="stable")
    longest = np.full(len(kept), ABSENT)
    is_of_kept = np.isin(place[by_length], kept)
    longest[np.searchsorted(kept, place[by_length[is_of_kept]])] = by_length[is_of_kept]
    sites = _sites(timeline, pieces.event_id[longest], lines)
    shown_names = tuple(names)
    places = tuple(
        PathPlace(shown_names[number % len(names)], site)
        for number, site in zip(kept.tolist(), sites, strict=True)
    )
    first = np.searchsorted(node, np.arange(nodes + 1))
    return places, first, kind.astype(np.int8), index, total_ns


def _with_host_work(graph: Graph, pieces: _Pieces) -> _Pieces:
    """The same pieces, those on the host in chunks with what the host was in half-way through."""
    length_ns = pieces.end_ns - pieces.start_ns
    is_host = pieces.kind == PathKind.HOST
    chunks = np.where(is_host, np.clip(length_ns // _CHUNK_NS, 1, _MAX_CHUNKS), 1)
    index, chunk = expand_ranges(np.zeros_like(chunks), chunks)
    start_ns = pieces.start_ns[index] + length_ns[index] * chunk // chunks[index]
    end_ns = pieces.start_ns[index] + length_ns[index] * (chunk + 1) // chunks[index]
    cut = pieces.taken(index, start_ns, end_ns)

    trace, of_host = graph.host.timeline.trace, np.flatnonzero(is_host[index])
    middle_ns = (start_ns + (end_ns - start_ns) // 2)[of_host]
    thread_index = cut.thread_index[of_host]
    loading_id = outermost_around(trace, graph.host.loading_id, middle_ns, thread_index)
    is_loading = (loading_id != ABSENT) & (trace.thread_index[loading_id] == thread_index)
    event_id = cut.event_id.copy()
    event_id[of_host] = np.where(is_loading, loading_id, busy_with(trace, middle_ns, thread_index))
    return replace(cut, event_id=event_id)


def _sites(timeline: Timeline, event_id: Int64Array, lines: SourceLines) -> list[CallSite]:
    """Find the call site of each of some events, of activities where they were launched."""
    launch_of = np.arange(len(timeline.trace))
    launch_of[timeline.event_id] = timeline.launch_id
    host_id = launch_of[event_id]
    known = np.flatnonzero(host_id != ABSENT)
    sites = [NO_CALL_SITE] * len(host_id)
    for index, site in zip(
        known.tolist(), call_sites(timeline, host_id[known], lines), strict=True
    ):
        sites[index] = site
    return sites


def _summed(
    node: Int64Array, kind: Int64Array, place: Int64Array, length_ns: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """The lengths by node, kind and place, ascending; four times int64[sums]."""
    order = np.lexsort((place, kind, node))
    keys = np.stack((node, kind, place))[:, order]
    is_new = np.append(
        np.ones(min(1, len(order)), dtype=np.bool_), (np.diff(keys) != 0).any(axis=0)
    )
    total_ns = (
        np.add.reduceat(length_ns[order], np.flatnonzero(is_new)) if len(order) else length_ns
    )
    node, kind, place = keys[:, is_new]
    return node, kind, place, total_ns
