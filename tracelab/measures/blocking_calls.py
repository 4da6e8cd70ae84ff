"""Which host calls blocked, where in the program, and how much GPU idle each one caused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, OneLine
from tracelab.base.intervals import Int64Array
from tracelab.measures.attributed_idle import AttributedIdle, attributed_idle
from tracelab.measures.measure import Measure, constrained
from tracelab.model.blocking_calls import Blocking, BlockingCalls
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.lookup import groups_of
from tracelab.model.program.call_sites import CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Trace


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockingCallCosts(Frozen):
    """The blocking calls, by start, and what they cost.

    Attributes:
        calls: the calls.
        step_index: int32[k], index into `Timeline.steps` of the step whose host annotation holds
            the call, else ABSENT.
        blocked_ns: int64[k], ns.
        caused_idle_ns: int64[k], ns, summed over devices.
        idle_after_ns: int64[k], ns, the part of it after the call had returned.
        attributed_idle: the stretches that make it up.
        awaited_id: int64[k], event id of the activity that each call waited for; of several the one
            that ended last, ABSENT if the file does not say.
        call_sites: where each call was made.

    Example row: ``(step_index=3, blocked_ns=700, caused_idle_ns=300, idle_after_ns=100,
    awaited_id=17)``: the call blocked for 700 ns, in 200 of which a device was idle; of the idle
    after it, it caused another 100 ns.
    """

    calls: BlockingCalls
    step_index: NDArray[np.int32]
    blocked_ns: Int64Array
    caused_idle_ns: Int64Array
    idle_after_ns: Int64Array
    attributed_idle: AttributedIdle
    awaited_id: Int64Array
    call_sites: tuple[CallSite, ...]


def blocking_calls(graph: Graph, lines: SourceLines | None = None) -> BlockingCallCosts:
    """Measure the blocking calls of a file.

    The slow reference model is ``tests/reference/ticks.py``.

    Args:
        graph: the file's dependencies.
        lines: where to look for source files; without it no line is named.
    """
    host, timeline = graph.host, graph.host.timeline
    calls = host.blocking_calls
    idle = attributed_idle(host)
    caused_idle_ns = np.zeros(len(calls), dtype=np.int64)
    np.add.at(caused_idle_ns, idle.call_index, idle.length_ns)
    idle_after_ns = np.zeros(len(calls), dtype=np.int64)
    after_start_ns = np.maximum(idle.start_ns, calls.end_ns[idle.call_index])
    np.add.at(idle_after_ns, idle.call_index, np.maximum(0, idle.end_ns - after_start_ns))
    return BlockingCallCosts(
        calls=calls,
        step_index=_step_index(timeline, calls),
        blocked_ns=calls.end_ns - calls.start_ns,
        caused_idle_ns=caused_idle_ns,
        idle_after_ns=idle_after_ns,
        attributed_idle=idle,
        awaited_id=_awaited_id(graph),
        call_sites=call_sites(timeline, calls.event_id, lines),
    )


def _step_index(timeline: Timeline, calls: BlockingCalls) -> NDArray[np.int32]:
    """int32[k], the first step whose host annotation holds each call, else ABSENT."""
    step_index = np.full(len(calls), ABSENT, dtype=np.int32)
    for index, step in enumerate(timeline.steps):
        start_ns = timeline.trace.start_ns[step.event_id]
        end_ns = timeline.trace.end_ns[step.event_id]
        first, last = np.searchsorted(calls.start_ns, (start_ns, end_ns))
        inside = step_index[first:last]
        inside[inside == ABSENT] = index
    return step_index


def _awaited_id(graph: Graph) -> Int64Array:
    """Per blocking call the last activity that it waited for, else ABSENT."""
    trace, calls = graph.host.timeline.trace, graph.host.blocking_calls
    is_launch = np.isin(graph.source_id, calls.event_id) & (graph.kind == EdgeKind.LAUNCH)
    is_sync = np.isin(graph.target_id, calls.event_id) & (graph.kind == EdgeKind.SYNC)
    # A blocking copy waits for the copy that it launches.
    call_id = np.concatenate((graph.source_id[is_launch], graph.target_id[is_sync]))
    activity_id = np.concatenate((graph.target_id[is_launch], graph.source_id[is_sync]))
    order = np.argsort(trace.end_ns[activity_id], kind="stable")
    last_id = dict(zip(call_id[order].tolist(), activity_id[order].tolist(), strict=True))
    return np.array([last_id.get(call, ABSENT) for call in calls.event_id.tolist()], dtype=np.int64)


@dataclass(frozen=True, slots=True, repr=False)
class BlockingCallMetrics(OneLine):
    """The blocking calls of one API at one call site, ns.

    What a call costs often falls into the next step. In the rows of a step `count` and `blocked_ns`
    are of the calls that the step made (none, where a call before it costs idle time in it), and
    `caused_idle_ns` is the idle time in the step, whichever step made the call.

    Attributes:
        idle_after_ns: the part of the caused idle after the calls had returned.
        waited_for: the activity for which they blocked longest.

    Example row: ``BlockingCallMetrics(rank=0, step=3, api="cudaStreamSynchronize", kind="stream",
    count=2, blocked_ns=700, caused_idle_ns=300, idle_after_ns=100, waited_for="gemm",
    operator="aten::item", annotation=None, function="step", file="train.py", line=31)``: the
    ``.item()`` in line 31 was called twice and cost 300 ns of idle time.
    """

    rank: int
    step: int | None
    api: str
    kind: str = field(metadata=constrained(enum=[kind.name.lower() for kind in Blocking]))
    count: int
    blocked_ns: int
    caused_idle_ns: int
    idle_after_ns: int
    waited_for: str | None
    operator: str | None
    annotation: str | None
    function: str | None
    file: str | None
    line: int | None


def blocking_call_rows(
    graph: Graph, windows: Sequence[Window], blocking_calls: BlockingCallCosts
) -> Iterator[BlockingCallMetrics]:
    """The blocking calls of each window by API and call site, the most expensive first.

    The slow reference model is ``tests/reference/ticks.py``.
    """
    timeline = graph.host.timeline
    trace, calls = timeline.trace, blocking_calls.calls
    names = [trace.name_of(event_id) for event_id in calls.event_id.tolist()]
    keys = list(zip(names, calls.kind.tolist(), blocking_calls.call_sites, strict=True))
    index_of_step = {step.number: index for index, step in enumerate(timeline.steps)}
    made_in_step = dict(groups_of(blocking_calls.step_index))
    none_made = np.zeros(0, dtype=np.intp)
    for window, (idle_index, idle_ns, after_ns) in zip(
        windows, _idle_within(blocking_calls, windows), strict=True
    ):
        made_index = (
            np.arange(len(calls))
            if window.step is None
            else made_in_step.get(index_of_step[window.step], none_made)
        )
        groups: dict[tuple[str, int, CallSite], _CallsInWindow] = defaultdict(_CallsInWindow)
        for call_index in made_index.tolist():
            groups[keys[call_index]].made.append(call_index)
        for call_index, caused_ns, later_ns in zip(
            idle_index.tolist(), idle_ns.tolist(), after_ns.tolist(), strict=True
        ):
            groups[keys[call_index]].add(call_index, caused_ns, later_ns)
        rows = (
            BlockingCallMetrics(
                rank=0,
                step=window.step,
                api=api,
                kind=Blocking(kind).name.lower(),
                count=len(group.made),
                blocked_ns=int(blocking_calls.blocked_ns[group.made].sum()),
                caused_idle_ns=group.caused_idle_ns,
                idle_after_ns=group.idle_after_ns,
                waited_for=_longest_awaited(trace, blocking_calls, {*group.made, *group.causing}),
                operator=site.operator,
                annotation=site.annotation,
                function=site.function,
                file=site.file,
                line=site.line,
            )
            for (api, kind, site), group in groups.items()
        )
        yield from sorted(rows, key=lambda row: (-row.caused_idle_ns, -row.blocked_ns, row.api))


@dataclass(slots=True)
class _CallsInWindow:
    """The calls of one row while it is added up: those that the window made, and its idle."""

    made: list[int] = field(default_factory=list)
    causing: set[int] = field(default_factory=set)
    caused_idle_ns: int = 0
    idle_after_ns: int = 0

    def add(self, call_index: int, caused_ns: int, after_ns: int) -> None:
        self.causing.add(call_index)
        self.caused_idle_ns += caused_ns
        self.idle_after_ns += after_ns


def _idle_within(
    costs: BlockingCallCosts, windows: Sequence[Window]
) -> Iterator[tuple[NDArray[np.intp], Int64Array, Int64Array]]:
    """Per window its stretches of idle time that calls caused.

    Each as intp[k], the index of the call, int64[k], the idle, ns, and int64[k], the part of it
    after the call had returned, ns.
    """
    idle = costs.attributed_idle
    by_start = np.argsort(idle.start_ns, kind="stable")
    starts_ns, reach_ns = idle.start_ns[by_start], np.maximum.accumulate(idle.end_ns[by_start])
    for window in windows:
        first = np.searchsorted(reach_ns, window.start_ns, side="right")
        last = np.searchsorted(starts_ns, window.end_ns)
        index = by_start[first:last]
        index = index[idle.end_ns[index] > window.start_ns]
        call_index = idle.call_index[index]
        start_ns = np.maximum(idle.start_ns[index], window.start_ns)
        end_ns = np.minimum(idle.end_ns[index], window.end_ns)
        after_start_ns = np.maximum(start_ns, costs.calls.end_ns[call_index])
        yield call_index, end_ns - start_ns, np.maximum(0, end_ns - after_start_ns)


def _longest_awaited(trace: Trace, costs: BlockingCallCosts, group: Collection[int]) -> str | None:
    """The name of the activity for which these calls blocked longest; None if none is known."""
    blocked_ns: Counter[int] = Counter()
    for call_index in sorted(group):
        if costs.awaited_id[call_index] != ABSENT:
            name_index = int(trace.name_index[costs.awaited_id[call_index]])
            blocked_ns[name_index] += int(costs.blocked_ns[call_index])
    if not blocked_ns:
        return None
    return trace.strings[max(blocked_ns, key=lambda name_index: blocked_ns[name_index])]


MEASURE = Measure("syncs", BlockingCallMetrics, blocking_call_rows)
