"""Stragglers without the profiler, where that made the recorded steps much longer.

The profiler slows the host. A rank that launches more than the others then comes last, whoever
does without it, and what a slow rank costs disappears behind it. So what counts is a replay without
the profiler, where there is one of all ranks, and else what the profiler leaves as it is, together
with the step that was timed without it: what a rank's GPU works, and for how long its host waits
for data. Where neither says which rank is late, no rank is.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.job.lateness import MORE_WORK, Explanation, explain_compute, explain_host
from tracelab.job.members import Members
from tracelab.job.more_work import MoreWork
from tracelab.job.part import RankPart, Work
from tracelab.job.replay import JobReplay
from tracelab.job.stragglers import (
    MIN_SHARE,
    MIN_SHARE_OF_COMPUTE,
    Lost,
    Straggler,
    common_steps,
    evidence_of,
    straggler_of,
)
from tracelab.job.waits import RankTimes
from tracelab.measures.steady import UNPROFILED, SteadyMetrics

# Times as long as without the profiler: below that its part of a rank's lateness is taken away.
_MIN_SLOWDOWN = 1.2
# A GPU that works for this share of a step decides how long it is: copies and launches between
# kernels were up to a tenth in bundled captures whose host was far ahead.
_MIN_DECISIVE_SHARE = 0.9
_MIN_EXPLAINED_SHARE = 0.5

NOT_JUDGED = (
    "Recording made the steps {:.1f} times as long, and which rank is late without it is not "
    "known. Record without Python functions (`with_stack=False`)."
)
OTHERS_ARE_LATE = (
    "Other ranks are late while profiled than without the profiler. Record without Python "
    "functions (`with_stack=False`)."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlainStep(Frozen):
    """Typical step of a job without the profiler, as far as it is known.

    Attributes:
        step_ns: how long it is, ns.
        slower: how many times as long it was recorded.
        works_ns: int64[r], ns, for how long the device that decides works on each rank, without
            waiting for other ranks.
        loads_ns: int64[r], ns, for how long the host of each loads data, or waits for it.

    Example: ``PlainStep(step_ns=135_000_000, slower=1.44, works_ns=[40_000_000, 40_000_000],
    loads_ns=[0, 80_000_000])``.
    """

    step_ns: int
    slower: float
    works_ns: Int64Array
    loads_ns: Int64Array


def plain_step(
    parts: Sequence[RankPart], times: Sequence[RankTimes], steady: Sequence[SteadyMetrics | None]
) -> PlainStep | None:
    """Gather what is known of a job's step without the profiler, where that made it much longer.

    Args:
        parts: the job's ranks.
        times: how each of them spent its steps.
        steady: their steady steps; None of a rank without any.

    Returns:
        None where the recording is about as fast as the program, or that is not known.
    """
    works_ns, loads_ns, lengths_ns = [], [], []
    for part, of_rank, row in zip(parts, times, steady, strict=True):
        steps = [] if row is None else [step for step in of_rank.steps if step.step in row.steps]
        if row is None or not steps:
            return None
        loading_ns = part.steps.loading_ns[np.isin(part.steps.number, row.steps)]
        works_ns.append(median(x.compute_ns + x.transfer_ns + x.copy_ns for x in steps))
        loads_ns.append(np.median(loading_ns))
        # Ranks agree on a step; of those that wait for others their own files do not tell.
        lengths_ns.append((row.unprofiled_ns or row.length_ns, row.length_ns, len(row.steps)))
    plain_ns, recorded_ns, count = min(lengths_ns, key=lambda x: x[0] / x[1])
    if recorded_ns <= _MIN_SLOWDOWN * plain_ns:
        return None
    return PlainStep(
        step_ns=plain_ns // count,
        slower=recorded_ns / plain_ns,
        works_ns=np.array(works_ns, dtype=np.int64),
        loads_ns=np.array(loads_ns, dtype=np.int64),
    )


def late_without_profiler(
    members: Members,
    more_of: Sequence[MoreWork | None],
    step: PlainStep,
    replayed: JobReplay | None,
) -> tuple[tuple[Straggler, ...], str | None]:
    """The rank that the others wait for without the profiler, if there is one.

    There is no slow reference model: ``tests/unit/job/test_unprofiled_stragglers.py`` has jobs made
    by hand.

    Args:
        members: the matched operations of the job's ranks.
        more_of: what the GPU of each rank does more than those of the others.
        step: what is known of its step without the profiler.
        replayed: the ranks as they are replayed; None where nothing is to be predicted.

    Returns:
        the straggler; and why there is no verdict, a sentence, None where there is one.
    """
    step_ns, works_ns, loads_ns = step.step_ns, step.works_ns, step.loads_ns
    late_ns = _late_in_replay_ns(replayed)
    if late_ns is not None:
        work = _cause_of(int(late_ns.argmax()), _ahead_ns(late_ns), works_ns, loads_ns)
    elif works_ns.max() >= _MIN_DECISIVE_SHARE * step_ns:
        work, late_ns = Work.COMPUTE, works_ns
    elif loads_ns.max() >= _MIN_EXPLAINED_SHARE * (step_ns - works_ns[loads_ns.argmax()]):
        # No rank comes before its GPU work is done.
        work, late_ns = Work.INPUT, np.minimum(loads_ns, step_ns - works_ns.max())
    else:
        return (), NOT_JUDGED.format(step.slower)
    late = int(late_ns.argmax())
    others = [other for other in range(len(members.parts)) if other != late]
    cost_ns = _ahead_ns(late_ns)
    part, ordered_ns = members.parts[late], works_ns[[late, *others]]
    explanation = _explain(part, more_of[late], work, cost_ns, ordered_ns)
    windows = common_steps(members)
    count = len(windows.lengths_ns)
    lost = Lost(
        {other: np.full(count, late_ns[late] - late_ns[other]) for other in others},
        np.full(count, cost_ns),
        np.full(count, int(late_ns[late] - late_ns.mean())),
        max(0, int(windows.step_ns) - step_ns),
    )
    more = more_of[late]
    if explanation.cause == MORE_WORK and more is not None:
        lost = lost.limit(more.surplus_ns)
    least = MIN_SHARE_OF_COMPUTE if work == Work.COMPUTE else MIN_SHARE
    if lost.cost_ns[0] <= least * step_ns:
        return (), None
    evidence = evidence_of(members, members.select(late).tolist())
    return (straggler_of(members, windows, late, lost, explanation, evidence),), None


def _late_in_replay_ns(replayed: JobReplay | None) -> Int64Array | None:
    """int64[r], ns, how much less each rank waits per step without the profiler than the longest.

    None where that is not replayed.
    """
    if replayed is None or replayed.baseline.basis != UNPROFILED or replayed.joined is None:
        return None
    waited_ns = replayed.waited_ns // len(replayed.baseline.steps)
    late_ns: Int64Array = waited_ns.max() - waited_ns
    return late_ns


def _ahead_ns(values_ns: Int64Array) -> int:
    """Return how far the largest is ahead of the next one, ns."""
    following, largest = np.sort(values_ns)[-2:]
    return int(largest - following)


def _cause_of(late: int, cost_ns: int, works_ns: Int64Array, loads_ns: Int64Array) -> Work:
    """Choose what a rank does for longer than the others, if that is most of what it costs."""
    for work, spent_ns in ((Work.COMPUTE, works_ns), (Work.INPUT, loads_ns)):
        if spent_ns[late] - np.median(np.delete(spent_ns, late)) >= _MIN_EXPLAINED_SHARE * cost_ns:
            return work
    return Work.HOST_BUSY


def _explain(
    part: RankPart, more: MoreWork | None, work: Work, cost_ns: int, works_ns: Int64Array
) -> Explanation:
    """Explain why a rank is late; its own work comes first among that of the ranks, ns."""
    if work == Work.COMPUTE:
        return explain_compute(more, float(works_ns[0]), float(np.median(works_ns[1:])))
    culprit = next((culprit for culprit in part.culprits if culprit.work == work), None)
    return explain_host(work, culprit, cost_ns, cost_ns)
