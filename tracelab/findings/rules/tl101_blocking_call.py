"""TL101: a call that makes the CPU wait for the GPU, and the GPU for the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.advice.needs import Need, choose_fix, is_size
from tracelab.findings.advice.repeats import have_same_sizes
from tracelab.findings.awaited_results import Awaited, awaited_results, own_waits
from tracelab.findings.candidates import Candidate, grouped, key_of, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import Where, call_site_of
from tracelab.findings.places import JOINT, edit_text
from tracelab.findings.remedy import Instead, Remedy
from tracelab.findings.rule import Rule
from tracelab.model.blocking_calls import Blocking
from tracelab.model.cuda_graphs.graph_replays import mostly_replays
from tracelab.model.lookup import groups_of
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import ABSENT
from tracelab.model.wording import called, capitalize_start, describe

# Of what a call blocked: what the host does, or launches for the GPU, until the next one.
_MAX_BETWEEN = 0.5
# All that the host does between two places.
_MAX_WINDOW_SHARE_BETWEEN = 0.02
# Of the calls of the one place or the other.
_MIN_SHARE_IN_A_ROW = 0.5
_EDIT = "unblock:{place}"
_FIX = Instead(
    "Do not make the CPU wait: keep the value on the GPU, or read it some steps later.",
    short="Keep the value on the GPU (`x.detach()`), or read it every N steps.",
)

# The call site, and the API of a call that no function makes.
_Place = tuple[CallSite, str]


def find(context: Context) -> list[Candidate]:
    """Find the blocking calls that caused idle time, by call site or remedy.

    The allocator's calls are TL103's, and copies of batches from pageable memory are TL102's.
    Waits for a result after which the next replay is queued already cost nothing.
    """
    calls, call_sites = context.blocking_calls.calls, context.blocking_calls.call_sites
    is_copy = calls.kind == Blocking.COPY
    is_copy &= context.copies_pageable_memory(calls.event_id, call_sites)
    # The synchronize after such a copy is made at the same call site.
    sites_of_copies = {call_sites[index] for index in np.flatnonzero(is_copy).tolist()}
    belongs_to_copy = np.array([site in sites_of_copies for site in call_sites], dtype=np.bool_)
    is_chosen = (calls.kind != Blocking.ALLOCATION) & ~belongs_to_copy
    is_chosen &= ~_behind_next_replay(context)
    in_a_row = _waits_in_a_row(context, is_chosen)
    return [
        _join_others(candidate, in_a_row.get(_place(candidate.where), ()))
        for candidate in _candidates(context, is_chosen)
    ]


def _behind_next_replay(context: Context) -> NDArray[np.bool_]:
    """bool[blocking calls], the waits for a result that is read while the next replay runs.

    The host must not read it earlier, and the GPU has a whole graph to do meanwhile.
    """
    calls = context.blocking_calls.calls
    if not mostly_replays(context.timeline):
        return np.zeros(len(calls), dtype=np.bool_)
    waits = own_waits(context.graph)
    waits = waits[awaited_results(context.graph, waits) == Awaited.EARLIER_RESULT]
    return np.isin(calls.event_id, waits)


def _candidates(context: Context, is_chosen: NDArray[np.bool_]) -> list[Candidate]:
    """Make one candidate for each call site, or remedy, of the chosen blocking calls.

    Args:
        context: the window.
        is_chosen: bool[blocking calls].
    """
    costs = context.blocking_calls
    event_id = costs.calls.event_id
    chosen_index = np.flatnonzero(is_chosen & context.has_caused_idle)
    names = [context.trace.name_of(event) for event in event_id[chosen_index].tolist()]
    call_sites = [costs.call_sites[index] for index in chosen_index.tolist()]
    remedies = context.recognized.remedies(event_id[chosen_index], "TL101")
    # One call site may block by two calls, a copy and the synchronize after it, as `.item()` does.
    keys = [
        key_of(remedy, call_site if call_site.function or call_site.operator else name)
        for name, call_site, remedy in zip(names, call_sites, remedies, strict=True)
    ]
    candidates = []
    for group in grouped(keys).values():
        call_index = chosen_index[group]
        lost = context.idle_after(call_index)
        if not lost:
            continue
        # Without the call the host is earlier by what it blocked, and by no more: if it needs
        # longer than the GPU for all else that it does, the rest of the idle stays.
        blocked_ns = int(costs.blocked_ns[call_index].sum())
        caused_idle_ns = costs.caused_idle_ns[call_index]
        top = group[int(np.argmax(caused_idle_ns))]
        call_site, api = call_sites[top], names[top]
        fix = choose_fix(_FIX, context.host_needs[call_index])
        what = capitalize_start(called(call_site, api) or "a call")
        candidates.append(
            Candidate(
                title=f"{what} makes the CPU wait for the GPU",
                cause="host_sync",
                where=where(call_site, count=len(group), api=api),
                evidence=most_expensive(event_id[call_index].tolist(), caused_idle_ns.tolist()),
                fix=fix.text,
                fix_short=fix.short,
                lost=lost,
                limit_ns=dict.fromkeys(lost, blocked_ns),
                edit=_EDIT,
                remedy=remedies[top],
                is_possible=is_possible(context, call_index.tolist(), remedies[top]),
            )
        )
    return candidates


def is_possible(context: Context, call_index: Sequence[int], remedy: Remedy | None) -> bool:
    """Tell whether the trace shows that the host can do without the values of some blocking calls.

    It cannot without the size of a result, unless that is the same in every step.

    Args:
        context: the window.
        call_index: index of the blocking calls.
        remedy: the pitfall, if one is recognized.
    """
    costs = context.blocking_calls
    if remedy is not None and not (remedy.needs_same_sizes and remedy.by_call_site):
        return True
    if not is_size(context.host_needs[call_index]):
        return True
    sites = {costs.call_sites[index] for index in call_index}
    at_sites = [index for index, site in enumerate(costs.call_sites) if site in sites]
    return have_same_sizes(context, costs.calls.event_id[at_sites])


# --- waits in a row ---
# Without the first call the host reaches the second one earlier by what the first one blocked, and
# waits there for the same work: it saves no more than what it does between the two. Only without
# all of them it runs ahead, so they share one edit and one price.
# How long a call blocked is no measure of that if the profiler slows the host: it finds the GPU
# done already. Calls between which nothing is launched wait for the same work in any case.


def _place(where: Where) -> _Place:
    call_site = call_site_of(where)
    is_known = call_site.function or call_site.operator
    return call_site, "" if is_known else where.api or ""


def _waits_in_a_row(
    context: Context, is_chosen: NDArray[np.bool_]
) -> Mapping[_Place, tuple[Where, ...]]:
    """Map each place to those that must change together with it; single places are left out.

    Calls whose values the host needs stay, and do not count.

    Args:
        context: the window.
        is_chosen: bool[blocking calls], those that may be left out.
    """
    costs = context.blocking_calls
    calls = costs.calls
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
    runs, pairs = _runs_and_pairs(context, number)
    together = {i: {i} for i in range(len(number_of))}
    for (first, second), times in pairs.items():
        if times >= _MIN_SHARE_IN_A_ROW * min(runs[first], runs[second]):
            joined = together[first] | together[second]
            together |= dict.fromkeys(joined, joined)
    places = list(number_of)
    return {
        place: tuple(where_of[places[i]] for i in sorted(together[own]))
        for place, own in number_of.items()
        if len(together[own]) > 1
    }


def _runs_and_pairs(
    context: Context, number: Int64Array
) -> tuple[Counter[int], Counter[tuple[int, int]]]:
    """Count how often each place waits, and how often one place waits right after another.

    Args:
        context: the window.
        number: int64[blocking calls], the place of each, else ABSENT. Calls of one place without
            any of another in between count once.
    """
    calls = context.blocking_calls.calls
    runs: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    for _, index in groups_of(np.where(number == ABSENT, ABSENT, calls.thread_index)):
        place = number[index]
        first = np.flatnonzero(np.diff(place, prepend=ABSENT))
        last = np.append(first[1:], len(index)) - 1
        runs.update(place[first].tolist())
        blocked_ns = np.add.reduceat(calls.end_ns[index] - calls.start_ns[index], first)[:-1]
        end_ns, next_ns = calls.end_ns[index[last[:-1]]], calls.start_ns[index[first[1:]]]
        launched_ns, own_ns = _launched_ns(context, end_ns, next_ns), next_ns - end_ns
        is_tiny = np.maximum(own_ns, launched_ns) <= _MAX_BETWEEN * blocked_ns
        pair, is_same = np.stack((place[first[:-1]], place[first[1:]])), launched_ns == 0
        _, number_of_pair = np.unique(pair, axis=1, return_inverse=True)
        of_pair = number_of_pair.ravel()
        same_ns = np.bincount(of_pair, np.where(is_same, own_ns, 0))[of_pair]
        is_tiny |= is_same & (same_ns <= _MAX_WINDOW_SHARE_BETWEEN * context.window.length_ns)
        pairs.update(map(tuple, pair[:, is_tiny].T.tolist()))
    return runs, pairs


def _launched_ns(context: Context, start_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
    """int64[k], the GPU time of everything that is launched between two moments, ns."""
    timeline = context.timeline
    rows = np.flatnonzero(timeline.launch_id != ABSENT)
    launched_ns = context.trace.start_ns[timeline.launch_id[rows]]
    order = np.argsort(launched_ns, kind="stable")
    works_ns = (timeline.end_ns - timeline.start_ns)[rows[order]]
    until_ns = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(works_ns)))
    first, end = np.searchsorted(launched_ns[order], (start_ns, end_ns))
    length_ns: Int64Array = until_ns[end] - until_ns[first]
    return length_ns


def _join_others(candidate: Candidate, in_a_row: Sequence[Where]) -> Candidate:
    """Give a candidate the edit of all the places that wait in a row with it."""
    remedy = candidate.remedy
    if not in_a_row or (remedy is not None and remedy.edit != _EDIT):
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
    edit = JOINT.join(filter(None, (edit_text(_EDIT, place) for place in in_a_row)))
    also_short = f" Do so at all {len(others) + 1} places."
    if remedy is not None:
        fixes = tuple(
            replace(fix, text=f"{fix.text}{also}", short=f"{fix.summary}{also_short}")
            for fix in remedy.fixes
        )
        remedy = replace(remedy, fixes=fixes, edit=edit, by_call_site=True)
    return replace(
        candidate,
        fix=f"{candidate.fix}{also}",
        fix_short=f"{candidate.fix_short}{also_short}",
        edit=edit,
        remedy=remedy,
    )


RULE = Rule(
    id="TL101",
    name="a blocking call that costs GPU idle time",
    matters="The CPU launches nothing while it waits. When the call returns, the GPU has run out "
    "of work and stays idle until the next launch reaches it. A call that blocks while the GPU "
    "still has work queued costs nothing.",
    decides="It sums the idle time of each GPU during the call, and after it until newly launched "
    "work arrives. Idle time after the call counts up to the delay that the call caused: the time "
    "for which it blocked while the GPU was busy. Calls from one call site are one finding. Calls "
    "of the profiler and of NCCL's watchdog, calls that caused no idle time, and waits for a copy "
    "to the CPU while the next replay of a CUDA graph is queued are left out. If calls follow "
    "one another so closely that without one the next would wait instead, they are changed and "
    "priced together.",
    before="for batch in loader:\n    loss = step(batch)\n    log.append(loss.item())",
    after="for batch in loader:\n    loss = step(batch)\n    log.append(loss.detach())\n"
    "values = torch.stack(log).tolist()",
    find=find,
)
