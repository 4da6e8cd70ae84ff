"""TL101, TL102 and TL103: calls that make the CPU wait for the GPU, and the GPU for the CPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array
from tracelab.base.intervals import measure
from tracelab.findings.advice.needs import (
    Awaited,
    Need,
    awaited_results,
    choose_fix,
    is_size,
    own_waits,
)
from tracelab.findings.advice.repeats import have_same_sizes
from tracelab.findings.candidates import (
    Candidate,
    grouped,
    join_by_device,
    key_of,
    most_expensive,
    where,
)
from tracelab.findings.context import Context
from tracelab.findings.finding import Where, call_site_of
from tracelab.findings.places import JOINT, edit_text
from tracelab.findings.remedy import Instead, Remedy
from tracelab.findings.rule import Case, load_rule
from tracelab.model.blocking_calls import Blocking
from tracelab.model.cuda_graphs import mostly_replays
from tracelab.model.kernel_kinds import is_free
from tracelab.model.lookup import groups_of
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import ABSENT
from tracelab.model.wording import called, capitalize_start, describe

# Of all that the host does between two places.
_MAX_WINDOW_SHARE_BETWEEN = 0.02
# Of the calls of the one place or the other.
_MIN_SHARE_IN_A_ROW = 0.5
_UNBLOCK = "unblock:{place}"
# The call site, and the API of a call that no function makes.
_Place = tuple[CallSite, str]


def _names(context: Context, call_index: IndexArray) -> list[str]:
    event_ids = context.blocking_calls.calls.event_id[call_index].tolist()
    return [context.trace.name_of(event_id) for event_id in event_ids]


def _candidate(
    context: Context,
    case: Case,
    call_index: IndexArray,
    blamed: tuple[CallSite, str],
    values: Mapping[str, object] | None = None,
    **more: Any,
) -> Candidate:
    costs, lost, (call_site, api) = context.blocking_calls, context.idle_after(call_index), blamed
    event_id, caused_idle_ns = costs.calls.event_id[call_index], costs.caused_idle_ns[call_index]
    what = capitalize_start(called(call_site, api) or "a call")
    return case.candidate(
        where(call_site, count=len(call_index), api=api),
        {"what": what, **(values or {})},
        evidence=most_expensive(event_id.tolist(), caused_idle_ns.tolist()),
        lost=lost,
        # Without them the host is earlier by what they blocked, and by no more.
        limit_ns=dict.fromkeys(lost, int(costs.blocked_ns[call_index].sum())),
        **more,
    )


# --- TL101 ---


def _blocking_calls(context: Context) -> list[Candidate]:
    calls, call_sites = context.blocking_calls.calls, context.blocking_calls.call_sites
    is_copy = calls.kind == Blocking.COPY
    is_copy &= context.copies_pageable_memory(calls.event_id, call_sites)
    sites_of_copies = {call_sites[index] for index in np.flatnonzero(is_copy).tolist()}
    belongs_to_copy = np.array([site in sites_of_copies for site in call_sites], dtype=np.bool_)
    is_chosen = (calls.kind != Blocking.ALLOCATION) & ~belongs_to_copy
    is_chosen &= ~_behind_next_replay(context)
    in_a_row = _waits_in_a_row(context, is_chosen)
    return [
        _join_others(candidate, in_a_row.get(_place(candidate.where), ()))
        for candidate in _group_calls(context, is_chosen)
    ]


def _behind_next_replay(context: Context) -> BoolArray:
    """bool[blocking calls], the waits for a result that is read while the next replay runs."""
    calls = context.blocking_calls.calls
    if not mostly_replays(context.timeline):
        return np.zeros(len(calls), dtype=np.bool_)
    waits = own_waits(context.graph)
    waits = waits[awaited_results(context.graph, waits) == Awaited.EARLIER_RESULT]
    return np.isin(calls.event_id, waits)


def _group_calls(context: Context, is_chosen: BoolArray) -> list[Candidate]:
    costs = context.blocking_calls
    chosen_index = np.flatnonzero(is_chosen & context.has_caused_idle)
    names = _names(context, chosen_index)
    call_sites = [costs.call_sites[index] for index in chosen_index.tolist()]
    remedies = context.recognized.remedies(costs.calls.event_id[chosen_index], BLOCKING.id)
    # One call site may block by two calls, a copy and the synchronize after it, as `.item()` does.
    keys = [
        key_of(remedy, call_site if call_site.function or call_site.operator else name)
        for name, call_site, remedy in zip(names, call_sites, remedies, strict=True)
    ]
    case = BLOCKING.cases["host_sync"]
    candidates = []
    for group in grouped(keys).values():
        call_index = chosen_index[group]
        top = group[int(np.argmax(costs.caused_idle_ns[call_index]))]
        fix = choose_fix(Instead(case.fix, short=case.short), context.host_needs[call_index])
        candidate = _candidate(
            context,
            replace(case, fix=fix.text, short=fix.short),
            call_index,
            (call_sites[top], names[top]),
            remedy=remedies[top],
            is_possible=_is_possible(context, call_index.tolist(), remedies[top]),
        )
        if candidate.lost:
            candidates.append(candidate)
    return candidates


def _is_possible(context: Context, call_index: Sequence[int], remedy: Remedy | None) -> bool:
    costs = context.blocking_calls
    if remedy is not None and not (remedy.needs_same_sizes and remedy.by_call_site):
        return True
    # It cannot without the size of a result, unless that is the same in every step.
    if not is_size(context.host_needs[call_index]):
        return True
    sites = {costs.call_sites[index] for index in call_index}
    at_sites = [index for index, site in enumerate(costs.call_sites) if site in sites]
    return have_same_sizes(context, costs.calls.event_id[at_sites])


# --- waits in a row ---
# Without the first call the host waits at the second for the same work: they share one edit and one
# price.


def _place(where: Where) -> _Place:
    call_site = call_site_of(where)
    is_known = call_site.function or call_site.operator
    return call_site, "" if is_known else where.api or ""


def _waits_in_a_row(context: Context, is_chosen: BoolArray) -> Mapping[_Place, tuple[Where, ...]]:
    """Map each place to those that must change together with it; single places are left out."""
    costs = context.blocking_calls
    calls = costs.calls
    # Calls whose values the host needs stay, and do not count.
    can_go = is_chosen & ~np.isin(context.host_needs, (Need.BRANCH, Need.INPUT))
    can_go &= context.is_inside(calls.start_ns, calls.end_ns)
    wheres = [
        where(costs.call_sites[i], count=1, api=context.trace.name_of(int(calls.event_id[i])))
        for i in np.flatnonzero(can_go).tolist()
    ]
    number_of: dict[_Place, int] = {}
    number = np.full(len(calls), ABSENT, dtype=np.int64)
    number[can_go] = [number_of.setdefault(_place(one), len(number_of)) for one in wheres]
    where_of = {_place(one): one for one in reversed(wheres)}
    together = {i: {i} for i in range(len(number_of))}
    for first, second in _pairs_in_a_row(context, number):
        joined = together[first] | together[second]
        together |= dict.fromkeys(joined, joined)
    places = list(number_of)
    return {
        place: tuple(where_of[places[i]] for i in sorted(together[own]))
        for place, own in number_of.items()
        if len(together[own]) > 1
    }


def _pairs_in_a_row(context: Context, number: Int64Array) -> list[tuple[int, int]]:
    calls, launch_id = context.blocking_calls.calls, context.timeline.launch_id
    launched_ns = np.sort(context.trace.start_ns[launch_id[launch_id != ABSENT]])
    runs: Counter[int] = Counter()
    between: dict[tuple[int, int], list[int]] = {}
    for _, index in groups_of(np.where(number == ABSENT, ABSENT, calls.thread_index)):
        place = number[index]
        first = np.flatnonzero(np.diff(place, prepend=ABSENT))
        runs.update(place[first].tolist())
        end_ns, next_ns = calls.end_ns[index[first[1:] - 1]], calls.start_ns[index[first[1:]]]
        is_same = np.searchsorted(launched_ns, end_ns) == np.searchsorted(launched_ns, next_ns)
        rows = np.stack((place[first[:-1]], place[first[1:]], next_ns - end_ns), axis=1)
        for one, other, between_ns in rows[is_same].tolist():
            between.setdefault((one, other), []).append(between_ns)
    most_ns = _MAX_WINDOW_SHARE_BETWEEN * context.window.length_ns
    return [
        pair
        for pair, times_ns in between.items()
        if len(times_ns) >= _MIN_SHARE_IN_A_ROW * min(runs[place] for place in pair)
        and sum(times_ns) <= most_ns
    ]


def _join_others(candidate: Candidate, in_a_row: Sequence[Where]) -> Candidate:
    remedy = candidate.remedy
    if not in_a_row or (remedy is not None and remedy.edit != _UNBLOCK):
        return candidate
    others = [
        describe(call_site_of(place), place.api or "")
        for place in in_a_row
        if _place(place) != _place(candidate.where)
    ]
    also = (
        f" Change it together with {' and '.join(others)}: each of them would wait instead of the "
        "other, and only all together save this."
    )
    edit = JOINT.join(filter(None, (edit_text(_UNBLOCK, place) for place in in_a_row)))
    also_short = f" Do so at all {len(others) + 1} places."
    if remedy is not None:
        fixes = tuple(
            replace(fix, text=f"{fix.text}{also}", short=f"{fix.summary}{also_short}")
            for fix in remedy.fixes
        )
        remedy = replace(remedy, fixes=fixes, edit=edit, by_call_site=True)
    fix, short = f"{candidate.fix}{also}", f"{candidate.fix_short}{also_short}"
    return replace(candidate, fix=fix, fix_short=short, edit=edit, remedy=remedy)


# --- TL102 ---


def _pageable_copies(context: Context) -> list[Candidate]:
    timeline = context.timeline
    rows, call_sites = _copies(context)
    calls_at = grouped(context.blocking_calls.call_sites)
    remedies = context.recognized.remedies(timeline.launch_id[rows], PAGEABLE.id)
    candidates = []
    for group in grouped(map(key_of, remedies, call_sites)).values():
        copy_row, call_site, remedy = rows[group], call_sites[group[0]], remedies[group[0]]
        sites = dict.fromkeys(call_sites[i] for i in group)
        calls = [*chain.from_iterable(calls_at.get(site, []) for site in sites)]
        call_index = _calls_of_copies(context, calls, rows, group)
        blocked_ns = int(context.blocking_calls.blocked_ns[call_index].sum())
        is_copy = np.isin(context.exposed.row, copy_row)
        exposed = context.time_of_pieces(context.exposed, np.flatnonzero(is_copy))
        lost = join_by_device(exposed, context.idle_after(np.array(call_index, dtype=np.intp)))
        activity = context.kernel_name(int(copy_row[0]))
        candidates.append(
            PAGEABLE.cases["pageable"].candidate(
                where(call_site, count=len(copy_row), activity=activity),
                {"what": capitalize_start(called(call_site, "copy"))},
                evidence=context.evidence(copy_row),
                lost=lost,
                limit_ns={
                    device: blocked_ns + (measure(exposed[device]) if device in exposed else 0)
                    for device in lost
                },
                remedy=remedy,
                is_possible=_is_possible(context, call_index, remedy),
            )
        )
    return candidates


def _copies(context: Context) -> tuple[IndexArray, tuple[CallSite, ...]]:
    timeline, window = context.timeline, context.window
    rows = context.pageable_copy_row
    start_ns = timeline.start_ns[rows]
    is_here = (start_ns >= window.start_ns) & (start_ns < window.end_ns)
    costly_id = context.blocking_calls.calls.event_id[context.has_caused_idle]
    is_here |= np.isin(timeline.launch_id[rows], costly_id)
    rows = rows[is_here]
    launch_id = timeline.launch_id[rows]
    call_sites = context.call_sites(launch_id)
    chosen_index = np.flatnonzero(context.copies_pageable_memory(launch_id, call_sites))
    return rows[chosen_index], tuple(call_sites[index] for index in chosen_index.tolist())


def _calls_of_copies(
    context: Context, call_index: list[int], rows: IndexArray, group: list[int]
) -> list[int]:
    """Select the calls of copies that cost time in the window, and the synchronize behind each."""
    costs, trace = context.blocking_calls, context.trace
    copied_ns = trace.start_ns[context.timeline.launch_id[rows]]
    order = np.argsort(copied_ns, kind="stable")
    before = np.searchsorted(copied_ns[order], costs.calls.start_ns[call_index], side="right") - 1
    is_own = (before >= 0) & np.isin(order[before], group)
    is_own &= context.has_caused_idle[call_index]
    is_own &= costs.calls.kind[call_index] != Blocking.ALLOCATION
    return [index for index, own in zip(call_index, is_own.tolist(), strict=True) if own]


# --- TL103 ---


def _allocations(context: Context) -> list[Candidate]:
    calls = context.blocking_calls.calls
    call_index = np.flatnonzero((calls.kind == Blocking.ALLOCATION) & context.has_caused_idle)
    stalls_others = np.isin(call_index, context.graph.host.stalled_calls.allocation_index)
    is_first_use = context.first_use.holds(calls.event_id[call_index])
    return [
        *_own_thread(context, call_index[~stalls_others & ~is_first_use]),
        *_other_threads(context, call_index[stalls_others]),
    ]


def _own_thread(context: Context, call_index: IndexArray) -> list[Candidate]:
    if not len(call_index):
        return []
    costs, names = context.blocking_calls, _names(context, call_index)
    # Memory that is freed is requested again, wherever that happens: so these calls are blamed.
    frees = [position for position, name in enumerate(names) if is_free(name)]
    blamed = frees or list(range(len(names)))
    costs_ns = costs.caused_idle_ns[call_index[blamed]]
    groups = grouped(costs.call_sites[index] for index in call_index[blamed].tolist())
    call_site = max(groups, key=lambda call_site: int(costs_ns[groups[call_site]].sum()))
    top = blamed[groups[call_site][0]]
    [remedy] = context.recognized.remedies(costs.calls.event_id[call_index[[top]]], ALLOCATOR.id)
    again = ", and the program allocates it again" if len(frees) < len(names) else ""
    does = f"returns memory to CUDA{again}" if frees else "keeps requesting memory from CUDA"
    edit = JOINT.join(f"remove:{name}" for name in sorted({*names}))
    case, place = ALLOCATOR.cases["allocator"], (call_site, names[top])
    values = {"does": does}
    return [_candidate(context, case, call_index, place, values, edit=edit, remedy=remedy)]


def _other_threads(context: Context, call_index: IndexArray) -> list[Candidate]:
    candidates, costs = [], context.blocking_calls
    threads = costs.calls.thread_index[call_index].tolist()
    call_sites = [costs.call_sites[index] for index in call_index.tolist()]
    remedies = context.recognized.remedies(costs.calls.event_id[call_index], ALLOCATOR.id)
    for (thread, call_site), group in grouped(zip(threads, call_sites, strict=True)).items():
        index = call_index[group]
        api = _names(context, index)[int(np.argmax(costs.caused_idle_ns[index]))]
        name = re.sub(r"^thread \d+ \((.+)\)$", r"\1", context.trace.threads[thread].name)
        values = {"thread": f"thread {name}" if name else "one thread"}
        case, place, remedy = ALLOCATOR.cases["other_threads"], (call_site, api), remedies[group[0]]
        candidates.append(_candidate(context, case, index, place, values, remedy=remedy))
    return candidates


BLOCKING = load_rule("TL101", _blocking_calls)
PAGEABLE = load_rule("TL102", _pageable_copies)
ALLOCATOR = load_rule("TL103", _allocations)
