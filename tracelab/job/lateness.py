"""Causes of a late rank: the work that it spent more time on than the others, and the words for it.

Time between two collectives of one group is compared with that of the rank in the middle. Lateness
that no rank waited for since then carries over to the next collective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, Int64Array, Record
from tracelab.base.intervals import measure_within
from tracelab.base.names import short_kernel_name
from tracelab.job.operation_members import Members
from tracelab.job.part import Culprit, RankPart, Work
from tracelab.measures.measure import OTHERS
from tracelab.measures.work import (
    FOR_THREADS,
    NOT_IN_FILE,
    OUTSIDE_OPERATORS,
    KernelMetrics,
    WorkMetrics,
)
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite
from tracelab.model.trace import ABSENT, COLLECTIVE_OPERATOR
from tracelab.model.wording import called

BEFORE_RECORDING = len(Work)  # the column of what a rank was late by when the recording began

MORE_WORK, SLOWER_GPU, UNEVEN_WORK = "more_work", "slower_gpu", "uneven_work"
LATE_LAUNCH, OTHER_COLLECTIVE = "late_launch", "other_collective"
RECORDING_START = "recording_start"
# The cause in one word, and a clause that follows "rank N".
_WORDS = {
    Work.COMPUTE: (MORE_WORK, "computes for longer"),
    Work.COMM: (OTHER_COLLECTIVE, "is kept by other communication"),
    Work.COPY: ("copies", "spends more time on copies that are not overlapped"),
    Work.HOST_BLOCKED: ("blocked", "is blocked"),
    Work.INPUT: ("data_loading", "loads data"),
    Work.HOST_BUSY: (LATE_LAUNCH, "launches late"),
    Work.OTHER_IDLE: ("unknown", "has an idle GPU for reasons that its file does not tell"),
}
_MS = 1_000_000
# Of an operator or a call that explains the excess.
_MIN_SHARE_OF_EXCESS = 0.5


class Lateness(Arrays):
    """Causes for which the last rank of each match was late; k members of m matches.

    Attributes:
        previous_member: int64[k], the rank's member of the match before of the same ranks, else
            ABSENT.
        reference_member: int64[m], the member that arrived in the middle (the first of two).
        spent_ns: int64[k, len(Work)], ns since the previous match started; 0 without one.
        excess_ns: int64[k, len(Work) + 1], ns later than the reference by each work; last column:
            lateness carried over.
        late_member: int64[m], the member at fault: the last, or one that its rank had waited for;
            ABSENT if no rank was late.
        cause: int64[m], the largest column of its `excess_ns`, else ABSENT.
    """

    previous_member: Int64Array
    reference_member: Int64Array
    spent_ns: Int64Array
    excess_ns: Int64Array
    late_member: Int64Array
    cause: Int64Array


def find_lateness(members: Members) -> Lateness:
    """Find why the last rank of each match was late."""
    first = members.first
    by_arrival = np.lexsort((members.arrival_ns, members.match_index))
    reference_member = by_arrival[first[:-1] + (np.diff(first) - 1) // 2]
    previous_member = _previous_member(members)
    member_values = members.matches.member_values
    before_ns = member_values([part.work_before(part.start_ns) for part in members.parts])
    exposed_ns = member_values(
        [measure_within(part.work[Work.COMM], part.start_ns, part.end_ns) for part in members.parts]
    )
    has_previous = previous_member != ABSENT
    spent_ns = np.where(has_previous[:, None], before_ns - before_ns[previous_member], 0)
    # With more launched ahead nothing would be idle: the latency of launches is the host's.
    spent_ns[:, Work.HOST_BUSY] += spent_ns[:, Work.LAUNCH]
    spent_ns[:, Work.LAUNCH] = 0
    exposed_wait_ns = np.minimum(exposed_ns, members.wait_ns)
    waited_ns = np.where(has_previous, exposed_wait_ns[previous_member], 0)
    excess_ns = _excess_ns(members, previous_member, reference_member, spent_ns, waited_ns)
    late_member = _late_member(members, previous_member, excess_ns)
    cause = np.where(late_member == ABSENT, ABSENT, excess_ns[late_member].argmax(axis=1))
    return Lateness(previous_member, reference_member, spent_ns, excess_ns, late_member, cause)


def culprit_of(members: Members, lateness: Lateness, member: int) -> tuple[Culprit | None, int]:
    """Find the culprit that kept a late member idle longest, by what made it late; how long, ns.

    None where the file does not say.
    """
    work = int(lateness.excess_ns[member].argmax())
    part, end_index = members.place(member)
    before = int(lateness.previous_member[member])
    first_index = 0 if before == ABSENT else int(members.operation_index[before]) + 1
    index = np.arange(first_index, end_index + 1)
    of_work = np.array([*(culprit.work == work for culprit in part.culprits), False])
    index = index[of_work[part.culprit_index[index]]]
    if not len(index):
        return None, 0
    longest = int(index[part.culprit_ns[index].argmax()])
    return part.culprits[part.culprit_index[longest]], int(part.culprit_ns[longest])


def _previous_member(members: Members) -> Int64Array:
    kernel_index = members.kernel_index
    previous = np.full(len(members), ABSENT, dtype=np.int64)
    latest: dict[bytes, tuple[slice, bytes]] = {}
    for start, end in pairwise(members.first.tolist()):
        ranks, kernels = members.part_index[start:end].tobytes(), kernel_index[start:end].tobytes()
        if ranks in latest:
            before, kernels_before = latest[ranks]
            is_shared = kernels == kernels_before
            own = np.arange(before.start, before.stop)
            previous[start:end] = previous[before] if is_shared else own
        latest[ranks] = slice(start, end), kernels
    return previous


def _excess_ns(
    members: Members,
    previous_member: Int64Array,
    reference_member: Int64Array,
    spent_ns: Int64Array,
    waited_ns: Int64Array,
) -> Int64Array:
    """int64[k, len(Work) + 1]; `waited_ns` is how long each waited before, without compute."""
    arrival_ns = members.arrival_ns
    excess_ns = np.zeros((len(spent_ns), len(Work) + 1), dtype=np.int64)
    for match, (start, end) in enumerate(pairwise(members.first.tolist())):
        reference, before = int(reference_member[match]), previous_member[start:end]
        if before[0] == ABSENT:
            late_ns = arrival_ns[start:end] - arrival_ns[reference]
            excess_ns[start:end, BEFORE_RECORDING] = np.maximum(late_ns, 0)
            continue
        more_ns = spent_ns[start:end] - spent_ns[reference]
        late_before_ns = arrival_ns[before] - arrival_ns[previous_member[reference]]
        made_up_ns = np.maximum(waited_ns[reference] - waited_ns[start:end], 0)
        more_ns[:, Work.COMM] += made_up_ns
        carried_ns = late_before_ns - made_up_ns
        share = np.clip(carried_ns, 0, None) / np.maximum(late_before_ns, 1)
        excess = excess_ns[before] * share[:, None]
        excess[:, : len(Work)] += np.maximum(more_ns, 0)
        late_ns = np.maximum(arrival_ns[start:end] - arrival_ns[reference], 0)
        kept = np.minimum(1, late_ns / np.maximum(excess.sum(axis=1), 1))
        excess_ns[start:end] = excess * kept[:, None]
    return excess_ns


def _late_member(
    members: Members, previous_member: Int64Array, excess_ns: Int64Array
) -> Int64Array:
    """Find the members at fault: a rank that waited elsewhere is late by another rank's fault."""
    late_member = members.last_member.copy()
    for match in np.argsort(members.last_arrival_ns, kind="stable").tolist():
        last = int(members.last_member[match])
        if last == ABSENT or excess_ns[last].argmax() != Work.COMM:
            continue
        own = members.of_part[members.part_index[last]]
        start_ns, end_ns = members.arrival_ns[[previous_member[last], last]]
        arrival_ns = members.arrival_ns[own]
        others = own[(arrival_ns > start_ns) & (arrival_ns < end_ns)]
        others = others[late_member[members.match_index[others]] != ABSENT]
        if len(others):
            longest = int(others[members.wait_ns[others].argmax()])
            if 2 * members.wait_ns[longest] > excess_ns[last, Work.COMM]:
                late_member[match] = late_member[members.match_index[longest]]
    return late_member


# --- in words ---


class Explanation(Record):
    """Cause for which a rank is late: a word, a clause after "rank N", figures, and where."""

    cause: str
    what: str
    figures: str
    site: CallSite

    @property
    def why(self) -> str:
        """The clause with its place and the figures."""
        file, line = self.site.file, self.site.line
        place = f"{file}:{line}" if file and line is not None else file
        more = ", ".join(filter(None, (place, self.figures)))
        return f"{self.what} ({more})" if more else self.what


def explain(
    members: Members, more_of: Sequence[MoreWork | None], lateness: Lateness, chosen: Sequence[int]
) -> Explanation:
    """Explain why one rank was last in some matches, by the same work, the most important first."""
    late = list(dict.fromkeys(lateness.late_member[list(chosen)].tolist()))
    first, work = late[0], int(lateness.cause[chosen[0]])
    if work == BEFORE_RECORDING:
        return Explanation(RECORDING_START, "was late when the recording began", "", NO_CALL_SITE)
    if work == Work.COMPUTE:
        reference = lateness.reference_member[members.match_index[first]]
        own_ns, usual_ns = lateness.spent_ns[[first, reference], Work.COMPUTE].tolist()
        return _explain_compute(more_of[members.part_index[first]], own_ns, usual_ns)
    late_ns = int(lateness.excess_ns[first, work])
    if work in (Work.HOST_BLOCKED, Work.INPUT, Work.HOST_BUSY):
        found = [culprit_of(members, lateness, member) for member in late]
        known = [(culprit, idle_ns) for culprit, idle_ns in found if culprit is not None]
        culprit, idle_ns = known[0] if known else (None, 0)
        return _explain_host(Work(work), culprit, idle_ns, late_ns)
    return Explanation(*_WORDS[Work(work)], _length(late_ns), NO_CALL_SITE)


def _explain_compute(more: MoreWork | None, own_ns: float, usual_ns: float) -> Explanation:
    longer = f"{_length(own_ns)} before it, the others {_length(usual_ns)}"
    if more is None:
        return Explanation(*_WORDS[Work.COMPUTE], longer, NO_CALL_SITE)
    if more.is_slower:
        figures = f"{more.ratio:.3g} times as long"
        return Explanation(SLOWER_GPU, "runs the same kernels more slowly", figures, NO_CALL_SITE)
    name = short_kernel_name(more.name) if more.is_kernel else more.name
    if more.site.function is not None:
        site, place, of_name = more.site, called(more.site, name), f" `{name}`"
    else:
        site, place, of_name = CallSite(operator=None if more.is_kernel else name), f"`{name}`", ""
    place += f" in the {more.phase} pass" if more.phase in ("forward", "backward") else ""
    if more.excess_ns < _MIN_SHARE_OF_EXCESS * (own_ns - usual_ns):
        what, figures = f"computes for longer, mostly in {place}", longer
    elif more.ratio == float("inf"):
        what, figures = f"alone runs {place}", f"{_length(more.excess_ns)} a step"
    else:
        what, figures = f"has more work in {place}", f"{more.ratio:.3g} times as much{of_name}"
        if round(more.calls, 1) != round(more.usual_calls, 1):
            figures += f": {more.calls:.4g} calls a step, the others {more.usual_calls:.4g}"
    return Explanation(MORE_WORK, what, figures, site)


def _explain_host(work: Work, culprit: Culprit | None, idle_ns: int, late_ns: int) -> Explanation:
    cause, what = _WORDS[work]
    if culprit is None:
        return Explanation(cause, what, _length(late_ns), NO_CALL_SITE)
    joint = "because of" if work == Work.HOST_BUSY else "in"
    if idle_ns < _MIN_SHARE_OF_EXCESS * late_ns:
        idle_ns, joint = late_ns, f"in many places, mostly {joint}"
    where = f"{what} {joint} {called(culprit.site, culprit.call)}"
    return Explanation(cause, where, _length(idle_ns), culprit.site)


def _length(length_ns: float) -> str:
    return f"{length_ns / 1e6:,.1f} ms" if length_ns >= _MS else f"{length_ns / 1e3:.0f} µs"


# --- more GPU work than others ---

Tables = Mapping[str, Sequence[Any]]

# A step may be cut.
_MAX_CUT_SHARE = 0.02
_MIN_EXPLAINED_SHARE = 0.8
# The deviation of a kernel's slowdown from that of all kernels, as a share of the latter.
_MAX_SPREAD_SHARE = 0.5
_NO_NAMES = (OTHERS, OUTSIDE_OPERATORS, NOT_IN_FILE, FOR_THREADS, COLLECTIVE_OPERATOR)


class MoreWork(Record):
    """Work that a rank's GPU does beyond the typical one of the others, per steady step.

    Attributes:
        name: the operator, else the kernel (`is_kernel`), with most of it.
        ratio: calls here / on the others where these differ, else GPU time / theirs.
        calls, usual_calls: per step, on this rank and on the others.
        excess_ns: how much longer it runs, ns.
        surplus_ns: all that the rank computes too much, at its own speed, ns: extra calls, and the
            extra length of all else.
        site: where in the program most of it was launched.
        is_slower: True if the same kernels run as often, each longer; `ratio` is of all.
    """

    name: str
    is_kernel: bool
    phase: str | None
    ratio: float
    calls: float
    usual_calls: float
    excess_ns: int
    surplus_ns: int
    site: CallSite
    is_slower: bool


class _Ran(Arrays):
    """GPU time and calls by name on each rank, per step: float64[r, w]; r ranks, w names.

    Usual is the median of the other ranks.
    """

    names: tuple[Any, ...]
    ns: NDArray[np.float64]
    count: NDArray[np.float64]
    usual_ns: NDArray[np.float64]
    usual_count: NDArray[np.float64]
    phases: tuple[Mapping[Any, str | None], ...]

    def most_excess(self, rank: int) -> int:
        return int((self.ns[rank] - self.usual_ns[rank]).argmax())

    def is_as_often(self, rank: int) -> BoolArray:
        usual = self.usual_count[rank]
        return np.asarray(np.abs(self.count[rank] - usual) <= _MAX_CUT_SHARE * usual)


_Row = tuple[Any, float, float, str | None]  # name, ns, count, phase


def more_work(tables: Sequence[Tables], parts: Sequence[RankPart]) -> tuple[MoreWork | None, ...]:
    """Find the work that the GPU of each of several ranks does beyond the others; else None."""
    kernels = _ran([_kernels(of_rank.get("kernels", ())) for of_rank in tables])
    operators = _ran([_operators(of_rank.get("operators", ())) for of_rank in tables])
    sites = _ran(
        [[(*x, 1, None) for x in zip(p.work_sites, p.work_site_ns, strict=True)] for p in parts]
    )
    return tuple(_more_work(kernels, operators, sites, rank) for rank in range(len(parts)))


def _more_work(kernels: _Ran, operators: _Ran, sites: _Ran, rank: int) -> MoreWork | None:
    for ran in (operators, kernels):
        if not ran.names:
            continue
        most = ran.most_excess(rank)
        excess_ns = float(ran.ns[rank, most] - ran.usual_ns[rank, most])
        if excess_ns <= 0:
            continue
        slower = _slower(kernels, rank)
        return MoreWork(
            name=ran.names[most],
            is_kernel=ran is kernels,
            phase=ran.phases[rank].get(ran.names[most]),
            ratio=slower or _ratio(ran, rank, most),
            calls=float(ran.count[rank, most]),
            usual_calls=float(ran.usual_count[rank, most]),
            excess_ns=round(excess_ns),
            surplus_ns=_surplus_ns(ran, rank),
            site=_site_of_excess(sites, rank, excess_ns),
            is_slower=slower is not None,
        )
    return None


def _surplus_ns(ran: _Ran, rank: int) -> int:
    # Ranks that wait clock higher, and run the same calls faster: that is no surplus of calls.
    ns, count, usual_count = ran.ns[rank], ran.count[rank], ran.usual_count[rank]
    is_more_often = (count > usual_count) & ~ran.is_as_often(rank)
    share = np.divide(usual_count, count, out=np.zeros_like(count), where=count > 0)
    of_calls_ns = ns * (1 - share)
    longer_ns = np.maximum(ns - ran.usual_ns[rank], 0)
    return round(float(np.where(is_more_often, of_calls_ns, longer_ns).sum()))


def _site_of_excess(sites: _Ran, rank: int, excess_ns: float) -> CallSite:
    if not sites.names:
        return NO_CALL_SITE
    most = sites.most_excess(rank)
    more_ns = sites.ns[rank, most] - sites.usual_ns[rank, most]
    site: CallSite = sites.names[most]
    return site if more_ns > _MIN_EXPLAINED_SHARE * excess_ns else NO_CALL_SITE


def _kernels(rows: Sequence[KernelMetrics]) -> list[_Row]:
    return [
        (row.name, row.total_ns, row.count, row.phase)
        for row in rows
        if row.kind == "compute" and row.name not in _NO_NAMES
    ]


def _operators(rows: Sequence[WorkMetrics]) -> list[_Row]:
    return [
        (row.name, row.gpu_ns, row.calls or row.launches, row.where)
        for row in rows
        if row.gpu_ns and row.name not in _NO_NAMES and not row.name.startswith(("c10d::", "nccl:"))
    ]


def _ran(by_rank: Sequence[Sequence[_Row]]) -> _Ran:
    numbers: dict[Any, int] = {}
    for rows in by_rank:
        for name, *_ in rows:
            numbers.setdefault(name, len(numbers))
    ns, count = np.zeros((2, len(by_rank), len(numbers)))
    for rank, rows in enumerate(by_rank):
        index = [numbers[name] for name, *_ in rows]
        ns[rank, index] = [row[1] for row in rows]
        count[rank, index] = [row[2] for row in rows]
    phases = tuple({name: phase for name, _, _, phase in rows} for rows in by_rank)
    usual_ns, usual_count = _medians_of_others(ns), _medians_of_others(count)
    return _Ran(tuple(numbers), ns, count, usual_ns, usual_count, phases)


def _medians_of_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[r, w], for each row and column the median of the other rows.

    >>> _medians_of_others(np.array([[1.0], [2.0], [5.0], [9.0]]))[:, 0].tolist()
    [5.0, 5.0, 2.0, 2.0]
    """
    count = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    position = np.argsort(order, axis=0, kind="stable")
    lower, upper = (
        np.take_along_axis(ordered, middle + (position <= middle), axis=0)
        for middle in ((count - 2) // 2, (count - 1) // 2)
    )
    return np.asarray((lower + upper) / 2)


def _slower(kernels: _Ran, rank: int) -> float | None:
    ns, usual_ns = kernels.ns[rank], kernels.usual_ns[rank]
    is_same = kernels.is_as_often(rank) & (usual_ns > 0) & (ns > 0)
    excess_ns = np.maximum(ns - usual_ns, 0).sum()
    same_ns, usual_same_ns = ns[is_same], usual_ns[is_same]
    more_ns = same_ns.sum() - usual_same_ns.sum()
    if more_ns <= 0 or more_ns < _MIN_EXPLAINED_SHARE * excess_ns:
        return None
    ratio = float(same_ns.sum() / usual_same_ns.sum())
    is_uniform = np.abs(same_ns / usual_same_ns - ratio) <= _MAX_SPREAD_SHARE * (ratio - 1)
    uniform_ns = usual_same_ns[is_uniform].sum()
    return ratio if uniform_ns >= _MIN_EXPLAINED_SHARE * usual_same_ns.sum() else None


def _ratio(ran: _Ran, rank: int, index: int) -> float:
    usual_ns, usual_count = ran.usual_ns[rank, index], ran.usual_count[rank, index]
    if not usual_ns or not usual_count:
        return float("inf")
    count = ran.count[rank, index]
    if count > usual_count and not ran.is_as_often(rank)[index]:
        return float(count / usual_count)
    return float(ran.ns[rank, index] / usual_ns)
