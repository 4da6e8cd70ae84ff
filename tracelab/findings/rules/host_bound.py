"""TL301 and TL302: the GPU waits for the host to launch, or to load data."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, IntArray
from tracelab.base.intervals import Intervals, measure
from tracelab.findings.advice.launches import advise
from tracelab.findings.candidates import MAX_EVIDENCE, Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import GENERIC, INFO, WARNING_SHARE, Where
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Case, load_rule
from tracelab.measures.idle_causes import Cause, Selection
from tracelab.measures.idle_culprits import innermost_functions
from tracelab.model.binding import Constraint
from tracelab.model.cuda_graphs import mostly_replays, replayed
from tracelab.model.host import Doing, is_in_launching_thread, work_at
from tracelab.model.kernel_kinds import (
    Kind,
    is_asynchronous_copy,
    is_graph_launch,
    is_kernel_launch,
)
from tracelab.model.latencies import MIN_DELAY_NS, REPLAY_START_NS
from tracelab.model.phases import Phase
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, calling_threads
from tracelab.model.trace import ABSENT
from tracelab.model.wording import called

# The longest: the call site of most time does not need all.
_MAX_LOOKED_UP_BUBBLES = 20_000
# Between two launches, without the profiler: the host did something other than launching.
_MIN_OTHER_WORK_NS = 1_000_000
# In a program of replays, each of which is one call.
_MIN_OTHER_WORK_OF_REPLAYS_NS = 20_000
_LATE_CASES = ("launch_bound", "slow_host", "slow_host_of_replays")
_Key = TypeVar("_Key", bound=Hashable)
# Between two graphs of a stream that are both launched pass 1.3 us (H200).
_MAX_GAP_NS = 2_500


def _late_work(context: Context) -> list[Candidate]:
    """Idle time before late launches: by remedy, else all short gaps and all long ones."""
    if context.first_use.is_most:  # then the file does not show how fast the host launches
        return []
    late, is_slow_host = _late_launches(context)
    late_ns = {x: measure(time) for x, time in context.idle_by_device(late).items()}
    case = np.where(is_slow_host, 1 + _is_before_replay(context.next_row, context), 0)
    candidates = [
        _late_candidate(context, selection, late_ns, remedy, LAUNCH_BOUND.cases[said])
        for selection, remedy, said in _late_groups(context, late, case)
    ]
    if _has_collectives(context):
        return candidates
    return [candidate for candidate in candidates if any(candidate.limit_ns.values())]


def _late_groups(
    context: Context, late: Selection, case: IntArray
) -> list[tuple[Selection, Remedy | None, str]]:
    bubbles, [(is_row, is_late)] = context.bubbles, late
    is_inside = is_late & context.is_inside(bubbles.start_ns, bubbles.end_ns)
    is_row = is_row & (bubbles.sums(is_inside) > 0)
    remedies, of_piece, of_launch, place = _remedies_of(context, is_row, is_inside)
    groups = []
    for index, remedy in enumerate(remedies):
        parts = [(is_row & (of_launch == index), is_inside & (of_piece == 0))]
        if remedy is not None:
            parts.append((is_row, is_inside & (of_piece == index)))
        parts = [(x & (bubbles.sums(is_piece) > 0), is_piece) for x, is_piece in parts]
        at_place = remedy is not None and remedy.by_call_site
        key = case + len(_LATE_CASES) * (place if at_place else 0)
        for alike in np.unique(key[np.any([x for x, _ in parts], axis=0)]).tolist():
            selection = [(x & (key == alike), is_piece) for x, is_piece in parts]
            first = min(
                (row, int(np.argmax(is_piece[bubbles.first[row] :])))
                for x, is_piece in selection
                for row in np.flatnonzero(x)[:1].tolist()
            )
            groups.append((first, selection, remedy, _LATE_CASES[alike % len(_LATE_CASES)]))
    return [group[1:] for group in sorted(groups, key=lambda group: group[0])]


def _remedies_of(
    context: Context, is_row: BoolArray, is_piece: BoolArray
) -> tuple[list[Remedy | None], IndexArray, IndexArray, IndexArray]:
    bubbles, culprits = context.bubbles, context.idle_culprits
    piece = np.flatnonzero(is_piece & ~culprits.is_launch & (bubbles.covered(is_row) > 0))
    events, of_culprit = np.unique(culprits.event_id[piece], return_inverse=True)
    row = np.flatnonzero(is_row)
    launches, of_launch = np.unique(culprits.launch_id[row], return_inverse=True)
    in_culprit = context.recognized.remedies(events, LAUNCH_BOUND.id)
    in_launch = context.recognized.remedies(launches, LAUNCH_BOUND.id)
    remedies = [None, *dict.fromkeys(filter(None, (*in_culprit, *in_launch)))]
    own, (other, place) = np.zeros(len(is_piece), np.intp), np.zeros((2, len(is_row)), np.intp)
    own[piece] = np.array([remedies.index(x) for x in in_culprit], dtype=np.intp)[of_culprit]
    other[row] = np.array([remedies.index(x) for x in in_launch], dtype=np.intp)[of_launch]
    if any(x is not None and x.by_call_site for x in remedies):
        place_of = np.zeros(len(launches), dtype=np.intp)
        for number, same in enumerate(grouped(context.call_sites(launches)).values()):
            place_of[same] = number
        place[row] = place_of[of_launch]
    return remedies, own, other, place


def _late_launches(context: Context) -> tuple[Selection, BoolArray]:
    """Find idle time that ends with a late launch; bool[bubbles], before which nothing was."""
    bubbles = context.bubbles
    is_busy = context.is_idle_by(Cause.HOST_BUSY)
    busy_id = bubbles.next_id[bubbles.sums(is_busy) > 0]
    # Of a late launch the time until it starts on the GPU is lost as well.
    is_late = context.is_idle_by(Cause.LAUNCH)
    is_late &= np.isin(bubbles.next_id[bubbles.bubble_of], busy_id)
    is_late |= is_busy | _late_replays(context)
    is_late &= ~context.is_of_first_use
    is_chosen = np.isin(bubbles.device_number, context.active_devices) & ~context.start_up.not_ahead
    window_ns = context.window.length_ns
    profiler_factor = window_ns / (context.window_without_profiler_ns or window_ns or 1)
    length_ns = bubbles.end_ns - bubbles.start_ns
    is_silent = is_busy & ~_holds_launch(context)
    silent = np.flatnonzero(is_silent)
    doing = work_at(context.timeline, *_launching_threads(context, silent))
    is_silent[silent] = doing != Doing.LAUNCHING
    is_long = is_silent & (length_ns >= _MIN_OTHER_WORK_NS * profiler_factor)
    is_slow = bubbles.sums(is_long) > 0
    if mostly_replays(context.timeline):
        _, gap = np.unique(bubbles.next_id, return_inverse=True)
        is_replay = _is_before_replay(context.next_row, context)
        own_ns = np.where(is_replay, bubbles.sums(np.where(is_silent, length_ns, 0)), 0)
        is_own = own_ns > 0
        own_ns = np.bincount(gap, own_ns)[gap]
        is_slow |= is_own & (own_ns >= _MIN_OTHER_WORK_OF_REPLAYS_NS * profiler_factor)
    return ((is_chosen, is_late),), np.isin(bubbles.next_id, bubbles.next_id[is_slow])


def _launching_threads(context: Context, piece: IndexArray) -> tuple[NDArray[np.int32], Int64Array]:
    bubbles = context.bubbles
    launch_id = context.idle_culprits.launch_id[bubbles.bubble_of[piece]]
    middle_ns = (bubbles.start_ns + bubbles.end_ns)[piece] // 2
    return context.trace.thread_index[launch_id], middle_ns


def _is_before_replay(row: IndexArray, context: Context) -> BoolArray:
    return np.asarray((row != ABSENT) & replayed(context.timeline)[row])


def _late_replays(context: Context) -> BoolArray:
    """bool[pieces], in which a graph is launched and nothing but that makes the GPU wait."""
    bubbles, timeline = context.bubbles, context.timeline
    row = context.next_row[bubbles.bubble_of]
    is_late = context.is_idle_by(Cause.LAUNCH) & _is_before_replay(row, context)
    return_ns = context.trace.end_ns[timeline.launch_id[row]]
    starts_soon = timeline.start_ns[row] - return_ns <= REPLAY_START_NS + MIN_DELAY_NS
    starts_soon &= bubbles.end_ns - bubbles.start_ns > _MAX_GAP_NS
    starts_soon |= context.graph.binding.constraint[row] == Constraint.LAUNCH
    return np.asarray(is_late & starts_soon)


def _late_candidate(
    context: Context,
    selection: Selection,
    late_ns: Mapping[int, int],
    remedy: Remedy | None,
    case: Case,
) -> Candidate:
    lost = context.idle_by_device(selection)
    name, call_site, evidence = _top_culprit(context, selection, remedy)
    steps = {context.trace.name_of(step.event_id) for step in context.timeline.steps}
    what = called(call_site, "" if name in steps else name)
    is_launch = is_graph_launch(name) or is_kernel_launch(name) or is_asynchronous_copy(name)
    is_before = case.cause == "slow_host" and is_launch
    at = f" before {what}" if is_before else f", mostly in {what}"
    advice: dict[str, Any] = {}
    if case.cause == "launch_bound" and remedy is None:
        fix, edit, is_possible = advise(context, max(map(measure, lost.values())))
        advice = {"fix": fix.text, "fix_short": fix.short, "edit": edit, "role": GENERIC}
        advice["is_possible"] = is_possible
    left = {device: _subtract_profiler_ns(context, device, late_ns[device]) for device in lost}
    return case.candidate(
        _where(call_site, lost),
        {"at": at if what else ""},
        evidence=evidence,
        remedy=remedy,
        lost=lost,
        limit_ns={x: measure(idle) * left[x][0] // late_ns[x] for x, idle in lost.items()},
        severity_override=INFO if all(is_bound for _, is_bound in left.values()) else None,
        **advice,
    )


def _where(call_site: CallSite, lost: Mapping[int, Intervals]) -> Where:
    device = max(lost, key=lambda device: measure(lost[device]))
    return where(call_site, count=max(map(len, lost.values())), device=device)


def _subtract_profiler_ns(context: Context, device: int, late_ns: int) -> tuple[int, bool]:
    """Return a device's time before late launches without the profiler, ns; is it a bound only?"""
    # All of the profiler's cost may have been such time; if that is too much, only a bound is
    # known.
    recording = context.recording_idle.get(device)
    recording_ns = 0 if recording is None else measure(recording)  # counted already
    overhead_ns = max(0, context.profiler_overhead_ns[device] - recording_ns)
    if late_ns > overhead_ns or _has_collectives(context):
        return max(0, late_ns - overhead_ns), False
    idle_ns = min(late_ns, context.unprofiled_idle_ns.get(device, 0))
    return (idle_ns if idle_ns >= WARNING_SHARE * context.length_ns else 0), True


def _has_collectives(context: Context) -> bool:
    return bool((context.timeline.kind == Kind.COMM).any())


def _holds_launch(context: Context) -> BoolArray:
    bubbles, launch_id = context.bubbles, context.timeline.launch_id
    launch_ns = np.sort(context.trace.start_ns[launch_id[launch_id != ABSENT]])
    first = np.searchsorted(launch_ns, bubbles.start_ns, side="right")
    return np.searchsorted(launch_ns, bubbles.end_ns) > first


def _top_culprit(
    context: Context, selection: Selection, remedy: Remedy | None
) -> tuple[str, CallSite, tuple[int, ...]]:
    bubbles = context.bubbles
    length_ns = bubbles.end_ns - bubbles.start_ns
    bubble, piece = longest = bubbles.longest(selection, length_ns, _MAX_LOOKED_UP_BUBBLES)
    cost_ns, culprit_id = length_ns[piece], context.idle_culprits.look_up(longest)
    if remedy is not None:  # where a culprit is not the remedy's, the late launch stands for it
        of_culprit = context.recognized.remedies(culprit_id, LAUNCH_BOUND.id)
        is_own = np.array([own is remedy for own in of_culprit], dtype=np.bool_)
        row = context.next_row[bubble]
        culprit_id = np.where(is_own, culprit_id, context.timeline.launch_id[row])
    evidence = most_expensive(culprit_id.tolist(), cost_ns.tolist())
    if remedy is not None:
        culprit_id, cost_ns = _choose_forward(context, culprit_id, cost_ns, remedy)
    names = map(context.call_name, culprit_id.tolist())
    keys = [*zip(names, context.call_sites(culprit_id), strict=True)]
    return *_longest(cost_ns, keys), evidence


def _choose_forward(
    context: Context, culprit_id: Int64Array, cost_ns: Int64Array, remedy: Remedy
) -> tuple[Int64Array, Int64Array]:
    """Choose the culprits to change, with their cost, ns: the backward pass follows the forward."""
    of_backward = _are_of_backward(context, culprit_id)
    if not of_backward.all():
        return culprit_id[~of_backward], cost_ns[~of_backward]
    events = context.recognized.places[remedy.id]
    of_backward = _are_of_backward(context, events)
    if of_backward.all():
        of_backward = calling_threads(context.timeline, events) != ABSENT
    events = events[~of_backward]
    if not len(events):
        return culprit_id, cost_ns
    return events, (context.trace.end_ns - context.trace.start_ns)[events]


def _are_of_backward(context: Context, events: Int64Array) -> BoolArray:
    of_backward: BoolArray = events != ABSENT
    known = of_backward.copy()
    of_backward[known] = context.phases.phases_of(events[known]) == Phase.BACKWARD
    return of_backward


def _late_data(context: Context) -> list[Candidate]:
    """Find idle time in which the launching thread loaded data, by what the fix is."""
    bubbles = context.bubbles
    is_chosen = context.is_idle_by(Cause.INPUT)
    is_chosen &= context.is_inside(bubbles.start_ns, bubbles.end_ns)
    is_active = np.isin(bubbles.device_number, context.active_devices)
    pairs = bubbles.pieces_of(np.flatnonzero(is_active), is_chosen)
    threads, middle_ns = _launching_threads(context, pairs[1])
    function_id = innermost_functions(context.timeline, middle_ns, threads)
    culprit_id = np.where(function_id == ABSENT, context.idle_culprits.look_up(pairs), function_id)
    remedies = context.recognized.remedies(culprit_id, INPUT_BOUND.id)
    sites = context.call_sites(function_id)
    candidates = []
    for group in grouped(remedy and remedy.id for remedy in remedies).values():
        piece = pairs[1][group]
        is_piece = np.isin(np.arange(len(bubbles.cause)), piece)
        lost = context.idle_by_device([(is_active, is_piece)])
        site = _longest(bubbles.end_ns[piece] - bubbles.start_ns[piece], [sites[i] for i in group])
        loading_id = _loading_regions(context, lost.values())
        if site == NO_CALL_SITE:
            [site] = context.call_sites(loading_id[:1])
        names = map(context.trace.name_of, loading_id.tolist())
        is_in_thread = any(map(is_in_launching_thread, names))
        what = "data loaded in the launching thread" if is_in_thread else "the data loader"
        evidence, remedy = tuple(loading_id[:MAX_EVIDENCE].tolist()), remedies[group[0]]
        candidate = INPUT_BOUND.cases["input_bound"].candidate(
            _where(site, lost), {"what": what}, evidence=evidence, lost=lost, remedy=remedy
        )
        candidates.append(candidate)
    return candidates


def _longest(length_ns: Int64Array, keys: Sequence[_Key]) -> _Key:
    groups = grouped(keys)
    return max(groups, key=lambda key: int(length_ns[groups[key]].sum()))


def _loading_regions(context: Context, idle: Collection[Intervals]) -> IntArray:
    trace = context.trace
    first_ns = min(int(time.starts[0]) for time in idle)
    last_ns = max(int(time.ends[-1]) for time in idle)
    region_id = context.graph.host.loading_id
    is_beside = (trace.start_ns[region_id] < last_ns) & (trace.end_ns[region_id] > first_ns)
    region_id = region_id[is_beside]
    return region_id[np.argsort(-trace.duration_ns[region_id], kind="stable")]


LAUNCH_BOUND = load_rule("TL301", _late_work)
INPUT_BOUND = load_rule("TL302", _late_data)
