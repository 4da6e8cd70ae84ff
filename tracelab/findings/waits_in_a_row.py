"""Blocking calls that follow one another so soon that without one the next waits instead of it.

Without the first call the host reaches the second one earlier by what the first one blocked, and
waits there for the same work: it saves no more than what it does between the two. Only without all
of them it runs ahead, so they share one edit and one price.

How long a call blocked is no measure of that where the profiler slows the host: it finds the GPU
done already. Calls between which nothing is launched wait for the same work in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.candidates import where
from tracelab.findings.context import Context
from tracelab.findings.finding import Where, call_site_of
from tracelab.findings.host_needs import Need
from tracelab.model.lookup import groups_of
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import ABSENT

# Of what a call blocked: what the host does, or launches for the GPU, until the next one.
_TINY = 0.5
_LITTLE = 0.02  # of the window: less than that in all the host does between two places
_USUAL = 0.5  # of the calls of the one place or the other: so many are in a row

Place = tuple[CallSite, str]


def place_of(where: Where) -> Place:
    """What distinguishes places: the call site, or the API of what no function calls."""
    call_site = call_site_of(where)
    is_known = call_site.function or call_site.operator
    return call_site, "" if is_known else where.api or ""


def waits_in_a_row(
    context: Context, is_chosen: NDArray[np.bool_]
) -> Mapping[Place, tuple[Where, ...]]:
    """The places that have to be changed together, by each of them; places alone are left out.

    What the host needs at once stays, and is none of them.

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
    number_of: dict[Place, int] = {}
    number = np.full(len(calls), ABSENT, dtype=np.int64)
    number[can_go] = [number_of.setdefault(place_of(one), len(number_of)) for one in wheres]
    where_of = {place_of(one): one for one in reversed(wheres)}
    runs, pairs = _runs_and_pairs(context, number)
    together = {i: {i} for i in range(len(number_of))}
    for (first, second), times in pairs.items():
        if times >= _USUAL * min(runs[first], runs[second]):
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
    """How often each place waits, and how often one place waits right behind another.

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
        is_tiny = np.maximum(own_ns, launched_ns) <= _TINY * blocked_ns
        pair, is_same = np.stack((place[first[:-1]], place[first[1:]])), launched_ns == 0
        _, number_of_pair = np.unique(pair, axis=1, return_inverse=True)
        of_pair = number_of_pair.ravel()
        same_ns = np.bincount(of_pair, np.where(is_same, own_ns, 0))[of_pair]
        is_tiny |= is_same & (same_ns <= _LITTLE * context.window.length_ns)
        pairs.update(map(tuple, pair[:, is_tiny].T.tolist()))
    return runs, pairs


def _launched_ns(context: Context, start_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
    """int64[k], how long all that works which is launched between two moments, ns."""
    timeline = context.timeline
    rows = np.flatnonzero(timeline.launch_id != ABSENT)
    launched_ns = context.trace.start_ns[timeline.launch_id[rows]]
    order = np.argsort(launched_ns, kind="stable")
    works_ns = (timeline.end_ns - timeline.start_ns)[rows[order]]
    until_ns = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(works_ns)))
    first, end = np.searchsorted(launched_ns[order], (start_ns, end_ns))
    length_ns: Int64Array = until_ns[end] - until_ns[first]
    return length_ns
