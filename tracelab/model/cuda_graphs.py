"""Replays of CUDA graphs: the activities that each launch put on the GPU, in the graph's order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int8Array, Int32Array, Int64Array
from tracelab.model.kernel_kinds import is_copy_kernel, is_graph_launch, is_memset_kernel
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.lost_work import Captures, find_captures
from tracelab.model.phases import ModulePaths
from tracelab.model.program.call_sites import call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category


class GraphReplays(Arrays):
    """The replays of a file, by launch, and the activities of each.

    `launch_id` ([r]) are the calls; `is_ordered` is whether a replay ran in one stream. The
    timeline's rows of replay *i* are ``row[first[i]:first[i + 1]]``, by start.
    """

    launch_id: Int64Array
    is_ordered: BoolArray
    row: IndexArray
    first: IndexArray

    def __len__(self) -> int:
        return len(self.launch_id)

    def rows(self, index: int) -> IndexArray:
        """The timeline rows of a replay, in order."""
        return self.row[self.first[index] : self.first[index + 1]]


def graph_replays(timeline: Timeline) -> GraphReplays:
    """The replays of a file."""
    rows = np.flatnonzero(replayed(timeline))
    launch_ids, index = np.unique(timeline.launch_id[rows], return_inverse=True)
    by_start = np.argsort(timeline.trace.start_ns[launch_ids], kind="stable")
    place = np.empty_like(by_start)
    place[by_start] = np.arange(len(by_start))
    replay = place[index]
    in_order = np.lexsort((timeline.start_ns[rows], replay))
    rows, replay = rows[in_order], replay[in_order]
    is_ordered = np.ones(len(launch_ids), dtype=np.bool_)
    is_other_stream = np.diff(timeline.stream_index[rows]) != 0
    is_ordered[replay[1:][(np.diff(replay) == 0) & is_other_stream]] = False
    return GraphReplays(
        launch_id=launch_ids[by_start],
        is_ordered=is_ordered,
        row=rows,
        first=np.searchsorted(replay, np.arange(len(launch_ids) + 1)),
    )


_MIN_REPLAYED_SHARE = 0.5


def replayed(timeline: Timeline) -> BoolArray:
    """[m], which timeline rows are nodes of a graph that was replayed."""
    is_launched = timeline.launch_id != ABSENT
    is_replayed = match_names(timeline.trace, timeline.launch_id, is_graph_launch)
    found: BoolArray = is_launched & is_replayed
    return found


def mostly_replays(timeline: Timeline) -> bool:
    """True if more than half of what the file launches is replayed: its program uses graphs."""
    launched = int((timeline.launch_id != ABSENT).sum())
    return bool(launched) and int(replayed(timeline).sum()) > _MIN_REPLAYED_SHARE * launched


class Basis(IntEnum):
    """Evidence of where a node of a graph was captured; the surest first."""

    ANNOTATION = 0  # the file says what the program called the region
    CAPTURE = 1  # the capture is in the file, and its calls fit the replay one by one


class Origins(Arrays):
    """Origins of the GPU activities that ran as nodes of graphs; m rows of the timeline.

    Attributes:
        event_id: [m], the host call that was captured, else ABSENT.
        annotation_index: [m], into `annotations`, the names of the regions of capture, else ABSENT.
    """

    event_id: Int64Array
    annotation_index: Int32Array
    annotations: tuple[str, ...]

    @property
    def basis(self) -> Int8Array:
        """`Basis.CAPTURE` where a call is known, else ABSENT: int8[m]."""
        return np.where(self.event_id == ABSENT, ABSENT, Basis.CAPTURE).astype(np.int8)

    @property
    def surest_basis(self) -> Int8Array:
        """The surest `Basis` of each row, else ABSENT: int8[m]."""
        has_annotation = self.annotation_index != ABSENT
        return np.where(has_annotation, Basis.ANNOTATION, self.basis).astype(np.int8)

    def call_id(self, launch_id: Int64Array) -> Int64Array:
        """[m], the call that stands for each activity: the captured one, else its launch."""
        return np.where(self.event_id == ABSENT, launch_id, self.event_id)


def origins(timeline: Timeline, lines: SourceLines) -> Origins:
    """Find where the activities of graphs come from: the same in all captures that fit a replay."""
    trace = timeline.trace
    event_id = np.full(len(timeline.event_id), ABSENT, dtype=np.int64)
    replays = graph_replays(timeline)
    if len(replays):
        captures = find_captures(trace, trace.correlation[timeline.event_id])
        matches = _captured(timeline, replays, captures)
        for rows, agreed_id in _agreed(timeline, lines, matches):
            event_id[rows] = agreed_id
    return Origins(
        event_id=event_id,
        annotation_index=trace.graph_nodes.annotation_index[
            trace.graph_node_row[timeline.event_id]
        ],
        annotations=trace.graph_nodes.annotations,
    )


class _Match(NamedTuple):
    """Sequences of calls, and the graphs that come from one of the first few of them."""

    event_ids: Sequence[Int64Array]  # of each sequence int64[nodes], event ids
    graphs: Sequence[tuple[int, IndexArray]]  # how many sequences; intp[replays, nodes], rows


def _agreed(
    timeline: Timeline, lines: SourceLines, matches: Sequence[_Match]
) -> Iterator[tuple[IndexArray, Int64Array]]:
    """Each graph's rows, and the call of each node, ABSENT where its sequences do not agree."""
    several = [x for match in matches if len(match.event_ids) > 1 for x in match.event_ids]
    known_id = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *several]))
    place = _place_numbers(timeline, lines, known_id) if len(known_id) else known_id
    for match in matches:
        first, *others = match.event_ids
        agreed, is_agreed = [first], np.ones(len(first), dtype=np.bool_)
        for other in others:
            at_first, at_other = (place[np.searchsorted(known_id, x)] for x in (first, other))
            is_agreed = is_agreed & (at_first == at_other)
            agreed.append(np.where(is_agreed, other, ABSENT))
        yield from ((rows, agreed[count - 1]) for count, rows in match.graphs)


def _place_numbers(timeline: Timeline, lines: SourceLines, event_id: Int64Array) -> Int64Array:
    sites = call_sites(timeline, event_id, lines)
    module = ModulePaths(timeline).modules_of(event_id).tolist()
    alone = {site: replace(site, annotation=None) for site in set(sites)}
    places = [(alone[site], of_module) for site, of_module in zip(sites, module, strict=True)]
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(x, len(numbers)) for x in places], dtype=np.int64)


def _asked_for(timeline: Timeline) -> Int8Array:
    """The `Category` of what the program requested: the driver has kernels that copy."""
    trace, event_id = timeline.trace, timeline.event_id
    category = trace.category[event_id].copy()
    is_kernel = category == Category.KERNEL
    for value, is_one in ((Category.MEMCPY, is_copy_kernel), (Category.MEMSET, is_memset_kernel)):
        category[is_kernel & match_names(trace, event_id, is_one)] = value
    return category


def _graphs(timeline: Timeline, replays: GraphReplays) -> list[list[int]]:
    """The replays (indices) of each graph, as far as they tell graphs apart."""
    trace, event_id = timeline.trace, timeline.event_id
    columns = trace.name_index[event_id], trace.copied_bytes[event_id], timeline.device_number
    activity = np.stack(columns, axis=1)
    graphs: dict[object, list[int]] = defaultdict(list)
    for index, is_ordered in enumerate(replays.is_ordered.tolist()):
        graphs[is_ordered, activity[replays.rows(index)].tobytes()].append(index)
    return list(graphs.values())


def _captured(timeline: Timeline, replays: GraphReplays, captures: Captures) -> list[_Match]:
    """The captures that fit replays: as many calls, of the same kinds in the same order."""
    # Several graphs may run the same, so each replay may be from any capture before it, unless the
    # first was before all: then there is a graph of before the recording.
    trace, of_row = timeline.trace, _asked_for(timeline)
    captures_of, graphs_of = defaultdict(list), defaultdict(list)
    for index in range(len(captures)):
        own = slice(captures.first[index], captures.first[index + 1])
        captures_of[captures.category[own].tobytes()].append(index)
    for graph in _graphs(timeline, replays):
        graphs_of[of_row[replays.rows(graph[0])].tobytes()].append(graph)
    matches: list[_Match] = []
    for kinds, alike in graphs_of.items():
        fitting = captures_of[kinds]
        # Where more graphs than captures look like this, some were captured before the recording.
        if len(alike) > len(fitting):
            continue
        # Captures do not overlap: in order of their start they are in order of their end as well.
        ended_ns = trace.start_ns[captures.end_id[fitting]]
        counted: list[tuple[int, IndexArray]] = []
        for graph in alike:
            launch_ns = trace.start_ns[replays.launch_id[graph]]
            count = np.searchsorted(ended_ns, launch_ns, side="right")
            if replays.is_ordered[graph[0]] and count[0]:
                rows = np.stack([replays.rows(index) for index in graph])
                counted += [(before, rows[index]) for before, index in groups_of(count)]
        if counted:
            calls = [captures.launch_id[slice(*captures.first[x : x + 2])] for x in fitting]
            matches.append(_Match(calls[: max(before for before, _ in counted)], counted))
    return matches
