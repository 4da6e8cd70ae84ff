"""Places in the program from which the activities of a CUDA graph's replay come.

A replay is one call, so all that it puts on the GPU would belong to the line of that call. A user
wants to know where each node was captured. An annotation of the node says it, or the capture, if it
is in the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import Int64Array
from tracelab.model.captures import Captures, find_captures
from tracelab.model.cuda_graphs.graph_replays import GraphReplays, graph_replays
from tracelab.model.kernel_kinds import is_copy_kernel, is_memset_kernel
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.program.call_sites import call_sites
from tracelab.model.program.module_paths import ModulePaths
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, Trace


class Basis(IntEnum):
    """Evidence of where a node of a graph was captured; the surest first."""

    ANNOTATION = 0  # the file says what the program called the region
    CAPTURE = 1  # the capture is in the file, and its calls fit the replay one by one


class Origins(Arrays):
    """Origins of the GPU activities that ran as nodes of graphs; m rows of the timeline.

    Attributes:
        event_id: int64[m], event id of the host call that was captured; ABSENT where none is known,
            and for all that ran outside of graphs.
        annotation_index: int32[m], index into `annotations`; ABSENT where the file has none.
        annotations: what the program called the regions in which nodes were captured.
    """

    event_id: Int64Array
    annotation_index: NDArray[np.int32]
    annotations: tuple[str, ...]

    @property
    def basis(self) -> NDArray[np.int8]:
        """int8[m], `Basis.CAPTURE` where a call is known, else ABSENT."""
        return np.where(self.event_id == ABSENT, ABSENT, Basis.CAPTURE).astype(np.int8)

    @property
    def surest_basis(self) -> NDArray[np.int8]:
        """int8[m], the surest `Basis` of each row; ABSENT where nothing is known."""
        has_annotation = self.annotation_index != ABSENT
        return np.where(has_annotation, Basis.ANNOTATION, self.basis).astype(np.int8)

    def call_id(self, launch_id: Int64Array) -> Int64Array:
        """int64[m], the call that stands for each activity: the captured one, else its launch."""
        return np.where(self.event_id == ABSENT, launch_id, self.event_id)


def origins(timeline: Timeline, lines: SourceLines) -> Origins:
    """Find where the activities of graphs come from.

    Where several captures fit a replay, a node gets one only if it is at the same place of the
    program in all of them. The slow reference model is ``tests/reference/origins.py``.
    """
    trace = timeline.trace
    event_id = np.full(len(timeline.event_id), ABSENT, dtype=np.int64)
    replays = graph_replays(timeline)
    if len(replays):
        places = _Places(timeline, lines)
        graphs = _graphs(timeline, replays)
        captures = find_captures(trace, trace.correlation[timeline.event_id])
        matches = _captured(timeline, replays, captures, graphs)
        for rows, agreed_id in places.agreed(matches):
            event_id[rows] = agreed_id
    return Origins(
        event_id=event_id,
        annotation_index=trace.graph_nodes.annotation_index[
            trace.graph_node_row[timeline.event_id]
        ],
        annotations=trace.graph_nodes.annotations,
    )


class _Graph(NamedTuple):
    """A graph, as far as its replays tell graphs apart."""

    number: int  # ABSENT where the file does not say
    is_ordered: bool
    replays: list[int]  # indices of replays, by launch


class _Match(NamedTuple):
    """Sequences of calls, and the graphs that come from one of the first few of them."""

    event_ids: Sequence[Int64Array]  # of each sequence int64[nodes], event ids
    graphs: Sequence[tuple[int, NDArray[np.intp]]]  # how many sequences; intp[replays, nodes], rows


class _Places:
    """Comparable places of calls in the program."""

    def __init__(self, timeline: Timeline, lines: SourceLines) -> None:
        self._timeline, self._lines = timeline, lines

    def agreed(self, matches: Sequence[_Match]) -> Iterator[tuple[NDArray[np.intp], Int64Array]]:
        """Return each graph's rows, and int64[nodes], the event id of the call of each node."""
        # That of the last of its sequences; ABSENT where that is at another place of the program
        # than that of one of the others.
        several = [x for match in matches if len(match.event_ids) > 1 for x in match.event_ids]
        known_id = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *several]))
        place = self._numbers(known_id) if len(known_id) else known_id
        for match in matches:
            first, *others = match.event_ids
            agreed, is_agreed = [first], np.ones(len(first), dtype=np.bool_)
            for other in others:
                at_first, at_other = (place[np.searchsorted(known_id, x)] for x in (first, other))
                is_agreed = is_agreed & (at_first == at_other)
                agreed.append(np.where(is_agreed, other, ABSENT))
            yield from ((rows, agreed[count - 1]) for count, rows in match.graphs)

    def _numbers(self, event_id: Int64Array) -> Int64Array:
        """int64[k], a number for each different place, which is a call site and a module."""
        sites = call_sites(self._timeline, event_id, self._lines)
        module = ModulePaths(self._timeline).modules_of(event_id).tolist()
        alone = {site: replace(site, annotation=None) for site in set(sites)}
        numbers: dict[object, int] = {}
        return np.array(
            [
                numbers.setdefault((alone[site], of_module), len(numbers))
                for site, of_module in zip(sites, module, strict=True)
            ],
            dtype=np.int64,
        )


def _asked_for(timeline: Timeline) -> NDArray[np.int8]:
    """int8[m], the `Category` of what the program requested: the driver has kernels that copy."""
    trace, event_id = timeline.trace, timeline.event_id
    category = trace.category[event_id].copy()
    is_kernel = category == Category.KERNEL
    for value, is_one in (
        (Category.MEMCPY, is_copy_kernel),
        (Category.MEMSET, is_memset_kernel),
    ):
        category[is_kernel & match_names(trace, event_id, is_one)] = value
    return category


def _graphs(timeline: Timeline, replays: GraphReplays) -> list[_Graph]:
    """List the graphs of a file, by their first replay."""
    trace, event_id = timeline.trace, timeline.event_id
    columns = trace.name_index[event_id], trace.copied_bytes[event_id], timeline.device_number
    activity = np.stack(columns, axis=1)
    graphs: dict[object, _Graph] = {}
    for index, (number, is_ordered) in enumerate(
        zip(replays.graph_number.tolist(), replays.is_ordered.tolist(), strict=True)
    ):
        key = number, is_ordered, activity[replays.rows(index)].tobytes()
        graphs.setdefault(key, _Graph(number, is_ordered, [])).replays.append(index)
    return list(graphs.values())


def _rows_of(replays: GraphReplays, graph: _Graph) -> NDArray[np.intp]:
    """intp[replays, nodes], the timeline rows of a graph."""
    return np.stack([replays.rows(index) for index in graph.replays])


def _captured(
    timeline: Timeline,
    replays: GraphReplays,
    captures: Captures,
    graphs: Iterable[_Graph],
) -> list[_Match]:
    """The captures that fit replays: as many calls, of the same kinds in the same order."""
    trace, of_row = timeline.trace, _asked_for(timeline)
    captures_of, graphs_of = defaultdict(list), defaultdict(list)
    for index in range(len(captures)):
        own = slice(captures.first[index], captures.first[index + 1])
        captures_of[captures.category[own].tobytes()].append(index)
    for graph in graphs:
        graphs_of[of_row[replays.rows(graph.replays[0])].tobytes()].append(graph)
    matches: list[_Match] = []
    for kinds, alike in graphs_of.items():
        # Where more graphs than captures look like this, some were captured before the recording.
        if len(alike) > len(captures_of[kinds]):
            continue
        calls = [
            captures.launch_id[captures.first[index] : captures.first[index + 1]]
            for index in captures_of[kinds]
        ]
        # Captures do not overlap: in order of their start they are in order of their end as well.
        ended_ns = trace.start_ns[captures.end_id[captures_of[kinds]]]
        matches += _fitting(trace, replays, calls, ended_ns, alike)
    return matches


def _fitting(
    trace: Trace,
    replays: GraphReplays,
    calls: Sequence[Int64Array],
    ended_ns: Int64Array,
    graphs: Sequence[_Graph],
) -> Iterator[_Match]:
    """Match graphs to the captures that look like them."""
    # Where there are as many graphs as captures and they are numbered, they were made in that
    # order. What has no number may be several graphs that run the same, so each of its replays may
    # be from any capture before it, unless the first was before all: then there is a graph of
    # before the recording.
    in_order = sorted(graphs, key=lambda graph: graph.number)
    first_ns = trace.start_ns[replays.launch_id[[graph.replays[0] for graph in in_order]]]
    is_numbered = len(graphs) == len(calls) and all(x.number != ABSENT for x in graphs)
    if is_numbered and (ended_ns <= first_ns).all():
        yield from (
            _Match([of_capture], [(1, _rows_of(replays, graph))])
            for graph, of_capture in zip(in_order, calls, strict=True)
            if graph.is_ordered
        )
        return
    counted = []
    for graph in filter(lambda graph: graph.is_ordered, in_order):
        launch_id = replays.launch_id[graph.replays]
        captured_by_ns = trace.start_ns[launch_id if graph.number == ABSENT else launch_id[:1]]
        count = np.searchsorted(ended_ns, captured_by_ns, side="right")
        if count[0]:
            rows = _rows_of(replays, graph)
            alike = groups_of(np.broadcast_to(count, len(rows)))
            counted += [(before, rows[index]) for before, index in alike]
    if counted:
        yield _Match(calls[: max(before for before, _ in counted)], counted)
