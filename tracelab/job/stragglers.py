"""Stragglers: ranks that arrive late at collectives, step after step, while others are idle.

Lateness costs another rank the exposed part of its waits for this rank alone. The job gains what
the least waiting rank gains, at most what the late rank has too much. The profiler makes a rank
that launches more come last: in slowed steps that is taken from the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracelab.base.arrays import IndexArray, Int64Array, Record
from tracelab.base.intervals import Intervals, measure_within, overlapping_pairs, union
from tracelab.job.lateness import (
    BEFORE_RECORDING,
    LATE_LAUNCH,
    MORE_WORK,
    SLOWER_GPU,
    UNEVEN_WORK,
    Explanation,
    Lateness,
    MoreWork,
    explain,
)
from tracelab.job.matching import Basis
from tracelab.job.operation_members import Members
from tracelab.job.part import SITE_FIELDS, Work
from tracelab.measures.window_times import SteadyMetrics
from tracelab.model.program.call_sites import NO_CALL_SITE
from tracelab.model.steps import MIN_STEPS
from tracelab.model.timeline import spread_ns
from tracelab.model.trace import ABSENT

# Shares of a step. Ranks of bundled jobs that do the same cost each other up to 2.7 %.
MIN_SHARE, MIN_SHARE_OF_COMPUTE, _MIN_SHARE_IN_TURN = 0.02, 0.04, 0.05
_OF_COMPUTE = (MORE_WORK, SLOWER_GPU)
_MAX_EVIDENCE = 20
# Times as long as without the profiler: below that its part of a rank's lateness is taken away.
MIN_SLOWDOWN = 1.2


class Straggler(Record):
    """A rank that the others wait for in collectives, in most of the steady steps.

    Attributes:
        rank: it arrives last.
        cause: why, in one word: "more_work", "slower_gpu", "late_launch", "data_loading",
            "blocked", "other_collective", "copies", "unknown", or "uneven_work" where in each step
            another rank has the most to compute: this is the one that costs most, and the cost is
            what all of them cost.
        what: what it does, a clause that follows "rank N", without figures.
        why: the same with figures.
        cost_ns: what the job would gain per steady step if it came with the next one, ns: the
            median of the steps, of fewer than three the least. Without steps that all ranks have,
            of the whole recording. Of "uneven_work" it is `shared_out_ns`, of "late_launch" without
            what the profiler made the host late by.
        shared_out_ns: of "more_work" and "uneven_work" what the job would gain if all ranks did the
            mean of their work, ns; None for other causes.
        share: of the length of a step, like the cost without the profiler's part.
        spread_ns: by how much the steps differ for other reasons, ns: twice the median deviation.
        waiting_ranks: the ranks that wait for it.
        wait_ns: for how long each of them, exposed, per step, ns, like the cost.
        steps: how many steady steps there are that all ranks have; 0 without any.
        steps_seen: in how many of them it costs the job time.
        operator, function, file, line, call: where in the program, as far as that is known.
        evidence: event ids, in the file of the rank, of the kernels that the others waited for
            longest.
    """

    rank: int
    cause: str
    what: str
    why: str
    cost_ns: int
    shared_out_ns: int | None
    share: float
    spread_ns: int
    waiting_ranks: tuple[int, ...]
    wait_ns: tuple[int, ...]
    steps: int
    steps_seen: int
    operator: str | None
    function: str | None
    file: str | None
    line: int | None
    call: str | None
    evidence: tuple[int, ...]


def find_stragglers(
    members: Members,
    more_of: Sequence[MoreWork | None],
    lateness: Lateness,
    overhead_ns: Sequence[int],
    *,
    in_pipeline: bool,
    is_slowed: bool = False,
) -> tuple[Straggler, ...]:
    """Find the ranks that cost the job time because they arrive late, the most expensive first.

    A cost within its variation from step to step is left out. `overhead_ns`, ns, is what the
    profiler added to a step of each rank, which no change saves. If `is_slowed`, the profiler may
    have made a rank late.
    """
    is_message = members.matches.basis == Basis.PEERS
    if not in_pipeline:  # of kernels that both send and receive neither is first by nature
        is_message &= ~members.reduce(np.logical_and, members.column("is_exchange"))
    # No rank is blamed for waits of messages, and for lateness from the start.
    is_fault = (lateness.late_member != ABSENT) & (lateness.cause != BEFORE_RECORDING)
    late_part = members.part_index[lateness.late_member]
    blamed = np.where(is_fault & ~is_message, late_part, ABSENT).astype(np.int64)
    windows = _common_steps(members)
    lost = _lost_by_rank(members, blamed, windows)
    waited_ns = members.reduce(np.add, members.wait_ns)
    found = []
    for part_index, of_rank in lost.items():
        chosen = np.flatnonzero(blamed == part_index)
        work = np.bincount(lateness.cause[chosen], weights=waited_ns[chosen]).argmax()
        own = chosen[lateness.cause[chosen] == work]
        longest = own[np.argsort(-waited_ns[own], kind="stable")].tolist()
        explanation = explain(members, more_of, lateness, longest)
        more, by_it = more_of[part_index], of_rank
        if explanation.cause == MORE_WORK and more is not None:
            by_it = of_rank.limit(more.surplus_ns)
        if explanation.cause == LATE_LAUNCH or is_slowed:
            by_it = by_it.subtract(overhead_ns[part_index])
        least = MIN_SHARE_OF_COMPUTE if explanation.cause in _OF_COMPUTE else MIN_SHARE
        if windows.is_typical(by_it.cost_ns, least):
            late = lateness.late_member[longest].tolist()
            found.append(_straggler_of(members, windows, part_index, by_it, explanation, late))
    if not found:
        found += _taking_turns(members, lateness, windows, lost, blamed)
    return tuple(sorted(found, key=lambda straggler: -straggler.cost_ns))


class CommonSteps(Record):
    """The steady steps of all ranks, on the job's clock, ns.

    There are 0 `steps` where the recording counts as one.
    """

    steps: int
    starts_ns: tuple[Int64Array, ...]
    ends_ns: tuple[Int64Array, ...]

    @property
    def lengths_ns(self) -> Int64Array:
        """int64[steps], ns, of the first rank."""
        return self.ends_ns[0] - self.starts_ns[0]

    @property
    def step_ns(self) -> float:
        """The median length."""
        return float(np.median(self.lengths_ns))

    def is_typical(self, cost_ns: Int64Array, least_share: float) -> bool:
        """Return True if a cost is a share of a step worth a word, and more than it varies by."""
        if _typical_ns(cost_ns) <= least_share * self.step_ns:
            return False
        return len(cost_ns) < MIN_STEPS or _typical_ns(cost_ns) > spread_ns(cost_ns)


class Lost(Record):
    """Time that one rank costs the others, by step: int64[steps], ns.

    Attributes:
        wait_ns: waits of each other rank for this one alone.
        cost_ns: the least of them: what the job lost.
        shared_out_ns: its gain had all done the mean work.
        overhead_ns: the profiler's part of the step, not in the cost.
    """

    wait_ns: dict[int, Int64Array]
    cost_ns: Int64Array
    shared_out_ns: Int64Array
    overhead_ns: int = 0

    def subtract(self, overhead_ns: int) -> Lost:
        """Subtract the time of the profiler per step."""
        cost_ns = np.maximum(self.cost_ns - overhead_ns, 0)
        wait_ns = {other: np.maximum(ns - overhead_ns, 0) for other, ns in self.wait_ns.items()}
        return Lost(wait_ns, cost_ns, np.minimum(self.shared_out_ns, cost_ns), overhead_ns)

    def limit(self, surplus_ns: int) -> Lost:
        """Limit what a rank can give away per step."""
        ranks = len(self.wait_ns) + 1
        return replace(
            self,
            cost_ns=np.minimum(self.cost_ns, surplus_ns),
            shared_out_ns=np.minimum(self.shared_out_ns, surplus_ns * (ranks - 1) // ranks),
        )


def _lost_by_rank(members: Members, blamed: Int64Array, windows: CommonSteps) -> dict[int, Lost]:
    late_parts, count = np.unique(blamed[blamed != ABSENT]), len(members.parts)
    lost_ns = np.zeros((len(late_parts), count, len(windows.lengths_ns)), dtype=np.int64)
    alone_ns, blamed_of = _alone_ns(members), blamed[members.match_index]
    is_chosen = (blamed_of != ABSENT) & (blamed_of != members.part_index) & (alone_ns > 0)
    end_ns = members.arrival_ns + members.wait_ns
    for other, (starts_ns, ends_ns) in enumerate(
        zip(windows.starts_ns, windows.ends_ns, strict=True)
    ):
        own = members.of_part[other]
        chosen = own[is_chosen[own]]
        if not len(chosen):
            continue
        late_index, waited = _union_by_key(
            np.searchsorted(late_parts, blamed_of[chosen]),
            end_ns[chosen] - alone_ns[chosen],
            end_ns[chosen],
        )
        piece, step = overlapping_pairs(waited, Intervals(starts_ns, ends_ns))
        piece_ns = measure_within(
            _exposed(members, other),
            np.maximum(waited.starts[piece], starts_ns[step]),
            np.minimum(waited.ends[piece], ends_ns[step]),
        )
        np.add.at(lost_ns[:, other], (late_index[piece], step), piece_ns)
    lost = {}
    for of_others_ns, part_index in zip(lost_ns, late_parts.tolist(), strict=True):
        wait_ns = {other: x for other, x in enumerate(of_others_ns) if other != part_index}
        least_ns = np.min(list(wait_ns.values()), axis=0)
        lost[part_index] = Lost(wait_ns, least_ns, of_others_ns.sum(axis=0) // count)
    return lost


def _union_by_key(
    key: IndexArray, start_ns: Int64Array, end_ns: Int64Array
) -> tuple[IndexArray, Intervals]:
    """Unite the intervals of each key, key after key; at least one, and none empty.

    >>> _union_by_key(np.array([1, 0, 1]), np.array([0, 10, 5]), np.array([10, 20, 15]))
    (array([0, 1]), Intervals(starts=[10, 0], ends=[20, 15]))
    """
    begin_ns = start_ns.min()
    stretch_ns = end_ns.max() - begin_ns + 1
    offset_ns = key * stretch_ns - begin_ns  # each key gets a stretch of time of its own
    covered = union(start_ns + offset_ns, end_ns + offset_ns)
    key = covered.starts // stretch_ns
    offset_ns = key * stretch_ns - begin_ns
    return key, Intervals(covered.starts - offset_ns, covered.ends - offset_ns)


def _straggler_of(
    members: Members,
    windows: CommonSteps,
    part_index: int,
    lost: Lost,
    explanation: Explanation,
    late: Sequence[int],
) -> Straggler:
    parts, site, step_ns = members.parts, explanation.site, windows.step_ns
    cost_ns, kernel_id = _typical_ns(lost.cost_ns), members.column("kernel_id")[list(late)]
    can_be_shared = explanation.cause in (MORE_WORK, UNEVEN_WORK)
    return Straggler(
        rank=parts[part_index].rank,
        cause=explanation.cause,
        what=explanation.what,
        why=explanation.why,
        cost_ns=cost_ns,
        shared_out_ns=_typical_ns(lost.shared_out_ns) if can_be_shared else None,
        share=round(min(1, cost_ns / max(1, step_ns - lost.overhead_ns)), 6),
        spread_ns=round(spread_ns(windows.lengths_ns - lost.cost_ns)),
        waiting_ranks=tuple(parts[other].rank for other in lost.wait_ns),
        wait_ns=tuple(map(_typical_ns, lost.wait_ns.values())),
        steps=windows.steps,
        steps_seen=int((lost.cost_ns > MIN_SHARE * step_ns).sum()) if windows.steps else 0,
        **{name: getattr(site, name) for name in SITE_FIELDS},
        evidence=tuple(dict.fromkeys(kernel_id.tolist()))[:_MAX_EVIDENCE],
    )


def _taking_turns(
    members: Members,
    lateness: Lateness,
    windows: CommonSteps,
    lost: dict[int, Lost],
    blamed: Int64Array,
) -> list[Straggler]:
    is_compute = (blamed != ABSENT) & (lateness.cause == Work.COMPUTE)
    lost = {part_index: lost[part_index] for part_index in np.unique(blamed[is_compute]).tolist()}
    if len(lost) < 2 or windows.steps < MIN_STEPS:
        return []
    by_rank_ns = np.array([of_rank.shared_out_ns for of_rank in lost.values()])
    cost_ns = by_rank_ns.sum(axis=0)
    if _typical_ns(cost_ns) < _MIN_SHARE_IN_TURN * windows.step_ns:
        return []
    part_index = list(lost)[int(by_rank_ns.sum(axis=1).argmax())]
    worst = by_rank_ns.argmax(axis=0)
    counts = {other: int((worst == position).sum()) for position, other in enumerate(lost)}
    others = [
        f"rank {members.parts[other].rank} in {count}"
        for other, count in counts.items()
        if other != part_index
    ]
    what = f"has the most work in {counts[part_index]} of {windows.steps} steps"
    explanation = Explanation(UNEVEN_WORK, what, ", ".join(others), NO_CALL_SITE)
    late = lateness.late_member[is_compute & (blamed == part_index)].tolist()
    in_turn = Lost(lost[part_index].wait_ns, cost_ns, cost_ns)
    return [_straggler_of(members, windows, part_index, in_turn, explanation, late)]


def _common_steps(members: Members) -> CommonSteps:
    parts, clocks, common = members.parts, members.clocks, members.steady_numbers
    starts_ns, ends_ns = [], []
    for part_index, part in enumerate(parts):
        is_common = np.isin(part.steps.number, common) & part.steps.is_steady
        start_ns, end_ns = part.steps.start_ns[is_common], part.steps.end_ns[is_common]
        if not common:
            start_ns, end_ns = part.start_ns[:1], part.end_ns.max(keepdims=True, initial=0)
        starts_ns.append(clocks.job_ns_of(part_index, start_ns))
        ends_ns.append(clocks.job_ns_of(part_index, end_ns))
    return CommonSteps(len(common), tuple(starts_ns), tuple(ends_ns))


def _exposed(members: Members, part_index: int) -> Intervals:
    part, job_ns_of = members.parts[part_index], members.clocks.job_ns_of
    return union(
        job_ns_of(part_index, part.exposed_start_ns), job_ns_of(part_index, part.exposed_end_ns)
    )


def _alone_ns(members: Members) -> Int64Array:
    match_index, wait_ns, last = members.match_index, members.wait_ns, members.last_member
    if not len(members):
        return wait_ns
    kernel_index = members.kernel_index
    last_ns = members.last_arrival_ns[match_index]
    last_part = np.where(last == ABSENT, ABSENT, members.part_index[last])[match_index]
    until_last_ns = np.minimum(last_ns - members.arrival_ns, members.length_ns)
    awaits_last, is_decisive = until_last_ns <= wait_ns, until_last_ns == wait_ns

    decisive_part = np.full(len(kernel_index), ABSENT, dtype=np.int64)
    decisive_part[kernel_index[is_decisive]] = last_part[is_decisive]
    is_of_decisive = last_part == decisive_part[kernel_index]
    others_ns = last_ns - np.where(is_of_decisive, members.margin_ns[match_index], 0)
    others_ns = np.where(awaits_last, others_ns, members.arrival_ns)
    last_other_ns = np.full(len(kernel_index), np.iinfo(np.int64).min)
    np.maximum.at(last_other_ns, kernel_index, others_ns)
    alone_ns = np.clip(last_ns - last_other_ns[kernel_index], 0, wait_ns)
    return np.where(is_decisive, alone_ns, 0)


def slowdown(steady: Sequence[SteadyMetrics | None]) -> float:
    """Return how many times as long the profiler made the steps of some ranks; 1 if not known."""
    # Ranks agree on a step; of those that wait for others their own files do not tell.
    return max(
        1.0 if row is None else row.length_ns / (row.unprofiled_ns or row.length_ns)
        for row in steady
    )


def _typical_ns(by_step_ns: Int64Array) -> int:
    few = len(by_step_ns) < MIN_STEPS
    return int(by_step_ns.min() if few else np.median(by_step_ns))
