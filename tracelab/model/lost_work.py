"""Host calls whose GPU work is not in the file, or not all of it: records that were lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int8Array, Int64Array, Record
from tracelab.model.activities import Activities
from tracelab.model.kernel_kinds import (
    begins_capture,
    ends_capture,
    is_asynchronous_copy,
    is_asynchronous_memset,
    is_graph_launch,
    is_kernel_launch,
)
from tracelab.model.lookup import calls_of_name, groups_of, is_nested, match_names
from tracelab.model.steps import Step
from tracelab.model.trace import ABSENT, Category, Trace

# A memset of nothing puts nothing on the GPU (305 of 1,055 in one public trace). In 267 intact
# files 1 of 150,000 other calls had no activity.
_LAUNCHES: Mapping[str, Callable[[str], bool]] = {
    "launches_without_activity": is_kernel_launch,
    "copies_without_activity": is_asynchronous_copy,
    "replays_without_activity": is_graph_launch,
}
INCOMPLETE_REPLAYS = "incomplete_replays"
# With a larger share of the calls of a kind, figures are off by more than their rounding.
_MAX_LOST_SHARE = 0.02
# Replays of one graph are about as long, whatever they lost between their ends.
_MAX_LENGTH_GAP_SHARE = 0.1
_MIN_LACKING_SHARE, _MIN_LACKING_NS = 0.05, 3_000
_MAX_NEIGHBORS = 32


class LostWork(Arrays):
    """The calls that put work on the GPU ([k], by start), and which of them lost it.

    `kind` is an index into `KINDS`, the losses that count them.
    """

    call_id: Int64Array
    kind: Int8Array
    is_lost: BoolArray

    def counts(self) -> dict[str, int]:
        """The calls that lost their work, by the name of the loss."""
        counts = np.bincount(self.kind[self.is_lost], minlength=len(KINDS)).tolist()
        return dict(zip(KINDS, counts, strict=True))


KINDS = (*_LAUNCHES, INCOMPLETE_REPLAYS)
_WORDS = ("kernel launches", "copies", "graph replays")


def find_lost_work(timeline: Activities) -> LostWork:
    """The calls that put work on the GPU, and which of them lost it.

    A replay lacks nodes where another one is as long and has the same nodes and more.
    """
    trace = timeline.trace
    calls = calls_of_name(trace, lambda name: any(test(name) for test in _LAUNCHES.values()))
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    calls = calls[~is_nested(trace, calls)]  # the runtime's call launches by one of the driver
    kind = np.zeros(len(calls), dtype=np.int8)
    for index, test in enumerate(_LAUNCHES.values()):
        kind[match_names(trace, calls, test)] = index
    is_lost = ~_has_activity(timeline, calls)
    is_lost[is_lost] = ~_is_captured(timeline, calls[is_lost])
    replays = _replays(timeline)
    incomplete = _lack_nodes(replays) | _are_broken_off(replays, calls, is_lost)
    lacks_nodes = np.isin(calls, list(incomplete))
    kind[lacks_nodes] = KINDS.index(INCOMPLETE_REPLAYS)
    return LostWork(calls.astype(np.int64), kind, is_lost | lacks_nodes)


def missing_work(
    timeline: Activities, lost: LostWork, left_out: Sequence[Step]
) -> tuple[str, bool]:
    """The missing work in words, as "8 of 10 graph replays", and if the figures are wrong by it.

    That of steps that are left out does not count.
    """
    is_used = ~np.isin(lost.call_id, _calls_within(timeline.trace, lost.call_id, left_out))
    words: list[str] = []
    is_much = False
    for index, word in enumerate(_WORDS):
        of_kind = is_used & (lost.kind == index)
        if word == _WORDS[-1]:
            of_kind |= is_used & (lost.kind == KINDS.index(INCOMPLETE_REPLAYS))
        count, total = int((of_kind & lost.is_lost).sum()), int(of_kind.sum())
        if count:
            words.append(f"{count:,} of {total:,} {word}")
            is_much |= count > _MAX_LOST_SHARE * total
    arrows = timeline.trace.losses.get("arrows_without_end", 0)
    if arrows and not lost.is_lost.any():  # else they are arrows of that
        total = arrows + len(timeline.event_id)
        words.append(f"{arrows:,} of {total:,} activities to which arrows lead")
        is_much = arrows > _MAX_LOST_SHARE * total
    return ", ".join(words), is_much


def _calls_within(trace: Trace, calls: Int64Array, steps: Sequence[Step]) -> Int64Array:
    event_ids = np.array([step.event_id for step in steps], dtype=np.intp)
    first, end = np.searchsorted(
        trace.start_ns[calls], (trace.start_ns[event_ids], trace.end_ns[event_ids])
    )
    return np.concatenate([calls[:0], *(calls[i:j] for i, j in zip(first, end, strict=True))])


def _has_activity(timeline: Activities, calls: IndexArray) -> BoolArray:
    """[k], which calls put something on the GPU; a graph may hold no more than events."""
    trace = timeline.trace
    nodes = trace.of_category(Category.GRAPH_EVENT_NODE, Category.GRAPH_HOST_NODE)
    on_gpu = np.concatenate((trace.correlation[timeline.event_id], trace.correlation[nodes]))
    return np.isin(calls, timeline.launch_id) | np.isin(trace.correlation[calls], on_gpu)


def _is_captured(timeline: Activities, calls: IndexArray) -> BoolArray:
    """[k], which calls were captured into a CUDA graph, by their thread or meanwhile by others."""
    trace = timeline.trace
    if not len(calls):
        return np.zeros(0, dtype=np.bool_)
    begins, ends = calls_of_name(trace, begins_capture), calls_of_name(trace, ends_capture)
    is_capturing = np.zeros(len(calls), dtype=np.bool_)
    for thread, indices in groups_of(trace.thread_index[calls]):
        begun, ended = (
            np.searchsorted(
                trace.start_ns[bounds[trace.thread_index[bounds] == thread]],
                trace.start_ns[calls[indices]],
            )
            for bounds in (begins, ends)
        )
        is_capturing[indices] = begun > ended
    captures = find_captures(trace, trace.correlation[timeline.event_id])
    captured: BoolArray = is_capturing | np.isin(calls, captures.launch_id)
    return captured


class _Replay(Record):
    launch_id: int
    node: Int64Array
    run_ns: int
    length_ns: int


def _replays(timeline: Activities) -> list[_Replay]:
    trace = timeline.trace
    is_node = timeline.launch_id != ABSENT
    is_node &= match_names(trace, timeline.launch_id, is_graph_launch)
    rows = np.flatnonzero(is_node)
    rows = rows[np.lexsort((timeline.start_ns[rows], timeline.launch_id[rows]))]
    node = trace.name_index[timeline.event_id[rows]].astype(np.int64)
    node = node * len(timeline.streams) + timeline.stream_index[rows]
    replays = []
    for launch_id, index in groups_of(timeline.launch_id[rows]):
        start_ns, end_ns = timeline.start_ns[rows[index]], timeline.end_ns[rows[index]]
        run_ns, length_ns = int((end_ns - start_ns).sum()), int(end_ns.max() - start_ns[0])
        replays.append(_Replay(launch_id, node[index], run_ns, length_ns))
    return replays


def _lack_nodes(replays: list[_Replay]) -> set[int]:
    """The launch calls of replays that lack nodes of another one, which took about as long."""
    graphs: dict[bytes, list[_Replay]] = {}
    for one in replays:
        graphs.setdefault(np.sort(one.node).tobytes(), []).append(one)
    agreeing = sorted(graphs.values(), key=lambda x: x[0].length_ns)
    nodes = [Counter(of_graph[0].node.tolist()) for of_graph in agreeing]
    launch_ids: set[int] = set()
    for i, of_graph in enumerate(agreeing):
        one = of_graph[0]
        least_ns = max(_MIN_LACKING_SHARE * one.length_ns, _MIN_LACKING_NS)
        if any(
            abs(other.length_ns - one.length_ns) <= _MAX_LENGTH_GAP_SHARE * one.length_ns
            and other.run_ns - one.run_ns > least_ns
            and nodes[i] < nodes[j]
            for j in range(max(0, i - _MAX_NEIGHBORS), min(len(nodes), i + _MAX_NEIGHBORS + 1))
            for other in agreeing[j][:1]
        ):
            launch_ids |= {x.launch_id for x in of_graph}
    return launch_ids


def _are_broken_off(replays: list[_Replay], calls: IndexArray, is_lost: BoolArray) -> set[int]:
    """The launch calls of replays that begin or end as another one, next to lost records."""
    # Where the file begins or ends is such a place, too.
    place = {int(call): i for i, call in enumerate(calls)}
    lost_before = np.concatenate(([True], is_lost[:-1]))
    lost_after = np.concatenate((is_lost[1:], [True]))
    texts = {x.node.tobytes() for x in replays}
    launch_ids = set()
    for one in replays:
        i, text = place.get(one.launch_id, ABSENT), one.node.tobytes()
        if i != ABSENT and any(
            (lost_after[i] and other.startswith(text)) or (lost_before[i] and other.endswith(text))
            for other in (texts if lost_before[i] or lost_after[i] else ())
            if other != text
        ):
            launch_ids.add(one.launch_id)
    return launch_ids


_CAPTURED = (
    (Category.KERNEL, is_kernel_launch),
    (Category.MEMCPY, is_asynchronous_copy),
    (Category.MEMSET, is_asynchronous_memset),
)


class Captures(Arrays):
    """The captures of a file, by start, and what was launched into each, in order.

    The calls captured by *i*, by start, are ``launch_id[first[i]:first[i + 1]]``; `category` is
    that of the activity that each asks for.
    """

    begin_id: Int64Array
    end_id: Int64Array
    launch_id: Int64Array
    category: Int8Array
    first: IndexArray

    def __len__(self) -> int:
        return len(self.begin_id)


def find_captures(trace: Trace, activity_correlation: Int64Array) -> Captures:
    """Find the captures that are in a file from begin to end, and what was captured in each.

    Every thread of the process counts; captures that overlap others are left out. Calls with one of
    `activity_correlation` put something on the GPU and were not captured.
    """
    begin_id, end_id = _pairs(trace)
    process = np.unique([thread.process for thread in trace.threads], return_inverse=True)[1]
    calls, category = _launches(trace, activity_correlation)
    begin_ns, end_ns = trace.start_ns[begin_id], trace.start_ns[end_id]
    index = np.searchsorted(begin_ns, trace.start_ns[calls], side="right") - 1
    is_captured = index != ABSENT
    is_captured[is_captured] = (trace.start_ns[calls[is_captured]] < end_ns[index[is_captured]]) & (
        process[trace.thread_index[calls[is_captured]]]
        == process[trace.thread_index[begin_id[index[is_captured]]]]
    )
    return Captures(
        begin_id=begin_id,
        end_id=end_id,
        launch_id=calls[is_captured].astype(np.int64),
        category=category[is_captured],
        first=np.searchsorted(index[is_captured], np.arange(len(begin_id) + 1)),
    )


def _pairs(trace: Trace) -> tuple[Int64Array, Int64Array]:
    # A capture ends on the thread on which it began.
    begins, ends = calls_of_name(trace, begins_capture), calls_of_name(trace, ends_capture)
    calls = np.concatenate((begins, ends)).astype(np.int64)
    is_end = np.arange(len(calls)) >= len(begins)
    order = np.lexsort((trace.start_ns[calls], trace.thread_index[calls]))
    calls, is_end = calls[order], is_end[order]
    is_pair = ~is_end[:-1] & is_end[1:]
    is_pair &= trace.thread_index[calls[:-1]] == trace.thread_index[calls[1:]]
    begin_id, end_id = calls[:-1][is_pair], calls[1:][is_pair]
    by_start = np.argsort(trace.start_ns[begin_id], kind="stable")
    begin_id, end_id = begin_id[by_start], end_id[by_start]
    begin_ns, end_ns = trace.start_ns[begin_id], trace.start_ns[end_id]
    overlaps = np.zeros(len(begin_id), dtype=np.bool_)
    overlaps[1:] = begin_ns[1:] < np.maximum.accumulate(end_ns)[:-1]
    overlaps[:-1] |= end_ns[:-1] > begin_ns[1:]
    return begin_id[~overlaps], end_id[~overlaps]


def _launches(trace: Trace, activity_correlation: Int64Array) -> tuple[IndexArray, Int8Array]:
    """The calls that requested an activity and have none in the file, by start, and which kind."""
    calls = calls_of_name(trace, lambda name: any(is_one(name) for _, is_one in _CAPTURED))
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    calls = calls[~is_nested(trace, calls)]
    calls = calls[~np.isin(trace.correlation[calls], activity_correlation)]
    category = np.full(len(calls), ABSENT, dtype=np.int8)
    for value, is_one in _CAPTURED:
        category[match_names(trace, calls, is_one)] = value
    return calls, category
