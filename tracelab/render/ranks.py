"""Ranks of a job: shares of a step, and causes of waits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from tracelab.base.arrays import Record
from tracelab.base.names import short_names
from tracelab.base.safe_text import clean, counted
from tracelab.findings.rules import waiting_ranks
from tracelab.render.text.savings import percent
from tracelab.render.words import (
    duration_text,
    exact_percent,
    listed,
    shorten_middle,
)
from tracelab.report.headline import PERCENTS, apportion
from tracelab.report.schema import (
    RECORDING_START,
    STATED,
    UNEVEN_WORK,
    BubbleParts,
    Job,
    Pipeline,
    Report,
    Straggler,
)
from tracelab.report.views import RankView, ranks_of

_MAX_NAMED_RANKS = 2
_MAX_FILE_LETTERS = 30
_MAX_STRAGGLERS = 2
_MIN_SHARE_OF_WAITS = 0.5
_MIN_NAMED_STEP_SHARE = 0.01
_MIN_SENTENCE_STEP_SHARE = 0.02
# Printed as "<0.1 %" below it.
_MIN_SHOWN_SCHEDULE_SHARE = 0.001
_MIN_FULL_WAIT_SHARE = 0.95
_SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B"}
# Fewer have no usual value.
_MIN_RANKS_ALIKE = 3
_MIN_DIFFERENCE_SHARE = 0.1
_MIN_COLUMN_SHARE = 0.02
_PARTS = {
    "compute_ns": "compute",
    "wait_ns": "wait",
    "transfer_ns": "transfer",
    "unmatched_ns": "unmatched",
    "copy_ns": "copies",
    "idle_ns": "idle",
}

Column = tuple[str, list[str]]  # title, cells


class RankShares(Record):
    """Times of a rank in all its steady steps, ns; the parts add up to `length_ns`.

    Attributes:
        step_ns: the median.
        unmatched_ns: communication without a counterpart in these files.
        waits_for: the rank that it waits for most, or None.
    """

    rank: int
    step_ns: int
    length_ns: int
    compute_ns: int
    wait_ns: int
    transfer_ns: int
    copy_ns: int
    idle_ns: int
    unmatched_ns: int
    waits_for: int | None

    @property
    def percents(self) -> dict[str, int]:
        """Parts in whole percents, which add up to 100; idle as in the headline."""
        *busy_ns, idle_ns = (getattr(self, part) for part in _PARTS)
        busy, idle = apportion([sum(busy_ns), idle_ns], PERCENTS)
        return dict(zip(_PARTS.values(), [*apportion(busy_ns, busy), idle], strict=True))

    @property
    def waits_for_text(self) -> str:
        """The rank that it waits for, if for long enough."""
        if self.wait_ns < _MIN_NAMED_STEP_SHARE * self.length_ns:
            return "-"
        return "several" if self.waits_for is None else f"rank {self.waits_for}"


def rank_shares(report: Report) -> list[RankShares]:
    """Return the shares of each rank's steady step, if known."""
    job = report.job
    if job is None:
        return []
    steady = {row.rank: frozenset(row.steps) for row in report.steady}
    window_ns = {row.rank: row.end_ns - row.start_ns for row in report.steady}
    waits_for = _waits_for(job, steady)
    shares = []
    for times in job.per_rank:
        steps = [x for x in times.steps if x.step in steady.get(times.rank, ())] or times.steps
        if steps:
            parts_ns = {part: sum(getattr(x, part) for x in steps) for part in _PARTS}
            lengths_ns = [x.end_ns - x.start_ns for x in steps]
            between_ns = 0
            if {x.step for x in steps} == steady.get(times.rank, frozenset()):  # not a chosen one
                between_ns = max(0, window_ns[times.rank] - sum(lengths_ns))
            parts_ns["idle_ns"] += between_ns
            shares.append(
                RankShares(
                    rank=times.rank,
                    step_ns=int(median(lengths_ns)),
                    length_ns=sum(lengths_ns) + between_ns,
                    **parts_ns,
                    waits_for=waits_for.get(times.rank),
                )
            )
    return shares


def _waits_for(job: Job, steady: Mapping[int, frozenset[int]]) -> dict[int, int]:
    waits: dict[int, Counter[int]] = defaultdict(Counter)
    for x in job.collectives:
        for rank, wait_ns in zip(x.ranks, x.wait_ns, strict=True):
            if x.last_rank not in (None, rank) and x.step in steady.get(rank, (x.step,)):
                waits[rank][x.last_rank] += wait_ns
    return {
        rank: awaited
        for rank, counts in waits.items()
        for awaited, wait_ns in counts.most_common(1)
        if wait_ns > _MIN_SHARE_OF_WAITS * counts.total()
    }


def job_sentences(report: Report, shares: Sequence[RankShares]) -> list[str]:
    """Say who makes others wait and why, the pipeline's bubble, or the waits of ranks."""
    job = report.job
    if job is None:
        return []
    missing = _ranks_missing(report)
    if job.unmatched and not job.collectives:
        return [*missing, "No communication of the ranks could be matched: who waits is not known."]
    if job.not_judged is not None:
        return [*missing, job.not_judged]
    # Only if the job would be faster without it.
    costly = [
        (x, cost_ns)
        for x in job.stragglers
        for cost_ns in [_cost_ns(x, report)]
        if cost_ns >= _MIN_SENTENCE_STEP_SHARE * min(x.wait_ns)
    ]
    sentences = [_straggler(x, cost_ns, len(job.ranks)) for x, cost_ns in costly[:_MAX_STRAGGLERS]]
    left = costly[_MAX_STRAGGLERS:]
    if left:
        ranks = counted(len(left), "more rank makes", "more ranks make")
        sentences.append(f"{ranks} others wait, each up to {duration_text(left[0][0].cost_ns)}.")
    if job.pipeline is not None:
        sentences.append(pipeline_sentence(job.pipeline))
    if shares and not sentences:
        sentences = [*_waits(shares), *_began_apart(job)]
    return [*missing, *sentences]


def _ranks_missing(report: Report) -> list[str]:
    recorded, size = len(report.traces), max((x.world_size or 0 for x in report.traces), default=0)
    if size <= recorded:
        return []
    return [f"{recorded:,} of {size:,} ranks recorded: what the others cost is not known."]


def _cost_ns(straggler: Straggler, report: Report) -> int:
    saves_ns = (
        x.saves_ns
        for x in report.findings
        if x.rule == waiting_ranks.STRAGGLER.id and x.rank == straggler.rank
    )
    found_ns = next(saves_ns, None)
    return straggler.cost_ns if found_ns is None else found_ns


def _straggler(straggler: Straggler, cost_ns: int, ranks: int) -> str:
    of_what = (
        "a step" if straggler.steps else f"({exact_percent(straggler.share)} of the recording)"
    )
    cost = duration_text(cost_ns)
    if straggler.cause == UNEVEN_WORK:
        return (
            f"The ranks take turns waiting, which costs the job {cost} {of_what}: rank "
            f"{straggler.rank} {straggler.why}."
        )
    who = others(straggler.waiting_ranks, ranks)
    wait_ns = min(straggler.wait_ns)
    costs = f", which costs the job {cost}" if cost_ns < _MIN_FULL_WAIT_SHARE * wait_ns else ""
    return (
        f"Rank {straggler.rank} makes {who} wait {duration_text(wait_ns)} {of_what}{costs}: it "
        f"{straggler.why}."
    )


def others(waiting: Sequence[int], ranks: int) -> str:
    """Name the ranks that wait for one."""
    if len(waiting) == 1:
        return f"rank {waiting[0]}"
    if len(waiting) == ranks - 1:
        return f"the {len(waiting)} other ranks"
    if len(waiting) <= _MAX_NAMED_RANKS:
        return f"ranks {listed(map(str, waiting))}"
    return f"{len(waiting)} other ranks"


def pipeline_sentence(pipeline: Pipeline) -> str:
    """Describe its schedule, its bubble and the ideal one, and the bubble's parts."""
    several = f"{pipeline.pipelines} pipelines" if pipeline.pipelines > 1 else "A pipeline"
    stages = counted(pipeline.stages, "stage", "stages")
    if pipeline.measured_bubble is None:
        return f"{several} of {stages}, whose schedule is not known: {pipeline.why}."
    microbatches = counted(pipeline.microbatches or 0, "microbatch", "microbatches")
    schedule = _SCHEDULES.get(pipeline.schedule, pipeline.schedule)
    theory = pipeline.theory_bubble
    ideal = "" if theory is None else f" (ideal: {exact_percent(theory)})"
    return (
        f"{several} of {stages} with {microbatches} ({schedule}): the bubble is "
        f"{exact_percent(pipeline.measured_bubble)} of the schedule{ideal}"
        f"{_bubble_parts(pipeline.parts)}."
    )


def _bubble_parts(parts: BubbleParts | None) -> str:
    if parts is None:
        return ""
    shares = {
        "schedule": parts.theory,
        "uneven stages": parts.imbalance,
        "transfers": parts.transfer,
        "late CPUs": parts.host,
    }
    named = {name: share for name, share in shares.items() if share >= _MIN_NAMED_STEP_SHARE}
    if not named.keys() - {"schedule"} and parts.rest < _MIN_NAMED_STEP_SHARE:
        return ""
    other = parts.rest + sum(shares[name] for name in shares.keys() - named.keys())
    if other >= _MIN_SHOWN_SCHEDULE_SHARE:
        named["other"] = other
    ordered = sorted(named.items(), key=lambda item: (item[0] != "schedule", -item[1]))
    return f": {', '.join(f'{name} {exact_percent(share)}' for name, share in ordered)}"


def _waits(shares: Sequence[RankShares]) -> list[str]:
    longest = max(shares, key=lambda x: x.wait_ns / x.length_ns)
    busiest = max(shares, key=lambda x: x.transfer_ns / x.length_ns)
    if longest.wait_ns < _MIN_SENTENCE_STEP_SHARE * longest.length_ns:
        sentences = ["No rank waits long for another."]
    else:
        whom = "" if longest.waits_for is None else f", mostly for rank {longest.waits_for}"
        sentences = [
            f"Rank {longest.rank} waits longest for others: "
            f"{longest.percents['wait']} % of a step{whom}."
        ]
    if busiest.transfer_ns >= _MIN_SENTENCE_STEP_SHARE * busiest.length_ns:
        sentences.append(
            f"Exposed transfers take {busiest.percents['transfer']} % of a step "
            f"(rank {busiest.rank})."
        )
    return sentences


def _began_apart(job: Job) -> list[str]:
    if not job.collectives or any(len(x.steps) != 1 for x in job.per_rank):
        return []
    longest = max(job.collectives, key=lambda x: max(x.wait_ns))
    is_start = longest.cause == RECORDING_START
    return ["The recordings did not begin together."] if is_start else []


# --- the table ---


class RankRow(Record):
    """A rank with recorded times; without the profiler ranks would not compare.

    Attributes:
        works_share: share of a step in which its GPU works and does not wait for others.
        shares: None if unknown.
    """

    number: int
    path: str
    step_ns: int
    works_share: float
    shares: RankShares | None


class Ranks(Record):
    """The ranks of a job.

    Attributes:
        order: of rows, the most important first.
        step: name of their steps.
        unlike: a sentence about unlike ranks, or "".
    """

    rows: tuple[RankRow, ...]
    order: tuple[int, ...]
    step: str
    has_names: bool
    unlike: str

    def columns(self, most: int) -> list[Column]:
        """Return the columns of the `most` important ranks."""
        shown = [self.rows[i] for i in sorted(self.order[:most])]
        columns = [("rank", [str(row.number) for row in shown])]
        if self.has_names:
            names = short_names([row.path for row in shown])
            columns.append(("file", [shorten_middle(clean(x), _MAX_FILE_LETTERS) for x in names]))
        columns.append((self.step, [duration_text(row.step_ns) for row in shown]))
        shares = [row.shares for row in shown if row.shares is not None]
        if len(shares) < len(shown):
            return [*columns, ("GPU busy", [percent(row.works_share) for row in shown])]
        for part, name in _PARTS.items():
            is_large = any(getattr(x, part) >= _MIN_COLUMN_SHARE * x.length_ns for x in shares)
            if is_large or name not in ("unmatched", "copies"):
                columns.append((name, [f"{x.percents[name]} %" for x in shares]))
        return [*columns, ("waits for", [x.waits_for_text for x in shares])]

    def more(self, most: int) -> str:
        """Count the ranks beyond `most`; "" for zero."""
        left_out = len(self.rows) - most
        return f"… and {left_out} more ranks" if left_out > 0 else ""


def ranks_of_job(report: Report) -> Ranks:
    """Describe the ranks' steps, and unlike ranks."""
    shares = {x.rank: x for x in rank_shares(report)}
    ranks = [rank for rank in ranks_of(report) if rank.views]
    rows = [_row(rank, shares.get(rank.trace.rank)) for rank in ranks]
    differing = _differing(rows)
    stragglers = [x.rank for x in report.job.stragglers] if report.job else []
    awaited = [x.waits_for for x in shares.values() if x.waits_for is not None]
    first = {*stragglers, *differing, *awaited}
    order = sorted(
        range(len(rows)), key=lambda i: (rows[i].number not in first, rows[i].works_share)
    )
    decision = report.provenance.job
    unlike = ", ".join(f"rank {number} ({why})" for number, why in differing.items())
    return Ranks(
        tuple(rows),
        tuple(order),
        step="profiled step" if any(x.main.scope.is_slowed for x in ranks) else "step",
        # Stated ranks may be places of files, whose names say otherwise.
        has_names=decision is not None and decision.why == STATED,
        unlike=f"Unlike the others: {unlike}." if unlike else "",
    )


def _row(rank: RankView, shares: RankShares | None) -> RankRow:
    scope = rank.main.scope
    busy_ns = scope.deciding.busy_ns if scope.deciding else 0
    works_share = min(1.0, busy_ns / max(1, scope.length_ns))
    if shares is not None:
        works_share = shares.compute_ns / max(1, shares.length_ns)
    return RankRow(rank.trace.rank, rank.trace.path, scope.step_ns, works_share, shares)


def _differing(rows: Sequence[RankRow]) -> dict[int, str]:
    usual = median(row.works_share for row in rows)
    differing = {
        row.number: f"{'computes' if row.shares else 'busy'} {percent(row.works_share)}, usually "
        f"{percent(usual)}"
        for row in rows
        if abs(row.works_share - usual) > _MIN_DIFFERENCE_SHARE
    }
    return differing if _MIN_RANKS_ALIKE * len(differing) <= len(rows) else {}
