"""Capture: what keeps the steady steps from being a CUDA graph, and which part of them can be one.

During capture, no call may wait for the GPU, copy pageable memory or allocate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, Record
from tracelab.findings.advice.needs import Need, cannot_go
from tracelab.findings.advice.repeats import have_same_sizes
from tracelab.findings.candidates import grouped, is_regular, where
from tracelab.findings.context import Context
from tracelab.findings.places import edit_text
from tracelab.findings.remedies.recognizers import compiled_regions
from tracelab.findings.remedy import is_available
from tracelab.model.blocking_calls import Blocking
from tracelab.model.frames import MODULE_PREFIX, called_name
from tracelab.model.kernel_kinds import Kind, is_graph_launch
from tracelab.model.lookup import Nesting, match_names
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT, Category
from tracelab.model.wording import called, describe

_MIN_SHARE_OF_LAUNCHES = 0.5
# Of the usual launches of a segment: shorter ones are exceptions.
_MIN_ALIKE_SHARE = 0.75
# Of the launches of a segment, or of a step.
_MIN_NOTABLE_SHARE = 0.02
# Of the launches of a step: a call with fewer before or after it is at an end of the step.
_MIN_SHARE_AROUND = 0.05
# In a program of replays: of the activities, and beside each of them.
_MIN_REPLAYED_SHARE, _MAX_EAGER_PER_REPLAY = 0.5, 20
_MAX_LOOKED_UP_LAUNCHES = 20_000
_COPIES = frozenset(("aten::_foreach_copy_", "aten::copy_"))
_MARKS_SINCE = "2.1"  # `mark_static_address`
_RULES_OF_CALLS = ("TL101", "TL102", "TL103")
_NAMED_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


class Way(IntEnum):
    """Ways in which a call prevents a capture, in the order in which to remove them."""

    WAIT = 0  # the host waits for the GPU
    COPY = 1  # of pageable memory
    SIZE = 2  # an operator the size of whose result the host must know


class Blocker(Record):
    """The calls of one place, in words, that no capture can hold.

    Attributes:
        per_step: calls per step; in the window if there are no steps.
        idle_ns: ns, the idle time that they caused in all steps.
        is_needed: True if the host needs the value, so that the call stays.
        is_inside: True if more than a few launches are on both sides of it in a step.
        edit: the change that removes them in a replay.
    """

    way: Way
    what: str
    call: str
    per_step: float
    idle_ns: int
    is_needed: bool
    is_inside: bool
    edit: str

    @property
    def can_go(self) -> bool:
        """True if it is to be removed before a step can be captured."""
        return self.is_inside and not self.is_needed


class Segment(Record, eq=False):
    """The largest part of the steps between two calls that stay, or from end to end of a step.

    Attributes:
        launches, of_launches: median launches of it, and of a step.
        per_step: its repetitions in a step.
        before, after: the calls around it; None at an end of the step.
        work: its phases.
        module: the outermost module that launches most of it.
        cut_in: "the backward pass" or a module if both calls are inside.
        repetitions: intp[k] each, the first timeline row of each launch.
    """

    launches: int
    per_step: float
    of_launches: int
    before: Blocker | None
    after: Blocker | None
    work: tuple[str, ...]
    module: str | None
    cut_in: str | None
    repetitions: tuple[IndexArray, ...]

    @property
    def is_most(self) -> bool:
        """True if one repetition has most of the launches of a step."""
        return self.launches > _MIN_SHARE_OF_LAUNCHES * self.of_launches

    @property
    def is_whole(self) -> bool:
        """True if it is a step from end to end."""
        return self.before is None and self.after is None


class Launched(Record):
    """The launches of steps that replay graphs, or of the window.

    Attributes:
        eager_per_step: other calls, without waits or copies to the host.
        is_mostly_replays: True if few replays make most activities.
        eager_at: the place of most eager calls, in words, or "".
        copies_inputs: True if all copy inputs of compiled graphs, which can be avoided.
    """

    replays_per_step: int
    eager_per_step: int
    is_mostly_replays: bool
    eager_at: str
    copies_inputs: bool


class Capture(Record, eq=False):
    """The contents of a graph of the steady steps.

    Attributes:
        blockers: in the order in which to remove them, by calls.
        as_is, after_removal: the largest segment between all, and between those that stay.
        threads: other threads than the main one and autograd's that launch much of a step.
        has_steps: False if it is about the window.
        compiled_share: share of launches by `torch.compile`.
        launched: replays and launches next to them; None if most steps replay nothing.
    """

    blockers: tuple[Blocker, ...]
    as_is: Segment
    after_removal: Segment
    threads: tuple[str, ...]
    has_steps: bool
    has_collectives: bool
    compiled_share: float
    launched: Launched | None


class _Calls(Record, eq=False):
    """Launches, or blocking calls, by start; their steps are indices into the chosen steps."""

    event_id: Int64Array
    start_ns: Int64Array
    step: IndexArray

    def __len__(self) -> int:
        return len(self.event_id)


def find_capture(context: Context) -> Capture | None:
    """Find what a graph of the steady steps, or the window, would hold; None without launches."""
    timeline, trace = context.timeline, context.trace
    step_of_row = _chosen_step(context, timeline.step_index, trace.start_ns[timeline.launch_id])
    rows = np.flatnonzero((timeline.launch_id != ABSENT) & (step_of_row != ABSENT))
    if not len(rows):
        return None
    launch_id, first = np.unique(timeline.launch_id[rows], return_index=True)
    order = np.argsort(trace.start_ns[launch_id], kind="stable")
    launch_id, first = launch_id[order], rows[first][order]
    launches = _Calls(launch_id, trace.start_ns[launch_id], step_of_row[first])
    blockers, calls, blocker_of = _find_blockers(context, launches)
    is_kept = np.array([*(not blocker.can_go for blocker in blockers), False])  # the last: ABSENT
    after_removal = np.where(is_kept[blocker_of], blocker_of, ABSENT)
    return Capture(
        blockers=blockers,
        as_is=_largest_segment(context, launches, first, calls, blockers, blocker_of),
        after_removal=_largest_segment(context, launches, first, calls, blockers, after_removal),
        has_steps=timeline.steady is not None,
        threads=_other_threads(context, launches, first),
        has_collectives=bool((timeline.kind[rows] == Kind.COMM).any()),
        compiled_share=float((compiled_regions(trace).innermost(launch_id) != ABSENT).mean()),
        launched=_find_launched(context, launches, rows),
    )


def _chosen_step(
    context: Context, step_index: NDArray[np.int32], start_ns: Int64Array
) -> IndexArray:
    steady = context.timeline.steady
    if steady is None:
        timeline, begin_ns = context.timeline, context.window.start_ns
        is_inside = context.is_inside(timeline.start_ns, timeline.end_ns)
        launch_id = timeline.launch_id[is_inside & (timeline.launch_id != ABSENT)]
        first_ns = context.trace.start_ns[launch_id].min(initial=begin_ns)
        is_inside = (start_ns >= first_ns) & (start_ns < context.window.end_ns)
        return np.where(is_inside, 0, ABSENT)
    number = np.full(len(context.timeline.steps) + 1, ABSENT, dtype=np.intp)
    number[list(steady.indices)] = np.arange(len(steady.indices))
    return number[step_index]


# --- what is in the way ---


def _find_blockers(
    context: Context, launches: _Calls
) -> tuple[tuple[Blocker, ...], _Calls, IndexArray]:
    costs, steps = context.blocking_calls, int(launches.step.max()) + 1
    step = _chosen_step(context, costs.step_index, costs.calls.start_ns)
    is_chosen = (step != ABSENT) & (costs.calls.kind != Blocking.ALLOCATION)
    threads = context.trace.thread_index[launches.event_id]
    index = np.flatnonzero(is_chosen & np.isin(costs.calls.thread_index, threads))
    calls = _Calls(costs.calls.event_id[index], costs.calls.start_ns[index], step[index])
    is_inside = _are_inside(launches, calls.start_ns, calls.step)
    names = [context.trace.name_of(event) for event in calls.event_id.tolist()]
    sites = [costs.call_sites[i] for i in index.tolist()]
    pageable = context.copies_pageable_memory(calls.event_id, sites)
    needs, edits = context.host_needs[index], _remedy_edits(context, calls.event_id)
    found: list[tuple[Blocker, list[int]]] = []
    for group in grouped(map(describe, sites, names)).values():
        if not is_regular(len(np.unique(calls.step[group])), steps):
            continue
        way = Way.COPY if pageable[group].any() else Way.WAIT
        if (needs[group] == Need.SIZE).all():
            way = Way.SIZE
        # A copy and the synchronize after it are one call of the program.
        [(api, times), *_] = Counter(names[i] for i in group).most_common(1)
        site, edit = sites[group[0]], edits[group[0]]
        # Such a remedy leaves the value out; others only read it later.
        removes = edit is not None and edit.startswith("remove:")
        edit = edit or ("pin:{place}" if way == Way.COPY else "unblock:{place}")
        needs_size = way == Way.SIZE and not have_same_sizes(context, calls.event_id[group])
        blocker = Blocker(
            way=way,
            what=describe(site, api),
            call=called(site, api),
            per_step=times / steps,
            idle_ns=int(costs.caused_idle_ns[index[group]].sum()),
            is_needed=(cannot_go(needs[group]) or needs_size) and not removes,
            is_inside=bool(is_inside[group].any()),
            edit=edit_text(edit, where(site, count=len(group), api=api)) or "",
        )
        found.append((blocker, group))
    found.sort(key=lambda one: (one[0].way, -one[0].per_step))
    blocker_of = np.full(len(index), ABSENT, dtype=np.intp)
    for number, (_, group) in enumerate(found):
        blocker_of[group] = number
    return tuple(blocker for blocker, _ in found), calls, blocker_of


def _are_inside(launches: _Calls, moments_ns: Int64Array, step: IndexArray) -> BoolArray:
    first = np.searchsorted(launches.step, step)
    end = np.searchsorted(launches.step, step, side="right")
    before = np.clip(np.searchsorted(launches.start_ns, moments_ns) - first, 0, end - first)
    few = _MIN_SHARE_AROUND * (end - first)
    return np.asarray((before > few) & (end - first - before > few))


def _remedy_edits(context: Context, call_id: Int64Array) -> list[str | None]:
    of_rules = [context.recognized.remedies(call_id, rule_id) for rule_id in _RULES_OF_CALLS]
    edits = [
        [x.edit_of_finding for x in remedies if x is not None and not x.is_general]
        for remedies in zip(*of_rules, strict=True)
    ]
    return [next(filter(None, of_call), None) for of_call in edits]


# --- what is replayed ---


def _find_launched(context: Context, launches: _Calls, rows: IndexArray) -> Launched | None:
    timeline, launch_id = context.timeline, launches.event_id
    is_replay = match_names(context.trace, launch_id, is_graph_launch)
    replays, steps = int(is_replay.sum()), int(launches.step.max()) + 1
    if not round(replays / steps):
        return None
    to_host = timeline.launch_id[timeline.copies("d2h")]
    waits = np.union1d(context.blocking_calls.calls.event_id, to_host)
    eager_id = np.sort(launch_id[~is_replay & ~np.isin(launch_id, waits)])
    return Launched(
        replays_per_step=round(replays / steps),
        eager_per_step=round(len(eager_id) / steps),
        is_mostly_replays=len(eager_id) <= _MAX_EAGER_PER_REPLAY * replays
        and np.isin(timeline.launch_id[rows], launch_id[is_replay]).mean() > _MIN_REPLAYED_SHARE,
        eager_at=_top_place(context, eager_id[:_MAX_LOOKED_UP_LAUNCHES]),
        copies_inputs=_copy_inputs(context, eager_id),
    )


def _copy_inputs(context: Context, launch_id: Int64Array) -> bool:
    operators = context.timeline.operators
    inside = operators.innermost(launch_id)
    is_copy = np.append(operators.have_name(_COPIES.__contains__), False)[inside]
    is_copy &= compiled_regions(context.trace).innermost(launch_id) != ABSENT
    can_mark = context.torch is None or is_available(_MARKS_SINCE, context.torch)
    return can_mark and bool(len(launch_id)) and bool(is_copy.all())


def _other_threads(context: Context, launches: _Calls, rows: IndexArray) -> tuple[str, ...]:
    trace = context.trace
    thread = trace.thread_index[launches.event_id[~context.is_of_backward[rows]]]
    others = Counter(thread.tolist()).most_common()[1:]
    few = _MIN_NOTABLE_SHARE * len(launches)
    return tuple(trace.threads[number].name for number, count in others if count >= few)


def _top_place(context: Context, launch_id: Int64Array) -> str:
    in_compiled = compiled_regions(context.trace).innermost(launch_id) != ABSENT
    sites = [
        replace(site, call=None, line=None) if is_compiled else site
        for site, is_compiled in zip(context.call_sites(launch_id), in_compiled, strict=True)
    ]
    places = Counter(map(describe, sites, map(context.call_name, launch_id.tolist())))
    return next((place for place, _ in places.most_common(1)), "")


# --- what can be captured ---


def _largest_segment(
    context: Context,
    launches: _Calls,
    rows: IndexArray,
    calls: _Calls,
    blockers: tuple[Blocker, ...],
    blocker_of: IndexArray,
) -> Segment:
    steps, is_end = int(launches.step.max()) + 1, blocker_of != ABSENT
    number = np.searchsorted(calls.start_ns[is_end], launches.start_ns)
    nowhere = (ABSENT, ABSENT)  # after the last, and before the first
    step_of_call = np.append(calls.step[is_end], nowhere)
    blocker = np.append(blocker_of[is_end], nowhere)
    before, after = (
        np.where(step_of_call[at] == launches.step, blocker[at], ABSENT)
        for at in (number - 1, number)
    )
    key = launches.step * (len(calls) + 1) + number
    _, first_of_part, part_of, count = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    kind = before[first_of_part] * (len(calls) + 2) + after[first_of_part]
    kinds, kind_of_part = np.unique(kind, return_inverse=True)
    top = int(np.argmax(np.bincount(kind_of_part, weights=count, minlength=len(kinds))))
    of_kind = np.where(kind_of_part == top, count, 0)
    parts = np.flatnonzero(of_kind >= _MIN_ALIKE_SHARE * _usual_length(of_kind))
    chosen = np.isin(part_of, parts)
    first_part = first_of_part[parts[0]]
    ends = [calls.event_id[is_end & (blocker_of == end[first_part])] for end in (before, after)]
    around = (*blockers, None)  # the last is that of ABSENT
    length, in_step = int(np.median(count[parts])), np.bincount(launches.step, minlength=steps)
    return Segment(
        launches=length,
        per_step=len(parts) / steps,
        of_launches=int(np.median(in_step)),
        before=around[before[first_part]],
        after=around[after[first_part]],
        work=_phases_of(context, launches.event_id[chosen]),
        module=_module_of(context, launches.event_id[chosen]),
        cut_in=next(filter(None, (_surroundings(context, end) for end in ends)), None),
        repetitions=tuple(rows[part_of == part] for part in parts.tolist()),
    )


def _usual_length(lengths: Int64Array) -> int:
    """Return the length of segments: half of all is in none that is longer.

    >>> _usual_length(np.array([1, 1, 1, 1, 40, 42, 42]))
    42
    """
    in_order = np.sort(lengths)
    held = np.cumsum(in_order)
    return int(in_order[np.searchsorted(held, held[-1] / 2)])


def _phases_of(context: Context, launch_id: Int64Array) -> tuple[str, ...]:
    phase = context.phases.phases_of(launch_id)
    share = {phase_: float((phase == phase_).mean()) for phase_ in _NAMED_PHASES}
    if sum(share.values()) <= _MIN_SHARE_OF_LAUNCHES:
        return ()
    return tuple(
        phase_.name.lower() for phase_ in _NAMED_PHASES if share[phase_] >= _MIN_NOTABLE_SHARE
    )


def _surroundings(context: Context, call_id: Int64Array) -> str | None:
    if not len(call_id):
        return None
    is_backward = context.phases.phases_of(call_id) == Phase.BACKWARD
    if is_backward.mean() > _MIN_SHARE_OF_LAUNCHES:
        return "the backward pass"
    module = _module_of(context, call_id)
    return f"`{module}`" if module else None


def _module_of(context: Context, event_id: Int64Array) -> str | None:
    trace = context.trace
    frames = trace.of_category(Category.PYTHON)
    is_module = match_names(trace, frames, lambda name: name.startswith(MODULE_PREFIX))
    modules = Nesting(trace, frames[is_module])
    index = modules.around(modules.innermost(event_id), modules.parent_index == ABSENT)
    names = Counter(
        called_name(trace.name_of(int(modules.event_id[i]))) for i in index[index != ABSENT]
    )
    [(name, count)] = names.most_common(1) or [("", 0)]
    return name if count > _MIN_SHARE_OF_LAUNCHES * len(event_id) else None
